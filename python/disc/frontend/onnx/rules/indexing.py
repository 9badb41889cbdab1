"""Operators of ONNX that write by index, or whose extents depend on data."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch_mlir import ir
from torch_mlir.dialects import arith, linalg

from ... import scalar
from ...registry import NotLowerable, lowers
from ...scalar import Elem
from ...values import Extent, Tensor, normalize_dim
from ..builder import OnnxBuilder, known
from ..known import integers

_REDUCTIONS = {"add": "sum", "mul": "prod", "min": "amin", "max": "amax"}


def _scatter(b: OnnxBuilder, x: Tensor, dim: int, index: Tensor, updates: Tensor, reduction: str) -> Tensor:
    if reduction == "none":
        return b.aten("scatter.src", x, dim, index, updates, dtype=x.dtype, rank=x.rank)
    return b.aten(
        "scatter_reduce.two", x, dim, index, updates, _REDUCTIONS[reduction], True, dtype=x.dtype, rank=x.rank
    )


@lowers("onnx.ScatterElements", "onnx.Scatter")
def scatter_elements(
    b: OnnxBuilder, x: Tensor, indices: Tensor, updates: Tensor, axis: int = 0, reduction: str = "none"
) -> Tensor:
    """x with x[indices[i][j]][j] = updates[i][j], for axis 0 of two."""
    dim = normalize_dim(axis, x.rank)

    def wrap(i: Elem) -> Elem:
        i = i.to(torch.int64)
        return scalar.select(i < 0, i + scalar.from_extent(x.dims[dim], torch.int64), i)

    return _scatter(b, x, dim, b.map(torch.int64, [indices], wrap), updates, reduction)


@lowers("onnx.ScatterND")
def scatter_nd(b: OnnxBuilder, x: Tensor, indices: Tensor, updates: Tensor, reduction: str = "none") -> Tensor:
    """x with slices replaced at the places that the last dim of ``indices`` spells."""
    depth = indices.dims[-1]
    if not isinstance(depth, int):
        raise NotLowerable("the last extent of its indices is dynamic")
    lead = list(indices.dims[:-1])
    rest = list(x.dims[depth:])
    rows, width = b.product(x.dims[:depth]), b.product(rest)

    def place() -> Elem:
        loops = [linalg.IndexOp(d).result for d in range(len(lead))]
        total = scalar.constant(0, torch.int64)
        for k in range(depth):
            at = arith.ConstantOp(ir.IndexType.get(), k).result
            index = b.checked_index(b.extract(indices, [*loops, at]), x.dims[k], wrap=True)
            total = total * scalar.from_extent(x.dims[k], torch.int64) + index
        return total

    places = b.generic([], [], lead, torch.int64, place)
    count = b.product(lead)
    column = b.reshape(places, [count, 1])
    flat = _scatter(
        b,
        b.reshape(x, [rows, width]),
        0,
        b.broadcast(column, [count, width]),
        b.reshape(updates, [count, width]),
        reduction,
    )
    return b.reshape(flat, x.dims)


@lowers("onnx.TensorScatter")
def tensor_scatter(
    b: OnnxBuilder,
    cache: Tensor,
    update: Tensor,
    starts: Tensor | None = None,
    axis: int = -2,
    mode: str = "linear",
) -> Tensor:
    """A cache with an update of each sample written where it starts; circular ones go on at the beginning."""
    dim = normalize_dim(axis, cache.rank)
    room, length = (scalar_extent(t.dims[dim]) for t in (cache, update))

    def body() -> Elem:
        at: list[Any] = [scalar.loop_index(d) for d in range(cache.rank)]
        start = at[0] * 0 if starts is None else b.extract(starts, [at[0]]).to(torch.int64)
        place = at[dim] - start
        if mode == "circular":
            place = scalar.remainder(place, room())
        inside = (place >= 0) & (place < length())
        old = b.extract(cache, at)
        at[dim] = scalar.minimum(scalar.maximum(place, 0), length() - 1)
        return scalar.select(inside, b.extract(update, at), old)

    return b.generic([], [], cache.dims, cache.dtype, body)


def scalar_extent(extent: Extent) -> Callable[[], Elem]:
    """An extent as an element, where a body uses it."""
    return lambda: scalar.from_extent(extent, torch.int64)


@lowers("onnx.Col2Im")
@known(1, 2)
def col2im(
    b: OnnxBuilder,
    x: Tensor,
    image: Any,
    block: Any,
    dilations: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Tensor:
    """The sums of blocks, laid where convolution would read them."""
    sizes, kernel = b.extents(image), integers(block)
    assert kernel is not None
    spatial = len(kernel)
    steps, reach, cut = strides or [1] * spatial, dilations or [1] * spatial, pads or [0] * (2 * spatial)
    counts = []
    for i, size in enumerate(sizes):
        room = b.add(size, cut[i] + cut[spatial + i] - reach[i] * (kernel[i] - 1) - 1)
        counts.append(b.add(b.floordiv(room, steps[i]), 1))
    channels = b.floordiv(x.dims[1], math.prod(kernel))
    blocks = b.reshape(x, [x.dims[0], channels, *kernel, *counts])

    def body() -> Elem:
        item, channel, *at = (scalar.loop_index(d) for d in range(2 + spatial))
        total: Elem | None = None
        for taps in itertools.product(*(range(k) for k in kernel)):
            inside, places = scalar.constant(True, torch.bool), []
            for i, tap in enumerate(taps):
                from_start = at[i] + (cut[i] - tap * reach[i])
                place = scalar.trunc_divide(from_start, steps[i])
                count = scalar.from_extent(counts[i], torch.int64)
                inside = inside & (from_start >= 0) & (place * steps[i]).eq(from_start) & (place < count)
                places.append(scalar.minimum(scalar.maximum(place, 0), count - 1))
            element = b.extract(blocks, [item, channel, *(scalar.constant(t, torch.int64) for t in taps), *places])
            term = scalar.select(inside, element, 0)
            total = term if total is None else total + term
        assert total is not None
        return total

    return b.generic([], [], [x.dims[0], channels, *sizes], x.dtype, body)


@lowers("onnx.ArrayFeatureExtractor")
def array_feature_extractor(b: OnnxBuilder, x: Tensor, indices: Tensor) -> Tensor:
    """The elements of the last dim that ``indices`` list."""
    flat = b.reshape(indices, [b.product(indices.dims)])
    rows = x if x.rank > 1 else b.reshape(x, [1, x.dims[0]])
    return b.aten("index_select", rows, rows.rank - 1, flat, dtype=x.dtype, rank=rows.rank)


@lowers("onnx.NonZero")
def nonzero(b: OnnxBuilder, x: Tensor) -> Tensor:
    """The indices of what is not zero, one column for each."""
    return b.permute(b.aten("nonzero", x, dtype=torch.int64, rank=2), [1, 0])


@lowers("onnx.Compress")
def compress(b: OnnxBuilder, x: Tensor, condition: Tensor, axis: int | None = None) -> Tensor:
    """The slices of a dim at which the condition, which may be shorter, holds."""
    if axis is None:
        x, axis = b.reshape(x, [b.product(x.dims)]), 0
    dim = normalize_dim(axis, x.rank)
    rows = b.aten("nonzero", condition, dtype=torch.int64, rank=2)
    return b.aten("index_select", x, dim, b.reshape(rows, [rows.dims[0]]), dtype=x.dtype, rank=x.rank)


@lowers("onnx.Unique")
def unique(b: OnnxBuilder, x: Tensor, axis: int | None = None, sorted: int = 1) -> Any:
    """The distinct elements (or slices), where they first are, which is which, and how many of each."""
    i64 = torch.int64
    types = [x.dtype, i64, i64]
    if axis is None:
        flat = b.reshape(x, [b.product(x.dims)])
        values, inverse, counts = b.aten("_unique2", flat, True, True, True, dtype=types, rank=1)
        dim = 0
    else:
        dim = normalize_dim(axis, x.rank)
        values, inverse, counts = b.aten("unique_dim", x, dim, True, True, True, dtype=types, rank=x.rank)
    number, length = counts.dims[0], inverse.dims[0]
    nowhere = torch.iinfo(i64).max
    which = b.broadcast(inverse, [number, length])
    first = b.reduce(
        [which],
        [1],
        i64,
        nowhere,
        lambda acc, i: scalar.minimum(acc, scalar.select(i.eq(scalar.loop_index(0)), scalar.loop_index(1), nowhere)),
    )
    if sorted:
        return values, first, inverse, counts
    # In the order of their first places: the rank of each, and the one of each rank.
    rows, columns = b.broadcast(first, [number, number], [0]), b.broadcast(first, [number, number], [1])
    rank = b.reduce([rows, columns], [1], i64, 0, lambda acc, mine, other: acc + (other < mine).to(i64))
    ranks = b.broadcast(rank, [number, number], [1])
    order = b.reduce(
        [ranks],
        [1],
        i64,
        0,
        lambda acc, r: acc + scalar.select(r.eq(scalar.loop_index(0)), scalar.loop_index(1), 0),
    )

    def pick(y: Tensor, along: int) -> Tensor:
        return b.aten("index_select", y, along, order, dtype=y.dtype, rank=y.rank)

    moved = b.aten("index_select", rank, 0, inverse, dtype=i64, rank=1)
    return pick(values, dim), pick(first, 0), moved, pick(counts, 0)


@lowers("onnx.CumProd")
@known(1)
def cumprod(b: OnnxBuilder, x: Tensor, axis: Any, exclusive: int = 0, reverse: int = 0) -> Tensor:
    """Running products along an axis."""
    from .padding import pad
    from .slices import flip

    dim = normalize_dim((integers(axis) or [0])[0], x.rank)
    ordered = flip(b, x, dim) if reverse else x
    if exclusive:
        before: list[Extent] = [0] * x.rank
        before[dim] = 1
        after: list[Extent] = [0] * x.rank
        after[dim] = -1
        ordered = pad(b, ordered, before, after, fill=1)
    total = b.aten("cumprod", ordered, dim, None, dtype=x.dtype, rank=x.rank)
    return flip(b, total, dim) if reverse else total


@lowers("onnx.GridSample")
def grid_sample(
    b: OnnxBuilder,
    x: Tensor,
    grid: Tensor,
    mode: str = "linear",
    padding_mode: str = "zeros",
    align_corners: int = 0,
) -> Tensor:
    """x read at the places of a grid."""
    modes = {"linear": 0, "bilinear": 0, "nearest": 1, "cubic": 2, "bicubic": 2}
    paddings = {"zeros": 0, "border": 1, "reflection": 2}
    name = {4: "grid_sampler_2d", 5: "grid_sampler_3d"}.get(x.rank)
    if name is None:
        raise NotLowerable(f"an operand of {x.rank} dims")
    return b.aten(name, x, grid, modes[mode], paddings[padding_mode], bool(align_corners), dtype=x.dtype, rank=x.rank)


@lowers("onnx.Einsum")
def einsum(b: OnnxBuilder, *xs: Tensor, equation: str) -> Tensor:
    """Sums of products over labels; a label is one loop."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    labels: dict[str, Extent] = {}
    extended = [_labels(term, x.rank) for term, x in zip(terms, xs, strict=True)]
    for term, x in zip(extended, xs, strict=True):
        for label, extent in zip(term, x.dims, strict=True):
            if label in labels:
                b.require_equal(labels[label], extent, "einsum: extents of one label differ")
            else:
                labels[label] = extent
    if arrow:
        dots = max((sum(label.isdigit() for label in term) for term in extended), default=0)
        out = _labels(right, len(right.replace("...", "")) + dots)
    else:
        once = [label for label in labels if sum(term.count(label) for term in extended) == 1]
        out = sorted((label for label in labels if label.isdigit()), reverse=True)
        out += sorted(label for label in once if not label.isdigit())
    summed = [label for label in labels if label not in out]
    order = [*out, *summed]
    domain = [labels[label] for label in order]
    dtype = xs[0].dtype
    plain = all(len(set(term)) == len(term) for term in extended)
    if len(xs) == 2 and len(summed) == 1 and plain and all(summed[0] in term for term in extended):
        loops = [[order.index(label) for label in term] for term in extended]
        product = b.contract(xs[0], xs[1], loops[0], loops[1], domain)
        return b.map(dtype, [product], lambda p: p.to(dtype), dims=product.dims)

    def body() -> Elem:
        result = None
        for term, x in zip(extended, xs, strict=True):
            element = b.extract(x, [linalg.IndexOp(order.index(label)).result for label in term])
            result = element if result is None else result * element
        assert result is not None
        return result

    full = b.generic([], [], domain, dtype, body)
    if not summed:
        return full
    return b.aten("sum.dim_IntList", full, list(range(len(out), len(order))), False, dtype=dtype, rank=len(out))


def _labels(term: str, rank: int) -> list[str]:
    """The label of each dim; those of an ellipsis are digits, counted from its end."""
    if "..." not in term:
        return list(term)
    before, _, after = term.partition("...")
    count = rank - len(before) - len(after)
    return [*before, *(str(i) for i in reversed(range(count))), *after]
