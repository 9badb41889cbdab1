"""Changes in place of what a branch or a loop leaves: as in Python, or refused."""

import pytest
import torch
from torch import nn

import disc
from rewriting_traced import check, matrices, traced, vectors


def one_side():
    return [(x * s, x * t) for (x,) in vectors() for s in (1, -1) for t in (1, -1)]


def by_branch(x, z):
    y = x if x.sum() > 0 else z
    y.add_(1)
    return y


def by_statement(x, z):
    x, z = x.clone(), z.clone()
    if x.sum() > 0:
        y = x
    else:
        y = z * 2
    y.mul_(2)
    return y, x


def by_view(x, z):
    x, z = x.clone(), z.clone()
    y = x[:1] if x.sum() > 0 else z[:1]
    y[0] = 1
    return y, x


def by_loop(x, z):
    y = torch.zeros_like(x)
    last = y[0]
    for t in range(x.shape[0]):
        last = y[t]
    last += 1
    return y


def by_loop_without_steps(x, z):
    h = x.clone()
    first = h
    while h.abs().sum() > 10:
        h = h * 0.5
    h.add_(1)
    return first


def the_other_way(x, z):
    x = x.clone()
    y = x if z.sum() > 0 else z
    x.add_(1)
    return y


def in_a_side(x, z):
    x = x.clone()
    y = x if z.sum() > 0 else z * 1
    if x.sum() > 0:
        y.add_(1)
        return x * 2
    return z


def two_results(x, z):
    if x.sum() > 0:
        a = x * 2
        b = a
    else:
        a, b = z * 1, z * 2
    a.add_(1)
    return b


def appended(x, z):
    h, rows = torch.zeros(1), []
    for t in range(x.shape[0]):
        h.add_(x[t])
        rows.append(h)
    return torch.stack(rows)


def appended_before(x, z):
    h, rows = torch.zeros(1), []
    for t in range(x.shape[0]):
        h.add_(x[t])
        h = h * 0.5
        rows.append(h)
    return torch.cat(rows)


def in_the_next_step(x, z):
    h, before = torch.zeros(1), torch.zeros(1)
    for t in range(x.shape[0]):
        h.add_(x[t])
        z = z + before.sum()
        before = h
    return z


def by_other_results(x, z):
    y = x if x.sum() > 0 else z
    w = y if z.sum() > 0 else z
    w.mul_(2)
    return x * 1, y, w


@pytest.mark.parametrize(
    "function",
    [by_view, by_loop, by_loop_without_steps, the_other_way, two_results, appended, appended_before]
    + [in_the_next_step, by_other_results],
    ids=lambda f: f.__name__,
)
def test_refused(function):
    with pytest.raises(disc.CompileError, match=r"in place, which may be the same as .* clone") as info:
        traced(function, (torch.randn(5), torch.randn(5)))
    assert info.value.source.startswith(__file__), function


def by_module(x, z):
    if x.sum() > 0:
        x = x + 1
    return nn.ReLU(inplace=True)(x), z


def by_part_of_it(x, z):
    x, z = x.clone(), z.clone()
    y = x if x.sum() > 0 else z
    y[0] = 7
    first = y[:1]
    first += 1
    return y, x, z


def in_a_step(x, z):
    x = x.clone()
    y = x if z.sum() > 0 else z * 1
    for t in range(z.shape[0]):
        y.add_(z[t])
    return x, y


@pytest.mark.parametrize(
    "function",
    [by_branch, by_statement, by_module, by_part_of_it, in_a_side, in_a_step],
    ids=lambda f: f.__name__,
)
def test_changes_that_are_carried(function):
    check(function, *one_side())


def test_fresh_tensors():
    def function(x):
        y = x + 1 if x.sum() > 0 else x * 2
        y.add_(1)
        y[0] = 5
        k = x.clone()
        if y.mean() > 0:
            k = k * 3
        k[:1] += 1
        z = x[0] * 1
        for row in x:
            z = z + row
        z.mul_(2)
        rows = []
        for row in x:
            rows.append(row)
        stacked = torch.stack(rows)
        stacked.mul_(2)
        return y, k, z, x * 1, stacked

    check(function, *matrices(3))


def test_what_a_side_has_changed():
    """A tensor that is changed in place, under another name."""

    def function(x, z):
        x, y, first = x.clone(), z, z[0]
        if z.sum() > 0:
            view = x[0]
            x.add_(1)
            y, first = x, view
        else:
            x[0] = 7
            first = x[0] + 1
        return y, x, first

    check(function, *one_side())


def test_carried_tensors():
    def function(x):
        h, out, last = torch.zeros(3), torch.zeros_like(x), torch.zeros(3)
        rows, kept = [], torch.ones(3)
        for t in range(x.shape[0]):
            h.add_(x[t])
            h = h * 0.5
            h[0] = 1
            out[t] = h
            last = kept.add_(x[t])
            rows.append(h)
            h = h * 2
            h += 1
        return h, out, last, kept, torch.stack(rows)

    check(function, *matrices(3))


class State(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("state", torch.zeros(4))
        self.register_buffer("calls", torch.zeros(4))

    def forward(self, x):
        old = (self.state if x.sum() > 0 else x[0]) * 1
        if x.mean() > 0:
            self.state = x[0] * 2
            self.calls.copy_(x[0])
            self.calls[0] += 1
        self.state.add_(1)
        self.state = self.state * 2
        return old, self.state * 1, self.calls * 1


def test_buffers():
    check(State(), *matrices(4))
