"""Branches and loops of the host flow.

Values that are built inside a region do not exist outside, except for its results. Extents that differ between the
sides of a branch, or between the steps of a loop, are symbols; in a shape, the symbol's name stands for the extent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import torch
from torch_mlir import ir

from ..expressions import Expression, number, operation, symbol
from . import dtypes
from .registry import NotLowerable
from .values import Extent, Tensor, tensor_type
from .views import ViewBuilder

NamedExtent: TypeAlias = "Extent | Expression"
"""An extent, or the symbol that stands for it, or an expression over symbols that have values outside."""

Shape: TypeAlias = "tuple[Sequence[NamedExtent], torch.dtype]"


def declare_symbol(block: ir.Block, name: str, low: int, high: int | None) -> None:
    """Declares a symbol at the top of the module."""
    i64 = ir.IntegerType.get_signless(64)
    attributes: dict[str, ir.Attribute] = {
        "sym_name": ir.StringAttr.get(name),
        "min": ir.IntegerAttr.get(i64, low),
        "divisor": ir.IntegerAttr.get(i64, 1),
    }
    if high is not None:
        attributes["max"] = ir.IntegerAttr.get(i64, high)
    # Before the functions, after the other symbols: the first of two equal symbols represents both.
    first = next((op for op in block.operations if op.operation.name != "disc_shape.symbol"), None)
    with ir.InsertionPoint(block) if first is None else ir.InsertionPoint(first.operation):
        ir.Operation.create("disc_shape.symbol", attributes=attributes)


class Side(NamedTuple):
    """The results of one side of a branch."""

    values: Sequence[Tensor]
    numbers: Sequence[Extent] = ()
    """The values of the branch's symbols."""


class LoopStep(NamedTuple):
    """The results of one step of a loop."""

    carried: Sequence[Tensor]
    rows: Sequence[Tensor] = ()
    pred: Tensor | None = None
    """Whether there is another step."""
    numbers: Sequence[Extent] = ()
    """The values of the loop's symbols in the next step."""


@dataclass(frozen=True)
class LoopNumber:
    """A number that changes from step to step of a loop."""

    first: Extent
    name: str
    """The name of its symbol in the step, ..."""
    last: str
    """...and after the loop."""


class RegionBuilder(ViewBuilder):
    """Branches, loops, and the symbols that they define."""

    # Set by the importer: the block that declares symbols.
    module_block: Any = None

    def __init__(self) -> None:
        super().__init__()
        self._loop_symbols: dict[str, Extent | None] = {}
        self._open_loops: list[str] = []

    def _known(self) -> tuple[Any, ...]:
        return *super()._known(), self._loop_symbols

    def _restore(self, known: tuple[Any, ...]) -> None:
        *others, self._loop_symbols = known
        super()._restore(tuple(others))

    # -- extents by name -----------------------------------------------------------------------

    def named(self, expression: Expression) -> ir.Value:
        """The extent that an expression over symbols stands for, here."""
        key = ("named", expression)
        if key not in self._memo:
            value = ir.Operation.create(
                "disc_shape.dim",
                [ir.IndexType.get()],
                attributes={"expr": self.attributes.expr(expression)},
            ).result
            self._memo[key] = value
            self.symbolic[value] = expression
        return self._memo[key]

    def as_symbolic(self, extent: NamedExtent) -> Expression:
        """An extent as an expression over symbols."""
        if isinstance(extent, int):
            return number(extent)
        if not isinstance(extent, ir.Value):
            return extent
        if extent not in self.symbolic:
            self.symbolic[extent] = self._expression_of(extent)
        return self.symbolic[extent]

    def _expression_of(self, extent: ir.Value) -> Expression:
        op = None if isinstance(extent.owner, ir.Block) else extent.owner
        if op is not None and op.name == "arith.constant":
            return number(ir.IntegerAttr(op.attributes["value"]).value)
        kind = None if op is None else _KINDS.get(op.name)
        if op is None or kind is None:
            raise NotLowerable(f"a size that is not an expression over symbols: {extent}")
        return operation(kind, *(self.as_symbolic(operand) for operand in op.operands))

    def dims_attribute(self, dims: Sequence[NamedExtent], dtype: torch.dtype) -> ir.Attribute:
        """The extents of a tensor of the IR, where complex elements are pairs."""
        pairs = [number(2)] if dtypes.is_complex(dtype) else []
        return self.attributes.dims([*map(self.as_symbolic, dims), *pairs])

    def _dims_attributes(self, shapes: Sequence[Shape]) -> ir.Attribute:
        return ir.ArrayAttr.get([self.dims_attribute(*shape) for shape in shapes])

    def _with_dims(self, attributes: dict[str, ir.Attribute], shapes: Sequence[Shape]) -> list[ir.Type]:
        """The types of results; their extents become an attribute where there are dynamic ones."""
        if any(not isinstance(d, int) for dims, _ in shapes for d in dims):
            attributes["disc_shape.dims"] = self._dims_attributes(shapes)
        return [tensor_type(*shape) for shape in shapes]

    def _after(self, value: ir.Value, shape: Shape) -> Tensor:
        """A result of a region, its extents read from the symbols."""
        return Tensor(value, tuple(self.named(d) if isinstance(d, Expression) else d for d in shape[0]), shape[1])

    def fitted(self, x: Tensor, shape: Shape, numbers: dict[str, Extent]) -> Tensor:
        """``x``, with a requirement that its extents are ``shape``; ``numbers``: the values of its new symbols here."""
        dims: list[Extent] = []
        if x.dtype != shape[1] or x.rank != len(shape[0]):
            raise NotLowerable(f"a value of a region must be {tensor_type(*shape)}, got {x.value.type}")
        for have, want in zip(x.dims, shape[0], strict=True):
            known = want
            if isinstance(want, Expression):
                known = numbers[want.name] if want.name in numbers else self.named(want)
            self.require_equal(have, known, "a size in a result of a branch or a loop differs from the known size")
            dims.append(self.index(have) if isinstance(want, Expression) else want)
        return self.reshape(x, dims)

    # -- branches ------------------------------------------------------------------------------

    def branch(
        self,
        pred: Tensor,
        then: Callable[[], Side],
        orelse: Callable[[], Side],
        results: Sequence[Shape],
        symbols: Sequence[str] = (),
    ) -> list[Tensor]:
        """One of two regions, by a bool tensor without dims.

        ``then`` and ``orelse`` build the sides, and return values of the shapes in ``results``. An extent of these may
        be one of ``symbols``, which are declared and have no value yet; each side returns its value.
        """
        attributes: dict[str, ir.Attribute] = {}
        if symbols:
            attributes["symbols"] = _references(symbols)
        op = ir.Operation.create(
            "disc_tensor.branch", self._with_dims(attributes, results), [pred.value], attributes=attributes, regions=2
        )
        for region, build in zip(op.regions, (then, orelse), strict=True):
            with ir.InsertionPoint(region.blocks.append()), self.inside_region():
                side = build()
                numbers = dict(zip(symbols, side.numbers, strict=True))
                values = [self.fitted(x, shape, numbers) for x, shape in zip(side.values, results, strict=True)]
                sizes = [self.index(n) for n in side.numbers]
                _create("disc_tensor.yield", [[x.value for x in values], sizes])
        return [self._after(value, shape) for value, shape in zip(op.results, results, strict=True)]

    # -- loops ---------------------------------------------------------------------------------

    def loop(
        self,
        inits: Sequence[Tensor],
        body: Callable[[ir.Value, list[Tensor]], LoopStep],
        stacked: Sequence[Shape] = (),
        *,
        count: Extent | None = None,
        pred: Tensor | None = None,
        reverse: bool = False,
        numbers: Sequence[LoopNumber] = (),
        shapes: Sequence[Sequence[NamedExtent]] | None = None,
        trips: str | None = None,
    ) -> tuple[list[Tensor], list[Tensor]]:
        """A loop that runs for ``count`` steps, and while ``pred`` is true: a bool tensor without dims.

        ``body(index, carried)`` builds one step. ``index`` is an extent for slices, 0 to ``count - 1``, or down from
        there with ``reverse``. It returns the carried tensors of the next step and the tensors to stack, whose
        extents and dtypes are ``stacked``; with ``pred`` whether there is a next step; and ``numbers`` for it, which
        are symbols that are declared and have no value yet. The carried tensors have the extents of ``inits``, or
        those of ``shapes``, which may have such numbers among them.

        Returns the carried tensors after the last step, and the stacks, with a leading dimension in the order of the
        index: of extent ``count``, or with ``pred`` that of the symbol ``trips``, the number of steps.
        """
        name = self._loop_symbol(count)
        inside = [(x.dims if shapes is None else shapes[i], x.dtype) for i, x in enumerate(inits)]
        first = {n.name: n.first for n in numbers}
        inits = [self.fitted(x, shape, first) for x, shape in zip(inits, inside, strict=True)]
        last: dict[NamedExtent, NamedExtent] = {symbol(n.name): symbol(n.last) for n in numbers}
        after = [([last.get(d, d) for d in dims], dtype) for dims, dtype in inside]
        if stacked:
            steps: NamedExtent | None = count if pred is None else None if trips is None else symbol(trips)
            assert steps is not None
            after += [([steps, *dims], dtype) for dims, dtype in stacked]
        attributes: dict[str, ir.Attribute] = {"index": ir.FlatSymbolRefAttr.get(name)}
        if numbers:
            attributes["symbols"] = _references([n.name for n in numbers])
            attributes["last_symbols"] = _references([n.last for n in numbers])
        if trips is not None:
            attributes["trips"] = ir.FlatSymbolRefAttr.get(trips)
        if reverse:
            attributes["reverse"] = ir.UnitAttr.get()
        if any(isinstance(d, Expression) for dims, _ in inside for d in dims):
            attributes["arg_dims"] = self._dims_attributes(inside)
        op = _create(
            "disc_tensor.loop",
            [
                [] if count is None else [self.index(count)],
                [] if pred is None else [pred.value],
                [x.value for x in inits],
                [self.index(n.first) for n in numbers],
            ],
            self._with_dims(attributes, after),
            attributes,
            regions=1,
        )
        block = op.regions[0].blocks.append(*(tensor_type(*shape) for shape in inside))
        with ir.InsertionPoint(block), self.inside_region(), self._open_loop(name):
            now = [self._after(a, shape) for a, shape in zip(block.arguments, inside, strict=True)]
            step = body(self.named(symbol(name)), now)
            following = dict(zip(first, step.numbers, strict=True))
            carried = [self.fitted(x, shape, following) for x, shape in zip(step.carried, inside, strict=True)]
            rows = [self.fitted(x, shape, {}) for x, shape in zip(step.rows, stacked, strict=True)]
            assert (pred is None) == (step.pred is None)
            _create(
                "disc_tensor.next",
                [
                    [x.value for x in (*carried, *rows)],
                    [] if step.pred is None else [step.pred.value],
                    [self.index(n) for n in step.numbers],
                ],
            )
        tensors = [self._after(value, shape) for value, shape in zip(op.results, after, strict=True)]
        return tensors[: len(inits)], tensors[len(inits) :]

    @contextmanager
    def in_loop(self, count: Extent | None) -> Iterator[tuple[str, ir.Value]]:
        """The name and the value of a loop's index, for trial builds of the loop's body."""
        name = self._loop_symbol(count)
        with self._open_loop(name):
            yield name, self.named(symbol(name))

    @contextmanager
    def _open_loop(self, name: str) -> Iterator[None]:
        self._open_loops.append(name)
        try:
            yield
        finally:
            self._open_loops.pop()

    def step_key(self, number: int) -> Extent:
        """A number of 32 bits that differs between the steps of the surrounding loops, and between ``number``s."""
        key: Extent = number
        for name in self._open_loops:
            key = self.mod(self.add(self.add(self.mul(key, 0x9E3779B1), self.named(symbol(name))), 1), 1 << 32)
        return key

    def _loop_symbol(self, count: Extent | None) -> str:
        """The index's name: one for all loops of one count, so that equal bodies are one kernel, unless nested."""
        for name, known in self._loop_symbols.items():
            same = known is count or (known is not None and count is not None and known == count)
            if same and name not in self._open_loops:
                return name
        taken = {ir.StringAttr(v.operation.attributes["sym_name"]).value for v in self.module_block.operations}
        number = len(self._loop_symbols)
        while f"i{number}" in taken:
            number += 1
        declare_symbol(self.module_block, f"i{number}", 0, None)
        self._loop_symbols[f"i{number}"] = count
        return f"i{number}"


_KINDS = {
    "arith.addi": "+",
    "arith.subi": "-",
    "arith.muli": "*",
    "arith.floordivsi": "floordiv",
    "arith.minsi": "min",
    "arith.maxsi": "max",
}


def _references(names: Sequence[str]) -> ir.Attribute:
    return ir.ArrayAttr.get([ir.FlatSymbolRefAttr.get(name) for name in names])


def _create(
    name: str,
    groups: Sequence[Sequence[ir.Value]],
    results: Sequence[ir.Type] = (),
    attributes: dict[str, ir.Attribute] | None = None,
    regions: int = 0,
) -> ir.Operation:
    """Creates an op with groups of operands."""
    sizes = ir.DenseI32ArrayAttr.get([len(group) for group in groups])
    return ir.Operation.create(
        name,
        list(results),
        [value for group in groups for value in group],
        attributes={**(attributes or {}), "operandSegmentSizes": sizes},
        regions=regions,
    )
