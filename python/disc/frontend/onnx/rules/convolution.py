"""Convolutions of ONNX: padding of its own at each end of each dim, and of quantised tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ...registry import NotLowerable, lowers
from ...rules.detection import deformed
from ...rules.elementwise import convert
from ...rules.quantization import without_zeros
from ...scalar import Elem
from ...values import Extent, Tensor
from ..builder import OnnxBuilder
from ..known import Known
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
    none: Tensor | None = weight_zero
    if not isinstance(weight_zero, Known):
        weight_scale, none = without_zeros(b, weight_scale, weight_zero)
    left, right = shifted(b, x, x_zero, None), shifted(b, weight, none, 0)
    product = _convolve(b, left, right, bias, torch.int32, group, grid)

    def factor(x: Elem, w: Elem, out: Elem) -> Elem:
        return out.to(torch.float32) / (x.to(torch.float32) * w.to(torch.float32))

    step = b.map(torch.float32, [b.reshape(x_scale, []), weight_scale, b.reshape(scale, [])], factor)
    if step.rank == 1:
        step = b.reshape(step, [step.dims[0], *[1] * (x.rank - 2)])
    return quantize(b, convert(b, product, torch.float32), step, b.reshape(zero, []))


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
    """A convolution that reads the input at learned offsets from the usual places, between the elements."""
    if x.rank != 4:
        raise NotLowerable(f"an operand of {x.rank} dims")
    kernel = _kernel(weight)
    where = Grid(b, x.dims[2:], kernel, **grid)
    return deformed(b, x, weight, offset, mask, bias, where.strides, where.low, where.dilations, group, offset_group)
