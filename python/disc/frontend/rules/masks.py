"""Masks as positions: what a boolean tensor selects, whose number data decides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..builder import Builder
from ..registry import NotLowerable
from ..values import Tensor

MASKS = (torch.bool, torch.uint8)
"""The dtypes that select when they index."""


def positions(b: Builder, x: Tensor) -> tuple[Tensor, Tensor]:
    """The indices of what is not zero, [upper bound, rank], and how many of its rows are meant, []."""
    # Room for one row at least: what follows may look at it, though it uses nothing of it.
    capacity = b.maximum(b.product(x.dims), 1)
    rows, count = b.call("nonzero", [x], [([capacity, x.rank], torch.int64), ([], torch.int64)])
    return rows, count


def nonzero(b: Builder, x: Tensor, size: Any = None) -> Tensor:
    """The indices of what is not zero, one row for each; ``size`` is what torch.export calls their number."""
    rows, count = positions(b, x)
    return b.slice(rows, 0, 0, b.bind(count, size))


def columns(b: Builder, rows: Tensor) -> list[Tensor]:
    """The columns of a matrix of indices."""
    count, rank = rows.dims
    assert isinstance(rank, int)
    return [b.reshape(b.slice(rows, 1, k, 1), [count]) for k in range(rank)]


def selected(b: Builder, mask: Tensor, size: Any = None) -> Tensor:
    """The row-major numbers of the elements at which a mask is true."""
    rows = nonzero(b, b.reshape(mask, [b.product(mask.dims)]), size)
    return b.reshape(rows, [rows.dims[0]])


def read(b: Builder, x: Tensor, numbers: Tensor) -> Tensor:
    """The elements of x with these row-major numbers, which are known to be right."""
    flat = b.reshape(x, [b.product(x.dims)])
    return b.generic([numbers], [b.identity(1)], numbers.dims, x.dtype, lambda i: b.extract(flat, [i]))


def flatten_mask(b: Builder, x: Tensor, indices: Sequence[Tensor | None]) -> tuple[Tensor, list[Tensor | None]]:
    """The same indexing, by a mask of one dim where it is by one mask of several: one number for each position."""
    given = [(i, index) for i, index in enumerate(indices) if index is not None]
    if len(given) != 1 or given[0][1].dtype not in MASKS or given[0][1].rank < 2:
        return x, list(indices)
    start, mask = given[0]
    for k, extent in enumerate(mask.dims):
        b.require_equal(extent, x.dims[start + k], "the mask's extents are not those that it indexes")
    count = b.product(mask.dims)
    flat = b.reshape(x, [*x.dims[:start], count, *x.dims[start + mask.rank :]])
    return flat, [None] * start + [b.reshape(mask, [count])]


def expand_masks(
    b: Builder, x: Tensor, indices: Sequence[Tensor | None], shape: Sequence[Any] | None
) -> list[Tensor | None]:
    """Index tensors with each mask replaced by those of its dims.

    ``shape`` is that of the indexing's result, as torch.export knows it.
    """
    if not any(index is not None and index.dtype in MASKS for index in indices):
        return list(indices)
    spans = [index.rank if index is not None and index.dtype in MASKS else 1 for index in indices]
    starts = [sum(spans[:i]) for i in range(len(spans))]
    taken = [starts[i] + k for i, index in enumerate(indices) if index is not None for k in range(spans[i])]
    adjacent = taken == list(range(taken[0], taken[0] + len(taken))) if taken else False
    rank = max((1 if i.dtype in MASKS else i.rank for i in indices if i is not None), default=1)
    # The number of positions is the last of the extents that all index tensors have together.
    place = (taken[0] if adjacent else 0) + rank - 1
    size = shape[place] if shape is not None and place < len(shape) else None
    expanded: list[Tensor | None] = []
    for index, start in zip(indices, starts, strict=True):
        if index is None or index.dtype not in MASKS:
            expanded.append(index)
            continue
        for k, extent in enumerate(index.dims):
            b.require_equal(extent, x.dims[start + k], "the mask's extents are not those that it indexes")
        if index.rank == 0:
            raise NotLowerable("a mask without dims as an index")
        expanded += columns(b, nonzero(b, index, size))
    return expanded
