"""Helpers of the rules that call functions of the runtime (lib/Runtime/Functions)."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..builder import Builder
from ..registry import NotLowerable
from ..values import Extent, Tensor, normalize_dim

PARTS = 8
"""Tasks of a function that can cut its work anywhere."""

# enum disc_dtype of lib/Runtime/Core/ModelInfo.h.
_CODES: dict[torch.dtype, int] = {
    torch.int8: 0x008,
    torch.int16: 0x010,
    torch.int32: 0x020,
    torch.int64: 0x040,
    torch.uint8: 0x108,
    torch.float16: 0x210,
    torch.float32: 0x220,
    torch.float64: 0x240,
    torch.bfloat16: 0x410,
    torch.bool: 0x608,
}


def dtype_code(dtype: torch.dtype) -> int:
    """The number that a function knows ``dtype`` by; unlike an MLIR type it has the sign."""
    if dtype not in _CODES:
        raise NotLowerable(f"elements of {dtype}")
    return _CODES[dtype]


def dim_last(b: Builder, x: Tensor, dim: int) -> Tensor:
    """A view of ``x`` (at least one dim) whose last dim is ``dim``."""
    if x.rank == 0:
        return b.reshape(x, [1])
    dim = normalize_dim(dim, x.rank)
    return b.permute(x, [*(d for d in range(x.rank) if d != dim), dim])


def dim_back(b: Builder, x: Tensor, dim: int, rank: int) -> Tensor:
    """Undoes :func:`dim_last` for an ``x`` of ``rank`` dims."""
    if rank == 0:
        return b.reshape(x, [])
    dim = normalize_dim(dim, rank)
    order = list(range(rank - 1))
    order.insert(dim, rank - 1)
    return b.permute(x, order)


def rows(b: Builder, dims: Sequence[Extent]) -> Extent:
    """The number of rows: the product of all dims but the last."""
    return b.product(list(dims)[:-1])
