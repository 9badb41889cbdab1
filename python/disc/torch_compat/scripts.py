"""TorchScript's graphs, which DISC translates to Python."""

from __future__ import annotations

# The functions of whole recurrent layers, with what DISC replaces there while it traces.
from torch import _VF as layer_functions

# Methods of a scripted module.
from torch._C import ScriptMethod as ScriptMethod

# A function of a graph, for its code; the graph with its calls inlined.
from torch._C import _create_function_from_graph as function_from_graph
from torch._C import _jit_pass_inline as inline_calls

# The overload that TorchScript chooses for arguments.
from torch._C import _jit_resolve_packet as resolve_overload  # type: ignore[attr-defined]

__all__ = [
    "ScriptMethod",
    "function_from_graph",
    "inline_calls",
    "layer_functions",
    "resolve_overload",
]
