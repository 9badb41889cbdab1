"""Parts of a loss without gradients, hooks of gradients, and parameters that the loss changes: as in eager."""

import copy

import pytest
import torch
import torch.utils.checkpoint
from torch.nn import functional as F

import disc

SIZES = (5, 1, 3, 13, 2)


class Net(torch.nn.Module):
    """Three layers, a buffer, and a function that uses them."""

    def __init__(self, function):
        super().__init__()
        self.a = torch.nn.Linear(6, 8, dtype=torch.float64)
        self.b = torch.nn.Linear(8, 3, dtype=torch.float64)
        self.c = torch.nn.Linear(8, 8, dtype=torch.float64)
        self.register_buffer("mean", torch.zeros(8, dtype=torch.float64))
        self.function = function

    def forward(self, x):
        """The function's result for x [n, 6]."""
        return self.function(self, x)


def no_grad(m, x):
    with torch.no_grad():
        shift = m.a(x).sin()
    return m.b((m.a(x) - shift.mean()).tanh())


@torch.no_grad()
def target(m, x):
    return m.a(x)


def decorated(m, x):
    return m.b((m.a(x) - target(m, x)).tanh())


def enabled_inside(m, x):
    with torch.no_grad():
        with torch.enable_grad():
            y = m.a(x)
        z = y * 2
    return m.b(y * z)


def inference_mode(m, x):
    with torch.inference_mode():
        mean = m.a(x).mean(0)
    return m.b(m.a(x) * mean.clone())


def of_data(m, x):
    y = m.a(x)
    return m.b(y * y.data)


def in_loop(m, x):
    h = x[0].sum() * m.mean
    for t in range(x.shape[0]):
        with torch.no_grad():
            gate = torch.sigmoid(m.c(h))
        h = torch.tanh(m.a(x[t]) + m.c(h) * gate)
    return m.b(h)


def loop_inside(m, x):
    with torch.no_grad():
        h = m.a(x).sum(0)
        while h.abs().sum() > 1:
            h = h * 0.5
    return m.b(m.a(x) * h)


def in_branch(m, x):
    y = m.a(x)
    if y.sum() > 0:
        with torch.no_grad():
            k = y.mean()
        y = y * k
    else:
        y = y * y.detach()
    return m.b(y)


def branch_inside(m, x):
    with torch.no_grad():
        if x.sum() > 0:
            k = m.a(x).mean()
        else:
            k = m.a(x).sum()
    return m.b(m.a(x) * k)


def first_order(m, x):
    (g,) = torch.autograd.grad(m.a(x).square().sum(), m.a.weight)
    return m.b(F.linear(x, m.a.weight - 0.1 * g))


def second_order(m, x):
    (g,) = torch.autograd.grad(m.a(x).square().sum(), m.a.weight, create_graph=True)
    return m.b(F.linear(x, m.a.weight - 0.1 * g))


def penalty(m, x):
    x = x.detach().requires_grad_()
    y = m.b(torch.tanh(m.a(x)).sigmoid())
    (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    (h,) = torch.autograd.grad(g[:, 0].sum(), x, create_graph=True)
    return y * g.norm(dim=1, keepdim=True) + (h * y.detach().mean()).sum()


def penalty_of_softmax(m, x):
    x = x.detach().requires_grad_()
    y = m.a(x).softmax(-1).exp()
    (g,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
    return g.square().sum(1) + m.b(m.a(x).data * y).sum()


def transform_inside(m, x):
    with torch.no_grad():
        g = torch.func.grad(lambda w: F.linear(x, w).square().sum())(m.a.weight)
    return m.b(F.linear(x, m.a.weight - 0.1 * g))


def asks(m, x):
    y = m.a(x)
    if torch.is_grad_enabled() and y.requires_grad:
        return m.b(y)
    return m.b(y) * 2


def running_mean(m, x):
    y = m.a(x)
    with torch.no_grad():
        m.mean.mul_(0.9).add_(y.mean(0) * 0.1)
    return m.b(y - m.mean)


def reentrant(m, x):
    return m.b(torch.utils.checkpoint.checkpoint(lambda y: m.c(y).tanh(), m.a(x), use_reentrant=True))


def hook(m, x):
    y = m.a(x)
    y.register_hook(lambda g: g * 2)
    return m.b(y)


def changed_parameter(m, x):
    with torch.no_grad():
        m.c.weight.mul_(0.5)
    return m.b(m.c(m.a(x)))


def clamped_data(m, x):
    m.c.weight.data.clamp_(-0.1, 0.1)
    return m.b(m.c(m.a(x)))


def teacher(m, x):
    with torch.no_grad():
        m.c.weight.lerp_(m.a.weight.sum() * m.c.weight, 0.1)
        wanted = m.c(m.a(x)).detach()
    return m.a(x) - wanted


class Square(torch.autograd.Function):
    """A square with another gradient."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 3 * g * x


def beside_function(m, x):
    with torch.no_grad():
        mean = m.a(x).mean(0)
    return m.b(Square.apply(m.a(x)) * mean)


FUNCTIONS = (
    no_grad, decorated, enabled_inside, inference_mode, of_data, in_loop, loop_inside, in_branch, branch_inside,
    first_order, second_order, penalty, penalty_of_softmax, transform_inside, asks, running_mean, reentrant, hook,
    changed_parameter, clamped_data, teacher, beside_function,
)  # fmt: skip


def loss(module, x):
    """The mean square of the result."""
    return module(x).square().mean()


def twins(module, optimizer, **options):
    """A compiled step, and what makes the same step in eager."""
    eager = copy.deepcopy(module)
    ours, theirs = optimizer(module), optimizer(eager)
    x = torch.randn(4, 6, dtype=torch.float64)
    step = disc.compile_training(module, ours, (x,), loss=loss, dynamic_shapes=({0: "n"},), **options)
    return step, eager, theirs


def run(step, eager, theirs, xs):
    for x in xs:
        theirs.zero_grad()
        expected = loss(eager, x)
        expected.backward()
        theirs.step()
        torch.testing.assert_close(step(x), expected.detach(), rtol=1e-9, atol=1e-12)
    for name, value in eager.state_dict().items():
        torch.testing.assert_close(
            step.module.state_dict()[name], value, rtol=1e-9, atol=1e-12, msg=lambda m, n=name: n + m
        )
    assert step.compilations == 1


def sgd(module):
    return torch.optim.SGD(module.parameters(), lr=0.01, momentum=0.9)


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_equals_eager(function):
    torch.manual_seed(0)
    run(*twins(Net(function), sgd), [torch.randn(n, 6, dtype=torch.float64) for n in SIZES])


def test_hooks_of_modules():
    """A hook of a module's gradients is called."""
    torch.manual_seed(0)
    module = Net(lambda m, x: m.b(m.c(m.a(x))))
    module.c.register_full_backward_hook(lambda module, inputs, outputs: (inputs[0] * 2,))
    run(*twins(module, sgd), [torch.randn(n, 6, dtype=torch.float64) for n in SIZES])


def test_changed_parameter_of_a_skipped_step():
    """What the loss itself changes is changed, though the optimizer's update is skipped: as in eager."""
    torch.manual_seed(0)
    step, eager, theirs = twins(Net(changed_parameter), sgd, non_finite="skip")
    xs = [torch.randn(n, 6, dtype=torch.float64) for n in SIZES]
    run(step, eager, theirs, xs[:2])
    bad = torch.full((2, 6), float("nan"), dtype=torch.float64)
    step(bad), loss(eager, bad)
    run(step, eager, theirs, xs[2:])
    assert step.skipped == 1


def test_spectral_norm():
    """A parametrization that PyTorch computes partly without gradients, with a buffer."""
    torch.manual_seed(0)

    class Normed(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.utils.parametrizations.spectral_norm(torch.nn.Linear(6, 3, dtype=torch.float64))

        def forward(self, x):
            return torch.tanh(self.layer(x))

    run(*twins(Normed(), sgd), [torch.randn(n, 6, dtype=torch.float64) for n in SIZES])


def test_embedding_of_largest_norm():
    """Rows that an embedding makes shorter before it reads them."""
    torch.manual_seed(0)

    class Rows(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.table = torch.nn.Embedding(7, 4, max_norm=1.0, dtype=torch.float64)

        def forward(self, x):
            return self.table(x[:, 0].abs().mul(3).long().clamp(max=6))

    run(*twins(Rows(), sgd), [torch.randn(n, 6, dtype=torch.float64) for n in SIZES])


def test_batch_norm_of_all_batches():
    """``momentum=None``: the mean of the statistics of all batches."""
    torch.manual_seed(0)

    class Normed(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a = torch.nn.Linear(6, 8, dtype=torch.float64)
            self.norm = torch.nn.BatchNorm1d(8, momentum=None, dtype=torch.float64)

        def forward(self, x):
            return torch.tanh(self.norm(self.a(torch.cat([x, x + 1]))))

    run(*twins(Normed(), sgd), [torch.randn(n, 6, dtype=torch.float64) for n in SIZES])


def test_changed_gradients_are_errors():
    """A parameter that is frozen, or thawed, or gets a hook between two calls."""
    torch.manual_seed(0)
    module = Net(lambda m, x: m.b(m.c(m.a(x))))
    module.c.bias.requires_grad_(False)
    step, *_ = twins(module, sgd)
    x = torch.randn(3, 6, dtype=torch.float64)
    before = copy.deepcopy(module.state_dict())
    module.a.weight.requires_grad_(False)
    with pytest.raises(
        disc.errors.CallError, match=r"'a.weight' requires no gradient any more; compile the step again"
    ):
        step(x)
    module.a.weight.requires_grad_(True)
    module.c.bias.requires_grad_(True)
    with pytest.raises(disc.errors.CallError, match=r"'c.bias' requires a gradient now"):
        step.accumulate(x)
    module.c.bias.requires_grad_(False)
    handle = module.a.weight.register_hook(lambda g: g * 2)
    with pytest.raises(disc.errors.CallError, match=r"'a.weight' has hooks of its gradient"):
        step(x)
    handle.remove()
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    step(x)
    assert not torch.equal(module.a.weight, before["a.weight"])
    module.a.weight.register_post_accumulate_grad_hook(lambda p: None)
    with pytest.raises(disc.errors.CallError, match=r"'a.weight' has hooks of its gradient"):
        twins(module, sgd)
