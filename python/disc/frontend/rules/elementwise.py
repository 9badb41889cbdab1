"""Elementwise arithmetic, activations and conversions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch_mlir import ir

from .. import dtypes, scalar
from ..builder import Builder, Input
from ..registry import NotLowerable, lowers
from ..scalar import Elem
from ..values import Number, RuntimeNumber, Tensor
from .common import number

# -- binary arithmetic -----------------------------------------------------------------------------


@lowers("torch.aten.add")
def add(b: Builder, x: Input, y: Input, alpha: Number = 1) -> Tensor:
    """x + alpha * y."""
    y = number(y)
    if alpha == 1:
        if isinstance(x, Tensor) and x.dtype == b.out.dtype and _is_neutral(y, x.dtype):
            return x
        return b.elementwise(b.out.dtype, [x, y], lambda x, y: x + y)
    return b.elementwise(b.out.dtype, [x, y], lambda x, y: x + y * alpha)


def _is_neutral(y: Input, dtype: torch.dtype) -> bool:
    """Whether ``x + y`` is ``x`` for each ``x`` of the dtype: -0.0 + 0.0 is 0.0, another number if its sign is read."""
    if isinstance(y, Tensor) or y != 0:
        return False
    return not dtypes.is_float(dtype) or math.copysign(1, y) < 0


@lowers("torch.aten.sub")
def sub(b: Builder, x: Input, y: Input, alpha: Number = 1) -> Tensor:
    """x - alpha * y."""
    if alpha == 1:
        return b.elementwise(b.out.dtype, [x, number(y)], lambda x, y: x - y)
    return b.elementwise(b.out.dtype, [x, number(y)], lambda x, y: x - y * alpha)


@lowers("torch.aten.rsub")
def rsub(b: Builder, x: Input, y: Input, alpha: Number = 1) -> Tensor:
    """y - alpha * x."""
    return b.elementwise(b.out.dtype, [x, number(y)], lambda x, y: y - x * alpha)


@lowers("torch.aten.mul")
def mul(b: Builder, x: Input, y: Input) -> Tensor:
    """x * y."""
    y = number(y)
    if isinstance(x, Tensor) and not isinstance(y, Tensor) and y == 1 and x.dtype == b.out.dtype:
        return x
    return b.elementwise(b.out.dtype, [x, y], lambda x, y: x * y)


def _by_number(b: Builder, x: Input, y: Input, fn: Callable[[Elem, Any], Elem]) -> Tensor:
    """fn(x, y), which sees that ``y`` is a constant if it is: division by one needs no care."""
    if not dtypes.is_float(b.out.dtype):
        _require_divisor(b, x, y)
    if isinstance(y, (int, float)):
        return b.elementwise(b.out.dtype, [x], lambda x: fn(x, y))
    return b.elementwise(b.out.dtype, [x, number(y)], fn)


def _require_divisor(b: Builder, x: Input, y: Input) -> None:
    """Refuses a divisor of 0 that is the same for all elements, unless there are none, as PyTorch does for integers."""
    count = b.product(x.dims) if isinstance(x, Tensor) else 1
    given = b.operand_value(1)
    if isinstance(y, ir.Value) and isinstance(given, torch.SymInt):
        b.require_divisor(y, given.node.expr, f"{b.op_name.removeprefix('torch.')}: ", least=b.minimum(1, count))
    elif isinstance(y, int) and y == 0 and count != 0:
        raise NotLowerable("integer division or modulo by zero")


@lowers("torch.aten.div", "torch.aten.divide", "torch.aten.true_divide")
def div(b: Builder, x: Input, y: Input, rounding_mode: str | None = None) -> Tensor:
    """x / y, rounded down or towards zero if asked."""
    divide = {
        None: lambda x, y: x / y,
        "floor": scalar.floor_divide,
        "trunc": scalar.trunc_divide,
    }[rounding_mode]
    return _by_number(b, x, y, divide)


@lowers("torch.aten.floor_divide")
def floor_divide(b: Builder, x: Input, y: Input) -> Tensor:
    """x // y."""
    return _by_number(b, x, y, scalar.floor_divide)


def _rounded(b: Builder, fn: Callable[[Elem, Elem], Elem]) -> Callable[[Elem, Any], Elem]:
    """``fn`` of operands that are rounded to the result's dtype first, as PyTorch does it: an f16 times 0.1 may use the
    number itself, but for a remainder another divisor is another number of times."""
    dtype = b.out.dtype
    if dtypes.opmath(dtype) == dtype:
        return fn

    def of_rounded(x: Elem, y: Any) -> Elem:
        y = y if isinstance(y, Elem) else scalar.constant(y, x.dtype)
        return fn(x.to(dtype).to(x.dtype), y.to(dtype).to(x.dtype))

    return of_rounded


@lowers("torch.aten.remainder")
def remainder(b: Builder, x: Input, y: Input) -> Tensor:
    """x % y, with the sign of y."""
    return _by_number(b, x, y, _rounded(b, scalar.remainder))


@lowers("torch.aten.fmod")
def fmod(b: Builder, x: Input, y: Input) -> Tensor:
    """C's fmod: the sign of x."""
    return _by_number(b, x, y, _rounded(b, scalar.fmod))


@lowers("torch.aten.pow")
def pow_(b: Builder, x: Input, y: Input) -> Tensor:
    """x ** y; a constant exponent becomes products and roots where that is exact enough."""
    if isinstance(y, (int, float)) and not isinstance(y, bool):
        return b.elementwise(b.out.dtype, [x], lambda x: scalar.power(x, y))
    return b.elementwise(b.out.dtype, [x, number(y)], scalar.power)


@lowers("torch.aten.atan2")
def atan2(b: Builder, x: Input, y: Input) -> Tensor:
    """The angle of (y, x)."""

    def fn(x: Elem, y: Elem) -> Elem:
        op = ir.Operation.create("math.atan2", [x.value.type], [x.value, y.value])
        return Elem(op.result, x.dtype)

    return b.elementwise(b.out.dtype, [x, y], fn)


@lowers("torch.aten.maximum", "torch.aten.max.other")
def maximum(b: Builder, x: Tensor, y: Tensor) -> Tensor:
    """The larger of each pair; NaN wins."""
    return b.elementwise(b.out.dtype, [x, y], scalar.maximum, compute=b.out.dtype)


@lowers("torch.aten.minimum", "torch.aten.min.other")
def minimum(b: Builder, x: Tensor, y: Tensor) -> Tensor:
    """The smaller of each pair; NaN wins."""
    return b.elementwise(b.out.dtype, [x, y], scalar.minimum, compute=b.out.dtype)


@lowers("torch.aten.addcmul")
def addcmul(b: Builder, x: Tensor, y: Tensor, z: Tensor, value: Number = 1) -> Tensor:
    """x + value * y * z."""
    return b.elementwise(b.out.dtype, [x, y, z], lambda x, y, z: x + y * z * value)


@lowers("torch.aten.addcdiv")
def addcdiv(b: Builder, x: Tensor, y: Tensor, z: Tensor, value: Number = 1) -> Tensor:
    """x + value * y / z."""
    return b.elementwise(b.out.dtype, [x, y, z], lambda x, y, z: x + y / z * value)


@lowers("torch.aten.lerp")
def lerp(b: Builder, x: Tensor, y: Tensor, weight: Input) -> Tensor:
    """x + weight * (y - x), from the nearer end as PyTorch does."""

    def fn(x: Elem, y: Elem, w: Elem) -> Elem:
        near = scalar.absolute(w) < 0.5
        return scalar.select(near, x + w * (y - x), y - (y - x) * (1.0 - w))

    return b.elementwise(b.out.dtype, [x, y, weight], fn)


# -- unary -----------------------------------------------------------------------------------------

_MATH = (
    "exp exp2 expm1 log log2 log10 log1p sqrt rsqrt tanh sin cos tan asin acos atan sinh cosh asinh acosh atanh erf"
).split()


def _register_math(name: str) -> None:
    @lowers(f"torch.aten.{name}")
    def rule(b: Builder, x: Tensor) -> Tensor:
        return b.elementwise(b.out.dtype, [x], lambda x: scalar.unary(name, x))


for _name in _MATH:
    _register_math(_name)


def _register_rounding(name: str, math_name: str) -> None:
    @lowers(f"torch.aten.{name}")
    def rule(b: Builder, x: Tensor) -> Tensor:
        if not dtypes.is_float(x.dtype):
            return x
        return b.elementwise(b.out.dtype, [x], lambda x: scalar.unary(math_name, x))


for _name, _math_name in {
    "floor": "floor",
    "ceil": "ceil",
    "trunc": "trunc",
    "round": "roundeven",
}.items():
    _register_rounding(_name, _math_name)


@lowers("torch.aten.round.decimals")
def round_decimals(b: Builder, x: Tensor, decimals: int) -> Tensor:
    """Rounds to a number of decimal places, by scaling as PyTorch does."""
    if not dtypes.is_float(x.dtype):
        return x
    scale = float(10 ** abs(decimals))

    def fn(x: Elem) -> Elem:
        if decimals >= 0:
            return scalar.unary("roundeven", x * scale) / scale
        return scalar.unary("roundeven", x / scale) * scale

    return b.elementwise(b.out.dtype, [x], fn)


@lowers("torch.aten.abs")
def abs_(b: Builder, x: Tensor) -> Tensor:
    """Absolute value."""
    return b.elementwise(b.out.dtype, [x], scalar.absolute)


@lowers("torch.aten.neg", "torch.aten._neg_view")
def neg(b: Builder, x: Tensor) -> Tensor:
    """-x."""
    return b.elementwise(b.out.dtype, [x], lambda x: -x)


@lowers("torch.aten.reciprocal")
def reciprocal(b: Builder, x: Tensor) -> Tensor:
    """1 / x."""
    return b.elementwise(b.out.dtype, [x], lambda x: 1.0 / x)


@lowers("torch.aten.square")
def square(b: Builder, x: Tensor) -> Tensor:
    """x * x."""
    return b.elementwise(b.out.dtype, [x], lambda x: x * x)


@lowers("torch.aten.sign", "torch.aten.sgn")
def sign(b: Builder, x: Tensor) -> Tensor:
    """-1, 0 or 1; 0 for NaN as in PyTorch."""

    def fn(x: Elem) -> Elem:
        if x.dtype == torch.bool:
            return x
        return (x > 0).to(x.dtype) - (x < 0).to(x.dtype)

    return b.elementwise(b.out.dtype, [x], fn)


# -- activations -----------------------------------------------------------------------------------


@lowers("torch.aten.gelu")
def gelu(b: Builder, x: Tensor, approximate: str = "none") -> Tensor:
    """Gaussian error linear unit."""
    return b.elementwise(b.out.dtype, [x], lambda x: scalar.gelu(x, approximate))


@lowers("torch.aten.relu")
def relu(b: Builder, x: Tensor) -> Tensor:
    """0 where x is below it: unlike the maximum it keeps -0, as eager PyTorch does."""
    return b.elementwise(b.out.dtype, [x], lambda x: scalar.select(x < 0, x.like(0), x), compute=b.out.dtype)


@lowers("torch.aten.threshold_backward")
def threshold_backward(b: Builder, grad: Tensor, x: Tensor, threshold: Number) -> Tensor:
    """The gradient where x is above the threshold, else 0."""
    dtype = b.out.dtype
    return b.elementwise(dtype, [grad, x], lambda g, x: scalar.select(x <= threshold, g.like(0), g), compute=dtype)


@lowers("torch.aten.relu6")
def relu6(b: Builder, x: Tensor) -> Tensor:
    """min(max(x, 0), 6)."""
    return b.elementwise(b.out.dtype, [x], lambda x: scalar.minimum(scalar.select(x < 0, x.like(0), x), 6))


@lowers("torch.aten.sigmoid")
def sigmoid(b: Builder, x: Tensor) -> Tensor:
    """1 / (1 + e^-x)."""
    return b.elementwise(b.out.dtype, [x], scalar.sigmoid)


@lowers("torch.aten.silu")
def silu(b: Builder, x: Tensor) -> Tensor:
    """x * sigmoid(x)."""
    return b.elementwise(b.out.dtype, [x], lambda x: x / (scalar.exp(-x) + 1.0))


@lowers("torch.aten.silu_backward")
def silu_backward(b: Builder, grad: Tensor, x: Tensor) -> Tensor:
    """The gradient of x * sigmoid(x)."""

    def body(grad: Elem, x: Elem) -> Elem:
        gate = scalar.sigmoid(x)
        return grad * gate * (x * (-gate + 1.0) + 1.0)

    return b.elementwise(b.out.dtype, [grad, x], body)


@lowers("torch.aten.leaky_relu")
def leaky_relu(b: Builder, x: Tensor, slope: float = 0.01) -> Tensor:
    """x, or slope * x below zero."""
    return b.elementwise(b.out.dtype, [x], lambda x: scalar.select(x > 0, x, x * slope))


@lowers("torch.aten.elu")
def elu(b: Builder, x: Tensor, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Tensor:
    """scale * x, or scale * alpha * (e^(input_scale * x) - 1) below zero."""

    def fn(x: Elem) -> Elem:
        negative = scalar.unary("expm1", x * input_scale) * (alpha * scale)
        return scalar.select(x > 0, x * scale, negative)

    return b.elementwise(b.out.dtype, [x], fn)


@lowers("torch.aten.hardtanh")
def hardtanh(b: Builder, x: Tensor, low: Number = -1, high: Number = 1) -> Tensor:
    """Clamps to [low, high]."""
    return clamp(b, x, low, high)


@lowers("torch.aten.softplus")
def softplus(b: Builder, x: Tensor, beta: float = 1, threshold: float = 20) -> Tensor:
    """log(1 + e^(beta x)) / beta, linear above the threshold."""

    def fn(x: Elem) -> Elem:
        soft = scalar.unary("log1p", scalar.exp(x * beta)) / beta
        return scalar.select(x * beta > threshold, x, soft)

    return b.elementwise(b.out.dtype, [x], fn)


@lowers("torch.aten.hardsigmoid")
def hardsigmoid(b: Builder, x: Tensor) -> Tensor:
    """min(max(x + 3, 0), 6) / 6."""
    return b.elementwise(b.out.dtype, [x], lambda x: scalar.minimum(scalar.maximum(x + 3.0, 0), 6) / 6.0)


@lowers("torch.aten.hardswish")
def hardswish(b: Builder, x: Tensor) -> Tensor:
    """x * min(max(x + 3, 0), 6) / 6."""
    return b.elementwise(b.out.dtype, [x], lambda x: x * scalar.minimum(scalar.maximum(x + 3.0, 0), 6) / 6.0)


@lowers("torch.aten.mish")
def mish(b: Builder, x: Tensor) -> Tensor:
    """x * tanh(softplus(x))."""
    return b.elementwise(b.out.dtype, [x], lambda x: x * scalar.tanh(scalar.unary("log1p", scalar.exp(x))))


@lowers("torch.aten.logit")
def logit(b: Builder, x: Tensor, eps: float | None = None) -> Tensor:
    """log(x / (1 - x)), with x clamped to [eps, 1 - eps]."""

    def fn(x: Elem) -> Elem:
        if eps is not None:
            x = scalar.minimum(scalar.maximum(x, eps), 1 - eps)
        return scalar.log(x / (1.0 - x))

    return b.elementwise(b.out.dtype, [x], fn)


# -- bounds ----------------------------------------------------------------------------------------


@lowers("torch.aten.clamp", "torch.aten.clip")
def clamp(b: Builder, x: Tensor, low: Any = None, high: Any = None) -> Tensor:
    """Limits x to bounds, which are numbers or tensors; either may be missing."""
    inputs: list[Input] = [x]
    if low is not None:
        inputs.append(number(low))
    if high is not None:
        inputs.append(number(high))

    def fn(x: Elem, *bounds: Elem) -> Elem:
        rest = list(bounds)
        if low is not None:
            x = scalar.maximum(x, rest.pop(0))
        return scalar.minimum(x, rest.pop(0)) if high is not None else x

    return b.elementwise(b.out.dtype, inputs, fn)


@lowers("torch.aten.clamp_min")
def clamp_min(b: Builder, x: Tensor, low: Any) -> Tensor:
    """max(x, low)."""
    return clamp(b, x, low, None)


@lowers("torch.aten.clamp_max")
def clamp_max(b: Builder, x: Tensor, high: Any) -> Tensor:
    """min(x, high)."""
    return clamp(b, x, None, high)


# -- conversions and copies ------------------------------------------------------------------------


def convert(b: Builder, x: Tensor, dtype: torch.dtype) -> Tensor:
    """x as ``dtype``."""
    if x.dtype == dtype:
        return x
    result = b.map(dtype, [x], lambda x: x, dims=x.dims)
    return result


@lowers(
    "torch.aten._to_copy",
    "torch.aten.to",
    "torch.aten.type_as",
    "torch.prims.convert_element_type",
)
def to(b: Builder, x: Tensor, *_: Any) -> Tensor:
    """Converts to the dtype of the result; devices and memory formats mean nothing here."""
    return convert(b, x, b.out.dtype)


@lowers(
    "torch.aten.clone",
    "torch.aten.contiguous",
    "torch.aten.detach",
    "torch.aten.alias",
    "torch.aten.lift",
    "torch.aten.lift_fresh",
    "torch.aten.lift_fresh_copy",
    "torch.aten.positive",
)
def identity(b: Builder, x: Tensor, *_: Any) -> Tensor:
    """The tensor itself: values are immutable, and layouts are the compiler's."""
    return x


@lowers("torch.prim.NumToTensor.Scalar", "torch.aten.scalar_tensor")
def scalar_tensor(b: Builder, value: Any, *_: Any) -> Tensor:
    """A number as a tensor of rank 0."""
    value = number(value)
    if isinstance(value, RuntimeNumber):
        return b.map(b.out.dtype, [value], lambda x: x, dims=[])
    return b.full([], value, b.out.dtype)
