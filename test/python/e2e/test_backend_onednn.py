"""The example back end of oneDNN: one compilation each, every shape against eager."""

import ctypes.util
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn
from torch.export import Dim
from torch.nn import functional as F
from transformers import BertConfig, BertModel

import disc
from backend_packages import install
from disc.backends import Backend, Pattern, PythonFunction, Value, op, parameter, tensor

pytestmark = [
    pytest.mark.skipif(ctypes.util.find_library("dnnl") is None, reason="needs libdnnl-dev"),
    pytest.mark.slow,
]


@pytest.fixture(scope="module", autouse=True)
def package(tmp_path_factory):
    """The module of the package, installed by pip."""
    folder = tmp_path_factory.mktemp("packages") / "onednn"
    install("onednn", folder)
    import disc_backend_onednn

    if disc_backend_onednn._missing():
        pytest.skip(disc_backend_onednn._missing())
    yield disc_backend_onednn
    sys.path.remove(str(folder))


@pytest.fixture
def always(package):
    """The back end without its cost hook, so that small shapes go through it too."""

    class Always(package.OneDNN):
        def prefer(self, region):
            return True

    return Always


def compiled(module, inputs, shapes, backends):
    torch.manual_seed(0)
    for norm in module.modules():
        if isinstance(norm, nn.BatchNorm2d):
            norm.running_mean.normal_()
            norm.running_var.uniform_(0.5, 2)
    return disc.compile(module.eval(), inputs, dynamic_shapes=shapes, backends=backends)


def check(model, module, inputs, tolerance=2e-4):
    with torch.no_grad():
        expected = module(*inputs)
    torch.testing.assert_close(model(*inputs), expected, atol=tolerance, rtol=tolerance)


def patterns(model):
    return [decision.pattern for decision in model.backends.by("onednn")]


def test_entry_point_is_found():
    assert "onednn" in disc.backends.available()
    module = nn.Linear(8, 4)
    model = compiled(module, (torch.randn(3, 8),), ({0: "n"},), ["onednn"])
    check(model, module, (torch.randn(100, 8),))


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        config = BertConfig(
            hidden_size=48, num_hidden_layers=2, num_attention_heads=4, intermediate_size=96, vocab_size=50
        )
        self.bert = BertModel(config)

    def forward(self, tokens, mask):
        hidden = self.bert(tokens, attention_mask=mask).last_hidden_state
        weights = mask.unsqueeze(-1).float()
        return (hidden * weights).sum(1) / weights.sum(1).clamp(min=1)


def test_encoder(always):
    def inputs(batch, length):
        return torch.randint(0, 50, (batch, length)), torch.ones(batch, length, dtype=torch.int64)

    module, dims = Encoder().eval(), {0: Dim("batch", max=64), 1: Dim("length", max=512)}
    model = compiled(module, inputs(3, 7), (dims, dims), [always])
    found = patterns(model)
    assert found.count("linear_gelu") == 4 and found.count("linear_add") == 8
    for batch, length in [(1, 1), (2, 3), (3, 7), (1, 64), (8, 5), (5, 33), (16, 16), (2, 128), (7, 2)]:
        check(model, module, inputs(batch, length))


class Ranker(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(24, 64), nn.ReLU(), nn.Linear(64, 64, bias=False), nn.SiLU(), nn.Linear(64, 1)
        )

    def forward(self, user, items):
        joined = torch.cat([user.unsqueeze(1).expand(-1, items.shape[1], -1), items], -1)
        return self.layers(joined).squeeze(-1)


def test_ranker_with_more_shapes_than_plans(always):
    def inputs(users, items):
        return torch.randn(users, 8), torch.randn(users, items, 16)

    module = Ranker().eval()
    model = compiled(module, inputs(3, 5), ({0: "users"}, {0: "users", 1: "items"}), [always])
    assert patterns(model) == ["linear_relu"] * 2 + ["linear_silu"] * 2 + ["linear"]
    for turn in range(2):
        for items in range(80):
            check(model, module, inputs(1 + (items + turn) % 3, items))
    check(model, module, inputs(0, 4))


class Residual(nn.Module):
    """Strides, groups, dilation, a projection, and convolutions that follow each other in oneDNN's own format."""

    def __init__(self):
        super().__init__()
        self.stem, self.first = nn.Conv2d(3, 16, 7, 2, 3, bias=False), nn.BatchNorm2d(16)
        self.a, self.norm_a = nn.Conv2d(16, 24, 3, stride=2, padding=1), nn.BatchNorm2d(24)
        self.b, self.norm_b = nn.Conv2d(24, 24, 3, padding=2, dilation=2, groups=4), nn.BatchNorm2d(24, affine=False)
        self.down, self.norm_down = nn.Conv2d(16, 24, 1, stride=2), nn.BatchNorm2d(24)
        self.head = nn.Linear(24, 5)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.first(self.stem(x))), 3, 2, 1)
        y = self.norm_b(self.b(F.relu(self.norm_a(self.a(x)))))
        return self.head(F.relu(y + self.norm_down(self.down(x))).mean((2, 3)))


def test_residual_block(always):
    module = Residual()
    dims = {0: Dim("n", max=32), 2: Dim("h", min=16, max=256), 3: Dim("w", min=16, max=256)}
    model = compiled(module, (torch.randn(2, 3, 32, 40),), (dims,), [always])
    assert {"conv_norm_relu", "conv_norm_add_relu", "conv_norm", "linear"} == set(patterns(model))
    for n, h, w in [(1, 16, 16), (2, 32, 40), (3, 17, 19), (1, 64, 31), (4, 33, 16), (2, 128, 64), (1, 20, 21)]:
        check(model, module, (torch.randn(n, 3, h, w),))
    check(model, module, (torch.randn(0, 3, 20, 20),))


class TwoBranches(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate, self.wide, self.narrow = nn.Linear(16, 1), nn.Linear(16, 64), nn.Linear(16, 8)
        self.up, self.down = nn.Linear(8, 16), nn.Linear(64, 16)

    def forward(self, x):
        x = torch.cond(
            self.gate(x).sum() > 0,
            lambda x: self.down(F.gelu(self.wide(x))),
            lambda x: self.up(F.relu(self.narrow(x))) + x,
            (x,),
        )
        return x @ x.mT


def test_two_branches(always):
    module = TwoBranches()
    model = compiled(module, (torch.randn(3, 5, 16),), ({0: "b", 1: "s"},), [always])
    assert {"linear_gelu", "linear_relu", "linear_add", "product"} <= set(patterns(model))
    sides = set()
    for b, s in [(1, 1), (3, 5), (2, 9), (7, 2), (4, 4), (1, 30), (0, 3), (3, 0), (5, 1), (2, 2)]:
        x = torch.randn(b, s, 16)
        sides.add(bool(module.gate(x).sum() > 0))
        check(model, module, (x,))
    assert sides == {True, False}


class Derived(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(12, 20), nn.Linear(20, 12)

    def forward(self, x, y):
        halves = F.relu(self.a(x[: x.shape[0] // 2]))
        longer = self.b(F.gelu(self.a(torch.cat([x, x, y]))))
        flat = self.b(self.a(x.unsqueeze(1) + y).reshape(-1, 20))
        return halves, longer, flat, torch.mm(x.t(), x), x.expand(3, -1, -1) @ y.t()


def test_derived_extents(always):
    """n // 2, 2 * n + 1, B * S; a sum over no rows, transposed and repeated operands."""
    module = Derived()
    model = compiled(module, (torch.randn(6, 12), torch.randn(1, 12)), ({0: "n"}, None), [always])
    for n in [0, 1, 2, 3, 7, 16, 33, 100]:
        check(model, module, (torch.randn(n, 12), torch.randn(1, 12)))


class Reference(Backend):
    """Linear layers and what follows them, by PyTorch."""

    name = "reference"
    merges = False

    def patterns(self):
        linear = op("aten.linear", tensor(), parameter())
        return [Pattern("relu", op("aten.relu", linear)), Pattern("linear", linear)]

    def compile(self, region):
        def run(*tensors):
            known = dict(zip(region.run_inputs, tensors, strict=True))
            for operation in region.operations:
                args = [known[x] if isinstance(x, Value) else x for x in operation.args]
                known[operation.result] = (F.linear if operation.name == "aten.linear" else F.relu)(*args)
            return tuple(known[result] for result in region.results)

        return PythonFunction(function=run, numbers=())


def test_with_another_back_end(always):
    module = TwoBranches()
    sets = []
    for backends in ([always, Reference], [Reference, always]):
        model = compiled(module, (torch.randn(3, 5, 16),), ({0: "b", 1: "s"},), backends)
        sets.append({(d.op, d.source, d.backend) for d in model.backends})
        for b, s in [(1, 1), (3, 5), (2, 9), (0, 3), (3, 0), (5, 7), (8, 2), (1, 40)]:
            check(model, module, (torch.randn(b, s, 16),))
    assert sets[0] != sets[1]
    assert {d[2] for d in sets[1]} >= {"onednn", "reference"}


def test_many_threads(always):
    module = Residual()
    dims = {0: Dim("n", max=8), 2: Dim("h", min=16, max=64), 3: Dim("w", min=16, max=64)}
    model = compiled(module, (torch.randn(2, 3, 32, 40),), (dims,), [always])
    inputs = [torch.randn(1 + i % 3, 3, 16 + i % 7, 20 + i % 5) for i in range(40)]
    with torch.no_grad():
        expected = [module(x) for x in inputs]
    with ThreadPoolExecutor(8) as pool:
        for found, wanted in zip(pool.map(model, inputs * 3), expected * 3, strict=True):
            torch.testing.assert_close(found, wanted, atol=2e-4, rtol=2e-4)


def test_replaced_weights(always):
    module = Residual()
    model = compiled(module, (torch.randn(2, 3, 32, 40),), ({0: "n"},), [always])
    x = torch.randn(3, 3, 32, 40)
    check(model, module, (x,))
    with torch.no_grad():
        module.a.weight.mul_(2)
        module.norm_b.running_mean.add_(1)
    check(model, module, (x,))


def test_refusals_have_reasons(always):
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(8, 8).double()

        def forward(self, x, v):
            return self.a(x.double()), torch.matmul(x, v)

    model = compiled(Odd(), (torch.randn(3, 8), torch.randn(8)), ({0: "n"}, None), [always])
    reasons = [r.reason for d in model.backends for r in d.refusals if r.pattern == "product"]
    assert any("got float64" in reason for reason in reasons)
    assert "vectors are left to the host" in reasons


def test_an_exception_becomes_the_error(always, monkeypatch):
    """The steps name a post-op that there is not: the C++ exception ends as an error of the call, or of the load."""
    import disc_backend_onednn

    written = disc_backend_onednn._steps
    monkeypatch.setattr(disc_backend_onednn, "_steps", lambda region: written(region).replace("relu", "nonsense"))
    module = nn.Sequential(nn.Linear(8, 4), nn.ReLU())
    with pytest.raises(Exception, match="onednn"):
        compiled(module, (torch.randn(3, 8),), ({0: "n"},), [always])(torch.randn(5, 8))


def test_missing_library_is_a_reason(always, package, monkeypatch):
    monkeypatch.setattr(package, "_missing", lambda: "oneDNN's header dnnl.hpp is missing: install libdnnl-dev")
    module = nn.Linear(8, 4)
    model = compiled(module, (torch.randn(3, 8),), ({0: "n"},), [always])
    assert "header dnnl.hpp is missing" in str(model.backends)
    check(model, module, (torch.randn(5, 8),))
