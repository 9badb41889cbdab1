"""Arithmetic on extents: Python ints stay ints, the rest becomes ``arith`` on ``index``."""

from __future__ import annotations

import copy
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import sympy
from torch_mlir import ir

from ..expressions import Expression
from ..torch_compat.symbols import ValueRanges, bound_sympy, torch_sympy
from .registry import NotLowerable
from .rounding import ROUNDED, in_integers
from .shape_attributes import ShapeAttributes
from .values import Extent

_DIVISIONS = (torch_sympy.FloorDiv, torch_sympy.CleanDiv)
_MODULI = (torch_sympy.Mod, torch_sympy.PythonMod, sympy.Mod)

_Bounds = tuple[float, float]


def _product(a: _Bounds, b: _Bounds) -> _Bounds:
    corners = [x * y if x and y else 0 for x in a for y in b]
    return min(corners), max(corners)


_BOUNDS: dict[str, Callable[[_Bounds, _Bounds], _Bounds]] = {
    "arith.muli": _product,
    "arith.addi": lambda a, b: (a[0] + b[0], a[1] + b[1]),
    "arith.subi": lambda a, b: (a[0] - b[1], a[1] - b[0]),
    "arith.minsi": lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
    "arith.maxsi": lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
}


class ExtentBuilder:
    """Index arithmetic. Equal computations give the same SSA value, so equality is often identity."""

    def __init__(self) -> None:
        self._memo: dict[tuple[object, ...], ir.Value] = {}
        self._required: set[tuple[ir.Value | int | str, ...]] = set()
        self.symbolic: dict[ir.Value, Expression] = {}
        """The expressions over symbols that extents are, where that is known."""
        self.attributes = ShapeAttributes()
        # Values of the shape symbols of torch.export, set by the importer at the entry, and of numbers that have no
        # expression of ours.
        self.symbol_values: dict[sympy.Expr, Extent] = {}
        self.symbol_ranges = {}

    @property
    def symbol_ranges(self) -> Mapping[sympy.Symbol, ValueRanges[sympy.Expr]]:
        """The ranges of the symbols of torch.export; replaced as a whole, because bounds are computed once for them."""
        return self._symbol_ranges

    @symbol_ranges.setter
    def symbol_ranges(self, ranges: Mapping[sympy.Symbol, ValueRanges[sympy.Expr]]) -> None:
        self._symbol_ranges = dict(ranges)
        self._bounds: dict[sympy.Expr, ValueRanges[sympy.Expr]] = {}

    def index(self, extent: Extent) -> ir.Value:
        """``extent`` as an SSA value."""
        if isinstance(extent, ir.Value):
            return extent
        if not isinstance(extent, int):
            raise NotLowerable("an extent that depends on data and may be negative; torch._check(n >= 0) says that not")
        if not -(2**63) <= extent < 2**63:
            raise NotLowerable(f"the size {extent}, which is not a number of 64 bits")
        key = ("constant", extent)
        if key not in self._memo:
            type_ = ir.IndexType.get()
            self._memo[key] = ir.Operation.create(
                "arith.constant", [type_], attributes={"value": ir.IntegerAttr.get(type_, extent)}
            ).result
        return self._memo[key]

    def _arith(self, name: str, lhs: Extent, rhs: Extent) -> ir.Value:
        key = (name, lhs, rhs)
        if key not in self._memo:
            self._memo[key] = ir.Operation.create(
                f"arith.{name}", [ir.IndexType.get()], [self.index(lhs), self.index(rhs)]
            ).result
        return self._memo[key]

    def add(self, lhs: Extent, rhs: Extent) -> Extent:
        """lhs + rhs."""
        if isinstance(lhs, int) and isinstance(rhs, int):
            return lhs + rhs
        if lhs == 0 or rhs == 0:
            return rhs if lhs == 0 else lhs
        return self._arith("addi", lhs, rhs)

    def sub(self, lhs: Extent, rhs: Extent) -> Extent:
        """lhs - rhs."""
        if isinstance(lhs, int) and isinstance(rhs, int):
            return lhs - rhs
        if lhs == rhs:
            return 0
        return lhs if rhs == 0 else self._arith("subi", lhs, rhs)

    def mul(self, lhs: Extent, rhs: Extent) -> Extent:
        """lhs * rhs."""
        if isinstance(lhs, int) and isinstance(rhs, int):
            return lhs * rhs
        if lhs == 0 or rhs == 0:
            return 0
        if lhs == 1 or rhs == 1:
            return rhs if lhs == 1 else lhs
        return self._arith("muli", lhs, rhs)

    def floordiv(self, lhs: Extent, rhs: Extent) -> Extent:
        """lhs // rhs."""
        if rhs == 0:
            raise NotLowerable("integer division by zero")
        if isinstance(lhs, int) and isinstance(rhs, int):
            return lhs // rhs
        if lhs == rhs:
            return 1
        return lhs if rhs == 1 else self._arith("floordivsi", lhs, rhs)

    def mod(self, lhs: Extent, rhs: Extent) -> Extent:
        """lhs % rhs, for a positive rhs."""
        if rhs == 0:
            raise NotLowerable("integer modulo by zero")
        if isinstance(lhs, int) and isinstance(rhs, int):
            return lhs % rhs
        return self.sub(lhs, self.mul(self.floordiv(lhs, rhs), rhs))

    def minimum(self, lhs: Extent, rhs: Extent) -> Extent:
        """min(lhs, rhs)."""
        if isinstance(lhs, int) and isinstance(rhs, int):
            return min(lhs, rhs)
        return lhs if lhs == rhs else self._arith("minsi", lhs, rhs)

    def maximum(self, lhs: Extent, rhs: Extent) -> Extent:
        """max(lhs, rhs)."""
        if isinstance(lhs, int) and isinstance(rhs, int):
            return max(lhs, rhs)
        return lhs if lhs == rhs else self._arith("maxsi", lhs, rhs)

    def product(self, extents: Sequence[Extent]) -> Extent:
        """The product of all ``extents``; the static ones are multiplied first."""
        static = 1
        result: Extent = 1
        for extent in extents:
            if isinstance(extent, int):
                static *= extent
            else:
                result = self.mul(result, extent)
        return self.mul(result, static)

    def quotient(self, numerator: Sequence[Extent], denominator: Sequence[Extent]) -> Extent:
        """product(numerator) / product(denominator), known to divide; common factors cancel."""
        top = Counter(x for x in numerator if not isinstance(x, int))
        bottom = Counter(x for x in denominator if not isinstance(x, int))
        common = top & bottom
        static_top = self.product([x for x in numerator if isinstance(x, int)])
        static_bottom = self.product([x for x in denominator if isinstance(x, int)])
        assert isinstance(static_top, int) and isinstance(static_bottom, int)
        if static_bottom and static_top % static_bottom == 0:
            static_top, static_bottom = static_top // static_bottom, 1
        rest_top = self.product([*(top - common).elements(), static_top])
        rest_bottom = self.product([*(bottom - common).elements(), static_bottom])
        return self.floordiv(rest_top, rest_bottom) if rest_bottom != 0 else 0

    def require_equal(self, lhs: Extent, rhs: Extent, message: str) -> None:
        """Requires two extents to be equal at run time; nothing is emitted for equal values."""
        if lhs == rhs or (lhs, rhs) in self._required:
            return
        self._required |= {(lhs, rhs), (rhs, lhs)}
        self._require("eq", lhs, rhs, message)

    def require_at_most(self, lhs: Extent, rhs: Extent, message: str) -> None:
        """Requires lhs <= rhs at run time."""
        known = lhs == rhs or (isinstance(lhs, int) and isinstance(rhs, int) and lhs <= rhs)
        if not known and ("le", lhs, rhs) not in self._required:
            self._required.add(("le", lhs, rhs))
            self._require("le", lhs, rhs, message)

    def require_divisor(self, divisor: Extent, expr: sympy.Expr | int, where: str = "", *, least: Extent = 1) -> None:
        """Requires that what the model divides by, an extent with this expression, is not 0 at run time.

        ``least`` is 0 at run time where nothing is divided, else 1.
        """
        bounds = self.bounds(expr)
        if isinstance(divisor, int) or ("divisor", divisor) in self._required or sympy.S.Zero not in bounds:
            return
        if least == 1:
            self._required.add(("divisor", divisor))
        known = {s: sympy.Symbol(str(self.symbolic[v])) for s, v in self.symbol_values.items() if v in self.symbolic}
        name = str(expr if isinstance(expr, int) else expr.xreplace(known))
        message = f"{where}integer division or modulo by zero: {name} is 0"
        self.require_at_most(least, divisor if bounds.lower >= 0 else self.mul(divisor, divisor), message)

    def _require(self, predicate: str, lhs: Extent, rhs: Extent, message: str) -> None:
        ir.Operation.create(
            "disc_shape.require",
            operands=[self.index(lhs), self.index(rhs)],
            attributes={
                "predicate": ir.StringAttr.get(predicate),
                "message": ir.StringAttr.get(message),
            },
        )

    @contextmanager
    def inside_region(self) -> Iterator[None]:
        """What is computed in a region has no value outside."""
        known = self._known()
        self._restore(tuple(copy.copy(part) for part in known))
        try:
            yield
        finally:
            self._restore(known)

    @contextmanager
    def inside_procedure(self) -> Iterator[None]:
        """What is computed in a procedure has no value outside, and nothing from outside has one in it."""
        known = self._known()
        self._restore(tuple(type(part)() for part in known))
        try:
            yield
        finally:
            self._restore(known)

    def _known(self) -> tuple[Any, ...]:
        """What is known of values, some of which may be a region's."""
        return self._memo, self._required, self.symbolic, self.symbol_values

    def _restore(self, known: tuple[Any, ...]) -> None:
        self._memo, self._required, self.symbolic, self.symbol_values = known

    @contextmanager
    def tried(self) -> Iterator[Callable[[], None]]:
        """Discards the extents that are computed inside, unless the function that it yields is called."""
        known = None

        def keep() -> None:
            nonlocal known
            known = self._known()

        with self.inside_region():
            yield keep
        if known is not None:
            self._restore(known)

    def extent_of(self, expr: sympy.Expr | int) -> Extent | None:
        """An expression of torch.export over its symbols, as an extent; None if we cannot write it."""
        if isinstance(expr, int) or expr.is_Integer:
            return int(expr)
        if not isinstance(expr, sympy.Expr):
            return None  # a condition, or one of the cases of a Piecewise
        if isinstance(expr, ROUNDED):
            whole = in_integers(expr)
            return None if whole is None else self.extent_of(whole)
        if expr in self.symbol_values:
            return self.symbol_values[expr]
        bounds = self.bounds(expr)
        if bounds.is_singleton():
            return int(bounds.lower)
        if expr.is_Symbol:
            return self.symbol_values.get(expr)
        args = [self.extent_of(arg) for arg in expr.args]
        if any(arg is None for arg in args):
            return None
        if isinstance(expr, (*_DIVISIONS, *_MODULI)):
            assert args[1] is not None
            self.require_divisor(args[1], expr.args[1])
        return self._combine(expr, [arg for arg in args if arg is not None])

    def bounds(self, expr: sympy.Expr | int) -> ValueRanges[sympy.Expr]:
        """The range of an expression, for symbols in their ranges, which are guards of the compiled program."""
        expr = sympy.sympify(expr)
        # Tensors of one shape share its expressions, whose bounds cost more than the lowering of an operation.
        if expr not in self._bounds:
            self._bounds[expr] = bound_sympy(expr, self._symbol_ranges)
        return self._bounds[expr]

    def at_most_one(self, extent: Extent) -> bool:
        """Whether an extent is 0 or 1 whatever the symbols are, as min(n, 1) is: broadcasting takes it for 1."""
        return self._between(extent, 6)[1] <= 1

    def never_negative(self, extent: Extent) -> bool:
        """Whether an extent is 0 or more whatever the symbols are."""
        return self._between(extent, 6)[0] >= 0

    def repeats(self, have: Extent, want: Extent) -> bool:
        """Whether broadcasting an extent to another one repeats what is there; requires that something is."""
        if isinstance(have, int):
            return have == 1 and want != 1
        if have == want or not self.at_most_one(have):
            return False
        # 1 is repeated as often as it takes, and so never for 0; 0 is not.
        self.require_at_most(self.minimum(want, 1), have, "extents of broadcast operands differ")
        return True

    def _between(self, extent: Extent, depth: int) -> tuple[float, float]:
        """The least and the greatest value of an extent, read off ``depth`` levels of its arithmetic."""
        if isinstance(extent, int):
            return extent, extent
        for symbol, value in self.symbol_values.items():
            if value == extent and symbol in self.symbol_ranges:
                known = self.symbol_ranges[symbol]
                return float(known.lower), float(known.upper)
        op = getattr(extent.owner, "operation", None)
        if op is None or not depth:
            return -math.inf, math.inf
        if op.name == "arith.constant":
            number = ir.IntegerAttr(op.attributes["value"]).value
            return number, number
        join = _BOUNDS.get(op.name)
        low, high = join(*(self._between(x, depth - 1) for x in op.operands)) if join else (-math.inf, math.inf)
        distance = _of_limited(op)
        if distance is None:
            return low, high
        return max(low, min(distance, 0)), min(high, max(distance, 0))

    def _combine(self, expr: sympy.Expr, args: Sequence[Extent]) -> Extent | None:
        if isinstance(expr, sympy.Add):
            folded: Extent = 0
            for arg in args:
                folded = self.add(folded, arg)
            return folded
        if isinstance(expr, sympy.Mul):
            return self.product(args)
        if isinstance(expr, sympy.Pow) and isinstance(args[1], int) and args[1] >= 0:
            return self.product([args[0]] * args[1])
        if isinstance(expr, _DIVISIONS):
            return self.floordiv(args[0], args[1])
        if isinstance(expr, _MODULI):
            return self.mod(args[0], args[1])
        for kinds, fold in (
            ((torch_sympy.Min, sympy.Min), self.minimum),
            ((torch_sympy.Max, sympy.Max), self.maximum),
        ):
            if isinstance(expr, kinds):
                best = args[0]
                for arg in args[1:]:
                    best = fold(best, arg)
                return best
        return None


def _of_limited(op: ir.Operation) -> int | None:
    """The number k where ``op`` is ``min(a + k, c) - min(a, c)``, as the length of ``x[:, a : a + k]`` is.

    It is between 0 and k, whatever a and c are.
    """
    if op.name != "arith.addi":
        return None
    for stop, negated in (tuple(op.operands), tuple(op.operands)[::-1]):
        start = _operands(negated, "arith.muli")
        numbers = [x for x in start if _number_of(x) == -1]
        if not numbers:
            continue
        (start_value,) = [x for x in start if x != numbers[0]] or [None]
        stops, starts = _operands(stop, "arith.minsi"), _operands(start_value, "arith.minsi")
        for common in stops:
            if common in starts and len(stops) == len(starts) == 2:
                end, begin = (next((x for x in pair if x != common), common) for pair in (stops, starts))
                parts = _operands(end, "arith.addi")
                found = [_number_of(x) for x in parts if x != begin]
                if begin in parts and len(found) == 1 and found[0] is not None:
                    return found[0]
    return None


def _operands(value: Any, name: str) -> list[ir.Value]:
    """The operands of the operation that computes ``value``, if it is of this name."""
    op = getattr(getattr(value, "owner", None), "operation", None)
    return list(op.operands) if op is not None and op.name == name else []


def _number_of(value: ir.Value) -> int | None:
    op = getattr(value.owner, "operation", None)
    return ir.IntegerAttr(op.attributes["value"]).value if op is not None and op.name == "arith.constant" else None
