"""The torch dialect to DISC input IR: walks the module and applies the lowering rules."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import sympy
import torch
from torch.fx import Node
from torch_mlir import ir

from .. import errors
from ..torch_compat import pytree
from ..torch_compat.operators import OpOverload
from . import dtypes, facts, markers, scalar, torch_types
from .agreement import Agreement
from .builder import Builder
from .composites import Composites
from .entry_guards import EntryGuard
from .locations import describe, location, source_of
from .lower_procedures import CALL, CallLowering, Procedure, ProcedureLowering
from .lower_regions import BRANCH, ENTER, LOOP, MARKERS, PROCEDURE, Marked, RegionLowering
from .one_number import equal_numbers
from .regions import declare_symbol
from .registry import NotLowerable, Rule, find_complex_rule, find_rule
from .symbols import SymbolTable
from .torch_dialect import COMPLEX_OP, NODE_ATTR, PARAMETER_ATTR, PARAMETER_OP
from .values import Extent, RuntimeNumber, Tensor, tensor_type

if TYPE_CHECKING:
    from .updates import Program

_WHOLE = (torch.uint8, torch.int8, torch.int32, torch.int64)
"""What zero points are."""

# Checks that torch.export leaves in the graph. Those of extents are in the ranges of the symbols; those of dtypes and
# devices are true for the compiled program by construction.
IGNORED = (
    "torch.aten._assert_tensor_metadata",
    "torch.aten._assert_scalar",
    "torch.aten.sym_constrain_range",
    "torch.aten.sym_constrain_range_for_size",
    "torch.disc.branch_fact",
)
_FACT = "torch.disc.branch_fact"


class _Poison:
    """Stands for the results of an unsupported op, so that lowering can go on and find the others."""


_POISON = _Poison()

_STRUCTURES: dict[str, tuple[str, type[RegionLowering]]] = {
    BRANCH: ("a branch", RegionLowering),
    LOOP: ("a loop", RegionLowering),
    PROCEDURE: ("a recursive function", ProcedureLowering),
    CALL: ("a call of a recursive function", CallLowering),
}


def op_name(op: ir.Operation) -> str:
    """The name of the torch op; ops that torch-mlir has no class for are ``torch.operator``."""
    if op.name == "torch.operator":
        return ir.StringAttr(op.attributes["name"]).value
    return op.name


def operations(block: ir.Block) -> Iterator[ir.Operation]:
    """All operations of a block, those of regions too."""
    for view in block.operations:
        yield view.operation
        for region in view.operation.regions:
            for inner in region.blocks:
                yield from operations(inner)


class Lowering:
    """Lowers one torch dialect module into a new module."""

    def __init__(
        self,
        program: Program | None,
        symbols: SymbolTable,
        parameters: Mapping[str, torch.Tensor],
        states: Mapping[str, torch.Tensor] | None = None,
        guards: Sequence[EntryGuard] = (),
    ) -> None:
        """``program`` is where the module came from, if it came from torch.export: its nodes know their lines.

        ``states``: those of ``parameters`` that the program updates. They are arguments, after the inputs.
        ``guards``: conditions on the inputs' extents that the entry checks.
        """
        self._guards = guards
        self.has_updates = False
        """Whether the program changes arguments or states."""
        self.repeats: Mapping[str, list[int]] = {}
        """Of inputs the dims that may be 1 where others of their symbols are not."""
        self._nodes: dict[str, Node] = {}
        self._constants: set[str] = set()
        if program is not None:
            self._nodes = {node.name: node for node in program.graph.nodes}
            self._constants = set(program.graph_signature.inputs_to_lifted_tensor_constants.values())
        self._symbols = symbols
        self._parameters = parameters
        self._states = states or {}
        self._parameter_values: dict[str, Tensor] = {}
        self.values: ChainMap[ir.Value, Any] = ChainMap()
        """The lowered values of the torch dialect; each region adds a map."""
        self.procedures: dict[ir.Value, Procedure] = {}
        """By the markers that begin and end them."""
        self.renamed: dict[str, str] = {}
        """In a procedure: what symbols from outside are called in it."""
        self._unsupported: list[errors.UnsupportedOp] = []
        self._mistake: BaseException | None = None
        """The first exception of a rule that is a bug."""
        self._steps: set[Any] = set()
        self._source: tuple[str, int] | None = None
        self._main: Any = None
        self.builder = Builder()
        """Writes at the end of ``main``, also after the run."""
        self._agreement = Agreement(self.builder)
        self.composites: Composites | None = None
        """Keeps operations that back ends may claim; None without back ends."""

    def run(
        self,
        torch_module: ir.Module,
        inputs: Sequence[tuple[str, Any]],
    ) -> tuple[ir.Module, list[Any]]:
        """Returns the new module, whose ``main`` still lacks its return, and the lowered outputs."""
        # Other functions are the graphs of higher-order operators, which are reported where they are used.
        source_func = next(
            op
            for op in torch_module.body.operations
            if op.operation.name == "func.func" and ir.StringAttr(op.operation.attributes["sym_name"]).value == "main"
        )
        source_block = source_func.operation.regions[0].blocks[0]
        first = next((source_of(n) for n in self._nodes.values() if source_of(n)), None)
        self._source = first
        with location("main", first):
            module = ir.Module.create()
            with ir.InsertionPoint(module.body):
                for symbol in self._symbols:
                    declare_symbol(module.body, symbol.name, symbol.min, symbol.max)
                self.builder.symbols = self._symbols
                self.builder.symbol_ranges = {symbol: known.range for symbol, known in self._symbols.items()}
                self.builder.module_block = module.body
                block = self._main = self._emit_main(inputs)
            with ir.InsertionPoint(block):
                self._bind_inputs(source_block, block, inputs)
                self._require_guards()
            outputs = self._lower_block(source_block, block)
        self.check()
        return module, outputs

    # -- the entry -----------------------------------------------------------------------------

    def _emit_main(self, inputs: Sequence[tuple[str, Any]]) -> ir.Block:
        arg_types = []
        arg_attrs = []
        for name, value in inputs:
            fake = _as_tensor(value)
            arg_types.append(tensor_type([d if isinstance(d, int) else None for d in fake.shape], fake.dtype))
            extents = [self._symbols.extent(d) for d in fake.shape]
            attrs: dict[str, ir.Attribute] = {
                "disc_shape.dims": self.builder.dims_attribute(extents, fake.dtype),
                "disc_shape.name": ir.StringAttr.get(name),
            }
            if dtypes.storage(fake.dtype) in dtypes.UNSIGNED:
                # The one fact about an input that MLIR's signless types lose.
                attrs["disc_tensor.unsigned"] = ir.UnitAttr.get()
            if name in self.repeats:
                attrs["disc_shape.repeats"] = ir.DenseI64ArrayAttr.get(self.repeats[name])
            arg_attrs.append(ir.DictAttr.get(attrs))
        for name, tensor in self._states.items():
            arg_types.append(tensor_type(tensor.shape, tensor.dtype))
            arg_attrs.append(
                ir.DictAttr.get(
                    {
                        "disc_shape.dims": self.builder.dims_attribute(tensor.shape, tensor.dtype),
                        "disc_shape.name": ir.StringAttr.get(name),
                        "disc_tensor.state": ir.StringAttr.get(name),
                    }
                )
            )
        # The result types are known only at the end: the importer sets them with the return.
        func = ir.Operation.create(
            "func.func",
            attributes={
                "sym_name": ir.StringAttr.get("main"),
                "function_type": ir.TypeAttr.get(ir.FunctionType.get(arg_types, [])),
                "arg_attrs": ir.ArrayAttr.get(arg_attrs),
            },
            regions=1,
        )
        return func.regions[0].blocks.append(*arg_types)

    def _bind_inputs(
        self,
        source: ir.Block,
        block: ir.Block,
        inputs: Sequence[tuple[str, Any]],
    ) -> None:
        """Binds arguments, and each symbol to the first extent that is exactly it.

        One symbol is one value: that all extents declared with a symbol agree is checked at the entry of
        the compiled program, from the arguments' ``disc_shape.dims``.
        """
        known = self.builder.symbol_values
        torch_symbols = {symbol for symbol, _ in self._symbols.items()}
        pending: dict[int, list[Extent | None]] = {}
        numbers = [i for i, (_, value) in enumerate(inputs) if isinstance(value, torch.SymInt)]
        for i in numbers:
            argument = Tensor(block.arguments[i], (), torch.int64)
            with location(f"the number {inputs[i][0]!r}", self._source):
                self.values[source.arguments[i]] = self.builder.bind(argument, inputs[i][1])
        for i, (_, fake) in enumerate(inputs):
            if i in numbers:
                continue
            dims: list[Extent | None] = []
            for d, size in enumerate(fake.shape):
                expr = None if isinstance(size, int) else size.node.expr
                if expr is None:
                    dims.append(int(size))
                elif expr in torch_symbols:
                    if expr not in known:
                        known[expr] = self._dim_op(block.arguments[i], d, size)
                    dims.append(known[expr])
                else:
                    dims.append(None)
            pending[i] = dims
        for i, dims in pending.items():
            fake = inputs[i][1]
            extents = [
                self._derived_extent(block.arguments[i], d, fake.shape[d]) if dim is None else dim
                for d, dim in enumerate(dims)
            ]
            self.values[source.arguments[i]] = Tensor(block.arguments[i], tuple(extents), fake.dtype)
        for argument, (name, tensor) in zip(list(block.arguments)[len(inputs) :], self._states.items(), strict=True):
            self._parameter_values[name] = Tensor(argument, tuple(tensor.shape), tensor.dtype)

    def _require_guards(self) -> None:
        """Checks at the entry what torch.export found the model to need of its inputs' extents."""
        for guard in self._guards:
            what = f"the model's code needs {self._symbols.condition(guard.condition)}"
            where = f" at {guard.source}" if guard.source else ""
            with location("main", self._source):
                if not self.builder.require_guard(guard.condition, what + where):
                    # torch.export assumes of every computed extent that it is not 1. Rules broadcast by the extents
                    # that there are, so that it need not be checked where it cannot be.
                    if isinstance(guard.condition, sympy.Ne) and sympy.S.One in guard.condition.args:
                        continue
                    raise errors.DynamicDimError(
                        "import",
                        f"{what}{where}, which the compiled model cannot check: use a Dim with a range, or a derived"
                        " Dim such as 2 * Dim('n'), in dynamic_shapes",
                        guard.source,
                    )

    def _derived_extent(self, argument: ir.Value, dim: int, size: Any) -> Extent:
        extent = self.builder.extent_of(size.node.expr)
        return self._dim_op(argument, dim, size) if extent is None else extent

    def _dim_op(self, tensor: ir.Value, dim: int, size: Any) -> ir.Value:
        value = ir.Operation.create("tensor.dim", [ir.IndexType.get()], [tensor, self.builder.index(dim)]).result
        self.builder.symbolic[value] = self._symbols.extent(size)
        return value

    # -- the body ------------------------------------------------------------------------------

    def _lower_block(self, source: ir.Block, block: ir.Block) -> list[Any]:
        # Parameters first, so that they open main.
        with ir.InsertionPoint(block):
            for op in operations(source):
                if op_name(op) == PARAMETER_OP:
                    self._lower_parameter(op)
        *ops, end = [view.operation for view in source.operations]
        self.lower_ops(ops, block)
        return [self.value(value) for value in end.operands]

    def lower_ops(self, ops: Sequence[ir.Operation], block: ir.Block) -> None:
        """Lowers ``ops`` at the end of ``block``, but for those whose results are known."""
        at = 0
        while at < len(ops):
            op, at = ops[at], at + 1
            if op.results and op.results[0] in self.values:
                continue
            name = op_name(op)
            with location(self._begin(op, name), self._source), ir.InsertionPoint(block):
                if name in _STRUCTURES:
                    at = self._lower_region(ops, at - 1, block)
                else:
                    self._lower_op(op, name)

    def _lower_region(self, ops: Sequence[ir.Operation], at: int, block: ir.Block) -> int:
        """Lowers the structure that begins at ``at``; returns the place after it."""
        # The missing result of an op without a rule cannot be an operand of a region.
        self.check()
        what, kind = _STRUCTURES[op_name(ops[at])]
        try:
            return kind(self, ops, at).run(block)
        except NotLowerable as error:
            self._report(ops[at], what, str(error))
            raise errors.UnsupportedOpError(self._unsupported) from error

    @contextmanager
    def inside_region(self) -> Iterator[None]:
        """Values that are lowered inside do not exist outside of the region, nor do its facts hold there."""
        self.values = self.values.new_child()
        ranges = self.builder.symbol_ranges
        try:
            yield
        finally:
            self.values = self.values.parents
            if self.builder.symbol_ranges is not ranges:
                self.builder.symbol_ranges = ranges

    @contextmanager
    def inside_procedure(self, body: ir.Block, symbols: Mapping[str, str]) -> Iterator[None]:
        """Lowers the body of a procedure inside; ``symbols``: the names of outer symbols in it."""
        known = self.values, self._parameter_values, self._main, self.renamed
        through = {name: symbols[here] for name, here in self.renamed.items() if here in symbols}
        self.values, self._parameter_values, self._main, self.renamed = ChainMap(), {}, body, {**through, **symbols}
        try:
            with self.builder.inside_procedure():
                yield
        finally:
            self.values, self._parameter_values, self._main, self.renamed = known

    @contextmanager
    def tried(self) -> Iterator[Callable[[], None]]:
        """Discards the values that are lowered inside, unless the function that it yields is called."""
        tried: dict[ir.Value, Any] = {}
        kept = False

        def keep() -> None:
            nonlocal kept
            kept = True

        self.values = self.values.new_child(tried)
        with self.builder.tried() as keep_extents:
            try:
                yield keep
            finally:
                self.values = self.values.parents
                if kept:
                    self.values.update(tried)
                    keep_extents()

    def is_repeatable(self, op: ir.Operation) -> bool:
        """Whether an op returns the same result each time: it draws no random numbers."""
        node = self._node(op)
        target = None if node is None else node.target
        return not (isinstance(target, OpOverload) and torch.Tag.nondeterministic_seeded in target.tags)

    def check(self) -> None:
        """Raises what was found to be unsupported so far."""
        if self._unsupported:
            raise errors.UnsupportedOpError(self._unsupported) from self._mistake

    def _begin(self, op: ir.Operation, name: str) -> str:
        """Moves to the op's Python line; ops without one keep that of their predecessor."""
        node = self._node(op)
        self._source = source_of(node) or self._source
        return name.removeprefix("torch.")

    @property
    def source(self) -> str:
        """The user's line of the operation that is being lowered, or ""."""
        return describe(self._source) if self._source else ""

    def node(self, op: ir.Operation) -> Node | None:
        """The node of torch.export's graph that an operation comes from, if there is one."""
        return self._node(op)

    def dim_of(self, tensor: ir.Value, dim: int) -> ir.Value:
        """The extent of a tensor as a value."""
        return ir.Operation.create("tensor.dim", [ir.IndexType.get()], [tensor, self.builder.index(dim)]).result

    def size_text(self, size: Any) -> str:
        """A size of torch.export as the text of an expression over the program's symbols."""
        return self._symbols.text(size)

    def _node(self, op: ir.Operation) -> Node | None:
        if NODE_ATTR not in op.attributes:
            return None
        return self._nodes.get(ir.StringAttr(op.attributes[NODE_ATTR]).value)

    def _lower_parameter(self, op: ir.Operation) -> None:
        name = ir.StringAttr(op.attributes[PARAMETER_ATTR]).value
        if name not in self._parameter_values:
            self._parameter_values[name] = self._emit_parameter(name)
        self.values[op.results[0]] = self._parameter_values[name]

    def lower_parameter_again(self, value: ir.Value) -> bool:
        """Lowers a value again in a procedure, if it is a parameter; returns whether it is."""
        op = value.owner
        if isinstance(op, ir.Block) or op_name(op.operation) != PARAMETER_OP:
            return False
        if ir.StringAttr(op.attributes[PARAMETER_ATTR]).value in self._states:
            return False
        self._lower_parameter(op.operation)
        return True

    def _emit_parameter(self, name: str) -> Tensor:
        tensor = self._parameters[name]
        dims = tuple(tensor.shape)
        with location(name, self._source):
            if name in self._constants and not dims:
                # A number that export lifted out of the model's code, not data.
                return self.builder.full([], tensor.item(), tensor.dtype)
            if tensor.dim() <= 1 and tensor.dtype in _WHOLE and not tensor.any():
                self.builder.zeros.add(name)
            return self.parameter(name, dims, tensor.dtype)

    def parameter(self, name: str, dims: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """A reference to a parameter, which has a value everywhere."""
        with ir.InsertionPoint.at_block_begin(self._main):
            op = ir.Operation.create(
                "disc_tensor.parameter", [tensor_type(dims, dtype)], attributes={"name": ir.StringAttr.get(name)}
            )
        return Tensor(op.result, dims, dtype)

    def _lower_op(self, op: ir.Operation, name: str) -> None:
        if name == COMPLEX_OP:
            self.values[op.result] = complex(*(ir.FloatAttr(op.attributes[part]).value for part in ("real", "imag")))
            return
        if name.startswith("torch.constant."):
            self.values[op.result] = _constant(op)
            return
        if name.startswith("torch.aten._assert_scalar"):
            self._require(op)
            return
        if name.startswith(_FACT):
            self._note_fact(op)
            return
        if name.startswith(IGNORED):
            return
        if name == ENTER:
            self.values[op.result] = self.value(op.operands[1])
        if name.startswith(MARKERS):
            return
        operands = [self.value(value) for value in op.operands]
        if operands and isinstance(operands[0], Marked):
            self._bind_marked(op, operands[0])
            return
        if name == "torch.prim.ListConstruct":
            self.values[op.result] = operands
            return
        if name == "torch.prim.ListUnpack":
            self._bind(op, [_POISON] * len(op.results) if _poisoned(operands[0]) else operands[0])
            return
        self._apply_rule(op, name, operands)

    def _note_fact(self, op: ir.Operation) -> None:
        """Narrows the ranges of symbols by a condition that holds in the region."""
        _, kind, value = self.operands_of(op)
        if not isinstance(value, torch.SymInt):
            return
        fact = markers.fact(kind, value.node.expr)
        ranges = dict(self.builder.symbol_ranges)
        for symbol in fact.free_symbols & ranges.keys():
            narrow = facts.narrowed(fact, symbol, ranges[symbol], ranges)
            ranges[symbol] = narrow or ranges[symbol]
        self.builder.symbol_ranges = ranges

    def value(self, value: ir.Value) -> Any:
        """The lowered value for a value of the torch dialect, here."""
        if value not in self.values:
            self._lower_number(value)
        return self.values[value]

    def _lower_number(self, value: ir.Value) -> None:
        """Lowers once more what computes a number: it stands in the region that asked for it first."""
        op = value.owner
        if not isinstance(op, ir.Block):
            # Some classes of operations have a name of their own.
            op = op.operation
        fake = None if isinstance(op, ir.Block) else self.fake(op)
        known = self.builder.extent_of(fake.node.expr) if isinstance(fake, torch.SymInt) else None
        if known is not None:
            self.values[value] = known
            return
        if isinstance(op, ir.Block) or op_name(op).startswith(MARKERS) or torch_types.holds_tensors(value.type):
            text = "a value that a branch or a loop computes is used behind it; it must be one of its results"
            raise errors.ControlFlowError("import", text, describe(self._source))
        self._lower_op(op, op_name(op))

    def _bind_marked(self, op: ir.Operation, marked: Marked) -> None:
        """A number that a branch or a loop defines, as a Python number in the model's code."""
        value = self.fake(op)
        if isinstance(value, torch.SymInt):
            if value.node.expr.is_Symbol:
                self.builder.symbol_values.setdefault(value.node.expr, marked.extent)
            self.values[op.result] = marked.extent

    def define_step(self, begin: ir.Operation, index: ir.Value) -> None:
        """Sets the value of the number of a loop's step."""
        for use in begin.result.uses:
            value = self.fake(use.owner.operation)
            if isinstance(value, torch.SymInt):
                self._steps.add(value.node.expr)
                self.builder.symbol_values[value.node.expr] = index

    def _require(self, op: ir.Operation) -> None:
        """``torch._check`` of numbers that the model computes; what is said of others is in the symbols' ranges."""
        # The importer turns the condition into an int first.
        owner = op.operands[0].owner
        while not isinstance(owner, ir.Block) and NODE_ATTR not in owner.attributes and len(owner.operands):
            owner = owner.operands[0].owner
        node = None if isinstance(owner, ir.Block) else self._node(owner)
        if node is None:
            return
        condition = node.meta.get("val")
        if equal_numbers(node) is not None:
            # Torch has one symbol for both numbers, and so has the code behind this.
            self._require_equal(owner, node)
            return
        # That a step's number is one of the range is so.
        if isinstance(condition, torch.SymBool) and not condition.node.expr.free_symbols & self._steps:
            self.builder.require_condition(condition.node.expr, self._symbols)

    def _require_equal(self, op: ir.Operation, node: Node) -> None:
        """Requires that two numbers, of which one has the symbol of the other, are equal."""
        lhs, rhs = (self.value(operand) for operand in op.operands)
        values = [x.meta["val"] if isinstance(x, Node) else x for x in node.args]
        names = [sympy.sympify(x.node._expr if isinstance(x, torch.SymInt) else x) for x in values]
        text = self._symbols.condition(sympy.Eq(*names, evaluate=False))
        self.builder.require_equal(lhs, rhs, f"torch._check({text})")

    def _apply_rule(self, op: ir.Operation, name: str, operands: list[Any]) -> None:
        if "disc.unsupported" in op.attributes:
            why = ir.StringAttr(op.attributes["disc.unsupported"]).value
            self._report(op, name, why)
            return
        rule = find_complex_rule(name) if self._is_complex(op) else None
        rule = rule or find_rule(name)
        composites = self.composites if self.composites is not None and self.composites.wants(name) else None
        if rule is None and composites is None:
            self._report(op, name, "no lowering rule")
            return
        if any(_poisoned(operand) for operand in operands):
            self._poison(op)
            return
        if name.startswith(("torch.aten.", "torch.prims.")) and (empty := self._empty(op)) is not None:
            self._bind(op, empty)
            return
        try:
            self.builder.op_name = name
            self.builder.results = [torch_types.result_info(value.type) for value in op.results]
            self.builder.node = self._node(op)
            self.builder.node_value = self.fake(op)
            self.builder.operand_values = self.operands_of(op)
            if name in ("torch.aten.as_strided", "torch.aten.as_strided_copy"):
                operands = self._on_storage(op, operands)
            if composites is not None:
                own = rule and partial(self._results, op, rule, operands)
                results = composites.lower(self, op, name, operands, own)
            else:
                assert rule is not None
                results = self._results(op, rule, operands)
        except NotLowerable as error:
            self._report(op, name, str(error))
            return
        except errors.CompileError:
            raise
        except Exception as error:
            # A rule's bug concerns this operation only: the others are reported too, and torch.compile falls back.
            self._mistake = self._mistake or error
            self._report(op, name, errors.internal(error))
            return
        self._bind(op, [results] if len(op.results) == 1 else results)

    def _results(self, op: ir.Operation, rule: Rule, operands: list[Any]) -> Any:
        try:
            return self._call(op, rule, operands)
        except TypeError:
            # The rule computes with the number of a Scalar argument in Python.
            computed = self._scalars(op, operands)
            if computed is None:
                raise
            return self._call(op, rule, computed)

    def _on_storage(self, op: ir.Operation, operands: list[Any]) -> list[Any]:
        """The operands of as_strided with the tensor whose memory its view shares in the place of the view."""
        node, value = self._node(op), op.operands[0]
        if node is None or not isinstance(node.args[0], Node):
            return operands
        view = base = node.args[0]
        while _is_view(base):
            value, base = value.owner.operation.operands[0], base.args[0]  # type: ignore[assignment]
        if base is view:
            return operands
        operands = [self.value(value), *operands[1:], *[None] * (4 - len(operands))]
        if operands[3] is None:
            offset = view.meta["val"].storage_offset()
            operands[3] = self.builder.extent_of(offset.node.expr if isinstance(offset, torch.SymInt) else offset)
            if operands[3] is None:
                raise NotLowerable(f"the view begins at {offset} in its storage, which does not follow from the sizes")
        self.builder.operand_values = [base.meta["val"], *self.builder.operand_values[1:]]
        return operands

    def _empty(self, op: ir.Operation) -> list[Any] | None:
        """The results of an operation, if they never have an element; else None."""
        fakes = self.fake(op)
        fakes = list(fakes) if isinstance(fakes, (tuple, list)) else [fakes]
        if len(fakes) != len(op.results) or not op.operands:
            return None
        results = []
        for fake in fakes:
            if not isinstance(fake, torch.Tensor) or fake.is_complex():
                return None
            sizes = [size if isinstance(size, int) else self.builder.extent_of(size.node.expr) for size in fake.shape]
            dims = [size for size in sizes if size is not None]
            if 0 not in [dim for dim in dims if isinstance(dim, int)] or len(dims) < len(sizes):
                return None
            results.append(self.builder.full(dims, 0, fake.dtype))
        return results

    def _scalars(self, op: ir.Operation, operands: list[Any]) -> list[Any] | None:
        """The operands, with extents for Scalar arguments as Python numbers; None if there are no such extents."""
        node = self._node(op)
        schema = getattr(node.target, "_schema", None) if node is not None else None
        kinds = [str(a.type) for a in schema.arguments] if schema is not None else []
        places = [i for i, x in enumerate(operands[: len(kinds)]) if isinstance(x, ir.Value)]
        places = [i for i in places if any(kind in kinds[i] for kind in ("number", "Scalar", "float"))]
        if not places:
            return None
        return [_number(x) if i in places else x for i, x in enumerate(operands)]

    def _call(self, op: ir.Operation, rule: Rule, operands: list[Any]) -> Any:
        return rule(self.builder, *operands)

    def _is_complex(self, op: ir.Operation) -> bool:
        """Whether an operand or result has complex elements."""
        return any(torch_types.is_complex(value.type) for value in (*op.operands, *op.results))

    op_name = staticmethod(op_name)

    def fake(self, op: ir.Operation) -> Any:
        """torch.export's value for the result."""
        node = self._node(op)
        return node.meta.get("val") if node is not None else None

    def operands_of(self, op: ir.Operation) -> list[Any]:
        """torch.export's values for the operands, including those in lists."""
        node = self._node(op)
        args = node.args if node is not None else ()
        return [pytree.tree_map(lambda arg: arg.meta.get("val") if isinstance(arg, Node) else arg, a) for a in args]

    def _bind(self, op: ir.Operation, results: Any) -> None:
        results = [] if results is None and not op.results else list(results)
        if len(results) != len(op.results):
            text = f"the rule of {op_name(op)} returned {len(results)} results, expected {len(op.results)}"
            self._report(op, op_name(op), errors.internal(AssertionError(text)))
            return
        for i, (value, result) in enumerate(zip(op.results, results, strict=True)):
            if result is None and any(True for _ in value.uses):
                self._report(op, op_name(op), f"its result {i} is not available")
                return
            if not self._agreed(op, i, result):
                return
            if isinstance(result, RuntimeNumber):
                result = self.builder.sized(result, self.builder.node_value)
            self.values[value] = result

    def _agreed(self, op: ir.Operation, place: int, result: Any) -> bool:
        """Whether a rule's result has PyTorch's dtype and shape; a mistake in a rule is reported here, at its line."""
        type_, fake = op.results[place].type, self.fake(op)
        if len(op.results) > 1:
            matches = isinstance(fake, (tuple, list)) and len(fake) == len(op.results)
            fake = fake[place] if matches else None
        what = None
        if isinstance(result, Tensor):
            info = torch_types.result_info(type_)
            agree = result.dtype == info.dtype and result.rank == len(info.shape)
            for have, want in zip(result.dims, info.shape, strict=False):
                agree &= not (isinstance(have, int) and want is not None and have != want)
            if not agree:
                what = f"{result.value.type} of {result.dtype}, expected {type_}"
        pairs = [(result, fake)]
        if isinstance(result, (tuple, list)) and isinstance(fake, (tuple, list)) and len(result) == len(fake):
            pairs = list(zip(result, fake, strict=True))
        inside = len(self.values.maps) > 1
        for tensor, like in pairs:
            if what is None and isinstance(tensor, Tensor) and isinstance(like, torch.Tensor):
                what = self._agreement.difference(tensor, like, inside_branch=inside)
        if what is None:
            return True
        text = f"the rule of {op_name(op)} returned as result {place} a tensor {what}"
        self._report(op, op_name(op), errors.internal(AssertionError(text)))
        return False

    def _report(self, op: ir.Operation, name: str, reason: str) -> None:
        node = self._node(op)
        self._unsupported.append(
            errors.UnsupportedOp(name, describe(self._source), reason, node.name if node is not None else "")
        )
        self._poison(op)

    def _poison(self, op: ir.Operation) -> None:
        for value in op.results:
            self.values[value] = _POISON


def _is_view(node: Node) -> bool:
    """Whether the one result of an operation shares the memory of its first operand."""
    target = node.target
    if not isinstance(target, OpOverload) or target._schema.is_mutable or len(target._schema.returns) != 1:
        return False
    if not node.args or not isinstance(node.args[0], Node):
        return False
    value, base = node.meta.get("val"), node.args[0].meta.get("val")
    if not isinstance(value, torch.Tensor) or not isinstance(base, torch.Tensor):
        return False
    # The schema does not tell: _unsafe_view always is a view, x.to(memory_format=...) at times.
    return value.untyped_storage()._cdata == base.untyped_storage()._cdata


def _as_tensor(value: Any) -> Any:
    """Numbers that are inputs are tensors without dims."""
    return torch.empty((), dtype=torch.int64, device="meta") if isinstance(value, torch.SymInt) else value


def _number(extent: ir.Value) -> RuntimeNumber:
    return RuntimeNumber(torch.int64, lambda: scalar.from_extent(extent, torch.int64))


def _poisoned(operand: Any) -> bool:
    if isinstance(operand, list):
        return any(_poisoned(item) for item in operand)
    return operand is _POISON


def _constant(op: ir.Operation) -> Any:
    kind = op.name.rpartition(".")[2]
    if kind == "none":
        return None
    attribute = op.attributes["value"]
    if kind == "int":
        return ir.IntegerAttr(attribute).value
    if kind == "bool":
        return bool(ir.IntegerAttr(attribute).value)
    if kind == "float":
        return ir.FloatAttr(attribute).value
    return ir.StringAttr(attribute).value
