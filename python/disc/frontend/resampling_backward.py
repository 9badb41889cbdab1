"""Decompositions of the gradients of resized images; the forward operators have rules in ``rules/resampling.py``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

_Taps = list[tuple[Tensor, Tensor]]
"""Indices and weights [out] of the elements that an output along one dim is the weighted sum of."""


def _sources(size: Any, out: Any, scale: float | None, aligned: bool, dtype: torch.dtype) -> Tensor:
    """The place of each output along a dim among the input's elements: [out]."""
    place = torch.arange(out, dtype=dtype)
    if aligned:
        return place * ((size - 1) / torch.sym_max(out - 1, 1))
    return (place + 0.5) * _stride(size, out, scale) - 0.5


def _stride(size: Any, out: Any, scale: float | None) -> Any:
    return size / out if scale is None or scale <= 0 else 1 / scale


def _linear(source: Tensor, size: Any) -> _Taps:
    source = source.clamp(min=0)
    low = source.to(torch.int64).clamp(0, size - 1)
    share = (source - low).clamp(0, 1)
    return [(low, 1 - share), ((low + 1).clamp(0, size - 1), share)]


def _cubic(source: Tensor, size: Any) -> _Taps:
    """Keys, Cubic convolution interpolation, 1981, with A = -3/4."""
    a = -0.75
    whole = torch.floor(source)
    low, t = whole.to(torch.int64), source - whole

    def near(s: Tensor) -> Tensor:
        return ((a + 2) * s - (a + 3)) * s * s + 1

    def far(s: Tensor) -> Tensor:
        return ((a * s - 5 * a) * s + 8 * a) * s - 4 * a

    weights = [far(t + 1), near(t), near(1 - t), far(2 - t)]
    return [((low + (k - 1)).clamp(0, size - 1), weight) for k, weight in enumerate(weights)]


def _resized(count: int, taps: Callable[[Tensor, Any], _Taps]) -> Callable[..., Tensor]:
    """The gradient of an image resized in ``count`` dims: the taps' shares are added along one dim after another."""

    def backward(
        grad: Tensor, sizes: Sequence[Any], given: Sequence[Any], aligned: bool, *scales: float | None
    ) -> Tensor:
        dtype = torch.float64 if grad.dtype == torch.float64 else torch.float32
        result = grad.to(dtype)
        for d in range(count):
            dim, size = d + 2, given[d + 2]
            # The gradient's own size: that in ``sizes`` may be another expression of the same number.
            source = _sources(size, grad.shape[dim], scales[d] if scales else None, aligned, dtype)
            rest = [1] * (count - 1 - d)
            total = result.new_zeros([*result.shape[:dim], size, *result.shape[dim + 1 :]])
            for index, weight in taps(source, size):
                total = total.index_add(dim, index, result * weight.reshape(-1, *rest))
            result = total
        return result.to(grad.dtype)

    return backward


# -- with anti-aliasing --------------------------------------------------------------------------------------


def _triangle(t: Tensor) -> Tensor:
    return (1 - t).clamp(min=0)


def _keys(t: Tensor) -> Tensor:
    """Keys' cubic with A = -1/2, which anti-aliasing uses."""
    near = (1.5 * t - 2.5) * t * t + 1
    far = ((-0.5 * t + 2.5) * t - 4) * t + 2
    return torch.where(t < 1, near, torch.where(t < 2, far, 0.0))


def _antialiased(support: float, shape: Callable[[Tensor], Tensor]) -> Callable[..., Tensor]:
    def weights(size: Any, out: Any, scale: float | None, aligned: bool, dtype: torch.dtype) -> Tensor:
        """[out, size]: how much each input element counts for each output."""
        stride = (size - 1) / torch.sym_max(out - 1, 1) if aligned else _stride(size, out, scale)
        wide = torch.sym_max(stride, 1.0)
        centre = ((torch.arange(out, dtype=dtype) + 0.5) * stride).unsqueeze(1)
        first = (centre - wide * support + 0.5).to(torch.int64).clamp(min=0)
        last = (centre + wide * support + 0.5).to(torch.int64).clamp(max=size)
        j = torch.arange(size)
        value = shape(((j.to(dtype) - centre + 0.5) / wide).abs())
        value = torch.where((j >= first) & (j < last), value, 0.0)
        return value / value.sum(1, keepdim=True)

    def backward(
        grad: Tensor, sizes: Sequence[Any], given: Sequence[Any], aligned: bool, *scales: float | None
    ) -> Tensor:
        dtype = torch.float64 if grad.dtype == torch.float64 else torch.float32
        along, across = (
            weights(given[d + 2], grad.shape[d + 2], scales[d] if scales else None, aligned, dtype) for d in range(2)
        )
        return torch.matmul(along.T, torch.matmul(grad.to(dtype), across)).to(grad.dtype)

    return backward


_aten = torch.ops.aten

RESAMPLING: dict[Any, Callable[..., Any]] = {
    _aten.upsample_linear1d_backward.default: _resized(1, _linear),
    _aten.upsample_bilinear2d_backward.default: _resized(2, _linear),
    _aten.upsample_trilinear3d_backward.default: _resized(3, _linear),
    _aten.upsample_bicubic2d_backward.default: _resized(2, _cubic),
    _aten._upsample_bilinear2d_aa_backward.default: _antialiased(1.0, _triangle),
    _aten._upsample_bicubic2d_aa_backward.default: _antialiased(2.0, _keys),
}
