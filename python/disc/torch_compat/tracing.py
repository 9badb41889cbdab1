"""Tensors without data, and the modes under which they are traced."""

from __future__ import annotations

from typing import Any

import torch

# Disables __torch_function__, to read attributes of a tensor while a model's own calls are recorded.
from torch._C import DisableTorchFunction as DisableTorchFunction

# The implementation of __torch_function__ that subclasses have that want none.
from torch._C import _disabled_torch_function_impl as disabled_torch_function

# Runs Python decompositions under fake tensors, as torch.export does.
from torch._dispatch.python import enable_python_dispatcher as enable_python_dispatcher

# Tensors for which changes in place are recorded as new values; the mode that records so; to such tensors and back.
from torch._functorch._aot_autograd.functional_utils import from_fun as from_functional
from torch._functorch._aot_autograd.functional_utils import to_fun as to_functional

# The mode of the fake tensors that are being traced.
from torch._guards import detect_fake_mode as detect_fake_mode
from torch._higher_order_ops.effects import _EffectType as EffectType

# Errors of operators that need the data of a tensor, or have no fake kernel.
from torch._subclasses.fake_tensor import DataDependentOutputException as DataDependentOutputException

# A tensor with a shape and a dtype only, and the mode that creates it.
from torch._subclasses.fake_tensor import FakeTensor as FakeTensor
from torch._subclasses.fake_tensor import FakeTensorMode as FakeTensorMode
from torch._subclasses.fake_tensor import UnsupportedOperatorException as UnsupportedOperatorException

# Real tensors while AOTAutograd traces.
from torch._subclasses.fake_tensor import unset_fake_temporarily as unset_fake_temporarily
from torch._subclasses.functional_tensor import FunctionalTensorMode as FunctionalTensorMode

# proxy_call: its frame says which operator's fake kernel is running.
from torch.fx.experimental import proxy_tensor as proxy_tensor

# Runs code without recording it.
from torch.fx.experimental.proxy_tensor import disable_proxy_modes_tracing as disable_proxy_modes_tracing

# The mode that records, and the node of a traced value.
from torch.fx.experimental.proxy_tensor import get_proxy_mode as get_proxy_mode
from torch.fx.experimental.proxy_tensor import get_proxy_slot as get_proxy_slot

# Traces a function to a graph.
from torch.fx.experimental.proxy_tensor import make_fx as make_fx

# Records expressions of sizes only where they are used.
from torch.fx.experimental.proxy_tensor import maybe_enable_thunkify as maybe_enable_thunkify

# The sizes, strides and dtype of a node's value.
from torch.fx.passes.shape_prop import _extract_tensor_metadata as tensor_metadata

# Code that no mode sees.
from torch.utils._python_dispatch import _disable_current_modes as disable_current_modes

__all__ = [
    "CACHED_RESULT",
    "EXTREMES_OF_MANY",
    "DataDependentOutputException",
    "DisableTorchFunction",
    "EffectType",
    "FakeTensor",
    "FakeTensorMode",
    "FunctionalTensorMode",
    "UnsupportedOperatorException",
    "detect_fake_mode",
    "disable_current_modes",
    "disable_proxy_modes_tracing",
    "disabled_torch_function",
    "enable_python_dispatcher",
    "from_functional",
    "get_proxy_mode",
    "get_proxy_slot",
    "make_fx",
    "maybe_enable_thunkify",
    "nodes_of_symbols",
    "proxy_tensor",
    "tensor_metadata",
    "to_functional",
    "unset_fake_temporarily",
]

CACHED_RESULT = FakeTensorMode._get_output_tensor_from_cache_entry.__code__
"""Creates the result of an operator that has run with such operands before."""

EXTREMES_OF_MANY = {
    getattr(proxy_tensor, name): pair
    for name, pair in {"_nary_sym_max": torch.sym_max, "_nary_sym_min": torch.sym_min}.items()
    if hasattr(proxy_tensor, name)
}
"""Functions that traced graphs call for extremes of any number of sizes, from torch 2.13 on, and those for two."""


def nodes_of_symbols() -> dict[Any, Any]:
    """Of each symbol the value that it is computed from where nothing else has its node: torch keeps the last one."""
    mode = get_proxy_mode()
    return {} if mode is None else mode.tracer.sympy_expr_tracker
