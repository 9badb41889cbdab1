"""Convolutions, pooling and batch norm end to end: every form at many shapes from one artifact."""

import copy

import pytest
import torch
import torch.nn.functional as F
import torch.utils._pytree as pytree
from torch import nn, randn
from torch.export import Dim

import disc

pytestmark = pytest.mark.share(2)

B, T = Dim("B", min=1, max=8), Dim("T", min=8, max=512)
D, H, W = Dim("D", min=4, max=40), Dim("H", min=8, max=128), Dim("W", min=8, max=128)
TOLERANCE = {torch.float32: 2e-5, torch.float64: 1e-12, torch.float16: 4e-3, torch.bfloat16: 2e-2}


class Forms(nn.Module):
    """Several functions of one input; the tensors that each takes besides are buffers."""

    def __init__(self, dtype=torch.float32, **forms):
        super().__init__()
        self.forms = {}
        for name, (fn, *shapes) in forms.items():
            names = [f"{name}_{i}" for i in range(len(shapes))]
            self.forms[name] = fn, names
            for at, shape in zip(names, shapes, strict=True):
                self.register_buffer(at, randn(shape).to(dtype) * 0.5)

    def forward(self, x):
        return {name: fn(x, *(getattr(self, at) for at in names)) for name, (fn, names) in self.forms.items()}


def check(model, dims, shapes, dtype=torch.float32):
    torch.manual_seed(0)
    compiled = disc.compile(model, (randn(shapes[0]).to(dtype),), dynamic_shapes=(dims,))
    for shape in shapes:
        x = randn(shape).to(dtype)
        with torch.no_grad():
            want = model(x)
        got = compiled(x)
        for name, expected in want.items():
            size = 1.0 + (expected.abs().max().item() if expected.is_floating_point() else 0.0)
            assert got[name].dtype == expected.dtype
            torch.testing.assert_close(
                got[name], expected, rtol=0, atol=TOLERANCE[dtype] * size, msg=lambda m: f"{name} at {shape}: {m}"
            )


IMAGES = {0: B, 2: H, 3: W}
SHAPES = [(2, 16, 15, 14), (1, 16, 8, 8), (3, 16, 9, 31), (1, 16, 57, 40), (2, 16, 8, 128), (1, 16, 13, 17)]


def test_plain():
    check(
        Forms(
            padded=(lambda x, w, b: F.conv2d(x, w, b, padding=1), (40, 16, 3, 3), 40),
            strided=(lambda x, w: F.conv2d(x, w, stride=2, padding=(2, 0)), (7, 16, 5, 3)),
            dilated=(lambda x, w, b: F.conv2d(x, w, b, dilation=(2, 1), padding=2), (33, 16, 3, 4), 33),
            pointwise=(lambda x, w, b: F.conv2d(x, w, b), (24, 16, 1, 1), 24),
            skipping=(lambda x, w: F.conv2d(x, w, stride=3), (24, 16, 1, 1)),
            same=(lambda x, w: F.conv2d(x, w, padding="same"), (8, 16, 3, 5)),
            valid=(lambda x, w: F.conv2d(x, w, padding="valid"), (32, 16, 7, 7)),
            few=(lambda x, w: F.conv2d(x[:, :3], w, stride=2, padding=3), (16, 3, 7, 7)),
        ),
        IMAGES,
        SHAPES,
    )


def test_short_lines():
    """Lines that are known to be short: tiles go on from one to the next."""
    short = {0: B, 2: Dim("h", min=4, max=20), 3: Dim("w", min=4, max=20)}
    check(
        Forms(
            plain=(lambda x, w, b: F.relu(F.conv2d(x, w, b, padding=1)), (70, 16, 3, 3), 70),
            strided=(lambda x, w: F.conv2d(x, w, stride=2, padding=(2, 1)), (64, 16, 5, 3)),
            dilated=(lambda x, w: F.conv2d(x, w, padding=2, dilation=2), (96, 16, 3, 3)),
            grouped=(lambda x, w: F.conv2d(x, w, padding=1, stride=(1, 2), groups=2), (128, 8, 3, 3)),
        ),
        short,
        [(2, 16, 7, 5), (1, 16, 4, 4), (3, 16, 20, 20), (1, 16, 15, 14), (8, 16, 6, 19)],
    )
    check(
        Forms(volume=(lambda x, w: F.conv3d(x, w, padding=1, stride=(1, 2, 1)), (64, 8, 3, 3, 3))),
        {0: B, 2: Dim("d", min=4, max=9), 3: Dim("h", min=4, max=20), 4: Dim("w", min=4, max=20)},
        [(2, 8, 5, 7, 6), (1, 8, 4, 20, 19)],
    )


class Blocks(nn.Module):
    """Convolutions by 3 x 3 kernels, at several widths and paddings, after one that puts the channels last."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 40, 1)
        self.same, self.valid = nn.Conv2d(40, 33, 3, padding=1), nn.Conv2d(40, 64, 3, bias=False)
        self.wide, self.uneven = nn.Conv2d(40, 20, 3, padding=2), nn.Conv2d(40, 96, 3, padding=(0, 1))
        self.residual = nn.Conv2d(40, 40, 3, padding=1, bias=False)
        self.dilated = nn.Conv2d(40, 24, 3, padding=(3, 5), dilation=(3, 2))

    def forward(self, x):
        y = F.relu(self.first(x))
        own = F.gelu(self.same(y)), self.valid(y), self.wide(y), self.uneven(y), F.relu(self.residual(y) + y)
        return dict(zip(("same", "valid", "wide", "uneven", "residual"), own, strict=True)) | {
            "dilated": self.dilated(y)
        }


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_fewer_multiplications(dtype):
    """Against float64; blocks of 2 x 2 results are cut at odd extents, and tiles go over images."""
    torch.manual_seed(0)
    model = Blocks().to(dtype)
    exact = copy.deepcopy(model).double()
    example, dims = (
        (randn(2, 3, 9, 11, dtype=dtype),),
        ({0: B, 2: Dim("h", min=3, max=90), 3: Dim("w", min=3, max=90)},),
    )
    compiled = disc.compile(model, example, dynamic_shapes=dims)
    direct = disc.compile(model, example, dynamic_shapes=dims, options=disc.Options(winograd=False))
    assert compiled.ir("schedule").count("disc_tensor.winograd") == 6
    assert "disc_tensor.winograd" not in direct.ir("schedule")
    limit = 2e-6 if dtype == torch.float32 else 1e-14
    for shape in [(1, 3), (8, 3), (1, 4), (2, 7), (3, 14), (1, 29), (2, 56), (1, 90), (1, 3)]:
        x = randn(shape[0], 3, shape[1], min(shape[1] + 2, 90), dtype=dtype)
        with torch.no_grad():
            want = exact(x.double())
        for run in (compiled, direct):
            for name, got in run(x).items():
                size = want[name].abs().max().item()
                torch.testing.assert_close(got.double(), want[name], rtol=0, atol=limit * size, msg=f"{name} {shape}")


def test_groups():
    check(
        Forms(
            grouped=(lambda x, w, b: F.conv2d(x, w, b, padding=1, groups=4), (24, 4, 3, 3), 24),
            depthwise=(lambda x, w, b: F.conv2d(x, w, b, padding=1, groups=16), (16, 1, 3, 3), 16),
            strided=(lambda x, w: F.conv2d(x[:, :13], w, stride=2, padding=2, groups=13), (13, 1, 5, 5)),
            dilated=(lambda x, w: F.conv2d(x, w, padding=2, dilation=2, groups=16), (16, 1, 3, 3)),
            several=(lambda x, w: F.conv2d(x, w, padding=1, groups=16), (32, 1, 3, 3)),
        ),
        IMAGES,
        SHAPES,
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_filter_for_each_channel(dtype):
    """Along lines of the input, and along channels where a product puts these side by side."""

    def forms(kernels, channels):
        made = {}
        for number, (kernel, arguments) in enumerate(kernels):
            rank = len(kernel)
            conv = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}[rank]

            def plain(x, w, bias, conv=conv, arguments=arguments):
                return conv(x, w, bias, groups=channels, **arguments)

            def last(x, w, conv=conv, arguments=arguments):
                mixed = torch.einsum("bc...,dc->bd...", x, torch.eye(channels, dtype=x.dtype).flip(0))
                return conv(mixed, w, groups=channels, **arguments)

            shape = (channels, 1, *kernel)
            made[f"plain_{number}"], made[f"last_{number}"] = (plain, shape, channels), (last, shape)
        return Forms(dtype, **made)

    images = {0: B, 2: Dim("h", min=1, max=80), 3: Dim("w", min=1, max=80)}
    kernels = [
        ((7, 7), {"padding": 3}),
        ((9, 9), {"padding": 5}),
        ((1, 5), {"padding": (0, 2), "stride": (2, 1)}),
        ((5, 1), {"padding": (4, 1), "stride": (1, 3)}),
        ((3, 4), {"padding": (3, 5), "dilation": (3, 2), "stride": 2}),
    ]
    sizes = [(2, 17, 9, 11), (1, 17, 1, 1), (1, 17, 2, 80), (3, 17, 33, 16), (1, 17, 31, 65), (1, 17, 7, 15)]
    check(forms(kernels, 17), images, sizes, dtype)
    lines = {0: B, 2: Dim("t", min=1, max=300)}
    kernels = [((4,), {"padding": 3}), ((3,), {"padding": 4, "dilation": 4}), ((16,), {"padding": 8, "stride": 5})]
    check(forms(kernels, 3), lines, [(2, 3, 40), (1, 3, 1), (1, 3, 17), (8, 3, 300)], dtype)
    volumes = {0: B, 2: Dim("d", min=1, max=9), 3: Dim("h", min=1, max=20), 4: Dim("w", min=1, max=40)}
    kernels = [((3, 3, 3), {"padding": 1}), ((2, 1, 3), {"padding": (1, 0, 2), "stride": (1, 2, 2)})]
    check(forms(kernels, 5), volumes, [(2, 5, 4, 6, 7), (1, 5, 1, 1, 1), (1, 5, 9, 20, 40)], dtype)


def test_transposed():
    check(
        Forms(
            doubled=(lambda x, w, b: F.conv_transpose2d(x, w, b, stride=2), (16, 8, 2, 2), 8),
            overlapping=(
                lambda x, w: F.conv_transpose2d(x, w, stride=2, padding=1, output_padding=1),
                (16, 8, 3, 3),
            ),
            grouped=(lambda x, w: F.conv_transpose2d(x, w, stride=3, dilation=2, groups=2), (16, 8, 3, 2)),
            depthwise=(lambda x, w: F.conv_transpose2d(x, w, stride=2, padding=1, groups=16), (16, 1, 4, 4)),
            cropped=(lambda x, w: F.conv_transpose2d(x, w, padding=2), (16, 4, 2, 2)),
            phases=(
                lambda x, w, b: F.conv_transpose2d(x, w, b, (3, 2), (2, 1), (1, 0), groups=4),
                (16, 5, 5, 4),
                20,
            ),
            sparse=(lambda x, w: F.conv_transpose2d(x, w, stride=(4, 2), output_padding=(1, 0)), (16, 8, 3, 1)),
        ),
        IMAGES,
        SHAPES,
    )


def test_one_filter_of_one_pixel():
    """A product with a single column, whose result is permuted."""
    for channels in (1, 16):
        model = nn.Sequential(nn.Conv2d(channels, 1, 1), nn.Sigmoid()).eval()
        compiled = disc.compile(model, (randn(2, channels, 15, 14),), dynamic_shapes=(IMAGES,))
        for n, _, height, width in SHAPES:
            x = randn(n, channels, height, width)
            with torch.no_grad():
                torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-5)


def test_reductions():
    """Reductions of what lies with its channels last, along each dim."""

    def reduced(dims):
        return lambda x, w: F.conv2d(x, w, padding=1).relu().amax(dims), (8, 16, 3, 3)

    check(
        Forms(
            last=reduced(-1),
            height=reduced(2),
            channels=reduced(1),
            image=reduced((2, 3)),
            line=reduced((1, 3)),
            softmax=(lambda x, w: F.conv2d(x, w, padding=1).softmax(-1), (8, 16, 3, 3)),
        ),
        IMAGES,
        SHAPES,
    )


def gradients(stride=1, padding=0, dilation=1, transposed=False, output_padding=0, groups=1):
    """Of input, weight and bias, as one tensor."""

    def fn(x, w):
        per = [[v] * (w.dim() - 2) for v in (stride, padding, dilation)]
        extra = [output_padding] * (w.dim() - 2)
        y = torch.ops.aten.convolution(x, w, None, *per, transposed, extra, groups)
        args = per + [transposed, extra, groups, [True, True, True]]
        found = torch.ops.aten.convolution_backward(y.sin(), x, w, [y.shape[1]], *args)
        return torch.cat([g.flatten() for g in found])

    return fn


def test_gradients():
    check(
        Forms(
            plain=(gradients(padding=1), (24, 16, 3, 3)),
            strided=(gradients(stride=2, padding=1), (9, 16, 3, 3)),
            skipping=(gradients(stride=3), (9, 16, 2, 2)),
            dilated=(gradients(dilation=2, padding=3), (8, 16, 3, 2)),
            pointwise=(gradients(stride=2), (24, 16, 1, 1)),
            grouped=(gradients(stride=2, padding=1, groups=4), (24, 4, 3, 3)),
            depthwise=(gradients(padding=1, groups=16), (16, 1, 3, 3)),
            transposed=(gradients(stride=2, padding=1, transposed=True, output_padding=1), (16, 8, 3, 3)),
            shared=(gradients(stride=2, transposed=True, groups=2), (16, 5, 2, 2)),
        ),
        IMAGES,
        SHAPES,
    )
    check(Forms(line=(gradients(stride=2, padding=2), (6, 4, 5))), {0: B, 2: T}, [(2, 4, 30), (1, 4, 8), (3, 4, 257)])


def test_other_ranks():
    check(
        Forms(
            line=(lambda x, w, b: F.conv1d(x, w, b, stride=2, padding=2), (33, 16, 5), 33),
            transposed=(lambda x, w: F.conv_transpose1d(x, w, stride=4, padding=2), (16, 5, 8)),
            depthwise=(lambda x, w: F.conv1d(x, w, padding=15, groups=16), (16, 1, 31)),
            pooled=(lambda x: F.avg_pool1d(x, 3, 2, 1),),
        ),
        {0: B, 2: T},
        [(2, 16, 40), (1, 16, 8), (3, 16, 511)],
    )
    check(
        Forms(
            volume=(lambda x, w, b: F.conv3d(x, w, b, stride=(1, 2, 1), padding=1), (6, 4, 3, 3, 3), 6),
            transposed=(lambda x, w: F.conv_transpose3d(x, w, stride=2, padding=1), (4, 6, 3, 3, 3)),
            depthwise=(lambda x, w: F.conv3d(x, w, padding=1, groups=4), (4, 1, 3, 3, 3)),
            dilated=(lambda x, w: F.conv3d(x, w, padding="same", dilation=(2, 1, 3)), (5, 4, 3, 3, 3)),
            dilated_depthwise=(lambda x, w: F.conv3d(x, w, padding=3, dilation=3, groups=4), (4, 1, 3, 3, 3)),
            dilated_transposed=(lambda x, w: F.conv_transpose3d(x, w, stride=2, dilation=3), (4, 5, 2, 3, 3)),
            largest=(lambda x: F.max_pool3d(x, 3, 2, 1),),
        ),
        {0: B, 2: D, 3: H, 4: W},
        [(2, 4, 6, 9, 8), (1, 4, 4, 8, 17)],
    )
    check(
        Forms(
            unbatched=(lambda x, w: F.conv2d(x, w, padding=1), (8, 16, 3, 3)), pooled=(lambda x: F.max_pool2d(x, 2),)
        ),
        {1: H, 2: W},
        [(16, 14, 15), (16, 9, 8)],
    )


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_dtypes(dtype):
    forms = Forms(
        dtype,
        plain=(lambda x, w, b: F.conv2d(x, w, b, padding=1), (24, 16, 3, 3), 24),
        depthwise=(lambda x, w: F.conv2d(x, w, padding=1, groups=16), (16, 1, 3, 3)),
        largest=(lambda x: F.max_pool2d(x, 3, 2, 1),),
        mean=(lambda x: F.avg_pool2d(x, 2),),
    )
    check(forms, IMAGES, SHAPES[:3], dtype)


def test_pooling():
    check(
        Forms(
            largest=(lambda x: F.max_pool2d(x, 3, 2, 1),),
            dilated=(lambda x: F.max_pool2d(x, 3, 1, 1, dilation=2),),
            where=(lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True)[1],),
            large=(lambda x: F.max_pool2d(x, 7, 2, 3),),
            mean=(lambda x: F.avg_pool2d(x, 3, 2, 1),),
            inside=(lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),),
            divided=(lambda x: F.avg_pool2d(x, 2, divisor_override=3),),
            power=(lambda x: F.lp_pool2d(x.abs(), 2, 3, 2),),
            whole=(lambda x: F.adaptive_avg_pool2d(x, 1),),
            even=(lambda x: F.adaptive_avg_pool2d(x, (3, 5)),),
            largest_even=(lambda x: F.adaptive_max_pool2d(x, (3, 5)),),
            where_even=(lambda x: F.adaptive_max_pool2d(x, (3, 5), return_indices=True)[1],),
        ),
        IMAGES,
        SHAPES,
    )


def test_pooling_rounds_up():
    check(
        Forms(
            largest=(lambda x: F.max_pool2d(x, 3, 2, 1, ceil_mode=True),),
            mean=(lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True),),
            inside=(lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False),),
        ),
        {0: B},
        [(2, 16, 15, 14), (1, 16, 15, 14)],
    )


def test_fractional_pooling():
    def pooled(x, numbers, **sizes):
        numbers = (numbers.abs() % 1)[: x.shape[0]]
        return F.fractional_max_pool2d(x, (3, 2), _random_samples=numbers, return_indices=True, **sizes)

    check(
        Forms(
            largest=(lambda x, s: pooled(x, s, output_size=(4, 5))[0], (8, 16, 2)),
            where=(lambda x, s: pooled(x, s, output_size=(1, 6))[1], (8, 16, 2)),
        ),
        IMAGES,
        SHAPES,
    )


def test_nan_in_a_window():
    model = Forms(largest=(lambda x: F.max_pool2d(x, 3, 2, 1),))
    compiled = disc.compile(model, (randn(2, 16, 9, 9),), dynamic_shapes=(IMAGES,))
    x = randn(2, 16, 9, 9)
    x[0, 3, 4, 4] = float("nan")
    torch.testing.assert_close(compiled(x)["largest"], model(x)["largest"], equal_nan=True)


def test_too_small_an_image():
    model = Forms(plain=(lambda x, w: F.conv2d(x, w), (4, 16, 7, 7)))
    height = Dim("height", min=8, max=64)
    compiled = disc.compile(model, (randn(2, 16, 9, 9),), dynamic_shapes=({2: height},))
    with pytest.raises(disc.ShapeError):
        compiled(randn(2, 16, 6, 9))


def test_weights_that_are_inputs():
    def run(x, w):
        return F.conv2d(x, w, padding=1)

    class Run(nn.Module):
        def forward(self, x, w):
            return run(x, w)

    filters = Dim("F", min=2, max=64)
    compiled = disc.compile(
        Run(), (randn(2, 16, 9, 9), randn(20, 16, 3, 3)), dynamic_shapes=({0: B, 2: H, 3: W}, {0: filters})
    )
    for images, count in ((1, 2), (3, 33), (2, 64)):
        x, w = randn(images, 16, 11, 12), randn(count, 16, 3, 3)
        torch.testing.assert_close(compiled(x, w), run(x, w))


class Residual(nn.Module):
    """A residual block between a stem and a head."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 32, 3, 2, 1)
        self.steps = nn.Sequential(
            nn.Conv2d(32, 32, 3, padding=1, bias=False),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.Conv2d(32, 32, 3, padding=1),
            nn.BatchNorm2d(32),
        )
        for norm in self.steps[1::3]:
            nn.init.uniform_(norm.running_mean)
            nn.init.uniform_(norm.running_var, 0.5, 1.5)
            nn.init.uniform_(norm.weight, 0.5, 1.5)

    def forward(self, x):
        x = self.stem(x)
        return F.adaptive_avg_pool2d(F.relu(self.steps(x) + x), 1).flatten(1)


def test_a_residual_block_is_a_kernel_for_each_convolution():
    model = Residual().eval()
    compiled = disc.compile(model, (randn(2, 3, 20, 22),), dynamic_shapes=(IMAGES,))
    for shape in ((1, 3, 8, 9), (3, 3, 33, 31), (2, 3, 64, 100)):
        x = randn(shape)
        with torch.no_grad():
            torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-5)
    with compiled.profile() as profile:
        compiled(randn(2, 3, 128, 128))
    # Norms, activations, bias and the shortcut are in the convolutions; nothing is permuted.
    assert sorted(launch.kind for launch in profile.launches) == ["column"] + ["convolution"] * 3


def test_what_lies_between_convolutions():
    """Upsampling, padding, slices, concatenations and norms between convolutions keep the channels last."""

    class Between(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(28, 8, 3, padding=1)

        def forward(self, x):
            y = self.first(x)
            small = F.max_pool2d(y, 2)
            larger = F.interpolate(small[:, 4:], size=y.shape[-2:])
            z = self.second(F.pad(torch.cat([y, larger], 1), (1, 1, 0, 2)))
            return z.softmax(1), z.mean(1), z.amax((2, 3), keepdim=True)

    model = Between().eval()
    compiled = disc.compile(model, (randn(2, 3, 20, 22),), dynamic_shapes=(IMAGES,))
    for shape in ((1, 3, 8, 9), (3, 3, 33, 31)):
        x = randn(shape)
        with torch.no_grad():
            torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-5)


class Inputs(torch.nn.Module):
    def forward(self, x, w, line, taps):
        return (
            F.conv2d(x, w),
            F.conv_transpose2d(x, w.transpose(0, 1), stride=2),
            F.conv_transpose2d(x, w.transpose(0, 1), stride=(3, 1), output_padding=(2, 0)),
            F.conv_transpose2d(x, w.transpose(0, 1), dilation=(1, 2)),
            F.conv_transpose2d(x, w.transpose(0, 1), stride=2, dilation=2, output_padding=1),
            F.conv2d(F.pad(x, (w.shape[3], 1, 2, 0)), w, padding=(w.shape[2] - 1, 1)),
            F.conv1d(line, taps, padding="same"),
            F.conv1d(line, taps, padding="same", dilation=2),
            torch.ops.aten.convolution_backward(
                F.conv2d(x, w), x, w, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1, [True] * 3
            ),
        )


def test_any_size_of_kernels_that_are_inputs():
    """Which memory format PyTorch would choose asks nothing of the sizes: one pixel, one channel, one filter."""

    def make(batch, channels, filters, height, width, k):
        image, weight = torch.randn(batch, channels, height, width), torch.randn(filters, channels, k, k)
        return image, weight, torch.randn(batch, 2, height), torch.randn(3, 2, k)

    free = dict.fromkeys(range(4), Dim.DYNAMIC)
    shapes = (free, free, {0: Dim.DYNAMIC, 2: Dim.DYNAMIC}, {2: Dim.DYNAMIC})
    sizes = ((2, 3, 4, 7, 6, 3), (1, 1, 1, 1, 1, 1), (3, 1, 5, 4, 4, 4), (1, 2, 1, 5, 2, 2))
    model = disc.compile(Inputs(), make(*sizes[0]), dynamic_shapes=shapes)
    for size in sizes:
        inputs = make(*size)
        for got, want in zip(pytree.tree_leaves(model(*inputs)), pytree.tree_leaves(Inputs()(*inputs)), strict=True):
            torch.testing.assert_close(got, want)


class OneFilter(torch.nn.Module):
    """What is computed from a convolution's only channel has no dimension for it."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 1, (1, 5)), nn.Conv2d(4, 1, 3, padding=1)

    def forward(self, x):
        y, z = self.first(x), self.second(x.expand(-1, 4, -1, -1))
        return y[:, 0] * 2 + 1, (y * 4) * y, (z.squeeze(1) + x[:, 0]).relu()


def test_one_filter():
    model = OneFilter().eval()
    compiled = disc.compile(model, (randn(2, 1, 20, 22),), dynamic_shapes=(IMAGES,))
    for shape in ((1, 1, 8, 9), (3, 1, 33, 31), (2, 1, 9, 70)):
        x = randn(shape)
        with torch.no_grad():
            for got, want in zip(compiled(x), model(x), strict=True):
                torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)
