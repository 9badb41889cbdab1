"""PyTorch's cells in a Python loop: what a recurrent layer costs that one writes by hand."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

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

    def compile(self) -> None:
        """Makes the module."""
        torch.set_num_threads(self.context.threads)
        by_cells = getattr(self.context.workload.build(), "by_cells", None)
        if by_cells is None:
            raise NotSupported("no recurrent layer")
        self.module = by_cells()

    def bind(self, shape: Shape, inputs: tuple[Tensor, ...]) -> Callable[[], Any]:
        """A call of the module."""
        return partial(self.module, *inputs)

    def outputs(self, result: Any) -> tuple[Tensor, ...]:
        """As they are."""
        return flat(result)
