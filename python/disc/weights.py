"""Files of weights for ahead-of-time libraries, in the safetensors format (https://github.com/huggingface/safetensors).

The package of that name writes such files too. Here tensors begin at multiples of 64 bytes wherever their sizes allow,
which the kernels that read them in place are faster for.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO, TypeAlias

import numpy as np
import torch

ALIGNMENT = 64
"""Bytes of a cache line."""

NAMES = {
    torch.bool: "BOOL",
    torch.uint8: "U8",
    torch.uint16: "U16",
    torch.uint32: "U32",
    torch.uint64: "U64",
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
class StoredBytes:
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


StoredTensor: TypeAlias = "torch.Tensor | StoredBytes"


def write_weights(
    to: str | os.PathLike[str] | BinaryIO,
    tensors: Mapping[str, StoredTensor],
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Writes ``tensors`` to a safetensors file; contents are copied row-major, one tensor at a time.

    With ``metadata`` the file has these texts, and under ``"sha256"`` the :func:`header_hash` continued over everything
    after the header. A file object must be able to seek.
    """
    # Tensors whose size is not a multiple of a cache line come last, so that the others stay aligned.
    order = sorted(tensors, key=lambda name: tensors[name].nbytes % ALIGNMENT != 0)
    header: dict[str, Any] = {}
    if metadata is not None:
        header["__metadata__"] = {"sha256": _NO_HASH, **metadata}
    offset = 0
    for name in order:
        tensor = tensors[name]
        if tensor.dtype not in NAMES:
            raise TypeError(f"parameter {name!r}: {tensor.dtype} has no place in a file of weights")
        header[name] = {
            "dtype": NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [offset, offset + tensor.nbytes],
        }
        offset += tensor.nbytes
    text = _text(header)
    digest = None if metadata is None else header_hash(header)
    text += b" " * (-(len(text) + 8) % ALIGNMENT)
    with open(to, "wb") if isinstance(to, (str, os.PathLike)) else contextlib.nullcontext(to) as file:
        begin = file.tell()
        file.write(len(text).to_bytes(8, "little"))
        file.write(text)
        for name in order:
            for part in _parts(tensors[name]):
                file.write(part)
                if digest is not None:
                    digest.update(part)
        if digest is not None:
            # Of what was written: a tensor may have changed meanwhile.
            file.seek(begin + 8 + text.index(_NO_HASH.encode()))
            file.write(digest.hexdigest().encode())


_NO_HASH = "0" * 64


def _text(header: Mapping[str, Any]) -> bytes:
    return json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()


def header_hash(header: Mapping[str, Any]) -> hashlib._Hash:
    """The SHA-256 of a file's header, in which the hash itself is zeros."""
    return hashlib.sha256(_text({**header, "__metadata__": {**header["__metadata__"], "sha256": _NO_HASH}}))


def _parts(tensor: StoredTensor) -> Iterator[Any]:
    """The contents of a tensor."""
    if isinstance(tensor, StoredBytes):
        yield tensor.data.data
        yield bytes(tensor.nbytes - tensor.data.nbytes)
    elif tensor.numel() != 0:
        data: np.ndarray = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
        yield data.data
