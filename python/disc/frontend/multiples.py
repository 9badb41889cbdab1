"""Sizes that are rounded to a multiple: PyTorch gets them as a product, whose factors cancel.

Code that pads n to a multiple of 16 adds ``(16 - n % 16) % 16``; code that crops subtracts ``n % 16``. As long as such
a sum stays one, neither PyTorch's tests of sizes nor sympy see that 16 divides it: each chunk count and each reshape is
then a condition on n, with remainders inside of quotients, whose simplification takes most of an import's time. So the
sums become products as they arise::

    n + Mod(16 - Mod(n, 16), 16)  ->  16 * ((n + 15) // 16)
    n - Mod(n, 16)                ->  16 * (n // 16)
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import sympy

from ..torch_compat import patches
from ..torch_compat.patching import replaced
from ..torch_compat.symbols import FloorDiv, torch_sympy

_REMAINDERS = (torch_sympy.Mod, torch_sympy.PythonMod, sympy.Mod)


@contextmanager
def as_products() -> Iterator[None]:
    """While it is active, sums of sizes that are a size rounded up or down to a multiple are products."""

    def add(original: Any, *args: Any, **kwargs: Any) -> tuple[bool, Any]:
        of_symbols, total = original(*args, **kwargs)
        return (of_symbols, total) if of_symbols else (False, rounded(total))

    with replaced({patches.SUMS: add}):
        yield


@functools.lru_cache(4096)
def rounded(total: Any) -> Any:
    """A sum in which ``a + (-a) % k`` is ``k * ceil(a / k)``, and ``a - a % k`` is ``k * floor(a / k)``.

    ``k`` is a positive integer, and ``a`` any sum of integers: ``%`` and ``//`` are Python's, so that this is true of
    negative ones, too. Other expressions are returned unchanged.
    """
    if not isinstance(total, sympy.Add):
        return total
    terms = total.as_coefficients_dict()
    for remainder, sign in terms.items():
        if not isinstance(remainder, _REMAINDERS) or abs(sign) != 1:
            continue
        dividend, by = remainder.args
        if not by.is_Integer or by < 1:
            continue
        up = sign == 1
        part = _residue(-dividend if up else dividend, by)
        # Of 2, each is the negative of itself.
        for size in (part, -part) if by == 2 else (part,):
            if _is_in(size, terms):
                quotient = FloorDiv(size + by - 1 if up else size, by)
                return rounded(total - size - sign * remainder + by * quotient)
    return total


def _residue(expr: Any, by: Any) -> Any:
    """A sum that leaves the same remainder: without multiples of ``by``, and without remainders by multiples of it."""
    found = sympy.Integer(0)
    for term, factor in sympy.expand(expr).as_coefficients_dict().items():
        if term == 1:
            factor %= by
        elif isinstance(term, _REMAINDERS) and term.args[1].is_Integer and term.args[1] % by == 0:
            term = _residue(term.args[0], by)
        if factor % by != 0:
            found += factor * term
    return found


def _is_in(size: Any, terms: Any) -> bool:
    """Whether the terms of a sum contain those of another one, whatever its number is."""
    wanted = {term: factor for term, factor in size.as_coefficients_dict().items() if term != 1}
    return bool(wanted) and all(terms.get(term) == factor for term, factor in wanted.items())
