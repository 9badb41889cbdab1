"""PyTorch as it is: the reference of all results."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..workloads import Shape
from ..workloads.base import flat
from .base import Engine


class Peer(Engine):
    """Eager mode, with MKL and oneDNN behind the operators."""

    title = "PyTorch eager"
    packages = ("torch",)
    quick = True
    precisions: ClassVar[tuple[str, ...]] = ("f32", "bf16", "int8")  # in f32, which is the reference

    def compile(self) -> None:
        """Makes the module."""
        torch.set_num_threads(self.context.threads)
        self.module = self.context.workload.build()

    def bind(self, shape: Shape, inputs: tuple[Tensor, ...]) -> Callable[[], Any]:
        """A call of the module."""
        return partial(self.module, *inputs)

    def outputs(self, result: Any) -> tuple[Tensor, ...]:
        """As they are."""
        return flat(result)
