"""Compares the shapes and dtypes that lowering rules produce with those of PyTorch's meta kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import sympy
import torch
from torch_mlir import ir

from ..torch_compat.symbols import FloorDiv, Max, Min, ValueRanges
from .values import Extent, Tensor

if TYPE_CHECKING:
    from .extents import ExtentBuilder

_OPERATIONS: dict[str, Callable[[sympy.Expr, sympy.Expr], sympy.Expr]] = {
    "arith.addi": lambda x, y: x + y,
    "arith.subi": lambda x, y: x - y,
    "arith.muli": lambda x, y: x * y,
    "arith.floordivsi": FloorDiv,
    "arith.minsi": Min,
    "arith.maxsi": Max,
}

# How far the sample points are from the least values of the symbols. Symbols differ at one, and are equal at another:
# two symbols may be required to be equal.
_STEPS = ((3, 5), (12, 0), (31, 7), (64, 1))


class Agreement:
    """Extents of one program, compared with the expressions that torch.export has for them."""

    def __init__(self, extents: ExtentBuilder) -> None:
        self._extents = extents
        self._known: dict[tuple[Extent, object, bool], bool] = {}

    def difference(self, result: Tensor, fake: torch.Tensor, *, inside_branch: bool = False) -> str | None:
        """How ``result`` differs from ``fake``, or None if nothing is known to differ.

        Static extents and dtypes are compared exactly. Symbolic extents differ if they do at all sample points: PyTorch
        may know equalities that the extents do not show.
        """
        if result.dtype != fake.dtype:
            return f"of {result.dtype}, expected {fake.dtype}"
        if result.rank != fake.dim():
            return f"of {result.rank} dimensions, expected {fake.dim()}"
        for dim, (have, size) in enumerate(zip(result.dims, fake.shape, strict=True)):
            want = size.node.expr if isinstance(size, torch.SymInt) else sympy.Integer(size)
            if isinstance(have, int) and isinstance(size, torch.SymInt) and size.node.hint == have:
                # The traced code may have required the size to be this one: the expression does not show that.
                continue
            if not self._agrees(have, want, inside_branch) and self._differ_by_guards(have, want, fake):
                return f"whose dimension {dim} is {self._expression(have, self._symbols())}, expected {want}"
        return None

    def _agrees(self, have: Extent, want: sympy.Expr, inside_branch: bool) -> bool:
        if isinstance(have, int) and want.is_Integer:
            return have == int(want)
        key = (have, want, inside_branch)
        if key not in self._known:
            self._known[key] = self._compared(have, want, inside_branch)
        return self._known[key]

    def _compared(self, have: Extent, want: sympy.Expr, inside_branch: bool) -> bool:
        expression = self._expression(have, self._symbols())
        if expression is None or not isinstance(want, sympy.Expr) or expression == want:
            return True
        if inside_branch:
            # The condition may say that a dynamic extent has one size.
            for one, other in ((expression, want), (want, expression)):
                if one.is_Integer and one in self._extents.bounds(other):
                    return True
        free = sorted(expression.free_symbols | want.free_symbols, key=str)
        points = [p for p in (self._point(free, *steps) for steps in _STEPS) if p is not None]
        if not points:
            return True
        return any(self._equal_at(point, expression, want) for point in points)

    def _differ_by_guards(self, have: Extent, want: sympy.Expr, fake: torch.Tensor) -> bool:
        """Whether extents that differ at all sample points do so where the guards of the traced code hold, too."""
        env = getattr(getattr(fake, "fake_mode", None), "shape_env", None)
        expression = self._expression(have, self._symbols())
        if env is None or expression is None:
            return True
        if any(self._compared(have, exact, False) for exact in _exact_quotients(want, env.divisible)):
            return False
        free = sorted(expression.free_symbols | want.free_symbols, key=str)
        # Those of numbers from data are checked at run time.
        later = [check for checks in env.deferred_runtime_asserts.values() for check in checks]
        guards = [guard.expr for guard in (*env.guards, *later) if not guard.expr.free_symbols.isdisjoint(free)]
        # A guard may relate these symbols by way of others: ``x.view(a, b)`` asks for ``a * b * n == m * n``.
        every = sorted(set(free).union(*(guard.free_symbols for guard in guards)), key=str)
        points = [p for p in (self._point(every, *steps) for steps in _STEPS) if p is not None]
        if any(all(guard.xreplace(point) != sympy.false for guard in guards) for point in points):
            return True
        # The guards hold at the example's sizes.
        example = {s: env.backed_var_to_val[s] for s in free if s in env.backed_var_to_val}
        return len(example) == len(free) and not self._equal_at(example, expression, want)

    @staticmethod
    def _equal_at(point: dict[sympy.Symbol, sympy.Integer], one: sympy.Expr, other: sympy.Expr) -> bool:
        try:
            return bool(one.xreplace(point) == other.xreplace(point))
        except ZeroDivisionError:
            return True  # There is no such tensor.

    def _symbols(self) -> dict[ir.Value, sympy.Symbol]:
        return {value: symbol for symbol, value in self._extents.symbol_values.items() if not isinstance(value, int)}

    def _point(self, free: list[sympy.Symbol], step: int, spread: int) -> dict[sympy.Symbol, sympy.Integer] | None:
        """Values of all symbols within their ranges, or None if a symbol is unknown."""
        point = {}
        for i, symbol in enumerate(free):
            bounds: ValueRanges[sympy.Expr] | None = self._extents.symbol_ranges.get(symbol)
            if bounds is None or symbol not in self._extents.symbol_values:
                return None
            low = int(bounds.lower) if bounds.lower.is_Integer else 0
            value = low + step + spread * i
            point[symbol] = sympy.Integer(min(value, int(bounds.upper)) if bounds.upper.is_Integer else value)
        return point

    def _expression(self, extent: Extent, symbols: dict[ir.Value, sympy.Symbol]) -> sympy.Expr | None:
        """An extent over torch's symbols; None if other values are part of it."""
        if isinstance(extent, int):
            return sympy.Integer(extent)
        if extent in symbols:
            return symbols[extent]
        owner = extent.owner
        if isinstance(owner, ir.Block):
            return None
        operation = owner.operation
        if operation.name == "arith.constant":
            return sympy.Integer(ir.IntegerAttr(operation.attributes["value"]).value)
        combine = _OPERATIONS.get(operation.name)
        if combine is None:
            return None
        operands = [self._expression(operand, symbols) for operand in operation.operands]
        return None if None in operands else combine(operands[0], operands[1])


def _exact_quotients(expr: sympy.Expr, divisible: Iterable[sympy.Expr]) -> Iterator[sympy.Expr]:
    """What ``a * (b // n)`` stands for where only ``a * b`` is known to be a multiple of n: PyTorch writes it so."""
    for multiple in divisible:
        product, divisor = multiple.args
        for quotient in expr.atoms(FloorDiv):
            if quotient.args[1] == divisor and sympy.expand(expr * quotient.args[0] - product * quotient) == 0:
                yield FloorDiv(product, divisor)
