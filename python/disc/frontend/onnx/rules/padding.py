"""Pad, Resize, and what else reads its operand at computed places."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch_mlir.dialects import linalg

from ... import scalar
from ...registry import NotLowerable, lowers
from ...scalar import Elem
from ...values import Extent, Tensor, normalize_dim
from ..builder import OnnxBuilder, known
from ..known import Known, integers


@lowers("onnx.Pad")
@known(1, 2, 3)
def pad_(
    b: OnnxBuilder,
    x: Tensor,
    given: Any = None,
    value: Any = None,
    along: Any = None,
    mode: str = "constant",
    pads: list[int] | None = None,
) -> Tensor:
    """Extends (or, by negative numbers, cuts) each dim at both ends."""
    amounts = b.extents(given) if given is not None else list(pads or ())
    dims = [normalize_dim(d, x.rank) for d in integers(along) or range(x.rank)]
    half = len(amounts) // 2
    before: list[Extent] = [0] * x.rank
    after: list[Extent] = [0] * x.rank
    for i, dim in enumerate(dims):
        before[dim], after[dim] = amounts[i], amounts[half + i]
    fill: Any = 0
    if value is not None:
        fill = value.list[0] if isinstance(value, Known) and value.static else b.tensor(value)
    return pad(b, x, before, after, mode, fill)


def pad(
    b: OnnxBuilder, x: Tensor, before: Sequence[Extent], after: Sequence[Extent], mode: str = "constant", fill: Any = 0
) -> Tensor:
    """x with ``before`` and ``after`` more elements at the ends of each dim; ``fill`` is a number or a 0-d tensor."""
    padded = [i for i in range(x.rank) if before[i] != 0 or after[i] != 0]
    if not padded:
        return x
    dims = [b.add(b.add(x.dims[i], before[i]), after[i]) for i in range(x.rank)]

    def body() -> Elem:
        at: list[Any] = [linalg.IndexOp(d).result for d in range(x.rank)]
        inside = scalar.constant(True, torch.bool)
        for i in padded:
            index = scalar.loop_index(i) - scalar.from_extent(before[i], torch.int64)
            extent = scalar.from_extent(x.dims[i], torch.int64)
            last = extent - 1
            if mode == "constant":
                inside = inside & (index >= 0) & (index < extent)
            elif mode == "reflect":
                period = scalar.maximum(last * 2, 1)
                index = scalar.remainder(index, period)
                index = scalar.select(index > last, period - index, index)
            elif mode == "wrap":
                index = scalar.remainder(index, extent)
            elif mode != "edge":
                raise NotLowerable(f"mode {mode!r}")
            at[i] = scalar.maximum(scalar.minimum(index, last), 0)
        element = b.extract(x, at)
        if mode != "constant":
            return element
        other = (
            b.extract(fill, [scalar.constant(0, torch.int64)] * fill.rank)
            if isinstance(fill, Tensor)
            else element.like(fill)
        )
        return scalar.select(inside, element, other)

    return b.generic([], [], dims, x.dtype, body)


@lowers("onnx.CenterCropPad")
@known(1)
def center_crop_pad(b: OnnxBuilder, x: Tensor, shape: Any, axes: list[int] | None = None) -> Tensor:
    """The middle of x where it is larger than ``shape``, with zeros around it where it is smaller."""
    wanted = b.extents(shape)
    before: list[Extent] = [0] * x.rank
    after: list[Extent] = [0] * x.rank
    for i, extent in zip(axes if axes is not None else range(x.rank), wanted, strict=True):
        dim = normalize_dim(i, x.rank)
        missing = b.sub(extent, x.dims[dim])
        if isinstance(missing, int):
            # Of an odd number the smaller half comes first, be it added or cut.
            before[dim] = missing // 2 if missing >= 0 else -(-missing // 2)
        else:
            add, cut = b.maximum(missing, 0), b.maximum(b.sub(x.dims[dim], extent), 0)
            before[dim] = b.sub(b.floordiv(add, 2), b.floordiv(cut, 2))
        after[dim] = b.sub(missing, before[dim])
    return pad(b, x, before, after)
