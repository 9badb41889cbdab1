"""Checks of example arguments before tracing, whose errors would be PyTorch's own, about its own parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from .. import errors
from ..torch_compat import pytree
from .argument_paths import signature_of
from .structure import misfit


def check_example(model: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Refuses arguments that the model does not take, and tensors that are not dense."""
    signature = signature_of(model)  # None for functions in C.
    problem = None if signature is None else misfit(signature, args, kwargs)
    if problem is not None:
        where = f"{type(model).__qualname__}.forward"
        raise errors.ExampleError("import", f"the example arguments do not fit {where}: {problem}")
    leaves, _ = pytree.tree_flatten_with_path((tuple(args), dict(kwargs)))
    for path, leaf in leaves:
        if not isinstance(leaf, torch.Tensor):
            continue
        kind = "argument" if path[0] == pytree.SequenceKey(0) else "keyword argument"
        where = f"the example's {kind} {pytree.keystr(path[1:])}"
        if problem := _not_dense(leaf):
            raise errors.ExampleError("import", f"{where} {problem}")


def _not_dense(tensor: torch.Tensor) -> str | None:
    """What keeps a tensor from being an input, and what to do about it."""
    if tensor.is_nested and tensor.layout != torch.jagged:
        return (
            "is a strided nested tensor, which is not supported: use layout=torch.jagged, or pass"
            " tensor.to_padded_tensor(0.0) and lengths"
        )
    if tensor.is_quantized:
        return "is a quantized tensor, which is not supported: pass tensor.int_repr(), scale and zero point"
    if tensor.layout not in (torch.strided, torch.jagged):
        return f"has the layout {tensor.layout}, which is not supported: pass tensor.to_dense(), or its parts"
    return None
