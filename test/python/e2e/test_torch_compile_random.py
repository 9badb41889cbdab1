"""torch.compile(backend="disc"): random numbers are eager's, for the same seed, and leave one compiled graph."""

import math

import pytest
import torch
import torch._dynamo
import torch.utils.checkpoint
from torch import nn
from torch.nn import functional as F

import disc.dynamo
from compile_programs import OPTIONS
from disc.dynamo import Explanation

pytestmark = pytest.mark.share(2)

SIZES = (0, 1, 15, 16, 17, 1000)


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()


def check(function, *args, dynamic=True, parts=1, tolerance=0.0):
    """Bit-equal to eager, with the generator left in the same state."""
    torch.manual_seed(3)
    expected, state = function(*args), torch.get_rng_state()
    torch.manual_seed(3)
    with disc.dynamo._listening() as reports:
        compiled = torch.compile(function, backend="disc", dynamic=dynamic, fullgraph=True)
        results = compiled(*args)
    assert torch.equal(torch.get_rng_state(), state)
    torch.testing.assert_close(results, expected, rtol=tolerance, atol=tolerance, equal_nan=True)
    assert [report.parts for report in reports] == [parts] and not Explanation(reports).fallbacks, reports
    return compiled


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_distributions(dtype):
    def call(x):
        results = [x + 1]
        for n in SIZES:
            e = torch.zeros(n, dtype=dtype)
            results += [
                torch.rand(n, dtype=dtype),
                torch.randn(n, dtype=dtype),
                torch.rand_like(e),
                torch.randn_like(e),
                torch.bernoulli(e + 0.3),
                torch.normal(e, 2.0),
                e.clone().uniform_(-1, 3),
                e.clone().normal_(2, 3),
                e.clone().exponential_(2.0),
                e.clone().bernoulli_(0.2),
                e.clone().geometric_(0.3),
                e.clone().cauchy_(),
                torch.dropout(e + 1, 0.4, True),
            ]
        return results

    check(call, torch.ones(3), dynamic=False)


def test_integers():
    def call(x):
        results = [x + 1]
        for n in SIZES:
            results += [
                torch.randint(0, 10, (n,)),
                torch.randint(-5, 5, (n,), dtype=torch.int32),
                torch.randint_like(torch.ones(n, dtype=torch.int8), 3, 7),
                torch.randperm(n),
            ]
        return results

    check(call, torch.ones(3), dynamic=False)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_parameters_that_the_graph_computes(dtype):
    def call(x):
        n, m = x.shape
        p = x * 0.5
        return (
            torch.rand(n, m) * 2,
            torch.bernoulli(p),
            torch.randn(n * m, 3),
            torch.multinomial(p, 1),
            torch.multinomial(p, 3),
            torch.multinomial(p[0], 4, replacement=True),
            torch.multinomial(p, n, True),
            torch.normal(p, p),
            torch.normal(1.0, p),
            torch.empty_like(x.t()).normal_(),
            torch.randint(0, n + 3, (m, n)),
            torch.native_dropout(p, 0.3, True),
        )

    compiled = check(call, torch.rand(5, 17).to(dtype), tolerance=1e-6)
    x = torch.rand(9, 33).to(dtype)
    torch.manual_seed(5)
    expected = call(x)
    torch.manual_seed(5)
    torch.testing.assert_close(compiled(x), expected)


def test_order_and_layout():
    """Draws in views, in a loop, between others, and one that nobody reads."""

    def call(x):
        y = torch.zeros(6, 40)
        y[:, ::2].normal_()
        torch.rand(3)
        y[1].uniform_()
        for _ in range(3):
            x = x + torch.randn_like(x)
        total = x.sum()
        b = torch.bernoulli(torch.sigmoid(x * torch.rand(3).sum()))
        return y, b, total, torch.randn(20) * 2

    check(call, torch.ones(30), tolerance=1e-5)


@pytest.mark.falls_back("draws are PyTorch's")
def test_a_draw_that_depends_on_data():
    """The draws behind it keep their order."""

    def call(x):
        return torch.rand(3), torch.poisson(x * 2), torch.rand(4) + x.mean(), torch.rand(2)

    x = torch.rand(20)
    torch.manual_seed(3)
    expected = call(x)
    torch.manual_seed(3)
    torch.testing.assert_close(torch.compile(call, backend="disc", dynamic=True)(x), expected)


@pytest.mark.parametrize("checkpointed", [False, True])
def test_training(checkpointed):
    layer = nn.Linear(8, 8)

    def body(x):
        h = F.dropout(torch.relu(layer(x)), 0.5, True)
        return (h * torch.rand_like(h)).sum()

    def call(x):
        return torch.utils.checkpoint.checkpoint(body, x, use_reentrant=False) if checkpointed else body(x)

    results = []
    with disc.dynamo._listening() as reports:
        for function in (call, torch.compile(call, backend="disc", dynamic=True)):
            x = torch.arange(32.0).reshape(4, 8).requires_grad_()
            torch.manual_seed(1)
            loss = function(x)
            loss.backward()
            results.append((loss.detach(), x.grad))
    torch.testing.assert_close(results[1], results[0])
    assert reports and not Explanation(reports).fallbacks, reports


@pytest.mark.parametrize(
    ("draw", "wrong"),
    [
        (lambda p: torch.bernoulli(p * 1), ([0.5, 1.5], [-0.5, 0.5], [math.nan, 0.5])),
        (lambda p: torch.multinomial(p * 1, 1), ([-0.5, 0.5], [0.0, 0.0], [math.inf, 1.0])),
        (lambda p: torch.multinomial(p * 1, 3, replacement=True), ([-0.5, 0.5], [0.0, 0.0])),
        (lambda p: torch.normal(p.sin(), p * 1), ([-0.5, 0.5], [math.nan, 0.5])),
    ],
)
def test_invalid_parameters_raise(draw, wrong):
    compiled = torch.compile(draw, backend="disc", dynamic=True, options=OPTIONS)
    for p in (torch.tensor([0.5, 0.25]), torch.tensor([0.0, 0.5, 1.0])):
        torch.manual_seed(1)
        expected = draw(p)
        torch.manual_seed(1)
        assert torch.equal(compiled(p), expected)
    for values in wrong:
        with pytest.raises(RuntimeError) as known:
            draw(torch.tensor(values))
        with pytest.raises(RuntimeError) as found:
            compiled(torch.tensor(values))
        assert str(found.value)[:40] == str(known.value)[:40]
