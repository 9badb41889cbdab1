"""Counting in-place changes through ``tensor.data``, which leave the tensor's own version counter as it is.

``tensor.data`` returns another tensor of the same memory, with a version counter of its own. Once a model is compiled,
the property notes each alias of watched memory, so that ``weight.data.mul_(2)`` is seen as ``weight.mul_(2)`` is.
"""

from __future__ import annotations

import ctypes
import functools
import threading
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from . import _native
from .tensor_layout import Layout, layout
from .torch_compat.lasting import data_descriptor, data_of, replace_data
from .torch_compat.tensors import TensorBase, WeakTensorRef
from .torch_compat.tracing import DisableTorchFunction

# The dead ones are dropped when there are twice as many aliases as were alive the last time, and at least so many.
_FEW = 16

# By the storage's address, which is not reused while there are aliases.
_watched: dict[int, weakref.ref[Aliases]] = {}
_lock = threading.RLock()

_reads = 0


class _Alias(NamedTuple):
    """A tensor whose implementation, and so its version counter, stays readable when nobody else has it any more."""

    tensor: Any
    start: int
    """The version that it began with."""
    version: int
    """Where the version is stored."""
    owners: int | None
    """Where the counter says how many tensors share it."""

    @property
    def changes(self) -> int:
        return _word(self.version) - self.start

    @property
    def is_alive(self) -> bool:
        """Whether it, or a view of it, may still be changed."""
        return not self.tensor.expired() or self.owners is None or _word(self.owners) > 1


class Aliases:
    """The tensors that ``.data`` returned of one storage's tensors."""

    def __init__(self, storage: torch.UntypedStorage) -> None:
        from torch.multiprocessing.reductions import StorageWeakRef

        self._storage = StorageWeakRef(storage)
        self.reads = ctypes.c_uint32(0)
        """How often ``.data`` was read."""
        self._past = 0
        self._alive: list[_Alias] = []
        self._limit = _FEW

    @property
    def changes(self) -> int:
        """How often the memory was changed through any of them."""
        with _lock:
            return self._past + sum(alias.changes for alias in self._alive)

    def alive(self) -> list[_Alias]:
        """Those that may still be changed."""
        with _lock:
            self._forget_the_dead()
            return self._alive

    def add(self, tensor: torch.Tensor, place: Layout) -> None:
        """Notes a tensor that ``.data`` is about to return."""
        global _reads
        counter = ctypes.c_uint64.from_address(tensor._cdata + place.counter).value
        version = counter + place.version
        owners = None if place.owners is None else counter + place.owners
        alias = _Alias(WeakTensorRef(tensor), _word(version), version, owners)
        with _lock:
            if len(self._alive) >= self._limit:
                self._forget_the_dead()
                self._limit = max(_FEW, 2 * len(self._alive))
            self._alive.append(alias)
            self.reads.value += 1
            _reads += 1

    def _forget_the_dead(self) -> None:
        alive = []
        for alias in self._alive:
            if alias.is_alive:
                alive.append(alias)
            else:
                self._past += alias.changes
        self._alive = alive


def aliases_of(tensor: torch.Tensor) -> Aliases:
    """The aliases of a tensor's memory, noted from now on for as long as the result is kept."""
    _note_reads()
    storage = tensor.untyped_storage()
    key = storage._cdata
    with _lock:
        reference = _watched.get(key)
        found = None if reference is None else reference()
        if found is None:
            found = Aliases(storage)
            _watched[key] = weakref.ref(found, functools.partial(_forget, key))
        return found


def reads() -> int:
    """How often ``.data`` of any watched memory was read."""
    return _reads


def _forget(key: int, reference: weakref.ref[Aliases]) -> None:
    with _lock:
        if _watched.get(key) is reference:
            del _watched[key]


def _word(address: int) -> int:
    return ctypes.c_uint32.from_address(address).value


def _get_data(tensor: torch.Tensor) -> torch.Tensor:
    return _noted(tensor, data_descriptor.__get__)


def _compiled_get_data(tensor: torch.Tensor) -> torch.Tensor:
    return _noted(tensor, data_of)


def _noted(tensor: torch.Tensor, get: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    alias = get(tensor)
    if not _watched:
        return alias
    # What subclasses and modes hear of is ``.data`` alone.
    with DisableTorchFunction():
        try:
            key = TensorBase.untyped_storage(alias)._cdata
        except (NotImplementedError, RuntimeError):
            return alias  # A layout without a storage, such as a sparse one.
        reference = _watched.get(key)
        aliases, place = None if reference is None else reference(), layout()
        if aliases is None or place is None:
            return alias
        unversioned = alias.is_inference()
    if unversioned:
        with torch.inference_mode(False):
            alias = get(tensor)
    with DisableTorchFunction():
        aliases.add(alias, place)
    return alias


@functools.cache
def _note_reads() -> None:
    replace_data(_native.noted_attribute(data_descriptor, _get_data), _compiled_get_data)
