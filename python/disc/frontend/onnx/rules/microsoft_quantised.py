"""Operators of ``com.microsoft`` on quantised tensors, which ONNX Runtime's quantisation tools write."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from ... import scalar
from ...registry import NotLowerable, lowers
from ...rules import recurrent as torch_rules
from ...rules.elementwise import convert
from ...rules.recurrent import Weights
from ...scalar import Elem
from ...values import Extent, Tensor, normalize_dim
from ..builder import OnnxBuilder
from .convolution import quantised_conv
from .elementwise import dequantize, quantize
from .integers import dynamic_quantize, shifted
from .pooling import average_pool, max_pool

_F32 = torch.float32


def _scalar(b: OnnxBuilder, x: Tensor | None) -> Any:
    """A scale or zero point of a whole tensor."""
    return b.reshape(x, []) if x is not None and x.rank and x.dims[0] == 1 else x


def _real(b: OnnxBuilder, x: Tensor, scale: Tensor, zero: Tensor | None) -> Tensor:
    return dequantize(b, x, _scalar(b, scale), _scalar(b, zero))


def _quantised(b: OnnxBuilder, x: Tensor, scale: Tensor, zero: Tensor | None, dtype: torch.dtype) -> Tensor:
    return quantize(b, x, _scalar(b, scale), _scalar(b, zero), output_dtype=dtype)


# -- elementwise, and what moves elements --------------------------------------------------------------------------


def _binary(op: str, fn: Callable[[Elem, Elem], Elem]) -> None:
    @lowers(f"onnx.{op}")
    def rule(
        b: OnnxBuilder,
        x: Tensor,
        x_scale: Tensor,
        x_zero: Tensor | None,
        y: Tensor,
        y_scale: Tensor,
        y_zero: Tensor | None,
        scale: Tensor,
        zero: Tensor | None = None,
    ) -> Tensor:
        result = b.elementwise(_F32, [_real(b, x, x_scale, x_zero), _real(b, y, y_scale, y_zero)], fn)
        return _quantised(b, result, scale, zero, x.dtype)


_binary("QLinearAdd", lambda x, y: x + y)
_binary("QLinearMul", lambda x, y: x * y)


def _unary(op: str, fn: Callable[..., Tensor]) -> None:
    @lowers(f"onnx.{op}")
    def rule(
        b: OnnxBuilder,
        x: Tensor,
        x_scale: Tensor,
        x_zero: Tensor | None,
        scale: Tensor,
        zero: Tensor | None = None,
        **attributes: Any,
    ) -> Tensor:
        return _quantised(b, fn(b, _real(b, x, x_scale, x_zero), **attributes), scale, zero, x.dtype)


def _leaky(b: OnnxBuilder, x: Tensor, alpha: float = 0.01) -> Tensor:
    return b.elementwise(_F32, [x], lambda x: scalar.select(x < 0.0, x * alpha, x))


def _softmax(b: OnnxBuilder, x: Tensor, axis: int = -1, opset: int = 13) -> Tensor:
    if opset >= 13:
        return b.aten("softmax.int", x, normalize_dim(axis, x.rank), None, dtype=_F32)  # type: ignore[no-any-return]
    axis = normalize_dim(axis, x.rank)
    rows = b.reshape(x, [b.product(x.dims[:axis]), b.product(x.dims[axis:])])
    return b.reshape(b.aten("softmax.int", rows, 1, None, dtype=_F32), x.dims)


def _global_average(b: OnnxBuilder, x: Tensor, channels_last: int = 0) -> Tensor:
    axes = list(range(1, x.rank - 1)) if channels_last else list(range(2, x.rank))
    return b.aten("mean.dim", x, axes, True, dtype=_F32)  # type: ignore[no-any-return]


def _average(b: OnnxBuilder, x: Tensor, channels_last: int = 0, **grid: Any) -> Tensor:
    return _first(b, x, channels_last, lambda x: average_pool(b, x, **grid))


def _reduced_mean(b: OnnxBuilder, x: Tensor, axes: Sequence[int] | None = None, keepdims: int = 1) -> Tensor:
    chosen = list(axes) if axes is not None else list(range(x.rank))
    return b.aten("mean.dim", x, chosen, bool(keepdims), dtype=_F32, rank=x.rank)  # type: ignore[no-any-return]


def _first(b: OnnxBuilder, x: Tensor, channels_last: int, fn: Callable[[Tensor], Tensor]) -> Tensor:
    """``fn`` of x with its channels, if they are the last dim, in the second place."""
    if not channels_last:
        return fn(x)
    y = fn(b.permute(x, [0, x.rank - 1, *range(1, x.rank - 1)]))
    return b.permute(y, [0, *range(2, y.rank), 1])


_unary("QLinearSigmoid", lambda b, x: b.elementwise(_F32, [x], scalar.sigmoid))
_unary("QLinearLeakyRelu", _leaky)
_unary("QLinearSoftmax", _softmax)
_unary("QLinearGlobalAveragePool", _global_average)
_unary("QLinearAveragePool", _average)
_unary("QLinearReduceMean", _reduced_mean)


@lowers("onnx.QLinearConcat")
def quantised_concat(b: OnnxBuilder, scale: Tensor, zero: Tensor, *parts: Tensor, axis: int) -> Tensor:
    """Joins quantised tensors, each with its scale and zero point."""
    real = [_real(b, *parts[i : i + 3]) for i in range(0, len(parts), 3)]
    joined = b.concat(real, normalize_dim(axis, real[0].rank))
    return _quantised(b, joined, scale, zero, zero.dtype)


@lowers("onnx.QLinearWhere")
def quantised_where(b: OnnxBuilder, condition: Tensor, *parts: Any) -> Tensor:
    """Elements of one of two quantised tensors."""
    x, x_scale, x_zero, y, y_scale, y_zero, scale, zero = parts
    pair = [_real(b, x, x_scale, x_zero), _real(b, y, y_scale, y_zero)]
    chosen = b.map(_F32, [condition, *pair], lambda c, x, y: scalar.select(c, x, y))
    return _quantised(b, chosen, scale, zero, x.dtype)


# -- convolutions and pooling with channels at the end -------------------------------------------------------------


@lowers("onnx.com.microsoft.QLinearConv")
def quantised_conv_of_any_layout(b: OnnxBuilder, x: Tensor, *operands: Any, channels_last: int = 0, **grid: Any) -> Any:
    """ONNX's QLinearConv, of which the channels may be the last dim."""
    return _first(b, x, channels_last, lambda x: quantised_conv(b, x, *operands, **grid))


@lowers("onnx.NhwcMaxPool")
def channels_last_max_pool(b: OnnxBuilder, x: Tensor, **grid: Any) -> Tensor:
    """The largest element of each window."""

    def pooled(x: Tensor) -> Tensor:
        result = max_pool(b, x, **grid)
        return result[0] if isinstance(result, (tuple, list)) else result

    return _first(b, x, 1, pooled)


# -- products ------------------------------------------------------------------------------------------------------


def _product(
    b: OnnxBuilder,
    x: Tensor,
    weight: Tensor,
    x_scale: Tensor,
    weight_scale: Tensor,
    x_zero: Tensor | None,
    weight_zero: Tensor | None,
    bias: Tensor | None = None,
) -> Tensor:
    """The product of two quantised matrices, as floats."""
    left, right = shifted(b, x, _scalar(b, x_zero), -2), shifted(b, weight, _scalar(b, weight_zero), -1)
    product = b.aten("matmul", left, right, dtype=torch.int32)
    scales = b.elementwise(_F32, [_scalar(b, x_scale), _scalar(b, weight_scale)], lambda s, w: s * w)
    inputs = [product, scales] if bias is None else [product, scales, bias]
    return b.map(_F32, inputs, lambda p, s, *c: p.to(_F32) * s + c[0] if c else p.to(_F32) * s)


@lowers("onnx.MatMulIntegerToFloat")
def matmul_integer_to_float(
    b: OnnxBuilder,
    x: Tensor,
    weight: Tensor,
    x_scale: Tensor,
    weight_scale: Tensor,
    x_zero: Tensor | None = None,
    weight_zero: Tensor | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    """The product of two quantised matrices, as floats."""
    return _product(b, x, weight, x_scale, weight_scale, x_zero, weight_zero, bias)


@lowers("onnx.DynamicQuantizeMatMul")
def dynamic_quantize_matmul(
    b: OnnxBuilder,
    x: Tensor,
    weight: Tensor,
    scale: Tensor,
    zero: Tensor | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    """x, quantised by its own range, times a quantised matrix."""
    whole, x_scale, x_zero = dynamic_quantize(b, x)
    return _product(b, whole, weight, x_scale, scale, x_zero, zero, bias)


@lowers("onnx.QGemm")
def quantised_gemm(
    b: OnnxBuilder,
    x: Tensor,
    x_scale: Tensor,
    x_zero: Tensor,
    weight: Tensor,
    weight_scale: Tensor,
    weight_zero: Tensor,
    c: Tensor | None = None,
    scale: Tensor | None = None,
    zero: Tensor | None = None,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Tensor:
    """alpha * x @ weight + c, as floats, or quantised again if there is a scale for that."""
    x, weight = b.permute(x, [1, 0]) if transA else x, b.permute(weight, [1, 0]) if transB else weight
    left, right = shifted(b, x, _scalar(b, x_zero), -2), shifted(b, weight, _scalar(b, weight_zero), -1)
    product = b.aten("matmul", left, right, dtype=torch.int32)
    if c is not None:
        product = b.map(torch.int32, [product, c], lambda p, c: p + c)
    scales = b.elementwise(_F32, [_scalar(b, x_scale), _scalar(b, weight_scale)], lambda s, w: s * w * alpha)
    if scale is None:
        return b.map(_F32, [product, scales], lambda p, s: p.to(_F32) * s)
    step = b.elementwise(_F32, [scales, _scalar(b, scale)], lambda s, out: out / s)
    dtype = x.dtype if zero is None else zero.dtype
    return quantize(b, convert(b, product, _F32), step, _scalar(b, zero), axis=-1, output_dtype=dtype)


@lowers("onnx.MatMulNBits")
def matmul_nbits(
    b: OnnxBuilder,
    x: Tensor,
    packed: Tensor,
    scales: Tensor,
    zeros: Tensor | None = None,
    groups: Tensor | None = None,
    bias: Tensor | None = None,
    K: int = 0,
    N: int = 0,
    bits: int = 4,
    block_size: int = 32,
    accuracy_level: int = 0,
    **_: Any,
) -> Tensor:
    """x times a matrix [K, N] whose columns are stored in blocks of 2, 4 or 8 bits, each with a scale."""
    if bits not in (2, 4, 8):
        raise NotLowerable(f"{bits} bits")
    if groups is not None:
        raise NotLowerable("g_idx, an order of its own for the rows")
    blocks = -(-K // block_size)
    each = 8 // bits
    rows = b.reshape(packed, [N, blocks * block_size // each])
    factors = b.reshape(scales, [N, blocks])
    wide = -(-blocks // each)
    packed_zeros = zeros is not None and zeros.dtype == torch.uint8
    middles = None if zeros is None else b.reshape(zeros, [N, wide if packed_zeros else blocks])

    def unpacked(source: Tensor, row: Elem, place: Elem) -> Elem:
        at = scalar.trunc_divide(place, each)
        part = place - at * each
        byte = b.extract(source, [row, at]).to(torch.int32)
        unit = scalar.constant(1, torch.int32)
        for k in range(1, each):
            unit = scalar.select(part.eq(k), scalar.constant(1 << (bits * k), torch.int32), unit)
        shifted_down = scalar.trunc_divide(byte, unit)
        return shifted_down - scalar.trunc_divide(shifted_down, 1 << bits) * (1 << bits)

    def unpacked_at_loops(source: Tensor) -> Elem:
        return unpacked(source, scalar.loop_index(0), scalar.loop_index(1))

    if K % block_size == 0:
        # Codes of their own, which products read as they are.
        codes = b.generic([], [], [N, K], torch.uint8, lambda: unpacked_at_loops(rows).to(torch.uint8))
        shared = [b.reshape(factors, [N, blocks, 1])]
        if middles is not None:
            points = middles
            if packed_zeros:
                points = b.generic([], [], [N, blocks], torch.int32, partial(unpacked_at_loops, middles))
            shared.append(b.reshape(points, [N, blocks, 1]))

        def value(code: Elem, s: Elem, *z: Elem) -> Elem:
            if bits < 8:
                code = b.checked_index(code.to(torch.int64), 1 << bits, wrap=False)
            middle = z[0].to(_F32) if z else scalar.constant(float(1 << (bits - 1)), _F32)
            return (code.to(_F32) - middle) * s.to(_F32)

        inputs = [b.reshape(codes, [N, blocks, block_size]), *shared]
        weight = b.reshape(b.map(x.dtype, inputs, value, dims=[N, blocks, block_size]), [N, K])
        return b.aten("linear", x, weight, bias, dtype=x.dtype)  # type: ignore[no-any-return]

    def body() -> Elem:
        row, place = scalar.loop_index(0), scalar.loop_index(1)
        block = scalar.trunc_divide(place, block_size)
        value = unpacked(rows, row, place).to(_F32)
        if middles is None:
            middle = scalar.constant(float(1 << (bits - 1)), _F32)
        elif packed_zeros:
            middle = unpacked(middles, row, block).to(_F32)
        else:
            middle = b.extract(middles, [row, block]).to(_F32)
        return ((value - middle) * b.extract(factors, [row, block]).to(_F32)).to(x.dtype)

    weight = b.generic([], [], [N, K], x.dtype, body)
    return b.aten("linear", x, weight, bias, dtype=x.dtype)  # type: ignore[no-any-return]


# -- a recurrent layer ---------------------------------------------------------------------------------------------


@lowers("onnx.DynamicQuantizeLSTM")
def dynamic_quantize_lstm(
    b: OnnxBuilder,
    x: Tensor,
    w: Tensor,
    r: Tensor,
    bias: Tensor | None,
    lengths: Tensor | None,
    h: Tensor | None,
    c: Tensor | None,
    peepholes: Tensor | None,
    w_scale: Tensor,
    w_zero: Tensor,
    r_scale: Tensor,
    r_zero: Tensor,
    direction: str = "forward",
    hidden_size: int | None = None,
    **attributes: Any,
) -> tuple[Tensor, ...]:
    """An LSTM whose weights are quantised, and whose inputs and states are, by their ranges, in each product."""
    activations = [name.lower() for name in attributes.get("activations") or ()]
    if peepholes is not None or attributes.get("input_forget") or attributes.get("clip"):
        raise NotLowerable("peepholes, a coupled input gate or a clip")
    if any(name != ("sigmoid", "tanh", "tanh")[i % 3] for i, name in enumerate(activations)):
        raise NotLowerable(f"activations {', '.join(activations)}")
    time, batch, hidden = x.dims[0], x.dims[1], r.dims[1]
    if not isinstance(hidden, int):
        raise NotLowerable("a dynamic hidden size")
    directions = 2 if direction == "bidirectional" else 1
    if lengths is not None:
        b.require_equal(lengths.dims[0], batch, "DynamicQuantizeLSTM: not a length for each sequence")
        lengths = b.reshape(torch_rules.checked_lengths(b, lengths, time), [batch])
    whole, x_scale, x_zero = dynamic_quantize(b, x)

    def of(t: Tensor, d: int, dims: Sequence[Extent]) -> Tensor:
        return b.reshape(b.slice(t, 0, d, 1), list(dims))

    def parameter(t: Tensor, d: int) -> Tensor:
        """The scale or zero point of a direction: of the whole matrix, or of each column."""
        return of(t, d, t.dims[1:] if t.rank > 1 and t.dims[1] != 1 else [])

    outputs: list[Tensor] = []
    finals: list[list[Tensor]] = [[], []]
    for d in range(directions):
        own_w, own_r = (of(t, d, t.dims[1:]) for t in (w, r))
        shift = None
        if bias is not None:
            both = of(bias, d, [2, 4 * hidden])
            shift = b.reshape(b.aten("sum.dim_IntList", both, [0], False, dtype=_F32, rank=1), [4 * hidden])
        projected = _product(b, whole, own_w, x_scale, parameter(w_scale, d), x_zero, parameter(w_zero, d), shift)
        recurrent = own_r, parameter(r_scale, d), parameter(r_zero, d)

        def step(b: Any, w: Weights, inputs: list[Tensor], h: Tensor, states: list[Tensor], recurrent: Any) -> Any:
            rounded, scale, zero = dynamic_quantize(b, h)
            share = _product(b, rounded, recurrent[0], scale, recurrent[1], zero, recurrent[2])
            i, o, f, g = (b.slice(share, 1, k * hidden, hidden) for k in range(4))
            xi, xo, xf, xg = inputs

            def cell(i: Elem, f: Elem, g: Elem, xi: Elem, xf: Elem, xg: Elem, c: Elem) -> Elem:
                return scalar.sigmoid(f + xf) * c + scalar.sigmoid(i + xi) * scalar.tanh(g + xg)

            c = b.elementwise(_F32, [i, f, g, xi, xf, xg, states[0]], cell)
            out = b.elementwise(_F32, [o, xo, c], lambda o, xo, c: scalar.sigmoid(o + xo) * scalar.tanh(c))
            return out, [c]

        first = [b.full([batch, hidden], 0.0, _F32) if s is None else of(s, d, [batch, hidden]) for s in (h, c)]
        # Only its number of gates and their size are used.
        gates = Weights([b.permute(own_w, [1, 0]), b.permute(own_r, [1, 0])], False, 4)
        backward = direction == "reverse" or d == 1
        y, last = torch_rules.run_direction(
            b,
            lambda b, w, inputs, h, states, recurrent=recurrent: step(b, w, inputs, h, states, recurrent),
            gates,
            projected,
            lengths,
            first,
            0,
            backward,
        )
        outputs.append(b.reshape(y, [time, 1, batch, hidden]))
        for final, value in zip(finals, last, strict=True):
            final.append(b.unsqueeze(value, 0))
    return (b.concat(outputs, 1), *(b.concat(final, 0) for final in finals))
