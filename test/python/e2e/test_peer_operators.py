"""Operators that programs of other compilers' test suites call directly, at sizes other than the example's."""

import pytest
import torch
from torch import nn
from torch.export import Dim

import disc

pytestmark = pytest.mark.share(2)

aten = torch.ops.aten
F = nn.functional


class Call(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x, y):
        return self.function(x, y)


def bags(mode, padding=-1):
    return lambda weight, indices: aten._embedding_bag(
        weight, indices, torch.tensor([0, 2]), False, mode, False, None, False, padding
    )


def indices(*shape):
    return torch.randint(0, 10, shape)


CASES = {
    # All results, but for the rows of maxima.
    "bags, sums": (bags(0), lambda n: (torch.randn(10, 4), indices(n + 3)), ({}, {0: Dim.DYNAMIC})),
    "bags, means": (bags(1), lambda n: (torch.randn(10, 4), indices(n + 3)), ({}, {0: Dim.DYNAMIC})),
    "bags, padding": (bags(1, 3), lambda n: (torch.randn(10, 4), indices(n + 3)), ({}, {0: Dim.DYNAMIC})),
    "bags, sizes": (
        lambda w, i: bags(2)(w, i)[:3],
        lambda n: (torch.randn(10, 4), indices(n + 3)),
        ({}, {0: Dim.DYNAMIC}),
    ),
    "silu_backward": (aten.silu_backward, lambda n: (torch.randn(n, 4), torch.randn(n, 4)), ({0: Dim.DYNAMIC},) * 2),
    # Neither parity of a size is fixed.
    "ceil mode": (
        lambda x, y: (F.max_pool2d(x, 2, 2, 1, ceil_mode=True), F.avg_pool2d(y, 3, 2, 1, ceil_mode=True)),
        lambda n: (torch.randn(2, 3, n + 4, 9), torch.randn(2, 3, n + 5, n + 3)),
        ({2: Dim.DYNAMIC}, {2: Dim.DYNAMIC, 3: Dim.DYNAMIC}),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_operators(name):
    function, inputs, shapes = CASES[name]
    torch.manual_seed(0)
    net = Call(function)
    model = disc.compile(net, inputs(3), dynamic_shapes=shapes)
    for n in (3, 2, 4, 7, 18):
        given = inputs(n)
        torch.testing.assert_close(model(*given), net(*given), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("size, step", [(1, 1), (3, 1), (5, 2), (4, 4), (2, 3), (20, 1), (8, 3)])
def test_overlapping_windows_are_summed(size, step):
    """Few windows overlap, or many; what no window covers is 0."""

    class Sum(torch.nn.Module):
        def forward(self, x):
            windows = x.unfold(1, size, step)
            return torch.ops.aten.unfold_backward(windows, [*x.shape], 1, size, step)

    example = torch.randn(3, 24, 2)
    model = disc.compile(Sum(), (example,), dynamic_shapes=({0: Dim.AUTO, 1: Dim.AUTO},))
    for batch, n in ((1, size), (2, size + 1), (3, 29), (2, 100)):
        x = torch.randn(batch, n, 2)
        torch.testing.assert_close(model(x), Sum()(x), rtol=1e-5, atol=1e-5)
    fixed = disc.compile(Sum(), (example,))
    torch.testing.assert_close(fixed(example), Sum()(example), rtol=1e-5, atol=1e-5)
