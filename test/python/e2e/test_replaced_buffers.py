"""Buffers that a call replaces by assignment, in the outermost module and in others."""

import copy

import pytest
import torch
from torch import nn

import closeness
import disc


class Buffers(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("h", torch.zeros(3))
        self.register_buffer("g", torch.ones(3))


class Average(Buffers):
    def forward(self, x):
        self.h = self.h * 0.5 + x.sum(0)
        return x + self.h


class ReturnsTheOld(Buffers):
    def forward(self, x):
        old = self.h
        self.h = self.h * 0.5 + x.sum(0)
        return old, {"part": old[1:], "new": self.h}


class Swaps(Buffers):
    def forward(self, x):
        self.h, self.g = self.g, self.h + x.sum(0)
        return x + self.h


class Branches(Buffers):
    def forward(self, x):
        if x.sum() > 0:
            self.h = self.h + 1
        else:
            self.g = self.g * 2
        return x + self.h * self.g


class Loops(Buffers):
    def forward(self, x):
        for i in range(x.shape[0]):
            self.h = self.h * 0.5 + x[i]
        return self.h * 2


class ThroughTheDictionary(Buffers):
    def forward(self, x):
        self._buffers["h"] = self._buffers["h"] + x.sum(0)
        return x * self.h


class Parameters(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))

    def forward(self, x):
        self.weight = nn.Parameter(self.weight * 0.5 + x.sum(0))
        return x * self.weight


class Nested(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.layers = nn.ModuleList([kind(), kind()])

    def forward(self, x):
        return [layer(x) for layer in self.layers]


@pytest.mark.parametrize("nested", [False, True], ids=["outermost", "nested"])
@pytest.mark.parametrize("kind", [Average, ReturnsTheOld, Swaps, Branches, Loops, ThroughTheDictionary, Parameters])
def test_a_call_replaces_buffers(kind, nested):
    module = Nested(kind) if nested else kind()
    eager = copy.deepcopy(module)
    model = disc.compile(module, (torch.randn(2, 3),), dynamic_shapes=({0: "n"},))
    for n in (1, 2, 7, 64, 3):
        x = torch.randn(n, 3)
        got, before = model(x), copy.deepcopy(eager)
        closeness.check(before, (x,), got)
        eager(x)
        torch.testing.assert_close(dict(module.named_buffers()), dict(eager.named_buffers()))
        torch.testing.assert_close(dict(module.named_parameters()), dict(eager.named_parameters()))


def test_another_shape_or_dtype():
    class Grows(Buffers):
        def forward(self, x):
            self.h = torch.cat([self.h, x.sum(0)])
            return self.h.sum()

    class Converts(Buffers):
        def forward(self, x):
            self.h = (self.h + x.sum(0)).double()
            return self.h

    for kind, change in (
        (Grows, r"float32 \[6\] instead of float32 \[3\]"),
        (Converts, "float64 .* instead of float32"),
    ):
        with pytest.raises(disc.CompileError, match=rf"self\.layers\.0\.h is read and then .*{change}"):
            disc.compile(Nested(kind), (torch.randn(2, 3),), dynamic_shapes=({0: "n"},))


def test_a_buffer_that_nothing_reads_before():
    class Caches(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("mask", None, persistent=False)

        def forward(self, x):
            self.mask = torch.ones(x.shape[0], x.shape[0]).tril()
            return self.mask @ x

    module = Caches()
    with pytest.warns(UserWarning, match=r"self\.mask is replaced \(a tensor instead of None\)"):
        model = disc.compile(module, (torch.randn(4, 3),), dynamic_shapes=({0: "n"},))
    for n in (1, 5, 2):
        x = torch.randn(n, 3)
        closeness.check(Caches(), (x,), model(x))
    assert module.mask is None


def test_a_shared_buffer():
    class Shared(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = Average(), Average()
            self.second.h = self.first.h

        def forward(self, x):
            return self.first(x) + self.second.h

    class Parting(Shared):
        def forward(self, x):
            return self.first(x) + self.second(x * 2)

    for module in (Shared(), Parting()):
        with pytest.raises(disc.CompileError, match="and shares memory with another one"):
            disc.compile(module, (torch.randn(2, 3),), dynamic_shapes=({0: "n"},))


def test_a_training_step():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.state = nn.Linear(3, 3), Average()

        def forward(self, x):
            return self.state(self.linear(x)).square().mean()

    module = Scaled().double()
    eager = copy.deepcopy(module)
    steps = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (module, eager)]
    step = disc.compile_training(module, steps[0], (torch.randn(4, 3).double(),), dynamic_shapes=({0: "n"},))
    for n in (3, 1, 9):
        x = torch.randn(n, 3).double()
        eager.zero_grad()
        loss = eager(x)
        loss.backward()
        steps[1].step()
        eager.state.h = eager.state.h.detach()
        torch.testing.assert_close(step(x), loss.detach())
        torch.testing.assert_close(dict(module.named_buffers()), dict(eager.named_buffers()))
        torch.testing.assert_close(dict(module.named_parameters()), dict(eager.named_parameters()))


class Held:
    def __init__(self):
        self.total = torch.zeros(3)


class InAnObject(nn.Module):
    def __init__(self):
        super().__init__()
        self.held = Held()

    def forward(self, x):
        self.held.total = self.held.total + x.sum(0)
        return x + self.held.total


class InContainers(nn.Module):
    def __init__(self, key):
        super().__init__()
        self.key = key
        self.states = {"h": torch.zeros(3)} if key == "h" else [torch.zeros(3)]

    def forward(self, x):
        self.states[self.key] = self.states[self.key] * 0.5 + x.sum(0)
        return x + self.states[self.key]


class InTheClass(nn.Module):
    total = torch.zeros(3)

    def forward(self, x):
        InTheClass.total = InTheClass.total + x.sum(0)
        return x + InTheClass.total


TOTAL = torch.zeros(3)


def in_a_variable(x):
    global TOTAL
    TOTAL = TOTAL + x.sum(0)
    return x + TOTAL


@pytest.mark.parametrize(
    "make, value",
    [
        (InAnObject, lambda module: module.held.total),
        (lambda: InContainers("h"), lambda module: module.states["h"]),
        (lambda: InContainers(0), lambda module: module.states[0]),
        (InTheClass, lambda _: InTheClass.total),
        (lambda: in_a_variable, lambda _: TOTAL),
    ],
    ids=["object", "dict", "list", "class", "variable"],
)
def test_state_that_is_not_the_modules_own(make, value):
    module = make()
    tensor = value(module)
    model = disc.compile(module, (torch.randn(2, 3),), dynamic_shapes=({0: "n"},))
    # Nothing of the trace is left there.
    assert value(module) is tensor and torch.equal(tensor, torch.zeros(3))
    factor, total = 0.5 if isinstance(module, InContainers) else 1.0, torch.zeros(3)
    for n in (1, 5, 2):
        x = torch.randn(n, 3)
        total = total * factor + x.sum(0)
        torch.testing.assert_close(model(x), x + total)
        assert value(module) is tensor
        torch.testing.assert_close(tensor, total)
