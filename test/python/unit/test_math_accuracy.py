"""Largest errors of the compiled transcendental functions, in units in the last place, against float64."""

import platform

import pytest
import torch

import disc
from float_accuracy import SPECIAL, compiled, samples, ulps

# Bounds as stated at the top of lib/Target/Common/LowerMath.cpp, and of special_polynomials.py of the lowering rules.
FUNCTIONS = {
    "exp": (torch.exp, -104, 89, 1),
    "exp2": (torch.exp2, -150, 128, 1),
    "expm1": (torch.expm1, -20, 89, 1.5),
    "log": (torch.log, 1e-45, 3e38, 1.1),
    "log1p": (torch.log1p, -0.999, 3e38, 2.5),
    "log2": (torch.log2, 1e-45, 3e38, 2),
    "log10": (torch.log10, 1e-45, 3e38, 2),
    "tanh": (torch.tanh, -12, 12, 2.5),  # three roundings, of numbers just above a power of 2
    "erf": (torch.erf, -6, 6, 2),
    "erfc": (torch.erfc, -4, 10.05, 4),
    "sin": (torch.sin, -1e4, 1e4, 1.1),
    "cos": (torch.cos, -1e4, 1e4, 1.1),
    "sin, far": (torch.sin, -1e9, 1e9, 1.1),
    "tan": (torch.tan, -1e4, 1e4, 3),
    "atan": (torch.atan, -1e30, 1e30, 2.5),
    "asin": (torch.asin, -1, 1, 2.5),
    "acos": (torch.acos, -1, 1, 2.5),
    "sinh": (torch.sinh, -89, 89, 2.5),
    "cosh": (torch.cosh, -89, 89, 2.5),
    "atanh": (torch.atanh, -0.9999999, 0.9999999, 3),
    "rsqrt": (torch.rsqrt, 1e-38, 1e38, 1.6),
    "erfinv": (torch.erfinv, -0.99999994, 0.99999994, 3.5),
    "i0e": (torch.special.i0e, -1e30, 1e30, 7),
    "i0e, near": (torch.special.i0e, -40, 40, 7),
    "i1e": (torch.special.i1e, -1e30, 1e30, 6.5),
    "i1e, near": (torch.special.i1e, -40, 40, 6.5),
    "i0": (torch.special.i0, -91, 91, 6),
    "i1": (torch.special.i1, -91, 91, 8),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_f32(name):
    function, low, high, bound = FUNCTIONS[name]
    model = compiled(function)
    x = samples(low, high)
    got, want = model(x), function(x.double())
    finite = want.float().isfinite()
    assert torch.equal(got.isfinite(), finite)
    assert ulps(got[finite], want[finite]).max().item() <= bound


@pytest.mark.parametrize("name", FUNCTIONS)
def test_special_values(name):
    function = FUNCTIONS[name][0]
    got, want = compiled(function)(SPECIAL), function(SPECIAL.double()).float()
    assert torch.equal(got.isnan(), want.isnan())
    assert torch.allclose(got, want, rtol=1e-6, atol=1e-45, equal_nan=True)


class Pairs(torch.nn.Module):
    def forward(self, x, y):
        return torch.atan2(x, y), torch.fmod(x, y), torch.remainder(x, y)


def test_pairs():
    """Every special value with every other, signs of zero among them, and quotients of all sizes."""
    model = disc.compile(
        Pairs(), (torch.rand(64), torch.rand(64)), dynamic_shapes=({0: torch.export.Dim("n", min=1)},) * 2
    )
    x, y = (v.reshape(-1).contiguous() for v in torch.meshgrid(SPECIAL, SPECIAL, indexing="ij"))
    generator = torch.Generator().manual_seed(0)
    sizes = torch.exp2(torch.rand(2, 200_003, generator=generator) * 60 - 30)
    sizes *= torch.randn(2, 200_003, generator=generator).sign()
    for a, b in (
        (x, y),
        (sizes[0], sizes[1]),
        (sizes[0].clamp(-1000, 1000).round(), torch.tensor([3.0]).expand(200_003)),
    ):
        angle, fmod, remainder = model(a.contiguous(), b.contiguous())
        want = torch.atan2(a.double(), b.double())
        finite = want.isfinite() & (want.abs() > 1e-37)
        assert ulps(angle[finite], want[finite]).max().item() <= 2.5
        assert torch.equal(angle.isnan(), want.isnan())
        zero = want == 0
        assert torch.equal(angle[zero].signbit(), want[zero].signbit())
        want = torch.fmod(a.double(), b.double()).float()
        torch.testing.assert_close(fmod, want, rtol=0, atol=0, equal_nan=True)
        # Eager gives NaN where the ratio overflows.
        want = torch.where((a / b).isinf() & (b != 0), remainder, torch.remainder(a, b))
        torch.testing.assert_close(remainder, want, rtol=0, atol=0, equal_nan=True)


class Power(torch.nn.Module):
    def forward(self, x, y):
        return torch.pow(x, y)


@pytest.mark.parametrize("cpu", [None, "x86-64-v2"])
def test_pow(cpu):
    """Results of every size, bases next to 1, denormals, integers as exponents of negative bases, and all specials."""
    if cpu is not None and platform.machine() != "x86_64":
        pytest.skip("names of x86 processors")
    shapes = ({0: torch.export.Dim("n", min=1)},) * 2
    model = disc.compile(
        Power(), (torch.rand(64), torch.rand(64)), dynamic_shapes=shapes, options=disc.Options(cpu=cpu)
    )
    special = torch.cat([SPECIAL, torch.tensor([2.0, -2.0, 3.0, -3.0, 0.5, -0.5, 2.5, 16777217.0, 1e38, -1e-45])])
    x, y = (v.reshape(-1).contiguous() for v in torch.meshgrid(special, special, indexing="ij"))
    got, want = model(x, y), torch.pow(x.double(), y.double()).float()
    torch.testing.assert_close(got, want, rtol=1e-6, atol=0, equal_nan=True)
    assert torch.equal(got.signbit() & ~got.isnan(), want.signbit() & ~want.isnan())  # zeros' signs

    generator = torch.Generator().manual_seed(0)
    count = 200_003
    bases = torch.exp2(torch.rand(count, generator=generator) * 276 - 149)
    exponents = (torch.rand(count, generator=generator) * 300 - 150) / bases.double().log2().float()
    near = 1 + torch.randn(count, generator=generator) * 1e-3
    far = (torch.rand(count, generator=generator) * 300 - 150) / near.double().log2().float()
    small = -torch.exp2(torch.rand(count, generator=generator) * 8 - 4)
    for a, b in ((bases, exponents), (near, far), (small, (exponents * 8).round().clamp(-40, 40))):
        got, want = model(a, b), torch.pow(a.double(), b.double())
        finite = want.float().isfinite()
        assert torch.equal(got.isfinite(), finite)
        assert ulps(got[finite], want[finite]).max().item() <= 0.6


def test_pow_of_doubles():
    """Of vectors it is the same code that devices run: test_device_math.py compares that with mpmath."""
    n = 20_003
    generator = torch.Generator().manual_seed(0)
    x = torch.exp(torch.randn(n, dtype=torch.float64, generator=generator) * 30)
    y = torch.randn(n, dtype=torch.float64, generator=generator) * 300 / x.log()
    special = torch.cat([SPECIAL.double(), torch.tensor([2.0, -3.0, -0.5, 5e-324, 1e300], dtype=torch.float64)])
    grid = (v.reshape(-1).contiguous() for v in torch.meshgrid(special, special, indexing="ij"))
    model = disc.compile(Power(), (x, y), dynamic_shapes=({0: torch.export.Dim("n", min=1)},) * 2)
    for a, b in ((x, y), tuple(grid)):
        torch.testing.assert_close(model(a, b), torch.pow(a, b), rtol=6e-16, atol=5e-324, equal_nan=True)


def test_gelu_where_it_does_not_cancel():
    x = torch.linspace(-2, 30, 300_001)
    got = compiled(torch.nn.functional.gelu)(x)
    want = torch.nn.functional.gelu(x.double())
    assert ((got.double() - want) / want).abs()[x.abs() > 1e-6].max().item() <= 1e-6


@pytest.mark.parametrize("function", [torch.erf, torch.tanh], ids=["erf", "tanh"])
def test_one_plus_a_function(function):
    # Computed as one, within two units of the last place of 1; no sign or NaN is lost.
    plus, minus = compiled(lambda x: 1 + function(x)), compiled(lambda x: 1 - function(x))
    x = torch.cat([samples(-12, 12), SPECIAL, torch.tensor([7.2, -7.2, 7.3, 1e30, -1e30])])
    for model, sign in ((plus, 1), (minus, -1)):
        got, want = model(x), 1 + sign * function(x.double())
        assert torch.equal(got.isnan(), want.isnan())
        assert torch.nan_to_num(got.double() - want).abs().max().item() <= 2 * 2**-23
    # What both are multiplied by may be large: where they are 0, that is exact.
    assert plus(torch.tensor([-100.0, -1e30, -float("inf")])).tolist() == [0, 0, 0]


@pytest.mark.parametrize("cpu", [None, "x86-64-v3", "x86-64-v2"])
def test_gelu_behind_a_product_of_any_width(cpu):
    # Panels of one, two and three vectors, whole and cut.
    if cpu is not None and platform.machine() != "x86_64":
        pytest.skip("names of x86 processors")
    for columns in (5, 8, 16, 17, 24, 31, 40, 72, 95):
        module = torch.nn.Sequential(torch.nn.Linear(33, columns), torch.nn.GELU()).eval()
        rows = torch.export.Dim("rows", min=1, max=64)
        options = disc.Options(cpu=cpu)
        model = disc.compile(module, (torch.randn(4, 33),), dynamic_shapes=({0: rows},), options=options)
        exact = torch.nn.Sequential(torch.nn.Linear(33, columns), torch.nn.GELU()).double()
        exact.load_state_dict({name: value.double() for name, value in module.state_dict().items()})
        for count in (1, 3, 4, 5, 7, 13, 64, 6):
            x = torch.randn(count, 33)
            torch.testing.assert_close(model(x).double(), exact(x.double()), rtol=1e-5, atol=2e-6)
