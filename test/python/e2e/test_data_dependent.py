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
