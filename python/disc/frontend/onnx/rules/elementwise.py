"""Elementwise operators of ONNX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch_mlir.dialects import arith

from ... import dtypes, narrow, scalar
from ...registry import NotLowerable, lowers
from ...rules.elementwise import convert
from ...rules.quantization import without_zeros
from ...scalar import Elem
from ...values import Tensor
from ..builder import OnnxBuilder, known
from ..known import Known, elements

# ONNX's name and torch's.
_UNARY = {
    "Abs": "abs",
    "Acos": "acos",
    "Acosh": "acosh",
    "Asin": "asin",
    "Asinh": "asinh",
    "Atan": "atan",
    "Atanh": "atanh",
    "BitwiseNot": "bitwise_not",
    "Ceil": "ceil",
    "Cos": "cos",
    "Cosh": "cosh",
    "Erf": "erf",
    "Exp": "exp",
    "Floor": "floor",
    "Identity": "clone",
    "Log": "log",
    "Mish": "mish",
    "Neg": "neg",
    "Reciprocal": "reciprocal",
    "Relu": "relu",
    "Round": "round",
    "Sigmoid": "sigmoid",
    "Sign": "sign",
    "Sin": "sin",
    "Sinh": "sinh",
    "Sqrt": "sqrt",
    "Tan": "tan",
    "Tanh": "tanh",
}
_PREDICATES = {"IsNaN": "isnan", "Not": "logical_not"}
_BINARY = {
    "Add": "add",
    "BitwiseAnd": "bitwise_and",
    "BitwiseOr": "bitwise_or",
    "BitwiseXor": "bitwise_xor",
    "Mul": "mul",
    "Sub": "sub",
}
_COMPARISONS = {
    "And": "logical_and",
    "Equal": "eq",
    "Greater": "gt",
    "GreaterOrEqual": "ge",
    "Less": "lt",
    "LessOrEqual": "le",
    "Or": "logical_or",
    "Xor": "logical_xor",
}


def _register(op: str, name: str, logical: bool) -> None:
    @lowers(f"onnx.{op}")
    def rule(b: OnnxBuilder, x: Tensor, *others: Tensor, **_: Any) -> Tensor:
        return b.aten(name, x, *others, dtype=torch.bool if logical else x.dtype)


for _table, _logical in ((_UNARY, False), (_BINARY, False), (_PREDICATES, True), (_COMPARISONS, True)):
    for _op, _name in _table.items():
        _register(_op, _name, _logical)


@lowers("onnx.Div")
def div(b: OnnxBuilder, x: Tensor, y: Tensor) -> Tensor:
    """x / y; of integers rounded towards zero."""
    return b.aten("div", x, y, None if x.dtype.is_floating_point else "trunc", dtype=x.dtype)


@lowers("onnx.Mod")
def mod(b: OnnxBuilder, x: Tensor, y: Tensor, fmod: int = 0) -> Tensor:
    """x % y with the sign of y, or C's with ``fmod``."""
    return b.aten("fmod" if fmod else "remainder", x, y, dtype=x.dtype)


@lowers("onnx.Pow")
@known(1)
def power(b: OnnxBuilder, x: Tensor, y: Any) -> Tensor:
    """x ** y in x's type."""
    if isinstance(y, Known):
        if y.values.size == 1 and y.static and y.values.ndim <= x.rank:
            exponent = y.list[0]
            if x.dtype.is_floating_point or (float(exponent).is_integer() and exponent >= 0):
                return b.aten("pow", x, exponent, dtype=x.dtype)
        y = b.tensor(y)
    compute = x.dtype if x.dtype.is_floating_point else torch.float64
    result = b.aten("pow", convert(b, x, compute), convert(b, y, compute), dtype=compute)
    return convert(b, result, x.dtype)


def _variadic(op: str, fn: Callable[[Elem, Elem], Elem]) -> None:
    @lowers(f"onnx.{op}")
    def rule(b: OnnxBuilder, *xs: Tensor) -> Tensor:
        def body(*elems: Elem) -> Elem:
            total = elems[0]
            for elem in elems[1:]:
                total = fn(total, elem)
            return total / float(len(xs)) if op == "Mean" else total

        dtype = xs[0].dtype
        return b.elementwise(dtype, list(xs), body)


for _op, _fn in {
    "Max": scalar.maximum,
    "Min": scalar.minimum,
    "Sum": lambda x, y: x + y,
    "Mean": lambda x, y: x + y,
}.items():
    _variadic(_op, _fn)


@lowers("onnx.BitShift")
def bit_shift(b: OnnxBuilder, x: Tensor, y: Tensor, direction: str = "LEFT") -> Tensor:
    """x << y or x >> y; shifting out all bits results in 0."""
    right = arith.ShRUIOp if dtypes.is_unsigned(x.dtype) else arith.ShRSIOp
    bits = dtypes.bits(x.dtype)

    def fn(x: Elem, y: Elem) -> Elem:
        amount = scalar.minimum(y, bits - 1)
        op = (arith.ShLIOp if direction == "LEFT" else right)(x.value, amount.value)
        if direction != "LEFT" and not dtypes.is_unsigned(x.dtype):
            return Elem(op.result, x.dtype)
        return scalar.select(y < bits, Elem(op.result, x.dtype), 0)

    return b.elementwise(x.dtype, [x, y], fn)


@lowers("onnx.IsInf")
def is_inf(b: OnnxBuilder, x: Tensor, detect_negative: int = 1, detect_positive: int = 1) -> Tensor:
    """Whether each element is one of the infinities asked for."""

    def fn(x: Elem) -> Elem:
        found = scalar.constant(False, torch.bool)
        if detect_positive:
            found = found | x.eq(float("inf"))
        return found | x.eq(float("-inf")) if detect_negative else found

    return b.elementwise(torch.bool, [x], fn, compute=dtypes.opmath(x.dtype))


@lowers("onnx.Where")
def where(b: OnnxBuilder, condition: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """x where the condition holds, else y."""
    return b.aten("where", condition, x, y, dtype=x.dtype)


@lowers("onnx.Cast")
def cast(b: OnnxBuilder, x: Tensor, to: torch.dtype, saturate: int = 1, round_mode: str = "up") -> Tensor:
    """x in another type; narrow floats saturate."""
    if to == narrow.SCALE:
        return b.map(to, [x], lambda x: narrow.encode_scale(x.to(torch.float32), bool(saturate), round_mode))
    if to in narrow.FLOATS and saturate:
        return b.map(to, [x], lambda x: narrow.encode(x.to(torch.float32), to, saturate=True))
    return convert(b, x, to)


@lowers("onnx.CastLike")
def cast_like(b: OnnxBuilder, x: Tensor, like: Tensor, **attributes: Any) -> Tensor:
    """x in the type of another."""
    return cast(b, x, like.dtype, **attributes)


# -- activations ---------------------------------------------------------------------------------------------------


@lowers("onnx.Elu")
def elu(b: OnnxBuilder, x: Tensor, alpha: float = 1.0) -> Tensor:
    """x, or alpha * (e^x - 1) below zero."""
    return b.aten("elu", x, alpha, dtype=x.dtype)


@lowers("onnx.Celu")
def celu(b: OnnxBuilder, x: Tensor, alpha: float = 1.0) -> Tensor:
    """x, or alpha * (e^(x / alpha) - 1) below zero."""
    return b.aten("elu", x, alpha, 1.0, 1.0 / alpha, dtype=x.dtype)


@lowers("onnx.Selu")
def selu(b: OnnxBuilder, x: Tensor, alpha: float = 1.6732632423543772, gamma: float = 1.0507009873554805) -> Tensor:
    """gamma * elu(x)."""
    return b.aten("elu", x, alpha, gamma, dtype=x.dtype)


@lowers("onnx.LeakyRelu")
def leaky_relu(b: OnnxBuilder, x: Tensor, alpha: float = 0.01) -> Tensor:
    """x, or alpha * x below zero."""
    return b.aten("leaky_relu", x, alpha, dtype=x.dtype)


@lowers("onnx.PRelu")
def prelu(b: OnnxBuilder, x: Tensor, slope: Tensor) -> Tensor:
    """x, or slope * x below zero."""
    return b.elementwise(x.dtype, [x, slope], lambda x, s: scalar.select(x < 0, x * s, x))


@lowers("onnx.ThresholdedRelu")
def thresholded_relu(b: OnnxBuilder, x: Tensor, alpha: float = 1.0) -> Tensor:
    """x above alpha, else 0."""
    return b.elementwise(x.dtype, [x], lambda x: scalar.select(x > alpha, x, 0))


@lowers("onnx.HardSigmoid")
def hard_sigmoid(b: OnnxBuilder, x: Tensor, alpha: float = 0.2, beta: float = 0.5) -> Tensor:
    """alpha * x + beta, in [0, 1]."""
    return b.elementwise(x.dtype, [x], lambda x: scalar.maximum(scalar.minimum(x * alpha + beta, 1), 0))


@lowers("onnx.HardSwish")
def hard_swish(b: OnnxBuilder, x: Tensor) -> Tensor:
    """x * hard_sigmoid(x)."""
    return b.aten("hardswish", x, dtype=x.dtype)


@lowers("onnx.Swish")
def swish(b: OnnxBuilder, x: Tensor, alpha: float = 1.0) -> Tensor:
    """x * sigmoid(alpha * x)."""
    return b.elementwise(x.dtype, [x], lambda x: x * scalar.sigmoid(x * alpha))


@lowers("onnx.Softplus")
def softplus(b: OnnxBuilder, x: Tensor) -> Tensor:
    """log(1 + e^x)."""
    return b.aten("softplus", x, dtype=x.dtype)


@lowers("onnx.Softsign")
def softsign(b: OnnxBuilder, x: Tensor) -> Tensor:
    """x / (1 + |x|)."""
    return b.elementwise(x.dtype, [x], lambda x: x / (scalar.absolute(x) + 1.0))


@lowers("onnx.Gelu")
def gelu(b: OnnxBuilder, x: Tensor, approximate: str = "none") -> Tensor:
    """Gaussian error linear unit."""
    return b.aten("gelu", x, approximate, dtype=x.dtype)


@lowers("onnx.Shrink")
def shrink(b: OnnxBuilder, x: Tensor, bias: float = 0.0, lambd: float = 0.5) -> Tensor:
    """x moved by bias towards 0, and 0 between -lambd and lambd."""

    def fn(x: Elem) -> Elem:
        if not dtypes.is_float(x.dtype):
            raise NotLowerable("it shrinks integers")
        return scalar.select(x < -lambd, x + bias, scalar.select(x > lambd, x - bias, 0))

    return b.elementwise(x.dtype, [x], fn)


@lowers("onnx.Binarizer")
def binarizer(b: OnnxBuilder, x: Tensor, threshold: float = 0.0) -> Tensor:
    """1 above the threshold, else 0."""
    return b.elementwise(x.dtype, [x], lambda x: scalar.select(x > threshold, x.like(1), 0))


@lowers("onnx.Clip")
@known(1, 2)
def clip(b: OnnxBuilder, x: Tensor, low: Any = None, high: Any = None, min: Any = None, max: Any = None) -> Tensor:
    """x between two bounds, each of which may be missing."""
    bounds = []
    for operand, attribute in ((low, min), (high, max)):
        static = isinstance(operand, Known) and operand.static
        bounds.append(elements(operand)[0] if static else attribute if operand is None else operand)  # type: ignore[index]
    if bounds == [None, None]:
        return x
    return b.aten("clamp", x, *bounds, dtype=x.dtype)


# -- quantisation --------------------------------------------------------------------------------------------------


def _along(b: OnnxBuilder, x: Tensor, parameter: Tensor, axis: int, block: int) -> Tensor:
    """A scale or zero point in a shape that broadcasts to x."""
    if parameter.rank == 0:
        return parameter
    if parameter.rank == 1 and not block:
        axis %= x.rank
        return b.reshape(parameter, [*[1] * axis, parameter.dims[0], *[1] * (x.rank - axis - 1)])
    if block:
        repeated = b.aten("repeat_interleave.self_int", parameter, block, axis % x.rank, dtype=parameter.dtype)
        # The last block may be shorter.
        return b.slice(repeated, axis % x.rank, 0, x.dims[axis])
    return parameter


@lowers("onnx.DequantizeLinear")
def dequantize(
    b: OnnxBuilder,
    x: Tensor,
    scale: Tensor,
    zero: Tensor | None = None,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: Any = None,
) -> Tensor:
    """(x - zero) * scale."""
    dtype = output_dtype if isinstance(output_dtype, torch.dtype) else scale.dtype
    if not isinstance(zero, Known):
        scale, zero = without_zeros(b, scale, zero)
    inputs = [x, _along(b, x, scale, axis, block_size)]
    if zero is not None:
        inputs.append(_along(b, x, zero, axis, block_size))
    wide = dtypes.opmath(dtype)

    def fn(x: Elem, scale: Elem, *zero: Elem) -> Elem:
        if dtypes.is_float(x.dtype):
            # Its zero point is 0.
            return (x.to(wide) * scale.to(wide)).to(dtype)
        whole = x.to(torch.int32)
        if zero:
            whole = whole - zero[0].to(torch.int32)
        return (whole.to(wide) * scale.to(wide)).to(dtype)

    return b.map(dtype, inputs, fn)


@lowers("onnx.QuantizeLinear")
def quantize(
    b: OnnxBuilder,
    x: Tensor,
    scale: Tensor,
    zero: Tensor | None = None,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: Any = None,
    saturate: int = 1,
    **_: Any,
) -> Tensor:
    """x / scale, rounded to even, plus zero, saturated to the type of ``zero``."""
    dtype = zero.dtype if zero is not None else output_dtype if isinstance(output_dtype, torch.dtype) else torch.uint8
    inputs = [x, _along(b, x, scale, axis, block_size)]
    if zero is not None:
        inputs.append(_along(b, x, zero, axis, block_size))

    def fn(x: Elem, scale: Elem, *zero: Elem) -> Elem:
        ratio = x.to(torch.float32) / scale.to(torch.float32)
        if dtypes.is_float(dtype):
            return narrow.encode(ratio, dtype, saturate=bool(saturate))
        ratio = scalar.unary("roundeven", ratio)
        if zero:
            ratio = ratio + zero[0].to(torch.float32)
        low, high = dtypes.limits(dtype)
        return scalar.between(ratio, float(low), float(high)).to(dtype)

    return b.map(dtype, inputs, fn)
