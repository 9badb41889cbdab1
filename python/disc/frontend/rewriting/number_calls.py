"""Functions that take a number of Python, called with a size that is known at run time only: tensors replace it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from ...torch_compat import pytree


def _new_tensor(like: Tensor, data: Any, *, dtype: torch.dtype | None = None, device: Any = None, **_: Any) -> Tensor:
    kind = dtype or like.dtype

    def made(part: Any) -> Tensor:
        if isinstance(part, Tensor):
            return part.to(kind)
        return torch.stack([made(x) for x in part]) if isinstance(part, (list, tuple)) else _scalar(part, kind)

    return made(data).to(device or like.device)


def _pad(input: Tensor, pad: Sequence[Any], mode: str = "constant", value: Any = None) -> Tensor:
    outside = functional.pad(torch.zeros_like(input, dtype=torch.bool), pad, mode, True)
    return torch.where(outside, _scalar(value, input.dtype), functional.pad(input, pad, mode, 0))


def _unravel_index(indices: Tensor, shape: Any) -> tuple[Tensor, ...]:
    sizes = list(shape) if isinstance(shape, (list, tuple)) else [shape]
    found: list[Tensor] = []
    for size in reversed(sizes):
        found.insert(0, torch.remainder(indices, size))
        indices = torch.div(indices, size, rounding_mode="floor")
    return tuple(found)


def _attention(query: Tensor, *rest: Any, scale: Any, **options: Any) -> Tensor:
    scaled = query * _scalar(scale, query.dtype)
    return functional.scaled_dot_product_attention(scaled, *rest, **{**options, "scale": 1.0})


def _batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: Any = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    if not training:
        return functional.batch_norm(input, running_mean, running_var, weight, bias, False, 0.0, eps)
    moments = torch.var_mean(input, [0, *range(2, input.dim())], correction=1)
    for running, moment in zip((running_var, running_mean), moments, strict=True):
        if running is not None:
            running.copy_(torch.lerp(running, moment.to(running.dtype), _scalar(momentum, running.dtype)))
    return functional.batch_norm(input, None, None, weight, bias, True, 0.0, eps)


def _scalar(number: Any, dtype: torch.dtype) -> Tensor:
    return torch.scalar_tensor(number, dtype=dtype)


_CALLS: dict[Any, tuple[Callable[..., Any], int, str]] = {
    Tensor.new_tensor: (_new_tensor, 1, "data"),
    functional.pad: (_pad, 3, "value"),
    torch.unravel_index: (_unravel_index, 1, "shape"),
    functional.batch_norm: (_batch_norm, 6, "momentum"),
    functional.scaled_dot_product_attention: (_attention, 6, "scale"),
}
"""The replacement, and the place and name of the number among the arguments."""


def number_call(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[..., Any] | None:
    """The replacement of ``func`` where the number that it takes is known at run time only."""
    found = _CALLS.get(func)
    if found is None:
        return None
    function, place, name = found
    given = pytree.tree_leaves(args[place] if place < len(args) else kwargs.get(name))
    return function if any(isinstance(x, (torch.SymInt, torch.SymFloat)) for x in given) else None
