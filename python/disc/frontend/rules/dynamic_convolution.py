"""Convolutions whose kernel size, stride, padding or dilation is known only at run time: one reduction, by index."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch_mlir import ir

from .. import dtypes, scalar
from ..builder import Builder
from ..registry import NotLowerable
from ..scalar import Elem
from ..values import Extent, Tensor
from .common import loops, read_if, require_pixels, within
from .elementwise import convert


def extents_per_dim(values: Extent | Sequence[Extent], count: int) -> list[Extent]:
    """An argument with one number for all dimensions or one for each."""
    found = [values] if isinstance(values, (int, ir.Value)) else list(values)
    if not all(isinstance(v, (int, ir.Value)) for v in found):
        raise NotLowerable("strides, padding and dilations must be integers that follow from sizes")
    return found * count if len(found) == 1 else found


def static(*values: Sequence[Extent]) -> bool:
    """Whether all numbers are known at compile time."""
    return all(isinstance(v, int) for group in values for v in group)


def require_operands(b: Builder, x: Tensor, weight: Tensor, transposed: bool) -> None:
    """Requires what PyTorch requires of extents of 0: a kernel has taps, channels and filters, an image pixels.

    Of no channels, PyTorch's CPU kernel makes other sizes than its meta kernel. A transposed convolution of no images
    may have no pixels.
    """
    name = b.op_name.removeprefix("torch.aten.")
    for extent in weight.dims:
        b.require_at_most(1, extent, f"{name}: the kernel has a size of 0")
    spatial = weight.rank - 2
    least = b.minimum(x.dims[0], 1) if transposed and x.rank == spatial + 2 else 1
    for extent in x.dims[-spatial:]:
        b.require_at_most(least, extent, f"{name}: the input has a spatial size of 0")


def convolution_by_index(
    b: Builder,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    strides: Sequence[Extent],
    low: Sequence[Extent],
    high: Sequence[Extent],
    dilations: Sequence[Extent],
    groups: int,
    *,
    transposed: bool = False,
) -> Tensor:
    """The convolution of any sizes; ``low`` and ``high`` is the padding, or what a transposed one cuts off."""
    spatial = weight.rank - 2
    image = x if x.rank == spatial + 2 else b.unsqueeze(x, 0)
    require_pixels(b, image.dims[2:], "the input")
    channels = b.floordiv(image.dims[1], groups)
    # Transposed ones have their channels first.
    filters = weight.dims[1] if transposed else b.floordiv(weight.dims[0], groups)
    mine = weight.dims[0] if transposed else b.mul(weight.dims[1], groups)
    b.require_equal(image.dims[1], mine, "convolution: channels of input and weight differ")
    split = [groups, channels, filters] if transposed else [groups, filters, channels]
    grouped = b.reshape(weight, [*split, *weight.dims[2:]])
    sizes: list[Extent] = []
    for n, k, s, d, front, back in zip(image.dims[2:], weight.dims[2:], strides, dilations, low, high, strict=True):
        reach, ends = b.mul(d, b.sub(k, 1)), b.add(front, back)
        if transposed:
            sizes.append(b.add(b.sub(b.add(b.mul(b.sub(n, 1), s), reach), ends), 1))
        else:
            sizes.append(b.add(b.floordiv(b.sub(b.add(n, ends), b.add(reach, 1)), s), 1))
        b.require_at_most(int(not transposed), sizes[-1], "the padded input is smaller than the kernel")
    domain: list[Extent] = [image.dims[0], groups, filters, *sizes, channels, *weight.dims[2:]]
    compute = dtypes.opmath(x.dtype)
    channel = 3 + spatial

    def number(extent: Extent) -> Elem:
        return scalar.from_extent(extent, torch.int64)

    def body(acc: Elem, w: Elem) -> Elem:
        at = loops(len(domain))
        inside = scalar.constant(True, torch.bool)
        places = []
        for i, (n, s, d, front) in enumerate(zip(image.dims[2:], strides, dilations, low, strict=True)):
            out, tap = at[3 + i], at[channel + 1 + i] * number(d)
            if transposed:
                place = out + number(front) - tap
                inside = inside & scalar.remainder(place, number(s)).eq(0)
                place = scalar.floor_divide(place, number(s))
            else:
                place = out * number(s) + tap - number(front)
            inside = inside & within(place, n)
            places.append(place)
        value = read_if(b, inside, image, [at[0], at[1] * number(channels) + at[channel], *places])
        return acc + value.to(compute) * w.to(compute)

    kernel = list(range(channel + 1, len(domain)))
    order = [1, channel, 2] if transposed else [1, 2, channel]
    y = b.generic(
        [grouped],
        [b.loop_map([*order, *kernel], len(domain))],
        domain[:channel],
        compute,
        body,
        domain=domain,
        out_map=b.loop_map(list(range(channel)), len(domain)),
        reduced=[channel, *kernel],
        init=0,
    )
    y = b.reshape(y, [image.dims[0], b.mul(groups, filters), *sizes])
    if bias is not None:
        column = b.reshape(bias, [bias.dims[0], *[1] * spatial])
        y = b.elementwise(x.dtype, [y, column], lambda y, c: y + c, compute=compute)
    y = convert(b, y, x.dtype)
    return y if x.rank == y.rank else b.reshape(y, y.dims[1:])
