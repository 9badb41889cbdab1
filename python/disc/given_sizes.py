"""Sizes of dynamic dims that a user passes by name, as in ``model.memory(batch=8)``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Any

from .errors import ArgumentTypeError, ArgumentValueError
from .frontend.symbols import Symbol
from .suggestions import suggesting


def check_given_sizes(function: str, sizes: Mapping[str, Any], symbols: Sequence[Symbol]) -> None:
    """ArgumentTypeError or ArgumentValueError if a name is not that of a dynamic size, or a value is not a size.

    Sizes beyond a dim's range pass: a profile has those of calls that failed.
    """
    known = {symbol.name: symbol for symbol in symbols}
    listed = ", ".join(known) or "none"
    for name, value in sizes.items():
        symbol = known.get(name)
        if symbol is None:
            problem = f"{function}: the model has no dynamic size {name!r}"
            raise ArgumentValueError(suggesting(problem, name, known, f"its dynamic sizes: {listed}"))
        if isinstance(value, bool) or not isinstance(value, Integral):
            raise ArgumentTypeError(f"{function}: {name}: expected an int, got {value!r}; the dynamic sizes: {listed}")
        if value < min(symbol.min, 0):
            raise ArgumentValueError(
                f"{function}: {name}: expected a size, 0 or more, got {value}; the dynamic sizes: {listed}"
            )
