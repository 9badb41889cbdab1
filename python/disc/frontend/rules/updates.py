"""Tensors with a part replaced: the functional form of ``x[:, i] = y``.

If x is an argument that the model updates, the function ``insert`` writes only the part (lib/Runtime/Functions).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch_mlir import ir

from ..builder import Builder
from ..registry import NotLowerable, lowers
from ..values import Extent, RuntimeNumber, Tensor, is_one, normalize_dim
from .common import number
from .scatter import index_put
from .views import from_start, slice_bounds


@lowers("torch.aten.copy")
def copy(b: Builder, x: Tensor, src: Tensor, non_blocking: bool = False) -> Tensor:
    """``src`` in the shape and the dtype of ``x``."""
    return b.broadcast(_converted(b, src, x), x.dims)


@lowers("torch.aten.slice_scatter")
def slice_scatter(
    b: Builder,
    x: Tensor,
    src: Tensor,
    dim: int = 0,
    start: Extent | None = None,
    end: Extent | None = None,
    step: int = 1,
) -> Tensor:
    """``x`` with ``src`` in the place of x[start:end:step] along ``dim``."""
    dim = normalize_dim(dim, x.rank)
    begin, length = slice_bounds(b, x.dims[dim], start, end, 3)
    length = length if step == 1 else b.floordiv(b.add(length, step - 1), step)
    _require_shape(b, src, [*x.dims[:dim], length, *x.dims[dim + 1 :]])
    return _replaced(b, x, _converted(b, src, x), dim, begin, step)


@lowers("torch.aten.select_scatter")
def select_scatter(b: Builder, x: Tensor, src: Tensor, dim: int, index: Extent | RuntimeNumber) -> Tensor:
    """``x`` with ``src`` in the place of its slice ``index`` along ``dim``."""
    dim = normalize_dim(dim, x.rank)
    if isinstance(index, RuntimeNumber):
        # It may be negative, and is checked.
        at = b.map(torch.int64, [number(index)], lambda e: e, number_dtype=torch.int64, dims=[])
        return index_put(b, x, [*[None] * dim, at], _converted(b, src, x))
    index = from_start(b, index, x.dims[dim], b.operand_value(3))
    _require_shape(b, src, [*x.dims[:dim], *x.dims[dim + 1 :]])
    b.require_at_most(0, index, "the index of a slice is out of range")
    b.require_at_most(b.add(index, 1), x.dims[dim], "the index of a slice is out of range")
    return _replaced(b, x, b.reshape(_converted(b, src, x), [*x.dims[:dim], 1, *x.dims[dim + 1 :]]), dim, index, 1)


def _require_shape(b: Builder, src: Tensor, dims: Sequence[Extent]) -> None:
    """Requires what replaces a slice to have its shape: nothing is broadcast."""
    if src.rank != len(dims):
        raise NotLowerable(f"a slice of {len(dims)} dimensions is replaced by a tensor of {src.rank}")
    for have, want in zip(src.dims, dims, strict=True):
        b.require_equal(have, want, "a slice and what replaces it differ in size")


def _converted(b: Builder, src: Tensor, x: Tensor) -> Tensor:
    return src if src.dtype == x.dtype else b.elementwise(x.dtype, [src], lambda s: s.to(x.dtype))


def _replaced(b: Builder, x: Tensor, src: Tensor, dim: int, begin: Extent, step: int) -> Tensor:
    size, extent = src.dims[dim], x.dims[dim]
    if begin == 0 and step == 1 and size == extent:
        return src
    if _is_stored(x.value) or (step != 1 and not is_one(size)):
        return b.call("insert", [x, src], [(x.dims, x.dtype)], config=[dim, begin, step], in_place=True)[0]
    behind = b.add(begin, size)
    pieces = [src]
    if begin != 0:
        pieces.insert(0, b.slice(x, dim, 0, begin))
    if behind != extent:
        pieces.append(b.slice(x, dim, behind, b.sub(extent, behind)))
    # The sum of the pieces' extents is x's, which nothing else would know.
    return b.reshape(b.concat(pieces, dim), x.dims)


def _is_stored(value: ir.Value) -> bool:
    """Whether it is an argument of the program, with parts replaced or not."""
    while True:
        owner = value.owner
        if isinstance(owner, ir.Block):
            return True
        if owner.name != "disc_tensor.call" or "in_place" not in owner.attributes:
            return False
        value = owner.operands[0]
