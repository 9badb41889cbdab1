"""Models that the tests compile ahead of time, their inputs at given extents, and how exact the results must be."""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.export import Dim

from models import MLP, Block, Decoder


@dataclass(frozen=True)
class Case:
    make: Callable[[], nn.Module]
    inputs: Callable[..., tuple[torch.Tensor, ...]]
    """From the values of the dynamic extents."""
    dynamic_shapes: Any
    points: list[tuple[int, ...]]
    """Values of the extents: the smallest, the largest, primes; growing and shrinking."""
    tolerance: float = 1e-5


class TwoResults(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(-1, 1, 5))

    def forward(self, x, y):
        return x.sum(dim=-1), (x * self.weight + y.unsqueeze(0)).relu()


class Select(nn.Module):
    """Booleans in and out."""

    def forward(self, mask, x):
        return torch.where(mask, x, -x), mask & (x > 0)


class Pairs(nn.Module):
    """An input with twice the rows of another."""

    def forward(self, x, y):
        return x.view(-1, 2, 3).sum(dim=1) * y


class Softmax(nn.Module):
    """No parameters."""

    def forward(self, x):
        return torch.softmax(x, dim=-1) + x.mean()


class Repeated(nn.Module):
    """Some of the results are one tensor in eager; the caller of a library gives each memory of its own."""

    def forward(self, x):
        y = torch.relu(x)
        return y, x, y.flatten(0, 0), x, y + 1, y


class Constant(nn.Module):
    """Nothing dynamic."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 4)

    def forward(self, x):
        return torch.tanh(self.linear(x))


def _rows(maximum):
    return Dim("rows", min=1, max=maximum)


def _mlp(dtype, tolerance):
    return Case(
        lambda: MLP().to(dtype),
        lambda n: (torch.randn(n, 24).to(dtype),),
        ({0: _rows(300)},),
        [(1,), (300,), (7,), (2,), (64,), (127,), (3,), (299,)],
        tolerance,
    )


_BATCH, _LENGTH = Dim("batch", min=1, max=9), Dim("length", min=1, max=100)
_N = Dim("n", min=1, max=50)

CASES = {
    "mlp": _mlp(torch.float32, 1e-5),
    "half": _mlp(torch.float16, 5e-3),
    "bfloat": _mlp(torch.bfloat16, 4e-2),
    "attention": Case(
        lambda: Block(32, 4),
        lambda b, s: (torch.randn(b, s, 32),),
        ({0: _BATCH, 1: _LENGTH},),
        [(1, 1), (9, 100), (3, 17), (2, 64), (5, 97), (1, 100), (9, 1)],
    ),
    "decoder": Case(
        lambda: Decoder(width=32, layers=1),
        lambda b, s: (torch.randint(0, 101, (b, s)),),
        ({0: _BATCH, 1: _LENGTH},),
        [(1, 1), (9, 100), (3, 17), (7, 2)],
        1e-4,
    ),
    "two_results": Case(
        TwoResults,
        lambda n: (torch.randn(n, 5), torch.randn(5)),
        ({0: _rows(1000)}, None),
        [(1,), (1000,), (13,), (2,), (997,)],
    ),
    "select": Case(
        Select,
        lambda n: (torch.rand(n, 3) > 0.5, torch.randn(n, 3)),
        ({0: _N}, {0: _N}),
        [(1,), (50,), (7,), (2,), (47,)],
    ),
    "pairs": Case(
        Pairs,
        lambda n: (torch.randn(2 * n, 3), torch.randn(n, 3)),
        ({0: 2 * _N}, {0: _N}),
        [(1,), (50,), (7,), (2,), (47,)],
    ),
    "softmax": Case(
        Softmax, lambda n, m: (torch.randn(n, m),), ({0: _N, 1: Dim("m", min=1)},), [(1, 1), (50, 333), (7, 31), (2, 2)]
    ),
    "repeated": Case(Repeated, lambda n: (torch.randn(n, 3),), ({0: _N},), [(1,), (50,), (7,), (2,)]),
    "constant": Case(Constant, lambda: (torch.randn(3, 6),), None, [(), ()]),
}


def eager(module, inputs):
    """The module's results, computed in float64."""
    module = copy.deepcopy(module).double()
    with torch.no_grad():
        results = module(*(x.double() if x.is_floating_point() else x for x in inputs))
    return results if isinstance(results, tuple) else (results,)


def check(got, module, inputs, tolerance):
    """`got` is what the library gave, one tensor or a tuple."""
    got = got if isinstance(got, tuple) else (got,)
    expected = eager(module, inputs)
    assert len(got) == len(expected)
    for g, e in zip(got, expected, strict=True):
        assert g.shape == e.shape
        if e.dtype == torch.bool:
            assert g.dtype == torch.bool
            assert torch.equal(g, e)
        else:
            torch.testing.assert_close(g.double(), e, rtol=tolerance, atol=tolerance)
