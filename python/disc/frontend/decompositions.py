"""Which torch ops reach the lowering whole, and which are decomposed by PyTorch first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

# Ops whose structure the compiler wants to see: decomposed, it would have to find them again.
_KEPT = (
    "linear",
    "matmul",
    "layer_norm",
    "native_layer_norm",
    "rms_norm",
    "softmax.int",
    "log_softmax.int",
    "_softmax",
    "_log_softmax",
    "scaled_dot_product_attention",
    "gelu",
    "silu",
    "embedding",
    "addmm",
    "baddbmm",
    "var_mean.correction",
    "std.correction",
    "masked_fill.Scalar",
    "masked_fill.Tensor",
    "stack",
    "split.Tensor",
    "split_with_sizes",
    "chunk",
    "tril",
    "triu",
    "linalg_vector_norm",
)


def decomposition_table() -> dict[torch._ops.OperatorBase, Callable[..., Any]]:
    """torch.export's default decompositions, without the ops that have rules as they are."""
    table = torch.export.default_decompositions()
    for name in _KEPT:
        packet, _, overload = name.partition(".")
        table.pop(getattr(getattr(torch.ops.aten, packet), overload or "default"), None)
    return table
