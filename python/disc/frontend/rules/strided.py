"""Diagonals, strided views, and results that are one tensor with another written into a part of it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch

from .. import locations, scalar
from ..builder import Builder
from ..registry import NotLowerable, lowers
from ..scalar import Elem
from ..values import Extent, Tensor, normalize_dim
from .common import loops, read_if
from .elementwise import convert


@lowers("torch.aten.diagonal", "torch.aten.diagonal_copy")
def diagonal(b: Builder, x: Tensor, offset: int = 0, first: int = 0, second: int = 1) -> Tensor:
    """A diagonal of the dims ``first`` and ``second``, as the last dim."""
    first, second = normalize_dim(first, x.rank), normalize_dim(second, x.rank)
    kept = [i for i in range(x.rank) if i not in (first, second)]
    size = _diagonal_size(b, x, offset, first, second)
    dims = [*(x.dims[i] for i in kept), size]
    # For sizes of 0, torch.export's expression for the last dim is negative or another wrong number.
    exported = b.as_exported(dims)
    if isinstance(exported[-1], int):
        b.require_equal(size, exported[-1], "diagonal: the length differs from the one exported")
    dims = [known if isinstance(known, int) else own for known, own in zip(exported, dims, strict=True)]

    def body() -> Elem:
        *outer, i = loops(len(dims))
        place = dict(zip(kept, outer, strict=True))
        place |= {first: i + max(-offset, 0), second: i + max(offset, 0)}
        return b.extract(x, [place[d] for d in range(x.rank)])

    return b.generic([], [], dims, x.dtype, body)


def _diagonal_size(b: Builder, x: Tensor, offset: int, first: int, second: int) -> Extent:
    rows, columns = x.dims[first], x.dims[second]
    if offset >= 0:
        return b.minimum(rows, b.maximum(b.sub(columns, offset), 0))
    return b.minimum(b.maximum(b.add(rows, offset), 0), columns)


@lowers("torch.aten.diag_embed")
def diag_embed(b: Builder, x: Tensor, offset: int = 0, first: int = -2, second: int = -1) -> Tensor:
    """Matrices whose diagonal is the last dim of x, zero elsewhere."""
    rank = x.rank + 1
    first, second = normalize_dim(first, rank), normalize_dim(second, rank)
    size = b.add(x.dims[-1], abs(offset))
    outer = [i for i in range(rank) if i not in (first, second)]
    dims: list[Extent] = [size] * rank
    for i, d in zip(outer, x.dims[:-1], strict=True):
        dims[i] = d

    def body() -> Elem:
        at = loops(rank)
        on = (at[second] - at[first]).eq(offset)
        row = at[first] - max(-offset, 0)
        return read_if(b, on, x, [*(at[i] for i in outer), row])

    return b.generic([], [], dims, x.dtype, body)


@lowers("torch.aten.diagonal_scatter")
def diagonal_scatter(b: Builder, x: Tensor, src: Tensor, offset: int = 0, first: int = 0, second: int = 1) -> Tensor:
    """x with ``src`` on a diagonal."""
    first, second = normalize_dim(first, x.rank), normalize_dim(second, x.rank)
    kept = [i for i in range(x.rank) if i not in (first, second)]
    size = _diagonal_size(b, x, offset, first, second)
    for have, want in zip(src.dims, [*(x.dims[i] for i in kept), size], strict=True):
        b.require_equal(have, want, "a diagonal and what replaces it differ in size")
    src = convert(b, src, x.dtype)

    def body(old: Elem) -> Elem:
        at = loops(x.rank)
        on = (at[second] - at[first]).eq(offset)
        return read_if(b, on, src, [*(at[i] for i in kept), at[first] - max(-offset, 0)], old)

    return b.generic([x], [b.identity(x.rank)], x.dims, x.dtype, body)


# -- strided views ---------------------------------------------------------------------------------


_MOST_PERMUTED = 5
"""Dense tensors of up to this rank are recognised in any order of their dims."""


def _storage_index(b: Builder, index: Sequence[Elem], strides: Sequence[Extent], offset: Extent) -> Elem:
    place = scalar.from_extent(offset, torch.int64)
    for i, stride in zip(index, strides, strict=True):
        place = place + i * scalar.from_extent(stride, torch.int64)
    return place


def stored_order(b: Builder, x: Tensor) -> tuple[int, ...]:
    """The dims of x, the first operand, as they are stored: x is dense."""
    base, order = b.operand_value(0), tuple(range(x.rank))
    if isinstance(base, torch.Tensor):
        orders = itertools.permutations(order) if x.rank <= _MOST_PERMUTED else [order]
        dense = base.storage_offset() == 0
        found = next((o for o in orders if dense and base.permute(o).is_contiguous()), None)
        if found is None:
            raise NotLowerable("as_strided of a tensor that is itself a view; call .contiguous() first")
        order = found
    return order


def require_inside(
    b: Builder, count: Extent, dims: Sequence[Extent], strides: Sequence[Extent], offset: Extent
) -> None:
    """Requires a strided view to be within ``count`` elements of a storage; an empty one may be anywhere."""
    end, present = b.add(offset, 1), 1
    for dim, stride in zip(dims, strides, strict=True):
        end = b.add(end, b.mul(b.sub(b.maximum(dim, 1), 1), stride))
        present = b.mul(present, b.minimum(dim, 1))
    b.require_at_most(b.mul(end, present), count, "a strided view goes beyond the end of its storage")


@lowers("torch.aten.as_strided", "torch.aten.as_strided_copy")
def as_strided(
    b: Builder, x: Tensor, size: Sequence[Extent], strides: Sequence[Extent], offset: Extent | None = None
) -> Tensor:
    """The elements offset + i * stride of x's storage, which is row-major."""
    flat = b.reshape(b.permute(x, list(stored_order(b, x))), [b.product(x.dims)])
    dims = b.as_exported(list(size))
    require_inside(b, flat.dims[0], dims, strides, offset or 0)

    def body() -> Elem:
        return b.extract(flat, [_storage_index(b, loops(len(dims)), strides, offset or 0)])

    return b.generic([], [], dims, x.dtype, body)


@lowers("torch.aten.unfold", "torch.aten.unfold_copy")
def unfold(b: Builder, x: Tensor, dim: int, size: int, step: int) -> Tensor:
    """Windows of ``size`` along ``dim``, every ``step``: the windows' elements are a new last dim."""
    if x.rank == 0:
        return b.reshape(b.slice(b.reshape(x, [1]), 0, 0, size), [size])
    dim = normalize_dim(dim, x.rank)
    b.require_at_most(size, x.dims[dim], f"{locations.operation()}: the window is larger than the dim")
    count = b.add(b.floordiv(b.sub(x.dims[dim], size), step), 1)
    dims = b.as_exported([*x.dims[:dim], count, *x.dims[dim + 1 :], size])
    if isinstance(size, int) and size == step and not x.dtype.is_complex:
        # Windows side by side are a view: the patches of an image.
        pieces = b.slice(x, dim, 0, b.mul(dims[dim], size))
        split = b.reshape(pieces, [*dims[: dim + 1], size, *dims[dim + 1 : -1]])
        return b.permute(split, [d for d in range(x.rank + 1) if d != dim + 1] + [dim + 1])

    def body() -> Elem:
        *at, within_window = loops(len(dims))
        at[dim] = at[dim] * step + within_window
        return b.extract(x, at)

    return b.generic([], [], dims, x.dtype, body)
