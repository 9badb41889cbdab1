"""Element types: torch's dtypes, MLIR's types, and the facts the rules need about them."""

from __future__ import annotations

import torch
from torch_mlir import ir

UNSIGNED = (torch.uint8, torch.uint16, torch.uint32, torch.uint64)
"""The integers whose sign MLIR's types lack."""

_MLIR_NAMES: dict[torch.dtype, str] = {
    torch.float64: "f64",
    torch.float32: "f32",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.int64: "i64",
    torch.int32: "i32",
    torch.int16: "i16",
    torch.int8: "i8",
    torch.uint8: "i8",
    torch.uint16: "i16",
    torch.uint32: "i32",
    torch.uint64: "i64",
    torch.bool: "i1",
    # Complex numbers are pairs along a last dim of extent 2.
    torch.complex64: "f32",
    torch.complex128: "f64",
}

# The torch dialect's spelling of an element type, which still has a sign.
_TORCH_DIALECT_NAMES: dict[str, torch.dtype] = {
    "f64": torch.float64,
    "f32": torch.float32,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "si64": torch.int64,
    "si32": torch.int32,
    "si16": torch.int16,
    "si8": torch.int8,
    "ui8": torch.uint8,
    "ui16": torch.uint16,
    "ui32": torch.uint32,
    "ui64": torch.uint64,
    "i1": torch.bool,
    "complex<f32>": torch.complex64,
    "complex<f64>": torch.complex128,
}

# c10::ScalarType, as the torch dialect passes dtypes.
_SCALAR_TYPE_CODES: dict[int, torch.dtype] = {
    0: torch.uint8,
    1: torch.int8,
    2: torch.int16,
    3: torch.int32,
    4: torch.int64,
    5: torch.float16,
    6: torch.float32,
    7: torch.float64,
    9: torch.complex64,
    10: torch.complex128,
    11: torch.bool,
    15: torch.bfloat16,
    27: torch.uint16,
    28: torch.uint32,
    29: torch.uint64,
}


def element_type(dtype: torch.dtype) -> ir.Type:
    """The MLIR element type of ``dtype``; integers are signless."""
    return ir.Type.parse(_MLIR_NAMES[dtype])


def is_supported(dtype: torch.dtype) -> bool:
    """Whether tensors of ``dtype`` can be compiled at all."""
    return dtype in _MLIR_NAMES


def from_torch_dialect(text: str) -> torch.dtype | None:
    """The dtype the torch dialect spells ``text`` (``si64``), or None if we do not support it."""
    return _TORCH_DIALECT_NAMES.get(text)


def from_code(code: int | None) -> torch.dtype | None:
    """The dtype behind a ``dtype`` argument of a torch op; None stays None."""
    return None if code is None else _SCALAR_TYPE_CODES.get(code)


def is_float(dtype: torch.dtype) -> bool:
    """Whether ``dtype`` is a floating point type."""
    return dtype.is_floating_point


def is_complex(dtype: torch.dtype) -> bool:
    """Whether elements are complex numbers: in the IR, pairs along one more dim."""
    return dtype.is_complex


def part(dtype: torch.dtype) -> torch.dtype:
    """The type of the real part of numbers of ``dtype``."""
    return {torch.complex64: torch.float32, torch.complex128: torch.float64}.get(dtype, dtype)


def is_unsigned(dtype: torch.dtype) -> bool:
    """Whether integers of ``dtype`` widen with zeros (bool counts)."""
    return dtype == torch.bool or dtype in UNSIGNED


def is_half(dtype: torch.dtype) -> bool:
    """Whether ``dtype`` is one of the 16-bit floating point types."""
    return dtype in (torch.float16, torch.bfloat16)


def opmath(dtype: torch.dtype) -> torch.dtype:
    """The type PyTorch computes in for operands of ``dtype``: f32 for the half types."""
    return torch.float32 if is_half(dtype) else dtype


def bits(dtype: torch.dtype) -> int:
    """Width of an element in bits; 1 for bool."""
    return 1 if dtype == torch.bool else dtype.itemsize * 8


def lowest(dtype: torch.dtype) -> int | float | bool:
    """The neutral element of ``max``."""
    if is_float(dtype):
        return float("-inf")
    return False if dtype == torch.bool else torch.iinfo(dtype).min


def highest(dtype: torch.dtype) -> int | float | bool:
    """The neutral element of ``min``."""
    if is_float(dtype):
        return float("inf")
    return True if dtype == torch.bool else torch.iinfo(dtype).max
