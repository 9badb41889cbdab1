"""Functions that call themselves, between the markers of ``markers.py``, as procedures and ``disc_tensor.invoke``.

A procedure cannot use values of the code around it. Those that its body needs are passed on from call to call: tensors
as arguments, symbols as symbols of the procedure. Parameters exist everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import sympy
import torch
from torch_mlir import ir

from ..expressions import Expression, symbol
from . import dtypes
from .lower_regions import PROCEDURE, PROCEDURE_END, Marked, Number, RegionLowering, end_of
from .registry import NotLowerable
from .torch_dialect import PARAMETER_OP
from .torch_types import result_info
from .values import Extent, Tensor, tensor_type

CALL, SIZE = "torch.disc.procedure_call", "torch.disc.procedure_size"


@dataclass
class Procedure:
    """A procedure that calls can name."""

    name: str
    results: list[ir.Type]
    arguments: list[ir.Type] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    """Those of its numbers that are symbols, ..."""
    loose: list[int] = field(default_factory=list)
    """...and those that may be negative, which are arguments: tensors without dims."""
    captured: list[ir.Value] = field(default_factory=list)
    """The tensors from outside that it uses, in the torch dialect."""
    given: list[tuple[int, int]] = field(default_factory=list)
    """The extents of results, by result and dim, that it finds out."""
    symbols: dict[str, str] = field(default_factory=dict)
    """The symbols from outside that it uses, and their names inside."""


class ProcedureLowering(RegionLowering):
    """Lowers the procedure that begins at ``ops[start]`` to a separate function."""

    def run(self, block: ir.Block) -> int:
        """Lowers it; returns the place after it."""
        at_end = end_of(self._name, self._ops, self._start)
        inside, end = self._ops[self._start + 1 : at_end], self._ops[at_end]
        known = self._lowering.procedures
        static = self._static_results(end)
        types = [tensor_type(dims, dtype) for dims, dtype in static]
        places = [(n, d) for n, (dims, _) in enumerate(static) for d in range(len(dims))]
        given = [places[_int(which)] for which in _items(end.operands[3])]
        procedure = Procedure(f"procedure_{len(known)}", types, given=given)
        known[self._begin.result] = known[end.result] = procedure
        captured = self._captures(procedure, [*inside, end])
        func = self._function(procedure.name)
        body = func.regions[0].blocks.append()
        drawn = self._b.random_operations
        with self._lowering.inside_procedure(body, procedure.symbols), ir.InsertionPoint(body):
            symbols = list(procedure.symbols.values())
            arguments = self._bind(procedure, body, symbols, captured)
            self._lowering.lower_ops(inside, body)
            self._lowering.check()
            if self._b.random_operations != drawn:
                raise NotLowerable("it draws random numbers; draw them outside, and pass them on")
            results = self._results(end, static)
            ir.Operation.create("func.return", operands=[x.value for x, _ in results])
        _complete(func, arguments, types, [dims for _, dims in results], symbols)
        if given:
            func.attributes["disc_tensor.given"] = ir.DenseI64ArrayAttr.get([n for place in given for n in place])
        return at_end + 1

    # -- what it uses of what is around it -------------------------------------------------------

    def _captures(self, procedure: Procedure, ops: Sequence[ir.Operation]) -> _Captured:
        """The outer values that it uses; also names the procedure's symbols."""
        values, renamed = self._lowering.values, self._lowering.renamed
        # Parameters stand where they are first used.
        own = {result for op in ops if self._name(op) != PARAMETER_OP for result in op.results} | {self._begin.result}
        found = _Captured()
        pending = [operand for op in ops for operand in op.operands]
        symbols = {symbol for op in ops for symbol in _free_symbols(self._lowering.fake(op))}
        names: list[str] = []
        seen = set(own)
        while pending:
            value = pending.pop()
            if value in seen:
                continue
            seen.add(value)
            op = None if isinstance(value.owner, ir.Block) else value.owner.operation
            known = values.get(value)
            if op is not None and self._name(op) in (PROCEDURE, PROCEDURE_END):
                # A call of a procedure around this one, or before it.
                called = self._lowering.procedures[value]
                pending += called.captured
                names += [renamed.get(name, name) for name in called.symbols]
            elif isinstance(known, Tensor):
                found.tensors[value] = known, [self._b.as_symbolic(dim) for dim in known.dims]
            elif isinstance(known, Marked):
                found.numbers[value] = True, self._b.as_symbolic(known.extent)
            elif op is None:
                found.numbers[value] = False, self._b.as_symbolic(known)
            else:
                # A number, which is computed inside once more.
                symbols |= _free_symbols(self._lowering.fake(op))
                pending += op.operands
        for torchs in sorted(symbols & self._b.symbol_values.keys(), key=str):
            found.symbols[torchs] = self._b.as_symbolic(self._b.symbol_values[torchs])
        used = [dim for _, dims in found.tensors.values() for dim in dims]
        used += [*(extent for _, extent in found.numbers.values()), *found.symbols.values()]
        names += [name for expression in used for name in expression.symbols()]
        procedure.symbols = {name: self._b.symbol_like(name) for name in dict.fromkeys(names)}
        return found

    def _inner(self, procedure: Procedure, outer: Expression) -> Extent:
        """An extent from outside, inside."""
        if outer.kind == "number":
            return outer.value
        return self._b.named(outer.renamed(procedure.symbols))

    # -- the function ----------------------------------------------------------------------------

    def _function(self, name: str) -> ir.Operation:
        with ir.InsertionPoint(self._b.module_block):
            return ir.Operation.create(
                "func.func",
                attributes={
                    "sym_name": ir.StringAttr.get(name),
                    "sym_visibility": ir.StringAttr.get("private"),
                    "function_type": ir.TypeAttr.get(ir.FunctionType.get([], [])),
                },
                regions=1,
            )

    def _bind(
        self, procedure: Procedure, body: ir.Block, symbols: list[str], captured: _Captured
    ) -> list[ir.Attribute]:
        """Sets the values of outer tensors and numbers in the body; returns the arguments' extents; adds symbols."""
        values = self._lowering.values
        found: list[ir.Attribute] = []

        def argument(dims: Sequence[Extent], dtype: torch.dtype) -> Tensor:
            found.append(self._b.dims_attribute(dims, dtype))
            procedure.arguments.append(tensor_type(dims, dtype))
            return Tensor(body.add_argument(procedure.arguments[-1], ir.Location.current), tuple(dims), dtype)

        for torchs, outer in captured.symbols.items():
            self._b.symbol_values[torchs] = self._inner(procedure, outer)
        for value, (is_marked, outer) in captured.numbers.items():
            extent = self._inner(procedure, outer)
            values[value] = Marked(extent) if is_marked else extent
        loose = []
        for n, op in sorted(self._one(self._begin, "procedure_number", 1).items()):
            number = self._number(op)
            if number.name is not None:
                procedure.numbers.append(n)
                symbols.append(number.name)
                self._define(number)
            elif number.expr is not None:
                procedure.loose.append(n)
                loose.append(number)
        for _, op in sorted(self._one(self._begin, "procedure_argument", 3).items()):
            fake = self._lowering.fake(op)
            values[op.result] = argument(_whole(self._shape(fake.shape, {})), fake.dtype)
        for number in loose:
            self._define(number, argument([], torch.int64))
        for value, (known, outers) in captured.tensors.items():
            if self._lowering.lower_parameter_again(value):
                continue
            dims = [self._inner(procedure, outer) for outer in outers]
            if known.splat is not None:
                values[value] = self._b.full(dims, known.splat, known.dtype)
            else:
                procedure.captured.append(value)
                values[value] = argument(dims, known.dtype)
        return found

    # -- results ---------------------------------------------------------------------------------

    def _static_results(self, end: ir.Operation) -> list[tuple[list[int | None], torch.dtype]]:
        """The results' extents, as far as they are static, and dtypes."""
        sizes = iter(_items(end.operands[2]))
        found = []
        for value in _items(end.operands[1]):
            info = result_info(value.type)
            found.append(([_constant(next(sizes)) for _ in info.shape], info.dtype))
        return found

    def _results(self, end: ir.Operation, static: Sequence[tuple[list[int | None], torch.dtype]]) -> Any:
        """The results, and their extents."""
        values, sizes = self._operands(end, 1), iter(self._operands(end, 2))
        found = []
        for x, (dims, dtype) in zip(values, static, strict=True):
            wanted = [self._extent(next(sizes)) for _ in dims]
            fitted = self._fitted(x, [w if n is None else n for w, n in zip(wanted, dims, strict=True)], dims)
            found.append((fitted, self._b.dims_attribute(wanted, dtype)))
        return found

    def _fitted(self, x: Tensor, extents: Sequence[Extent], static: Sequence[int | None]) -> Tensor:
        """A tensor of these extents, of the type that has those of them that are static."""
        for have, want in zip(x.dims, extents, strict=True):
            self._b.require_equal(have, want, "a size in a value of a recursive function differs from the known size")
        dims = [self._b.index(want) if n is None else n for want, n in zip(extents, static, strict=True)]
        return self._b.reshape(x, dims)


@dataclass
class _Captured:
    """The outer values that a procedure uses; extents as expressions."""

    tensors: dict[ir.Value, tuple[Tensor, list[Expression]]] = field(default_factory=dict)
    numbers: dict[ir.Value, tuple[bool, Expression]] = field(default_factory=dict)
    """Whether the number is in a marker's tensor, and the number."""
    symbols: dict[sympy.Symbol, Expression] = field(default_factory=dict)
    """Torch's."""


class CallLowering(ProcedureLowering):
    """Lowers the call ``ops[start]`` of a procedure."""

    def run(self, block: ir.Block) -> int:
        """Lowers it; returns the place after it."""
        op = self._begin
        self._lowering.check()
        procedure = self._lowering.procedures[op.operands[0]]
        renamed = self._lowering.renamed
        tensors, numbers = self._operands(op, 1), self._operands(op, 2)
        tensors += [self._tensor(numbers[n]) for n in procedure.loose]
        tensors += [self._value(value) for value in procedure.captured]
        inputs = []
        for x, type_ in zip(tensors, procedure.arguments, strict=True):
            static = _static(type_, x.dtype)
            wanted = [d if n is None else n for d, n in zip(x.dims, static, strict=True)]
            inputs.append(self._fitted(x, wanted, static).value)
        sizes = [self._b.named(symbol(renamed.get(name, name))) for name in procedure.symbols]
        sizes += [self._b.index(self._extent(numbers[n])) for n in procedure.numbers]
        found = self._given(op, procedure)
        attributes: dict[str, ir.Attribute] = {
            "callee": ir.FlatSymbolRefAttr.get(procedure.name),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([len(inputs), len(sizes)]),
        }
        if found:
            names = [ir.FlatSymbolRefAttr.get(number.name) for number in found]
            attributes["symbols"] = ir.ArrayAttr.get(names)
        invoke = ir.Operation.create("disc_tensor.invoke", procedure.results, [*inputs, *sizes], attributes=attributes)
        for number in found:
            self._define(number)
        for place, ops in self._markers(op, "procedure_result", 3).items():
            fake = self._lowering.fake(ops[0])
            dims = _whole(self._shape(fake.shape, {}))
            result = Tensor(invoke.results[place], tuple(dims), fake.dtype)
            self._lowering.values.update({other.result: result for other in ops})
        return self._start + 1

    def _given(self, op: ir.Operation, procedure: Procedure) -> list[Number]:
        """The extents of results that the procedure finds out."""
        asked = {}
        for use in op.result.uses:
            other = use.owner.operation
            if self._name(other) == SIZE:
                asked[_int(other.operands[1]), _int(other.operands[2])] = self._number(other)
        found = []
        for place in procedure.given:
            number = asked.get(place) or Number(op, None, None)
            if number.name is None:
                # Nobody asks for it, or torch has found out that it equals something else.
                number = Number(number.op, number.expr, self._b.symbol_for(None))
            found.append(number)
        return found


def _items(value: ir.Value) -> list[ir.Value]:
    return list(value.owner.operands)


def _int(value: ir.Value) -> int:
    known = _constant(value)
    assert known is not None
    return known


def _constant(value: ir.Value) -> int | None:
    op = value.owner
    is_constant = not isinstance(op, ir.Block) and op.operation.name == "torch.constant.int"
    return int(ir.IntegerAttr(op.attributes["value"]).value) if is_constant else None


def _static(type_: ir.Type, dtype: torch.dtype) -> list[int | None]:
    shape = ir.RankedTensorType(type_)
    rank = shape.rank - dtypes.is_complex(dtype)
    return [None if shape.is_dynamic_dim(d) else shape.get_dim_size(d) for d in range(rank)]


def _whole(dims: Sequence[Any]) -> list[Any]:
    if any(dim is None for dim in dims):
        raise NotLowerable(
            "an extent of a recursive function's arguments or results follows from nothing that it knows"
        )
    return list(dims)


def _free_symbols(value: Any) -> set[sympy.Symbol]:
    """The symbols in what torch says of a value."""
    if isinstance(value, torch.Tensor):
        return {symbol for size in value.shape for symbol in _free_symbols(size)}
    if isinstance(value, (list, tuple)):
        return {symbol for x in value for symbol in _free_symbols(x)}
    return value.node.expr.free_symbols if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)) else set()


def _complete(
    func: ir.Operation,
    arguments: Sequence[ir.Attribute],
    types: Sequence[ir.Type],
    results: Sequence[ir.Attribute],
    symbols: Sequence[str],
) -> None:
    """Sets a function's attributes. ``arguments``, ``results``: their extents."""
    body = func.regions[0].blocks[0]
    func.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get([a.type for a in body.arguments], types))
    for name, dims in (("arg_attrs", arguments), ("res_attrs", results)):
        func.attributes[name] = ir.ArrayAttr.get([ir.DictAttr.get({"disc_shape.dims": x}) for x in dims])
    func.attributes["disc_tensor.procedure"] = ir.ArrayAttr.get([ir.FlatSymbolRefAttr.get(name) for name in symbols])
