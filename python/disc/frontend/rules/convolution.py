"""Convolutions. The op of the IR has its channels last; views put them where torch has them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch_mlir import ir
from torch_mlir.dialects import linalg

from .. import dtypes, scalar
from ..builder import Builder
from ..registry import NotLowerable, lowers
from ..scalar import Elem
from ..values import Extent, Tensor, is_one, tensor_type
from .dynamic_convolution import convolution_by_index, extents_per_dim, require_operands, static
from .elementwise import convert
from .padding import zero_padded


@lowers("torch.aten.convolution", "torch.aten._convolution")
def convolution(
    b: Builder,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    *_: Any,
) -> Tensor:
    """Any convolution of one to three spatial dims, plain or transposed."""
    require_operands(b, x, weight, transposed)
    if transposed:
        return _transposed(b, x, weight, bias, stride, padding, output_padding, groups, dilation)
    return _plain(b, x, weight, bias, stride, padding, dilation, groups)


@lowers("torch.aten.conv1d", "torch.aten.conv2d", "torch.aten.conv3d")
def conv(
    b: Builder,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sequence[int] = (1,),
    padding: Sequence[int] | str = (0,),
    dilation: Sequence[int] = (1,),
    groups: int = 1,
) -> Tensor:
    """A plain convolution; padding may be "valid" or "same"."""
    require_operands(b, x, weight, False)
    return _plain(b, x, weight, bias, stride, padding, dilation, groups)


@lowers("torch.aten.conv_transpose1d", "torch.aten.conv_transpose2d", "torch.aten.conv_transpose3d")
def conv_transpose(
    b: Builder,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sequence[int] = (1,),
    padding: Sequence[int] = (0,),
    output_padding: Sequence[int] = (0,),
    groups: int = 1,
    dilation: Sequence[int] = (1,),
) -> Tensor:
    """A transposed convolution."""
    require_operands(b, x, weight, True)
    return _transposed(b, x, weight, bias, stride, padding, output_padding, groups, dilation)


@lowers("torch.aten.conv_tbc")
def conv_tbc(b: Builder, x: Tensor, weight: Tensor, bias: Tensor, padding: int = 0) -> Tensor:
    """A convolution over time of [time, batch, channels] by a kernel of [taps, channels, filters]."""
    length = b.add(b.sub(b.add(x.dims[0], b.mul(2, padding)), weight.dims[0]), 1)
    # Unlike other convolutions it may have no window: one more is computed, and cut off.
    more = int(not isinstance(length, int))
    image, kernel = b.permute(x, [1, 2, 0]), b.permute(weight, [2, 1, 0])
    y = padded_convolution(b, image, kernel, bias, [1], [padding], [padding + more], [1], 1)
    return b.permute(b.slice(y, 2, 0, length) if more else y, [2, 0, 1])


@lowers("torch.aten.convolution_backward")
def convolution_backward(
    b: Builder,
    grad: Tensor,
    x: Tensor,
    weight: Tensor,
    bias_sizes: Sequence[Extent] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    mask: Sequence[bool],
) -> tuple[Tensor | None, ...]:
    """The gradients of input, weight and bias, those that are asked for: two convolutions and a sum."""
    spatial = weight.rank - 2
    strides, paddings, dilations = (per_dim(v, spatial) for v in (stride, padding, dilation))
    to_input = to_weight = to_bias = None
    if mask[0]:
        if transposed:
            to_input = _plain(b, grad, weight, None, strides, paddings, dilations, groups)
        else:
            # A stride may leave elements after the last window.
            left = [s - 1 for s in strides]
            to_input = _transposed(b, grad, weight, None, strides, paddings, left, groups, dilations)
        to_input = _cut(b, to_input, x.dims)
    if mask[1]:
        image, windows = (grad, x) if transposed else (x, grad)
        to_weight = _weight_gradient(b, image, windows, weight.dims, strides, paddings, dilations, groups)
    if mask[2]:
        total = b.reduce([grad], [0, *range(2, grad.rank)], dtypes.opmath(grad.dtype), 0, lambda acc, g: acc + g)
        dims = b.as_exported(total.dims, 2)
        b.require_equal(total.dims[0], dims[0], "convolution_backward: the bias has as many elements as channels")
        to_bias = convert(b, b.reshape(total, dims), grad.dtype)
    return to_input, to_weight, to_bias


def channels_last(b: Builder, x: Tensor) -> Tensor:
    """[N, C, s...] as [N, s..., C]."""
    return b.permute(x, [0, *range(2, x.rank), 1])


def channels_first(b: Builder, x: Tensor) -> Tensor:
    """[N, s..., C] as [N, C, s...]."""
    return b.permute(x, [0, x.rank - 1, *range(1, x.rank - 1)])


def per_dim(values: int | Sequence[int], count: int) -> list[int]:
    """An argument with one number for all dims or one for each."""
    values = [values] if isinstance(values, int) else list(values)
    if not all(isinstance(v, int) for v in values):
        raise NotLowerable("strides, padding and dilations must be static")
    return values * count if len(values) == 1 else values


def _plain(
    b: Builder,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int] | str,
    dilation: Sequence[int],
    groups: int,
) -> Tensor:
    spatial = weight.rank - 2
    strides, dilations = extents_per_dim(stride, spatial), extents_per_dim(dilation, spatial)
    kernel = weight.dims[2:]
    if isinstance(padding, str):
        low: list[Extent] = [0] * spatial
        high: list[Extent] = [0] * spatial
        if padding == "same":
            total = [b.mul(d, b.sub(k, 1)) for d, k in zip(dilations, kernel, strict=True)]
            low = [b.floordiv(t, 2) for t in total]
            high = [b.sub(t, at) for t, at in zip(total, low, strict=True)]
    else:
        low = high = extents_per_dim(padding, spatial)
    if not static(strides, dilations):
        return convolution_by_index(b, x, weight, bias, strides, low, high, dilations, groups)
    return padded_convolution(b, x, weight, bias, strides, low, high, dilations, groups)


@lowers("torch.disc.convolution")
def padded_convolution(
    b: Builder,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    strides: Sequence[int],
    low: Sequence[Extent],
    high: Sequence[Extent],
    dilations: Sequence[int],
    groups: int,
) -> Tensor:
    """A plain convolution with separate padding at each end of each dim."""
    filters = b.floordiv(weight.dims[0], groups)
    grouped = b.reshape(weight, [groups, filters, *weight.dims[1:]])
    grouped = b.permute(grouped, [0, 1, *range(3, grouped.rank), 2])
    return _apply(b, x, grouped, bias, strides, low, high, dilations, [1] * len(strides))


def _transposed(
    b: Builder,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    output_padding: Sequence[int],
    groups: int,
    dilation: Sequence[int],
) -> Tensor:
    spatial = weight.rank - 2
    strides, dilations = extents_per_dim(stride, spatial), extents_per_dim(dilation, spatial)
    paddings, extra = extents_per_dim(padding, spatial), extents_per_dim(output_padding, spatial)
    ends = [b.sub(p, e) for p, e in zip(paddings, extra, strict=True)]
    if not static(strides, dilations):
        return convolution_by_index(b, x, weight, bias, strides, paddings, ends, dilations, groups, transposed=True)
    return cut_conv_transpose(b, x, weight, bias, strides, paddings, ends, dilations, groups)


@lowers("torch.disc.conv_transpose")
def cut_conv_transpose(
    b: Builder,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    strides: Sequence[int],
    start: Sequence[Extent],
    end: Sequence[Extent],
    dilations: Sequence[int],
    groups: int,
) -> Tensor:
    """A convolution of the input with zeros between its elements by the mirrored kernel, cut at both ends.

    Said in the cheapest way.
    """
    kernel = weight.dims[2:]
    whole = static(kernel, start, end) and list(kernel) == list(strides) and not any(start) and not any(end)
    if groups == 1 and whole and max(dilations) == 1:
        return _enlarged(b, x, weight, bias, kernel)
    if max(strides) > 1 and max(dilations) > 1 and not static(kernel, start, end):
        return convolution_by_index(b, x, weight, bias, strides, start, end, dilations, groups, transposed=True)
    channels = b.floordiv(weight.dims[0], groups)
    grouped = b.reshape(weight, [groups, channels, *weight.dims[1:]])
    if max(strides) > 1 and max(dilations) == 1:
        return _phased(b, x, grouped, bias, strides, start, end)
    grouped = _mirrored(b, b.permute(grouped, [0, 2, *range(3, grouped.rank), 1]))
    reach = [b.mul(d, b.sub(k, 1)) for d, k in zip(dilations, kernel, strict=True)]
    low, high = ([b.sub(r, c) for r, c in zip(reach, cut, strict=True)] for cut in (start, end))
    return _apply(b, x, grouped, bias, [1] * len(kernel), low, high, dilations, strides)


def _mirrored(b: Builder, weight: Tensor) -> Tensor:
    """[G, F, k..., C] with each kernel dim reversed."""
    kernel = range(2, weight.rank - 1)
    if all(is_one(weight.dims[d]) for d in kernel):
        return weight

    def body() -> Elem:
        at: list[Elem | ir.Value] = [linalg.IndexOp(d).result for d in range(weight.rank)]
        for d in kernel:
            at[d] = scalar.from_extent(b.sub(weight.dims[d], 1), torch.int64) - scalar.loop_index(d)
        return b.extract(weight, at)

    return b.generic([], [], weight.dims, weight.dtype, body)


def _batched(b: Builder, x: Tensor, spatial: int) -> Tensor:
    return x if x.rank == spatial + 2 else b.unsqueeze(x, 0)


def _finished(b: Builder, x: Tensor, y: Tensor, bias: Tensor | None) -> Tensor:
    """The result y, which has channels last, in torch's layout."""
    if bias is not None:
        y = b.elementwise(x.dtype, [y, bias], lambda y, c: y + c)
    y = channels_first(b, convert(b, y, x.dtype))
    return y if x.rank == y.rank else b.reshape(y, y.dims[1:])


def _apply(
    b: Builder,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    strides: Sequence[int],
    low: Sequence[Extent],
    high: Sequence[Extent],
    dilations: Sequence[int],
    input_dilations: Sequence[int],
) -> Tensor:
    y = _convolved(b, x, weight, strides, low, high, dilations, input_dilations)
    return _finished(b, x, y, bias)


def _convolved(
    b: Builder,
    x: Tensor,
    weight: Tensor,
    strides: Sequence[int],
    low: Sequence[Extent],
    high: Sequence[Extent],
    dilations: Sequence[int],
    input_dilations: Sequence[int],
) -> Tensor:
    """Channels last. The operation pads by numbers known at compile time; others become elements of the input."""
    if x.dtype.is_complex:
        raise NotLowerable("convolution of complex numbers")
    image = _batched(b, x, len(strides))
    if not static(low, high):
        pads = [pad for ends in zip(reversed(low), reversed(high), strict=True) for pad in ends]
        image = zero_padded(b, image, pads)
        low = high = [0] * len(strides)
    image = channels_last(b, image)
    groups, filters, *kernel, channels = weight.dims
    b.require_equal(image.dims[-1], b.mul(groups, channels), "convolution: channels of input and weight differ")
    plain = all(is_one(k) for k in kernel) and is_one(groups) and {*strides, *input_dilations} == {1}
    if plain and not any(low) and not any(high):
        # One product for each pixel.
        rank = image.rank
        matrix = b.reshape(weight, [filters, channels])
        domain = [*image.dims[:-1], filters, channels]
        return b.contract(image, matrix, [*range(rank - 1), rank], [rank - 1, rank], domain)
    dims: list[Extent] = [image.dims[0]]
    for i, size in enumerate(image.dims[1:-1]):
        padded = b.add(b.mul(b.sub(size, 1), input_dilations[i]), 1 + low[i] + high[i])
        window = b.add(b.mul(b.sub(kernel[i], 1), dilations[i]), 1)
        dims.append(b.add(b.floordiv(b.sub(padded, window), strides[i]), 1))
    dims.append(b.mul(groups, filters))
    dtype = dtypes.opmath(x.dtype)
    lists = {"strides": strides, "low": low, "high": high, "dilations": dilations, "input_dilations": input_dilations}
    op = ir.Operation.create(
        "disc_tensor.convolution",
        [tensor_type(dims, dtype)],
        [image.value, weight.value],
        attributes={name: ir.DenseI64ArrayAttr.get(list(values)) for name, values in lists.items()},
    )
    return Tensor(op.result, tuple(dims), dtype)


def _phased(
    b: Builder,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    strides: Sequence[int],
    start: Sequence[Extent],
    end: Sequence[Extent],
) -> Tensor:
    """A transposed convolution as a plain one that computes all results between two elements of the input at once.

    Result ``o`` of a dim is at ``q = o + start = a * stride + r`` in the whole result, and is the sum over ``j`` of
    ``x[a - j] * w[r + stride * j]``: for each phase ``r`` a convolution by every ``stride``-th tap. The phases are
    filters of one convolution, and its results are put in order afterwards.

    ``weight`` is [groups, channels, filters, kernel...].
    """
    groups, channels, filters = weight.dims[:3]
    kernel = weight.dims[3:]
    spatial = len(kernel)
    taps = [b.floordiv(b.add(k, s - 1), s) for k, s in zip(kernel, strides, strict=True)]
    dims: list[Extent] = [groups, *strides, filters, *taps, channels]

    def body() -> Elem:
        at = [scalar.loop_index(d) for d in range(len(dims))]
        inside: Elem | None = None
        where: list[Elem | ir.Value] = [at[0], at[-1], at[1 + spatial]]
        for d, (k, s, j) in enumerate(zip(kernel, strides, taps, strict=True)):
            last = scalar.from_extent(b.sub(j, 1), torch.int64)
            tap = at[1 + d] + (last - at[2 + spatial + d]) * s
            if not isinstance(k, int) or k % s:
                size = scalar.from_extent(k, torch.int64)
                inside = tap < size if inside is None else inside & (tap < size)
                tap = scalar.minimum(tap, size - 1)
            where.append(tap)
        w = b.extract(weight, where)
        return w if inside is None else scalar.select(inside, w, 0)

    phases = b.generic([], [], dims, weight.dtype, body)
    count = math.prod(strides)
    phases = b.reshape(phases, [groups, b.mul(filters, count), *taps, channels])
    low = [b.sub(j, 1) for j in taps]
    # As many blocks as the last result needs; that is b.floordiv's, which is the floor of negative numbers, too.
    high = [b.floordiv(b.sub(b.sub(k, cut), 1), s) for k, s, cut in zip(kernel, strides, end, strict=True)]
    ones = [1] * spatial
    y = _convolved(b, x, phases, ones, low, high, ones, ones)
    batch, *blocks, _ = y.dims
    y = b.reshape(y, [batch, *blocks, groups, *strides, filters])
    order = [0, *(d for i in range(spatial) for d in (1 + i, 2 + spatial + i)), 1 + spatial, 2 + 2 * spatial]
    whole = [b.mul(n, s) for n, s in zip(blocks, strides, strict=True)]
    y = b.reshape(b.permute(y, order), [batch, *whole, b.mul(groups, filters)])
    sizes = _batched(b, x, spatial).dims[2:]
    for d, (n, k, s, first, last) in enumerate(zip(sizes, kernel, strides, start, end, strict=True)):
        count = b.add(b.mul(b.sub(n, 1), s), b.sub(b.sub(k, first), last))
        y = b.slice(y, 1 + d, first, count, 1)
    return _finished(b, x, y, bias)


def _enlarged(b: Builder, x: Tensor, weight: Tensor, bias: Tensor | None, kernel: Sequence[Extent]) -> Tensor:
    """A transposed convolution whose results depend on one element each: a product, and each result a small block."""
    image = channels_last(b, _batched(b, x, len(kernel)))
    b.require_equal(image.dims[-1], weight.dims[0], "convolution: channels of input and weight differ")
    domain: list[Extent] = [image.dims[0]]
    image_loops, weight_loops = [0], []
    for size, k in zip(image.dims[1:-1], kernel, strict=True):
        image_loops.append(len(domain))
        weight_loops.append(len(domain) + 1)
        domain += [size, k]
    last = len(domain)
    domain += [weight.dims[1], image.dims[-1]]
    product = b.contract(image, weight, [*image_loops, last + 1], [last + 1, last, *weight_loops], domain)
    dims = [b.mul(size, k) for size, k in zip(image.dims[1:-1], kernel, strict=True)]
    return _finished(b, x, b.reshape(product, [image.dims[0], *dims, weight.dims[1]]), bias)


def _cut(b: Builder, x: Tensor, dims: Sequence[Extent]) -> Tensor:
    """The first elements along the spatial dims."""
    for d in range(2, x.rank):
        x = b.slice(x, d, 0, dims[d])
    return x


def _weight_gradient(
    b: Builder,
    image: Tensor,
    windows: Tensor,
    dims: Sequence[Extent],
    strides: Sequence[int],
    paddings: Sequence[int],
    dilations: Sequence[int],
    groups: int,
) -> Tensor:
    """The gradient of the weight, of extents ``dims``, by which ``image`` becomes something like ``windows``.

    A convolution with samples for channels and channels for samples, where strides and dilations change places.
    """
    rank, samples = image.rank, image.dims[0]
    filters = b.floordiv(windows.dims[1], groups)
    x = b.reshape(image, [samples, groups, dims[1], *image.dims[2:]])
    w = b.reshape(windows, [samples, groups, filters, *windows.dims[2:]])
    if all(is_one(k) for k in dims[2:]) and groups == 1 and not any(paddings):
        # One product over all positions.
        for d, step in enumerate(strides):
            image = b.slice(image, d + 2, 0, windows.dims[d + 2], step)
        count = samples
        for extent in windows.dims[2:]:
            count = b.mul(count, extent)
        lhs, rhs = (b.reshape(b.permute(t, [1, 0, *range(2, rank)]), [t.dims[1], count]) for t in (windows, image))
        y = b.contract(lhs, rhs, [0, 2], [1, 2], [windows.dims[1], image.dims[1], count])
        return b.reshape(convert(b, y, image.dtype), dims)
    x = b.permute(x, [2, 1, 0, *range(3, rank + 1)])
    x = b.reshape(x, [dims[1], b.mul(groups, samples), *image.dims[2:]])
    w = b.permute(w, [1, 2, *range(3, rank + 1), 0])
    y = _apply(b, x, w, None, dilations, paddings, paddings, strides, [1] * len(strides))
    return b.permute(_cut(b, y, dims), [1, 0, *range(2, rank)])
