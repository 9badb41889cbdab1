"""Model.profile: which kernels ran, and where the program asks for them."""

import json

import pytest
import torch
from torch import nn

import disc


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(64, 64)

    def forward(self, x):
        return torch.softmax(self.linear(x), dim=-1)


def compiled():
    rows = torch.export.Dim("rows", min=1, max=4096)
    return disc.compile(Net().eval(), (torch.randn(4, 64),), dynamic_shapes=({0: rows},))


def test_records_launches_of_the_block_only():
    model = compiled()
    model(torch.randn(300, 64))
    with model.profile() as profile:
        model(torch.randn(300, 64))
        model(torch.randn(7, 64))
    model(torch.randn(300, 64))
    kinds = [launch.kind for launch in profile.launches]
    assert kinds.count("contraction") == 2
    assert all(launch.end_ns >= launch.begin_ns and launch.tasks > 0 for launch in profile.launches)
    assert any(launch.source.startswith("test_profile.py:") for launch in profile.launches)
    by_kernel = {entry.kernel: entry for entry in profile.kernels()}
    assert sum(entry.launches for entry in by_kernel.values()) == len(profile.launches)
    assert profile.seconds() >= profile.seconds("contraction") > 0
    assert all(entry.kernel in str(profile) for entry in by_kernel.values())


def test_trace_is_one_event_per_launch(tmp_path):
    model = compiled()
    with model.profile() as profile:
        model(torch.randn(300, 64))
    profile.save(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert [event["name"] for event in events] == [launch.kernel for launch in profile.launches]


def test_records_even_if_a_call_fails():
    model = compiled()
    with model.profile() as profile, pytest.raises(disc.ShapeError):
        model(torch.randn(3, 63))
    assert profile.launches == []
