"""``Options(precision="bf16")``: weights of products as bf16, sums in f32."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.export import Dim

import disc
from disc import _native

SIZES = [1, 2, 3, 13, 14, 15, 29, 130]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        # Column counts of one vector, of panels, and in between; a sum that is cut in blocks; a product of activations.
        self.first, self.second, self.last = nn.Linear(37, 50), nn.Linear(50, 2000, bias=False), nn.Linear(2000, 7)
        self.w = nn.Parameter(torch.randn(37, 64) / 6)

    def forward(self, x):
        y = self.last(F.gelu(self.second(self.first(x))))
        return y, (x @ self.w) @ (x @ self.w).mT


def rounded(module):
    """The module with the weights that products read as bf16 keeps them."""
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if not name.endswith("bias"):
                parameter.copy_(parameter.bfloat16().float())
    return module


def multiplies_bf16():
    host = _native.host_target()
    return host["bf16_dot"] or host["bf16_tiles"]


@pytest.mark.parametrize("cpu", [None, "x86-64-v3"], ids=["this machine", "widened"])
def test_bf16(cpu):
    torch.manual_seed(0)
    module = Net().eval()
    rows = Dim("rows", min=1, max=512)
    options = disc.Options(threads=2, precision="bf16", cpu=cpu)
    model = disc.compile(module, (torch.randn(6, 37),), dynamic_shapes=({0: rows},), options=options)
    pairs = cpu is None and multiplies_bf16()
    assert ("together 2" in model.ir("schedule")) == pairs
    assert "xbf16>" in model.ir("schedule") and "disc-schedule-pack-weights{precision=bf16}" in str(options.stages)
    inputs = [torch.randn(size, 37) for size in SIZES]
    with torch.no_grad():
        exact = [module(x) for x in inputs]
        expected = [rounded(module)(x) for x in inputs]
    for x, full, same in zip(inputs, exact, expected, strict=True):
        for actual, e, r in zip(model(x), full, same, strict=True):
            # Without instructions for bf16 only weights are rounded: eager with rounded weights gives the same up to
            # f32's own error. With them, what they are multiplied by is rounded too.
            assert (actual - r).abs().max() <= (1e-2 if pairs else 5e-6) * r.abs().max()
            assert (actual - e).abs().max() <= 1e-2 * e.abs().max()


@pytest.mark.parametrize("cpu", [None, "x86-64-v3"], ids=["this machine", "widened"])
def test_weights_of_bf16_stay(cpu):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(36, 200), nn.ReLU(), nn.Linear(200, 7, bias=False)).bfloat16().eval()
    example = (torch.randn(6, 36).bfloat16(),)
    model = disc.compile(module, example, dynamic_shapes=({0: Dim("rows", max=512)},), options=disc.Options(cpu=cpu))
    panels = [line for line in model.ir("schedule").splitlines() if "disc_tensor.unpack" in line]
    assert len(panels) == 2 and all("xbf16>" in line for line in panels)
    assert all(("together 2" in line) == (cpu is None and multiplies_bf16()) for line in panels)
    for size in (*SIZES, 16, 17, 32, 33, 48, 64):
        x = torch.randn(size, 36).bfloat16()
        with torch.no_grad():
            # The first product is rounded to bf16, and sums in another order may round to the neighbour.
            torch.testing.assert_close(model(x), module(x), rtol=1.6e-2, atol=4e-3)


@pytest.mark.parametrize("kind", ["int4-weights", "int4-weights-64", "int8-weights"])
def test_codes_beside_bf16(kind):
    """Products of many rows round what codes stand for to bf16, and multiply tiles; those of few rows read codes."""
    if not _native.host_target()["bf16_tiles"]:
        pytest.skip("the CPU does not multiply tiles of bf16")
    torch.manual_seed(0)
    # Columns of one vector, of panels and in between, two products of one operand, a sum that is cut in blocks.
    first, second, last = nn.Linear(64, 192), nn.Linear(64, 192, bias=False), nn.Linear(7808, 48)
    middle = nn.Linear(192, 7808)

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second, self.middle, self.last = first, second, middle, last

        def forward(self, x):
            return self.last(F.relu(self.middle(F.silu(self.first(x)) * self.second(x))))

    example = (torch.randn(6, 64),)
    rows = ({0: Dim("rows", max=512)},)
    module = disc.quantize(Network().eval(), [example], kind, dynamic_shapes=rows)
    model = disc.compile(module, example, dynamic_shapes=rows, options=disc.Options(precision="bf16", threads=2))
    assert "as_halves" in model.ir("schedule")
    plain = disc.compile(module, example, dynamic_shapes=rows)
    assert "as_halves" not in plain.ir("schedule")
    for size in (1, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 65, 200, 3):
        x = torch.randn(size, 64)
        want, got = plain(x), model(x)
        # Each factor is rounded to 8 bits, and so is what the two layers before have computed.
        assert (got - want).norm() <= 2**-7 * want.norm(), size


CONVOLUTIONS = {
    "stem": nn.Conv2d(3, 64, 7, stride=2, padding=3),
    "merged lines": nn.Conv2d(64, 64, 3, padding=1),
    "steps": nn.Conv2d(64, 96, 3, stride=2, padding=1),
    "one by one with steps": nn.Conv2d(64, 130, 1, stride=2),
    "odd channels, dilated": nn.Conv2d(5, 7, 3, padding=2, dilation=2),
    "groups of odd channels": nn.Conv2d(6, 8, 3, groups=2),
    "one channel": nn.Conv2d(1, 17, 5),
    "transposed": nn.ConvTranspose2d(16, 8, 3, stride=2, padding=1),
    "depthwise": nn.Conv2d(16, 16, 3, groups=16, padding=1),
}


def sums_of_magnitudes(convolution):
    """Of the terms that a convolution of magnitudes sums: what bounds its error."""
    module = copy.deepcopy(convolution).float()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.abs_()
    return module


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_in_bf16(name):
    """Convolutions multiply tiles of bf16 where the CPU does, except those of each channel by itself."""
    torch.manual_seed(0)
    module = nn.Sequential(CONVOLUTIONS[name], nn.ReLU()).eval()
    channels, magnitudes = CONVOLUTIONS[name].in_channels, sums_of_magnitudes(CONVOLUTIONS[name])
    dims = ({0: Dim("b", min=1, max=8), 2: Dim("h", min=8, max=200), 3: Dim("w", min=8, max=200)},)
    options = disc.Options(precision="bf16", threads=2)
    model = disc.compile(module, (torch.randn(2, channels, 16, 18),), dynamic_shapes=dims, options=options)
    halves = _native.host_target()["bf16_tiles"] and name != "depthwise"
    assert ("xbf16>" in model.ir("schedule")) == halves
    for b, h, w in ((1, 8, 8), (2, 9, 31), (1, 33, 65), (3, 16, 16), (1, 100, 17), (1, 8, 200), (2, 8, 9)):
        x = torch.randn(b, channels, h, w)
        with torch.no_grad():
            want = module(x)
        got = model(x)
        assert got.shape == want.shape
        with torch.no_grad():
            most = magnitudes(x.abs())
        # Both factors of each term are rounded to 8 bits; else sums are f32 in another order.
        assert ((got - want).abs() <= (2**-7 if halves else 1e-5) * most).all(), (b, h, w)


@pytest.mark.parametrize("name", ["stem", "merged lines", "odd channels, dilated"])
def test_convolutions_of_bf16(name):
    """A model in bf16 needs no option; sums are f32, rounded at their end."""
    torch.manual_seed(0)
    module = copy.deepcopy(CONVOLUTIONS[name]).bfloat16().eval()
    dims = ({0: Dim("b", min=1, max=8), 2: Dim("h", min=8, max=200), 3: Dim("w", min=8, max=200)},)
    magnitudes = sums_of_magnitudes(module)
    example = torch.randn(2, module.in_channels, 16, 18).bfloat16()
    model = disc.compile(module, (example,), dynamic_shapes=dims)
    assert ("together 2" in model.ir("schedule")) == _native.host_target()["bf16_tiles"]
    for b, h, w in ((1, 8, 8), (2, 9, 31), (1, 33, 65), (1, 100, 17), (2, 8, 9)):
        x = torch.randn(b, module.in_channels, h, w).bfloat16()
        with torch.no_grad():
            want = copy.deepcopy(module).double()(x.double())
            most = magnitudes(x.abs().float()).double()
        # The sum is f32, and rounded once.
        assert ((model(x).double() - want).abs() <= 2**-8 * want.abs() + 1e-5 * most).all(), (b, h, w)


@pytest.mark.parametrize(("most", "sanitize"), [(10, False), (40, False), (40, True)])
def test_convolutions_with_more_weights_than_the_cache_holds(most, sanitize):
    """A task has several images; what tiles read between two lines, of which some is not written, counts nowhere."""
    torch.manual_seed(0)
    module = nn.Conv2d(384, 288, 3, padding=1).eval()
    magnitudes = sums_of_magnitudes(module)
    dims = ({0: Dim("b", min=1, max=16), 2: Dim("h", min=1, max=most), 3: Dim("w", min=1, max=most)},)
    options = disc.Options(precision="bf16", threads=1, sanitize=sanitize)
    model = disc.compile(module, (torch.randn(2, 384, 6, 7),), dynamic_shapes=dims, options=options)
    halves = _native.host_target()["bf16_tiles"]
    assert ("chunk_images = <max" in model.ir("schedule")) == halves
    for b, h, w in ((1, 7, 7), (13, 7, 7), (8, 10, 3), (16, 1, 1), (3, 5, 9), (2, most, most), (5, 2, most), (1, 1, 1)):
        x = torch.randn(b, 384, h, w)
        with torch.no_grad():
            want, bound = module(x), (2**-7 if halves else 1e-5) * magnitudes(x.abs())
        assert ((model(x) - want).abs() <= bound).all(), (b, h, w)


@pytest.mark.parametrize("kind", ["int4-weights", "int8-weights"])
def test_each_element_of_products_of_codes(kind):
    """The bound of each element: both factors of each term are rounded to 8 bits."""
    if not _native.host_target()["bf16_tiles"]:
        pytest.skip("the CPU does not multiply tiles of bf16")
    torch.manual_seed(0)
    example, rows = (torch.randn(6, 160),), ({0: Dim("rows", max=512)},)
    module = disc.quantize(nn.Sequential(nn.Linear(160, 50, bias=False)), [example], kind, dynamic_shapes=rows)
    plain = disc.compile(module, example, dynamic_shapes=rows)
    model = disc.compile(module, example, dynamic_shapes=rows, options=disc.Options(precision="bf16"))
    weight = plain(torch.eye(160)).double()  # what the codes stand for
    for size in (1, 4, 5, 7, 8, 16, 17, 32, 33, 100, 3):
        x = torch.randn(size, 160)
        bound = 2**-7 * (x.abs().double() @ weight.abs())
        assert ((model(x).double() - x.double() @ weight).abs() <= bound).all(), size


class Block(nn.Module):
    """Products whose inputs are computed by a product, by a row, and by the caller."""

    def __init__(self):
        super().__init__()
        self.wide, self.narrow, self.last = nn.Linear(48, 96), nn.Linear(96, 48), nn.Linear(48, 40)
        self.norm = nn.LayerNorm(48)

    def forward(self, x):
        y = self.norm(x + self.narrow(nn.functional.gelu(self.wide(x))))
        return y, self.last(y)


def test_values_are_stored_rounded():
    """What a kernel computes for products it stores in bf16; only an input is rounded by a kernel of its own."""
    torch.manual_seed(0)
    block, dims = Block().eval(), ({0: Dim("b", min=1, max=8), 1: Dim("n", min=1, max=300)},)
    example = (torch.randn(2, 7, 48),)
    model = disc.compile(block, example, dynamic_shapes=dims, options=disc.Options(precision="bf16"))
    plain = disc.compile(block, example, dynamic_shapes=dims)
    if _native.host_target()["bf16_tiles"] or _native.host_target()["bf16_dot"]:
        assert model.ir("schedule").count('name = "round"') == 1
    for b, n in ((1, 1), (2, 17), (8, 300), (3, 31), (1, 16), (1, 2)):
        x = torch.randn(b, n, 48)
        for got, want in zip(model(x), plain(x), strict=True):
            assert (got - want).norm() <= 2**-7 * want.norm(), (b, n)


def test_nothing_beside_an_odd_sum_is_read():
    """Memory that was not written is NaN here: it must not meet the weight that pads a sum of an odd length."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(37, 50), nn.ReLU(), nn.Linear(50, 1)).eval()
    options = disc.Options(precision="bf16", sanitize=True)
    model = disc.compile(module, (torch.randn(6, 37),), dynamic_shapes=({0: Dim("rows", max=64)},), options=options)
    for size in (1, 2, 17, 33):
        x = torch.randn(size, 37)
        assert torch.isfinite(model(x)).all()


def test_other_precisions_are_refused():
    with pytest.raises(ValueError, match="precision: expected 'f32' or 'bf16', got 'f16'"):
        disc.Options(precision="f16")
    pipeline = disc.pipeline.default("cpu").remove("schedule")
    with pytest.raises(ValueError, match="no stage has a pass 'disc-schedule-pack-weights'"):
        disc.Options(precision="bf16", pipeline=pipeline).stages


class Halves(torch.nn.Module):
    def forward(self, x, y):
        return (x * 2 + 1).softmax(-1), (x.float() @ y).half(), x.bfloat16() + 1, x.double().sum(-1)


# Neither kind of CPU has instructions that convert f16: the runtime does.
@pytest.mark.parametrize("cpu", ["x86-64", "x86-64-v2"])
def test_f16_without_instructions(cpu):
    torch.manual_seed(0)
    rows = Dim("rows", min=1, max=64)
    example = torch.randn(4, 9).half(), torch.randn(9, 7)
    model = disc.compile(Halves(), example, dynamic_shapes=({0: rows}, None), options=disc.Options(cpu=cpu))
    for size in (1, 5, 64, 2):
        # Subnormal halves, infinities and NaNs too.
        x = torch.randint(-(2**15), 2**15, (size, 9), dtype=torch.int16).view(torch.float16)
        ordinary = torch.randn(size, 9).half()
        for inputs in ((ordinary, example[1]), (x, torch.zeros(9, 7))):
            for actual, expected in zip(model(*inputs), Halves()(*inputs), strict=True):
                torch.testing.assert_close(actual, expected, rtol=2e-3, atol=1e-5, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_remainders_of_rounded_divisors(dtype):
    """A divisor that is a number has the dtype of the tensor: 0.1 fits into it another number of times."""

    def remainders(x, divisor):
        return (
            x % -0.7,
            torch.remainder(x, 0.1),
            torch.fmod(x, 0.7),
            0.7 % x,
            x % divisor,
            torch.fmod(x, divisor),
            x.clone().remainder_(0.3),
            x // 0.3,
        )

    divisor = torch.tensor(0.1)
    model = disc.compile(remainders, (torch.ones(5, dtype=dtype), divisor), dynamic_shapes=({0: "n"}, None))
    for size in (80, 1, 17):
        x = torch.arange(-(size // 2), size - size // 2).to(dtype) + torch.tensor(0.25, dtype=dtype)
        for actual, expected in zip(model(x, divisor), remainders(x, divisor), strict=True):
            torch.testing.assert_close(actual, expected, rtol=0, atol=0, equal_nan=True)
