"""Reading by index: ``tensor.extract`` in the body of a generic over the result."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch_mlir import ir
from torch_mlir.dialects import linalg

from .. import dtypes, scalar
from ..builder import Builder
from ..registry import lowers
from ..scalar import Elem
from ..values import Extent, Tensor, normalize_dim
from .calls import PARTS, dtype_code
from .common import read_if, require_covered
from .elementwise import convert
from .masks import expand_masks, flatten_mask
from .segments import closed, embedding_bags, fold_segments

_SUM, _MEAN, _MAX = range(3)


def _loop(dim: int) -> ir.Value:
    return linalg.IndexOp(dim).result


@lowers("torch.aten.embedding")
def embedding(b: Builder, weight: Tensor, indices: Tensor, *_: object) -> Tensor:
    """weight[indices]: one row for each index."""
    return _take(b, weight, 0, indices, wrap=False)


@lowers("torch.aten.embedding_bag")
def embedding_bag(
    b: Builder,
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    scale_grad_by_freq: bool,
    mode: int,
    sparse: bool,
    weights: Tensor | None,
    include_last_offset: bool,
    padding: int | None = None,
) -> tuple[Tensor | None, ...]:
    """The sum, mean or maximum of each bag's rows; bags of one size (from indices [bags, size]) are a reduction."""
    iota = offsets.iota
    if iota is None or iota.start != 0 or include_last_offset:
        rows = embedding(b, weight, indices)
        wrapped = padding + weight.dims[0] if padding is not None and padding < 0 else padding
        kept = None if padding is None else b.map(torch.bool, [indices], lambda i: i.ne(wrapped))
        result = embedding_bags(b, rows, offsets, mode, kept, weights, include_last_offset)
        bags = _bags(b, indices, offsets, mode, kept, include_last_offset)
        if mode == _MAX and not include_last_offset and 3 in _used(b):
            bags = *bags[:2], _maxima(b, rows, result, indices, offsets, bags[0], kept)
        return convert(b, result, weight.dtype), *bags
    shape: list[Extent] = [offsets.dims[0], iota.step]
    b.require_equal(indices.dims[0], b.product(shape), "embedding_bag: indices are not whole bags")
    indices = b.reshape(indices, shape)
    dtype = dtypes.opmath(weight.dtype)
    rows = embedding(b, weight, indices)
    counted = None
    if padding is not None:
        wrapped = padding + weight.dims[0] if padding < 0 else padding
        counted = b.map(torch.bool, [indices], lambda i: i.ne(wrapped))
    inputs, neutral = [rows], -math.inf if mode == _MAX else 0
    for other in (counted, weights and b.reshape(weights, shape)):
        inputs += [b.broadcast(b.unsqueeze(other, 2), rows.dims)] if other is not None else []

    def fold(acc: Elem, row: Elem, *others: Elem) -> Elem:
        row = row.to(dtype)
        if weights is not None:
            row = row * others[-1].to(dtype)
        if counted is not None:
            row = scalar.select(others[0], row, neutral)
        return scalar.maximum(acc, row) if mode == _MAX else acc + row

    result = b.reduce(inputs, [1], dtype, neutral, fold)
    if counted is not None and mode != _SUM:
        # A bag of nothing but padding is zero.
        size = b.reduce([counted], [1], torch.int64, 0, lambda n, c: n + c.to(torch.int64), keepdim=True)
        if mode == _MEAN:
            result = b.elementwise(dtype, [result, size], lambda s, n: s / scalar.maximum(n, 1).to(dtype))
        else:
            result = b.elementwise(dtype, [result, size], lambda m, n: scalar.select(n > 0, m, 0.0))
    elif mode == _MEAN:
        result = b.elementwise(dtype, [result], lambda s: s / float(iota.step))
    # The others are what autograd would want.
    return convert(b, result, weight.dtype), None, None, None


def _used(b: Builder) -> set[Any]:
    """The numbers of those of an operation's results that something uses."""
    node = b.node
    return {user.args[1] for user in node.users if user.target is operator.getitem and user.users} if node else set()


def _maxima(
    b: Builder,
    rows: Tensor,
    result: Tensor,
    indices: Tensor,
    offsets: Tensor,
    bag_of: Tensor | None,
    kept: Tensor | None,
) -> Tensor | None:
    """The index of the first row of each bag that has the maximum, for each column."""
    if bag_of is None:
        return None

    def place(row: Elem) -> Elem:
        number = scalar.loop_index(0)
        maximum = b.extract(result, [b.extract(bag_of, [number]), scalar.loop_index(1)])
        return scalar.select(row.eq(maximum), (0 - number).to(torch.float64), -math.inf)

    places = b.reshape(b.map(torch.float64, [rows], place), [1, *rows.dims])
    ends = closed(b, offsets, indices.dims[0])
    counted = None if kept is None else b.reshape(kept, [1, kept.dims[0]])
    first = fold_segments(b, places, b.reshape(ends, [1, ends.dims[0]]), counted, "max", empty=0.0)

    def index(number: Elem) -> Elem:
        return b.extract(indices, [scalar.maximum(0.0 - number, 0.0).to(torch.int64)])

    found = b.map(indices.dtype, [b.reshape(first, result.dims)], index)
    return convert(b, found, offsets.dtype)


def _bags(
    b: Builder, indices: Tensor, offsets: Tensor, mode: int, kept: Tensor | None, include_last: bool
) -> tuple[Tensor | None, ...]:
    """The bag of each index, the bags' sizes, and a placeholder for the rows of the maxima, which PyTorch's CPU kernel
    only has for maxima. Unused results and the rows of maxima are not computed."""
    used, values = _used(b), b.node_value
    results: list[Tensor | None] = [None, None, None]
    if not used & {1, 2, 3} or not isinstance(values, (tuple, list)):
        return tuple(results)
    begins = convert(b, offsets, torch.int64)
    if values[1].numel() == 0:
        results[0] = b.full([0], 0, torch.int64)
    else:
        numbers = b.map(torch.int64, [], lambda: scalar.loop_index(0), dims=[indices.dims[0]])
        after = b.call(
            "searchsorted",
            [begins, numbers],
            [(numbers.dims, torch.int64)],
            config=[dtype_code(torch.int64), 1, 0, PARTS],
            tasks=PARTS,
        )[0]
        results[0] = b.map(torch.int64, [after], lambda n: n - 1)
    if include_last:
        # PyTorch's meta kernel counts a bag too many.
        return tuple(results)
    if mode == _SUM:
        results[1:] = [b.full(b.as_exported([offsets.dims[0]], k), 0, torch.int64) for k in (2, 3)]
    else:
        ends = closed(b, begins, indices.dims[0])
        counted = None
        if kept is not None:
            counts = b.running_sum(convert(b, kept, torch.int64), 0)
            counted = b.concat([b.full([1], 0, torch.int64), counts], 0)

        def before(end: Elem) -> Elem:
            place = b.checked_index(end, b.add(indices.dims[0], 1), wrap=False)
            return place if counted is None else b.extract(counted, [place])

        def size() -> Elem:
            bag = scalar.loop_index(0)
            return before(b.extract(ends, [bag + 1])) - before(b.extract(ends, [bag]))

        results[1] = b.map(torch.int64, [], size, dims=[offsets.dims[0]])
        results[2] = None if mode == _MAX else results[1]
    converted = [None if x is None else convert(b, x, offsets.dtype) for x in results]
    return tuple(converted)


@lowers("torch.aten._embedding_bag", "torch.aten._embedding_bag_forward_only")
def embedding_bag_of_graph(
    b: Builder,
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding: int = -1,
) -> tuple[Tensor | None, ...]:
    """The operator that implements embedding_bag; a negative ``padding`` skips no index."""
    kept = padding if padding >= 0 else None
    return embedding_bag(
        b, weight, indices, offsets, scale_grad_by_freq, mode, sparse, weights, include_last_offset, kept
    )


@lowers("torch.aten.index_select")
def index_select(b: Builder, x: Tensor, dim: int, index: Tensor) -> Tensor:
    """The slices of ``dim`` that ``index`` lists."""
    if x.rank == 0:
        return x
    if index.rank == 0:
        index = b.reshape(index, [1])
    return _take(b, x, normalize_dim(dim, x.rank), index, wrap=False)


def _take(b: Builder, x: Tensor, dim: int, index: Tensor, *, wrap: bool) -> Tensor:
    """x with dim ``dim`` replaced by the dims of ``index``."""
    dims = [*x.dims[:dim], *index.dims, *x.dims[dim + 1 :]]
    after = dim + index.rank
    index_map = b.loop_map(list(range(dim, after)), len(dims))

    def body(i: Elem) -> Elem:
        row = b.checked_index(i, x.dims[dim], wrap=wrap)
        before = [_loop(d) for d in range(dim)]
        return b.extract(x, [*before, row, *[_loop(d) for d in range(after, len(dims))]])

    return b.generic([index], [index_map], dims, x.dtype, body)


@lowers("torch.aten.gather")
def gather(b: Builder, x: Tensor, dim: int, index: Tensor, *_: object) -> Tensor:
    """result[i][j][k] = x[i][index[i][j][k]][k], for dim 1 of three."""
    if x.rank == 0:
        return b.reshape(x, index.dims)
    dim = normalize_dim(dim, x.rank)
    if index.rank == x.rank:
        require_covered(b, index, x, "the tensor that is read", but=dim)

    def body(i: Elem) -> Elem:
        row = b.checked_index(i, x.dims[dim], wrap=False)
        return b.extract(x, [row if d == dim else _loop(d) for d in range(x.rank)])

    return b.generic([index], [b.identity(index.rank)], index.dims, x.dtype, body)


@lowers("torch.aten.take")
def take(b: Builder, x: Tensor, index: Tensor) -> Tensor:
    """Elements of x by their row-major number."""
    flat = b.reshape(x, [b.product(x.dims)])
    return _take(b, flat, 0, index, wrap=True)


@lowers("torch.aten.masked_scatter")
def masked_scatter(b: Builder, x: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """x with the elements of ``source``, one after the other, where the mask is set."""
    dims = b.broadcast_dims([x.dims, mask.dims])
    flat = b.reshape(source, [b.product(source.dims)])
    chosen = b.reshape(b.broadcast(mask, dims), [b.product(dims)])
    numbers = b.reshape(b.running_sum(convert(b, chosen, torch.int64), 0), dims)

    def body(old: Elem, on: Elem, number: Elem) -> Elem:
        # Counted from 1, so that 0 is right where the mask is not set, also of an empty source.
        place = b.checked_index(scalar.select(on, number, 0), b.add(flat.dims[0], 1), wrap=False)
        return read_if(b, on, flat, [place - 1], old)

    maps = [b.broadcast_map(t.dims, dims) for t in (x, mask)]
    return b.generic([x, mask, numbers], [*maps, b.identity(len(dims))], dims, x.dtype, body)


@lowers("torch.aten.index.Tensor", "torch.aten._unsafe_index.Tensor")
def index_tensor(b: Builder, x: Tensor, indices: Sequence[Tensor | None]) -> Tensor:
    """x[i, :, j]: advanced indexing, with the index tensors broadcast together; masks select."""
    if all(index is None for index in indices):
        return x
    x, indices = flatten_mask(b, x, indices)
    indices = expand_masks(b, x, indices, getattr(b.node_value, "shape", None))
    slots = [*indices, *[None] * (x.rank - len(indices))]
    given = {d: index for d, index in enumerate(slots) if index is not None}
    taken, tensors = list(given), list(given.values())
    direct = _by_iotas(b, x, slots, taken)
    if direct is not None:
        return direct
    shape = b.broadcast_dims([t.dims for t in tensors])
    adjacent = taken == list(range(taken[0], taken[-1] + 1))
    at = taken[0] if adjacent else 0
    rest = [d for d in range(x.rank) if d not in taken]
    before = [d for d in rest if d < at] if adjacent else []
    after = [d for d in rest if d not in before]
    dims: list[Extent] = [*(x.dims[d] for d in before), *shape, *(x.dims[d] for d in after)]
    loop_of = {d: i for i, d in enumerate(before)}
    loop_of |= {d: len(before) + len(shape) + i for i, d in enumerate(after)}
    maps = []
    for tensor in tensors:
        offset = len(before) + len(shape) - tensor.rank
        loops = [None if b.repeats(dim, dims[offset + i]) else offset + i for i, dim in enumerate(tensor.dims)]
        maps.append(b.loop_map(loops, len(dims)))

    def body(*elems: Elem) -> Elem:
        index_of = dict(zip(taken, elems, strict=True))
        return b.extract(
            x,
            [
                b.checked_index(index_of[d], x.dims[d], wrap=True) if d in index_of else _loop(loop_of[d])
                for d in range(x.rank)
            ],
        )

    return b.generic(tensors, maps, dims, x.dtype, body)


def _by_iotas(b: Builder, x: Tensor, slots: Sequence[Tensor | None], taken: Sequence[int]) -> Tensor | None:
    """x[arange(B)[:, None], arange(S)]: a view, when every index counts along a different dim.

    This is how model libraries write a padding mask as a function of (batch, position).
    """
    shape = b.broadcast_dims([t.dims for t in slots if t is not None])
    places = []
    for d in taken:
        index = slots[d]
        assert index is not None
        if index.iota is None or index.iota.start != 0 or index.iota.step != 1:
            return None
        place = index.iota.dim + len(shape) - index.rank
        if shape[place] != x.dims[d] or place in places:
            return None
        places.append(place)
    if len(taken) != x.rank or places != sorted(places):
        return None
    unit: list[Extent] = [1] * len(shape)
    for d, place in zip(taken, places, strict=True):
        unit[place] = x.dims[d]
    viewed = b.reshape(x, unit)
    return viewed if unit == shape else b.broadcast(viewed, shape)
