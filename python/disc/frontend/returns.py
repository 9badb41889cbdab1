"""What a model returns: which results ``main`` has, and what becomes of them."""

from __future__ import annotations

import operator
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sympy
import torch
from torch._ops import OpOverload
from torch.fx import Node
from torch_mlir import ir

from .. import errors
from ..torch_compat import pytree
from . import dtypes, scalar
from .builder import Builder
from .markers import is_marker
from .rules import common
from .updates import Program, Update, state_name
from .values import RuntimeNumber, Tensor


@dataclass(frozen=True)
class Output:
    """Where one leaf of the model's output comes from.

    ``kind`` is ``"tensor"`` (result ``index`` of ``main``), ``"input"`` (input ``index``, returned as it
    is, or as it is after its update), ``"parameter"`` (the tensor ``value``, the model's own), ``"constant"`` (the
    Python ``value``), ``"int"`` (a number that follows from the inputs' extents: see
    :meth:`ImportedProgram.unflatten`), or ``"number"`` (result ``index`` of ``main``, a tensor without dims, as a
    Python number).
    """

    kind: str
    index: int = -1
    value: Any = None
    complex: bool = False
    """Whether the pairs of real numbers that ``main`` has are complex ones."""
    stored: torch.dtype | None = None
    """The dtype of a result that ``main`` has as integers with the same bits."""
    units: tuple[tuple[int, ...], ...] = ()
    """Groups of dims that the caller does not get where all of a group are 1: the model's rank depends on that."""

    keys: tuple[int | str, ...] = ()
    """If not empty, the caller gets a list with a dict for each row, of the row's numbers under these keys."""

    @property
    def is_plain(self) -> bool:
        """Whether the caller gets result ``index`` as it is."""
        return self.kind == "tensor" and not (self.complex or self.stored or self.units or self.keys)

    def given(self, leaf: torch.Tensor) -> Any:
        """What the caller gets for a tensor of ``main``'s."""
        leaf = torch.view_as_complex(leaf) if self.complex else leaf
        if self.units:
            shape = leaf.shape
            leaf = leaf.squeeze([d for g in self.units if all(shape[d] == 1 for d in g) for d in g])
        leaf = leaf if self.stored is None else leaf.view(self.stored)
        return self.maps(leaf) if self.keys else leaf

    def maps(self, leaf: torch.Tensor) -> list[dict[int | str, float]]:
        """The rows of a tensor as dicts."""
        rows = leaf.tolist() if leaf.dim() == 2 else [leaf.tolist()]
        return [dict(zip(self.keys, row, strict=True)) for row in rows]


def _passed(kind: str, index: int, dtype: torch.dtype) -> Output:
    return Output(kind, index, complex=dtype.is_complex, stored=dtype if dtypes.is_stored(dtype) else None)


@dataclass(frozen=True)
class Result:
    """One result of ``main``."""

    value: Tensor
    name: str
    updates: int | None = None
    """The argument that it is the new value of, if it is no output."""


class Returns:
    """The end of an import: classifies what the program returns."""

    def __init__(
        self,
        program: Program,
        module: ir.Module,
        builder: Builder,
        inputs: Sequence[str],
        states: Mapping[str, torch.Tensor],
        places: Collection[sympy.Symbol],
    ) -> None:
        """``places``: the symbols that the inputs' extents tell."""
        self._places = places
        self._program = program
        self._builder = builder
        self._func = next(v.operation for v in module.body.operations if v.operation.name == "func.func")
        self._block = self._func.regions[0].blocks[0]
        self._names = [*inputs, *states]
        self._inputs = len(inputs)
        self._arguments = {argument: i for i, argument in enumerate(self._block.arguments)}

    def collect(
        self,
        results: Sequence[Any],
        updates: Sequence[Update],
        parameters: Mapping[str, torch.Tensor],
        out_spec: pytree.TreeSpec,
        library: bool,
        owned: bool = False,
    ) -> tuple[list[Output], list[Result]]:
        """The outputs, and the results that ``main`` must have for them and for the updates: each tensor once.

        With ``owned`` each tensor is in memory of its own: none is an input or a parameter, no two are the same.
        """
        specs = self._program.graph_signature.output_specs
        nodes = {n.name: n for n in self._program.graph.nodes}
        places = [self._argument(update, parameters) for update in updates]
        # What returns an updated tensor itself is that tensor, not a copy.
        updated = {update.node: place for update, place in zip(updates, places, strict=True)}
        keys = _leaf_keys(out_spec)
        returned: list[Tensor] = []
        makers: list[Node | None] = []
        outputs: list[Output] = []
        count = len(updates)
        for spec, result, key in zip(specs[count:], results[count:], keys, strict=True):
            node = getattr(spec.arg, "name", None)
            maker = _maker(nodes.get(node))  # type: ignore[arg-type]
            symbolic = nodes[node].meta.get("val") if node in nodes else None
            output = self._classify(spec, result, symbolic, parameters)
            if output.kind in ("input", "parameter") and isinstance(result, Tensor) and _is_new(maker):
                result = self._copy(result)
                output = Output("tensor")
            if owned and isinstance(result, Tensor):
                if output.kind != "tensor" or node in updated or result in returned:
                    result = self._copy(result)
                output = Output("tensor")
            elif node in updated and isinstance(result, Tensor) and not library:
                place = updated[node]
                if place >= self._inputs:
                    output = Output("parameter", value=parameters[self._names[place]])
                else:
                    output = _passed("input", place, result.dtype)
            number = output.kind == "number"
            if number:
                result = output.value
            elif library and output.kind != "tensor":
                if output.kind == "constant" and output.value is None:
                    outputs.append(output)
                    continue
                result = self._computed(output, result, key)
                output = Output("tensor")
            elif library and node in updated:
                result = self._copy(result)
            if result in returned:
                other = makers[returned.index(result)]
                # The caller of a library knows outputs by number and name, and passes separate memory for each.
                if library or (other is not maker and (_is_new(maker) or _is_new(other))):
                    result = self._copy(result)
            if output.kind in ("tensor", "number"):
                if result not in returned:
                    returned.append(result)
                    makers.append(maker)
                kind = "number" if number and not library else "tensor"
                output = _passed(kind, returned.index(result), result.dtype)
            outputs.append(output)
        named = [Result(v, name) for v, name in zip(returned, _output_names(keys, outputs), strict=True)]
        for update, place, value in zip(updates, places, results[:count], strict=True):
            del update
            if value.value == self._block.arguments[place]:
                continue
            named.append(
                Result(self._of_type(self._owned(value), self._block.arguments[place]), self._names[place], place)
            )
        return outputs, named

    def _argument(self, update: Update, parameters: Mapping[str, torch.Tensor]) -> int:
        name = update.input if update.state is None else state_name(update, parameters)
        return self._names.index(name)  # type: ignore[arg-type]

    def _classify(self, spec: Any, result: Any, symbolic: Any, parameters: Mapping[str, torch.Tensor]) -> Output:
        if not isinstance(result, Tensor):
            number = self._number(result, symbolic)
            if number is not None:
                return Output("number", value=number)
            if isinstance(symbolic, torch.SymInt):
                return Output("int", value=symbolic.node.expr)
            return Output("constant", value=getattr(spec.arg, "value", result))
        place = self._arguments.get(result.value)
        if place is not None and place < self._inputs:
            return _passed("input", place, result.dtype)
        if place is not None:
            return Output("parameter", value=parameters[self._names[place]])
        owner = result.value.owner
        if not isinstance(owner, ir.Block) and owner.name == "disc_tensor.parameter":
            return Output("parameter", value=parameters[ir.StringAttr(owner.attributes["name"]).value])
        return Output("tensor")

    def _number(self, result: Any, symbolic: Any) -> Tensor | None:
        """A number that the inputs' extents do not tell, as a tensor without dims."""
        with ir.InsertionPoint(self._block), self._func.location:
            if isinstance(result, RuntimeNumber):
                return self._builder.map(result.dtype, [result], lambda x: x, dims=[])
            if not isinstance(symbolic, torch.SymInt) or not isinstance(result, ir.Value):
                return None
            if all(symbol in self._places for symbol in symbolic.node.expr.free_symbols):
                return None
            return self._builder.map(torch.int64, [common.number(result)], lambda x: x, dims=[])

    def _computed(self, output: Output, result: Any, key: tuple[Any, ...]) -> Tensor:
        """A tensor of its own in place of an input, a parameter or a number."""
        if isinstance(result, Tensor):
            return self._copy(result)
        b = self._builder
        with ir.InsertionPoint(self._block), self._func.location:
            if output.kind == "int":
                extent = b.extent_of(output.value)
                if extent is not None:
                    return b.generic([], [], [], torch.int64, lambda: scalar.from_extent(extent, torch.int64))
            elif isinstance(output.value, (bool, int, float)):
                kinds = {bool: torch.bool, int: torch.int64, float: torch.float64}
                return b.full([], output.value, kinds[type(output.value)])
        raise errors.UnsupportedTypeError(
            "import",
            f"output {'.'.join(map(str, key)) or '0'} is {output.value!r}, which a library cannot give: its "
            "outputs are tensors and numbers",
        )

    def _owned(self, value: Tensor) -> Tensor:
        """The value as one that a kernel computes."""
        owner = value.value.owner
        if isinstance(owner, ir.Block) or owner.name == "disc_tensor.parameter":
            return self._copy(value)
        return value

    def _of_type(self, value: Tensor, argument: ir.Value) -> Tensor:
        """The value with the argument's extents: they are the same, but export may know one of them to be static."""
        if value.value.type == argument.type:
            return value
        b = self._builder
        with ir.InsertionPoint(self._block), self._func.location:
            pairs = b.as_pairs(value) if value.dtype.is_complex else value
            dims = [
                ir.Operation.create("tensor.dim", [ir.IndexType.get()], [argument, b.index(d)]).result
                if argument.type.is_dynamic_dim(d)
                else argument.type.get_dim_size(d)
                for d in range(pairs.rank)
            ]
            return self._copied(b.reshape(pairs, dims), value.dtype)

    def _copy(self, value: Tensor) -> Tensor:
        with ir.InsertionPoint(self._block), self._func.location:
            pairs = self._builder.as_pairs(value) if value.dtype.is_complex else value
            return self._copied(pairs, value.dtype)

    def _copied(self, value: Tensor, dtype: torch.dtype) -> Tensor:
        """A copy of a tensor, or of the pairs that stand for one of complex numbers."""
        copy = self._builder.elementwise(value.dtype, [value], lambda x: x)
        return self._builder.as_complex(copy) if dtype.is_complex else copy


def _maker(node: Node | None) -> Node | None:
    """The node whose memory a node's tensor is in: the node itself, unless it makes a view by its schema."""
    while node is not None and node.op == "call_function":
        index = 0
        source = node
        if node.target is operator.getitem and isinstance(node.args[0], Node) and isinstance(node.args[1], int):
            source, index = node.args[0], node.args[1]
        if not isinstance(source.target, OpOverload):
            return node
        schema = source.target._schema
        alias = schema.returns[index if len(schema.returns) > 1 else 0].alias_info if schema.returns else None
        if alias is None:
            return node
        viewed = [
            value
            for argument, value in zip(schema.arguments, source.args, strict=False)
            if argument.alias_info is not None and argument.alias_info.before_set & alias.before_set
        ]
        if len(viewed) != 1 or not isinstance(viewed[0], Node):
            return node
        node = viewed[0]
    return node


def _is_new(maker: Node | None) -> bool:
    """Whether an operation, by its schema, makes the memory of its result."""
    if maker is None or maker.op != "call_function":
        return False
    source = maker.args[0] if maker.target is operator.getitem else maker
    if not isinstance(source, Node) or not isinstance(source.target, OpOverload) or is_marker(source.target):
        return False
    return all(result.alias_info is None for result in source.target._schema.returns)


def _output_names(keys: Sequence[tuple[Any, ...]], outputs: Sequence[Output]) -> list[str]:
    """A name for each tensor that ``main`` returns: from the keys of dicts and named tuples, or ``output_0``, ..."""
    names: dict[int, str] = {}
    for key, output in zip(keys, outputs, strict=True):
        if output.kind in ("tensor", "number") and output.index not in names:
            named = any(isinstance(part, str) for part in key)
            names[output.index] = "_".join(map(str, key)) if named else f"output_{output.index}"
    taken: set[str] = set()
    return [_distinct_name(names[i], taken) for i in sorted(names)]


def _leaf_keys(spec: pytree.TreeSpec) -> list[tuple[Any, ...]]:
    """Of each leaf, the keys and numbers that lead to it."""
    if spec.is_leaf():
        return [()]
    keys = getattr(spec.context, "_fields", spec.context)
    if not isinstance(keys, (list, tuple)) or len(keys) != spec.num_children:
        keys = range(spec.num_children)
    children = zip(keys, spec.children(), strict=True)
    return [(key, *rest) for key, child in children for rest in _leaf_keys(child)]


def _distinct_name(name: str, taken: set[str]) -> str:
    candidate, count = name, 1
    while candidate in taken:
        candidate, count = f"{name}_{count}", count + 1
    taken.add(candidate)
    return candidate
