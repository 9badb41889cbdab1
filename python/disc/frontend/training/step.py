"""A training step as a program that can be imported: a loss, its gradients, and an optimizer's update.

The graph of the gradients and the program of the update are joined. Parameters and the optimizer's state become state
of the program: tensors that a call changes in place.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import sympy
import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.export.graph_signature import (
    ConstantArgument,
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    SymBoolArgument,
    SymFloatArgument,
    SymIntArgument,
    TensorArgument,
)
from torch.fx import Graph, GraphModule, Node

from ...torch_compat import pytree
from ...torch_compat.tracing import tensor_metadata
from ..entry_guards import EntryGuard
from ..graphs import CallSpec, GraphProgram
from .gradients import Gradients, Source, trace_gradients
from .loop_sums import sum_behind_loops
from .pruning import prune
from .transforms import FINITE, Transform

HYPER_PARAMETERS = "hyper_parameters"
"""The keyword argument of a step that takes the numbers that an optimizer reads: float64, one after another."""


@dataclass
class Update:
    """An optimizer's update of parameters, as a program without changes in place.

    Its state dict has the parameters, by their names, and the optimizer's state. It takes the gradients, then numbers
    as 0-d float64 tensors.
    """

    program: ExportedProgram
    gradients: list[str]
    """The parameters whose gradients it takes, in order."""
    numbers: int
    """How many numbers it takes."""
    tensors: Mapping[str, Tensor]
    """The parameters and the optimizer's state: what the names in the program's state dict stand for."""


class UsesFunctions(BaseException):
    """The loss has gradients of its own (``torch.autograd.Function``), of which its program has only the forward.

    Not an ``Exception``, which would be reported.
    """


@dataclass
class TrainingProgram:
    """How the program of a loss becomes that of a step; called by the import."""

    parameters: Mapping[str, Tensor]
    """The parameters whose gradients are computed, by the names that errors and the compiled model use."""
    update: Callable[[list[str]], Update] | None
    """Called with the names of the parameters that have gradients; returns the :class:`Update`."""
    transform: Transform = field(default_factory=Transform)
    """What happens to the gradients first."""
    skips: bool = False
    """Whether parameters and the optimizer's state keep their values if a gradient is not finite."""
    sums: Callable[[list[str]], Mapping[str, Tensor]] | None = None
    """Called as ``update``; returns the tensors to which gradients are added, by the parameters' names."""
    source: Source = "autograd"
    """Where the gradients come from; see :func:`trace_gradients`."""
    functions: Sequence[str] = ()
    """The classes of ``torch.autograd.Function`` that the loss was found to use."""

    def __call__(self, exported: ExportedProgram, ranges: Mapping[Any, Any]) -> tuple[GraphProgram, list[EntryGuard]]:
        """The program of a step, and the conditions on sizes that tracing it asked for."""
        if self.functions and self.source == "autograd":
            raise UsesFunctions(self.functions)
        gradients = trace_gradients(exported, self.parameters, self.transform, self.source)
        prune(gradients)
        sum_behind_loops(gradients)
        prune(gradients)
        program = _Step(exported, gradients, self).build()
        program.range_constraints.update(ranges)
        return program, gradients.guards


class _Step:
    def __init__(self, exported: ExportedProgram, gradients: Gradients, plan: TrainingProgram) -> None:
        self._exported, self._gradients, self._plan = exported, gradients, plan
        self._graph = Graph()
        self._nodes: dict[Node, Any] = {}
        # Conditions and messages have the names of the exported program's inputs.
        names = [node.name for node in exported.graph.nodes if node.op == "placeholder"]
        old = [node for node in gradients.module.graph.nodes if node.op == "placeholder"]
        if gradients.carrier is not None:
            names.append(HYPER_PARAMETERS)
        for node, name in zip(old, names, strict=True):
            self._nodes[node] = self._graph.placeholder(name)
        for node in gradients.module.graph.nodes:
            if node.op not in ("placeholder", "output"):
                self._nodes[node] = self._graph.node_copy(node, self._nodes.__getitem__)
        for node, new in self._nodes.items():
            new.meta = dict(node.meta)
        self._inputs: list[InputSpec] = []
        self._state: dict[str, Tensor] = {}
        self._updates: list[tuple[str, Node]] = []
        self._changed_inputs: list[tuple[str, Node]] = []
        self._placeholders: dict[str, Node] = {}

    def build(self) -> GraphProgram:
        """The program."""
        exported = self._exported
        signature = exported.graph_signature
        placeholders = [node for node in self._gradients.module.graph.nodes if node.op == "placeholder"]
        changed = {old: self._nodes[new] for old, new in self._gradients.changed.items()}
        user: list[InputSpec] = []
        carrier = self._gradients.carrier
        for spec, old in zip(signature.input_specs, placeholders, strict=False):
            node = self._nodes[old]
            if spec.kind is InputKind.USER_INPUT:
                user.append(dataclasses.replace(spec, arg=dataclasses.replace(spec.arg, name=node.name)))
                if old in changed:
                    self._changed_inputs.append((node.name, changed[old]))
                continue
            assert spec.target is not None
            found = exported.state_dict.get(spec.target)
            tensor = exported.constants[spec.target] if found is None else found
            name = self._name(spec.target, tensor)
            self._add_state(name, node, tensor)
            if old in changed:
                self._updates.append((name, changed[old]))
        for node in [n for n in self._graph.nodes if n.op == "get_attr"]:
            self._constant(node)
        gradients = {name: self._nodes[n] for name, n in self._gradients.gradients.items()}
        further = [self._nodes[n] for n in self._gradients.further]
        if self._plan.sums is not None:
            self._add_up(gradients, self._plan.sums(list(gradients)))
        numbers = None if carrier is None else self._nodes[carrier]
        if self._plan.update is not None:
            update = self._plan.update(list(gradients))
            first = len(self._plan.transform.numbers)
            if update.numbers:
                numbers = self._carrier(numbers, first + update.numbers)
            keep = further[self._plan.transform.results.index(FINITE)] if self._plan.skips else None
            self._join(update, gradients, numbers, first, keep)
        if numbers is not None:
            user.append(InputSpec(InputKind.USER_INPUT, TensorArgument(numbers.name), None))
        return self._program(user, further, numbers is not None)

    def _name(self, target: str, tensor: Tensor) -> str:
        known = next((name for name, p in self._plan.parameters.items() if p is tensor), None)
        if known is not None and self._plan.source == "buffers":
            known = "gradient." + known
        return target if known is None or known in self._state else known

    # -- inputs ----------------------------------------------------------------------------------------------

    def _placeholder(self, name: str, like: Tensor) -> Node:
        with self._graph.inserting_before(next(iter(self._graph.nodes))):
            node = self._graph.placeholder(name)
        node.meta = {"val": like, "tensor_meta": tensor_metadata(like)}
        return node

    def _fake(self, tensor: Tensor) -> Tensor:
        values = (x for n in self._graph.nodes for x in pytree.tree_leaves(n.meta.get("val")))
        mode = next(x.fake_mode for x in values if hasattr(x, "fake_mode"))
        with mode:
            return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)

    def _add_state(self, name: str, node: Node, tensor: Tensor) -> None:
        self._inputs.append(InputSpec(InputKind.PARAMETER, TensorArgument(node.name), name))
        self._state[name] = tensor
        self._placeholders[name] = node

    def _constant(self, node: Node) -> None:
        tensor = self._gradients.module
        for part in str(node.target).split("."):
            tensor = getattr(tensor, part)
        assert isinstance(tensor, Tensor)
        new = self._placeholder(node.name, self._fake(tensor))
        node.replace_all_uses_with(new)
        for old, current in self._nodes.items():
            if current is node:
                self._nodes[old] = new
        self._graph.erase_node(node)
        self._add_state(new.name, new, tensor)

    def _carrier(self, known: Node | None, count: int) -> Node:
        """The input with all numbers."""
        like = self._fake(torch.empty(count, dtype=torch.float64))
        if known is None:
            return self._placeholder(HYPER_PARAMETERS, like)
        known.meta = {"val": like, "tensor_meta": tensor_metadata(like)}
        for user in list(known.users):
            if user.target is torch.ops.aten.detach.default:
                user.replace_all_uses_with(known)
                self._graph.erase_node(user)
        return known

    # -- the update ------------------------------------------------------------------------------------------

    def _add_up(self, gradients: Mapping[str, Node], sums: Mapping[str, Tensor]) -> None:
        for number, (name, gradient) in enumerate(gradients.items()):
            total = sums[name]
            # Two parameters may have one gradient, as two biases that are added.
            node = self._placeholder(f"sum_{number}_{gradient.name}", self._fake(total))
            added = self._call(torch.ops.aten.add.Tensor, (node, gradient), node)
            self._add_state("gradient." + name, node, total)
            self._updates.append(("gradient." + name, added))

    def _call(self, target: Any, args: tuple[Any, ...], like: Node) -> Node:
        node = self._graph.call_function(target, args)
        node.meta = {k: like.meta[k] for k in ("val", "tensor_meta") if k in like.meta}
        return node

    def _join(
        self, update: Update, gradients: Mapping[str, Node], carrier: Node | None, first: int, keep: Node | None
    ) -> None:
        """Adds the nodes of an update behind those of the gradients."""
        program = update.program
        values: dict[Node, Any] = {}
        updated = dict(self._updates)
        given: list[Any] = [gradients[name] for name in update.gradients]
        for number in range(first, first + update.numbers):
            assert carrier is not None
            node = self._graph.call_function(torch.ops.aten.select.int, (carrier, 0, number))
            node.meta["val"] = carrier.meta["val"][number]
            given.append(node)
        arguments = iter(given)
        nodes = [node for node in program.graph.nodes if node.op == "placeholder"]
        for spec, node in zip(program.graph_signature.input_specs, nodes, strict=True):
            if spec.kind is InputKind.USER_INPUT:
                values[node] = next(arguments)
                continue
            assert spec.target is not None
            name = spec.target
            if name not in self._placeholders:
                tensor = update.tensors.get(name)
                if tensor is None:
                    tensor = program.constants.get(name, program.state_dict.get(name))
                self._add_state(name, self._placeholder(node.name, self._fake(tensor)), tensor)
            # The loss may have changed a parameter, as an embedding with max_norm does.
            values[node] = updated.get(name, self._placeholders[name])
        symbols = _Symbols(self._graph)
        for node in program.graph.nodes:
            if node.op in ("placeholder", "output"):
                continue
            new = self._graph.node_copy(node, values.__getitem__)
            new.meta = symbols.renamed(node.meta)
            values[node] = new
        output = next(node for node in program.graph.nodes if node.op == "output")
        for spec, result in zip(program.graph_signature.output_specs, output.args[0], strict=True):
            if spec.kind in (OutputKind.BUFFER_MUTATION, OutputKind.PARAMETER_MUTATION):
                name = str(spec.target)
                new = values[result]
                if keep is not None:
                    old = updated.get(name, self._placeholders[name])
                    new = self._call(torch.ops.aten.where.self, (keep, new, old), new)
                updated[name] = new
        self._updates = list(updated.items())

    # -- the program -----------------------------------------------------------------------------------------

    def _program(self, user: Sequence[InputSpec], further: Sequence[Node], has_numbers: bool) -> GraphProgram:
        exported = self._exported
        outputs = [
            OutputSpec(OutputKind.BUFFER_MUTATION, TensorArgument(node.name), name) for name, node in self._updates
        ]
        outputs += [
            OutputSpec(OutputKind.USER_INPUT_MUTATION, TensorArgument(node.name), name)
            for name, node in self._changed_inputs
        ]
        nodes: list[Any] = [node for _, node in (*self._updates, *self._changed_inputs)]
        specs = exported.graph_signature.output_specs
        count = 0
        for spec, result in zip(specs, self._gradients.results, strict=False):
            if spec.kind is not OutputKind.USER_OUTPUT:
                continue
            value = self._nodes[result] if isinstance(result, Node) else result
            outputs.append(OutputSpec(OutputKind.USER_OUTPUT, _argument_of(spec.arg, value), None))
            nodes.append(value)
            count += 1
        for node in further:
            outputs.append(OutputSpec(OutputKind.USER_OUTPUT, TensorArgument(node.name), None))
            nodes.append(node)
        self._graph.output(tuple(nodes))
        self._graph.eliminate_dead_code()
        self._order_placeholders([*self._inputs, *user])
        assert exported.call_spec.in_spec is not None
        in_spec = exported.call_spec.in_spec
        if has_numbers:
            args, kwargs = in_spec.unflatten([0] * in_spec.num_leaves)
            _, in_spec = pytree.tree_flatten((args, {**kwargs, HYPER_PARAMETERS: 0}))
        result = self._gradients.out_spec.unflatten([0] * count)
        _, out_spec = pytree.tree_flatten((result, [0] * len(further)) if further else result)
        return GraphProgram(
            graph_module=GraphModule(torch.nn.Module(), self._graph),
            graph_signature=ExportGraphSignature([*self._inputs, *user], outputs),
            state_dict=self._state,
            range_constraints={**self._computed_ranges(), **exported.range_constraints},
            call_spec=CallSpec(in_spec, out_spec),
        )

    def _computed_ranges(self) -> dict[sympy.Symbol, Any]:
        """The ranges of data-dependent numbers, which have new symbols since the program was exported."""
        found: dict[sympy.Symbol, Any] = {}
        for node in self._graph.nodes:
            value = node.meta.get("val")
            if isinstance(value, torch.SymInt) and value.node.expr.is_Symbol:
                known = value.node.shape_env.var_to_range.get(value.node.expr)
                if known is not None:
                    found[value.node.expr] = known
        return found

    def _order_placeholders(self, specs: Sequence[InputSpec]) -> None:
        """Puts the placeholders in the order of the signature."""
        nodes = {node.name: node for node in self._graph.nodes if node.op == "placeholder"}
        for spec in reversed(specs):
            first = next(iter(self._graph.nodes))
            if first is not nodes[spec.arg.name]:
                first.prepend(nodes[spec.arg.name])


class _Symbols:
    """The symbols of a joined program: those of data are made anew, since both programs count them from zero."""

    def __init__(self, graph: Graph) -> None:
        values = (x for n in graph.nodes for x in pytree.tree_leaves(n.meta.get("val")))
        self._mode = next(x.fake_mode for x in values if hasattr(x, "fake_mode"))
        self._known: dict[sympy.Symbol, sympy.Symbol] = {}

    def renamed(self, meta: Mapping[str, Any]) -> dict[str, Any]:
        """The facts about a node in terms of the graph's own symbols."""
        renamed = dict(meta)
        renamed["val"] = pytree.tree_map(self._value, meta.get("val"))
        renamed.pop("tensor_meta", None)
        if isinstance(renamed["val"], Tensor):
            renamed["tensor_meta"] = tensor_metadata(renamed["val"])
        if bindings := meta.get("unbacked_bindings"):
            renamed["unbacked_bindings"] = {self._symbol(s, None): path for s, path in bindings.items()}
        return renamed

    def _symbol(self, symbol: sympy.Symbol, like: Any) -> sympy.Symbol:
        if symbol not in self._known:
            env = self._mode.shape_env
            with env.ignore_fresh_unbacked_symbols():
                new = env.create_unbacked_symint() if symbol.is_integer else env.create_unbacked_symfloat()
            self._known[symbol] = new.node.expr
        return self._known[symbol]

    def _value(self, value: Any) -> Any:
        if not isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            return value
        expr = value.node.expr
        expr = expr.xreplace({s: self._symbol(s, value) for s in expr.free_symbols})
        env = self._mode.shape_env
        make = {
            torch.SymInt: env.create_symintnode,
            torch.SymFloat: env.create_symfloatnode,
        }.get(type(value))
        return env.create_symboolnode(expr) if make is None else make(expr, hint=None)


def _argument_of(argument: Any, value: Any) -> Any:
    if not isinstance(value, Node):
        return ConstantArgument("", value)
    found = value.meta.get("val")
    kinds = {torch.SymInt: SymIntArgument, torch.SymFloat: SymFloatArgument, torch.SymBool: SymBoolArgument}
    return kinds.get(type(found), TensorArgument)(value.name)
