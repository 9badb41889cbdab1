"""What a model on a device asks of it, seen by the device that does nothing."""

import pytest
import torch
from torch import nn
from torch.export import Dim

import disc
from disc import _runtime


class Chain(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        return torch.softmax(self.linear(x), -1).cumsum(0)


def asked(executable, call):
    """What the call adds to the device's counters."""
    before = executable.device_counters()
    call()
    return {name: count - before[name] for name, count in executable.device_counters().items()}


def test_a_call_waits_for_nothing():
    model = disc.compile(Chain(), (torch.randn(4, 8),), dynamic_shapes=({0: Dim("n")},), target="null")
    assert model._executable.device == "cpu"
    shapes = []
    first = asked(model._executable, lambda: shapes.append(model(torch.randn(5, 8)).shape))
    assert shapes == [(5, 8)]
    assert first["launches"] > 0
    assert first["synchronizations"] == 0
    # The arena stays: only the result is new.
    again = asked(model._executable, lambda: model(torch.randn(3, 8)))
    assert (again["allocations"], again["synchronizations"]) == (1, 0)
    assert again["launches"] == first["launches"]


def test_profile():
    model = disc.compile(Chain(), (torch.randn(4, 8),), dynamic_shapes=({0: Dim("n")},), target="null")
    with model.profile() as profile:
        launched = asked(model._executable, lambda: model(torch.randn(5, 8)))
    assert len(profile.launches) == launched["launches"]
    assert all(launch.kernel and launch.end_ns >= launch.begin_ns > 0 for launch in profile.launches)


def test_cpu_models_have_no_device():
    model = disc.compile(Chain(), (torch.randn(4, 8),), target="cpu")
    assert (model._executable.device, model._executable.device_counters()) == ("cpu", {})


def test_devices_that_are_missing():
    assert _runtime.device_missing("null") == ""
    assert _runtime.device_missing("abacus").startswith("this runtime has no device 'abacus', only ")
    for kind, needs in (("cuda", "an NVIDIA driver: libcuda.so.1"), ("rocm", "the ROCm runtime: libamdhip64.so")):
        missing = _runtime.device_missing(kind)
        if not missing:
            pytest.skip("this machine has one")
        assert missing.startswith((f"target '{kind}' needs {needs} could not be opened: ", f"target '{kind}': "))
