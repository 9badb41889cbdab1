"""Sizes that overflow or that do not fit in memory raise a MemoryError that names them."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.export import Dim

import disc


class Model(torch.nn.Module):
    """A function as a module."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        super().__init__()
        self.fn = fn

    def forward(self, *args: Any) -> Any:
        return self.fn(*args)


class Ones(torch.nn.Module):
    def forward(self, x: torch.Tensor, k: int) -> torch.Tensor:
        return x.sum() + torch.ones(k).cumsum(0).cumsum(0).sum()


HUGE = (2**62, 2**61 + 1, 2**40, 2**63 - 1, 2**59)


def test_a_number_as_a_size() -> None:
    x = torch.randn(3)
    model = disc.compile(Ones(), (x, 5), dynamic_shapes=(None, Dim.DYNAMIC))
    for k in (5, 2, 100):
        torch.testing.assert_close(model(x, k), Ones()(x, k))
        for huge in HUGE:
            with pytest.raises(MemoryError, match=r"needs|no memory"):
                model(x, huge)
    with pytest.raises(MemoryError, match=r"test_size_overflow.py:\d+.* = 4611686018427387904"):
        model(x, 2**62)


def sized(make: Callable[[int, torch.Tensor], torch.Tensor]) -> Callable[..., torch.Tensor]:
    def fn(x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        k = t.item()
        torch._check(k >= 0)
        return make(k, x)

    return fn


DATA = {
    "ones": lambda k, x: x.sum() + torch.ones(k).cumsum(0).cumsum(0).sum(),
    "zeros_2d": lambda k, x: torch.zeros(k, 4).cumsum(0)[:, 1] + x.sum(),
    "square": lambda k, x: torch.ones(k, k).cumsum(0).sum() + x.sum(),
    "full": lambda k, x: torch.full((k, 3), 2.0).sort(0).values + x[:3],
    "arange": lambda k, x: torch.arange(k).cumsum(0).sum() + x,
    "eye": lambda k, x: torch.eye(k).cumsum(0) * x[0],
    "expand": lambda k, x: (x[None].expand(k, 4) * 2).cumsum(0),
    "repeat": lambda k, x: x.repeat(k).cumsum(0),
    "arithmetic": lambda k, x: torch.zeros(3 * k + 1) + x[0],
    "product": lambda k, x: torch.zeros(k * k + 1, dtype=torch.int8).cumsum(0),
    "new_zeros": lambda k, x: x.new_zeros(2, k, 2).cumsum(1),
}


@pytest.mark.parametrize(
    ("name", "target"), [(n, "cpu") for n in DATA] + [(n, "cuda-emulated") for n in ("ones", "square", "full")]
)
def test_a_data_value_as_a_size(name: str, target: str) -> None:
    fn = sized(DATA[name])
    x = torch.randn(4)
    model = disc.compile(Model(fn), (x, torch.tensor(5)), target=target)
    for k in (5, 1, 0, 17):
        torch.testing.assert_close(model(x, torch.tensor(k)), fn(x, torch.tensor(k)))
        for huge in HUGE:
            with pytest.raises(MemoryError, match=r"needs|no memory|overflows"):
                model(x, torch.tensor(huge))


def test_products_of_extents() -> None:
    def fn(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> tuple[torch.Tensor, ...]:
        all_sums = a[:, None, None] + b[None, :, None] + c[None, None, :]
        return all_sums.sort(-1).values.amax(0), all_sums.amax((0, 1, 2))

    n, m, k = Dim("n"), Dim("m"), Dim("k")
    args = torch.randn(3), torch.randn(4), torch.randn(5)
    model = disc.compile(Model(fn), args, dynamic_shapes=((({0: n}, {0: m}, {0: k})),))
    torch.testing.assert_close(model(*args), fn(*args))
    large = torch.zeros(2**21)
    with pytest.raises(MemoryError, match=r"\[n, m, k\].*n = 2097152"):
        model(large, large, large)
    torch.testing.assert_close(model(*args), fn(*args))


@pytest.mark.parametrize("shape", [(0, 2**62), (2**62, 0), (0, 2**63 - 1)])
def test_an_empty_input_with_a_huge_extent(shape: tuple[int, int]) -> None:
    def fn(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.sort(1).values.sum(0), torch.ones_like(x).cumsum(1), x.transpose(0, 1) * 2

    n, m = Dim("n", min=0), Dim("m", min=0)
    model = disc.compile(Model(fn), (torch.randn(3, 4),), dynamic_shapes=(({0: n, 1: m},),))
    for small in [(0, 5), (5, 0), (0, 0), (2, 3)]:
        x = torch.randn(small)
        torch.testing.assert_close(model(x), fn(x))
    with pytest.raises(MemoryError, match="m = "):
        model(torch.empty(shape))


def test_growth_in_loops() -> None:
    """A tensor that grows, or a list of steps: until there is no memory."""

    def repeated(x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        y = x
        for _ in range(int(t)):
            y = y.repeat(2**20)
        return y.amax()

    def rows(x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        return torch.stack([x * i for i in range(int(t))]).sum(0)

    x = torch.randn(4)
    model = disc.compile(Model(repeated), (x, torch.tensor(1)))
    torch.testing.assert_close(model(x, torch.tensor(1)), repeated(x, torch.tensor(1)))
    with pytest.raises(MemoryError):
        model(x, torch.tensor(100))
    model = disc.compile(Model(rows), (x, torch.tensor(3)))
    torch.testing.assert_close(model(x, torch.tensor(9)), rows(x, torch.tensor(9)))
    for huge in HUGE:
        with pytest.raises(MemoryError):
            model(x, torch.tensor(huge))


class Recursive(torch.nn.Module):
    def step(self, x: torch.Tensor, depth: int) -> torch.Tensor:
        if depth == 0:
            return x.amax()
        return self.step(x.repeat(2**12) * 2, depth - 1) + 1

    def forward(self, x: torch.Tensor, depth: torch.Tensor) -> torch.Tensor:
        return self.step(x, int(depth))


def test_growth_in_recursion() -> None:
    x = torch.zeros(3)
    model = disc.compile(Recursive(), (x, torch.tensor(1)))
    for depth in (0, 1):
        assert model(x, torch.tensor(depth)) == depth
    for depth in (3, 100):
        with pytest.raises(MemoryError):
            model(x, torch.tensor(depth))


def test_library(tmp_path: Any) -> None:
    x = torch.randn(3)
    path = tmp_path / "libones.so"
    disc.aot_compile(Ones(), (x, 5), dynamic_shapes=(None, Dim.DYNAMIC), output=str(path))
    model = disc.load(str(path))
    torch.testing.assert_close(torch.as_tensor(model(x, torch.tensor(7))), Ones()(x, 7))
    for huge in HUGE:
        with pytest.raises(MemoryError, match=r"needs|no memory"):
            model(x, torch.tensor(huge))


def test_interleaved_views_do_not_overlap() -> None:
    def fn(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        a.add_(b)
        return a * 2

    n = Dim("n", min=1)
    model = disc.compile(Model(fn), (torch.randn(4), torch.randn(4)), dynamic_shapes=((({0: n}, {0: n})),))
    for views in (
        lambda x: (x[::2], x[1::2]),
        lambda x: (x[:32], x[32:]),
        lambda x: (x.view(-1, 8)[:, 0], x.view(-1, 8)[:, 5]),
    ):
        ours, theirs = torch.arange(64.0), torch.arange(64.0)
        torch.testing.assert_close(model(*views(ours)), fn(*views(theirs)))
        torch.testing.assert_close(ours, theirs)
    x = torch.arange(64.0)
    for a, b in ((x[::2], x[::2]), (x[:32], x[31:63]), (x[0:60:3], x[1:41:2])):
        with pytest.raises(RuntimeError, match="overlaps"):
            model(a, b)
