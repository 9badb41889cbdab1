"""Fourier transforms of a given length, of which PyTorch asks whether the input is shorter or longer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .conditions import known_truth
from .dynamic import is_dynamic

_OF_HALVES = (torch.fft.irfft, torch.fft.hfft)
"""These take n // 2 + 1 elements, and return n."""
_TRANSFORMS = (torch.fft.fft, torch.fft.ifft, torch.fft.rfft, torch.fft.ihfft, *_OF_HALVES)


def _wanted(func: Any, x: Tensor, n: Any) -> Any:
    return n // 2 + 1 if func in _OF_HALVES else n


def _resized(x: Tensor, size: Any, dim: int) -> Tensor:
    """``x`` cut or followed by zeros along a dim."""
    blank = x.new_zeros([1 if d == dim else n for d, n in enumerate(x.shape)])
    place = torch.arange(size, device=x.device)
    return torch.cat([x, blank], dim).index_select(dim, place.clamp(max=x.shape[dim]))


def fft_call(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[..., Tensor] | None:
    """What to call in the place of ``func``, if the comparison is decided at run time only."""
    if func not in _TRANSFORMS or kwargs.get("out") is not None or not args:
        return None
    x, n = args[0], args[1] if len(args) > 1 else kwargs.get("n")
    dim = args[2] if len(args) > 2 else kwargs.get("dim", -1)
    if n is None or not isinstance(x, Tensor) or not x.dim():
        return None
    size = _wanted(func, x, n)
    extent = x.shape[dim]
    if not (is_dynamic(size) or is_dynamic(extent)) or known_truth(extent == size) is True:
        return None
    if known_truth(extent <= size) is not None and known_truth(extent >= size) is not None:
        return None

    def transform(input: Tensor, n: Any = None, dim: int = -1, norm: str | None = None) -> Tensor:
        resized = _resized(input, _wanted(func, input, n), dim % input.dim())
        return func(resized, n if func in _OF_HALVES else None, dim, norm)  # type: ignore[no-any-return]

    return transform
