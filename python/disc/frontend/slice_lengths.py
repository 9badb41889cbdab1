"""Lengths of slices of dims that may be 0 or 1: ``x[:2]`` of n rows has ``min(n, 2)`` of them.

PyTorch compares the bounds of a slice with the size of the dim, which it takes for at least 2: ``x[:2]`` would always
have 2 rows. Here the bounds are compared with the sizes that the user declared.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from ..torch_compat import patches
from ..torch_compat.patching import caller, replaced
from ..torch_compat.symbols import free_unbacked_symbols
from .proving import declared_ranges
from .rewriting.conditions import known_truth

_KERNEL = patches.FAKE_KERNELS.at(torch.ops.aten.slice.Tensor)
_ASKING = ("slice_forward", "_compute_slice_index")
"""The functions of the fake kernel that compare bounds and sizes."""


@contextmanager
def slices_of_declared_sizes() -> Iterator[None]:
    """While it is active, the lengths of slices are right for all sizes that the user declared."""
    with replaced({_KERNEL: _sliced}):
        yield


def _sliced(
    original: Callable[..., Any],
    mode: Any,
    func: Any,
    x: torch.Tensor,
    dim: int = 0,
    start: Any = None,
    end: Any = None,
    step: int = 1,
) -> Any:
    if not x.dim() or not _may_be_short(x.shape[dim]):
        return original(mode, func, x, dim, start, end, step)
    with replaced({patches.GUARD_OF_PYTHON: _compared}):
        result = original(mode, func, x, dim, start, end, step)
        length = _length(x.shape[dim], start, end)
        if length is None:
            return result
        sizes = list(result.shape)
        sizes[dim] = (length + (step - 1)) // step
        return result.as_strided(sizes, result.stride(), result.storage_offset())


def _length(size: Any, start: Any, end: Any) -> Any:
    """How many elements start:end are, in a form with bounds: ``min(n, 2)``, not ``n - max(n - 2, 0)``.

    None if a bound is not a number of Python, or if two of them count from different ends and are compared.
    """
    start = 0 if start is None else start
    end = None if isinstance(end, int) and end >= sys.maxsize else end
    if not isinstance(start, int) or not (end is None or isinstance(end, int)):
        return None
    if start >= 0:
        if end is None or end < 0:
            return _no_less(size - (start if end is None else start - end), 0)
        return _no_more(_no_less(size - start, 0), max(end - start, 0))
    if end is None or end < 0:
        stop = size if end is None else _no_less(size + end, 0)
        return _no_more(stop, max((0 if end is None else end) - start, 0))
    return None


def _no_less(size: Any, least: int) -> Any:
    if known_truth(size >= least):
        return size
    return least if known_truth(size <= least) else torch.sym_max(size, least)


def _no_more(size: Any, most: int) -> Any:
    if known_truth(size <= most):
        return size
    return most if known_truth(size >= most) else torch.sym_min(size, most)


def _may_be_short(size: Any) -> bool:
    if not isinstance(size, torch.SymInt) or size.node.shape_env is None:
        return False
    env, expr = size.node.shape_env, size.node.expr
    if free_unbacked_symbols(expr):
        return False
    # The second trace takes no size for 2 or more.
    return bool(declared_ranges(env, expr.free_symbols)) or any(
        env.var_to_range[s].lower < 2 for s in expr.free_symbols
    )


def _compared(original: Callable[..., bool], a: Any, default: bool) -> bool:
    asking = caller().f_back
    if not isinstance(a, torch.SymBool) or asking is None or asking.f_code.co_name not in _ASKING:
        return original(a, default)
    known = known_truth(a)
    if known is not None:
        return known
    # For a bound that code computes from sizes, PyTorch assumes that n - 1 is not negative: else it has no expression
    # for the length. The compiled model checks the length where the assumption is wrong.
    return original(a, default) if isinstance(asking.f_locals.get("index"), torch.SymInt) else default
