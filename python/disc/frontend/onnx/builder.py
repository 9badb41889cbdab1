"""What rules for ONNX operators build with."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import sympy
import torch
from torch_mlir import ir

from ...torch_compat.symbols import ValueRanges
from ..builder import Builder
from ..registry import NotLowerable, Rule, find_rule
from ..values import Extent, ResultInfo, RuntimeNumber, Tensor
from .cases import Condition
from .known import Known, Unknown, bounds, elements
from .tensor_list import TensorList

_Fn = TypeVar("_Fn", bound=Callable[..., Any])


def known(*positions: int) -> Callable[[_Fn], _Fn]:
    """Says that the rule takes these operands as they are: :class:`Known` rather than made into tensors."""

    def mark(rule: _Fn) -> _Fn:
        rule.known = positions  # type: ignore[attr-defined]
        return rule

    return mark


def known_everywhere(rule: _Fn) -> _Fn:
    """As :func:`known`, for all operands."""
    rule.known = range(sys.maxsize)  # type: ignore[attr-defined]
    return rule


class _Any:
    """The fake result of a torch op of which torch knows nothing: every extent of it is None."""

    def __getitem__(self, index: Any) -> Any:
        return None if isinstance(index, slice) else self

    @property
    def shape(self) -> Any:
        return _NoExtents()


class _NoExtents:
    def __getitem__(self, index: Any) -> None:
        return None


def unit_message(what: str, extent: str) -> str:
    """Why a size of 1 is an error at run time."""
    name = extent if extent.isidentifier() else "NAME"
    return (
        f"{what}: a result would have another rank if {extent} were 1, and the model was compiled for other sizes;"
        f' compile it for this size with dynamic_shapes={{"{name}": 1}}'
    )


MOST_DIMS = 8
"""Tensors of more numbers are not what decides a shape."""


def _read(b: OnnxBuilder, x: Tensor) -> RuntimeNumber:
    return RuntimeNumber(torch.int64, lambda: b.extract(x, []))


UNKNOWN: Any = _Any()
"""What rules find in place of torch.export's results."""


class OnnxBuilder(Builder):
    """The builder, with extents as expressions and the rules of torch ops as functions."""

    def __init__(self, opset: int) -> None:
        super().__init__()
        self.opset = opset
        self.declared: int | None = None
        """The rank that the file declares for the (first) result of the operator being lowered."""
        self.materialise: Callable[[Known], Tensor]
        """Makes a tensor of a known operand; the lowering's."""
        self.found: list[Condition] = []
        """Conditions on the inputs' extents that decide ranks, and that nothing decides."""
        self.assumed: dict[Condition, bool] = {}
        """Those that the entry has decided."""
        self._expressions: dict[ir.Value, sympy.Expr] = {}

    def require_elements(self, extents: Sequence[Extent]) -> None:
        """Nothing: of no elements, ONNX has the lowest or the highest number of the type as the extremum."""

    def _known(self) -> tuple[Any, ...]:
        return *super()._known(), self._expressions

    def _restore(self, known: tuple[Any, ...]) -> None:
        *others, self._expressions = known
        super()._restore(tuple(others))

    def expression(self, extent: Extent) -> Any:
        """``extent`` as a number or an expression over the shape symbols."""
        if isinstance(extent, int):
            return extent
        if extent not in self._expressions:
            found = next((s for s, value in self.symbol_values.items() if value == extent), None)
            if found is None:
                found = sympy.Symbol(f"extent{len(self._expressions)}", integer=True, nonnegative=True)
                self.symbol_values[found] = extent
            self._expressions[extent] = found
        return self._expressions[extent]

    def extent(self, expression: Any) -> Any:
        """A number or an expression as an extent."""
        if not isinstance(expression, sympy.Expr):
            return expression
        extent = self.extent_of(expression)
        if extent is None:
            raise NotLowerable(f"extent {expression} is not an expression DISC knows")
        if isinstance(extent, ir.Value):
            self._expressions.setdefault(extent, expression)
        return extent

    def limits(self, extent: Any) -> tuple[int | None, int | None]:
        """The least and the largest value of an extent or an expression; None where there is no bound."""
        expression = self.expression(extent) if isinstance(extent, ir.Value) else extent
        return bounds(expression, self.symbol_ranges)

    def described(self, expression: Any) -> str:
        """An expression under the model's names, for messages."""
        return str(sympy.sympify(expression).xreplace(self.entry_names))

    def require_relation(self, holds: bool, op: str, lhs: Any, rhs: Any, message: str) -> None:
        """Requires of two expressions that ``lhs op rhs`` (``"Equal"``, ``"Less"``, ...), or that it does not."""
        x, y = self.extent(lhs), self.extent(rhs)
        if op == "Equal" and holds:
            self.require_equal(x, y, message)
        elif op == "Equal":
            self.require_at_most(1, self.maximum(self.sub(x, y), self.sub(y, x)), message)
        else:
            if op.startswith("Greater"):
                x, y = y, x
            strict = not op.endswith("OrEqual")
            if not holds:
                x, y, strict = y, x, not strict
            self.require_at_most(self.add(x, 1) if strict else x, y, message)

    def may_be_unit(self, extent: Extent) -> bool:
        """Whether the symbols' ranges allow an extent to be 1."""
        low, high = self.limits(extent)
        return (low is None or low <= 1) and (high is None or high >= 1)

    @property
    def entry_names(self) -> dict[sympy.Symbol, sympy.Symbol]:
        """What the model calls the symbols of its inputs."""
        return {s: sympy.Symbol(known.name) for s, known in self.symbols.items()} if self.symbols else {}

    def decided(self, op: str, lhs: Any, rhs: Any) -> bool | None:
        """Whether ``lhs op rhs`` holds, if the entry has decided it; else it is noted as open."""
        condition = Condition.of(op, lhs, rhs, self.entry_names)
        if condition is None or condition in self.assumed:
            return None if condition is None else self.assumed[condition]
        if condition not in self.found:
            self.found.append(condition)
        return None

    @contextmanager
    def assuming(self, condition: Condition, holds: bool) -> Iterator[None]:
        """Inside, the condition is decided."""
        known = self.assumed, self.symbol_ranges
        self.assumed = {**self.assumed, condition: holds}
        symbol, value = condition.sides(self.entry_names)
        if condition.op == "Equal" and symbol in self.symbol_ranges and isinstance(value, int):
            old = self.symbol_ranges[symbol]
            low = old.lower + 1 if old.lower == value else old.lower
            new = ValueRanges(value, value) if holds else ValueRanges(low, old.upper)
            self.symbol_ranges = {**self.symbol_ranges, symbol: new}
        try:
            yield
        finally:
            self.assumed, self.symbol_ranges = known

    def is_unit(self, extent: Extent, what: str, *, likely: bool = False) -> bool:
        """Whether an extent is 1, which decides the rank of a result.

        Where neither the symbols' ranges nor the entry say it, the compiled program is for what is ``likely``, and
        requires that.
        """
        low, high = self.limits(extent)
        if low == high == 1:
            return True
        if (low is not None and low > 1) or high == 0:
            return False
        known = self.decided("Equal", self.expression(extent), 1)
        if known:
            self.require_equal(extent, 1, f"{what}: the size must be 1")
        if known is not None:
            return known
        text = self.described(self.expression(extent))
        if likely:
            message = f"{what}: by the rank that the file declares for its result, the size must be 1"
            self.require_equal(extent, 1, message)
            return True
        self.require_relation(False, "Equal", self.expression(extent), 1, unit_message(what, text))
        return False

    def extents(self, x: Known | Tensor | None) -> list[Any]:
        """The elements of an operand as extents, each bound to a symbol if data decides it; [] if it is missing."""
        if isinstance(x, Tensor):
            return [self.bind(item) for item in self._items(x)]
        return [self.extent(v) for v in elements(x) or ()]

    def numbers(self, x: Known | Tensor | None) -> list[Any] | None:
        """The elements of an operand: numbers, expressions, and data-dependent values; None if it is missing."""
        if isinstance(x, Tensor):
            return [_read(self, item) for item in self._items(x)]
        return elements(x)

    def _items(self, x: Tensor) -> list[Tensor]:
        """The integers of a small tensor that the model computes, each without dims."""
        if (
            x.rank > 1
            or not all(isinstance(d, int) and d <= MOST_DIMS for d in x.dims)
            or x.dtype.is_floating_point
            or x.dtype == torch.bool
        ):
            raise Unknown(x)
        if isinstance(x.value.owner, ir.Block):
            # An input of the model or of a graph in it: the code is better if it is fixed.
            raise Unknown(x)
        wide = self.map(torch.int64, [x], lambda v: v.to(torch.int64))
        if x.rank == 0:
            return [wide]
        return [self.reshape(self.slice(wide, 0, i, 1), []) for i in range(int(x.dims[0]))]  # type: ignore[call-overload]

    def aten(self, name: str, *operands: Any, dtype: torch.dtype | Sequence[torch.dtype], rank: int = 0) -> Any:
        """Applies the rule of a torch op, whose results have ``dtype``; ``rank`` matters where the rule asks for it."""
        full = name if name.startswith("torch.") else f"torch.aten.{name}"
        rule: Rule | None = find_rule(full)
        if rule is None:
            raise NotLowerable(f"it needs {full}, which has no lowering rule")
        saved = self.op_name, self.results, self.node_value
        types = [dtype] if isinstance(dtype, torch.dtype) else list(dtype)
        self.op_name, self.node_value = full, UNKNOWN
        self.results = [ResultInfo(d, (None,) * rank) for d in types]
        try:
            return rule(self, *operands)
        finally:
            self.op_name, self.results, self.node_value = saved

    def tensor(self, x: Any) -> Any:
        """A known operand as a tensor."""
        if isinstance(x, TensorList):
            raise NotLowerable("a sequence as a result of a branch, or carried by a loop, is not supported")
        return self.materialise(x) if isinstance(x, Known) else x
