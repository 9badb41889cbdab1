"""Operators as objects, their kernels, and PyTorch's tables of decompositions."""

from __future__ import annotations

# Which kernels the dispatcher has, and all operators that it knows.
from torch._C import DispatchKey as DispatchKey
from torch._C import _dispatch_get_all_op_names as all_operator_names
from torch._C import _dispatch_has_kernel_for_dispatch_key as has_kernel

# What torch.nn.utils.rnn.pad_sequence calls.
from torch._C._nn import pad_sequence as pad_sequence

# Decompositions by operator: all, those to the core ATen operators, and those that serve as meta kernels.
from torch._decomp import core_aten_decompositions as core_aten_decompositions
from torch._decomp import decomposition_table as torch_decompositions

# Attention by its definition, with a function of scores.
from torch._higher_order_ops.flex_attention import math_attention as math_attention

# Its kernel, completed where the shape of the bias is not given.
from torch._meta_registrations import meta_convolution_backward as meta_convolution_backward

# Classes of the targets of a graph's nodes.
from torch._ops import HigherOrderOperator as HigherOrderOperator
from torch._ops import OperatorBase as OperatorBase
from torch._ops import OpOverload as OpOverload
from torch._ops import OpOverloadPacket as OpOverloadPacket

# The memory format of a result.
from torch._prims_common import suggest_memory_format as suggest_memory_format

# Python implementations of operators. Broadcasting is recognised by the code of its function.
from torch._refs import _broadcast_shapes as broadcast_shapes
from torch._refs import istft as istft

# Operators that torch.export keeps although they have a decomposition.
from torch.export.exported_program import (
    _override_composite_implicit_decomp as override_composite_implicit_decomp,
)
from torch.export.exported_program import (
    _split_decomp_table_to_cia_and_python_decomp as split_decomposition_table,
)

__all__ = [
    "DispatchKey",
    "HigherOrderOperator",
    "OpOverload",
    "OpOverloadPacket",
    "OperatorBase",
    "all_operator_names",
    "broadcast_shapes",
    "core_aten_decompositions",
    "has_kernel",
    "istft",
    "math_attention",
    "meta_convolution_backward",
    "override_composite_implicit_decomp",
    "pad_sequence",
    "split_decomposition_table",
    "suggest_memory_format",
    "torch_decompositions",
]
