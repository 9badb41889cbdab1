"""Files of weights for ahead-of-time libraries, in the safetensors format (https://github.com/huggingface/safetensors).

The package of that name writes such files too. Here tensors begin at multiples of 64 bytes wherever their sizes allow,
which the kernels that read them in place are faster for.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np
import torch

ALIGNMENT = 64
"""Bytes of a cache line."""

_NAMES = {
    torch.bool: "BOOL",
    torch.uint8: "U8",
    torch.int8: "I8",
    torch.int16: "I16",
    torch.int32: "I32",
    torch.int64: "I64",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float32: "F32",
    torch.float64: "F64",
}


def packed_name(cpu: str, number: int) -> str:
    """The name of the bytes of global ``number``, as the code for ``cpu`` packs it."""
    return f"disc.packed.{cpu}.{number}"


@dataclass(frozen=True)
class PaddedBytes:
    """Bytes of another owner, stored as a tensor with zeros behind them up to a multiple of ``ALIGNMENT``."""

    data: np.ndarray

    @property
    def nbytes(self) -> int:
        """The size with the zeros."""
        return -(-self.data.nbytes // ALIGNMENT) * ALIGNMENT

    @property
    def shape(self) -> tuple[int]:
        """That of the tensor."""
        return (self.nbytes,)

    dtype = torch.uint8


def write_weights(path: str | os.PathLike[str], tensors: Mapping[str, torch.Tensor | PaddedBytes]) -> None:
    """Writes ``tensors`` to a safetensors file; contents are copied row-major, one tensor at a time."""
    # What is no multiple of a cache line comes last, so that the rest stays aligned.
    order = sorted(tensors, key=lambda name: tensors[name].nbytes % ALIGNMENT != 0)
    header: dict[str, object] = {}
    offset = 0
    for name in order:
        tensor = tensors[name]
        if tensor.dtype not in _NAMES:
            raise TypeError(f"parameter {name!r}: {tensor.dtype} has no place in a file of weights")
        header[name] = {
            "dtype": _NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [offset, offset + tensor.nbytes],
        }
        offset += tensor.nbytes
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-(len(text) + 8) % ALIGNMENT)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little"))
        file.write(text)
        for name in order:
            _write(file, tensors[name])


def _write(file: BinaryIO, tensor: torch.Tensor | PaddedBytes) -> None:
    if isinstance(tensor, PaddedBytes):
        file.write(tensor.data.data)
        file.write(bytes(tensor.nbytes - tensor.data.nbytes))
    elif tensor.numel() != 0:
        data: np.ndarray = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
        file.write(data.data)
