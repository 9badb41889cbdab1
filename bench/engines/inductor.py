"""torch.compile for dynamic shapes, with frozen parameters."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

from torch import Tensor

from ..workloads import Shape
from ..workloads.base import flat
from .base import NATIVE, Context, Engine


def hold(context: Context) -> None:
    """Makes Inductor generate code for the instructions that engines may use."""
    import torch._inductor.config

    # Vectors are chosen by what the machine seems to have; the C++ compiler would take it as it is.
    if context.isa != NATIVE:
        torch._inductor.config.cpp.march = context.cpu


class Peer(Engine):
    """Inductor. It compiles anew for extents of 1 and whatever else it specialises on; that is not timed either."""

    title = "torch.compile"
    packages: ClassVar[tuple[str, ...]] = ("torch",)
    imports: ClassVar[tuple[str, ...]] = (
        "torch._dynamo",
        "torch._inductor.compile_fx",
    )
    recompiles = True
    backend: ClassVar[str] = "inductor"

    def compile(self) -> None:
        """Compiles at the sizes that every engine gets as an example."""
        import torch._dynamo.config
        import torch._inductor.config

        torch.set_num_threads(self.context.threads)
        torch._inductor.config.freezing = True
        hold(self.context)
        # The default gives up after 8 and runs eagerly from then on.
        torch._dynamo.config.recompile_limit = 64
        self.model = torch.compile(self.context.workload.build(), dynamic=True, backend=self.backend)
        # As calls will be: code that was compiled in another mode is not used in this one.
        with torch.inference_mode():
            self.model(*self.context.workload.example())

    def bind(self, shape: Shape, inputs: tuple[Tensor, ...]) -> Callable[[], Any]:
        """A call; the first one may compile."""
        return partial(self.model, *inputs)

    def outputs(self, result: Any) -> tuple[Tensor, ...]:
        """As they are."""
        return flat(result)
