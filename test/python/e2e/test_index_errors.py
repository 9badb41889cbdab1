"""Indices out of range: the call fails as eager's does, names the operation and the line, and the next call works."""

import pytest
import torch
from torch import nn

import disc

ROWS = torch.export.Dim("rows", min=1, max=512)


class Embed(nn.Module):
    def __init__(self, size=10, width=40):
        super().__init__()
        self.table = nn.Embedding(size, width)

    def forward(self, ids):
        return self.table(ids) * 2


class Pick(nn.Module):
    def forward(self, x, index):
        return x[index] + 1


class Gather(nn.Module):
    def forward(self, x, index):
        return torch.gather(x, 1, index)


@pytest.mark.parametrize("rows", [1, 5, 64, 257])
@pytest.mark.parametrize("wrong", [10, -1, 2**40, -(2**63)])
def test_embedding(rows, wrong):
    module = Embed().eval()
    model = disc.compile(module, (torch.zeros(4, dtype=torch.int64),), dynamic_shapes=({0: ROWS},))
    ids = torch.arange(rows) % 10
    expected = module(ids)
    torch.testing.assert_close(model(ids), expected)
    ids[rows // 2] = wrong
    with pytest.raises(IndexError, match=rf"embedding at .*\.py:\d+: index {wrong} is out of range .* extent 10"):
        model(ids)
    ids[rows // 2] = (rows // 2) % 10
    torch.testing.assert_close(model(ids), expected)


def test_advanced_indexing_counts_from_the_end():
    model = disc.compile(
        Pick(),
        (torch.randn(6, 3), torch.zeros(4, dtype=torch.int64)),
        dynamic_shapes=({0: ROWS}, {0: torch.export.Dim("count", min=1, max=8)}),
    )
    for rows in (1, 2, 17, 300):
        x = torch.randn(rows, 3)
        index = torch.tensor([0, -1, rows - 1, -rows])
        torch.testing.assert_close(model(x, index), x[index] + 1)
        for wrong in (rows, -rows - 1):
            with pytest.raises(IndexError, match=rf"index {wrong} is out of range .* extent {rows}"):
                model(x, torch.tensor([0, wrong]))


def test_gather_has_no_negative_indices():
    rows, columns = torch.export.Dim("n", min=1, max=64), torch.export.Dim("m", min=1, max=64)
    model = disc.compile(
        Gather(),
        (torch.randn(3, 5), torch.zeros(3, 4, dtype=torch.int64)),
        dynamic_shapes=({0: rows, 1: columns}, {0: rows, 1: torch.export.Dim("k", min=1, max=64)}),
    )
    for n, m, k in ((1, 1, 1), (3, 17, 16), (7, 5, 33)):
        x, index = torch.randn(n, m), torch.randint(0, m, (n, k))
        torch.testing.assert_close(model(x, index), torch.gather(x, 1, index))
        for wrong in (-1, m):
            bad = index.clone()
            bad[n - 1, k - 1] = wrong
            with pytest.raises(IndexError, match=rf"gather.* index {wrong} "):
                model(x, bad)


@pytest.mark.parametrize(
    ("function", "right", "wrong"),
    [
        (lambda x, y: x.slice_scatter(y, 1, 2, 6, 2), ((3, 8), (3, 2)), ((3, 8), (3, 3))),
        (lambda x, y: x.slice_scatter(y, 0, 1, -1), ((5, 4), (3, 4)), ((5, 4), (4, 4))),
        (lambda x, y: x.select_scatter(y[0], 1, 0), ((4, 3), (2, 4)), ((3, 4), (2, 4))),
        (lambda x, y: x.diagonal_scatter(y[0]), ((4, 3), (2, 3)), ((4, 2), (2, 3))),
        (lambda x, y: x.as_strided((2, 3), (4, 2), 1) + y.sum(), ((3, 4), (1, 1)), ((3, 3), (1, 1))),
    ],
)
def test_parts_of_another_size(function, right, wrong):
    """Nothing is read or written beyond a tensor, and nothing is broadcast that eager does not."""

    class Parts(nn.Module):
        def forward(self, x, y):
            return function(x, y)

    dims = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    inputs = tuple(torch.rand(shape) for shape in right)
    model = disc.compile(Parts(), inputs, dynamic_shapes=(dims, dims))
    torch.testing.assert_close(model(*inputs), function(*inputs))
    with pytest.raises((disc.ShapeError, RuntimeError)):
        model(*(torch.rand(shape) for shape in wrong))
    torch.testing.assert_close(model(*inputs), function(*inputs))


@pytest.mark.parametrize("copied", [lambda x: x.to(memory_format=torch.channels_last), lambda x: x.mT.contiguous().mT])
def test_strided_views_of_copies(copied):
    class View(nn.Module):
        def forward(self, x):
            return copied(x).as_strided((2, 3, 4), (12, 1, 3))

    x = torch.arange(24.0).reshape(1, 3, 2, 4)
    assert torch.equal(disc.compile(View(), (x,))(x), View()(x))


def test_a_strided_view_of_an_unsafe_view():
    class View(nn.Module):
        def forward(self, x):
            return torch.ops.aten._unsafe_view(x[1:], [4, 4]).as_strided((3, 2), (2, 5), 1)

    x = torch.arange(24.0).reshape(3, 8)
    assert torch.equal(disc.compile(View(), (x,))(x), View()(x))


UNLIKE = {
    "index_add": (lambda x, i, s: x.index_add(0, i, s), (4, 5), (3,), (3, 5), [((4, 2), (3,), (3, 5))]),
    "index_reduce": (
        lambda x, i, s: x.index_reduce(0, i, s, "amax"),
        (4, 5),
        (3,),
        (3, 5),
        [((4, 7), (3,), (3, 5)), ((4, 5), (3,), (2, 5)), ((4, 5), (9,), (3, 5))],
    ),
    "put": (
        lambda x, i, s: x.put(i, s),
        (4, 5),
        (3, 6),
        (6, 3),
        [((4, 5), (3, 6), (2, 3)), ((4, 5), (5, 5), (6, 3))],
    ),
    "pool": (
        lambda g, i, x: torch.ops.aten.max_pool2d_with_indices_backward(g, x, [2, 2], [1, 1], [0, 0], [1, 1], False, i),
        (3, 4, 6, 5),
        (3, 4, 6, 5),
        (3, 4, 7, 6),
        [((3, 4, 6, 5), (3, 4, 6, 5), (0, 4, 7, 6)), ((2, 4, 6, 5), (3, 4, 6, 5), (3, 4, 7, 6))],
    ),
}


@pytest.mark.parametrize("name", UNLIKE)
def test_sources_unlike_their_index(name):
    """What is written has the extents of its index: nothing outside is read or written."""
    function, *right, wrong = UNLIKE[name]

    class Write(nn.Module):
        def forward(self, x, index, source):
            return function(x, index, source)

    def make(x, index, source):
        return torch.randn(x), torch.zeros(index, dtype=torch.int64), torch.randn(source)

    dims = tuple(dict.fromkeys(range(len(shape)), torch.export.Dim.AUTO) for shape in right)
    inputs = make(*right)
    model = disc.compile(Write(), inputs, dynamic_shapes=dims)
    torch.testing.assert_close(model(*inputs), function(*inputs))
    for shapes in wrong:
        with pytest.raises((RuntimeError, IndexError)):
            function(*make(*shapes))
        with pytest.raises(disc.ShapeError):
            model(*make(*shapes))
    torch.testing.assert_close(model(*inputs), function(*inputs))


def write_column(cache, x, position, rows):
    cache[:, position] = x
    cache[..., position, 1:3] += 1
    cache[rows, position] = 2.0
    return cache.sum(1)


def test_assignment_at_a_position_that_is_a_tensor():
    def inputs(batch, length, position):
        rows = torch.tensor([0, batch - 1])
        return torch.randn(batch, length, 4), torch.randn(batch, 4), torch.tensor(position), rows

    shapes = ({0: "batch", 1: "length"}, {0: "batch"}, None, None)
    model = disc.compile(write_column, inputs(2, 8, 3), dynamic_shapes=shapes)
    for batch, length, position in ((1, 1, 0), (3, 30, 29), (2, 7, -7)):
        given = inputs(batch, length, position)
        expected = [x.clone() for x in given]
        torch.testing.assert_close(model(*given), write_column(*expected))
        torch.testing.assert_close(given[0], expected[0])
    with pytest.raises(IndexError, match="index 7 is out of range"):
        model(*inputs(2, 7, 7))
