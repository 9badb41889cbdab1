"""Running products, extrema, sums of exponentials; differences of neighbours."""

from __future__ import annotations

from typing import Any

import torch

from ..builder import Builder
from ..registry import lowers
from ..values import Tensor
from .calls import dim_back, dim_last, dtype_code, rows
from .elementwise import convert

_SUM, _PRODUCT, _MAXIMUM, _MINIMUM, _LOGSUMEXP = range(5)


def _run(b: Builder, x: Tensor, dim: int, operation: int, results: list[torch.dtype]) -> list[Tensor]:
    last = dim_last(b, x, dim)
    values = b.call(
        "cumulative",
        [last],
        [(last.dims, dtype) for dtype in results],
        config=[dtype_code(x.dtype), operation],
        tasks=rows(b, last.dims),
    )
    return [dim_back(b, value, dim, x.rank) for value in values]


@lowers("torch.aten.cumprod")
def cumprod(b: Builder, x: Tensor, dim: int, *_: Any) -> Tensor:
    """Running products along ``dim``."""
    return running_product(b, convert(b, x, b.out.dtype), dim)


def running_product(b: Builder, x: Tensor, dim: int) -> Tensor:
    """Running products along ``dim``, of the dtype of ``x``."""
    return _run(b, x, dim, _PRODUCT, [x.dtype])[0]


@lowers("torch.aten.logcumsumexp")
def logcumsumexp(b: Builder, x: Tensor, dim: int) -> Tensor:
    """Logarithms of the running sums of exponentials along ``dim``."""
    return _run(b, x, dim, _LOGSUMEXP, [x.dtype])[0]


@lowers("torch.aten.cummax")
def cummax(b: Builder, x: Tensor, dim: int) -> list[Tensor]:
    """Running maxima along ``dim`` and where they are; NaN wins."""
    return _run(b, x, dim, _MAXIMUM, [x.dtype, torch.int64])


@lowers("torch.aten.cummin")
def cummin(b: Builder, x: Tensor, dim: int) -> list[Tensor]:
    """Running minima along ``dim`` and where they are; NaN wins."""
    return _run(b, x, dim, _MINIMUM, [x.dtype, torch.int64])
