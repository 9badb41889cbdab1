"""The device that the code of a graph is for, and what cannot be compiled for it."""

import torch

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
