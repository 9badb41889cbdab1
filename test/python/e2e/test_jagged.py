"""Jagged nested tensors: arguments, results and what models compute of them, one compilation for every raggedness."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.export import Dim

import disc

pytestmark = pytest.mark.share(3)

F = nn.functional
to_padded = torch.ops.aten._jagged_to_padded_dense_forward.default
to_jagged = torch.ops.aten._padded_dense_to_jagged_forward.default

# One sequence, sequences of one element, empty ones, growing and shrinking.
LENGTHS = ((3, 2, 5), (1,), (7,), (1, 1, 1), (0, 4), (13, 11, 0, 7), (17, 5, 31, 2, 1), (2, 3))


def nested(lengths, *inner, cached=True, dtype=torch.float32):
    """A nested tensor; ``cached``: with the extreme lengths in its cache."""
    numbers = torch.randn(sum(lengths), *inner) if dtype.is_floating_point else torch.randint(10, (sum(lengths),))
    if cached:
        return torch.nested.as_nested_tensor(list(numbers.split(list(lengths))), layout=torch.jagged)
    return torch.nested.nested_tensor_from_jagged(numbers, offsets(lengths))


def offsets(lengths):
    return torch.tensor([0, *lengths]).cumsum(0)


def like(tensor, values):
    """A nested tensor of the same raggedness."""
    return torch.nested.nested_tensor_from_jagged(values, tensor.offsets())


def check(got, want):
    if isinstance(want, (tuple, list)):
        for g, w in zip(got, want, strict=True):
            check(g, w)
    elif isinstance(want, dict):
        check([got[key] for key in want], list(want.values()))
    elif not want.is_nested:
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5, equal_nan=True)
    else:
        assert got.is_nested and got.layout == torch.jagged and got._ragged_idx == want._ragged_idx
        assert got.dim() == want.dim()
        check([got.values(), got.offsets()], [want.values(), want.offsets()])
        assert got.values().stride() == want.values().stride()


class Program(nn.Module):
    """A function of nested tensors that may use these layers."""

    def __init__(self, function):
        super().__init__()
        torch.manual_seed(0)
        self.function = function
        self.linear, self.norm, self.embedding = nn.Linear(4, 6), nn.LayerNorm(4), nn.Embedding(10, 4)
        self.query, self.key, self.value = (nn.Linear(4, 4) for _ in range(3))

    def forward(self, *args):
        return self.function(self, *args)


def attention(m, x):
    heads = [layer(x).unflatten(-1, (2, 2)).transpose(1, 2) for layer in (m.query, m.key, m.value)]
    return m.linear(F.scaled_dot_product_attention(*heads).transpose(1, 2).flatten(-2))


PROGRAMS = {
    "pointwise": lambda m, x: F.gelu(x * 2 + x).clamp(min=0.1) / x.size(0),
    "where": lambda m, x: torch.where(x > 0, x, 0.5),
    "linear": lambda m, x: m.linear(x).relu(),
    "softmax": lambda m, x: x.softmax(-1),
    "softmax_of_sequences": lambda m, x: x.softmax(1),
    "layer_norm": lambda m, x: m.norm(x),
    "sum": lambda m, x: x.sum(1),
    "mean": lambda m, x: x.mean(1),
    "max": lambda m, x: x.max(1).values,
    "centred": lambda m, x: x - x.mean(1, keepdim=True),
    "total": lambda m, x: x.sum(),
    "attention": attention,
    "heads": lambda m, x: x.view(x.shape[0], x.shape[1], 2, 2).transpose(1, 2) * 2,
    "transposed": lambda m, x: x.transpose(1, 2),
    "padded": lambda m, x: x.to_padded_tensor(0.0),
    "values": lambda m, x: (x.values() + 1, x.offsets() * 2),
    "made_inside": lambda m, x: torch.nested.nested_tensor_from_jagged(x.values() * 2, x.offsets()),
    "several": lambda m, x: (x * 2, {"x": x + 1, "rows": x.sum(-1)}),
    "itself": lambda m, x: x,
}


@pytest.mark.parametrize("cached", [True, False])
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name, cached):
    module = Program(PROGRAMS[name]).eval()
    model = disc.compile(module, (nested((3, 2, 5), 4, cached=cached),))
    for lengths in LENGTHS:
        x = nested(lengths, 4, cached=cached)
        with torch.no_grad():
            # The caches of results are those of the arguments.
            want = module(x.clone() if name == "itself" else x)
        check(model(x), want)


def test_a_result_has_the_arguments_raggedness():
    model = disc.compile(Program(lambda m, x: (x * 2, x.offsets())), (nested((3, 2), 4),))
    x = nested((4, 1, 2), 4)
    result, same = model(x)
    assert same is x.offsets() and result.offsets() is x.offsets()
    check(result + x, x * 3)


def test_an_embedding():
    module = Program(lambda m, x: m.embedding(x)).eval()
    model = disc.compile(module, (nested((3, 2), dtype=torch.int64),))
    for lengths in LENGTHS:
        x = nested(lengths, dtype=torch.int64)
        check(model(x), module(x).detach())


def test_attention_to_other_sequences():
    def cross(m, x, y):
        query, key = (t.unflatten(-1, (2, 2)).transpose(1, 2) for t in (x, y))
        return F.scaled_dot_product_attention(query, key, key).transpose(1, 2).flatten(-2)

    model = disc.compile(Program(cross), (nested((3, 2), 4), nested((4, 1), 4)))
    for left, right in (((3, 2), (4, 1)), ((1, 7, 2), (5, 1, 2)), ((4,), (1,)), ((2, 2), (0, 3))):
        x, y = nested(left, 4), nested(right, 4)
        check(model(x, y), cross(None, x, y))
    with pytest.raises(disc.ShapeError, match="_offsets"):
        model(nested((3, 2), 4), nested((4, 1, 1), 4))


def test_one_raggedness_for_two_arguments():
    x = nested((3, 2, 5), 4)
    model = disc.compile(Program(lambda m, x, y: x + y), (x, like(x, torch.randn(10, 4))))
    for lengths in LENGTHS:
        x = nested(lengths, 4)
        y = like(x, torch.randn(sum(lengths), 4))
        check(model(x, y), x + y)
    # Eager mode does not compute the sum either.
    with pytest.raises(TypeError, match=r"argument \[1\]: expected the offsets tensor of nested argument 0"):
        model(x, nested(LENGTHS[-1], 4))
    with pytest.raises(disc.ShapeError):
        model(x, like(x, torch.randn(6, 4)))


def test_different_raggedness_is_refused_as_in_eager_mode():
    with pytest.raises(disc.CompileError, match=r"(?s)cannot call binary pointwise function add.*test_jagged\.py"):
        disc.compile(Program(lambda m, x, y: x + y), (nested((3, 2), 4), nested((3, 2), 4)))


def test_arguments_of_different_raggedness():
    program = Program(lambda m, pair: (pair["x"] * 2, pair["y"][0].sum(1)))
    model = disc.compile(program, ({"x": nested((3, 2), 4), "y": [nested((4, 1, 1), 4)]},))
    pair = {"x": nested((1, 2, 3), 4), "y": [nested((5,), 4)]}
    check(model(pair), program(pair))


def test_the_ragged_dimension_may_be_another():
    x = nested((3, 2), 4).transpose(1, 2)
    model = disc.compile(Program(lambda m, x: x * 2), (x,))
    x = nested((4, 1, 1), 4).transpose(1, 2)
    check(model(x), x * 2)
    with pytest.raises(TypeError, match=r"argument \[0\]: expected dimension 2 to be ragged, got 1"):
        model(nested((4, 1, 1), 4))


def test_lengths():
    def narrowed(starts, lengths):
        return torch.nested.narrow(torch.randn(3, 6, 4), 1, starts, lengths, layout=torch.jagged)

    x = narrowed(torch.tensor([0, 1, 2]), torch.tensor([2, 3, 1]))
    model = disc.compile(Program(lambda m, x: x * 2), (x,))
    x = narrowed(torch.tensor([1, 0, 0]), torch.tensor([1, 5, 2]))
    result = model(x)
    check(result, x * 2)
    assert result.lengths() is x.lengths()
    with pytest.raises(TypeError, match="with lengths"):
        model(nested((3, 2), 4))


class Scaled(nn.Module):
    def forward(self, x, y):
        return x.softmax(-1) * 2 + y


def test_dims():
    program = Scaled()
    args = nested((3, 2, 5), 4), torch.randn(4)
    model = disc.compile(program, args, dynamic_shapes=({0: Dim.AUTO, 1: Dim.AUTO, 2: Dim.AUTO}, {0: Dim.AUTO}))
    args = nested((1, 2), 7), torch.randn(7)
    check(model(*args), program(*args))
    size = Dim("size")
    model = disc.compile(program, args, dynamic_shapes={"x": {0: Dim("batch", min=1, max=3), 2: size}, "y": {0: size}})
    assert [i.dims for i in model.inputs[:2]] == [("x_values_0", "size"), ("1 + batch",)]
    args = nested((1, 4, 2), 5), torch.randn(5)
    check(model(*args), program(*args))
    with pytest.raises(disc.ShapeError, match="expected 1 <= batch <= 3, got 4"):
        model(nested((1, 1, 1, 1), 5), torch.randn(5))
    model = disc.compile(program, args, dynamic_shapes=({0: Dim.STATIC}, None))
    with pytest.raises(disc.ShapeError, match="offsets"):
        model(nested((1, 1), 5), torch.randn(5))


@pytest.mark.parametrize("lengths", [(4,), (1,), (1, 1)])
def test_an_example_of_one(lengths):
    program = Program(lambda m, x: x.softmax(1) + x.mean(1, keepdim=True))
    model = disc.compile(program, (nested(lengths, 4),))
    for others in LENGTHS[:5]:
        x = nested(others, 4)
        check(model(x), program(x))


def test_padding_asks_for_the_cache():
    """to_padded_tensor pads to the cached maximum, or else to the total length: the example's way is compiled."""
    program = Program(lambda m, x: x.to_padded_tensor(0.0))
    model = disc.compile(program, (nested((3, 2), 4),))
    x = torch.nested.nested_tensor_from_jagged(torch.randn(5, 4), offsets((2, 3)), min_seqlen=1, max_seqlen=9)
    assert model(x).shape == program(x).shape == (2, 9, 4)
    with pytest.raises(TypeError, match="expected a nested tensor with a cached max_seqlen"):
        model(nested((3, 2), 4, cached=False))
    # Where it is not asked for, it is computed.
    x = nested((3, 1), 4, cached=False)
    check(disc.compile(Program(lambda m, x: x * 2), (nested((3, 2), 4),))(x), x * 2)


def test_wrong_arguments():
    model = disc.compile(Program(lambda m, x: x * 2), (nested((3, 2), 4),))
    with pytest.raises(TypeError, match=r"expected a nested tensor with layout=torch\.jagged, got another tensor"):
        model(torch.randn(5, 4))
    with pytest.raises(TypeError, match="got int"):
        model(3)
    dense = disc.compile(Program(lambda m, x: x * 2), (torch.randn(3, 4),))
    with pytest.raises(TypeError, match="expected a dense tensor"):
        dense(nested((3, 2), 4))


def chosen(_, x):
    if x.values().sum() > 0:
        y = x * 2
    else:
        y = x - 1
    return y


def doubled(_, x):
    for i in range(x.size(0)):
        x = x * 2 + i
    return x


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (chosen, "a branch or loop on data cannot pass on a nested tensor"),
        (doubled, "a branch or loop on data cannot pass on a nested tensor"),
        (lambda m, x: x.unbind()[0], "unbind of a nested tensor returns one tensor for each sequence"),
        (lambda m, x: x * int(x.shape[1]), "the size of a ragged dimension is not one number"),
    ],
)
def test_what_is_not_supported(function, text):
    with pytest.raises(disc.CompileError, match=rf"(?s){text}.*test_jagged\.py"):
        disc.compile(Program(function), (nested((3, 2), 4),))


def test_a_library(tmp_path):
    program = Program(lambda m, nt: {"out": m.linear(nt)}).eval()

    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.program = program

        def forward(self, nt):
            return self.program(nt)

    artifact = disc.aot_compile(Named(), (nested((3, 2), 4, cached=False),), output=tmp_path / "libjagged.so")
    assert [x.name for x in artifact.interface.inputs] == ["nt_values", "nt_offsets"]
    assert [x.name for x in artifact.interface.outputs] == ["out_values", "out_offsets"]
    library = disc.load(artifact.path)
    x = nested((4, 0, 1), 4, cached=False)
    values, ends = (torch.as_tensor(np.asarray(t)) for t in library(x.values(), x.offsets()))
    want = program(x)["out"].detach()
    check([values, ends], [want.values(), want.offsets()])


# -- the operators -------------------------------------------------------------------------------------------------


class Padded(nn.Module):
    def forward(self, values, ends):
        longest = ends.diff().max().item()
        torch._check(longest >= 0)
        return to_padded(values, [ends], [longest], -1.0), to_padded(values, [ends], [3], 2.0)


class Jagged(nn.Module):
    def forward(self, padded, ends, values):
        return to_jagged(padded, [ends], values.shape[0]), to_jagged(padded, [ends])


@pytest.fixture(scope="module")
def operators():
    ends, auto = offsets((3, 2, 5)), {0: Dim.AUTO}
    values, padded = torch.randn(10, 4), torch.randn(3, 5, 4)
    return (
        disc.compile(Padded(), (values, ends), dynamic_shapes=(auto, auto)),
        disc.compile(Jagged(), (padded, ends, values), dynamic_shapes=({0: Dim.AUTO, 1: Dim.AUTO}, auto, auto)),
    )


@pytest.mark.parametrize("lengths", [*LENGTHS, (0,), (0, 0)])
def test_operators(operators, lengths):
    ends, values = offsets(lengths), torch.randn(sum(lengths), 4)
    padded = torch.randn(len(lengths), max(lengths), 4)
    for model, module, args in zip(operators, (Padded(), Jagged()), ((values, ends), (padded, ends, values))):
        for got, want in zip(model(*args), module(*args), strict=True):
            assert got.stride() == want.stride()
            torch.testing.assert_close(got, want, rtol=0, atol=0)


@pytest.mark.parametrize("ends", [[0, 4, 2, 10], [0, 3, 12, 12], [-1, 3, 5, 10]])
def test_offsets_outside_of_the_values(operators, ends):
    with pytest.raises(IndexError, match=r"_jagged_to_padded_dense_forward at test_jagged\.py:\d+: index"):
        operators[0](torch.randn(10, 4), torch.tensor(ends))


@pytest.mark.parametrize(
    ("ends", "error", "text"),
    [
        ([0, 4, 2, 10], IndexError, "index 4 is out of range"),
        ([0, 3, 5, 12], IndexError, "index 12 is out of range"),
        ([0, 3, 4, 10], IndexError, "index 5 is out of range for a dimension of extent 5"),
        ([1, 3, 5, 10], disc.ShapeError, "as many rows as total_L"),
        ([0, 3, 5, 9], disc.ShapeError, "as many rows as total_L"),
        ([0, 3, 10], disc.ShapeError, "the number of sequences"),
    ],
)
def test_offsets_outside_of_the_padded_tensor(operators, ends, error, text):
    with pytest.raises(error, match=text):
        operators[1](torch.randn(3, 5, 4), torch.tensor(ends), torch.randn(10, 4))


def test_training_with_torch_compile():
    def loss(x):
        return x.to_padded_tensor(0.0).square().sum() + (x.softmax(1) * x).values().square().sum()

    torch._dynamo.reset()
    compiled = torch.compile(loss, backend="disc", dynamic=True)
    for lengths in ((3, 2, 5), (4, 1), (2, 7, 3, 1)):
        values, ends = torch.randn(sum(lengths), 4), offsets(lengths)
        extremes = {"min_seqlen": min(lengths), "max_seqlen": max(lengths)}
        gradients = []
        for function in (loss, compiled):
            leaf = values.clone().requires_grad_()
            function(torch.nested.nested_tensor_from_jagged(leaf, ends, **extremes)).backward()
            gradients.append(leaf.grad)
        torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-5)
