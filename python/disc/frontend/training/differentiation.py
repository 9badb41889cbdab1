"""Runs a traced program with autograd, while another trace records it: this traces its gradients.

Operations of PyTorch are differentiated by PyTorch. Branches and loops between the markers of ``markers.py`` have no
gradient there: :mod:`.region_gradients` adds one for each, which is a branch or a loop itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
import torch.fx.traceback as fx_traceback
from torch import Tensor
from torch.fx import Graph, GraphModule, Node

from ... import errors
from ...torch_compat import pytree
from ...torch_compat.operators import HigherOrderOperator, OpOverload
from .. import markers
from ..gradient_mode import is_kept, is_off
from ..locations import source_of_trace
from .derivatives import DERIVATIVES, PARTS, Part

BEGINS = (markers.branch_begin, markers.loop_begin, markers.procedure_begin)
_ENDS = {
    markers.branch_begin: markers.branch_else,
    markers.branch_else: markers.branch_end,
    markers.loop_begin: markers.loop_end,
    markers.procedure_begin: markers.procedure_end,
}
# Results of regions: their gradients belong to the region's.
_RESULTS = (markers.branch_result, markers.loop_last, markers.loop_stack)


def source_of(node: Node) -> str | None:
    """The line of Python that a node comes from."""
    return source_of_trace(node.meta.get("stack_trace") or "")


def end_of(nodes: Sequence[Node], start: int) -> int:
    """The place of the marker that ends the part of a region that ``nodes[start]`` begins."""
    begin = nodes[start]
    wanted = _ENDS[begin.target]
    return next(at for at in range(start + 1, len(nodes)) if nodes[at].target is wanted and nodes[at].args[0] is begin)


def outermost(nodes: Sequence[Node]) -> list[Node]:
    """The nodes that are not part of a region among them."""
    found: list[Node] = []
    at = 0
    while at < len(nodes):
        if nodes[at].target in BEGINS:
            end = end_of(nodes, at)
            at = end_of(nodes, end) if nodes[at].target is markers.branch_begin else end
        else:
            found.append(nodes[at])
        at += 1
    return found


class Evaluation:
    """Runs the nodes of a graph in their order, in the modes that are active."""

    def __init__(
        self,
        module: GraphModule,
        values: Mapping[Node, Any] | None = None,
        special: Mapping[Node, Callable[[Evaluation], Any]] | None = None,
    ) -> None:
        """``special``: how the values of some nodes are computed, instead of by what they call."""
        self.module = module
        self.values: dict[Node, Any] = dict(values or {})
        self._special = special or {}
        self._parts: dict[Node, Part] = {}
        self._writes: dict[Graph, set[Node]] = {}

    def run(self, args: Sequence[Any]) -> list[Any]:
        """The results of the graph for these arguments."""
        nodes = list(self.module.graph.nodes)
        placeholders = [node for node in nodes if node.op == "placeholder"]
        self.values.update(zip(placeholders, args, strict=True))
        self.evaluate([node for node in nodes if node.op not in ("placeholder", "output")])
        output = next(node for node in nodes if node.op == "output")
        return list(self.operands(output.args[0]))

    def evaluate(self, nodes: Sequence[Node]) -> None:
        """Computes the values of nodes; regions between markers as a whole."""
        at = 0
        while at < len(nodes):
            node = nodes[at]
            if node in self.values:  # the result of a region
                at += 1
            elif node in self._special:
                self.values[node] = self._special[node](self)
                at += 1
            elif node.target in BEGINS:
                at = self._region(nodes, at) + 1
            else:
                self.values[node] = self.call(node)
                at += 1

    def operands(self, args: Any) -> Any:
        """Arguments of a node, with the values of the nodes among them."""
        return pytree.tree_map_only(Node, self.values.__getitem__, args)

    def call(self, node: Node) -> Any:
        """The value of a node."""
        with _meta_of(node), torch.set_grad_enabled(torch.is_grad_enabled() and not is_off(node)):
            if node.op == "get_attr":
                found: Any = self.module
                for part in str(node.target).split("."):
                    found = getattr(found, part)
                return found
            assert node.op == "call_function", node.op
            args, kwargs = self.operands(node.args), self.operands(node.kwargs)
            if is_kept(node):
                return args[0]
            if isinstance(node.target, HigherOrderOperator):
                return self._higher_order(node, args, kwargs)
            if node.target is torch.ops.aten._assert_scalar.default and isinstance(args[0], torch.SymBool):
                # What the condition says of numbers is known from here on.
                torch._check(args[0], lambda: args[1])
                return None
            if isinstance(node.target, OpOverload) and node.target.namespace == "disc":
                return self._own(node, args, kwargs)
            if torch.is_grad_enabled():
                if node.target in DERIVATIVES:
                    return DERIVATIVES[node.target](*args, **kwargs)
                if node.target in PARTS and (args[0].requires_grad or node in self._written(node.graph)):
                    found_part = PARTS[node.target](*args, **kwargs)
                    if found_part is not None:
                        self._parts[node] = found_part
                        return found_part.read(args[0])
            value = node.target(*args, **kwargs)  # type: ignore[operator]
            if self._parts and _is_mutable(node):
                self._write(node)
            if isinstance(value, torch.SymInt):
                _keep_range(node, value)
            return value

    # -- parts of tensors that are copies --------------------------------------------------------------------------

    def changes(self, node: Node) -> bool:
        """Whether an operation of the node's graph writes to its value, or to what that is a view of."""
        return not self._written(node.graph).isdisjoint(_bases(node))

    def _written(self, graph: Graph) -> set[Node]:
        """The nodes of a graph that an operation in place writes to, and those that they are views of."""
        if graph not in self._writes:
            found: set[Node] = set()
            for node in graph.nodes:
                if _is_mutable(node):
                    for target in _targets(node):
                        found.update(_bases(target))
            self._writes[graph] = found
        return self._writes[graph]

    def _write(self, node: Node) -> None:
        """After an operation in place: a part that it wrote to is written to what it is a part of, and others of that
        are read again."""
        for target in _targets(node):
            path = _bases(target)
            for base in path:
                if base in self._parts:
                    self._parts[base].write(self.operands(base.args[0]), self.values[base])
            stale = [x for x in self._parts if x not in path and path[-1] in _bases(x)]
            if not stale:
                continue
            again = set(stale)
            for view in list(self.values):
                if view in again or (again.intersection(_bases(view)) and isinstance(self.values[view], Tensor)):
                    base, part = self.operands(view.args[0]), self._parts.get(view)
                    if part is not None:
                        self.values[view] = part.read(base)
                    else:
                        self.values[view] = base if _is_mutable(view) else self.call(view)

    def _higher_order(self, node: Node, args: Any, kwargs: Any) -> Any:
        """A part of a program in which another mode of PyTorch is active."""
        name = node.target.name()  # type: ignore[union-attr]
        context: AbstractContextManager[Any]
        if name == "wrap_with_set_grad_enabled":
            enabled, body, *rest = args
            context = torch.set_grad_enabled(enabled and torch.is_grad_enabled())
        elif name == "wrap_with_autocast":
            device, dtype, enabled, cache, body, *rest = args
            context = torch.autocast(device, dtype=dtype, enabled=enabled, cache_enabled=cache)
        else:
            return node.target(*args, **kwargs)  # type: ignore[operator]
        with context:
            results = Evaluation(body).run(rest)
        single = not isinstance(next(iter(reversed(body.graph.nodes))).args[0], (tuple, list))
        return results[0] if single else tuple(results)

    def _own(self, node: Node, args: Any, kwargs: Any) -> Any:
        """An operator of DISC, which PyTorch cannot differentiate."""
        if not torch.is_grad_enabled() or not any(requires_grad(x) for x in pytree.tree_leaves((args, kwargs))):
            return node.target(*args, **kwargs)  # type: ignore[operator]
        if node.target is markers.branch_enter:
            return _Copy.apply(node.target, *args)
        from .definitions import DEFINITIONS, differentiable

        if node.target in DEFINITIONS:
            return differentiable(DEFINITIONS[node.target], args, kwargs)
        raise errors.GradientError(
            "import", f"{node.target} has no gradient: compute it under torch.no_grad(), or write it differently",
            source_of(node),
        )  # fmt: skip

    # -- regions -------------------------------------------------------------------------------------------------

    def _region(self, nodes: Sequence[Node], start: int) -> int:
        """Computes a region that begins at ``nodes[start]``; returns the place of its end."""
        end = end_of(nodes, start)
        middle = end
        if nodes[start].target is markers.branch_begin:
            end = end_of(nodes, middle)
        inside = nodes[start : end + 1]
        own = set(inside)
        outer = list(dict.fromkeys(x for node in inside for x in node.all_input_nodes if x not in own))
        enabled = torch.is_grad_enabled() and not is_off(nodes[start])
        wanted = [x for x in outer if requires_grad(self.values[x])] if enabled else []
        if not wanted:
            for node in inside:
                self.values[node] = self.call(node)
            return end
        if nodes[start].target is markers.procedure_begin:
            raise errors.GradientError(
                "import",
                "gradients of recursive functions are not supported, except over trees",
                source_of(nodes[start]),
            )
        from .region_gradients import Branch, Loop

        region: Branch | Loop
        if nodes[start].target is markers.branch_begin:
            region = Branch(self, nodes[start:middle], nodes[middle:end], nodes[end], outer)
        else:
            region = Loop(self, nodes[start:end], nodes[end], outer)
        region.run(*self._results(nodes[end + 1 :], nodes[end]))
        return end

    def _results(self, nodes: Sequence[Node], end: Node) -> tuple[list[Node], list[Node]]:
        """The results of a region that are tensors, and the nodes that compute their sizes."""
        results = [node for node in nodes if node.target in _RESULTS and node.args[0] is end]
        trips = [node for node in nodes if node.target is markers.loop_trips and node.args[0] is end]
        needed: set[Node] = set()
        waiting = [x for node in results for x in node.all_input_nodes]
        waiting += [read for node in trips for read in node.users]
        while waiting:
            node = waiting.pop()
            if node in needed or node in self.values or node is end:
                continue
            needed.add(node)
            waiting += node.all_input_nodes
        return results, [node for node in nodes if node in needed]


def _is_mutable(node: Node) -> bool:
    return bool(getattr(getattr(node.target, "_schema", None), "is_mutable", False))


def _targets(node: Node) -> list[Node]:
    """The arguments that an operation in place writes to."""
    schema = node.target._schema  # type: ignore[union-attr]
    given = [
        node.args[number] if number < len(node.args) else node.kwargs.get(argument.name)
        for number, argument in enumerate(schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    ]
    return [x for value in given for x in pytree.tree_leaves(value) if isinstance(x, Node)]


def _bases(node: Node) -> list[Node]:
    """A node, what it is a view of, and so on."""
    found = [node]
    while True:
        schema = getattr(found[-1].target, "_schema", None)
        aliases = [] if schema is None else [result.alias_info for result in schema.returns]
        if len(aliases) != 1 or aliases[0] is None or not found[-1].args or not isinstance(found[-1].args[0], Node):
            return found
        found.append(found[-1].args[0])


def _keep_range(node: Node, value: torch.SymInt) -> None:
    """Sets the range of a data-dependent number to that in the program, where ``torch._check`` was called for it."""
    known = node.meta.get("val")
    if not isinstance(known, torch.SymInt) or not known.node.expr.is_Symbol or not value.node.expr.is_Symbol:
        return
    ranges = value.node.shape_env.var_to_range
    if known.node.expr in ranges and value.node.expr in ranges and known.node.expr != value.node.expr:
        ranges[value.node.expr] &= ranges[known.node.expr]


def fresh(value: Any) -> Any:
    """A tensor of the same sizes and layout, in memory of its own."""
    if not isinstance(value, Tensor):
        return value
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)


def requires_grad(value: Any) -> bool:
    """Whether a value is a tensor that autograd follows."""
    return isinstance(value, Tensor) and value.requires_grad


def _meta_of(node: Node) -> AbstractContextManager[Any]:
    """While it is active, what is recorded has the node's source line."""
    return fx_traceback.set_current_meta(node) if node.meta.get("stack_trace") else nullcontext()


def gradients(
    outputs: Sequence[Tensor], inputs: Sequence[Tensor], given: Sequence[Tensor] | None = None
) -> list[Tensor | None]:
    """The gradients of inputs from those of outputs, None where an output does not depend on an input.

    What is recorded meanwhile has the source line of the operation whose gradient it is. Autograd knows it where the
    operation ran in the mode for anomalies.
    """
    with _lines(outputs):
        try:
            return list(torch.autograd.grad(outputs, inputs, given, allow_unused=True))
        except RuntimeError as error:
            if "modified by an inplace operation" not in str(error):
                raise
            raise errors.GradientError(
                "import",
                "a tensor that a gradient needs is changed in place afterwards, which PyTorch does not allow either",
                help="change a copy of it (clone())",
            ) from error


@contextmanager
def _lines(outputs: Sequence[Tensor]) -> Iterator[None]:
    before = fx_traceback.format_stack()

    def hook(trace: list[str]) -> Callable[[Any], None]:
        return lambda _: fx_traceback.set_stack_trace(trace)

    handles = []
    waiting = [x.grad_fn for x in outputs if x.grad_fn is not None]
    seen = set(waiting)
    while waiting:
        function = waiting.pop()
        metadata: Any = function.metadata
        if trace := metadata.get("traceback_"):
            handles.append(function.register_prehook(hook(trace)))
        further = {x for x, _ in function.next_functions if x is not None} - seen
        seen |= further
        waiting += further
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
        fx_traceback.set_stack_trace(before)


class _Copy(torch.autograd.Function):
    """The copy of a tensor for a side of a branch that changes it in place."""

    @staticmethod
    def forward(ctx: Any, marker: Any, token: Tensor, value: Tensor) -> Tensor:
        return marker(token, value)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return None, None, gradient
