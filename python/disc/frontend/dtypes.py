"""Element types: torch's dtypes, MLIR's types, and the facts the rules need about them."""

from __future__ import annotations

import torch
from torch_mlir import ir

# The stubs lack them.
INT4: torch.dtype = torch.int4  # type: ignore[attr-defined]
INT2: torch.dtype = torch.int2  # type: ignore[attr-defined]
UINT4: torch.dtype = torch.uint4  # type: ignore[attr-defined]
UINT2: torch.dtype = torch.uint2  # type: ignore[attr-defined]

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

_STORAGE: dict[torch.dtype, torch.dtype] = {
    INT4: torch.int8,
    INT2: torch.int8,
    UINT4: torch.uint8,
    UINT2: torch.uint8,
    torch.float8_e4m3fn: torch.uint8,
    torch.float8_e4m3fnuz: torch.uint8,
    torch.float8_e5m2: torch.uint8,
    torch.float8_e5m2fnuz: torch.uint8,
    torch.float8_e8m0fnu: torch.uint8,
    torch.float4_e2m1fn_x2: torch.uint8,
}
"""Narrow types (see :mod:`~disc.frontend.narrow`), and the types that their elements are stored as."""

# Element types of the torch dialect, whose integers still have a sign.
_FLOATS: dict[type[ir.Type], torch.dtype] = {
    ir.F64Type: torch.float64,
    ir.F32Type: torch.float32,
    ir.F16Type: torch.float16,
    ir.BF16Type: torch.bfloat16,
    ir.Float8E4M3FNType: torch.float8_e4m3fn,
    ir.Float8E4M3FNUZType: torch.float8_e4m3fnuz,
    ir.Float8E5M2Type: torch.float8_e5m2,
    ir.Float8E5M2FNUZType: torch.float8_e5m2fnuz,
    ir.Float8E8M0FNUType: torch.float8_e8m0fnu,
}
_COMPLEX = {torch.float32: torch.complex64, torch.float64: torch.complex128}
_SIGNED = {8: torch.int8, 16: torch.int16, 32: torch.int32, 64: torch.int64}
_UNSIGNED = {8: torch.uint8, 16: torch.uint16, 32: torch.uint32, 64: torch.uint64}


def element_type(dtype: torch.dtype) -> ir.Type:
    """The MLIR element type of ``dtype``; integers are signless."""
    return ir.Type.parse(_MLIR_NAMES[storage(dtype)])


def is_supported(dtype: torch.dtype) -> bool:
    """Whether tensors of ``dtype`` can be inputs and parameters."""
    return dtype in _MLIR_NAMES or (is_float(dtype) and is_stored(dtype) and dtype != torch.float4_e2m1fn_x2)


def is_stored(dtype: torch.dtype) -> bool:
    """Whether tensors of ``dtype`` are passed to and from compiled code as integers with the same bits."""
    return dtype in _STORAGE


def storage(dtype: torch.dtype) -> torch.dtype:
    """The type of a tensor in memory: another one for narrow types."""
    return _STORAGE.get(dtype, dtype)


def narrow_bits(dtype: torch.dtype) -> int:
    """The width of integers that are stored as bytes."""
    return 2 if dtype in (INT2, UINT2) else 4


def from_torch_dialect(element: ir.Type) -> torch.dtype | None:
    """The dtype that an element type of the torch dialect is, or None if we do not support it."""
    if isinstance(element, ir.IntegerType):
        if element.is_signless:
            return torch.bool if element.width == 1 else None
        return (_SIGNED if element.is_signed else _UNSIGNED).get(element.width)
    if isinstance(element, ir.ComplexType):
        return _COMPLEX.get(_FLOATS.get(type(element.element_type), torch.bool))
    return _FLOATS.get(type(element))


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
    return dtype == torch.bool or storage(dtype) in UNSIGNED


def is_half(dtype: torch.dtype) -> bool:
    """Whether ``dtype`` is one of the 16-bit floating point types."""
    return dtype in (torch.float16, torch.bfloat16)


def opmath(dtype: torch.dtype) -> torch.dtype:
    """The type PyTorch computes in for operands of ``dtype``: f32 for the half types and narrower ones."""
    if is_half(dtype) or (is_float(dtype) and dtype in _STORAGE):
        return torch.float32
    return storage(dtype)


def bits(dtype: torch.dtype) -> int:
    """Width of an element in bits; 1 for bool."""
    return 1 if dtype == torch.bool else dtype.itemsize * 8


def limits(dtype: torch.dtype) -> tuple[int, int]:
    """The least and the largest integer of ``dtype``."""
    if storage(dtype) == dtype:
        return torch.iinfo(dtype).min, torch.iinfo(dtype).max
    count = narrow_bits(dtype)
    return (0, (1 << count) - 1) if is_unsigned(dtype) else (-(1 << (count - 1)), (1 << (count - 1)) - 1)


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
