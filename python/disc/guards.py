"""The conditions on dynamic sizes that each call of a compiled model checks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from .expressions import parse

_SIGNS = {"eq": "==", "ne": "!=", "le": "<=", "lt": "<", "ge": ">=", "gt": ">", "divisible": "is a multiple of"}
_HOLDS: Mapping[str, Callable[[int, int], bool]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "le": lambda a, b: a <= b,
    "lt": lambda a, b: a < b,
    "ge": lambda a, b: a >= b,
    "gt": lambda a, b: a > b,
    "divisible": lambda a, b: a % b == 0,
}


@dataclass(frozen=True)
class Guard:
    """A condition beyond the ranges of the dynamic dims; made by :meth:`disc.Model.guards`."""

    left: str
    """An expression over the dynamic dims, ``"batch * length"``."""
    relation: str
    """``"eq"``, ``"ne"``, ``"le"``, ``"lt"``, ``"ge"``, ``"gt"`` or ``"divisible"``."""
    right: str
    message: str
    """What a call that fails the check reports; "" where the condition says it."""
    source: str
    """``"path/model.py:12"``, the line that requires it; "" if there is none."""

    @property
    def condition(self) -> str:
        """``"n <= m"``."""
        return f"{self.left} {_SIGNS.get(self.relation, self.relation)} {self.right}"

    def holds(self, sizes: Mapping[str, int]) -> bool:
        """Whether the condition is true for these sizes.

        Raises:
            KeyError: a dim in the condition has no size.
            ZeroDivisionError: the condition divides by zero at these sizes.
        """
        return _HOLDS[self.relation](parse(self.left).evaluate(sizes), parse(self.right).evaluate(sizes))

    def __str__(self) -> str:
        parts = [
            self.condition,
            f"({self.message})" if self.message else "",
            f"at {self.source}" if self.source else "",
        ]
        return " ".join(part for part in parts if part)
