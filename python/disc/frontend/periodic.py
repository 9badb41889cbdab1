"""Conditions on one extent that repeat: few values decide them for all.

Sums, multiples, quotients and remainders by constants, maxima and minima of an extent n are, from some n on, a line for
each remainder of n by a period: ``f(n + period) = f(n) + slope * period``. So are quotients of two of them. Two of them
compare alike for n and n + period if n is beyond the places where their maxima and minima change sides.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import sympy

from ..torch_compat.symbols import torch_sympy

_QUOTIENTS = (torch_sympy.FloorDiv, torch_sympy.CleanDiv)
_REMAINDERS = (torch_sympy.Mod, torch_sympy.PythonMod, sympy.Mod)
_EXTREMA = {torch_sympy.Max: max, torch_sympy.Min: min, sympy.Max: max, sympy.Min: min}
_RELATIONS = (sympy.Eq, sympy.Ne, sympy.Le, sympy.Lt, sympy.Ge, sympy.Gt)


@dataclass(frozen=True)
class _Lines:
    """f(n + period) = f(n) + slope * period for n from ``start`` on; there f(n) is at most ``off`` from slope * n."""

    slope: Fraction
    period: int
    off: Fraction
    start: int

    def scaled(self, by: int) -> _Lines:
        return _Lines(self.slope * by, self.period, self.off * abs(by), self.start)


def last_to_try(condition: Any, least: int = 0, *others: Any) -> int | None:
    """The extent up to which a condition on one symbol from ``least`` on is tested; None if it is of another kind.

    ``others``: conditions on the same symbol that are tested with it.
    """
    found = _together([condition, *others])
    return None if found is None else max(found[0], least) + found[1]


def _repetition(condition: Any) -> tuple[int, int] | None:
    """From which extent on a condition repeats, and after how many extents."""
    if len(condition.free_symbols) != 1:
        return None
    if isinstance(condition, (sympy.And, sympy.Or)):
        return _together(condition.args)
    if not isinstance(condition, _RELATIONS):
        return None
    sides = [_lines(side) for side in condition.args]
    if any(side is None for side in sides):
        return None
    left, right = (side for side in sides if side is not None)
    return _apart(left, right), math.lcm(left.period, right.period)


def _together(conditions: Sequence[Any]) -> tuple[int, int] | None:
    known = [_repetition(condition) for condition in conditions]
    parts = [part for part in known if part is not None]
    whole = len(parts) == len(known)
    return (max(begin for begin, _ in parts), math.lcm(*(period for _, period in parts))) if whole else None


def _apart(a: _Lines, b: _Lines) -> int:
    """From where on two lines stay on the same side of each other, for each remainder."""
    begin = max(a.start, b.start)
    return begin if a.slope == b.slope else max(begin, math.ceil((a.off + b.off) / abs(a.slope - b.slope)) + 1)


def _quotient(a: _Lines, b: _Lines) -> _Lines | None:
    """a // b of two lines: from some n on it is near the quotient of their slopes, alike for n and n + period."""
    if b.slope <= 0:
        return None
    quotient = a.slope / b.slope
    above = quotient - math.floor(quotient)
    # a - quotient * b repeats. Divided by b it is less than the distance to the next integers, if b is large enough.
    room = min(above, 1 - above) if above else Fraction(1)
    off = a.off + abs(quotient) * b.off
    enough = math.ceil((off / room + b.off) / b.slope) + 1
    return _Lines(Fraction(0), math.lcm(a.period, b.period), abs(quotient) + 1, max(a.start, b.start, enough))


def _lines(expr: Any) -> _Lines | None:
    if expr.is_Integer:
        return _Lines(Fraction(0), 1, Fraction(abs(int(expr))), 0)
    if expr.is_Symbol:
        return _Lines(Fraction(1), 1, Fraction(0), 0)
    if isinstance(expr, sympy.Mul) and len(expr.args) == 2 and expr.args[0].is_Integer:
        inner = _lines(expr.args[1])
        return None if inner is None else inner.scaled(int(expr.args[0]))
    if isinstance(expr, (*_QUOTIENTS, *_REMAINDERS)):
        inner, by = _lines(expr.args[0]), expr.args[1]
        if inner is not None and isinstance(expr, _QUOTIENTS) and not by.is_Integer:
            divisor = _lines(by)
            return None if divisor is None else _quotient(inner, divisor)
        if inner is None or not by.is_Integer or by <= 0:
            return None
        by = int(by)
        period = inner.period * (by // math.gcd(int(inner.slope * inner.period), by))
        if isinstance(expr, _REMAINDERS):
            return _Lines(Fraction(0), period, Fraction(by), inner.start)
        return _Lines(inner.slope / by, period, inner.off / by + 1, inner.start)
    known = [_lines(arg) for arg in expr.args]
    parts = [part for part in known if part is not None]
    if not parts or len(parts) < len(known):
        return None
    period, off = math.lcm(*(p.period for p in parts)), sum((p.off for p in parts), Fraction(0))
    start = max(p.start for p in parts)
    if isinstance(expr, sympy.Add):
        return _Lines(sum((p.slope for p in parts), Fraction(0)), period, off, start)
    choose = next((fn for kind, fn in _EXTREMA.items() if isinstance(expr, kind)), None)
    if choose is None:
        return None
    start = max([start, *(_apart(a, b) for a in parts for b in parts)])
    return _Lines(choose(p.slope for p in parts), period, off, start)
