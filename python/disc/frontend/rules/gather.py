"""Reading by index: ``tensor.extract`` in the body of a generic over the result."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch_mlir import ir
from torch_mlir.dialects import linalg

from ..builder import Builder
from ..registry import NotLowerable, lowers
from ..scalar import Elem
from ..values import Extent, Tensor, is_one, normalize_dim


def _loop(dim: int) -> ir.Value:
    return linalg.IndexOp(dim).result


@lowers("torch.aten.embedding")
def embedding(b: Builder, weight: Tensor, indices: Tensor, *_: object) -> Tensor:
    """weight[indices]: one row for each index."""
    return _take(b, weight, 0, indices, wrap=False)


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

    def body(i: Elem) -> Elem:
        row = b.checked_index(i, x.dims[dim], wrap=False)
        return b.extract(x, [row if d == dim else _loop(d) for d in range(x.rank)])

    return b.generic([index], [b.identity(index.rank)], index.dims, x.dtype, body)


@lowers("torch.aten.index.Tensor", "torch.aten._unsafe_index.Tensor")
def index_tensor(b: Builder, x: Tensor, indices: Sequence[Tensor | None]) -> Tensor:
    """x[i, :, j]: advanced indexing, with the index tensors broadcast together."""
    slots = [*indices, *[None] * (x.rank - len(indices))]
    given = {d: index for d, index in enumerate(slots) if index is not None}
    taken, tensors = list(given), list(given.values())
    if any(t.dtype in (torch.bool, torch.uint8) for t in tensors):
        raise NotLowerable("indexing with a mask has a result of unknown size")
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
        loops = [
            None if is_one(dim) and not is_one(dims[offset + i]) else offset + i for i, dim in enumerate(tensor.dims)
        ]
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
    """x[arange(B)[:, None], arange(S)]: a view, when every index counts along a dim of its own.

    This is how model libraries write a padding mask as a function of (batch, position).
    """
    shape = b.broadcast_dims([t.dims for t in slots if t is not None])
    places = []
    for d in taken:
        index = slots[d]
        assert index is not None
        if index.iota is None or index.iota.start != 0:
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
