"""Jagged nested tensors: the subclass, its table of operators, and the size of a ragged dimension."""

from __future__ import annotations

# is_fx_symbolic_tracing: whether torch.fx itself traces, other than torch.export.
from torch.fx import _symbolic_trace as symbolic_trace

# _nt_view_dummy; lookup_jagged; _validate_sdpa_input.
from torch.nested._internal import nested_tensor as nested_tensor
from torch.nested._internal import ops as ops
from torch.nested._internal import sdpa as sdpa

# A ragged size, which is equal to itself only.
from torch.nested._internal.nested_int import NestedIntNode as NestedIntNode

# The class: _values, _offsets, _lengths, _ragged_idx, _size, _metadata_cache and _maybe_max_seqlen are used.
from torch.nested._internal.nested_tensor import NestedTensor as NestedTensor

__all__ = [
    "NestedIntNode",
    "NestedTensor",
    "nested_tensor",
    "ops",
    "sdpa",
    "symbolic_trace",
]
