"""Python's numbers: arithmetic on extents, and the few floats that depend on them."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import torch
from torch_mlir import ir

from .. import dtypes, scalar
from ..builder import Builder
from ..locations import operation
from ..registry import NotLowerable, lowers
from ..scalar import Elem
from ..values import Extent, RuntimeNumber, Tensor, normalize_dim

# -- extents ---------------------------------------------------------------------------------------


@lowers("torch.aten.size.int", "torch.aten.sym_size.int")
def size(b: Builder, x: Tensor, dim: int) -> Extent:
    """One extent of a tensor."""
    return x.dims[normalize_dim(dim, x.rank)]


@lowers("torch.aten.size", "torch.aten.sym_size")
def sizes(b: Builder, x: Tensor) -> list[Extent]:
    """All extents of a tensor."""
    return list(x.dims)


@lowers("torch.aten.numel", "torch.aten.sym_numel")
def numel(b: Builder, x: Tensor) -> Extent:
    """The number of elements."""
    return b.product(x.dims)


@lowers("torch.aten.stride.int", "torch.aten.sym_stride.int")
def stride(b: Builder, x: Tensor, dim: int) -> Extent:
    """The stride of PyTorch's result, as an expression of sizes."""
    value = b.node_value
    known = b.extent_of(value.node.expr) if isinstance(value, torch.SymInt) else value
    if known is None:
        raise NotLowerable("a stride that is not an expression of the inputs' sizes")
    return known


@lowers("torch.aten.sym_storage_offset")
def storage_offset(b: Builder, x: Tensor) -> RuntimeNumber:
    """The offset of a view: torch.export asserts that it is not negative, and no other use is supported."""

    def emit() -> Elem:
        raise NotLowerable("the storage offset of a tensor is not supported")

    return RuntimeNumber(torch.int64, emit)


@lowers("torch.aten.dim")
def dim_(b: Builder, x: Tensor) -> int:
    """The rank."""
    return x.rank


def _register_arithmetic(
    names: tuple[str, ...],
    extent: Callable[[Builder, Any, Any], Extent] | None,
    python: Callable[[Any, Any], Any],
    body: Callable[[Elem, Any], Elem],
    *,
    whole: bool = True,
) -> Callable[[Builder, Any, Any], Any]:
    @lowers(*names)
    def rule(b: Builder, x: Any, y: Any) -> Any:
        if python in _DIVISIONS:
            _require_divisor(b, y)
        if all(isinstance(v, (int, float)) for v in (x, y)):
            return python(x, y)
        if extent is not None and all(isinstance(v, (int, ir.Value)) for v in (x, y)):
            return extent(b, x, y)
        if whole and not any(_is_float(v) for v in (x, y)):
            return RuntimeNumber(torch.int64, lambda: body(_i64(x), _i64(y)))
        scaled = _multiplied(x, y) if python is operator.mul else _divided(x, y) if python is operator.truediv else None
        return RuntimeNumber(torch.float64, lambda: body(_f64(x), _f64(y)), scaled)

    return rule


_DIVISIONS = (operator.floordiv, operator.mod)


def _require_divisor(b: Builder, y: Any) -> None:
    """Raises an error for a divisor of 0 as Python does, while compiling or at run time."""
    if isinstance(y, (int, float)) and y == 0:
        raise NotLowerable("integer division or modulo by zero")
    given = b.operand_value(1)
    if isinstance(y, ir.Value) and isinstance(given, torch.SymInt):
        b.require_divisor(y, given.node.expr, f"{operation()}: ")


def _scaled(x: Any) -> tuple[Any, Fraction] | None:
    """``x`` as an extent times a fraction, if it is one; floats are the fractions of their decimal digits."""
    if isinstance(x, RuntimeNumber):
        return x.scaled
    return (x, Fraction(1)) if isinstance(x, ir.Value) else None


def _multiplied(x: Any, y: Any) -> tuple[Any, Fraction] | None:
    if isinstance(x, (int, float)):
        x, y = y, x
    known = _scaled(x)
    if known is None or not isinstance(y, (int, float)):
        return None
    return known[0], known[1] * Fraction(y).limit_denominator(1 << 16)


def _divided(x: Any, y: Any) -> tuple[Any, Fraction] | None:
    known = _scaled(x)
    if known is None or not isinstance(y, (int, float)) or y == 0:
        return None
    return known[0], known[1] / Fraction(y).limit_denominator(1 << 16)


def _register_whole(name: str, rounded: Callable[[Elem], Elem]) -> None:
    @lowers(f"torch.python.{name}")
    def rule(b: Builder, x: Any) -> Any:
        if not isinstance(x, RuntimeNumber):
            return x
        # Rounding towards zero is rounding down for numbers that are not negative.
        given = b.operand_value(0)
        natural = name in ("floor", "ceil") or not isinstance(given, torch.SymFloat) or _is_natural(b, given)
        if x.scaled is None or not natural:
            return RuntimeNumber(torch.int64, lambda: rounded(_f64(x)).to(torch.int64))
        extent, ratio = x.scaled
        more = ratio.denominator - 1 if name == "ceil" else 0
        return b.floordiv(b.add(b.mul(extent, ratio.numerator), more), ratio.denominator)


def _rounded(x: Elem, digits: int) -> Elem:
    # Powers of ten with non-negative exponents are exact.
    scale = _f64(10.0 ** abs(digits))
    if digits < 0:
        return scalar.unary("roundeven", x / scale) * scale
    return scalar.unary("roundeven", x * scale) / scale


@lowers("torch.python.round")
def round_(b: Builder, x: Any, digits: Any = None) -> Any:
    """The nearest whole number, or the nearest with this many decimal digits; ties round to even."""
    if not isinstance(x, RuntimeNumber):
        return x
    if digits is not None:
        return RuntimeNumber(torch.float64, lambda: _rounded(_f64(x), digits))
    given = b.operand_value(0)
    if x.scaled is None or not (isinstance(given, torch.SymFloat) and _is_natural(b, given)):
        return RuntimeNumber(torch.int64, lambda: scalar.unary("roundeven", _f64(x)).to(torch.int64))
    extent, ratio = x.scaled
    doubled = b.add(b.mul(extent, 2 * ratio.numerator), ratio.denominator)
    up = b.floordiv(doubled, 2 * ratio.denominator)
    between = b.sub(1, b.minimum(b.mod(doubled, 2 * ratio.denominator), 1))
    return b.sub(up, b.mul(between, b.mod(up, 2)))


@lowers("torch.python.abs")
def absolute(b: Builder, x: Any) -> Any:
    """|x|."""
    if isinstance(x, (int, float)):
        return abs(x)
    if isinstance(x, ir.Value):
        return b.maximum(x, b.sub(0, x))
    if _is_float(x):
        return RuntimeNumber(torch.float64, lambda: scalar.unary("abs", _f64(x)))
    return RuntimeNumber(torch.int64, lambda: scalar.maximum(_i64(x), -_i64(x)))


@lowers("torch.python.lshift", "torch.python.rshift")
def shift(b: Builder, x: Any, y: Any) -> Any:
    """x * 2**y, or x // 2**y."""
    left = b.op_name.endswith("lshift")
    if all(isinstance(v, int) for v in (x, y)):
        return x << y if left else x >> y
    if not isinstance(y, int):
        raise NotLowerable("a shift by a number that is known only at run time")
    if isinstance(x, ir.Value):
        return b.mul(x, 1 << y) if left else b.floordiv(x, 1 << y)
    factor = scalar.constant(1 << y, torch.int64)
    return RuntimeNumber(torch.int64, lambda: _i64(x) * factor if left else scalar.floor_divide(_i64(x), factor))


def _is_natural(b: Builder, x: torch.SymFloat) -> bool:
    return bool(b.bounds(x.node.expr).lower >= 0)


for _whole in ("trunc", "sym_int"):
    _register_whole(_whole, scalar.trunc)
_register_whole("floor", scalar.floor)
_register_whole("ceil", lambda x: scalar.unary("ceil", x))


def _is_float(x: Any) -> bool:
    return isinstance(x, float) or (isinstance(x, RuntimeNumber) and dtypes.is_float(x.dtype))


def _i64(x: Any) -> Elem:
    if isinstance(x, RuntimeNumber):
        return x.emit().to(torch.int64)
    if isinstance(x, ir.Value):
        return scalar.from_extent(x, torch.int64)
    return scalar.constant(x, torch.int64)


def _f64(x: Any) -> Elem:
    if isinstance(x, RuntimeNumber):
        return x.emit().to(torch.float64)
    if isinstance(x, ir.Value):
        return scalar.from_extent(x, torch.float64)
    return scalar.constant(x, torch.float64)


def _names(op: str, python: str) -> tuple[str, ...]:
    kinds = ("int", "float", "float_int", "int_float")
    return (*(f"torch.aten.{op}.{kind}" for kind in kinds), f"torch.python.{python}")


_add = _register_arithmetic(_names("add", "add"), Builder.add, operator.add, lambda x, y: x + y)
_register_arithmetic(_names("sub", "sub"), Builder.sub, operator.sub, lambda x, y: x - y)
_register_arithmetic(_names("mul", "mul"), Builder.mul, operator.mul, lambda x, y: x * y)
_register_arithmetic(
    ("torch.aten.floordiv.int", "torch.aten.floordiv", "torch.python.floordiv"),
    Builder.floordiv,
    operator.floordiv,
    scalar.floor_divide,
)
_register_arithmetic(
    ("torch.aten.remainder.int", "torch.aten.fmod.int", "torch.python.mod"),
    Builder.mod,
    operator.mod,
    scalar.remainder,
)
_register_arithmetic(_names("div", "truediv"), None, operator.truediv, lambda x, y: x / y, whole=False)
_register_arithmetic(("torch.python.sym_max", "torch.prim.max.int"), Builder.maximum, max, scalar.maximum)
_register_arithmetic(("torch.python.sym_min", "torch.prim.min.int"), Builder.minimum, min, scalar.minimum)


@lowers("torch.python.pow", "torch.aten.pow.int", "torch.aten.pow.int_float")
def power(b: Builder, x: Any, y: Any) -> Any:
    """x ** y."""
    if all(isinstance(v, (int, float)) for v in (x, y)):
        return x**y
    if isinstance(x, ir.Value) and isinstance(y, int) and y >= 0:
        return b.product([x] * y)
    return RuntimeNumber(torch.float64, lambda: scalar.power(_f64(x), _f64(y)))


@lowers("torch.python.sym_sum")
def sum_(b: Builder, *terms: Any) -> Any:
    """The sum of several numbers."""
    return functools.reduce(functools.partial(_add, b), terms)


@lowers("torch.aten.neg.int", "torch.python.neg")
def negative(b: Builder, x: Any) -> Any:
    """-x."""
    if isinstance(x, (int, float)):
        return -x
    if isinstance(x, ir.Value):
        return b.sub(0, x)
    if not _is_float(x):
        return RuntimeNumber(torch.int64, lambda: -_i64(x))
    return RuntimeNumber(torch.float64, lambda: -_f64(x))


# -- conversions -----------------------------------------------------------------------------------


@lowers("torch.aten.Float.Scalar", "torch.python.sym_float")
def to_float(b: Builder, x: Any) -> Any:
    """A number as a float."""
    if isinstance(x, (int, float)):
        return float(x)
    return RuntimeNumber(torch.float64, lambda: _f64(x), _scaled(x))


@lowers("torch.aten.Int.bool", "torch.aten.Float.bool")
def from_bool(b: Builder, x: Any) -> Any:
    """A bool as a number."""
    if isinstance(x, bool):
        return float(x) if "Float" in b.op_name else int(x)
    if not isinstance(x, RuntimeNumber):
        raise NotLowerable("a condition on sizes that is used as a number")
    kind = torch.float64 if "Float" in b.op_name else torch.int64
    return RuntimeNumber(kind, lambda: x.emit().to(kind))


@lowers("torch.python._sym_sqrt", "torch.python.sqrt")
def square_root(b: Builder, x: Any) -> Any:
    """The square root of a number."""
    if isinstance(x, (int, float)):
        return float(x) ** 0.5
    return RuntimeNumber(torch.float64, lambda: scalar.sqrt(_f64(x)))


@lowers("torch.python.sym_ite")
def choose(b: Builder, condition: Any, x: Any, y: Any) -> Any:
    """x if the condition holds, else y."""
    if isinstance(condition, bool):
        return x if condition else y
    kind, emit = (torch.float64, _f64) if _is_float(x) or _is_float(y) else (torch.int64, _i64)
    return RuntimeNumber(kind, lambda: scalar.select(condition.emit(), emit(x), emit(y)))


def _register_condition(name: str) -> None:
    @lowers(
        *(f"torch.aten.{name}.{kind}" for kind in ("int", "float", "float_int", "int_float")),
        f"torch.python.{name}",
    )
    def rule(b: Builder, x: Any, y: Any) -> Any:
        if all(isinstance(v, (int, float)) for v in (x, y)):
            return getattr(operator, name)(x, y)
        # Conditions on extents only feed assertions, which the symbols' ranges imply.
        kind = _f64 if _is_float(x) or _is_float(y) else _i64
        return RuntimeNumber(torch.bool, lambda: scalar.compare(name, kind(x), kind(y)))


for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    _register_condition(_name)


@lowers("torch.python.and_", "torch.python.or_", "torch.python.xor")
def connect(b: Builder, x: Any, y: Any) -> Any:
    """Two conditions combined, or two integers combined bit by bit."""
    connective = getattr(operator, b.op_name.rpartition(".")[2])
    if all(isinstance(v, int) for v in (x, y)):
        return connective(x, y)
    if any(isinstance(v, ir.Value) or (isinstance(v, int) and not isinstance(v, bool)) for v in (x, y)):
        extent, mask = (y, x) if isinstance(x, int) else (x, y)
        low_bits = isinstance(mask, int) and mask > 0 and mask & (mask + 1) == 0
        if connective is operator.and_ and isinstance(extent, ir.Value) and low_bits:
            return b.mod(extent, mask + 1)
        return RuntimeNumber(torch.int64, lambda: connective(_i64(x), _i64(y)))
    return RuntimeNumber(torch.bool, lambda: connective(_condition(x), _condition(y)))


@lowers("torch.python.sym_not", "torch.aten.__not__")
def negate(b: Builder, x: Any) -> Any:
    """The opposite condition."""
    return not x if isinstance(x, bool) else RuntimeNumber(torch.bool, lambda: ~_condition(x))


def _condition(x: Any) -> Elem:
    return scalar.constant(x, torch.bool) if isinstance(x, bool) else x.emit()
