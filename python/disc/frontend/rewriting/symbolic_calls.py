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


def _kept(options: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in options.items() if key in ("device",)}


_REPLACEMENTS: dict[Any, tuple[Callable[..., Tensor], tuple[tuple[int, str], ...]]] = {
    torch.linspace: (_linspace, ((2, "steps"),)),
    torch.logspace: (_logspace, ((2, "steps"),)),
    torch.nn.functional.one_hot: (_one_hot, ((1, "num_classes"),)),
}


def symbolic_call(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[..., Tensor] | None:
    """What to call in the place of ``func``, if a number that it wants as an int is symbolic."""
    replacement = _REPLACEMENTS.get(func)
    if replacement is None:
        return None
    function, numbers = replacement
    given = (args[place] if place < len(args) else kwargs.get(name) for place, name in numbers)
    return function if any(isinstance(value, torch.SymInt) for value in given) else None
