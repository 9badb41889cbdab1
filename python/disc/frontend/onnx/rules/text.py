"""Counting n-grams, as text classifiers do."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from ... import scalar
from ...registry import NotLowerable, lowers
from ...scalar import Elem
from ...values import Tensor
from ..builder import OnnxBuilder
from ..known import Known

_I64, _F32 = torch.int64, torch.float32


def _count(b: OnnxBuilder, rows: Tensor, grams: np.ndarray, skips: int) -> Tensor:
    """[rows, grams]: how often each n-gram occurs, its elements up to ``skips`` + 1 places apart."""
    length = grams.shape[1]
    wanted = b.tensor(Known.of(grams, _I64))

    def body() -> Elem:
        row, gram, start = (scalar.loop_index(d) for d in range(3))
        extent = scalar.from_extent(rows.dims[1], _I64)
        total = scalar.constant(0.0, _F32)
        # A distance has no meaning for one element.
        for distance in range(1, (skips if length > 1 else 0) + 2):
            found = start + (length - 1) * distance < extent
            for i in range(length):
                at = scalar.minimum(start + i * distance, extent - 1)
                element = b.extract(wanted, [gram, scalar.constant(i, _I64)])
                found = found & b.extract(rows, [row, at]).to(_I64).eq(element)
            total = total + found.to(_F32)
        return total

    each = b.generic([], [], [rows.dims[0], len(grams), rows.dims[1]], _F32, body)
    result: Tensor = b.aten("sum.dim_IntList", each, [2], False, dtype=_F32, rank=2)
    return result


@lowers("onnx.TfIdfVectorizer")
def tf_idf(
    b: OnnxBuilder,
    x: Tensor,
    max_gram_length: int,
    max_skip_count: int,
    min_gram_length: int,
    mode: str,
    ngram_counts: Sequence[int],
    ngram_indexes: Sequence[int],
    pool_int64s: Sequence[int] | None = None,
    weights: Sequence[float] | None = None,
) -> Tensor:
    """How often each n-gram of a vocabulary occurs in a row, or whether it does, times its weight."""
    if pool_int64s is None:
        raise NotLowerable("n-grams of strings")
    size = max(ngram_indexes) + 1
    if len(set(ngram_indexes)) != len(ngram_indexes):
        raise NotLowerable("several n-grams with one index")
    rows = x if x.rank == 2 else b.reshape(x, [1, x.dims[0]])
    counts: list[Tensor] = []
    order: list[int] = []
    passed = 0
    ends = [*ngram_counts[1:], len(pool_int64s)]
    for length, (start, end) in enumerate(zip(ngram_counts, ends, strict=True), start=1):
        number = (end - start) // length
        if number and min_gram_length <= length <= max_gram_length:
            grams = np.array(pool_int64s[start:end], dtype=object).reshape(number, length)
            counts.append(_count(b, rows, grams, max_skip_count))
            order += ngram_indexes[passed : passed + number]
        passed += number
    # Where the count of each result is.
    places = [order.index(i) if i in order else -1 for i in range(size)]
    factors = list(weights) if weights and mode != "TF" else [1.0] * size
    if not counts:
        return b.full([*x.dims[:-1], size], 0.0, _F32)
    every = b.concat(counts, 1)
    place = b.tensor(Known.of(places, _I64))
    factor = b.tensor(Known.of(factors, _F32))

    def body() -> Elem:
        row, i = scalar.loop_index(0), scalar.loop_index(1)
        at = b.extract(place, [i])
        count = b.extract(every, [row, scalar.maximum(at, 0)])
        if mode == "IDF":
            count = scalar.minimum(count, 1.0)
        return scalar.select(at < 0, 0.0 * count, count * b.extract(factor, [i]))

    result = b.generic([], [], [rows.dims[0], size], _F32, body)
    return result if x.rank == 2 else b.reshape(result, [size])
