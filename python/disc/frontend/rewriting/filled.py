"""Tensors that a model makes of one integer: ``torch.ones([1]).item()`` is a number of Python, as in eager PyTorch.

While tracing, PyTorch knows the values of ``torch.tensor`` alone. Others are known here as long as nothing but Python's
questions has seen the tensor: whatever else takes it may change it, or give away what shares its memory.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ...torch_compat import pytree

_WHOLE = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
_VALUES = {torch.zeros: 0, torch.ones: 1}
_GIVEN = {torch.full: (1, "fill_value"), torch.scalar_tensor: (0, "s")}
"""Which argument is the value."""

# Those whose value is known, by id: mostly none, and every function of torch asks.
_known: weakref.WeakValueDictionary[int, Tensor] = weakref.WeakValueDictionary()

ASKING = (Tensor.item, Tensor.__bool__, Tensor.__int__, Tensor.__index__)
"""What asks for the value of a tensor."""


def note(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> None:
    """Remembers the value of a tensor of one element that ``func`` has made."""
    value = _VALUES.get(func)
    if func in _GIVEN:
        place, name = _GIVEN[func]
        value = args[place] if place < len(args) else kwargs.get(name)
    if type(value) not in (bool, int, float) or "out" in kwargs or not isinstance(result, Tensor):
        return
    if result.dtype in _WHOLE and all(type(size) is int and size == 1 for size in result.shape):
        result._disc_filled = bool(value) if result.dtype == torch.bool else int(value)  # type: ignore[attr-defined, arg-type]
        _known[id(result)] = result


def value_of(x: Any) -> int | bool | None:
    """The value of a tensor of one element, if it is known."""
    # A proxy of torch.fx has any attribute.
    return getattr(x, "_disc_filled", None) if isinstance(x, Tensor) else None


def forget(args: Sequence[Any], kwargs: Mapping[str, Any] | None) -> None:
    """Notes that something takes these arguments."""
    if not _known:
        return
    for x in pytree.tree_leaves((tuple(args), kwargs)):
        if value_of(x) is not None:
            del x._disc_filled
            _known.pop(id(x), None)
