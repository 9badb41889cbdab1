"""The arguments of a procedure: values that are equal in all calls remain constants, the rest become arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import sympy
import torch
from torch import Tensor

from .. import markers
from . import graph
from .conditions import (
    equal_sizes,
    is_bool,
    is_float,
    is_int,
    known_truth,
    marked,
    number_tensor,
    same_number,
    stands_for_bool,
)
from .state import is_scalar, parts, rebuilt

Key = tuple[int, int]
"""Of an argument and its dim; the dim of a number is -1."""


class Mismatch(Exception):
    """A call passes a value of another type."""


@dataclass(frozen=True)
class _Kept:
    """The same in all calls so far."""

    value: Any


@dataclass(frozen=True)
class _Tensor:
    """A tensor; bools and floats of Python are tensors without dims."""

    first: Any
    number: int
    kind: type = Tensor
    varying: frozenset[int] = frozenset()
    """The dims whose extents differ between the calls."""

    @property
    def dtype(self) -> torch.dtype:
        """Of the argument."""
        return self.first.dtype if self.kind is Tensor else torch.bool if self.kind is bool else torch.float64

    def tensor(self, value: Any) -> Tensor:
        """The tensor that is passed for a value."""
        return value if isinstance(value, Tensor) else number_tensor(value, self.dtype)


@dataclass(frozen=True)
class _Number:
    """An int."""

    first: Any
    number: int


@dataclass(frozen=True)
class _Parts:
    """A container."""

    whole: Any
    elements: dict[Any, Any]


@dataclass
class Given:
    """The values that a call passes."""

    tensors: list[Tensor]
    numbers: dict[sympy.Symbol, Any]
    """The values of the procedure's numbers, by the names that :class:`Arguments` has for them."""


@dataclass
class Arguments:
    """The arguments of a procedure."""

    first: dict[str, Any]
    """Those of the call from outside."""
    signed: set[Key] = field(default_factory=set)
    """The numbers that may be negative."""

    def __post_init__(self) -> None:
        """At first nothing differs."""
        self._plan: Any = _Parts(self.first, {name: _Kept(value) for name, value in self.first.items()})
        self._same: dict[Key, Key] = {}
        """Values that have always been equal to an earlier one."""
        self._count = 0
        self._inside: dict[sympy.Symbol, Any] = {}

    # -- the numbers -------------------------------------------------------------------------------------

    @staticmethod
    def _leaves(plan: Any, value: Any) -> Iterator[tuple[Any, Any]]:
        """The arguments, and the value that a call passes for each."""
        if isinstance(plan, _Parts):
            inner = parts(value)
            assert inner is not None
            for key, element in plan.elements.items():
                yield from Arguments._leaves(element, inner[key])
        elif not isinstance(plan, _Kept):
            yield plan, value

    def _sizes(self, value: Any) -> dict[Key, Any]:
        """The extents and numbers that vary, in a call."""
        found: dict[Key, Any] = {}
        for leaf, given in self._leaves(self._plan, value):
            if isinstance(leaf, _Number):
                found[leaf.number, -1] = given
            else:
                found.update({(leaf.number, dim): given.shape[dim] for dim in sorted(leaf.varying)})
        return found

    @staticmethod
    def _name(key: Key) -> sympy.Symbol:
        return sympy.Symbol(f"procedure_{key[0]}_{key[1] + 1}", integer=True)

    # -- calls -------------------------------------------------------------------------------------------

    def widen(self, given: dict[str, Any]) -> bool:
        """Extends the arguments to fit a call; returns whether that was necessary."""
        known = self._plan
        self._plan = self._widened(known, given)
        first, now = self._sizes(self.first), self._sizes(given)
        same: dict[Key, Key] = {}
        for key in now:
            before = [
                other
                for other in same
                if same[other] == other
                and self._same.get(other) == self._same.get(key)
                and equal_sizes(first[other], first[key])
                and equal_sizes(now[other], now[key])
            ]
            same[key] = before[0] if before else key
        changed = self._plan != known or same != self._same
        self._same = same
        for key in self._heads():
            if key[1] < 0 and key not in self.signed and not (_is_size(first[key]) and _is_size(now[key])):
                self.signed.add(key)
                changed = True
        return changed

    def _heads(self) -> list[Key]:
        return [key for key, head in self._same.items() if key == head]

    def _next(self) -> int:
        self._count += 1
        return self._count - 1

    def _widened(self, plan: Any, value: Any) -> Any:
        if isinstance(plan, _Parts):
            now = parts(value)
            if type(value) is not type(plan.whole) or now is None or list(now) != list(plan.elements):
                raise Mismatch
            elements = {key: self._widened(element, now[key]) for key, element in plan.elements.items()}
            return plan if all(elements[key] is x for key, x in plan.elements.items()) else _Parts(plan.whole, elements)
        if isinstance(plan, _Kept):
            return self._parted(plan, value)
        if isinstance(plan, _Number):
            if is_int(value):
                return plan
            if not is_float(value):
                raise Mismatch
            return _Tensor(plan.first, plan.number, float)
        return self._widened_tensor(plan, value)

    def _parted(self, plan: _Kept, value: Any) -> Any:
        first = plan.value
        if first is value:
            return plan
        if _is_bool(first) and _is_bool(value):
            same = not isinstance(first, Tensor) and not isinstance(value, Tensor) and same_number(first, value)
            return plan if same else _Tensor(first, self._next(), bool)
        if isinstance(first, Tensor) and isinstance(value, Tensor):
            return self._widened_tensor(_Tensor(first, self._next()), value)
        if is_scalar(first) and is_scalar(value) and not _is_bool(first) and not _is_bool(value):
            if same_number(first, value):
                return plan
            whole = is_int(first) and is_int(value)
            return _Number(first, self._next()) if whole else _Tensor(first, self._next(), float)
        a, b = parts(first), parts(value)
        if type(first) is not type(value):
            raise Mismatch
        if a is not None and b is not None and list(a) == list(b):
            return self._widened(_Parts(first, {key: _Kept(x) for key, x in a.items()}), value)
        if a is None and b is None and _equal(first, value):
            return plan
        raise Mismatch

    def _widened_tensor(self, plan: _Tensor, value: Any) -> _Tensor:
        if plan.kind is not Tensor:
            fits = _is_bool(value) if plan.kind is bool else is_scalar(value) and not _is_bool(value)
            if not fits:
                raise Mismatch
            return plan
        first = plan.first
        if not isinstance(value, Tensor) or value.dtype != first.dtype or value.dim() != first.dim():
            raise Mismatch
        other = {d for d in range(first.dim()) if not equal_sizes(first.shape[d], value.shape[d])}
        return plan if other <= plan.varying else _Tensor(first, plan.number, Tensor, plan.varying | other)

    def given(self, value: dict[str, Any]) -> Given:
        """The tensors and numbers that a call passes."""
        sizes = self._sizes(value)
        tensors = [leaf.tensor(x) for leaf, x in self._leaves(self._plan, value) if isinstance(leaf, _Tensor)]
        return Given(tensors, {self._name(key): sizes[key] for key in self._heads()})

    # -- inside ------------------------------------------------------------------------------------------

    def open(self, begin: Tensor) -> dict[str, Any]:
        """The values of the arguments inside the procedure."""
        self._inside = {}
        for place, key in enumerate(self._heads()):
            number = markers.procedure_number(begin, place).item()
            if key not in self.signed:
                torch._check(number >= 0)
            self._inside[self._name(key)] = number
        slots = iter(range(self._count))
        made: dict[str, Any] = self._opened(self._plan, begin, lambda: next(slots))
        return made

    def _number(self, key: Key) -> Any:
        return self._inside[self._name(self._same[key])]

    def _opened(self, plan: Any, begin: Tensor, slot: Callable[[], int]) -> Any:
        if isinstance(plan, _Parts):
            return rebuilt(plan.whole, {key: self._opened(x, begin, slot) for key, x in plan.elements.items()})
        if isinstance(plan, _Kept):
            return plan.value
        if isinstance(plan, _Number):
            return self._number((plan.number, -1))
        shape = plan.first.shape if plan.kind is Tensor else ()
        sizes = [self._number((plan.number, d)) if d in plan.varying else size for d, size in enumerate(shape)]
        inside = markers.procedure_argument(begin, plan.dtype, sizes, slot())
        return inside.item() if plan.kind is float else marked(inside) if plan.kind is bool else inside

    def named(self, expr: sympy.Expr) -> sympy.Expr:
        """An expression over the numbers inside, over their names."""
        return expr.xreplace({_expression(number): name for name, number in self._inside.items()})

    @property
    def inside(self) -> dict[sympy.Symbol, Any]:
        """The numbers inside, by their names."""
        return self._inside

    def knows(self, size: Any, symbols: graph.Symbols) -> bool:
        """Whether a number is an expression over the numbers inside, and ``symbols``."""
        if isinstance(size, int):
            return True
        own = set().union(*(_expression(number).free_symbols for number in self._inside.values()))
        return symbols.know_all(size.node.expr.free_symbols - own)


def _expression(value: Any) -> sympy.Expr:
    return value.node.expr if isinstance(value, torch.SymInt) else sympy.Integer(value)


def _is_size(value: Any) -> bool:
    return known_truth(value >= 0) is True


def _is_bool(value: Any) -> bool:
    return is_bool(value) or (isinstance(value, Tensor) and stands_for_bool(value))


def _equal(a: Any, b: Any) -> bool:
    try:
        return bool(a == b)
    except Exception:
        return False
