"""Convolutions of ONNX: padding of its own at each end of each dim, and of quantised tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ... import scalar
from ...registry import NotLowerable, lowers
from ...rules.elementwise import convert
from ...scalar import Elem
from ...values import Extent, Tensor
from ..builder import OnnxBuilder
from .elementwise import quantize
from .integers import shifted
from .padding import pad
from .pooling import Grid


def _kernel(weight: Tensor) -> list[int]:
    if not all(isinstance(k, int) for k in weight.dims[2:]):
        raise NotLowerable("a kernel of dynamic size")
    return [k for k in weight.dims[2:] if isinstance(k, int)]


def _static(padding: Sequence[Extent]) -> list[int] | None:
    return [p for p in padding if isinstance(p, int)] if all(isinstance(p, int) for p in padding) else None


def _convolve(
    b: OnnxBuilder, x: Tensor, weight: Tensor, bias: Tensor | None, dtype: torch.dtype, group: int, grid: dict[str, Any]
) -> Tensor:
    where = Grid(b, x.dims[2:], _kernel(weight), **grid)
    low, high = _static(where.low), _static(where.high)
    if low is None or high is None:
        # Padding that depends on the extent.
        x = pad(b, x, [0, 0, *where.low], [0, 0, *where.high])
        low = high = [0] * len(where.low)
    config = (where.strides, low, high, where.dilations, group)
    result: Tensor = b.aten("torch.disc.convolution", x, weight, bias, *config, dtype=dtype, rank=x.rank)
    return result


@lowers("onnx.Conv")
def conv(
    b: OnnxBuilder,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    **grid: Any,
) -> Tensor:
    """A convolution."""
    return _convolve(b, x, weight, bias, x.dtype, group, grid)


@lowers("onnx.ConvTranspose")
def conv_transpose(
    b: OnnxBuilder,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    output_padding: Sequence[int] | None = None,
    output_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Tensor:
    """A transposed convolution."""
    kernel = _kernel(weight)
    spatial = len(kernel)
    steps, reach = list(strides or [1] * spatial), list(dilations or [1] * spatial)
    extra = list(output_padding or [0] * spatial)
    start, end = [0] * spatial, [0] * spatial
    for i in range(spatial):
        # The last window ends `cut` elements behind the result.
        cut: Extent | None = None
        if output_shape:
            whole = b.add(b.mul(b.sub(x.dims[2 + i], 1), steps[i]), extra[i] + reach[i] * (kernel[i] - 1) + 1)
            cut = b.sub(whole, output_shape[len(output_shape) - spatial + i])
        elif auto_pad in ("SAME_UPPER", "SAME_LOWER"):
            cut = reach[i] * (kernel[i] - 1) + 1 + extra[i] - steps[i]
        if cut is None:
            if pads and auto_pad == "NOTSET":
                start[i], end[i] = pads[i], pads[spatial + i]
        elif not isinstance(cut, int):
            raise NotLowerable("an output_shape of dynamic extents")
        else:
            # A negative one is more zeros behind.
            half = max(cut, 0) // 2
            start[i] = half if auto_pad == "SAME_UPPER" else max(cut, 0) - half
            end[i] = cut - start[i]
        end[i] -= extra[i]
    config = (steps, start, end, reach, group)
    result: Tensor = b.aten("torch.disc.conv_transpose", x, weight, bias, *config, dtype=x.dtype, rank=x.rank)
    return result


@lowers("onnx.ConvInteger")
def conv_integer(
    b: OnnxBuilder,
    x: Tensor,
    weight: Tensor,
    x_zero: Tensor | None = None,
    weight_zero: Tensor | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    **grid: Any,
) -> Tensor:
    """A convolution of quantised tensors, in i32."""
    left, right = shifted(b, x, x_zero, None), shifted(b, weight, weight_zero, 0)
    return _convolve(b, left, right, None, torch.int32, group, grid)


@lowers("onnx.QLinearConv")
def quantised_conv(
    b: OnnxBuilder,
    x: Tensor,
    x_scale: Tensor,
    x_zero: Tensor,
    weight: Tensor,
    weight_scale: Tensor,
    weight_zero: Tensor,
    scale: Tensor,
    zero: Tensor,
    bias: Tensor | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    **grid: Any,
) -> Tensor:
    """A convolution of quantised tensors, quantised again."""
    left, right = shifted(b, x, x_zero, None), shifted(b, weight, weight_zero, 0)
    product = _convolve(b, left, right, bias, torch.int32, group, grid)

    def factor(x: Elem, w: Elem, out: Elem) -> Elem:
        return out.to(torch.float32) / (x.to(torch.float32) * w.to(torch.float32))

    step = b.map(torch.float32, [b.reshape(x_scale, []), weight_scale, b.reshape(scale, [])], factor)
    if step.rank == 1:
        step = b.reshape(step, [step.dims[0], *[1] * (x.rank - 2)])
    return quantize(b, convert(b, product, torch.float32), step, b.reshape(zero, []))


def _corners(at: Elem, extent: Extent, compute: torch.dtype) -> list[tuple[Elem, Elem]]:
    """The two indices around a place, inside the extent, each with its weight: 0 outside."""
    last = scalar.from_extent(extent, torch.int64) - 1
    low = scalar.floor(at)
    part = at - low
    found = []
    for index, weight in ((low, 1.0 - part), (low + 1.0, part)):
        whole = index.to(torch.int64)
        inside = scalar.minimum(scalar.maximum(whole, 0), last)
        found.append((inside, scalar.select(inside.eq(whole), weight, 0.0).to(compute)))
    return found


@lowers("onnx.DeformConv")
def deform_conv(
    b: OnnxBuilder,
    x: Tensor,
    weight: Tensor,
    offset: Tensor,
    bias: Tensor | None = None,
    mask: Tensor | None = None,
    group: int = 1,
    offset_group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    **grid: Any,
) -> Tensor:
    """A convolution of what lies at learned offsets from its usual places, between the elements."""
    if x.rank != 4:
        raise NotLowerable(f"an operand of {x.rank} dims")
    kernel = _kernel(weight)
    where = Grid(b, x.dims[2:], kernel, **grid)
    n, channels = x.dims[:2]
    rows, columns = offset.dims[2:]
    offsets = b.reshape(offset, [n, offset_group, *kernel, 2, rows, columns])
    masks = None if mask is None else b.reshape(mask, [n, offset_group, *kernel, rows, columns])
    per_group = b.floordiv(channels, offset_group)
    compute = x.dtype

    # What each tap of the kernel sees: [N, C, kh, kw, oh, ow].
    def seen() -> Elem:
        batch, channel, *taps_and_places = (scalar.loop_index(d) for d in range(6))
        taps, places = taps_and_places[:2], taps_and_places[2:]
        own = scalar.trunc_divide(channel, scalar.from_extent(per_group, torch.int64))
        ends = []
        for i in range(2):
            base = places[i] * where.strides[i] + taps[i] * where.dilations[i]
            base = base - scalar.from_extent(where.low[i], torch.int64)
            moved = b.extract(offsets, [batch, own, *taps, scalar.constant(i, torch.int64), *places])
            ends.append(_corners(base.to(compute) + moved, x.dims[2 + i], compute))
        total = None
        for y, y_weight in ends[0]:
            for z, z_weight in ends[1]:
                term = b.extract(x, [batch, channel, y, z]) * (y_weight * z_weight)
                total = term if total is None else total + term
        assert total is not None
        return total if masks is None else total * b.extract(masks, [batch, own, *taps, *places])

    taps = b.generic([], [], [n, channels, *kernel, rows, columns], x.dtype, seen)
    # A product for each group: [N, G, F, P] over C/G * kh * kw.
    inner = b.mul(b.floordiv(channels, group), kernel[0] * kernel[1])
    filters, places = b.floordiv(weight.dims[0], group), b.mul(rows, columns)
    image = b.reshape(taps, [n, group, inner, places])
    matrix = b.reshape(weight, [group, filters, inner])
    product = b.contract(matrix, image, [1, 2, 4], [0, 1, 4, 3], [n, group, filters, places, inner])
    result = b.reshape(product, [n, weight.dims[0], rows, columns])
    inputs = [result] if bias is None else [result, b.reshape(bias, [weight.dims[0], 1, 1])]
    return b.elementwise(x.dtype, inputs, lambda y, *c: y + c[0] if c else y)
