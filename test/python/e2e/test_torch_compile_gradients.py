"""Gradients of operations whose backward operators PyTorch does not decompose, under torch.compile(backend="disc")."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from compile_programs import OPTIONS, assert_same
from disc.dynamo import _listening

pytestmark = pytest.mark.share(2)


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    torch.manual_seed(0)


def check_gradients(function, *calls, tolerance=1e-4):
    """Values and gradients of each call's float inputs as in eager, all compiled."""
    compiled = torch.compile(function, backend="disc", dynamic=True, options=OPTIONS)
    with _listening() as reports:
        for call in calls:
            call = call if isinstance(call, tuple) else (call,)
            own = [x.clone().requires_grad_() if x.is_floating_point() else x for x in call]
            others = [x.detach().clone().requires_grad_(x.requires_grad) for x in own]
            expected, found = function(*own), compiled(*others)
            assert_same(expected.detach(), found.detach(), tolerance)
            direction = torch.randn_like(expected)
            expected.backward(direction)
            found.backward(direction)
            assert_same([x.grad for x in own], [x.grad for x in others], tolerance)
    assert [fallback for report in reports for fallback in report.fallbacks] == []


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_repeated_borders(dims):
    sizes = [(2, 3, 5, 4, 3), (2, 2, 7, 2, 5), (1, 3, 2, 3, 4)]
    check_gradients(
        lambda x: F.pad(x, (2, 1, 1, 3, 1, 2)[: 2 * dims], mode="replicate"),
        *[torch.randn(size[: dims + 2]) for size in sizes],
    )


def test_cut_borders():
    check_gradients(
        lambda x: F.pad(x, (-1, 2, 1, -2), mode="replicate"), torch.randn(2, 3, 6, 5), torch.randn(2, 1, 4, 7)
    )


@pytest.mark.parametrize(
    ("mode", "padding", "aligned"),
    [
        ("bilinear", "zeros", False),
        ("bilinear", "reflection", False),
        ("nearest", "border", True),
        pytest.param("bicubic", "border", True, marks=pytest.mark.nightly),
    ],
)
def test_sampling_at_places(mode, padding, aligned):
    def call(x, grid):
        return F.grid_sample(x, grid, mode=mode, padding_mode=padding, align_corners=aligned)

    calls = [
        (torch.randn(*size), torch.rand(size[0], 3, rows, 2) * 2.6 - 1.3)
        for size, rows in (((2, 3, 5, 7), 4), ((3, 2, 4, 3), 2))
    ]
    check_gradients(call, *calls)


def test_sampling_in_a_volume():
    check_gradients(
        lambda x, grid: F.grid_sample(x, grid, padding_mode="reflection", align_corners=True),
        (torch.randn(2, 2, 3, 4, 5), torch.rand(2, 3, 2, 4, 3) * 2.6 - 1.3),
    )


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_of_embeddings(mode):
    """Also an empty bag, and an index that counts for nothing."""
    check_gradients(
        lambda w, i, o: F.embedding_bag(i, w, o, mode=mode, padding_idx=3),
        *[(torch.randn(9, 5), torch.randint(0, 9, (n,)), torch.tensor([0, 2, 2, n - 3])) for n in (11, 8)],
    )


def test_weights_in_bags():
    check_gradients(
        lambda w, i, o, p: F.embedding_bag(i, w, o, mode="sum", per_sample_weights=p),
        *[(torch.randn(9, 4), torch.randint(0, 9, (n,)), torch.tensor([0, 3, 5]), torch.randn(n)) for n in (12, 7)],
    )


def test_backward_twice():
    """What is saved for the backward pass is still there after it."""
    compiled = torch.compile(lambda x: (x.sin() * x).exp(), backend="disc", dynamic=True, options=OPTIONS)
    x = torch.randn(3, 4, requires_grad=True)
    y = compiled(x).sum()
    (first,) = torch.autograd.grad(y, x, retain_graph=True)
    (second,) = torch.autograd.grad(y, x)
    assert_same(first, second, 0)


@torch.library.custom_op("disc_test_gradients::halved", mutates_args=())
def halved(x: torch.Tensor) -> torch.Tensor:
    return x / 2


@halved.register_fake
def _(x):
    return torch.empty_like(x)


@pytest.mark.parametrize(
    "fallback", [False, pytest.param(True, marks=pytest.mark.falls_back("an operation without a rule"))]
)
def test_version_counters_of_buffers(fallback):
    """An update counts once, also where PyTorch runs a part."""

    class Counted(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.zeros(3))
            self.weight = nn.Parameter(torch.ones(3))

        def forward(self, x):
            self.count.add_(1)
            if fallback:
                x = halved(x)
            return (self.weight * x).sum() + self.count.sum()

    own, other = Counted(), Counted()
    compiled = torch.compile(other, backend="disc", dynamic=True, options=OPTIONS)
    for n in (1, 2):
        x = torch.ones(3)
        torch.testing.assert_close(compiled(x), own(x))
        assert other.count._version == own.count._version == n


@pytest.mark.parametrize("columns", [1, 3])
def test_two_products_of_one_repeated_number(columns):
    """Both products of the backward pass have the sum's gradient as an operand, which has none of their sizes."""
    own = [torch.randn(5, 16), torch.randn(2, 16), torch.randn(columns, 2)]
    others = [x.clone() for x in own]

    def loss(x, w, v):
        return ((x @ w.t()) @ v.t()).sum()

    for inputs, run in ((own, loss), (others, torch.compile(loss, backend="disc", dynamic=True, options=OPTIONS))):
        run(*[x.requires_grad_() for x in inputs]).backward()
    assert_same([x.grad for x in own], [x.grad for x in others], 1e-4)
