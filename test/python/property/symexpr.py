"""Random symbolic expressions: as text for `disc-symexpr`, and as Python values."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from hypothesis import strategies as st

SYMBOLS = ("B", "S", "T", "u")


class Undefined(Exception):
    """Division by zero, somewhere in an expression."""


def floordiv(a: int, b: int) -> int:
    if b == 0:
        raise Undefined
    return a // b


def mod(a: int, b: int) -> int:
    if b == 0:
        raise Undefined
    return a % b


OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "floordiv": floordiv,
    "ceildiv": lambda a, b: -floordiv(-a, b),
    "mod": mod,
    "min": min,
    "max": max,
}


@dataclass(frozen=True)
class Expr:
    """A leaf (a symbol or an integer) or an operation on two expressions."""

    head: str | int
    args: tuple[Expr, ...] = ()

    def __str__(self) -> str:
        if not self.args:
            return str(self.head)
        a, b = self.args
        if self.head in ("min", "max"):
            return f"{self.head}({a}, {b})"
        return f"({a} {self.head} {b})"

    def value(self, symbols: Mapping[str, int]) -> int:
        """What Python makes of it; Undefined if it divides by zero."""
        if self.args:
            return OPERATIONS[str(self.head)](*(arg.value(symbols) for arg in self.args))
        return self.head if isinstance(self.head, int) else symbols[self.head]


def exprs(operations: Iterable[str] = OPERATIONS, max_leaves: int = 12) -> st.SearchStrategy[Expr]:
    """Expressions over SYMBOLS. Integers are small, and often what rules look for: 0, 1, powers of two."""
    integers = st.one_of(st.sampled_from([0, 1, 2, 3, 4, 8, 15, 16, 64]), st.integers(-20, 20))
    leaves = st.one_of(st.sampled_from(SYMBOLS), integers).map(Expr)
    names = st.sampled_from(sorted(operations))
    return st.recursive(
        leaves,
        lambda inner: st.builds(lambda name, a, b: Expr(name, (a, b)), names, inner, inner),
        max_leaves=max_leaves,
    )


class Tool:
    """A running `disc-symexpr`."""

    def __init__(self, path: Path) -> None:
        self._process = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    @staticmethod
    def find() -> Path | None:
        build = os.environ.get("DISC_BUILD", Path(__file__).resolve().parents[3] / "build")
        path = Path(build) / "tools/disc-symexpr/disc-symexpr"
        return path if path.exists() else None

    def ask(self, *fields: object) -> list[str]:
        """The fields of the answer."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(" ; ".join(map(str, fields)) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline().strip()
        assert answer and not answer.startswith("error"), (fields, answer)
        return [field.strip() for field in answer.split(";")]

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
