"""Tensors of one integer where functions of PyTorch take sizes: ``x.view(h, w, -1)`` after ``h, w = grid``."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ...torch_compat.operators import OpOverloadPacket
from .conditions import constant_of

_INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
_NAMES = ("size", "shape", "sizes", "repeats")
_NARROWING = (torch.narrow, Tensor.narrow)
"""These take a position and a size behind a dim."""


def with_numbers(
    func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None
) -> tuple[tuple[Any, ...], Mapping[str, Any] | None]:
    """The arguments, with numbers in the place of such tensors. PyTorch would ask for the tensors' values."""
    if func in _NARROWING:
        kwargs = {name: _numbers(x) for name, x in (kwargs or {}).items()}
        return (*args[:2], *map(_numbers, args[2:])), kwargs
    if any(map(_has_tensor, args)) and (first := _place_of_sizes(func)) is not None and first < len(args):
        several = type(args[first]) in (list, tuple)
        last = first + 1 if several else len(args)
        args = tuple(_numbers(x) if first <= place < last else x for place, x in enumerate(args))
    if kwargs and any(_has_tensor(kwargs.get(name)) for name in _NAMES) and _place_of_sizes(func) is not None:
        kwargs = {name: _numbers(x) if name in _NAMES else x for name, x in kwargs.items()}
    return args, kwargs


def _is_number(x: Any) -> bool:
    return isinstance(x, Tensor) and x.dim() == 0 and x.dtype in _INTEGERS and constant_of(x) is None


def _has_tensor(x: Any) -> bool:
    return any(map(_is_number, x)) if type(x) in (list, tuple) else _is_number(x)


def _numbers(x: Any) -> Any:
    if type(x) in (list, tuple):
        return type(x)(map(_numbers, x))
    if not _is_number(x):
        return x
    number = x.item()
    torch._check(number >= 0)
    return number


@functools.lru_cache(1024)
def _place_of_sizes(func: Any) -> int | None:
    """The place of the list of sizes, or of the first one; None if there is no such place."""
    name = getattr(func, "__name__", "")
    packet = getattr(torch.ops.aten, name, None) if name.isidentifier() and not name.startswith("_") else None
    if not isinstance(packet, OpOverloadPacket):
        return None
    for overload in packet.overloads():
        for place, argument in enumerate(getattr(packet, overload)._schema.arguments):
            if argument.name in _NAMES and "List[int]" in str(argument.type) and not argument.kwarg_only:
                return place
    return None
