"""Where the values of symbols are found when a graph is called."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import sympy
import torch

from .result_layouts import Source


def symbol_sources(arguments: Sequence[tuple[int, Any]], computed: Sequence[Any]) -> dict[sympy.Symbol, Source]:
    """Where the value of each symbol can be read: from arguments, then from computed results."""
    sources: dict[sympy.Symbol, Source] = {}
    derived: list[tuple[sympy.Expr, Source]] = []
    for value, source in [*_places("argument", arguments), *_places("computed", list(enumerate(computed)))]:
        expr = value.node.expr if isinstance(value, torch.SymInt) else None
        if expr is None or not expr.free_symbols:
            continue
        if expr.is_Symbol:
            sources.setdefault(expr, source)
        elif len(expr.free_symbols) == 1:
            derived.append((expr, source))
    for expr, source in derived:
        (symbol,) = expr.free_symbols
        if symbol not in sources and (linear := _linear(expr, symbol)) is not None:
            sources[symbol] = Source(source.kind, source.number, source.attribute, source.dim, *linear)
    return sources


def missing_symbols(layouts: Iterable[Any], sources: dict[sympy.Symbol, Source]) -> list[sympy.Symbol]:
    """Symbols of layouts whose value cannot be read."""
    used = {symbol for layout in layouts for expr in layout.expressions() for symbol in expr.free_symbols}
    return sorted(used - set(sources), key=str)


def _places(kind: Any, values: Sequence[tuple[int, Any]]) -> Iterator[tuple[Any, Source]]:
    """Sizes first: they are the cheapest to read."""
    tensors = [(number, value) for number, value in values if isinstance(value, torch.Tensor)]
    for number, value in values:
        if isinstance(value, torch.SymInt):
            yield value, Source(kind, number, "value")
    for number, value in tensors:
        for dim, size in enumerate(value.shape):
            yield size, Source(kind, number, "shape", dim)
    for number, value in tensors:
        # Only arguments have the strides that tracing saw.
        if kind == "argument" and value.layout == torch.strided:
            for dim, stride in enumerate(value.stride()):
                yield stride, Source(kind, number, "stride", dim)
            yield value.storage_offset(), Source(kind, number, "storage_offset")


def _linear(expr: sympy.Expr, symbol: sympy.Symbol) -> tuple[int, int] | None:
    """(factor, term) if the expression is ``factor * symbol + term`` with integers."""
    try:
        coefficients = sympy.Poly(expr, symbol).all_coeffs()
    except sympy.PolynomialError:
        return None
    if len(coefficients) != 2 or not all(c.is_Integer for c in coefficients):
        return None
    return int(coefficients[0]), int(coefficients[1])
