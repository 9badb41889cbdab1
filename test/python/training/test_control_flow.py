"""Gradients through branches and loops, also inside each other: exact in f64, at many sizes."""

import copy

import pytest
import torch

import disc
from disc.torch_compat.versions import MINOR

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


def row_of_a_copy(m, x):
    rows = x.new_zeros(x.shape[0], 4)
    for t in range(x.shape[0]):
        rows = rows * 2
        rows[t] = m.layer(x[t])
    return rows


def row_by_row(m, x):
    rows, h = x.new_zeros(x.shape[0], 4), x.new_zeros(4)
    for t in range(x.shape[0]):
        h = torch.tanh(m.layer(x[t]) + m.other(h))
        rows[t] = h
    return rows


def row_from_the_row_before(m, x):
    rows = m.other(x[:1]).repeat(x.shape[0] + 1, 1)
    for t in range(x.shape[0]):
        rows[t + 1] = torch.tanh(m.layer(x[t]) + m.other(rows[t].clone()))
    return rows[1:]


def row_in_branch(m, x):
    rows = m.other(x)
    for t in range(x.shape[0]):
        if x[t, 0] > 0:
            rows[t] = torch.tanh(m.layer(x[t]))
    return rows


def row_changed_and_read(m, x):
    rows = x.new_zeros(x.shape[0], 4)
    for t in range(x.shape[0]):
        row = rows[t]
        rows[t].add_(m.layer(x[t]))
        rows[t, 2:4].mul_(2)
        rows[t] = 3 * row.clone()
        rows[t, 0] = row[1].clone()
    return rows


def mapped(m, x):
    return torch._higher_order_ops.map(lambda row: torch.tanh(m.layer(row)) * row[0], x)


def scan(m, x):
    def step(h, row):
        h = torch.tanh(m.layer(h) + row)
        return h, h * 2

    last, rows = torch._higher_order_ops.scan(step, x[0] * 0, x)
    return last + rows.sum(0)


def state(x):
    """A state [3, 4] for a loop that makes no step, too."""
    return x.new_zeros(3, 4)


def layer_of_rows(m, x):
    h = state(x)
    for t in range(x.shape[0]):
        h = torch.tanh(m.layer(h) + x[t])
    return h


def layer_twice(m, x):
    h = state(x)
    for t in range(x.shape[0]):
        h = torch.tanh(m.layer(m.layer(h) * x[t]))
    return h


def layer_inside_and_behind(m, x):
    h = state(x)
    for t in range(x.shape[0]):
        h = torch.tanh(m.layer(h) + x[t])
    return m.layer(h) + m.layer(x).sum(0)


def layer_of_the_input(m, x):
    y = m.other(x)
    h = state(x)
    for t in range(x.shape[0]):
        h = torch.tanh(h + m.layer(y[t]))
    return h


def weight_of_another_shape(m, x):
    h = state(x)
    weight = torch.exp(m.layer.weight[:2]).t()
    for t in range(x.shape[0]):
        y = (h + x[t]) @ weight
        h = torch.tanh(torch.cat([y, y * 2], 1))
    return h


def vector_of_a_matrix(m, x):
    h = x.new_zeros(4)
    for t in range(x.shape[0]):
        h = torch.tanh(torch.mv(m.layer.weight, h) + x[t])
    return h


def outer_product(m, x):
    h = state(x)
    for t in range(x.shape[0]):
        h = torch.sin(h + m.layer.bias[:3, None] * m.other(x[t])[None])
    return h


def batched_product(m, x):
    h = x.new_zeros(2, 3, 4)
    weight = torch.stack([m.layer.weight, m.other.weight])
    for t in range(x.shape[0]):
        h = torch.tanh(torch.bmm(h, weight) + x[t])
    return h


def einsum(m, x):
    h = state(x)
    for t in range(x.shape[0]):
        h = torch.tanh(torch.einsum("bi,oi->bo", h, m.layer.weight) + x[t])
    return h


def no_product(m, x):
    h = state(x)
    for t in range(x.shape[0]):
        h = torch.tanh(h * m.layer.bias + m.other.weight[:3] * x[t])
    return h


def product_and_no_product(m, x):
    h = state(x)
    for t in range(x.shape[0]):
        h = torch.tanh(m.layer(h) + x[t] + torch.sin(m.layer.weight[:3] * h))
    return h


def two_states_that_are_one(m, x):
    h = c = m.other(x.sum(0)) + state(x)
    for t in range(x.shape[0]):
        h = torch.tanh(m.layer(c) + x[t]) * torch.cos(h)
        c = h
    return h * c


def loop_of_products_in_loop(m, x):
    h = state(x)
    for t in range(x.shape[0]):
        for s in range(x.shape[0]):
            h = torch.tanh(m.layer(h) + x[t] * x[s])
        h = h + m.other(h)
    return h


def rows_that_grow(m, x):
    rows = m.other(x[:0])
    for t in range(x.shape[0]):
        rows = torch.cat([rows, x[t : t + 1] + m.layer.bias])
    return rows


def rows_up_to_now(m, x):
    h = state(x)
    for t in range(x.shape[0]):
        h = torch.sin(h + (x[: t + 1] + m.layer.bias).sum(0))
    return h


def product_of_many_columns(m, x):
    """The gradient of what a step computes is larger than all that it keeps."""
    h = x.new_zeros(64, 4)
    total = x.new_zeros(64)
    weight = m.other.weight.repeat(1, 32)
    for t in range(x.shape[0]):
        h = torch.tanh(m.layer(h) + x[t])
        total = total + (h @ weight * x[t].repeat(32)).sum(1)
    return h.sum(1) * total


def layer_and_its_weight(m, x):
    """The gradient of the weight is a product and two sums, of which one has all that it needs."""
    h = state(x)
    for t in range(x.shape[0]):
        h = torch.tanh(m.layer(h) + (x[t] * m.layer.weight).sum(0) + torch.sin(m.layer.weight[:3]))
    return h


def sum_of_products(m, x):
    y = m.other(x)
    total = x.new_ones(4, 4)
    for t in range(x.shape[0]):
        total = total + torch.outer(y[t], x[t])
    return total @ m.layer.weight


def columns(m, x):
    y = m.other(x).t()
    h = state(x)
    for t in range(x.shape[0]):
        h = torch.tanh(m.layer(h) + y[:, t])
    return h


def while_of_rows(m, x):
    h = state(x) + x.sum(0)
    while h.abs().sum() > 0.5:
        h = h * torch.sigmoid(m.layer(h)) * 0.8
    return h


def scan_of_rows(m, x):
    def step(h, row):
        h = torch.tanh(m.layer(h) + m.other(row))
        return h, h * 2

    last, rows = torch._higher_order_ops.scan(step, state(x), x)
    return last + rows.sum(0)


def advantages(m, x):
    """Rows at other places than the number of the step, of more than there are steps; a list filled from behind."""
    value = m.layer(x)
    gain, out = x[0] * 0, []
    for t in reversed(range(x.shape[0] - 1)):
        gain = x[t] + value[t + 1] - value[t] + 0.9 * gain
        if gain.sum() > 0:
            gain = gain * m.other(value[t])
        out.insert(0, gain)
    return torch.stack([*out, value[0]])


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
        row_of_a_copy,
        row_by_row,
        row_from_the_row_before,
        row_in_branch,
        row_changed_and_read,
        mapped,
        scan,
        advantages,
    )
}

LOOPS = {
    f.__name__: (f, *counts)
    for f, *counts in (
        (layer_of_rows, 2, 3),
        (layer_twice, 4, 5),
        (layer_inside_and_behind, 2, 3),
        (layer_of_the_input, 2, 4),
        (weight_of_another_shape, 2, 4),
        (vector_of_a_matrix, 0, 1),
        (outer_product, 1, 2),
        (batched_product, 2, 3),
        (einsum, 2, 3),
        (no_product, 0, 2),
        (product_and_no_product, 2, 3),
        (two_states_that_are_one, 2, 3),
        (product_of_many_columns, 5, 7),
        (layer_and_its_weight, 2, 4),
        (sum_of_products, 0, 0),
        (columns, 2, 3),
        (while_of_rows, 2, 3),
        (scan_of_rows, 3, 5),
    )
}
"""Of each the products that a step computes, forwards and backwards, and the most kernels that it launches."""
LENGTHS = (3, 1, 9, 6, 2)
"""Numbers of steps: growing and shrinking."""


def compiled(module, least=1):
    """The step of a module of two layers, for x [n, 4] with n from ``least``."""
    return disc.compile_training(
        module,
        torch.optim.SGD(module.parameters(), lr=0.0),
        (torch.randn(4, 4, dtype=torch.float64),),
        loss=loss,
        dynamic_shapes=({0: torch.export.Dim("n", min=least)},),
    )


def loss(m, x):
    return (m(x) ** 2).sum()


def check(step, module, eager, x):
    """The loss and the gradients of a step are those of eager PyTorch."""
    module.zero_grad(set_to_none=False)
    eager.zero_grad(set_to_none=False)
    value = step.accumulate(x)
    expected = loss(eager, x)
    if expected.requires_grad:
        expected.backward()
    torch.testing.assert_close(value, expected.detach(), rtol=1e-12, atol=1e-12)
    for (path, p), q in zip(module.named_parameters(), eager.parameters(), strict=True):
        wanted = torch.zeros_like(q) if q.grad is None else q.grad
        got = torch.zeros_like(p) if p.grad is None else p.grad
        torch.testing.assert_close(got, wanted, rtol=1e-10, atol=1e-12, msg=lambda m, path=path: f"{path}: {m}")


def right_in_eager(function):
    """Skips the test where PyTorch's own gradient is wrong: of scan, 2.12 leaves out what the state passes on."""
    if MINOR < 13 and function in (scan, scan_of_rows):
        pytest.skip("gradients of scan are wrong in PyTorch 2.12")


@pytest.mark.share(2)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_are_those_of_eager(name):
    right_in_eager(FUNCTIONS[name])
    torch.manual_seed(0)
    module = Layer(FUNCTIONS[name])
    eager = copy.deepcopy(module)
    step = compiled(module)
    for size in SIZES:
        for sign in (1.0, -1.0):
            check(step, module, eager, torch.randn(size, 4, dtype=torch.float64) + sign * 0.5)


@pytest.mark.share(2)
@pytest.mark.parametrize("name", LOOPS)
def test_products_of_gradients_are_computed_behind_loops(name):
    """One product for all steps instead of one in each, and no gradient of a weight that each step reads and writes."""
    torch.manual_seed(0)
    function, products, launches = LOOPS[name]
    right_in_eager(function)
    module = Layer(function)
    eager = copy.deepcopy(module)
    # A scan of PyTorch's makes a step.
    least = 1 if function is scan_of_rows else 0
    step = compiled(module, least)
    for size in (*LENGTHS, least):
        check(step, module, eager, torch.randn(size, 4, dtype=torch.float64) * 0.7)
    if function is while_of_rows:
        return
    found = []
    for size in (4, 5):
        with step.profile() as profile:
            step(torch.randn(size, 4, dtype=torch.float64))
        found.append(([x for x in profile.launches if x.kind == "contraction"], profile.launches))
    (fewer, all_fewer), (more, all_more) = found
    assert len(more) - len(fewer) == products
    assert len(all_more) - len(all_fewer) <= launches


def test_loops_inside_of_loops_sum_up_behind_both():
    torch.manual_seed(0)
    module = Layer(loop_of_products_in_loop)
    eager = copy.deepcopy(module)
    step = compiled(module, 0)
    for size in (*LENGTHS, 0):
        check(step, module, eager, torch.randn(size, 4, dtype=torch.float64) * 0.7)


class Recurrent(torch.nn.Module):
    """A recurrent layer over x [time, batch, 5], or over sequences of their own lengths."""

    def __init__(self, layer, packed=False):
        super().__init__()
        self.layer, self.packed = layer.double(), packed

    def forward(self, x, lengths):
        """The outputs."""
        if not self.packed:
            return self.layer(x)[0]
        y, _ = self.layer(torch.nn.utils.rnn.pack_padded_sequence(x, lengths, enforce_sorted=False))
        return torch.nn.utils.rnn.pad_packed_sequence(y, total_length=x.shape[0])[0]


@pytest.mark.share(2, even=True)
@pytest.mark.parametrize(
    ("make", "packed"),
    [
        (lambda: torch.nn.LSTM(5, 6, bidirectional=True, proj_size=3), False),
        (lambda: torch.nn.LSTM(5, 6, bias=False), False),
        pytest.param(lambda: torch.nn.GRU(5, 6, bidirectional=True, num_layers=2), False, marks=pytest.mark.nightly),
        (lambda: torch.nn.RNN(5, 6, bidirectional=True), False),
        (lambda: torch.nn.GRU(5, 6, bidirectional=True), True),
    ],
    ids=["lstm", "lstm_without_bias", "gru", "rnn", "packed_gru"],
)
def test_gradients_of_recurrent_layers_add_up_as_those_of_eager(make, packed):
    torch.manual_seed(0)
    module = Recurrent(make(), packed)
    eager = copy.deepcopy(module)

    def batch(time, count):
        return torch.randn(time, count, 5, dtype=torch.float64), torch.randint(1, time + 1, (count,))

    def loss(m, x, lengths):
        return (m(x, lengths) ** 2).sum()

    time, count = (torch.export.Dim(name, min=1, max=50) for name in ("time", "count"))
    step = disc.compile_training(
        module,
        torch.optim.SGD(module.parameters(), lr=0.0),
        batch(5, 4),
        loss=loss,
        dynamic_shapes=({0: time, 1: count}, {0: count}),
    )
    # Gradients add up over the calls.
    for size in ((5, 4), (1, 3), (9, 1), (3, 7)):
        x, lengths = batch(*size)
        step.accumulate(x, lengths)
        loss(eager, x, lengths).backward()
        for p, q in zip(module.parameters(), eager.parameters(), strict=True):
            torch.testing.assert_close(p.grad, q.grad, rtol=1e-10, atol=1e-12)


def test_gradients_of_tensors_that_grow_are_an_error():
    with pytest.raises(disc.errors.GradientError, match=r"changes its size from step to step of a loop.*\[0, 4\]"):
        compiled(Layer(rows_that_grow))


@pytest.mark.parametrize("function", [number_of_the_step, rows_up_to_now])
def test_a_gradient_that_needs_a_number_of_the_step_is_an_error(function):
    with pytest.raises(disc.errors.ControlFlowError, match="used behind it"):
        compiled(Layer(function))


def test_a_changed_tensor_that_a_gradient_needs_is_an_error():
    """As in PyTorch, which says so in the backward pass."""

    def changed(m, x):
        y = torch.tanh(m.layer(x))
        y.mul_(2)
        return y

    with pytest.raises(disc.errors.GradientError, match="is changed in place afterwards, which PyTorch does not allow"):
        compiled(Layer(changed))
