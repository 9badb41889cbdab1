"""Gradients through branches and loops, also inside each other: exact in f64, at many sizes."""

import copy

import pytest
import torch

import disc

SIZES = (3, 1, 5, 2, 7)


class Layer(torch.nn.Module):
    """A module of one layer, and a function that uses it."""

    def __init__(self, function):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4, dtype=torch.float64)
        self.other = torch.nn.Linear(4, 4, dtype=torch.float64)
        self.function = function

    def forward(self, x):
        """The function's result for x [n, 4]."""
        return self.function(self, x)


def loop_in_loop(m, x):
    h = x[0] * 0
    for t in range(x.shape[0]):
        for _ in range(3):
            h = torch.tanh(m.layer(h) + x[t])
    return h


def dynamic_loop_in_loop(m, x):
    h = x[0] * 0
    for t in range(x.shape[0]):
        for s in range(x.shape[0]):
            h = torch.tanh(m.layer(h) + x[t] * x[s])
    return h


def branch_in_loop(m, x):
    h = x[0] * 0
    for t in range(x.shape[0]):
        if x[t].sum() > 0:
            h = torch.tanh(m.layer(h) + x[t])
        else:
            h = h * m.other(x[t])
    return h


def loop_in_branch(m, x):
    if x.sum() > 0:
        h = x[0]
        for t in range(x.shape[0]):
            h = torch.tanh(m.layer(h) + x[t])
    else:
        h = m.other(x[0])
    return h


def branch_in_branch(m, x):
    y = m.layer(x)
    if y.sum() > 0:
        if y.amax() > 1:
            y = m.other(y).sin()
        else:
            y = y * y
    else:
        y = y.exp()
    return y


def branch_in_while(m, x):
    h = x.sum(0)
    while h.abs().sum() > 0.5:
        if h[0] > 0:
            h = h * torch.sigmoid(m.layer(h)) * 0.8
        else:
            h = h * torch.sigmoid(m.other(h)) * 0.7
    return h


def number_of_the_step(m, x):
    h = x[0] * 0
    for t in range(x.shape[0]):
        h = torch.tanh(m.layer(h)) * (t + 1) + x[t]
    return h


def row_used_twice(m, x):
    y = m.other(x)
    h = x[0] * 0
    for t in range(x.shape[0]):
        h = torch.tanh(m.layer(h) + y[t]) * y[t]
    return h + y.sum(0)


def in_place(m, x):
    h = m.layer(x).sum(0)
    for t in range(x.shape[0]):
        h = h.clone()
        h[1:] *= torch.sigmoid(x[t, 1:])
        h = torch.tanh(m.other(h))
    return h


def scan(m, x):
    def step(h, row):
        h = torch.tanh(m.layer(h) + row)
        return h, h * 2

    last, rows = torch._higher_order_ops.scan(step, x[0] * 0, x)
    return last + rows.sum(0)


FUNCTIONS = {
    f.__name__: f
    for f in (
        loop_in_loop,
        dynamic_loop_in_loop,
        branch_in_loop,
        loop_in_branch,
        branch_in_branch,
        branch_in_while,
        row_used_twice,
        in_place,
        scan,
    )
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_are_those_of_eager(name):
    torch.manual_seed(0)
    module = Layer(FUNCTIONS[name])
    eager = copy.deepcopy(module)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.0)

    def loss(m, x):
        return (m(x) ** 2).sum()

    step = disc.compile_training(
        module, optimizer, (torch.randn(4, 4, dtype=torch.float64),), loss=loss, dynamic_shapes=({0: "n"},)
    )
    for size in SIZES:
        for sign in (1.0, -1.0):
            x = torch.randn(size, 4, dtype=torch.float64) + sign * 0.5
            module.zero_grad(set_to_none=False)
            eager.zero_grad(set_to_none=False)
            value = step.accumulate(x)
            expected = loss(eager, x)
            expected.backward()
            torch.testing.assert_close(value, expected.detach(), rtol=1e-12, atol=1e-12)
            for (path, p), q in zip(module.named_parameters(), eager.parameters(), strict=True):
                wanted = torch.zeros_like(q) if q.grad is None else q.grad
                got = torch.zeros_like(p) if p.grad is None else p.grad
                torch.testing.assert_close(got, wanted, rtol=1e-10, atol=1e-12, msg=lambda m, path=path: f"{path}: {m}")


def test_a_gradient_that_needs_a_number_of_the_step_is_an_error():
    module = Layer(number_of_the_step)
    with pytest.raises(disc.errors.ControlFlowError, match="used behind it"):
        disc.compile_training(
            module,
            torch.optim.SGD(module.parameters(), lr=0.1),
            (torch.randn(4, 4, dtype=torch.float64),),
            loss=lambda m, x: (m(x) ** 2).sum(),
            dynamic_shapes=({0: "n"},),
        )
