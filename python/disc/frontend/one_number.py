"""Numbers that a program requires to be equal are one number behind the requirement.

``x + table[torch.arange(n)]``, with ``n`` computed from data, requires that ``n`` is the extent of ``x``. Torch then
has one symbol for both, but code that reads ``n`` later still uses the number that data had. The program's extents
would be written in two ways, between which only the requirement knows the connection.
"""

from __future__ import annotations

import operator

import sympy
import torch
from torch.fx import Graph, Node

from ..torch_compat.symbols import free_unbacked_symbols
from . import markers

_BEGINS = (markers.branch_begin, markers.loop_begin, markers.procedure_begin)
_ENDS = (markers.branch_end, markers.loop_end, markers.procedure_end)


def use_one_number(graph: Graph) -> None:
    """Has nodes behind ``assert a == b`` use only one of two numbers: an extent, or else the earlier one."""
    positions = {node: position for position, node in enumerate(graph.nodes)}
    depth = 0
    for node in list(graph.nodes):
        depth += (node.target in _BEGINS) - (node.target in _ENDS)
        equality = node.args[0] if node.target is torch.ops.aten._assert_scalar.default else None
        if depth or not isinstance(equality, Node) or equality.target is not operator.eq:
            continue
        given = [x for x in equality.args if isinstance(x, Node)]
        known = equality.meta.get("val")
        if len(given) != 2 or given[0] is given[1] or not isinstance(known, torch.SymBool):
            continue
        if known.node.expr != sympy.true:
            continue  # Torch has two symbols, and the lowering may not be able to require this.
        kept, replaced = sorted(given, key=lambda x: (_is_of_data(x), positions[x]))
        if _is_of_data(replaced):
            for user in list(replaced.users):
                if positions[user] > positions[node]:
                    user.replace_input_with(replaced, kept)


def _is_of_data(number: Node) -> bool:
    """Whether data has a number: it is read from a tensor, or is the size of what an operation finds in data."""
    value = number.meta.get("val")
    # Without what torch has found out about the symbol.
    return isinstance(value, torch.SymInt) and bool(free_unbacked_symbols(value.node._expr))
