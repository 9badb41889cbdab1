"""Convolutions of quantised tensors are exact sums of codes, whatever the signs, zero points, steps and groups."""

import platform
import re

import numpy as np
import pytest
import torch
from torch import nn
from torch.ao.quantization.fx import _decomposed  # noqa: F401  (defines quantized_decomposed)
from torch.export import Dim

import disc
from disc import _native
from disc.errors import LoadError

Q = torch.ops.quantized_decomposed
DOTS = _native.host_target()
CPUS = [None, "x86-64-v3"] if platform.machine() == "x86_64" else [None]


def codes(dtype, *shape, seed=0):
    info = torch.iinfo(dtype)
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(info.min, info.max + 1, shape, generator=generator, dtype=torch.int64).to(dtype)


class Convolution(nn.Module):
    """A convolution of codes: activations with one scale and zero point, weights with a scale for each filter."""

    def __init__(self, rank, filters, channels, kernel, activations, weights, zero, **kwargs):
        super().__init__()
        groups = kwargs.get("groups", 1)
        self.w = nn.Buffer(codes(weights, filters, channels // groups, *[kernel] * rank, seed=3))
        # Powers of two: products with them are exact.
        self.scales = nn.Buffer(2.0 ** torch.arange(filters).remainder(5).neg())
        self.zeros = nn.Buffer(torch.zeros(filters, dtype=torch.int64))
        self.convolution = (nn.functional.conv1d, nn.functional.conv2d, nn.functional.conv3d)[rank - 1]
        self.activations, self.weights, self.zero, self.kwargs = activations, weights, zero, kwargs

    def forward(self, x):
        low, high = torch.iinfo(self.activations).min, torch.iinfo(self.activations).max
        x = Q.dequantize_per_tensor(x, 0.5, self.zero, low, high, self.activations)
        low, high = torch.iinfo(self.weights).min, torch.iinfo(self.weights).max
        w = Q.dequantize_per_channel(self.w, self.scales, self.zeros, 0, low, high, self.weights)
        return self.convolution(x, w, **self.kwargs)

    def exact(self, x):
        """In f64, where all sums are exact."""
        w = self.w.double() * self.scales.double().view(-1, *[1] * (self.w.dim() - 1))
        return self.convolution((x.double() - self.zero) * 0.5, w, **self.kwargs)


U8, S8 = torch.uint8, torch.int8
CASES = [
    # rank, filters, channels, kernel, activations, weights, zero, options
    (2, 24, 8, 3, U8, S8, 0, {"padding": 1}),
    (2, 33, 16, 3, U8, S8, 131, {"padding": 1, "stride": 2}),
    (2, 16, 12, 5, S8, S8, -128, {"padding": 2, "dilation": 2}),
    (2, 64, 32, 3, S8, S8, 127, {"padding": 1}),  # lines that are merged
    (2, 40, 64, 1, U8, S8, 255, {}),
    (2, 40, 64, 1, S8, S8, 5, {"stride": 2}),
    (2, 32, 32, 3, U8, S8, 17, {"padding": 1, "groups": 4}),
    (2, 20, 4, (7), S8, S8, 1, {"padding": 3, "stride": 2}),
    (1, 48, 20, 3, S8, S8, -7, {"padding": 1}),
    (1, 16, 8, 4, U8, S8, 99, {"stride": 4}),
    (3, 16, 8, 3, U8, S8, 200, {"padding": 1}),
    (2, 16, 128, 3, S8, S8, 3, {"padding": 1}),  # sums in blocks
    (2, 512, 400, 3, U8, S8, 131, {"padding": 1}),  # weights that a cache does not hold
    (2, 32, 16, 3, S8, S8, 1, {"padding": 2, "dilation": 3}),
    (2, 16, 6, 3, U8, S8, 131, {"padding": 1}),  # channels that are no multiple of four
    (2, 24, 3, 7, U8, S8, 114, {"padding": 3, "stride": 2}),
    (2, 24, 3, 7, S8, S8, -14, {"padding": 3, "stride": 2}),
    (2, 33, 1, 3, S8, S8, 7, {"padding": 1}),
    (2, 20, 10, 3, S8, S8, 7, {"padding": 1, "groups": 2}),
    (2, 64, 30, 3, U8, S8, 9, {"padding": 1}),  # lines that are merged
    (1, 16, 7, 1, S8, S8, 7, {"stride": 2}),
    (2, 16, 16, 3, U8, S8, 131, {"padding": 1, "groups": 16}),  # one filter for each channel: floats
    (2, 40, 40, 5, S8, S8, -9, {"padding": 2, "stride": 2, "groups": 40}),
    (1, 19, 19, 3, U8, S8, 77, {"padding": 2, "dilation": 2, "groups": 19}),
    (3, 18, 18, 3, S8, S8, 5, {"padding": 1, "groups": 18}),
]


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_convolutions_of_codes_are_exact(case, cpu):
    rank, filters, channels, kernel, activations, weights, zero, kwargs = case
    module = Convolution(rank, filters, channels, kernel, activations, weights, zero, **kwargs)
    low = kernel * kwargs.get("dilation", 1)
    dims = {0: Dim("n"), **{2 + d: Dim(f"s{d}", min=low) for d in range(rank)}}
    options = disc.Options() if cpu is None else disc.Options(cpu=cpu)
    example = codes(activations, 2, channels, *[low + 5 + d for d in range(rank)])
    model = disc.compile(module, (example,), dynamic_shapes=(dims,), options=options)
    as_codes = (
        (channels == 1 or kwargs.get("groups", 1) < channels)
        and cpu is None
        and (DOTS["i8_dot"] or DOTS["i8_dot_mixed"])
    )
    assert ("xi32>" in model.ir("fusion")) == as_codes or kernel == 1
    for n, sizes in [
        (1, (low,) * 3),
        (2, (low + 9, low + 1, low + 3)),
        (3, (low + 2, low + 16, low)),
        (0, (low,) * 3),
        (1, (31, 37, 17)),
    ]:
        x = codes(activations, n, channels, *[max(size, low) for size in sizes[:rank]], seed=n)
        got, expected = model(x), module.exact(x)
        if as_codes:  # one rounding of an exact sum
            np.testing.assert_array_equal(got.numpy(), expected.float().numpy())
        else:
            torch.testing.assert_close(
                got.double(), expected, rtol=1e-5, atol=1e-5 * expected.abs().amax().item() if n else 0
            )


@pytest.mark.parametrize("dtype", [S8, U8, torch.int32])
def test_convolutions_of_integers_wrap_as_in_eager(dtype):
    class Plain(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Buffer(codes(dtype, 6, 4, 3, 3))

        def forward(self, x):
            return nn.functional.conv2d(x, self.w, padding=1)

    module = Plain()
    model = disc.compile(module, (codes(dtype, 2, 4, 8, 8),), dynamic_shapes=({0: Dim("n")},))
    for n in (1, 2, 5):
        x = codes(dtype, n, 4, 8, 8, seed=n)
        assert torch.equal(model(x), module(x))


def test_zero_points_that_were_0_are_checked_at_load():
    module = Convolution(2, 16, 8, 3, U8, S8, 3, padding=1)
    model = disc.compile(module, (codes(U8, 1, 8, 9, 9),), dynamic_shapes=({0: Dim("n")},))
    module.zeros[5] = 1
    with pytest.raises(LoadError, match=r"dequantize_per_channel.*test_quantized_convolutions.py"):
        model(codes(U8, 1, 8, 9, 9))


def test_a_residual_network_of_bytes():
    class Residual(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Conv2d(3, 16, 3, stride=2, padding=1)
            self.a, self.b = nn.Conv2d(16, 16, 3, padding=1), nn.Conv2d(16, 16, 3, padding=1)
            self.norms = nn.ModuleList(nn.BatchNorm2d(16) for _ in range(2))
            self.pool = nn.MaxPool2d(3, 2, 1)
            self.last = nn.Linear(16, 10)

        def forward(self, x):
            x = self.pool(torch.relu(self.first(x)))
            y = torch.relu(self.norms[0](self.a(x)))
            x = torch.relu(self.norms[1](self.b(y)) + x)
            return self.last(x.mean((2, 3)))

    torch.manual_seed(0)
    module = Residual().eval()
    shapes = ({0: Dim("n"), 2: Dim("h", min=8), 3: Dim("w", min=8)},)
    example = torch.randn(2, 3, 20, 24)
    quantised = disc.quantize(
        module, [(torch.randn(2, 3, 32, 32),) for _ in range(3)], "int8-static", dynamic_shapes=shapes
    )
    model = disc.compile(quantised, (example,), dynamic_shapes=shapes)
    if DOTS["i8_dot"] or DOTS["i8_dot_mixed"]:
        fused = model.ir("fusion")
        assert sum("disc_tensor.convolution" in line and "xi32>" in line for line in fused.splitlines()) == 3
        # What is added later is read as codes, too.
        stored = re.findall(r"disc_plan.kernel  ?\w+ ins.*? -> (.*?) attributes", fused)
        assert stored and not any("xi8>" in results and "xf32>" in results for results in stored)
    for n, h, w in [(1, 8, 8), (2, 20, 24), (3, 33, 17), (1, 64, 48)]:
        x = torch.randn(n, 3, h, w)
        expected = module(x)
        # A value at a bound between two codes may be rounded to either.
        assert (model(x) - quantised(x)).abs().max() < 0.02 * expected.abs().max()
        assert (model(x) - expected).abs().max() < 0.1 * expected.abs().max()


@pytest.mark.parametrize(("dtype", "low", "high"), [(U8, 0, 255), (S8, -127, 127), (torch.int16, -32768, 32767)])
@pytest.mark.parametrize(
    "options", [{}, {"padding": 1}, {"padding": 1, "dilation": 5}, {"stride": 2, "ceil_mode": True}]
)
def test_the_largest_code_is_the_largest_number(dtype, low, high, options):
    class Pooled(nn.Module):
        def forward(self, x, raw):
            a = Q.quantize_per_tensor(x, 0.037, 3, low, high, dtype)
            results = []
            for c in (a, raw):
                y = Q.dequantize_per_tensor(c, 0.037, 3, low, high, dtype)
                y, places = nn.functional.max_pool2d(y, 2, return_indices=True, **options)
                # Of windows without any element, eager says that the place is one outside of the image.
                results += [
                    y,
                    *([] if "dilation" in options else [places]),
                    Q.quantize_per_tensor(y, 0.037, 3, low, high, dtype),
                ]
                results.append(Q.quantize_per_tensor(y, 0.5, 3, low, high, dtype))
            return results

    module = Pooled()
    shapes = ({0: Dim("n"), 2: Dim("h", min=4), 3: Dim("w", min=4)},) * 2
    model = disc.compile(module, (torch.randn(2, 3, 9, 8), codes(dtype, 2, 3, 9, 8)), dynamic_shapes=shapes)
    for n, h, w in [(1, 4, 4), (2, 9, 8), (3, 31, 17), (1, 16, 65)]:
        x, raw = torch.randn(n, 3, h, w) * 3, codes(dtype, n, 3, h, w, seed=h)
        for actual, expected in zip(model(x, raw), module(x, raw), strict=True):
            assert torch.equal(actual, expected)


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize(
    "options", [{"padding": 1}, {"padding": 2, "stride": 2}, {"padding": 3, "dilation": 3}], ids=str
)
@pytest.mark.parametrize(("dtype", "channels", "zero"), [(U8, 37, 131), (S8, 64, -5), (U8, 16, 0)])
def test_filters_of_single_channels_read_codes(options, dtype, channels, zero, cpu):
    class ChannelsLast(Convolution):
        def forward(self, x):
            return super().forward(x.permute(0, 3, 1, 2))

    module = ChannelsLast(2, channels, channels, 3, dtype, S8, zero, groups=channels, **options)
    shapes = ({0: Dim("n"), 1: Dim("h", min=8), 2: Dim("w", min=8)},)
    settings = disc.Options() if cpu is None else disc.Options(cpu=cpu)
    model = disc.compile(module, (codes(dtype, 2, 9, 12, channels),), dynamic_shapes=shapes, options=settings)
    # Nothing stores the numbers that the codes stand for.
    assert not any("-> tensor<?x?x?x" in line and "loop" in line for line in model.ir("fusion").splitlines())
    for n, h, w in [(1, 8, 8), (2, 9, 12), (3, 8, 31), (1, 17, 64), (0, 8, 8)]:
        x = codes(dtype, n, h, w, channels, seed=w)
        expected = module.exact(x.permute(0, 3, 1, 2))
        torch.testing.assert_close(
            model(x).double(), expected, rtol=1e-5, atol=1e-5 * expected.abs().amax().item() if n else 0
        )
