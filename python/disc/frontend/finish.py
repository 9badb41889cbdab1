"""The last steps of the import: the return, dead code, verification, and the text that leaves the import.

What crosses to the compiler is one module, serialised here and read by ``_native.Module.parse``. Its schema is in
docs/rationale/import.md. Nothing in Python reads the text: what the package asks about the module is collected from its
operations, in :class:`Finished`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from torch_mlir import ir

from .. import errors
from . import dtypes
from .composites import Composites
from .locations import describe, place_of
from .returns import Result
from .shape_attributes import ShapeAttributes

_CONTROL = frozenset(("disc_tensor.branch", "disc_tensor.loop", "disc_tensor.composite"))
"""Operations with blocks inside, which do what these do."""
_ENDS = frozenset(("disc_tensor.next", "disc_tensor.yield"))
_EFFECTS = frozenset(("func.return", "disc_shape.require", *_ENDS))
"""The operations that are kept although nothing uses their results. All others only compute: they, and what they check
of their own operands, go if nothing uses the results or the symbols that they define."""
_DEFINED = ("symbol", "symbols", "last_symbols", "trips")
"""The attributes that name the symbols that an operation defines."""
_EXTENTS = ("expr", "disc_shape.dims", "arg_dims")
"""The attributes with expressions over symbols."""


@dataclass
class Finished:
    """A complete module."""

    text: str = ""
    """Its generic form, with locations."""
    parameters: set[str] = field(default_factory=set)
    """The names in its ``disc_tensor.parameter``."""
    predicates: set[str] = field(default_factory=set)
    """Those of its ``disc_shape.require``: ``eq``, ``le``."""


def finish(
    module: ir.Module,
    results: Sequence[Result],
    attributes: ShapeAttributes,
    composites: Composites | None = None,
) -> Finished:
    """Completes ``main`` with its return and results' names; ``attributes`` made those of ``disc_shape`` in the module.

    ``composites`` asks back ends about the operations that they may claim.

    InternalError, with the operation and its line, if a rule built an operation that MLIR refuses.
    """
    returned = [result.value for result in results]
    functions = [v.operation for v in module.body.operations if v.operation.name == "func.func"]
    func = functions[0]
    block = func.regions[0].blocks[0]
    with ir.InsertionPoint(block), func.location:
        ir.Operation.create("func.return", operands=[t.value for t in returned])
    result_types = [t.value.type for t in returned]
    type_ = ir.FunctionType.get([a.type for a in block.arguments], result_types)
    func.attributes["function_type"] = ir.TypeAttr.get(type_)
    func.attributes["res_attrs"] = ir.ArrayAttr.get([_result_attributes(result) for result in results])
    finished = Finished()
    for function in functions:
        body = function.regions[0].blocks[0]
        extents = [x["disc_shape.dims"] for x in function.attributes["res_attrs"] if "disc_shape.dims" in x]
        mentioned = {name for dims in extents for name in attributes.symbols(dims)}
        _remove_dead_ops(body, attributes, mentioned)
        _collect(body, finished)
        _parameters_first(body)
    if composites is not None:
        composites.finish(module)
    try:
        module.operation.verify()
    except ir.MLIRError as error:
        name, line = place_of(error.error_diagnostics[0].location) if error.error_diagnostics else (None, None)
        raise errors.InternalError(
            "import",
            RuntimeError(f"{f'{name}: ' if name else ''}its rule built invalid IR: {error}"),
            describe(line) if line else None,
        ) from error
    finished.text = module.operation.get_asm(enable_debug_info=True, print_generic_op_form=True)
    return finished


def _result_attributes(result: Result) -> ir.DictAttr:
    attributes: dict[str, ir.Attribute] = {"disc_shape.name": ir.StringAttr.get(result.name)}
    if result.value.dtype in dtypes.UNSIGNED:
        attributes["disc_tensor.unsigned"] = ir.UnitAttr.get()
    if result.updates is not None:
        attributes["disc_tensor.updates"] = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), result.updates)
    return ir.DictAttr.get(attributes)


def _remove_dead_ops(block: ir.Block, attributes: ShapeAttributes, mentioned: set[str]) -> None:
    """Drops operations that nothing needs. MLIR's own clean-up does not know which of DISC's operations are pure.

    ``mentioned``: the symbols in operations that are kept so far; the operations that define them are kept too.
    """
    for view in reversed(list(block.operations)):
        op = view.operation
        used = any(True for result in op.results for _ in result.uses)
        if not used and _defined(op).isdisjoint(mentioned) and not _has_effects(op):
            op.erase()
            continue
        for key in _EXTENTS:
            if key in op.attributes:
                mentioned |= attributes.symbols(op.attributes[key])
        if op.name in _CONTROL:
            for region in op.regions:
                _remove_dead_ops(region.blocks[0], attributes, mentioned)


def _defined(op: ir.Operation) -> set[str]:
    """The symbols that an operation defines."""
    found: set[str] = set()
    for key in _DEFINED:
        if key in op.attributes:
            attribute = op.attributes[key]
            names = attribute if isinstance(attribute, ir.ArrayAttr) else [attribute]
            found.update(ir.FlatSymbolRefAttr(name).value for name in names)
    return found


def _has_effects(op: ir.Operation) -> bool:
    """Whether an operation does more than to compute its results."""
    if op.name not in _CONTROL:
        return op.name in _EFFECTS
    inner = [view.operation for region in op.regions for view in region.blocks[0].operations]
    return any(_has_effects(other) for other in inner if other.name not in _ENDS)


def _collect(block: ir.Block, finished: Finished) -> None:
    """Adds what operations of the host flow name."""
    for view in block.operations:
        op = view.operation
        if op.name == "disc_tensor.parameter":
            finished.parameters.add(ir.StringAttr(op.attributes["name"]).value)
        elif op.name == "disc_shape.require":
            finished.predicates.add(ir.StringAttr(op.attributes["predicate"]).value)
        elif op.name in _CONTROL:
            for region in op.regions:
                _collect(region.blocks[0], finished)


def _parameters_first(block: ir.Block) -> None:
    """Moves parameters to the top, in the order of their first use."""
    first = next(iter(block.operations)).operation
    for view in list(block.operations):
        op = view.operation
        if op.name == "disc_tensor.parameter" and op != first:
            op.move_before(first)
