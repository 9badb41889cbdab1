"""Padding of jagged tensors, and its reverse: one compilation for every raggedness."""

import pytest
import torch
from torch import nn
from torch.export import Dim

import disc

to_padded = torch.ops.aten._jagged_to_padded_dense_forward.default
to_jagged = torch.ops.aten._padded_dense_to_jagged_forward.default

# One sequence, sequences of one element, empty ones, growing and shrinking.
LENGTHS = ((3, 2, 5), (1,), (7,), (1, 1, 1), (0, 4), (13, 11, 0, 7), (17, 5, 31, 2, 1), (2, 3))


def offsets(lengths):
    return torch.tensor([0, *lengths]).cumsum(0)


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
