"""Regions that a Python function computes, for prototypes of back ends."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from .code import Linkable

_VERSION = 1


class View(ctypes.Structure):
    """``disc_view`` of ``disc_backend.h``."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("dtype", ctypes.c_int64),
        ("rank", ctypes.c_int64),
        ("dims", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
    ]


class _Run(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("operands", ctypes.POINTER(View)),
        ("num_inputs", ctypes.c_int64),
        ("num_results", ctypes.c_int64),
        ("numbers", ctypes.POINTER(ctypes.c_int64)),
        ("num_numbers", ctypes.c_int64),
        ("error", ctypes.c_void_p),
        ("error_size", ctypes.c_size_t),
    ]


_RUN = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.POINTER(_Run))


class _Table(ctypes.Structure):
    _fields_ = [
        ("version", ctypes.c_uint32),
        ("size", ctypes.c_uint32),
        ("init", ctypes.c_void_p),
        ("run", _RUN),
        ("release", ctypes.c_void_p),
    ]


_numbers = itertools.count()


@dataclass(frozen=True)
class Unbound:
    """Addresses for the symbols of tables, for code of which only ``init`` runs."""

    addresses: dict[str, int]
    owner: Any


def unbound_table(symbols: Iterable[str]) -> Unbound:
    """A table for all these symbols whose ``run`` fails: ahead of time, regions cannot run."""

    def run(_: Any, pointer: Any) -> int:
        text = b"a region that depends on parameters alone cannot run while a library is compiled: use packed=False"
        ctypes.memmove(pointer.contents.error, text + b"\0", len(text) + 1)
        return 1

    call = _RUN(run)
    made = _Table(_VERSION, ctypes.sizeof(_Table), None, call, None)
    return Unbound(dict.fromkeys(symbols, ctypes.addressof(made)), (made, call))


def table(function: Callable[..., Any], region: Any) -> Linkable:
    """A table whose ``run`` calls a function with tensors in the host's memory."""
    import torch

    dtypes = {f"torch.{value.dtype}": None for value in (*region.inputs, *region.results)}
    types = {name: getattr(torch, name.removeprefix("torch.")) for name in dtypes}
    inputs = [types[f"torch.{value.dtype}"] for value in region.run_inputs]
    results = [types[f"torch.{value.dtype}"] for value in region.results]

    def memory(view: View, dtype: torch.dtype) -> torch.Tensor:
        dims, strides = list(view.dims[: view.rank]), list(view.strides[: view.rank])
        if 0 in dims:
            return torch.empty(dims, dtype=dtype)
        last = sum((n - 1) * s for n, s in zip(dims, strides, strict=True))
        buffer = (ctypes.c_char * ((last + 1) * dtype.itemsize)).from_address(view.data)
        return torch.frombuffer(buffer, dtype=dtype).as_strided(dims, strides)

    def compute(run: _Run) -> None:
        given = [memory(run.operands[i], dtype) for i, dtype in enumerate(inputs)]
        computed = function(*given, *run.numbers[: run.num_numbers])
        computed = list(computed) if isinstance(computed, (tuple, list)) else [computed]
        if len(computed) != len(results):
            raise ValueError(f"the function returned {len(computed)} results, expected {len(results)}")
        for i, (found, dtype) in enumerate(zip(computed, results, strict=True)):
            place = memory(run.operands[len(inputs) + i], dtype)
            if not hasattr(found, "__dlpack__"):
                raise TypeError(f"result {i} must be a tensor, got {type(found).__name__}")
            found = torch.from_dlpack(found)
            if found.dtype != dtype or found.shape != place.shape:
                raise ValueError(
                    f"result {i} is {found.dtype} of shape {list(found.shape)}, expected {dtype} of shape "
                    f"{list(place.shape)}"
                )
            place.copy_(found)

    def run(_: Any, pointer: Any) -> int:
        try:
            with torch.no_grad():
                compute(pointer.contents)
        except BaseException as error:  # It goes on as the failure of the call.
            text = f"{type(error).__name__}: {error}".encode()[: pointer.contents.error_size - 1]
            ctypes.memmove(pointer.contents.error, text + b"\0", len(text) + 1)
            return 1
        return 0

    call = _RUN(run)
    made = _Table(_VERSION, ctypes.sizeof(_Table), None, call, None)
    return Linkable(f"disc_region_python_{next(_numbers)}", ctypes.addressof(made), (made, call))
