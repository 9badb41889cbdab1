"""Operations that back ends may claim: kept whole in the input IR, each with DISC's own lowering inside.

``%y = linalg.generic ...`` becomes

.. code-block:: mlir

    %y = disc_tensor.composite "aten.relu" 3 (%x) {} : (tensor<?x8xf32>) -> (tensor<?x8xf32>) {
      %r = linalg.generic ... ins(%x : tensor<?x8xf32>) ...
      disc_tensor.yield %r : tensor<?x8xf32>
    }

and an :class:`~disc.backends.graph.Operation` records what back ends see of it. What an operation computes of extents
stays outside, because all that follows may use it.

The body of an operation that DISC cannot compile is a call of a function that does not exist. A back end must take it,
else :meth:`~disc.backends.negotiation.Negotiation.decide` reports it as unsupported.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import sympy
import torch
from torch_mlir import ir

from .. import errors
from ..backends.graph import UNKNOWN, Dim, Operation, Value
from ..backends.negotiation import Claim, Negotiation, Refusal
from .fallback import result_shapes
from .registry import NotLowerable
from .values import RuntimeNumber, Tensor

if TYPE_CHECKING:
    from .lower import Lowering

COMPOSITE = "disc_tensor.composite"
_INSEPARABLE = ("disc_shape.bind", "disc_tensor.branch", "disc_tensor.loop", "disc_tensor.invoke", COMPOSITE)
"""Operations that give values or symbols to what follows, so that they cannot be inside."""


class Composites:
    """Wraps operations while a program is lowered."""

    def __init__(self, negotiation: Negotiation) -> None:
        self._negotiation = negotiation
        self._operators = negotiation.operators()
        self._values: dict[ir.Value, Value] = {}
        self._count = 0
        self._recorded: dict[int, Operation] = {}

    def wants(self, name: str) -> bool:
        """Whether an operator is in a pattern: ``torch.aten.add.Tensor``."""
        short = name.removeprefix("torch.")
        return short in self._operators or any(short.startswith(f"{known}.") for known in self._operators)

    def lower(
        self, lowering: Lowering, op: ir.Operation, name: str, operands: list[Any], rule: Callable[[], Any] | None
    ) -> Any:
        """The results of ``rule``, from a composite if they are tensors. Without a rule, or where it does not lower the
        operation, the composite has no other implementation than a back end's."""
        reason = "no lowering rule"
        if rule is not None:
            try:
                return self._lower(lowering, op, name, operands, rule)
            except NotLowerable as error:
                reason = str(error)
        return self._lower(lowering, op, name, operands, lambda: _uncomputed(lowering, operands, reason), reason)

    def _lower(
        self,
        lowering: Lowering,
        op: ir.Operation,
        name: str,
        operands: list[Any],
        rule: Callable[[], Any],
        unsupported: str = "",
    ) -> Any:
        builder = lowering.builder
        scratch = ir.Operation.create(COMPOSITE, regions=1)
        block = scratch.regions[0].blocks.append()
        try:
            with ir.InsertionPoint(block), builder.tried() as keep:
                results = rule()
                tensors = self._tensors(results, operands)
                if unsupported and tensors is None:
                    raise NotLowerable(unsupported)
                if tensors is None or not _separable(block):
                    keep()
                    tensors = None
        except BaseException:
            scratch.erase()
            raise
        if tensors is None:
            for view in list(block.operations):
                view.operation.move_before(scratch)
            scratch.erase()
            return results
        _hoist(block, scratch)
        inputs = _flat(operands)
        self._count += 1
        composite = ir.Operation.create(
            COMPOSITE,
            [tensor.value.type for tensor in tensors],
            [x.value for x in inputs],
            attributes={
                "name": ir.StringAttr.get(name.removeprefix("torch.")),
                "id": ir.IntegerAttr.get(ir.IntegerType.get_signless(64), self._count),
                "arguments": ir.DictAttr.get(_attributes(lowering, op, operands)),
            },
            regions=1,
        )
        with ir.InsertionPoint(block):
            ir.Operation.create(
                "disc_tensor.yield",
                operands=[tensor.value for tensor in tensors],
                attributes={"operandSegmentSizes": ir.DenseI32ArrayAttr.get([len(tensors), 0])},
            )
        block.append_to(composite.regions[0])
        scratch.erase()
        made = [
            Tensor(value, _outside(lowering, value, tensor, block), tensor.dtype)
            for value, tensor in zip(composite.results, tensors, strict=True)
        ]
        self._record(lowering, op, name, operands, made, unsupported)
        return made if isinstance(results, (list, tuple)) else made[0]

    @staticmethod
    def _tensors(results: Any, operands: Sequence[Any]) -> list[Tensor] | None:
        found = list(results) if isinstance(results, (list, tuple)) else [results]
        given = {x.value for x in _flat(operands)}
        # An operation that returns its operand computes nothing. Numbers and complex elements have other forms.
        if not found or not all(isinstance(x, Tensor) and not x.dtype.is_complex for x in found):
            return None
        if any(x.value in given for x in found) or len({x.value for x in found}) != len(found):
            return None
        if any(isinstance(x, RuntimeNumber) or (isinstance(x, Tensor) and x.dtype.is_complex) for x in operands):
            return None
        return found

    # -- what back ends see ---------------------------------------------------------------------------

    def _record(
        self,
        lowering: Lowering,
        op: ir.Operation,
        name: str,
        operands: list[Any],
        made: list[Tensor],
        unsupported: str,
    ) -> None:
        known = lowering.operands_of(op)

        def seen(x: Any, fake: Any) -> Any:
            if isinstance(x, Tensor):
                return self._value(lowering, x, fake)
            if isinstance(x, ir.Value):
                return _dim(lowering, x, fake)
            if isinstance(x, (list, tuple)):
                inner = fake if isinstance(fake, (list, tuple)) and len(fake) == len(x) else [None] * len(x)
                return [seen(item, f) for item, f in zip(x, inner, strict=True)]
            return x

        args = tuple(seen(x, known[i] if i < len(known) else None) for i, x in enumerate(operands))
        node = lowering.node(op)
        schema = getattr(node.target, "_schema", None) if node is not None else None
        names = tuple(a.name for a in schema.arguments)[: len(args)] if schema is not None else ()
        value = lowering.fake(op)
        results = list(value) if isinstance(value, (list, tuple)) else [value]
        recorded = Operation(
            self._count,
            name.removeprefix("torch."),
            args,
            tuple(_values(args)),
            tuple(
                self._value(lowering, tensor, results[i] if i < len(results) else None) for i, tensor in enumerate(made)
            ),
            lowering.source,
            names if len(names) == len(args) else (),
            unsupported=unsupported,
        )
        for i, result in enumerate(recorded.results):
            result.producer, result.index = recorded, i
        self._recorded[self._count] = recorded

    def _value(self, lowering: Lowering, tensor: Tensor, fake: Any) -> Value:
        if tensor.value not in self._values:
            sizes = list(fake.shape) if isinstance(fake, torch.Tensor) and fake.dim() == tensor.rank else tensor.dims
            owner = tensor.value.owner
            parameter = None
            if not isinstance(owner, ir.Block) and owner.name == "disc_tensor.parameter":
                parameter = ir.StringAttr(owner.attributes["name"]).value
            dims = tuple(_dim(lowering, have, size) for have, size in zip(tensor.dims, sizes, strict=True))
            self._values[tensor.value] = Value(str(tensor.dtype).removeprefix("torch."), dims, parameter)
        return self._values[tensor.value]

    def finish(self, module: ir.Module) -> None:
        """Asks what back ends claim of the finished module, and writes the answers there."""
        found: list[tuple[ir.Operation, Operation]] = []

        def visit(block: ir.Block, key: int) -> None:
            for view in block.operations:
                op = view.operation
                if op.name == COMPOSITE:
                    recorded = self._recorded[ir.IntegerAttr(op.attributes["id"]).value]
                    recorded.block = key
                    found.append((op, recorded))
                    continue
                for region in op.regions:
                    for inner in region.blocks:
                        visit(inner, len(blocks))
                        blocks.append(None)

        blocks: list[None] = [None]
        for view in module.body.operations:
            for region in view.operation.regions:
                for block in region.blocks:
                    visit(block, len(blocks))
                    blocks.append(None)
        self._negotiation.graph.operations = [recorded for _, recorded in found]
        for op, recorded in found:
            for value, record in zip(op.results, recorded.results, strict=True):
                users = [_enclosing(use.owner) for use in value.uses]
                ids = {ir.IntegerAttr(user.attributes["id"]).value for user in users if user is not None}
                record.users = [self._recorded[id] for id in sorted(ids) if id != recorded.id]
                record.is_used_elsewhere = any(user is None for user in users)
        claims = self._negotiation.claims()
        for op, recorded in found:
            own, refusals = claims[recorded.id]
            if own:
                op.attributes["disc_plan.claims"] = ir.ArrayAttr.get([_claim(claim) for claim in own])
            if refusals:
                op.attributes["disc_plan.refusals"] = ir.ArrayAttr.get([_refusal(refusal) for refusal in refusals])


def _uncomputed(lowering: Lowering, operands: Sequence[Any], reason: str) -> Any:
    """Results of an operation that only back ends compute, with the extents that torch.export knows."""
    builder, value = lowering.builder, lowering.builder.node_value
    expected = list(value) if isinstance(value, (list, tuple)) else [value]
    if not all(isinstance(x, torch.Tensor) for x in expected):
        raise NotLowerable(reason)
    try:
        shapes = result_shapes(builder, list(enumerate(expected)))
    except NotLowerable as error:
        raise NotLowerable(f"{reason}, and no back end can be asked: {error}") from None
    results = builder.call("unclaimed", _flat(operands), shapes)
    return results if isinstance(value, (list, tuple)) else results[0]


def _text(value: str) -> str:
    return str(ir.StringAttr.get(value))


def _claim(claim: Claim) -> ir.Attribute:
    return ir.Attribute.parse(f"#disc_plan.claim<{_text(claim.backend)}, {_text(claim.pattern)}, {claim.match}>")


def _refusal(refusal: Refusal) -> ir.Attribute:
    return ir.Attribute.parse(
        f"#disc_plan.refusal<{_text(refusal.backend)}, {_text(refusal.pattern)}, {_text(refusal.reason)}>"
    )


def _enclosing(owner: Any) -> ir.Operation | None:
    """The composite that an operation is, or is in."""
    op = owner.operation
    while op is not None and op.name != "func.func":
        if op.name == COMPOSITE:
            return op
        op = op.parent.operation if op.parent is not None else None
    return None


def _separable(block: ir.Block) -> bool:
    return not any(view.operation.name in _INSEPARABLE for view in block.operations)


def _flat(operands: Sequence[Any]) -> list[Tensor]:
    found: list[Tensor] = []
    for x in operands:
        if isinstance(x, Tensor):
            found.append(x)
        elif isinstance(x, (list, tuple)):
            found += _flat(x)
    return found


def _values(args: Any) -> list[Value]:
    if isinstance(args, Value):
        return [args]
    return [value for item in args for value in _values(item)] if isinstance(args, (list, tuple)) else []


def _is_inside(value: ir.Value, block: ir.Block) -> bool:
    owner = value.owner
    return not isinstance(owner, ir.Block) and owner.operation.block == block


def _hoist(block: ir.Block, before: ir.Operation) -> None:
    """Moves what computes extents, and requirements on them, out of the block."""
    for view in list(block.operations):
        op = view.operation
        scalar = all(isinstance(r.type, (ir.IndexType, ir.IntegerType)) for r in op.results)
        if scalar and len(op.regions) == 0 and not any(_is_inside(x, block) for x in op.operands):
            op.move_before(before)


def _outside(lowering: Lowering, value: ir.Value, tensor: Tensor, block: ir.Block) -> tuple[Any, ...]:
    """The extents of a result; those that are computed from tensors inside are read from the result."""
    return tuple(
        lowering.dim_of(value, i) if isinstance(dim, ir.Value) and _is_inside(dim, block) else dim
        for i, dim in enumerate(tensor.dims)
    )


def _dim(lowering: Lowering, extent: Any, size: Any) -> Dim:
    if isinstance(extent, int):
        return Dim(str(extent), extent, extent)
    if isinstance(size, int):
        return Dim(str(size), size, size)
    if not isinstance(size, torch.SymInt):
        return Dim(UNKNOWN, 0, None)
    expr = sympy.sympify(size.node.expr)
    bounds = lowering.builder.bounds(expr)
    low = int(bounds.lower) if bounds.lower.is_Integer else 0
    high = int(bounds.upper) if bounds.upper.is_Integer and int(bounds.upper) < 2**62 else None
    # Of 6*n + 4*m, 2 is what all terms have in common.
    content = sympy.sympify(expr.as_content_primitive()[0])
    divisor = int(content) if content.is_Integer and content > 0 else 1
    try:
        text = lowering.size_text(size)
    except errors.SizeError:
        text = UNKNOWN  # The shape stage may know more.
    return Dim(text, low, high, divisor)


def _attributes(lowering: Lowering, op: ir.Operation, operands: Sequence[Any]) -> dict[str, ir.Attribute]:
    """The arguments that are constants, by name, for readers of the IR."""
    node = lowering.node(op)
    schema = getattr(node.target, "_schema", None) if node is not None else None
    names = [a.name for a in schema.arguments] if schema is not None else []
    found: dict[str, ir.Attribute] = {}
    for name, x in zip(names, operands, strict=False):
        if isinstance(x, bool):
            found[name] = ir.BoolAttr.get(x)
        elif isinstance(x, int) and -(2**63) <= x < 2**63:
            found[name] = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), x)
        elif isinstance(x, float):
            found[name] = ir.FloatAttr.get(ir.F64Type.get(), x)
        elif isinstance(x, str):
            found[name] = ir.StringAttr.get(x)
        elif isinstance(x, (list, tuple)) and x and all(type(i) is int and -(2**63) <= i < 2**63 for i in x):
            found[name] = ir.DenseI64ArrayAttr.get(list(x))
    return found
