"""Variables that one side of a branch on data sets, and that code reads behind it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.export import Dim

import disc

SIZES = (9, 1, 2, 8, 37, 40, 9, 9, 9)


def compiled(function):
    return disc.compile(function, (torch.randn(11),), dynamic_shapes=({0: Dim("n", min=1, max=40)},))


def compare(function):
    """Compiles once, and compares with eager at several sizes, which take both sides."""
    model = compiled(function)
    for seed, n in enumerate(SIZES):
        torch.manual_seed(seed)
        x = torch.randn(n)
        torch.testing.assert_close(model(x), function(x), msg=lambda text: f"{n}: {text}")


def tensors_and_numbers(x: Tensor) -> Tensor:
    flag = (x > 0.8).any()
    if flag:
        kept = (x > 0.8).nonzero()[:, 0]
        count, half = int((x > 0.8).sum()), x.shape[0] // 2
        y = x * 2
    z = x + 1
    if flag:
        z = z + y * half + torch.zeros(count).numel() + x[kept].sum()
        z[:count] = 0
    return z


def unpacked(x: Tensor) -> Tensor:
    def found(mask: Tensor) -> tuple[int, Tensor]:
        return int(mask.sum()), mask.nonzero()

    mask = x > 0.8
    if mask.any():
        count, places = found(mask)
    z = x + 1
    return z + torch.arange(count).sum() + places.sum() if mask.any() else z


def in_a_loop(x: Tensor) -> Tensor:
    total = x * 0
    for i in range(x.shape[0]):
        if x[i] > 0:
            value, at = x[i] * 2, i
        if x[i] > 0:
            total = total + value * at
    return total


def set_again(x: Tensor) -> Tensor:
    a, b = x.sum() > 0, x[0] > 0
    if a:
        y = x * 2
    if b:
        y = x * 3
    z = x
    if a:
        z = z + y
    if b:
        z = z - y
    return z


def lists(x: Tensor) -> Tensor:
    flag = x.sum() > 0
    if flag:
        found, named = [x, x * 2], {"k": x}
    if flag:
        found[0] = x * 3
        named["k"] = named["k"] + 1
    return torch.stack(found).sum(0) * named["k"] if flag else x


def found_twice(x: Tensor) -> Tensor:
    """The second branch has the size of what it finds itself, not of what the first one has found."""
    mask, flag = x > 0.5, x[0] > 0
    z = x.sum()
    if x.sum() > 0:
        z = z + x[mask.nonzero()[:, 0]].sum()
    if flag:
        places = mask.nonzero()[:, 0]
        z = z * 2
    if flag:
        z = z + x[places].sum() + places.shape[0]
    return z


def found_in_a_loop(x: Tensor) -> Tensor:
    mask = x > 0.5
    z = x.sum()
    for a in x:
        if a > 0:
            z = z + mask.nonzero().sum() + x[mask].numel()
    if x[0] > 0:
        places = mask.nonzero()[:, 0]
    if x[0] > 0:
        z = z + places.sum() + places.shape[0]
    return z


def found_on_both_sides(x: Tensor) -> Tensor:
    mask = x > 0.5
    y = mask.nonzero().float() if x.sum() > 0 else mask.nonzero() * 2.0
    return y.sum() + y.shape[0] + torch.unique(x > 0).sum()


@pytest.mark.parametrize(
    "function",
    [tensors_and_numbers, unpacked, in_a_loop, set_again, lists, found_twice, found_in_a_loop, found_on_both_sides],
)
def test_the_condition_is_the_same(function):
    compare(function)


def test_the_rest_of_what_was_put_in_front():
    """As Longformer's attention: the number of columns put in front is a number of the first branch."""

    def function(x: Tensor) -> Tensor:
        rows, n = x.shape
        some = (x > 0.8).any()
        s = torch.stack([x, x, x * 2], -1)
        if some:
            u = int((x > 0.8).sum(1).max())
            s = torch.cat((x.cumsum(1)[:, :u, None].permute(0, 2, 1).expand(rows, n, u), s), -1)
        s = s.softmax(-1)
        z = x.sum(1, keepdim=True)
        if some:
            own = s.narrow(-1, u, s.size(-1) - u)
            assert own.size(2) == 3
            z = z + s.narrow(-1, 0, u).sum((1, 2))[:, None]
            z = z + own.transpose(0, 1).reshape(n, rows, 3).sum((0, 2))[:, None]
        else:
            z = z + s.transpose(0, 1).reshape(n, rows, 3).sum((0, 2))[:, None]
        return z

    shapes = {0: Dim("rows", min=1, max=9), 1: Dim("n", min=3, max=40)}
    model = disc.compile(function, (torch.randn(2, 11),), dynamic_shapes=(shapes,))
    for seed, (rows, n) in enumerate([(2, 9), (1, 3), (3, 37), (9, 40), (2, 11), (4, 5)] * 2):
        torch.manual_seed(seed)
        x = torch.randn(rows, n).clamp(max=0.5 if seed % 3 == 0 else None, min=-9)
        torch.testing.assert_close(model(x), function(x))


def test_a_variable_without_a_value():
    """Where eager raises UnboundLocalError the compiled model raises an error, too."""

    def last(x: Tensor) -> Tensor:
        for i in range(x.shape[0]):
            if x[i] > 0:
                value = x[i] * i
        return value + 1

    model = compiled(last)
    for n in (3, 1, 40):
        x = torch.rand(n) + 0.1
        torch.testing.assert_close(model(x), last(x))
        with pytest.raises(UnboundLocalError):
            last(-x)
        with pytest.raises(disc.ShapeError, match=r"UnboundLocalError: value has no value here \(.*.py:\d+\)"):
            model(-x)


def test_a_change_in_place_that_another_name_sees():
    """An error: the merged tensor is separate memory."""

    def changed(x: Tensor) -> Tensor:
        z = x.clone()
        if x.sum() > 0:
            y = z[1:]
        if x.sum() > 0:
            y += 1
        return z

    with pytest.raises(disc.CompileError, match="changes a tensor that the branch at"):
        compiled(changed)
