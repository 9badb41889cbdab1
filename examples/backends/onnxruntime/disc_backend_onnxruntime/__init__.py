"""ONNX Runtime as a back end of DISC, for operations that DISC cannot compile.

A region becomes an ONNX model, which a session runs on the host's memory. :data:`NODES` says which operators it knows;
a user adds the ONNX operators that custom ones of PyTorch are:

>>> disc_backend_onnxruntime.NODES["mylib.hardmax"] = Node("Hardmax", 13)
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from disc.backends import Backend, Dim, Match, Operation, Pattern, PythonFunction, Region, Value, op


@dataclass(frozen=True)
class Node:
    """What an operator is in ONNX: its tensors are the inputs, in order, and its other arguments the attributes."""

    type: str
    opset: int
    """The first version of ONNX's operators that has it so."""
    domain: str = ""


NODES = {
    "onnx.Attention.opset23": Node("Attention", 23),
    "onnx.RotaryEmbedding.opset23": Node("RotaryEmbedding", 23),
}
"""By the operator's name, without overload where there is but one."""

_ELEMENTS = {
    "float32": "FLOAT",
    "float64": "DOUBLE",
    "float16": "FLOAT16",
    "int64": "INT64",
    "int32": "INT32",
    "int8": "INT8",
    "uint8": "UINT8",
    "bool": "BOOL",
}


def _check(match: Match) -> str | None:
    operation = match.root
    if not operation.unsupported:
        return "DISC compiles it"
    others = {value.dtype for value in (*operation.inputs, *operation.results)} - set(_ELEMENTS)
    if others:
        return f"ONNX Runtime gets no tensors of {', '.join(sorted(others))}"
    for name, argument in zip(operation.names, operation.args, strict=True):
        if isinstance(argument, Dim) or (isinstance(argument, list) and any(isinstance(x, Dim) for x in argument)):
            return f"its argument {name} is dynamic, and an attribute in ONNX"
    return None


class OnnxRuntime(Backend):
    """``disc.compile(..., backends=["onnxruntime"])``. Not for libraries: the session belongs to this process."""

    name = "onnxruntime"

    def patterns(self) -> list[Pattern]:
        return [Pattern(node.type, op(name), _check) for name, node in NODES.items()]

    def accept(self, region: Region) -> str | None:
        missing = [name for name in ("onnx", "onnxruntime") if importlib.util.find_spec(name) is None]
        return f"the package {missing[0]} is missing" if missing else None

    def compile(self, region: Region) -> PythonFunction:
        # The extents of the results come with each call.
        return PythonFunction(
            function=_session(region), numbers=[dim for value in region.results for dim in value.dims]
        )


def model_of(region: Region) -> Any:
    """The ``onnx.ModelProto`` of a region; inputs are ``i0``..., results ``r0``..."""
    from onnx import TensorProto, helper

    names: dict[Value, str] = {value: f"i{i}" for i, value in enumerate(region.run_inputs)}
    for i, operation in enumerate(region.operations):
        names |= {value: f"v{i}_{value.index}" for value in operation.results}
    names |= {value: f"r{i}" for i, value in enumerate(region.results)}

    def info(value: Value) -> Any:
        # Names of dynamic extents need not agree: a session checks them only where they are numbers.
        dims = [int(dim) if dim.is_static else None for dim in value.dims]
        return helper.make_tensor_value_info(names[value], getattr(TensorProto, _ELEMENTS[value.dtype]), dims)

    graph = helper.make_graph(
        [_node(operation, names, helper) for operation in region.operations],
        region.name,
        [info(value) for value in region.run_inputs],
        [info(value) for value in region.results],
    )
    versions: dict[str, int] = {"": 1}
    for operation in region.operations:
        node = NODES[operation.name]
        versions[node.domain] = max(versions.get(node.domain, 1), node.opset)
    opsets = [helper.make_opsetid(domain, version) for domain, version in versions.items()]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def _node(operation: Operation, names: dict[Value, str], helper: Any) -> Any:
    node = NODES[operation.name]
    inputs: list[str] = []
    attributes: dict[str, Any] = {}
    tensors = [i for i, argument in enumerate(operation.args) if isinstance(argument, Value)]
    for i, (name, argument) in enumerate(zip(operation.names, operation.args, strict=True)):
        if isinstance(argument, Value):
            inputs.append(names[argument])
        elif argument is None:
            inputs += [""] if tensors and i < tensors[-1] else []  # An input that is left out.
        else:
            attributes[name] = int(argument) if isinstance(argument, bool) else argument
    outputs = [names[value] for value in operation.results]
    return helper.make_node(node.type, inputs, outputs, domain=node.domain, **attributes)


def _session(region: Region) -> Callable[..., tuple[torch.Tensor, ...]]:
    """A function that runs a region; the session reads inputs and writes results where they are."""
    import numpy
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    model = model_of(region).SerializeToString()
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    elements = [numpy.dtype(value.dtype) for value in (*region.run_inputs, *region.results)]
    results = [(value.rank, getattr(torch, value.dtype)) for value in region.results]
    count = len(region.run_inputs)
    # Inputs that no node reads are not in the model that the session runs.
    known = {given.name for given in session.get_inputs()}

    def run(*arguments: Any) -> tuple[torch.Tensor, ...]:
        given = [tensor.contiguous() for tensor in arguments[:count]]  # A copy only of one with gaps.
        extents = iter(arguments[count:])
        made = [torch.empty([next(extents) for _ in range(rank)], dtype=dtype) for rank, dtype in results]
        if not any(tensor.numel() for tensor in made):
            return tuple(made)  # Some of ONNX Runtime's kernels refuse empty tensors.
        binding = session.io_binding()
        for i, (tensor, element) in enumerate(zip(given, elements, strict=False)):
            if f"i{i}" in known:
                binding.bind_input(f"i{i}", "cpu", 0, element, list(tensor.shape), tensor.data_ptr())
        for i, (tensor, element) in enumerate(zip(made, elements[count:], strict=True)):
            binding.bind_output(f"r{i}", "cpu", 0, element, list(tensor.shape), tensor.data_ptr())
        session.run_with_iobinding(binding)
        return tuple(made)

    return run
