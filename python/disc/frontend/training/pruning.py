"""Removes what regions return for gradients, where no gradient needs it.

Autograd keeps operands when an operation runs, before anyone knows which gradients will be computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch.fx import Graph, Node

from .. import markers
from .gradients import Gradients


def prune(gradients: Gradients) -> None:
    """Removes results of regions that nothing uses, and what computes them."""
    graph = gradients.module.graph
    graph.eliminate_dead_code()
    while _prune(graph):
        graph.eliminate_dead_code()


def _prune(graph: Graph) -> bool:
    changed = False
    for node in reversed(list(graph.nodes)):
        if node.target is markers.loop_end:
            changed |= _prune_region(node, [node], 4, (markers.loop_stack,))
        elif node.target is markers.branch_end:
            changed |= _prune_region(node, [node.args[0], node], 1, (markers.branch_result, markers.branch_size))
    return changed


def _prune_region(end: Node, ends: Sequence[Any], place: int, kinds: tuple[Any, ...]) -> bool:
    """Keeps of the values in the argument ``place`` of ``ends`` those that results of the region refer to."""
    users = [user for user in end.users if user.target in kinds and user.args[0] is end]
    used = {_number(user) for user in users}
    values: Any = end.args[place]
    kept = [n for n in range(len(values)) if n in used]
    if len(kept) == len(values):
        return False
    for node in ends:
        given = node.args[place]
        _set(node, place, [given[n] for n in kept])
    for user in users:
        _set(user, _place(user), kept.index(_number(user)))
    return True


def _place(user: Node) -> int:
    """Which argument of a result is the number of the value."""
    return 1 if user.target is markers.branch_size else 3


def _number(user: Node) -> int:
    return user.args[_place(user)]  # type: ignore[return-value]


def _set(node: Node, place: int, value: Any) -> None:
    args = list(node.args)
    args[place] = value
    node.args = tuple(args)
