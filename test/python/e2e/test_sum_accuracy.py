"""Long sums against f64: the error must not grow with the number of terms.

All terms are positive, so that a relative bound on each element is one on the sum itself. A chain of n additions in f32
may be off by n * 2**-24; blocked summation keeps every result here within 16 * 2**-24, whatever n is.
"""

import pytest
import torch
import torch.nn.functional as F

import disc
from disc import Options

pytestmark = pytest.mark.share(2)

UNIT = 2.0**-24
BLOCK = 64  # terms that a kernel adds one after another


def positive(*shape):
    return torch.rand(shape) + 0.1


def check(model, module, inputs, bound=16):
    exact = module(*(t.double() for t in inputs))
    got = model(*inputs)
    assert got.dtype == torch.float32 and got.shape == exact.shape
    error = ((got.double() - exact).abs() / exact.abs()).max().item() if exact.numel() else 0.0
    assert error <= bound * UNIT, (error / UNIT, [tuple(t.shape) for t in inputs])


class Call(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


REDUCTIONS = {
    "columns": lambda x: x.sum(0),
    "rows": lambda x: x.t().contiguous().sum(1),
    "all": lambda x: x.sum(),
    "both sides": lambda x: x.reshape(-1, 3, 4).sum((0, 2)),
    "mean": lambda x: x.mean(0),
    "norm": lambda x: x.norm(dim=0),
    "variance": lambda x: x.var(0, unbiased=False) + 1,
    "running": lambda x: x.cumsum(0),
    "running in rows": lambda x: x.t().contiguous().cumsum(1),
    "product": lambda x: x.t() @ x,
}


@pytest.mark.parametrize("name", REDUCTIONS)
def test_any_number_of_terms(name):
    """One compilation, sizes at the edges of blocks and of blocks of blocks, growing, then shrinking."""
    torch.manual_seed(0)
    module = Call(REDUCTIONS[name])
    n = torch.export.Dim("n", min=1)
    model = disc.compile(module, (positive(7, 12),), dynamic_shapes=({0: n},), options=Options(progress=False))
    # Products add up to 1536 terms in a row, as a library for them does.
    bound = 48 if name == "product" else 16
    for rows in (1, BLOCK - 1, BLOCK, BLOCK + 1, BLOCK * BLOCK - 1, BLOCK * BLOCK + 1, 100_003, 127, 3):
        check(model, module, (positive(rows, 12),), bound)


class Attend(torch.nn.Module):
    def forward(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v)


@pytest.mark.parametrize("queries", [1, 5, 33])
def test_attention_to_many_keys(queries):
    torch.manual_seed(0)
    keys = torch.export.Dim("keys", min=1)
    shapes = ({}, {2: keys}, {2: keys})

    def inputs(n):
        return positive(1, 2, queries, 32), positive(1, 2, n, 32), positive(1, 2, n, 32)

    model = disc.compile(Attend(), inputs(9), dynamic_shapes=shapes, options=Options(progress=False))
    for n in (1, 17, 20_011, 64):
        check(model, Attend(), inputs(n), 24)


class Filter(torch.nn.Module):
    def __init__(self, weight):
        super().__init__()
        self.register_buffer("weight", weight)

    def forward(self, x):
        return F.conv2d(x, self.weight.to(x.dtype))


@pytest.mark.parametrize("channels,kernel", [(1031, (3, 3)), (3, (1, 4001)), (5, (1, 1)), (3000, (1, 1))])
def test_convolution_with_many_terms(channels, kernel):
    torch.manual_seed(0)
    module = Filter(positive(20, channels, *kernel))
    width = torch.export.Dim("width", min=kernel[1])
    example = positive(1, channels, kernel[0], kernel[1] + 6)
    model = disc.compile(module, (example,), dynamic_shapes=({3: width},), options=Options(progress=False))
    # How many terms one register sums depends on the caches, at most all 4,001: roundings add up to their square root.
    for more in (0, 1, 16, 40):
        check(model, module, (positive(1, channels, kernel[0], kernel[1] + more),), 64)
