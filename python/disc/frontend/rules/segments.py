"""Reductions of runs of rows with different lengths: bags of embeddings, segments."""

from __future__ import annotations

import math
from typing import Any

import torch

from .. import dtypes
from ..builder import Builder
from ..registry import NotLowerable, lowers
from ..scalar import Elem
from ..values import Extent, Tensor
from .common import number
from .elementwise import convert

# Fold of SegmentReduce.cpp, and what each starts from.
_FOLDS = {"sum": (0, 0.0), "mean": (1, 0.0), "max": (2, -math.inf), "min": (3, math.inf), "prod": (4, 1.0)}


def fold_segments(
    b: Builder,
    rows: Tensor,
    offsets: Tensor,
    kept: Tensor | None,
    fold: str,
    *,
    initial: float | None = None,
    empty: float,
) -> Tensor:
    """``rows`` [outer, n, inner] folded by ``offsets`` [outer, s + 1]; ``kept`` [outer, n] says which rows count."""
    compute = dtypes.opmath(rows.dtype)
    code, neutral = _FOLDS[fold]
    segments = b.sub(offsets.dims[1], 1)
    if kept is None:
        kept = b.broadcast(b.full([], True, torch.bool), rows.dims[:2])
    dims: list[Extent] = [rows.dims[0], segments, rows.dims[2]]
    result = b.call(
        "segment_reduce",
        [convert(b, rows, compute), convert(b, offsets, torch.int64), kept],
        [(dims, compute)],
        config=[code, neutral if initial is None else float(initial), float(empty)],
        tasks=b.mul(dims[0], segments),
    )[0]
    return convert(b, result, rows.dtype)


def closed(b: Builder, offsets: Tensor, count: Extent) -> Tensor:
    """Offsets [s] with the number of rows at their end."""
    last = b.map(torch.int64, [number(b.index(count))], lambda n: n, dims=[1])
    return b.concat([convert(b, offsets, torch.int64), last], 0)


@lowers("torch.aten.segment_reduce")
def segment_reduce(
    b: Builder,
    x: Tensor,
    fold: str,
    lengths: Tensor | None = None,
    indices: Tensor | None = None,
    offsets: Tensor | None = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: Any = None,
) -> Tensor:
    """x folded along ``axis`` in runs whose lengths or offsets are given."""
    if indices is not None:
        raise NotLowerable("segments by indices")
    outer, inner = b.product(x.dims[:axis]), b.product(x.dims[axis + 1 :])
    rows = b.reshape(x, [outer, x.dims[axis], inner])
    if offsets is None:
        assert lengths is not None
        counts = convert(b, b.reshape(lengths, [outer, lengths.dims[-1]]), torch.int64)
        offsets = b.concat([b.full([outer, 1], 0, torch.int64), b.running_sum(counts, 1)], 1)
    else:
        offsets = b.reshape(offsets, [outer, offsets.dims[-1]])
    start = _FOLDS[fold][1] if initial is None else initial
    empty = math.nan if fold == "mean" and initial is None else start
    result = fold_segments(b, rows, offsets, None, fold, initial=start, empty=empty)
    return b.reshape(result, b.as_exported([*x.dims[:axis], result.dims[1], *x.dims[axis + 1 :]]))


def embedding_bags(
    b: Builder,
    rows: Tensor,
    offsets: Tensor,
    mode: int,
    kept: Tensor | None,
    weights: Tensor | None,
    include_last: bool,
) -> Tensor:
    """``rows`` [n, size] in bags that begin at ``offsets``: their sums, means or maxima."""
    if weights is not None:
        scale = b.reshape(weights, [weights.dims[0], 1])
        rows = b.elementwise(dtypes.opmath(rows.dtype), [rows, scale], _product)
    offsets = convert(b, offsets, torch.int64) if include_last else closed(b, offsets, rows.dims[0])
    outer = b.reshape(rows, [1, *rows.dims])
    bags = b.reshape(offsets, [1, offsets.dims[0]])
    counted = None if kept is None else b.reshape(kept, [1, kept.dims[0]])
    result = fold_segments(b, outer, bags, counted, ("sum", "mean", "max")[mode], empty=0.0)
    return b.reshape(result, result.dims[1:])


def _product(x: Elem, y: Elem) -> Elem:
    return x * y
