"""Functions of PyTorch that take Python ints alone, in terms of others that take symbolic ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def _linspace(start: Any, end: Any, steps: Any, **options: Any) -> Tensor:
    # From both ends to the middle, as PyTorch does: the last element is exactly `end`.
    dtype = options.pop("dtype", None) or torch.get_default_dtype()
    index = torch.arange(steps, dtype=dtype if dtype.is_floating_point else torch.float64, **_kept(options))
    step = (end - start) / torch.clamp(index.new_full((), steps - 1), min=1)
    values = torch.where(index * 2 < steps, start + step * index, end - step * (steps - 1 - index))
    return values.to(dtype)


def _logspace(start: Any, end: Any, steps: Any, base: float = 10.0, **options: Any) -> Tensor:
    return torch.pow(base, _linspace(start, end, steps, **options))


def _one_hot(tensor: Tensor, num_classes: Any = -1) -> Tensor:
    classes = torch.arange(num_classes, device=tensor.device)
    inside = ((tensor >= 0) & (tensor < num_classes)).all()
    torch._assert_async(inside, "one_hot: an element is negative or not less than num_classes")
    return (tensor.unsqueeze(-1) == classes).to(torch.int64)


def _istft(
    input: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: Any = None,
    return_complex: bool = False,
) -> Tensor:
    hop = n_fft // 4 if hop_length is None else hop_length
    given = n_fft + hop * (input.shape[-1] - 1) - (n_fft // 2 if center else 0)
    options = (center, normalized, onesided, given, return_complex)
    signal = torch._refs.istft(input, n_fft, hop, win_length, window, *options)
    return torch.nn.functional.pad(signal[..., :length], (0, torch.sym_max(length - given, 0)))


def _complex_mean(input: Tensor, *args: Any, **options: Any) -> Tensor:
    # PyTorch divides by the number of elements as a complex number of Python, which fixes it.
    parts = torch.view_as_real(input)
    real, imag = (torch.mean(parts[..., part], *args, **options) for part in (0, 1))
    return torch.complex(real, imag)


def _kept(options: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in options.items() if key in ("device",)}


_REPLACEMENTS: dict[Any, tuple[Callable[..., Tensor], tuple[tuple[int, str], ...]]] = {
    torch.linspace: (_linspace, ((2, "steps"),)),
    torch.logspace: (_logspace, ((2, "steps"),)),
    torch.istft: (_istft, ((8, "length"),)),
    torch.Tensor.istft: (_istft, ((8, "length"),)),
    torch.nn.functional.one_hot: (_one_hot, ((1, "num_classes"),)),
}
_MEANS = (torch.mean, Tensor.mean)


def symbolic_call(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[..., Tensor] | None:
    """What to call in the place of ``func``, if it would make an int of a number that is symbolic."""
    if func in _MEANS and args and args[0].is_complex() and "dtype" not in kwargs:
        return _complex_mean
    replacement = _REPLACEMENTS.get(func)
    if replacement is None:
        return None
    function, numbers = replacement
    given = (args[place] if place < len(args) else kwargs.get(name) for place, name in numbers)
    return function if any(isinstance(value, torch.SymInt) for value in given) else None
