"""Floats among the arguments: the value at each call is used."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.export import Dim

import disc

ROWS = {0: Dim("n", min=1, max=99)}


class Sampling(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x, temperature: float, *, slope: float = 0.1):
        assert isinstance(temperature, float)
        x = F.leaky_relu(self.linear(x), slope)
        if temperature > 0.5:
            x = x / temperature + math.sqrt(temperature)
        return x.softmax(-1), x.clamp(min=slope), torch.where(x > slope, x, slope), torch.full((3,), slope), slope * 2


@pytest.fixture(scope="module")
def sampling():
    net = Sampling()
    shapes = {"x": ROWS, "temperature": None, "slope": None}
    return net, disc.compile(net, (torch.randn(3, 4), 0.7), {"slope": 0.2}, dynamic_shapes=shapes)


def test_the_value_of_each_call(sampling):
    net, model = sampling
    for n, temperature, slope in ((1, 0.25, 0.01), (2, 1.0, 0.5), (7, 2.0, -1.0), (50, 0.5, 0.0)):
        x = torch.randn(n, 4)
        expected = net(x, temperature, slope=slope)
        torch.testing.assert_close(model(x, temperature, slope=slope), expected, rtol=1e-5, atol=1e-6)


def test_an_int_is_no_float(sampling):
    with pytest.raises(TypeError, match="'temperature': expected a float, got int"):
        sampling[1](torch.randn(3, 4), 1, slope=0.5)


def test_integers_become_floats():
    class Net(nn.Module):
        def forward(self, x, factor: float):
            return x * factor

    model = disc.compile(Net(), (torch.arange(3), 0.5), dynamic_shapes=(ROWS, None))
    for n, factor in ((1, 2.0), (5, -0.25)):
        torch.testing.assert_close(model(torch.arange(n), factor), torch.arange(n) * factor)


def test_a_float_that_cannot_be_an_input_is_fixed_and_says_why():
    class Net(nn.Module):
        def forward(self, x, eps: float, flag: bool):
            return F.layer_norm(x, (4,), eps=eps) if flag else x

    model = disc.compile(Net(), (torch.randn(3, 4), 1e-5, True), dynamic_shapes=(ROWS, None, None))
    x = torch.randn(5, 4)
    torch.testing.assert_close(model(x, 1e-5, True), F.layer_norm(x, (4,)))
    with pytest.raises(TypeError, match=r"argument 'eps' is a constant .*: expected 1e-05, .*asks for its value"):
        model(x, 1e-3, True)
    with pytest.raises(TypeError, match="argument 'flag' is a constant of the compiled model: expected True"):
        model(x, 1e-5, False)
