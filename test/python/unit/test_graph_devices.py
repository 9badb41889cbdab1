"""The device that the code of a graph is for, and what cannot be compiled for it."""

import pytest
import torch

from disc.compiler import target_of
from disc.frontend import device_of, reason_against


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
