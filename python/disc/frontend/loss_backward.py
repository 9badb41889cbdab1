"""Decompositions of the gradients of margin losses, of segments, and of selections by a mask."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

_NONE, _MEAN = 0, 1
"""How a loss of several rows is reduced."""


def _hardshrink(grad: Tensor, x: Tensor, limit: float) -> Tensor:
    return torch.where((x >= -limit) & (x <= limit), 0.0, grad)


def _of_rows(grad: Tensor, rows: Any, reduction: int) -> Tensor:
    """The gradient of each row's loss: [rows, 1], or of one number."""
    if reduction == _NONE:
        return grad.reshape(-1, 1)
    return grad / rows if reduction == _MEAN else grad


def _multi_margin(
    grad: Tensor, x: Tensor, target: Tensor, p: float, margin: float, weight: Tensor | None = None, reduction: int = 1
) -> Tensor:
    rows = x.reshape(-1, x.shape[-1])
    index = target.reshape(-1, 1)
    over = margin - rows.gather(1, index) + rows
    others = torch.arange(rows.shape[1]).unsqueeze(0) != index
    slope = torch.ones_like(over) if p == 1 else 2 * over
    slope = torch.where((over > 0) & others, slope, 0.0) / rows.shape[1]
    if weight is not None:
        slope = slope * weight.index_select(0, index.reshape(-1)).unsqueeze(1)
    slope = slope * _of_rows(grad, rows.shape[0], reduction)
    return slope.scatter_add(1, index, -slope.sum(1, keepdim=True)).reshape(x.shape)


def _multilabel_margin(grad: Tensor, x: Tensor, target: Tensor, reduction: int, is_target: Tensor) -> Tensor:
    """Each target, up to the first negative one, is compared with every class that is not a target."""
    rows, targets = (t.reshape(-1, x.shape[-1]) for t in (x, target))
    counts = (targets < 0).to(torch.int64).cumsum(1) == 0
    index = targets.clamp(min=0)
    over = 1 - rows.gather(1, index).unsqueeze(2) + rows.unsqueeze(1)
    compared = counts.unsqueeze(2) & (is_target.reshape(rows.shape) == 0).unsqueeze(1)
    slope = ((over > 0) & compared).to(x.dtype) / rows.shape[1]
    slope = slope * _of_rows(grad, rows.shape[0], reduction).unsqueeze(-1)
    return slope.sum(1).scatter_add(1, index, -slope.sum(2)).reshape(x.shape)


def _masked_scatter(grad: Tensor, mask: Tensor, sizes: Sequence[Any]) -> Tensor:
    """The gradient of the source: its elements went in order to where the mask is true."""
    mask = mask.expand(grad.shape).reshape(-1)
    count = math.prod(sizes)
    place = torch.where(mask, mask.to(torch.int64).cumsum(0) - 1, count)
    return grad.new_zeros([count + 1]).index_add(0, place, grad.reshape(-1))[:count].reshape(sizes)


def _masked_softmax(grad: Tensor, output: Tensor, mask: Tensor, dim: int | None = None) -> Tensor:
    dim = -1 if dim is None else dim
    kept = torch.where(mask, 0.0, output)
    product = grad * kept
    return product - kept * product.sum(dim, keepdim=True)


# -- segments ------------------------------------------------------------------------------------------------


def _segment_reduce(
    grad: Tensor,
    output: Tensor,
    x: Tensor,
    fold: str,
    *,
    lengths: Tensor | None = None,
    offsets: Tensor | None = None,
    axis: int = 0,
    initial: float | None = None,
) -> Tensor:
    outer, inner, rows = math.prod(x.shape[:axis]), math.prod(x.shape[axis + 1 :]), x.shape[axis]
    if offsets is None:
        assert lengths is not None
        ends = lengths.reshape(outer, lengths.shape[-1]).to(torch.int64).cumsum(1)
        offsets = torch.cat([ends.new_zeros([outer, 1]), ends], 1)
    offsets = offsets.reshape(outer, offsets.shape[-1]).to(torch.int64)
    segments = offsets.shape[1] - 1
    numbers = torch.arange(rows).unsqueeze(0).expand(outer, rows).contiguous()
    segment = torch.searchsorted(offsets, numbers, right=True) - 1
    inside = ((segment >= 0) & (segment < segments)).unsqueeze(2)
    segment = segment.clamp(0, segments - 1).unsqueeze(2).expand(outer, rows, inner)
    x3 = x.reshape(outer, rows, inner)

    def of_row(value: Tensor) -> Tensor:
        return value.reshape(outer, segments, inner).gather(1, segment)

    def sums(value: Tensor) -> Tensor:
        value = torch.where(inside, value, 0.0)
        return value.new_zeros([outer, segments, inner]).scatter_add(1, segment, value)

    each = of_row(grad)
    if fold == "mean":
        each = each / (offsets[:, 1:] - offsets[:, :-1]).unsqueeze(2).expand(outer, segments, inner).gather(1, segment)
    elif fold in ("max", "min"):
        chosen = (x3 == of_row(output)) | ((x3 != x3) & (of_row(output) != of_row(output)))
        each = torch.where(chosen, each / of_row(sums(chosen.to(x.dtype))), 0.0)
    elif fold == "prod":
        zero = x3 == 0
        zeros = of_row(sums(zero.to(x.dtype)))
        factors = torch.where(inside & ~zero, x3, 1.0)
        start = x.new_full([outer, segments, inner], 1.0 if initial is None else initial)
        product = of_row(start.scatter_reduce(1, segment, factors, "prod"))
        others = torch.where(zero, product, product / x3)
        each = torch.where(zeros == zero.to(x.dtype), each * others, 0.0)
    return torch.where(inside, each, 0.0).reshape(x.shape)


_aten = torch.ops.aten

LOSSES: dict[Any, Callable[..., Any]] = {
    _aten.hardshrink_backward.default: _hardshrink,
    _aten.softshrink_backward.default: _hardshrink,
    _aten.multi_margin_loss_backward.default: _multi_margin,
    _aten.multilabel_margin_loss_backward.default: _multilabel_margin,
    _aten.masked_scatter_backward.default: _masked_scatter,
    _aten._masked_softmax_backward.default: _masked_softmax,
    _aten._segment_reduce_backward.default: _segment_reduce,
}
