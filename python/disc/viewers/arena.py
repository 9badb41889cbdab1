"""How much of the arena is in use while each kernel of a call runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch_mlir import ir

from .. import _native
from ..pipeline import IMPORT
from . import generic_ir

if TYPE_CHECKING:
    from ..model import Model

_STAGE, _PLAN = "memory", "disc-memory-assign-buffers"


class UnknownSizeError(ValueError):
    """The arena depends on a value that is not known."""


class ArenaUse:
    """The arena of a model's calls."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._steps: dict[str, list[int]] | None = None
        self._known: dict[tuple[tuple[str, int], ...], Use] = {}

    def at(self, extents: Mapping[str, int]) -> Use:
        """The use of the arena in a call with these values of the symbols.

        Raises:
            UnknownSizeError: a size depends on a symbol without a value, or the target has no plan of an arena.
        """
        key = tuple(sorted(extents.items()))
        if key not in self._known:
            try:
                memory = self._model.memory(**extents)
            except ValueError as error:
                raise UnknownSizeError(str(error)) from None
            if self._steps is None:
                self._steps = steps_of_kernels(self._model)
            self._known[key] = Use(memory.arena, self._steps, memory.temporaries)
        return self._known[key]


@dataclass(frozen=True)
class Use:
    """The arena of one call."""

    allocated: int
    """Bytes of the whole arena."""
    steps: Mapping[str, Sequence[int]]
    """The steps of the host flow at which each kernel is launched, in order."""
    temporaries: Sequence[tuple[int, int, int, int]]
    """Offset, bytes, first and last step of each temporary."""

    def live(self, step: int) -> int:
        """Bytes of the temporaries that are alive at a step."""
        return sum(size for _, size, first, last in self.temporaries if first <= step <= last)


def steps_of_kernels(model: Model) -> dict[str, list[int]]:
    """The steps at which each kernel is launched, numbered as the plan of the arena numbers them."""
    found: dict[str, list[int]] = {}
    for kernel, step in _launches(model):
        found.setdefault(kernel, []).append(step)
    return found


def calls_of_kernels(model: Model) -> list[str]:
    """The names of the kernels that ``main`` launches, in program order."""
    return [kernel for kernel, _ in _launches(model)]


def _launches(model: Model) -> list[tuple[str, int]]:
    """The kernels that ``main`` launches, in program order, and the step of each.

    Every operation of ``main`` is a step when the plan is made, through the bodies of loops and branches.
    """
    pipeline = model.pipeline
    names = (IMPORT, *pipeline.names)
    passes = pipeline[_STAGE].passes
    place = next((n for n, name in enumerate(passes) if name.partition("{")[0] == _PLAN), len(passes))
    module = _native.Module.parse(model.ir(names[names.index(_STAGE) - 1], locations=True))
    if place:
        module.run(f"builtin.module({','.join(passes[:place])})")
    found: list[tuple[str, int]] = []
    for operation in generic_ir.parse(module.text(generic=True)).body.operations:
        if generic_ir.symbol(operation.operation) == "main":
            _number(operation.operation, found, 0)
    return found


def _number(outer: ir.Operation, found: list[tuple[str, int]], step: int) -> int:
    for block in generic_ir.blocks(outer):
        for operation in block.operations:
            name = operation.operation.name
            if name == "disc_plan.call" and (kernel := generic_ir.attribute(operation.operation, "callee")):
                found.append((str(kernel), step))
            step += 1
            if name in ("disc_tensor.loop", "disc_tensor.branch"):
                step = _number(operation.operation, found, step)
    return step
