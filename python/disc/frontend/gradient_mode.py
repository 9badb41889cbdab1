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


def noted(tracer: Any, off: Callable[[], bool]) -> None:
    """Has a tracer note the nodes that it creates while gradients are disabled, or ``off()`` is true."""
    create = tracer.create_node

    def created(*args: Any, **kwargs: Any) -> Node:
        node: Node = create(*args, **kwargs)
        if node.op == "call_function" and (off() or not torch.is_grad_enabled()):
            node.meta[_NOTE] = True
        return node

    tracer.create_node = created


def is_off(node: Node) -> bool:
    """Whether a node was traced while gradients were disabled."""
    return _NOTE in node.meta
