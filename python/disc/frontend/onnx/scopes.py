"""Names of values: unique in all graphs of a model, and all initializers in the main graph."""

from __future__ import annotations

from collections.abc import Mapping

import onnx


def hoist_initializers(graph: onnx.GraphProto) -> None:
    """Moves the initializers of inner graphs to the main one; renames inner values whose names are in use elsewhere.

    Each branch of an If has a scope of its own, so that files may use a name in both.
    """
    taken = _defined(graph)
    hoisted: list[onnx.TensorProto] = []
    for node in graph.node:
        for attribute in node.attribute:
            for inner in _graphs(attribute):
                _rename(inner, {}, taken, hoisted)
    graph.initializer.extend(hoisted)


def _graphs(attribute: onnx.AttributeProto) -> list[onnx.GraphProto]:
    return [attribute.g] if attribute.type == onnx.AttributeProto.GRAPH else list(attribute.graphs)


def _defined(graph: onnx.GraphProto) -> set[str]:
    values = (*graph.input, *graph.initializer)
    return {v.name for v in values} | {name for node in graph.node for name in node.output}


def _rename(graph: onnx.GraphProto, outer: Mapping[str, str], taken: set[str], hoisted: list[onnx.TensorProto]) -> None:
    names = dict(outer)
    for name in sorted(_defined(graph)):
        candidate, count = name, 1
        while candidate and candidate in taken:
            candidate, count = f"{name}_{count}", count + 1
        taken.add(candidate)
        names[name] = candidate
    for initializer in graph.initializer:
        moved = onnx.TensorProto()
        moved.CopyFrom(initializer)
        moved.name = names[initializer.name]
        hoisted.append(moved)
    del graph.initializer[:]
    for value in (*graph.input, *graph.output, *graph.value_info):
        value.name = names.get(value.name, value.name)
    for node in graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
        for attribute in node.attribute:
            for inner in _graphs(attribute):
                _rename(inner, names, taken, hoisted)
