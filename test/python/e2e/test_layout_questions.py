"""Sizes that PyTorch asks about only to lay tensors out: 1 and odd sizes are sizes like others."""

import warnings

import pytest
import torch
from torch import nn
from torch.export import Dim
from torch.nn import functional as F

import disc


class Model(nn.Module):
    def __init__(self, function, *layers):
        super().__init__()
        self.function, self.layers = function, nn.ModuleList(layers)

    def forward(self, x):
        return self.function(x, *self.layers)


def pairs(x):
    whole = x.shape[1] // 2 * 2
    return x[:, :whole].reshape(x.shape[0], whole // 2, 2, -1).sum(2), x[:, :whole].unflatten(1, (-1, 2))


def heads(x):
    split = x[:, 1:].reshape(x.shape[0], x.shape[1] - 1, 2, 2).transpose(1, 2)
    return split.reshape(x.shape[0], x.shape[1] - 1, 4), split.flatten(2)


MODELS = {
    "linear": (lambda x, layer: (layer(x[:, 1:]), layer(x[:, ::2])), nn.Linear(4, 6)),
    "attention": (lambda x, layer: layer(x[:, 1:], x[:, 1:], x[:, 1:]), nn.MultiheadAttention(4, 2, batch_first=True)),
    "convolution": (lambda x, layer: layer(x[:, 1:].transpose(1, 2)), nn.Conv1d(4, 6, 3, padding=1)),
    "norm": (lambda x, layer: layer(x[:, 1:].transpose(1, 2)), nn.GroupNorm(2, 4)),
    "einsum": (lambda x: torch.einsum("bnd,bmd->bnm", x[:, 1:], x[:, :-1]),),
    "flatten": (lambda x: (x[:, 1:].flatten(1), x[:, 1:].flatten(0, 1), x[:, 1:].contiguous().view(x.shape[0], -1)),),
    "heads": (heads,),
    "pairs": (pairs,),
}


@pytest.mark.parametrize("name", MODELS)
def test_sizes_that_layouts_ask_about(name):
    torch.manual_seed(0)
    function, *layers = MODELS[name]
    module = Model(function, *layers).eval()
    model = disc.compile(module, (torch.randn(3, 7, 4),), dynamic_shapes=({0: Dim.AUTO, 1: Dim.AUTO},))
    for batch, n in ((3, 7), (1, 2), (2, 2), (1, 3), (5, 8), (2, 13), (1, 64)):
        x = torch.randn(batch, n, 4)
        with torch.no_grad():
            torch.testing.assert_close(model(x), module(x), rtol=1e-5, atol=1e-5)


def test_what_squeeze_asks_is_a_condition():
    model = disc.compile(Model(lambda x: x[:, 1:].squeeze(1)), (torch.randn(3, 7, 4),), dynamic_shapes=({1: Dim.AUTO},))
    x = torch.randn(3, 3, 4)
    torch.testing.assert_close(model(x), x[:, 1:])
    with pytest.raises(disc.ShapeError, match="dim 1 has size 1, which squeeze would drop"):
        model(torch.randn(3, 2, 4))


class Patches(nn.Module):
    """Rows and columns of patches with places of their own, as sequences."""

    def __init__(self):
        super().__init__()
        self.cut, self.places = nn.Conv2d(3, 8, 4, 4), nn.Parameter(torch.randn(1, 8, 3, 3))

    def forward(self, x):
        patches = self.cut(x)
        places = F.interpolate(self.places, size=patches.shape[-2:], mode="bilinear")
        return (patches + places).flatten(2).transpose(1, 2)


def test_one_patch():
    module = Patches().eval()
    model = disc.compile(
        module, (torch.randn(2, 3, 16, 24),), dynamic_shapes=({0: Dim.AUTO, 2: Dim.AUTO, 3: Dim.AUTO},)
    )
    for batch, height, width in ((2, 16, 24), (1, 4, 4), (3, 4, 17), (1, 31, 7)):
        x = torch.randn(batch, 3, height, width)
        with torch.no_grad():
            torch.testing.assert_close(model(x), module(x), rtol=1e-5, atol=1e-5)


class Spectra(nn.Module):
    def forward(self, x):
        return torch.fft.fft(x), torch.fft.fft(x, dim=0), torch.fft.rfft2(x), torch.fft.ifft2(x)


def test_transforms_of_squares():
    """The order of strides, which PyTorch asks for, says nothing of the result."""
    model = disc.compile(Spectra(), (torch.randn(5, 7),), dynamic_shapes=({0: Dim.AUTO, 1: Dim.AUTO},))
    for shape in ((5, 7), (6, 6), (7, 3), (1, 4), (4, 1), (1, 1)):
        x = torch.randn(shape)
        torch.testing.assert_close(model(x), Spectra()(x), rtol=1e-5, atol=1e-5)


def test_views_of_products_that_are_multiples():
    """PyTorch writes (n * m) // 5 as m * (n // 5), which it is only where n is a multiple of 5."""

    class Views(nn.Module):
        def forward(self, a, b, c, d):
            return a.view(25, 5), b.view(5, 5, 5), c.view(5, -1, 5), d.view(5, -1)

    example = torch.randn(5, 5, 5), torch.randn(25, 5), torch.randn(25, 5), torch.randn(50, 5)
    shapes = tuple(dict.fromkeys(range(x.dim()), Dim.AUTO) for x in example)
    model = disc.compile(Views(), example, dynamic_shapes=shapes)
    for n, m in ((50, 5), (2, 5), (10, 3), (7, 10)):
        args = *example[:3], torch.randn(n, m)
        torch.testing.assert_close(model(*args), Views()(*args))


def test_whether_32_bits_are_enough_for_indices():
    """PyTorch's convolutions on GPUs ask it, to choose a library: the batch of a model is not limited by that."""

    class Asking(nn.Module):
        def forward(self, x):
            if isinstance(x.shape[0], torch.SymInt):
                (x.shape[0] * 2438 <= 2**31 - 1).node.guard_bool("aten/src/ATen/native/ConvUtils.h", 1)
            return x * 2

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = disc.compile(Asking(), (torch.randn(3, 4),), dynamic_shapes=({0: Dim("b")},))
    for n in (1, 2, 7):
        torch.testing.assert_close(model(torch.ones(n, 4)), torch.full((n, 4), 2.0))


def test_a_models_own_condition_on_32_bits_is_one():
    """It is not answered by the example: the compiled model takes the other side, or does not take the size."""

    class Wide(nn.Module):
        def forward(self, x):
            return x * 2 if x.shape[0] * 2**29 <= 2**31 - 1 else x * 3

    model = disc.compile(Wide(), (torch.randn(3, 4),), dynamic_shapes=({0: Dim.AUTO},))
    torch.testing.assert_close(model(torch.ones(3, 4)), Wide()(torch.ones(3, 4)))
    try:
        found = model(torch.ones(7, 4))
    except disc.ShapeError:
        return
    torch.testing.assert_close(found, Wide()(torch.ones(7, 4)))


class LastSteps(nn.Module):
    """The last four steps of a series are all of a short one: then they follow each other in memory."""

    def __init__(self):
        super().__init__()
        self.linear, self.bilinear = nn.Linear(8, 3), nn.Bilinear(8, 8, 2)
        self.convolution = nn.Conv1d(8, 4, 3, padding=1)

    def forward(self, x):
        last, first = x[:, -4:], x[:, :4]
        if not first.is_contiguous():
            first = first.contiguous()
        convolved = self.convolution(last.transpose(1, 2))
        return self.linear(last), self.bilinear(last, first), convolved, first @ self.linear.weight.T


@pytest.mark.parametrize("example", [4, 12])
def test_slices_of_a_number_of_steps(example):
    module = LastSteps().eval()
    dims = ({0: "batch", 1: Dim("steps", min=4, max=300)},)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = disc.compile(module, (torch.randn(2, example, 8),), dynamic_shapes=dims)
    for batch, steps in ((1, 4), (3, 5), (2, 300), (1, 7), (5, 4)):
        x = torch.randn(batch, steps, 8)
        for got, expected in zip(model(x), module(x), strict=True):
            torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)


class PaddedWindows(nn.Module):
    """Padded to a multiple, shifted and cropped: where nothing is padded, the slice is the whole tensor."""

    def forward(self, x):
        height, width = x.shape[1:3]
        x = F.pad(x, (0, 0, 0, (4 - width % 4) % 4, 0, (4 - height % 4) % 4))
        return torch.roll(x, (2, 2), (1, 2))[:, :height, :width].contiguous()


class FirstModes(nn.Module):
    """At most eight, written into a slice that may be the whole tensor."""

    def forward(self, x):
        out, count = torch.zeros_like(x), min(8, x.shape[1])
        out[:, :count] = x[:, :count] * 2
        return out


@pytest.mark.parametrize("automatic", [True, False])
@pytest.mark.parametrize(
    ("make", "example", "shapes"),
    [
        (PaddedWindows, (3, 13, 17, 2), [(1, 1, 1, 2), (2, 5, 4, 2), (2, 8, 4, 2), (2, 4, 9, 2), (1, 31, 7, 2)]),
        (PaddedWindows, (3, 12, 16, 2), [(2, 5, 4, 2), (2, 8, 4, 2), (1, 13, 3, 2)]),
        (FirstModes, (2, 33), [(1, 1), (2, 2), (3, 7), (2, 8), (1, 9), (5, 100), (2, 3)]),
    ],
)
def test_slices_that_may_be_the_whole(make, example, shapes, automatic):
    names = {dim: f"d{dim}" for dim in range(3 if make is PaddedWindows else 2)}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = disc.compile(make(), torch.randn(example), dynamic_shapes="auto" if automatic else (names,))
    for shape in shapes:
        x = torch.randn(shape)
        torch.testing.assert_close(model(x), make()(x), rtol=0, atol=0)


def _attention(x, counts):
    """Of a length that is computed from two numbers: PyTorch asks whether it is 0, and chooses a kernel."""
    length = int(counts.sum()) + int(counts.max()) - 1
    q = torch.ones(x.shape[0], 2, length, 4) * x[:, :1, None, None]
    mask = torch.ones(length, length, dtype=torch.bool).tril()
    return F.scaled_dot_product_attention(q, q, q) + F.scaled_dot_product_attention(q, q, q, attn_mask=mask)


def _distances(x, counts):
    """It asks whether there are elements."""
    length = int(counts.sum()) + int(counts.max()) - 1
    rows = x[:, :1].repeat(1, length).cumsum(1).reshape(-1, 1)
    return torch.cdist(rows[None], x[None, :, :1]).argmin(-1)


def _cropped(x, counts):
    """Results like one before: it asks whether they are contiguous."""
    padded = torch.cat((x, x.new_zeros(x.shape[0], int(counts.sum()))), 1)[:, None]
    return padded[..., : x.shape[1]] * 2 + padded[..., : x.shape[1]].exp() + padded[..., : x.shape[1]]


@pytest.mark.parametrize("function", [_attention, _distances, _cropped])
def test_sizes_that_are_sums_of_computed_numbers(function):
    model = disc.compile(
        function,
        (torch.randn(3, 11), torch.tensor([2, 3])),
        dynamic_shapes=({0: Dim("b", min=1, max=9), 1: Dim("n", min=1, max=40)}, {0: Dim("m", min=1, max=9)}),
    )
    for b, n, m in ((3, 11, 2), (1, 1, 1), (9, 40, 9), (2, 1, 3), (1, 7, 1)):
        x, counts = torch.randn(b, n), torch.randint(1, 4, (m,))
        torch.testing.assert_close(model(x, counts), function(x, counts))


def test_attention_in_chunks():
    """As models of images of many sizes have it: of pieces whose lengths are data, and a reshape to -1."""

    def chunks(x, ends):
        q = x[None].transpose(1, 2)
        found = []
        for part in torch.split(q, (ends[1:] - ends[:-1]).tolist(), dim=2):
            y = F.scaled_dot_product_attention(part, part, part)
            found.append(y.reshape(y.shape[0], -1, part.shape[2], y.shape[-1]).transpose(1, 2).contiguous())
        return torch.cat(found, 1).reshape(x.shape[0], -1)

    model = disc.compile(
        chunks,
        (torch.randn(11, 2, 4), torch.tensor([0, 3, 7, 11])),
        dynamic_shapes=({0: Dim("n", min=1, max=40)}, {0: Dim("m", min=2, max=9)}),
    )
    for ends in ([0, 3, 7, 11], [0, 1], [0, 40], [0, 1, 2, 5, 6, 7, 8, 9, 20]):
        given = torch.randn(ends[-1], 2, 4), torch.tensor(ends)
        torch.testing.assert_close(model(*given), chunks(*given))


def test_attention_in_chunks_of_repeated_lengths():
    """The lengths are made by ``repeat_interleave``, whose decomposition computes a size once more."""

    def chunks(x, grid):
        lengths = torch.repeat_interleave(grid[:, 1], grid[:, 0])
        q = x[None].transpose(1, 2)
        parts = torch.split(q, lengths.tolist(), dim=2)
        found = [F.scaled_dot_product_attention(part, part, part) for part in parts]
        return torch.cat(found, 2), F.pad(lengths.cumsum(0), (1, 0)), torch.repeat_interleave(x, grid[:, :1].sum(), 0)

    def given(*grid):
        return torch.randn(sum(n * m for n, m in grid), 2, 4), torch.tensor(grid)

    model = disc.compile(
        chunks,
        given((2, 3), (1, 4), (1, 1)),
        dynamic_shapes=({0: Dim("n", min=1, max=90)}, {0: Dim("m", min=1, max=9)}),
    )
    for grid in ([(1, 11)], [(2, 5), (3, 7), (1, 1), (1, 2)], [(1, 1)], [(7, 1), (1, 30)], [(1, 3), (1, 3)]):
        x, sizes = given(*grid)
        torch.testing.assert_close(model(x, sizes), chunks(x, sizes))
