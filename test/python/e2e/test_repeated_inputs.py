"""Dims that are equal in the example and marked Dim.AUTO: 1 beside n broadcasts as in eager, or is refused."""

import itertools

import pytest
import torch
import torch.ao.quantization.fx._decomposed
import torch.nn.functional as F
from torch import nn
from torch.export import Dim

import disc

pytestmark = pytest.mark.share(3)

aten = torch.ops.aten
quantized = torch.ops.quantized_decomposed
SCALE = (0.1, 3, -128, 127, torch.int8)
EXAMPLE = (torch.rand(4, 3), torch.rand(4, 3))
EXTENTS = [(1, 1), (1, 5), (5, 1), (5, 5), (2, 5), (1, 0), (0, 1), (0, 0)]
SHAPES = [((a, c), (b, d)) for (a, b), (c, d) in itertools.product(EXTENTS, EXTENTS)]


class Of(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x, y):
        return self.function(x, y)


def compiled(function, example=EXAMPLE, **options):
    dims = tuple(dict.fromkeys(range(x.dim()), Dim.AUTO) for x in example)
    return disc.compile(Of(function), example, dynamic_shapes=dims, **options)


def bytes_of(x):
    return quantized.quantize_per_tensor(x, *SCALE)


BROADCASTS = {
    "add": lambda x, y: x + y,
    "before": lambda x, y: (x * 2).exp() + y.sin(),
    "behind": lambda x, y: (x + y).sum(0),
    "other_dim": lambda x, y: x + y.mean(1, keepdim=True),
    "moved": lambda x, y: (x.t() * y.t()).contiguous().view(-1),
    "outer": lambda x, y: x[:, None, :] * y[None, :, :],
    "rows": lambda x, y: F.softmax(x, -1).sum(1) + y.amax(1),
    "grams": lambda x, y: x @ x.t() + y @ y.t(),
    "untagged": lambda x, y: torch.where(x > y, x, 2.0) + x.masked_fill(y > 0.5, 1.0) + x.floor_divide(y + 1),
    "twice": lambda x, y: torch.where(x > y, x, y) + x.t().t(),
    "activations": lambda x, y: F.hardswish(x) + F.logsigmoid(y) * torch.isclose(x, y),
    "gradients": lambda x, y: aten.leaky_relu_backward(x, y, 0.1, False) + aten.softplus_backward(x, y, 1.0, 20.0),
    "selected": lambda x, y: x[:, None][:, 0] + y[..., None].select(-1, 0) + y[None].squeeze(0),
    "reduced": lambda x, y: x[..., None].prod(-1) + y[..., None].logsumexp(-1) + y[None].norm(dim=0),
    "losses": lambda x, y: aten.mse_loss(x, y, 0) + aten.huber_loss(x, y, 0) + aten.kl_div(x, y, 0),
    "mean_loss": lambda x, y: aten.mse_loss(x, y, 1) + aten.smooth_l1_loss(x, y, 2) + aten.l1_loss(x, y, 1),
    "similarity": lambda x, y: F.cosine_similarity(x, y) + F.pairwise_distance(x, y),
    "distances": lambda x, y: torch.cdist(x[..., None], y[..., None]),
    "grams_by_batch": lambda x, y: torch.bmm(x[None], x[None].mT)[0] + torch.bmm(y[None], y[None].mT)[0],
    "in_place": lambda x, y: (x * 2).add_(y),
    "in_place_of_a_view": lambda x, y: (x * 2, (z := x * 3).t().mul_(y.t()), z)[2],
    "quantized": lambda x, y: quantized.dequantize_per_tensor(bytes_of(x), *SCALE) + bytes_of(y),
}
"""All of these take 1 beside n wherever eager does, but for sums over what eager has one of."""

OTHERS = {
    "two_results": lambda x, y: (x + y, x * 2),
    "number": lambda x, y: x / x.shape[0] + y,
    "made": lambda x, y: x + y + torch.ones(x.shape[0], 1),
    "counted": lambda x, y: x + y + torch.arange(y.shape[1]),
    "expanded": lambda x, y: x.expand(y.shape) * y,
    "viewed": lambda x, y: x.reshape(y.shape[0], x.shape[1]).sum(1) + y.sum(1),
    "branch": lambda x, y: x + y if x.shape[0] == 1 else x * y,
    "largest": lambda x, y: (x + y).sum() + x.sum(),
    "copied": lambda x, y: x.clone().copy_(y),
    "copied_to_rows": lambda x, y: (z := x * 1, z.t().copy_(y.t()), z)[2],
    "in_place_behind": lambda x, y: (x + y).add_(y),
    "in_place_and_behind": lambda x, y: (z := x * 2).add_(y) + z.add_(x * y),
    "number_transposed": lambda x, y: (x + y).sum().mT + (x * y).sum().transpose(0, -1) + x * y,
    "selected_row": lambda x, y: x[0] + y,
    "loss_of_parts": lambda x, y: aten.mse_loss(x, x * 2, 1) + x * y,
    "similar_rows": lambda x, y: F.cosine_similarity(x, x * 2)[:, None] + x * y,
    "batches": lambda x, y: torch.bmm(x[:, :, None], y[:, None, :]),
    "distances_of_vectors": lambda x, y: torch.cdist(x, y),
    "spread": lambda x, y: (x * y)[..., None].std(-1, correction=0) + x.std(0, correction=0) + y,
    "joined": lambda x, y: torch.cat([x, y], 1),
    "product": lambda x, y: torch.addmm(x, y, torch.ones(y.shape[1], x.shape[1])),
    "compared": lambda x, y: (x + y) * 2 if x.shape == y.shape else x * y,
    "compared_behind": lambda x, y: x + y + (1 if x.shape == y.shape else 0),
    "same_size": lambda x, y: x + y + float(x.is_same_size(y)),
    "lengths": lambda x, y: x + y + float(len(x) == len(y)),
    "difference": lambda x, y: (x + y) * (1 + x.shape[0] - y.shape[0]),
    "checked": lambda x, y: torch._check(x.shape[0] == y.shape[0]) or x + y,
    "loss": lambda x, y: x * y + F.binary_cross_entropy_with_logits(x, y, reduction="none"),
    "distance": lambda x, y: x + y + F.soft_margin_loss(x, y, reduction="none"),
    "drawn": lambda x, y: F.dropout(x, 0.0, training=True) + y,
}
"""These are refused where it is not known that repeating an input gives what eager does."""


@pytest.mark.parametrize("name", [*BROADCASTS, *OTHERS])
def test_what_is_accepted_is_as_in_eager(name):
    function = {**BROADCASTS, **OTHERS}[name]
    model = compiled(function)
    accepted = 0
    for shapes in SHAPES:
        x, y = (torch.rand(shape) for shape in shapes)
        try:
            wanted = function(x.clone(), y.clone())
        except (RuntimeError, IndexError, ValueError):
            with pytest.raises(disc.ShapeError):
                model(x, y)
            continue
        try:
            result = model(x, y)
        except disc.ShapeError:
            assert name in OTHERS or name == "rows", shapes
            continue
        torch.testing.assert_close(result, wanted, equal_nan=True)
        accepted += 1
    assert accepted >= (25 if name in BROADCASTS else 1)


def test_three_inputs():
    def function(x, y, z):
        return (x + y) * z, ((x - y) * z).sum(0)

    class Three(nn.Module):
        def forward(self, x, y, z):
            return function(x, y, z)

    dims = ({0: Dim.AUTO, 1: Dim.AUTO},) * 3
    model = disc.compile(Three(), (torch.rand(4, 3),) * 3, dynamic_shapes=dims)
    for rows in itertools.product((1, 5), repeat=3):
        for columns in itertools.product((1, 6), repeat=3):
            inputs = [torch.rand(size) for size in zip(rows, columns, strict=True)]
            torch.testing.assert_close(model(*inputs), function(*inputs))


def test_strided_inputs_are_repeated():
    model = compiled(BROADCASTS["add"])
    x, y = torch.rand(8, 6)[::8, ::2], torch.rand(3, 5).t()
    torch.testing.assert_close(model(x, y), x + y)


def test_named_dims_are_not():
    rows = Dim("rows")
    model = disc.compile(Of(torch.add), EXAMPLE, dynamic_shapes=({0: rows}, {0: rows}))
    with pytest.raises(disc.ShapeError, match="has the wrong extent: expected rows = 5, got 1"):
        model(torch.rand(5, 3), torch.rand(1, 3))


def test_an_input_that_is_changed_is_not():
    model = compiled(lambda x, y: x.add_(y))
    with pytest.raises(disc.ShapeError):
        model(torch.rand(1, 3), torch.rand(5, 3))
    x, y = torch.rand(5, 3), torch.rand(1, 3)
    wanted = x + y
    torch.testing.assert_close(model(x, y), wanted)
    torch.testing.assert_close(x, wanted)


def test_in_a_library(tmp_path):
    dims = ({0: Dim.AUTO, 1: Dim.AUTO},) * 2
    path = tmp_path / "libadd.so"
    disc.aot_compile(Of(BROADCASTS["before"]), EXAMPLE, dynamic_shapes=dims, output=path)
    library = disc.load(path)
    for shapes in (((5, 6), (5, 6)), ((1, 6), (5, 6)), ((5, 1), (1, 6))):
        x, y = (torch.rand(shape) for shape in shapes)
        torch.testing.assert_close(library(x, y), BROADCASTS["before"](x, y))


def test_it_is_in_the_ir():
    text = compiled(BROADCASTS["add"]).ir("import")
    assert text.count("disc_shape.repeats = array<i64: 0, 1>") == 2
    assert "disc_shape.repeats" not in compiled(OTHERS["number"]).ir("import")
