"""Finding out that a compiled model's parameters have changed, at the cost of a few loads a call.

A model packs its parameters when it is compiled. PyTorch counts in-place changes of each tensor, and ``.data = ...``
gives a tensor other memory. Where PyTorch stores both words in a tensor is found out once, by watching a tensor of our
own change; the compiled model then compares the words of its parameters before each call. One word more counts what is
registered in the model's modules: a new parameter, buffer or layer in the place of another, which may live on.
"""

from __future__ import annotations

import ctypes
import functools
import os
import struct
import threading
import warnings
import weakref
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

import torch
from torch.nn.modules.module import (
    register_module_buffer_registration_hook,
    register_module_module_registration_hook,
    register_module_parameter_registration_hook,
)

from . import _native
from .errors import CompileError

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
    """Where this version of PyTorch keeps both words; None if that cannot be found out."""
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
    finally:
        os.close(memory)
    return Layout(storages[0], *places.pop())


class _Parameter:
    """One parameter: its memory stays readable, though not its elements, when nobody else has the tensor any more."""

    def __init__(self, name: str, tensor: torch.Tensor, *, counted: bool, owned: bool) -> None:
        self.name = name
        self.counted = counted
        """Whether in-place changes matter: what calls read and write in place is never packed."""
        self._tensor = tensor if owned else None
        self.tensor = weakref.ref(tensor)
        self._held = torch._C._WeakTensorRef(tensor)  # type: ignore[attr-defined]
        self._storage = _held_storage(tensor)

    @property
    def found(self) -> torch.Tensor | None:
        """The tensor, if there still is one."""
        return self.tensor()


def _held_storage(tensor: torch.Tensor) -> Any:
    # Its address is not given to another storage, though its elements are freed.
    from torch.multiprocessing.reductions import StorageWeakRef

    return StorageWeakRef(tensor.untyped_storage())


# The watches of each module that is part of a compiled model.
_watches: weakref.WeakKeyDictionary[torch.nn.Module, weakref.WeakSet[WeightWatch]] = weakref.WeakKeyDictionary()
_watches_lock = threading.Lock()


def _registered(module: torch.nn.Module, *_: Any) -> None:
    """A module gets a parameter, buffer or part: PyTorch says so before it is there."""
    for watch in tuple(_watches.get(module, ())):
        watch.registrations.value += 1


@functools.cache
def _hear_of_registrations() -> None:
    register_module_parameter_registration_hook(_registered)
    register_module_buffer_registration_hook(_registered)
    register_module_module_registration_hook(_registered)


class WeightWatch:
    """Watches the parameters of one compiled model, and packs them again when they have changed.

    It keeps neither the module nor its weights alive: what nobody else has can no longer change.
    """

    def __init__(
        self,
        module: torch.nn.Module | None,
        tensors: Mapping[str, torch.Tensor],
        states: Collection[str],
        packed: Callable[[torch.Tensor], torch.Tensor],
    ) -> None:
        """``tensors``: the model's own parameters, of which ``states`` are updated by calls.

        ``packed`` gives the tensor that the executable takes for a parameter.
        """
        self._module = None if module is None else weakref.ref(module)
        self._states = frozenset(states)
        self._packed = packed
        self._lock = threading.Lock()
        self._parameters: list[_Parameter] = []
        self.registrations = ctypes.c_uint32(0)
        """How often something was registered in one of the modules."""
        self._adopt(tensors)

    def start(self, executable: _native.Executable) -> None:
        """Has the executable compare the words of the parameters, as they are now, before each call."""
        place = layout()
        if place is None:
            warnings.warn(
                "disc cannot find PyTorch's version counters in this process (/proc/self/mem is needed): changes of "
                "the module's weights after disc.compile are not detected. Compile again after changing weights.",
                RuntimeWarning,
                stacklevel=2,
            )
            return
        versions, storages = [(ctypes.addressof(self.registrations), self.registrations.value)], []
        for parameter in self._parameters:
            tensor = parameter.found
            if tensor is None:
                continue
            storages.append((tensor._cdata + place.storage, tensor.untyped_storage()._cdata))
            if parameter.counted and not tensor.is_inference():
                address = _pointer(tensor._cdata + place.counter) + place.version
                versions.append((address, tensor._version))
        executable.watch(versions, storages, self._changed)

    def _adopt(self, tensors: Mapping[str, torch.Tensor]) -> None:
        module = None if self._module is None else self._module()
        names = None if self._module is None else _names(module)
        if module is not None:
            _hear_of_registrations()
            with _watches_lock:
                for part in module.modules():
                    _watches.setdefault(part, weakref.WeakSet()).add(self)
        self._parameters = [
            # What the module does not have under this name was made while compiling: perhaps nobody else has it.
            _Parameter(name, t, counted=name not in self._states, owned=names is not None and names.get(name) is not t)
            for name, t in tensors.items()
        ]

    def _changed(self, executable: _native.Executable) -> None:
        with self._lock:
            tensors = self._current()
            if tensors is None:
                # The module is gone: its weights stay what they were.
                executable.watch([], [], _unwatched)
                return
            try:
                executable.init([self._packed(tensors[name]).detach() for name in executable.info()["parameters"]])
            except (RuntimeError, TypeError, ValueError, IndexError) as error:
                raise CompileError("load", f"the model's weights have changed and cannot be packed: {error}") from error
            self._adopt(tensors)
            self.start(executable)

    def _current(self) -> dict[str, torch.Tensor] | None:
        """The parameters as they are now; None if there are none any more."""
        names = {} if self._module is None else _names(self._module())
        found = {}
        for parameter in self._parameters:
            tensor = names.get(parameter.name, parameter.found)
            if tensor is None:
                return None
            found[parameter.name] = tensor
        return found


def _unwatched(_: _native.Executable) -> None:
    """Nothing is watched any more."""


def _pointer(address: int) -> int:
    return ctypes.c_uint64.from_address(address).value


def _names(module: torch.nn.Module | None) -> dict[str, torch.Tensor]:
    """A module's parameters, buffers and other tensors by name; tied ones by each of their names."""
    found: dict[str, torch.Tensor] = {}
    if module is None:
        return found
    for prefix, part in module.named_modules(remove_duplicate=False):
        start = f"{prefix}." if prefix else ""
        for group in (part._parameters, part._buffers, vars(part)):
            found.update({start + name: t for name, t in group.items() if isinstance(t, torch.Tensor)})
    return found
