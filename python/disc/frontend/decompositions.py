"""Which torch ops reach the lowering whole, and which are decomposed by PyTorch first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.export import ExportedProgram
from torch_mlir.extras.fx_importer import _get_mlir_op_name_for_schema

from .lower import IGNORED
from .registry import find_rule

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


def needs_decomposition(program: ExportedProgram) -> bool:
    """Whether some op of ``program`` has no rule, changes a tensor in place, or holds a graph of its own.

    Most models of plain layers need none, and decomposing traces the whole program again.
    """
    return any(
        node.op == "get_attr" or (node.op == "call_function" and not _lowers_as_it_is(node.target))
        for node in program.graph.nodes
    )


def _lowers_as_it_is(target: Any) -> bool:
    if not isinstance(target, torch._ops.OpOverload):
        # Python's arithmetic on extents; higher-order operators are no functions.
        return not isinstance(target, torch._ops.HigherOrderOperator)
    if target._schema.is_mutable:
        return False
    name = _get_mlir_op_name_for_schema(target._schema)
    return name.startswith(IGNORED) or find_rule(name) is not None
