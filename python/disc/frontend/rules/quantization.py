"""Quantisation as PyTorch's decomposed operators and its fake quantisation define it: in f32, with exact integers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch_mlir import ir

from .. import dtypes, scalar
from ..builder import Builder
from ..registry import lowers
from ..scalar import Elem
from ..values import Coded, Extent, Tensor, is_one, normalize_dim
from . import reduction
from .common import number, promoted
from .elementwise import convert

_F32, _F64, _I32 = torch.float32, torch.float64, torch.int32

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


def _code(value: Elem, low: Any, high: Any) -> Elem:
    """The code between two limits that a value is rounded to."""
    if all(isinstance(limit, int | float) and abs(limit) < 2**24 for limit in (low, high)):
        return scalar.between(value, float(low), float(high))
    low, high = (limit.to(value.dtype) if isinstance(limit, Elem) else float(limit) for limit in (low, high))
    return scalar.minimum(scalar.maximum(value, low), high)


def _between(b: Builder, fn: Callable[..., Elem], low: Any, high: Any) -> tuple[Callable[..., Elem], list[Any]]:
    """``fn`` rounded to codes, and the limits that are operands of its body: those that are no numbers.

    Codes that are floats of 8 bits are clamped as floats: NaN is one of them.
    """
    if all(isinstance(limit, int) for limit in (low, high)) and not dtypes.is_float(b.out.dtype):
        return lambda *elements: _code(fn(*elements), low, high), []
    return lambda *elements: _code(fn(*elements[:-2]), *elements[-2:]), [number(low), number(high)]


def _quantized(b: Builder, x: Tensor, scale: Any, zero: Any, low: Any, high: Any) -> Tensor:
    """clamp(round(x * (1 / scale)) + zero, low, high); the reciprocal of a scale for the whole tensor is f64's."""
    channels = isinstance(scale, Tensor) and scale.rank > 0
    wide = _F32 if channels else _F64

    def fn(x: Elem, s: Elem, z: Elem) -> Elem:
        inverse = (1.0 / s.to(wide)).to(_F32)
        value = scalar.unary("roundeven", x.to(_F32) * inverse)
        return value if isinstance(zero, int) and zero == 0 else value + z.to(_F32)

    code, limits = _between(b, fn, low, high)
    return b.map(b.out.dtype, [x, scale, zero, *limits], code, number_dtype=_F64, dims=x.dims)


@lowers("torch.quantized_decomposed.quantize_per_tensor")
def quantize_per_tensor(b: Builder, x: Tensor, scale: Any, zero: Any, low: Any, high: Any, *_: Any) -> Tensor:
    """One scale and zero point for all elements."""
    by = x.coded
    if by and (by.scale, by.zero, by.low, by.high, by.codes.dtype) == (scale, zero, low, high, b.out.dtype):
        # Rounding meets the same codes again: the steps' errors are far below half a code.
        return _within(b, by.codes, low, high)
    limits = [b.reshape(limit, []) if isinstance(limit, Tensor) else limit for limit in (low, high)]
    return _quantized(b, x, _one(b, scale), _one(b, zero), *limits)


@lowers("torch.quantized_decomposed.quantize_per_channel")
def quantize_per_channel(
    b: Builder, x: Tensor, scales: Tensor, zeros: Tensor, axis: int, low: Any, high: Any, *_: Any
) -> Tensor:
    """A scale and a zero point for each slice along ``axis``."""
    return _quantized(b, x, _along(b, x, scales, axis), _along(b, x, zeros, axis), low, high)


@lowers("torch.quantized_decomposed.quantize_per_token")
def quantize_per_token(b: Builder, x: Tensor, scales: Tensor, zeros: Tensor, low: Any, high: Any, *_: Any) -> Tensor:
    """A scale and a zero point for each row; the zero point is added before rounding."""

    def fn(x: Elem, s: Elem, z: Elem) -> Elem:
        return scalar.unary("roundeven", x.to(_F32) * (1.0 / s.to(_F32)) + z.to(_F32))

    code, limits = _between(b, fn, low, high)
    return b.map(b.out.dtype, [x, scales, zeros, *limits], code, number_dtype=_F64, dims=x.dims)


_NARROW = ((-8, 7), (0, 15))
"""The ranges of integers of 4 bits."""


def _reader(b: Builder, x: Tensor, low: Any, high: Any) -> Callable[[Elem], Elem]:
    """The function that reads a code of ``x`` in a body; the operator says that codes are in [low, high].

    Codes of weights that must have 4 bits are checked when the model is loaded, and are then stored in 4 bits.
    """
    narrow = isinstance(low, int) and isinstance(high, int) and any(a <= low <= high <= z for a, z in _NARROW)
    owner = x.value.owner
    if not narrow or isinstance(owner, ir.Block) or owner.name != "disc_tensor.parameter":
        return lambda code: code

    def read(code: Elem) -> Elem:
        wide = code.to(torch.int64)
        known = b.checked_index(wide + -low if low else wide, high - low + 1, wrap=False)
        return known + low if low else known

    return read


def _dequantized(b: Builder, x: Tensor, scale: Any, zero: Any, low: Any = None, high: Any = None) -> Tensor:
    read = _reader(b, x, low, high)

    def fn(x: Elem, s: Elem, *z: Elem) -> Elem:
        value = read(x).to(_F32)
        return (value - z[0].to(_F32) if z else value) * s.to(_F32)

    return b.map(b.out.dtype, [x, scale, *([] if zero is None else [zero])], fn, number_dtype=_F64, dims=x.dims)


@lowers("torch.quantized_decomposed.dequantize_per_tensor")
def dequantize_per_tensor(
    b: Builder, x: Tensor, scale: Any, zero: Any, low: Any = None, high: Any = None, *_: Any
) -> Tensor:
    """(x - zero) * scale."""
    result = _dequantized(b, x, _one(b, scale), _one(b, zero), low, high)
    whole = not dtypes.is_float(x.dtype) and dtypes.bits(x.dtype) <= 16
    known = whole and isinstance(scale, float) and all(type(value) is int for value in (zero, low, high))
    if known and _LEAST < scale < 1 / _LEAST and result.dtype == _F32:
        return result.with_facts(coded=Coded(x, scale, zero, low, high))
    return result


_LEAST = 2.0**-100
"""Scales between it and its reciprocal are normal numbers, as are their products with codes."""


def decode(b: Builder, codes: Tensor, by: Coded) -> Tensor:
    """What other codes stand for that are read as those in ``by``."""

    def fn(x: Elem, s: Elem, z: Elem) -> Elem:
        return (x.to(_F32) - z.to(_F32)) * s.to(_F32)

    result = b.map(_F32, [codes, by.scale, by.zero], fn, number_dtype=_F64, dims=codes.dims)
    return result.with_facts(coded=replace(by, codes=codes))


def _within(b: Builder, codes: Tensor, low: int, high: int) -> Tensor:
    """Codes clamped to limits."""
    info = torch.iinfo(codes.dtype)
    if low <= info.min and high >= info.max:
        return codes
    return b.map(codes.dtype, [codes], lambda x: scalar.minimum(scalar.maximum(x.to(_I32), low), high), dims=codes.dims)


@lowers("torch.quantized_decomposed.dequantize_per_channel")
def dequantize_per_channel(
    b: Builder, x: Tensor, scales: Tensor, zeros: Tensor | None, axis: int, low: Any = None, high: Any = None, *_: Any
) -> Tensor:
    """(x - zero) * scale, with the numbers of each slice along ``axis``."""
    scales, zeros = without_zeros(b, scales, zeros)
    zero = None if zeros is None else _along(b, x, zeros, axis)
    return _dequantized(b, x, _along(b, x, scales, axis), zero, low, high)


def without_zeros(b: Builder, scales: Tensor, zeros: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Scales and zero points, or no zero points if they are parameters that are 0.

    That they still are, as when the model was compiled, is checked when it is loaded, where the scales are computed.
    """
    owner = None if zeros is None else zeros.value.owner
    if zeros is None or owner is None or isinstance(owner, ir.Block) or owner.name != "disc_tensor.parameter":
        return scales, zeros
    if ir.StringAttr(owner.attributes["name"]).value not in b.zeros or list(scales.dims) != list(zeros.dims):
        return scales, zeros

    def fn(scale: Elem, zero: Elem) -> Elem:
        return scale + b.checked_index(zero, 1, wrap=False).to(scale.dtype)

    return b.map(scales.dtype, [scales, zeros], fn, dims=scales.dims), None


@lowers("torch.quantized_decomposed.dequantize_per_token")
def dequantize_per_token(b: Builder, x: Tensor, scales: Tensor, zeros: Tensor, *_: Any) -> Tensor:
    """(x - zero) * scale, with the numbers of each row."""
    return _dequantized(b, x, scales, zeros)


def _in_groups(b: Builder, x: Tensor, parameter: Tensor, size: int) -> tuple[Tensor, list[Extent]]:
    """A parameter for each group of ``size`` columns, and the dims [rows, groups, columns] that ``x`` is seen with.

    A group is never larger than a row that has only one.
    """
    rows, columns = x.dims
    groups = parameter.dims[-1]
    width: Extent = columns if is_one(groups) and not (isinstance(columns, int) and columns > size) else size
    count = b.quotient([columns], [width])
    b.require_equal(b.mul(count, width), columns, "the groups do not divide the columns")
    if not is_one(groups):
        b.require_equal(groups, count, "the scales are not one for each group")
    return b.reshape(parameter, [*parameter.dims, 1]), [rows, count, width]


@lowers("torch.quantized_decomposed.quantize_per_channel_group")
def quantize_per_group(
    b: Builder, x: Tensor, scales: Tensor, zeros: Tensor, low: Any, high: Any, dtype: Any, size: int = 128
) -> Tensor:
    """A scale and a zero point for each group of columns of each row; the zero point is added before rounding."""
    scale, dims = _in_groups(b, x, scales, size)
    zero = b.reshape(zeros, scale.dims)

    def fn(x: Elem, s: Elem, z: Elem) -> Elem:
        return scalar.unary("roundeven", x.to(_F32) * (1.0 / s.to(_F32)) + z.to(_F32))

    code, limits = _between(b, fn, low, high)
    inputs = [b.reshape(x, dims), scale, zero, *limits]
    return b.reshape(b.map(b.out.dtype, inputs, code, number_dtype=_F64, dims=dims), x.dims)


@lowers("torch.quantized_decomposed.dequantize_per_channel_group")
def dequantize_per_group(
    b: Builder,
    x: Tensor,
    scales: Tensor,
    zeros: Tensor | None,
    low: Any,
    high: Any,
    dtype: Any,
    size: int = 128,
    *_: Any,
) -> Tensor:
    """(x - zero) * scale, with the numbers of each group of columns; integers are subtracted as such."""
    scale, dims = _in_groups(b, x, scales, size)
    whole = x.dtype if zeros is None else promoted(x, zeros)
    read = _reader(b, x, low, high)

    def fn(x: Elem, s: Elem, *z: Elem) -> Elem:
        code = read(x)
        dtype = whole if code is x else code.dtype
        value = code.to(dtype) - z[0].to(dtype) if z else code
        return value.to(_F32) * s.to(_F32)

    inputs = [b.reshape(x, dims), scale, *([] if zeros is None else [b.reshape(zeros, scale.dims)])]
    return b.reshape(b.map(b.out.dtype, inputs, fn, dims=dims), x.dims)


def _choose(b: Builder, x: Tensor, fn: Callable[[Elem, Elem], Elem], zero: Callable[[Elem, Elem], Elem]) -> Any:
    """Scale and zero point of all elements: of the least and the greatest one, with 0 between them."""
    least = b.elementwise(x.dtype, [reduction.amin(b, x)], lambda v: scalar.minimum(v, 0), compute=x.dtype)
    most = b.elementwise(x.dtype, [reduction.amax(b, x)], lambda v: scalar.maximum(v, 0), compute=x.dtype)
    scale = b.map(_F32, [least, most], fn)
    chosen = b.map(torch.int64, [least, scale], lambda low, s: zero(low.to(_F32), s))
    return b.reshape(convert(b, scale, _F64), [1]), b.reshape(chosen, [1])


@lowers("torch.quantized_decomposed.choose_qparams")
def choose_qparams(b: Builder, x: Tensor, low: int, high: int, eps: float, *_: Any) -> tuple[Tensor, Tensor]:
    """The scale and the zero point by which ``low`` to ``high`` represent the elements and 0."""

    def scale(least: Elem, most: Elem) -> Elem:
        # Each step is rounded to the input's type, as in PyTorch.
        span = (most.to(_F32) - least.to(_F32)).to(x.dtype)
        return scalar.maximum((span.to(_F32) / float(high - low)).to(x.dtype).to(_F32), eps)

    def zero(least: Elem, s: Elem) -> Elem:
        whole = -scalar.unary("roundeven", least / s).to(torch.int64) + low
        return scalar.minimum(scalar.maximum(whole, low), high)

    return _choose(b, x, scale, zero)  # type: ignore[no-any-return]


@lowers("torch.quantized_decomposed.choose_qparams_symmetric")
def choose_qparams_symmetric(
    b: Builder, x: Tensor, low: int, high: int, eps: float, dtype: Any
) -> tuple[Tensor, Tensor]:
    """The scale by which ``low`` to ``high`` represent numbers as large as the elements, of both signs."""

    def scale(least: Elem, most: Elem) -> Elem:
        size = scalar.maximum(-least.to(_F32), most.to(_F32))
        return scalar.maximum((size / (float(high - low) / 2)).to(x.dtype).to(_F32), eps)

    # PyTorch numbers its dtypes; uint8 is the first.
    middle = 128 if dtype in (0, torch.uint8) else 0
    return _choose(b, x, scale, lambda _, s: scalar.constant(middle, torch.int64))  # type: ignore[no-any-return]


@lowers("torch.quantized_decomposed.choose_qparams_per_token")
def choose_per_token(b: Builder, x: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    """The scale of each row by which -127 to 127 represent its elements, and a zero point of 0."""
    # PyTorch widens only f16; its meta kernel returns f64.
    dtype = _F32 if x.dtype == torch.float16 else x.dtype
    top = b.reduce([x], [x.rank - 1], x.dtype, 0, lambda acc, x: scalar.maximum(acc, scalar.absolute(x)), keepdim=True)
    wide = dtypes.opmath(dtype)

    def scale(size: Elem) -> Elem:
        bounded = scalar.maximum(size.to(wide), 1e-5).to(dtype)
        return bounded.to(wide) / 127.0

    return convert(b, b.map(dtype, [top], scale), b.results[0].dtype), b.full(top.dims, 0, b.results[1].dtype)


@lowers("torch.quantized_decomposed.choose_qparams_per_token_asymmetric")
def choose_per_token_asymmetric(b: Builder, x: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    """The scale and the zero point of each row by which -128 to 127 represent its elements and 0."""
    least, most = (b.reduce([x], [x.rank - 1], x.dtype, 0, fn, keepdim=True) for fn in (scalar.minimum, scalar.maximum))
    dtype, wide = x.dtype, dtypes.opmath(x.dtype)

    def rounded(value: Elem) -> Elem:
        # Each step is rounded to the input's type, as in PyTorch.
        return value.to(dtype).to(wide)

    def scale(least: Elem, most: Elem) -> Elem:
        span = rounded(most.to(wide) - least.to(wide))
        return scalar.maximum(rounded(span / 255.0), torch.finfo(_F32).eps)

    def zero(least: Elem, most: Elem, scale: Elem) -> Elem:
        s = scale.to(wide)
        low, high = rounded(least.to(wide) / s), rounded(most.to(wide) / s)
        positive = rounded(rounded(low - 128.0) + rounded(high + 127.0)) > 0
        place = rounded(scalar.select(positive, -128.0 - low, 127.0 - high))
        place = scalar.minimum(scalar.maximum(place, -128.0), 127.0)
        return scalar.unary("roundeven", place).to(torch.int64)

    scales = b.map(dtype, [least, most], scale)
    return convert(b, scales, _F64), b.map(torch.int64, [least, most, scales], zero)


@lowers("torch.quantized_decomposed.convert_element_type")
def convert_element_type(b: Builder, x: Tensor, *_: Any) -> Tensor:
    """x as another dtype."""
    return convert(b, x, b.out.dtype)


# -- torchao ---------------------------------------------------------------------------------------


def _for_each_block(
    b: Builder, x: Tensor, blocks: list[Extent], numbers: list[Tensor | None], fn: Callable[..., Elem]
) -> Tensor:
    """``fn`` of each element of ``x`` and of the numbers that its block has: tensors of one element for each block."""
    dims: list[Extent] = []
    shared: list[Extent] = []
    for size, block in zip(x.dims, blocks, strict=True):
        if is_one(block):
            dims.append(size)
            shared.append(size)
        elif not isinstance(block, int) or block == size:
            b.require_equal(block, size, "a block of dynamic size must be the whole dimension")
            dims.append(size)
            shared.append(1)
        else:
            count = b.quotient([size], [block])
            b.require_equal(b.mul(count, block), size, "the blocks do not divide the tensor")
            dims += [count, block]
            shared += [count, 1]
    inputs = [b.reshape(x, dims), *(b.reshape(number, shared) for number in numbers if number is not None)]
    return b.reshape(b.map(b.out.dtype, inputs, fn, dims=dims), x.dims)


@lowers("torch.torchao.quantize_affine")
def quantize_affine(
    b: Builder, x: Tensor, blocks: list[Extent], scale: Tensor, zero: Tensor | None, dtype: Any, *limits: Any
) -> Tensor:
    """clamp(round(x * (1 / scale)) + zero, low, high), with a scale and a zero point for each block."""
    info = torch.iinfo(b.out.dtype)
    low, high = (d if x is None else x for x, d in zip(limits, (info.min, info.max), strict=True))
    wide = dtypes.opmath(x.dtype)

    def fn(x: Elem, s: Elem, *z: Elem) -> Elem:
        # Each step is rounded to the input's type, as in PyTorch.
        inverse = (1.0 / s.to(wide)).to(s.dtype).to(wide)
        value = scalar.unary("roundeven", (x.to(wide) * inverse).to(x.dtype).to(wide))
        return _code(value + z[0].to(wide) if z else value, low, high)

    return _for_each_block(b, x, blocks, [scale, zero], fn)


@lowers("torch.torchao.dequantize_affine")
def dequantize_affine(
    b: Builder,
    x: Tensor,
    blocks: list[Extent],
    scale: Tensor,
    zero: Tensor | None,
    dtype: Any,
    low: Any = None,
    high: Any = None,
    *_: Any,
) -> Tensor:
    """(x - zero) * scale, with a scale and a zero point for each block."""
    read = _reader(b, x, low, high)
    out = b.out.dtype
    wide = dtypes.opmath(out)

    def fn(x: Elem, s: Elem, *z: Elem) -> Elem:
        value = read(x).to(out).to(wide)
        value = (value - z[0].to(out).to(wide)).to(out).to(wide) if z else value
        return value * s.to(wide)

    return _for_each_block(b, x, blocks, [scale, zero], fn)


# -- disc.coded --------------------------------------------------------------------------------------


def _halves(b: Builder, packed: Tensor) -> Tensor:
    """The codes of 4 bits in bytes, the one in the low half first: a byte each."""
    rows, columns = packed.dims

    def fn(byte: Elem) -> Elem:
        shift = scalar.loop_index(2, torch.int32) * 4
        return (scalar.shift_down(byte.to(torch.int32), shift) & 15).to(torch.uint8)

    pairs = b.map(torch.uint8, [b.reshape(packed, [rows, columns, 1])], fn, dims=[rows, columns, 2])
    return b.reshape(pairs, [rows, b.mul(columns, 2)])


@lowers("torch.disc.decoded")
def decoded(b: Builder, codes: Tensor, scales: Tensor, zeros: Tensor | None, zero: int, bits: int) -> Tensor:
    """(code - zero) * scale, with a scale for each group of columns of each row, and perhaps a zero point."""
    known = codes.value.owner.name == "disc_tensor.parameter" and bits == 4
    if bits == 4:
        codes = _halves(b, codes)
    rows, columns = codes.dims
    groups = scales.dims[1]
    dims = [rows, groups, b.quotient([columns], [groups])]

    def fn(code: Elem, s: Elem, *z: Elem) -> Elem:
        if known:
            code = b.checked_index(code.to(torch.int64), 16, wrap=False)
        return (code.to(_F32) - (z[0].to(_F32) if z else float(zero))) * s.to(_F32)

    numbers = [scales] if zeros is None else [scales, zeros]
    inputs = [b.reshape(codes, dims), *(b.reshape(number, [rows, groups, 1]) for number in numbers)]
    return b.reshape(b.map(_F32, inputs, fn, dims=dims), [rows, columns])


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
