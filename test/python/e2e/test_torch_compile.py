"""torch.compile(backend="disc"): one compilation for all shapes, gradients, and what PyTorch does between parts."""

import copy
import logging
import subprocess
import sys

import pytest
import torch
import torch._dynamo
from torch import nn

import disc
import disc.dynamo
from disc.dynamo import backend


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(8, 16)
        self.norm = nn.LayerNorm(16)
        self.outer = nn.Linear(16, 4)

    def forward(self, x):
        return self.outer(self.norm(nn.functional.gelu(self.inner(x)))).softmax(-1) * x.shape[0]


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    torch.manual_seed(0)


def graphs():
    return torch._dynamo.utils.counters["stats"]["unique_graphs"]


def gradients(module, inputs, call):
    module.zero_grad()
    inputs = [x.clone().requires_grad_(x.is_floating_point()) for x in inputs]
    result = call(*inputs)
    (result * result).sum().backward()
    return result, [p.grad.clone() for p in (*module.parameters(), *inputs) if p.grad is not None]


def check_gradients(module, inputs, compiled, tolerance=1e-5):
    """Equal to eager's: within the tolerance, relative to the largest gradient of each parameter."""
    expected, wanted = gradients(module, inputs, module)
    result, got = gradients(module, inputs, compiled)
    torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-5)
    for a, b in zip(got, wanted, strict=True):
        assert (a - b).abs().max() <= tolerance * (1 + b.abs().max())


def test_twenty_shapes():
    module = Net()
    compiled = torch.compile(module, backend="disc", dynamic=True)
    for n in range(2, 22):
        with torch.no_grad():
            torch.testing.assert_close(compiled(torch.ones(n, 8)), module(torch.ones(n, 8)))
    assert graphs() == 1
    for n in range(2, 22):
        check_gradients(module, [torch.randn(n, 8)], compiled)
    assert graphs() == 2


def test_parameters_are_packed_again_when_they_change():
    module = Net()
    compiled = torch.compile(module, backend="disc", dynamic=True)
    x = torch.randn(5, 8)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    for _ in range(3):
        with torch.no_grad():
            torch.testing.assert_close(compiled(x), module(x))
        compiled(x).square().sum().backward()
        optimizer.step()
    module.inner.weight.data = torch.randn(16, 8)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), module(x))
        kept = module.inner.weight.data
        for _ in range(3):
            module.inner.weight.data.mul_(1.5)
            torch.testing.assert_close(compiled(x), module(x))
            kept.view(-1)[:20] += 0.5
            torch.testing.assert_close(compiled(x), module(x))


def test_other_modules_share_a_graph():
    """Layers that are compiled one by one are one graph with other parameters in each call."""
    modules = [Net() for _ in range(3)]

    @torch.compile(backend="disc", dynamic=True)
    def call(module, x):
        return module(x)

    x = torch.randn(5, 8)
    with torch.no_grad():
        for _ in range(4):
            for module in modules:
                torch.testing.assert_close(call(module, x), module(x))


def test_graph_breaks():
    class Breaks(Net):
        def forward(self, x):
            y = torch.relu(self.inner(x))
            torch._dynamo.graph_break()
            return torch.sigmoid(self.outer(y)) + x.shape[1]

    module = Breaks()
    compiled = torch.compile(module, backend="disc", dynamic=True)
    for n in (2, 7, 30):
        check_gradients(module, [torch.randn(n, 8)], compiled)
    assert graphs() == 2


@torch.library.custom_op("disc_test::unknown", mutates_args=())
def unknown(x: torch.Tensor) -> torch.Tensor:
    return x.flip(0) * 2


@unknown.register_fake
def _(x):
    return torch.empty_like(x)


@pytest.mark.falls_back("an operation without a rule")
def test_ops_without_a_rule_run_in_pytorch(caplog):
    class Unknown(Net):
        def forward(self, x):
            y = self.inner(x).tanh() * 2
            y = torch.ops.disc_test.unknown(y).reshape(x.shape[0] * 2, 8) + x.shape[0]
            return self.inner(y).relu() - 1

    module = Unknown()
    compiled = torch.compile(module, backend="disc", dynamic=True)
    with torch.no_grad(), caplog.at_level(logging.INFO, "disc.dynamo"):
        for n in (2, 7, 30):
            x = torch.randn(n, 8)
            torch.testing.assert_close(compiled(x), module(x))
    assert graphs() == 1
    assert "in 2 compiled parts" in caplog.text
    assert "in PyTorch: disc_test.unknown.default: no lowering rule" in caplog.text and __file__ in caplog.text
    with torch.no_grad():
        explained = disc.explain(module, torch.randn(3, 8))
    assert [fallback.op for fallback in explained.fallbacks] == ["disc_test.unknown.default"]
    assert "inference graph" in str(explained) and explained.graphs[0].parts == 2


def test_dropout_is_pytorchs():
    module = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Linear(8, 8), nn.Tanh())
    compiled = torch.compile(module, backend="disc", dynamic=True)
    for n in (3, 9):
        x = torch.randn(n, 8)
        torch.manual_seed(1)
        expected = module(x)
        torch.manual_seed(1)
        torch.testing.assert_close(compiled(x), expected)


def test_updates():
    class Cache(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("cache", torch.zeros(16, 4))
            self.register_buffer("calls", torch.zeros((), dtype=torch.long))

        def forward(self, x, y):
            self.calls += 1
            self.cache[2 : 2 + x.shape[0]] = x
            y.mul_(2)
            return self.cache.sum(0) + y.sum()

    module = Cache()
    eager = copy.deepcopy(module)
    compiled = torch.compile(module, backend="disc", dynamic=True)
    for n in (3, 9, 2):
        x, y = torch.randn(n, 4), torch.randn(n, 4)
        z = y.clone()
        with torch.no_grad():
            torch.testing.assert_close(compiled(x, y), eager(x, z))
        torch.testing.assert_close(y, z)
        torch.testing.assert_close(dict(module.named_buffers()), dict(eager.named_buffers()))
    assert graphs() == 1


def test_sizes_alone():
    """Sizes as arguments that are the extent of no tensor, and as results."""

    @torch.compile(backend="disc", dynamic=True)
    def call(x, n):
        return torch.full((n, 2), 3.0) * x.mean() + torch.arange(n).unsqueeze(1), x.shape[0] * 2

    for n in (5, 9, 17):
        y, size = call(torch.ones(n + 2, 3), n)
        torch.testing.assert_close(y, 3 + torch.arange(n).unsqueeze(1).expand(n, 2).float())
        assert size == 2 * (n + 2)


def test_results_lie_as_eagers_do():
    @torch.compile(backend="disc", dynamic=True)
    def call(x):
        return (x * 2).transpose(0, 1), x.t(), x

    x = torch.randn(5, 7)
    results = call(x)
    assert [y.stride() for y in results] == [(1, 7), (1, 7), (7, 1)] and results[2] is x
    torch.testing.assert_close(results[0], 2 * x.t())


def test_options_and_entry_point():
    with pytest.raises(Exception, match="unexpected keyword argument 'threds'"):
        torch.compile(Net(), backend="disc", options={"threds": 1})(torch.ones(2, 8))
    compiled = torch.compile(Net(), backend="disc", options={"threads": 1, "opt_level": 1}, dynamic=True)
    compiled(torch.ones(2, 8))
    assert torch._dynamo.lookup_backend("disc") is backend


@pytest.mark.falls_back("compiled in another process")
def test_found_by_name():
    """Dynamo finds the back end through the package's entry point, without an import of disc."""
    code = (
        "import sys, torch._dynamo as d; assert 'disc' not in sys.modules; print(d.lookup_backend('disc').__module__)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert found.stdout.strip() == "disc.dynamo", found.stderr
