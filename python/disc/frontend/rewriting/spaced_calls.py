"""Evenly spaced numbers, and differences between neighbours, for sizes that are known at run time only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import sympy
import torch
from torch import Tensor

from ...torch_compat.symbols import torch_sympy

_MOST = 1 << 20
"""A float with a larger denominator is not taken for an exact fraction."""


def _whole(number: Any) -> tuple[Any, int] | None:
    """A number as an integer, which may be symbolic, and its denominator; None if it is not known exactly."""
    if isinstance(number, (int, torch.SymInt)):
        return number, 1
    if isinstance(number, float):
        fraction = Fraction(number) if number == number and abs(number) < _MOST else None
        return None if fraction is None or fraction.denominator > _MOST else fraction.as_integer_ratio()
    if not isinstance(number, torch.SymFloat):
        return None
    exact = _exact(number.node.expr)
    if exact is None:
        return None
    constant, terms = exact
    denominator = sympy.ilcm(constant.q, *(factor.q for _, factor in terms))
    total: Any = int(constant * denominator)
    env = number.node.shape_env
    for symbol, factor in terms:
        size = env.create_symintnode(symbol, hint=None)
        total = total + size * int(factor * denominator)
    return total, int(denominator)


def _exact(expr: Any) -> tuple[sympy.Rational, list[tuple[Any, sympy.Rational]]] | None:
    """A float as a constant and multiples of integer expressions; None if it is of another kind."""
    if expr.is_Float:
        fraction = Fraction(float(expr))
        return (sympy.Rational(*fraction.as_integer_ratio()), []) if fraction.denominator <= _MOST else None
    if expr.is_Integer:
        return sympy.Rational(int(expr)), []
    if isinstance(expr, torch_sympy.ToFloat):
        return sympy.Rational(0), [(expr.args[0], sympy.Rational(1))]
    if isinstance(expr, (torch_sympy.IntTrueDiv, torch_sympy.FloatTrueDiv)):
        over, under = expr.args
        value = _exact(under)
        inner = (sympy.Rational(0), [(over, sympy.Rational(1))]) if over.is_integer else _exact(over)
        if value is None or inner is None or value[1] or value[0] == 0:
            return None
        return inner[0] / value[0], [(symbol, factor / value[0]) for symbol, factor in inner[1]]
    parts = [_exact(arg) for arg in expr.args] if isinstance(expr, (sympy.Add, sympy.Mul)) else [None]
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    if isinstance(expr, sympy.Add):
        return sum((c for c, _ in known), sympy.Rational(0)), [term for _, terms in known for term in terms]
    dynamic = [part for part in known if part[1]]
    scale = sympy.prod([c for c, terms in known if not terms])
    if len(dynamic) > 1:
        return None
    constant, terms = dynamic[0] if dynamic else (sympy.Rational(1), [])
    return constant * scale, [(symbol, factor * scale) for symbol, factor in terms]


def arange(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[..., Tensor] | None:
    """``torch.arange`` of dynamic numbers of which some are floats: PyTorch counts with floats, which fixes sizes."""
    given = {**dict(zip(("start", "end", "step") if len(args) > 1 else ("end",), args, strict=False)), **kwargs}
    start, end, step = given.get("start", 0), given.get("end"), given.get("step", 1)
    numbers = (start, end, step)
    if not any(isinstance(x, (float, torch.SymFloat)) for x in numbers) or not isinstance(step, (int, float)):
        return None
    if not any(isinstance(x, (torch.SymInt, torch.SymFloat)) for x in numbers) or not step:
        return None
    exact = [_whole(x) for x in numbers]
    if any(x is None for x in exact):
        return None
    (first, a), (last, b), (width, c) = (x for x in exact if x is not None)
    # (last / b - first / a) / (width / c), rounded up.
    span, divisor = (last * a - first * b) * c, width * a * b
    count = -(-span // divisor) if divisor > 0 else -(span // -divisor)

    def made(*_: Any, **options: Any) -> Tensor:
        kind = options.get("dtype") or torch.get_default_dtype()
        index = torch.arange(torch.sym_max(count, 0), device=options.get("device"))
        work = kind if kind.is_floating_point else torch.float64
        values = index.to(work) if step == 1 else index.to(work) * step
        return (values if isinstance(start, (int, float)) and start == 0 else values + start).to(kind)

    return made


def fft_frequencies(n: Any, d: float = 1.0, **options: Any) -> Tensor:
    """``torch.fft.fftfreq``."""
    place = torch.arange(n, device=options.get("device"))
    signed = torch.where(place < (n + 1) // 2, place, place - n)
    return signed.to(options.get("dtype") or torch.get_default_dtype()) * (1.0 / (n * d))


def real_fft_frequencies(n: Any, d: float = 1.0, **options: Any) -> Tensor:
    """``torch.fft.rfftfreq``."""
    place = torch.arange(n // 2 + 1, device=options.get("device"))
    return place.to(options.get("dtype") or torch.get_default_dtype()) * (1.0 / (n * d))


def gradient(
    input: Tensor, *, spacing: Any = 1, dim: int | Sequence[int] | None = None, edge_order: int = 1
) -> list[Tensor]:
    """``torch.gradient``."""
    dims = range(input.dim()) if dim is None else [dim] if isinstance(dim, int) else dim
    given = list(spacing) if isinstance(spacing, (list, tuple)) else [spacing] * len(dims)
    return [_gradient(input, d % input.dim(), width, edge_order) for d, width in zip(dims, given, strict=True)]


def _gradient(x: Tensor, dim: int, spacing: Any, order: int) -> Tensor:
    torch._check(x.shape[dim] >= order + 1, lambda: "torch.gradient expects each dimension size to be at least 2")
    end = x.shape[dim]

    def part(start: Any, stop: Any) -> Tensor:
        return torch.ops.aten.slice(x, dim, start, stop)

    first, second = part(0, 1), part(1, 2)
    last, before = part(end - 1, end), part(end - 2, end - 1)
    left, centre, right = part(0, -2), part(1, -1), part(2, None)
    if not isinstance(spacing, Tensor):
        middle = (right - left) / spacing / 2
        if order == 1:
            edges = (second - first) / spacing, (last - before) / spacing
        else:
            third, earlier = part(2, 3), part(end - 3, end - 2)
            edges = (
                (-1.5 * first + 2 * second - 0.5 * third) / spacing,
                (1.5 * last - 2 * before + 0.5 * earlier) / spacing,
            )
        return torch.cat([edges[0], middle, edges[1]], dim)
    widths = (spacing[1:] - spacing[:-1]).reshape([-1 if d == dim else 1 for d in range(x.dim())])
    near, far = (torch.ops.aten.slice(widths, dim, *bounds) for bounds in ((0, -1), (1, None)))
    both = near + far
    middle = -far / (near * both) * left + (far - near) / (near * far) * centre + near / (far * both) * right
    begin, finish = torch.ops.aten.slice(widths, dim, 0, 1), torch.ops.aten.slice(widths, dim, -1, None)
    if order == 1:
        return torch.cat([(second - first) / begin, middle, (last - before) / finish], dim)
    raise NotImplementedError("torch.gradient of coordinates with edge_order=2 along a dim of dynamic size")
