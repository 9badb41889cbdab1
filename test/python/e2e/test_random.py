"""Random numbers: distributions, and what they follow from."""

import pytest
import torch
from torch import nn

import disc

N = 200_000


class Draws(nn.Module):
    def __init__(self, fn):
        super().__init__()
        self.fn = fn

    def forward(self, x):
        return self.fn(x)


def compiled(fn, x, **options):
    dim = torch.export.Dim("n", min=2)
    return disc.compile(Draws(fn), (x[:1000],), dynamic_shapes=({0: dim},), options=disc.Options(**options))


def moments(x):
    x = x.double()
    return x.mean().item(), x.var().item()


def test_distributions():
    def fn(x):
        return {
            "rand": torch.rand_like(x),
            "rand64": torch.rand(x.shape[0], dtype=torch.float64),
            "randn": torch.randn_like(x),
            "randint": torch.randint(-3, 7, (x.shape[0],)),
            "bernoulli": torch.bernoulli(torch.full_like(x, 0.3)),
            "dropout": torch.dropout(x, 0.25, True),
            "perm": torch.randperm(x.shape[0]),
            "normal": torch.normal(x, 0.5),
        }

    x = torch.ones(N)
    got = compiled(fn, x)(x)
    for name, mean, variance in (
        ("rand", 0.5, 1 / 12),
        ("rand64", 0.5, 1 / 12),
        ("randn", 0, 1),
        ("randint", 1.5, 99 / 12),
        ("bernoulli", 0.3, 0.21),
        ("dropout", 1, 1 / 3),
        ("normal", 1, 0.25),
    ):
        m, v = moments(got[name])
        assert abs(m - mean) < 0.03 and abs(v - variance) < 0.05 * max(variance, 0.2), (name, m, v)
    assert got["rand"].min() >= 0 and got["rand"].max() < 1 and got["rand"].unique().numel() > N * 0.95
    assert set(got["randint"].unique().tolist()) == set(range(-3, 7))
    assert torch.equal(got["perm"].sort()[0], torch.arange(N)) and not torch.equal(got["perm"], torch.arange(N))
    # Higher moments, and no likeness of neighbours.
    z = got["randn"].double()
    assert abs((z**3).mean()) < 0.05 and abs((z**4).mean() - 3) < 0.1
    assert abs((z[1:] * z[:-1]).mean()) < 0.02
    assert not torch.equal(got["rand"].double(), got["rand64"])


def test_multinomial():
    weights = torch.tensor([1.0, 0.0, 3.0, 6.0])

    def fn(w):
        return torch.multinomial(w, 100_000, replacement=True), torch.multinomial(w, 3)

    dim = torch.export.Dim("n", min=3)
    model = disc.compile(Draws(fn), (weights,), dynamic_shapes=({0: dim},))
    many, few = model(weights)
    share = torch.bincount(many, minlength=4) / 100_000
    torch.testing.assert_close(share, weights / 10, atol=0.02, rtol=0)
    assert set(few.tolist()) == {0, 2, 3}


def test_seed():
    x = torch.ones(5000)
    model = compiled(lambda x: torch.rand_like(x), x)
    first, second = model(x), model(x)
    assert not torch.equal(first, second)
    model.seed(0)
    assert torch.equal(model(x), first) and torch.equal(model(x), second)
    model.seed(7)
    third = model(x)
    assert not torch.equal(third, first)
    # Neither threads nor the number of elements change what an element is.
    other = compiled(lambda x: torch.rand_like(x), x, threads=1)
    other.seed(7)
    assert torch.equal(other(x[:100]), third[:100])


def test_static_draws_are_not_constants():
    model = disc.compile(Draws(lambda x: x + torch.rand(4)), (torch.zeros(4),))
    assert not torch.equal(model(torch.zeros(4)), model(torch.zeros(4)))


@pytest.mark.parametrize("p", [0.0, 0.5, 1.0])
def test_dropout(p):
    model = compiled(lambda x: torch.nn.functional.dropout(x, p, training=True), torch.ones(1000))
    got = model(torch.ones(1000))
    assert set(got.unique().tolist()) <= {0.0, 1 / (1 - p) if p < 1 else 0.0}
