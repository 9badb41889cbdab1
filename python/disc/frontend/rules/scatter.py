"""Writing at places that tensors tell: scatter, index_put, index_add and their kin.

All are the function ``scatter`` (lib/Runtime/Functions/Scatter.cpp).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .. import dtypes, scalar
from ..builder import Builder
from ..registry import lowers
from ..values import Extent, Number, Tensor, is_one, normalize_dim
from .calls import PARTS, dtype_code
from .common import number, require_covered
from .elementwise import convert
from .masks import expand_masks, flatten_mask
from .strided import require_inside, stored_order

_OPERATIONS = {"set": 0, "sum": 1, "prod": 2, "amin": 3, "amax": 4}


def update(
    b: Builder,
    x: Tensor,
    values: Tensor,
    indices: Sequence[tuple[Tensor, int]],
    loops: Sequence[int],
    operation: str,
    *,
    wrap: bool = False,
) -> Tensor:
    """``x`` with ``values`` set or folded in at ``indices``.

    ``values`` and each index have the extents of the loops. Loop ``i`` runs along dim ``loops[i]`` of ``x``, if that is
    not -1; the other dims of ``x`` have an index each: pairs (index of int64, dim).
    """
    fill: Number = 0 if x.splat is None else x.splat
    if not dtypes.is_float(x.dtype):
        fill = int(fill)
    else:
        fill = float(fill)
    own = [] if x.splat is not None else [x]
    return b.call(
        "scatter",
        [*own, convert(b, values, x.dtype), *(index for index, _ in indices)],
        [(x.dims, x.dtype)],
        config=[
            dtype_code(x.dtype),
            _OPERATIONS[operation],
            len(own),
            fill,
            int(wrap),
            PARTS,
            len(loops),
            len(indices),
            *loops,
            *(dim for _, dim in indices),
        ],
        tasks=PARTS,
        in_place=bool(own),
    )[0]


def _value(b: Builder, value: Any, dtype: torch.dtype, dims: Sequence[Extent]) -> Tensor:
    """A number, or a tensor of one element, repeated to ``dims``."""
    if isinstance(value, Tensor):
        one = b.reshape(convert(b, value, dtype), [])
    else:
        value = number(value)
        one = b.map(dtype, [value], lambda v: v, dims=[], number_dtype=dtype)
    return b.broadcast(one, dims) if dims else one


def _neutral(b: Builder, operation: str, dtype: torch.dtype, dims: Sequence[Extent]) -> Tensor:
    value: Number = {"sum": 0, "prod": 1, "amin": dtypes.highest(dtype), "amax": dtypes.lowest(dtype)}[operation]
    return _value(b, value, dtype, dims)


# -- along one dim, an index for each element ------------------------------------------------------


def _scatter(b: Builder, x: Tensor, dim: int, index: Tensor, src: Any, operation: str) -> Tensor:
    shape = x.dims
    if x.rank == 0:
        x = b.reshape(x, [1])
    if index.rank == 0:
        index = b.reshape(index, [1])
    dim = normalize_dim(dim, x.rank)
    if isinstance(src, Tensor):
        if src.rank == 0:
            src = b.reshape(src, [1])
        if index.rank == src.rank:
            require_covered(b, index, src, "what is written")
        for d in range(src.rank):
            src = b.slice(src, d, 0, index.dims[d])
    else:
        src = _value(b, src, x.dtype, index.dims)
    if index.rank != x.rank:
        # An empty index has any rank, and does nothing.
        return b.reshape(x, shape)
    require_covered(b, index, x, "the tensor that is written to", but=dim)
    loops = [-1 if d == dim else d for d in range(x.rank)]
    return b.reshape(update(b, x, src, [(convert(b, index, torch.int64), dim)], loops, operation), shape)


@lowers("torch.aten.scatter.src", "torch.aten.scatter.value")
def scatter(b: Builder, x: Tensor, dim: int, index: Tensor, src: Any) -> Tensor:
    """result[index[i][j]][j] = src[i][j], for dim 0 of two."""
    return _scatter(b, x, dim, index, src, "set")


@lowers("torch.aten.scatter.reduce", "torch.aten.scatter.value_reduce")
def scatter_with(b: Builder, x: Tensor, dim: int, index: Tensor, src: Any, reduce: str) -> Tensor:
    """The same, adding or multiplying."""
    return _scatter(b, x, dim, index, src, {"add": "sum", "multiply": "prod"}[reduce])


@lowers("torch.aten.scatter_add")
def scatter_add(b: Builder, x: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """result[index[i][j]][j] += src[i][j], for dim 0 of two."""
    return _scatter(b, x, dim, index, src, "sum")


@lowers("torch.aten.scatter_reduce.two")
def scatter_reduce(
    b: Builder, x: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, include_self: bool = True
) -> Tensor:
    """Folds ``src`` into the elements that ``index`` names, of which the old values count or not."""
    if not include_self:
        neutral = _neutral(b, "sum" if reduce == "mean" else reduce, x.dtype, [])
        started = _scatter(b, x, dim, index, b.broadcast(neutral, index.dims) if index.rank else neutral, "set")
    else:
        started = x
    result = _scatter(b, started, dim, index, src, "sum" if reduce == "mean" else reduce)
    if reduce != "mean":
        return result
    count = b.full(x.dims, int(include_self), torch.int64)
    count = _scatter(b, count, dim, index, 1, "sum")
    return _divided(b, result, count)


def _divided(b: Builder, total: Tensor, count: Tensor) -> Tensor:
    """total / count where something was counted; integers are rounded down."""
    compute = dtypes.opmath(total.dtype)

    def divide(total: scalar.Elem, count: scalar.Elem) -> scalar.Elem:
        count = scalar.maximum(count, 1).to(compute)
        return total.to(compute) / count if dtypes.is_float(compute) else scalar.floor_divide(total, count)

    return b.map(total.dtype, [total, count], divide)


# -- along one dim, an index for each slice --------------------------------------------------------


def _index_update(b: Builder, x: Tensor, dim: int, index: Tensor, source: Any, operation: str, wrap: bool) -> Tensor:
    shape = x.dims
    if x.rank == 0:
        x = b.reshape(x, [1])
    if index.rank == 0:
        index = b.reshape(index, [1])
    dim = normalize_dim(dim, x.rank)
    dims = [*x.dims[:dim], index.dims[0], *x.dims[dim + 1 :]]
    if not isinstance(source, Tensor):
        source = _value(b, source, x.dtype, dims)
    elif source.rank == 0:
        source = b.broadcast(source, dims)
    else:
        for have, want in zip(source.dims, dims, strict=True):
            b.require_equal(have, want, "the source's extents differ from those that the index selects")
    loops = [-1 if d == dim else d for d in range(x.rank)]
    indices = [(b.broadcast(convert(b, index, torch.int64), dims, [dim]), dim)]
    return b.reshape(update(b, x, source, indices, loops, operation, wrap=wrap), shape)


@lowers("torch.aten.index_add")
def index_add(b: Builder, x: Tensor, dim: int, index: Tensor, source: Tensor, alpha: Number = 1) -> Tensor:
    """result[index[i]] += alpha * source[i], for dim 0."""
    if alpha != 1:
        source = b.elementwise(x.dtype, [source], lambda s: s * alpha)
    return _index_update(b, x, dim, index, source, "sum", wrap=False)


@lowers("torch.aten.index_copy")
def index_copy(b: Builder, x: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """result[index[i]] = source[i], for dim 0."""
    return _index_update(b, x, dim, index, source, "set", wrap=False)


@lowers("torch.aten.index_fill.int_Scalar", "torch.aten.index_fill.int_Tensor")
def index_fill(b: Builder, x: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
    """result[index[i]] = value, for dim 0."""
    return _index_update(b, x, dim, index, value, "set", wrap=True)


@lowers("torch.aten.index_reduce")
def index_reduce(
    b: Builder, x: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, include_self: bool = True
) -> Tensor:
    """Folds source[i] into result[index[i]], for dim 0."""
    operation = "sum" if reduce == "mean" else reduce
    started = x
    if not include_self:
        started = _index_update(b, x, dim, index, _neutral(b, operation, x.dtype, []), "set", wrap=False)
    result = _index_update(b, started, dim, index, source, operation, wrap=False)
    if reduce != "mean":
        return result
    ones = b.full([], 1, torch.int64)
    count = _index_update(b, b.full(x.dims, int(include_self), torch.int64), dim, index, ones, "sum", wrap=False)
    return _divided(b, result, count)


# -- any dims --------------------------------------------------------------------------------------


@lowers("torch.aten.index_put", "torch.aten._unsafe_index_put", "torch.aten._index_put_impl")
def index_put(
    b: Builder, x: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False, *_: Any
) -> Tensor:
    """x[i, :, j] = values, or += values: the index tensors are broadcast together, values to what they select."""
    if all(index is None for index in indices):
        return b.elementwise(x.dtype, [x, values], lambda x, v: x + v if accumulate else v)
    masked = _masked_fill(b, x, indices, values, accumulate)
    if masked is not None:
        return masked
    whole = x.dims
    x, indices = flatten_mask(b, x, indices)
    indices = expand_masks(b, x, indices, None)
    slots = [*indices, *[None] * (x.rank - len(indices))]
    given = {d: index for d, index in enumerate(slots) if index is not None}
    taken, tensors = list(given), list(given.values())
    shape = b.broadcast_dims([t.dims for t in tensors])
    at = taken[0] if taken == list(range(taken[0], taken[-1] + 1)) else 0
    rest = [d for d in range(x.rank) if d not in taken]
    before = [d for d in rest if d < at]
    after = [d for d in rest if d not in before]
    dims: list[Extent] = [*(x.dims[d] for d in before), *shape, *(x.dims[d] for d in after)]
    end = len(before) + len(shape)
    if not dims:
        # One element: a loop of one turn.
        dims, shape, end = [1], [1], 1
    places = [(b.broadcast(convert(b, t, torch.int64), dims, range(end - t.rank, end)), d) for d, t in given.items()]
    loops = [*before, *[-1] * len(shape), *after]
    operation = "sum" if accumulate else "set"
    while values.rank > len(dims) and is_one(values.dims[0]):
        values = b.reshape(values, values.dims[1:])
    return b.reshape(update(b, x, _spread(b, values, dims), places, loops, operation, wrap=True), whole)


def _spread(b: Builder, values: Tensor, dims: list[Extent]) -> Tensor:
    """``values`` broadcast to ``dims``, of which a call may show one that is dynamic to be 1: torch.export asks nothing
    of them."""
    skipped = len(dims) - values.rank
    may_be_one = [not isinstance(x, int) and x != dims[skipped + d] for d, x in enumerate(values.dims)]
    if not any(may_be_one):
        return b.broadcast(values, dims)
    for have, want, free in zip(values.dims, dims[skipped:], may_be_one, strict=True):
        if free:
            b.require_equal(b.mul(b.sub(have, 1), b.sub(have, want)), 0, "the values' extents differ from the indices'")

    def body() -> scalar.Elem:
        at = []
        for d, (extent, free) in enumerate(zip(values.dims, may_be_one, strict=True)):
            place = scalar.constant(0, torch.int64) if is_one(extent) else scalar.loop_index(skipped + d)
            at.append(scalar.minimum(place, scalar.from_extent(b.sub(extent, 1), torch.int64)) if free else place)
        return b.extract(values, at)

    return b.generic([], [], dims, values.dtype, body)


def _masked_fill(
    b: Builder, x: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool
) -> Tensor | None:
    """x[mask] = value, for one mask over the first dims and a value for all, or None."""
    mask = indices[0] if indices else None
    if mask is None or len(indices) != 1 or mask.dtype != torch.bool or not all(is_one(d) for d in values.dims):
        return None
    mask = b.reshape(mask, [*mask.dims, *[1] * (x.rank - mask.rank)])
    value = b.reshape(values, [])
    if accumulate:
        return b.map(x.dtype, [x, mask, value], lambda x, m, v: scalar.select(m, x + v, x), dims=x.dims)
    return b.map(x.dtype, [x, mask, value], lambda x, m, v: scalar.select(m, v, x), dims=x.dims)


@lowers("torch.aten.put")
def put(b: Builder, x: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """Sets elements by their row-major number."""
    flat = b.reshape(x, [b.product(x.dims)])
    numbers = b.reshape(index, [b.product(index.dims)])
    values = b.reshape(source, [b.product(source.dims)])
    b.require_equal(values.dims[0], numbers.dims[0], "the source has another number of elements than the index")
    operation = "sum" if accumulate else "set"
    return b.reshape(update(b, flat, values, [(numbers, 0)], [-1], operation, wrap=True), x.dims)


@lowers("torch.aten.as_strided_scatter")
def as_strided_scatter(
    b: Builder,
    x: Tensor,
    src: Tensor,
    size: Sequence[Extent],
    stride: Sequence[Extent],
    offset: Extent | None = None,
) -> Tensor:
    """``x``, dense, with the elements that as_strided addresses replaced."""
    order = list(stored_order(b, x))
    dims = list(src.dims) or [1]

    def body() -> scalar.Elem:
        place = scalar.from_extent(offset or 0, torch.int64)
        for d in range(src.rank):
            place = place + scalar.loop_index(d, torch.int64) * scalar.from_extent(stride[d], torch.int64)
        return place

    index = b.generic([], [], dims, torch.int64, body)
    stored = b.permute(x, order)
    flat = b.reshape(stored, [b.product(x.dims)])
    for have, want in zip(src.dims, size, strict=True):
        b.require_equal(have, want, "a strided view and what replaces it differ in size")
    require_inside(b, flat.dims[0], src.dims, stride, offset or 0)
    result = update(b, flat, b.reshape(src, dims), [(index, 0)], [-1] * len(dims), "set")
    return b.permute(b.reshape(result, stored.dims), [order.index(d) for d in range(x.rank)])
