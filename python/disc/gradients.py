"""Gradients of models, compiled with them."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor


class _WithGradients(torch.nn.Module):
    """A module, and the gradients of its parameters."""

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        self.module = module

        @functools.wraps(module.forward)
        def forward(*args: Any, **kwargs: Any) -> tuple[Any, dict[str, Tensor]]:
            from .frontend.gradients import value_and_gradients

            return value_and_gradients(module, args, kwargs)

        # Of the module's own signature.
        self.forward = forward


def with_gradients(module: torch.nn.Module) -> torch.nn.Module:
    """A module that returns the gradients of another, to be compiled like any other.

    >>> training = disc.with_gradients(module)          # module(tree, label) returns a loss, or (loss, more, ...)
    >>> model = disc.compile(training, (tree, label))
    >>> output, gradients = model(tree, label)           # gradients["node.weight"], of the parameters' shapes
    >>> for name, parameter in module.named_parameters():
    ...     parameter.grad = gradients[name]

    It is made for modules that recurse over trees (:mod:`disc.trees`), for which PyTorch has no gradient of a compiled
    model: there is a gradient for each parameter that requires one. Without being compiled it computes the same with
    PyTorch's autograd.
    """
    return _WithGradients(module)
