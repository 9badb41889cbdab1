"""Slices of dims that may be 0 or 1, and arithmetic on such sizes, as eager PyTorch has them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch.export import Dim

import closeness
import disc

pytestmark = pytest.mark.share(2)

W = torch.linspace(-1, 1, 6).reshape(2, 3)
LENGTHS = (5, 2, 3, 17, 1, 0, 60, 1)


class Fn(torch.nn.Module):
    """A function as a module."""

    def __init__(self, fn: Callable[[torch.Tensor], object]) -> None:
        super().__init__()
        self.fn = fn

    def forward(self, x: torch.Tensor) -> object:
        """Calls it."""
        return self.fn(x)


def check(module: torch.nn.Module, least: int, lengths: tuple[int, ...] = LENGTHS) -> None:
    """One compilation, at all lengths from ``least`` on."""
    torch.manual_seed(0)
    spec = {0: Dim("n", min=least, max=60)}
    model = disc.compile(module, (torch.randn(5, 3),), dynamic_shapes=(spec,))
    for n in lengths:
        if n >= least:
            x = torch.randn(n, 3)
            closeness.check(module, (x,), model(x))


def written(x: torch.Tensor) -> torch.Tensor:
    """Slices as targets."""
    x = x.clone()
    x[:2] = x[:2] * 2
    x[1:3] += 1
    x[-2:] *= 3
    return x


SLICES: dict[str, Callable[[torch.Tensor], object]] = {
    "heads": lambda x: (x[:1], x[:2], x[:3]),
    "tails": lambda x: (x[-1:], x[-2:], x[-3:]),
    "middles": lambda x: (x[1:2], x[1:3], x[2:4], x[1:-1], x[-3:-1], x[-2:-1], x[2:-2]),
    "rest": lambda x: (x[1:], x[2:], x[:-1], x[:-2]),
    "steps": lambda x: (x[::2][:1], x[:1:2], x[1::2], x[::2][:2]),
    "of slices": lambda x: (x[1:][:1], x[:-1][-2:], x[:2][1:], x[2:][2:]),
    "computed": lambda x: (x[1 : x.shape[0]], x[2 : x.shape[0]]),
    "joined": lambda x: (torch.cat([x[:2], W]), torch.cat([x[:2], x[2:]]) + x, torch.stack([x[:2], x[-2:]])),
    "reduced": lambda x: (x[:2].sum(0), x[:2].mean(0), x[-2:].softmax(0), x[:2].t() @ x[:2]),
    "differences": lambda x: (x[1:] - x[:-1], x[2:] - x[:-2]),
    "shapes": lambda x: (x[:2].flatten(), torch.zeros(x[:2].shape[0], 4), x[:2] / max(x[:2].shape[0], 1)),
    "repeated": lambda x: (x[:1] * x, x - x[-1:], x[:1].expand_as(x) + x, x[:1] * x[:, None]),
    "repeated for none": lambda x: (x[1:] * x[:1], x[: x.shape[0] // 2] * x[:1], x[::3] * x[:1], x[-1:] * x[2:]),
    "kept": lambda x: ((x[:1] - x[:1].mean(0, keepdim=True)).shape[0], (x[:1] * torch.ones(1, 3)).shape[0]),
    "of computed sizes": lambda x: torch.cat([x[x.shape[0] // 2 :]] * 2).roll(1, 0) * x[x.shape[0] // 2 :][:1],
    "rolled": lambda x: (x[:-2].roll(1, 0), torch.cat([x, x])[:-1][1:-3].roll(1, 0)),
    "attention": lambda x: F.scaled_dot_product_attention(x[None, None, :1], x[None, None], x[None, None]),
    "written": written,
}


@pytest.mark.parametrize("least", [0, 1])
@pytest.mark.parametrize("name", SLICES)
def test_slices(name: str, least: int) -> None:
    """A slice has as many elements as there are."""
    check(Fn(SLICES[name]), least)


NUMBERS: dict[str, Callable[[torch.Tensor], object]] = {
    "mean": lambda x: x.sum(0) / max(x.shape[0], 1),
    "of length": lambda x: x.sum(0) / max(1, len(x)),
    "shape": lambda x: torch.zeros(max(x.shape[0], 1), min(x.shape[0], 1)),
    "distance": lambda x: x.new_ones(abs(x.shape[0] - 1)),
    "condition": lambda x: x.sum(0) * (x.shape[0] > 0),
    "else": lambda x: x.sum(0) / (x.shape[0] if x.shape[0] > 0 else 1),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers(name: str) -> None:
    """``max(n, 1)`` is 1 for n = 0."""
    check(Fn(NUMBERS[name]), 0)


class OfLength(torch.nn.Module):
    """Numbers of Python that are lengths of slices."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The length, as the number of steps, in a condition, in a list."""
        y = x[:2]
        total = x.new_zeros(3)
        for i in range(y.shape[0]):
            total = total + y[i] * (i + 1)
        scaled = y.sum(0) if y.shape[0] == 2 else x.sum(0) * 10
        return x.sum() * len(y), x.sum() * int(y.shape[0]), total, scaled, y * torch.tensor([0.5] * len(y))[:, None]


class History(torch.nn.Module):
    """The last eight rows of all calls."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("rows", torch.zeros(8, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Their mean."""
        self.rows = torch.cat([self.rows, x])[-8:]
        return self.rows.mean(0)


def test_a_length_that_is_always_the_same() -> None:
    """The last eight of at least eight rows are eight."""
    spec = {0: Dim("n", min=0, max=60)}
    model, eager = disc.compile(History(), (torch.randn(5, 3),), dynamic_shapes=(spec,)), History()
    for n in LENGTHS:
        x = torch.randn(n, 3)
        torch.testing.assert_close(model(x), eager(x))


class Unpacked(torch.nn.Module):
    """Two rows, where there are two."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Their difference, or a sum."""
        if x.shape[0] < 2:
            return x.sum(0)
        first, second = x[:2]
        return first - second + x[:2].reshape(6)[3:]


@pytest.mark.parametrize("least", [0, 1])
@pytest.mark.parametrize("module", [OfLength(), Unpacked()], ids=["of length", "unpacked"])
def test_lengths_as_numbers(module: torch.nn.Module, least: int) -> None:
    """The length of ``x[:2]`` is no number of the trace."""
    check(module, least)


TOO_SHORT: dict[str, Callable[[torch.Tensor], object]] = {
    "unpacked": lambda x: torch.unbind(x[:2])[1],
    "split": lambda x: x[:2].split(1)[1],
    "view": lambda x: x[:2].view(2, 3) * 2,
    "index": lambda x: x[:2][1],
    "layer norm": lambda x: F.layer_norm(x.t()[:, :2], (2,)),
    "rms norm": lambda x: F.rms_norm(x.t()[:, :2], (2,)),
    "topk": lambda x: x.topk(2, dim=0).values,
    "unfold": lambda x: x.unfold(0, 2, 1) * 2,
    "product": lambda x: W.t() @ x[:2],
}


@pytest.mark.parametrize("name", TOO_SHORT)
def test_too_short(name: str) -> None:
    """What PyTorch refuses for one row is refused, too."""
    fn = TOO_SHORT[name]
    check(Fn(fn), 1, (5, 2, 3, 17))
    model = disc.compile(Fn(fn), (torch.randn(5, 3),), dynamic_shapes=({0: Dim("n", min=1, max=60)},))
    with pytest.raises((RuntimeError, IndexError)):
        fn(torch.randn(1, 3))
    with pytest.raises(disc.ShapeError):
        model(torch.randn(1, 3))


def test_static_by_range() -> None:
    """Where the range has no shorter sizes, the length of a slice is a number."""
    for least, static in ((1, False), (2, True)):
        spec = {0: Dim("n", min=least, max=60)}
        options = disc.Options(stop_after="import")
        model = disc.compile(Fn(lambda x: x[:2]), (torch.randn(5, 3),), dynamic_shapes=(spec,), options=options)
        assert ("-> (tensor<2x3xf32>" in model.ir("import")) == static
