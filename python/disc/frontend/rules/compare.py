"""Comparisons, logic, and choosing by a condition."""

from __future__ import annotations

import operator
from typing import Any

import torch

from .. import dtypes, scalar
from ..builder import Builder, Input
from ..registry import lowers
from ..scalar import Elem
from ..values import RuntimeNumber, Tensor, is_one
from . import masks
from .common import number, promoted

_PYTHON = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}


def _register_comparison(name: str) -> None:
    @lowers(f"torch.aten.{name}")
    def rule(b: Builder, x: Tensor, y: Input) -> Tensor:
        if isinstance(y, (int, float)) and _always(name, x, y):
            return b.full(x.dims, True, torch.bool)
        y = number(y)
        compute = promoted(x, y)
        return b.elementwise(torch.bool, [x, y], lambda x, y: scalar.compare(name, x, y), compute=compute)


for _name in _PYTHON:
    _register_comparison(_name)


def _always(name: str, x: Tensor, y: int | float) -> bool:
    """Whether a comparison with a number holds for all elements, by what is known of them.

    Model libraries guard their masks with ``arange(...) >= 0``: known, such masks vanish.
    """
    if x.splat is not None:
        return bool(_PYTHON[name](x.splat, y))
    return x.iota is not None and name in ("ge", "gt") and bool(_PYTHON[name](x.iota.start, y))


def _register_logical(name: str) -> None:
    @lowers(f"torch.aten.logical_{name}")
    def rule(b: Builder, x: Tensor, y: Tensor) -> Tensor:
        if x.dtype == y.dtype == torch.bool:
            return bitwise(b, name, x, y)
        return b.elementwise(torch.bool, [x, y], lambda x, y: _bit_op(name, x, y))


def _register_bitwise(name: str) -> None:
    @lowers(f"torch.aten.bitwise_{name}", f"torch.aten.__{name}__")
    def rule(b: Builder, x: Tensor, y: Input) -> Tensor:
        return bitwise(b, name, x, y)


for _name in ("and", "or", "xor"):
    _register_logical(_name)
    _register_bitwise(_name)


def _bit_op(name: str, x: Elem, y: Elem) -> Elem:
    return {"and": operator.and_, "or": operator.or_, "xor": operator.xor}[name](x, y)


def bitwise(b: Builder, name: str, x: Input, y: Input) -> Tensor:
    """x op y on integers and bools; bool operands that are known and change nothing vanish."""
    if b.out.dtype == torch.bool:
        for this, other in ((x, y), (y, x)):
            known = this.splat if isinstance(this, Tensor) else this
            if isinstance(other, Tensor) and known is not None and isinstance(known, (bool, int)):
                if (name, bool(known)) in (("and", True), ("or", False), ("xor", False)):
                    return _broadcast_to_both(b, other, this)
                if (name, bool(known)) in (("and", False), ("or", True)):
                    dims = b.broadcast_dims([t.dims for t in (x, y) if isinstance(t, Tensor)])
                    return b.full(dims, bool(known), torch.bool)
    return b.elementwise(b.out.dtype, [x, number(y)], lambda x, y: _bit_op(name, x, y))


def _broadcast_to_both(b: Builder, x: Tensor, other: Any) -> Tensor:
    if not isinstance(other, Tensor):
        return x
    dims = b.broadcast_dims([x.dims, other.dims])
    return x if list(x.dims) == dims else b.broadcast(x, dims)


@lowers("torch.aten.logical_not")
def logical_not(b: Builder, x: Tensor) -> Tensor:
    """Not x, for any dtype."""
    return b.map(torch.bool, [x], lambda x: ~x.to(torch.bool), dims=x.dims)


@lowers("torch.aten.bitwise_not")
def bitwise_not(b: Builder, x: Tensor) -> Tensor:
    """~x."""
    return b.elementwise(b.out.dtype, [x], lambda x: ~x)


@lowers("torch.aten.isnan")
def isnan(b: Builder, x: Tensor) -> Tensor:
    """Whether each element is NaN."""
    if not dtypes.is_float(x.dtype):
        return b.full(x.dims, False, torch.bool)
    return b.map(torch.bool, [x], lambda x: x.ne(x), dims=x.dims)


@lowers("torch.aten.isinf")
def isinf(b: Builder, x: Tensor) -> Tensor:
    """Whether each element is an infinity."""
    if not dtypes.is_float(x.dtype):
        return b.full(x.dims, False, torch.bool)
    return b.elementwise(
        torch.bool,
        [x],
        lambda x: scalar.absolute(x).eq(float("inf")),
        compute=dtypes.opmath(x.dtype),
    )


@lowers("torch.aten.where")
def where(b: Builder, condition: Tensor, x: Input | None = None, y: Input | None = None) -> Any:
    """x where the condition holds, else y; without them the positions where it holds, one tensor for each dim."""
    if x is None or y is None:
        condition = condition if condition.rank else b.reshape(condition, [1])
        return masks.columns(b, masks.nonzero(b, condition, b.node_value[0].shape[0]))
    x, y = number(x), number(y)
    dtype = b.out.dtype
    if condition.splat is not None:
        chosen = x if condition.splat else y
        shapes = [t.dims for t in (condition, x, y) if isinstance(t, Tensor)]
        return b.map(dtype, [chosen], lambda e: e, dims=b.broadcast_dims(shapes))
    return b.map(
        dtype,
        [condition, x, y],
        lambda c, x, y: scalar.select(c.to(torch.bool), x.to(dtype), y.to(dtype)),
    )


@lowers("torch.aten.masked_fill")
def masked_fill(b: Builder, x: Tensor, mask: Tensor, value: Input) -> Tensor:
    """value where the mask is set, else x."""
    dtype = x.dtype
    return b.map(
        dtype,
        [x, mask, number(value)],
        lambda x, m, v: scalar.select(m, v.to(dtype), x),
        dims=None if any(is_one(d) for d in x.dims) or mask.rank > x.rank else x.dims,
    )


def _register_triangle(name: str, keep: str) -> None:
    @lowers(f"torch.aten.{name}")
    def rule(b: Builder, x: Tensor, diagonal: Input = 0) -> Tensor:
        first = number(diagonal)

        def fn(x: Elem) -> Elem:
            row = scalar.loop_index(len(b.out.shape) - 2)
            column = scalar.loop_index(len(b.out.shape) - 1)
            bound = first.emit() if isinstance(first, RuntimeNumber) else scalar.constant(first, torch.int64)
            kept = scalar.compare(keep, column - row, bound.to(torch.int64))
            return scalar.select(kept, x, 0)

        return b.map(x.dtype, [x], fn, dims=x.dims)


_register_triangle("tril", "le")
_register_triangle("triu", "ge")
