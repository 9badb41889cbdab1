"""Quantisation as PyTorch's decomposed operators and its fake quantisation define it: in f32, with exact integers."""

from __future__ import annotations

from typing import Any

import torch

from .. import scalar
from ..builder import Builder
from ..registry import lowers
from ..scalar import Elem
from ..values import Extent, Tensor, normalize_dim
from .common import number
from .elementwise import convert

_F32, _F64 = torch.float32, torch.float64

# -- quantized_decomposed --------------------------------------------------------------------------


def _along(b: Builder, x: Tensor, parameter: Tensor, axis: int) -> Tensor:
    """A parameter for each channel, as a tensor that broadcasts to ``x``."""
    axis = normalize_dim(axis, x.rank)
    unit: list[Extent] = [1] * x.rank
    unit[axis] = parameter.dims[0]
    return b.reshape(parameter, unit)


def _one(b: Builder, value: Any) -> Any:
    """A parameter of a whole tensor: a number, or a tensor of one element."""
    return b.reshape(value, []) if isinstance(value, Tensor) else number(value)


def _quantized(b: Builder, x: Tensor, scale: Any, zero: Any, low: Any, high: Any) -> Tensor:
    """clamp(round(x * (1 / scale)) + zero, low, high); the reciprocal of a scale for the whole tensor is f64's."""
    channels = isinstance(scale, Tensor) and scale.rank > 0
    wide = _F32 if channels else _F64

    def fn(x: Elem, s: Elem, z: Elem, low: Elem, high: Elem) -> Elem:
        inverse = (1.0 / s.to(wide)).to(_F32)
        value = scalar.unary("roundeven", x.to(_F32) * inverse) + z.to(_F32)
        return scalar.minimum(scalar.maximum(value, low.to(_F32)), high.to(_F32))

    return b.map(b.out.dtype, [x, scale, zero, low, high], fn, number_dtype=_F64, dims=x.dims)


@lowers("torch.quantized_decomposed.quantize_per_tensor")
def quantize_per_tensor(b: Builder, x: Tensor, scale: Any, zero: Any, low: Any, high: Any, *_: Any) -> Tensor:
    """One scale and zero point for all elements."""
    return _quantized(b, x, _one(b, scale), _one(b, zero), _one(b, low), _one(b, high))


@lowers("torch.quantized_decomposed.quantize_per_channel")
def quantize_per_channel(
    b: Builder, x: Tensor, scales: Tensor, zeros: Tensor, axis: int, low: Any, high: Any, *_: Any
) -> Tensor:
    """A scale and a zero point for each slice along ``axis``."""
    return _quantized(b, x, _along(b, x, scales, axis), _along(b, x, zeros, axis), number(low), number(high))


@lowers("torch.quantized_decomposed.quantize_per_token")
def quantize_per_token(b: Builder, x: Tensor, scales: Tensor, zeros: Tensor, low: Any, high: Any, *_: Any) -> Tensor:
    """A scale and a zero point for each row; the zero point is added before rounding."""

    def fn(x: Elem, s: Elem, z: Elem, low: Elem, high: Elem) -> Elem:
        value = scalar.unary("roundeven", x.to(_F32) * (1.0 / s.to(_F32)) + z.to(_F32))
        return scalar.minimum(scalar.maximum(value, low.to(_F32)), high.to(_F32))

    return b.map(b.out.dtype, [x, scales, zeros, number(low), number(high)], fn, number_dtype=_F64, dims=x.dims)


def _dequantized(b: Builder, x: Tensor, scale: Any, zero: Any) -> Tensor:
    def fn(x: Elem, s: Elem, *z: Elem) -> Elem:
        value = x.to(_F32)
        return (value - z[0].to(_F32) if z else value) * s.to(_F32)

    return b.map(b.out.dtype, [x, scale, *([] if zero is None else [zero])], fn, number_dtype=_F64, dims=x.dims)


@lowers("torch.quantized_decomposed.dequantize_per_tensor")
def dequantize_per_tensor(b: Builder, x: Tensor, scale: Any, zero: Any, *_: Any) -> Tensor:
    """(x - zero) * scale."""
    return _dequantized(b, x, _one(b, scale), _one(b, zero))


@lowers("torch.quantized_decomposed.dequantize_per_channel")
def dequantize_per_channel(b: Builder, x: Tensor, scales: Tensor, zeros: Tensor | None, axis: int, *_: Any) -> Tensor:
    """(x - zero) * scale, with the numbers of each slice along ``axis``."""
    zero = None if zeros is None else _along(b, x, zeros, axis)
    return _dequantized(b, x, _along(b, x, scales, axis), zero)


@lowers("torch.quantized_decomposed.dequantize_per_token")
def dequantize_per_token(b: Builder, x: Tensor, scales: Tensor, zeros: Tensor, *_: Any) -> Tensor:
    """(x - zero) * scale, with the numbers of each row."""
    return _dequantized(b, x, scales, zeros)


@lowers("torch.quantized_decomposed.convert_element_type")
def convert_element_type(b: Builder, x: Tensor, *_: Any) -> Tensor:
    """x as another dtype."""
    return convert(b, x, b.out.dtype)


# -- fake quantisation -----------------------------------------------------------------------------


def _faked(
    b: Builder, x: Tensor, scale: Any, zero: Any, low: int, high: int, enabled: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Quantised and dequantised again, and where nothing was clamped."""

    def quantum(x: Elem, s: Elem, z: Elem) -> Elem:
        return z.to(_F32) + scalar.unary("roundeven", x.to(_F32) * (1.0 / s.to(_F32)))

    def value(x: Elem, s: Elem, z: Elem, *on: Elem) -> Elem:
        clamped = scalar.minimum(scalar.maximum(quantum(x, s, z), float(low)), float(high))
        result = ((clamped - z.to(_F32)) * s.to(_F32)).to(x.dtype)
        return scalar.select(on[0].ne(0), result, x) if on else result

    def inside(x: Elem, s: Elem, z: Elem, *on: Elem) -> Elem:
        q = quantum(x, s, z)
        kept = (q >= float(low)) & (q <= float(high))
        return kept | on[0].eq(0) if on else kept

    inputs = [x, scale, zero, *([] if enabled is None else [b.reshape(enabled, [])])]
    return (
        b.map(x.dtype, inputs, value, number_dtype=_F64, dims=x.dims),
        b.map(torch.bool, inputs, inside, number_dtype=_F64, dims=x.dims),
    )


@lowers("torch.aten.fake_quantize_per_tensor_affine_cachemask")
def fake_per_tensor(b: Builder, x: Tensor, scale: Any, zero: Any, low: int, high: int) -> tuple[Tensor, Tensor]:
    """One scale and zero point for all elements."""
    return _faked(b, x, number(scale), number(zero), low, high)


@lowers("torch.aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams")
def fake_per_tensor_of_tensors(
    b: Builder, x: Tensor, scale: Tensor, zero: Tensor, enabled: Tensor, low: int, high: int
) -> tuple[Tensor, Tensor]:
    """The same, if ``enabled``."""
    return _faked(b, x, b.reshape(scale, []), b.reshape(zero, []), low, high, enabled)


@lowers("torch.aten.fake_quantize_per_channel_affine_cachemask")
def fake_per_channel(
    b: Builder, x: Tensor, scales: Tensor, zeros: Tensor, axis: int, low: int, high: int
) -> tuple[Tensor, Tensor]:
    """A scale and a zero point for each slice along ``axis``."""
    return _faked(b, x, _along(b, x, scales, axis), _along(b, x, zeros, axis), low, high)


def _whole_zero(b: Builder, zero: Tensor, low: int, high: int) -> Tensor:
    """A zero point that is learnt is rounded to one that can be represented."""
    bounded = lambda z: scalar.minimum(scalar.maximum(scalar.unary("roundeven", z), float(low)), float(high))  # noqa: E731
    return b.elementwise(_F32, [zero], bounded)


@lowers("torch.aten._fake_quantize_learnable_per_tensor_affine")
def fake_learnable(b: Builder, x: Tensor, scale: Tensor, zero: Tensor, low: int, high: int, *_: Any) -> Tensor:
    """One scale and zero point, which are parameters."""
    whole = _whole_zero(b, b.reshape(zero, []), low, high)
    return _faked(b, x, b.reshape(scale, []), whole, low, high)[0]


@lowers("torch.aten._fake_quantize_learnable_per_channel_affine")
def fake_learnable_channels(
    b: Builder, x: Tensor, scale: Tensor, zero: Tensor, axis: int, low: int, high: int, *_: Any
) -> Tensor:
    """A scale and a zero point for each slice along ``axis``, which are parameters."""
    whole = _whole_zero(b, _along(b, x, zero, axis), low, high)
    return _faked(b, x, _along(b, x, scale, axis), whole, low, high)[0]
