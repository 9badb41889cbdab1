"""PyTorch as it is, under autocast to bf16."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..workloads import Shape
from ..workloads.base import flat
from . import eager


class Peer(eager.Peer):
    """Eager mode, in which products and convolutions multiply bf16."""

    title = "PyTorch autocast"
    precisions: ClassVar[tuple[str, ...]] = ("bf16",)

    def bind(self, shape: Shape, inputs: tuple[Tensor, ...]) -> Callable[[], Any]:
        """A call of the module."""

        def call() -> Any:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return self.module(*inputs)

        return call

    def outputs(self, result: Any) -> tuple[Tensor, ...]:
        """In f32, as the reference."""
        return tuple(tensor.float() if tensor.is_floating_point() else tensor for tensor in flat(result))
