"""A graph of aten ops, such as AOTAutograd makes, as a program that can be imported."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import sympy
import torch
import torch.utils._pytree as pytree
from torch.export.graph_signature import (
    ConstantArgument,
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    SymIntArgument,
    TensorArgument,
)
from torch.fx import Graph, GraphModule, Node
from torch_mlir.extras.fx_importer import _get_mlir_op_name_for_schema

from . import dtypes, rules  # noqa: F401  (rules registers the built-in lowering rules)
from .lower import IGNORED
from .registry import find_rule


@dataclass
class CallSpec:
    """The structure of arguments and results: flat tuples."""

    in_spec: pytree.TreeSpec
    out_spec: pytree.TreeSpec


@dataclass
class GraphProgram:
    """What the import reads of an ExportedProgram."""

    graph_module: GraphModule
    graph_signature: ExportGraphSignature
    state_dict: dict[str, torch.Tensor]
    range_constraints: dict[sympy.Symbol, Any]
    call_spec: CallSpec
    constants: dict[str, torch.Tensor] = field(default_factory=dict)

    @property
    def graph(self) -> Graph:
        """The graph."""
        return self.graph_module.graph


@dataclass
class GraphInterface:
    """How a graph's arguments and results map to those of the program made of it."""

    arguments: list[int]
    """Of each of the program's first inputs, the number of the graph's argument."""
    sizes: list[int]
    """Arguments that are sizes and the extent of no tensor: each is an input more, of shape [size, 0]."""
    results: list[tuple[str, Any]]
    """Of each of the graph's results: ("argument", number), ("result", number) or ("permuted", (number, dims))."""


def reason_against(node: Node) -> str | None:
    """Why the op of ``node`` cannot be compiled, as far as that can be told without trying; None if it may be."""
    target = node.target
    if node.op != "call_function":
        return None if node.op in ("placeholder", "output") else f"{node.op} is not supported"
    if target is operator.getitem:
        return None
    if isinstance(target, torch._ops.HigherOrderOperator):
        return "higher-order operators are not supported"
    if isinstance(target, torch._ops.OpOverload):
        name = _get_mlir_op_name_for_schema(target._schema)
        if torch.Tag.nondeterministic_seeded in target.tags and _draws(node):
            return "it draws from PyTorch's generator of random numbers"
        if not name.startswith(IGNORED):
            if target._schema.is_mutable:
                return "it changes a tensor in place"
            if find_rule(name) is None:
                return "no lowering rule"
    for value in [node, *node.all_input_nodes]:
        for tensor in pytree.tree_leaves(value.meta.get("val")):
            if not isinstance(tensor, torch.Tensor):
                continue
            if tensor.device.type != "cpu":
                return f"a tensor is on {tensor.device}"
            if not dtypes.is_supported(tensor.dtype):
                return f"{tensor.dtype} is not supported"
            if tensor.layout != torch.strided:
                return f"{tensor.layout} is not supported"
    return None


def _draws(node: Node) -> bool:
    """Whether an op that can draw random numbers does: attention without dropout does not."""
    assert isinstance(node.target, torch._ops.OpOverload)
    names = [argument.name for argument in node.target._schema.arguments]
    if "dropout_p" not in names:
        return True
    place = names.index("dropout_p")
    given = node.args[place] if place < len(node.args) else node.kwargs.get("dropout_p", 0.0)
    return bool(given != 0.0)


def graph_program(
    module: GraphModule, fixed: Mapping[int, torch.Tensor], updates: Sequence[tuple[Node, Node]] = ()
) -> tuple[GraphProgram, GraphInterface]:
    """The program of a graph that changes nothing in place.

    Args:
        module: its nodes have fake values (``meta["val"]``), with sizes that are symbols of one ShapeEnv.
        fixed: the tensors of arguments that are parameters of the program, by number.
        updates: pairs (placeholder, node): the new values of arguments.
    """
    return _Builder(module, fixed, updates).build()


class _Builder:
    def __init__(
        self, module: GraphModule, fixed: Mapping[int, torch.Tensor], updates: Sequence[tuple[Node, Node]]
    ) -> None:
        self._module = module
        self._fixed = fixed
        self._graph = Graph()
        self._nodes: dict[Node, Node] = {}
        output = self._graph.graph_copy(module.graph, self._nodes)
        self._results = list(output) if isinstance(output, (tuple, list)) else [output]
        for old, new in self._nodes.items():
            new.meta = dict(old.meta)
        self._updates = [(self._nodes[old], self._nodes[value]) for old, value in updates]
        self._computed: list[Any] = []
        self._placeholders = [n for n in self._graph.nodes if n.op == "placeholder"]
        # What stands for a size needs all of them.
        for node in reversed(self._placeholders):
            next(iter(self._graph.nodes)).prepend(node)
        self._state: dict[str, torch.Tensor] = {}
        self._inputs: list[InputSpec] = []
        self._arguments: list[int] = []
        self._sizes: list[int] = []
        self._ranges: dict[sympy.Symbol, Any] = {}

    def build(self) -> tuple[GraphProgram, GraphInterface]:
        results = self._outputs()
        parameters = [self._parameter(i) for i in sorted(self._fixed)]
        constants = [self._constant(n) for n in list(self._graph.nodes) if n.op == "get_attr"]
        for i, node in enumerate(self._placeholders):
            value = node.meta.get("val")
            if i in self._fixed:
                continue
            if isinstance(value, torch.Tensor):
                self._arguments.append(i)
                self._inputs.append(InputSpec(InputKind.USER_INPUT, TensorArgument(node.name), None))
                self._note_symbols(value.shape)
        for i, node in enumerate(self._placeholders):
            if i not in self._fixed and not isinstance(node.meta.get("val"), torch.Tensor):
                self._size(i, node)
        outputs: list[OutputSpec] = []
        for old, value in self._updates:
            outputs.append(OutputSpec(OutputKind.USER_INPUT_MUTATION, TensorArgument(value.name), old.name))
        nodes: list[Any] = [value for _, value in self._updates]
        for result in self._computed:
            nodes.append(result)
            outputs.append(OutputSpec(OutputKind.USER_OUTPUT, self._output_argument(result), None))
        self._graph.output(tuple(nodes))
        self._graph.eliminate_dead_code()
        count = len(self._arguments) + len(self._sizes)
        _, in_spec = pytree.tree_flatten((tuple(range(count)), {}))
        _, out_spec = pytree.tree_flatten(tuple(range(len(self._computed))))
        program = GraphProgram(
            graph_module=GraphModule(torch.nn.Module(), self._graph),
            graph_signature=ExportGraphSignature([*parameters, *constants, *self._inputs], outputs),
            state_dict=self._state,
            range_constraints=self._ranges,
            call_spec=CallSpec(in_spec, out_spec),
        )
        return program, GraphInterface(self._arguments, self._sizes, results)

    def _note_symbols(self, sizes: Sequence[Any]) -> None:
        for size in sizes:
            if isinstance(size, torch.SymInt):
                ranges = size.node.shape_env.var_to_range
                for symbol in size.node.expr.free_symbols:
                    self._ranges.setdefault(symbol, ranges.get(symbol))

    def _parameter(self, number: int) -> InputSpec:
        node = self._placeholders[number]
        self._state[node.name] = self._fixed[number]
        return InputSpec(InputKind.PARAMETER, TensorArgument(node.name), node.name)

    def _constant(self, node: Node) -> InputSpec:
        """A tensor that is an attribute of the module becomes a parameter."""
        tensor = operator.attrgetter(str(node.target))(self._module)
        with self._graph.inserting_before(next(iter(self._graph.nodes))):
            new = self._graph.placeholder(node.name)
        new.meta = {"val": tensor, **node.meta}
        node.replace_all_uses_with(new)
        self._computed = [new if r is node else r for r in self._computed]
        self._graph.erase_node(node)
        self._state[new.name] = tensor
        return InputSpec(InputKind.PARAMETER, TensorArgument(new.name), new.name)

    def _size(self, number: int, node: Node) -> None:
        """A size becomes the extent of a tensor that has it, or of an input that exists for that alone."""
        value = node.meta.get("val")
        expr = value.node.expr if isinstance(value, torch.SymInt) else sympy.Integer(value)
        if not node.users and node not in self._computed:
            self._graph.erase_node(node)
            return
        if not isinstance(value, torch.SymInt) or expr.is_Integer:
            node.replace_all_uses_with(int(expr))  # type: ignore[arg-type]
            self._graph.erase_node(node)
            return
        place = self._place(expr)
        first = next(n for n in self._graph.nodes if n.op != "placeholder")
        if place is None:
            self._sizes.append(number)
            with self._graph.inserting_before(first):
                carrier = self._graph.placeholder(f"{node.name}_carrier")
            with value.node.shape_env.ignore_fresh_unbacked_symbols():
                mode = next(
                    v.fake_mode
                    for n in self._graph.nodes
                    for v in pytree.tree_leaves(n.meta.get("val"))
                    if isinstance(v, torch._subclasses.FakeTensor)
                )
                with mode:
                    carrier.meta["val"] = torch.empty((value, 0), dtype=torch.uint8)
            self._inputs.append(InputSpec(InputKind.USER_INPUT, TensorArgument(carrier.name), None))
            self._note_symbols([value])
            place = carrier, 0
        with self._graph.inserting_before(first):
            size = self._graph.call_function(torch.ops.aten.sym_size.int, place)
        size.meta = dict(node.meta)
        node.replace_all_uses_with(size)
        self._computed = [size if r is node else r for r in self._computed]
        self._graph.erase_node(node)

    def _place(self, expr: sympy.Expr) -> tuple[Node, int] | None:
        for i in self._arguments:
            for dim, size in enumerate(self._placeholders[i].meta["val"].shape):
                if isinstance(size, torch.SymInt) and size.node.expr == expr:
                    return self._placeholders[i], dim
        return None

    def _outputs(self) -> list[tuple[str, Any]]:
        """What becomes of each result; sets the results that the program computes."""
        numbers = {node: i for i, node in enumerate(self._placeholders)}
        results: list[tuple[str, Any]] = []
        for result in self._results:
            if result in numbers and result not in [old for old, _ in self._updates]:
                results.append(("argument", numbers[result]))
                continue
            if not isinstance(result, Node):
                results.append(("constant", result))
                continue
            order = _order(result.meta.get("val"))
            if order is not None:
                result, order = self._permuted(result, order)
                results.append(("permuted", (len(self._computed), order)))
            else:
                results.append(("result", len(self._computed)))
            self._computed.append(result)
        return results

    def _permuted(self, result: Node, order: Sequence[int]) -> tuple[Node, list[int]]:
        """The result with its dims as they lie in memory, and the order that gives back the result."""
        value = result.meta["val"]
        permuted = self._graph.call_function(torch.ops.aten.permute.default, (result, list(order)))
        permuted.meta = {k: v for k, v in result.meta.items() if k != "tensor_meta"}
        permuted.meta["val"] = value.permute(list(order))
        return permuted, [list(order).index(d) for d in range(len(order))]

    def _output_argument(self, result: Any) -> Any:
        if not isinstance(result, Node):
            return ConstantArgument("", result)
        if isinstance(result.meta.get("val"), torch.Tensor):
            return TensorArgument(result.name)
        return SymIntArgument(result.name)


def _order(value: Any) -> list[int] | None:
    """The order in which the dims of a dense tensor lie in memory; None if it is row-major, or not dense."""
    if not isinstance(value, torch.Tensor) or value.dim() < 2:
        return None
    hint = [s if isinstance(s, int) else s.node.hint for s in value.stride()]
    sizes = [s if isinstance(s, int) else s.node.hint for s in value.shape]
    if any(s is None for s in [*hint, *sizes]):
        return None
    order = sorted(range(value.dim()), key=lambda d: -hint[d])
    if order == list(range(value.dim())):
        return None
    expected = 1
    for d in reversed(order):
        if hint[d] != expected and sizes[d] != 1:
            return None
        expected *= sizes[d]
    return order
