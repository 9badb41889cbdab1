"""Functions, matrix products with a summand and convolutions of complex numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from .. import dtypes, scalar
from ..builder import Builder
from ..registry import Rule, find_rule, lowers_complex
from ..values import Extent, Number, Tensor
from . import convolution, scatter
from .complex import (
    Pair,
    add,
    complex_map,
    exponential,
    imaginary_part,
    joined,
    logarithm,
    matmul,
    power,
    quotient,
    real_part,
    root,
    sine,
    times,
)
from .padding import constant_pad as pad_real


def _scaled(x: Pair, factor: float) -> Pair:
    return x[0] * factor, x[1] * factor


def _exp2(x: Pair) -> Pair:
    return exponential(_scaled(x, math.log(2)))


def _silu(x: Pair) -> Pair:
    down = exponential((-x[0], -x[1]))
    return quotient(x, (down[0] + 1.0, down[1]))


def _sinc(x: Pair) -> Pair:
    angle = _scaled(x, math.pi)
    re, im = quotient(sine(angle), angle)
    zero = x[0].eq(0) & x[1].eq(0)
    return scalar.select(zero, re.like(1), re), scalar.select(zero, im.like(0), im)


def _register(name: str, fn: Any) -> None:
    @lowers_complex(f"torch.aten.{name}")
    def rule(b: Builder, *operands: Any) -> Tensor:
        return complex_map(b, operands, fn, b.out.dtype)


_register("exp2", _exp2)
_register("silu", _silu)
_register("sinc", _sinc)
_register("ldexp", lambda x, y: times(x, _exp2(y)))
_register("float_power", power)


@lowers_complex("torch.aten.outer", "torch.aten.ger")
def outer(b: Builder, x: Tensor, y: Tensor) -> Tensor:
    """The outer product of two vectors."""
    return complex_map(b, [b.unsqueeze(x, 1), y], times, b.out.dtype)


@lowers_complex("torch.aten.fill")
def fill(b: Builder, x: Tensor, value: Any) -> Tensor:
    """All elements ``value``, in the shape of x."""
    if not dtypes.is_complex(x.dtype):
        return b.map(x.dtype, [real_part(b, value)], lambda v: v, dims=x.dims)
    return complex_map(b, [b.full(x.dims, 0, x.dtype), value], lambda _, v: v, x.dtype)


@lowers_complex("torch.aten.index_fill")
def index_fill(b: Builder, x: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
    """result[index[i]] = value, for dim 0."""
    re: Any
    im: Any
    if isinstance(value, Tensor):
        value = complex_map(b, [value], lambda v: v, x.dtype)
        re, im = real_part(b, value), imaginary_part(b, value)
    else:
        re, im = complex(value).real, complex(value).imag
    parts = (real_part(b, x), re), (imaginary_part(b, x), im)
    return joined(b, *(scatter.index_fill(b, part, dim, index, v) for part, v in parts))


@lowers_complex("torch.aten.addmm", "torch.aten.baddbmm", "torch.aten.addmv")
def addmm(b: Builder, c: Tensor, x: Tensor, y: Tensor, beta: Number = 1, alpha: Number = 1) -> Tensor:
    """beta * c + alpha * (x @ y); with beta 0, c is not read."""
    dtype, product = b.out.dtype, matmul(b, x, y)
    if beta == 0:
        return complex_map(b, [product, alpha], times, dtype)

    def sum_of(p: Pair, c: Pair, alpha: Pair, beta: Pair) -> Pair:
        left, right = times(p, alpha), times(c, beta)
        return left[0] + right[0], left[1] + right[1]

    return complex_map(b, [product, c, alpha, beta], sum_of, dtype)


@lowers_complex("torch.aten.logaddexp")
def logaddexp(b: Builder, x: Tensor, y: Tensor) -> Tensor:
    """log(e^x + e^y), without overflow."""

    def fn(x: Pair, y: Pair) -> Pair:
        first = x[0] >= y[0]
        large = (scalar.select(first, x[0], y[0]), scalar.select(first, x[1], y[1]))
        small = (scalar.select(first, y[0], x[0]), scalar.select(first, y[1], x[1]))
        more = exponential((small[0] - large[0], small[1] - large[1]))
        re, im = logarithm((more[0] + 1.0, more[1]))
        return large[0] + re, large[1] + im

    return complex_map(b, [x, y], fn, b.out.dtype)


@lowers_complex("torch.aten.rms_norm")
def rms_norm(
    b: Builder, x: Tensor, shape: Sequence[Any], weight: Tensor | None = None, eps: float | None = None
) -> Any:
    """x / sqrt(mean(x^2) + eps), scaled by the weight: squares, not those of the absolute values."""
    part = dtypes.part(x.dtype)
    axis = list(range(x.rank - len(shape), x.rank))
    size = b.product([x.dims[i] for i in axis])
    epsilon = torch.finfo(part).eps if eps is None else eps
    squares = b.as_pairs(complex_map(b, [x], lambda v: times(v, v), x.dtype))
    total = b.as_complex(b.reduce([squares], axis, part, 0, lambda acc, v: acc + v, keepdim=True))

    def fn(x: Pair, total: Pair, *weight: Pair) -> Pair:
        count = scalar.from_extent(size, part)
        y = quotient(x, root((total[0] / count + epsilon, total[1] / count)))
        return times(y, weight[0]) if weight else y

    return complex_map(b, [x, total, *([weight] if weight is not None else [])], fn, x.dtype)


@lowers_complex("torch.aten.pad")
def pad(b: Builder, x: Tensor, pads: Sequence[Extent], mode: str = "constant", value: Any = None) -> Tensor:
    """x with more elements around its last dims."""
    if mode == "constant":
        fill = complex(value or 0)
        re, im = pad_real(b, real_part(b, x), pads, fill.real), pad_real(b, imaginary_part(b, x), pads, fill.imag)
        return joined(b, re, im)
    rule = find_rule("torch.aten.pad")
    assert rule is not None
    return joined(b, rule(b, real_part(b, x), pads, mode), rule(b, imaginary_part(b, x), pads, mode))


# Which registers the rules for real tensors.
_REAL = (convolution,)


def _register_convolution(name: str) -> None:
    found = find_rule(f"torch.aten.{name}")
    assert found is not None
    rule: Rule = found

    @lowers_complex(f"torch.aten.{name}")
    def of_parts(b: Builder, x: Tensor, weight: Tensor, bias: Tensor | None = None, *options: Any) -> Tensor:
        """Four convolutions of the parts."""
        (xr, xi), (wr, wi) = ((real_part(b, t), imaginary_part(b, t)) for t in (x, weight))

        def of(x: Tensor, w: Tensor) -> Tensor:
            result: Tensor = rule(b, x, w, None, *options)
            return result

        part = xr.dtype
        re = b.elementwise(part, [of(xr, wr), of(xi, wi)], lambda p, q: p - q)
        im = b.elementwise(part, [of(xr, wi), of(xi, wr)], lambda p, q: p + q)
        result = joined(b, re, im)
        if bias is None:
            return result
        spatial = result.rank - (2 if x.rank == weight.rank else 1)
        return add(b, result, b.reshape(bias, [bias.dims[0], *[1] * spatial]))


for _name in (*(f"conv{n}d" for n in (1, 2, 3)), *(f"conv_transpose{n}d" for n in (1, 2, 3)), "convolution"):
    _register_convolution(_name)
