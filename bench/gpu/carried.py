"""Runs a compiled library by its C interface alone (disc.h): ctypes and torch are all that is needed."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import (
    CDLL,
    POINTER,
    Structure,
    byref,
    c_char_p,
    c_int32,
    c_int64,
    c_size_t,
    c_uint8,
    c_uint16,
    c_uint64,
    c_void_p,
)
from pathlib import Path

import torch
from torch import Tensor

_CODES = {
    torch.float32: (2, 32),
    torch.float16: (2, 16),
    torch.float64: (2, 64),
    torch.bfloat16: (4, 16),
    torch.int64: (0, 64),
    torch.int32: (0, 32),
    torch.int8: (0, 8),
    torch.uint8: (1, 8),
    torch.bool: (6, 8),
}
_DTYPES = {code: dtype for dtype, code in _CODES.items()}


class _DataType(Structure):
    _fields_ = (("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16))


class _Tensor(Structure):
    _fields_ = (
        ("data", c_void_p),
        ("device_type", c_int32),
        ("device_id", c_int32),
        ("ndim", c_int32),
        ("dtype", _DataType),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("byte_offset", c_uint64),
    )


class _Output(Structure):
    _fields_ = (("tensor", POINTER(_Tensor)), ("managed", c_void_p))


class _Options(Structure):
    _fields_ = (
        ("size", c_size_t),
        ("threads", c_int32),
        ("flags", ctypes.c_uint32),
        ("weights", c_char_p),
        *((name, c_void_p) for name in ("parallel_for", "parallel_context", "allocate", "release", "allocator")),
        ("device", c_int32),
        ("interrupted", c_void_p),
        ("interrupted_context", c_void_p),
    )


_TRUST_FILES = 1


class _ModelSpec(Structure):
    _fields_ = (
        ("size", c_size_t),
        ("name", c_char_p),
        ("cpu", c_char_p),
        ("version", ctypes.c_uint32),
        ("threads", c_int32),
        *((name, c_int64) for name in ("num_inputs", "num_outputs", "num_symbols", "num_parameters")),
    )


class _TensorSpec(Structure):
    _fields_ = (
        ("size", c_size_t),
        ("name", c_char_p),
        ("dtype", _DataType),
        ("ndim", c_int32),
        ("dims", c_void_p),
        ("min", c_void_p),
        ("max", c_void_p),
        ("flags", c_uint64),
    )


class _Call:
    """The arguments of a run for inputs of some shapes. The next one alike has other addresses only."""

    def __init__(self, key: tuple[object, ...], inputs: Sequence[Tensor], outputs: Sequence[tuple[torch.dtype, int]]):
        self.key = key
        self.views = [_view(t) for t in inputs]
        self.given = (POINTER(_Tensor) * len(inputs))(*(ctypes.pointer(v) for v in self.views))
        self.count, self.number = c_int64(len(inputs)), c_int64(len(outputs))
        self.device = inputs[0].device if inputs else torch.device("cpu")
        self.shapes = [(c_int64 * max(rank, 1))() for _, rank in outputs]
        self.places = (POINTER(c_int64) * len(outputs))(*(ctypes.cast(s, POINTER(c_int64)) for s in self.shapes))
        self.results: list[tuple[list[int], torch.dtype, _Tensor] | None] = []
        self.outputs = (_Output * len(outputs))()

    def describe(self, outputs: Sequence[tuple[torch.dtype, int]]) -> None:
        """Once `shapes` has the extents of the results."""
        for i, (shape, (dtype, rank)) in enumerate(zip(self.shapes, outputs, strict=True)):
            dims = list(shape)[:rank]
            # What data decides the run finds out, and gives a tensor of its own.
            if any(n < 0 for n in dims):
                self.results.append(None)
                continue
            view = _view(torch.empty(dims, dtype=dtype, device=self.device))
            self.results.append((dims, dtype, view))
            self.outputs[i].tensor = ctypes.pointer(view)

    def fill(self, inputs: Sequence[Tensor]) -> list[Tensor | None]:
        """Sets the addresses; new tensors for the results."""
        for view, tensor in zip(self.views, inputs, strict=True):
            view.data = tensor.data_ptr()
        made: list[Tensor | None] = []
        for result in self.results:
            if result is None:
                made.append(None)
                continue
            dims, dtype, view = result
            made.append(tensor := torch.empty(dims, dtype=dtype, device=self.device))
            view.data = tensor.data_ptr()
        return made


class Carried:
    """A library's model. Calls take tensors of one device, and return new ones there; one thread at a time.

    `weights` is a file of weights like that which was written with the library; contents may differ.
    """

    def __init__(self, path: Path, weights: Path | None = None):
        self._library = CDLL(str(path))
        self._library.disc_last_error.restype = c_char_p
        self._run_on = self._library.disc_run_on
        self._model = c_void_p()
        self._last: _Call | None = None
        options = _Options(size=ctypes.sizeof(_Options), weights=str(weights).encode(), flags=_TRUST_FILES)
        self._check(
            self._library.disc_load(str(path).encode(), byref(options) if weights else None, byref(self._model))
        )
        model = _ModelSpec(size=ctypes.sizeof(_ModelSpec))
        self._check(self._library.disc_describe(self._model, byref(model)))
        self._outputs: list[tuple[torch.dtype, int]] = []
        for i in range(model.num_outputs):
            spec = _TensorSpec(size=ctypes.sizeof(_TensorSpec))
            self._check(self._library.disc_describe_output(self._model, c_int64(i), byref(spec)))
            self._outputs.append((_DTYPES[spec.dtype.code, spec.dtype.bits], spec.ndim))

    def __call__(self, *inputs: Tensor) -> list[Tensor]:
        """Puts a run into torch's current stream."""
        call = self._prepared(inputs)
        made = call.fill(inputs)
        stream = _stream(call.device)
        self._check(self._run_on(self._model, stream, call.given, call.count, call.outputs, call.number))
        return [_taken(o.managed) if t is None else t for t, o in zip(made, call.outputs, strict=True)]

    def _prepared(self, inputs: Sequence[Tensor]) -> _Call:
        key = tuple((t.shape, t.stride(), t.dtype, t.device) for t in inputs)
        call = self._last
        if call is None or call.key != key:
            call = _Call(key, inputs, self._outputs)
            self._check(self._library.disc_output_shapes(self._model, call.given, call.count, call.places, call.number))
            call.describe(self._outputs)
            self._last = call
        return call

    def host_times(self, timer: CDLL, inputs: Sequence[Tensor], count: int) -> list[float]:
        """Microseconds that each of some calls keeps the host, from C: into the same outputs, without Python.

        None for a model with outputs of its own, which somebody would have to free.
        """
        call = self._prepared(inputs)
        made = call.fill(inputs)
        if any(t is None for t in made):
            return []
        times = (ctypes.c_double * count)()
        run = ctypes.cast(self._run_on, c_void_p)
        self._check(
            timer.time_runs(
                run,
                self._model,
                _stream(call.device),
                call.given,
                call.count,
                call.outputs,
                call.number,
                times,
                count,
            )
        )
        return list(times)

    def synchronize(self) -> None:
        """Waits for the current stream; an error of earlier runs is raised here."""
        stream = torch.cuda.current_stream().cuda_stream if torch.cuda.is_available() else None
        self._check(self._library.disc_synchronize(self._model, c_void_p(stream)))

    def close(self) -> None:
        """Frees the model."""
        self._library.disc_free(self._model)

    def _check(self, status: int) -> None:
        if status:
            raise RuntimeError(self._library.disc_last_error().decode())


def _stream(device: torch.device) -> c_void_p:
    return c_void_p(torch.cuda.current_stream().cuda_stream if device.type == "cuda" else None)


def _taken(managed: int) -> Tensor:
    """The tensor of a DLManagedTensorVersioned."""
    capsule = ctypes.pythonapi.PyCapsule_New
    capsule.restype, capsule.argtypes = ctypes.py_object, [c_void_p, c_char_p, c_void_p]
    return torch.from_dlpack(capsule(managed, b"dltensor_versioned", None))


def _view(tensor: Tensor) -> _Tensor:
    kinds = {"cpu": 1, "cuda": 10 if torch.version.hip else 2}
    shape = (c_int64 * max(tensor.ndim, 1))(*tensor.shape)
    strides = (c_int64 * max(tensor.ndim, 1))(*tensor.stride())
    code, bits = _CODES[tensor.dtype]
    device = tensor.device
    return _Tensor(
        tensor.data_ptr(),
        kinds[device.type],
        device.index or 0,
        tensor.ndim,
        _DataType(code, bits, 1),
        shape,
        strides,
        0,
    )
