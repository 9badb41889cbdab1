"""Element types of less than 16 bits that no processor computes with: they are stored, and converted when read.

Integers of 4 and 2 bits are stored as bytes with their value, floats of 8 and 4 bits as bytes with their bits (PyTorch
packs two of 4 bits; here each has its own). Conversions to floats round to even, as ``arith.truncf`` does.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch_mlir import ir
from torch_mlir.dialects import arith

from . import dtypes, scalar
from .scalar import Elem


@dataclass(frozen=True)
class Format:
    """A small float: a sign, the exponent, ``mantissa`` bits of mantissa."""

    mantissa: int
    bias: int
    largest: int
    """The code of the largest finite number."""
    infinity: int | None
    nan: int | None
    sign: int = 0x80

    @property
    def unsigned_zero(self) -> bool:
        """Whether the code of -0 is that of NaN."""
        return self.nan == self.sign


SCALE = torch.float8_e8m0fnu
"""A power of two: an f32's exponent alone. 255 is NaN."""

FLOATS = {
    torch.float8_e4m3fn: Format(3, 7, 0x7E, None, 0x7F),
    torch.float8_e4m3fnuz: Format(3, 8, 0x7F, None, 0x80),
    torch.float8_e5m2: Format(2, 15, 0x7B, 0x7C, 0x7F),
    torch.float8_e5m2fnuz: Format(2, 16, 0x7F, None, 0x80),
    torch.float4_e2m1fn_x2: Format(1, 1, 0x7, None, None, 0x8),
}


def _bits_of(x: Elem) -> Elem:
    """The bits of an f32."""
    return Elem(arith.BitcastOp(ir.IntegerType.get_signless(32), x.value).result, torch.int32)


def _with_bits(x: Elem) -> Elem:
    """The f32 with the bits ``x``."""
    return Elem(arith.BitcastOp(ir.F32Type.get(), x.value).result, torch.float32)


def _shift_left(x: Elem, count: int) -> Elem:
    return Elem(arith.ShLIOp(x.value, x.like(count).value).result, x.dtype)


def decode(x: Elem) -> Elem:
    """An element of a narrow type as one of a type to compute with."""
    stored = Elem(x.value, dtypes.storage(x.dtype))
    if x.dtype == SCALE:
        code = stored.to(torch.int32)
        # The least is a subnormal f32.
        bits = scalar.select(code.eq(0), code.like(1 << 22), _shift_left(code, 23))
        return scalar.select(code.eq(0xFF), scalar.constant(math.nan, torch.float32), _with_bits(bits))
    if x.dtype not in FLOATS:
        return stored
    form = FLOATS[x.dtype]
    code = stored.to(torch.int32)
    magnitude = code & (form.sign - 1)
    # In the place of an f32's exponent and mantissa, and the difference of the biases by a product: subnormals too.
    value = _with_bits(_shift_left(magnitude, 23 - form.mantissa)) * math.ldexp(1.0, 127 - form.bias)
    if form.infinity is not None:
        value = scalar.select(magnitude >= form.infinity, value.like(math.inf), value)
        value = scalar.select(magnitude > form.infinity, value.like(math.nan), value)
    value = _with_bits(_bits_of(value) | _shift_left(code & form.sign, 32 - form.sign.bit_length()))
    if form.infinity is None and form.nan is not None:
        value = scalar.select((code if form.unsigned_zero else magnitude).eq(form.nan), value.like(math.nan), value)
    return value


def encode_scale(x: Elem, saturate: bool, round_mode: str) -> Elem:
    """The power of two "up", "down" or "nearest" (away from zero in the middle) from ``x``, whose sign is lost."""
    bits = _bits_of(x.to(torch.float32))
    exponent = scalar.shift_down(bits, 23) & 0xFF
    above = (bits & 0x7FFFFF) > (0 if round_mode == "up" else 0x3FFFFF)
    if round_mode == "nearest":
        # Half of the least one is nearest to 0, which is not there: the least one stands for it.
        above = above & ((exponent > 0) | ((bits & 0x7FFFFF) > 0x400000))
    if saturate:
        above = above & exponent.ne(0xFE)
    code = exponent if round_mode == "down" else scalar.select(above & exponent.ne(0xFF), exponent + 1, exponent)
    return Elem(code.to(torch.uint8).value, SCALE)


def encode(x: Elem, dtype: torch.dtype, saturate: bool = False) -> Elem:
    """``x`` in a narrow type; floats too large become the largest with ``saturate``, else infinite or NaN."""
    if dtype == SCALE:
        return encode_scale(x, saturate, "nearest")
    if dtype not in FLOATS:
        # The low bits, as an integer of a byte.
        byte = x.to(torch.int64).to(dtypes.storage(dtype))
        count = 8 - dtypes.narrow_bits(dtype)
        shift = arith.ShRUIOp if dtypes.is_unsigned(dtype) else arith.ShRSIOp
        return Elem(shift(_shift_left(byte, count).value, byte.like(count).value).result, dtype)
    form = FLOATS[dtype]
    bits = _bits_of(x.to(torch.float32))
    size = bits & 0x7FFFFFFF
    magnitude = _with_bits(size)
    dropped = 23 - form.mantissa
    # Subnormals: a sum whose last bit is worth the smallest of them; it rounds to even.
    step = _bits_of(magnitude.like(math.ldexp(1.0, 23 - form.bias - form.mantissa + 1)))
    small = _bits_of(magnitude + _with_bits(step)) - step
    odd = scalar.shift_down(size, dropped) & 1
    normal = scalar.shift_down(size + odd + ((1 << (dropped - 1)) - 1), dropped) - ((127 - form.bias) << form.mantissa)
    code = scalar.select(magnitude < math.ldexp(1.0, 1 - form.bias), small, normal)
    beyond = form.largest
    if not saturate:
        beyond = next((c for c in (form.infinity, form.nan) if c is not None), form.largest)
    code = scalar.select(code > form.largest, code.like(beyond), code)
    sign = scalar.shift_down(bits, 32 - form.sign.bit_length()) & form.sign
    if form.nan is None:
        # NaN is -0 where there is nothing better.
        unordered = size > 0x7F800000
        code = scalar.select(unordered, code.like(0), code)
        sign = scalar.select(unordered, sign.like(form.sign), sign)
    else:
        code = scalar.select(size > 0x7F800000, code.like(form.nan), code)
    if form.unsigned_zero:
        sign = scalar.select(code.eq(0) | code.eq(form.nan), sign.like(0), sign)
    return Elem((code | sign).to(torch.uint8).value, dtype)
