"""Numbers that a program requires to be equal are one number behind the requirement.

``x + table[torch.arange(n)]``, with ``n`` computed from data, requires that ``n`` is the extent of ``x``. Torch then
has one symbol for both, but code that reads ``n`` later still uses the number that data had. The program's extents
would be written in two ways, between which only the requirement knows the connection.
"""

from __future__ import annotations

import operator
from typing import Any

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
        given = equal_numbers(node.args[0]) if node.target is torch.ops.aten._assert_scalar.default else None
        if depth or given is None:
            continue
        kept, replaced = sorted(given, key=lambda x: (_is_of_data(x), positions[x]))
        if _is_of_data(replaced):
            for user in list(replaced.users):
                if positions[user] > positions[node]:
                    user.replace_input_with(replaced, kept)


def equal_numbers(condition: Any) -> list[Node] | None:
    """The two numbers of which a condition says that they are equal, if torch has one symbol for both."""
    if not isinstance(condition, Node) or condition.target is not operator.eq:
        return None
    given, known = [x for x in condition.args if isinstance(x, Node)], condition.meta.get("val")
    if len(given) != 2 or given[0] is given[1] or not isinstance(known, torch.SymBool):
        return None
    # What may be negative is no extent, and of what has two symbols the lowering may not be able to require it.
    return given if known.node.expr == sympy.true and all(map(_is_natural, given)) else None


def _is_natural(number: Node) -> bool:
    value = number.meta.get("val")
    if not isinstance(value, torch.SymInt):
        return False
    ranges = (value.node.shape_env.var_to_range.get(symbol) for symbol in value.node._expr.free_symbols)
    return all(known is not None and known.lower >= 0 for known in ranges)


def _is_of_data(number: Node) -> bool:
    """Whether data has a number: it is read from a tensor, or is the size of what an operation finds in data."""
    value = number.meta.get("val")
    # Without what torch has found out about the symbol.
    return isinstance(value, torch.SymInt) and bool(free_unbacked_symbols(value.node._expr))
