"""Extents 0 and 1 at every op that allows them, from artifacts that serve other extents too."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
import torch.utils._pytree as pytree
from torch.export import Dim

import closeness
import disc

pytestmark = pytest.mark.share(2)

LENGTHS = (6, 0, 1, 2, 17, 0, 33)
W = torch.linspace(-1, 1, 20).reshape(5, 4)


class Fn(torch.nn.Module):
    """A function as a module."""

    def __init__(self, fn: Callable[[torch.Tensor], object]) -> None:
        super().__init__()
        self.fn = fn

    def forward(self, x: torch.Tensor) -> object:
        """Calls it."""
        return self.fn(x)


def attend(q: torch.Tensor, k: torch.Tensor, **options: bool) -> torch.Tensor:
    """Attention of one head."""
    return F.scaled_dot_product_attention(q[None, None], k[None, None], k[None, None], **options)


def ids(x: torch.Tensor) -> torch.Tensor:
    """Row numbers."""
    return (x[:, 0] > 0).long()


# Of x [n, 4].
ROWS: dict[str, Callable[[torch.Tensor], tuple[torch.Tensor, ...]]] = {
    "down": lambda x: (x.sum(0), x.prod(0), x.mean(0), (x > 0).any(0), (x > 0).all(0), x.var(0), x.logsumexp(0)),
    "all": lambda x: (x.sum(), x.mean(), x.norm(dim=0), x.std(0, unbiased=False), x.softmax(0), x.cumsum(0)),
    "across": lambda x: (x.amax(1), x.argmax(1), x.min(1)[0], x.log_softmax(1), F.layer_norm(x, (4,)), x.cumsum(1)),
    "products": lambda x: (x @ W.t(), W @ x.t(), x.t() @ x, (x @ x.t()).relu(), x[:, None] @ x[:, :, None]),
    "views": lambda x: (x.t().contiguous(), x.flatten() * 2, x.expand(3, -1, -1) + 0, x.roll(1, 1), x.t().exp()),
    "joined": lambda x: (torch.cat([x, x]), torch.cat([x, x], 1), torch.cat([x, W]), torch.stack([x, x], 1)),
    "attention": lambda x: (attend(x, x), attend(W, x), attend(x, W), attend(x, x, is_causal=True)),
    "indices": lambda x: (F.embedding(ids(x), W), W[ids(x)], x.gather(1, ids(x)[:, None]), F.one_hot(ids(x), 3)),
    "always": lambda x: (
        x[:, :0].softmax(1),
        x[:, :0] * x[:, :0].sum(1, keepdim=True),
        x[:, :0] - x[:, 4:].sum(1)[:, None],
    ),
    "made": lambda x: (torch.arange(x.shape[0]), torch.ones_like(x), torch.ones(x.shape[0], x.shape[0]).tril()),
}
# Of x [4, n].
COLUMNS: dict[str, Callable[[torch.Tensor], tuple[torch.Tensor, ...]]] = {
    "across": lambda x: (x.sum(1), x.mean(1), x.softmax(1), (x > 0).any(1), x.logsumexp(1), x.var(1), x.cumsum(1)),
    "down": lambda x: (x.sum(0), x.softmax(0), x.amax(0), x.argmax(0), x.max(0)[1], x.cumsum(0)),
    "diagonals": lambda x: (x.diagonal(1), x.diagonal(-1) * 2, torch.diag(x, 2), x.t().diagonal(-2)),
    "products": lambda x: (x @ x.t(), x.t() @ x, (x @ x.t()).softmax(-1) @ x, (x[:, None] * x[None]).sum(-1)),
}
CASES = [("rows", name) for name in ROWS] + [("columns", name) for name in COLUMNS]


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_empty_extents(kind: str, name: str) -> None:
    """Sums of nothing, products over nothing, maps of nothing."""
    torch.manual_seed(0)
    fn = (ROWS if kind == "rows" else COLUMNS)[name]
    length = Dim("length", min=0, max=300)

    def make(n: int) -> torch.Tensor:
        return torch.randn(n, 4) if kind == "rows" else torch.randn(4, n)

    model = disc.compile(Fn(fn), (make(6),), dynamic_shapes=({0 if kind == "rows" else 1: length},))
    for n in LENGTHS:
        x = make(n)
        closeness.check(fn, (x,), model(x))


# What has no neutral element, of x [n, 4].
EXTREMA: dict[str, Callable[[torch.Tensor], object]] = {
    "amax": lambda x: x.amax(0),
    "min": lambda x: x.min(0),
    "argmax": lambda x: x.argmax(0),
    "aminmax": lambda x: torch.aminmax(x, dim=0),
    "all": lambda x: x.max(),
    "both": lambda x: x.amin((0, 1)),
    "norm": lambda x: torch.linalg.vector_norm(x, float("inf"), 0),
    "inverse": lambda x: torch.linalg.vector_norm(x, -1, 0),
}


@pytest.mark.parametrize("name", EXTREMA)
def test_extrema_of_nothing_are_refused(name: str) -> None:
    """As in eager PyTorch; extrema across rows that are not there are fine."""
    fn = EXTREMA[name]
    model = disc.compile(
        Fn(lambda x: (fn(x), x.amax(1), x.argmin(1))), (torch.randn(6, 4),), dynamic_shapes=({0: Dim.DYNAMIC},)
    )
    for n in (6, 1, 17):
        x = torch.randn(n, 4)
        torch.testing.assert_close(pytree.tree_leaves(model(x)), pytree.tree_leaves((fn(x), x.amax(1), x.argmin(1))))
    with pytest.raises((IndexError, RuntimeError)):
        fn(torch.ones(0, 4))
    with pytest.raises(disc.ShapeError, match="no element to choose from"):
        model(torch.ones(0, 4))


IMAGES: dict[str, Callable[[torch.Tensor], object]] = {
    "nearest": lambda x: F.interpolate(x, (5, 6)),
    "bilinear": lambda x: F.interpolate(x, (5, 6), mode="bilinear"),
    "bicubic": lambda x: F.interpolate(x, (5, 6), mode="bicubic"),
    "average": lambda x: F.adaptive_avg_pool2d(x, (2, 3)),
    "maximum": lambda x: F.adaptive_max_pool2d(x, (2, 3), return_indices=True),
    "windows": lambda x: F.max_pool2d(x, 3, 1, 1),
    "grid": lambda x: F.grid_sample(x, torch.zeros(x.shape[0], 4, 5, 2), align_corners=False),
}


def test_images_without_pixels() -> None:
    """There is nothing to read; a batch of no images is fine."""
    model = disc.compile(
        Fn(lambda x: [fn(x) for fn in IMAGES.values()]),
        (torch.randn(2, 3, 4, 7),),
        dynamic_shapes=({0: Dim.AUTO, 2: Dim.AUTO},),
    )
    for shape in ((2, 3, 4, 7), (1, 3, 1, 7), (3, 3, 9, 7)):
        x = torch.randn(shape)
        closeness.check(lambda x: [fn(x) for fn in IMAGES.values()], (x,), model(x))
    for fn in IMAGES.values():
        with pytest.raises(RuntimeError):
            fn(torch.ones(2, 3, 0, 7))
    with pytest.raises(disc.ShapeError, match="spatial size of 0"):
        model(torch.ones(2, 3, 0, 7))


# What needs a channel, and a window that fits; of x [n, c, h, 7].
WINDOWS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "maximum": lambda x: F.max_pool2d(x, (2, 3)),
    "average": lambda x: F.avg_pool2d(x, (2, 3), stride=1),
    "columns": lambda x: F.unfold(x, (2, 3), stride=(1, 2)),
    "dilated": lambda x: F.unfold(x, 2, dilation=(1, 2), padding=(0, 1), stride=2),
}


def test_windows_over_nothing() -> None:
    """One window is enough; none, or no channel, is what PyTorch refuses."""
    model = disc.compile(
        Fn(lambda x: [fn(x) for fn in WINDOWS.values()]),
        (torch.randn(2, 3, 4, 7),),
        dynamic_shapes=(dict.fromkeys((0, 1, 2), Dim.AUTO),),
    )
    for shape in ((2, 3, 4, 7), (1, 1, 2, 7), (0, 3, 5, 7)):
        x = torch.randn(shape)
        torch.testing.assert_close(model(x), [fn(x) for fn in WINDOWS.values()])
    for shape, text in (((2, 0, 4, 7), "no channels"), ((2, 3, 1, 7), "larger than the input")):
        for fn in WINDOWS.values():
            with pytest.raises(RuntimeError):
                fn(torch.ones(shape))
        with pytest.raises(disc.ShapeError, match=text):
            model(torch.ones(shape))


class Convolved(torch.nn.Module):
    """Convolutions by kernels that are inputs."""

    def forward(self, x: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """A plain and a transposed one."""
        return F.conv1d(x, w, padding=1), F.conv_transpose1d(x, v, stride=2)


def test_kernels_of_nothing() -> None:
    """A kernel without filters, channels or taps is refused; no images are fine."""
    dims = dict.fromkeys(range(3), Dim.AUTO)
    module = Convolved()
    model = disc.compile(
        module, (torch.randn(2, 3, 6), torch.randn(4, 3, 3), torch.randn(3, 5, 2)), dynamic_shapes=(dims,) * 3
    )
    for x, w, v in (((2, 3, 6), (4, 3, 3), (3, 5, 2)), ((0, 2, 4), (1, 2, 1), (2, 1, 4))):
        args = torch.randn(x), torch.randn(w), torch.randn(v)
        torch.testing.assert_close(model(*args), module(*args), atol=1e-5, rtol=1e-5)
    for w, v in (((0, 3, 3), (3, 5, 2)), ((4, 3, 0), (3, 5, 2)), ((4, 3, 3), (3, 0, 2)), ((4, 3, 3), (3, 5, 0))):
        args = torch.ones(2, 3, 6), torch.ones(w), torch.ones(v)
        with pytest.raises(RuntimeError):
            module(*args)
        with pytest.raises(disc.ShapeError, match="the kernel has a size of 0"):
            model(*args)
    with pytest.raises(disc.ShapeError, match="the kernel has a size of 0"):
        model(torch.ones(2, 0, 6), torch.ones(4, 0, 3), torch.ones(0, 5, 2))


def medians(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """What the medians are in PyTorch."""
    return x.median(), x.nanmedian(), x.to(torch.int32).median()


def test_order_of_nothing() -> None:
    """The median of nothing is NaN, or the least integer; there are no quantiles of nothing."""
    model = disc.compile(Fn(medians), (torch.randn(3, 4),), dynamic_shapes=({0: Dim.AUTO},))
    for n in (3, 0, 1, 8):
        x = torch.randn(n, 4) * 9
        torch.testing.assert_close(model(x), medians(x), equal_nan=True)
    quantile = disc.compile(
        Fn(lambda x: torch.quantile(x, 0.3, dim=1)), (torch.randn(3, 4),), dynamic_shapes=({0: Dim.AUTO},)
    )
    torch.testing.assert_close(quantile(x), torch.quantile(x, 0.3, dim=1))
    with pytest.raises(disc.ShapeError, match="no elements"):
        quantile(torch.ones(0, 4))
    dims = {0: Dim.AUTO, 1: Dim.AUTO}
    select = disc.compile(Fn(lambda x: (x.median(1), x.mode(1))), (torch.randn(3, 4),), dynamic_shapes=(dims,))
    x = torch.randn(0, 4)
    torch.testing.assert_close(select(x)[0].values, x.median(1).values)
    with pytest.raises(disc.ShapeError, match="the reduced dim is 0"):
        select(torch.ones(0, 0))


class OverTime(torch.nn.Module):
    """A convolution of [time, batch, channels]."""

    def forward(self, x: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """It."""
        return torch.conv_tbc(x, w, v, 1)


def test_a_convolution_over_time_without_a_window() -> None:
    """conv_tbc may have a result of length 0."""
    module = OverTime()
    args = torch.randn(6, 2, 3), torch.randn(4, 3, 5), torch.randn(5)
    model = disc.compile(module, args, dynamic_shapes=({0: Dim.AUTO}, {0: Dim.AUTO}, None))
    for length, taps in ((6, 4), (1, 4), (2, 4), (3, 1)):
        args = torch.randn(length, 2, 3), torch.randn(taps, 3, 5), torch.randn(5)
        torch.testing.assert_close(model(*args), module(*args), atol=1e-5, rtol=1e-5)
    with pytest.raises(disc.ShapeError):
        model(torch.randn(1, 2, 3), torch.randn(5, 3, 5), args[2])


def test_a_range_of_a_diagonal() -> None:
    """The length of this diagonal is min(m, n - 1), or 0 where n is 0."""
    model = disc.compile(
        Fn(lambda x: torch.arange(x.diagonal(1, 1, 0).size(1))),
        (torch.ones(5, 7, 3),),
        dynamic_shapes=({0: Dim("n", min=0), 1: Dim("m", min=0)},),
    )
    for n, m in ((5, 7), (7, 5), (1, 1), (2, 1), (3, 0), (65, 3)):
        assert torch.equal(model(torch.ones(n, m, 3)), torch.arange(min(n - 1, m))), (n, m)
    for m in (0, 3):
        assert torch.equal(model(torch.ones(0, m, 3)), torch.arange(0))
