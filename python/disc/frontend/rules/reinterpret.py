"""Views of a tensor's bytes as another dtype."""

from __future__ import annotations

from typing import Any

import torch
from torch_mlir.dialects import arith

from .. import dtypes, scalar
from ..builder import Builder
from ..registry import NotLowerable, lowers
from ..scalar import Elem
from ..values import Tensor
from .common import loops

_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def _integer(x: Elem) -> Elem:
    """The bits of an element as an integer of its width."""
    stored = Elem(x.value, dtypes.storage(x.dtype))
    if stored.dtype == torch.bool:
        return stored.to(torch.uint8)
    kind = _INTEGERS[stored.dtype.itemsize]
    if not dtypes.is_float(stored.dtype):
        return Elem(stored.value, kind)
    return Elem(arith.BitcastOp(dtypes.element_type(kind), stored.value).result, kind)


def _of_integer(x: Elem, dtype: torch.dtype) -> Elem:
    stored = dtypes.storage(dtype)
    if stored == torch.bool:
        return x.ne(0)
    if not dtypes.is_float(stored):
        return Elem(x.value, dtype)
    return Elem(arith.BitcastOp(dtypes.element_type(stored), x.value).result, dtype)


def _wide(x: Elem) -> Elem:
    """The bits of a narrow integer at the low end of an i64, with zeros above."""
    unsigned = {1: torch.uint8, 2: torch.uint16, 4: torch.uint32, 8: torch.int64}[x.dtype.itemsize]
    return Elem(x.value, unsigned).to(torch.int64)


@lowers("torch.aten.view.dtype")
def view_dtype(b: Builder, x: Tensor, *_: Any) -> Tensor:
    """The same bytes as elements of another dtype; the last dimension grows or shrinks with the element size."""
    dtype = b.out.dtype
    if dtypes.is_complex(x.dtype):
        pairs = b.as_pairs(x)
        x = b.reshape(pairs, [*x.dims[:-1], b.mul(x.dims[-1], 2)] if x.rank else pairs.dims)
    part = dtypes.part(dtype)
    result = _as(b, x, part)
    if not dtypes.is_complex(dtype):
        return result
    return b.as_complex(b.reshape(result, [*result.dims[:-1], b.floordiv(result.dims[-1], 2), 2]))


def _as(b: Builder, x: Tensor, dtype: torch.dtype) -> Tensor:
    have, want = dtypes.storage(x.dtype).itemsize, dtypes.storage(dtype).itemsize
    if x.dtype == dtype:
        return x
    if have == want:
        return b.map(dtype, [x], lambda e: _of_integer(_integer(e), dtype), dims=x.dims)
    if x.rank == 0:
        raise NotLowerable("a view of a tensor without dimensions as a dtype of another size")
    if have > want:
        return _split(b, x, dtype, have // want)
    return _merged(b, x, dtype, want // have)


def _split(b: Builder, x: Tensor, dtype: torch.dtype, ratio: int) -> Tensor:
    """The low bytes of an element come first."""
    size = dtypes.storage(dtype).itemsize

    def body() -> Elem:
        *outer, at = loops(x.rank)
        bits = _wide(_integer(b.extract(x, [*outer, scalar.floor_divide(at, ratio)])))
        shift = scalar.remainder(at, ratio) * (8 * size)
        low = Elem(arith.ShRUIOp(bits.value, shift.value).result, torch.int64)
        return _of_integer(low.to(_INTEGERS[size]), dtype)

    return b.generic([], [], [*x.dims[:-1], b.mul(x.dims[-1], ratio)], dtype, body)


def _merged(b: Builder, x: Tensor, dtype: torch.dtype, ratio: int) -> Tensor:
    count = b.floordiv(x.dims[-1], ratio)
    b.require_equal(b.mul(count, ratio), x.dims[-1], f"view(dtype): the last dimension is not divisible by {ratio}")
    width = 8 * dtypes.storage(x.dtype).itemsize

    def body() -> Elem:
        *outer, at = loops(x.rank)
        total = scalar.constant(0, torch.int64)
        for i in range(ratio):
            bits = _wide(_integer(b.extract(x, [*outer, at * ratio + i])))
            total = total | Elem(arith.ShLIOp(bits.value, bits.like(i * width).value).result, torch.int64)
        return _of_integer(total.to(_INTEGERS[dtypes.storage(dtype).itemsize]), dtype)

    return b.generic([], [], b.as_exported([*x.dims[:-1], count]), dtype, body)
