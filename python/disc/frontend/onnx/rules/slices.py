"""Slices of ONNX, whose ends may be known, expressions, or decided by data."""

from __future__ import annotations

from typing import Any

import sympy
import torch
from torch_mlir.dialects import linalg

from ... import scalar
from ...registry import lowers
from ...scalar import Elem
from ...values import Extent, RuntimeNumber, Tensor, normalize_dim
from ..builder import OnnxBuilder, known
from ..known import Unknown, integers


@lowers("onnx.Slice")
@known(1, 2, 3, 4)
def slice_(
    b: OnnxBuilder,
    x: Tensor,
    first: Any = None,
    last: Any = None,
    along: Any = None,
    step: Any = None,
    starts: list[int] | None = None,
    ends: list[int] | None = None,
    axes: list[int] | None = None,
) -> Tensor:
    """x[start:end:step] along some dims."""
    begins = b.numbers(first) if first is not None else starts
    stops = b.numbers(last) if last is not None else ends
    assert begins is not None and stops is not None
    dims = integers(along) if along is not None else axes
    steps = integers(step) or [1] * len(begins)
    for i, dim in enumerate(dims or range(len(begins))):
        dim = normalize_dim(dim, x.rank)
        bounds = [_bound(b, v, x.dims[dim]) for v in (begins[i], stops[i])]
        if steps[i] > 0:
            x = b.aten("slice.Tensor", x, dim, *bounds, steps[i], dtype=x.dtype)
        else:
            for operand, value in ((first, begins[i]), (last, stops[i])):
                if isinstance(value, RuntimeNumber):
                    raise Unknown(operand)
            x = _backwards(b, x, dim, begins[i], stops[i], -steps[i])
    return x


def _bound(b: OnnxBuilder, value: Any, extent: Extent) -> Any:
    if not isinstance(value, sympy.Expr):
        return value
    low, high = b.limits(value)
    bound = b.extent(value)
    if low is not None and low >= 0:
        return bound
    whole = b.expression(extent)
    if high is not None and high < 0:
        bound = b.add(bound, extent)
        value = value + whole
    elif sympy.expand(whole - value) != 1:
        # Whether it counts from the end depends on the extents.
        negative = b.minimum(b.maximum(b.sub(0, bound), 0), 1)
        return b.maximum(b.add(bound, b.mul(extent, negative)), 0)
    low, _ = b.limits(value)
    return bound if low is not None and low >= 0 else b.maximum(bound, 0)


def _backwards(b: OnnxBuilder, x: Tensor, dim: int, start: Any, end: Any, step: int) -> Tensor:
    """x[start:end:-step] along ``dim``."""
    extent = x.dims[dim]
    last = b.sub(extent, 1)

    def clamp(value: Any, low: int) -> Extent:
        if isinstance(value, int) and value < 0:
            # The most negative numbers mean everything.
            value = low if value < -(2**31) + 1 else b.add(value, extent)
        elif isinstance(value, int) and value >= 2**31 - 1:
            return last
        return b.maximum(b.minimum(b.extent(value), last), low)

    first, stop = clamp(start, 0), clamp(end, -1)
    count = b.floordiv(b.add(b.maximum(b.sub(first, stop), 0), step - 1), step)
    return _picked(b, x, dim, count, lambda i: scalar.from_extent(first, torch.int64) - i * step)


def _picked(b: OnnxBuilder, x: Tensor, dim: int, count: Extent, index: Any) -> Tensor:
    """The slices index(0), ..., index(count - 1) of ``dim``."""
    dims = [*x.dims[:dim], count, *x.dims[dim + 1 :]]

    def body() -> Elem:
        at: list[Any] = [linalg.IndexOp(d).result for d in range(x.rank)]
        at[dim] = index(scalar.loop_index(dim))
        return b.extract(x, at)

    return b.generic([], [], dims, x.dtype, body)


def flip(b: OnnxBuilder, x: Tensor, dim: int) -> Tensor:
    """x with ``dim`` in reverse."""
    last = b.sub(x.dims[dim], 1)
    return _picked(b, x, dim, x.dims[dim], lambda i: scalar.from_extent(last, torch.int64) - i)
