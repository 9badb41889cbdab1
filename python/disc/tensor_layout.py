"""Where PyTorch stores the words that change with a tensor, found out by watching a tensor of our own change."""

from __future__ import annotations

import functools
import os
import struct
from typing import NamedTuple

import torch

# Words of a tensor that are looked at.
_WORDS = 24
_WORD = 8


class Layout(NamedTuple):
    """Where PyTorch stores what changes with a tensor, in bytes."""

    storage: int
    """From the tensor's implementation: the pointer to its storage."""
    counter: int
    """From there: the pointer to its version counter."""
    version: int
    """From the counter: the version."""
    owners: int | None
    """From the counter: how many tensors share it; None if that was not found."""
    data: int
    """From the storage: the address of its elements."""


def _read(memory: int, address: int, count: int) -> bytes:
    """Memory of this process; b"" where there is none, which a load would answer with a signal."""
    try:
        return os.pread(memory, count, address)
    except OSError:
        return b""


def _versions(memory: int, tensor: torch.Tensor) -> dict[tuple[int, int], int]:
    """The 32-bit words behind each pointer in a tensor's implementation, by the places of both."""
    found: dict[tuple[int, int], int] = {}
    words = _read(memory, tensor._cdata, _WORDS * _WORD)
    for at in range(0, len(words), _WORD):
        pointer = struct.unpack_from("Q", words, at)[0]
        block = _read(memory, pointer, 64) if 4096 <= pointer < 2**56 else b""
        if pointer % _WORD == 0 and len(block) == 64:
            found.update({(at, 4 * i): word for i, word in enumerate(struct.unpack("16I", block))})
    return found


@functools.cache
def layout() -> Layout | None:
    """Where this version of PyTorch keeps these words; None if that cannot be found out."""
    try:
        memory = os.open("/proc/self/mem", os.O_RDONLY)
    except OSError:
        return None
    try:
        with torch.inference_mode(False), torch.no_grad():
            tensor = torch.zeros(3)
            words = _read(memory, tensor._cdata, _WORDS * _WORD)
            storage = tensor.untyped_storage()._cdata
            storages = [at for at in range(0, len(words), _WORD) if struct.unpack_from("Q", words, at)[0] == storage]
            places = set(_versions(memory, tensor))
            for _ in range(4):
                found = _versions(memory, tensor)
                places &= {place for place, word in found.items() if word == tensor._version}
                tensor.add_(1)
            if len(storages) != 1 or len(places) != 1:
                return None
            counter, version = places.pop()
            owners = _owners(memory, tensor, counter, version)
            data = _data(memory)
    finally:
        os.close(memory)
    return None if data is None else Layout(storages[0], counter, version, owners, data)


def _data(memory: int) -> int | None:
    """Where a storage has the address of its elements; other words may be equal to it for what PyTorch allocates."""
    storage = torch.frombuffer(bytearray(64), dtype=torch.uint8).untyped_storage()
    words = _read(memory, storage._cdata, 8 * _WORD)
    places = [at for at in range(0, len(words), _WORD) if struct.unpack_from("Q", words, at)[0] == storage.data_ptr()]
    return places[0] if len(places) == 1 else None


def _owners(memory: int, tensor: torch.Tensor, counter: int, version: int) -> int | None:
    """Where a version counter says how many tensors share it: as references to it, before the version."""
    places = set(range(0, version, 4))
    for count in (0, 3, 1):
        others = [tensor.detach() for _ in range(count)]
        found = _versions(memory, tensor)
        places = {place for place in places if found.get((counter, place)) == 1 + count}
        del others
    return places.pop() if len(places) == 1 else None
