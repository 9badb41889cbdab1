"""Maps, which classifiers of scikit-learn return: supported where they are outputs of the model."""

from __future__ import annotations

import onnx

from ...errors import OnnxError


def maps_of_outputs(graph: onnx.GraphProto) -> dict[str, tuple[int | str, ...]]:
    """Makes each ZipMap whose result is nothing but an output the identity; the keys by the names of the outputs."""
    outputs = {o.name: o for o in graph.output}
    read = {name for node in graph.node for name in node.input}
    found: dict[str, tuple[int | str, ...]] = {}
    for node in graph.node:
        if node.op_type != "ZipMap" or node.domain != "ai.onnx.ml" or node.output[0] not in outputs.keys() - read:
            continue
        attributes = {a.name: a for a in node.attribute}
        texts = attributes["classlabels_strings"].strings if "classlabels_strings" in attributes else ()
        numbers = attributes["classlabels_int64s"].ints if "classlabels_int64s" in attributes else ()
        found[node.output[0]] = (*(text.decode() for text in texts), *numbers)
        outputs[node.output[0]].ClearField("type")
        node.op_type, node.domain = "Identity", ""
        del node.attribute[:]
    return found


def refuse_maps(graph: onnx.GraphProto, name: str, nodes: list[onnx.NodeProto]) -> None:
    """Raises for a node that makes maps, which the importer has no type for, and whose results it would not name."""
    values = (*graph.output, *graph.value_info)
    maps = {
        v.name for v in values if v.type.HasField("map_type") or v.type.sequence_type.elem_type.HasField("map_type")
    }
    for place, node in enumerate(nodes):
        if node.op_type != "ZipMap" and not maps & set(node.output):
            continue
        help = "; export the model without it (zipmap=False), or make its operand the output instead"
        raise OnnxError(
            "import",
            f"{name}#{node.name or node.op_type}:{place + 1}: {node.op_type}: its result is made of maps, which are not"
            f" supported{help if node.op_type == 'ZipMap' else ''}",
        )
