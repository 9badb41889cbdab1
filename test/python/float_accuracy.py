"""Samples of f32 for functions of one number, and errors in units in the last place."""

import torch

import disc

SPECIAL = torch.tensor([0.0, -0.0, 1.0, -1.0, float("inf"), -float("inf"), float("nan"), 1e-45, 1e-40, -1e-40, 3e38])


class Function(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def compiled(function):
    x = torch.rand(64)
    return disc.compile(Function(function), (x,), dynamic_shapes=({0: torch.export.Dim("n", min=1)},))


def samples(low, high):
    """Points spread evenly over the range, and over its exponents."""
    even = torch.linspace(low, high, 200_003, dtype=torch.float64)
    top = torch.tensor(max(abs(low), abs(high)), dtype=torch.float64).log2().item()
    geometric = torch.logspace(-40 if low < 1e-40 else -30, top, 200_003, base=2, dtype=torch.float64)
    points = torch.cat([even, geometric, -geometric])
    return points[(points >= low) & (points <= high)].float()


def ulps(got, want):
    """The distance in units of the last place of f32 at `want`."""
    rounded = want.float()
    unit = torch.nextafter(rounded.abs(), torch.tensor(float("inf"))).double() - rounded.abs().double()
    return ((got.double() - want) / unit).abs()
