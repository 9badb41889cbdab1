"""Reading an ONNX model: its functions inlined, its constants as tensors, its values' types inferred."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.inliner
import torch
from onnx import numpy_helper

from ...errors import ArgumentValueError, CompileError, OnnxError
from .. import dtypes
from ..registry import find_rule
from .known import LIMIT
from .maps import maps_of_outputs, refuse_maps
from .old_opsets import OPSET, current
from .scopes import hoist_initializers

DTYPES: dict[int, torch.dtype] = {
    onnx.TensorProto.FLOAT: torch.float32,
    onnx.TensorProto.DOUBLE: torch.float64,
    onnx.TensorProto.FLOAT16: torch.float16,
    onnx.TensorProto.BFLOAT16: torch.bfloat16,
    onnx.TensorProto.INT64: torch.int64,
    onnx.TensorProto.INT32: torch.int32,
    onnx.TensorProto.INT16: torch.int16,
    onnx.TensorProto.INT8: torch.int8,
    onnx.TensorProto.UINT8: torch.uint8,
    onnx.TensorProto.UINT16: torch.uint16,
    onnx.TensorProto.UINT32: torch.uint32,
    onnx.TensorProto.UINT64: torch.uint64,
    onnx.TensorProto.BOOL: torch.bool,
    onnx.TensorProto.INT4: dtypes.INT4,
    onnx.TensorProto.UINT4: dtypes.UINT4,
    onnx.TensorProto.INT2: dtypes.INT2,
    onnx.TensorProto.UINT2: dtypes.UINT2,
    onnx.TensorProto.FLOAT8E4M3FN: torch.float8_e4m3fn,
    onnx.TensorProto.FLOAT8E4M3FNUZ: torch.float8_e4m3fnuz,
    onnx.TensorProto.FLOAT8E5M2: torch.float8_e5m2,
    onnx.TensorProto.FLOAT8E5M2FNUZ: torch.float8_e5m2fnuz,
    onnx.TensorProto.FLOAT8E8M0: torch.float8_e8m0fnu,
    onnx.TensorProto.FLOAT4E2M1: torch.float4_e2m1fn_x2,
}
NODE = "node:"
"""What the importer calls a node is this and its place in ``OnnxModel.nodes``."""
CONSTANT = "constant:"
"""What the importer calls an initializer is this and its place in ``proto.graph.initializer``."""
_BYTES = {torch.int8: onnx.TensorProto.INT8, torch.uint8: onnx.TensorProto.UINT8}


def dtype_of(code: int, what: str) -> torch.dtype:
    """The dtype behind ONNX's code; CompileError if there is none."""
    if code not in DTYPES:
        name = onnx.TensorProto.DataType.Name(code).lower()
        raise OnnxError("import", f"{what}: element type {name} is not supported")
    return DTYPES[code]


def to_tensor(proto: onnx.TensorProto, folder: str = "") -> torch.Tensor:
    """A constant of the model as a tensor, of narrow elements as they are stored."""
    dtype = dtype_of(proto.data_type, f"constant {proto.name!r}")
    array = np.ascontiguousarray(numpy_helper.to_array(proto, folder)).reshape(tuple(proto.dims))
    if dtypes.storage(dtype) != dtype:
        stored = np.int8 if dtypes.storage(dtype) == torch.int8 else np.uint8
        return torch.from_numpy(array.view(np.uint8).copy() if dtype.is_floating_point else array.astype(stored))
    if dtype == torch.bfloat16:
        return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(array if array.flags.writeable else array.copy())


@dataclass
class OnnxModel:
    """A model ready to be imported."""

    proto: onnx.ModelProto
    """Without the data of large constants; each node's name is NODE and its number."""
    name: str
    """The file's name, or the graph's."""
    nodes: list[onnx.NodeProto]
    """The nodes under their own names."""
    constants: dict[str, torch.Tensor]
    """Initializers and the values of Constant nodes."""
    narrow: dict[str, torch.dtype]
    """The types of inputs and constants whose elements are stored as bytes; ``proto`` has them as bytes."""
    maps: dict[str, tuple[int | str, ...]]
    """Outputs that are lists of maps, with the keys of each map; ``proto`` has a row of a tensor for each."""

    @property
    def inputs(self) -> list[onnx.ValueInfoProto]:
        """The inputs that a caller passes."""
        return [i for i in self.proto.graph.input if i.name not in self.constants]

    @property
    def opset(self) -> int:
        """The version of ONNX's own operators."""
        return next((o.version for o in self.proto.opset_import if o.domain in ("", "ai.onnx")), OPSET)

    def source(self, number: int) -> tuple[str, int]:
        """A node as a place: ``model.onnx#name`` and its number from 1."""
        node = self.nodes[number]
        return f"{self.name}#{node.name or node.op_type}", number + 1


def load(model: Any) -> tuple[onnx.ModelProto, str]:
    """The model in a file, or a copy of a ModelProto, and its name."""
    if isinstance(model, onnx.ModelProto):
        proto = onnx.ModelProto()
        proto.CopyFrom(model)
        return proto, (model.graph.name or "model") + ".onnx"
    path = Path(os.fspath(model))
    try:
        return onnx.load(path), path.name
    except OSError:
        raise
    except Exception as error:  # Whatever protobuf raises for a damaged file.
        raise OnnxError("import", f"{path} is not an ONNX model: {error}") from error


def prepare(
    proto: onnx.ModelProto,
    name: str,
    fixed: Mapping[str, Any],
    extents: Mapping[str, int],
    inline: Collection[tuple[str, str]] = (),
) -> OnnxModel:
    """Brings a model into the form that the importer takes; changes ``proto``.

    ``fixed`` are inputs that become constants, ``extents`` dim_params that become static, ``inline`` the (domain, name)
    of operators to be replaced by their definition.
    """
    proto = current(proto, name)
    if not any(o.domain in ("", "ai.onnx") for o in proto.opset_import):
        # Definitions are made of ONNX's own operators.
        proto.opset_import.append(onnx.helper.make_opsetid("", onnx.defs.onnx_opset_version()))
    _forget_unknown_dims(proto.graph)
    _fix_inputs(proto, fixed)
    _fix_dims(proto, extents)
    if proto.functions:
        proto = onnx.inliner.inline_local_functions(proto)
    if inline:
        proto = _inlined(proto, inline)
    _constants_to_initializers(proto.graph)
    hoist_initializers(proto.graph)
    constants, narrow = _take_constants(proto.graph)
    maps = maps_of_outputs(proto.graph)
    nodes: list[onnx.NodeProto] = []
    for node in proto.graph.node:
        _number(node, nodes)
    try:
        proto = onnx.shape_inference.infer_shapes(proto, data_prop=True)
    except Exception as error:
        raise OnnxError("import", f"{name}: the types of its values cannot be inferred: {error}") from error
    refuse_maps(proto.graph, name, nodes)
    for value in (*proto.graph.input, *proto.graph.output, *proto.graph.value_info):
        dtype = DTYPES.get(value.type.tensor_type.elem_type)
        if dtype is not None and dtypes.storage(dtype) != dtype:
            narrow[value.name] = dtype
            value.type.tensor_type.elem_type = _BYTES[dtypes.storage(dtype)]
    for i in proto.graph.initializer:
        if i.name in narrow:
            i.data_type = _BYTES[dtypes.storage(narrow[i.name])]
    return OnnxModel(proto, name, nodes, constants, narrow, maps)


def _inlined(proto: onnx.ModelProto, inline: Collection[tuple[str, str]]) -> onnx.ModelProto:
    """Replaces operators by their definitions."""
    # A missing operand has no type, which ONNX's inliner stumbles over where the definition depends on types.
    for node in proto.graph.node:
        if (node.domain, node.op_type) in inline and "" in node.input:
            proto = onnx.shape_inference.infer_shapes(proto, data_prop=True)
            return _inlined_one_by_one(proto, inline)
    try:
        return onnx.inliner.inline_selected_functions(proto, list(inline), inline_schema_functions=True)
    except RuntimeError:
        # Its type inference does not know all constants; whoever reports the operator names the node.
        return proto


_DEFINITIONS = "disc.definitions"


def _inlined_one_by_one(proto: onnx.ModelProto, inline: Collection[tuple[str, str]]) -> onnx.ModelProto:
    graph = proto.graph
    types = {v.name: v.type for v in (*graph.value_info, *graph.input, *graph.output)}
    for constant in graph.initializer:
        types[constant.name] = onnx.helper.make_tensor_type_proto(constant.data_type, constant.dims)
    for number, node in enumerate(graph.node):
        if (node.domain, node.op_type) not in inline:
            continue
        function = _definition(node, proto, [types.get(name, onnx.TypeProto()) for name in node.input])
        if function is None:
            continue
        function.domain, function.name = _DEFINITIONS, f"{node.op_type}_{number}"
        del function.attribute[:]
        node.domain, node.op_type = function.domain, function.name
        del node.attribute[:]
        # Operands that are left out at the end are left out in the definition too.
        node.input.extend([""] * (len(function.input) - len(node.input)))
        proto.functions.append(function)
    if not proto.functions:
        return proto
    proto.opset_import.append(onnx.helper.make_opsetid(_DEFINITIONS, 1))
    return onnx.inliner.inline_local_functions(proto)


def _definition(node: onnx.NodeProto, proto: onnx.ModelProto, types: list[onnx.TypeProto]) -> onnx.FunctionProto | None:
    version = next((o.version for o in proto.opset_import if o.domain == node.domain), 0)
    schema: Any = onnx.defs.get_schema(node.op_type, max_inclusive_version=version, domain=node.domain)
    versions = [v for v in schema.context_dependent_function_opset_versions if v <= version]
    if not versions:
        return None
    text = schema.get_context_dependent_function_with_opset_version(
        max(versions), node.SerializeToString(), [t.SerializeToString() for t in types]
    )
    return onnx.FunctionProto.FromString(text) if text else None


def _number(node: onnx.NodeProto, nodes: list[onnx.NodeProto]) -> None:
    """Calls a node, and those inside it, by their place in ``nodes``, which get copies under their own names."""
    nodes.append(onnx.NodeProto.FromString(node.SerializeToString()))
    node.name = f"{NODE}{len(nodes) - 1}"
    # Of another domain, a name may mean something else.
    own = f"{node.domain}.{node.op_type}"
    if node.domain and find_rule(f"onnx.{own}") is not None:
        node.op_type = own
    for attribute in node.attribute:
        for inner in attribute.g.node:
            _number(inner, nodes)


def _forget_unknown_dims(graph: onnx.GraphProto) -> None:
    """Removes dims that are neither sizes nor names: -1, and texts such as ``?`` that exporters write for any size."""
    for value in (*graph.input, *graph.output, *graph.value_info):
        if value.type.WhichOneof("value") != "tensor_type":
            continue
        for dim in value.type.tensor_type.shape.dim:
            negative = dim.HasField("dim_value") and dim.dim_value < 0
            nameless = dim.HasField("dim_param") and not re.search(r"[^\W\d_]", dim.dim_param)
            if negative or nameless or dim.dim_param in ("None", "unknown"):
                dim.ClearField("dim_value")
                dim.ClearField("dim_param")
    for node in graph.node:
        for attribute in node.attribute:
            _forget_unknown_dims(attribute.g)


def _fix_inputs(proto: onnx.ModelProto, fixed: Mapping[str, Any]) -> None:
    graph = proto.graph
    inputs = {i.name: i for i in graph.input}
    for name, value in fixed.items():
        if name not in inputs:
            names = ", ".join(map(repr, inputs))
            raise ArgumentValueError(f"fixed: the model has no input {name!r}; its inputs are {names}")
        info = inputs[name].type.tensor_type
        array = value.numpy() if isinstance(value, torch.Tensor) else np.asarray(value)
        wanted = onnx.helper.tensor_dtype_to_np_dtype(info.elem_type)
        graph.initializer.append(numpy_helper.from_array(array.astype(wanted), name))
        graph.input.remove(inputs[name])


def _fix_dims(proto: onnx.ModelProto, extents: Mapping[str, int]) -> None:
    for value in (*proto.graph.input, *proto.graph.output, *proto.graph.value_info):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param in extents:
                dim.dim_value = extents[dim.dim_param]


def _constants_to_initializers(graph: onnx.GraphProto) -> None:
    """Turns Constant nodes into initializers, also in the graphs that nodes hold."""
    kept = []
    for node in graph.node:
        value = _constant_value(node)
        if value is None:
            kept.append(node)
            for attribute in node.attribute:
                _constants_to_initializers(attribute.g)
        else:
            value.name = node.output[0]
            graph.initializer.append(value)
    if len(kept) != len(graph.node):
        copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in kept]
        del graph.node[:]
        graph.node.extend(copies)


def _take_constants(graph: onnx.GraphProto) -> tuple[dict[str, torch.Tensor], dict[str, torch.dtype]]:
    """Takes the data out of large initializers; the values of all, and the types of narrow ones."""
    constants: dict[str, torch.Tensor] = {}
    narrow: dict[str, torch.dtype] = {}
    for i, proto in enumerate(graph.initializer):
        if proto.data_type not in DTYPES:
            continue
        tensor = constants[proto.name] = to_tensor(proto)
        if DTYPES[proto.data_type] != tensor.dtype:
            narrow[proto.name] = DTYPES[proto.data_type]
        small = onnx.TensorProto(name=proto.name, data_type=proto.data_type, dims=proto.dims)
        if tensor.numel() <= LIMIT:
            raw = tensor.contiguous()
            raw = raw.view(torch.int16) if tensor.dtype == torch.bfloat16 else raw
            small.raw_data = raw.numpy().tobytes()
        graph.initializer[i].CopyFrom(small)
    return constants, narrow


def _constant_value(node: onnx.NodeProto) -> onnx.TensorProto | None:
    if node.op_type != "Constant" or node.domain not in ("", "ai.onnx"):
        return None

    def malformed(reason: str) -> CompileError:
        return OnnxError("import", f"ONNX node {node.name!r}: Constant {reason}")

    # torch-mlir's conversion does not end for a Constant that is not the standard's.
    if len(node.attribute) != 1 or node.input or len(node.output) != 1:
        counts = f"{len(node.attribute)} attributes, {len(node.input)} inputs, {len(node.output)} outputs"
        raise malformed(f"must have one attribute, no input and one output, got {counts}")
    attribute = node.attribute[0]
    if attribute.name == "value" and attribute.type == onnx.AttributeProto.TENSOR:
        return attribute.t
    types = {
        "value_float": np.float32,
        "value_floats": np.float32,
        "value_int": np.int64,
        "value_ints": np.int64,
    }
    if attribute.name in ("sparse_value", "value_string", "value_strings"):
        return None
    if attribute.name not in types:
        raise malformed(f"has no value: its attribute is {attribute.name!r}")
    try:
        value = onnx.helper.get_attribute_value(attribute)
        return numpy_helper.from_array(np.asarray(value, dtype=types[attribute.name]))
    except (TypeError, ValueError, OverflowError) as error:
        raise malformed(f"has a malformed {attribute.name}: {error}") from error
