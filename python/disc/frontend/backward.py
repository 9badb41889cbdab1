"""Decompositions of backward operators for which PyTorch has none."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ..torch_compat.operators import OperatorBase, suggest_memory_format


def _replication_pad(count: int) -> Callable[..., Tensor]:
    """The gradient of an image whose border is repeated: a sum for each pixel."""

    def backward(grad: Tensor, x: Tensor, padding: Sequence[int]) -> Tensor:
        result = grad
        for d in range(count):
            dim = x.dim() - 1 - d
            size = x.shape[dim]
            source = (torch.arange(grad.shape[dim]) - padding[2 * d]).clamp(0, size - 1)
            shape = [*result.shape[:dim], size, *result.shape[dim + 1 :]]
            result = result.new_zeros(shape).index_add(dim, source, result)
        layout = suggest_memory_format(x) if x.dim() in (4, 5) else torch.contiguous_format
        return result.clone(memory_format=layout)

    return backward


# -- sampling at data-dependent places -----------------------------------------------------------------------

_ZEROS, _BORDER = 0, 1
_NEAREST, _CUBIC = 1, 2


def _scaled(place: Tensor, size: Any, aligned: bool) -> tuple[Tensor, Any]:
    """A place in -1 ... 1 as a place among pixels, and how fast that changes."""
    if aligned:
        return (place + 1) * ((size - 1) / 2), (size - 1) / 2
    return ((place + 1) * size - 1) / 2, size / 2


def _clipped(place: Tensor, size: Any) -> tuple[Tensor, Tensor]:
    inside = (place > 0) & (place < size - 1)
    return place.clamp(0, size - 1), inside.to(place.dtype)


def _padded(place: Tensor, size: Any, padding: int, aligned: bool) -> tuple[Tensor, Any]:
    """A place among pixels moved into the image, as the padding says, and how fast that changes."""
    if padding == _ZEROS:
        return place, 1.0
    if padding == _BORDER:
        return _clipped(place, size)
    low, span = (0.0, size - 1) if aligned else (-0.5, size)
    away = place - low
    # An image of one pixel has no other place.
    length = torch.sym_max(span, 1)
    rest, flips = torch.fmod(away.abs(), length), torch.floor(away.abs() / length)
    even = torch.fmod(flips, 2) == 0
    back = torch.where(even, rest, length - rest) + low
    sign = torch.where(away < 0, -1.0, 1.0) * torch.where(even, 1.0, -1.0)
    alone = (torch.zeros_like(place) + span) == 0
    clipped, inside = _clipped(torch.where(alone, 0.0, back), size)
    return clipped, torch.where(alone, 0.0, sign * inside)


class _Images:
    """Images [n, c, sizes], read and added to at whole places: [n, t, p] where t of them belong to each gradient."""

    def __init__(self, x: Tensor, grad: Tensor, count: int, dtype: torch.dtype) -> None:
        self.sizes = x.shape[-count:]
        self._pixels = x.reshape(*x.shape[:2], -1).to(dtype)
        self._grad = grad.reshape(*grad.shape[:2], 1, -1).to(dtype)
        self._sums = self._pixels
        self._shape = x.shape

    def visit(self, places: Sequence[Tensor], weight: Tensor) -> Tensor:
        """Adds the gradient times the weight there; the result is the sum over channels of pixel times gradient."""
        flat, inside = torch.zeros_like(places[0]), torch.ones_like(places[0], dtype=torch.bool)
        for place, size in zip(places, self.sizes, strict=True):
            inside = inside & (place >= 0) & (place <= size - 1)
            flat = flat * size + place.clamp(0, size - 1)
        n, c = self._shape[:2]
        flat = torch.where(inside, flat, 0.0).to(torch.int64).reshape(n, 1, -1).expand(n, c, -1)
        added = self._grad * torch.where(inside, weight, 0.0).unsqueeze(1)
        self._sums = torch.zeros_like(self._pixels).scatter_add(2, flat, added.reshape(n, c, -1))
        pixels = self._pixels.gather(2, flat).reshape(added.shape)
        return (torch.where(inside.unsqueeze(1), pixels, 0.0) * self._grad).sum(1)

    def sums(self, dtype: torch.dtype) -> Tensor:
        """The gradient of the images."""
        return self._sums.reshape(self._shape).to(dtype)


def _cubic(away: Tensor) -> tuple[Tensor, Tensor]:
    """The weight of a neighbour whose place is ``away`` smaller, and how fast it changes."""
    a, d = -0.75, away.abs()
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    near_slope = (3 * (a + 2) * d - 2 * (a + 3)) * d
    far_slope = (3 * a * d - 10 * a) * d + 8 * a
    is_near = d <= 1
    return torch.where(is_near, near, far), torch.where(is_near, near_slope, far_slope) * torch.sign(away)


def _grid_sampler(count: int) -> Callable[..., tuple[Tensor | None, Tensor | None]]:
    """The gradients of images and places of ``grid_sample`` in ``count`` dims."""

    def backward(
        grad: Tensor, x: Tensor, grid: Tensor, mode: int, padding: int, aligned: bool, wanted: Sequence[bool]
    ) -> tuple[Tensor | None, Tensor | None]:
        dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
        images = _Images(x, grad, count, dtype)
        # The last number of a place is along the last dim.
        given = [grid[..., count - 1 - k].reshape(grid.shape[0], 1, -1).to(dtype) for k in range(count)]
        scaled = [_scaled(g, size, aligned) for g, size in zip(given, images.sizes, strict=True)]
        if mode == _CUBIC:
            slopes = _visit_cubic(images, [place for place, _ in scaled], padding, aligned)
            slopes = [slope * factor for slope, (_, factor) in zip(slopes, scaled, strict=True)]
        else:
            moved = [_padded(s, size, padding, aligned) for (s, _), size in zip(scaled, images.sizes, strict=True)]
            slopes = _visit(images, [place for place, _ in moved], mode)
            factors = [inner * factor for (_, inner), (_, factor) in zip(scaled, moved, strict=True)]
            slopes = [
                slope * (factor[:, 0] if isinstance(factor, Tensor) else factor)
                for slope, factor in zip(slopes, factors, strict=True)
            ]
        of_grid = torch.stack(slopes[::-1], -1).reshape(grid.shape).to(grid.dtype)
        return images.sums(x.dtype) if wanted[0] else None, of_grid if wanted[1] else None

    return backward


def _visit(images: _Images, places: list[Tensor], mode: int) -> list[Tensor]:
    """How fast the sum of products changes with each place; the images' gradients are added on the way."""
    if mode == _NEAREST:
        images.visit([torch.round(place) for place in places], torch.ones_like(places[0]))
        return [torch.zeros_like(place[:, 0]) for place in places]
    count = len(places)
    corner = torch.arange(2**count).unsqueeze(1)
    bits = [(corner // 2**k) % 2 for k in range(count)]
    near = [torch.floor(place) + bit for place, bit in zip(places, bits, strict=True)]
    shares = [1 - (place - n).abs() for place, n in zip(places, near, strict=True)]
    product = images.visit(near, _product(shares))
    return [(product * _product([2 * bit - 1, *shares[:k], *shares[k + 1 :]])).sum(1) for k, bit in enumerate(bits)]


def _visit_cubic(images: _Images, places: list[Tensor], padding: int, aligned: bool) -> list[Tensor]:
    tap = torch.arange(16).unsqueeze(1)
    near = [torch.floor(place) + (step - 1) for place, step in zip(places, (tap // 4, tap % 4), strict=True)]
    rows, columns = (_cubic(place - n) for place, n in zip(places, near, strict=True))
    moved = [_padded(n, size, padding, aligned)[0] for n, size in zip(near, images.sizes, strict=True)]
    product = images.visit([torch.trunc(m) for m in moved], rows[0] * columns[0])
    return [(product * rows[1] * columns[0]).sum(1), (product * rows[0] * columns[1]).sum(1)]


def _product(factors: Sequence[Tensor]) -> Tensor:
    return functools.reduce(operator.mul, factors)


# -- bags of embeddings --------------------------------------------------------------------------------------

_MEAN, _MAX = 1, 2


def _embedding_bag(
    grad: Tensor,
    indices: Tensor,
    offsets: Tensor,
    bag_of: Tensor,
    bag_size: Tensor,
    maxima: Tensor,
    rows: int,
    by_frequency: bool,
    mode: int,
    sparse: bool,
    weights: Tensor | None,
    padding: int = -1,
) -> Tensor:
    """The gradient of the rows: of each bag's, for each index in it."""
    if sparse:
        return NotImplemented
    return _embedding_bag_dense(
        grad, indices, _bags(bag_of, indices, offsets), bag_size, maxima, rows, by_frequency, mode, weights, padding
    )


def _bags(bag_of: Tensor, indices: Tensor, offsets: Tensor) -> Tensor:
    """The bag of each index, which the sum of bags does not keep."""
    if bag_of.numel() != 0:
        return bag_of
    return torch.searchsorted(offsets, torch.arange(indices.shape[0], dtype=offsets.dtype), right=True) - 1


def _embedding_bag_dense(
    grad: Tensor,
    indices: Tensor,
    bag_of: Tensor,
    bag_size: Tensor,
    maxima: Tensor,
    rows: int,
    by_frequency: bool,
    mode: int,
    weights: Tensor | None,
    padding: int = -1,
) -> Tensor:
    zeros = grad.new_zeros([rows, grad.shape[1]])
    if mode == _MAX:
        counted = (bag_size[: grad.shape[0]] != 0).unsqueeze(1)
        return zeros.scatter_add(0, maxima.to(torch.int64), torch.where(counted, grad, 0))
    each = grad.index_select(0, bag_of)
    if weights is not None:
        each = each * weights.unsqueeze(1)
    if mode == _MEAN:
        each = each / bag_size.index_select(0, bag_of).unsqueeze(1).to(grad.dtype)
    if by_frequency:
        counts = torch.zeros([rows], dtype=torch.int64).index_add(0, indices, torch.ones_like(indices).to(torch.int64))
        each = each / counts.index_select(0, indices).unsqueeze(1).to(grad.dtype)
    if padding >= 0:
        each = torch.where((indices == padding).unsqueeze(1), 0, each)
    return zeros.index_add(0, indices, each)


def _embedding_bag_weights(
    grad: Tensor, weight: Tensor, indices: Tensor, offsets: Tensor, bag_of: Tensor, mode: int, padding: int = -1
) -> Tensor:
    """The gradient of the weight that each index has in its bag."""
    bags = _bags(bag_of, indices, offsets)
    result = (grad.index_select(0, bags) * weight.index_select(0, indices)).sum(1)
    return torch.where(indices == padding, 0, result) if padding >= 0 else result


# -- attention -----------------------------------------------------------------------------------------------


def _attention(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    sums: Tensor,
    dropout: float,
    causal: bool,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of attention; all tensors are [batch, heads, length, size of a head].

    The weights are computed again from queries and keys, so ``sums``, the logarithms of their sums, are not needed.
    Half-precision numbers are computed in float32. Equations: Dao et al., FlashAttention, 2022, appendix B.2.
    """
    dtype = query.dtype
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    grad, out = grad.to(wide), out.to(wide)
    q, k, v = query.to(wide), key.to(wide), value.to(wide)
    factor = query.shape[-1] ** -0.5 if scale is None else scale
    scores = torch.matmul(q, k.transpose(-2, -1)) * factor
    if causal:
        rows = torch.arange(q.shape[-2], device=q.device).unsqueeze(1)
        columns = torch.arange(k.shape[-2], device=q.device).unsqueeze(0)
        scores = torch.where(columns <= rows, scores, -float("inf"))
    if attn_mask is not None:
        if attn_mask.dtype == torch.bool:
            scores = torch.where(attn_mask, scores, -float("inf"))
        else:
            scores = scores + attn_mask.to(wide)
    weights = torch.softmax(scores, -1)
    if attn_mask is not None:
        # A query that sees no key has no weights.
        hidden = scores.amax(-1, keepdim=True) == -float("inf")
        weights = torch.where(hidden, 0.0, weights)
    of_value = torch.matmul(weights.transpose(-2, -1), grad)
    change = torch.matmul(grad, v.transpose(-2, -1)) - (grad * out).sum(-1, keepdim=True)
    of_scores = weights * change * factor
    of_query, of_key = torch.matmul(of_scores, k), torch.matmul(of_scores.transpose(-2, -1), q)
    return of_query.to(dtype), of_key.to(dtype), of_value.to(dtype)


_aten = torch.ops.aten

BACKWARD: dict[OperatorBase, Callable[..., Any]] = {
    **{getattr(_aten, f"replication_pad{count}d_backward").default: _replication_pad(count) for count in (1, 2, 3)},
    _aten.grid_sampler_2d_backward.default: _grid_sampler(2),
    _aten.grid_sampler_3d_backward.default: _grid_sampler(3),
    _aten._scaled_dot_product_flash_attention_for_cpu_backward.default: _attention,
    _aten._embedding_bag_backward.default: _embedding_bag,
    _aten._embedding_bag_dense_backward.default: _embedding_bag_dense,
    _aten._embedding_bag_per_sample_weights_backward.default: _embedding_bag_weights,
}
