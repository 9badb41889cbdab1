"""Products of rows that are sorted by the matrix they belong to: the layers of a mixture of experts."""

from __future__ import annotations

import torch
from torch_mlir import ir
from torch_mlir.dialects import linalg

from .. import dtypes, scalar
from ..builder import Builder
from ..registry import lowers
from ..scalar import Elem
from ..values import Extent, Tensor
from .contraction import matmul_product
from .elementwise import convert

_PIECES = 32
"""With more matrices than this, they share one kernel."""


@lowers("torch.transformers.grouped_mm_fallback", "torch.aten._grouped_mm")
def grouped_mm(b: Builder, x: Tensor, weight: Tensor, ends: Tensor, *_: object) -> Tensor:
    """Rows ends[e - 1] to ends[e] of x [rows, k], by weight[e] of [experts, k, n]; every row belongs to one."""
    experts = weight.dims[0]
    b.require_equal(x.dims[1], weight.dims[1], "grouped_mm: inner extents differ")
    if isinstance(experts, int) and 0 < experts <= _PIECES:
        return _by_pieces(b, x, weight, ends, experts)
    return _by_rows(b, x, weight, ends)


def _by_pieces(b: Builder, x: Tensor, weight: Tensor, ends: Tensor, experts: int) -> Tensor:
    """One product for each matrix, of as many rows as there turn out to be."""
    k, n = weight.dims[1], weight.dims[2]
    pieces = []
    offset: Extent = 0
    before: Tensor | None = None
    for e in range(experts):
        end = convert(b, b.reshape(b.slice(ends, 0, e, 1), []), torch.int64)
        count = end if before is None else b.elementwise(torch.int64, [end, before], lambda x, y: x - y)
        rows = b.bind(count, None)
        matrix = b.reshape(b.slice(weight, 0, e, 1), [k, n])
        pieces.append(convert(b, matmul_product(b, b.slice(x, 0, offset, rows), matrix), b.out.dtype))
        offset, before = b.add(offset, rows), end
    b.require_equal(offset, x.dims[0], "grouped_mm: the last offset is not the number of rows")
    # The sum of the counts is the number of rows, which later operations know by its own symbol.
    return b.slice(b.concat(pieces, 0), 0, 0, x.dims[0])


def _by_rows(b: Builder, x: Tensor, weight: Tensor, ends: Tensor) -> Tensor:
    """Every row looks its matrix up."""
    rows, k, n = x.dims[0], weight.dims[1], weight.dims[2]
    compute = dtypes.opmath(x.dtype)
    spread = b.broadcast(ends, [rows, ends.dims[0]])
    owner = b.reduce(
        [spread],
        [1],
        torch.int64,
        0,
        lambda acc, end: acc + (end.to(torch.int64) < scalar.loop_index(0) + 1).to(torch.int64),
    )

    def fold(acc: Elem, value: Elem, which: Elem) -> Elem:
        at: list[Elem | ir.Value] = [which, linalg.IndexOp(2).result, linalg.IndexOp(1).result]
        return acc + value.to(compute) * b.extract(weight, at).to(compute)

    product = b.generic(
        [x, owner],
        [b.loop_map([0, 2], 3), b.loop_map([0], 3)],
        [rows, n],
        compute,
        fold,
        domain=[rows, n, k],
        out_map=b.loop_map([0, 1], 3),
        reduced=[2],
        init=0,
    )
    return convert(b, product, b.out.dtype)
