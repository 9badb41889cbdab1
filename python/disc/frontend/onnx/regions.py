"""ONNX's If, Loop and Scan as branches and loops of the host flow, if they depend on data.

The model does not contain the shapes of a body's results: a body is lowered once to find them, and discarded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch_mlir import ir

from ... import expressions
from ...expressions import Expression
from .. import scalar
from ..regions import LoopNumber, LoopStep, NamedExtent, Shape, Side
from ..registry import NotLowerable
from ..torch_types import result_info
from ..values import Extent, Tensor, normalize_dim, tensor_type
from .known import Known

if TYPE_CHECKING:
    from .builder import OnnxBuilder
    from .lowering import OnnxLowering

_TRUE = Known.of(np.array(True), torch.bool)


class Given(NamedTuple):
    """The results of a body that is lowered to find their shapes."""

    values: list[Any]
    tensors: list[Tensor]
    extents: list[list[Expression | None]]
    """Each extent as an expression over outer symbols; None if that is impossible."""


class _Step(NamedTuple):
    """The results of a step; ``pred`` is a :class:`Known` if it is known already."""

    carried: Sequence[Any]
    rows: Sequence[Any]
    pred: Any


_Body = Callable[[Extent, list[Tensor]], _Step]


REGIONS = ("onnx.If", "onnx.Loop", "onnx.Scan")
"""The operators that hold graphs."""


class OnnxRegionLowering:
    """Lowers one node that holds graphs."""

    def __init__(self, lowering: OnnxLowering, op: ir.Operation) -> None:
        self._lowering, self._op = lowering, op
        self._b = lowering.onnx

    def run(self, name: str, attributes: dict[str, Any]) -> list[Any]:
        """Lowers it and returns the results."""
        kinds: dict[str, Callable[[dict[str, Any]], list[Any]]] = {
            "onnx.If": self._if,
            "onnx.Loop": self._loop,
            "onnx.Scan": self._scan,
        }
        return kinds[name](attributes)

    def _operands(self) -> list[Any]:
        return [self._lowering.value(v) for v in self._op.operands]

    # -- bodies ----------------------------------------------------------------------------------

    def _lower(self, region: int, arguments: Sequence[Any] = ()) -> list[Any]:
        """Lowers a graph here; returns its outputs."""
        block = self._op.regions[region].blocks[0]
        self._lowering.values.update(zip(block.arguments, arguments, strict=True))
        *ops, end = [view.operation for view in block.operations]
        for op in ops:
            self._lowering.lower_inner(op)
        self._lowering.check()
        return [self._lowering.value(v) for v in end.operands]

    def _outputs(self, region: int) -> list[ir.Value]:
        return list(list(self._op.regions[region].blocks[0].operations)[-1].operation.operands)

    @contextmanager
    def _learning(self, types: Sequence[ir.Type] = ()) -> Iterator[ir.Block]:
        """A block for what is lowered in order to learn from it, and dropped at the end."""
        scratch = ir.Operation.create("disc.scratch", regions=1)
        block = scratch.regions[0].blocks.append(*types)
        try:
            with ir.InsertionPoint(block), self._lowering.tried():
                yield block
        finally:
            scratch.erase()

    def _given(self, values: Sequence[Any], outputs: Sequence[ir.Value], outside: set[str], *index: str) -> Given:
        """``outputs``: what the graph calls the values; ``outside``: the symbols that had values before.

        ``index``: the symbol of the loop around.
        """
        tensors = [self._b.tensor(x) for x in values]
        hidden = (self._b.valued - outside) | set(index)
        extents = []
        for x, value in zip(tensors, outputs, strict=True):
            # The shape that the model declares, which becomes a requirement.
            declared = result_info(value.type).shape if len(result_info(value.type).shape) == x.rank else x.dims
            extents.append(
                [
                    expressions.number(k) if isinstance(k, int) else self._visible(d, hidden)
                    for d, k in zip(x.dims, declared, strict=True)
                ]
            )
        return Given(list(values), tensors, extents)

    def _visible(self, extent: Extent, hidden: set[str]) -> Expression | None:
        """An extent as an expression without the symbols in ``hidden``; None if that is impossible."""
        try:
            expression = self._b.as_symbolic(extent)
        except NotLowerable:
            return None
        return expression if hidden.isdisjoint(expression.symbols()) else None

    @staticmethod
    def _extent(expression: Expression) -> NamedExtent:
        return expression.value if expression.kind == "number" else expression

    def _fresh(self) -> str:
        return self._b.symbol_for(None)

    # -- If --------------------------------------------------------------------------------------

    def _if(self, _: dict[str, Any]) -> list[Any]:
        (condition,) = self._operands()
        # The importer sorts the graphs by name: else, then.
        if isinstance(condition, Known):
            return self._lower(1 if condition.list[0] else 0)
        return self.branch(
            condition,
            (lambda: self._lower(1), lambda: self._lower(0)),
            (self._outputs(1), self._outputs(0)),
            lambda sides: self._specialised(condition, sides),
        )

    def branch(
        self,
        condition: Tensor,
        build: tuple[Callable[[], list[Any]], Callable[[], list[Any]]],
        outputs: tuple[Sequence[ir.Value], Sequence[ir.Value]],
        specialised: Callable[[Sequence[Given]], bool],
        unit: Expression | None = None,
    ) -> list[Any]:
        """The results of one of two builds, whose names are in ``outputs``.

        If they differ in rank, ``specialised`` selects the build. ``unit``: the extent that is 1 in the first.
        """
        outside = set(self._b.valued)
        sides = []
        for make, names in zip(build, outputs, strict=True):
            with self._learning():
                sides.append(self._given(make(), names, outside))
        if any(a.rank != b.rank for a, b in zip(sides[0].tensors, sides[1].tensors, strict=True)):
            return build[0 if specialised(sides) else 1]()
        shapes: list[Shape] = []
        symbols: list[str] = []
        places: list[tuple[int, int]] = []
        for which, (a, b) in enumerate(zip(sides[0].tensors, sides[1].tensors, strict=True)):
            if a.dtype != b.dtype or a.rank != b.rank:
                raise NotLowerable(f"its branches return {a.dtype} of rank {a.rank} and {b.dtype} of rank {b.rank}")
            dims: list[NamedExtent] = []
            for d, (x, y) in enumerate(zip(sides[0].extents[which], sides[1].extents[which], strict=True)):
                if y is not None and (x == y or (x == expressions.number(1) and y == unit)):
                    dims.append(self._extent(y))
                    continue
                symbols.append(self._fresh())
                places.append((which, d))
                dims.append(expressions.symbol(symbols[-1]))
            shapes.append((dims, a.dtype))

        def side(make: Callable[[], list[Any]]) -> Callable[[], Side]:
            def build() -> Side:
                with self._lowering.inside_region():
                    values = [self._b.tensor(x) for x in make()]
                    return Side(values, [values[which].dims[d] for which, d in places])

            return build

        results = self._b.branch(self._b.reshape(condition, []), side(build[0]), side(build[1]), shapes, symbols)
        both = zip(results, sides[0].values, sides[1].values, strict=True)
        return [a if isinstance(a, Known) and isinstance(b, Known) and _same(a, b) else x for x, a, b in both]

    def _specialised(self, condition: Tensor, sides: Sequence[Given]) -> bool:
        """Which branch an If whose branches differ in rank is compiled for; that it is the right one is required."""
        relation = self._lowering.relations.get(condition.value)
        ranks = [[x.rank for x in side.tensors] for side in sides]
        if relation is None:
            raise NotLowerable(
                f"its branches give tensors of ranks {ranks[0]} and {ranks[1]}, and data decides between them"
            )
        b = self._b
        known = b.decided(relation.op, relation.lhs, relation.rhs)
        if known is not None:
            return known == relation.holds
        declared = [declared_rank(value) for value in self._op.results]
        fits = [
            all(d is None or d == r for d, r in zip(declared, side, strict=False))
            and any(d is not None for d in declared)
            for side in ranks
        ]
        # Without a hint, sizes that differ: torch.squeeze asks whether one is 1.
        then = fits[0] if fits[0] != fits[1] else (relation.op != "Equal") == relation.holds
        then = self._lowering.choose(self._op, then)
        lhs, rhs = b.described(relation.lhs), b.described(relation.rhs)
        symbols = sorted(str(s) for x in (relation.lhs, relation.rhs) for s in _symbols(x, b))
        text = f"{lhs} {SIGNS[relation.op]} {rhs}"
        message = (
            f"If: the branches differ in rank, and the model was compiled for sizes where {text} is"
            f" {'true' if then == relation.holds else 'false'}; compile it for other sizes with"
            f' dynamic_shapes={{"{symbols[0] if symbols else "NAME"}": ...}}'
        )
        b.require_relation(then == relation.holds, relation.op, relation.lhs, relation.rhs, message)
        return then

    # -- Loop and Scan ---------------------------------------------------------------------------

    def _loop(self, _: dict[str, Any]) -> list[Any]:
        most, condition, *inits = self._operands()
        condition = _TRUE if condition is None else condition
        count = None if most is None else self._count(most)
        if isinstance(condition, Known) and not condition.list[0]:
            count = 0

        def body(index: Extent, carried: list[Tensor]) -> _Step:
            number = Known.of(np.array(self._b.expression(index)), torch.int64)
            # The condition is true in each step that there is.
            again, *given = self._lower(0, [number, _TRUE, *carried])
            return _Step(given[: len(inits)], given[len(inits) :], again)

        last, rows = self._steps(count, condition, inits, body)
        return [*last, *rows]

    def _count(self, most: Any) -> Extent:
        if isinstance(most, Known):
            extent: Extent = self._b.maximum(self._b.extent(most.list[0]), 0)
            return extent
        return self._b.bind(self._b.map(torch.int64, [self._b.reshape(most, [])], lambda n: scalar.maximum(n, 0)))

    def _scan(self, attributes: dict[str, Any]) -> list[Any]:
        operands = [self._b.tensor(x) for x in self._operands()]
        count_inputs = attributes["num_scan_inputs"]
        inits, xs = operands[:-count_inputs], operands[-count_inputs:]
        axes = attributes.get("scan_input_axes") or [0] * len(xs)
        axes = [normalize_dim(axis, x.rank) for axis, x in zip(axes, xs, strict=True)]
        turned = attributes.get("scan_input_directions") or [0] * len(xs)
        count = xs[0].dims[axes[0]]
        for x, axis in zip(xs[1:], axes[1:], strict=True):
            self._b.require_equal(x.dims[axis], count, "the inputs of a Scan have different lengths")

        def body(index: Extent, carried: list[Tensor]) -> _Step:
            now = []
            for x, axis, back in zip(xs, axes, turned, strict=True):
                at = self._b.sub(self._b.sub(count, 1), index) if back else index
                dims = [*x.dims[:axis], *x.dims[axis + 1 :]]
                now.append(self._b.reshape(self._b.slice(x, axis, at, 1), dims))
            given = self._lower(0, [*carried, *now])
            return _Step(given[: len(inits)], given[len(inits) :], _TRUE)

        last, rows = self._steps(count, _TRUE, inits, body)
        out_axes = attributes.get("scan_output_axes") or [0] * len(rows)
        out_turned = attributes.get("scan_output_directions") or [0] * len(rows)
        placed = []
        for row, axis, back in zip(rows, out_axes, out_turned, strict=True):
            if back:
                row = self._b.aten("flip", row, [0], dtype=row.dtype, rank=row.rank)
            order = list(range(1, row.rank))
            order.insert(normalize_dim(axis, row.rank), 0)
            placed.append(self._b.permute(row, order))
        return [*last, *placed]

    def _steps(
        self, count: Extent | None, condition: Any, inits: Sequence[Any], body: _Body
    ) -> tuple[list[Tensor], list[Tensor]]:
        """A loop, of whose carried tensors some extents may change from step to step."""
        first = [self._b.tensor(x) for x in inits]
        outside = set(self._b.valued)
        changing: dict[tuple[int, int], LoopNumber] = {}
        while True:
            shapes = [
                [expressions.symbol(changing[i, d].name) if (i, d) in changing else dim for d, dim in enumerate(x.dims)]
                for i, x in enumerate(first)
            ]
            learnt, more, pred = self._learn(first, shapes, count, body, outside)
            more = {place for place in more if place not in changing}
            if not more:
                break
            for i, d in sorted(more):
                changing[i, d] = LoopNumber(first[i].dims[d], self._fresh(), self._fresh())
        while_ = not isinstance(pred, Known) or not isinstance(condition, Known)
        if not while_ and not pred.list[0]:
            count = 1 if count is None else self._b.minimum(count, 1)
        if count is None and not while_:
            raise NotLowerable("it never ends")
        stacked: list[Shape] = []
        for x, extents in zip(learnt.tensors[len(first) :], learnt.extents[len(first) :], strict=True):
            if any(extent is None for extent in extents):
                raise NotLowerable("values that the steps of a loop append must have one shape")
            stacked.append(([self._extent(extent) for extent in extents if extent is not None], x.dtype))

        def build(index: ir.Value, now: list[Tensor]) -> LoopStep:
            with self._lowering.inside_region():
                step = body(index, now)
                carried = [self._b.tensor(x) for x in step.carried]
                again = self._b.reshape(self._b.tensor(step.pred), []) if while_ else None
                numbers = [carried[i].dims[d] for i, d in changing]
                return LoopStep(carried, [self._b.tensor(x) for x in step.rows], again, numbers)

        return self._b.loop(
            first,
            build,
            stacked,
            count=count,
            pred=self._b.reshape(self._b.tensor(condition), []) if while_ else None,
            numbers=list(changing.values()),
            shapes=shapes,
            trips=self._fresh() if while_ and stacked else None,
        )

    def _learn(
        self,
        first: Sequence[Tensor],
        shapes: Sequence[Sequence[NamedExtent]],
        count: Extent | None,
        body: _Body,
        outside: set[str],
    ) -> tuple[Given, set[tuple[int, int]], Any]:
        """The results of a step, those extents that the step changes, and its condition."""
        types = [tensor_type(dims, x.dtype) for dims, x in zip(shapes, first, strict=True)]
        with self._learning(types) as block, self._b.in_loop(count) as (name, index):
            now = [
                Tensor(a, tuple(self._b.named(d) if isinstance(d, Expression) else d for d in dims), x.dtype)
                for a, dims, x in zip(block.arguments, shapes, first, strict=True)
            ]
            step = body(index, now)
            outputs = self._outputs(0)
            values = [*step.carried, *step.rows]
            given = self._given(values, outputs[len(outputs) - len(values) :], outside, name)
            differ = set()
            for i, (old, new) in enumerate(zip(now, given.tensors, strict=False)):
                if old.dtype != new.dtype or old.rank != new.rank:
                    raise NotLowerable(
                        f"a step changes what it carries from {old.dtype} of rank {old.rank} to {new.dtype} of rank"
                        f" {new.rank}"
                    )
                before = [self._visible(d, set()) for d in old.dims]
                differ |= {(i, d) for d, extent in enumerate(before) if extent is None or extent != given.extents[i][d]}
            return given, differ, step.pred


def declared_rank(value: ir.Value) -> int | None:
    """The rank that the file declares for a value, or None."""
    # The importer writes no dims where the file has no shape.
    return len(result_info(value.type).shape) or None


SIGNS = {"Equal": "==", "Less": "<", "LessOrEqual": "<=", "Greater": ">", "GreaterOrEqual": ">="}


def _symbols(x: Any, b: OnnxBuilder) -> set[str]:
    return {b.described(symbol) for symbol in getattr(x, "free_symbols", ())}


def _same(a: Known, b: Known) -> bool:
    return a.dtype == b.dtype and a.values.shape == b.values.shape and a.list == b.list
