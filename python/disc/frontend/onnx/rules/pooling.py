"""Pooling of ONNX: windows with padding of their own at each end of each dim."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from ... import dtypes, scalar
from ...registry import NotLowerable, lowers
from ...rules.pooling import Pool, Window, over, sliding
from ...scalar import Elem
from ...values import Extent, Tensor
from ..builder import OnnxBuilder, known
from .padding import pad

_I64 = torch.int64


class Grid:
    """The attributes that say which windows there are."""

    def __init__(
        self,
        b: OnnxBuilder,
        extents: Sequence[Extent],
        kernel: Sequence[int],
        strides: Sequence[int] | None = None,
        pads: Sequence[int] | None = None,
        dilations: Sequence[int] | None = None,
        auto_pad: str = "NOTSET",
    ) -> None:
        count = len(extents)
        self.b, self.kernel = b, list(kernel)
        self.strides = list(strides or [1] * count)
        self.dilations = list(dilations or [1] * count)
        self.low: list[Extent] = [0] * count
        self.high: list[Extent] = [0] * count
        if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
            for i, extent in enumerate(extents):
                self.low[i], self.high[i] = self._same(i, extent, auto_pad == "SAME_UPPER")
        elif auto_pad == "NOTSET" and pads:
            self.low, self.high = list(pads[:count]), list(pads[count:])

    def _same(self, i: int, extent: Extent, upper: bool) -> tuple[Extent, Extent]:
        """Padding for extent / stride windows, rounded up; an odd element at the upper or lower end."""
        b, stride = self.b, self.strides[i]
        reach = self.dilations[i] * (self.kernel[i] - 1) + 1
        # Static where there is a window for each element.
        total: Extent = reach - 1
        if stride != 1:
            count = b.floordiv(b.add(extent, stride - 1), stride)
            total = b.maximum(b.sub(b.add(b.mul(b.sub(count, 1), stride), reach), extent), 0)
        half = b.floordiv(total, 2)
        return (half, b.sub(total, half)) if upper else (b.sub(total, half), half)

    def cut(self, i: int, extent: Extent) -> bool:
        """Whether a window may reach past an input that is smaller than it, with its padding."""
        low, high, reach = self.low[i], self.high[i], self.dilations[i] * (self.kernel[i] - 1) + 1
        if self.strides[i] == 1 or not isinstance(low, int) or not isinstance(high, int):
            return False
        return (extent if isinstance(extent, int) else 1) + low + high < reach

    def windows(self, extents: Sequence[Extent], ceil_mode: bool) -> list[Window]:
        """As the pooling of torch takes them."""
        return [self._along(i, extent, ceil_mode) for i, extent in enumerate(extents)]

    def _along(self, i: int, extent: Extent, ceil_mode: bool) -> Window:
        b, low, high, dilation = self.b, self.low[i], self.high[i], self.dilations[i]
        op = b.op_name.removeprefix("onnx.")
        reach = dilation * (self.kernel[i] - 1) + 1
        cut = self.cut(i, extent) and not ceil_mode
        window = sliding(
            b, extent, self.kernel[i], self.strides[i], low, high, dilation, ceil_mode or cut, required=False
        )
        if not isinstance(low, int) or not isinstance(high, int):
            return window
        if cut:
            window = replace(window, size=self._cut_count(i, extent, reach))
        if low + high - reach < -self.strides[i]:
            b.require_at_most(0, window.size, f"{op}: its input is smaller than a window")
        return window

    def _cut_count(self, i: int, extent: Extent, reach: int) -> Extent:
        """The number of windows, as in ONNX Runtime: an input that is less than one stride too small has one.

        It rounds the quotient towards zero; with the standard's floor there would be no window.
        """
        b, stride = self.b, self.strides[i]
        padding = int(self.low[i]) + int(self.high[i])  # type: ignore[call-overload]
        if isinstance(extent, int):
            return int((extent + padding - reach) / stride) + 1
        room = b.add(extent, padding - reach)
        if 1 + padding - reach > -stride:
            return b.maximum(b.floordiv(b.add(room, stride), stride), 1)
        short = b.minimum(b.floordiv(b.add(room, stride - 1), stride), 0)
        return b.add(b.maximum(b.floordiv(room, stride), short), 1)


def _pool(b: OnnxBuilder, x: Tensor, kernel: Sequence[int], ceil_mode: int, **grid: Any) -> tuple[Pool, Grid]:
    spatial = x.rank - 2
    if spatial < 1:
        raise NotLowerable(f"an operand of {x.rank} dims")
    where = Grid(b, x.dims[2:], kernel, **grid)
    return Pool(b, x, lambda extents: where.windows(extents, bool(ceil_mode)), spatial), where


@lowers("onnx.MaxPool")
def max_pool(
    b: OnnxBuilder, x: Tensor, kernel_shape: Sequence[int], ceil_mode: int = 0, storage_order: int = 0, **grid: Any
) -> Any:
    """The largest element of each window; also where in the whole tensor it is."""
    pool, _ = _pool(b, x, kernel_shape, ceil_mode, **grid)
    best = pool.maximum()
    if len(b.results) == 1:
        return pool.done(best)
    spatial = x.dims[2:]

    def flat(at: Elem) -> Elem:
        if storage_order:
            # The first of the spatial dims is the densest.
            total, rest = scalar.constant(0, _I64), at
            sizes = [scalar.from_extent(d, _I64) for d in spatial]
            for i in reversed(range(len(sizes))):
                stride = math.prod(sizes[:i], start=scalar.constant(1, _I64))
                total = total + scalar.fmod(rest, sizes[i]) * stride
                rest = scalar.trunc_divide(rest, sizes[i])
            at = total
        image = scalar.loop_index(0) * scalar.from_extent(x.dims[1], _I64) + scalar.loop_index(1)
        return image * scalar.from_extent(b.product(spatial), _I64) + at

    return pool.done(best), b.map(_I64, [pool.done(pool.position_of(best))], flat)


def _sum_of(compute: torch.dtype, fn: Callable[[Elem], Elem]) -> Any:
    def step(acc: Elem, x: Elem, inside: Elem | None, _: list[Elem]) -> Elem:
        x = fn(x.to(compute))
        return acc + (x if inside is None else scalar.select(inside, x, 0))

    return step


@lowers("onnx.AveragePool")
def average_pool(
    b: OnnxBuilder, x: Tensor, kernel_shape: Sequence[int], ceil_mode: int = 0, count_include_pad: int = 0, **grid: Any
) -> Tensor:
    """The mean of each window: of what is inside the input, or inside its padding."""
    pool, where = _pool(b, x, kernel_shape, ceil_mode, **grid)
    compute = dtypes.opmath(x.dtype)
    padded = any(p != 0 for p in (*where.low, *where.high))
    cut = any(where.cut(i, extent) for i, extent in enumerate(x.dims[2:]))

    def divide(acc: Elem, at: list[Elem]) -> Elem:
        if not ceil_mode and not cut and (count_include_pad or not padded):
            return over(acc, math.prod(where.kernel))
        count = scalar.constant(1, _I64)
        for i, extent in enumerate(x.dims[2:]):
            low = scalar.from_extent(where.low[i], _I64)
            size, start = scalar.from_extent(extent, _I64), at[i] * where.strides[i] - low
            if count_include_pad:
                size, start = size + low + scalar.from_extent(where.high[i], _I64), start + low
            dilation = where.dilations[i]
            first = scalar.trunc_divide(scalar.maximum(-start, 0) + (dilation - 1), dilation)
            last = scalar.minimum(scalar.trunc_divide(size - 1 - start, dilation) + 1, where.kernel[i])
            count = count * (last - first)
        return over(acc, count)

    return pool.done(pool.fold(compute, 0, _sum_of(compute, lambda x: x), divide, x.dtype))


@lowers("onnx.LpPool")
def lp_pool(
    b: OnnxBuilder, x: Tensor, kernel_shape: Sequence[int], ceil_mode: int = 0, p: int = 2, **grid: Any
) -> Tensor:
    """The p-norm of each window."""
    pool, _ = _pool(b, x, kernel_shape, ceil_mode, **grid)
    compute = dtypes.opmath(x.dtype)
    step = _sum_of(compute, lambda x: scalar.power(scalar.absolute(x), p))

    def root(total: Elem, _: list[Elem]) -> Elem:
        return scalar.power(total, 1.0 / p)

    return pool.done(pool.fold(compute, 0, step, root, x.dtype))


@lowers("onnx.GlobalAveragePool")
def global_average_pool(b: OnnxBuilder, x: Tensor) -> Tensor:
    """The mean of each channel."""
    return b.aten("mean.dim", x, list(range(2, x.rank)), True, dtype=x.dtype)


@lowers("onnx.GlobalMaxPool")
def global_max_pool(b: OnnxBuilder, x: Tensor) -> Tensor:
    """The maximum of each channel."""
    return b.aten("amax", x, list(range(2, x.rank)), True, dtype=x.dtype)


@lowers("onnx.GlobalLpPool")
def global_lp_pool(b: OnnxBuilder, x: Tensor, p: int = 2) -> Tensor:
    """The p-norm of each channel."""
    return b.aten("linalg_vector_norm", x, p, list(range(2, x.rank)), True, dtype=x.dtype)


@lowers("onnx.LRN")
def lrn(b: OnnxBuilder, x: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0) -> Tensor:
    """x over a power of the mean square of ``size`` channels around it."""
    compute = dtypes.opmath(x.dtype)
    squares = b.map(compute, [x], lambda x: x.to(compute) * x.to(compute))
    # The channels as the one dim that windows run along.
    rows = b.reshape(squares, [x.dims[0], 1, x.dims[1], b.product(x.dims[2:])])
    before = (size - 1) // 2
    pool, _ = _pool(b, rows, [size, 1], 0, pads=[before, 0, size - 1 - before, 0])
    total = pool.done(pool.fold(compute, 0, _sum_of(compute, lambda x: x)))
    near = b.reshape(total, x.dims)
    return b.elementwise(
        x.dtype, [x, near], lambda x, s: x / scalar.power(s * (alpha / size) + bias, beta), compute=compute
    )


@lowers("onnx.MaxUnpool")
@known(2)
def max_unpool(
    b: OnnxBuilder,
    x: Tensor,
    indices: Tensor,
    shape: Any = None,
    kernel_shape: Sequence[int] = (),
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Tensor:
    """Zeros, but for the elements of x at their places in the whole tensor that they were the maxima of."""
    spatial = x.rank - 2
    each = list(strides or [1] * spatial)
    cut = list(pads or [0] * (2 * spatial))
    dims: list[Extent] = [*x.dims[:2]]
    for i, extent in enumerate(x.dims[2:]):
        dims.append(b.add(b.mul(b.sub(extent, 1), each[i]), kernel_shape[i] - cut[i] - cut[spatial + i]))
    count, size = b.product(x.dims), b.product(dims)
    places, zeros = b.reshape(indices, [count]), b.full([size], 0, x.dtype)
    flat = b.aten("scatter.src", zeros, 0, places, b.reshape(x, [count]), dtype=x.dtype, rank=1)
    whole = b.reshape(flat, dims)
    if shape is None:
        return whole
    # A larger shape has zeros behind; places count in the tensor without it.
    after = [b.sub(wanted, have) for wanted, have in zip(b.extents(shape), dims, strict=True)]
    return pad(b, whole, [0] * x.rank, after)
