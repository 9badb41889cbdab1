"""Resize: one pass along each dim that changes, each element a weighted sum of one, two or four others."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import torch
from torch_mlir.dialects import linalg

from ... import dtypes, scalar
from ...registry import NotLowerable, lowers
from ...scalar import Elem
from ...values import Extent, Tensor, normalize_dim
from ..builder import OnnxBuilder, known
from ..known import elements

# Where an element comes from is computed in f64: rounding must not depend on the extent.
_AT = torch.float64


@lowers("onnx.Resize")
@known(1, 2, 3)
def resize(
    b: OnnxBuilder,
    x: Tensor,
    roi: Any = None,
    scales: Any = None,
    sizes: Any = None,
    mode: str = "nearest",
    coordinate_transformation_mode: str = "half_pixel",
    nearest_mode: str = "round_prefer_floor",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    antialias: int = 0,
    axes: list[int] | None = None,
    keep_aspect_ratio_policy: str = "stretch",
) -> Tensor:
    """x read at other places along some dims."""
    if b.opset < 11:
        # Operands were x and scales.
        return upsample(b, x, roi, mode)
    dims = [normalize_dim(d, x.rank) for d in (axes if axes is not None else range(x.rank))]
    lengths, factors = _targets(b, x, dims, scales, sizes, keep_aspect_ratio_policy)
    corners = elements(roi) if coordinate_transformation_mode == "tf_crop_and_resize" else None
    for i, dim in enumerate(dims):
        crop = (corners[i], corners[len(dims) + i]) if corners else None
        if crop is None and lengths[i] == x.dims[dim] and factors[i] in (None, 1):
            continue
        place = _place(coordinate_transformation_mode, x.dims[dim], lengths[i], factors[i], crop)
        outside = extrapolation_value if crop else None
        taps = _taps(mode, nearest_mode, cubic_coeff_a)
        if antialias and mode != "nearest":
            taps = _antialiased(mode, cubic_coeff_a, _factor(x.dims[dim], lengths[i], factors[i]))
        x = _along(b, x, dim, lengths[i], place, taps, bool(exclude_outside), outside)
    return x


@lowers("onnx.Upsample")
@known(1)
def upsample(b: OnnxBuilder, x: Tensor, scales: Any = None, mode: str = "nearest", **attributes: Any) -> Tensor:
    """Resize as it was before opset 11."""
    factors = elements(scales) if scales is not None else attributes["scales"]
    assert factors is not None
    for dim, factor in enumerate(factors):
        if factor != 1:
            length = _scaled(b, x.dims[dim], factor)
            place = _place("asymmetric", x.dims[dim], length, factor, None)
            x = _along(b, x, dim, length, place, _taps(mode, "floor", 0.0), False, None)
    return x


def _targets(
    b: OnnxBuilder, x: Tensor, dims: list[int], scales: Any, sizes: Any, policy: str
) -> tuple[list[Extent], list[float | None]]:
    """The new extent of each dim, and its factor; None where that is the quotient of the extents."""
    factors = elements(scales)
    if factors:
        return [_scaled(b, x.dims[d], f) for d, f in zip(dims, factors, strict=True)], list(factors)
    lengths = b.extents(sizes)
    if policy == "stretch":
        return lengths, [None] * len(dims)
    old = [x.dims[d] for d in dims]
    if not all(isinstance(n, int) for n in (*old, *lengths)):
        raise NotLowerable(f"keep_aspect_ratio_policy {policy!r} with dynamic extents")
    pick = min if policy == "not_larger" else max
    factor = pick(new / n for new, n in zip(lengths, old, strict=True))  # type: ignore[operator]
    return [int(n * factor + 0.5) for n in old], [factor] * len(dims)  # type: ignore[operator]


def _scaled(b: OnnxBuilder, extent: Extent, factor: float) -> Extent:
    if isinstance(extent, int):
        return int(extent * factor)
    ratio = Fraction(factor).limit_denominator(1 << 12)
    return b.floordiv(b.mul(extent, ratio.numerator), ratio.denominator)


def _factor(old: Extent, new: Extent, factor: float | None) -> float:
    if factor is None and isinstance(old, int) and isinstance(new, int):
        factor = new / old
    if factor is None:
        raise NotLowerable("antialias by a factor that depends on extents")
    return factor


def _place(
    mode: str, old: Extent, new: Extent, factor: float | None, crop: tuple[float, float] | None
) -> Callable[[Elem], Elem]:
    """From the index in the result to the place in the operand."""

    def place(i: Elem) -> Elem:
        i = i.to(_AT)
        before, after = scalar.from_extent(old, _AT), scalar.from_extent(new, _AT)
        scale = after / before if factor is None else scalar.constant(factor, _AT)
        single = after.eq(1)
        if mode in ("half_pixel", "pytorch_half_pixel"):
            at = (i + 0.5) / scale - 0.5
            return scalar.select(single, at * 0.0, at) if mode == "pytorch_half_pixel" else at
        if mode == "asymmetric":
            return i / scale
        if mode == "half_pixel_symmetric":
            adjustment = after / (scale * before)
            return before / 2.0 * (1.0 - adjustment) + (i + 0.5) / scale - 0.5
        steps = scalar.select(single, after, after - 1.0)
        if mode == "align_corners":
            if factor is not None:
                # ONNX means the product here, not the extent that it is rounded down to.
                steps = scalar.select(single, after, before * factor - 1.0)
            return scalar.select(single, i * 0.0, i * (before - 1.0) / steps)
        if crop is None:
            raise NotLowerable(f"coordinate_transformation_mode {mode!r}")
        start, end = crop
        middle = (before - 1.0) * (0.5 * (start + end))
        return scalar.select(single, middle, (before - 1.0) * start + i * (before - 1.0) * (end - start) / steps)

    return place


def _taps(mode: str, nearest: str, a: float) -> Callable[[Elem], list[tuple[Elem, Elem | None]]]:
    """From a place to the indices that count, each with its weight."""

    def at_nearest(x: Elem) -> list[tuple[Elem, Elem | None]]:
        index = {
            "round_prefer_floor": lambda: scalar.unary("ceil", x - 0.5),
            "round_prefer_ceil": lambda: scalar.floor(x + 0.5),
            "floor": lambda: scalar.floor(x),
            "ceil": lambda: scalar.unary("ceil", x),
        }[nearest]()
        return [(index, None)]

    def linear(x: Elem) -> list[tuple[Elem, Elem | None]]:
        low = scalar.floor(x)
        part = x - low
        return [(low, 1.0 - part), (low + 1.0, part)]

    def cubic(x: Elem) -> list[tuple[Elem, Elem | None]]:
        low = scalar.floor(x)
        t = x - low
        u = 1.0 - t
        weights = (_far(t + 1.0, a), _near(t, a), _near(u, a), _far(u + 1.0, a))
        return [(low + (i - 1.0), weight) for i, weight in enumerate(weights)]

    kinds = {"nearest": at_nearest, "linear": linear, "cubic": cubic}
    if mode not in kinds:
        raise NotLowerable(f"mode {mode!r}")
    return kinds[mode]


def _near(d: Elem, a: float) -> Elem:
    """R. Keys, Cubic convolution interpolation for digital image processing, 1981: for distances up to 1."""
    return ((a + 2.0) * d - (a + 3.0)) * d * d + 1.0


def _far(d: Elem, a: float) -> Elem:
    """The same for distances of 1 to 2."""
    return ((a * d - 5.0 * a) * d + 8.0 * a) * d - 4.0 * a


def _antialiased(mode: str, a: float, factor: float) -> Callable[[Elem], list[tuple[Elem, Elem | None]]]:
    """Like :func:`_taps`, the filter being as wide as the step where that is above 1; its weights add up to 1."""
    if mode not in ("linear", "cubic"):
        raise NotLowerable(f"mode {mode!r}")
    factor = min(factor, 1.0)
    first = math.floor(-(1 if mode == "linear" else 2) / factor) + 1

    def shape(d: Elem) -> Elem:
        if mode == "linear":
            return scalar.maximum(1.0 - d, 0.0)
        return scalar.select(d < 1.0, _near(d, a), scalar.select(d < 2.0, _far(d, a), 0.0))

    def taps(x: Elem) -> list[tuple[Elem, Elem | None]]:
        low = scalar.floor(x)
        offsets = range(first, 2 - first)
        weights = [shape(scalar.absolute((low - x + float(k)) * factor)) for k in offsets]
        total = sum(weights[1:], weights[0])
        return [(low + float(k), w / total) for k, w in zip(offsets, weights, strict=True)]

    return taps


def _along(
    b: OnnxBuilder,
    x: Tensor,
    dim: int,
    length: Extent,
    place: Callable[[Elem], Elem],
    taps: Callable[[Elem], list[tuple[Elem, Elem | None]]],
    exclude: bool,
    outside: float | None,
) -> Tensor:
    extent = x.dims[dim]
    compute = dtypes.opmath(x.dtype)

    def body() -> Elem:
        at = place(scalar.loop_index(dim))
        last = scalar.from_extent(extent, _AT) - 1.0
        total = weights = None
        for index, weight in taps(at):
            inside = scalar.minimum(scalar.maximum(index, 0.0), last)
            where: list[Any] = [linalg.IndexOp(d).result for d in range(x.rank)]
            where[dim] = inside.to(torch.int64)
            element = b.extract(x, where)
            if weight is None:
                total = element
                break
            if exclude:
                weight = scalar.select(inside.eq(index), weight, 0.0)
            weights = weight if weights is None else weights + weight
            term = element.to(compute) * weight.to(compute)
            total = term if total is None else total + term
        assert total is not None
        if exclude and weights is not None:
            total = total / weights.to(compute)
        if outside is not None:
            total = scalar.select((at < 0.0) | (at > last), total.like(outside), total)
        return total.to(x.dtype)

    return b.generic([], [], [*x.dims[:dim], length, *x.dims[dim + 1 :]], x.dtype, body)
