"""Scalar arithmetic inside the body of a ``linalg.generic``.

``Elem`` overloads Python's operators, so that a rule reads as the formula it lowers:
``lambda x: 0.5 * x * (1.0 + erf(x * 0.7071))``. Operands must have the same dtype; Python numbers take
the dtype of the other side.
"""

from __future__ import annotations

import math as pymath
from dataclasses import dataclass
from typing import Any

import torch
from torch_mlir import ir
from torch_mlir.dialects import arith, linalg

from . import dtypes
from .registry import NotLowerable
from .values import Number, RuntimeNumber

Operand = Any  # Elem | Number | RuntimeNumber; a Union alias cannot name Elem before it exists.


@dataclass(frozen=True, eq=False)
class Elem:
    """One element: an SSA scalar and its dtype (which keeps the sign that MLIR's type lacks)."""

    value: ir.Value
    dtype: torch.dtype

    def to(self, dtype: torch.dtype) -> Elem:
        """Converts as ``Tensor.to(dtype)`` does."""
        return cast(self, dtype)

    def like(self, other: Operand) -> Elem:
        """``other`` as an element of this one's dtype."""
        if isinstance(other, RuntimeNumber):
            return other.emit().to(self.dtype)
        if isinstance(other, ir.Value):
            return from_extent(other, self.dtype)
        if isinstance(other, Elem):
            if other.dtype != self.dtype:
                raise TypeError(f"mixed dtypes in a body: {self.dtype} and {other.dtype}")
            return other
        return constant(other, self.dtype)

    def __add__(self, other: Operand) -> Elem:
        # PyTorch's sum of bools is their disjunction.
        return _binary(self, other, arith.AddFOp, arith.AddIOp, arith.OrIOp)

    def __sub__(self, other: Operand) -> Elem:
        return _binary(self, other, arith.SubFOp, arith.SubIOp, arith.XOrIOp)

    def __mul__(self, other: Operand) -> Elem:
        return _binary(self, other, arith.MulFOp, arith.MulIOp, arith.AndIOp)

    def __truediv__(self, other: Operand) -> Elem:
        other = self.like(other)
        if not dtypes.is_float(self.dtype):
            raise NotLowerable(f"a division of {self.dtype} elements")
        return Elem(arith.DivFOp(self.value, other.value).result, self.dtype)

    __radd__ = __add__
    __rmul__ = __mul__

    def __rsub__(self, other: Operand) -> Elem:
        return self.like(other) - self

    def __rtruediv__(self, other: Operand) -> Elem:
        return self.like(other) / self

    def __neg__(self) -> Elem:
        if dtypes.is_float(self.dtype):
            return Elem(arith.NegFOp(self.value).result, self.dtype)
        return constant(0, self.dtype) - self

    def __and__(self, other: Operand) -> Elem:
        return _bitwise(self, other, arith.AndIOp)

    def __or__(self, other: Operand) -> Elem:
        return _bitwise(self, other, arith.OrIOp)

    def __xor__(self, other: Operand) -> Elem:
        return _bitwise(self, other, arith.XOrIOp)

    def __invert__(self) -> Elem:
        return self ^ (True if self.dtype == torch.bool else -1)

    def __lt__(self, other: Operand) -> Elem:
        return compare("lt", self, other)

    def __le__(self, other: Operand) -> Elem:
        return compare("le", self, other)

    def __gt__(self, other: Operand) -> Elem:
        return compare("gt", self, other)

    def __ge__(self, other: Operand) -> Elem:
        return compare("ge", self, other)

    def eq(self, other: Operand) -> Elem:
        """Elementwise equality (``==`` keeps Python's meaning)."""
        return compare("eq", self, other)

    def ne(self, other: Operand) -> Elem:
        """Elementwise inequality."""
        return compare("ne", self, other)


def _binary(lhs: Elem, rhs: Operand, float_op: Any, int_op: Any, bool_op: Any) -> Elem:
    rhs = lhs.like(rhs)
    if dtypes.is_float(lhs.dtype):
        op = float_op
    else:
        op = bool_op if lhs.dtype == torch.bool else int_op
    return Elem(op(lhs.value, rhs.value).result, lhs.dtype)


def _bitwise(lhs: Elem, rhs: Operand, op: Any) -> Elem:
    if dtypes.is_float(lhs.dtype):
        raise NotLowerable(f"a bitwise operation on {lhs.dtype} elements")
    return Elem(op(lhs.value, lhs.like(rhs).value).result, lhs.dtype)


def shift_down(x: Elem, count: Operand) -> Elem:
    """The bits of an integer, moved down by ``count``; zeros come in."""
    return Elem(arith.ShRUIOp(x.value, x.like(count).value).result, x.dtype)


def constant(value: Number, dtype: torch.dtype) -> Elem:
    """A constant of ``dtype``, written where it is used: bodies capture nothing but extents."""
    type_ = dtypes.element_type(dtype)
    if isinstance(value, complex):
        raise NotLowerable(f"the complex number {value} as a {dtype} element")
    if not dtypes.is_float(dtype) and not pymath.isfinite(value):
        # What the conversion is on the processor.
        value = bool(value) if dtype == torch.bool else -(1 << 63)
    if dtypes.is_float(dtype) and dtypes.storage(dtype) == torch.uint8:
        attribute: ir.Attribute = ir.IntegerAttr.get(type_, torch.tensor(value, dtype=dtype).view(torch.uint8).item())
    elif dtypes.is_float(dtype):
        attribute = ir.FloatAttr.get(type_, float(value))
    elif dtype == torch.bool:
        attribute = ir.IntegerAttr.get(type_, int(bool(value)))
    else:
        attribute = ir.IntegerAttr.get(type_, wrap(int(value), dtype))
    return Elem(arith.ConstantOp(type_, attribute).result, dtype)


def wrap(value: int, dtype: torch.dtype) -> int:
    """``value`` modulo the width of ``dtype``, as the signed number of the same bits."""
    width = dtypes.bits(dtype)
    value &= (1 << width) - 1
    return value - (1 << width) if value >= 1 << (width - 1) else value


_FLOAT_PREDICATES = {
    "eq": arith.CmpFPredicate.OEQ,
    "ne": arith.CmpFPredicate.UNE,
    "lt": arith.CmpFPredicate.OLT,
    "le": arith.CmpFPredicate.OLE,
    "gt": arith.CmpFPredicate.OGT,
    "ge": arith.CmpFPredicate.OGE,
}


def compare(predicate: str, lhs: Elem, rhs: Operand) -> Elem:
    """``lhs predicate rhs`` as a bool; comparisons with NaN are false but for ``ne``."""
    rhs = lhs.like(rhs)
    if dtypes.is_float(lhs.dtype):
        op = arith.CmpFOp(_FLOAT_PREDICATES[predicate], lhs.value, rhs.value)
    else:
        name = predicate
        if predicate not in ("eq", "ne"):
            name = ("u" if dtypes.is_unsigned(lhs.dtype) else "s") + predicate
        op = arith.CmpIOp(getattr(arith.CmpIPredicate, name), lhs.value, rhs.value)
    return Elem(op.result, torch.bool)


def select(condition: Elem, if_true: Elem, if_false: Operand) -> Elem:
    """``condition ? if_true : if_false``."""
    if_false = if_true.like(if_false)
    return Elem(arith.SelectOp(condition.value, if_true.value, if_false.value).result, if_true.dtype)


def cast(x: Elem, dtype: torch.dtype) -> Elem:
    """``x`` converted to ``dtype`` as PyTorch converts."""
    if x.dtype == dtype:
        return x
    if dtypes.storage(x.dtype) != x.dtype:
        return cast(narrow.decode(x), dtype)
    if dtypes.storage(dtype) != dtype:
        return narrow.encode(x, dtype)
    if dtype == torch.bool:
        return x.ne(0)
    target = dtypes.element_type(dtype)
    if dtypes.is_float(x.dtype) and dtypes.is_float(dtype):
        if dtypes.is_half(x.dtype) and dtypes.is_half(dtype):
            return cast(cast(x, torch.float32), dtype)
        wider = dtypes.bits(dtype) > dtypes.bits(x.dtype)
        op = arith.ExtFOp if wider else arith.TruncFOp
        return Elem(op(target, x.value).result, dtype)
    if dtypes.is_float(x.dtype):
        if dtypes.is_half(x.dtype):
            return cast(cast(x, torch.float32), dtype)
        if dtypes.bits(dtype) < 32:
            # Through a wide integer: out-of-range values then wrap instead of being undefined.
            return cast(cast(x, torch.int64), dtype)
        return Elem(arith.FPToSIOp(target, x.value).result, dtype)
    if dtypes.is_float(dtype):
        if dtypes.is_half(dtype):
            return cast(cast(x, torch.float32), dtype)
        op = arith.UIToFPOp if dtypes.is_unsigned(x.dtype) else arith.SIToFPOp
        return Elem(op(target, x.value).result, dtype)
    if dtypes.bits(dtype) == dtypes.bits(x.dtype):
        return Elem(x.value, dtype)
    if dtypes.bits(dtype) < dtypes.bits(x.dtype):
        return Elem(arith.TruncIOp(target, x.value).result, dtype)
    op = arith.ExtUIOp if dtypes.is_unsigned(x.dtype) else arith.ExtSIOp
    return Elem(op(target, x.value).result, dtype)


def loop_index(dim: int, dtype: torch.dtype = torch.int64) -> Elem:
    """The body's index along loop ``dim``."""
    return from_extent(linalg.IndexOp(dim).result, dtype)


def from_extent(extent: int | ir.Value, dtype: torch.dtype) -> Elem:
    """An extent as an element: the one kind of value a body captures from outside."""
    if isinstance(extent, int):
        return constant(extent, dtype)
    i64 = dtypes.element_type(torch.int64)
    return Elem(arith.IndexCastOp(i64, extent).result, torch.int64).to(dtype)


def to_index(x: Elem) -> ir.Value:
    """An integer element as ``index``, to address a tensor with."""
    return arith.IndexCastOp(ir.IndexType.get(), x.to(torch.int64).value).result


def maximum(lhs: Elem, rhs: Operand) -> Elem:
    """The larger; NaN wins."""
    return _min_max(lhs, rhs, arith.MaximumFOp, arith.MaxSIOp, arith.MaxUIOp)


def minimum(lhs: Elem, rhs: Operand) -> Elem:
    """The smaller; NaN wins."""
    return _min_max(lhs, rhs, arith.MinimumFOp, arith.MinSIOp, arith.MinUIOp)


def _min_max(lhs: Elem, rhs: Operand, float_op: Any, signed_op: Any, unsigned_op: Any) -> Elem:
    rhs = lhs.like(rhs)
    if dtypes.is_float(lhs.dtype):
        op = float_op
    else:
        op = unsigned_op if dtypes.is_unsigned(lhs.dtype) else signed_op
    return Elem(op(lhs.value, rhs.value).result, lhs.dtype)


def unary(name: str, x: Elem) -> Elem:
    """``math.<name>`` of a floating point element."""
    if not dtypes.is_float(x.dtype) and name not in ("absi", "cttz"):
        raise NotLowerable(f"{name} of {x.dtype} elements")
    return Elem(ir.Operation.create(f"math.{name}", [x.value.type], [x.value]).result, x.dtype)


def fma(x: Elem, y: Operand, z: Operand) -> Elem:
    """``x * y + z`` of floats, rounded once where the processor does that."""
    op = ir.Operation.create("math.fma", [x.value.type], [x.value, x.like(y).value, x.like(z).value])
    return Elem(op.result, x.dtype)


def exp(x: Elem) -> Elem:
    """e to the x."""
    return unary("exp", x)


def log(x: Elem) -> Elem:
    """Natural logarithm."""
    return unary("log", x)


def sqrt(x: Elem) -> Elem:
    """Square root."""
    return unary("sqrt", x)


def rsqrt(x: Elem) -> Elem:
    """One over the square root."""
    return unary("rsqrt", x)


def tanh(x: Elem) -> Elem:
    """Hyperbolic tangent."""
    return unary("tanh", x)


def erf(x: Elem) -> Elem:
    """The error function."""
    return unary("erf", x)


def floor(x: Elem) -> Elem:
    """Largest integer not above x; integers are their own."""
    return unary("floor", x) if dtypes.is_float(x.dtype) else x


def trunc(x: Elem) -> Elem:
    """Rounds towards zero; integers stay."""
    return unary("trunc", x) if dtypes.is_float(x.dtype) else x


def absolute(x: Elem) -> Elem:
    """Absolute value."""
    if dtypes.is_float(x.dtype):
        return unary("absf", x)
    return x if dtypes.is_unsigned(x.dtype) else unary("absi", x)


def between(x: Elem, low: Number, high: Number) -> Elem:
    """A float without a fraction as an int32 between two of them; NaN is 0.

    PyTorch clamps floats and converts those, so that it meets NaN with each step.
    """
    bounded = select(x > low, x, x.like(low))
    bounded = select(bounded < high, bounded, x.like(high))
    return select(x.eq(x), bounded.to(torch.int32), 0)


def sigmoid(x: Elem) -> Elem:
    """1 / (1 + e^-x)."""
    return 1.0 / (exp(-x) + 1.0)


def fmod(lhs: Elem, rhs: Operand) -> Elem:
    """C's remainder: the sign of the dividend."""
    if dtypes.is_float(lhs.dtype):
        return Elem(arith.RemFOp(lhs.value, lhs.like(rhs).value).result, lhs.dtype)
    # By -1 the remainder is that by 1.
    divisor = _divisor(lhs, rhs)
    op = arith.RemUIOp if dtypes.is_unsigned(lhs.dtype) else arith.RemSIOp
    return Elem(op(lhs.value, divisor.value).result, lhs.dtype)


def remainder(lhs: Elem, rhs: Operand) -> Elem:
    """Python's ``%``: the sign of the divisor."""
    rest = fmod(lhs, rhs)
    if dtypes.is_unsigned(lhs.dtype):
        return rest
    rhs = lhs.like(rhs)
    adjust = rest.ne(0) & ((rest < 0) ^ (rhs < 0))
    return select(adjust, rest + rhs, rest)


def floor_divide(lhs: Elem, rhs: Operand) -> Elem:
    """Python's ``//``, with PyTorch's care for quotients next to an integer."""
    if not dtypes.is_float(lhs.dtype):
        return _divide_ints(lhs, rhs, arith.FloorDivSIOp)
    rhs = lhs.like(rhs)
    rest = fmod(lhs, rhs)
    quotient = (lhs - rest) / rhs
    quotient = select(rest.ne(0) & ((rhs < 0) ^ (rest < 0)), quotient - 1.0, quotient)
    rounded = floor(quotient)
    rounded = select(quotient - rounded > 0.5, rounded + 1.0, rounded)
    rounded = select(quotient.eq(0), quotient * 0.0, rounded)
    # Division by zero keeps the quotient's infinity or NaN.
    return select(rhs.eq(0), lhs / rhs, rounded)


def trunc_divide(lhs: Elem, rhs: Operand) -> Elem:
    """Division rounded towards zero."""
    if dtypes.is_float(lhs.dtype):
        return trunc(lhs / rhs)
    return _divide_ints(lhs, rhs, arith.DivSIOp)


def _divide_ints(lhs: Elem, rhs: Operand, signed_op: Any) -> Elem:
    divisor = _divisor(lhs, rhs)
    if dtypes.is_unsigned(lhs.dtype):
        return Elem(arith.DivUIOp(lhs.value, divisor.value).result, lhs.dtype)
    quotient = Elem(signed_op(lhs.value, divisor.value).result, lhs.dtype)
    if isinstance(rhs, int):
        return -lhs if rhs == -1 else quotient
    return select(lhs.like(rhs).eq(-1), -lhs, quotient)


def _divisor(lhs: Elem, rhs: Operand) -> Elem:
    """``rhs``, but 1 for 0 and -1, the divisors a processor may trap on.

    PyTorch raises on 0, which a kernel can't. Kernels also compute lanes beyond the end of a row, where operands are 0.
    """
    if isinstance(rhs, int):
        return lhs.like(1 if rhs in (0, -1) else rhs)
    rhs = lhs.like(rhs)
    traps = rhs.eq(0) if dtypes.is_unsigned(lhs.dtype) else rhs.eq(0) | rhs.eq(-1)
    return select(traps, lhs.like(1), rhs)


def power(base: Elem, exponent: Operand) -> Elem:
    """``base ** exponent``; small constant exponents become products and roots."""
    if isinstance(exponent, (int, float)) and not isinstance(exponent, bool):
        special = _power_by_constant(base, exponent)
        if special is not None:
            return special
    exponent = base.like(exponent)
    if not dtypes.is_float(base.dtype):
        return _integer_power(base, exponent)
    op = ir.Operation.create("math.powf", [base.value.type], [base.value, exponent.value])
    return Elem(op.result, base.dtype)


def _power_by_constant(base: Elem, exponent: Number) -> Elem | None:
    whole = float(exponent).is_integer() and exponent >= 0
    if whole and (exponent <= 4 or not dtypes.is_float(base.dtype)):
        return _power_by_squaring(base, int(exponent))
    if not dtypes.is_float(base.dtype):
        return None
    if exponent == 0.5:
        return sqrt(base)
    if exponent == -0.5:
        return rsqrt(base)
    if exponent == -1:
        return 1.0 / base
    if exponent == -2:
        return 1.0 / (base * base)
    return None


def _integer_power(base: Elem, exponent: Elem) -> Elem:
    """By squaring, bit after bit; for a negative exponent PyTorch's result: 0, except for 1 and -1."""
    if base.dtype == torch.bool:
        return base | ~exponent
    unsigned = dtypes.is_unsigned(base.dtype)
    result, square = constant(1, base.dtype), base
    for bit in range(dtypes.bits(base.dtype) - (0 if unsigned else 1)):
        result = select((exponent & (1 << bit)).ne(0), result * square, result)
        square = square * square
    if unsigned:
        return result
    sign = select((exponent & 1).ne(0), base.like(-1), base.like(1))
    inverse = select(base.eq(1), base, select(base.eq(-1), sign, base.like(0)))
    return select(exponent < 0, inverse, result)


def _power_by_squaring(base: Elem, exponent: int) -> Elem:
    result = None
    while exponent:
        if exponent & 1:
            result = base if result is None else result * base
        base, exponent = base * base if exponent > 1 else base, exponent >> 1
    return constant(1, base.dtype) if result is None else result


def gelu(x: Elem, approximate: str = "none") -> Elem:
    """PyTorch's gelu, exact or by tanh."""
    if approximate == "tanh":
        inner = pymath.sqrt(2.0 / pymath.pi) * (x + 0.044715 * (x * x * x))
        return 0.5 * x * (tanh(inner) + 1.0)
    return 0.5 * x * (erf(x * pymath.sqrt(0.5)) + 1.0)


# It computes with elements, and conversions of elements need it.
from . import narrow  # noqa: E402
