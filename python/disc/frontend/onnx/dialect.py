"""An ONNX graph to the torch dialect: torch-mlir's importer, then its conversion of ONNX operators.

Operators with a lowering rule (``disc.lowers("onnx.Reshape")``) are excluded from the conversion. Operators without
rule and conversion are replaced by ONNX's definition; those without one reach the lowering, which reports all of them.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from typing import Any

import onnx
from torch_mlir import ir
from torch_mlir.dialects import torch as torch_d
from torch_mlir.extras import onnx_importer
from torch_mlir.passmanager import PassManager

from ...errors import OnnxError
from ..locations import place_of
from ..lower import IGNORED
from ..registry import find_rule
from ..torch_dialect import PARAMETER_ATTR, PARAMETER_OP
from .known import LIMIT
from .model import CONSTANT, NODE, OnnxModel
from .regions import REGIONS

ITEMS = ("torch.aten.item", "torch.aten.Int.Tensor", "torch.aten.IntImplicit", "torch.aten.Float.Tensor")
"""torch ops that the conversion makes of tensors whose elements it wants as numbers."""

OWN = "own."
"""Precedes the names of operators that the conversion must not see."""

_PIPELINE = "builtin.module(func.func(convert-torch-onnx-to-torch))"


class _Importer(onnx_importer.NodeImporter):
    """Refers to large constants by name, and to every constant by its place: a location holds no name of a file."""

    __slots__ = ("places",)

    def import_initializer(self, initializer: onnx.TensorProto, extern_name: str | None = None) -> ir.Value:
        name = extern_name or initializer.name
        size = math.prod(initializer.dims)
        large = size > LIMIT
        attributes: dict[str, ir.Attribute] = {
            "name": ir.StringAttr.get(PARAMETER_OP if large else "onnx.Constant"),
        }
        with ir.InsertionPoint(self._b), ir.Location.name(f"{CONSTANT}{self.places[name]}"):
            if large:
                attributes[PARAMETER_ATTR] = ir.StringAttr.get(name)
            else:
                attributes["torch.onnx.value"] = self._cc.tensor_proto_to_attr(initializer)
            value = ir.Operation.create(
                "torch.operator", results=[self._cc.tensor_proto_to_type(initializer)], attributes=attributes
            ).result
        self._nv_map[name] = value
        return value


def number_of(op: ir.Operation) -> int | None:
    """The number of the ONNX node that ``op`` came from, or None."""
    return _number(op.location, NODE)


def constant_of(op: ir.Operation) -> int | None:
    """The place of the initializer that ``op`` is, or None."""
    return _number(op.location, CONSTANT)


def _number(location: ir.Location, kind: str) -> int | None:
    """The number behind ``kind`` in the location's name, or None if it is no such location."""
    name, _ = place_of(location)
    number = name.removeprefix(kind) if name is not None and name.startswith(kind) else ""
    return int(number) if number.isdecimal() else None


def import_graph(model: OnnxModel, context: ir.Context) -> tuple[ir.Module, set[tuple[str, str]]]:
    """The model in the torch dialect, and the operators (domain, name) that ONNX's own definitions could replace."""
    torch_d.register_dialect(context)
    context.allow_unregistered_dialects = True
    info = onnx_importer.ModelInfo(model.proto, config=onnx_importer.Config(function_expansion_allowlists_by_domain={}))
    module = info.create_module(context)
    try:
        with warnings.catch_warnings():
            # About values that nothing uses, such as optional results.
            warnings.simplefilter("ignore")
            _define_main(info, module)
    except onnx_importer.OnnxImportError as error:
        raise OnnxError("import", f"{model.name}: {error}") from error
    for op in _operators(module):
        _hide(op, lambda name: name in REGIONS or find_rule(name) is not None)
    inline: set[tuple[str, str]] = set()
    while (failed := _convert(module, context)) is not None:
        stuck = [op for op in _operators(module) if number_of(op) == failed and not _name(op).startswith(OWN)]
        if not stuck:
            raise OnnxError("import", f"{model.name}: torch-mlir cannot convert node {model.source(failed)[0]}")
        for op in stuck:
            node = model.nodes[failed]
            if _has_definition(node, model.proto):
                inline.add((node.domain, node.op_type))
            _hide(op, lambda name: True)
    # What the conversion left, or made ops of that have no rule.
    for op in _operations(module):
        number = number_of(op)
        if number is None or not _lacks_rule(op):
            continue
        node = model.nodes[number]
        if _has_definition(node, model.proto):
            inline.add((node.domain, node.op_type))
    return module, inline


def _lacks_rule(op: ir.Operation) -> bool:
    name = _name(op) if op.name == "torch.operator" else op.name
    if name.startswith((OWN, "torch.constant.", "torch.prim.", "torch.vtensor.", *IGNORED)):
        return False
    return name.startswith(("onnx.", "torch.")) and name not in ITEMS and find_rule(name) is None


def _define_main(info: onnx_importer.ModelInfo, module: ir.Module) -> None:
    graph = info.main_graph
    cache = onnx_importer.ContextCache(module.context)
    with module.context, ir.Location.name("graph"):
        inputs = [cache.type_proto_to_type(i.type) for i in graph.input_map.values()]
        outputs = [cache.type_proto_to_type(o.type) for o in graph.graph_proto.output]
        func = onnx_importer.func_dialect.FuncOp(
            "main", ir.FunctionType.get(inputs, outputs), ip=ir.InsertionPoint(module.body)
        )
        block = func.add_entry_block()
    importer = _Importer(
        graph,
        parent_op=func,
        block=block,
        context_cache=cache,
        module_op=module.operation,
        module_cache=onnx_importer.ModuleCache(module.operation, cache),
    )
    importer.places = {constant.name: i for i, constant in enumerate(graph.graph_proto.initializer)}
    importer._nv_map.update(zip(graph.input_map, block.arguments, strict=True))
    importer._populate_graph_attrs(func)
    importer.import_all()
    # What is declared of an output may be less than is known of the value: a constant, for instance.
    results = [operand.type for operand in list(block.operations)[-1].operation.operands]
    func.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(inputs, results))


def _operations(module: ir.Module) -> Iterator[ir.Operation]:
    for func in module.body.operations:
        yield from _inside(func.operation)


def _inside(op: ir.Operation) -> Iterator[ir.Operation]:
    for region in op.regions:
        for block in region.blocks:
            for view in block.operations:
                yield view.operation
                yield from _inside(view.operation)


def _operators(module: ir.Module) -> list[ir.Operation]:
    return [op for op in _operations(module) if op.name == "torch.operator"]


def _name(op: ir.Operation) -> str:
    return str(ir.StringAttr(op.attributes["name"]).value)


def _hide(op: ir.Operation, wanted: object) -> None:
    name = _name(op)
    if name.startswith("onnx.") and name != "onnx.Constant" and wanted(name):  # type: ignore[operator]
        with op.context:
            op.attributes["name"] = ir.StringAttr.get(OWN + name)


def _convert(module: ir.Module, context: ir.Context) -> int | None:
    """Runs the conversion; the number of a node that it fails for, or None if all is well."""
    with context:
        try:
            PassManager.parse(_PIPELINE).run(module.operation)
        except ir.MLIRError as error:
            for diagnostic in error.error_diagnostics:
                failed = _number(diagnostic.location, NODE)
                if failed is not None:
                    return failed
            raise OnnxError("import", f"torch-mlir's conversion from ONNX failed: {error}") from error
    return None


def _has_definition(node: onnx.NodeProto, proto: onnx.ModelProto) -> bool:
    version = next((o.version for o in proto.opset_import if o.domain == node.domain), 0)
    try:
        schema: Any = onnx.defs.get_schema(node.op_type, max_inclusive_version=version, domain=node.domain)
    except onnx.defs.SchemaError:
        return False
    return bool(schema.function_opset_versions or schema.context_dependent_function_opset_versions)
