"""Dim.AUTO and Dim.DYNAMIC: 0 and 1 are sizes like others, also as the example; what the code needs is checked."""

import math
import operator

import pytest
import torch
from torch.export import Dim

import disc

pytestmark = pytest.mark.share(2)


class Function(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


def compiled(function, example, hint=Dim.AUTO):
    return disc.compile(Function(function), (torch.randn(example, 6),), dynamic_shapes=(({0: hint},),))


def attend(x):
    heads = x.reshape(x.shape[0], 2, 3).transpose(0, 1)[None]
    return torch.nn.functional.scaled_dot_product_attention(heads, heads, heads, is_causal=True)


def one_at_most(x):
    """A bias of one row, or of none."""
    bias = torch.arange(6.0)[None]
    return bias[max(0, bias.shape[0] - x.shape[0]) :]


FUNCTIONS = [
    lambda x: (x.view(-1), torch.cat([x, x]), x.softmax(0), x.sum(0)),
    lambda x: (x @ x.t(), x.mean(0, keepdim=True).expand(x.shape[0], -1) + x, x.unsqueeze(1).squeeze(1)),
    lambda x: torch.where(torch.arange(x.shape[0])[:, None] < torch.arange(x.shape[0]), 1.0, 0.0) @ x,
    attend,
    lambda x: x * 2 if x.shape[0] == 1 else x + max(1, x.shape[0]),
    lambda x: x * 2 if x.shape[0] % 2 == 0 else x * 3,
    lambda x: x[None] if (x * 2).shape[0] != x.shape[0] else x + 1,
    lambda x: (x + one_at_most(x), one_at_most(x).expand(x.shape[0], 6) * 1, torch.where(x > 0, one_at_most(x), x)),
    lambda x: one_at_most(x)[:, None] @ x[:, :, None] + x.new_ones(3, x.shape[0], 1, 6) @ one_at_most(x)[..., None],
    lambda x: torch.nn.functional.scaled_dot_product_attention(x[None], x[None], x, one_at_most(x)[None, :, :1]),
]


@pytest.mark.parametrize("n", range(len(FUNCTIONS)))
def test_sizes_0_and_1(n):
    model = compiled(FUNCTIONS[n], 4, Dim.AUTO if n % 2 else Dim.DYNAMIC)
    for size in (1, 0, 2, 3, 17):
        x = torch.randn(size, 6)
        torch.testing.assert_close(model(x), FUNCTIONS[n](x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("hint", [Dim.AUTO, Dim.DYNAMIC])
def test_an_example_of_size_1(hint):
    model = compiled(lambda x: x.relu() + 1, 1, hint)
    for size in (1, 0, 5):
        x = torch.randn(size, 6)
        torch.testing.assert_close(model(x), x.relu() + 1)


@pytest.mark.parametrize("squeeze", [torch.squeeze, lambda x: x.squeeze(0), lambda x: x[None].squeeze((0, 1)) * 2])
def test_an_example_of_size_1_that_the_code_treats_apart(squeeze):
    x = torch.randn(1, 6)
    with pytest.warns(UserWarning, match="dim 0 is static in the compiled model") as warned:
        model = compiled(squeeze, 1)
    assert {w.filename for w in warned} == {__file__}
    torch.testing.assert_close(model(x), squeeze(x))
    with pytest.raises(disc.CompileError, match="dim 0 is 1 in the example") as caught:
        compiled(squeeze, 1, Dim.DYNAMIC)
    assert "test_dynamic_hints.py" in caught.value.source


ONES = {
    "unfold": (lambda x: torch.nn.functional.unfold(x, (2, 2)), (1, 3, 4, 5)),
    "shuffle": (lambda x: torch.nn.functional.pixel_shuffle(x, 2), (1, 8, 3, 1)),
    "trace": (lambda x: torch.trace(x[0, 0]), (1, 1, 0, 0)),
    "norm": (lambda x: torch.nn.functional.layer_norm(x.flatten(1).relu(), (24,)) + x.flatten(1), (1, 2, 3, 4)),
    "squeeze": (lambda x: x.squeeze(0) * 2, (1, 4, 3, 5)),
}


@pytest.mark.parametrize("name", ONES)
def test_operations_ask_the_example_of_size_1(name):
    """The sizes of the example serve always, others where they served with a larger example."""
    function, shape = ONES[name]
    free = {dim: Dim.DYNAMIC for dim in range(4) if name != "norm" or dim == 0}
    free |= {1: None} if name in ("shuffle", "unfold") else {}
    shapes = ({} if name == "squeeze" else free,)
    model = disc.compile(Function(function), (torch.randn(shape),), dynamic_shapes=(shapes,))
    more = {"unfold": [(3, 3, 5, 4)], "shuffle": [(2, 8, 1, 5)], "trace": [(2, 3, 4, 3)], "norm": [(5, 2, 3, 4)]}
    for sizes in (shape, *more.get(name, ()), shape):
        x = torch.randn(sizes)
        torch.testing.assert_close(model(x), function(x), rtol=1e-5, atol=1e-5)


def test_a_program_of_torch_export():
    shapes = (({0: Dim.AUTO},),)
    program = torch.export.export(Function(lambda x: x @ x.t()), (torch.randn(4, 6),), dynamic_shapes=shapes)
    model = disc.compile(program)
    for size in (1, 0, 2, 9):
        x = torch.randn(size, 6)
        torch.testing.assert_close(model(x), x @ x.t(), rtol=1e-5, atol=1e-5)


def test_a_bound_of_the_users_own_stays():
    program = torch.export.export(Function(torch.relu), (torch.randn(4, 6),), dynamic_shapes=(({0: Dim("n", min=2)},),))
    with pytest.raises(disc.ShapeError, match="expected 2 <="):
        disc.compile(program)(torch.ones(1, 6))


def test_sizes_that_the_code_makes_equal():
    shapes = (({0: Dim.AUTO}, {0: Dim.AUTO}),)
    model = disc.compile(Function(torch.add), (torch.randn(4, 3), torch.randn(4, 3)), dynamic_shapes=shapes)
    torch.testing.assert_close(model(torch.ones(1, 3), torch.ones(1, 3)), torch.full((1, 3), 2.0))
    torch.testing.assert_close(model(torch.ones(1, 3), torch.ones(5, 3)), torch.full((5, 3), 2.0))
    with pytest.raises(disc.ShapeError, match="input 'args_1', dim 0"):
        model(torch.ones(2, 3), torch.ones(5, 3))


def test_squeeze_of_a_size_of_1():
    model = compiled(lambda x: x.squeeze(0), 4)
    torch.testing.assert_close(model(torch.ones(0, 6)), torch.ones(0, 6))
    with pytest.raises(disc.ShapeError, match=r"squeeze.*test_dynamic_hints\.py.*dim 0 has size 1"):
        model(torch.ones(1, 6))


@pytest.mark.parametrize("hint", [Dim.AUTO, Dim.DYNAMIC])
@pytest.mark.parametrize("function", [lambda x, k: x * k + k // 2 - k % 3, lambda x, k: x.roll(k, 0)])
def test_numbers_below_0(function, hint):
    model = disc.compile(Function(function), (torch.randn(5, 6), 2), dynamic_shapes=((None, hint),))
    x = torch.randn(5, 6)
    for k in (2, 1, 0, -1, -7, 11):
        torch.testing.assert_close(model(x, k), function(x, k))


def test_numbers_that_the_code_needs_to_be_positive():
    function = Function(lambda x, k: x.narrow(0, k, 1))
    model = disc.compile(function, (torch.randn(5, 6), 2), dynamic_shapes=((None, Dim.DYNAMIC),))
    torch.testing.assert_close(model(torch.ones(5, 6), 0), torch.ones(1, 6))
    with pytest.raises(disc.ShapeError, match="at least 0, got -1"):
        model(torch.ones(5, 6), -1)


def test_conditions_are_checked_where_a_program_has_them():
    function = Function(lambda x: x[:, 0] * 2 if x.shape[0] % 2 == 0 else x[:, 0])
    program = torch.export.export(function, (torch.randn(4, 6),), dynamic_shapes=(({0: Dim.AUTO},),))
    model = disc.compile(program)
    torch.testing.assert_close(model(torch.ones(6, 6)), torch.full((6,), 2.0))
    with pytest.raises(disc.ShapeError, match="the model's code needs"):
        model(torch.ones(5, 6))


class Numbers(torch.nn.Module):
    """Numbers of Python that are computed of an extent, one of each kind."""

    def forward(self, x):
        n = x.shape[0]
        return (
            x * math.sqrt(n),
            x * math.log2(n + 1) + math.exp(-n) - float(n),
            x * (int(n * 0.5) + int(n / 3) + round(n / 4) + math.ceil(n**0.5) + abs(n - 5)),
            x * ((n << 1) + (n >> 1) + (n & 3) + (n & 5) + (n | 1) + round(n * 1.7, 1)),
            x * ((n > 4) * 2.0 + (n <= 7)) + int(n > 3),
            x.new_zeros(int(n * 1.5), round(n * 0.5) + 1, int(math.sqrt(n)) + 1),
            x.sum() + len(x),
        )


@pytest.mark.parametrize("dim", [Dim.AUTO, Dim.DYNAMIC, Dim("n", min=1, max=4096)])
def test_numbers_of_python(dim):
    """torch.export fixes a dim marked AUTO whose extent becomes a number; the code is rewritten instead."""
    module = Numbers()
    model = disc.compile(module, (torch.randn(4, 3),), dynamic_shapes=({0: dim},))
    for n in (1, 2, 3, 4, 5, 8, 13, 97, 6):
        x = torch.randn(n, 3)
        for got, want in zip(model(x), module(x), strict=True):
            torch.testing.assert_close(got, want)


def test_code_that_fixes_a_dim_is_named():
    def by_length(x):
        return x * len("0" * x.shape[0])

    with pytest.warns(
        UserWarning, match=r"dim 0 can have sizes like the example's only: .* needs args\[0\].shape\[0\] == 4"
    ):
        model = compiled(by_length, 4)
    with pytest.raises(disc.ShapeError, match="expected 4, got 5"):
        model(torch.randn(5, 6))
    with pytest.raises(disc.CompileError, match=r"needs args\[0\].shape\[0\] == 4"):
        compiled(by_length, 4, Dim.DYNAMIC)


def test_code_that_narrows_a_range_is_named():
    with pytest.warns(UserWarning, match="dim 0 has the range 0 to 6 in the compiled model: .* <= 6"):
        compiled(lambda x: x + operator.truth(x.shape[0] > 6), 4, Dim.DYNAMIC)


def test_bits_of_numbers_from_data():
    class Bits(torch.nn.Module):
        def forward(self, x, t):
            return x + ((t.item() + x.shape[0]) & 3)

    module = Bits()
    model = disc.compile(module, (torch.randn(4), torch.tensor(6)), dynamic_shapes=({0: Dim.AUTO}, None))
    for n, k in ((1, 0), (5, 3), (7, 9), (2, -7)):
        inputs = torch.randn(n), torch.tensor(k)
        assert torch.equal(model(*inputs), module(*inputs))


@pytest.mark.parametrize("function", [lambda x: torch.pixel_shuffle(x, 2), lambda x: torch.pixel_unshuffle(x, 2) + 1])
def test_an_example_of_1_stays_dynamic_where_operations_are_decomposed(function):
    hints = (dict.fromkeys(range(4), Dim.DYNAMIC),)
    model = disc.compile(Function(function), (torch.rand(1, 8, 4, 6),), dynamic_shapes=(hints,))
    for shape in ((1, 8, 4, 6), (3, 4, 6, 4), (2, 12, 4, 4)):
        x = torch.rand(shape)
        assert torch.equal(model(x), function(x))


def test_values_to_put_are_one_or_as_many_as_the_places():
    def put(x, index, values):
        return x.index_put((index,), values)

    class Put(torch.nn.Module):
        def forward(self, x, index, values):
            return put(x, index, values)

    dims = {0: Dim.DYNAMIC}
    example = torch.rand(5, 6), torch.tensor([0, 2, 4]), torch.rand(1, 6)
    model = disc.compile(Put(), example, dynamic_shapes=(dims, dims, dims))
    for count, given in ((3, 1), (4, 4), (1, 1), (7, 1)):
        inputs = torch.rand(9, 6), torch.randperm(9)[:count], torch.rand(given, 6)
        assert torch.equal(model(*inputs), put(*inputs))
    with pytest.raises(disc.ShapeError, match="the values' extents differ"):
        model(torch.rand(9, 6), torch.arange(4), torch.rand(2, 6))


def test_an_example_of_1_that_is_broadcast_is_refused_for_dynamic():
    module, dims = Function(torch.broadcast_tensors), ({0: Dim.DYNAMIC, 1: Dim.DYNAMIC},) * 2
    with pytest.raises(disc.CompileError, match="is 1 in the example"):
        disc.compile(module, (torch.rand(1, 3), torch.rand(2, 1)), dynamic_shapes=(dims,))


POOLS = {
    "maximum": torch.nn.MaxPool1d(6, 2, padding=3, dilation=2),
    "ceiling": torch.nn.MaxPool1d([3], [2], [1], ceil_mode=True),
    "mean": torch.nn.AdaptiveAvgPool1d(1),
    "means": torch.nn.AdaptiveAvgPool1d(7),
    "maxima": torch.nn.AdaptiveMaxPool1d(7),
    "places": torch.nn.AdaptiveMaxPool1d(2, return_indices=True),
    "image": torch.nn.AdaptiveMaxPool2d((2, 1)),
}


@pytest.mark.parametrize("name", POOLS)
def test_pools_ask_nothing_of_sizes(name):
    """How an image lies in memory, and the number of its windows, fix no size; nor does an example of 1."""
    every = dict.fromkeys(range(3), Dim.AUTO)
    model = disc.compile(POOLS[name], (torch.randn(1, 4, 20),), dynamic_shapes=(every,))
    for shape in ((1, 4, 20), (1, 1, 20), (3, 1, 9), (2, 5, 41)):
        x = torch.randn(shape)
        torch.testing.assert_close(model(x), POOLS[name](x))


LAYERS = {
    "convolution": (torch.nn.Conv2d(1, 2, 3), (1, 1, 7, 8), [(3, 1, 7, 8), (1, 1, 9, 5)]),
    "linear": (torch.nn.Linear(1, 3), (1, 1), [(4, 1), (0, 1)]),
    "norm": (torch.nn.LayerNorm(1), (1, 5, 1), [(4, 2, 1)]),
}


@pytest.mark.filterwarnings("ignore:input")
@pytest.mark.parametrize("name", LAYERS)
def test_a_batch_of_one_of_one_channel(name):
    """The layer fixes the number of channels, which is 1, too; the batch stays what it may be."""
    layer, example, others = LAYERS[name]
    hints = dict.fromkeys(range(len(example)), Dim.AUTO)
    model = disc.compile(layer, (torch.randn(example),), dynamic_shapes=(hints,))
    for shape in (example, *others, example):
        x = torch.randn(shape)
        torch.testing.assert_close(model(x), layer(x), rtol=1e-5, atol=1e-5)


def test_a_minimum_that_must_be_a_number():
    """Where the first four rows must be four, the kernels know it, too."""

    def nearest(x):
        some = x[:4]
        chosen = torch.nn.functional.one_hot(torch.cdist(x, some).argmin(1), 4).to(x.dtype)
        count = chosen.sum(0)
        return torch.where(count[:, None] > 0, chosen.T @ x / count.clamp(min=1)[:, None], some)

    model = compiled(nearest, 9)
    for size in (9, 4, 5, 17):
        x = torch.randn(size, 6)
        torch.testing.assert_close(model(x), nearest(x), rtol=1e-5, atol=1e-5)
    with pytest.raises(disc.ShapeError, match="== 4, got 3"):
        model(torch.randn(3, 6))


@pytest.mark.filterwarnings("ignore:input")
@pytest.mark.parametrize("hint", [Dim.AUTO, Dim("n", min=2, max=99)], ids=["auto", "dim"])
def test_squeeze_of_parts(hint):
    def parts(x):
        ones = x[:1].squeeze(0), x[-1:].squeeze(), x[:1].squeeze(), x[-1:].squeeze(0)
        return ones, (x[-3:], x[-3:-1], x[1:3], x[-3::2], x[-3:0], x[0:3], x[3:2], x[-1:-2], x[1:-1], x[-4:2])

    model = compiled(parts, 5, hint)
    for size in (5, 2, 3, 4, 17):
        x = torch.randn(size, 6)
        torch.testing.assert_close(model(x), parts(x))


class LogAddExp(torch.nn.Module):
    def forward(self, a, b):
        return torch.logaddexp2(a, b)


def test_a_dim_that_is_taken_for_the_one_of_the_example():
    dims = {0: Dim.AUTO, 1: Dim.AUTO}
    args = torch.rand(1, 2, 4), torch.rand(1, 1, 4)
    model = disc.compile(LogAddExp(), args, dynamic_shapes={"a": dims, "b": dims})
    for batch, channels in ((1, 2), (3, 2), (3, 5)):
        given = torch.rand(batch, channels, 4), torch.rand(batch, 1, 4)
        torch.testing.assert_close(model(*given), torch.logaddexp2(*given))
