"""What AOTAutograd decomposes before a graph is compiled."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from ..frontend.decompositions import decomposition_table
from ..torch_compat.operators import OperatorBase, OpOverload


@functools.cache
def decompositions() -> dict[OperatorBase, Callable[..., Any]]:
    """Those of export, except those of random operations (PyTorch's generator draws the numbers) and of constants."""
    table = decomposition_table()
    random = torch.Tag.nondeterministic_seeded
    kept = [op for op in table if isinstance(op, OpOverload) and random in op.tags]
    # Their decomposition is an alias of a tensor that is not fake; without it, tracing makes a constant of the graph.
    kept += [torch.ops.aten.lift.default, torch.ops.aten.lift_fresh.default]
    return {op: decomposition for op, decomposition in table.items() if op not in kept}
