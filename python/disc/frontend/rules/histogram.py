"""Histograms: the bin of each element, then a scatter of ones."""

from __future__ import annotations

import torch

from .. import scalar
from ..builder import Builder
from ..registry import lowers
from ..scalar import Elem
from ..values import Extent, Number, Tensor
from .elementwise import convert
from .scatter import update


def _bounds(b: Builder, x: Tensor, low: Number | None, high: Number | None) -> tuple[Tensor, Tensor]:
    """The outermost edges as tensors [1]: those given, or those of the data."""
    if low is not None and high is not None and low != high:
        return b.full([1], low, x.dtype), b.full([1], high, x.dtype)
    if low is not None and high is not None and low != 0:
        least, most = b.full([1], low, x.dtype), b.full([1], high, x.dtype)
    else:
        limit = float("inf")
        least = b.reduce([x], [0], x.dtype, limit, scalar.minimum, keepdim=True)
        most = b.reduce([x], [0], x.dtype, -limit, scalar.maximum, keepdim=True)
    # A range of nothing is one around it; that of no data is around 0.
    known = b.map(torch.bool, [least, most], lambda a, z: a <= z)
    bottom = b.map(
        x.dtype, [least, most, known], lambda a, z, k: scalar.select(k, scalar.select(a.eq(z), a - 1.0, a), 0.0)
    )
    top = b.map(
        x.dtype, [least, most, known], lambda a, z, k: scalar.select(k, scalar.select(a.eq(z), z + 1.0, z), 1.0)
    )
    return bottom, top


@lowers("torch.aten.histc")
def histc(b: Builder, x: Tensor, bins: Extent = 100, low: Number = 0, high: Number = 0) -> Tensor:
    """The number of elements in each of ``bins`` bins between two bounds, by default the range of the data."""
    flat = b.reshape(x, [b.product(x.dims)])
    dtype = x.dtype if x.dtype.is_floating_point else torch.float64
    wide = convert(b, flat, dtype)
    bottom, top = _bounds(b, wide, low, high)
    count = scalar.from_extent

    def place(x: Elem, low: Elem, high: Elem) -> Elem:
        number = count(bins, torch.int64)
        inside = (x >= low) & (x <= high)
        at = scalar.select(inside, (x - low) * number.to(dtype) / (high - low), 0.0).to(torch.int64)
        return scalar.select(inside, scalar.minimum(at, number - 1), number)

    places = b.map(torch.int64, [wide, bottom, top], place)
    ones = b.broadcast(b.full([], 1, dtype), places.dims)
    counts = update(b, b.full([b.add(bins, 1)], 0, dtype), ones, [(places, 0)], [-1], "sum")
    return convert(b, b.slice(counts, 0, 0, bins), x.dtype)
