"""How much memory calls of a model need, and the plans among which a memory budget chooses."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from . import _native, tables
from .errors import ArgumentTypeError, ArgumentValueError

_UNITS = {"": 1, "b": 1}
_UNITS.update({prefix + suffix: 1000 ** (n + 1) for n, prefix in enumerate("kmgt") for suffix in ("", "b")})
_UNITS.update({prefix + suffix: 1024 ** (n + 1) for n, prefix in enumerate("kmgt") for suffix in ("i", "ib")})


def parse_bytes(text: int | str, what: str = "memory_budget") -> int:
    """A number of bytes: an int, or text such as ``"512MiB"``, ``"1.5 GB"`` or ``"4096"``.

    Raises ArgumentTypeError or ArgumentValueError, which begin with ``what``, for anything else and for less than 1.
    """
    if isinstance(text, bool) or not isinstance(text, (int, str)):
        raise ArgumentTypeError(f"{what}: expected a number of bytes or text such as '512MiB', got {text!r}")
    if isinstance(text, int):
        count = text
    else:
        match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]*)?)\s*([a-z]*)\s*", text.lower())
        if match is None or match[2] not in _UNITS:
            raise ArgumentValueError(f"{what}: expected a number of bytes or text such as '512MiB', got {text!r}")
        count = int(float(match[1]) * _UNITS[match[2]])
    if not 1 <= count < 1 << 63:
        raise ArgumentValueError(f"{what}: expected at least one byte, got {text!r}")
    return count


@dataclass(frozen=True)
class MemoryUse:
    """What one call needs, beside weights and the tensors that it is given. Sizes are in bytes."""

    arena: int
    """All temporaries, which lie in one arena, each rounded up to a cache line."""
    live: int
    """The most of them that is needed at one time, of all kernels: no arena is smaller."""
    in_place: int
    """How many kernels' results took the storage of an operand."""
    temporaries: list[tuple[int, int, int, int]]
    """Offset, size, first and last step of each."""
    results: int = 0
    """Results that the call allocates if it is not given tensors for them, as far as their sizes follow from the inputs'."""
    scratch: int = 0
    """Memory of the threads for the kernels that need some, together."""
    plan: int = 0
    """The plan of the host code: 0, or one that computes values again instead of keeping them."""
    overhead: float = 0.0
    """The time that this plan takes more, in parts of the time without it, as the compiler estimates it."""

    @property
    def total(self) -> int:
        """What counts against a memory budget."""
        return self.arena + self.results + self.scratch

    def __str__(self) -> str:
        return tables.text(("memory", "bytes"), [(name, value) for name, value, _ in self._rows()], right=(1,))

    def _rows(self) -> list[tuple[str, int, str]]:
        rows = {
            "arena": self.arena,
            "live at one time": self.live,
            "largest temporary": max((t[1] for t in self.temporaries), default=0),
            "results": self.results,
            "scratch": self.scratch,
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
    """Its number; calls take the first one that fits the budget."""
    total: int
    """Bytes that count against the budget."""
    overhead: float
    """The time that it takes more than plan 0, in parts of plan 0's, as the compiler estimates it."""


@dataclass(frozen=True)
class MemoryCurve(Sequence[MemoryPoint]):  # type: ignore[misc]
    """The plans of a model at some sizes, those that a budget can choose: each needs less than all before it."""

    points: tuple[MemoryPoint, ...]
    extents: Mapping[str, int] = field(default_factory=dict)

    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        return self.points[index]

    def __len__(self) -> int:
        return len(self.points)

    def __iter__(self) -> Iterator[MemoryPoint]:
        return iter(self.points)

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
    """What a call needs with each plan of a module that has been through the memory stage, in their order."""
    facts = module.plans(extents)
    for number, (function, extra) in enumerate(facts["plans"]):
        yield MemoryUse(
            **module.arena(function, extents),
            results=facts["results"],
            scratch=facts["scratch"] * threads,
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
    raise MemoryError(f"no plan needs at most {budget} bytes at these sizes; the least budget is {least} bytes")


def curve(plans: Iterator[MemoryUse], extents: Mapping[str, int]) -> MemoryCurve:
    """The plans that some budget chooses."""
    points: list[MemoryPoint] = []
    for use in plans:
        if not points or use.total < points[-1].total:
            points.append(MemoryPoint(use.plan, use.total, use.overhead))
    return MemoryCurve(tuple(points), dict(extents))
