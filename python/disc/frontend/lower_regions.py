"""Branches and loops between the markers of ``markers.py``, as ``disc_tensor.branch`` and ``disc_tensor.loop``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import sympy
import torch
from torch_mlir import ir

from ..expressions import symbol
from .regions import LoopNumber, LoopStep, NamedExtent, Shape, Side
from .registry import NotLowerable
from .rules.common import number
from .values import Extent, Tensor

if TYPE_CHECKING:
    from .lower import Lowering

_DISC = "torch.disc."
MARKERS = ("torch.disc.branch_", "torch.disc.loop_", "torch.disc.procedure_")
ENTER = "torch.disc.branch_enter"
BRANCH, LOOP = _DISC + "branch_begin", _DISC + "loop_begin"
PROCEDURE, PROCEDURE_END = _DISC + "procedure_begin", _DISC + "procedure_end"
BEGIN = (BRANCH, LOOP, PROCEDURE)
_END = {
    BRANCH: _DISC + "branch_else",
    _DISC + "branch_else": _DISC + "branch_end",
    LOOP: _DISC + "loop_end",
    PROCEDURE: PROCEDURE_END,
}

# Operations that may stop a call, and so must not run if the loop has no step.
_FAILING = ("disc_shape.require", "disc_shape.bind", "disc_tensor.check_index", "disc_tensor.call")
_VIEWS = ("disc_tensor.permute", "disc_tensor.reshape", "disc_tensor.broadcast", "disc_tensor.slice")
_DIVISIONS = ("arith.divsi", "arith.divui", "arith.remsi", "arith.remui", "arith.floordivsi", "arith.ceildivsi")


@dataclass(frozen=True)
class Marked:
    """Stands for a tensor whose ``.item()`` is a number that a region defines."""

    extent: Extent


@dataclass
class Number:
    """A number that a region defines, or changes."""

    op: ir.Operation
    """The marker."""
    expr: sympy.Expr | None
    """Torch's expression for the number; None if it is not used."""
    name: str | None
    """Its symbol; None for a number that may be negative, which is a tensor without dims."""


def end_of(name: Callable[[ir.Operation], str], ops: Sequence[ir.Operation], start: int) -> int:
    """The place of the marker that ends what ``ops[start]`` begins."""
    wanted = _END[name(ops[start])]
    for at in range(start + 1, len(ops)):
        if name(ops[at]) == wanted and ops[at].operands[0] == ops[start].result:
            return at
    raise NotLowerable("the branch or loop has no end in the graph")


def _expression(size: Any) -> sympy.Expr:
    return size.node.expr if isinstance(size, torch.SymInt) else sympy.Integer(size)


def _items(value: ir.Value) -> list[ir.Value]:
    """The elements of a list."""
    return list(value.owner.operands)


def _int(value: ir.Value) -> int:
    return int(ir.IntegerAttr(value.owner.attributes["value"]).value)


class RegionLowering:
    """Lowers the branch or loop that begins at ``ops[start]``."""

    def __init__(self, lowering: Lowering, ops: Sequence[ir.Operation], start: int) -> None:
        self._lowering, self._ops, self._start = lowering, ops, start
        self._b = lowering.builder
        self._name = lowering.op_name
        self._begin = ops[start]

    def run(self, block: ir.Block) -> int:
        """Lowers it at the end of ``block``; returns the place after it."""
        return self._branch() if self._name(self._begin) == BRANCH else self._loop(block)

    # -- common parts ----------------------------------------------------------------------------

    def _value(self, value: ir.Value) -> Any:
        return self._lowering.value(value)

    def _operands(self, op: ir.Operation, which: int) -> list[Any]:
        return [self._value(v) for v in _items(op.operands[which])]

    def _markers(self, of: ir.Operation, kind: str, place: int) -> dict[int, list[ir.Operation]]:
        """The markers of one kind that follow from ``of``, by the constant that is their operand ``place``."""
        found: dict[int, list[ir.Operation]] = {}
        for use in of.result.uses:
            op = use.owner.operation
            if self._name(op) == _DISC + kind and op.operands[0] == of.result:
                found.setdefault(_int(op.operands[place]) if place else 0, []).append(op)
        return found

    def _one(self, of: ir.Operation, kind: str, place: int) -> dict[int, ir.Operation]:
        return {key: ops[0] for key, ops in self._markers(of, kind, place).items()}

    def _number(self, op: ir.Operation) -> Number:
        """The number in a marker's tensor, as a symbol that has no value yet."""
        for use in op.result.uses:
            value = self._lowering.fake(use.owner.operation)
            if isinstance(value, (int, torch.SymInt)):
                expr = value.node.expr if isinstance(value, torch.SymInt) else sympy.Integer(value)
                if not self._b.bounds(expr).lower >= 0:
                    return Number(op, expr, None)
                assert self._b.symbols is not None
                # Without a name: torch has found that it equals another number.
                has_value = expr in self._b.symbol_values or self._b.symbols.is_of_extents(expr)
                known = None if has_value else self._b.symbols.name_of(expr)
                return Number(op, expr, self._b.symbol_for(known, expr))
        return Number(op, None, None)

    def _define(self, x: Number, tensor: Tensor | None = None) -> None:
        """Sets the number's value: that of its symbol here, or of a tensor."""
        if tensor is not None:
            self._lowering.values[x.op.result] = tensor
            return
        if x.name is None or x.expr is None:
            return
        extent = self._b.named(symbol(x.name))
        known = self._b.extent_of(x.expr)
        if known is None and x.expr.is_Symbol:
            self._b.symbol_values[x.expr] = extent
        elif known is not None:
            self._b.require_equal(extent, known, f"a number that a branch or a loop computes must be {x.expr}")
        self._lowering.values[x.op.result] = Marked(extent)

    def _tensor(self, value: Any) -> Tensor:
        """A number as a tensor without dims."""
        return self._b.map(torch.int64, [number(value)], lambda e: e, number_dtype=torch.int64, dims=[])

    def _extent(self, value: Any) -> Extent:
        if isinstance(value, (int, ir.Value)):
            return value
        raise NotLowerable("a size that may be negative; add torch._check(n >= 0) if it never is")

    def _size(self, value: Any) -> Extent:
        """The value of a side or a step for a number that is not negative after it, according to torch; checked."""
        return value if isinstance(value, (int, ir.Value)) else self._b.bind(self._tensor(value))

    def _apart(self, value: Tensor) -> Tensor:
        """A result of a side in memory of its own where the program changes arguments.

        The new value of an argument may be written to its memory while a result that is the old value is still read.
        """
        owner = value.value.owner
        while not isinstance(owner, ir.Block) and owner.name in _VIEWS:
            owner = owner.operands[0].owner
        if not self._lowering.has_updates or not isinstance(owner, ir.Block):
            return value
        pairs = self._b.as_pairs(value) if value.dtype.is_complex else value
        copy = self._b.elementwise(value.dtype, [pairs], lambda x: x)
        return self._b.as_complex(copy) if value.dtype.is_complex else copy

    def _shape(self, sizes: Sequence[Any], new: dict[sympy.Expr, str]) -> list[NamedExtent | None]:
        """A shape of torch; ``new``: the symbols that the region defines. None: an extent unknown outside of it."""
        dims: list[NamedExtent | None] = []
        for size in sizes:
            expr = _expression(size)
            dims.append(symbol(new[expr]) if expr in new else self._b.extent_of(expr))
        return dims

    def _settled(self, x: Tensor, op: ir.Operation) -> Tensor:
        """A result with the extents that torch knows, which become requirements."""
        dims = []
        for dim, size in zip(x.dims, self._lowering.fake(op).shape, strict=True):
            known = self._b.extent_of(_expression(size))
            if known is not None:
                self._b.require_equal(dim, known, f"a size in a result of a branch or a loop must be {size}")
            dims.append(dim if known is None or isinstance(dim, int) else known)
        return self._b.reshape(x, dims)

    @contextmanager
    def _inside(self) -> Iterator[None]:
        with self._lowering.inside_region():
            yield
            self._lowering.check()

    # -- branches --------------------------------------------------------------------------------

    def _branch(self) -> int:
        at_else = end_of(self._name, self._ops, self._start)
        at_end = end_of(self._name, self._ops, at_else)
        orelse, end = self._ops[at_else], self._ops[at_end]
        sizes = [
            (which, _int(op.operands[2]), self._number(op))
            for which, ops in self._markers(end, "branch_size", 1).items()
            for op in ops
        ]
        numbers = {n: self._number(op) for n, op in self._one(end, "branch_number", 1).items()}
        if any(x.name is None and x.expr is not None for _, _, x in sizes):
            raise NotLowerable("a size that differs between the branches and may be negative; add torch._check(n >= 0)")
        sizes = [size for size in sizes if size[2].name is not None]
        results = self._markers(end, "branch_result", 3)
        named = [x for _, _, x in sizes] + [x for x in numbers.values() if x.name is not None]
        new = {x.expr: x.name for x in named if x.expr is not None and x.name is not None and x.expr.is_Symbol}
        new = {expr: name for expr, name in new.items() if self._b.extent_of(expr) is None}
        shapes: list[Shape] = []
        for which, ops in results.items():
            fake = self._lowering.fake(ops[0])
            dims = self._shape(fake.shape, new)
            for d, dim in enumerate(dims):
                if dim is None:
                    # One symbol for two numbers, one of each side, that torch treats as equal.
                    name = self._b.symbol_for(None)
                    sizes.append((which, d, Number(ops[0], None, name)))
                    dims[d] = symbol(name)
            shapes.append((_whole(dims), fake.dtype))
        loose = [n for n, x in numbers.items() if x.name is None and x.expr is not None]
        shapes += [([], torch.int64) for _ in loose]
        named = [x for _, _, x in sizes] + [x for x in numbers.values() if x.name is not None]

        def side(ops: Sequence[ir.Operation], last: ir.Operation) -> Callable[[], Side]:
            def build() -> Side:
                with self._inside():
                    self._lowering.lower_ops(ops, ir.InsertionPoint.current.block)
                    self._lowering.check()
                    values, given = self._operands(last, 1), self._operands(last, 3)
                    worth = [self._extent(values[which].dims[d]) for which, d, _ in sizes]
                    worth += [self._size(given[n]) for n, x in numbers.items() if x.name is not None]
                    results_of_side = [self._apart(values[n]) for n in results]
                    return Side([*results_of_side, *(self._tensor(given[n]) for n in loose)], worth)

            return build

        pred = self._value(self._begin.operands[0])
        tensors = self._b.branch(
            self._b.reshape(pred, []),
            side(self._ops[self._start + 1 : at_else], orelse),
            side(self._ops[at_else + 1 : at_end], end),
            shapes,
            [x.name for x in named if x.name is not None],
        )
        for x in named:
            self._define(x)
        for ops, tensor in zip(results.values(), tensors, strict=False):
            self._lowering.values.update({op.result: self._settled(tensor, op) for op in ops})
        for n, tensor in zip(loose, tensors[len(results) :], strict=True):
            self._define(numbers[n], tensor)
        return at_end + 1

    # -- loops -----------------------------------------------------------------------------------

    def _loop(self, block: ir.Block) -> int:
        at_end = end_of(self._name, self._ops, self._start)
        end = self._ops[at_end]
        values = self._lowering.values
        count, pred = self._value(self._begin.operands[0]), self._value(self._begin.operands[1])
        # `n % 3` is never negative, even if `n` is.
        count = None if count == -1 else self._size(count)
        inside = self._dependent(self._ops[self._start + 1 : at_end], block)
        slots = [self._value(v) for v in _items(end.operands[1])]
        carries = self._one(self._begin, "loop_carried", 3)
        for slot, op in carries.items():
            if slot not in slots:
                values[op.result] = self._value(op.operands[1])
        changing = self._one(self._begin, "loop_number", 2)
        # A number may be negative before the step is checked. Then it is read from a tensor in the step.
        whole = {n: all(map(self._is_extent, self._first_and_next(op, end, n))) for n, op in changing.items()}
        inner = {n: self._number(op) if whole[n] else Number(op, None, None) for n, op in changing.items()}
        sized = [n for n, x in inner.items() if x.name is not None]
        loose = [n for n, x in inner.items() if x.name is None]
        after = {n: self._number(op) for n, op in self._one(end, "loop_last_number", 1).items()}
        numbers = [self._loop_number(changing[n], inner[n], after.get(n)) for n in sized]
        stacks = self._markers(end, "loop_stack", 3)
        trips = self._trips(end, bool(stacks)) if pred is not None else None

        new = {inner[n].expr: inner[n].name for n in sized}
        named = {expr: name for expr, name in new.items() if expr is not None and name is not None and expr.is_Symbol}
        inits = [self._value(carries[slot].operands[1]) for slot in slots]
        shapes: list[list[NamedExtent]] = []
        grown: list[tuple[int, int, str, sympy.Expr]] = []
        for which, slot in enumerate(slots):
            sizes = self._lowering.fake(carries[slot]).shape
            dims = self._shape(sizes, named)
            for d, dim in enumerate(dims):
                if dim is None:
                    # An expression over the step or its numbers becomes a number of the loop.
                    name, last = (self._b.symbol_for(None) for _ in range(2))
                    numbers.append(LoopNumber(inits[which].dims[d], name, last))
                    grown.append((which, d, name, _expression(sizes[d])))
                    dims[d] = symbol(name)
            shapes.append(_whole(dims))
        inits += [self._tensor(self._value(changing[n].operands[1])) for n in loose]
        stacked = [self._row(ops[0]) for ops in stacks.values()]

        def body(index: ir.Value, now: list[Tensor]) -> LoopStep:
            with self._inside():
                values = self._lowering.values
                values[self._begin.result] = Marked(index)
                self._lowering.define_step(self._begin, index)
                for n in sized:
                    self._define(inner[n])
                for slot, x in zip(slots, now, strict=False):
                    values[carries[slot].result] = self._settled(x, carries[slot])
                for n, x in zip(loose, now[len(slots) :], strict=True):
                    self._define(inner[n], x)
                self._lowering.lower_ops(inside, ir.InsertionPoint.current.block)
                self._lowering.check()
                given = self._operands(end, 6)
                rows = self._operands(end, 4)
                again = self._value(end.operands[5])
                following = self._operands(end, 3)
                return LoopStep(
                    [*following, *(self._tensor(given[n]) for n in loose)],
                    [rows[n] for n in stacks],
                    None if again is None else self._b.reshape(again, []),
                    [*(self._size(given[n]) for n in sized), *(following[which].dims[d] for which, d, _, _ in grown)],
                )

        lasts, rows = self._b.loop(
            inits,
            body,
            stacked,
            count=count,
            pred=None if pred is None else self._b.reshape(pred, []),
            numbers=numbers,
            shapes=[*shapes, *([] for _ in loose)],
            trips=None if trips is None else trips.name,
        )
        if trips is not None:
            self._define(trips)
        for n, x in after.items():
            self._define(x, lasts[len(slots) + loose.index(n)] if n in loose else None)
        for n, ops in self._markers(end, "loop_last", 3).items():
            values.update({op.result: self._settled(lasts[n], op) for op in ops})
        for ops, stack in zip(stacks.values(), rows, strict=True):
            values.update({op.result: self._settled(stack, op) for op in ops})
        return at_end + 1

    def _first_and_next(self, op: ir.Operation, end: ir.Operation, which: int) -> list[Any]:
        """Torch's values of a loop's number before the loop and after a step."""
        return [self._lowering.operands_of(op)[1], self._lowering.operands_of(end)[6][which]]

    def _is_extent(self, value: Any) -> bool:
        """Whether torch knows that a number is not negative."""
        return bool(self._b.bounds(_expression(value)).lower >= 0)

    def _loop_number(self, op: ir.Operation, inside: Number, last: Number | None) -> LoopNumber:
        first = self._extent(self._value(op.operands[1]))
        assert inside.name is not None
        if last is None or last.name is None:
            if last is not None and last.expr is not None:
                raise NotLowerable(
                    "a number of a loop that may be negative after it; add torch._check(n >= 0) if it never is"
                )
            return LoopNumber(first, inside.name, self._b.symbol_for(None))
        return LoopNumber(first, inside.name, last.name)

    def _trips(self, end: ir.Operation, needed: bool) -> Number | None:
        op = self._one(end, "loop_trips", 0).get(0)
        found = Number(end, None, None) if op is None else self._number(op)
        if found.name is None and (needed or found.expr is not None):
            found.name = self._b.symbol_for(None)
        return None if found.name is None else found

    def _row(self, op: ir.Operation) -> Shape:
        fake = self._lowering.fake(op)
        return _whole(self._shape(fake.shape[1:], {})), fake.dtype

    def _dependent(self, ops: Sequence[ir.Operation], block: ir.Block) -> list[ir.Operation]:
        """The operations of the step; those that do not depend on it are lowered before the loop, if possible."""
        reached = {self._begin.result}
        inside: list[ir.Operation] = []
        at = 0
        while at < len(ops):
            behind = at + 1
            if self._name(ops[at]) in BEGIN:
                behind = end_of(self._name, ops, at) + 1
                if self._name(ops[at]) == BRANCH:
                    behind = end_of(self._name, ops, behind - 1) + 1
                step = True
            else:
                step = any(operand in reached for operand in ops[at].operands) or not self._hoisted(ops[at], block)
            if step:
                inside += ops[at:behind]
                reached.update(result for op in ops[at:behind] for result in op.results)
            at = behind
        return inside

    def _hoisted(self, op: ir.Operation, block: ir.Block) -> bool:
        """Lowers an operation before its loop, unless it could fail: without a step it must not."""
        if not op.results or not self._lowering.is_repeatable(op):
            return False
        scratch = ir.Module.create().body
        with self._lowering.tried() as keep:
            self._lowering.lower_ops([op], scratch)
            self._lowering.check()
            self._lowering.check()
            made = [view.operation for view in scratch.operations]
            if any(_can_fail(new) for new in made):
                for new in reversed(made):
                    new.erase()
                return False
            for new in made:
                block.append(new)
            keep()
        return True


def _whole(dims: Sequence[NamedExtent | None]) -> list[NamedExtent]:
    if any(dim is None for dim in dims):
        raise NotLowerable("values that the steps of a loop append must have one shape")
    return [dim for dim in dims if dim is not None]


def _can_fail(op: ir.Operation) -> bool:
    if op.name in _FAILING or (op.name in _DIVISIONS and not isinstance(op.result.type, ir.IndexType)):
        return True
    return any(_can_fail(view.operation) for region in op.regions for block in region for view in block.operations)
