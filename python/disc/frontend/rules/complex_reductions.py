"""Norms, products, variances and updates of complex numbers."""

from __future__ import annotations

import math
from typing import Any

import torch

from .. import dtypes, scalar
from ..builder import Builder
from ..registry import Rule, find_rule, lowers_complex
from ..scalar import Elem
from ..values import Extent, Tensor, normalize_dim
from . import reduction
from .common import axes
from .complex import (
    Pair,
    arc_tangent,
    complex_map,
    exponential,
    imaginary_part,
    joined,
    logarithm,
    of_result_type,
    quotient,
    real_map,
    real_part,
    root,
    size,
    times,
)
from .cumulative import running_product

# -- norms and variances ---------------------------------------------------------------------------


@lowers_complex("torch.aten.linalg_vector_norm", "torch.aten.norm.ScalarOpt_dim", "torch.aten.norm.Scalar")
def vector_norm(b: Builder, x: Tensor, order: Any = 2, dims: Any = None, keepdim: bool = False, *_: Any) -> Tensor:
    """The norm of the absolute values."""
    part = x.dtype.to_real()
    return reduction.vector_norm(b, real_map(b, [x], size, part), order, dims, keepdim)


@lowers_complex("torch.aten.logsumexp")
def logsumexp(b: Builder, x: Tensor, dims: Any, keepdim: bool = False) -> Tensor:
    """log(sum of e^x); the greatest real part is subtracted first, unless it is infinite."""
    reduced = axes(dims, x.rank)
    re = real_part(b, x)
    dtype = re.dtype
    top = b.reduce([re], reduced, dtype, dtypes.lowest(dtype), scalar.maximum, keepdim=True)
    base = b.elementwise(dtype, [top], lambda m: scalar.select(scalar.absolute(m).eq(math.inf), m.like(0), m))
    terms = complex_map(b, [x, base], lambda p, m: exponential((p[0] - m[0], p[1])), x.dtype)
    sums = [
        b.reduce([part], reduced, dtype, 0, lambda acc, x: acc + x, keepdim=True)
        for part in (real_part(b, terms), imaginary_part(b, terms))
    ]

    def log_plus(total: Pair, m: Pair) -> Pair:
        length, angle = logarithm(total)
        return length + m[0], angle

    result = complex_map(b, [joined(b, *sums), base], log_plus, x.dtype)
    return result if keepdim else b.reshape(result, [d for i, d in enumerate(x.dims) if i not in reduced])


def _moments(b: Builder, x: Tensor, args: tuple[Any, ...]) -> tuple[Tensor, Tensor]:
    dims, correction, keepdim = reduction.variance_arguments(b, args)
    re, im = (
        reduction.variance(b, part, dims, correction, keepdim) for part in (real_part(b, x), imaginary_part(b, x))
    )
    return joined(b, re[0], im[0]), b.elementwise(re[1].dtype, [re[1], im[1]], lambda x, y: x + y)


@lowers_complex("torch.aten.var")
def var(b: Builder, x: Tensor, *args: Any) -> Tensor:
    """The variance: the sum of those of both parts."""
    return _moments(b, x, args)[1]


@lowers_complex("torch.aten.std")
def std(b: Builder, x: Tensor, *args: Any) -> Tensor:
    """The standard deviation."""
    spread = _moments(b, x, args)[1]
    return b.elementwise(spread.dtype, [spread], scalar.sqrt)


@lowers_complex("torch.aten.var_mean")
def var_mean(b: Builder, x: Tensor, *args: Any) -> tuple[Tensor, Tensor]:
    """Variance and mean."""
    average, spread = _moments(b, x, args)
    return spread, average


# -- products --------------------------------------------------------------------------------------


def _multiplied(b: Builder, x: Tensor, y: Tensor) -> Tensor:
    return complex_map(b, [x, y], times, x.dtype)


@lowers_complex("torch.aten.prod")
@of_result_type
def prod(b: Builder, x: Tensor, dims: Any = None, keepdim: Any = False, *_: Any) -> Tensor:
    """The product over a dimension: by halves where the extent is static, else by logarithms of the absolute values."""
    if "dim" not in b.op_name:
        dims, keepdim = None, False
    reduced = axes(dims, x.rank)
    kept = [i for i in range(x.rank) if i not in reduced]
    count = b.product([x.dims[i] for i in reduced])
    outer: list[Extent] = [x.dims[i] for i in kept]
    flat = b.reshape(b.permute(x, [*kept, *reduced]), [*outer, count])
    result = _folded(b, flat) if isinstance(count, int) else _polar_product(b, flat)
    return b.reshape(result, [1 if i in reduced else d for i, d in enumerate(x.dims)]) if keepdim else result


def _folded(b: Builder, x: Tensor) -> Tensor:
    last, count = x.rank - 1, x.dims[-1]
    assert isinstance(count, int)
    if count == 0:
        return b.full(x.dims[:-1], 1, x.dtype)
    while count > 1:
        half = count // 2
        product = _multiplied(b, b.slice(x, last, 0, half), b.slice(x, last, half, half))
        x = b.concat([product, b.slice(x, last, 2 * half, 1)], last) if count % 2 else product
        count -= half
    return b.reshape(x, x.dims[:-1])


def _polar_product(b: Builder, x: Tensor) -> Tensor:
    """Absolute values multiply, angles add up. In f64: the angle of a long product loses digits."""
    wide = torch.float64
    radius = real_map(b, [x], lambda p: size((p[0], p[1])), x.dtype.to_real())
    angle = real_map(b, [x], lambda p: logarithm(p)[1], x.dtype.to_real())
    last = x.rank - 1
    length = b.reduce([radius], [last], wide, 1, lambda acc, r: acc * r.to(wide))
    turned = b.reduce([angle], [last], wide, 0, lambda acc, a: acc + a.to(wide))
    return _of_polar(b, length, turned, x.dtype)


def _of_polar(b: Builder, radius: Tensor, angle: Tensor, dtype: torch.dtype) -> Tensor:
    wide = radius.dtype
    re = b.elementwise(wide, [radius, angle], lambda r, a: r * scalar.unary("cos", a))
    im = b.elementwise(wide, [radius, angle], lambda r, a: r * scalar.unary("sin", a))
    return complex_map(b, [joined(b, re, im)], lambda p: p, dtype)


def _register_logic(name: str, neutral: bool, fn: Any) -> None:
    @lowers_complex(f"torch.aten.{name}")
    def rule(b: Builder, x: Tensor, dims: Any = None, keepdim: bool = False) -> Tensor:
        nonzero = real_map(b, [x], lambda p: p[0].ne(0) | p[1].ne(0), torch.bool)
        return b.reduce([nonzero], axes(dims, x.rank), torch.bool, neutral, fn, keepdim=keepdim)


_register_logic("any", False, lambda acc, x: acc | x)
_register_logic("all", True, lambda acc, x: acc & x)

# -- elementwise -----------------------------------------------------------------------------------


@lowers_complex("torch.aten.addcmul")
def addcmul(b: Builder, x: Tensor, y: Tensor, z: Tensor, value: Any = 1) -> Tensor:
    """x + value y z."""
    return complex_map(b, [x, y, z, value], lambda x, y, z, v: _sum(x, times(times(y, z), v)), b.out.dtype)


@lowers_complex("torch.aten.addcdiv")
def addcdiv(b: Builder, x: Tensor, y: Tensor, z: Tensor, value: Any = 1) -> Tensor:
    """x + value y / z."""
    return complex_map(b, [x, y, z, value], lambda x, y, z, v: _sum(x, times(quotient(y, z), v)), b.out.dtype)


@lowers_complex("torch.aten.lerp")
def lerp(b: Builder, x: Tensor, y: Tensor, weight: Any) -> Tensor:
    """x + weight (y - x)."""
    return complex_map(b, [x, y, weight], lambda x, y, w: _sum(x, times(w, _difference(y, x))), b.out.dtype)


def _sum(x: Pair, y: Pair) -> Pair:
    return x[0] + y[0], x[1] + y[1]


def _difference(x: Pair, y: Pair) -> Pair:
    return x[0] - y[0], x[1] - y[1]


def _expm1(x: Pair) -> Pair:
    """e^x - 1, without cancellation: expm1(a) cos(b) - 2 sin(b / 2)^2."""
    half = scalar.unary("sin", x[1] * 0.5)
    grown = scalar.unary("expm1", x[0])
    sine = scalar.unary("sin", x[1])
    return grown * scalar.unary("cos", x[1]) - 2.0 * half * half, grown * sine + sine


def _log1p(x: Pair) -> Pair:
    """log(1 + x): the logarithm of the absolute value by log1p(2 a + a^2 + b^2) / 2 where 1 + x is near 1."""
    whole = logarithm((x[0] + 1.0, x[1]))
    near = scalar.absolute(x[0]) + scalar.absolute(x[1]) < 0.5
    small = scalar.unary("log1p", x[0] * (x[0] + 2.0) + x[1] * x[1]) * 0.5
    return scalar.select(near, small, whole[0]), whole[1]


def _asinh(x: Elem) -> Elem:
    """In a body, by log1p: exact near 0."""
    a = scalar.absolute(x)
    large = a > 1e8
    safe = scalar.select(large, a.like(1), a)
    value = scalar.unary("log1p", safe + safe * safe / (scalar.sqrt(safe * safe + 1.0) + 1.0))
    value = scalar.select(large, scalar.log(a) + math.log(2), value)
    return scalar.select(x < 0, -value, value)


def _asin(x: Pair) -> Pair:
    """Kahan (Branch Cuts for Complex Elementary Functions, 1987), by the roots of 1 - x and 1 + x."""
    one = (x[0].like(1), x[0].like(0))
    minus, plus = root(_difference(one, x)), root(_sum(one, x))
    re = arc_tangent(x[0], minus[0] * plus[0] - minus[1] * plus[1])
    # The imaginary part of conj(root(1 - x)) root(1 + x).
    return re, _asinh(minus[0] * plus[1] - minus[1] * plus[0])


def _acos(x: Pair) -> Pair:
    one = (x[0].like(1), x[0].like(0))
    minus, plus = root(_difference(one, x)), root(_sum(one, x))
    return arc_tangent(minus[0], plus[0]) * 2.0, _asinh(plus[0] * minus[1] - plus[1] * minus[0])


def _atanh(x: Pair) -> Pair:
    """(log1p(x) - log1p(-x)) / 2."""
    up, down = _log1p(x), _log1p((-x[0], -x[1]))
    return (up[0] - down[0]) * 0.5, (up[1] - down[1]) * 0.5


def _turned(fn: Any) -> Any:
    """-i fn(i x)."""

    def rotated(x: Pair) -> Pair:
        re, im = fn((-x[1], x[0]))
        return im, -re

    return rotated


def _acosh(x: Pair) -> Pair:
    """i or -i times acos(x), with a real part that is not negative."""
    re, im = _acos(x)
    down = im > 0
    return scalar.absolute(im), scalar.select(down, -re, re)


def _register(name: str, fn: Any) -> None:
    @lowers_complex(f"torch.aten.{name}")
    def rule(b: Builder, x: Tensor) -> Tensor:
        return complex_map(b, [x], fn, b.out.dtype)


for _name, _fn in {
    "expm1": _expm1,
    "log1p": _log1p,
    "asin": _asin,
    "acos": _acos,
    "atanh": _atanh,
    "asinh": _turned(_asin),
    "atan": _turned(_atanh),
    "acosh": _acosh,
}.items():
    _register(_name, _fn)

# -- the rules of real tensors, for both parts ------------------------------------------------------

_LINEAR = (
    "tril",
    "triu",
    "gather",
    "index_add",
    "index_copy",
    "index_put",
    "_unsafe_index_put",
    "_index_put_impl",
    "scatter.src",
    "scatter_add",
    "put",
    "slice_scatter",
    "upsample_nearest1d",
    "upsample_nearest2d",
)


def _by_parts(name: str) -> None:
    found = find_rule(f"torch.aten.{name}")
    assert found is not None
    rule: Rule = found

    @lowers_complex(f"torch.aten.{name}")
    def both(b: Builder, x: Tensor, *operands: Any) -> Tensor:
        """The same, of complex numbers: what adds and moves elements does so for each part."""

        def of(part: Any, real: bool) -> Tensor:
            def operand(value: Any) -> Any:
                if isinstance(value, Tensor) and value.dtype.is_complex:
                    return part(b, value)
                if isinstance(value, complex):
                    return value.real if real else value.imag
                return value

            result: Tensor = rule(b, operand(x), *map(operand, operands))
            return result

        return joined(b, of(real_part, True), of(imaginary_part, False))


for _name in _LINEAR:
    if find_rule(f"torch.aten.{_name}") is not None:
        _by_parts(_name)


@lowers_complex("torch.aten.cumprod")
@of_result_type
def cumprod(b: Builder, x: Tensor, dim: int, *_: Any) -> Tensor:
    """Running products: along a static dim by products at doubled distances, else absolute values and angles in f64."""
    if x.rank == 0:
        return x
    dim = normalize_dim(dim, x.rank)
    count = x.dims[dim]
    if isinstance(count, int):
        distance = 1
        while distance < count:
            product = _multiplied(b, b.slice(x, dim, 0, count - distance), b.slice(x, dim, distance, count - distance))
            x = b.concat([b.slice(x, dim, 0, distance), product], dim)
            distance *= 2
        return x
    wide = torch.float64
    radius = real_map(b, [x], lambda p: size((p[0], p[1])).to(wide), wide)
    angle = real_map(b, [x], lambda p: logarithm(p)[1].to(wide), wide)
    length, turned = running_product(b, radius, dim), b.running_sum(angle, dim)
    return _of_polar(b, length, turned, x.dtype)
