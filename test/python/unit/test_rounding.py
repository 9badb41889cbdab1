"""Integer parts of floats as divisions of integers: the same numbers, or none."""

import math

import pytest
import sympy
import torch
from torch.export import Dim
from torch.utils._sympy.functions import CeilToInt, FloatTrueDiv, FloorDiv, FloorToInt, ToFloat, TruncToInt

import disc
from disc.frontend.rounding import in_integers

N, M = sympy.symbols("n m", integer=True)
F = sympy.Float
VALUES = {"CeilToInt": math.ceil, "FloorToInt": math.floor, "TruncToInt": math.trunc, "ToFloat": float}


@pytest.mark.parametrize(
    "expr",
    [
        CeilToInt(FloatTrueDiv(ToFloat(FloorDiv(N, 8)) - F(0.5), F(1.0))),
        CeilToInt(FloatTrueDiv(F(8.0) - ToFloat(N), F(0.5))),
        CeilToInt(F(0.75) * ToFloat(N) + F(0.25)),
        FloorToInt(F(0.5) * ToFloat(N) * ToFloat(M)),
        FloorToInt(ToFloat(N) - F(2.5)),
        TruncToInt(FloatTrueDiv(F(3.0) * ToFloat(N), F(2.0))),
    ],
    ids=str,
)
def test_the_same_numbers(expr):
    whole = in_integers(expr)
    for n in range(40):
        for m in (0, 1, 7):
            known = VALUES | {"FloatTrueDiv": lambda a, b: a / b, "n": n, "m": m}
            assert whole.xreplace({N: sympy.Integer(n), M: sympy.Integer(m)}) == eval(str(expr), known)


@pytest.mark.parametrize(
    "expr",
    [
        CeilToInt(F(0.1) * ToFloat(N)),
        CeilToInt(FloatTrueDiv(ToFloat(N), F(3.0))),
        TruncToInt(ToFloat(N) - F(0.5)),
    ],
    ids=str,
)
def test_what_floats_round_stays(expr):
    assert in_integers(expr) is None


class Middles(torch.nn.Module):
    """Coordinates of the middles of patches."""

    def forward(self, x):
        rows, columns = (torch.arange(0.5, size // 8) / (size // 8) for size in x.shape[1:])
        grid = torch.stack(torch.meshgrid(rows, columns, indexing="ij"), -1).flatten(0, 1)
        return grid[: x.shape[1] // 8 * (x.shape[2] // 8)]


def test_ranges_from_a_half():
    model = disc.compile(Middles(), (torch.randn(2, 32, 40),), dynamic_shapes=({1: Dim.AUTO, 2: Dim.AUTO},))
    for height, width in ((32, 40), (8, 8), (17, 63), (80, 16)):
        x = torch.randn(2, height, width)
        torch.testing.assert_close(model(x), Middles()(x))
