"""Conditions on the inputs' extents that decide the rank of something: the model is lowered for both sides.

A model whose ranks differ between a batch of one and larger ones is a branch at its entry, with the whole graph on
either side, as long as its outputs have one rank. Which conditions there are is found by lowering it without.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import sympy

MOST = 2
"""Each condition doubles the program."""

Path = tuple[bool, ...]
"""Whether the first conditions hold, in their order."""

Units = dict[int, tuple[int, ...]]
"""Dims of outputs, by the outputs' numbers; dims as they are where none is dropped."""


@dataclass(frozen=True)
class Condition:
    """``lhs op rhs``, with the model's names for symbols."""

    op: str
    lhs: sympy.Expr
    rhs: sympy.Expr

    @classmethod
    def of(cls, op: str, lhs: Any, rhs: Any, names: Mapping[sympy.Symbol, sympy.Symbol]) -> Condition | None:
        """Of expressions over a lowering's symbols, which ``names`` has if they are known at the entry; else None."""
        sides = [sympy.sympify(x) for x in (lhs, rhs)]
        if any(symbol not in names for x in sides for symbol in x.free_symbols):
            return None
        return cls(op, *(x.xreplace(dict(names)) for x in sides))

    def sides(self, names: Mapping[sympy.Symbol, sympy.Symbol]) -> tuple[Any, Any]:
        """The two sides over the symbols of a lowering."""
        back = {name: symbol for symbol, name in names.items()}
        lhs, rhs = (x.xreplace(back) for x in (self.lhs, self.rhs))
        return (int(lhs) if lhs.is_Integer else lhs), (int(rhs) if rhs.is_Integer else rhs)


@dataclass
class Cases:
    """The conditions that the model is lowered by."""

    conditions: list[Condition] = field(default_factory=list)
    impossible: set[Path] = field(default_factory=set)
    """Where the model cannot be lowered: its inputs are then required not to be like that."""
    units: list[Units] = field(default_factory=list)
    """For each condition, dims of outputs that the model drops where it holds, by which they are 1."""

    def split(self, found: Condition) -> Cases:
        """With one condition more."""
        return Cases([*self.conditions, found], set(), [*self.units, {}])

    def joined(self) -> Cases:
        """With one condition less."""
        return Cases(self.conditions[:-1], set(), self.units[:-1])

    def dropped(self, path: Path, output: int) -> set[int]:
        """The dims that an output lacks on a path."""
        sides = zip(path, self.units, strict=False)
        return {dim for holds, units in sides if holds for dim in units.get(output, ())}

    def groups(self, output: int) -> tuple[tuple[int, ...], ...]:
        """The dims of an output that it may lack, those together that one condition decides."""
        return tuple(units[output] for units in self.units if output in units)

    def exclude(self, path: Path) -> bool:
        """Does without a side; whether another one is left."""
        while path and (*path[:-1], not path[-1]) in self.impossible:
            path = path[:-1]
        self.impossible.add(path)
        return bool(path)

    def possible(self, path: Path) -> list[bool]:
        """What the next condition may be."""
        return [side for side in (True, False) if (*path, side) not in self.impossible]
