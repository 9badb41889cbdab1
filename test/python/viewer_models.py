"""Models whose traces and graphs the tests of the viewers read."""

import torch
from torch import nn
from torch.export import Dim

import disc
from models import Decoder


class Doubling(nn.Module):
    """A loop on data, a data-dependent size, and two results."""

    def forward(self, x, limit):
        y = x.cumsum(0)
        while y.sum() < limit:
            y = y * 2 + x.softmax(-1)
        return y[y > 0], y


class Positive(nn.Module):
    """Temporaries of a data-dependent size."""

    def forward(self, x):
        kept = x[x > 0]
        return torch.softmax(kept, 0) + torch.softmax(kept.flip(0), 0)


def decoder(**settings):
    dims = ({0: Dim("batch", min=1, max=64), 1: Dim("length", min=2, max=128)},)
    return disc.compile(Decoder().eval(), (torch.randint(0, 101, (2, 8)),), dynamic_shapes=dims, **settings)


def doubling(**settings):
    example = torch.rand(5, 16) + 0.1, torch.tensor(1000.0)
    return disc.compile(Doubling(), example, dynamic_shapes=({0: Dim("rows", max=4096)}, None), **settings)


def positive(**settings):
    return disc.compile(Positive(), (torch.randn(64),), dynamic_shapes=({0: Dim("n", min=0, max=4096)},), **settings)
