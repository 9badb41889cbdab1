"""Lowering what came from ONNX: the same walk, with attributes, known elements and nodes in place of Python lines."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
import sympy
import torch
from torch_mlir import ir

from .. import dtypes, scalar
from ..locations import location
from ..lower import Lowering, op_name, operations
from ..registry import NotLowerable, Rule
from ..symbols import SymbolTable
from ..torch_dialect import PARAMETER_ATTR, PARAMETER_OP
from ..torch_types import is_tensor
from ..values import Tensor
from .builder import UNKNOWN, OnnxBuilder, unit_message
from .cases import Cases, Path, Units
from .dialect import ITEMS, OWN, constant_of, number_of
from .known import LIMIT, RELATIONS, Known, Unknown, evaluate, indicator
from .model import DTYPES, OnnxModel, to_tensor
from .regions import REGIONS, SIGNS, Given, OnnxRegionLowering, declared_rank
from .tensor_list import TensorList

_TRANSPARENT = ("Not", "Identity", "Cast", "Squeeze", "Unsqueeze", "Reshape")
"""Operators whose result, of one element, says the same as their operand, or the opposite."""


_COMPUTING = ("Add", "Sub", "Mul", "Neg", "Min", "Max", "Concat")
"""Operators that may take a condition as a number."""


@dataclass(frozen=True)
class Relation:
    """A condition on extents: ``lhs op rhs``, or that it does not hold."""

    op: str
    lhs: Any
    rhs: Any
    holds: bool = True


class CaseRanks(Exception):
    """The outputs differ in rank between two cases.

    ``units``: by the outputs' numbers, dims that are 1 in the first case and that it lacks; if empty, one case goes.
    """

    def __init__(self, path: Path, units: Units) -> None:
        self.path, self.units = path, units
        super().__init__(f"outputs differ in rank at {path}")


def _compared(op: str, left: Any, right: Any) -> scalar.Elem:
    x, y = (
        scalar.from_extent(v, torch.int64) if isinstance(v, ir.Value) else scalar.constant(v, torch.int64)
        for v in (left, right)
    )
    return {
        "Equal": lambda: x.eq(y),
        "Less": lambda: x < y,
        "LessOrEqual": lambda: x <= y,
        "Greater": lambda: x > y,
        "GreaterOrEqual": lambda: x >= y,
    }[op]()


class OnnxLowering(Lowering):
    """Lowers the torch dialect that :func:`~disc.frontend.onnx.dialect.import_graph` makes."""

    def __init__(
        self,
        model: OnnxModel,
        symbols: SymbolTable,
        parameters: dict[str, torch.Tensor],
        choices: Mapping[int, bool] | None = None,
        cases: Cases | None = None,
    ) -> None:
        """``choices``: which branch to take of Ifs, by their numbers, whose branches differ in rank.

        ``cases``: by which conditions on the inputs the program branches at its entry.
        """
        super().__init__(None, symbols, parameters)
        self._model = model
        self._tensors = parameters
        self._materialised: dict[int, tuple[Known, Tensor]] = {}
        self._forced = dict(choices or {})
        self._cases = cases or Cases()
        self.path: Path = ()
        """Which case is being lowered."""
        self.choices: dict[int, bool] = {}
        """Which branch was taken of Ifs whose branches differ in rank."""
        self.relations: dict[ir.Value, Relation] = {}
        """Conditions that are comparisons of two extents, which the ranges do not decide."""
        self.builder = self.onnx = OnnxBuilder(model.opset)
        """The builder."""
        self.onnx.materialise = self._materialise

    def _begin(self, op: ir.Operation, name: str) -> str:
        number = number_of(op)
        if number is not None:
            self._source = self._model.source(number)
        return name.removeprefix(OWN).removeprefix("torch.")

    def finish(self, block: ir.Block, outputs: list[Any]) -> list[Any]:
        """The outputs as tensors, and sequences as lists of them; of narrow elements as they are stored."""

        def tensor(x: Any) -> Any:
            if isinstance(x, TensorList):
                return [tensor(item) for item in x.items]
            made = self._materialise(x)
            return replace(made, dtype=dtypes.storage(made.dtype))

        with ir.Location.name("outputs"), ir.InsertionPoint(block):
            return [tensor(x) for x in outputs]

    def _bind_inputs(self, source: ir.Block, block: ir.Block, inputs: Sequence[tuple[str, Any]]) -> None:
        super()._bind_inputs(source, block, inputs)
        for argument, (name, _) in zip(source.arguments, inputs, strict=True):
            self.values[argument] = self._typed(name, self.values[argument])

    def _typed(self, name: str, value: Tensor) -> Tensor:
        """An input or constant with its type in the model."""
        return replace(value, dtype=self._model.narrow.get(name, value.dtype))

    # -- cases -----------------------------------------------------------------------------------

    def _lower_block(self, source: ir.Block, block: ir.Block) -> list[Any]:
        if not self._cases.conditions:
            return super()._lower_block(source, block)
        with ir.InsertionPoint(block):
            for op in operations(source):
                if op_name(op) == PARAMETER_OP:
                    self._lower_parameter(op)
            with location("main", self._source):
                return self._lower_case(source, ())

    def _lower_case(self, source: ir.Block, path: Path) -> list[Any]:
        """Lowers the graph for the inputs of which the first conditions are as ``path`` says."""
        *ops, end = [view.operation for view in source.operations]
        self.path = path
        if len(path) == len(self._cases.conditions):
            for op in ops:
                self.lower_inner(op)
            self.check()
            return [self.value(v) for v in end.operands]
        b = self.onnx
        condition = self._cases.conditions[len(path)]
        lhs, rhs = condition.sides(b.entry_names)
        left, right = b.extent(lhs), b.extent(rhs)

        def side(holds: bool) -> Callable[[], list[Any]]:
            def build() -> list[Any]:
                with self.inside_region(), b.assuming(condition, holds):
                    if holds and condition.op == "Equal" and rhs == 1:
                        b.require_equal(left, 1, "the size must be 1")
                        self._become_units(source, left)
                    results = self._lower_case(source, (*path, holds))
                    return [self._with_units(x, i, path, holds) for i, x in enumerate(results)]

            return build

        def only(holds: bool) -> list[Any]:
            text = f"{b.described(lhs)} {SIGNS[condition.op]} {b.described(rhs)}"
            message = f"the model works {'only' if holds else 'not'} where {text}"
            if condition.op == "Equal" and rhs == 1 and not holds:
                message = unit_message("the model", b.described(lhs))
            b.require_relation(holds, condition.op, lhs, rhs, message)
            return side(holds)()

        possible = self._cases.possible(path)
        if len(possible) == 1:
            return only(possible[0])
        pred = b.generic([], [], [], torch.bool, lambda: _compared(condition.op, left, right))
        outputs = list(end.operands)

        unit = b.as_symbolic(left) if condition.op == "Equal" and rhs == 1 else None

        def by_rank(sides: Sequence[Given]) -> bool:
            units: Units = {}
            for i, (one, more) in enumerate(zip(sides[0].tensors, sides[1].tensors, strict=True)):
                dropped = self._cases.dropped(path, i)
                kept = [d for d in range(more.rank + len(dropped)) if d not in dropped]
                same = [d for d, extent in zip(kept, sides[1].extents[i], strict=True) if extent == b.as_symbolic(left)]
                if len(same) == more.rank - one.rank > 0:
                    units[i] = tuple(same)
                elif one.rank != more.rank:
                    raise CaseRanks((*path, False), {})
            raise CaseRanks((*path, False), units if unit and not self._cases.units[len(path)] else {})

        sides = side(True), side(False)
        return OnnxRegionLowering(self, end).branch(pred, sides, (outputs, outputs), by_rank, unit)

    def _with_units(self, x: Any, output: int, path: Path, holds: bool) -> Any:
        """An output of one side with the dims, of size 1, that the other side has."""
        more = self._cases.dropped((*path, holds), output) - (outer := self._cases.dropped(path, output))
        if not more:
            return x
        tensor = self._materialise(x)
        rest = iter(tensor.dims)
        rank = tensor.rank + len(more) + len(outer)
        return self.onnx.reshape(tensor, [1 if d in more else next(rest) for d in range(rank) if d not in outer])

    def _become_units(self, source: ir.Block, extent: Any) -> None:
        """Inputs with an extent that is 1 here."""
        for argument in source.arguments:
            x = self.values[argument]
            if isinstance(x, Tensor) and any(d == extent for d in x.dims if isinstance(d, ir.Value)):
                dims = [1 if isinstance(d, ir.Value) and d == extent else d for d in x.dims]
                self.values[argument] = self.onnx.reshape(x, dims)

    # -- operations ----------------------------------------------------------------------------

    def _lower_parameter(self, op: ir.Operation) -> None:
        name = ir.StringAttr(op.attributes[PARAMETER_ATTR]).value
        if name not in self._tensors:
            raise NotLowerable(f"constant {name!r} has an element type that is not supported")
        super()._lower_parameter(op)
        self.values[op.results[0]] = self._typed(name, self.values[op.results[0]])

    def _lower_op(self, op: ir.Operation, name: str) -> None:
        if name in ("torch.vtensor.literal", "onnx.Constant"):
            self.values[op.result] = self._literal(op)
        elif name.removeprefix(OWN) in REGIONS:
            self._lower_regions(op, name.removeprefix(OWN))
        else:
            super()._lower_op(op, name.removeprefix(OWN))

    def _lower_regions(self, op: ir.Operation, name: str) -> None:
        """Lowers an operator that holds graphs."""
        attributes = {
            a.name: _attribute(a)
            for a in self._model.nodes[number_of(op) or 0].attribute
            if a.type != onnx.AttributeProto.GRAPH
        }
        try:
            results = OnnxRegionLowering(self, op).run(name, attributes)
        except NotLowerable as error:
            self._report(op, name, str(error))
        else:
            self._bind(op, results[: len(op.results)])

    def choose(self, op: ir.Operation, then: bool) -> bool:
        """Which branch to take of an If whose branches differ in rank: what was asked for, or ``then``."""
        number = number_of(op) or 0
        self.choices.pop(number, None)
        self.choices[number] = self._forced.get(number, then)
        return self.choices[number]

    def lower_inner(self, op: ir.Operation) -> None:
        """Lowers an operation of a graph that an operator holds, where it stands."""
        if op.results and op.results[0] in self.values:
            return
        name = op_name(op)
        with location(self._begin(op, name), self._source):
            self._lower_op(op, name)

    @contextmanager
    def inside_region(self) -> Iterator[None]:
        """Values that are lowered inside do not exist outside of the region."""
        known = self._materialised
        self._materialised = dict(known)
        with super().inside_region():
            yield
        self._materialised = known

    @contextmanager
    def tried(self) -> Iterator[Callable[[], None]]:
        """Discards the values that are lowered inside, unless the function that it yields is called."""
        known = self._materialised
        self._materialised = dict(known)
        with super().tried() as keep:
            yield keep
        self._materialised = known

    def _literal(self, op: ir.Operation) -> Any:
        place = constant_of(op)
        # The conversion makes literals of its own.
        name = self._fresh_name() if place is None else self._model.proto.graph.initializer[place].name
        tensor = None if place is None else self._tensors.get(name)
        if tensor is None:
            attribute = op.attributes["value" if "value" in op.attributes else "torch.onnx.value"]
            tensor = torch.from_numpy(np.array(ir.DenseElementsAttr(attribute)))
        dtype = self._model.narrow.get(name, tensor.dtype)
        # The bits of narrow floats are not numbers.
        if tensor.numel() <= LIMIT and tensor.dtype.is_floating_point == dtype.is_floating_point:
            return Known.of(np.array(tensor.tolist(), dtype=object).reshape(tuple(tensor.shape)), dtype)
        self._tensors.setdefault(name, tensor)
        return self._typed(name, self._emit_parameter(name))

    def _call(self, op: ir.Operation, rule: Rule, operands: list[Any]) -> Any:
        name = self.builder.op_name
        if not name.startswith("onnx."):
            if name in ITEMS and isinstance(operands[0], Known):
                return self.onnx.extent(operands[0].list[0])
            operands = [self._materialise(x) for x in operands]
            return rule(self.builder, *operands)
        attributes = self._attributes(op)
        numbers = [self._as_known(name.removeprefix("onnx."), i, x) for i, x in enumerate(operands)]
        if all(x is None or isinstance(x, Known) for x in numbers):
            known = evaluate(name.removeprefix("onnx."), numbers, attributes, self.builder.symbol_ranges)
            if known is not None:
                return known
        wanted = getattr(rule, "known", ())
        self.onnx.declared = declared_rank(op.results[0]) if op.results else None
        given = [x if i in wanted else self._materialise(x) for i, x in enumerate(operands)]
        try:
            inspect.signature(rule).bind(self.builder, *given, **attributes)
        except TypeError as error:
            raise NotLowerable(
                f"its operands or attributes are not those of the operator that DISC knows: {error}"
            ) from None
        try:
            results = rule(self.builder, *given, **attributes)
        except Unknown as error:
            raise NotLowerable(self._steered(op, given, error)) from None
        except (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError) as error:
            ranks = ", ".join(str(x.rank) if isinstance(x, Tensor) else "none" for x in given)
            raise NotLowerable(
                f"its rule does not accept operands of rank {ranks} with these attributes"
                f" ({type(error).__name__}: {error})"
            ) from error
        self._note_relation(name.removeprefix("onnx."), operands, results)
        # Results that the model leaves out are at the end, or of no type.
        if isinstance(results, (list, tuple)):
            return results[0] if len(op.results) == 1 else list(results)[: len(op.results)]
        return results

    def _as_known(self, op: str, place: int, x: Any) -> Any:
        """A condition on extents as the number 1 or 0, where it is computed with."""
        if not isinstance(x, Tensor) or x.value not in self.relations or not all(d == 1 for d in x.dims):
            return x
        choice = op == "Where" and place == 0
        if not choice and (op not in _COMPUTING or x.dtype.is_floating_point or x.dtype == torch.bool):
            return x
        relation = self.relations[x.value]
        value = indicator(relation.op, relation.lhs, relation.rhs, relation.holds)
        # Sizes of what sizes decided again would grow without bounds.
        if not value.free_symbols <= self.onnx.entry_names.keys():
            return x
        return Known.of(np.full((1,) * x.rank, value, dtype=object), x.dtype)

    def _note_relation(self, op: str, operands: list[Any], result: Any) -> None:
        """Remembers what comparisons of extents are, for an If that they decide."""
        if not isinstance(result, Tensor) or not operands:
            return
        known = all(isinstance(x, Known) and x.values.size == 1 for x in operands)
        if op in RELATIONS and known and len(operands) == 2:
            self.relations[result.value] = Relation(op, operands[0].list[0], operands[1].list[0])
        elif op in _TRANSPARENT and isinstance(operands[0], Tensor) and operands[0].value in self.relations:
            relation = self.relations[operands[0].value]
            self.relations[result.value] = replace(relation, holds=relation.holds != (op == "Not"))

    def fake(self, op: ir.Operation) -> Any:
        """Nothing: the model was not traced."""
        return UNKNOWN

    def _steered(self, op: ir.Operation, given: list[Any], error: Unknown) -> str:
        number = number_of(op)
        at = next((i for i, x in enumerate(given) if x is error.tensor), None)
        if number is None or at is None:
            return str(error)
        name = self._model.nodes[number].input[at]
        if any(i.name == name for i in self._model.inputs):
            return f"input {name!r} decides the shape of the result: give its value with fixed={{{name!r}: ...}}"
        return f"its operand {name!r}, which decides the shape of the result, is computed from data"

    def _attributes(self, op: ir.Operation) -> dict[str, Any]:
        number = number_of(op)
        if number is None:
            return {}
        return {a.name: _attribute(a) for a in self._model.nodes[number].attribute}

    def _agreed(self, op: ir.Operation, place: int, result: Any) -> bool:
        # Types that ONNX could not infer are missing, or have unknown dims: the rules compute them.
        known = is_tensor(op.results[place].type)
        if op_name(op).removeprefix(OWN).startswith("onnx.") or not known:
            return True
        return super()._agreed(op, place, result)

    # -- known elements as tensors -------------------------------------------------------------

    def _materialise(self, x: Any) -> Any:
        if isinstance(x, list):
            return [self._materialise(item) for item in x]
        if not isinstance(x, Known):
            return x
        if id(x) not in self._materialised:
            self._materialised[id(x)] = (x, self._emit_known(x))
        return self._materialised[id(x)][1]

    def _fresh_name(self) -> str:
        """A name for a constant that the model does not contain."""
        count = len(self._tensors)
        while f"onnx_constant_{count}" in self._tensors:
            count += 1
        return f"onnx_constant_{count}"

    def _emit_fractions(self, x: Known) -> Tensor:
        """Floats that are extents times fractions."""
        b = self.onnx
        parts = [sympy.fraction(sympy.together(v)) for v in x.list]
        over = [b.extent(sympy.expand(top)) for top, _ in parts]
        under = [b.extent(bottom) for _, bottom in parts]
        wide = torch.float64

        def body() -> scalar.Elem:
            index = scalar.constant(0, torch.int64)
            stride = 1
            for dim in reversed(range(x.values.ndim)):
                index = index + scalar.loop_index(dim) * stride
                stride *= x.values.shape[dim]
            result = scalar.constant(0.0, wide)
            for i, (top, bottom) in enumerate(zip(over, under, strict=True)):
                value = scalar.from_extent(top, wide) / scalar.from_extent(bottom, wide)
                result = scalar.select(index.eq(i), value, result)
            return result.to(x.dtype)

        return b.generic([], [], list(x.values.shape), x.dtype, body)

    def _emit_known(self, x: Known) -> Tensor:
        if x.dtype.is_floating_point and not x.static:
            return self._emit_fractions(x)
        dims = tuple(x.values.shape)
        values = x.list
        b = self.builder
        if x.static:
            if values and all(v == values[0] for v in values):
                return b.full(list(dims), values[0], x.dtype)
            tensor = torch.tensor(values, dtype=dtypes.storage(x.dtype)).reshape(dims)
            name = self._fresh_name()
            self._tensors[name] = tensor
            return self.parameter(name, dims, x.dtype)
        extents = [self.onnx.extent(v) for v in values]

        def body() -> scalar.Elem:
            index = scalar.constant(0, torch.int64)
            stride = 1
            for dim in reversed(range(len(dims))):
                index = index + scalar.loop_index(dim) * stride
                stride *= dims[dim]
            result = scalar.from_extent(extents[-1], x.dtype)
            for i, extent in enumerate(extents[:-1]):
                result = scalar.select(index.eq(i), scalar.from_extent(extent, x.dtype), result)
            return result

        return b.generic([], [], list(dims), x.dtype, body)


def _attribute(attribute: onnx.AttributeProto) -> Any:
    if attribute.type == onnx.AttributeProto.TENSOR:
        return to_tensor(attribute.t)
    if attribute.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS):
        raise NotLowerable("it holds a graph of its own")
    value = onnx.helper.get_attribute_value(attribute)
    if attribute.name in ("to", "dtype", "stash_type", "output_dtype", "softmax_precision") and isinstance(value, int):
        if value not in DTYPES:
            name = onnx.TensorProto.DataType.Name(value).lower()
            raise NotLowerable(f"element type {name} is not supported")
        return DTYPES[value]
    if isinstance(value, bytes):
        return value.decode()
    return [v.decode() if isinstance(v, bytes) else v for v in value] if isinstance(value, (list, tuple)) else value
