"""Ops whose results' extents depend on data."""

from __future__ import annotations

import torch

from .. import scalar
from ..builder import Builder
from ..registry import lowers
from ..scalar import Elem
from ..values import Extent, Tensor


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
