"""Products of quantised tensors."""

from __future__ import annotations

import torch

from ... import scalar
from ...registry import lowers
from ...rules.elementwise import convert
from ...scalar import Elem
from ...values import Tensor
from ..builder import OnnxBuilder
from .elementwise import quantize


def shifted(b: OnnxBuilder, x: Tensor, zero: Tensor | None, dim: int | None) -> Tensor:
    """x less its zero point, as i32; a vector of zero points has one for each place along ``dim``."""
    if zero is None:
        return convert(b, x, torch.int32)
    if zero.rank == 1:
        along = [] if dim is None or zero.dims[0] == 1 else [zero.dims[0], *[1] * (x.rank - 1 - dim % x.rank)]
        zero = b.reshape(zero, along)
    return b.map(torch.int32, [x, zero], lambda x, z: x.to(torch.int32) - z.to(torch.int32))


@lowers("onnx.MatMulInteger")
def matmul_integer(
    b: OnnxBuilder, x: Tensor, y: Tensor, x_zero: Tensor | None = None, y_zero: Tensor | None = None
) -> Tensor:
    """The product of two quantised matrices, in i32."""
    left, right = shifted(b, x, x_zero, -2), shifted(b, y, y_zero, -1)
    return b.aten("matmul", left, right, dtype=torch.int32)


@lowers("onnx.QLinearMatMul")
def quantised_matmul(
    b: OnnxBuilder,
    x: Tensor,
    x_scale: Tensor,
    x_zero: Tensor,
    y: Tensor,
    y_scale: Tensor,
    y_zero: Tensor,
    scale: Tensor,
    zero: Tensor,
) -> Tensor:
    """The product of two quantised matrices, quantised again."""
    product = matmul_integer(b, x, y, x_zero, y_zero)

    def factor(x: Elem, y: Elem, out: Elem) -> Elem:
        return out.to(torch.float32) / (x.to(torch.float32) * y.to(torch.float32))

    step = b.map(torch.float32, [_row(b, x_scale), y_scale, scale], factor)
    return quantize(b, convert(b, product, torch.float32), step, zero, axis=-1)


def _row(b: OnnxBuilder, scale: Tensor) -> Tensor:
    return b.reshape(scale, [scale.dims[0], 1]) if scale.rank == 1 and scale.dims[0] != 1 else scale


@lowers("onnx.DynamicQuantizeLinear")
def dynamic_quantize(b: OnnxBuilder, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """x quantised to u8 by its own range; also the scale and the zero point."""
    axes = list(range(x.rank))
    low = b.aten("amin", x, axes, False, dtype=x.dtype)
    high = b.aten("amax", x, axes, False, dtype=x.dtype)

    def span(low: Elem, high: Elem) -> Elem:
        return (scalar.maximum(high, 0.0) - scalar.minimum(low, 0.0)) / 255.0

    def zero_point(low: Elem, scale: Elem) -> Elem:
        wide = scalar.unary("roundeven", -scalar.minimum(low, 0.0) / scale)
        return scalar.minimum(scalar.maximum(wide, 0.0), 255.0).to(torch.int32).to(torch.uint8)

    scale = b.elementwise(torch.float32, [low, high], span)
    zero = b.map(torch.uint8, [low, scale], zero_point)
    return quantize(b, x, scale, zero), scale, zero
