"""Functions and modules that TorchScript or torch.compile wraps are traced through."""

import torch
from torch import nn
from torch.export import Dim

import disc

N = {0: Dim("n", min=1, max=99)}


@torch.jit._script_if_tracing
def kept(boxes, threshold: float):
    if boxes.numel() == 0:
        return torch.empty((0,), dtype=torch.int64)
    return torch.nonzero(boxes.sum(1) > threshold).squeeze(1)


@torch.jit.script
def scaled(x, times: int):
    for _ in range(times):
        x = x * 2
    if x.sum() > 0:
        x = x + x.size(0)
    return x


@torch.compile
def shifted(x):
    return x + 1 if x.sum() > 0 else x - x.size(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.compile(nn.Sequential(nn.Linear(4, 4), nn.ReLU()))

    def forward(self, x):
        y = self.inner(x)
        return kept(y, 0.5), scaled(x, 2), shifted(x)


def test_wrapped_functions():
    net = Net()
    with torch.compiler.set_stance("force_eager"):
        model = disc.compile(net, (torch.randn(3, 4),), dynamic_shapes=(N,))
        for n in (1, 2, 7, 50):
            for sign in (1, -1):
                x = torch.rand(n, 4) * sign
                torch.testing.assert_close(model(x), net(x), rtol=1e-5, atol=1e-5)


def test_a_compiled_module():
    inner = nn.Linear(4, 3)
    model = disc.compile(torch.compile(inner), (torch.randn(3, 4),), dynamic_shapes=(N,))
    for n in (1, 9):
        x = torch.randn(n, 4)
        torch.testing.assert_close(model(x), inner(x).detach())


class Methods(nn.Module):
    """A method shows what its function has, also what PyTorch left there."""

    @torch.compiler.disable
    def _shifted(self, x, by):
        return x + by if x.sum() > 0 else x - by

    def forward(self, x):
        return self._shifted(x, 1.0), Methods._shifted(self, x, by=2.0)


def test_wrapped_methods():
    net = Methods()
    model = disc.compile(net, (torch.randn(3, 4),), dynamic_shapes=(N,))
    for n in (1, 2, 50):
        for sign in (1, -1):
            x = torch.rand(n, 4) * sign
            torch.testing.assert_close(model(x), net(x))
