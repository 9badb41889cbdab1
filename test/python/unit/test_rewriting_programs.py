"""Small programs as one writes them: what Python's constructs make of numbers that are known at run time only."""

import pytest
import torch
from torch import nn

import disc
from rewriting_traced import check, traced


def membership(x, n):
    k = n.item()
    if k in (1, 3):
        x = x * 10
    elif k not in [0, 2, 4]:
        x = x * 20
    if k in range(1, 4, 2) and k in {1: 5.0, 4: 6.0} and n in (1, 7):
        x = x + 1
    return x * (2 if (k, 2) == (1, 2) else 3), k in {2, 3}, (k, k) != (2, k)


def conditions_as_values(x, n):
    k = n.item() or 5
    m = n.item() and 7
    a, b = n > 2, x.sum() > 0
    both = bool(n > 1) != bool(x.sum() > 0)
    if n.item() and x.sum() > 0:
        x = x + 1
    return x * k + m, a and b, a or b, both


def numbers(x, n):
    k = n.item()
    a, b, c = sorted([k, 2, int(x.sum())], reverse=True)
    q, r = divmod(k, 3)
    return x * a + b - c, q, r, min(k, 3), float(max(x[0, 0].item(), 0.5, k)), abs(k - 2), [1, 2, 3][k % 3]


def indices(x, n):
    layers = [torch.sin, torch.cos, lambda v: v * 2]
    k = n.item()
    return layers[k % 3](x), [x, x * 2, x * 3][k % 3 - 3]


def kinds(x, n):
    k = n.item()
    return x * 2 if isinstance(k, int) and type(k) is int else x


def matched(x, n):
    match n.item():
        case 0:
            y = x
        case 1 | 2:
            y = x * 2
        case 3 if x.sum() > 0:
            y = x * 3
        case k if k > 4:
            y = x * 4
        case _:
            y = -x
    return y


def left_early(x, n):
    with torch.no_grad():
        if n > 2:
            y = x * 2
        else:
            return x - 1
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            if x[i, j] > 1.2:
                return y * j
    else:
        y = y + 1
    return y


def finished(x, n):
    y = x
    try:
        if n > 2:
            y = y * 2
        else:
            return y - 1
    finally:
        y = y + 1
    return y


def states(x, n):
    counts, best = {"all": 0, "sum": 0.0}, (x[0], 0)
    for v in x:
        counts["all"] += 1
        if v.sum() > 0:
            counts["sum"] += v.sum().item()
            best = (best[0] + v, best[1] + 1)
    a, b = 0, 1
    for _ in range(n.item()):
        a, b = b, a + b
    return x * counts["all"] + counts["sum"], best, a


@pytest.mark.parametrize(
    "function",
    [membership, conditions_as_values, numbers, indices, kinds, matched, left_early, finished, states],
    ids=lambda f: f.__name__,
)
def test_programs(function):
    torch.manual_seed(0)
    scales = (0.3, 1, 3)
    inputs = [(torch.randn(1 + k % 5, 3) * scales[k % 3], torch.tensor(k % 6)) for k in range(3, 15)]
    check(function, *inputs)


class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.experts = nn.ModuleList(nn.Linear(3, 3) for _ in range(3))

    def forward(self, x):
        for row in x:
            x = x + self.experts[row.argmax()](x).tanh()
        return x


def test_modules_by_number():
    torch.manual_seed(0)
    check(Experts(), *[(torch.randn(n, 3),) for n in (5, 1, 3, 2)])


def caught(x, n):
    try:
        if n > 2:
            raise ValueError("n")
        return x * 2
    except ValueError:
        return x


def text(x, n):
    return x * len(f"{n.item()}")


def key(x, n):
    return x * {1: 2.0}.get(n.item(), 1.0)


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (caught, "raises ValueError, which a try statement around it catches"),
        (text, "the text of a number"),
        (key, "hash"),
    ],
    ids=lambda x: getattr(x, "__name__", ""),
)
def test_refused(function, why):
    with pytest.raises(disc.CompileError, match=why) as info:
        traced(function, (torch.randn(5, 3), torch.tensor(3)))
    assert info.value.source.startswith(__file__)
