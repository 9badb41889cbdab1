"""functools.reduce and its like over sequences whose length is known at run time only."""

import functools
import itertools
import operator

import pytest
import torch
from torch.export import Dim

import disc

FOLDS = {
    "rows": lambda x: functools.reduce(lambda a, b: a * 0.5 + b, x),
    "from a value on": lambda x: functools.reduce(lambda a, b: a * 0.5 + b, x, torch.ones(3)),
    "operators": lambda x: (
        functools.reduce(torch.maximum, x.unbind(0)) + functools.reduce(operator.add, [r * 2 for r in x])
    ),
    "numbers": lambda x: functools.reduce(lambda a, i: a + x[i] * i, range(x.shape[0]), torch.zeros(3)),
    "all values": lambda x: torch.stack(list(itertools.accumulate(x, lambda a, b: a * 0.5 + b))),
    "sums": lambda x: torch.stack([row * 2 for row in itertools.accumulate(x)]),
    "neighbours": lambda x: sum([(a - b).norm() for a, b in itertools.pairwise(x)], x.new_zeros(())),
    "columns": lambda x: functools.reduce(torch.add, x.unbind(1)),
}


@pytest.mark.parametrize("name", FOLDS)
def test_fold(name):
    function = FOLDS[name]
    model = disc.compile(function, (torch.randn(5, 3),), dynamic_shapes=({0: Dim("n", min=1)},))
    for n in (5, 1, 2, 7, 16, 1):
        x = torch.randn(n, 3)
        torch.testing.assert_close(model(x), function(x), rtol=1e-5, atol=1e-5)


def test_neighbours_of_no_rows():
    def length(x):
        total = x.new_zeros(())
        for a, b in itertools.pairwise(x):
            total = total + (a - b).norm()
        return total

    model = disc.compile(length, (torch.randn(5, 3),), dynamic_shapes=({0: Dim("n")},))
    for n in (5, 0, 1, 2):
        x = torch.randn(n, 3)
        torch.testing.assert_close(model(x), length(x))
