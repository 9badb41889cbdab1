"""Softmax and the norms: reductions and elementwise maps, in f32 for the half types."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from .. import dtypes, locations, scalar
from ..builder import Builder
from ..registry import lowers
from ..scalar import Elem
from ..values import Tensor, normalize_dim
from .elementwise import convert
from .reduction import centred_moments, corrected_moments


@lowers("torch.aten.softmax.int", "torch.aten._softmax", "torch.aten._safe_softmax")
def softmax(b: Builder, x: Tensor, dim: int, *_: Any) -> Tensor:
    """e^(x - max) / sum of it, along ``dim``."""
    exps, total, top, axis = _exponentials(b, _softmax_input(b, x), dim)
    if b.op_name != "torch.aten._safe_softmax":
        return b.along(exps, axis, b.out.dtype, [total], lambda e, s: e / s)

    def fn(e: Elem, s: Elem, m: Elem) -> Elem:
        # _safe_softmax makes zeros of a row of -inf. Other rows without a softmax, those with NaN or inf, stay NaN.
        return scalar.select(m.eq(-math.inf), scalar.constant(0, e.dtype), e / s)

    return b.along(exps, axis, b.out.dtype, [total, top], fn)


@lowers("torch.aten.log_softmax.int", "torch.aten._log_softmax")
def log_softmax(b: Builder, x: Tensor, dim: int, *_: Any) -> Tensor:
    """x - max - log(sum of e^(x - max)), along ``dim``."""
    x = _softmax_input(b, x)
    compute = dtypes.opmath(x.dtype)
    axis = [normalize_dim(dim, x.rank)] if x.rank else []
    top = _row_max(b, x, axis, compute)
    total = b.reduce([x, top], axis, compute, 0, lambda acc, x, m: acc + scalar.exp(x.to(compute) - m))
    # The differences from the maximum are exact where they matter; its sum with the logarithm loses digits.
    return b.along(x, axis, b.out.dtype, [top, total], lambda x, m, s: x.to(compute) - m - scalar.log(s))


def _softmax_input(b: Builder, x: Tensor) -> Tensor:
    # The dtype argument converts first; from half types to f32 that is how it is computed anyhow.
    half = dtypes.is_half(x.dtype) and dtypes.opmath(b.out.dtype) == torch.float32
    return x if half else convert(b, x, b.out.dtype)


def _row_max(b: Builder, x: Tensor, axis: list[int], compute: torch.dtype) -> Tensor:
    return b.reduce(
        [x],
        axis,
        compute,
        dtypes.lowest(compute),
        lambda acc, x: scalar.maximum(acc, x.to(compute)),
    )


def _exponentials(b: Builder, x: Tensor, dim: int) -> tuple[Tensor, Tensor, Tensor, list[int]]:
    """e^(x - max), its sums, the maxima, and the dims that were summed over."""
    compute = dtypes.opmath(x.dtype)
    axis = [normalize_dim(dim, x.rank)] if x.rank else []
    top = _row_max(b, x, axis, compute)
    exps = b.along(x, axis, compute, [top], lambda x, m: scalar.exp(x.to(compute) - m))
    total = b.reduce([exps], axis, compute, 0, lambda acc, e: acc + e)
    return exps, total, top, axis


@lowers("torch.aten.layer_norm")
def layer_norm(
    b: Builder,
    x: Tensor,
    shape: Sequence[Any],
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
    *_: Any,
) -> Tensor:
    """Normalises over the last dims, then scales and shifts."""
    return _layer_norm(b, x, shape, weight, bias, eps)[0]


@lowers("torch.aten.native_layer_norm")
def native_layer_norm(
    b: Builder,
    x: Tensor,
    shape: Sequence[Any],
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """layer_norm, its mean and its reciprocal standard deviation (with unit dims)."""
    y, mean, rstd = _layer_norm(b, x, shape, weight, bias, eps)
    kept = x.rank - len(shape)
    unit = [*x.dims[:kept], *[1] * len(shape)]
    stats = [
        convert(b, b.reshape(stat, unit), info.dtype) for stat, info in zip((mean, rstd), b.results[1:], strict=True)
    ]
    return y, stats[0], stats[1]


def _normalized(b: Builder, x: Tensor, shape: Sequence[Any]) -> list[int]:
    """The last dims, which must have this shape."""
    axis = list(range(x.rank - len(shape), x.rank))
    for i, size in zip(axis, shape, strict=True):
        if isinstance(size, int):
            b.require_equal(x.dims[i], size, f"{locations.operation()}: dim {i} differs from normalized_shape")
    return axis


def _layer_norm(
    b: Builder, x: Tensor, shape: Sequence[Any], weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    compute = dtypes.opmath(x.dtype)
    axis = _normalized(b, x, shape)
    size = b.product([x.dims[i] for i in axis])
    mean, squares = corrected_moments(b, x, axis)
    rstd = b.elementwise(compute, [squares], lambda s: scalar.rsqrt(s / scalar.from_extent(size, compute) + eps))

    def normalise(x: Elem, mean: Elem, rstd: Elem, *affine: Elem) -> Elem:
        y = (x.to(compute) - mean) * rstd
        rest = list(affine)
        if weight is not None:
            y = y * rest.pop(0).to(compute)
        return y + rest.pop(0).to(compute) if bias is not None else y

    affine = [t for t in (weight, bias) if t is not None]
    y = _along_last(b, x, axis, x.dtype, [mean, rstd], affine, normalise)
    return y, mean, rstd


def _along_last(
    b: Builder,
    x: Tensor,
    axis: list[int],
    dtype: torch.dtype,
    stats: list[Tensor],
    affine: list[Tensor],
    fn: Any,
) -> Tensor:
    """Elementwise over x; ``stats`` lack the last dims, ``affine`` have only them."""
    kept = b.loop_map(list(range(x.rank - len(axis))), x.rank)
    maps = [b.identity(x.rank), *[kept] * len(stats)]
    maps += [b.broadcast_map(t.dims, x.dims) for t in affine]
    for t in affine:
        for have, want in zip(t.dims, x.dims[x.rank - t.rank :], strict=True):
            b.require_equal(have, want, "extents of the weight and the normalised dims differ")
    return b.generic([x, *stats, *affine], maps, x.dims, dtype, lambda *elems: fn(*elems).to(dtype))


@lowers("torch.aten.rms_norm", "torch.aten._fused_rms_norm")
def rms_norm(b: Builder, x: Tensor, shape: Sequence[Any], weight: Tensor | None, eps: float | None) -> Any:
    """x / sqrt(mean(x^2) + eps), scaled by the weight."""
    compute = dtypes.opmath(x.dtype)
    axis = _normalized(b, x, shape)
    size = b.product([x.dims[i] for i in axis])
    epsilon = torch.finfo(compute).eps if eps is None else eps

    def add_square(acc: Elem, x: Elem) -> Elem:
        wide = x.to(compute)
        return acc + wide * wide

    squares = b.reduce([x], axis, compute, 0, add_square)
    rstd = b.elementwise(
        compute,
        [squares],
        lambda s: scalar.rsqrt(s / scalar.from_extent(size, compute) + epsilon),
    )

    def normalise(x: Elem, rstd: Elem, *affine: Elem) -> Elem:
        y = x.to(compute) * rstd
        return y * affine[0].to(compute) if affine else y

    affine = [weight] if weight is not None else []
    y = _along_last(b, x, axis, b.out.dtype, [rstd], affine, normalise)
    if len(b.results) == 1:
        return y
    unit = [*x.dims[: x.rank - len(shape)], *[1] * len(shape)]
    return y, convert(b, b.reshape(rstd, unit), b.results[1].dtype)


@lowers("torch.aten.native_group_norm", "torch.aten.group_norm")
def group_norm(b: Builder, x: Tensor, *args: Any) -> Any:
    """Normalises each group of channels (dim 1) of each sample, then scales and shifts by channel."""
    if b.op_name.endswith("native_group_norm"):
        weight, bias, *_, groups, eps = args
    else:
        groups, weight, bias, eps = args[:4]
    compute = dtypes.opmath(x.dtype)
    samples, channels = x.dims[0], x.dims[1]
    inner = b.product(x.dims[2:])
    split = b.reshape(x, [samples, groups, b.floordiv(channels, groups), inner])
    size = b.product(split.dims[2:])
    mean, squares = centred_moments(b, split, [2, 3])
    rstd = b.elementwise(compute, [squares], lambda s: scalar.rsqrt(s / scalar.from_extent(size, compute) + eps))
    affine = [b.reshape(t, [groups, split.dims[2]]) for t in (weight, bias) if t is not None]

    def normalise(x: Elem, mean: Elem, rstd: Elem, *affine: Elem) -> Elem:
        rest = [a.to(compute) for a in affine]
        scale = rstd * rest.pop(0) if weight is not None else rstd
        y = (x.to(compute) - mean) * scale
        return (y + rest.pop(0) if bias is not None else y).to(x.dtype)

    stats, channel = b.loop_map([0, 1], 4), b.loop_map([1, 2], 4)
    maps = [b.identity(4), stats, stats, *[channel] * len(affine)]
    y = b.reshape(b.generic([split, mean, rstd, *affine], maps, split.dims, x.dtype, normalise), x.dims)
    if len(b.results) == 1:
        return y
    return y, convert(b, mean, b.results[1].dtype), convert(b, rstd, b.results[2].dtype)
