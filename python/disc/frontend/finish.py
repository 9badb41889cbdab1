"""The last steps of the import: the return, dead code, verification, text."""

from __future__ import annotations

import re
from collections.abc import Sequence

from torch_mlir import ir

from .. import errors
from . import dtypes
from .composites import Composites
from .returns import Result

_REGIONS = ("disc_tensor.branch", "disc_tensor.loop", "disc_tensor.composite")
_ENDS = ("disc_tensor.next", "disc_tensor.yield")
_PLACE = re.compile(r'"([^"]+)"\("([^"]+)":(\d+):\d+\)')
_EFFECTS = ("func.return", "disc_shape.require", *_ENDS)
_NAME = re.compile(r"\w+")


def finish(module: ir.Module, results: Sequence[Result], composites: Composites | None = None) -> str:
    """Completes ``main`` with its return and results' names, and gives the module's text."""
    returned = [result.value for result in results]
    func = next(v.operation for v in module.body.operations if v.operation.name == "func.func")
    block = func.regions[0].blocks[0]
    with ir.InsertionPoint(block), func.location:
        ir.Operation.create("func.return", operands=[t.value for t in returned])
    result_types = [t.value.type for t in returned]
    type_ = ir.FunctionType.get([a.type for a in block.arguments], result_types)
    func.attributes["function_type"] = ir.TypeAttr.get(type_)
    func.attributes["res_attrs"] = ir.ArrayAttr.get([_result_attributes(result) for result in results])
    for function in [v.operation for v in module.body.operations if v.operation.name == "func.func"]:
        body = function.regions[0].blocks[0]
        _remove_dead_ops(body, set(_NAME.findall(str(function.attributes["res_attrs"]))))
        _parameters_first(body)
    if composites is not None:
        composites.finish(module)
    try:
        module.operation.verify()
    except ir.MLIRError as error:
        text = str(error)
        where = _PLACE.search(text)
        source = f"{where[2]}:{where[3]}" if where else None
        what = f"{where[1]}: " if where else ""
        raise errors.InternalError(
            "import", RuntimeError(f"{what}its rule built invalid IR: {text}"), source
        ) from error
    return module.operation.get_asm(enable_debug_info=True, print_generic_op_form=True)


def _result_attributes(result: Result) -> ir.DictAttr:
    attributes: dict[str, ir.Attribute] = {"disc_shape.name": ir.StringAttr.get(result.name)}
    if result.value.dtype in dtypes.UNSIGNED:
        attributes["disc_tensor.unsigned"] = ir.UnitAttr.get()
    if result.updates is not None:
        attributes["disc_tensor.updates"] = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), result.updates)
    return ir.DictAttr.get(attributes)


def _remove_dead_ops(block: ir.Block, mentioned: set[str] | None = None) -> None:
    """Drops ops without users; MLIR's own clean-up knows nothing of our ops' purity.

    ``mentioned``: the symbols in what is kept so far; what gives them their values is kept too.
    """
    mentioned = set() if mentioned is None else mentioned
    for view in reversed(list(block.operations)):
        op = view.operation
        if op.name in _REGIONS:
            for region in op.regions:
                _remove_dead_ops(region.blocks[0], mentioned)
        if _is_kept(op, mentioned) or any(list(result.uses) for result in op.results):
            for attribute in ("expr", "disc_shape.dims", "arg_dims"):
                if attribute in op.attributes:
                    mentioned.update(_NAME.findall(str(op.attributes[attribute])))
        else:
            op.erase()


def _is_kept(op: ir.Operation, mentioned: set[str]) -> bool:
    """Whether an op is kept although no other op uses its results."""
    defined = {
        name
        for key in ("symbol", "symbols", "last_symbols", "trips")
        if key in op.attributes
        for name in _NAME.findall(str(op.attributes[key]))
    }
    if op.name in _EFFECTS or defined & mentioned:
        return True
    inner = [view.operation for region in op.regions for block in region.blocks for view in block.operations]
    return op.name in _REGIONS and any(_is_kept(other, mentioned) for other in inner if other.name not in _ENDS)


def _parameters_first(block: ir.Block) -> None:
    """Moves parameters to the top, in the order of their first use."""
    first = next(iter(block.operations)).operation
    for view in list(block.operations):
        op = view.operation
        if op.name == "disc_tensor.parameter" and op != first:
            op.move_before(first)
