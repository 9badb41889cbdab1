"""Pools whose windows or results have sizes known at run time only, in terms of what takes these."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from ..layout_questions import unguarded


def max_pool1d(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Tensor:
    """``max_pool1d`` as a pool of images: PyTorch checks the length as a number of C++."""
    size, step, low, apart = (
        [fixed, *(x if isinstance(x, (list, tuple)) else [x])]
        for fixed, x in ((1, kernel_size), (1, stride or kernel_size), (0, padding), (1, dilation))
    )
    return torch.max_pool2d(input.unsqueeze(-2), size, step, low, apart, ceil_mode).squeeze(-2)


def _adaptive(func: Callable[..., Any]) -> Callable[..., Any]:
    """An adaptive pool. PyTorch asks for the layout of its image in memory, which is not a condition on its sizes.

    Most sizes of results are numbers of C++ in PyTorch, so that a size known at run time only would be fixed.
    """
    name = func.__name__
    rank = int(name[len("adaptive_max_pool")])
    indices = name.endswith("_with_indices") or func is torch.adaptive_max_pool1d

    def call(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
        given = list(output_size) if isinstance(output_size, (list, tuple)) else [output_size] * rank
        # None is the size that there is, which PyTorch would take for a number of C++.
        sizes: list[Any] = [x if x is not None else input.shape[place - rank] for place, x in enumerate(given)]
        if any(isinstance(size, torch.SymInt) for size in sizes):
            if rank == 1 and "avg" in name:
                return functional.adaptive_avg_pool2d(input.unsqueeze(-2), (1, *sizes)).squeeze(-2)
            if "max" in name and not return_indices and not indices:
                for place, size in enumerate(given):
                    input = input if size is None else _largest_of_parts(input, place - rank, size)
                return input
            if "max" in name:
                output_size = [size.node.guard_int("", 0) if isinstance(size, torch.SymInt) else size for size in sizes]
        with unguarded(input):
            return func(input, output_size, *([return_indices] if return_indices else []))

    return call


def _largest_of_parts(x: Tensor, dim: int, count: Any) -> Tensor:
    """The largest elements of ``count`` parts of a dim, which may overlap by one element."""
    x = x.movedim(dim, -1)
    length = x.shape[-1]
    part, place = torch.arange(count, device=x.device).unsqueeze(-1), torch.arange(length, device=x.device)
    inside = (place >= part * length // count) & (place < -(-(part + 1) * length // count))
    least = -torch.inf if x.is_floating_point() else torch.iinfo(x.dtype).min
    return torch.where(inside, x.unsqueeze(-2), least).amax(-1).movedim(-1, dim)


_DIVISOR = "divisor_override"


def _per_dim(values: Any, count: int) -> list[Any]:
    several = list(values) if isinstance(values, (list, tuple)) else [values]
    return several * count if len(several) == 1 else several


def is_whole(
    func: Any,
    input: Tensor,
    kernel_size: Any = None,
    stride: Any = None,
    padding: Any = 0,
    *rest: Any,
    return_indices: bool = False,
    **options: Any,
) -> bool:
    """Whether a pool has windows as large as the input, along each dim where the window's size is a dynamic number."""
    rank = int(func.__name__[len("max_pool")])
    kernel = _per_dim(kernel_size, rank)
    # PyTorch has the error for arguments that do not fit each other.
    pairs = [(k, n) for k, n in zip(kernel, input.shape[-rank:], strict=False) if isinstance(k, torch.SymInt)]
    names = ("dilation", "ceil_mode") if "max" in func.__name__ else ("ceil_mode", "count_include_pad", _DIVISOR)
    given = {**dict(zip(names, rest, strict=False)), **options}
    apart = any(d != 1 for d in _per_dim(given.get("dilation", 1), rank))
    cut = given.get("ceil_mode") and len(pairs) < rank
    if not pairs or apart or cut or given.get(_DIVISOR) or return_indices or any(_per_dim(padding, rank)):
        return False
    return all(isinstance(n, torch.SymInt) and k.node.expr == n.node.expr for k, n in pairs)


def _whole(func: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A pool for which :func:`is_whole` holds: a reduction of those dims, whatever the stride."""

    def call(input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, *_: Any, **__: Any) -> Tensor:
        rank = int(func.__name__[len("max_pool")])
        kernel, steps = _per_dim(kernel_size, rank), _per_dim(stride or kernel_size, rank)
        whole = [isinstance(k, torch.SymInt) for k in kernel]
        dims = [d - rank for d in range(rank) if whole[d]]
        x = input.amax(dims, keepdim=True) if "max" in func.__name__ else input.mean(dims, keepdim=True)
        if all(whole):
            return x
        small: Sequence[int] = [1 if reduced else k for reduced, k in zip(whole, kernel, strict=True)]
        return func(x, small, [1 if reduced else s for reduced, s in zip(whole, steps, strict=True)])

    return call


_ADAPTIVE: tuple[Any, ...] = (
    torch.adaptive_avg_pool1d,
    functional.adaptive_avg_pool2d,
    torch.adaptive_max_pool1d,
    functional.adaptive_max_pool1d,
    functional.adaptive_max_pool1d_with_indices,
    functional.adaptive_max_pool2d,
    functional.adaptive_max_pool2d_with_indices,
    functional.adaptive_max_pool3d,
    functional.adaptive_max_pool3d_with_indices,
)

ADAPTIVE_POOLS: dict[Any, Callable[..., Any]] = {f: _adaptive(f) for f in _ADAPTIVE}
_POOLS = [torch.max_pool1d, torch.max_pool2d, torch.max_pool3d, torch.avg_pool1d]
_POOLS += [functional.avg_pool2d, functional.avg_pool3d]
_POOLS += [functional.max_pool1d, functional.max_pool2d, functional.max_pool3d]
WHOLE_POOLS: dict[Any, Callable[..., Any]] = {f: _whole(f) for f in _POOLS}
