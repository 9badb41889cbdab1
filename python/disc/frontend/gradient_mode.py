"""Which operations of a loss run without gradients, under ``torch.no_grad()``: noted on the nodes of its trace.

``torch.export`` has a subgraph for them, which a loop or branch around it cannot contain. A note on each node is enough
for the trace of the gradients, which runs such a node without gradients again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.fx import Node

_NOTE = "without_gradients"
_KEPT = "kept_by_autograd"

_DETACHES = (torch.Tensor.detach, torch.Tensor.detach_, torch.detach, torch.detach_)


def detaches(function: Any) -> bool:
    """Whether a model's code leaves gradients out by calling ``function``."""
    # Compiled models replace the attribute: data_aliases.py.
    data: Any = torch.Tensor.data
    return function in _DETACHES or function == data.__get__


def noted(tracer: Any, off: Callable[[], bool], detaching: Callable[[], bool]) -> None:
    """Has a tracer note the nodes that it creates while gradients are disabled, or ``off()`` is true.

    Where it records below autograd, that detaches the results that it keeps for a gradient. Such nodes are noted, too:
    those for which ``detaching()``, whether the model's code asks for that, is false.
    """
    create = tracer.create_node

    def created(*args: Any, **kwargs: Any) -> Node:
        node: Node = create(*args, **kwargs)
        if node.op == "call_function" and (off() or not torch.is_grad_enabled()):
            node.meta[_NOTE] = True
        if node.target is torch.ops.aten.detach.default and not detaching():
            node.meta[_KEPT] = True
        return node

    tracer.create_node = created


def is_off(node: Node) -> bool:
    """Whether a node was traced while gradients were disabled."""
    return _NOTE in node.meta


def is_kept(node: Node) -> bool:
    """Whether a node is a result that autograd keeps for a gradient: the tensor itself, with its own gradient."""
    return _KEPT in node.meta
