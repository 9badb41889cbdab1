"""DISC compiled for one shape after the other: what dynamic shapes cost. Not a peer."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import Tensor

from ..workloads import Shape
from . import disc


class Peer(disc.Peer):
    """A compilation per shape, at `bind`."""

    title = "DISC, static"
    quick = False
    precisions = ("f32",)
    recompiles = True

    def compile(self) -> None:
        """Only makes the module: shapes are yet to come."""
        self.module = self.context.workload.build()

    def bind(self, shape: Shape, inputs: tuple[Tensor, ...]) -> Callable[[], Any]:
        """A call of a model for this shape alone."""
        import disc as compiler

        model = compiler.compile(
            self.module, inputs, options=compiler.Options(threads=self.context.threads, cpu=disc.cpu(self.context))
        )
        return partial(model, *inputs)
