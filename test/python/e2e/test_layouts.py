"""Memory that crosses the lanes: transposes, short rows, concatenations, at the edges of vectors and tiles."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.export import Dim

import closeness
import disc

pytestmark = pytest.mark.share(2)

EDGES = (1, 2, 7, 15, 16, 17, 31, 33, 64, 100)


class Function(nn.Module):
    def __init__(self, fn):
        super().__init__()
        self.fn = fn

    def forward(self, *args):
        return self.fn(*args)


def compiled(fn, *examples):
    """The function for extents of any size; equal example extents are equal extents, and 1 is static."""
    names = {}
    dims = tuple(
        {d: names.setdefault(n, Dim(f"d{n}", min=1, max=4096)) for d, n in enumerate(x.shape) if n > 1}
        for x in examples
    )
    return disc.compile(Function(fn), examples, dynamic_shapes=(dims,))


def transposes(x, y):
    return x.t().contiguous(), x.t() + y, F.gelu(x.t() * y) + x.t(), x.unsqueeze(0).transpose(1, 2) * 2


def test_transposes():
    model = compiled(transposes, torch.randn(5, 7), torch.randn(7, 5))
    for rows, columns in itertools.product(EDGES, EDGES):
        x, y = torch.randn(rows, columns), torch.randn(columns, rows)
        torch.testing.assert_close(model(x, y), transposes(x, y), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.bfloat16, torch.int64, torch.int8, torch.bool], ids=lambda d: str(d)[6:]
)
def test_permutation_of_any_dtype(dtype):
    model = compiled(lambda x: x.permute(2, 0, 1).contiguous(), (torch.randn(5, 7, 6) * 10).to(dtype))
    for shape in [(1, 1, 1), (3, 17, 16), (16, 16, 16), (33, 5, 70), (2, 40, 31)]:
        x = (torch.randn(shape) * 10).to(dtype)
        assert torch.equal(model(x), x.permute(2, 0, 1))


def rows(x, mask, scale):
    y = torch.softmax(x + mask, -1)
    z = F.layer_norm(y + x, x.shape[-1:]) * scale
    return y, z, (z * x).sum(-1), x.amax(-1, keepdim=True) - z, x.argmax(-1), x.sum(-1) + x[..., 0]


def test_short_rows():
    """Operands that merge with the rows, that repeat along them (the mask), and that are read along them."""
    model = compiled(rows, torch.randn(2, 3, 4, 5), torch.randn(2, 1, 1, 5), torch.randn(5))
    for shape in itertools.product((1, 3), (1, 4), (1, 7, 15, 16, 17, 40), (1, 2, 7, 15, 16, 17, 33)):
        x, scale = torch.randn(shape), torch.randn(shape[-1])
        mask = torch.randn(shape[0], 1, 1, shape[-1])
        got, want = model(x, mask, scale), rows(x, mask, scale)
        if shape[-1] == 1:  # the variance of one element is zero, and its norm what rounding makes of it
            got, want = (got[0], *got[4:]), (want[0], *want[4:])
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize("shape", [(64, 7), (9, 16), (3, 5, 4), (40, 1)])
def test_short_rows_of_static_extent(shape):
    dims = {0: Dim("n", min=1, max=4096)}
    fn = Function(lambda x: (torch.softmax(x, -1), x.double().sum(-1), x.argmax(-1)))
    model = disc.compile(fn, (torch.randn(5, *shape[1:]),), dynamic_shapes=((dims,),))
    for n in EDGES:
        x = torch.randn(n, *shape[1:])
        torch.testing.assert_close(model(x), fn(x), rtol=1e-5, atol=1e-5)


def joined(x, y):
    return torch.cat([x, y, x * 2], -1), torch.cat([x.t(), y.t()], 0), torch.cat([y, x], 1) + 1


def test_concatenations():
    model = compiled(joined, torch.randn(5, 7), torch.randn(5, 6))
    for n, a, b in itertools.product((1, 3, 17), (1, 2, 15, 16, 33), (1, 16, 31, 200)):
        x, y = torch.randn(n, a), torch.randn(n, b)
        torch.testing.assert_close(model(x, y), joined(x, y))


def running(x):
    return x.cumsum(-1), x.cumsum(0), x.cumsum(1), (x * 10).int().cumsum(1), x.bfloat16().cumsum(2)


def test_running_sums():
    model = compiled(running, torch.randn(3, 5, 7))
    for shape in itertools.product((1, 2, 5), (1, 4, 17), (1, 2, 15, 16, 17, 33, 100)):
        x = torch.randn(shape)
        closeness.check(running, (x,), model(x))
    flat = compiled(lambda x: x.cumsum(0), torch.randn(7))
    x = torch.rand(4001)
    torch.testing.assert_close(flat(x), x.cumsum(0))


def turned(x, y):
    rows = x.sum(-1) + y
    return rows.permute(0, 2, 1), x.sum(1).transpose(1, 2), (x * x).softmax(-1).permute(0, 2, 1, 3), rows


def test_reductions_stored_in_another_order():
    model = compiled(turned, torch.randn(3, 5, 7, 4), torch.randn(7))
    for a, b, c in ((1, 2, 3), (3, 17, 40), (2, 5, 33)):
        x, y = torch.randn(a, b, c, 20), torch.randn(c)
        torch.testing.assert_close(model(x, y), turned(x, y))
