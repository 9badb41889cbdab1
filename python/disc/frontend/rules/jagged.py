"""Jagged tensors: sequences of different lengths, one after the other, and the same with padding.

``values`` [total, ...] and ``offsets`` [sequences + 1]: sequence ``b`` is ``values[offsets[b]:offsets[b + 1]]``.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from .. import scalar
from ..builder import Builder
from ..registry import NotLowerable, lowers
from ..scalar import Elem
from ..values import Extent, Number, RuntimeNumber, Tensor
from .common import loops, number, read_if
from .elementwise import convert


def _only(b: Builder, offsets: Sequence[Tensor]) -> Tensor:
    """The offsets of the one ragged dim, as i64."""
    if len(offsets) != 1:
        raise NotLowerable(f"{len(offsets)} ragged dimensions; 1 is supported")
    return convert(b, offsets[0], torch.int64)


def _span(b: Builder, offsets: Tensor, sequence: Elem, rows: Extent) -> tuple[Elem, Elem]:
    """In a body: where a sequence starts and its length; offsets that fall, or leave [0, rows], are an IndexError."""
    # Both may be equal to what they must not exceed. Operations on extents belong outside of bodies.
    limit = scalar.to_index(scalar.from_extent(rows, torch.int64) + 1)
    end = b.checked_index(b.extract(offsets, [sequence + 1]), limit, wrap=False)
    start = b.checked_index(b.extract(offsets, [sequence]), scalar.to_index(end + 1), wrap=False)
    return start, end - start


@lowers("torch.aten._jagged_to_padded_dense_forward")
def jagged_to_padded(
    b: Builder,
    values: Tensor,
    offsets: Sequence[Tensor],
    max_lengths: Sequence[Extent],
    padding: Number | RuntimeNumber = 0.0,
) -> Tensor:
    """Jagged sequences as one tensor [sequences, longest, ...], filled up with ``padding`` or cut."""
    only = _only(b, offsets)
    dims: list[Extent] = [b.sub(only.dims[0], 1), max_lengths[0], *values.dims[1:]]

    def body() -> Elem:
        sequence, at, *rest = loops(len(dims))
        start, length = _span(b, only, sequence, values.dims[0])
        fill = number(padding)
        other = scalar.constant(fill, values.dtype) if isinstance(fill, (int, float)) else fill.emit().to(values.dtype)
        return read_if(b, at < length, values, [start + at, *rest], other)

    return b.generic([], [], b.as_exported(dims), values.dtype, body)


@lowers("torch.aten._padded_dense_to_jagged_forward")
def padded_to_jagged(b: Builder, dense: Tensor, offsets: Sequence[Tensor], total: Extent | None = None) -> Tensor:
    """The sequences of a tensor [sequences, longest, ...] one after the other, without what fills them up."""
    only, name = _only(b, offsets), "_padded_dense_to_jagged_forward"
    count = b.sub(only.dims[0], 1)
    b.require_equal(count, dense.dims[0], f"{name}: the number of sequences is not that of the offsets")
    if total is None:
        total = b.bind(b.reshape(b.slice(only, 0, count, 1), []), b.node_value.shape[0])
    rows = total

    def length() -> Elem:
        return _span(b, only, scalar.loop_index(0), rows)[1]

    lengths = b.generic([], [], [count], torch.int64, length)
    covered = b.bind(b.reduce([lengths], [0], torch.int64, 0, lambda acc, n: acc + n))
    b.require_equal(covered, rows, f"{name}: the offsets are not those of as many rows as total_L")
    sequences = b.call("repeat_interleave", [lengths], [([rows], torch.int64)])[0]
    dims: list[Extent] = [rows, *dense.dims[2:]]

    def body() -> Elem:
        row, *rest = loops(len(dims))
        sequence = b.extract(sequences, [row])
        start, _ = _span(b, only, sequence, rows)
        at = b.checked_index(row - start, dense.dims[1], wrap=False)
        return b.extract(dense, [sequence, at, *rest])

    return b.generic([], [], b.as_exported(dims), dense.dtype, body)
