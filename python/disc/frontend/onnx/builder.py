"""What rules for ONNX operators build with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import sympy
import torch
from torch_mlir import ir

from ..builder import Builder
from ..registry import NotLowerable, Rule, find_rule
from ..values import Extent, ResultInfo, Tensor
from .known import Known, elements

_Fn = TypeVar("_Fn", bound=Callable[..., Any])


def known(*positions: int) -> Callable[[_Fn], _Fn]:
    """Says that the rule takes these operands as they are: :class:`Known` rather than made into tensors."""

    def mark(rule: _Fn) -> _Fn:
        rule.known = positions  # type: ignore[attr-defined]
        return rule

    return mark


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


UNKNOWN: Any = _Any()
"""What rules find in place of torch.export's results."""


class OnnxBuilder(Builder):
    """The builder, with extents as expressions and the rules of torch ops as functions."""

    def __init__(self, opset: int) -> None:
        super().__init__()
        self.opset = opset
        self.materialise: Callable[[Known], Tensor]
        """Makes a tensor of a known operand; the lowering's."""
        self._expressions: dict[ir.Value, sympy.Expr] = {}

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

    def extents(self, x: Known | Tensor | None) -> list[Any]:
        """The elements of an operand that must be known, as extents; [] if it is missing."""
        return [self.extent(v) for v in elements(x) or ()]

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
        return self.materialise(x) if isinstance(x, Known) else x
