"""PyTorch's ``prims``: the operations that its reference implementations are written in.

Most have the meaning and the operands of an ATen operation, and share its rule.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from .. import dtypes, scalar
from ..builder import Builder
from ..registry import find_rule, lowers
from ..scalar import Elem
from ..values import Extent, Tensor, normalize_dim
from . import reduction, special, views  # noqa: F401  (the rules of special are among those shared)
from .common import number
from .elementwise import convert

_ALIASES = {
    **{
        name: name
        for name in (
            "abs acos acosh add amax amin asin asinh atan atan2 atanh bitwise_and bitwise_not bitwise_or bitwise_xor"
            " cat ceil clone copysign cos cosh digamma div eq erf erfc exp exp2 expm1 fill floor fmax fmin fmod gcd"
            " ge gt hypot igamma igammac le lgamma log log10 log1p log2 lt maximum minimum mul ne neg"
            " nextafter pow reciprocal remainder round rsqrt sign sin sinh sqrt sub tan tanh trunc"
            " scalar_tensor frexp _conj_physical conj_physical real imag"
        ).split()
    },
    "bessel_i0": "i0",
    "bessel_i0e": "special_i0e",
    "bessel_i1": "special_i1",
    "bessel_i1e": "special_i1e",
    "bessel_j0": "special_bessel_j0",
    "bessel_j1": "special_bessel_j1",
    "copy_strided": "clone",
    "device_put": "alias",
    "erf_inv": "erfinv",
    "erfcx": "special_erfcx",
    "expand_dims": "unsqueeze",
    "ndtri": "special_ndtri",
    "rev": "flip",
    "reshape": "view",
    "shift_left": "bitwise_left_shift",
    "shift_right_arithmetic": "bitwise_right_shift",
    "spherical_bessel_j0": "special_spherical_bessel_j0",
    "squeeze": "squeeze",
    "svd": "_linalg_svd",
    "transpose": "permute",
    "view_of": "alias",
    "where": "where.self",
    "zeta": "special_zeta",
    "full": "full",
    "full_like": "full_like",
    "empty_strided": "empty_strided",
    "empty_permuted": "empty_permuted",
}

for _prim, _aten in _ALIASES.items():
    _rule = find_rule(f"torch.aten.{_aten}")
    if _rule is not None:
        lowers(f"torch.prims.{_prim}")(_rule)


@lowers("torch.prims.div")
def div(b: Builder, x: Any, y: Any) -> Tensor:
    """x / y; integers are rounded towards zero."""
    divide = scalar.trunc_divide if not dtypes.is_float(b.out.dtype) else lambda x, y: x / y
    return b.elementwise(b.out.dtype, [number(x), number(y)], divide)


@lowers("torch.prims.cbrt")
def cbrt(b: Builder, x: Tensor) -> Tensor:
    """The cube root, with the sign of x."""

    def fn(x: Elem) -> Elem:
        size = scalar.power(scalar.absolute(x), x.like(1 / 3))
        # One of Newton's steps: the exponent 1/3 is rounded.
        size = scalar.select(size.eq(0), size, size - (size - scalar.absolute(x) / (size * size)) / 3.0)
        return scalar.select(x < 0, -size, size)

    return b.elementwise(b.out.dtype, [x], fn)


@lowers("torch.prims.isfinite")
def isfinite(b: Builder, x: Tensor) -> Tensor:
    """Whether x is neither infinite nor NaN."""
    return b.map(torch.bool, [x], lambda x: scalar.absolute(x) < math.inf, dims=x.dims)


@lowers("torch.prims.iota")
def iota(b: Builder, length: Extent, start: Any, step: Any, *_: Any) -> Tensor:
    """start, start + step, ..., ``length`` numbers."""
    return b.generic(
        [],
        [],
        [length],
        b.out.dtype,
        lambda: (scalar.loop_index(0, torch.int64) * number(step) + number(start)).to(b.out.dtype),
    )


@lowers("torch.prims.collapse", "torch.prims.collapse_view")
def collapse(b: Builder, x: Tensor, start: int, end: int) -> Tensor:
    """Merges the dimensions start..end."""
    return views.flatten(b, x, start, end)


@lowers("torch.prims.split_dim")
def split_dim(b: Builder, x: Tensor, dim: int, outer: Extent) -> Tensor:
    """Splits a dimension into ``outer`` pieces."""
    dim = normalize_dim(dim, x.rank)
    return b.reshape(x, b.as_exported([*x.dims[:dim], outer, b.quotient([x.dims[dim]], [outer]), *x.dims[dim + 1 :]]))


@lowers("torch.prims.broadcast_in_dim")
def broadcast_in_dim(b: Builder, x: Tensor, shape: Sequence[Extent], places: Sequence[int]) -> Tensor:
    """Repeats x to ``shape``; its dimensions are the dimensions ``places`` of the result."""
    return b.broadcast(x, list(shape), list(places))


@lowers("torch.prims.slice_in_dim")
def slice_in_dim(b: Builder, x: Tensor, start: Extent, limit: Extent, stride: int = 1, axis: int = 0) -> Tensor:
    """x[start:limit:stride] along ``axis``."""
    axis = normalize_dim(axis, x.rank)
    size = b.floordiv(b.add(b.sub(limit, start), stride - 1), stride)
    return b.slice(x, axis, start, size, stride)


def _register_sum(name: str, neutral: int, fn: Any) -> None:
    @lowers(f"torch.prims.{name}")
    def rule(b: Builder, x: Tensor, dims: Sequence[int] | None, *_: Any) -> Tensor:
        if dims is not None and not list(dims):
            return convert(b, x, b.out.dtype)
        return reduction.fold(b, x, dims, False, b.out.dtype, neutral, fn)


_register_sum("sum", 0, lambda acc, x: acc + x)
_register_sum("prod", 1, lambda acc, x: acc * x)
_register_sum("xor_sum", 0, lambda acc, x: acc ^ x)


@lowers("torch.prims.var")
def var(b: Builder, x: Tensor, dims: Sequence[int] | None, correction: float | None = 1, *_: Any) -> Tensor:
    """The variance over ``dims``."""
    return convert(b, reduction.variance(b, x, dims, 1 if correction is None else correction, False)[1], b.out.dtype)
