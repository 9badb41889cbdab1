"""Which parts of a graph are compiled, and which PyTorch runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase

from ..errors import CompileError, UnsupportedOpError
from ..frontend import reason_against
from ..options import Options
from .compiled import CompiledGraph, log

# Compiling a part again with what the last attempt found it cannot hold.
_MAX_ATTEMPTS = 10

_VIEWS = ("aten.view", "aten.permute", "aten.expand", "aten.slice", "aten.unsqueeze", "aten.squeeze", "aten.select",
          "aten.t", "aten.transpose", "aten.alias", "aten.detach", "aten._unsafe_view", "aten.sym_size")  # fmt: skip


@dataclass(frozen=True)
class Fallback:
    """An op that PyTorch runs."""

    op: str
    """``aten.native_dropout.default``"""
    reason: str
    source: str
    """The line of Python that asks for it, or ""."""

    def __str__(self) -> str:
        return f"{self.op}: {self.reason}" + (f" ({self.source})" if self.source else "")


@dataclass
class GraphReport:
    """What became of one graph."""

    kind: str
    """``"inference"``, ``"forward"`` or ``"backward"``."""
    ops: int
    """Its operations."""
    compiled: int = 0
    """Those of them that native code does."""
    parts: int = 0
    """The pieces of native code."""
    fallbacks: list[Fallback] = field(default_factory=list)

    def __str__(self) -> str:
        text = f"{self.kind} graph: {self.compiled} of {self.ops} operations in {self.parts} compiled parts"
        return "\n".join([text, *(f"  in PyTorch: {fallback}" for fallback in self.fallbacks)])


class _Supported(OperatorSupportBase):
    def __init__(self, against: Mapping[str, str]) -> None:
        self._against = against

    def is_node_supported(self, submodules: Mapping[str, torch.nn.Module], node: Node) -> bool:
        return node.op == "call_function" and node.name not in self._against


class _Part(torch.nn.Module):
    """A part of a graph, in the place of the module that held its ops."""

    def __init__(self, compiled: CompiledGraph, single: bool) -> None:
        super().__init__()
        self._compiled = compiled
        self._single = single

    def forward(self, *args: Any) -> Any:
        results = self._compiled(*args)
        return results[0] if self._single else tuple(results)


def compile_graph(
    graph: GraphModule, kind: str, options: Options, fixed: Mapping[int, torch.Tensor]
) -> tuple[Any, GraphReport]:
    """A function of the graph's arguments that gives its results as a list, and what it is made of.

    ``fixed``: the tensors of arguments that will be the same in most calls, by number.
    """
    updates = _take_updates(graph)
    ops = [node for node in graph.graph.nodes if node.op == "call_function"]
    report = GraphReport(kind, len(ops) + len(updates))
    against = {node.name: why for node in ops if (why := reason_against(node)) is not None}
    nodes = {node.name: node for node in ops}
    computing = [node for node in ops if _computes(node)]
    if not against and computing:
        try:
            compiled = CompiledGraph(graph, options, fixed, updates)
            report.compiled, report.parts = report.ops, 1
            return compiled, report
        except UnsupportedOpError as error:
            against.update({op.node: op.reason for op in error.ops if op.node})
            if not against:
                against = {node.name: str(error) for node in ops}
        except CompileError as error:
            log.warning("a %s graph is left to PyTorch: %s", kind, error)
            against = {node.name: str(error).splitlines()[0] for node in ops}
    # The new values of arguments are results more, which are copied at the end.
    _append_results(graph, [value for _, value in updates])
    places = [list(_placeholders(graph)).index(old) for old, _ in updates]
    split = _partition(graph, against, options, report)
    report.fallbacks = [Fallback(str(nodes[name].target), why, _source(nodes[name])) for name, why in against.items()]
    return _WithUpdates(split, places), report


class _WithUpdates:
    """Calls a graph, and copies its last results to arguments."""

    def __init__(self, graph: GraphModule, places: list[int]) -> None:
        self._graph = graph
        self._places = places

    def __call__(self, *args: Any) -> list[Any]:
        results = list(self._graph(*args))
        for place in reversed(self._places):
            args[place].copy_(results.pop())
        return results


def _partition(graph: GraphModule, against: dict[str, str], options: Options, report: GraphReport) -> GraphModule:
    for _ in range(_MAX_ATTEMPTS):
        whole = GraphModule(graph, _copy(graph))
        partitioner = CapabilityBasedPartitioner(whole, _Supported(against), allows_single_node_partition=True)
        parts = [p for p in partitioner.propose_partitions() if sum(map(_computes, p.nodes)) > 1]
        sizes = [len(p.nodes) for p in parts]
        partitioner.fuse_partitions(parts)
        failed: dict[str, str] = {}
        for node in list(whole.graph.nodes):
            if node.op == "call_module":
                part = whole.get_submodule(node.target)
                assert isinstance(part, GraphModule)
                failed.update(_compile_part(whole, node, part, options))
        if not failed:
            whole.recompile()
            report.compiled, report.parts = sum(sizes), len(sizes)
            return whole
        against.update(failed)
    against.update({node.name: "it could not be compiled" for node in graph.graph.nodes if node.op == "call_function"})
    return graph


def _compile_part(whole: GraphModule, node: Node, part: GraphModule, options: Options) -> dict[str, str]:
    """Puts native code in the place of ``part``; or why nodes of it cannot be compiled."""
    names = [n.name for n in part.graph.nodes if n.op == "call_function"]
    for placeholder, argument in zip(_placeholders(part), node.args, strict=True):
        placeholder.meta = dict(argument.meta)  # type: ignore[union-attr]
    try:
        compiled = CompiledGraph(part, options)
    except UnsupportedOpError as error:
        return {op.node: op.reason for op in error.ops if op.node in names} or dict.fromkeys(names, str(error))
    except CompileError as error:
        log.warning("a part of a graph is left to PyTorch: %s", error)
        return dict.fromkeys(names, str(error).splitlines()[0])
    output = next(n for n in part.graph.nodes if n.op == "output").args[0]
    setattr(whole, str(node.target), _Part(compiled, not isinstance(output, (tuple, list))))
    return {}


def _copy(graph: GraphModule) -> torch.fx.Graph:
    copied = torch.fx.Graph()
    nodes: dict[Node, Node] = {}
    copied.output(copied.graph_copy(graph.graph, nodes))
    for old, new in nodes.items():
        new.meta = dict(old.meta)
        new.name = old.name
    return copied


def _placeholders(graph: GraphModule) -> list[Node]:
    return [node for node in graph.graph.nodes if node.op == "placeholder"]


def _take_updates(graph: GraphModule) -> list[tuple[Node, Node]]:
    """Takes the assignments to arguments out of the graph, at whose end AOTAutograd puts them."""
    updates = []
    for node in list(graph.graph.nodes):
        if node.target is torch.ops.aten.copy_.default and node.args[0].op == "placeholder" and not node.users:
            old, value = node.args[:2]
            same = value.meta["val"].shape == old.meta["val"].shape and value.meta["val"].dtype == old.meta["val"].dtype
            if same and value is not old:
                updates.append((old, value))
                graph.graph.erase_node(node)
    graph.recompile()
    return updates


def _append_results(graph: GraphModule, values: list[Node]) -> None:
    if not values:
        return
    output = next(node for node in graph.graph.nodes if node.op == "output")
    output.args = ((*output.args[0], *values),)
    graph.recompile()


def _computes(node: Node) -> bool:
    target = str(node.target)
    return isinstance(node.target, torch._ops.OpOverload) and not target.startswith(_VIEWS)


def _source(node: Node) -> str:
    """The last line of the user's that led to the node."""
    for line in reversed((node.meta.get("stack_trace") or node.stack_trace or "").splitlines()):
        if line.strip().startswith("File "):
            parts = line.strip().split('"')
            return f"{parts[1]}:{parts[2].split('line ')[1].split(',')[0]}"
    return ""
