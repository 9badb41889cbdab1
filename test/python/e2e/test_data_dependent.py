"""Extents that depend on data, against eager PyTorch."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.export import Dim

import disc


class Fn(torch.nn.Module):
    """A function as a module."""

    def __init__(self, fn: Callable[..., object]) -> None:
        super().__init__()
        self.fn = fn

    def forward(self, *args: torch.Tensor) -> object:
        """Calls it."""
        return self.fn(*args)


def built(fn: Callable[..., object], *args: object, dynamic: object) -> disc.Model:
    """``fn`` compiled for the dynamic dims of its arguments."""
    return disc.compile(Fn(fn), args, dynamic_shapes=(dynamic,))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bool, torch.uint8, torch.bfloat16, torch.int64])
def test_nonzero_static(dtype: torch.dtype) -> None:
    """A function with two results, cut and filled."""
    n = Dim("n", min=0, max=200)
    x = torch.randint(0, 2, (5, 4)).to(dtype)
    model = built(lambda x: torch.nonzero_static(x.t(), size=9, fill_value=-7), x, dynamic=({0: n},))
    for length in (5, 1, 0, 2, 3, 17, 200, 4):
        x = torch.randint(0, 2, (length, 4)).to(dtype)
        assert torch.equal(model(x), torch.nonzero_static(x.t(), size=9, fill_value=-7))


def agree(ours: object, expected: object) -> None:
    """Results alike in structure, dtype, shape and value."""
    if isinstance(expected, (tuple, list)):
        assert isinstance(ours, type(expected)) and len(ours) == len(expected)
        for mine, theirs in zip(ours, expected, strict=True):
            agree(mine, theirs)
    elif isinstance(expected, torch.Tensor):
        assert isinstance(ours, torch.Tensor)
        assert ours.dtype == expected.dtype and ours.shape == expected.shape
        torch.testing.assert_close(ours, expected, equal_nan=True)
    else:
        assert type(ours) is type(expected) and ours == expected


LENGTHS = (7, 0, 1, 2, 15, 16, 17, 31, 3, 97, 200, 5)


def sparse(length: int, columns: int = 4) -> torch.Tensor:
    """Small numbers, many of them zero."""
    return torch.randint(-1, 3, (length, columns)).float()


def check(fn: Callable[..., object], make: Callable[[int], tuple[object, ...]] = lambda n: (sparse(n),)) -> disc.Model:
    """``fn`` at many lengths, and on inputs of nothing but zeros and nothing but ones, from one artifact."""
    torch.manual_seed(0)
    args = make(6)
    length = Dim("length", min=0, max=200)
    tensors = [isinstance(a, torch.Tensor) and a.dim() > 0 for a in args]
    model = built(fn, *args, dynamic=tuple({0: length} if t else None for t in tensors))
    for n in LENGTHS:
        args = make(n)
        agree(model(*args), fn(*args))
        for fill in (torch.zeros_like, torch.ones_like):
            filled = [fill(a) if t else a for a, t in zip(args, tensors, strict=True)]
            agree(model(*filled), fn(*filled))
    return model


def test_nonzero() -> None:
    """A new extent, and what can be done with it."""

    def fn(x: torch.Tensor) -> object:
        rows = torch.nonzero(x)
        values = rows.float() * 2 + 1
        return rows, values.sum(0), values @ values.t(), torch.softmax(values, 0), torch.cat([values, values[:, :1]], 1)

    model = check(fn)
    assert [s.name for s in model.symbols] == ["length", "u0"]
    assert model.symbols[1].data_dependent and model.symbols[1].max == 800
    with pytest.raises(ValueError, match="u0"):
        model.memory(length=4)
    assert model.memory(length=4, u0=3).arena < model.memory(length=4, u0=16).arena


def test_masked_select() -> None:
    """Several extents, one after the other, and their sum."""

    def fn(x: torch.Tensor) -> object:
        some = torch.masked_select(x, x > 0)
        other = torch.masked_select(x, x[:, :1] == 1)
        joined = torch.cat([some, other, x.flatten()])
        return some, joined, joined.sum(), joined.relu().cumsum(0)

    check(fn)
