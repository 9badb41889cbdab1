"""Reductions of ONNX."""

from __future__ import annotations

from typing import Any

import torch

from ... import dtypes, scalar
from ...registry import lowers
from ...rules.elementwise import convert
from ...values import Tensor
from ..builder import OnnxBuilder, known
from ..known import integers


def _register(op: str) -> None:
    @lowers(f"onnx.{op}")
    @known(1)
    def rule(
        b: OnnxBuilder,
        x: Tensor,
        given: Any = None,
        axes: list[int] | None = None,
        keepdims: int = 1,
        noop_with_empty_axes: int = 0,
    ) -> Tensor:
        dims = integers(given) if given is not None else axes
        if not dims and noop_with_empty_axes:
            # Nothing is folded, but what is done to each element is.
            dims = None
            return _finish(b, op, _pointwise(b, op, x))
        dims = dims or list(range(x.rank))
        return _finish(b, op, _fold(b, op, x, dims, bool(keepdims)))


def _pointwise(b: OnnxBuilder, op: str, x: Tensor) -> Tensor:
    if op in ("ReduceL1", "ReduceL2"):
        return b.aten("abs", x, dtype=x.dtype)
    if op == "ReduceSumSquare":
        return b.aten("square", x, dtype=x.dtype)
    return x


def _fold(b: OnnxBuilder, op: str, x: Tensor, dims: list[int], keepdims: bool) -> Tensor:
    dtype = x.dtype
    if op in ("ReduceSum", "ReduceLogSum"):
        return b.aten("sum.dim_IntList", x, dims, keepdims, dtype=dtype)
    if op == "ReduceMean":
        if not dtype.is_floating_point:
            mean = b.aten("mean.dim", convert(b, x, torch.float64), dims, keepdims, dtype=torch.float64)
            return convert(b, mean, dtype)
        return b.aten("mean.dim", x, dims, keepdims, dtype=dtype)
    if op == "ReduceProd":
        return _plain(b, x, dims, keepdims, 1, lambda acc, x: acc * x)
    if op == "ReduceMax":
        return b.aten("amax", x, dims, keepdims, dtype=dtype)
    if op == "ReduceMin":
        return b.aten("amin", x, dims, keepdims, dtype=dtype)
    if op == "ReduceL1":
        return _plain(b, x, dims, keepdims, 0, lambda acc, x: acc + scalar.absolute(x))
    if op in ("ReduceSumSquare", "ReduceL2"):
        if op == "ReduceL2" and not dtype.is_floating_point:
            wide = _plain(b, convert(b, x, torch.float64), dims, keepdims, 0, lambda acc, x: acc + x * x)
            return convert(b, b.aten("sqrt", wide, dtype=torch.float64), dtype)
        return _plain(b, x, dims, keepdims, 0, lambda acc, x: acc + x * x)
    assert op == "ReduceLogSumExp"
    compute = dtypes.opmath(dtype) if dtype.is_floating_point else torch.float64
    wide = convert(b, x, compute)
    top = b.aten("amax", wide, dims, True, dtype=compute)
    # A row of nothing but one infinity has that as its result.
    top = b.elementwise(compute, [top], lambda m: scalar.select(scalar.absolute(m).eq(float("inf")), m.like(0), m))
    total = b.reduce([wide, top], dims, compute, 0, lambda acc, x, m: acc + scalar.exp(x - m), keepdim=True)
    result = b.elementwise(compute, [total, top], lambda s, m: scalar.log(s) + m)
    if not keepdims:
        reduced = {d % x.rank for d in dims}
        result = b.reshape(result, [d for i, d in enumerate(x.dims) if i not in reduced])
    return convert(b, result, dtype)


def _plain(b: OnnxBuilder, x: Tensor, dims: list[int], keepdims: bool, neutral: int, fn: Any) -> Tensor:
    compute = dtypes.opmath(x.dtype)
    folded = b.reduce([x], dims, compute, neutral, lambda acc, x: fn(acc, x.to(compute)), keepdim=keepdims)
    return convert(b, folded, x.dtype)


def _finish(b: OnnxBuilder, op: str, x: Tensor) -> Tensor:
    if op == "ReduceLogSum":
        if not x.dtype.is_floating_point:
            return convert(b, b.aten("log", convert(b, x, torch.float64), dtype=torch.float64), x.dtype)
        return b.aten("log", x, dtype=x.dtype)
    if op == "ReduceL2" and x.dtype.is_floating_point:
        return b.aten("sqrt", x, dtype=x.dtype)
    return x


for _op in "L1 L2 LogSum LogSumExp Max Mean Min Prod Sum SumSquare".split():
    _register(f"Reduce{_op}")


def _register_position(op: str, name: str) -> None:
    @lowers(f"onnx.{op}")
    def rule(b: OnnxBuilder, x: Tensor, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Tensor:
        if not select_last_index:
            return b.aten(name, x, axis, bool(keepdims), dtype=torch.int64)
        axis %= max(x.rank, 1)
        best = b.aten("amax" if name == "argmax" else "amin", x, [axis], True, dtype=x.dtype)
        return b.reduce(
            [x, best],
            [axis],
            torch.int64,
            -1,
            lambda acc, x, m: scalar.maximum(acc, scalar.select(x.eq(m), scalar.loop_index(axis), -1)),
            keepdim=bool(keepdims),
        )


_register_position("ArgMax", "argmax")
_register_position("ArgMin", "argmin")


@lowers("onnx.CumSum")
@known(1)
def cumsum(b: OnnxBuilder, x: Tensor, axis: Any, exclusive: int = 0, reverse: int = 0) -> Tensor:
    """Running sums along an axis."""
    from .slices import flip

    along = integers(axis)
    assert along is not None
    dim = along[0] % x.rank
    ordered = flip(b, x, dim) if reverse else x
    total = b.aten("cumsum", ordered, dim, dtype=x.dtype)
    if exclusive:
        total = b.elementwise(x.dtype, [total, ordered], lambda s, x: s - x)
    return flip(b, total, dim) if reverse else total
