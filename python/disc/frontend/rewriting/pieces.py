"""``split`` and ``chunk`` into as many pieces as are known at run time only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..proving import is_positive
from . import graph
from .conditions import known_truth, number_tensor
from .dynamic import Dynamic, Steps, at_least, constant_number, is_dynamic, whole_of
from .parts import has_parts
from .uneven import Uneven


def split(tensor: Tensor, split_size_or_sections: Any, dim: int = 0) -> Any:
    """``torch.split``."""
    sizes = split_size_or_sections
    if isinstance(sizes, Dynamic) and sizes.steps is not None:
        return _by_sizes(tensor, sizes.steps(), dim)
    if has_parts(sizes):
        return _by_sizes(tensor, whole_of(sizes), dim)
    if not isinstance(sizes, (int, torch.SymInt)) or known_truth(sizes > 0) is not True:
        return torch.split(tensor, sizes, dim)
    return _pieces(torch.split, tensor, sizes, sizes, dim)


def chunk(input: Tensor, chunks: int, dim: int = 0) -> Any:
    """``torch.chunk``."""
    extent = input.shape[dim]
    if not is_dynamic(extent) or not is_positive(extent):
        return torch.chunk(input, chunks, dim)
    return _pieces(torch.chunk, input, chunks, (extent + chunks - 1) // chunks, dim)


def _pieces(function: Callable[..., Any], tensor: Tensor, given: Any, size: Any, dim: int) -> Any:
    """Pieces of one size, but the last."""
    extent = tensor.shape[dim]
    if not is_dynamic(extent) and not is_dynamic(size):
        return function(tensor, given, dim)
    count = (extent + size - 1) // size
    # No elements are one piece without elements.
    count = count if is_positive(count) else at_least(count, 1)
    if constant_number(count) is not None:
        return function(tensor, given, dim)

    def all_of() -> Steps | Uneven:
        along, rows = dim % tensor.dim(), tensor.movedim(dim, 0)
        if isinstance(size, int) and size == 1:
            return Steps(rows.unsqueeze(along + 1))
        lengths = (number_tensor(extent, torch.int64) - torch.arange(count) * size).clamp(min=0).clamp(max=size)
        return Uneven(rows, lengths, along)

    return Dynamic(count, lambda n: torch.ops.aten.slice(tensor, dim, n * size, n * size + size), all_of)


def _by_sizes(tensor: Tensor, sizes: Steps, dim: int) -> Dynamic:
    """Pieces of sizes that are numbers of the data."""
    lengths, extent = sizes.rows.to(torch.int64), tensor.shape[dim]
    graph.require((lengths >= 0).all(), "RuntimeError: split_with_sizes expects sizes that are not negative")
    whole = lengths.sum() == number_tensor(extent, torch.int64)
    graph.require(whole, f"RuntimeError: split_with_sizes expects sizes whose sum is the size of dim {dim}")
    starts = lengths.cumsum(0) - lengths

    def piece(number: Any) -> Tensor:
        start: Any
        length: Any
        start, length = (x.select(0, number).item() for x in (starts, lengths))
        torch._check(start >= 0)
        torch._check(length >= 0)
        torch._check(start + length <= extent)
        return tensor.narrow(dim, start, length)

    return Dynamic(lengths.shape[0], piece, lambda: Uneven(tensor.movedim(dim, 0), lengths, dim % tensor.dim()))
