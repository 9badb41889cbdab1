"""DISC: one compilation for all shapes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, Literal

from torch import Tensor

from ..workloads import Shape
from ..workloads.base import flat
from .base import NATIVE, Context, Engine


def cpu(context: Context) -> str | None:
    """The CPU to compile for, as `disc.Options` takes it."""
    return None if context.isa == NATIVE else context.cpu


class Peer(Engine):
    """With default options."""

    title = "DISC"
    packages = ("disc-compiler",)
    imports = ("disc", "torch.export", "torch._dynamo")
    quick = True
    precisions: ClassVar[tuple[str, ...]] = ("f32", "bf16", "int8")
    environment = ".venv"

    def compile(self) -> None:
        """Compiles for all shapes."""
        import disc

        workload = self.context.workload
        precision: Literal["f32", "bf16"] = "bf16" if workload.precision == "bf16" else "f32"
        options = disc.Options(threads=self.context.threads, cpu=cpu(self.context), precision=precision)
        model = workload.build()
        if workload.precision == "int8":
            batches, shapes = workload.calibration(), workload.dynamic_shapes()
            model = disc.quantize(model, batches, "int8-static", dynamic_shapes=shapes)
        self.model = disc.compile(model, workload.example(), dynamic_shapes=workload.dynamic_shapes(), options=options)

    def bind(self, shape: Shape, inputs: tuple[Tensor, ...]) -> Callable[[], Any]:
        """A call."""
        return partial(self.model, *inputs)

    def outputs(self, result: Any) -> tuple[Tensor, ...]:
        """As they are."""
        return flat(result)
