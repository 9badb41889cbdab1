"""A graph of aten ops, such as AOTAutograd makes, as a program that can be imported."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import sympy
import torch
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

from ..errors import SizeError
from ..torch_compat import pytree
from ..torch_compat.operators import HigherOrderOperator, OpOverload
from ..torch_compat.tracing import FakeTensor, tensor_metadata
from . import dtypes, rules  # noqa: F401  (rules registers the built-in lowering rules)
from .flat_graph import flat_graph, is_flattened, subgraphs
from .higher_order import reason_against_higher_order
from .lower import IGNORED
from .registry import find_rule
from .result_layouts import (
    Base,
    Owned,
    Result,
    Source,
    Unstored,
    creators,
    expression,
    is_same,
    owned,
    storage_of,
    view,
)
from .symbol_sources import missing_symbols, symbol_sources


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
    numbers: list[tuple[int, torch.dtype | None]]
    """The arguments that are numbers and not the size of any tensor. Each is one more input: a tensor of shape
    [number, 0] where the dtype is None (the number is a size), else a tensor without dims."""
    bases: list[Owned]
    """The computed tensors, and how each is stored."""
    results: list[Result]
    """Each of the graph's results."""
    sources: dict[sympy.Symbol, Source]
    """Where the values of the symbols in layouts are found."""


def drawn_after(op: Any, previous: Any, *args: Any, **kwargs: Any) -> Any:
    """``op``, which draws random numbers after ``previous`` was drawn."""
    return op(*args, **kwargs)


_CPU = torch.device("cpu")


def device_of(graph: Graph) -> torch.device:
    """The device that the code of a graph is for: the first GPU that a tensor of it is on, otherwise the CPU."""
    for node in graph.nodes:
        for tensor in pytree.tree_leaves(node.meta.get("val")):
            if isinstance(tensor, torch.Tensor) and tensor.device.type == "cuda":
                return tensor.device
    return _CPU


def reason_against(node: Node, device: torch.device = _CPU) -> str | None:
    """Why the op of ``node`` cannot be compiled for a device, as far as that is known without trying.

    None if it may be.
    """
    target = node.target
    if node.op != "call_function":
        return None if node.op in ("placeholder", "output") else f"{node.op} is not supported"
    if target is operator.getitem:
        return None
    if target is drawn_after:
        return "it draws random numbers after others that depend on data"
    if is_flattened(target):
        return "it draws random numbers inside" if draws(node) else None
    if isinstance(target, HigherOrderOperator):
        return reason_against_higher_order(node)
    if isinstance(target, OpOverload):
        name = _get_mlir_op_name_for_schema(target._schema)
        if draws(node):
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
            if tensor.device != device:
                return f"a tensor is on {tensor.device}"
            if not dtypes.is_supported(tensor.dtype):
                return f"{tensor.dtype} is not supported"
            if tensor.layout != torch.strided:
                return f"{tensor.layout} is not supported"
    return None


def draws(node: Node) -> bool:
    """Whether an operation draws random numbers: attention without dropout does not."""
    target = node.target
    if isinstance(target, HigherOrderOperator):
        return any(draws(inner) for module in subgraphs(node) for inner in module.graph.nodes)
    if not isinstance(target, OpOverload) or torch.Tag.nondeterministic_seeded not in target.tags:
        return False
    names = [argument.name for argument in target._schema.arguments]
    if "dropout_p" not in names:
        return True
    place = names.index("dropout_p")
    given = node.args[place] if place < len(node.args) else node.kwargs.get("dropout_p", 0.0)
    return bool(given != 0.0)


def graph_program(
    module: GraphModule,
    fixed: Mapping[int, torch.Tensor],
    updates: Sequence[tuple[Node, Node]] = (),
    numbers_are_sizes: bool = False,
) -> tuple[GraphProgram, GraphInterface]:
    """The program of a graph that changes nothing in place.

    Args:
        module: its nodes have fake values (``meta["val"]``), with sizes that are symbols of one ShapeEnv.
        fixed: the tensors of arguments that are parameters of the program, by number.
        updates: pairs (placeholder, node): the new values of arguments.
        numbers_are_sizes: whether no argument that is an int is negative, even if tracing does not know that.
    """
    module, updates = flat_graph(module, updates)
    return _Builder(module, fixed, updates, numbers_are_sizes).build()


class _Builder:
    def __init__(
        self,
        module: GraphModule,
        fixed: Mapping[int, torch.Tensor],
        updates: Sequence[tuple[Node, Node]],
        numbers_are_sizes: bool,
    ) -> None:
        self._numbers_are_sizes = numbers_are_sizes
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
        self._numbers: list[tuple[int, torch.dtype | None]] = []
        self._bases: list[Owned] = []
        self._ranges: dict[sympy.Symbol, Any] = {}

    def build(self) -> tuple[GraphProgram, GraphInterface]:
        self._read_whole_storages()
        tensors = [(i, node.meta.get("val")) for i, node in enumerate(self._placeholders)]
        results = self._outputs()
        sources = self._sources(tensors, [*self._bases, *results])
        parameters = [self._parameter(i) for i in sorted(self._fixed)]
        constants = [self._constant(n) for n in list(self._graph.nodes) if n.op == "get_attr"]
        for i, node in enumerate(self._placeholders):
            value = node.meta.get("val")
            if i in self._fixed:
                continue
            if isinstance(value, torch.Tensor) and not self._is_passed_on(node):
                self._arguments.append(i)
                self._inputs.append(InputSpec(InputKind.USER_INPUT, TensorArgument(node.name), None))
                self._note_symbols(value.shape)
        for i, node in enumerate(self._placeholders):
            if i not in self._fixed and not isinstance(node.meta.get("val"), torch.Tensor):
                self._number(i, node)
        outputs: list[OutputSpec] = []
        for old, value in self._updates:
            outputs.append(OutputSpec(OutputKind.USER_INPUT_MUTATION, TensorArgument(value.name), old.name))
        nodes: list[Any] = [value for _, value in self._updates]
        for result in self._computed:
            nodes.append(result)
            outputs.append(OutputSpec(OutputKind.USER_OUTPUT, self._output_argument(result), None))
        self._graph.output(tuple(nodes))
        self._graph.eliminate_dead_code()
        count = len(self._arguments) + len(self._numbers)
        _, in_spec = pytree.tree_flatten((tuple(range(count)), {}))
        _, out_spec = pytree.tree_flatten(tuple(range(len(self._computed))))
        program = GraphProgram(
            graph_module=GraphModule(torch.nn.Module(), self._graph),
            graph_signature=ExportGraphSignature([*parameters, *constants, *self._inputs], outputs),
            state_dict=self._state,
            range_constraints=self._ranges,
            call_spec=CallSpec(in_spec, out_spec),
        )
        return program, GraphInterface(self._arguments, self._numbers, self._bases, results, sources)

    def _is_passed_on(self, node: Node) -> bool:
        """Whether a tensor is at most a result: one that orders effects stands for None when the graph is called."""
        used = node.users or node in self._computed or any(node in pair for pair in self._updates)
        return not used and not any(isinstance(size, torch.SymInt) for size in node.meta["val"].shape)

    def _read_whole_storages(self) -> None:
        """Makes as_strided of a view one of the tensor that has the whole storage."""
        first = creators(self._graph.nodes)
        for node in self._graph.nodes:
            if node.target is not torch.ops.aten.as_strided.default:
                continue
            value = node.args[0].meta["val"]
            whole = first.get(storage_of(value) or 0)
            offset = node.args[3] if len(node.args) > 3 else None
            offset = value.storage_offset() if offset is None else offset
            if whole is None or whole is node.args[0] or isinstance(offset, torch.SymInt):
                continue
            base = whole.meta["val"]
            if base.dtype == value.dtype and expression(base.storage_offset()) == 0:
                node.args = (whole, *node.args[1:3], offset)

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

    def _number(self, number: int, node: Node) -> None:
        """A number becomes the size of a tensor that has it, or an input of its own."""
        value = node.meta.get("val")
        if not node.users and node not in self._computed and not self._is_hidden(value):
            self._graph.erase_node(node)
            return
        if not isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)) or value.node.expr.is_number:
            constant = value
            if not isinstance(value, (int, float, bool, type(None))):
                constant = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}[type(value)](value.node.expr)
            node.replace_all_uses_with(constant)  # type: ignore[arg-type]
            self._computed = [constant if r is node else r for r in self._computed]
            self._graph.erase_node(node)
            return
        place = self._place(value.node.expr) if isinstance(value, torch.SymInt) else None
        first = next(n for n in self._graph.nodes if n.op != "placeholder")
        if place is not None:
            function: Any = torch.ops.aten.sym_size.int
            args: tuple[Any, ...] = place
        elif isinstance(value, torch.SymInt) and self._is_size(value):
            carrier = self._input(node, (value, 0), torch.uint8, number, None)
            self._note_symbols([value])
            function, args = torch.ops.aten.sym_size.int, (carrier, 0)
        else:
            kinds = {torch.SymInt: torch.int64, torch.SymFloat: torch.float64, torch.SymBool: torch.bool}
            dtype = kinds[type(value)]
            function, args = torch.ops.aten._local_scalar_dense.default, (self._input(node, (), dtype, number, dtype),)
        with self._graph.inserting_before(first):
            new = self._graph.call_function(function, args)
        new.meta = dict(node.meta)
        node.replace_all_uses_with(new)
        self._computed = [new if r is node else r for r in self._computed]
        self._graph.erase_node(node)

    def _is_hidden(self, value: Any) -> bool:
        """Whether sizes of arguments depend on a number that is the size of none."""
        if not isinstance(value, torch.SymInt) or not value.node.expr.is_Symbol:
            return False
        symbol = value.node.expr
        return symbol in self._ranges and self._place(symbol) is None

    def _input(self, node: Node, shape: Any, dtype: torch.dtype, number: int, kind: torch.dtype | None) -> Node:
        """One more input of the program, for an argument that is a number."""
        self._numbers.append((number, kind))
        first = next(n for n in self._graph.nodes if n.op != "placeholder")
        with self._graph.inserting_before(first):
            carrier = self._graph.placeholder(f"{node.name}_carrier")
        value = node.meta["val"]
        fakes = (v for n in self._graph.nodes for v in pytree.tree_leaves(n.meta.get("val")))
        mode = next(v.fake_mode for v in fakes if isinstance(v, FakeTensor))
        with value.node.shape_env.ignore_fresh_unbacked_symbols(), mode:
            carrier.meta["val"] = torch.empty(shape, dtype=dtype)
        # torch-mlir's importer reads it.
        carrier.meta["tensor_meta"] = tensor_metadata(carrier.meta["val"])
        self._inputs.append(InputSpec(InputKind.USER_INPUT, TensorArgument(carrier.name), None))
        return carrier

    def _is_size(self, value: torch.SymInt) -> bool:
        """Whether a number is never negative, or a tensor's size depends on it."""
        bounds = value.node.shape_env.bound_sympy(value.node.expr)
        if bounds.upper < 0 or (value.node.hint or 0) < 0:
            return False
        if self._numbers_are_sizes or bounds.lower >= 0:
            return True
        symbols = value.node.expr.free_symbols
        sizes = (
            size
            for node in self._graph.nodes
            for tensor in pytree.tree_leaves(node.meta.get("val"))
            if isinstance(tensor, torch.Tensor)
            for size in tensor.shape
        )
        return any(isinstance(size, torch.SymInt) and size.node.expr.free_symbols & symbols for size in sizes)

    def _place(self, expr: sympy.Expr) -> tuple[Node, int] | None:
        for i in self._arguments:
            for dim, size in enumerate(self._placeholders[i].meta["val"].shape):
                if isinstance(size, torch.SymInt) and size.node.expr == expr:
                    return self._placeholders[i], dim
        return None

    def _outputs(self) -> list[Result]:
        """The layouts of all results; sets the results that the program computes."""
        numbers = {node: i for i, node in enumerate(self._placeholders)}
        first = creators(self._graph.nodes)
        bases: dict[Node, int] = {}
        whole: dict[int, Node] = {}
        results: list[Result] = []
        for result in self._results:
            if not isinstance(result, Node):
                results.append(Unstored("constant", result))
                continue
            fake: Any = result.meta.get("val")
            if result in numbers:
                # Also of an argument that is updated: it is returned as it is after that.
                results.append(Unstored("argument", numbers[result]))
                continue
            key = storage_of(fake)
            if key is None:
                results.append(Unstored("number", len(self._computed)))
                self._computed.append(result)
                self._bases.append(Owned(Base("computed", len(self._bases)), None, None))
                continue
            creator = first[key]
            if creator in numbers:
                results.append(view(Base("argument", numbers[creator]), creator.meta["val"], fake))
                continue
            if creator not in bases:
                bases[creator] = len(self._computed)
                self._bases.append(owned(Base("computed", len(self._computed)), creator.meta["val"]))
                self._computed.append(self._in_memory_order(creator, self._bases[-1].order))
            base = bases[creator]
            if is_same(fake, creator.meta["val"]) and whole.setdefault(base, result) is result:
                results.append(Unstored("base", base))
            else:
                results.append(view(Base("computed", base), creator.meta["val"], fake))
        return results

    def _in_memory_order(self, node: Node, back: tuple[int, ...] | None) -> Node:
        """A result with its dims ordered as in memory; ``back`` is the permutation that restores the result."""
        if back is None:
            return node
        order = [back.index(d) for d in range(len(back))]
        with self._graph.inserting_after(list(self._graph.nodes)[-1]):
            permuted = self._graph.call_function(torch.ops.aten.permute.default, (node, order))
        permuted.meta = {k: v for k, v in node.meta.items() if k != "tensor_meta"}
        permuted.meta["val"] = node.meta["val"].permute(order)
        return permuted

    def _sources(self, arguments: list[tuple[int, Any]], layouts: Sequence[Any]) -> dict[sympy.Symbol, Source]:
        """Where the symbols of layouts are found; those that only the graph computes become results."""
        values = [node.meta.get("val") if isinstance(node, Node) else None for node in self._computed]
        sources = symbol_sources(arguments, values)
        for symbol in missing_symbols(layouts, sources):
            node = self._node_of(symbol)
            if node is None:
                raise SizeError("import", f"the layout of a result depends on {symbol}, which no argument has")
            sources[symbol] = Source("computed", len(self._computed), "value")
            self._bases.append(Owned(Base("computed", len(self._computed)), None, None))
            self._computed.append(node)
        return sources

    def _node_of(self, symbol: sympy.Symbol) -> Node | None:
        """A node that has the value of a symbol."""
        for node in self._graph.nodes:
            value = node.meta.get("val")
            if isinstance(value, torch.SymInt) and value.node.expr == symbol:
                return node
            for dim, size in enumerate(value.shape if isinstance(value, torch.Tensor) else ()):
                if isinstance(size, torch.SymInt) and size.node.expr == symbol:
                    with self._graph.inserting_after(list(self._graph.nodes)[-1]):
                        read = self._graph.call_function(torch.ops.aten.sym_size.int, (node, dim))
                    read.meta["val"] = size
                    return read
        return None

    def _output_argument(self, result: Any) -> Any:
        if not isinstance(result, Node):
            return ConstantArgument("", result)
        if isinstance(result.meta.get("val"), torch.Tensor):
            return TensorArgument(result.name)
        return SymIntArgument(result.name)
