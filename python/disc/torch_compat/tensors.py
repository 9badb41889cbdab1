"""Tensors and modules beyond their public methods."""

from __future__ import annotations

import torch

# The class under torch.Tensor: its methods call no __torch_function__.
from torch._C import TensorBase as TensorBase

# The tensors that torch.vmap and others wrap, whose memory is compared.
from torch._C import _functorch as functorch

# A reference that leaves a tensor's version counter readable when nothing else holds the tensor.
from torch._C import _WeakTensorRef as WeakTensorRef  # type: ignore[attr-defined]

# Version counters stay as they are while PyTorch runs a part that a compiled function counts itself.
from torch.autograd import _unsafe_preserve_version_counter as preserve_version_counter

# What load_state_dict returns.
from torch.nn.modules.module import _IncompatibleKeys as IncompatibleKeys

# Views of a tensor as conjugated and as negated, without computing.
conjugated = torch._conj
negated = torch._neg_view

__all__ = [
    "IncompatibleKeys",
    "TensorBase",
    "WeakTensorRef",
    "conjugated",
    "functorch",
    "negated",
    "preserve_version_counter",
]
