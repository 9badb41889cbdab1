"""Which parts of a graph are compiled, and which PyTorch runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase

from ..backends.negotiation import Decision
from ..errors import CompileError, ShapeError, UnsupportedOpError
from ..frontend import device_of, is_flattened, reason_against
from ..frontend.effects import take_tokens
from ..options import Options
from ..torch_compat.operators import OperatorBase, OpOverload
from ..torch_compat.tensors import preserve_version_counter
from .compiled import CompiledGraph, log
from .result_function import LayoutError

# Compiling a part again with what the last attempt found it cannot hold.
_MAX_ATTEMPTS = 10

# Operations without work that their schemas do not declare as views.
_FREE = {torch.ops.aten._unsafe_view, torch.ops.aten.sym_size, torch.ops.aten.sym_stride, torch.ops.aten.sym_numel}


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
    views: int = 0
    """The operations of a graph that only makes views: PyTorch runs it."""
    fallbacks: list[Fallback] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)
    """Who compiles the operations that back ends of others could compile."""

    def warning(self) -> str:
        """The operations that PyTorch runs, in one line."""
        first = dict.fromkeys(f"{fallback.op} ({fallback.reason})" for fallback in self.fallbacks)
        shown = "; ".join([*list(first)[:3], *(["..."] if len(first) > 3 else [])])
        count = f"{len(self.fallbacks)} of {self.ops} operations of the {self.kind} graph run in PyTorch"
        return f"{count}: {shown}. disc.explain lists all of them."

    def __str__(self) -> str:
        text = f"{self.kind} graph: {self.compiled} of {self.ops} operations in {self.parts} compiled parts"
        text += f", {self.views} views" if self.views else ""
        lines = [f"  in PyTorch: {fallback}" for fallback in self.fallbacks]
        return "\n".join([text, *lines, *(f"  {decision}" for decision in self.decisions)])


class _Supported(OperatorSupportBase):
    def __init__(self, against: Mapping[str, str]) -> None:
        self._against = against

    def is_node_supported(self, submodules: Mapping[str, torch.nn.Module], node: Node) -> bool:
        if node.op == "get_attr":
            # The graphs of an operator belong to it.
            return all(is_flattened(user.target) and user.name not in self._against for user in node.users)
        return node.op == "call_function" and node.name not in self._against


class _Part(torch.nn.Module):
    """A part of a graph, in the place of the module that held its ops."""

    def __init__(self, compiled: Callable[..., list[Any]], single: bool) -> None:
        super().__init__()
        self._compiled = compiled
        self._single = single

    def forward(self, *args: Any) -> Any:
        results = self._compiled(*args)
        return results[0] if self._single else tuple(results)


class _Checked:
    """A compiled graph, which PyTorch runs for arguments that the native code does not take."""

    def __init__(self, compiled: CompiledGraph, graph: Callable[..., Any], strict: bool) -> None:
        self._compiled = compiled
        self._graph = graph
        self._strict = strict
        self._warned = False

    def __call__(self, *args: Any) -> list[Any]:
        try:
            return self._compiled(*args)
        except (ShapeError, LayoutError, TypeError) as error:
            # The native code checks its arguments before it changes any.
            if self._strict:
                raise
            if not self._warned:
                self._warned = True
                log.warning("disc: a call of a compiled graph runs in PyTorch: %s", _one_line(str(error)))
        results = self._graph(*args)
        return list(results) if isinstance(results, (tuple, list)) else [results]


def compile_graph(
    graph: GraphModule, kind: str, options: Options, fixed: Mapping[int, torch.Tensor], strict: bool = False
) -> tuple[Any, GraphReport]:
    """A function of the graph's arguments that returns its results as a list, and the parts it consists of.

    PyTorch runs what cannot be compiled, for whatever reason.

    Args:
        graph: a graph of aten ops.
        kind: ``"inference"``, ``"forward"`` or ``"backward"``.
        options: those of the compilation.
        fixed: the tensors of arguments that will be the same in most calls, by number.
        strict: whether an operation that PyTorch would run is an error.
    """
    report = GraphReport(kind, sum(node.op == "call_function" for node in graph.graph.nodes))
    try:
        compiled = _compile(GraphModule(graph, _copy(graph)), options, fixed, strict, report)
    except Exception as error:
        log.debug("a %s graph cannot be compiled", kind, exc_info=error)
        reason = _reason(error)
        report.compiled = report.parts = 0
        report.fallbacks = [_fallback(n, reason) for n in graph.graph.nodes if n.op == "call_function"]
        compiled = _Unversioned(graph)
    if report.fallbacks:
        if strict:
            raise CompileError("import", f"fallback='error': {report}")
        log.warning("disc: %s", report.warning())
    return compiled, report


def _compile(
    graph: GraphModule, options: Options, fixed: Mapping[int, torch.Tensor], strict: bool, report: GraphReport
) -> Any:
    whole = GraphModule(graph, _copy(graph))
    take_tokens(graph)
    updates = _take_updates(graph)
    ops = [node for node in graph.graph.nodes if node.op == "call_function"]
    device = device_of(graph.graph)
    against = {node.name: why for node in ops if (why := reason_against(node, device)) is not None}
    nodes = {node.name: node for node in ops}
    if not any(map(_computes, ops)):
        report.views = len(ops)
    elif not against:
        try:
            compiled = CompiledGraph(graph, options, fixed, updates, f"{report.kind} graph")
            report.compiled, report.parts = report.ops, 1
            report.decisions = list(compiled.decisions)
            return _Checked(compiled, _Unversioned(whole), strict)
        except Exception as error:
            log.debug("a %s graph cannot be compiled as one", report.kind, exc_info=error)
            against = _blamed(error, ops)
    # The new values of arguments are results more, which are copied at the end.
    _append_results(graph, [value for _, value in updates])
    places = [list(_placeholders(graph)).index(old) for old, _ in updates]
    split = _partition(graph, against, options, report, strict)
    report.fallbacks = [_fallback(nodes[name], why) for name, why in against.items()]
    return _WithUpdates(split, places)


def _blamed(error: Exception, nodes: Sequence[Node]) -> dict[str, str]:
    """Those of ``nodes`` that an error is about, as far as it says, with the reason; else all of them."""
    names = {node.name for node in nodes}
    if isinstance(error, UnsupportedOpError):
        named = {op.node: op.reason for op in error.ops if op.node in names}
        if named:
            return named
        return dict.fromkeys(names, f"{error.ops[0].name}: {_one_line(error.ops[0].reason)}")
    reason = _reason(error)
    if isinstance(error, CompileError) and error.source:
        there = {node.name: reason for node in nodes if _computes(node) and _source(node) == error.source}
        if there:
            return there
    return {node.name: reason for node in nodes}


def _reason(error: Exception) -> str:
    text = _one_line(error.diagnostic if isinstance(error, CompileError) else str(error))
    return text if isinstance(error, CompileError) else f"internal error: {type(error).__name__}: {text}"


def _one_line(text: str) -> str:
    line = next(iter(text.strip().splitlines()), "")
    return line if len(line) <= 160 else f"{line[:157]}..."


def _fallback(node: Node, reason: str) -> Fallback:
    target = node.target
    name = str(target) if isinstance(target, (str, OperatorBase)) else getattr(target, "__name__", str(target))
    # A reason may have the IR of a whole operation: the logger has it at DEBUG.
    return Fallback(name, _one_line(reason), _source(node))


def _same_versions(tensors: Sequence[torch.Tensor]) -> Any:
    # Tensors made in inference mode have no versions.
    counted = tuple(x for x in tensors if not x.is_inference())
    return preserve_version_counter(counted)  # type: ignore[no-untyped-call]


class _Unversioned:
    """A graph that updates arguments. It leaves their version counters alone, as native code does: AOTAutograd counts
    the updates."""

    def __init__(self, graph: GraphModule) -> None:
        self._graph = graph
        placeholders = _placeholders(graph)
        copies = (n.args[0] for n in graph.graph.nodes if n.target is torch.ops.aten.copy_.default)
        self._places = sorted({placeholders.index(old) for old in copies if old in placeholders})

    def __call__(self, *args: Any) -> Any:
        if not self._places:
            return self._graph(*args)
        with _same_versions([args[place] for place in self._places]):
            return self._graph(*args)


class _WithUpdates:
    """Calls a graph, and copies its last results to arguments, whose version counters stay as they are."""

    def __init__(self, graph: GraphModule, places: list[int]) -> None:
        self._graph = graph
        self._places = places

    def __call__(self, *args: Any) -> list[Any]:
        results = list(self._graph(*args))
        for place in reversed(self._places):
            with _same_versions([args[place]]):
                args[place].copy_(results.pop())
        return results


def _partition(
    graph: GraphModule, against: dict[str, str], options: Options, report: GraphReport, strict: bool
) -> GraphModule:
    for _ in range(_MAX_ATTEMPTS):
        whole = GraphModule(graph, _copy(graph))
        partitioner = CapabilityBasedPartitioner(whole, _Supported(against), allows_single_node_partition=True)
        # Views alone need no code.
        parts = [p for p in partitioner.propose_partitions() if any(map(_computes, p.nodes))]
        sizes = [sum(node.op == "call_function" for node in p.nodes) for p in parts]
        partitioner.fuse_partitions(parts)
        failed: dict[str, str] = {}
        decisions: list[Decision] = []
        for node in list(whole.graph.nodes):
            if node.op == "call_module":
                part = whole.get_submodule(node.target)
                assert isinstance(part, GraphModule)
                name = f"{report.kind} graph {node.name}"
                failed.update(_compile_part(whole, node, part, options, strict, name, decisions))
        if not failed:
            whole.recompile()
            report.compiled, report.parts, report.decisions = sum(sizes), len(sizes), decisions
            return whole
        against.update(failed)
    against.update({node.name: "it could not be compiled" for node in graph.graph.nodes if node.op == "call_function"})
    return graph


def _compile_part(
    whole: GraphModule,
    node: Node,
    part: GraphModule,
    options: Options,
    strict: bool,
    name: str,
    decisions: list[Decision],
) -> dict[str, str]:
    """Puts native code in the place of ``part``; or why nodes of it cannot be compiled.

    ``decisions`` gets what back ends of others compile of it.
    """
    for placeholder, argument in zip(_placeholders(part), node.args, strict=True):
        placeholder.meta = dict(argument.meta)  # type: ignore[union-attr]
    _pass_symbols(whole, node, part)
    try:
        compiled = CompiledGraph(part, options, name=name)
    except Exception as error:
        log.debug("a part of a graph cannot be compiled", exc_info=error)
        return _blamed(error, [n for n in part.graph.nodes if n.op == "call_function"])
    decisions += compiled.decisions
    output = next(n for n in part.graph.nodes if n.op == "output").args[0]
    setattr(whole, str(node.target), _Part(_Checked(compiled, part, strict), not isinstance(output, (tuple, list))))
    return {}


def _pass_symbols(whole: GraphModule, call: Node, part: GraphModule) -> None:
    """Makes arguments of a part of the sizes that its operands' sizes and its results' layouts depend on."""
    known = {e for n in _placeholders(part) for e in _expressions(n.meta.get("val"), False)}
    output = next(n for n in part.graph.nodes if n.op == "output")
    needed = {
        symbol
        for n in (*_placeholders(part), *output.all_input_nodes)
        for expr in _expressions(n.meta.get("val"), True)
        for symbol in expr.free_symbols
    }
    last = _placeholders(part)[-1] if _placeholders(part) else None
    for symbol in sorted(needed - known, key=str):
        source = next((n for n in _placeholders(whole) if _is_number(n.meta.get("val"), symbol)), None)
        if source is None or last is None:
            continue
        with part.graph.inserting_after(last):
            last = part.graph.placeholder(source.name)
        last.meta = dict(source.meta)
        call.args = (*call.args, source)
    part.recompile()


def _is_number(value: Any, symbol: Any) -> bool:
    return isinstance(value, torch.SymInt) and value.node.expr == symbol


def _expressions(value: Any, strides: bool) -> list[Any]:
    """The symbolic sizes of a tensor, and its strides and offset if asked for; or a symbolic number."""
    numbers = [value]
    if isinstance(value, torch.Tensor):
        numbers = [*value.shape, *((*value.stride(), value.storage_offset()) if strides else ())]
    return [number.node.expr for number in numbers if isinstance(number, torch.SymInt)]


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
    updates: list[tuple[Node, Node]] = []
    nodes = list(graph.graph.nodes)
    for at, node in enumerate(nodes):
        if node.target is torch.ops.aten.copy_.default and node.args[0].op == "placeholder":
            old, value = node.args[:2]
            same = value.meta["val"].shape == old.meta["val"].shape and value.meta["val"].dtype == old.meta["val"].dtype
            if same and value is not old and old not in dict(updates) and not _is_read(node, old, nodes[at + 1 :]):
                # What returns the assignment returns the argument.
                node.replace_all_uses_with(old)
                updates.append((old, value))
                graph.graph.erase_node(node)
    graph.recompile()
    return updates


def _is_read(assignment: Node, old: Node, later: Sequence[Node]) -> bool:
    """Whether something is computed from an argument after the assignment to it."""
    aliases = {assignment, old}
    for node in later:
        if node.op == "call_function" and not aliases.isdisjoint(node.all_input_nodes):
            if _computes(node) and node.target is not torch.ops.aten.copy_.default:
                return True
            aliases.add(node)
    return False


def _append_results(graph: GraphModule, values: list[Node]) -> None:
    if not values:
        return
    output = next(node for node in graph.graph.nodes if node.op == "output")
    output.args = ((*output.args[0], *values),)
    graph.recompile()


def _computes(node: Node) -> bool:
    """Whether the node is work for native code: views cost PyTorch no more."""
    target = node.target
    if is_flattened(target):
        return True
    return isinstance(target, OpOverload) and not (target.is_view or target.overloadpacket in _FREE)


def _source(node: Node) -> str:
    """The last line of the user's that led to the node."""
    for line in reversed((node.meta.get("stack_trace") or node.stack_trace or "").splitlines()):
        if line.strip().startswith("File "):
            parts = line.strip().split('"')
            return f"{parts[1]}:{parts[2].split('line ')[1].split(',')[0]}"
    return ""
