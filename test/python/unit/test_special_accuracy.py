"""Largest errors of special functions of f32, which are computed in f64 in the lanes of vectors.

In units in the last place against float64; of functions that oscillate around zero, in parts of the amplitude.
"""

import mpmath
import pytest
import torch

import disc
from float_accuracy import SPECIAL, compiled, samples, ulps

special = torch.special

# Function, domain, bound in ulp: as stated at the top of gamma_polynomials.py and bessel_polynomials.py.
FUNCTIONS = {
    "lgamma": (torch.lgamma, 0, 1e30, 1),
    "lgamma, near": (torch.lgamma, 0, 20, 1),
    "digamma": (torch.digamma, 1e-30, 3e38, 1),
    "digamma, near": (torch.digamma, 1e-3, 20, 1),
    "erfcx": (special.erfcx, -9.3, 1e30, 1),
    "erfcx, near": (special.erfcx, -9.3, 20, 1),
    "log_ndtr": (special.log_ndtr, -1e15, 12, 1),
    "log_ndtr, near": (special.log_ndtr, -20, 12, 1),
    "ndtri": (special.ndtri, 1e-45, 0.99999994, 1),
    "k0": (special.modified_bessel_k0, 1e-40, 85, 1),
    "k1": (special.modified_bessel_k1, 1e-38, 85, 1),
    "scaled k0": (special.scaled_modified_bessel_k0, 1e-40, 1e30, 1),
    "scaled k1": (special.scaled_modified_bessel_k1, 1e-38, 1e30, 1),
    "airy_ai, positive": (special.airy_ai, 0, 24, 1),
}
# Function, domain, and by what the difference is divided.
OSCILLATING = {
    "lgamma": (torch.lgamma, -50, 0, lambda x, y: 1 + y.abs()),
    "digamma": (torch.digamma, -50, 0, lambda x, y: 1 + y.abs()),
    "j0": (special.bessel_j0, -1e4, 1e4, lambda x, y: (1 + x.abs()).rsqrt()),
    "j1": (special.bessel_j1, -1e4, 1e4, lambda x, y: x.abs().clamp(max=1) * (1 + x.abs()).rsqrt()),
    "y0": (special.bessel_y0, 1e-30, 1e4, lambda x, y: y.abs() + (1 + x.abs()).rsqrt()),
    "y1": (special.bessel_y1, 1e-30, 1e4, lambda x, y: y.abs() + (1 + x.abs()).rsqrt()),
    "airy_ai": (special.airy_ai, -1000, 0, lambda x, y: (1 + x.abs()) ** -0.25),
}
# Eager's f64 is off by 1e-6 of the amplitude.
EXACT = {
    "j0": mpmath.j0,
    "j1": mpmath.j1,
    "y0": lambda x: mpmath.bessely(0, x),
    "y1": lambda x: mpmath.bessely(1, x),
    "airy_ai": mpmath.airyai,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_units_in_the_last_place(name):
    function, low, high, bound = FUNCTIONS[name]
    x = samples(low, high)
    got, want = compiled(function)(x), function(x.double())
    finite = want.float().isfinite() & (want.abs() > 1e-37)
    assert torch.equal(got.isfinite(), want.float().isfinite())
    assert ulps(got[finite], want[finite]).max().item() <= bound


@pytest.mark.parametrize("name", OSCILLATING)
def test_parts_of_the_amplitude(name):
    function, low, high, scale = OSCILLATING[name]
    x = samples(low, high)
    if name in EXACT:
        x = x[:: len(x) // 1000]
        want = torch.tensor([float(EXACT[name](mpmath.mpf(v))) for v in x.tolist()], dtype=torch.float64)
    else:
        want = function(x.double())
    got = compiled(function)(x)
    finite = want.float().isfinite()
    assert torch.equal(got.isfinite(), finite)
    error = (got.double() - want).abs() / scale(x.double(), want)
    assert error[finite].max().item() <= 2e-7


@pytest.mark.parametrize("function", dict.fromkeys(entry[0] for entry in (*FUNCTIONS.values(), *OSCILLATING.values())))
def test_special_values(function):
    x = torch.cat(
        [SPECIAL, torch.tensor([0.5, 2.0, -2.0, 2.5, 8.0, -3.0, -3e38, 1 + 2**-23, 1 - 2**-24, 200.0, -200.0])]
    )
    got, want = compiled(function)(x), function(x.double()).float()
    if function in [entry[0] for name, entry in OSCILLATING.items() if name in EXACT]:  # angles of 1e38 have no digits
        x, got, want = x[want.abs() > 1e-9], got[want.abs() > 1e-9], want[want.abs() > 1e-9]
    torch.testing.assert_close(got, want, rtol=3e-7, atol=1e-30, equal_nan=True)


def test_mvlgamma():
    class Multivariate(torch.nn.Module):
        def forward(self, x):
            return tuple(torch.mvlgamma(x, p) for p in (1, 3, 5))

    model = disc.compile(Multivariate(), (torch.rand(64) + 3,), dynamic_shapes=({0: torch.export.Dim("n", min=1)},))
    x = samples(2.1, 100)
    for got, p in zip(model(x), (1, 3, 5), strict=True):
        want = torch.mvlgamma(x.double(), p)
        torch.testing.assert_close(got.double(), want, rtol=2e-7, atol=2e-7)
