"""Helpers the rules share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch_mlir import ir

from .. import scalar
from ..builder import Builder
from ..scalar import Elem
from ..values import Extent, RuntimeNumber, Tensor, normalize_dim


def number(x: Any) -> Any:
    """An operand of an elementwise op: extents become numbers of the body."""
    if isinstance(x, ir.Value):
        return RuntimeNumber(torch.int64, lambda: scalar.from_extent(x, torch.int64))
    return x


def signed_number(b: Builder, x: Any, given: Any) -> Any:
    """An extent that may be negative, according to torch.export's ``given``, as a number of the body; or ``x``."""
    if isinstance(x, ir.Value) and isinstance(given, torch.SymInt) and not b.is_natural(given.node.expr):
        return number(x)
    return x


def axes(dims: int | Sequence[int] | None, rank: int) -> list[int]:
    """The ``dim`` argument of a reduction as sorted axes; None and [] mean all."""
    if isinstance(dims, int):
        dims = [dims]
    if not dims:
        return list(range(rank))
    return sorted({normalize_dim(dim, rank) for dim in dims} if rank else [])


def promoted(x: Any, y: Any) -> torch.dtype:
    """The dtype PyTorch compares or computes ``x`` and ``y`` in."""
    return torch.result_type(_stand_in(x), _stand_in(y))


def _stand_in(x: Any) -> Any:
    if isinstance(x, Tensor):
        # Whether a tensor has dims decides how much its dtype weighs.
        return torch.empty([1] * x.rank, dtype=x.dtype, device="meta")
    if isinstance(x, RuntimeNumber):
        return 1.0 if x.dtype.is_floating_point else 1
    return x


def loops(rank: int) -> list[Elem]:
    """In a body: the indices of the point, as i64."""
    return [scalar.loop_index(d) for d in range(rank)]


def read_if(b: Builder, inside: Elem, x: Tensor, index: Sequence[Elem], other: Any = 0) -> Elem:
    """In a body: the element of ``x`` at ``index`` where ``inside`` holds, else ``other``; reads nowhere else."""
    safe = [scalar.select(inside, i, 0) for i in index]
    return scalar.select(inside, b.extract(x, safe), other)


def within(index: Elem, extent: Extent) -> Elem:
    """In a body: whether 0 <= index < extent."""
    return (index >= 0) & (index < scalar.from_extent(extent, torch.int64))


def require_pixels(b: Builder, extents: Sequence[Extent], what: str) -> None:
    """Requires at least one element along these dims, those of images, as PyTorch does."""
    for extent in extents:
        b.require_at_most(1, extent, f"{b.op_name.removeprefix('torch.')}: {what} has a spatial size of 0")


def require_covered(b: Builder, index: Tensor, other: Tensor, what: str, *, but: int | None = None) -> None:
    """Along each dim but ``but`` an index is no longer than the tensor it goes with, unless it is empty."""
    for d, (have, most) in enumerate(zip(index.dims, other.dims, strict=True)):
        if d != but and have != most:
            others = b.product([*index.dims[:d], *index.dims[d + 1 :]])
            b.require_at_most(b.mul(have, b.minimum(others, 1)), most, f"the index is larger than {what}")


def require_channels(b: Builder, x: Tensor, spatial: int, *, single: bool = True) -> None:
    """Requires images [N, C, ...] or [C, ...] to have a channel, as PyTorch's pools do; ``single``: the latter, too."""
    if single or x.rank > spatial + 1:
        b.require_at_most(1, x.dims[-1 - spatial], f"{b.op_name.removeprefix('torch.')}: the input has no channels")
