"""Requests of the Open Inference Protocol (KServe v2) over HTTP, as JSON: the part that a replica needs.

``POST`` with ``{"inputs": [{"name", "shape", "datatype", "data"}]}`` is answered by ``{"outputs": [...]}``; any ``GET``
by the names, datatypes and shapes of the model's inputs and outputs, with -1 for dynamic sizes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import DeadlineError
from ..interface import DTYPES, Interface, TensorSpec
from .array_conversion import converted
from .joined_calls import Call

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

_NAMES: Mapping[str, str] = {
    dtype: "BF16" if dtype == "bfloat16" else dtype.replace("float", "fp").upper() for dtype in DTYPES
}


async def answer(
    request: Request,
    interface: Interface,
    array: Callable[[Any], Any],
    call: Callable[[Call], Awaitable[Sequence[Any]]],
) -> Response:
    """The response to a request.

    Args:
        request: the request.
        interface: the model's tensors.
        array: turns an array of NumPy into one that the model takes.
        call: answers a call of the model, with flat results.
    """
    from starlette.responses import JSONResponse

    if request.method != "POST":
        return JSONResponse({"inputs": _metadata(interface.inputs), "outputs": _metadata(interface.outputs)})
    try:
        if "inference-header-content-length" in request.headers:
            raise ValueError("tensors in binary form are not supported here; send JSON")
        body = json.loads(await request.body())
        inputs = _inputs(body, interface)
        wanted = _wanted(body, interface)
        results = await call(Call((), {name: array(value) for name, value in inputs.items()}))
    except (DeadlineError, MemoryError) as error:
        return JSONResponse({"error": str(error)}, 503)
    except (ValueError, TypeError, IndexError) as error:
        return JSONResponse({"error": str(error)}, 400)
    identifier = {"id": body["id"]} if "id" in body else {}
    found = dict(zip((spec.name for spec in interface.outputs), results, strict=True))
    outputs = [_output(spec, found[spec.name]) for spec in wanted]
    try:
        return JSONResponse({**identifier, "outputs": outputs})
    except ValueError:
        return JSONResponse({"error": "the results contain NaN or infinity, which JSON does not have"}, 500)


def _metadata(specs: Sequence[TensorSpec]) -> list[dict[str, Any]]:
    return [
        {
            "name": spec.name,
            "datatype": _NAMES[spec.dtype],
            "shape": [dim if isinstance(dim, int) else -1 for dim in spec.dims],
        }
        for spec in specs
    ]


def _inputs(body: Any, interface: Interface) -> dict[str, np.ndarray[Any, Any]]:
    """The inputs of a request by name; ValueError if the body is not one of the protocol."""
    tensors = body.get("inputs") if isinstance(body, dict) else None
    if not isinstance(tensors, list) or not all(isinstance(tensor, dict) for tensor in tensors):
        raise ValueError('the body must be a JSON object with a list "inputs" of objects')
    specs = {spec.name: spec for spec in interface.inputs}
    found: dict[str, np.ndarray[Any, Any]] = {}
    for tensor in tensors:
        name = tensor.get("name")
        if name not in specs or name in found:
            problem = "is given twice" if name in found else "does not exist"
            raise ValueError(f"input {name!r} {problem}; the inputs are: {', '.join(map(repr, specs))}")
        found[name] = _array(specs[name], tensor)
    return found


def _wanted(body: Mapping[str, Any], interface: Interface) -> Sequence[TensorSpec]:
    """The results that a request names; all of them if it names none."""
    if not body.get("outputs"):
        return interface.outputs
    specs: dict[Any, TensorSpec] = {spec.name: spec for spec in interface.outputs}
    names = [output.get("name") if isinstance(output, dict) else output for output in body["outputs"]]
    for name in names:
        if name not in specs:
            raise ValueError(f"output {name!r} does not exist; the outputs are: {', '.join(map(repr, specs))}")
    return [specs[name] for name in names]


def _array(spec: TensorSpec, tensor: Mapping[str, Any]) -> np.ndarray[Any, Any]:
    datatype, shape, data = (tensor.get(key) for key in ("datatype", "shape", "data"))
    if datatype != _NAMES[spec.dtype] or spec.dtype == "bfloat16":
        problem = "which JSON cannot have" if datatype == "BF16" else f"got {datatype!r}"
        raise ValueError(f"input {spec.name!r}, datatype: expected {_NAMES[spec.dtype]!r}, {problem}")
    if not isinstance(shape, list) or not all(type(extent) is int and extent >= 0 for extent in shape):
        raise ValueError(f"input {spec.name!r}, shape: expected a list of sizes, got {shape!r}")
    if not isinstance(data, list):
        raise ValueError(f"input {spec.name!r}, data: expected a list")
    try:
        array = converted(data, np.dtype(spec.dtype))
    except (ValueError, TypeError, OverflowError) as error:
        raise ValueError(f"input {spec.name!r}, data: expected {spec.dtype}; {error}") from None
    if array.size != math.prod(shape):
        raise ValueError(
            f"input {spec.name!r}, data: expected {math.prod(shape)} elements for {shape}, got {array.size}"
        )
    return array.reshape(shape)


def _output(spec: TensorSpec, result: Any) -> dict[str, Any]:
    data = result.reshape(-1).tolist()
    return {"name": spec.name, "datatype": _NAMES[spec.dtype], "shape": list(result.shape), "data": data}
