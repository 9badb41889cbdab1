"""How GGUF files store weights: blocks of bytes, and the codes, scales and offsets in them.

The formats are those of ggml (https://github.com/ggml-org/ggml, ``src/ggml-common.h``). Scales that a block shares are
f16; the formats for 256 weights (``..._K``) multiply them by a small integer for each group.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from .coded import Codes, packed

Bytes = NDArray[np.uint8]


@dataclass(frozen=True)
class Block:
    """What a block has, all for the same number of blocks."""

    codes: NDArray[np.uint8] | NDArray[np.int8]
    """[blocks, weights]."""
    scales: NDArray[np.float16] | NDArray[np.float32]
    """[blocks, groups]."""
    offsets: NDArray[np.float32] | None = None
    zero: int = 0
    bits: int = 8


def _half(block: Bytes, at: int) -> NDArray[np.float16]:
    """The f16 at this byte of each block: [blocks, 1]."""
    return np.ascontiguousarray(block[:, at : at + 2]).view(np.float16)


def _wide(block: Bytes, at: int) -> NDArray[np.float32]:
    return _half(block, at).astype(np.float32)


def _fields(data: Bytes, bits: int, run: int) -> Bytes:
    """Numbers of ``bits`` each: first those in the low bits of ``run`` bytes, then those in the next bits, ..."""
    runs = data.reshape(len(data), -1, 1, run)
    shifts = np.arange(0, 8, bits, dtype=np.uint8).reshape(-1, 1)
    return ((runs >> shifts) & np.uint8((1 << bits) - 1)).reshape(len(data), -1)


def _bits(data: Bytes) -> Bytes:
    """The bits of 4 bytes, the lowest first."""
    return np.unpackbits(np.ascontiguousarray(data), axis=1, bitorder="little")


def _q4_0(b: Bytes) -> Block:
    return Block(_fields(b[:, 2:], 4, 16), _half(b, 0), zero=8, bits=4)


def _q4_1(b: Bytes) -> Block:
    return Block(_fields(b[:, 4:], 4, 16), _half(b, 0), _wide(b, 2), bits=4)


def _q5_0(b: Bytes) -> Block:
    codes = _fields(b[:, 6:], 4, 16) | _bits(b[:, 2:6]) << 4
    return Block(codes.astype(np.int8) - np.int8(16), _half(b, 0))


def _q5_1(b: Bytes) -> Block:
    return Block(_fields(b[:, 8:], 4, 16) | _bits(b[:, 4:8]) << 4, _half(b, 0), _wide(b, 2))


def _q8_0(b: Bytes) -> Block:
    return Block(np.ascontiguousarray(b[:, 2:]).view(np.int8), _half(b, 0))


def _q2_k(b: Bytes) -> Block:
    scales, low = b[:, :16] & 15, b[:, :16] >> 4
    return Block(_fields(b[:, 16:80], 2, 32), scales * _wide(b, 80), -(low * _wide(b, 82)), bits=4)


def _q3_k(b: Bytes) -> Block:
    low, high = _fields(b[:, 96:104], 4, 8), _fields(b[:, 104:108], 2, 4)
    scales = (low | high << 4).astype(np.float32) - 32
    codes = _fields(b[:, 32:96], 2, 32) | _fields(b[:, :32], 1, 32) << 2
    return Block(codes, scales * _wide(b, 108), zero=4, bits=4)


def _six_bits(b: Bytes) -> tuple[Bytes, Bytes]:
    """Scales and minima of eight groups, which share 12 bytes."""
    first, second, rest = b[:, :4], b[:, 4:8], b[:, 8:]
    scales = np.concatenate([first & 63, rest & 15 | first >> 6 << 4], axis=1)
    return scales, np.concatenate([second & 63, rest >> 4 | second >> 6 << 4], axis=1)


def _q4_k(b: Bytes) -> Block:
    scales, low = _six_bits(b[:, 4:16])
    return Block(_fields(b[:, 16:], 4, 32), scales * _wide(b, 0), -(low * _wide(b, 2)), bits=4)


def _q5_k(b: Bytes) -> Block:
    scales, low = _six_bits(b[:, 4:16])
    codes = _fields(b[:, 48:], 4, 32) | _fields(b[:, 16:48], 1, 32) << 4
    return Block(codes, scales * _wide(b, 0), -(low * _wide(b, 2)))


def _q6_k(b: Bytes) -> Block:
    codes = (_fields(b[:, :128], 4, 64) | _fields(b[:, 128:192], 2, 32) << 4).astype(np.int8) - np.int8(32)
    return Block(codes, np.ascontiguousarray(b[:, 192:208]).view(np.int8) * _wide(b, 208))


FORMATS: dict[str, Callable[[Bytes], Block]] = {
    "Q4_0": _q4_0,
    "Q4_1": _q4_1,
    "Q5_0": _q5_0,
    "Q5_1": _q5_1,
    "Q8_0": _q8_0,
    "Q2_K": _q2_k,
    "Q3_K": _q3_k,
    "Q4_K": _q4_k,
    "Q5_K": _q5_k,
    "Q6_K": _q6_k,
}
"""By the name that ggml has for the format."""

_ROWS_AT_ONCE = 512


def codes_of(data: Bytes, name: str, block_bytes: int) -> Codes:
    """The codes of a matrix.

    Args:
        data: [rows, bytes of a row].
        name: the format, one of :data:`FORMATS`.
        block_bytes: the bytes of a block, which divide those of a row.
    """
    parts = [_rows(data[at : at + _ROWS_AT_ONCE], name, block_bytes) for at in range(0, len(data), _ROWS_AT_ONCE)]
    first = parts[0]
    offsets = None if first.offsets is None else torch.cat([p.offsets for p in parts if p.offsets is not None])
    return Codes(
        torch.cat([p.codes for p in parts]), torch.cat([p.scales for p in parts]), offsets, first.zero, first.bits
    )


def _rows(data: Bytes, name: str, block_bytes: int) -> Codes:
    block = FORMATS[name](data.reshape(-1, block_bytes))
    rows = len(data)
    codes = torch.from_numpy(block.codes.reshape(rows, -1))
    scales = torch.from_numpy(block.scales.reshape(rows, -1))
    offsets = None if block.offsets is None else torch.from_numpy(block.offsets.reshape(rows, -1))
    return Codes(packed(codes) if block.bits == 4 else codes, scales, offsets, block.zero, block.bits)
