"""Sizes computed from numbers that data gives: one number read from a tensor, with arithmetic on it, as an extent."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.export import Dim

import disc
from disc.frontend.rewriting.transform import is_rewritten

pytestmark = pytest.mark.share(2)

N = Dim("n", min=1, max=4096)
GRAPHS = [(7, 3), (1, 1), (13, 5), (64, 40), (3, 2), (200, 17), (2, 2)]


def batch(nodes, graphs):
    return torch.randint(0, graphs, (nodes,)).sort().values


class Creation(nn.Module):
    def forward(self, index):
        n = int(index.max()) + 1
        made = [torch.zeros(n, 4), torch.full((n, 2), 2.5), torch.arange(n), index.new_zeros(n, 2), torch.eye(n)]
        made += [torch.ones(1, 3).expand(n, 3), torch.ones(2, 3).repeat(n, 2), torch.empty(n, 3).fill_(2.0)]
        made += [torch.linspace(0, 1, n), F.one_hot(index, n), torch.ones(n, n).tril(), F.pad(index, (0, n))]
        return made, torch.rand(n, 3).shape[0], torch.bincount(index, minlength=n + 2)


class Arithmetic(nn.Module):
    def forward(self, index):
        high, low = int(index.max()), int(index.min())
        return (
            torch.zeros((high + 3) // 2, 4),
            torch.zeros(high * 2 + 1, high - low + 1),
            torch.zeros((high + 1) * (low + 1)),
            torch.zeros(max(high + 1, 3), min(high + 1, 3)),
            torch.zeros(int(index.float().mean() * 1.5) + 1),
            torch.arange(0, high + 1, 0.5),
            torch.ones(300, 3)[: high + 1],
            torch.ones(300)[low - high :],
        )


class Equalities(nn.Module):
    def forward(self, index):
        n, m = int(index.max()) + 1, index.max().item() + 1
        table = torch.arange(n * 4).view(n, 4)
        return table + torch.ones(m, 4), table[1:] + torch.zeros(n - 1, 4), table.reshape(-1).view(n, 2, 2).sum(0)


class Pooling(nn.Module):
    """As PyTorch Geometric writes it."""

    def forward(self, x, index):
        size = int(index.max().item() + 1)
        total = x.new_zeros(size, x.shape[1]).index_add_(0, index, x)
        count = x.new_zeros(size).scatter_add_(0, index, x.new_ones(x.shape[0]))
        mean = total / count.clamp(min=1).view(-1, 1)
        place = index.view(-1, 1).expand_as(x)
        highest = x.new_zeros(size, x.shape[1]).scatter_reduce_(0, place, x, reduce="amax", include_self=False)
        weights = (x - highest.index_select(0, index)).exp()
        normal = weights / weights.new_zeros(size, x.shape[1]).scatter_add_(0, place, weights).index_select(0, index)
        return total, mean, highest, normal


class DenseBatch(nn.Module):
    """to_dense_batch: as many rows as graphs, as long as the largest."""

    def forward(self, x, index):
        size = int(index.max()) + 1
        count = index.new_zeros(size).scatter_add_(0, index, torch.ones_like(index))
        start = torch.cat([count.new_zeros(1), count.cumsum(0)])
        most = int(count.max())
        place = torch.arange(index.shape[0]) - start[index] + index * most
        out = x.new_zeros(size * most, x.shape[1])
        out[place] = x
        mask = torch.zeros(size * most, dtype=torch.bool)
        mask[place] = True
        return out.view(size, most, x.shape[1]), mask.view(size, most)


class CutBatch(nn.Module):
    """A tensor that changes in place, and then a view of a slice of it, up to a number of unknown sign."""

    def forward(self, x, index):
        size, most = int(index.max()) + 1, int(torch.bincount(index).max())
        room = size * most + 1
        start = torch.bincount(index).cumsum(0) - torch.bincount(index)
        place = torch.arange(index.shape[0]) - start[index] + index * most
        out = x.new_zeros(room, x.shape[1])
        out[place % room] = x
        return out[: size * most].view(size, most, x.shape[1])


class Squares(nn.Module):
    """Conditions that ask for products and quotients of computed numbers."""

    def forward(self, index):
        n = int(index.max()) + 1
        if n * n > torch.iinfo(index.dtype).max:
            raise ValueError("too many")
        if n * n * n > 30 and n / index.shape[0] < 0.4:
            return index * n
        return index - n


class OwnCall(nn.Module):
    """A module whose class has a ``__call__`` of its own, which counts before ``forward`` runs."""

    def __call__(self, x, index, size=None):
        if size is None:
            size = int(index.max()) + 1 if index.numel() > 0 else 0
        return super().__call__(x, index, size)

    def forward(self, x, index, size=None):
        return x.new_zeros(size, x.shape[1]).index_add_(0, index, x)


class OwnCalls(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleList([OwnCall(), OwnCall()])

    def forward(self, x, index):
        return [part(x + n, index) for n, part in enumerate(self.parts)]


@pytest.mark.parametrize("net", [Creation(), Arithmetic(), Equalities(), Squares()], ids=lambda net: type(net).__name__)
def test_sizes(net):
    model = disc.compile(net, (batch(5, 4),), dynamic_shapes=({0: N},))
    for nodes, graphs in GRAPHS:
        index = batch(nodes, graphs)
        torch.testing.assert_close(model(index), net(index))


@pytest.mark.parametrize(
    "net", [Pooling(), DenseBatch(), CutBatch(), OwnCall(), OwnCalls()], ids=lambda net: type(net).__name__
)
def test_graphs(net):
    model = disc.compile(net, (torch.randn(5, 6), batch(5, 4)), dynamic_shapes=({0: N}, {0: N}))
    for nodes, graphs in GRAPHS:
        given = torch.randn(nodes, 6), batch(nodes, graphs)
        torch.testing.assert_close(model(*given), net(*given), rtol=1e-5, atol=1e-5)


def test_a_number_of_one_side_that_may_be_negative():
    def count(index):
        return int(index.max()) + 1 if index.numel() > 0 else 0

    class Net(nn.Module):
        def forward(self, index):
            return torch.arange(count(index))

    net = Net()
    model = disc.compile(net, (torch.tensor([3, 1]),), dynamic_shapes=({0: Dim.AUTO},))
    for index in ([3, 1], [7], [], [-1]):
        given = torch.tensor(index, dtype=torch.int64)
        torch.testing.assert_close(model(given), net(given))
    with pytest.raises(disc.ShapeError, match="-1"):
        model(torch.tensor([-2]))
    assert OwnCall.__call__.__code__.co_name == "__call__" and not is_rewritten(OwnCall.__call__)


def test_numbers_of_a_list():
    class Net(nn.Module):
        def forward(self, lengths):
            a, b, c = lengths.tolist()
            return torch.zeros(a + b, c + 1), torch.arange(sum([a, b, c]))

    net = Net()
    model = disc.compile(net, (torch.tensor([1, 2, 3]),))
    for lengths in ([1, 2, 3], [0, 2, 3], [5, 0, 0], [0, 0, 0], [17, 1, 31], [3, -2, 4]):
        torch.testing.assert_close(model(torch.tensor(lengths)), net(torch.tensor(lengths)))


def test_a_negative_size_is_an_error():
    class Net(nn.Module):
        def forward(self, x):
            return torch.ones(int(x.sum()) - 1)

    model = disc.compile(Net(), (torch.tensor([1, 1]),), dynamic_shapes=({0: N},))
    assert model(torch.tensor([1])).shape == (0,)
    with pytest.raises(disc.ShapeError):
        model(torch.tensor([0]))


@pytest.mark.parametrize(
    "share", [lambda n: math.ceil(0.5 * n), lambda n: max(int(n * 0.7), 1), lambda n: int(0.3 * n)]
)
@pytest.mark.parametrize("dim", [Dim.AUTO, Dim("n", min=1)])
def test_a_share_of_an_extent(share, dim):
    """What is rounded from a share of an extent is no more than the extent, at any size."""

    class Best(nn.Module):
        def forward(self, x):
            return x.topk(share(x.shape[0]), 0).values

    model = disc.compile(Best(), (torch.randn(9, 3),), dynamic_shapes=({0: dim},))
    for n in (9, 1, 2, 3, 50):
        x = torch.randn(n, 3)
        torch.testing.assert_close(model(x), Best()(x))


def set_last(x):
    y = x.clone()
    y[:, -x.shape[1] :] = 0.0
    y[0, -x.shape[1]] = 1.0
    return y


@pytest.mark.parametrize(
    "program",
    [
        lambda x: torch.arange(x.shape[1])[-x.shape[1] :] + x,
        lambda x: torch.cat((x, x), 1)[:, -x.shape[1] :],
        lambda x: x[:, -((x.shape[1] + 1) // 2) :],
        lambda x: x[:, : -(x.shape[1] // 2)],
        lambda x: x[:, -(x.shape[1] - 2) :],
        lambda x: x.select(1, -x.shape[1]),
        lambda x: x.narrow(1, -x.shape[1], 1),
        set_last,
    ],
)
def test_bounds_that_are_negative_extents(program):
    """``x[-n:]`` counts from the end of ``x`` at every size, also where ``n`` may be 0 for all that is known."""

    class Net(nn.Module):
        def forward(self, x):
            return program(x)

    model = disc.compile(Net(), (torch.randn(2, 9),), dynamic_shapes=({0: Dim.AUTO, 1: Dim.AUTO},))
    for rows, n in ((2, 9), (3, 5), (1, 2), (2, 64), (1, 1)):
        x = torch.randn(rows, n)
        try:
            got = model(x)
        except disc.ShapeError:
            assert n == 1  # a size with which torch.export's formula for the length is another
            continue
        torch.testing.assert_close(got, program(x), rtol=0, atol=0)


@pytest.mark.parametrize(
    "program",
    [
        lambda x, k: [x[:, -i:].sum(1) for i in range(x.shape[1])],
        lambda x, k: [x[:, : -i - 1].sum(1) + x[:, -i] * x.select(1, -i - 1) for i in range(x.shape[1])],
        lambda x, k: [x[:, i - 2 : i + 1].sum(1) for i in range(x.shape[1])],
        lambda x, k: [x[:, max(i - 2, 0) : i + 3].mean(1) for i in range(x.shape[1])],
        lambda x, k: [(x[:, i : i + 8] * k[-min(8, x.shape[1] - i) :]).sum(1) for i in range(0, x.shape[1], 8)],
    ],
)
def test_bounds_that_a_step_of_a_loop_computes(program):
    """They count from the end where they are negative, in each step."""

    def stacked(x, k):
        return torch.stack(program(x, k))

    k = torch.arange(8.0)
    model = disc.compile(stacked, (torch.randn(2, 11), k), dynamic_shapes=({1: Dim("n", min=1, max=40)}, None))
    for n in (11, 1, 2, 8, 9, 37, 40):
        x = torch.randn(2, n)
        torch.testing.assert_close(model(x, k), stacked(x, k))


@pytest.mark.filterwarnings("ignore:Since version 1.3.0, affine_grid")
@pytest.mark.parametrize("corners", [True, False])
def test_affine_grids(corners):
    class Grid(nn.Module):
        def forward(self, theta, x):
            return F.affine_grid(theta, list(x.shape), align_corners=corners)

    rows, columns = Dim("rows", min=1, max=99), Dim("columns", min=1, max=99)
    shapes = {0: Dim.AUTO}, {0: Dim.AUTO, 2: rows, 3: columns}
    model = disc.compile(Grid(), (torch.randn(2, 2, 3), torch.randn(2, 3, 7, 9)), dynamic_shapes=shapes)
    for n, h, w in ((2, 7, 9), (1, 1, 1), (3, 1, 5), (1, 20, 13)):
        given = torch.randn(n, 2, 3), torch.randn(n, 3, h, w)
        torch.testing.assert_close(model(*given), Grid()(*given))


def test_two_slices_of_a_step_whose_bounds_are_data():
    """The second one's bounds are computed behind the first one's kernels, and before those that read both."""

    def chunks(x, first, last, begin, end):
        rows = [
            x[int(first[i]) : int(last[i])].softmax(0) + x[int(begin[i]) : int(end[i])] for i in range(first.shape[0])
        ]
        return torch.cat(rows)

    def given(n):
        first = torch.arange(0, n, 4)
        last = (first + 4).clamp(max=n)
        return torch.randn(n, 3), first, last, n - last, n - first

    count = Dim("count", min=1, max=40)
    shapes = ({0: Dim("n", min=1, max=40)}, *[{0: count}] * 4)
    model = disc.compile(chunks, given(11), dynamic_shapes=shapes)
    for n in (11, 1, 4, 5, 40, 3):
        x = given(n)
        torch.testing.assert_close(model(*x), chunks(*x))


@pytest.mark.parametrize("whole", [False, True])
def test_a_number_that_must_be_an_extent_is_one(whole):
    """Code reads the number that data has, or one computed of it, where the extent is required to be the same."""

    class Positions(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.table, self.linear = nn.LayerNorm(16), nn.Embedding(64, 16), nn.Linear(8, 16)

        def forward(self, x, lengths):
            count, again = lengths.sum(), (lengths * 2).sum() // 2
            y = self.linear(x) + self.table(torch.arange(count)) + self.table(torch.arange(again)).cumsum(0)
            if whole:
                # PyTorch decomposes all of the program.
                y = torch.relu(y)
                y.add_(y)
            rows, _ = y.size()
            y = y.reshape(rows, -1)
            y = y + self.linear(self.norm(y)[:, :8])
            return y, self.norm(y).reshape(int(again), 2, -1), self.norm(y).flip(0)[: int(count)]

    def given(*lengths):
        return torch.randn(sum(lengths), 8), torch.tensor(lengths)

    module = Positions().eval()
    model = disc.compile(
        module,
        given(4, 8),
        dynamic_shapes=({0: 4 * Dim("n", min=1, max=15)}, {0: Dim("m", min=1, max=9)}),
    )
    for lengths in ([4], [3, 5], [1, 2, 3, 4, 6], [1, 1, 2], [60]):
        x, numbers = given(*lengths)
        torch.testing.assert_close(model(x, numbers), module(x, numbers), rtol=1e-5, atol=1e-5)
    with pytest.raises(disc.ShapeError):
        model(torch.randn(8, 8), torch.tensor([3]))


def test_tensors_of_one_integer_as_sizes():
    """``h, w = grid`` are tensors, which methods take for sizes."""

    def reshaped(x, grid):
        rows, columns = grid[0] // 2, grid[1]
        table = x.view(rows, 2, columns, -1)
        ones = torch.ones(rows, columns)
        blank = torch.full((rows, 3), x[0, 0]) + x.new_zeros((rows, 1))
        wide = x[:1, :1].expand(columns, 2) + x[0].repeat(columns, 1).sum(1, keepdim=True)
        return table.sum(1).cumsum(0), ones, blank, wide, x.reshape((columns, -1)), torch.zeros(size=(columns, 2))

    def given(rows, columns):
        return torch.randn(2 * rows * columns, 3), torch.tensor([2 * rows, columns])

    model = disc.compile(reshaped, given(3, 4), dynamic_shapes=({0: Dim.AUTO}, {}))
    for sizes in ((3, 4), (1, 1), (7, 5), (2, 1), (1, 13), (11, 3)):
        x, grid = given(*sizes)
        torch.testing.assert_close(model(x, grid), reshaped(x, grid))
    with pytest.raises(disc.ShapeError):
        model(torch.randn(12, 3), torch.tensor([4, 5]))
