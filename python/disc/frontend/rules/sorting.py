"""Order: sort, topk, medians, modes, and searching in what is sorted."""

from __future__ import annotations

import math
from typing import Any

import torch

from .. import dtypes, locations, scalar
from ..builder import Builder
from ..registry import lowers
from ..scalar import Elem
from ..values import Extent, Number, Tensor, normalize_dim
from .calls import PARTS, dim_back, dim_last, dtype_code, rows
from .common import loops, promoted, read_if, within
from .elementwise import convert

_KTH, _MEDIAN, _NANMEDIAN, _MODE = range(4)


def order_scratch(b: Builder, x: Tensor, count: Extent) -> Extent:
    """The bytes of scratch for sorting ``count`` elements: two arrays of a key and a position each."""
    return b.mul(count, 32 if x.dtype.itemsize == 8 else 16)


def sort_rows(b: Builder, x: Tensor, dim: int, kept: Extent, descending: bool) -> tuple[Tensor, Tensor]:
    """The first ``kept`` elements along ``dim`` in order, and where they were."""
    last = dim_last(b, x, dim)
    dims = [*last.dims[:-1], kept]
    values, indices = b.call(
        "sort",
        [last],
        [(dims, x.dtype), (dims, torch.int64)],
        config=[dtype_code(x.dtype), int(descending)],
        tasks=rows(b, last.dims),
        scratch=order_scratch(b, x, last.dims[-1]),
    )
    return dim_back(b, values, dim, x.rank), dim_back(b, indices, dim, x.rank)


@lowers("torch.aten.sort")
def sort(b: Builder, x: Tensor, dim: int = -1, descending: bool = False) -> tuple[Tensor, Tensor]:
    """All elements along ``dim`` in order; equal ones keep theirs, NaN is the largest."""
    return sort_rows(b, x, dim, x.dims[normalize_dim(dim, x.rank)] if x.rank else 1, descending)


@lowers("torch.aten.sort.stable")
def sort_stable(
    b: Builder, x: Tensor, stable: bool | None, dim: int = -1, descending: bool = False
) -> tuple[Tensor, Tensor]:
    """The same: every sort is stable."""
    return sort(b, x, dim, descending)


@lowers("torch.aten.argsort")
def argsort(b: Builder, x: Tensor, dim: int = -1, descending: bool = False) -> Tensor:
    """Where the elements of the sorted ``x`` are."""
    return sort(b, x, dim, descending)[1]


@lowers("torch.aten.argsort.stable")
def argsort_stable(b: Builder, x: Tensor, stable: bool, dim: int = -1, descending: bool = False) -> Tensor:
    """The same."""
    return sort(b, x, dim, descending)[1]


@lowers("torch.aten.msort")
def msort(b: Builder, x: Tensor) -> Tensor:
    """``x`` sorted along its first dim."""
    return sort(b, x, 0)[0]


@lowers("torch.aten.topk")
def topk(
    b: Builder, x: Tensor, k: Extent, dim: int = -1, largest: bool = True, ordered: bool = True
) -> tuple[Tensor, Tensor]:
    """The ``k`` largest or smallest along ``dim``, in order."""
    extent = x.dims[normalize_dim(dim, x.rank)] if x.rank else 1
    b.require_at_most(k, extent, f"{locations.operation()}: k is larger than the dim")
    return sort_rows(b, x, dim, k, largest)


def _select(b: Builder, x: Tensor, dim: int, keepdim: bool, what: int, k: Extent = 0) -> tuple[Tensor, Tensor]:
    last = dim_last(b, x, dim)
    dims = last.dims[:-1]
    b.require_elements(last.dims[-1:])
    results = b.call(
        "select",
        [last],
        [(dims, x.dtype), (dims, torch.int64)],
        config=[dtype_code(x.dtype), what, k],
        tasks=rows(b, last.dims),
        scratch=order_scratch(b, x, last.dims[-1]),
    )
    values, indices = results
    if keepdim and x.rank:
        at = normalize_dim(dim, x.rank)
        values, indices = b.unsqueeze(values, at), b.unsqueeze(indices, at)
    return values, indices


@lowers("torch.aten.kthvalue")
def kthvalue(b: Builder, x: Tensor, k: Extent, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """The ``k``-th smallest along ``dim``."""
    return _select(b, x, dim, keepdim, _KTH, b.sub(k, 1))


@lowers("torch.aten.mode")
def mode(b: Builder, x: Tensor, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """The most frequent element along ``dim``, the smallest of several."""
    return _select(b, x, dim, keepdim, _MODE)


def _median_of_nothing(dtype: torch.dtype) -> Number:
    return math.nan if dtypes.is_float(dtype) else torch.iinfo(dtype).min


def _at_least_one(b: Builder, flat: Tensor) -> Tensor:
    """A vector, or the median of nothing in its place."""
    count = flat.dims[0]
    if isinstance(count, int):
        return flat

    def body() -> Elem:
        (i,) = loops(1)
        return read_if(b, within(i, count), flat, [i], scalar.constant(_median_of_nothing(flat.dtype), flat.dtype))

    return b.generic([], [], [b.maximum(count, 1)], flat.dtype, body)


def _median(b: Builder, x: Tensor, dim: int | None, keepdim: bool, what: int) -> Any:
    if dim is None:
        if any(isinstance(n, int) and n == 0 for n in x.dims):
            return b.full([], _median_of_nothing(x.dtype), x.dtype)
        return _select(b, _at_least_one(b, b.reshape(x, [b.product(x.dims)])), 0, False, what)[0]
    return _select(b, x, dim, keepdim, what)


@lowers("torch.aten.median", "torch.aten.median.dim")
def median(b: Builder, x: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """The lower median, of all or along ``dim``; NaN if there is one."""
    return _median(b, x, dim, keepdim, _MEDIAN)


@lowers("torch.aten.nanmedian", "torch.aten.nanmedian.dim")
def nanmedian(b: Builder, x: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """The lower median of the elements that are not NaN."""
    return _median(b, x, dim, keepdim, _NANMEDIAN)


def search(
    b: Builder, ordered: Tensor, values: Tensor, right: bool, sorter: Tensor | None, dtype: torch.dtype
) -> Tensor:
    """For each of ``values`` where it belongs in its row of ``ordered``, as ``dtype``."""
    common = torch.promote_types(ordered.dtype, values.dtype)
    places = b.call(
        "searchsorted",
        [convert(b, ordered, common), convert(b, values, common), *([] if sorter is None else [sorter])],
        [(values.dims, torch.int64)],
        config=[dtype_code(common), int(right), int(sorter is not None), PARTS],
        tasks=PARTS,
    )[0]
    return convert(b, places, dtype)


def _searched(b: Builder, value: Any, like: Tensor) -> Tensor:
    if isinstance(value, Tensor):
        return value
    dtype = promoted(like, value)
    dtype = like.dtype if not dtypes.is_float(dtype) else dtype
    return b.full([], value, dtype)


@lowers("torch.aten.searchsorted.Tensor", "torch.aten.searchsorted.Scalar")
def searchsorted(
    b: Builder,
    ordered: Tensor,
    value: Any,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Tensor | None = None,
) -> Tensor:
    """Where ``value`` belongs in the sorted rows."""
    right = right or side == "right"
    return search(b, ordered, _searched(b, value, ordered), right, sorter, b.out.dtype)


@lowers("torch.aten.bucketize.Tensor", "torch.aten.bucketize.Scalar")
def bucketize(b: Builder, value: Any, boundaries: Tensor, out_int32: bool = False, right: bool = False) -> Tensor:
    """The number of the bucket between ``boundaries`` that contains each element."""
    return search(b, boundaries, _searched(b, value, boundaries), right, None, b.out.dtype)
