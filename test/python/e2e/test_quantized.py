"""Quantised models: products of codes are exact, weights stay codes in memory, and real exports give eager's values."""

import itertools
import re

import numpy as np
import pytest
import torch
from torch import nn
from torch.ao.quantization.fx import _decomposed  # noqa: F401  (defines quantized_decomposed)
from torch.export import Dim
from torch.nn import functional as F

import disc

Q = torch.ops.quantized_decomposed
ROWS = (0, 1, 2, 3, 5, 6, 7, 12, 13, 15, 16, 17, 31, 32, 33, 48, 49, 64, 65, 130, 4)


def codes(dtype, *shape, seed=0, low=None, high=None):
    info = torch.iinfo(dtype)
    generator = torch.Generator().manual_seed(seed)
    low = info.min if low is None else low
    high = info.max if high is None else high
    return torch.randint(low, high + 1, shape, generator=generator, dtype=torch.int64).to(dtype)


class OfCodes(nn.Module):
    """(x - zero) @ (w - zeros), all integers."""

    def __init__(self, w, zero=None, zeros=None):
        super().__init__()
        self.w = nn.Buffer(w)
        self.zeros = None if zeros is None else nn.Buffer(zeros)
        self.zero = zero

    def forward(self, x):
        x, w = x.to(torch.int32), self.w.to(torch.int32)
        if self.zero is not None:
            x = x - self.zero
        if self.zeros is not None:
            w = w - self.zeros.to(torch.int32)
        return x @ w


@pytest.mark.parametrize(
    ("depth", "width"), [(1, 1), (2, 3), (7, 5), (64, 24), (129, 33), (148, 40), (200, 64), (256, 49)]
)
@pytest.mark.parametrize(("left", "right"), itertools.product((torch.int8, torch.uint8), repeat=2))
def test_products_of_codes_are_exact(depth, width, left, right):
    w = codes(right, depth, width)
    for shifted in (False, True):
        zeros = codes(right, width, seed=1) if shifted else None
        zero = (255 if left == torch.uint8 else -128) if shifted else None
        model = disc.compile(OfCodes(w, zero, zeros), (codes(left, 5, depth),), dynamic_shapes=({0: Dim("rows")},))
        factors = re.findall(r'"reduction"\]} ins\(%\w+, %\w+ : (\S+), (\S+)\)', model.ir("fusion"))
        assert factors == [(f"tensor<?x{depth}xi8>", f"tensor<{depth}x{width}xi8>")]
        for rows in ROWS:
            x = codes(left, rows, depth, seed=rows)
            expected = (x.numpy().astype(np.int64) - (zero or 0)) @ (
                w.numpy().astype(np.int64) - (0 if zeros is None else zeros.numpy().astype(np.int64))
            )
            np.testing.assert_array_equal(model(x).numpy(), expected)


class CodesFirst(nn.Module):
    """Weights on the left: those on the right are computed in each call."""

    def __init__(self):
        super().__init__()
        self.w = nn.Buffer(codes(torch.uint8, 20, 63))

    def forward(self, x):
        return (self.w.to(torch.int32) - 7) @ (x.to(torch.int32) - 200)


def test_products_with_weights_on_the_left_are_exact():
    module = CodesFirst()
    model = disc.compile(module, (codes(torch.uint8, 63, 5),), dynamic_shapes=({1: Dim("columns")},))
    for columns in ROWS:
        x = codes(torch.uint8, 63, columns, seed=columns)
        assert torch.equal(model(x), module(x))


@pytest.mark.parametrize("value", [-128, 127])
def test_products_of_the_largest_codes_are_exact(value):
    depth = 4096
    w = torch.full((depth, 40), -128, dtype=torch.int8)
    model = disc.compile(OfCodes(w), (codes(torch.int8, 5, depth),), dynamic_shapes=({0: Dim("rows")},))
    for rows in (1, 6, 17):
        x = torch.full((rows, depth), value, dtype=torch.int8)
        assert (model(x) == value * -128 * depth).all()


class Weighted(nn.Module):
    """A linear layer whose weight is dequantised, ``low`` to ``high`` with scales and zeros of this granularity."""

    def __init__(self, n, k, granularity, low, high, dtype, *, asymmetric=False, transposed=False):
        super().__init__()
        self.granularity, self.low, self.high, self.transposed = granularity, low, high, transposed
        generator = torch.Generator().manual_seed(n * k)
        shape = {"tensor": (1,), "channel": (n,)}.get(granularity) or (n, k // int(granularity))
        self.w = nn.Buffer(codes(dtype, n, k, low=low, high=high, seed=3))
        self.scales = nn.Buffer(torch.rand(shape, generator=generator) * 0.02 + 0.001)
        zeros = codes(torch.int32, *shape, low=low, high=high, seed=4)
        self.zeros = nn.Buffer(zeros if asymmetric else torch.zeros_like(zeros))
        self.bias = nn.Buffer(torch.randn(n, generator=generator))

    def weight(self, dtype=torch.float32):
        scales, zeros = self.scales.to(dtype), self.zeros.to(dtype)
        if self.granularity == "channel":
            scales, zeros = scales[:, None], zeros[:, None]
        elif self.granularity != "tensor":
            scales = scales.repeat_interleave(int(self.granularity), 1)
            zeros = zeros.repeat_interleave(int(self.granularity), 1)
        return (self.w.to(dtype) - zeros) * scales

    def forward(self, x):
        low, high, dtype = self.low, self.high, self.w.dtype
        if self.granularity == "tensor":
            w = Q.dequantize_per_tensor(self.w, self.scales[0], self.zeros[0].to(torch.int64), low, high, dtype)
        elif self.granularity == "channel":
            w = Q.dequantize_per_channel(self.w, self.scales, self.zeros, 0, low, high, dtype)
        else:
            size = int(self.granularity)
            w = Q.dequantize_per_channel_group(self.w, self.scales, self.zeros, low, high, dtype, size, torch.float32)
        return torch.relu(torch.nn.functional.linear(x, w, self.bias))


WEIGHTS = [
    ("tensor", -128, 127, torch.int8, False),
    ("channel", -128, 127, torch.int8, False),
    ("channel", 0, 255, torch.uint8, True),
    ("16", -128, 127, torch.int8, True),
    ("channel", -8, 7, torch.int8, False),
    ("32", -8, 7, torch.int8, False),
    ("16", -8, 7, torch.int8, True),
    ("64", 0, 15, torch.uint8, True),
]


@pytest.mark.parametrize(("granularity", "low", "high", "dtype", "asymmetric"), WEIGHTS)
@pytest.mark.parametrize(("n", "k"), [(48, 64), (37, 192), (5, 128)])
def test_weights_stay_codes(n, k, granularity, low, high, dtype, asymmetric):
    module = Weighted(n, k, granularity, low, high, dtype, asymmetric=asymmetric)
    model = disc.compile(module, (torch.randn(5, k),), dynamic_shapes=({0: Dim("rows")},))
    ir = model.ir("schedule")
    assert "disc_tensor.unpack" in ir and " scales " in ir
    assert (" nibbles " in ir) == (high - low == 15)
    weight, bias = module.weight(torch.float64), module.bias.double()
    for rows in ROWS:
        x = torch.randn(rows, k, generator=torch.Generator().manual_seed(rows))
        expected = torch.relu(x.double() @ weight.T + bias)
        # Each of k terms is rounded once, and so is each sum.
        bound = 2 * k * torch.finfo(torch.float32).eps * (x.double().abs() @ weight.abs().T + bias.abs())
        assert ((model(x).double() - expected).abs() <= bound).all()


class Packed(nn.Module):
    """What torch.compile makes of weights of int8 on CPUs."""

    def __init__(self, dtype):
        super().__init__()
        self.w, self.scales = nn.Buffer(codes(torch.int8, 48, 64)), nn.Buffer((torch.rand(48) * 0.01).to(dtype))

    def forward(self, x):
        return torch.ops.aten._weight_int8pack_mm(x, self.w, self.scales)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 2e-5), (torch.bfloat16, 2e-2)])
def test_packed_weights_of_8_bits(dtype, tolerance):
    module = Packed(dtype)
    model = disc.compile(module, (torch.randn(5, 64, dtype=dtype),), dynamic_shapes=({0: Dim("rows")},))
    assert " scales " in model.ir("schedule")
    for rows in ROWS:
        x = torch.randn(rows, 64).to(dtype)
        torch.testing.assert_close(model(x), module(x), atol=tolerance, rtol=tolerance)


class Gated(nn.Module):
    """Products of one input in one kernel, some of codes of 4 and 8 bits, one of floats."""

    def __init__(self):
        super().__init__()
        self.gate = Weighted(80, 64, "32", -8, 7, torch.int8)
        self.up = Weighted(80, 64, "16", -8, 7, torch.int8, asymmetric=True)
        self.wide = Weighted(80, 64, "channel", -128, 127, torch.int8)
        self.plain = nn.Linear(64, 80)

    def forward(self, x):
        return self.gate(x) * self.up(x) + self.wide(x) * self.plain(x), self.wide(x)


def test_products_of_one_input():
    torch.manual_seed(0)
    module = Gated().eval()
    model = disc.compile(module, (torch.randn(5, 64),), dynamic_shapes=({0: Dim("rows")},))
    for rows in ROWS:
        x = torch.randn(rows, 64)
        for got, expected in zip(model(x), module(x), strict=True):
            torch.testing.assert_close(got, expected, atol=2e-5, rtol=2e-5)


@pytest.mark.parametrize("granularity", ["channel", "64"])
def test_long_sums_are_cut_into_blocks(granularity):
    """So deep that a block of k is a part of it, and with few columns."""
    for low, high in ((-8, 7), (-128, 127)):
        module = Weighted(30, 7680, granularity, low, high, torch.int8)
        model = disc.compile(module, (torch.randn(5, 7680),), dynamic_shapes=({0: Dim("rows")},))
        for rows in (1, 2, 3, 13, 40, 100):
            x = torch.randn(rows, 7680)
            expected = torch.relu(x.double() @ module.weight(torch.float64).T + module.bias.double())
            assert (model(x) - expected).abs().max() < 1e-4 * expected.abs().max()


class Experts(nn.Module):
    """A batch of weights, in plain arithmetic, with a scale for each 32 values."""

    def __init__(self):
        super().__init__()
        self.w, self.scales = nn.Buffer(codes(torch.int8, 3, 20, 64)), nn.Buffer(torch.rand(3, 20, 2) * 0.01)

    def forward(self, x):
        w = (self.w.view(3, 20, 2, 32).to(torch.float32) * self.scales[..., None]).view(3, 20, 64)
        return torch.bmm(x, w.transpose(1, 2))


def test_a_batch_of_weights_stays_codes():
    module = Experts()
    model = disc.compile(module, (torch.randn(3, 5, 64),), dynamic_shapes=({1: Dim("rows")},))
    assert " scales " in model.ir("schedule")
    for rows in ROWS:
        x = torch.randn(3, rows, 64)
        torch.testing.assert_close(model(x), module(x), atol=2e-5, rtol=1e-5)


def test_codes_that_are_not_of_4_bits_are_refused():
    module = Weighted(16, 64, "32", -8, 7, torch.int8)
    module.w[3, 5] = 9
    with pytest.raises(disc.CompileError, match=r"(?s)load.*dequantize_per_channel_group.*test_quantized.py"):
        disc.compile(module, (torch.randn(5, 64),), dynamic_shapes=({0: Dim("rows")},))


def test_changed_codes_are_packed_again():
    module = Weighted(16, 64, "32", -8, 7, torch.int8)
    model = disc.compile(module, (torch.randn(5, 64),), dynamic_shapes=({0: Dim("rows")},))
    x = torch.randn(3, 64)
    before = model(x)
    module.w.copy_(codes(torch.int8, 16, 64, low=-8, high=7, seed=9))
    after = model(x)
    assert not torch.equal(before, after)
    torch.testing.assert_close(after, module(x), atol=1e-5, rtol=1e-5)


class Block(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.a, self.b = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        return self.norm(x + self.b(torch.nn.functional.gelu(self.a(x))))


def check_served(model, module, width, *, atol, rank=2):
    for rows in (1, 2, 7, 33, 130, 3):
        x = torch.randn(rows, *[3] * (rank - 2), width, generator=torch.Generator().manual_seed(rows))
        torch.testing.assert_close(model(x), module(x), atol=atol, rtol=0)


PRESETS = ["int8-dynamic", "int8-weights", "int4-weights", "int4-weights-64", "int8-static"]


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("rank", [2, 3])
def test_presets(preset, rank):
    pytest.importorskip("torchao")
    torch.manual_seed(0)
    module = Block().eval()
    shape, dims = (5, *[3] * (rank - 2), 64), ({0: Dim("rows", min=1, max=512)},)
    batches = [(torch.randn(shape),) for _ in range(4)]
    quantized = disc.quantize(module, batches, preset, dynamic_shapes=dims)
    model = disc.compile(quantized, batches[0], dynamic_shapes=dims)
    # What is rounded to a code again may fall to the other side: one step of activations of about 4 in 255.
    check_served(model, quantized, 64, atol=0.03 if preset in ("int8-static", "int8-dynamic") else 1e-4, rank=rank)
    # And the quantised model does what the module does.
    x = torch.randn(shape)
    cosine = torch.nn.functional.cosine_similarity(model(x).flatten(), module(x).flatten(), dim=0)
    assert cosine > (0.99 if "int4" in preset else 0.999)


class Projections(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(64, 48) for _ in range(3))

    def forward(self, x):
        return self.q(x), self.k(x), self.v(x)


@pytest.mark.parametrize("preset", ["int8-dynamic", "int8-weights"])
def test_an_example_of_one_row(preset):
    """torchao's code asks whether sizes are 1."""
    module = nn.Sequential(nn.Linear(48, 40), nn.ReLU(), nn.Linear(40, 8)).eval()
    rows = {0: Dim("rows", max=64)}
    quantised = disc.quantize(module, [(torch.randn(1, 48),)], preset, dynamic_shapes=(rows,))
    model = disc.compile(quantised, (torch.randn(1, 48),), dynamic_shapes=(rows,))
    for n in (1, 2, 7, 64):
        x = torch.randn(n, 48)
        torch.testing.assert_close(model(x), quantised(x), rtol=1e-5, atol=1e-5)


def test_projections_share_codes():
    """Each layer quantises its input; of the same input that happens once, and the products are one kernel."""
    pytest.importorskip("torchao")
    torch.manual_seed(0)
    quantized = disc.quantize(Projections().eval(), [], "int8-dynamic")
    batch, length = Dim("batch"), Dim("length")
    model = disc.compile(quantized, (torch.randn(3, 5, 64),), dynamic_shapes=({0: batch, 1: length},))
    assert [kernel.kind for kernel in model.kernels() if kernel.kind in ("row", "contraction")] == [
        "row",
        "contraction",
    ]
    for shape in ((1, 1), (2, 7), (5, 13), (1, 3)):
        x = torch.randn(*shape, 64)
        for got, expected in zip(model(x), quantized(x), strict=True):
            torch.testing.assert_close(got, expected, atol=1e-6, rtol=1e-6)


@pytest.mark.nightly  # test_gguf and test_checkpoints generate, too
def test_a_language_model_of_4_bits_generates_the_same():
    pytest.importorskip("torchao")
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 2, "vocab_size": 320}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128}
    quantized = disc.quantize(LlamaForCausalLM(LlamaConfig(**sizes, **heads)).eval(), [], "int4-weights")
    compiled = disc.hf.compile_causal_lm(quantized, max_length=64)
    for length in (1, 7, 20):
        tokens = torch.randint(0, 320, (1, length))
        got = compiled.generate(tokens, max_new_tokens=12, do_sample=False)
        assert torch.equal(got, quantized.generate(tokens, max_new_tokens=12, do_sample=False))


def test_excluded_layers_are_as_they_were():
    pytest.importorskip("torchao")
    module = Block().eval()
    quantized = disc.quantize(module, [(torch.randn(5, 64),)], "int8-weights", exclude=["b"])
    assert type(quantized.b.weight) is nn.Parameter and torch.equal(quantized.b.weight, module.b.weight)
    assert type(quantized.a.weight) is not nn.Parameter and type(module.a.weight) is nn.Parameter


def test_sensitivity_names_each_layer():
    pytest.importorskip("torchao")
    torch.manual_seed(0)
    report = disc.quantization.sensitivity(Block().eval(), [(torch.randn(9, 64),)], "int4-weights")
    assert {layer.name for layer in report.layers} == {"a", "b"}
    assert all(0 < layer.error < 0.5 and layer.cosine > 0.9 for layer in report.layers)
    assert "<table" in report._repr_html_() and "cosine" in str(report)


def test_quantised_libraries(tmp_path):
    module = Weighted(48, 128, "32", -8, 7, torch.int8)
    disc.aot_compile(module, (torch.randn(5, 128),), output=tmp_path / "model", dynamic_shapes=({0: Dim("rows")},))
    library = disc.load(tmp_path / "model")
    for rows in (1, 2, 7, 40):
        x = torch.randn(rows, 128)
        got = torch.as_tensor(np.asarray(library(x.numpy())))
        torch.testing.assert_close(got, module(x), atol=2e-5, rtol=1e-5)


def test_codes_under_torch_compile():
    module = Weighted(48, 128, "32", -8, 7, torch.int8)
    compiled = torch.compile(module, backend="disc", dynamic=True)
    for rows in (2, 7, 40):
        x = torch.randn(rows, 128)
        torch.testing.assert_close(compiled(x), module(x), atol=2e-5, rtol=1e-5)


def test_layers_used_twice_and_functions_are_quantised_alike():
    class Blocks(nn.Module):
        def __init__(self, function):
            super().__init__()
            self.convolutions = nn.ModuleList(nn.Conv2d(c, 8, 3, padding=1) for c in (3, 8, 8))
            self.norms = nn.ModuleList(nn.BatchNorm2d(8) for _ in range(3))
            self.relu = torch.relu if function else nn.ReLU()

        def forward(self, x, *rest):
            x = self.relu(self.norms[0](self.convolutions[0](x)))
            y = self.relu(self.norms[1](self.convolutions[1](x)))
            y = self.norms[2](self.convolutions[2](y))
            return self.relu(y + x) + sum(rest)

    example = (torch.randn(2, 3, 8, 8), torch.ones(1), torch.ones(1))
    shapes = ({0: Dim("n")}, ({}, {}))
    results = []
    for function in (False, True):
        torch.manual_seed(0)
        module = Blocks(function).eval()
        quantised = disc.quantize(module, [example], "int8-static", dynamic_shapes=shapes)
        model = disc.compile(quantised, example, dynamic_shapes=shapes)
        again = disc.compile(quantised, example, dynamic_shapes={"x": {0: Dim("n")}, "rest": ({}, {})})
        for n in (1, 2, 5):
            x = (torch.randn(n, 3, 8, 8, generator=torch.Generator().manual_seed(n)), torch.ones(1), torch.ones(1))
            # A value between two codes may be rounded to either.
            assert (model(*x) - quantised(*x)).abs().max() < 0.02 * module(*x).abs().max()
            assert torch.equal(model(*x), again(*x))
            results.append(model(*x))
    assert all(torch.equal(a, b) for a, b in zip(results[:3], results[3:], strict=True))


def test_sums_that_are_not_of_two_tensors_are_quantised():
    class Sums(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
            self.linear = nn.Linear(8, 8)

        def forward(self, x):
            y = torch.relu(self.a(x) + 1.0)
            y = self.b(y + y)
            y = torch.relu(torch.add(self.b(y), y, alpha=2))
            y = F.relu6(self.b(F.silu(self.b(y)))) + self.b(y).relu_()
            z = self.linear(y.mean((2, 3)))
            return self.linear(torch.tanh(z) + 1) + z

    torch.manual_seed(0)
    module, shapes = Sums().eval(), ({0: Dim("n"), 2: Dim("h", min=4)},)
    example = torch.randn(2, 3, 12, 8)
    quantised = disc.quantize(module, [(example,)], "int8-static", dynamic_shapes=shapes)
    model = disc.compile(quantised, (example,), dynamic_shapes=shapes)
    for n, h in ((2, 12), (1, 4), (3, 9)):
        x = torch.randn(n, 3, h, 8)
        expected = module(x).abs().max()
        assert (model(x) - quantised(x)).abs().max() < 0.02 * expected
        assert (quantised(x) - module(x)).abs().max() < 0.2 * expected


@pytest.mark.parametrize("sizes", [(1,), (1, 3), (1, 1)])
def test_calibration_with_one_image_at_a_time(sizes):
    """A batch of one to observe ranges with is no batch of one for ever."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Flatten(2), nn.Linear(64, 5)).eval()
    batches, shapes = [(torch.randn(n, 3, 8, 8),) for n in sizes], ({0: Dim("n", max=8)},)
    quantised = disc.quantize(module, batches, "int8-static", dynamic_shapes=shapes)
    model = disc.compile(quantised, batches[0], dynamic_shapes=shapes)
    for n in (1, 8, 3, 2):
        x = torch.randn(n, 3, 8, 8)
        assert (model(x) - module(x)).abs().max() < 0.1 * module(x).abs().max()


@pytest.mark.parametrize(("dtype", "low", "high"), [(torch.uint8, 0, 255), (torch.int8, -128, 127), (torch.int8, 3, 9)])
@pytest.mark.parametrize("zero", [0, 5])
def test_special_numbers_have_codes(dtype, low, high, zero):
    class Quantised(nn.Module):
        def forward(self, x):
            return torch.ops.quantized_decomposed.quantize_per_tensor(x, 0.25, zero, low, high, dtype)

    special = torch.tensor(
        [0.0, -0.0, float("inf"), -float("inf"), float("nan"), 3e9, -3e9, 1e38, 0.125, 0.375, -0.125]
    )
    model = disc.compile(Quantised(), (special,), dynamic_shapes=({0: Dim("n", min=1)},))
    for x in (special, torch.randn(1000) * 40, special[4:5]):
        assert torch.equal(model(x), Quantised()(x))


def test_floats_of_8_bits_are_codes_of_their_own():
    quantised = torch.ops.quantized_decomposed

    class Floats(nn.Module):
        def forward(self, x):
            limits = (0.5, 0, -448, 448, torch.float8_e4m3fn)
            codes = quantised.quantize_per_tensor(x, *limits)
            y = quantised.dequantize_per_tensor(codes, *limits)
            return codes.float(), F.max_pool2d(y, 2), quantised.quantize_per_tensor(y, *limits).float()

    model = disc.compile(Floats(), (torch.randn(2, 3, 6, 6),), dynamic_shapes=({0: Dim("n")},))
    for n in (1, 2, 5):
        x = torch.randn(n, 3, 6, 6) * 40
        x[0, 0, 0, 0], x[0, 1, 2, 2] = float("nan"), float("inf")
        for actual, expected in zip(model(x), Floats()(x), strict=True):
            assert torch.equal(actual.nan_to_num(9e9), expected.nan_to_num(9e9))


def test_one_more_argument_of_a_quantised_module():
    class One(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(8, 8)

        def forward(self, x, *rest):
            return self.linear(x) + sum(rest)

    example, shapes = (torch.randn(3, 8), torch.randn(3, 8)), ({0: Dim("n")}, ({0: Dim("n")},))
    quantised = disc.quantize(One(), [example], "int8-static", dynamic_shapes=shapes)
    model = disc.compile(quantised, example, dynamic_shapes=shapes)
    for n in (1, 3, 6):
        x = torch.randn(n, 8), torch.randn(n, 8)
        torch.testing.assert_close(model(*x), quantised(*x), rtol=1e-4, atol=0.02)


def test_groups_that_do_not_fit_are_an_error():
    """It names the layers, and what to write; the sensitivity is that of the others."""
    module = torch.nn.Sequential(torch.nn.Linear(64, 40), torch.nn.ReLU(), torch.nn.Linear(40, 3)).eval()
    batches = [(torch.randn(8, 64),)]
    with pytest.raises(ValueError, match=r"'2' \(40 inputs\); use a smaller group, or exclude=\['2'\]"):
        disc.quantize(module, batches, "int4-weights")
    disc.quantize(module, batches, "int4-weights", exclude=["2"])
    assert [x.name for x in disc.quantization.sensitivity(module, batches, "int4-weights").layers] == ["0"]


@pytest.mark.parametrize("preset", ["int8-weights", "int8-dynamic"])
def test_layers_of_an_encoder(preset):
    """nn.MultiheadAttention has a layer that is not called as one: it stays as it is."""
    torch.manual_seed(0)
    module = torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True).eval()
    rows = {0: torch.export.Dim("rows", min=1, max=64)}
    batches = [(torch.randn(8, 6, 32),)]
    quantized = disc.quantize(module, batches, preset, dynamic_shapes=(rows,))
    model = disc.compile(quantized, batches[0], dynamic_shapes=(rows,))
    for n in (1, 5, 33):
        x = torch.randn(n, 6, 32)
        with torch.no_grad():
            expected = quantized(x)
        torch.testing.assert_close(model(x), expected, rtol=0.02, atol=0.05 if preset == "int8-dynamic" else 1e-4)
