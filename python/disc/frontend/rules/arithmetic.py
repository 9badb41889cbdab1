"""Elementwise arithmetic beyond the everyday: bits of floats, number theory, shifts, logarithms of sums."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch_mlir import ir
from torch_mlir.dialects import arith

from .. import dtypes, scalar, scalar_flow
from ..builder import Builder, Input
from ..registry import NotLowerable, lowers
from ..scalar import Elem
from ..values import Tensor
from .common import number

_INTEGERS = {torch.float64: torch.int64, torch.float32: torch.int32, torch.float16: torch.int16}
_INTEGERS[torch.bfloat16] = torch.int16
# Bits of the fraction, and the exponent's bias.
_LAYOUT = {torch.float64: (52, 1023), torch.float32: (23, 127), torch.float16: (10, 15), torch.bfloat16: (7, 127)}


def bits_of(x: Elem) -> Elem:
    """A float's bits as an integer."""
    dtype = _INTEGERS[x.dtype]
    return Elem(arith.BitcastOp(dtypes.element_type(dtype), x.value).result, dtype)


def of_bits(x: Elem, dtype: torch.dtype) -> Elem:
    """The float with the bits of an integer."""
    return Elem(arith.BitcastOp(dtypes.element_type(dtype), x.value).result, dtype)


def copy_sign(x: Elem, sign: Elem) -> Elem:
    """|x| with the sign bit of ``sign``."""
    op = ir.Operation.create("math.copysign", [x.value.type], [x.value, sign.value])
    return Elem(op.result, x.dtype)


def _shift(x: Elem, count: Elem, op: Any) -> Elem:
    return Elem(op(x.value, count.value).result, x.dtype)


# -- bits of floats --------------------------------------------------------------------------------


@lowers("torch.aten.copysign")
def copysign(b: Builder, x: Tensor, y: Input) -> Tensor:
    """|x| with the sign of y."""
    return b.elementwise(b.out.dtype, [x, number(y)], copy_sign)


@lowers("torch.aten.signbit")
def signbit(b: Builder, x: Tensor) -> Tensor:
    """Whether the sign bit is set: of -0.0 too."""
    if not dtypes.is_float(x.dtype):
        return b.map(torch.bool, [x], lambda x: x < 0 if x.dtype != torch.bool else x & False, dims=x.dims)
    return b.map(torch.bool, [x], lambda x: bits_of(x) < 0, dims=x.dims)


@lowers("torch.aten.nextafter")
def nextafter(b: Builder, x: Tensor, y: Input) -> Tensor:
    """The number after x in the direction of y."""

    def fn(x: Elem, y: Elem) -> Elem:
        bits = bits_of(x)
        # Away from zero the bits grow, whatever the sign.
        step = scalar.select((y > x) ^ (x < 0), bits + 1, bits - 1)
        smallest = copy_sign(of_bits(scalar.constant(1, bits.dtype), x.dtype), y)
        result = scalar.select(x.eq(0), smallest, of_bits(step, x.dtype))
        result = scalar.select(x.eq(y), y, result)
        return scalar.select(x.ne(x) | y.ne(y), x.like(math.nan), result)

    return b.elementwise(b.out.dtype, [x, y], fn, compute=b.out.dtype)


@lowers("torch.aten.frexp")
def frexp(b: Builder, x: Tensor) -> tuple[Tensor, Tensor]:
    """Mantissas in [1/2, 1) and exponents of two."""
    compute = dtypes.opmath(x.dtype)
    fraction, bias = _LAYOUT[compute]

    def split(x: Elem) -> tuple[Elem, Elem]:
        x = x.to(compute)
        tiny = scalar.absolute(x) < torch.finfo(compute).tiny
        bits = bits_of(scalar.select(tiny, x * float(2 ** (fraction + 1)), x))
        field = _shift(bits, bits.like(fraction), arith.ShRUIOp) & (2 * bias + 1)
        exponent = scalar.select(tiny, field - (bias - 1 + fraction + 1), field - (bias - 1))
        mantissa = (bits & ~((2 * bias + 1) << fraction)) | ((bias - 1) << fraction)
        whole = x.ne(0) & field.ne(2 * bias + 1)
        return (
            scalar.select(whole, of_bits(mantissa, compute), x),
            scalar.select(whole, exponent, 0),
        )

    return (
        b.map(x.dtype, [x], lambda x: split(x)[0], dims=x.dims),
        b.map(torch.int32, [x], lambda x: split(x)[1], dims=x.dims),
    )


@lowers("torch.aten.ldexp")
def ldexp(b: Builder, x: Tensor, exponent: Input) -> Tensor:
    """x * 2^exponent: exact where a float is scaled by an integer, else by a power and a product, like PyTorch."""
    exponent = number(exponent)
    if not dtypes.is_float(x.dtype) or not isinstance(exponent, Tensor) or dtypes.is_float(exponent.dtype):
        return b.elementwise(b.out.dtype, [x, exponent], lambda x, e: x * scalar.unary("exp2", e))
    compute = dtypes.opmath(x.dtype)
    return b.map(b.out.dtype, [x, exponent], lambda x, e: _scaled(x.to(compute), e.to(torch.int64)))


def _scaled(x: Elem, exponent: Elem) -> Elem:
    """x * 2^exponent in three steps, each by a power that is a normal number; at most one of them rounds.

    A step down before the last one leaves all bits to a number that does not end as 0.
    """
    fraction, bias = _LAYOUT[x.dtype]
    least, most, down = 1 - bias, bias, fraction + 2 - bias
    rest = scalar.maximum(scalar.minimum(exponent, 3 * bias), -3 * bias).to(_INTEGERS[x.dtype])
    for last in (False, False, True):
        if last:
            step = scalar.maximum(scalar.minimum(rest, most), least)
        else:
            step = scalar.select(rest > most, rest.like(most), scalar.select(rest < least, rest.like(down), 0))
        x = x * of_bits(_shift(step + bias, step.like(fraction), arith.ShLIOp), x.dtype)
        rest = rest - step
    return x


@lowers("torch.aten.frac")
def frac(b: Builder, x: Tensor) -> Tensor:
    """The fractional part."""
    return b.elementwise(b.out.dtype, [x], lambda x: x - scalar.trunc(x))


# -- choices ---------------------------------------------------------------------------------------


def _register_ignoring_nan(name: str, pick: Callable[[Elem, Elem], Elem]) -> None:
    @lowers(f"torch.aten.{name}")
    def rule(b: Builder, x: Tensor, y: Tensor) -> Tensor:
        def fn(x: Elem, y: Elem) -> Elem:
            if not dtypes.is_float(x.dtype):
                return pick(x, y)
            return scalar.select(x.ne(x), y, scalar.select(y.ne(y), x, pick(x, y)))

        return b.elementwise(b.out.dtype, [x, y], fn, compute=b.out.dtype)


_register_ignoring_nan("fmax", scalar.maximum)
_register_ignoring_nan("fmin", scalar.minimum)


@lowers("torch.aten.heaviside")
def heaviside(b: Builder, x: Tensor, at_zero: Tensor) -> Tensor:
    """0 below zero, 1 above, the second operand at zero."""

    def fn(x: Elem, v: Elem) -> Elem:
        if x.dtype == torch.bool:
            return x | v
        return scalar.select(x.eq(0), v, (x > 0).to(x.dtype))

    return b.elementwise(b.out.dtype, [x, at_zero], fn, compute=b.out.dtype)


@lowers("torch.aten.nan_to_num")
def nan_to_num(
    b: Builder, x: Tensor, nan: float | None = None, high: float | None = None, low: float | None = None
) -> Tensor:
    """Finite numbers for NaN and the infinities."""
    if not dtypes.is_float(x.dtype):
        return x
    info = torch.finfo(x.dtype)
    largest, smallest = info.max if high is None else high, info.min if low is None else low

    def fn(x: Elem) -> Elem:
        result = scalar.select(x.eq(math.inf), x.like(largest), x)
        result = scalar.select(x.eq(-math.inf), x.like(smallest), result)
        return scalar.select(x.ne(x), x.like(nan or 0.0), result)

    return b.elementwise(x.dtype, [x], fn, compute=x.dtype)


def _register_infinity(name: str, value: float) -> None:
    @lowers(f"torch.aten.{name}")
    def rule(b: Builder, x: Tensor) -> Tensor:
        if not dtypes.is_float(x.dtype):
            return b.full(x.dims, False, torch.bool)
        return b.map(torch.bool, [x], lambda x: x.eq(value), dims=x.dims)


_register_infinity("isposinf", math.inf)
_register_infinity("isneginf", -math.inf)

# -- integers --------------------------------------------------------------------------------------


def _register_shift(names: tuple[str, ...], signed: Any, unsigned: Any) -> None:
    @lowers(*(f"torch.aten.{name}" for name in names))
    def rule(b: Builder, x: Input, y: Input) -> Tensor:
        def fn(x: Elem, count: Elem) -> Elem:
            width = dtypes.bits(x.dtype)
            op = unsigned if dtypes.is_unsigned(x.dtype) else signed
            # A shift by the width or more, or by less than nothing, is undefined to a processor. PyTorch: all out.
            outside = (count < 0) | (count >= width) if not dtypes.is_unsigned(x.dtype) else count >= width
            shifted = _shift(x, scalar.select(outside, count.like(0), count), op)
            gone = x.like(0) if op is not arith.ShRSIOp else _shift(x, x.like(width - 1), op)
            return scalar.select(outside, gone, shifted)

        if dtypes.is_float(b.out.dtype):
            raise NotLowerable("shifts of floats")
        return b.elementwise(b.out.dtype, [number(x), number(y)], fn)


_register_shift(("bitwise_left_shift", "__lshift__"), arith.ShLIOp, arith.ShLIOp)
_register_shift(("bitwise_right_shift", "__rshift__"), arith.ShRSIOp, arith.ShRUIOp)


def _trailing_zeros(x: Elem) -> Elem:
    return scalar.unary("cttz", x)


def _common_divisor(x: Elem, y: Elem) -> Elem:
    """The binary algorithm, of odd numbers whose difference loses its factors of two in each step. (J. Stein,
    "Computational problems associated with Racah algebra", Journal of Computational Physics 1, 1967.)
    """
    x, y = scalar.absolute(x), scalar.absolute(y)
    # The result is the other number if one is 0: a shift by all bits is undefined.
    nothing = (x | y).eq(0)
    twos = scalar.select(nothing, x.like(0), _trailing_zeros(x | y))

    def odd(x: Elem) -> Elem:
        return _shift(x, scalar.select(x.eq(0), x.like(0), _trailing_zeros(x)), arith.ShRUIOp)

    def step(x: Elem, y: Elem) -> tuple[Elem, Elem]:
        y = odd(y)
        smaller = scalar.minimum(x, y)
        return smaller, scalar.maximum(x, y) - smaller

    first, second = scalar.select(x.eq(0), y, x), scalar.select(x.eq(0), x, y)
    divisor, _ = scalar_flow.while_loop(lambda x, y: y.ne(0), step, (odd(first), second))
    return _shift(divisor, twos, arith.ShLIOp)


@lowers("torch.aten.gcd")
def gcd(b: Builder, x: Tensor, y: Tensor) -> Tensor:
    """The greatest common divisor."""
    return b.elementwise(b.out.dtype, [x, y], _common_divisor)


@lowers("torch.aten.lcm")
def lcm(b: Builder, x: Tensor, y: Tensor) -> Tensor:
    """The least common multiple."""

    def fn(x: Elem, y: Elem) -> Elem:
        divisor = _common_divisor(x, y)
        # PyTorch's product of narrow integers is one of 32 bits, whose absolute value is then cut.
        wide = torch.int32 if dtypes.bits(x.dtype) < 32 else x.dtype
        return scalar.absolute(scalar.trunc_divide(x, divisor).to(wide) * y.to(wide))

    return b.elementwise(b.out.dtype, [x, y], fn)


# -- logarithms and roots --------------------------------------------------------------------------


def _zero_times(x: Elem, y: Elem, product: Elem) -> Elem:
    """0 where x is 0, even against an infinite factor; NaN where y is."""
    return scalar.select(y.ne(y), y, scalar.select(x.eq(0), x.like(0), product))


@lowers("torch.aten.xlogy", "torch.aten.special_xlogy")
def xlogy(b: Builder, x: Input, y: Input) -> Tensor:
    """x log y, and 0 where x is."""
    fn = lambda x, y: _zero_times(x, y, x * scalar.log(y))  # noqa: E731
    return b.elementwise(b.out.dtype, [number(x), number(y)], fn)


@lowers("torch.aten.special_xlog1py")
def xlog1py(b: Builder, x: Input, y: Input) -> Tensor:
    """x log(1 + y), and 0 where x is."""
    fn = lambda x, y: _zero_times(x, y, x * scalar.unary("log1p", y))  # noqa: E731
    return b.elementwise(b.out.dtype, [number(x), number(y)], fn)


@lowers("torch.aten.special_entr")
def entr(b: Builder, x: Tensor) -> Tensor:
    """-x log x, and 0 at 0."""

    def fn(x: Elem) -> Elem:
        inside = scalar.select(x > 0, -x * scalar.log(x), scalar.select(x.eq(0), x.like(0), x.like(-math.inf)))
        return scalar.select(x.ne(x), x, inside)

    return b.elementwise(b.out.dtype, [x], fn)


def _register_log_of_sum(name: str, log1p: Callable[[Elem], Elem], exp: str) -> None:
    @lowers(f"torch.aten.{name}")
    def rule(b: Builder, x: Tensor, y: Tensor) -> Tensor:
        def fn(x: Elem, y: Elem) -> Elem:
            top, low = scalar.maximum(x, y), scalar.minimum(x, y)
            result = top + log1p(scalar.unary(exp, low - top))
            return scalar.select(scalar.absolute(x).eq(math.inf) & x.eq(y), x, result)

        return b.elementwise(b.out.dtype, [x, y], fn)


_register_log_of_sum("logaddexp", lambda x: scalar.unary("log1p", x), "exp")
_register_log_of_sum("logaddexp2", lambda x: scalar.unary("log1p", x) * (1 / math.log(2)), "exp2")


@lowers("torch.aten.hypot")
def hypot(b: Builder, x: Tensor, y: Tensor) -> Tensor:
    """The square root of x^2 + y^2, without overflow on the way."""

    def fn(x: Elem, y: Elem) -> Elem:
        x, y = scalar.absolute(x), scalar.absolute(y)
        top, low = scalar.maximum(x, y), scalar.minimum(x, y)
        ratio = scalar.select(top.eq(0), low, low / top)
        result = top * scalar.sqrt(ratio * ratio + 1.0)
        return scalar.select(x.eq(math.inf) | y.eq(math.inf), x.like(math.inf), result)

    return b.elementwise(b.out.dtype, [x, y], fn)


@lowers("torch.aten.sinc", "torch.aten.special_sinc")
def sinc(b: Builder, x: Tensor) -> Tensor:
    """sin(pi x) / (pi x)."""

    def fn(x: Elem) -> Elem:
        angle = x * math.pi
        return scalar.select(x.eq(0), x.like(1), scalar.unary("sin", angle) / angle)

    return b.elementwise(b.out.dtype, [x], fn)


@lowers("torch.aten.angle")
def angle(b: Builder, x: Tensor) -> Tensor:
    """pi below zero, 0 above; NaN stays."""

    def fn(x: Elem) -> Elem:
        result = scalar.select(x < 0, x.like(math.pi), x.like(0))
        return scalar.select(x.ne(x), x, result)

    return b.elementwise(b.out.dtype, [x], fn)


@lowers("torch.aten.float_power")
def float_power(b: Builder, x: Input, y: Input) -> Tensor:
    """x ** y in f64."""
    return b.elementwise(b.out.dtype, [number(x), number(y)], scalar.power)


@lowers("torch.aten.deg2rad")
def deg2rad(b: Builder, x: Tensor) -> Tensor:
    """Degrees as radians."""
    return b.elementwise(b.out.dtype, [x], lambda x: x * (math.pi / 180))


@lowers("torch.aten.rad2deg")
def rad2deg(b: Builder, x: Tensor) -> Tensor:
    """Radians as degrees."""
    return b.elementwise(b.out.dtype, [x], lambda x: x * (180 / math.pi))
