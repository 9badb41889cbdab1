"""Inputs that are numbers and rarely change: what a model's code asks of them alone is a condition on each call.

A learning rate is an input of a training step, and ``if weight_decay != 0`` is answered while it is traced, by the
value that the option has then. Calls check that the answer is still the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import sympy
import torch

from ...torch_compat.symbols import PythonReferenceAnalysis, sympy_interp

_current: list[GivenNumbers] = []


class GivenNumbers:
    """Numbers whose values are known while a program is traced that has them as inputs."""

    def __init__(self) -> None:
        self._values: dict[sympy.Symbol, float] = {}
        self.asked: dict[Any, bool] = {}
        """The conditions on these numbers alone that code asked for, and the answers."""

    def begin(self, numbers: Sequence[tuple[torch.SymFloat, float]]) -> None:
        """Another trace begins: ``numbers`` are its symbolic ones with their values."""
        self._values = {number.node.expr: value for number, value in numbers}
        self.asked.clear()

    def answer(self, condition: torch.SymBool) -> bool | None:
        """Whether a condition holds; None if it depends on more than these numbers."""
        expr = condition.node.expr
        symbols = getattr(expr, "free_symbols", set())
        if not symbols or not all(symbol in self._values for symbol in symbols):
            return None
        if expr not in self.asked:
            self.asked[expr] = holds(expr, self._values)
        return self.asked[expr]

    def symbols(self) -> list[sympy.Symbol]:
        """The symbols of the numbers, in the order of :meth:`begin`."""
        return list(self._values)


def holds(expr: Any, values: Mapping[sympy.Symbol, float]) -> bool:
    """Whether a condition holds for the values of its symbols, in the arithmetic of Python's floats."""
    return bool(sympy_interp(PythonReferenceAnalysis, dict(values), expr))


@contextmanager
def given(numbers: GivenNumbers) -> Iterator[None]:
    """While it is active, conditions on ``numbers`` alone are answered and noted. One thread traces at a time."""
    _current.append(numbers)
    try:
        yield
    finally:
        _current.pop()


def answer(condition: Any) -> bool | None:
    """Whether a condition on given numbers alone holds; None if it is another one."""
    if not _current or not isinstance(condition, torch.SymBool):
        return None
    return _current[-1].answer(condition)
