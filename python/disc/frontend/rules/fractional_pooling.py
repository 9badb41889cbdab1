"""Fractional max pooling (Graham, 2014): windows of one size, whose places a random number of each plane shifts."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from .. import dtypes, scalar
from ..builder import Builder
from ..registry import NotLowerable, lowers
from ..scalar import Elem
from ..values import Extent, Tensor

_I64 = torch.int64
_LARGEST = 1024
"""Windows are unrolled, of up to this many elements."""


def _start(sample: Elem, place: Elem, extent: Extent, kernel: int, count: Extent) -> Elem:
    """Where window ``place`` of ``count`` begins; the last one ends the input."""
    room = scalar.from_extent(extent, _I64) - kernel
    last = scalar.from_extent(count, _I64) - 1
    # A single window is the last one: what it is divided by does not matter.
    step = room.to(sample.dtype) / scalar.maximum(last, 1).to(sample.dtype)
    shifted = ((place.to(sample.dtype) + sample) * step).to(_I64) - (sample * step).to(_I64)
    return scalar.select(place.eq(last), room, shifted)


def _pool(b: Builder, x: Tensor, kernel: Sequence[int], size: Sequence[Extent], samples: Tensor) -> list[Tensor]:
    spatial = len(kernel)
    taps = list(itertools.product(*(range(k) for k in kernel)))
    if len(taps) > _LARGEST:
        raise NotLowerable(f"windows of more than {_LARGEST} elements")
    image = x if x.rank == spatial + 2 else b.unsqueeze(x, 0)
    extents = image.dims[2:]
    dims = [*image.dims[:2], *size]
    compute = dtypes.opmath(samples.dtype)

    def body(pick: Callable[[Elem, Elem], Elem]) -> Elem:
        batch, channel, *places = (scalar.loop_index(d) for d in range(len(dims)))
        starts = []
        for d, place in enumerate(places):
            # Of planes the first number is the columns', of volumes the slices'.
            number = spatial - 1 - d if spatial == 2 else d
            sample = b.extract(samples, [batch, channel, scalar.constant(number, _I64)]).to(compute)
            starts.append(_start(sample, place, extents[d], kernel[d], size[d]))
        best, where = scalar.constant(dtypes.lowest(x.dtype), x.dtype), scalar.constant(-1, _I64)
        for tap in taps:
            at = [start + offset for start, offset in zip(starts, tap, strict=True)]
            element = b.extract(image, [batch, channel, *at])
            flat = at[0]
            for extent, position in zip(extents[1:], at[1:], strict=True):
                flat = flat * scalar.from_extent(extent, _I64) + position
            better = (element > best) | element.ne(element)
            best, where = scalar.select(better, element, best), scalar.select(better, flat, where)
        return pick(best, where)

    results = [
        b.generic([], [], dims, x.dtype, lambda: body(lambda best, _: best)),
        b.generic([], [], dims, _I64, lambda: body(lambda _, where: where)),
    ]
    return results if x.rank == spatial + 2 else [b.reshape(y, y.dims[1:]) for y in results]


@lowers("torch.aten.fractional_max_pool2d", "torch.aten.fractional_max_pool3d")
def fractional_max_pool(b: Builder, x: Tensor, kernel: Any, size: Any, samples: Tensor) -> list[Tensor]:
    """The largest element of each window, and where in the image it is."""
    spatial = int(b.op_name.split("pool")[1][0])
    kernels, sizes = ([*v] * spatial if len(v) == 1 else list(v) for v in (kernel, size))
    if not all(isinstance(k, int) for k in kernels):
        raise NotLowerable("windows of dynamic size")
    return _pool(b, x, kernels, sizes, samples)
