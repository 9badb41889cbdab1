"""Programs of users that failed once: sizes in branches and loops. Each compares with eager PyTorch."""

import pytest
import torch
from torch import Tensor
from torch.export import Dim

import disc
from e2e.test_found_by_users import compare


@pytest.mark.parametrize("example", [3, 40])
def test_a_branch_on_a_number_of_chunks_that_is_0_in_the_example(example):
    """PyTorch divides by the example's sizes on the side that the example does not take."""

    def fn(x: Tensor) -> Tensor:
        length = x.shape[1]
        chunks = length // 16
        results = []
        if chunks > 0:
            parts = x[:, : chunks * 16].view(-1, chunks, 16)
            results.append((parts * parts.sum(-1, keepdim=True)).view(-1, chunks * 16))
        if length - chunks * 16 > 0:
            results.append(x[:, chunks * 16 :] + 1)
        return torch.cat(results, 1)

    dims = ({0: Dim("b", min=1), 1: Dim("n", min=1, max=100)},)
    model = disc.compile(fn, (torch.randn(2, example),), dynamic_shapes=dims)
    for n in (1, 3, 16, 17, 40, 64, 100):
        x = torch.randn(3, n)
        torch.testing.assert_close(model(x), fn(x))


@pytest.mark.parametrize("shift", [1, -1, 3, -5])
def test_rolls_of_what_must_have_an_element(shift):
    """Remainders by a size that another operation requires to be 1 or more: they are less than the size."""
    compare(lambda x: (x - x.roll(shift, 0), x.min()), (3,), exact=True)


def test_a_loop_of_no_steps_after_another_loop():
    """What the steps of a loop know of a number that an earlier loop computed does not hold where there is no step."""

    def fn(x: Tensor) -> Tensor:
        size = 1
        while size < x.shape[0]:
            size *= 2
        tree = torch.ones(2 * size)
        tree[size : size + x.shape[0]] = x
        for i in range(size - 1, 0, -1):
            tree[i] = tree[2 * i] + tree[2 * i + 1]
        return tree

    compare(fn, (), exact=True)


def test_a_side_of_a_branch_whose_size_must_be_1():
    """What the else side knows of a size, that it is 1, is not known of the other side's result."""

    def fn(x: Tensor) -> tuple[Tensor, int]:
        if x.shape[0] > 1:
            y, n = torch.stack([x[i] * 2 for i in range(x.shape[0])]), x.shape[0]
        else:
            y, n = x.mean(0, keepdim=True), 1
        return y, n

    for low in (0, 1):
        model = disc.compile(fn, (torch.randn(5, 3),), dynamic_shapes=({0: Dim("n", min=low)},))
        for n in (7, 1, 2):
            x = torch.randn(n, 3)
            got, expected = model(x), fn(x)
            torch.testing.assert_close(got[0], expected[0])
            assert got[1] == expected[1]


@pytest.mark.parametrize("in_place", [False, True])
def test_a_size_that_must_be_1_on_one_side_is_broadcast_there(in_place):
    weight = torch.randn(4, generator=torch.Generator().manual_seed(0))

    def fn(x: Tensor) -> Tensor:
        y = torch.ones(4) if in_place else weight
        if x.shape[0] > 1:
            part = x.sum(0, keepdim=True)
        else:
            part = x
        if x.shape[0] > 1:
            y = y * part
        elif in_place:
            y += x
        else:
            y = y * x
        return y

    compare(fn, ())


def test_outer_products_of_a_size_that_must_be_1():
    """Also where the program is traced again to decompose it: a stride needs that."""

    def fn(x: Tensor, y: Tensor) -> Tensor:
        if x.shape[0] > 1:
            z = x[1:, :2] * 2
        else:
            row = x.squeeze(0)
            z = (row[:, None] @ (row + 1)[None])[:1, :2]
        count = (y > 0).nonzero().shape[0]
        chosen = y[y > 0].repeat(2).reshape(count, 2, -1)
        return z.reshape(z.shape[0], -1).sum() + chosen.sum() + torch.empty_like(x).stride(0)

    compare(fn, (3,), ())


def test_narrow_by_numbers_in_tensors():
    def fn(x: Tensor) -> tuple[Tensor, Tensor]:
        count = (x > 0).sum(1).max()
        wide = torch.cat([x.new_zeros(x.shape[0], count), x], -1)
        return wide.narrow(-1, count, wide.size(-1) - count), torch.narrow(x, 1, start=0, length=count)

    compare(fn, (3,), exact=True)
