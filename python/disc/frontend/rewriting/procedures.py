"""Procedures: functions whose recursion depth depends on data, traced once.

Trials come first; their graphs are discarded. They find what differs between the calls, and the function's results: at
first only from the sides that end the recursion, then from all.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import sympy
import torch
from torch import Tensor

from .. import markers
from . import graph
from .arguments import Arguments, Given
from .conditions import (
    equal_sizes,
    is_bool,
    is_float,
    is_int,
    known_truth,
    marked,
    number,
    number_tensor,
    same_number,
    stands_for_bool,
)
from .region import NoValue, Region
from .sites import Site
from .state import Heap, closure_of, described, is_scalar, parts, rebuilt

# Each trial may find more differences.
_TRIALS = 64


class _Again(BaseException):
    """A call needs more arguments than the procedure has."""

    def __init__(self, procedure: Procedure) -> None:
        self.procedure = procedure
        super().__init__()


@dataclass
class _Tensor:
    """A tensor that the function returns, or a number as a tensor without dims."""

    dtype: torch.dtype
    dims: list[sympy.Expr | None]
    """Over the names of the procedure's numbers and outer symbols; None for an extent that cannot be so expressed."""
    kind: type = Tensor
    signed: bool = True


@dataclass(frozen=True)
class _Kept:
    """A value that each call returns."""

    value: Any


@dataclass(frozen=True)
class _Parts:
    """A container."""

    whole: Any
    elements: dict[Any, Any]


class Procedure:
    """Traces one function."""

    def __init__(self, function: types.FunctionType, bound: inspect.BoundArguments, site: Site) -> None:
        """``bound``: the arguments of the call from outside, which stands at ``site``."""
        self.function, self._bound, self._site = function, bound, site
        self._arguments = Arguments(dict(bound.arguments))
        self._result: Any = None
        """The results of the function that trials have found so far."""
        self._is_recursive = False
        self._begin: Any = None
        self._symbols: Any = None

    def run(self, opened: Callable[[Procedure], AbstractContextManager[None]]) -> Any:
        """Traces the function and its call; inside ``opened``, calls of the function belong to this procedure."""
        for _ in range(_TRIALS):
            try:
                with graph.tried(), opened(self):
                    again = self._learn(self._trace())
            except _Again as found:
                if found.procedure is not self:
                    raise
                continue
            except NoValue as error:
                if error.of is not self:
                    raise
                raise self._site.refuse(
                    f"{self._text} calls itself on every path: add a branch on data that returns without a call"
                ) from None
            if not self._is_recursive:
                return self.function(*self._bound.args, **self._bound.kwargs)
            if not again:
                break
        else:
            raise self._site.refuse(f"the types of the arguments or results of {self._text} change in each call")
        with opened(self):
            value = self._trace()
        end = self._end(value)
        return self._emit(end, self._arguments.given(dict(self._bound.arguments)))

    @property
    def _text(self) -> str:
        return f"the recursive function {self.function.__name__}"

    # -- the body ----------------------------------------------------------------------------------------

    def _trace(self) -> Any:
        self._symbols = graph.Symbols()
        self._begin = markers.procedure_begin()
        inside = self._arguments.open(self._begin)
        heap = Heap([*inside.items(), *closure_of(self.function), *self._globals()])
        region = Region(self._refuse_change, self._text, self._site.source)
        bound = inspect.BoundArguments(self._bound.signature, inside)  # type: ignore[arg-type]
        with region:
            value = self.function(*bound.args, **bound.kwargs)
            graph.keep_conditions(self._begin)
        for change in heap.changes():
            raise self._site.refuse(
                f"{self._text} changes {change.name}, which exists outside of it: pass it as an argument and return it"
            )
        return value

    def _globals(self) -> list[tuple[str, Any]]:
        names = self.function.__code__.co_names
        around = self.function.__globals__
        return [(name, around[name]) for name in names if name in around]

    def _refuse_change(self, _: Tensor) -> Tensor:
        raise self._site.refuse(
            f"{self._text} changes a tensor in place that it did not create: make a new one, or clone() it before"
        )

    # -- its results ------------------------------------------------------------------------------------

    def _learn(self, value: Any) -> bool:
        """Merges the result of a trial with the known results; whether there is something new."""
        if self._result is None:
            self._result = self._described(value)
            return True
        self._result, news = self._widened(self._result, value)
        return news

    def _described(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            return _Tensor(value.dtype, [self._dim(n) for n in value.shape], bool if stands_for_bool(value) else Tensor)
        inner = None if is_scalar(value) else parts(value)
        if inner is not None:
            return _Parts(value, {key: self._described(x) for key, x in inner.items()})
        if is_scalar(value) and not isinstance(value, (bool, int, float)):
            return self._scalar(value)
        return _Kept(value)

    @staticmethod
    def _scalar(*values: Any) -> _Tensor:
        if any(is_bool(x) for x in values):
            return _Tensor(torch.bool, [], bool)
        if any(is_float(x) for x in values):
            return _Tensor(torch.float64, [], float)
        return _Tensor(torch.int64, [], int, not all(known_truth(x >= 0) for x in values))

    def _dim(self, size: Any) -> sympy.Expr | None:
        if isinstance(size, int):
            return sympy.Integer(size)
        return self._arguments.named(size.node.expr) if self._arguments.knows(size, self._symbols) else None

    def _widened(self, known: Any, value: Any) -> tuple[Any, bool]:
        if isinstance(known, _Kept):
            if known.value is value or _equal(known.value, value):
                return known, False
            if is_scalar(known.value) and is_scalar(value) and is_bool(known.value) is is_bool(value):
                return self._scalar(known.value, value), True
        elif isinstance(known, _Parts):
            inner = parts(value)
            if type(value) is type(known.whole) and inner is not None and list(inner) == list(known.elements):
                found = {key: self._widened(x, inner[key]) for key, x in known.elements.items()}
                return _Parts(known.whole, {key: x for key, (x, _) in found.items()}), any(n for _, n in found.values())
        elif isinstance(value, Tensor):
            if value.dtype == known.dtype and value.dim() == len(known.dims):
                return self._widened_tensor(known, value)
        elif is_scalar(value) and known.kind is not Tensor and is_bool(value) is (known.kind is bool):
            if known.kind is int and not is_int(value):
                return _Tensor(torch.float64, [], float), True
            news = known.kind is int and not known.signed and known_truth(value >= 0) is not True
            known.signed |= news
            return known, news
        first = known.value if isinstance(known, _Kept) else known.whole if isinstance(known, _Parts) else None
        what = described(first) if first is not None else f"a {known.dtype} of {len(known.dims)} dims"
        raise self._site.refuse(
            f"{self._text} returns {what} in one place and {described(value)} in another: all results must have the"
            " same type, dtype and rank"
        )

    def _widened_tensor(self, known: _Tensor, value: Tensor) -> tuple[_Tensor, bool]:
        inside = self._arguments.inside
        news = False
        for at, (dim, size) in enumerate(zip(known.dims, value.shape, strict=True)):
            if dim is not None and not equal_sizes(_substituted(dim, inside), size):
                known.dims[at], news = None, True
        return known, news

    def _leaves(self, known: Any, value: Any) -> list[tuple[_Tensor, Any]]:
        if isinstance(known, _Parts):
            inner = parts(value)
            assert inner is not None
            return [leaf for key, x in known.elements.items() for leaf in self._leaves(x, inner[key])]
        return [] if isinstance(known, _Kept) else [(known, value)]

    def _end(self, value: Any) -> Tensor:
        values: list[Tensor] = []
        sizes: list[Any] = []
        open_: list[int] = []
        for known, given in self._leaves(self._result, value):
            tensor = given if isinstance(given, Tensor) else number_tensor(given, known.dtype)
            values.append(tensor)
            for dim, size in zip(known.dims, tensor.shape, strict=True):
                if dim is None:
                    open_.append(len(sizes))
                sizes.append(size if dim is None else _substituted(dim, self._arguments.inside))
        end: Tensor = markers.procedure_end(self._begin, values, sizes, open_)
        return end

    # -- calls -------------------------------------------------------------------------------------------

    def call(self, arguments: dict[str, Any]) -> Any:
        """A call of the function inside itself; raises ``_Again`` if the function must be traced once more for it."""
        new = self._arguments.widen(dict(arguments))
        self._is_recursive = True
        if new:
            raise _Again(self)
        if self._result is None:
            raise NoValue(self)
        return self._emit(self._begin, self._arguments.given(dict(arguments)))

    def _emit(self, token: Tensor, given: Given) -> Any:
        call = markers.procedure_call(token, given.tensors, list(given.numbers.values()))
        count = 0

        def made(known: Any) -> Any:
            nonlocal count
            if isinstance(known, _Kept):
                return known.value
            if isinstance(known, _Parts):
                return rebuilt(known.whole, {key: made(x) for key, x in known.elements.items()})
            place, count = count, count + 1
            sizes = []
            for at, dim in enumerate(known.dims):
                if dim is None:
                    sizes.append(markers.procedure_size(call, place, at).item())
                    torch._check(sizes[-1] >= 0)
                else:
                    sizes.append(_substituted(dim, given.numbers))
            result = markers.procedure_result(call, known.dtype, sizes, place)
            if known.kind is Tensor:
                return result
            if known.kind is bool:
                return marked(result)
            value = result.item()
            if not known.signed:
                torch._check(value >= 0)
            return value

        return made(self._result)


def _substituted(dim: sympy.Expr, values: dict[sympy.Symbol, Any]) -> Any:
    """An extent, with the values of a procedure's numbers."""
    worth = {name: x.node.expr if isinstance(x, torch.SymInt) else sympy.Integer(x) for name, x in values.items()}
    return number(dim.xreplace(worth), graph.environment())


def _equal(a: Any, b: Any) -> bool:
    if is_scalar(a) or is_scalar(b):
        return is_scalar(a) and is_scalar(b) and same_number(a, b)
    try:
        return type(a) is type(b) and bool(a == b)
    except Exception:
        return False
