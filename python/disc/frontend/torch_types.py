"""What tensor types of the torch dialect say: ``!torch.vtensor<[?,4],f32>``.

torch-mlir's Python bindings have no class for them. Its C interface has functions, in the library that the bindings use
themselves; they are called here by ctypes. A type of the bindings is a capsule around the C interface's pointer.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import torch
from torch_mlir import _mlir_libs, ir

from . import dtypes
from .registry import NotLowerable
from .values import ResultInfo

_LIBRARY = ctypes.CDLL(str(Path(_mlir_libs.__path__[0]) / "libTorchMLIRAggregateCAPI.so"))
_CAPSULE = b"torch_mlir.ir.Type._CAPIPtr"


class _Type(ctypes.Structure):
    """``MlirType`` of the C interface."""

    _fields_ = (("ptr", ctypes.c_void_p),)


def _function(name: str, result: Any, *arguments: Any) -> Any:
    function = _LIBRARY[name]
    function.restype, function.argtypes = result, arguments
    return function


_is_value_tensor = _function("torchMlirTypeIsATorchValueTensor", ctypes.c_bool, _Type)
_has_sizes = _function("torchMlirTorchValueTensorTypeHasSizes", ctypes.c_bool, _Type)
_has_dtype = _function("torchMlirTorchValueTensorTypeHasDtype", ctypes.c_bool, _Type)
_get_rank = _function("torchMlirTorchValueTensorTypeGetRank", ctypes.c_int64, _Type)
_get_sizes = _function("torchMlirTorchValueTensorTypeGetSizes", ctypes.c_int64, _Type, ctypes.POINTER(ctypes.c_int64))
_get_dtype = _function("torchMlirTorchValueTensorTypeGetDtype", _Type, _Type)
_is_list = _function("torchMlirTypeIsATorchList", ctypes.c_bool, _Type)
_get_element = _function("torchMlirTorchListTypeGetContainedType", _Type, _Type)
_is_optional = _function("torchMlirTypeIsATorchOptional", ctypes.c_bool, _Type)
_is_string = _function("torchMlirTypeIsATorchString", ctypes.c_bool, _Type)
_get_contained = _function("torchMlirTorchOptionalTypeGetContained", _Type, _Type)

_pointer_in = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
_capsule_of = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", ctypes.pythonapi)
)


def _opened(type_: ir.Type) -> _Type:
    return _Type(_pointer_in(type_._CAPIPtr, _CAPSULE))


def _dtype(opened: _Type) -> torch.dtype | None:
    """The dtype of a tensor's elements; None if DISC does not support it."""
    element = ir.Type._CAPICreate(_capsule_of(_get_dtype(opened).ptr, _CAPSULE, None))
    return dtypes.from_torch_dialect(element.maybe_downcast())


def is_tensor(type_: ir.Type) -> bool:
    """Whether values of a type are tensors."""
    return bool(_is_value_tensor(_opened(type_)))


def holds_tensors(type_: ir.Type) -> bool:
    """Whether values of a type are tensors, lists of them, or a tensor or None."""
    opened = _opened(type_)
    while _is_list(opened) or _is_optional(opened):
        opened = _get_element(opened) if _is_list(opened) else _get_contained(opened)
    return bool(_is_value_tensor(opened))


def is_complex(type_: ir.Type) -> bool:
    """Whether values of a type are tensors of complex numbers."""
    opened = _opened(type_)
    if not _is_value_tensor(opened) or not _has_dtype(opened):
        return False
    dtype = _dtype(opened)
    return dtype is not None and dtype.is_complex


def result_info(type_: ir.Type) -> ResultInfo:
    """Dtype and shape of a tensor, None for a dynamic dim.

    Another value, a tensor of unknown rank, and strings, of which rules of ONNX's operators say what they need, have
    float32 without dims. NotLowerable if the elements have a type that DISC does not support.
    """
    opened = _opened(type_)
    if not _is_value_tensor(opened) or not _has_sizes(opened):
        return ResultInfo(torch.float32, ())
    if _has_dtype(opened) and _is_string(_get_dtype(opened)):
        return ResultInfo(torch.float32, ())
    dtype = _dtype(opened) if _has_dtype(opened) else None
    if dtype is None:
        raise NotLowerable(f"elements of {type_} are not supported")
    sizes = (ctypes.c_int64 * _get_rank(opened))()
    _get_sizes(opened, sizes)
    return ResultInfo(dtype, tuple(None if size < 0 else size for size in sizes))
