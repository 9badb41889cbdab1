"""The device that the code of a graph is for, and what cannot be compiled for it."""

import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv

import disc
from disc.compiler import target_of
from disc.frontend import device_of, graph_program, import_functional, reason_against
from disc.frontend.export import export
from disc.torch_compat.symbols import int_oo


def test_operations_of_another_device():
    graph = torch.fx.symbolic_trace(lambda x, y: x + y).graph
    x, y, add, _ = graph.nodes
    add.target = torch.ops.aten.add.Tensor
    for node in (x, y, add):
        node.meta["val"] = torch.empty(2)
    assert device_of(graph) == torch.device("cpu")
    assert reason_against(add) is None
    assert reason_against(add, torch.device("cuda", 0)) == "a tensor is on cpu"
    y.meta["val"] = torch.empty(2, device="meta")
    assert reason_against(add) == "a tensor is on meta"


@pytest.mark.parametrize(
    "capability, target", [((8, 6), "cuda:sm_80"), ((9, 0), "cuda:sm_90"), ((12, 0), "cuda"), ((7, 5), "cuda")]
)
def test_code_for_the_generation_of_a_gpu(capability, target, monkeypatch):
    monkeypatch.setattr(torch.version, "hip", None, raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    assert target_of(torch.device("cuda", 1)) == target
    assert target_of(torch.device("cpu")) == "cpu"


def test_training_steps_are_for_cpus():
    with FakeTensorMode():  # which has GPUs everywhere
        module = torch.nn.ParameterDict({"scale": torch.nn.Parameter(torch.empty(3, device="cuda:1"))})
        optimizer = torch.optim.SGD(module.parameters(), 0.1)
        with pytest.raises(ValueError, match="are compiled for CPUs, and parameter 'scale' is on cuda:1"):
            disc.compile_training(module, optimizer, (torch.empty(3, device="cuda:1"),))


def test_batch_norm_of_a_gpu():
    """PyTorch says there that results which nobody uses are statistics, and not empty."""

    def norm(x, *statistics):
        return torch.ops.aten._native_batch_norm_legit_no_training(x, *statistics, 0.1, 1e-5)[0]

    with FakeTensorMode(shape_env=ShapeEnv()):
        x, *statistics = (torch.empty(shape, device="cuda:0") for shape in ((2, 8, 4), *[(8,)] * 4))
        graph = make_fx(norm)(x, *statistics)
    program, _ = graph_program(graph, {})
    assert "math.rsqrt" in (text := import_functional(program).text) or "math.sqrt" in text


def test_the_choice_of_a_library_on_a_gpu_limits_no_batch():
    """PyTorch's batch norm has other kernels there for more than 65535 rows."""

    class Norm(torch.nn.Module):
        def __init__(self):
            super().__init__()
            for name in ("weight", "bias", "mean", "variance"):
                self.register_buffer(name, torch.empty(8, device="cuda:0"))

        def forward(self, x):
            return torch.nn.functional.batch_norm(x, self.mean, self.variance, self.weight, self.bias)

    with FakeTensorMode():
        module, x = Norm(), torch.empty(2, 8, 4, device="cuda:0")
    program = export(module, (x,), None, ({0: torch.export.Dim("b")},))
    assert [bounds.upper for bounds in program.range_constraints.values()] == [int_oo]
