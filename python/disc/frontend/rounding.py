"""Integer parts of numbers that are exact as floats, in integers: what ``torch.arange(0.5, n)`` has of elements."""

from __future__ import annotations

import sympy

from ..torch_compat.symbols import torch_sympy

ROUNDED = (torch_sympy.TruncToInt, torch_sympy.FloorToInt, torch_sympy.CeilToInt)
"""What torch makes of a float: ``CeilToInt(FloatTrueDiv(ToFloat(n) - 0.5, 1.0))``."""


def in_integers(expr: sympy.Expr) -> sympy.Expr | None:
    """A :data:`ROUNDED` expression as a division of integers; None if its floats may be rounded, or may be negative.

    ``CeilToInt(1.5 * ToFloat(n))`` is ``(3 * n + 1) // 2``: 3/2 is a float, and so are its products with sizes.
    """
    counts: dict[sympy.Expr, sympy.Dummy] = {}

    def count(x: sympy.Expr) -> sympy.Expr:
        return counts.setdefault(x, sympy.Dummy(integer=True))

    exact = expr.args[0].replace(torch_sympy.ToFloat, count).replace(torch_sympy.FloatTrueDiv, _quotient)
    numerator, denominator = sympy.fraction(sympy.together(exact.replace(lambda x: x.is_Float, _fraction)))
    numerator = sympy.expand(numerator)
    if not denominator.is_Integer or not numerator.is_polynomial(*counts.values()):
        return None
    if not numerator.free_symbols <= set(counts.values()) or numerator.has(sympy.Float):
        return None
    numerator = sympy.expand(numerator.xreplace({dummy: x for x, dummy in counts.items()}))
    if isinstance(expr, torch_sympy.CeilToInt):
        numerator += denominator - 1
    elif isinstance(expr, torch_sympy.TruncToInt) and not _is_positive(numerator):
        return None
    return numerator if denominator == 1 else torch_sympy.FloorDiv(numerator, denominator)


def _quotient(a: sympy.Expr, b: sympy.Expr) -> sympy.Expr:
    """A quotient that floats have exactly: by a power of 2."""
    exact = _fraction(b) if b.is_Float else b
    power = exact.is_Rational and exact.p == 1 and exact.q & (exact.q - 1) == 0
    power = power or (exact.is_Integer and exact > 0 and int(exact) & (int(exact) - 1) == 0)
    return a / exact if power else torch_sympy.FloatTrueDiv(a, b)


def _is_positive(numerator: sympy.Expr) -> bool:
    """Whether sizes and numbers are added alone."""
    terms = sympy.Add.make_args(numerator)
    return all(term.as_coeff_Mul()[0] >= 0 and term.is_polynomial(*term.free_symbols) for term in terms)


def _fraction(value: sympy.Float) -> sympy.Expr:
    """A float as a fraction if that is short enough for exact products with sizes."""
    exact = sympy.Rational(float(value))
    return exact if exact.q <= 1 << 10 and abs(exact.p) < 1 << 20 else value
