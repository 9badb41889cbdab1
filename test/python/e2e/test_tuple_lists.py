"""Lists of tuples whose length is known at run time only: chunks, segments, pairs."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch
from torch import Tensor
from torch.export import Dim

import disc

SIZES = (9, 1, 2, 8, 37, 40, 1)


def compare(function, sizes=SIZES, columns=()):
    """Compiles once, and compares with eager at several sizes."""
    model = disc.compile(function, (torch.randn(11, *columns),), dynamic_shapes=({0: Dim("n", min=1, max=40)},))
    for seed, n in enumerate(sizes):
        torch.manual_seed(seed)
        x = torch.randn(n, *columns)
        torch.testing.assert_close(model(x), function(x), rtol=1e-5, atol=1e-5, msg=lambda text: f"{n}: {text}")


def test_chunks():
    """Where each chunk begins and ends, found in one loop and used in another, also as a comprehension."""

    def chunked(x: Tensor) -> tuple[Tensor, Tensor]:
        chunks = []
        for start in range(0, x.shape[0], 8):
            chunks.append((start, min(x.shape[0], start + 8)))
        other = [(start, min(x.shape[0], start + 8)) for start in range(0, x.shape[0], 8)]
        if len(chunks) != len(other):
            raise ValueError(f"{chunks} and {other}")
        parts = [x[a:b].softmax(0) * (d - c) for (a, b), (c, d) in zip(chunks, other)]
        return torch.cat(parts), torch.tensor(chunks)

    compare(chunked, columns=(3,))


def test_segments():
    """Data decides where they begin; the last one ends with the input."""

    def segmented(x: Tensor) -> tuple[Tensor, int]:
        segments, start = [], -1
        for i in range(x.shape[0]):
            if x[i] > 0 and start < 0:
                start = i
            elif x[i] <= 0 and start >= 0:
                segments.append((start, i))
                start = -1
        count = len(segments)
        if start >= 0:
            segments.append((start, x.shape[0]))
        out = torch.zeros_like(x)
        for a, b in segments:
            out[a:b] += x[a:b].sum()
        return out, count

    compare(segmented)


def test_values_of_several_types():
    def summed(x: Tensor) -> tuple[Tensor, int, int]:
        found = []
        for i in range(1, x.shape[0]):
            if x[i] > 0:
                found.append((i, (x[i], x[i].item() * 2)))
        total = x.sum() * 0
        for k, (i, (value, number)) in enumerate(found):
            total = total + (k + 1) * i * value + number
        first = found[0][0] if found else -1
        return total, len(found), first

    compare(summed)


def test_elements_and_slices():
    def read(x: Tensor) -> Tensor:
        pairs = [(0, x[0])]
        for i in range(x.shape[0]):
            pairs.append((i * 2, x[i] * 3))
            pairs.append((i, x[i]))
        (n, last), (m, second) = pairs[-1], pairs[1]
        total = last * n + second * m
        for i, value in reversed(pairs):
            total = total * 0.5 + value * i
        for i, value in pairs[2:]:
            total = total * 0.5 + value * i
        return total

    compare(read)


class Part(NamedTuple):
    begin: int
    values: Tensor


def test_named_tuples():
    def kept(x: Tensor) -> Tensor:
        parts = [Part(i, x[i : i + 1] + 1) for i in range(x.shape[0])]
        total = x[:1]
        for part in parts:
            total = total * 0.5 + part.begin * part.values
        return total + len(parts)

    compare(kept)


def test_pairs_of_nested_loops():
    def paired(x: Tensor) -> Tensor:
        total = x[0] * 0
        for i, j in [(i, j) for i in range(x.shape[0]) for j in range(i)]:
            total = total + x[i] * x[j] * i
        return total

    compare(paired)


def test_a_step_reads_what_others_have_appended():
    """As where intervals are joined that overlap."""

    def joined(x: Tensor) -> Tensor:
        kept: list[tuple[int, Tensor]] = []
        for i in range(x.shape[0]):
            if kept and kept[-1][0] + 2 > i and x[i] < 1:
                continue
            kept.append((i, x[i]))
        total = x[0] * 0
        for i, value in kept:
            total = total + i * value
        return total

    compare(joined)


def test_a_list_that_is_replaced():
    def grown(x: Tensor) -> Tensor:
        best = [(0.0, x[0])]
        for v in x:
            best = [(score + 1.0, value * 0.5) for score, value in best if score < 3] + [(0.0, v)]
        total = x[0] * 0
        for score, value in best:
            total = total + score * value
        return total

    compare(grown)


def test_a_table_of_an_empty_list_is_an_error():
    """PyTorch makes a tensor of one dim of it."""

    def found(x: Tensor) -> Tensor:
        return torch.tensor([(i, i + 1) for i in range(x.shape[0]) if x[i] > 0])

    model = disc.compile(found, (torch.randn(11),), dynamic_shapes=({0: Dim("n", min=1, max=40)},))
    x = torch.tensor([1.0, -1.0, 2.0])
    torch.testing.assert_close(model(x), found(x))
    with pytest.raises(disc.ShapeError, match=r"torch.tensor\(\) of a list of tuples that is empty"):
        model(-torch.ones(3))


def test_tuples_of_different_structures():
    def mixed(x: Tensor) -> Tensor:
        found = []
        for i in range(x.shape[0]):
            found.append((i, x[i]))
            found.append((x[i], i))
        total = x[0]
        for a, b in found:
            total = total + a * b
        return total

    with pytest.raises(disc.CompileError, match=r"appends values of different types, dtypes or shapes to found"):
        disc.compile(mixed, (torch.randn(11),), dynamic_shapes=({0: Dim("n", min=1, max=40)},))
