"""DISC: one compilation for all shapes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import Tensor

from ..workloads import Shape
from ..workloads.base import flat
from .base import Engine


class Peer(Engine):
    """With default options."""

    title = "DISC"
    packages = ("disc",)
    imports = ("disc", "torch.export", "torch._dynamo")
    quick = True
    home = True

    def compile(self) -> None:
        """Compiles for all shapes."""
        import disc

        workload = self.context.workload
        options = disc.Options(threads=self.context.threads)
        self.model = disc.compile(
            workload.build(), workload.example(), dynamic_shapes=workload.dynamic_shapes(), options=options
        )

    def bind(self, shape: Shape, inputs: tuple[Tensor, ...]) -> Callable[[], Any]:
        """A call."""
        return partial(self.model, *inputs)

    def outputs(self, result: Any) -> tuple[Tensor, ...]:
        """As they are."""
        return flat(result)
