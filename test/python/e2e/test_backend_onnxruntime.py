"""The example back end of ONNX Runtime: operations that DISC has no rule for."""

import importlib.util
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import disc
from backend_packages import install
from disc.backends import Backend, Pattern, PythonFunction, op

needs_runtime = pytest.mark.skipif(importlib.util.find_spec("onnxruntime") is None, reason="needs onnxruntime")


@torch.library.custom_op("disc_ort::hardmax", mutates_args=())
def hardmax(x: torch.Tensor, axis: int) -> torch.Tensor:
    return F.one_hot(x.argmax(axis), x.shape[axis]).movedim(-1, axis).to(x.dtype)


@hardmax.register_fake
def _(x, axis):
    return torch.empty_like(x)


@pytest.fixture(scope="module", autouse=True)
def package(tmp_path_factory):
    """The module of the package, installed by pip."""
    folder = tmp_path_factory.mktemp("packages") / "onnxruntime-backend"
    install("onnxruntime", folder)
    import disc_backend_onnxruntime

    disc_backend_onnxruntime.NODES["disc_ort.hardmax"] = disc_backend_onnxruntime.Node("Hardmax", 13)
    yield disc_backend_onnxruntime
    sys.path.remove(str(folder))


class Attention(nn.Module):
    """Rotary embeddings and attention as ONNX has them, and an operator of the user's own."""

    def __init__(self):
        super().__init__()
        self.register_buffer("cos", torch.randn(200, 4))
        self.register_buffer("sin", torch.randn(200, 4))
        self.project = nn.Linear(8, 8)

    def forward(self, x):
        places = torch.arange(x.shape[2]).unsqueeze(0).expand(x.shape[0], -1)
        turned = torch.onnx.ops.rotary_embedding(self.project(x), self.cos, self.sin, places)
        mixed = torch.onnx.ops.attention(turned, turned, x, is_causal=True)[0]
        return hardmax(mixed * 2, -1) + F.gelu(x)


def check(model, module, inputs):
    with torch.no_grad():
        torch.testing.assert_close(model(*inputs), module(*inputs), atol=1e-5, rtol=1e-5)


@needs_runtime
def test_attention_of_onnx():
    assert "onnxruntime" in disc.backends.available()
    module = Attention().eval()
    dims = ({0: "b", 2: "s"},)
    model = disc.compile(module, (torch.randn(2, 4, 6, 8),), dynamic_shapes=dims, backends=["onnxruntime"])
    assert sorted(d.op for d in model.backends.by("onnxruntime")) == [
        "disc_ort.hardmax",
        "onnx.Attention.opset23",
        "onnx.RotaryEmbedding.opset23",
    ]
    shapes = [(1, 1), (2, 6), (5, 7), (3, 2), (1, 100), (7, 1), (4, 33), (2, 3), (0, 3), (2, 0)]
    for b, s in shapes:
        check(model, module, (torch.randn(b, 4, s, 8),))
    inputs = [torch.randn(1 + i % 3, 4, 2 + i % 9, 8) for i in range(24)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(model, inputs))
    for x, y in zip(inputs, found, strict=True):
        with torch.no_grad():
            torch.testing.assert_close(y, module(x), atol=1e-5, rtol=1e-5)


class Branches(nn.Module):
    def forward(self, x, y):
        joined = torch.cat([x[: x.shape[0] // 2], y])
        return torch.cond(x.sum() > 0, lambda z: hardmax(z + 1, 1).relu(), lambda z: hardmax(z.mT, 1).mT - 1, (joined,))


class Hosts(Backend):
    """Takes relu, so that two back ends are in one model."""

    name = "hosts"

    def patterns(self):
        return [Pattern("relu", op("aten.relu")), Pattern("hardmax", op("disc_ort.hardmax"))]

    def compile(self, region):
        def run(x):
            for operation in region.operations:
                x = F.relu(x) if operation.name == "aten.relu" else hardmax(x, operation.args[1])
            return x

        return PythonFunction(function=run, numbers=())


@needs_runtime
@pytest.mark.parametrize("backends", [["onnxruntime"], ["onnxruntime", Hosts], [Hosts, "onnxruntime"]])
def test_branches_and_derived_extents(backends):
    module = Branches()
    inputs = (torch.randn(6, 4, 5), torch.randn(3, 4, 5))
    model = disc.compile(module, inputs, dynamic_shapes=({0: "n"}, {0: "m"}), backends=backends)
    first = backends[0] if isinstance(backends[0], str) else "hosts"
    assert {d.backend for d in model.backends if d.op == "disc_ort.hardmax"} == {first}
    for n, m in [(1, 1), (2, 1), (7, 3), (8, 0), (0, 2), (1, 0), (13, 5), (30, 2)]:
        check(model, module, (torch.randn(n, 4, 5), torch.randn(m, 4, 5)))


class Refusing(Backend):
    name = "refusing"
    reason = None
    asked = ()

    def patterns(self):
        return [Pattern("hardmax", op("disc_ort.hardmax"), lambda match: self.reason)]

    def accept(self, region):
        type(self).asked = [operation.unsupported for operation in region.operations]
        return "its regions are too small"

    def prefer(self, region):
        raise AssertionError("the host has no code to choose")

    def compile(self, region):
        return PythonFunction(function=lambda x: hardmax(x, 1), numbers=())


class One(nn.Module):
    def forward(self, x):
        return hardmax(x.relu(), 1) + 1


def test_unsupported_operations_must_be_taken():
    inputs, dims = (torch.randn(3, 4),), ({0: "n"},)

    class NoMatch(Refusing):
        name = "no_match"

        def patterns(self):
            return [Pattern("two", op("aten.relu", op("disc_ort.hardmax")))]

    class Refuses(Refusing):
        reason = "not on a Thursday"

    for backend, reason in [
        (Refusing, "no lowering rule; refusing refuses it: its regions are too small"),
        (Refuses, "no lowering rule; refusing refuses it: not on a Thursday"),
        (NoMatch, "no lowering rule; no pattern of a back end matches"),
    ]:
        with pytest.raises(disc.UnsupportedOpError) as raised:
            disc.compile(One(), inputs, dynamic_shapes=dims, backends=[backend])
        assert reason in str(raised.value) and "test_backend_onnxruntime.py:" in str(raised.value)
    assert Refusing.asked == ["no lowering rule"]

    class Takes(Refusing):
        def accept(self, region):
            return None

    model = disc.compile(One(), inputs, dynamic_shapes=dims, backends=[Takes])
    check(model, One(), (torch.randn(7, 4),))


def test_what_disc_compiles_stays_there(package):
    class Plain(nn.Module):
        def forward(self, x):
            return x.relu()

    package.NODES["aten.relu"] = package.Node("Relu", 14)
    try:
        model = disc.compile(Plain(), (torch.randn(3, 4),), dynamic_shapes=({0: "n"},), backends=["onnxruntime"])
    finally:
        del package.NODES["aten.relu"]
    assert "DISC compiles it" in str(model.backends)


@needs_runtime
def test_a_library_has_no_session(tmp_path):
    with pytest.raises(disc.BackendError, match="a Python function cannot be a part of a library"):
        disc.aot_compile(One(), (torch.randn(3, 4),), output=tmp_path / "libone.so", backends=["onnxruntime"])
