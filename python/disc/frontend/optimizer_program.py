"""One program that updates all parameters, made of the traced steps of a few.

Tracing takes some milliseconds for each operation, and most parameters of a model are updated in the same way. Their
operations are copies of those of one that has been traced, with the tensors of the parameter and with numbers of its
own. What depends on options alone is there once for each group.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sympy
import torch
from torch import Tensor
from torch.export import ExportedProgram, ModuleCallEntry, ModuleCallSignature
from torch.export.graph_signature import (
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputSpec,
    TensorArgument,
)
from torch.fx import Graph, Node

from ..torch_compat import pytree
from ..torch_compat.operators import OpOverload
from ..torch_compat.symbols import ShapeEnv
from ..torch_compat.tracing import FakeTensorMode
from .markers import branch_begin, branch_else, branch_end, branch_enter, branch_number, branch_result, is_marker
from .optimizer_places import Place
from .optimizer_update import COUNTER, GRADIENT, NUMBER, PARAMETER, Role, Update, inside

_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
_ORIGIN = ("stack_trace", "nn_module_stack", "source_fn_stack", "torch_fn")
_READS = (torch.ops.aten.item.default, torch.ops.aten._local_scalar_dense.default)
# Operations on whole tensors that are not marked as point-wise.
_OF_ALL_SHAPES = frozenset(
    (
        *_READS,
        torch.ops.aten.scalar_tensor.default,
        torch.ops.aten.clone.default,
        torch.ops.aten.copy_.default,
        torch.ops.aten.detach.default,
        torch.ops.aten.detach_.default,
        torch.ops.aten.alias.default,
        torch.ops.aten._to_copy.default,
        torch.ops.aten.to.dtype,
        torch.ops.aten.zeros_like.default,
        torch.ops.aten.ones_like.default,
        torch.ops.aten.full_like.default,
        torch.ops.aten.empty_like.default,
        torch.ops.aten.rand_like.default,
        torch.ops.aten.lerp.Scalar,
        torch.ops.aten.lerp_.Scalar,
        torch.ops.aten.masked_fill.Scalar,
        torch.ops.aten.masked_fill_.Scalar,
        torch.ops.aten._assert_scalar.default,
        *(branch_begin, branch_enter, branch_else, branch_end, branch_number, branch_result),
    )
)


@dataclass(frozen=True)
class Instance:
    """The step of one scope, made of that of another."""

    update: Update
    parameters: tuple[int, ...]
    """For each parameter of the update its number among all."""
    groups: tuple[int, ...]
    """For each group of the update the number of the group that it is now."""


@dataclass
class Buffer:
    """A tensor that the program updates."""

    name: str
    tensor: Tensor


def is_of_all_shapes(update: Update) -> bool:
    """Whether the update of a parameter is the same for all shapes: nothing depends on the shape of this one."""
    if update.asks_for_shapes or len(update.scope.parameters) != 1:
        return False
    shape = update.scope.parameters[0].shape
    if len(shape) == 0:
        return False
    for node in update.program.graph.nodes:
        value = node.meta.get("val")
        for tensor in pytree.tree_leaves(value):
            if isinstance(tensor, Tensor) and tensor.shape not in (shape, ()):
                return False
        if node.op == "get_attr":
            return False
        target = node.target
        if isinstance(target, OpOverload) and torch.Tag.pointwise not in target.tags:
            if target is torch.ops.aten.index_put_.default and _fills_masked(node):
                continue
            if target is torch.ops.aten._assert_tensor_metadata.default and node.args[1:3] in ((), (None, None)):
                continue
            if target not in _OF_ALL_SHAPES:
                return False
    return True


def _fills_masked(node: Node) -> bool:
    indices, values = node.args[1], node.args[2]
    first = indices[0] if isinstance(indices, (list, tuple)) and len(indices) == 1 else None
    if not isinstance(first, Node) or not isinstance(values, Node):
        return False
    mask: Tensor = first.meta["val"]
    whole: Tensor = node.args[0].meta["val"]  # type: ignore[union-attr]
    return mask.dtype == torch.bool and mask.shape == whole.shape and values.meta["val"].dim() == 0


class _Builder:
    def __init__(
        self, parameters: Sequence[Buffer], template: ExportedProgram, mode: FakeTensorMode | None = None
    ) -> None:
        self._parameters, self._template = parameters, template
        self._graph = Graph()
        self._mode = FakeTensorMode(shape_env=ShapeEnv()) if mode is None else mode
        self._env: ShapeEnv = self._mode.shape_env  # type: ignore[assignment]
        self._names: set[str] = set()
        self._state: dict[str, Tensor] = {}
        self._constants: dict[str, Any] = {}
        self._own: list[InputSpec] = []
        self._inputs: list[tuple[Any, InputSpec]] = []
        self._buffers: dict[str, Node] = {}
        self._gradients: dict[int, Node] = {}
        self._numbers: dict[tuple[int, Place], Node] = {}
        self._shared: dict[Any, tuple[Node, dict[sympy.Symbol, sympy.Symbol]]] = {}

    # -- inputs ----------------------------------------------------------------------------------------------

    def _placeholder(self, name: str, value: Tensor) -> Node:
        # A name in Python code begins with a letter.
        safe = "the_" + "".join(c if c.isalnum() else "_" for c in name)
        while safe in self._names:  # "a.b" and "a_b"
            safe += "_"
        self._names.add(safe)
        node = self._graph.placeholder(safe)
        node.meta["val"] = self._fake(value, value.shape)
        return node

    def _fake(self, like: Tensor, shape: Sequence[int]) -> Tensor:
        with self._mode:
            if any(not isinstance(size, int) for size in shape) or like.shape != tuple(shape):
                return torch.empty(tuple(shape), dtype=like.dtype, device=like.device)
            return torch.empty_strided(tuple(shape), like.stride(), dtype=like.dtype, device=like.device)

    def buffer(self, name: str, tensor: Tensor) -> Node:
        """The placeholder of a tensor that the program updates."""
        if name not in self._buffers:
            node = self._placeholder(name, tensor)
            self._buffers[name] = node
            self._state[name] = tensor
            self._own.append(InputSpec(InputKind.BUFFER, TensorArgument(node.name), name, True))
        return self._buffers[name]

    def gradient(self, number: int) -> Node:
        """The placeholder of a parameter's gradient."""
        if number not in self._gradients:
            parameter = self._parameters[number]
            node = self._placeholder(f"gradient_of_{parameter.name}", parameter.tensor)
            self._gradients[number] = node
            self._inputs.append(((0, number), InputSpec(InputKind.USER_INPUT, TensorArgument(node.name), None)))
        return self._gradients[number]

    def number(self, group: int, place: Place) -> Node:
        """The placeholder of an option."""
        if (group, place) not in self._numbers:
            node = self._placeholder(f"{place.text}_of_group_{group}", torch.empty((), dtype=torch.float64))
            self._numbers[group, place] = node
            spec = InputSpec(InputKind.USER_INPUT, TensorArgument(node.name), None)
            self._inputs.append(((1, len(self._numbers)), spec))
        return self._numbers[group, place]

    # -- operations ------------------------------------------------------------------------------------------

    def add(self, instance: Instance, tensor_of: Any, shapes: bool) -> None:
        """Adds the operations of an instance; ``tensor_of`` returns the buffer of a place."""
        update = instance.update
        old = update.scope.parameters[0].shape if shapes else None
        new = self._parameters[instance.parameters[0]].tensor.shape if shapes else None
        nodes: dict[Node, Node] = {}
        fakes: dict[int, Tensor] = {}
        symbols: dict[sympy.Symbol, sympy.Symbol] = {}
        common: set[Node] = set()
        """Nodes that depend on options alone."""
        constants = {
            spec.arg.name: spec.target
            for spec in update.program.graph_signature.input_specs
            if spec.kind == InputKind.CONSTANT_TENSOR
        }
        used = [n for n in update.program.graph.nodes if n.op != "placeholder" or n.users]
        for node in used:
            if node.op == "output":
                continue
            if node.op == "placeholder":
                role = update.roles.get(node.name)
                if role is None:
                    nodes[node] = self._constant(constants[node.name], update)
                else:
                    nodes[node] = self._input(role, instance, tensor_of)
                    if role.kind == NUMBER:
                        common.add(node)
                fakes[id(node.meta["val"])] = nodes[node].meta["val"]
                continue
            key = None
            if _is_pure(node) and all(operand in common for operand in node.all_input_nodes):
                common.add(node)
                key = (node.target, _with(nodes, node.args), _with(nodes, tuple(node.kwargs.items())))
                if key in self._shared:
                    nodes[node], known = self._shared[key]
                    symbols.update(_matched(node, known))
                    continue
            copy = self._graph.node_copy(node, lambda operand: nodes[operand])
            nodes[node] = copy
            copy.meta = {key: value for key, value in node.meta.items() if key in _ORIGIN}
            if "stack_trace" in copy.meta:
                copy.meta["stack_trace"] = inside(copy.meta["stack_trace"])
            if shapes and node.target is branch_result and tuple(node.args[2]) == tuple(old or ()):  # type: ignore[arg-type]
                copy.update_arg(2, list(new or ()))
            fresh = self._fresh(node, symbols)
            if fresh:
                copy.meta["unbacked_bindings"] = fresh
            value = node.meta.get("val")
            copy.meta["val"] = pytree.tree_map(lambda x: self._value(x, symbols, fakes, old, new), value)
            if node.target in _READS and isinstance(copy.meta["val"], torch.SymFloat):
                self._state_facts(node, copy, update)
            if key is not None:
                self._shared[key] = copy, {s: symbols[s] for s in node.meta.get("unbacked_bindings", ())}

    def _state_facts(self, node: Node, copy: Node, update: Update) -> None:
        """Has PyTorch know what was asked of an option, which it may ask again where it decomposes operations."""
        number, mine = node.meta["val"].node.expr, copy.meta["val"].node.expr
        for expr, places, answer in update.conditions:
            if places.keys() == {number}:
                fact = expr.xreplace({number: mine})
                self._env.guard_or_defer_runtime_assert(fact if answer else sympy.Not(fact), "")

    def _input(self, role: Role, instance: Instance, tensor_of: Any) -> Node:
        if role.kind == GRADIENT:
            return self.gradient(instance.parameters[role.owner])
        if role.kind == PARAMETER:
            parameter = self._parameters[instance.parameters[role.owner]]
            return self.buffer(parameter.name, parameter.tensor)
        assert role.place is not None
        if role.kind == NUMBER:
            return self.number(instance.groups[role.place.owner], role.place)
        found: Buffer = tensor_of(instance, role.place, role.kind == COUNTER)
        return self.buffer(found.name, found.tensor)

    def _constant(self, target: str, update: Update) -> Node:
        tensor = update.program.constants[target]
        name = f"constant_{id(tensor)}"
        if name not in self._buffers:
            node = self._placeholder("constant", tensor)
            self._buffers[name] = node
            self._constants[node.name] = tensor
            self._own.append(InputSpec(InputKind.CONSTANT_TENSOR, TensorArgument(node.name), node.name))
        return self._buffers[name]

    def _fresh(self, node: Node, symbols: dict[sympy.Symbol, sympy.Symbol]) -> dict[Any, Any]:
        """New symbols for those that a node brings in."""
        made = {}
        for symbol, path in node.meta.get("unbacked_bindings", {}).items():
            value = node.meta["val"]
            kind = value if isinstance(value, _SYMBOLIC) else None
            with self._env.ignore_fresh_unbacked_symbols():
                if isinstance(kind, torch.SymFloat):
                    number: Any = self._env.create_unbacked_symfloat()
                elif isinstance(kind, torch.SymBool):
                    number = self._env.create_unbacked_symbool()
                else:
                    number = self._env.create_unbacked_symint()
            symbols[symbol] = number.node.expr
            made[number.node.expr] = path
        return made

    def _value(self, value: Any, symbols: Any, fakes: dict[int, Tensor], old: Any, new: Any) -> Any:
        if isinstance(value, _SYMBOLIC):
            expr = value.node.expr.xreplace(symbols)
            if isinstance(value, torch.SymBool):
                return self._env.create_symboolnode(expr)
            if isinstance(value, torch.SymInt):
                return self._env.create_symintnode(expr, hint=None)
            return self._env.create_symfloatnode(expr, hint=None)
        if isinstance(value, Tensor):
            if id(value) not in fakes:
                shape = new if old is not None and value.shape == old else value.shape
                shape = tuple(self._value(size, symbols, fakes, old, new) for size in shape)
                fakes[id(value)] = self._fake(value, shape)
            return fakes[id(value)]
        return value

    # -- the program -----------------------------------------------------------------------------------------

    def program(self) -> ExportedProgram:
        """The program of all that was added."""
        self._graph.output(())
        self._inputs.sort(key=lambda entry: entry[0])
        specs = [*self._own, *(spec for _, spec in self._inputs)]
        by_name = {node.name: node for node in self._graph.nodes if node.op == "placeholder"}
        # What is common may have been computed first in a branch of one of the updates.
        for node in reversed(
            [*(by_name[spec.arg.name] for spec in specs), *(node for node, _ in self._shared.values())]
        ):
            next(iter(self._graph.nodes)).prepend(node)
        self._graph.lint()
        count = len(self._inputs)
        in_spec = pytree.tree_flatten((tuple(range(count)), {}))[1]
        out_spec = pytree.tree_flatten(())[1]
        outputs: list[OutputSpec] = []
        call = ModuleCallSignature(inputs=[], outputs=[], in_spec=in_spec, out_spec=out_spec)
        return ExportedProgram(
            root=torch.nn.Module(),
            graph=self._graph,
            graph_signature=ExportGraphSignature(specs, outputs),
            state_dict=self._state,
            range_constraints={},
            module_call_graph=[ModuleCallEntry("", call)],
            constants=self._constants,
            verifiers=self._template.verifiers,
        )

    def numbers(self) -> list[tuple[int, Place]]:
        """The options that are inputs, by group, in their order."""
        return list(self._numbers)

    def gradients(self) -> None:
        """Adds placeholders for the gradients that are not used, so that there is one for each parameter."""
        for number in range(len(self._parameters)):
            self.gradient(number)


def _is_pure(node: Node) -> bool:
    """Whether a node computes a number of others, or reads one from an input."""
    if not node.all_input_nodes or is_marker(node.target):
        return False
    if isinstance(node.target, OpOverload):
        return node.target in _READS
    return isinstance(node.meta.get("val"), _SYMBOLIC)


def _with(nodes: Mapping[Node, Node], args: Any) -> Any:
    """Arguments with the nodes that are in the places of others; they can be compared."""
    if isinstance(args, Node):
        return nodes[args]
    if isinstance(args, (list, tuple)):
        return tuple(_with(nodes, x) for x in args)
    return type(args), repr(args) if isinstance(args, float) else str(args)


def _matched(node: Node, known: Mapping[sympy.Symbol, sympy.Symbol]) -> dict[Any, Any]:
    """The symbols of a node, as those of the node that is there for it."""
    mine = node.meta.get("unbacked_bindings", {})
    return dict(zip(mine, known.values(), strict=True))


def joined(
    parameters: Sequence[Buffer], instances: Sequence[Instance], tensor_of: Any, mode: FakeTensorMode | None = None
) -> tuple[ExportedProgram, list[tuple[int, Place]]]:
    """The program of all instances, and the options that are its inputs after the gradients, by group.

    Args:
        parameters: all parameters.
        instances: the updates of the parameters.
        tensor_of: returns the :class:`Buffer` for an instance, a :class:`Place` of its update and whether that has a
            number of Python.
        mode: that of the values in the program.
    """
    builder = _Builder(parameters, instances[0].update.program, mode)
    of_all_shapes = {id(instance.update): is_of_all_shapes(instance.update) for instance in instances}
    for instance in instances:
        builder.add(instance, tensor_of, of_all_shapes[id(instance.update)])
    builder.gradients()
    return builder.program(), builder.numbers()
