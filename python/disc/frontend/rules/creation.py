"""Tensors made from numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import torch
from torch_mlir import ir

from .. import dtypes, locations, scalar
from ..builder import Builder
from ..registry import NotLowerable, lowers
from ..scalar import Elem
from ..values import Extent, Iota, Number, RuntimeNumber, Tensor
from .common import number


def _filled(b: Builder, dims: Sequence[Extent], value: Any) -> Tensor:
    value = number(value)
    if isinstance(value, RuntimeNumber):
        return b.map(b.out.dtype, [value], lambda x: x, dims=dims)
    return b.full(dims, value, b.out.dtype)


@lowers("torch.aten.full")
def full(b: Builder, dims: Sequence[Extent], value: Any, *_: Any) -> Tensor:
    """All elements ``value``."""
    return _filled(b, dims, value)


@lowers("torch.aten.full_like")
def full_like(b: Builder, x: Tensor, value: Any, *_: Any) -> Tensor:
    """All elements ``value``, in the shape of x."""
    return _filled(b, x.dims, value)


@lowers("torch.aten.new_full")
def new_full(b: Builder, x: Tensor, dims: Sequence[Extent], value: Any, *_: Any) -> Tensor:
    """All elements ``value``."""
    return _filled(b, dims, value)


@lowers("torch.aten.fill.Scalar", "torch.aten.fill")
def fill(b: Builder, x: Tensor, value: Any) -> Tensor:
    """All elements ``value``, in the shape of x."""
    if isinstance(value, Tensor):
        return b.map(b.out.dtype, [value], lambda v: v, dims=x.dims)
    return _filled(b, x.dims, value)


def _register_filled(name: str, value: Number) -> None:
    @lowers(f"torch.aten.{name}")
    def of_shape(b: Builder, dims: Sequence[Extent], *_: Any) -> Tensor:
        return b.full(dims, value, b.out.dtype)

    @lowers(f"torch.aten.{name}_like")
    def like(b: Builder, x: Tensor, *_: Any) -> Tensor:
        return b.full(x.dims, value, b.out.dtype)

    @lowers(f"torch.aten.new_{name}")
    def new(b: Builder, x: Tensor, dims: Sequence[Extent], *_: Any) -> Tensor:
        return b.full(dims, value, b.out.dtype)


_register_filled("zeros", 0)
_register_filled("ones", 1)
# The values of uninitialised memory are undefined, so zeros are correct.
_register_filled("empty", 0)


@lowers("torch.aten.empty_permuted", "torch.aten.empty_strided")
def empty_strided(b: Builder, dims: Sequence[Extent], *_: Any) -> Tensor:
    """Zeros; the compiler chooses the layout in memory."""
    return b.full(dims, 0, b.out.dtype)


@lowers("torch.aten.new_empty_strided")
def new_empty_strided(b: Builder, x: Tensor, dims: Sequence[Extent], *_: Any) -> Tensor:
    """Zeros; the compiler chooses the layout in memory."""
    return b.full(dims, 0, b.out.dtype)


@lowers("torch.aten.arange.start_step")
def arange(b: Builder, start: Any, end: Any, step: Any = 1, *_: Any) -> Tensor:
    """start, start + step, ... up to end, without it."""
    dtype = b.out.dtype
    count = _arange_count(b, start, end, step)
    compute = dtypes.opmath(dtype)

    def body() -> Elem:
        index = scalar.loop_index(0, torch.int64).to(compute)
        value = index if step == 1 else index * _as(step, compute)
        return value if isinstance(start, int) and start == 0 else value + _as(start, compute)

    result = b.generic([], [], [count], dtype, lambda: body().to(dtype))
    if isinstance(start, int) and isinstance(step, int) and step > 0 and not dtypes.is_float(dtype):
        return result.with_facts(iota=Iota(0, start, step))
    return result


def _as(value: Any, dtype: torch.dtype) -> Elem:
    """In a body: a number as an element of ``dtype``."""
    value = number(value)
    return value.emit().to(dtype) if isinstance(value, RuntimeNumber) else scalar.constant(value, dtype)


@lowers("torch.aten.arange")
def arange_end(b: Builder, end: Any, *_: Any) -> Tensor:
    """0, 1, ... up to end, without it."""
    return arange(b, 0, end, 1)


@lowers("torch.aten.arange.start")
def arange_start(b: Builder, start: Any, end: Any, *_: Any) -> Tensor:
    """start, start + 1, ... up to end, without it."""
    return arange(b, start, end, 1)


def _arange_count(b: Builder, start: Any, end: Any, step: Any) -> Extent:
    static = b.out.shape[0]
    if static is not None:
        return static
    if all(isinstance(v, (int, float)) for v in (start, end, step)):
        return max(math.ceil((end - start) / step), 0)
    # A number that may be negative is not an extent.
    if isinstance(step, int) and not any(isinstance(v, (float, RuntimeNumber)) for v in (start, end)):
        span = b.sub(end, start) if step > 0 else b.sub(start, end)
        # torch.export records sizes as they are for dims of 2 and more; below they may be negative.
        if not b.never_negative(span):
            b.require_at_most(0, span, f"{locations.operation()}: the end is before the start")
        return b.floordiv(b.add(span, abs(step) - 1), abs(step))
    if isinstance(start, (int, float)) and isinstance(step, (int, float)) and isinstance(end, (int, ir.Value)):
        # ceil((end - start) / step) in integers.
        first, stride = Fraction(start), Fraction(step)
        if stride > 0 and first.denominator * stride.denominator < 1 << 20:
            span = b.mul(b.sub(b.mul(end, first.denominator), first.numerator), stride.denominator)
            divisor = first.denominator * stride.numerator
            return b.maximum(b.floordiv(b.add(span, divisor - 1), divisor), 0)
    size = b.node_value.shape[0]
    if not isinstance(size, torch.SymInt):
        raise NotLowerable("a data-dependent number of elements")
    extent = b.extent_of(size.node.expr)
    if extent is not None:
        return extent

    def count() -> Elem:
        first, last, stride = (_as(v, torch.float64) for v in (start, end, step))
        return scalar.maximum(scalar.unary("ceil", (last - first) / stride), 0).to(torch.int64)

    return b.bind(b.map(torch.int64, [], count, dims=[]), size)
