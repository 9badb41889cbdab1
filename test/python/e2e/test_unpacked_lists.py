"""Pieces and rows of tensors, as many as are known at run time only, as lists: sliced, reversed, joined, unpacked."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.export import Dim

import disc

SIZES = ((3, 11), (2, 9), (1, 3), (3, 37), (9, 40), (2, 11), (5, 2), (1, 2), (4, 4))


def compiled(function):
    shapes = {0: Dim("b", min=1, max=9), 1: Dim("n", min=2, max=40)}
    return disc.compile(function, (torch.randn(3, 11),), dynamic_shapes=(shapes,))


def compare(function, sizes=SIZES):
    model = compiled(function)
    for seed, (b, n) in enumerate(sizes):
        torch.manual_seed(seed)
        x = torch.randn(b, n)
        torch.testing.assert_close(model(x), function(x), msg=lambda text: f"{b}, {n}: {text}")


def single_columns(x: Tensor) -> Tensor:
    return torch.cat(x.split(1, 1)[::-1], 1)


def pieces_backwards(x: Tensor) -> tuple[Tensor, ...]:
    again = list(reversed(x.split(2, 1)))
    return torch.cat(x.split(3, 1)[::-1], 1), torch.cat(x.chunk(3, dim=-1)[::-1], -1), torch.cat(again, 1)


def pieces_sliced(x: Tensor) -> Tensor:
    pieces = x.split(2, 1)
    return torch.cat(pieces[1:] + (x,), 1).sum() * torch.cat(pieces[:-1] + (x,), 1).sum() + pieces[-1].sum()


def pieces_as_they_are(x: Tensor) -> Tensor:
    return torch.cat(x.split(2, 1), dim=1) + torch.cat(list(x.chunk(4, 1)), dim=-1)


def sizes_of_data(x: Tensor) -> tuple[Tensor, ...]:
    places = (x[0] > 0).nonzero()[:, 0]
    return torch.cat(places.split(2)[::-1]), torch.cat(places.split(1)[::-1])


def numbers_added(x: Tensor) -> tuple[Tensor, int]:
    numbers = [1, 2]
    other = numbers
    numbers += (x[0] > 0).long().tolist()
    return torch.tensor(other) * 2, len(numbers)


def displayed(x: Tensor) -> Tensor:
    return torch.stack([x[:, 0], *x.unbind(1), *x.t()], 1)


def first_and_rest(x: Tensor) -> Tensor:
    first, *rest = x
    return first + sum(rest, torch.zeros_like(first))


def first_rest_last(x: Tensor) -> Tensor:
    first, *rest, last = x.t()
    return torch.stack([*rest, first]).sum(0) - last


@pytest.mark.parametrize(
    "function",
    [
        single_columns,
        pieces_backwards,
        pieces_sliced,
        pieces_as_they_are,
        sizes_of_data,
        numbers_added,
        displayed,
        first_and_rest,
        first_rest_last,
    ],
)
def test_lists(function):
    compare(function)


def test_as_many_as_variables():
    """Where there are more or fewer the compiled model raises an error, as Python does."""

    def function(x: Tensor) -> Tensor:
        a, b, c = x.chunk(3, 1)
        return a.sum() + b.sum() * 2 + c.sum() * 3

    model = compiled(function)
    for b, n in ((3, 11), (1, 3), (2, 6), (4, 40)):
        x = torch.randn(b, n)
        torch.testing.assert_close(model(x), function(x))
    for n in (2, 4):
        x = torch.randn(2, n)
        with pytest.raises(ValueError, match="unpack"):
            function(x)
        with pytest.raises(disc.ShapeError, match=r"ValueError: the number of values to unpack"):
            model(x)


def test_one_by_one():
    """Elements of pieces that differ in size are no list for torch.tensor."""

    def function(x: Tensor) -> list[Tensor]:
        out = [x]
        out += x.split(2, 1)
        return out

    with pytest.raises(disc.CompileError):
        compiled(function)


def test_no_pieces_cannot_be_joined():
    def function(x: Tensor) -> Tensor:
        return torch.cat(x.split(4, 1)[1:], 1)

    model = disc.compile(function, (torch.randn(3, 9),), dynamic_shapes=({1: Dim("n", min=1, max=40)},))
    for n in (9, 5, 12, 40):
        x = torch.randn(3, n)
        assert torch.equal(model(x), function(x))
    for n in (4, 1):
        with pytest.raises(disc.ShapeError, match="expected a non-empty list"):
            model(torch.randn(3, n))
