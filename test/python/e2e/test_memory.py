"""The arena of whole models: close to the largest live set at every shape, results in the storage of operands."""

import pytest
import torch
from torch import nn
from torch.export import Dim

import closeness
import disc
from models import Decoder
from shapes import SMALL_SIZES, shuffled_pairs


class Alternating(nn.Module):
    """Reductions along rows and columns in turn, which cannot share a kernel; the row kernels work in place."""

    def forward(self, x):
        for _ in range(3):
            x = torch.softmax(x, dim=0) + x
            x = torch.softmax(x, dim=1) * x
            x = nn.functional.layer_norm(x.cumsum(0), x.shape[1:]) - x
        return x * 2, x.sum(0)


class TwoSizes(nn.Module):
    """Temporaries of sizes that no fact orders: which is larger depends on the call."""

    def forward(self, x, y):
        for _ in range(3):
            scores = torch.softmax(x @ y.T, dim=-1)
            x = nn.functional.gelu(torch.softmax(scores @ y, dim=0) + x)
        return x


def test_decoder_is_near_the_largest_live_set():
    dims = ({0: Dim("batch", min=1, max=64), 1: Dim("length", min=2, max=128)},)
    model = disc.compile(Decoder().eval(), (torch.randint(0, 101, (2, 8)),), dynamic_shapes=dims)
    for batch, length in [(1, 2), (1, 7), (1, 128), (3, 17), (64, 2), (64, 128), (5, 31)]:
        use = model.memory(batch=batch, length=length)
        assert use.live <= use.arena <= 1.1 * use.live, (batch, length)


def test_two_sizes():
    rows, columns = Dim("rows", min=1, max=4096), Dim("columns", min=1, max=4096)
    module = TwoSizes()
    model = disc.compile(module, (torch.randn(5, 24), torch.randn(7, 24)), dynamic_shapes=({0: rows}, {0: columns}))
    for r, c in [(1, 1), (1, 4096), (4096, 1), (24, 24), (25, 23), (23, 25), (100, 1000), (4096, 4096)]:
        use = model.memory(rows=r, columns=c)
        assert use.live <= use.arena <= 1.1 * use.live, (r, c)
    for r, c in shuffled_pairs(SMALL_SIZES, SMALL_SIZES):
        x, y = torch.randn(r, 24), torch.randn(c, 24)
        torch.testing.assert_close(model(x, y), module(x, y), rtol=1e-4, atol=1e-5)


def test_in_place():
    rows, columns = Dim("rows", min=1, max=4096), Dim("columns", min=2, max=4096)
    module = Alternating()
    model = disc.compile(module, (torch.randn(5, 6),), dynamic_shapes=({0: rows, 1: columns},))
    assert model.memory(rows=5, columns=6).in_place >= 3
    for r, c in [(1, 2), (2, 15), (3, 16), (17, 17), (64, 33), (31, 100), (300, 7)]:
        x = torch.randn(r, c)
        closeness.check(module, (x,), model(x))


def test_memory_needs_every_symbol():
    model = disc.compile(
        Alternating(), (torch.randn(5, 6),), dynamic_shapes=({0: Dim("rows", min=1), 1: Dim("cols", min=2)},)
    )
    with pytest.raises(ValueError, match="every symbol"):
        model.memory(rows=3)
    for function in (model.memory, model.memory_curve, model.kernels):
        with pytest.raises(ValueError, match=r"no dynamic size 'row'; did you mean 'rows'\? Its dynamic sizes: rows"):
            function(row=3, cols=4)
        with pytest.raises(ValueError, match="rows: expected a size, 0 or more, got -3; the dynamic sizes: rows, cols"):
            function(rows=-3, cols=4)
        with pytest.raises(TypeError, match=r"rows: expected an int, got 3\.0"):
            function(rows=3.0, cols=4)


WRITTEN_WITH_ITSELF = {
    "scatter": lambda x, i: x.scatter(1, i, x),
    "scatter of integers": lambda x, i: (k := (x * 4).long()).scatter(1, i, k),
    "scatter of a view": lambda x, i: x.scatter(1, i, x.t().reshape(x.shape)),
    "scatter_reduce": lambda x, i: x.scatter_reduce(1, i, x, "amax"),
    "scatter_add": lambda x, i: x.scatter_add(1, i, x),
    "index_put": lambda x, i: x.index_put((i[:, 0] % x.shape[0],), x),
    "index_add": lambda x, i: x.index_add(1, i[0], x),
    "slice_scatter": lambda x, i: x.slice_scatter(x[:, :-1], 1, 1),
    "select_scatter": lambda x, i: x.select_scatter(x[0], 0, x.shape[0] - 1),
    "masked_scatter": lambda x, i: x.masked_scatter(x > 0, x),
}


@pytest.mark.parametrize("name", WRITTEN_WITH_ITSELF)
def test_what_is_written_into_a_tensor_is_that_tensor(name):
    """Its memory, which nobody reads later, is no place for the result: what is written there is still to be read."""
    write = WRITTEN_WITH_ITSELF[name]

    class Write(torch.nn.Module):
        def forward(self, x, i):
            return write(x * 2, i) + 1

    def inputs(rows, columns):
        return torch.randn(rows, columns), torch.rand(rows, columns).argsort(1)

    dims = dict.fromkeys(range(2), Dim.AUTO)
    model = disc.compile(Write(), inputs(3, 11), dynamic_shapes=(dims, dims))
    for rows, columns in ((3, 11), (2, 5), (7, 40), (1, 300)):
        x, i = inputs(rows, columns)
        torch.testing.assert_close(model(x, i), Write()(x, i))
