"""Training steps in reports and viewers, and the source lines of their kernels."""

import json
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import disc
from disc.errors import ArgumentTypeError, CallError
from disc.reporting import limits
from disc.viewers import model_explorer, perfetto


@pytest.fixture(autouse=True)
def known_limits(monkeypatch):
    """Limits that need no measurement."""
    found = limits.Limits(2, 100e9, 50e9, 10e9, 1 << 20)
    monkeypatch.setattr(limits, "measure", lambda threads: found)


class Net(nn.Module):
    """Each line is another operation."""

    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(8, 48)
        self.norm = nn.LayerNorm(48)
        self.out = nn.Linear(48, 4)

    def forward(self, x):
        h = self.hidden(x)
        h = self.norm(h)
        for row in x.tanh()[:3]:
            h = h + row.sum()
        return self.out(h)


def loss(module, x, y):
    return F.mse_loss(module(x), y)


def batch(n):
    generator = torch.Generator().manual_seed(n)
    return torch.randn(n, 8, generator=generator), torch.randn(n, 4, generator=generator)


def step_of(module, optimizer, **options):
    dims = ({0: torch.export.Dim("n", min=3, max=500)},) * 2
    return disc.compile_training(module, optimizer, batch(7), loss=loss, dynamic_shapes=dims, **options)


def test_lines_of_the_backward_pass():
    """A kernel of the backward pass has the line of the operation whose gradient it computes."""
    module = Net()
    step = step_of(module, torch.optim.SGD(module.parameters(), lr=0.1))
    first = Net.forward.__code__.co_firstlineno
    lines = {}
    for kernel in step.model.kernels(n=7):
        for source in kernel.sources:
            file, _, line = source.rpartition(":")
            if file == __file__:
                lines.setdefault(int(line) - first, []).append(kernel)
    inside = {number for number in lines if 0 < number < 6}
    assert {1, 2, 5} <= inside
    # The product of the forward pass, and those of the gradients of weight and (behind another layer) input.
    assert sum(kernel.kind == "contraction" for kernel in lines[1]) == 2
    assert sum(kernel.kind == "contraction" for kernel in lines[5]) == 3
    # The loss is all that is left for its line.
    own = lines[loss.__code__.co_firstlineno + 1 - first]
    assert not any(kernel.kind == "contraction" and kernel not in lines[5] for kernel in own)


@pytest.mark.parametrize("options", [{}, {"clip_norm": 0.5, "non_finite": "skip"}], ids=["plain", "clipped"])
def test_report(options, tmp_path):
    torch.manual_seed(0)
    module = Net()
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-2)
    step = step_of(module, optimizer, **options)
    step(*batch(5))
    before = {name: value.clone() for name, value in module.state_dict().items()}
    moments = [state["exp_avg"].clone() for state in optimizer.state.values()]
    report = step.report(tmp_path / "report.html", inputs=batch(9), shapes=[{"n": 3}, {"n": 200}], calls=2)
    assert [m.name for m in report.measurements] == ["n=9", "n=3", "n=200"]
    assert report.title == "Net, a training step"
    assert report.accuracy.reference == "eager PyTorch in float64" and not report.accuracy.note
    assert len(report.accuracy.outputs) == 3 and report.accuracy.largest < 1e-5
    assert any(line.file == __file__ and line.seconds > 0 for line in report.measurements[0].lines())
    # Nothing has changed.
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert all(torch.equal(state["exp_avg"], m) for state, m in zip(optimizer.state.values(), moments, strict=True))
    assert "a training step" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_a_report_needs_the_optimizers_state(tmp_path):
    module = Net()
    # Its first step has no momentum, and no dampening.
    step = step_of(module, torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9, dampening=0.5))
    with pytest.raises(CallError, match="make one step"):
        step.report(tmp_path / "report.html", inputs=batch(4))
    step(*batch(4))
    assert step.report(tmp_path / "report.html", inputs=batch(4), calls=1).accuracy.largest < 1e-5


def test_viewers(tmp_path):
    pytest.importorskip("perfetto")
    pytest.importorskip("model_explorer")
    module = Net()
    step = step_of(module, torch.optim.SGD(module.parameters(), lr=0.1))
    with step.profile() as profile:
        step(*batch(6))
    profile.save(tmp_path / "step.pftrace")
    perfetto.save_compilation(step, tmp_path / "compile.pftrace")
    model_explorer.save(step, tmp_path / "model.json", ["memory"])
    assert json.loads((tmp_path / "model.json").read_text(encoding="utf-8"))["graphs"]
    assert all(Path(path).stat().st_size for path in (tmp_path / "step.pftrace", tmp_path / "compile.pftrace"))
    with pytest.raises(ArgumentTypeError, match="got Net"):
        perfetto.save_compilation(module, tmp_path / "other.pftrace")
    with pytest.raises(ArgumentTypeError, match="got Net"):
        model_explorer.save(module, tmp_path / "other.json")
