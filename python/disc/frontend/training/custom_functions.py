"""Losses with gradients of their own: classes of ``torch.autograd.Function``.

``torch.export`` records what such a function computes, and not that it has a backward. A loss that uses one, or a hook
that changes a gradient, is traced as a function that calls ``torch.autograd.grad`` itself.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn.modules._functions import BackwardHookFunction

from ...torch_compat import patches, pytree
from ...torch_compat.patching import replaced
from ...torch_compat.tracing import get_proxy_mode


@contextmanager
def functions_noted(found: list[str]) -> Iterator[None]:
    """While it is active, the classes of ``torch.autograd.Function`` that are applied are added to ``found``.

    So are hooks of gradients. Parts under ``torch.utils.checkpoint`` are traced as if they were not.
    """

    def called(original: Any, fn: Any) -> Any:
        frame = sys._getframe(1)
        while frame is not None and frame.f_code.co_name != "apply":
            frame = frame.f_back  # type: ignore[assignment]
        kind = None if frame is None else frame.f_locals.get("cls")
        # Those of PyTorch consist of operations whose gradients it knows.
        if kind is BackwardHookFunction:
            found.append("Module.register_full_backward_hook")
        elif isinstance(kind, type) and kind.__module__.partition(".")[0] != "torch":
            found.append(kind.__qualname__)
        return original(fn)

    def hooked(original: Any, tensor: Tensor, hook: Any) -> Any:
        if get_proxy_mode() is not None:
            found.append("Tensor.register_hook")
        return original(tensor, hook)

    def checkpointed(original: Any, function: Any, preserve: bool, *args: Any) -> Any:
        return original(function, preserve, *args) if get_proxy_mode() is None else function(*args)

    with replaced(
        {
            patches.FUNCTION_CALLED: called,
            patches.TENSOR_HOOK: hooked,
            patches.CHECKPOINT: checkpointed,
        }
    ):
        yield


class WithGradients(torch.nn.Module):
    """A loss and its gradients: ``(output, {name: gradient})``, of the parameters that the loss depends on."""

    def __init__(self, loss: torch.nn.Module, parameters: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.loss = loss
        names = _names(loss, parameters)

        @functools.wraps(loss.forward)
        def forward(*args: Any, **kwargs: Any) -> tuple[Any, dict[str, Tensor]]:
            output = loss(*args, **kwargs)
            value = next(x for x in pytree.tree_leaves(output) if isinstance(x, Tensor))
            # While it is traced, other tensors are in the places of the parameters.
            trained = {names[key]: p for key, p in loss.named_parameters() if key in names}
            found = torch.autograd.grad(value, list(trained.values()), allow_unused=True)
            detached = pytree.tree_map_only(Tensor, Tensor.detach, output)
            return detached, {name: g for name, g in zip(trained, found, strict=True) if g is not None}

        self.forward = forward


def _names(module: torch.nn.Module, parameters: Mapping[str, Tensor]) -> dict[str, str]:
    """By the names that parameters have in ``module``, those of a training step."""
    inside = dict(module.named_parameters())
    return {key: name for key, p in inside.items() for name, known in parameters.items() if known is p}
