"""Models that are made, compiled or called under torch.inference_mode()."""

import itertools

import pytest
import torch
from torch import nn
from torch.export import Dim

import disc


class Counting(nn.Module):
    """Weights, running statistics, a state and a branch on data."""

    def __init__(self):
        super().__init__()
        self.linear, self.norm = nn.Linear(8, 8), nn.BatchNorm1d(8)
        self.total = nn.Buffer(torch.zeros(8))

    def forward(self, x):
        y = self.norm(self.linear(x))
        self.total.add_(y.sum(0))
        if y.sum() > 0:
            y = y * 2
        return y + self.total


@pytest.mark.parametrize(("made", "compiled", "called"), itertools.product((False, True), repeat=3))
def test_every_step_in_or_out(made, compiled, called):
    torch.manual_seed(0)
    with torch.inference_mode(made):
        module, twin = Counting().eval(), Counting().eval()
        with torch.no_grad():
            for own, other in zip(twin.state_dict().values(), module.state_dict().values(), strict=True):
                own.copy_(other)
    with torch.inference_mode(compiled):
        model = disc.compile(module, (torch.randn(3, 8),), dynamic_shapes=({0: Dim("n")},))
    for n in (1, 2, 7, 3):
        x = torch.randn(n, 8)
        with torch.inference_mode(called):
            got = model(x)
        with torch.inference_mode():  # a buffer that is made there may be changed there only
            expected = twin(x)
        torch.testing.assert_close(got, expected)
        torch.testing.assert_close(module.total, twin.total)
    assert all(p.is_inference() == made for p in module.parameters())


@pytest.mark.parametrize("made", [False, True])
def test_under_torch_compile(made):
    with torch.inference_mode():
        with torch.inference_mode(made):
            module = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).eval()
        compiled = torch.compile(module, backend="disc", dynamic=True)
        for n in (2, 5, 3):
            x = torch.randn(n, 8)
            torch.testing.assert_close(compiled(x), module(x))
