"""Layers and distributions of PyTorch whose Python code asks for data: errors at run time, as in eager."""

from typing import Any

import pytest
import torch
from torch import distributions as dists
from torch import nn
from torch.export import Dim

import disc

pytestmark = pytest.mark.share(2)

SIZES = [(3, 4), (1, 4), (5, 2), (1, 1), (7, 3)]


def compiled(module: nn.Module, *args: torch.Tensor) -> Any:
    dims = tuple(dict.fromkeys(range(x.dim()), Dim.AUTO) for x in args)
    return disc.compile(module, args, dynamic_shapes=dims)


class Normal(nn.Module):
    def forward(self, x, y):
        return dists.Normal(x, y).log_prob(x + 1)


class Categorical(nn.Module):
    def forward(self, x, y):
        labels = torch.zeros(y.shape[0], dtype=torch.int64)
        return dists.Categorical(logits=x).entropy() + dists.Categorical(probs=y).log_prob(labels)


class Divergence(nn.Module):
    def forward(self, x, y):
        return dists.kl_divergence(dists.Normal(x, y), dists.Normal(torch.zeros_like(x), torch.ones_like(y)))


class Independent(nn.Module):
    def forward(self, x, y):
        return dists.Independent(dists.Beta(x + 0.1, y), 1).log_prob(torch.sigmoid(x))


class Several(nn.Module):
    def forward(self, x, y):
        return dists.Laplace(x, y).cdf(x) + dists.Poisson(y).log_prob(torch.ones_like(x)) + dists.Gamma(y, y).mean


@pytest.mark.parametrize("kind", [Normal, Categorical, Divergence, Independent, Several])
def test_distributions_match_eager(kind):
    module = kind()
    model = compiled(module, torch.rand(3, 4), torch.rand(3, 4) + 0.1)
    for n, size in enumerate(SIZES):
        torch.manual_seed(n)
        x, y = torch.rand(size), torch.rand(size) + 0.1
        torch.testing.assert_close(model(x, y), module(x, y))


class Checked(nn.Module):
    def forward(self, x, y):
        # Dynamo sets another default for the whole process.
        return dists.Normal(x, y, validate_args=True).log_prob(x + 1)


def test_distributions_check_their_parameters():
    model = compiled(Checked(), torch.rand(3, 4), torch.rand(3, 4) + 0.1)
    with pytest.raises(disc.ShapeError, match=r"ValueError: Expected parameter scale .* constraint GreaterThan\(lower"):
        model(torch.rand(2, 2), torch.rand(2, 2) - 2)


@pytest.mark.parametrize("full", [False, True])
def test_a_loss_checks_its_variances(full):
    loss = nn.GaussianNLLLoss(full=full, reduction="none")
    model = compiled(loss, torch.rand(3, 4), torch.rand(3, 4), torch.rand(3, 4))
    for size in SIZES:
        x, y, var = torch.rand(size), torch.rand(size), torch.rand(size)
        torch.testing.assert_close(model(x, y, var), loss(x, y, var))
    with pytest.raises(disc.ShapeError, match=r"ValueError: var has negative entry/entries \(functional.py:"):
        model(torch.rand(2, 2), torch.rand(2, 2), -torch.rand(2, 2))


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.mean, self.scale = nn.Linear(4, 2), nn.Linear(4, 2)

    def distribution(self, x):
        return dists.Normal(self.mean(x), nn.functional.softplus(self.scale(x)))

    def forward(self, x):
        policy = self.distribution(x)
        action = policy.rsample()
        return action, policy.log_prob(action).sum(-1)


def test_distributions_are_drawn_from():
    policy = Policy().eval()
    model = compiled(policy, torch.rand(3, 4))
    for n in (1, 3, 8):
        x = torch.rand(n, 4)
        action, likelihood = model(x)
        assert action.shape == (n, 2) and not torch.equal(action, model(x)[0])
        with torch.no_grad():
            wanted = policy.distribution(x).log_prob(action).sum(-1)
        # The logarithm of a density is a difference of numbers of the size of 1.
        torch.testing.assert_close(likelihood, wanted, rtol=1e-5, atol=1e-5)


class Nested(nn.Module):
    def forward(self, x, y):
        if x.size() != y.size():
            if x.ndim == y.ndim and sum(b for a, b in zip(x.size(), y.size(), strict=True) if a != b) == 1:
                pass
            else:
                raise ValueError("sizes do not fit")
        return x.sum() + y.sum()


class Asserting(nn.Module):
    def forward(self, x, y):
        if x.shape[0] != y.shape[0]:
            torch._assert_async(torch.tensor(y.shape[0] == 1), "neither equal nor one")
        return x.sum() + y.sum()


@pytest.mark.parametrize("kind", [Nested, Asserting])
def test_what_a_side_checks_holds_on_that_side_alone(kind):
    module = kind()
    model = compiled(module, torch.rand(3, 4), torch.rand(3, 4))
    for size in ((3, 4), (1, 4)):
        x, y = torch.rand(3, 4), torch.rand(size)
        torch.testing.assert_close(model(x, y), module(x, y))
    with pytest.raises(disc.ShapeError, match=r"sizes do not fit|neither equal nor one"):
        model(torch.rand(3, 4), torch.rand(2, 4))


@pytest.mark.parametrize(
    "layer, shape",
    [
        (nn.BatchNorm1d(3).train(), (1, 3)),
        (nn.BatchNorm2d(3).train(), (1, 3, 1, 1)),
        (nn.InstanceNorm2d(3), (2, 3, 1, 1)),
        (nn.GroupNorm(3, 3), (1, 3, 1, 1)),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else None,
)
def test_a_layers_error_for_some_sizes_is_the_compiled_models(layer, shape):
    """PyTorch takes sizes for at least 2 while it traces, and would drop the check for one value per channel."""
    names = {dim: f"d{dim}" for dim in range(len(shape)) if dim != 1}
    model = disc.compile(layer, (torch.randn(*[3] * len(shape)),), dynamic_shapes=(names,))
    with pytest.raises(ValueError) as expected:
        layer(torch.randn(shape))
    with pytest.raises(disc.ShapeError, match=str(expected.value).partition(", got")[0]):
        model(torch.randn(shape))
    x = torch.randn(5, 3, *[2] * (len(shape) - 2))
    torch.testing.assert_close(model(x), layer(x))
