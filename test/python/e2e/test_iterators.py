"""Iterators, groups of equal elements and tables of values in loops over data."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.export import Dim

import disc

N, M = Dim("n", min=1), Dim("m", min=1)
SIZES = ((5, 7), (1, 1), (2, 9), (13, 3), (3, 1), (7, 11))


def compare(function, given, shapes, sizes=SIZES, example=(5, 7)):
    """Compiles once, and compares with eager at several sizes. ``given`` makes the arguments for them."""

    def arguments(size):
        torch.manual_seed(sum(size))
        return given(*size)

    model = disc.compile(function, arguments(example), dynamic_shapes=shapes)
    for size in sizes:
        got, expected = model(*arguments(size)), function(*arguments(size))
        torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5, msg=lambda text: f"{size}: {text}")
    return model


def flags_and_rows(n, m):
    """Flags, and rows of which there are as many as flags are set, and one more."""
    flags = torch.randint(0, 2, (n,))
    return flags, torch.randn(int(flags.sum()) + 1, m)


def test_next_where_data_says_so():
    def placed(flags: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        source = iter(rows)
        found = []
        for flag in flags:
            if flag == 1:
                found.append(next(source) * 2)
            else:
                found.append(torch.zeros(rows.shape[1]))
        return torch.stack(found), next(source)

    model = compare(placed, flags_and_rows, ({0: N}, {0: Dim.DYNAMIC, 1: M}))
    with pytest.raises(disc.ShapeError, match="StopIteration"):
        model(torch.ones(4, dtype=torch.int64), torch.randn(4, 3))


def test_next_of_a_list_and_with_a_default():
    class Layers(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(3))

        def forward(self, x: Tensor, flags: Tensor) -> tuple[Tensor, int, Tensor]:
            weights = iter([layer.weight for layer in self.layers])
            first = next(weights)
            numbers = iter(range(2, 9))
            total = 0
            for flag in flags:
                if flag > 0:
                    x = x @ next(weights, first)
                    total = total + next(numbers, 100)
            rest = iter([1, 2])
            return x, total, next(rest) + next(rest) + next(rest, 5) * first

    compare(
        Layers().eval(),
        lambda n, m: (torch.randn(m, 4), torch.randint(0, 2, (n,))),
        ({0: M}, {0: N}),
        sizes=((5, 7), (1, 1), (2, 9), (11, 2)),
    )


def test_a_loop_takes_the_rest():
    def rest(x: Tensor) -> tuple[Tensor, Tensor]:
        source = iter(x)
        first = next(source)
        total = torch.zeros_like(first)
        for row in source:
            total = total * 0.5 + row
        return first, total

    compare(rest, lambda n, m: (torch.randn(n, m),), ({0: N, 1: M},))


def test_a_table_at_a_number_of_data():
    def chosen(kinds: Tensor, x: Tensor) -> tuple[Tensor, Tensor, int]:
        tables = {1: x, 2: x * 3, 7: x.flip(0)}
        widths = {0: 4, 1: 5, 2: 6, 7: 8}
        total, last, width = torch.zeros_like(x), x, 0
        for kind in kinds.tolist():
            if kind != 0:
                last = tables[kind]
                total = total * 0.5 + last
            width += widths[kind]
        return total, last, width

    model = compare(
        chosen,
        lambda n, m: (torch.tensor([0, 1, 2, 7])[torch.randint(0, 4, (n,))], torch.randn(m, 3)),
        ({0: N}, {0: M}),
    )
    with pytest.raises(disc.ShapeError, match="KeyError"):
        model(torch.tensor([1, 3]), torch.randn(2, 3))


def test_iterators_in_a_table():
    """Each kind of element has its own source, of which one may be missing."""

    def merged(kinds: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        both = {1: iter(a), 2: iter(b)}
        one = {1: iter(a), 2: None}
        found, only = [], []
        for kind in kinds.tolist():
            if kind == 0:
                found.append(a[0] * 0)
            else:
                found.append(next(both[kind]))
                if kind == 1:
                    only.append(next(one[kind]) + 1)
        return torch.stack(found), torch.stack([*only, a[0]])

    def given(n, m):
        kinds = torch.randint(0, 3, (n,))
        return kinds, *(torch.randn(int((kinds == kind).sum()) + 1, m) for kind in (1, 2))

    compare(merged, given, ({0: N}, {0: Dim.DYNAMIC, 1: M}, {0: Dim.DYNAMIC, 1: M}))


def test_groups_of_equal_numbers():
    def runs(kinds: Tensor) -> tuple[Tensor, Tensor]:
        found = []
        for key, group in itertools.groupby(enumerate(kinds.tolist()), lambda pair: pair[1]):
            group = list(group)
            found.append((key, group[0][0], group[-1][0] + 1, len(group)))
        lengths = [len(list(group)) for _, group in itertools.groupby(kinds.tolist())]
        return torch.tensor(found), torch.tensor(lengths)

    compare(runs, lambda n, m: (torch.randint(0, 2, (n,)),), ({0: N},), sizes=(*SIZES, (40, 1), (64, 1)))


def test_groups_by_a_function():
    def sums(x: Tensor, kinds: Tensor) -> tuple[Tensor, Tensor, int]:
        found, keys = [], []
        for key, group in itertools.groupby(zip(x, kinds.tolist()), key=lambda pair: pair[1] // 3 > 0):
            total = torch.zeros(x.shape[1])
            for row, kind in group:
                total = total + row * kind
            found.append(total)
            keys.append(key)
        return torch.stack(found), torch.tensor(keys), len(keys)

    compare(sums, lambda n, m: (torch.randn(n, m), torch.randint(0, 6, (n,))), ({0: N, 1: M}, {0: N}))


def test_lists_of_pairs():
    def pairs(kinds: Tensor) -> tuple[Tensor, int, int]:
        numbered = list(enumerate(kinds.tolist(), 3))
        both = [*zip(kinds.tolist(), range(len(kinds)))]
        return torch.tensor(numbered), numbered[-1][0], both[0][1] + len(both)

    compare(pairs, lambda n, m: (torch.randint(0, 9, (n,)),), ({0: N},))


def test_a_number_or_a_tensor_of_one():
    """One side of a branch adds a number, the other a tensor of one number."""

    def positions(kinds: Tensor, grid: Tensor) -> tuple[Tensor, Tensor]:
        position = 0
        found = []
        for number, kind in enumerate(kinds.tolist()):
            if kind == 0:
                found.append(torch.arange(number + 1) + position)
                position += number + 1
            else:
                found.append(torch.arange(kind) * 2 + position)
                position += max(grid[0], grid[1]) // 2
        return torch.cat(found), torch.zeros(3) + position

    compare(
        positions,
        lambda n, m: (torch.randint(0, 4, (n,)), torch.randint(1, 9, (2,))),
        ({0: N}, {}),
    )


class NamedExperts(nn.ModuleDict):
    """As mixtures of experts name them: the experts that data chooses, by a text with their number."""

    def __init__(self):
        super().__init__({f"expert_{n}": nn.Linear(4, 4) for n in range(5)})
        self.scale_0, self.scale_3 = nn.Parameter(torch.randn(4)), nn.Parameter(torch.randn(4))
        self.scale_1 = self.scale_2 = self.scale_4 = nn.Parameter(torch.ones(4))
        self["other"] = nn.Linear(4, 4)

    def forward(self, x, chosen):
        out = torch.zeros_like(x)
        mask = F.one_hot(chosen, 5).T
        for hit in (mask.sum(1) > 0).nonzero():
            (rows,) = torch.where(mask[hit].squeeze(0))
            done = self[f"expert_{hit[0]}"](x[rows]) * getattr(self, f"scale_{int(hit)}")
            out.index_add_(0, rows, done)
        return out + self["other"](x)


def test_experts_by_their_names():
    module = NamedExperts().eval()
    model = disc.compile(
        module,
        (torch.randn(6, 4), torch.tensor([0, 1, 2, 3, 4, 0])),
        dynamic_shapes=({0: N}, {0: N}),
    )
    for n in (6, 1, 3, 13, 2):
        x, chosen = torch.randn(n, 4), torch.randint(0, 5, (n,))
        torch.testing.assert_close(model(x, chosen), module(x, chosen), rtol=1e-5, atol=1e-5)
