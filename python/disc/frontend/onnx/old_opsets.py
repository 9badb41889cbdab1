"""Models of opsets that ONNX itself converts to a newer one, and what its converter leaves undone."""

from __future__ import annotations

import onnx
from onnx import version_converter

from ...errors import OnnxError

OLDEST = 9
"""Models of an older opset are converted to OPSET first."""
OPSET = 17


def current(proto: onnx.ModelProto, name: str) -> onnx.ModelProto:
    """The model in an opset that the importer knows; changes ``proto``. ``name`` is the file's."""
    version = next((o.version for o in proto.opset_import if o.domain in ("", "ai.onnx")), OPSET)
    if version >= OLDEST:
        return proto
    if version < 9 and any(node.op_type == "Scan" for node in proto.graph.node):
        # The converter leaves it as it is, and it says something else from then on.
        raise OnnxError("import", f"the Scan of opset {version}, which has batches, is not supported: opset 9 has none")
    # Before version 4 of the format, initializers had to be inputs too, which writers did not always know.
    proto.ir_version = max(proto.ir_version, 4)
    if version < 7:
        _slopes_by_channel(proto, name)
    try:
        return version_converter.convert_version(proto, OPSET)
    except Exception as error:
        raise OnnxError("import", f"opset {version} cannot be converted to {OPSET}: {error}") from error


def _slopes_by_channel(proto: onnx.ModelProto, name: str) -> None:
    """Adds the dims that broadcast the slopes of PRelu: before opset 7 they are a list with one for each channel."""
    graph = proto.graph
    if not any(node.op_type == "PRelu" for node in graph.node):
        return
    inferred = onnx.shape_inference.infer_shapes(proto).graph
    types = {v.name: v.type.tensor_type for v in (*inferred.input, *inferred.output, *inferred.value_info)}
    ranks = {key: len(t.shape.dim) for key, t in types.items() if t.HasField("shape")}
    ranks |= {i.name: len(i.dims) for i in graph.initializer}
    nodes: list[onnx.NodeProto] = []
    for number, node in enumerate(graph.node):
        if node.op_type == "PRelu":
            x, slope = node.input
            if x not in ranks or slope not in ranks:
                place = f"{name}#{node.name or node.op_type}:{number + 1}"
                missing = x if x not in ranks else slope
                raise OnnxError("import", f"{place}: PRelu: the rank of its operand {missing!r} is not known")
            if ranks[slope] == 1 and ranks[x] > 2:
                wide = f"{node.output[0]}_slopes"
                axes = list(range(1, ranks[x] - 1))
                nodes.append(onnx.helper.make_node("Unsqueeze", [slope], [wide], f"{node.name}_slopes", axes=axes))
                node.input[1] = wide
        nodes.append(node)
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(copies)
