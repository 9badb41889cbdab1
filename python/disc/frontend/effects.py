"""Checks on data that a graph makes between its operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.fx import GraphModule, Node

from ..torch_compat import pytree
from ..torch_compat.tracing import FakeTensor

_aten = torch.ops.aten


def take_tokens(graph: GraphModule) -> None:
    """Makes plain conditions of the checks of linear algebra that AOTAutograd orders by tokens.

    Where one fails, PyTorch runs the graph as it was, and raises what eager raises.
    """
    for node in list(graph.graph.nodes):
        if node.target is not torch.ops.higher_order.with_effects:
            continue
        token, operation, *args = node.args
        if operation is not _aten._linalg_check_errors.default:
            continue
        with graph.graph.inserting_before(node):
            holds = call(graph.graph, node, _aten.eq.Scalar, args[0], 0)
            require(graph.graph, node, holds, f"{args[1]}: the matrix is singular, or its factors do not converge")
        for user in list(node.users):
            user.replace_all_uses_with(token)
            graph.graph.erase_node(user)
        graph.graph.erase_node(node)
    graph.recompile()


def require(graph: torch.fx.Graph, like: Node, holds: Node, message: str) -> None:
    """A condition on all elements, at the point where nodes are inserted."""
    every = call(graph, like, _aten.all.default, holds)
    call(graph, like, _aten._assert_async.msg, every, message)


def call(graph: torch.fx.Graph, like: Node, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Node:
    """One more operation for the same line of Python as ``like``, with its fake result."""
    node = graph.call_function(function, args, kwargs)
    given, named = pytree.tree_map_only(Node, lambda n: n.meta["val"], (args, kwargs))
    fakes = (v for n in graph.nodes for v in pytree.tree_leaves(n.meta.get("val")))
    with next(v.fake_mode for v in fakes if isinstance(v, FakeTensor)):
        value = function(*given, **named)
    node.meta = {k: v for k, v in like.meta.items() if k != "tensor_meta"}
    node.meta["val"] = value
    return node
