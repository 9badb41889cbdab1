"""Sizes that are rounded to a multiple, sizes that are tensors, and dims that share a name: one form for all shapes."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.export import Dim

import disc

pytestmark = pytest.mark.share(2)

LENGTHS = [2, 3, 15, 16, 17, 40, 33, 32, 7, 101]


def agree(module, args, dynamic_shapes, points):
    """Compiles once and compares with eager at each of ``points``: functions of no argument that make the inputs."""
    model = disc.compile(module, args, dynamic_shapes=dynamic_shapes)
    for make in points:
        inputs = make()
        # Sums of at most 101 terms of either sign, in another order.
        torch.testing.assert_close(model(*inputs), module(*inputs), rtol=1e-5, atol=1e-5)
    return model


class Chunks(nn.Module):
    """Mamba 2: padded to whole chunks, cut to the length again where that was padded."""

    def forward(self, x):
        b, n, h = x.shape
        padding = (16 - n % 16) % 16
        x = F.pad(x, (0, 0, 0, padding)).reshape(b, -1, 16, h)
        inside = torch.einsum("bclh,bcsh->bcls", x, x)
        sums = x.permute(0, 3, 1, 2).cumsum(-1).sum(-1)
        result = (inside.sum(-1, keepdim=True) + x).reshape(b, -1, h)
        if padding > 0:
            result = result[:, :n]
        return result.view(b, n, 2, -1), sums


@pytest.mark.parametrize("example", [5, 16, 37])
@pytest.mark.parametrize("most", [None, 120])
def test_chunks_of_an_example_of_any_length(example, most):
    length = Dim("length", min=2, max=most)
    points = [lambda n=n: (torch.randn(n % 3 + 1, n, 4),) for n in LENGTHS]
    model = agree(Chunks(), (torch.randn(3, example, 4),), ({0: Dim("b"), 1: length},), points)
    assert "floordiv 16" in model.ir("shape")
    assert "branch" not in model.ir("shape")


class PaddedInABranch(nn.Module):
    """Longformer: padded where that is needed, with chunks counted by torch.div."""

    def forward(self, x):
        n = x.shape[1]
        padding = (16 - n % 16) % 16
        if padding > 0:
            x = F.pad(x, (0, 0, 0, padding), value=1.5)
        count = torch.div(x.shape[1], 16, rounding_mode="trunc")
        chunks = x.view(x.shape[0], count, 16, x.shape[2])
        return chunks.cumsum(2), x.new_zeros(count - 1 + 1, 2), x.flatten(1)[:, :n]


def test_the_size_of_a_branch_may_be_that_of_one_side():
    points = [lambda n=n: (torch.randn(2, n, 4),) for n in LENGTHS]
    model = agree(PaddedInABranch(), (torch.randn(2, 21, 4),), ({1: Dim("n", min=2)},), points)
    assert "disc_shape.bind" not in model.ir("shape")


class Overlapping(nn.Module):
    def forward(self, x, y):
        def chunked(t):
            t = t.view(t.size(0), torch.div(t.size(1), 8, rounding_mode="trunc"), 8, t.size(2))
            size, stride = list(t.size()), list(t.stride())
            size[1], stride[1] = size[1] * 2 - 1, stride[1] // 2
            return t.as_strided(size=size, stride=stride)

        if (y > 0).any():
            x = x + 1
        return torch.einsum("bcxd,bcyd->bcxy", chunked(x), chunked(y))


def test_overlapping_chunks_of_a_multiple():
    dims = {0: Dim("b"), 1: 8 * Dim("n")}
    points = [lambda n=n: (torch.randn(2, n, 4), torch.randn(2, n, 4)) for n in (8, 16, 40, 24, 104)]
    agree(Overlapping(), (torch.randn(3, 16, 4), torch.randn(3, 16, 4)), (dims, dims), points)


class Sizes(nn.Module):
    def forward(self, x):
        half = torch.div(x.size(0), 2, rounding_mode="floor")
        more = half + 1
        rows = x.view(half, 2, -1).sum(1)
        if more > 4:
            rows = rows * 2
        return (
            rows,
            x[:more],
            torch.ones(half, 2).expand(half, 2),
            x.repeat(half, 1),
            torch.arange(more),
            more,
        )


def test_tensors_made_of_sizes():
    points = [lambda n=n: (torch.randn(n, 4),) for n in (2, 4, 6, 8, 22, 10)]
    agree(Sizes(), (torch.randn(8, 4),), ({0: 2 * Dim("n")},), points)


class Remainder(nn.Module):
    def forward(self, x):
        return x[torch.remainder(torch.scalar_tensor(x.size(0), dtype=torch.int64), 3) :]


def test_remainders_of_sizes():
    points = [lambda n=n: (torch.randn(n, 4),) for n in (2, 3, 4, 6, 22, 10, 1)]
    agree(Remainder(), (torch.randn(8, 4),), ({0: Dim("n")},), points)


class ReadAsNumber(nn.Module):
    def forward(self, x):
        half = (torch.tensor(x.size(0)) // 2).item()
        return x.view(half, 2, 4) * 1, x.view(int(torch.ceil(torch.tensor(x.size(0) / 2))), 8) + 1


def test_a_root_of_a_dim_may_be_read_from_data():
    points = [lambda n=n: (torch.randn(n, 4),) for n in (2, 4, 14, 8)]
    agree(ReadAsNumber(), (torch.randn(8, 4),), ({0: 2 * Dim("n")},), points)


class RootInABranch(nn.Module):
    def forward(self, x, y):
        if (y > 0).all():
            x = x + 1
        return x.view((x.shape[0] - 1) // 8, 8, -1) if x.dim() == 1 else x[1:].view(x.shape[0] // 8, 8, 4)


def test_a_root_of_a_dim_after_a_branch():
    points = [lambda n=n, y=y: (torch.randn(n, 4), torch.full((3,), y)) for n in (9, 17, 41, 25) for y in (1.0, -1.0)]
    agree(RootInABranch(), (torch.randn(17, 4), torch.randn(3)), ({0: 8 * Dim("n") + 1}, None), points)


class CutToTheOther(nn.Module):
    def forward(self, x, mask):
        kept = mask[:, : x.shape[1]]
        return x.view(kept.shape[0], kept.shape[1], 2, -1) * kept[..., None, None], mask[:, -x.shape[1] :]


def test_dims_of_one_name_are_one_size():
    dims = {0: Dim("b"), 1: Dim("n")}
    points = [lambda n=n: (torch.randn(n, n + 1, 4), torch.randn(n, n + 1)) for n in (1, 2, 7, 30, 5)]
    model = agree(CutToTheOther(), (torch.randn(2, 5, 4), torch.randn(2, 5)), (dims, dims), points)
    assert " min " not in model.ir("shape")
    with pytest.raises(disc.ShapeError, match="mask"):
        model(torch.randn(2, 5, 4), torch.randn(2, 6))


class AsksInAnyWay(nn.Module):
    def forward(self, x, token):
        ended = torch.full((), 3)
        at = torch.floor_divide(x.shape[0], 2)
        seen = (
            token == ended,
            ended != token,
            at == x.shape[0] // 2,
            -at,
            at.to(torch.int32),
            x[int(at.dtype == torch.int32) :],
        )
        return x[:at] * ended, seen, at * 2 - 1, x[at.dim() :]


def test_what_else_takes_a_tensor_made_of_sizes():
    points = [lambda n=n: (torch.randn(n, 4), torch.tensor(n)) for n in (2, 3, 4, 22, 10)]
    agree(AsksInAnyWay(), (torch.randn(8, 4), torch.tensor(3)), ({0: Dim("n", min=2)}, None), points)
