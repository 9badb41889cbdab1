"""The memory of a model's calls, and the plans that a memory budget selects from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from . import _native, tables


@dataclass(frozen=True)
class MemoryUse:
    """The memory of one call, besides weights and the caller's tensors. Sizes are in bytes."""

    arena: int
    """The arena with all temporaries, each rounded up to a cache line."""
    live: int
    """The most of them that is needed at one time, of all kernels: no arena is smaller."""
    in_place: int
    """How many kernels' results took the storage of an operand."""
    temporaries: list[tuple[int, int, int, int]]
    """Offset, size, first and last step of each."""
    results: int = 0
    """Results that the call allocates, unless the caller passes tensors for them. Data-dependent sizes are left out."""
    scratch: int = 0
    """Scratch memory of all threads."""
    total: int = 0
    """What counts against a memory budget: arena, results and scratch, each in whole pages. Copies of strided inputs
    count too, but are not known here."""
    plan: int = 0
    """The plan of the host code: 0, or one that recomputes values instead of keeping them."""
    overhead: float = 0.0
    """The additional time of this plan, as a fraction of the time of plan 0: an estimate of the compiler."""

    def __str__(self) -> str:
        text = tables.text(("memory", "bytes"), [(name, value) for name, value, _ in self._rows()], right=(1,))
        return f"{text}\nplan {self.plan}: about {self.overhead:.1%} more time" if self.plan else text

    def _rows(self) -> list[tuple[str, int, str]]:
        rows = {
            "arena": self.arena,
            "live at one time": self.live,
            "largest temporary": max((t[1] for t in self.temporaries), default=0),
            "results": self.results,
            "scratch": self.scratch,
            "in all": self.total,
        }
        return [(name, value, tables.size(value)) for name, value in rows.items()]

    def _repr_html_(self) -> str:
        note = f"{len(self.temporaries)} temporaries, {self.in_place} results computed in place"
        if self.plan:
            note += f"; plan {self.plan}, about {self.overhead:.1%} more time"
        return tables.html("Memory of a call", ("", "bytes", "size"), self._rows(), right=(1, 2), note=note)


@dataclass(frozen=True)
class MemoryPoint:
    """One plan at some sizes."""

    plan: int
    """Its number; a call takes the first plan that fits the budget."""
    total: int
    """Bytes that count against the budget."""
    overhead: float
    """Its additional time, as a fraction of the time of plan 0: an estimate of the compiler."""


@dataclass(frozen=True)
class MemoryCurve(Sequence[MemoryPoint]):  # type: ignore[misc]
    """The plans that a budget can select at some sizes. Each needs less memory than all before it."""

    points: tuple[MemoryPoint, ...]
    extents: Mapping[str, int] = field(default_factory=dict)

    def __getitem__(self, index: Any) -> Any:
        return self.points[index]

    def __len__(self) -> int:
        return len(self.points)

    @property
    def least(self) -> int:
        """The smallest budget at these sizes."""
        return min(p.total for p in self.points)

    def _rows(self) -> list[tuple[int, int, str, str]]:
        return [(p.plan, p.total, tables.size(p.total), f"{p.overhead:.1%}") for p in self.points]

    def __str__(self) -> str:
        return tables.text(("plan", "bytes", "size", "more time"), self._rows(), right=(0, 1, 2, 3))

    def _repr_html_(self) -> str:
        sizes = ", ".join(f"{name}={value}" for name, value in self.extents.items())
        return tables.html(
            f"Memory and time at {sizes}" if sizes else "Memory and time",
            ("plan", "bytes", "size", "more time"),
            self._rows(),
            right=(0, 1, 2, 3),
        )


def uses(module: _native.Module, extents: Mapping[str, int], threads: int) -> Iterator[MemoryUse]:
    """The memory of a call with each plan, in their order, of a module after the memory stage."""
    facts = module.plans(extents)
    results, scratch = facts["results"], facts["scratch"] * threads
    for number, (function, extra) in enumerate(facts["plans"]):
        arena = module.arena(function, extents)
        yield MemoryUse(
            **arena,
            results=results,
            scratch=scratch,
            total=_native.memory_taken(arena["arena"], facts["on_device"])
            + results
            + _native.memory_taken(scratch, False),
            plan=number,
            overhead=extra / max(facts["cost"], 1),
        )


def fitting(plans: Iterator[MemoryUse], budget: int) -> MemoryUse:
    """The plan that a call takes with this budget. MemoryError, which says the least budget, if none fits."""
    least = None
    for use in plans:
        if use.total <= budget:
            return use
        least = use.total if least is None else min(least, use.total)
    raise MemoryError(f"no plan fits {budget} bytes at these sizes; the least budget is {least} bytes")


def curve(plans: Iterator[MemoryUse], extents: Mapping[str, int]) -> MemoryCurve:
    """The plans that some budget selects."""
    points: list[MemoryPoint] = []
    for use in plans:
        if not points or use.total < points[-1].total:
            points.append(MemoryPoint(use.plan, use.total, use.overhead))
    return MemoryCurve(tuple(points), dict(extents))
