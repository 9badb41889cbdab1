"""Whether a traced program does for its example what the model does.

A program that is traced for sizes of 1, too (``export._traced_by_hints``), takes each extent for larger where the
code's way depends on it: ``x.squeeze(0)`` of an example of size 1 keeps the dim there. Such a program would refuse
the very inputs that it was traced with.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sympy
import torch
from torch.export import ExportedProgram

from ..torch_compat import pytree
from ..torch_compat.symbols import ShapeEnv
from ..torch_compat.tracing import FakeTensorMode


class _Differs(Exception):
    """A tensor of the example has another shape than the program says."""

    def __init__(self, node: torch.fx.Node) -> None:
        super().__init__()
        self.node = node


def differing(program: ExportedProgram, at: Mapping[sympy.Symbol, Any] | None = None) -> torch.fx.Node | None:
    """The first operation whose result has another shape at the example's sizes than in the program.

    Shapes alone are computed. What they cannot tell, as where data decides, counts as holding. Of a program that was
    traced with a larger example, ``at`` has the sizes of the user's, and what fails does not hold.
    """
    nodes = [node for node in program.graph.nodes if node.op == "placeholder"]
    values = [node.meta.get("val") for node in nodes]
    if at is None and not any(
        size == 1 for value in values if isinstance(value, torch.Tensor) for size in _sizes(value, None)
    ):
        return None
    # With symbols for data-dependent numbers; here an operation that fails counts.
    mode = FakeTensorMode(allow_non_fake_inputs=True, shape_env=None if at is None else ShapeEnv())
    try:
        with mode, torch.no_grad():
            _Shapes(program.graph_module, at).run(*(_at_example(value, at) for value in values))
    except _Differs as found:
        return found.node
    except Exception:
        return None if at is None else nodes[-1]
    return None


def _number(size: Any, at: Mapping[sympy.Symbol, Any] | None) -> Any:
    if not isinstance(size, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return size
    if at is None:
        return size.node.hint
    value = size.node.expr.xreplace(at)
    return int(value) if value.is_Integer else None


def _sizes(value: torch.Tensor, at: Mapping[sympy.Symbol, Any] | None) -> list[Any]:
    return [_number(size, at) for size in value.shape]


def _at_example(value: Any, at: Mapping[sympy.Symbol, Any] | None) -> Any:
    if not isinstance(value, torch.Tensor):
        return _number(value, at)
    strides = [_number(stride, at) for stride in value.stride()]
    return torch.empty_strided(_sizes(value, at), strides, dtype=value.dtype, device=value.device)


class _Shapes(torch.fx.Interpreter):
    def __init__(self, module: torch.fx.GraphModule, at: Mapping[sympy.Symbol, Any] | None) -> None:
        super().__init__(module)
        self.at = at

    def run_node(self, n: torch.fx.Node) -> Any:
        # A part of a parameter of a tensor subclass, which is a plain tensor here.
        of_subclass = n.target is torch.ops.export.access_subclass_inner_tensor.default
        result = _at_example(n.meta["val"], self.at) if of_subclass else super().run_node(n)
        found = [x for x in pytree.tree_leaves(result) if isinstance(x, torch.Tensor)]
        traced = [x for x in pytree.tree_leaves(n.meta.get("val")) if isinstance(x, torch.Tensor)]
        for x, said in zip(found, traced, strict=False):
            sizes = _sizes(said, self.at)
            if None not in sizes and list(x.shape) != sizes:
                raise _Differs(n)
        return result
