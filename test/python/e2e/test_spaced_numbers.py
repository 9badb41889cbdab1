"""Evenly spaced numbers, and differences between neighbours, of sizes that are known at run time only."""

import pytest
import torch
from torch.export import Dim

import disc

N, M = Dim("n", min=1), Dim("m", min=1)
SPACED = {
    "as many as rows": lambda x: torch.linspace(0, (x.shape[0] - 1) * 11, x.shape[0]).long(),
    "integers": lambda x: torch.linspace(0, 10, x.shape[0], dtype=torch.int64),
    "fractions": lambda x: torch.linspace(0, 1 / x.shape[0], x.shape[0]),
    "up to a float": lambda x: torch.arange(float(x.shape[0])) + x,
    "in steps of a half": lambda x: torch.arange(0.0, float(x.shape[0]), 0.5)[: x.shape[0]] * x,
    "from a half on": lambda x: torch.arange(0.5, x.shape[0], 1) + x,
    "up to a half of the rows": lambda x: torch.arange(x.shape[0] / 2) + x[: (x.shape[0] + 1) // 2],
    "down": lambda x: torch.arange(x.shape[0] - 1, -1, -1.0) + x,
    "float64": lambda x: torch.arange(float(x.shape[0]), dtype=torch.float64) * 0.1,
    "integers up to a float": lambda x: torch.arange(float(x.shape[0]), dtype=torch.int64) * 2,
    "frequencies": lambda x: torch.fft.fftfreq(x.shape[0]) * x,
    "frequencies of samples": lambda x: torch.fft.fftfreq(x.shape[0], d=0.1, dtype=torch.float64),
    "frequencies of reals": lambda x: torch.fft.rfftfreq(x.shape[0], 1 / 16000),
}


@pytest.mark.parametrize("name", SPACED)
def test_spaced(name):
    function = SPACED[name]
    model = disc.compile(function, (torch.randn(5),), dynamic_shapes=({0: N},))
    for n in (5, 1, 2, 3, 16, 17, 155, 8):
        x = torch.randn(n)
        torch.testing.assert_close(model(x), function(x), rtol=1e-6, atol=1e-6)


GRADIENTS = {
    "all dims": lambda x, t: tuple(torch.gradient(x)),
    "one dim": lambda x, t: torch.gradient(x, spacing=2.0, dim=1)[0],
    "edges of second order": lambda x, t: tuple(torch.gradient(x, spacing=(2.0, 0.5), edge_order=2)),
    "coordinates": lambda x, t: torch.gradient(x, spacing=(t,), dim=0)[0],
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients(name):
    function = GRADIENTS[name]
    dims = Dim("n", min=3), Dim("m", min=3)
    given = lambda n, m: (torch.randn(n, m), torch.rand(n).cumsum(0))  # noqa: E731
    model = disc.compile(function, given(4, 6), dynamic_shapes=({0: dims[0], 1: dims[1]}, {0: dims[0]}))
    for n, m in ((4, 6), (3, 3), (7, 3), (3, 17)):
        arguments = given(n, m)
        torch.testing.assert_close(model(*arguments), function(*arguments), rtol=1e-4, atol=1e-4)


def test_spectral_norms():
    def norms(x):
        spectral = torch.linalg.matrix_norm
        return spectral(x, 2), spectral(x, -2, keepdim=True), torch.linalg.norm(x, 2), torch.linalg.norm(x)

    model = disc.compile(norms, (torch.randn(4, 6),), dynamic_shapes=({0: N, 1: M},))
    for shape in ((4, 6), (1, 1), (5, 3), (2, 7)):
        x = torch.randn(*shape)
        torch.testing.assert_close(model(x), norms(x), rtol=1e-4, atol=1e-5)


def test_quantiles_of_squares():
    """PyTorch refuses more elements than float32 can count, which says nothing of the sizes of a dim."""

    def limited(x):
        return x.clamp(max=torch.quantile(x.flatten(1).abs(), 0.9, dim=1).reshape(-1, 1, 1))

    model = disc.compile(limited, (torch.randn(2, 4, 4),), dynamic_shapes=({0: N, 1: M, 2: M},))
    for n, m in ((2, 4), (1, 1), (3, 7)):
        x = torch.randn(n, m, m)
        torch.testing.assert_close(model(x), limited(x))
