"""PyTorch's cells in a Python loop: what a recurrent layer costs that one writes by hand."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..workloads import Shape
from ..workloads.base import flat
from .base import Engine, NotSupported


class Peer(Engine):
    """Eager mode, one call of the cell per step; only for workloads that say how."""

    title = "PyTorch loop over cells"
    packages = ("torch",)
    quick = True
    form: ClassVar[str] = "by_cells"
    """The method of a workload's module that makes it."""

    def compile(self) -> None:
        """Makes the module."""
        torch.set_num_threads(self.context.threads)
        make = getattr(self.context.workload.build(), self.form, None)
        if make is None:
            raise NotSupported("no recurrent layer in this form")
        self.module = make()

    def bind(self, shape: Shape, inputs: tuple[Tensor, ...]) -> Callable[[], Any]:
        """A call of the module."""
        return partial(self.module, *inputs)

    def outputs(self, result: Any) -> tuple[Tensor, ...]:
        """As they are."""
        return flat(result)
