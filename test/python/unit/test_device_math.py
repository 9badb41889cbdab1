"""Largest errors of functions on devices, in units in the last place, where no library helps: f64, and far arguments.

The kernels run on the emulated device; what they compute is what the back ends get.
"""

import mpmath
import numpy as np
import pytest
import torch
import torch.nn.functional as F

import disc

INFINITY = float("inf")
SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -2.0, 3.0, INFINITY, -INFINITY, float("nan"), 5e-324, 1e-310, 1e-40, 3e38, -1e300]

# Name: (function, domain, ulp of f64, ulp of f32 or None where test_math_accuracy.py has it), as at the top of
# lib/Target/Common/LowerMath.cpp. mpmath is the reference.
UNARY = {
    "exp": (torch.exp, (-745, 709), 1, None),
    "exp2": (torch.exp2, (-1074, 1023), 1, None),
    "expm1": (torch.expm1, (-40, 709), 2, None),
    "log": (torch.log, (5e-324, 1e308), 1.5, None),
    "log2": (torch.log2, (5e-324, 1e308), 1.5, None),
    "log10": (torch.log10, (5e-324, 1e308), 1.5, None),
    "log1p": (torch.log1p, (-0.999999, 1e308), 2.5, None),
    "tanh": (torch.tanh, (-22, 22), 2.5, None),
    "sin": (torch.sin, (-1e308, 1e308), 1, 1.1),
    "cos": (torch.cos, (-1e308, 1e308), 1, 1.1),
    "tan": (torch.tan, (-1e308, 1e308), 3, 3),
    "asin": (torch.asin, (-1, 1), 2.5, None),
    "acos": (torch.acos, (-1, 1), 2.5, None),
    "atan": (torch.atan, (-1e300, 1e300), 2.5, None),
    "sinh": (torch.sinh, (-710, 710), 4, None),
    "cosh": (torch.cosh, (-710, 710), 4, None),
    "asinh": (torch.asinh, (-1e308, 1e308), 4, 4),
    "acosh": (torch.acosh, (1, 1e308), 4, 4),
    "atanh": (torch.atanh, (-0.9999999, 0.9999999), 4, None),
    "erf": (torch.erf, (-7, 7), 1.5, None),
    "erfc": (torch.erfc, (-7, 26), 4, 4),
}


def fmod(x, y):
    """Eager's is NaN where the ratio overflows."""
    with np.errstate(invalid="ignore"):
        return torch.from_numpy(np.fmod(x.numpy(), y.numpy()))


class Unary(torch.nn.Module):
    def forward(self, *inputs):
        return tuple(entry[0](x) for entry, x in zip(UNARY.values(), inputs, strict=True))


class Binary(torch.nn.Module):
    def forward(self, x, y):
        return torch.pow(x, y), torch.fmod(x, y), torch.atan2(x, y)


DEVICE = "cuda-emulated:fast"


def compiled(model, count, dtype, target=DEVICE):
    inputs = tuple(torch.rand(64, dtype=dtype) for _ in range(count))
    length = torch.export.Dim("n", min=1)
    return disc.compile(
        model,
        inputs,
        dynamic_shapes=({0: length},) * count if count == 2 else (({0: length},) * count,),
        options=disc.Options(target=target),
    )


def samples(low, high, dtype, count=600):
    """Spread evenly over the range, and over its exponents; the special values in it."""
    limit = torch.finfo(dtype).max
    low, high = max(low, -limit), min(high, limit)
    generator = np.random.default_rng(0)
    even = generator.uniform(low / 2, high / 2, count) * 2
    top = np.log2(max(abs(low), abs(high)))
    powers = 2.0 ** generator.uniform(max(-60.0, -top - 60), top, count)
    points = np.concatenate([even, powers, -powers, [low, high, 1e5, 2.0**20, 1e22, 11999.0, 12001.0]])
    return torch.tensor(points[(points >= low) & (points <= high)], dtype=dtype)


def exact(name, *values):
    """The value with 200 bits; None where mpmath has none."""
    special = {"asin": mpmath.asin, "log2": lambda x: mpmath.log(x, 2), "exp2": lambda x: mpmath.mpf(2) ** x}
    with mpmath.workprec(1200 if name in ("sin", "cos", "tan") else 200):
        function = special.get(name) or getattr(mpmath, name)
        return function(*map(mpmath.mpf, values))


def ulps(got, want, dtype):
    """The largest distance in units of the last place."""
    worst = 0.0
    for value, reference in zip(got.tolist(), want, strict=True):
        rounded = torch.tensor(float(reference), dtype=dtype)
        if not rounded.isfinite():
            assert value == rounded.item() or abs(value) >= torch.finfo(dtype).max * 0.999
            continue
        unit = torch.nextafter(rounded.abs(), torch.tensor(INFINITY, dtype=dtype)) - rounded.abs()
        worst = max(worst, float(abs(mpmath.mpf(value) - reference) / mpmath.mpf(unit.item())))
    return worst


# Vectors of the host use the same code for f64; it has tests of its own for f32.
CASES = [(torch.float64, DEVICE), (torch.float32, DEVICE), (torch.float64, None)]


@pytest.mark.parametrize(("dtype", "target"), CASES)
def test_unary(dtype, target):
    model = compiled(Unary(), len(UNARY), dtype, target)
    points = [samples(*entry[1], dtype) for entry in UNARY.values()]
    length = max(map(len, points))
    padded = [torch.cat([p, p[-1].expand(length - len(p))]) for p in points]
    results = model(*padded)
    bad = {}
    for (name, entry), x, got in zip(UNARY.items(), points, results, strict=True):
        bound = entry[2] if dtype == torch.float64 else entry[3]
        if bound is not None:
            error = ulps(got[: len(x)], [exact(name, v) for v in x.tolist()], dtype)
            if error > bound:
                bad[name] = error
    assert not bad


@pytest.mark.parametrize(("dtype", "target"), CASES)
def test_special_values(dtype, target):
    x = torch.tensor(SPECIAL, dtype=dtype)
    for name, got in zip(UNARY, compiled(Unary(), len(UNARY), dtype, target)(*[x] * len(UNARY)), strict=True):
        want = UNARY[name][0](x.double()).to(dtype)
        assert torch.equal(got.isnan(), want.isnan()), name
        torch.testing.assert_close(got, want, equal_nan=True, rtol=1e-6, atol=1e-45, msg=name)
        if name not in ("sin", "tan", "tanh", "expm1"):
            assert torch.equal(got[want == 0].signbit(), want[want == 0].signbit()), name


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_pairs(dtype):
    model = compiled(Binary(), 2, dtype)
    special = torch.tensor(SPECIAL, dtype=dtype)
    x, y = (v.reshape(-1).contiguous() for v in torch.meshgrid(special, special, indexing="ij"))
    wanted = (torch.pow(x, y), fmod(x, y), torch.atan2(x, y))
    for got, want in zip(model(x, y), wanted, strict=True):
        torch.testing.assert_close(got, want, equal_nan=True, rtol=1e-6, atol=1e-45)
        zero = want == 0
        assert torch.equal(got[zero].signbit(), want[zero].signbit())

    generator = torch.Generator().manual_seed(0)
    range_of = 1000 if dtype == torch.float64 else 120
    sizes = [torch.rand(1500, generator=generator, dtype=dtype) * 2 - 1 for _ in range(2)]
    x, y = (torch.exp2(s * range_of) * torch.randn(1500, generator=generator, dtype=dtype).sign() for s in sizes)
    _, rest, angle = model(x, y)
    assert torch.equal(rest, fmod(x, y))
    assert ulps(angle, [mpmath.atan2(a, b) for a, b in zip(x.tolist(), y.tolist(), strict=True)], dtype) <= 2.5
    # Powers of every size: x^y = 2^(y log2 x).
    x, y = torch.exp2(sizes[0] * 20), sizes[1] * range_of / 20
    x[:500] = 1 + sizes[0][:500] * 2.0**-12
    y[:500] = sizes[1][:500] * range_of * 2.0**11
    with mpmath.workprec(200):
        want = [mpmath.mpf(a) ** mpmath.mpf(b) for a, b in zip(x.tolist(), y.tolist(), strict=True)]
    assert ulps(model(x, y)[0], want, dtype) <= 1


class Approximated(torch.nn.Module):
    """What NVIDIA's own instructions are used for."""

    def forward(self, x):
        return torch.exp(x), torch.exp2(x), torch.tanh(x), torch.erf(x), torch.sigmoid(x), F.silu(x), F.gelu(x)


# Largest errors in ulp, with an `ex2.approx` that is rounded correctly, as the emulator's is. The last one is in units
# of the last place of x.
APPROXIMATED = {"exp": 1.1, "exp2": 1, "tanh": 2.5, "erf": 2, "sigmoid": 2.5, "silu": 3, "gelu": 2}


@pytest.mark.parametrize("target", ["cuda-emulated:fast", "rocm-emulated:fast"])
def test_every_exponent(target):
    """f32 of all exponents and both signs, more of them where functions change, and results that are denormal."""
    generator = torch.Generator().manual_seed(0)
    bits = torch.randint(-(2**31), 2**31, (1 << 17,), generator=generator).to(torch.int32)
    near = torch.rand(1 << 17, generator=generator) * 24 - 12
    far = torch.rand(1 << 16, generator=generator) * 210 - 110
    x = torch.cat([bits.view(torch.float32), near, far, torch.tensor(SPECIAL, dtype=torch.float32)])
    model = disc.compile(
        Approximated(),
        (torch.rand(64),),
        dynamic_shapes=({0: torch.export.Dim("n", min=1)},),
        options=disc.Options(target=target),
    )
    bad = {}
    for (name, bound), got, want in zip(APPROXIMATED.items(), model(x), Approximated()(x.double()), strict=True):
        assert torch.equal(got.isnan(), want.isnan()), name
        assert torch.equal(got[want == 0].signbit(), want[want == 0].signbit()), name
        rounded = want.float()
        finite = rounded.isfinite()
        assert torch.equal(got.isfinite(), finite), name
        of = x.abs() if name == "gelu" else rounded.abs()
        unit = (torch.nextafter(of, torch.tensor(INFINITY)) - of).double().clamp(min=2.0**-149)
        if name in ("sigmoid", "silu"):
            finite &= x > -88  # 1 + e^-x is finite
        error = ((got.double() - want).abs() / unit)[finite].max().item()
        if error > bound:
            bad[name] = error
    assert not bad
