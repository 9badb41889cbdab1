"""``x.data``, read and assigned: PyTorch's tracing turns the former into a constant and drops the latter."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ... import errors
from .sites import called_from


def _assign(x: Tensor, value: Tensor) -> None:
    if x.dtype != value.dtype or x.shape != value.shape:
        raise errors.ControlFlowError(
            "import",
            f"a tensor {list(value.shape)} of {value.dtype} is assigned to .data of one {list(x.shape)} of {x.dtype}, "
            "which must have the same shape and dtype in a compiled model",
            called_from(".data").source,
        )
    with torch.no_grad():
        x.copy_(value)


_CALLS: dict[str, Callable[..., Any]] = {"__get__": lambda x, *_: x.detach(), "__set__": _assign}


def data_call(func: Any) -> Callable[..., Any] | None:
    """The function that replaces reading or assigning ``.data``."""
    attribute = getattr(func, "__self__", None)
    # PyTorch makes the descriptor anew now and then: its identity says nothing.
    if type(attribute) is not types.GetSetDescriptorType or attribute.__name__ != "data":
        return None
    return _CALLS.get(func.__name__)


def assigns_data(func: Any) -> bool:
    """Whether a call assigns ``.data``."""
    return data_call(func) is _assign
