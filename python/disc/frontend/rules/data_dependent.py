"""Ops whose results' extents depend on data."""

from __future__ import annotations

from typing import Any

import torch

from .. import dtypes, scalar
from ..builder import Builder
from ..registry import lowers
from ..scalar import Elem
from ..values import Extent, Number, RuntimeNumber, Tensor, normalize_dim
from . import masks
from .calls import dtype_code
from .common import number
from .elementwise import convert


@lowers("torch.aten.nonzero", "torch.aten.argwhere")
def nonzero(b: Builder, x: Tensor) -> Tensor:
    """The indices of what is not zero, one row for each."""
    return masks.nonzero(b, x, b.node_value.shape[0])


@lowers("torch.aten.nonzero_numpy")
def nonzero_numpy(b: Builder, x: Tensor) -> list[Tensor]:
    """The same, as one tensor for each dim."""
    x = x if x.rank else b.reshape(x, [1])
    return masks.columns(b, masks.nonzero(b, x, b.node_value[0].shape[0]))


@lowers("torch.aten.nonzero_static")
def nonzero_static(b: Builder, x: Tensor, size: Extent, fill: int = -1) -> Tensor:
    """The indices of what is not zero, cut or filled up to ``size`` rows."""
    rows, count = masks.positions(b, x)
    capacity = rows.dims[0]
    if x.rank == 0:
        return b.full([size, 0], fill, torch.int64)
    count = b.reshape(count, [1, 1])

    def body(count: Elem) -> Elem:
        row = scalar.loop_index(0)
        at = scalar.minimum(row, scalar.from_extent(capacity, torch.int64) - 1)
        return scalar.select(row < count, b.extract(rows, [at, scalar.loop_index(1)]), fill)

    return b.map(torch.int64, [count], body, dims=[size, x.rank])


@lowers("torch.aten.masked_select")
def masked_select(b: Builder, x: Tensor, mask: Tensor) -> Tensor:
    """The elements at which the mask is true, after broadcasting."""
    dims = b.broadcast_dims([x.dims, mask.dims])
    numbers = masks.selected(b, b.broadcast(mask, dims), b.node_value.shape[0])
    return masks.read(b, b.broadcast(x, dims), numbers)


@lowers("torch.aten.item", "torch.aten._local_scalar_dense", "torch.aten.Int.Tensor", "torch.aten.Float.Tensor")
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


# -- counting --------------------------------------------------------------------------------------


@lowers("torch.aten.repeat_interleave.Tensor")
def repeat_interleave(b: Builder, repeats: Tensor, output_size: Extent | None = None) -> Tensor:
    """Each index as often as ``repeats`` says there."""
    repeats = convert(b, repeats, torch.int64)
    total = b.reduce([repeats], [0], torch.int64, 0, lambda acc, n: acc + n)
    size = b.bind(total, b.node_value.shape[0])
    if output_size is not None:
        b.require_equal(size, output_size, "repeat_interleave: output_size is not the sum of repeats")
    return convert(b, b.call("repeat_interleave", [repeats], [([size], torch.int64)])[0], b.out.dtype)


@lowers("torch.aten.bincount")
def bincount(b: Builder, x: Tensor, weights: Tensor | None = None, least: Extent | RuntimeNumber = 0) -> Tensor:
    """How often each number from 0 on occurs in ``x``, or the sum of weights there; at least ``least`` of them."""
    x = convert(b, x, torch.int64)

    def higher(acc: Elem, i: Elem) -> Elem:
        return scalar.maximum(acc, i + 1)

    most = b.reduce([x], [0], torch.int64, least if isinstance(least, int) else 0, higher)
    if not isinstance(least, int):
        most = b.map(torch.int64, [most, number(least)], scalar.maximum)
    size = b.bind(most, b.node_value.shape[0])
    own = []
    if weights is not None:
        b.require_equal(x.dims[0], weights.dims[0], "bincount: expected a weight for each element")
        own = [convert(b, weights, torch.float64)]
    kind = torch.int64 if weights is None else torch.float64
    counts = b.call("bincount", [x, *own], [([size], kind)])[0]
    return convert(b, counts, b.out.dtype)


# -- distinct elements -----------------------------------------------------------------------------

# How a tensor is sorted without regard to its dtype: see Sort.cpp.
_ENTRY_BYTES = 32


def _unique(
    b: Builder, x: Tensor, inverse: bool, counts: bool, *, consecutive: bool
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """The distinct elements of all of ``x``."""
    length = b.product(x.dims)
    flat = b.reshape(x, [length])
    room = b.maximum(length, 1)
    kinds = (x.dtype, torch.int64, torch.int64)
    values, places, often, count = b.call(
        "unique",
        [flat],
        [([room], kinds[0]), ([room], kinds[1]), ([room], kinds[2]), ([], torch.int64)],
        config=[dtype_code(x.dtype), int(consecutive)],
        scratch=b.mul(room, _ENTRY_BYTES),
    )
    size = b.bind(count, b.node_value[0].shape[0])
    return (
        b.slice(values, 0, 0, size),
        b.reshape(b.slice(places, 0, 0, length), x.dims) if inverse else None,
        b.slice(often, 0, 0, size) if counts else None,
    )


def _unique_rows(
    b: Builder, x: Tensor, dim: int, inverse: bool, counts: bool, *, consecutive: bool
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """The distinct slices of ``x`` along a dim."""
    dim = normalize_dim(dim, x.rank)
    order = [dim, *(d for d in range(x.rank) if d != dim)]
    length, rest = x.dims[dim], [x.dims[d] for d in order[1:]]
    table = b.reshape(b.permute(x, order), [length, b.product(rest)])
    room = b.maximum(length, 1)
    rows, places, often, count = b.call(
        "unique_rows",
        [table],
        [([room], torch.int64), ([room], torch.int64), ([room], torch.int64), ([], torch.int64)],
        config=[dtype_code(x.dtype), int(consecutive)],
        scratch=b.mul(room, 8),
    )
    size = b.bind(count, b.node_value[0].shape[dim])
    rows = b.slice(rows, 0, 0, size)
    dims = [*x.dims[:dim], size, *x.dims[dim + 1 :]]
    along = b.loop_map([dim], len(dims))

    def body(row: Elem) -> Elem:
        return b.extract(x, [row if d == dim else scalar.loop_index(d) for d in range(x.rank)])

    return (
        b.generic([rows], [along], dims, x.dtype, body),
        b.slice(places, 0, 0, length) if inverse else None,
        b.slice(often, 0, 0, size) if counts else None,
    )


@lowers("torch.aten._unique2")
def unique2(b: Builder, x: Tensor, sort: bool = True, inverse: bool = False, counts: bool = False) -> Any:
    """The distinct elements in order, which of them each element is, and how often each occurs."""
    return _unique(b, x, inverse, counts, consecutive=False)


@lowers("torch.aten._unique")
def unique(b: Builder, x: Tensor, sort: bool = True, inverse: bool = False) -> Any:
    """The distinct elements in order, and which of them each element is."""
    return _unique(b, x, inverse, False, consecutive=False)[:2]


@lowers("torch.aten.unique_consecutive")
def unique_consecutive(
    b: Builder, x: Tensor, inverse: bool = False, counts: bool = False, dim: int | None = None
) -> Any:
    """The elements, or slices, with runs of equal ones as one."""
    if dim is None:
        return _unique(b, x, inverse, counts, consecutive=True)
    return _unique_rows(b, x, dim, inverse, counts, consecutive=True)


@lowers("torch.aten.unique_dim")
def unique_dim(b: Builder, x: Tensor, dim: int, sort: bool = True, inverse: bool = False, counts: bool = False) -> Any:
    """The distinct slices along a dim, in lexicographic order."""
    return _unique_rows(b, x, dim, inverse, counts, consecutive=False)


@lowers("torch.aten.unique_dim_consecutive")
def unique_dim_consecutive(b: Builder, x: Tensor, dim: int, inverse: bool = False, counts: bool = False) -> Any:
    """The slices along a dim with runs of equal ones as one."""
    return _unique_rows(b, x, dim, inverse, counts, consecutive=True)


@lowers("torch.aten._assert_async")
def assert_async(b: Builder, x: Tensor, message: str = "torch._assert_async") -> None:
    """Fails the call where an element is false."""
    holds = convert(b, convert(b, b.reshape(x, []), torch.bool), torch.int64)
    b.require_equal(b.bind(holds), 1, message)
