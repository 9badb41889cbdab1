"""Ops whose results' extents depend on data."""

from __future__ import annotations

import torch

from .. import dtypes, scalar
from ..builder import Builder
from ..registry import lowers
from ..scalar import Elem
from ..values import Extent, Number, RuntimeNumber, Tensor
from .elementwise import convert


def _positions(b: Builder, x: Tensor) -> tuple[Tensor, Tensor]:
    """The indices of what is not zero, [number of elements, rank], and how many of its rows are meant, []."""
    # Room for one row at least: what follows may look at it, though it uses nothing of it.
    capacity = b.maximum(b.product(x.dims), 1)
    rows, count = b.call("nonzero", [x], [([capacity, x.rank], torch.int64), ([], torch.int64)])
    return rows, count


@lowers("torch.aten.nonzero_static")
def nonzero_static(b: Builder, x: Tensor, size: Extent, fill: int = -1) -> Tensor:
    """The indices of what is not zero, cut or filled up to ``size`` rows."""
    rows, count = _positions(b, x)
    capacity = rows.dims[0]
    if x.rank == 0:
        return b.full([size, 0], fill, torch.int64)
    count = b.reshape(count, [1, 1])

    def body(count: Elem) -> Elem:
        row = scalar.loop_index(0)
        at = scalar.minimum(row, scalar.from_extent(capacity, torch.int64) - 1)
        return scalar.select(row < count, b.extract(rows, [at, scalar.loop_index(1)]), fill)

    return b.map(torch.int64, [count], body, dims=[size, x.rank])


def _size(b: Builder, dim: int = 0, result: int | None = None) -> object:
    """What torch.export calls an extent of the node's result."""
    value = b.node_value if result is None else b.node_value[result]
    return value.shape[dim]


@lowers("torch.aten.nonzero")
def nonzero(b: Builder, x: Tensor) -> Tensor:
    """The indices of what is not zero, one row for each."""
    rows, count = _positions(b, x)
    return b.slice(rows, 0, 0, b.bind(count, _size(b)))


@lowers("torch.aten.item", "torch.aten._local_scalar_dense")
def item(b: Builder, x: Tensor) -> Extent | Number | RuntimeNumber:
    """The value of a tensor with one element: an extent where torch knows it not to be negative."""
    if x.splat is not None:
        return x.splat
    x = b.reshape(x, [])
    value = b.node_value
    if isinstance(value, int) or (isinstance(value, torch.SymInt) and b.is_size(value)):
        return b.bind(convert(b, x, torch.int64), value)
    if dtypes.is_float(x.dtype):
        return RuntimeNumber(torch.float64, lambda: b.extract(x, []).to(torch.float64))
    kind = torch.bool if x.dtype == torch.bool else torch.int64
    return RuntimeNumber(kind, lambda: b.extract(x, []).to(kind))


@lowers("torch.aten.masked_select")
def masked_select(b: Builder, x: Tensor, mask: Tensor) -> Tensor:
    """The elements at which the mask is true, after broadcasting."""
    dims = b.broadcast_dims([x.dims, mask.dims])
    rows = _selected(b, b.broadcast(mask, dims), _size(b))
    return _read(b, b.broadcast(x, dims), rows)


def _selected(b: Builder, mask: Tensor, size: object) -> Tensor:
    """The row-major numbers of the elements at which a mask is true, as many as ``size`` says."""
    rows, count = _positions(b, b.reshape(mask, [b.product(mask.dims)]))
    chosen = b.slice(rows, 0, 0, b.bind(count, size))
    return b.reshape(chosen, [chosen.dims[0]])


def _read(b: Builder, x: Tensor, numbers: Tensor) -> Tensor:
    """The elements of x with these row-major numbers."""
    flat = b.reshape(x, [b.product(x.dims)])
    return b.generic([numbers], [b.identity(1)], numbers.dims, x.dtype, lambda i: b.extract(flat, [i]))
