"""Weights that stay codes on a device with a matrix unit: all layouts of codes, at all kinds of numbers of rows."""

import pytest
import torch
from torch import nn
from torch.ao.quantization.fx import _decomposed  # noqa: F401  (defines quantized_decomposed)
from torch.export import Dim

import disc
from disc import targets, toolchain
from disc.coded import CodedLinear, Codes, packed

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
ROWS = Dim("rows", max=4096)


class Layer(nn.Module):
    """x W of codes that are what `kind` says, with a scale for each `group` values of k."""

    def __init__(self, outer, inner, group, bits, kind, dtype):
        super().__init__()
        self.low = 0 if kind == "unsigned" else -(1 << (bits - 1))
        self.high, self.group, self.dtype = self.low + (1 << bits) - 1, group, dtype
        byte = torch.uint8 if kind == "unsigned" else torch.int8
        self.codes = nn.Buffer(torch.randint(self.low, self.high + 1, (outer, inner)).to(byte))
        self.scales = nn.Buffer(torch.rand(outer, inner // group) + 0.1)
        zeros = torch.randint(self.low, self.high + 1, (outer, inner // group), dtype=torch.int32)
        self.zeros = nn.Buffer(zeros) if kind != "symmetric" else None

    @property
    def weight(self):
        return torch.ops.quantized_decomposed.dequantize_per_channel_group(
            self.codes, self.scales, self.zeros, self.low, self.high, self.codes.dtype, self.group, torch.float32
        )

    def forward(self, x):
        return nn.functional.linear(x, self.weight.to(self.dtype))


def check(model, weight, dtype, rows, columns):
    for count in rows:
        x = torch.randn(count, columns).to(dtype)
        exact, size = x.double() @ weight.T, x.double().abs() @ weight.abs().T
        # A weight is rounded to the dtype, or not, and so is the sum. Sums of f32 have other orders.
        bound = 2 * torch.finfo(dtype).eps * size
        assert ((model(x).double() - exact).abs() <= bound).all(), count


# Whole blocks of codes and parts of one; columns that are no multiple of 8, or wide enough for wide tiles.
SIZES = {
    "a scale for 32": (64, 256, 32),
    "a scale for 96": (37, 96, 96),
    "a scale for 64": (40, 192, 64),
    "few columns": (9, 320, 32),
    "one scale": (24, 200, 200),
    "wide": (4200, 128, 32),
}


@pytest.mark.parametrize("name", SIZES)
def test_numbers_of_rows(name):
    torch.manual_seed(0)
    outer, inner, group = SIZES[name]
    rows = (1, 17, 65) if outer > 1000 else (1, 2, 8, 16, 17, 33, 64, 65, 130, 3)
    number = list(SIZES).index(name)
    for i, kind in enumerate(("symmetric", "signed", "unsigned")):
        # All pairs of kinds, bits and dtypes occur.
        dtype, bits = DTYPES[(i + number) % 3], 4 if (i + number // 3) % 2 else 8
        layer = Layer(outer, inner, group, bits, kind, dtype)
        x = torch.randn(3, inner).to(dtype)
        model = disc.compile(layer, (x,), dynamic_shapes=({0: ROWS},), target="cuda-emulated")
        assert "unpack_fragments" in model.ir("schedule")
        check(model, layer.weight.double(), dtype, rows, inner)


class Several(nn.Module):
    """Layers of one input: of codes, and one of numbers."""

    def __init__(self, dtype, *layers):
        super().__init__()
        self.dtype, self.layers = dtype, nn.ModuleList(layers)

    def forward(self, x):
        return torch.cat([nn.functional.linear(x, layer.weight.to(self.dtype)) for layer in self.layers], -1)


@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("dtype", DTYPES[:2])
def test_several_products_of_one_input(dtype, mixed):
    torch.manual_seed(0)
    layers = [Layer(40, 128, 32, 4, "signed", dtype), Layer(24, 128, 128, 8, "symmetric", dtype)]
    if mixed:
        layers.append(nn.Linear(128, 33, bias=False).to(dtype))
    module = Several(dtype, *layers).eval()
    x = torch.randn(3, 128).to(dtype)
    model = disc.compile(module, (x,), dynamic_shapes=({0: Dim("rows", max=100)},), target="cuda-emulated")
    assert model.ir("schedule").count("unpack_fragments") == 2
    weight = torch.cat([layer.weight.double() for layer in layers]).detach()
    check(model, weight, dtype, (1, 16, 17, 64, 65, 100, 2), 128)


def test_what_is_not_finite():
    """An infinity of the input is one of the result, NaN where 0 is among what it is multiplied by; NaN stays."""
    torch.manual_seed(0)
    layer = Layer(16, 128, 32, 4, "symmetric", torch.float32)
    model = disc.compile(layer, (torch.randn(3, 128),), dynamic_shapes=({0: ROWS},), target="cuda-emulated")
    for rows in (2, 20, 70):
        x = torch.randn(rows, 128)
        x[0, 5], x[1, 7] = torch.inf, torch.nan
        torch.testing.assert_close(model(x), layer(x), rtol=1e-4, atol=1e-4, equal_nan=True)


def test_codes_outside_their_range():
    torch.manual_seed(0)
    codes = torch.randint(0, 16, (8, 64), dtype=torch.uint8)
    module = CodedLinear(Codes(packed(codes), torch.rand(8, 2), None, 8, 4))
    model = disc.compile(module, (torch.randn(3, 64),), dynamic_shapes=({0: ROWS},), target="cuda-emulated")
    check(model, module.weight.double(), torch.float32, (1, 70), 64)
    layer = Layer(8, 64, 32, 4, "symmetric", torch.float32)
    layer.codes[3, 5] = 9
    with pytest.raises(disc.errors.LoadError, match="dequantize_per_channel_group"):
        disc.compile(layer, (torch.randn(3, 64),), dynamic_shapes=({0: ROWS},), target="cuda-emulated")


@pytest.mark.parametrize("dtype", DTYPES[:2])
@pytest.mark.parametrize(("bits", "kind"), [(4, "symmetric"), (4, "signed"), (8, "symmetric")])
def test_no_kernel_spills(bits, kind, dtype):
    if not toolchain.find_ptxas():
        pytest.skip("no ptxas")
    layer = Layer(4096, 1024, 128, bits, kind, dtype)
    model = disc.compile(
        layer,
        (torch.randn(3, 1024).to(dtype),),
        dynamic_shapes=({0: ROWS},),
        target="cuda",
        options=disc.Options(stop_after="codegen"),
    )
    for chip, kernels in targets.resources(model.ir("memory"), "cuda").items():
        for name, needs in kernels.items():
            used = {key: n for key, n in needs.items() if n and ("spill" in key or key == "stack")}
            assert not used, (chip, name, used)
