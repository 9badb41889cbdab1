"""Tensors whose elements are known while importing: constants, and what a model computes from shapes.

ONNX has no sizes beside tensors: ``Reshape`` takes a tensor that the model computed with ``Shape``, ``Gather`` and
``Concat``. Such tensors are followed here, element by element, as numbers and expressions over the shape symbols.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import sympy
import torch

from ...torch_compat.symbols import FloorDiv, Max, Min, PythonMod, ValueRanges, bound_sympy
from .. import dtypes
from ..registry import NotLowerable
from ..values import Tensor

LIMIT = 256
"""Tensors of more elements are data."""


class Unknown(NotLowerable):
    """An operand decides what the operation is, and is computed from data."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor
        super().__init__("an operand that decides the shape of the result is computed from data")


@dataclass(frozen=True, eq=False)
class Known:
    """A tensor as an array of Python numbers and of sympy expressions."""

    values: np.ndarray
    dtype: torch.dtype

    @classmethod
    def of(cls, values: Any, dtype: torch.dtype) -> Known:
        """From nested lists or an array; keeps Python's own numbers."""
        array = np.asarray(values, dtype=object)
        convert = {True: float, False: bool if dtype == torch.bool else int}[dtype.is_floating_point]
        plain = [v if isinstance(v, sympy.Expr) and not v.is_Integer else convert(v) for v in array.reshape(-1)]
        out = np.empty(len(plain), dtype=object)
        out[:] = plain
        return cls(out.reshape(array.shape), dtype)

    @property
    def static(self) -> bool:
        """Whether all elements are numbers."""
        return not any(isinstance(v, sympy.Expr) for v in self.values.reshape(-1))

    @property
    def list(self) -> list[Any]:
        """The elements in order."""
        return list(self.values.reshape(-1))


def elements(x: Known | Tensor | None) -> list[Any] | None:
    """The elements of an operand that must be known: numbers and expressions; None if it is missing."""
    if x is None:
        return None
    if isinstance(x, Known):
        return x.list
    raise Unknown(x)


def integers(x: Known | Tensor | None) -> list[int] | None:
    """Like :func:`elements`, for operands that must be numbers, such as axes."""
    found = elements(x)
    if found is not None and any(isinstance(v, sympy.Expr) for v in found):
        raise NotLowerable("an operand that must be a number depends on extents")
    return None if found is None else [int(v) for v in found]


# -- evaluation ----------------------------------------------------------------------------------------------------


Ranges = Mapping[sympy.Symbol, ValueRanges[sympy.Expr]]
"""The ranges of the shape symbols."""


def bounds(expression: Any, ranges: Ranges) -> tuple[int | None, int | None]:
    """The least and the largest value of a number or an expression; None where there is no bound."""
    if not isinstance(expression, sympy.Expr):
        return int(expression), int(expression)
    if any(symbol not in ranges for symbol in expression.free_symbols):
        return None, None
    found = bound_sympy(expression, dict(ranges))
    low, high = found.lower, found.upper
    # An upper bound near the largest index means that there is no bound.
    return (
        int(low) if low.is_Integer else None,
        int(high) if high.is_Integer and high < 2**62 else None,
    )


def _divide(x: Any, y: Any, ranges: Ranges) -> Any:
    if isinstance(x, sympy.Expr) or isinstance(y, sympy.Expr):
        x, y = sympy.sympify(x), sympy.sympify(y)
        if (bounds(y, ranges)[0] or 0) < 0:
            raise _Undecided
        low = bounds(x, ranges)[0]
        # Rounded towards zero, which is down for what is not negative.
        return FloorDiv(x, y) if low is not None and low >= 0 else FloorDiv(Max(x, 0), y) - FloorDiv(Max(-x, 0), y)
    return math.trunc(x / y) if abs(x) < 2**50 else (abs(x) // abs(y)) * (1 if (x < 0) == (y < 0) else -1)


def _divide_floats(x: Any, y: Any) -> Any:
    if isinstance(x, sympy.Expr) or isinstance(y, sympy.Expr):
        return _exact(x) / _exact(y)
    return math.nan if y == 0 and x == 0 else math.copysign(math.inf, x) if y == 0 else x / y


def _exact(x: Any) -> sympy.Expr:
    """A float as the fraction that it is."""
    if isinstance(x, sympy.Expr):
        return x
    if not math.isfinite(x):
        raise _Undecided
    return sympy.Rational(*float(x).as_integer_ratio())


def _of_floats(fn: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Arithmetic on floats of which some are extents: exact, as long as extents are less than 2^24."""

    def apply(x: Any, y: Any) -> Any:
        symbolic = isinstance(x, sympy.Expr) or isinstance(y, sympy.Expr)
        result = fn(_exact(x), _exact(y)) if symbolic else fn(x, y)
        return float(result) if symbolic and not result.free_symbols else result

    return apply


def _remainder(x: Any, y: Any) -> Any:
    if isinstance(x, sympy.Expr) or isinstance(y, sympy.Expr):
        return PythonMod(sympy.sympify(x), sympy.sympify(y))
    return x % y


def _least(x: Any, y: Any) -> Any:
    symbolic = isinstance(x, sympy.Expr) or isinstance(y, sympy.Expr)
    return Min(sympy.sympify(x), sympy.sympify(y)) if symbolic else min(x, y)


def _greatest(x: Any, y: Any) -> Any:
    symbolic = isinstance(x, sympy.Expr) or isinstance(y, sympy.Expr)
    return Max(sympy.sympify(x), sympy.sympify(y)) if symbolic else max(x, y)


class _Undecided(Exception):
    """A comparison of expressions that the symbols' ranges do not decide."""


RELATIONS: dict[str, Any] = {
    "Equal": sympy.Eq,
    "Less": sympy.Lt,
    "LessOrEqual": sympy.Le,
    "Greater": sympy.Gt,
    "GreaterOrEqual": sympy.Ge,
}
_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "Equal": operator.eq,
    "Less": operator.lt,
    "LessOrEqual": operator.le,
    "Greater": operator.gt,
    "GreaterOrEqual": operator.ge,
}


def _compare(op: str, x: Any, y: Any, ranges: Ranges) -> bool:
    if not isinstance(x, sympy.Expr) and not isinstance(y, sympy.Expr):
        return bool(_COMPARISONS[op](x, y))
    decided = RELATIONS[op](sympy.sympify(x), sympy.sympify(y))
    if decided not in (sympy.true, sympy.false):
        low, high = bounds(sympy.sympify(x) - sympy.sympify(y), ranges)
        decided = {
            "Equal": False if (low or 0) > 0 or (high is not None and high < 0) else low == high == 0 or None,
            "Less": _always(high, lambda h: h < 0, low, lambda n: n >= 0),
            "LessOrEqual": _always(high, lambda h: h <= 0, low, lambda n: n > 0),
            "Greater": _always(low, lambda n: n > 0, high, lambda h: h <= 0),
            "GreaterOrEqual": _always(low, lambda n: n >= 0, high, lambda h: h < 0),
        }[op]
        if decided is None:
            raise _Undecided
    return bool(decided)


def _always(
    bound: int | None, holds: Callable[[int], bool], other: int | None, fails: Callable[[int], bool]
) -> bool | None:
    if bound is not None and holds(bound):
        return True
    return False if other is not None and fails(other) else None


def indicator(op: str, x: Any, y: Any, holds: bool = True) -> sympy.Expr:
    """1 where ``x op y`` holds, or does not, and 0 elsewhere."""
    if op.startswith("Greater"):
        x, y = y, x
    x, y = sympy.sympify(x), sympy.sympify(y)
    if op == "Equal":
        value = 1 - Min(1, Max(x - y, y - x))
    else:
        value = Min(1, Max(0, y - x + (1 if op.endswith("OrEqual") else 0)))
    return value if holds else 1 - value


_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "Add": operator.add,
    "Sub": operator.sub,
    "Mul": operator.mul,
    "Mod": _remainder,
    "Min": _least,
    "Max": _greatest,
    "And": lambda x, y: bool(x) and bool(y),
    "Or": lambda x, y: bool(x) or bool(y),
    "Xor": lambda x, y: bool(x) != bool(y),
}
_FLOATS: dict[str, Callable[[Any, Any], Any]] = {
    "Add": _of_floats(operator.add),
    "Sub": _of_floats(operator.sub),
    "Mul": _of_floats(operator.mul),
    "Div": _of_floats(_divide_floats),
}


def _number(x: Any) -> Any:
    if isinstance(x, sympy.Expr):
        raise _Undecided
    return x


def _floor(x: Any) -> Any:
    if not isinstance(x, sympy.Expr):
        return math.floor(x)
    over, under = sympy.fraction(sympy.together(x))
    if under.free_symbols:
        raise _Undecided
    return over if under == 1 else FloorDiv(sympy.expand(over), under)


_UNARY: dict[str, Callable[[Any], Any]] = {
    "Neg": operator.neg,
    "Not": lambda x: not x,
    "Abs": lambda x: abs(_number(x)),
    "Floor": lambda x: _floor(x),
    "Ceil": lambda x: -_floor(-x),
    "Sqrt": lambda x: math.sqrt(_number(x)),
    "Identity": lambda x: x,
}


def _map(fn: Callable[..., Any], *arrays: np.ndarray) -> np.ndarray:
    return np.asarray(np.frompyfunc(fn, len(arrays), 1)(*arrays), dtype=object)


def evaluate(op: str, operands: Sequence[Known | None], attributes: dict[str, Any], ranges: Ranges) -> Known | None:
    """The result of ONNX's ``op`` on known operands; None if it is not known, or not worth it."""
    given = [x for x in operands if x is not None]
    if len(given) != len(operands) or not given:
        return None
    try:
        result = _evaluate(op, given, attributes, ranges)
    except (_Undecided, TypeError, ValueError, IndexError, ZeroDivisionError, OverflowError):
        # The rule of the op says what is wrong, if something is.
        return None
    return result if result is not None and result.values.size <= LIMIT else None


def _evaluate(op: str, given: list[Known], attributes: dict[str, Any], ranges: Ranges) -> Known | None:
    first = given[0]
    if op in RELATIONS and len(given) == 2:
        return Known.of(_map(lambda x, y: _compare(op, x, y, ranges), first.values, given[1].values), torch.bool)
    if op == "Div" and len(given) == 2 and not first.dtype.is_floating_point:
        return Known.of(_map(lambda x, y: _divide(x, y, ranges), first.values, given[1].values), first.dtype)
    if (op in _BINARY or op in _FLOATS) and len(given) >= 2:
        values = first.values
        fn = _FLOATS[op] if first.dtype.is_floating_point and op in _FLOATS else _BINARY[op]
        for other in given[1:]:
            values = _map(fn, values, other.values)
        return Known.of(values, first.dtype)
    if op in _UNARY:
        return Known.of(_map(_UNARY[op], first.values), first.dtype)
    structural = _STRUCTURAL.get(op)
    return structural(given, attributes) if structural is not None else None


def _where(given: list[Known], _: dict[str, Any]) -> Known:
    c, x, y = given
    if x.dtype.is_floating_point and not c.static:
        raise _Undecided

    def chosen(c: Any, x: Any, y: Any) -> Any:
        return y + c * (x - y) if isinstance(c, sympy.Expr) else x if c else y

    return Known.of(_map(chosen, c.values, x.values, y.values), x.dtype)


def _concat(given: list[Known], attributes: dict[str, Any]) -> Known:
    return Known.of(np.concatenate([x.values for x in given], axis=attributes["axis"]), given[0].dtype)


def _gather(given: list[Known], attributes: dict[str, Any]) -> Known:
    x, index = given
    return Known.of(np.take(x.values, index.values.astype(np.int64), axis=attributes.get("axis", 0)), x.dtype)


def _unsqueeze(given: list[Known], attributes: dict[str, Any]) -> Known:
    axes = attributes["axes"] if len(given) == 1 else [int(v) for v in given[1].list]
    return Known.of(np.expand_dims(given[0].values, tuple(axes)), given[0].dtype)


def _squeeze(given: list[Known], attributes: dict[str, Any]) -> Known:
    axes = attributes.get("axes") if len(given) == 1 else [int(v) for v in given[1].list]
    return Known.of(np.squeeze(given[0].values, None if axes is None else tuple(axes)), given[0].dtype)


def _reshape(given: list[Known], _: dict[str, Any]) -> Known:
    return Known.of(given[0].values.reshape([int(v) for v in given[1].list]), given[0].dtype)


def _slice(given: list[Known], attributes: dict[str, Any]) -> Known:
    x = given[0].values
    if len(given) == 1:
        starts, ends, axes = attributes["starts"], attributes["ends"], attributes.get("axes")
        steps = None
    else:
        lists = [[int(v) for v in k.list] for k in given[1:]]
        starts, ends = lists[:2]
        axes = lists[2] if len(lists) > 2 else None
        steps = lists[3] if len(lists) > 3 else None
    slices = [slice(None)] * x.ndim
    for i, axis in enumerate(axes or range(len(starts))):
        step = steps[i] if steps else 1
        end = None if step < 0 and ends[i] < -x.shape[axis] else ends[i]
        slices[axis] = slice(starts[i], end, step)
    return Known.of(x[tuple(slices)], given[0].dtype)


def _cast(given: list[Known], attributes: dict[str, Any]) -> Known | None:
    dtype = attributes["to"]
    if not isinstance(dtype, torch.dtype):
        return None
    if dtypes.storage(dtype) != dtype:
        return None
    if given[0].static:
        # With what rounding and wrapping do.
        converted = torch.tensor(given[0].list, dtype=dtypes.storage(given[0].dtype)).to(dtype)
        return Known.of(np.array(converted.tolist(), dtype=object).reshape(given[0].values.shape), dtype)
    if given[0].dtype.is_floating_point and not dtype.is_floating_point:
        if dtype == torch.bool:
            return None
        # Extents are not negative: rounding down and towards zero are the same.
        return Known.of(_map(_floor, given[0].values), dtype)
    # Floats of 16 bits cannot hold common extents.
    return None if dtype.is_floating_point and dtype.itemsize < 4 else Known.of(given[0].values, dtype)


def _constant_of_shape(given: list[Known], attributes: dict[str, Any]) -> Known:
    value = attributes.get("value")
    shape = [int(v) for v in given[0].list]
    if math.prod(shape) > LIMIT:
        raise _Undecided
    if value is None:
        return Known.of(np.zeros(shape), torch.float32)
    return Known.of(np.full(shape, value.flatten()[0].item(), dtype=object), value.dtype)


def _range(given: list[Known], _: dict[str, Any]) -> Known:
    start, end, step = (_number(k.list[0]) for k in given)
    if step == 0 or (end - start) / step > LIMIT:
        raise _Undecided
    count = max(math.ceil((end - start) / step), 0)
    return Known.of([start + i * step for i in range(count)], given[0].dtype)


def _reduction(fn: Callable[[Any, Any], Any], neutral: int) -> Callable[[list[Known], dict[str, Any]], Known]:
    def reduce(given: list[Known], attributes: dict[str, Any]) -> Known:
        x = given[0].values
        axes = attributes.get("axes") if len(given) == 1 else [int(v) for v in given[1].list]
        if x.ndim > 1 or (axes is not None and list(axes) not in ([0], [-1])):
            raise _Undecided
        total: Any = neutral
        for value in x.reshape(-1):
            total = fn(total, value)
        return Known.of([total] if attributes.get("keepdims", 1) and x.ndim else total, given[0].dtype)

    return reduce


def _expand(given: list[Known], _: dict[str, Any]) -> Known:
    shape = [int(v) for v in given[1].list]
    return Known.of(np.broadcast_to(given[0].values, np.broadcast_shapes(given[0].values.shape, shape)), given[0].dtype)


def _tile(given: list[Known], _: dict[str, Any]) -> Known:
    return Known.of(np.tile(given[0].values, [int(v) for v in given[1].list]), given[0].dtype)


def _transpose(given: list[Known], attributes: dict[str, Any]) -> Known:
    return Known.of(np.transpose(given[0].values, attributes.get("perm")), given[0].dtype)


_STRUCTURAL: dict[str, Callable[[list[Known], dict[str, Any]], Known | None]] = {
    "Where": _where,
    "Concat": _concat,
    "Gather": _gather,
    "Unsqueeze": _unsqueeze,
    "Squeeze": _squeeze,
    "Reshape": _reshape,
    "Slice": _slice,
    "Cast": _cast,
    "ConstantOfShape": _constant_of_shape,
    "Range": _range,
    "ReduceProd": _reduction(operator.mul, 1),
    "ReduceSum": _reduction(operator.add, 0),
    "Expand": _expand,
    "Tile": _tile,
    "Transpose": _transpose,
}
