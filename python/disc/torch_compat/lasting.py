"""Replacements for the whole process and for good, each with the reason why it cannot be limited to a thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .operators import DispatchKey, OpOverload
from .patching import Patch

KERNELS = Patch(
    "torch._decomp:meta_table",
    "frontend/meta_kernels.py: shapes of operators for which PyTorch's own kernel is wrong, or fixes a dynamic size."
    " PyTorch caches what it finds here in other tables, so it must be the same before and after a trace.",
    None,
)
DECOMPOSITIONS = Patch("torch._decomp:decomposition_table", KERNELS.purpose, None)
DATA = Patch(
    "torch:Tensor.data",
    "data_aliases.py: weights that are changed through tensor.data. Any thread may change a weight of a compiled"
    " model, at any time. Without it the model computes with the old value.",
    None,
)
DATA_OF_COMPILED_CODE = Patch("torch._C._autograd:_get_data_attr", DATA.purpose, None)
NAMESPACE = Patch(
    "torch._ops:_OpNamespace.__getattr__",
    "namespace.py: saved programs contain operators of DISC, which are registered when one is first looked up."
    " Without it import disc imports torch, or the programs cannot be loaded.",
    "(self, op_name)",
)
LASTING = (KERNELS, DECOMPOSITIONS, DATA, DATA_OF_COMPILED_CODE, NAMESPACE)

data_descriptor: Any = torch._C.TensorBase.__dict__["data"]
"""The attribute ``data`` of all tensors."""

data_of: Callable[[torch.Tensor], torch.Tensor] = torch._C._autograd._get_data_attr  # type: ignore[attr-defined]
"""The same as a function, which code that Dynamo compiles calls."""


def replace_data(descriptor: Any, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """Makes ``tensor.data`` the attribute ``descriptor``; in code that Dynamo compiles, a call of ``function``."""
    torch.Tensor.data = descriptor
    torch._C._autograd._get_data_attr = function  # type: ignore[attr-defined]


def replace_python_kernel(operator: OpOverload, kernel: Callable[..., Any], *, always: bool = False) -> None:
    """Replaces the meta kernel in Python of ``operator``, which fake tensors prefer; without one only if ``always``."""
    if always or DispatchKey.Meta in operator.py_kernels:
        operator.py_kernels[DispatchKey.Meta] = kernel
        operator._dispatch_cache.clear()


def replace_decomposition(operator: OpOverload, function: Callable[..., Any]) -> None:
    """Replaces the decomposition of ``operator``, which serves as its meta kernel, too."""
    torch._decomp.decomposition_table[operator] = function


def replace_meta_decomposition(operator: OpOverload, function: Callable[..., Any]) -> None:
    """Replaces the decomposition of ``operator`` that serves as its meta kernel only."""
    torch._decomp.meta_table[operator] = function
