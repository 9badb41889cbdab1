"""Lists whose length depends on data: appended to on one side, filtered, sliced, counted, popped, iterated over."""

import itertools

import pytest
import torch
from torch import nn
from torch.export import Dim
from torch.utils import _pytree as pytree

import disc

pytestmark = pytest.mark.share(2)

LENGTHS = (1, 2, 3, 7, 12, 5, 40, 1)


class Function(nn.Module):
    def __init__(self, fn):
        super().__init__()
        self.fn = fn

    def forward(self, x):
        return self.fn(x)


def compiled(fn):
    return disc.compile(Function(fn), (torch.randn(5, 3),), dynamic_shapes=({0: Dim("n", min=1, max=40)},))


def check(fn):
    model = compiled(fn)
    for seed, n in enumerate(itertools.chain(LENGTHS, LENGTHS, LENGTHS)):
        x = torch.randn(n, 3, generator=torch.Generator().manual_seed(seed))
        expected, actual = pytree.tree_leaves(fn(x)), pytree.tree_leaves(model(x))
        assert len(expected) == len(actual)
        for a, b in zip(actual, expected, strict=True):
            torch.testing.assert_close(torch.as_tensor(a), torch.as_tensor(b))


def test_branches():
    """Elements on one side, other ones on each side, both before and behind others."""

    def sides(x):
        one, two, more, whole = [x[0]], [], [x[0]], []
        if x.sum() > 0:
            one.append(x[0] * 2)
            two.append(x[0])
            two.append(x[0] + 1)
            more.extend([x[0] * 2, x[0] * 3])
            whole = [x[0], x[0] + 1]
        else:
            two.append(x[0] - 1)
            whole = [x[0]]
        two.append(x[-1])
        more += [x[-1]]
        kept = [v * 2 for v in (x[0], x[0] + 1, x[0] - 1) if v.sum() > 0]
        stacked = torch.stack(kept) if kept else x.new_zeros(0, 3)
        return torch.stack(one), len(one), torch.cat(two), two[-1], two[0], torch.stack(more), len(whole), stacked

    check(sides)


def test_what_is_no_tensor():
    """Functions and tuples that are there on a condition: the loop over them goes around those that are not."""

    def some(x):
        pairs = []
        if x.sum() > 0:
            pairs.append((x[0], "up"))
        pairs.append((x[-1], "down"))
        total = x[0] * 0
        for value, way in pairs:
            total = total + value if way == "up" else total - value
        functions = [f for f, limit in ((torch.sin, 0.0), (torch.cos, 0.5), (torch.tanh, -0.5)) if x.sum() > limit]
        for f in functions:
            x = f(x)
        return total, x, len(functions), len(pairs)

    check(some)


def test_loops():
    """Filters, breaks, and elements that steps before have appended."""

    def filtered(x):
        out = [v * 2 for v in x if v.sum() > 0]
        rest = []
        for v in x:
            if v.sum() > 2:
                break
            rest.append(v + 1)
        total = x[0] * 0
        for i, (a, b) in enumerate(zip(out, out[1:])):  # noqa: RUF007
            total = total + a * b * i
        if not rest:
            return x.new_zeros(1, 3), total, len(out)
        return torch.stack(rest), total, len(out)

    def looking_back(x):
        out, far, three = [x[0]], [x[0], x[0] + 1], []
        for v in x:
            if (out[-1] - v).abs().max() > 0.8:
                out.append(v)
            far.append(far[-2] * 0.5 + v)
        for v in x:
            if v.sum() > 0:
                three.append(v)
                if len(three) >= 3:
                    break
        three.append(x[0])
        return torch.stack(out), torch.stack(far), torch.cat(three)

    def nested(x):
        out = []
        for v in x:
            for j in range(int(v.argmax()) + 1):
                out.append(v * j)
        return torch.stack(out), len(out)

    def replaced(x):
        out, some, numbers = [], [x[0]], []
        for v in x:
            out = [*out, v]
            if v.sum() > 0:
                some = some + [v * 2]
                numbers = numbers + [1]
        return torch.stack(out), torch.stack(some), len(numbers)

    for fn in (filtered, looking_back, nested, replaced):
        check(fn)


def test_slices():
    """Forwards and backwards, elements from both ends."""

    def slices(x):
        out = [v + 1 for v in x]
        some = [v for v in x if v.sum() > 0]
        some.append(x[0])
        last = out[-1] - out[0]
        return (
            torch.stack(out[::-1]),
            torch.stack(out[1:] + [x[0]]),
            torch.stack([x[0]] + out[:-1]),
            last,
            torch.stack(some[::-1]),
            some[-1],
            some[0],
        )

    check(slices)


def test_numbers():
    """Ints and floats, and what Python makes of lists of them."""

    def numbers(x):
        kinds = [7]
        for v in x:
            k = int(v.argmax())
            if k != 1:
                kinds.append(k)
        sums = [v.sum() for v in x if v[0] > 0]
        return torch.tensor(kinds), sum(kinds), len(kinds), sum(sums) + x[0, 0], max([x[0, 0], *sums])

    def changes(x):
        out = []
        for v in x:
            k = int(v.argmax())
            if out and out[-1] == k:
                continue
            out.append(k)
        return torch.tensor(out), len(out), min(out), any(v > 1 for v in out)

    def distinct(x):
        seen = []
        for v in x:
            k = int(v.argmax())
            if k not in seen:
                seen.append(k)
        return torch.tensor(seen)

    for fn in (numbers, changes, distinct):
        check(fn)


def test_a_stack():
    """Pushed and popped."""

    def reduce(x):
        stack = [x[0]]
        for v in x:
            if v[0] > 0:
                stack.append(v)
            elif len(stack) > 1:
                a = stack.pop()
                b = stack.pop()
                stack.append(a * 0.5 + b)
        return torch.stack(stack), len(stack)

    def depth_first(x):
        stack, order, seen = [0], [], torch.zeros(x.shape[0], dtype=torch.bool)
        while stack:
            i = stack.pop()
            if seen[i]:
                continue
            seen[i] = True
            order.append(i)
            for j in range(x.shape[0]):
                if x[i, 0] * x[j, 1] > 0.5 and not seen[j]:
                    stack.append(j)
        return torch.tensor(order), seen

    def queue(x):
        waiting, n, total = [x[0]], 0, x[0] * 0
        while len(waiting) > 0 and n < 10:
            first = waiting.pop(0)
            total = total + first
            n += 1
            if first.sum() > 0:
                waiting.append(first * 0.5 - 0.1)
                waiting.append(first * 0.25 - 0.2)
        return total, n, len(waiting)

    for fn in (reduce, depth_first, queue):
        check(fn)


def test_nothing_to_stack():
    """An error of the call, as it is one of PyTorch."""
    model = compiled(lambda x: torch.stack([v for v in x if v.sum() > 0]))
    torch.testing.assert_close(model(torch.ones(3, 3)), torch.ones(3, 3))
    with pytest.raises(disc.ShapeError, match="RuntimeError: stack expects a non-empty list"):
        model(-torch.ones(3, 3))


def in_front(x):
    """Lists that steps insert into at the front, read and not, in loops of all kinds."""
    out, run = [], 0
    for t in reversed(range(x.shape[0] - 1)):
        # A number before the first step, of which there may be none.
        run = x[t] + 0.9 * run - x[t + 1]
        out.insert(0, run)
    out.insert(0, x[0])
    several = [x[0]]
    for row in x:
        several.insert(0, row)
        several.insert(0, row * 2)
    several.append(x[-1])
    nested = []
    for t in range(x.shape[0]):
        nested.insert(0, x[t, 0])
        for k in range(2):
            nested.insert(0, x[t, k])
    inner = []
    for t in range(x.shape[0]):
        for k in range(x.shape[1]):
            inner.insert(0, x[t, k] * k)
    some = [x[0]]
    for t in range(x.shape[0]):
        some.insert(0, x[t])
        if x[t].sum() > 0:
            some.insert(0, -x[t])
    read = [x[0], x[-1]]
    for t in range(x.shape[0]):
        read.insert(0, x[t] + read[0] * 0.5)
        read.insert(0, read[0] - read[1])
    numbers, t = [], x.shape[0] - 1
    while t >= 0:
        numbers.insert(0, x[t].sum().item())
        t -= 1
    return [*map(torch.stack, (out, several, nested, inner, some, read)), torch.tensor(numbers)]


def whole(x):
    """What list() and tuple() make of sequences of dynamic length."""
    out = []
    for row in x:
        out.append(row * 2)
    indices, rows = list(range(x.shape[0])), list(x)
    again = [x[0]]
    for i in indices:
        again.append(x[i] * i)
    for row in rows[1:]:
        again.append(row)
    return (
        torch.stack(list(reversed(out))),
        torch.stack(tuple(reversed(rows))),
        torch.stack(again),
        torch.tensor(indices),
    )


@pytest.mark.parametrize("fn", [in_front, whole])
def test_in_front_and_whole(fn):
    check(fn)


def test_in_front_refused():
    def mixed(x):
        out = []
        for t in range(x.shape[0]):
            out.insert(0, x[t])
            out.append(x[t])
        return torch.stack(out)

    def elsewhere(x):
        out = [x[0]]
        for t in range(x.shape[0]):
            out.insert(0, x[t])
            out.insert(1, x[t])
        return torch.stack(out)

    def far(x):
        out = [x[0], x[0]]
        for t in range(x.shape[0]):
            out.insert(0, x[t] + out[1])
        return torch.stack(out)

    for fn, why in (
        (mixed, "appends to a list that it inserts into"),
        (elsewhere, "puts an element first only"),
        (far, "inserts into out, and reads more than the last"),
    ):
        with pytest.raises(disc.CompileError, match=why):
            compiled(fn)


def test_refused():
    """What would change another list than Python does, or cannot be expressed, says where and why."""

    def chosen(x):
        a, b = [], []
        for v in x:
            (a if v[0] > 0 else b).append(v)
        return torch.stack([*a, x[0]])

    def set_(x):
        out = [v for v in x if v.sum() > 0]
        out.append(x[0])
        out[0] = x[-1]
        return torch.stack(out)

    for fn, why in (
        (chosen, "one of two lists that data chooses"),
        (set_, "an element is set of a list whose length depends on data"),
        (lambda x: [v for v in x if v.sum() > 0], "the model returns a list whose length depends on data"),
    ):
        with pytest.raises(disc.CompileError, match=why) as info:
            compiled(fn)
        assert info.value.source.startswith(__file__)


def test_lists_that_are_repeated():
    """The number of repetitions is a dim, or is computed from data."""

    def repeated(x):
        n, count = x.shape[0], (x[:, 0] > 0).sum().item()
        numbers = [1] * n
        numbers.append(7)
        total = 0
        for number in numbers:
            total = total * 2 % 1000 + number
        pairs = torch.tensor([2, 3] * n)
        floats = torch.tensor(count * [0.5] + [1.5])
        spread = torch.stack((x[0], x[-1]) * n)
        intervals = iter([1.0] * n)
        scaled = [row * next(intervals) for row in x]
        return total, len(numbers), pairs, floats, spread, torch.stack(scaled), [0] * 3, torch.cat([x] * n)

    check(repeated)


def test_tuples_that_grow_on_one_side():
    def grown(x):
        masks, rows = (), (x[0],)
        for n in range(3):
            if x[0, n] > 0:
                masks += (x.sum() * n,)
                rows = (*rows, x[-1] * n)
        for row in x:
            if row.sum() > 0:
                rows += (row,)
        return torch.stack(rows), len(masks), len(rows), torch.stack((*masks, x.mean())).sum()

    check(grown)
