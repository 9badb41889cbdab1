"""Detects changes of a compiled model's parameters, at the cost of a few loads per call.

A model packs its parameters when it is compiled. PyTorch counts in-place changes of each tensor, and ``.data = ...``
changes the memory of a tensor, as ``share_memory_()`` changes that of its storage. The compiled model compares these
words of its parameters (``tensor_layout.py``) before each call, and the counters of tensors that ``.data`` returned
(``data_aliases.py``). One more word counts registrations in the model's modules: a new parameter, buffer or layer may
replace another, which may continue to exist. Tensors that are plain attributes, or in lists and dicts, are looked up
where they were found.
"""

from __future__ import annotations

import ctypes
import functools
import threading
import warnings
import weakref
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import torch
from torch.nn.modules.module import (
    register_module_buffer_registration_hook,
    register_module_module_registration_hook,
    register_module_parameter_registration_hook,
)

from . import _native
from .data_aliases import aliases_of
from .errors import CompileError, LoadError
from .tensor_layout import layout
from .torch_compat.tensors import WeakTensorRef

# How many lists and dicts in each other are looked into.
_DEPTH = 3

# A module, and where in its attributes a tensor is: the attribute's name, then indices or keys.
_Place = tuple["weakref.ref[torch.nn.Module]", tuple[Any, ...]]


class _Parameter:
    """One parameter: its object stays readable, though not its elements, when nothing else holds the tensor."""

    def __init__(
        self, name: str, tensor: torch.Tensor, *, counted: bool, owned: bool, place: _Place | None = None
    ) -> None:
        self.name = name
        self.place = place
        """Where it was found, if it is not registered in a module."""
        self.counted = counted
        """Whether in-place changes matter: what calls read and write in place is never packed."""
        self._tensor = tensor if owned else None
        self.tensor = weakref.ref(tensor)
        self._held = WeakTensorRef(tensor)
        self._storage = _held_storage(tensor)
        self.aliases = aliases_of(tensor) if counted else None
        self._state = self._now(tensor)

    def _now(self, tensor: torch.Tensor) -> tuple[Any, ...]:
        version = 0 if tensor.is_inference() or not self.counted else tensor._version
        storage = tensor.untyped_storage()._cdata
        place = layout()
        data = 0 if place is None else _pointer(storage + place.data)
        return version, storage, data, 0 if self.aliases is None else self.aliases.changes

    def is_packed(self, tensor: torch.Tensor) -> bool:
        """Whether this is still the tensor that was packed, unchanged."""
        return tensor is self.found and self._now(tensor) == self._state

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
    if torch.compiler.is_dynamo_compiling():
        return  # Dynamo traces hooks, too. Its compiled code assigns the attribute itself, and calls this again.
    for watch in tuple(_watches.get(module, ())):
        watch.registrations.value += 1


@functools.cache
def _hear_of_registrations() -> None:
    register_module_parameter_registration_hook(_registered)
    register_module_buffer_registration_hook(_registered)
    register_module_module_registration_hook(_registered)


class WeightWatch:
    """Watches the parameters of one compiled model, and packs them again when they have changed.

    It keeps neither the module nor its weights alive: a tensor that nothing else holds can no longer change.
    """

    def __init__(
        self,
        module: torch.nn.Module | None,
        tensors: Mapping[str, torch.Tensor],
        states: Collection[str],
        packed: Callable[[torch.Tensor], torch.Tensor],
    ) -> None:
        """``tensors``: the model's own parameters, of which ``states`` are updated by calls.

        ``packed`` returns the tensor that the executable uses for a parameter.
        """
        self._module = None if module is None else weakref.ref(module)
        self._states = frozenset(states)
        self._packed = packed
        self._lock = threading.Lock()
        self._parameters: list[_Parameter] = []
        self._aliases: list[Any] = []
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
        versions, storages = [(ctypes.addressof(self.registrations), self._registered)], []
        places, aliases = [], []
        for parameter in self._parameters:
            tensor = parameter.found
            if tensor is None:
                continue
            storage = tensor.untyped_storage()._cdata
            storages.append((tensor._cdata + place.storage, storage))
            # A storage may get other memory: ``share_memory_`` and ``resize_`` free what it had.
            storages.append((storage + place.data, _pointer(storage + place.data)))
            if parameter.place is not None:
                places.append((*parameter.place, tensor))
            if parameter.counted and not tensor.is_inference():
                address = _pointer(tensor._cdata + place.counter) + place.version
                versions.append((address, tensor._version))
            if parameter.aliases is not None:
                reads, alive = parameter.aliases.reads, parameter.aliases.alive()
                versions.append((ctypes.addressof(reads), reads.value))
                versions += [(alias.version, alias.start + alias.changes) for alias in alive]
                aliases += alive
        executable.watch(versions, storages, places, self._changed)
        self._aliases = aliases  # Keeps the watched tensors readable.

    def _adopt(self, tensors: Mapping[str, torch.Tensor]) -> None:
        module = None if self._module is None else self._module()
        names: Mapping[str, torch.Tensor] | None = None
        places: dict[int, _Place] = {}
        if module is not None:
            names = _names(module)
            parts = _parts(module)
            places = {id(t): place for part in parts for t, place in _attributes(part)}
            _hear_of_registrations()
            with _watches_lock:
                for part in parts:
                    _watches.setdefault(part, weakref.WeakSet()).add(self)
        elif self._module is not None:
            names = {}
        self._registered = self.registrations.value
        # The parameters until now keep the aliases of their memory.
        parameters = []
        for name, tensor in tensors.items():
            place = places.get(id(tensor))
            # A tensor that is not in the module was made while compiling: perhaps nothing else holds it.
            owned = names is not None and names.get(name) is not tensor and place is None
            counted = name not in self._states
            parameters.append(_Parameter(name, tensor, counted=counted, owned=owned, place=place))
        self._parameters = parameters

    def pack(self, executable: _native.Executable) -> None:
        """Packs the parameters as they are now, whether they have changed or not."""
        self._changed(executable, force=True)

    def current(self) -> dict[str, torch.Tensor] | None:
        """The parameters as they are now, by name; None if the module is gone, and with it some of them."""
        with self._lock:
            return self._current()

    def _changed(self, executable: _native.Executable, *, force: bool = False) -> None:
        with self._lock:
            tensors = self._current()
            if tensors is None:
                # The module is gone: its weights stay what they were.
                executable.watch([], [], [], _unwatched)
                return
            if not force and all(parameter.is_packed(tensors[parameter.name]) for parameter in self._parameters):
                # ``.data`` was only read, or something else was registered.
                if self.registrations.value != self._registered:
                    self._adopt(tensors)
                self.start(executable)
                return
            try:
                executable.init([self._packed(tensors[name]).detach() for name in executable.info()["parameters"]])
            except (RuntimeError, TypeError, ValueError, IndexError) as error:
                raise LoadError("load", f"the model's weights have changed and cannot be packed: {error}") from error
            self._adopt(tensors)
            self.start(executable)

    def _current(self) -> dict[str, torch.Tensor] | None:
        """The parameters as they are now; None if there are none any more."""
        module = None if self._module is None else self._module()
        names = {} if module is None else _names(module)
        found = {}
        for parameter in self._parameters:
            tensor = names.get(parameter.name, parameter.found)
            if parameter.place is not None and parameter.place[0]() is not None:
                tensor = _at(parameter.place)
            if tensor is None:
                return None
            found[parameter.name] = tensor
        return found


def _unwatched(_: _native.Executable) -> None:
    """Nothing is watched any more."""


def _pointer(address: int) -> int:
    return ctypes.c_uint64.from_address(address).value


def _names(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """A module's parameters, buffers and other tensors by name; tied ones by each of their names."""
    found: dict[str, torch.Tensor] = {}
    for prefix, part in module.named_modules(remove_duplicate=False):
        start = f"{prefix}." if prefix else ""
        for group in (part._parameters, part._buffers, vars(part)):
            found.update({start + name: t for name, t in group.items() if isinstance(t, torch.Tensor)})
    return found


def _parts(module: torch.nn.Module) -> list[torch.nn.Module]:
    """The modules of a model, also those in plain lists and dicts."""
    found: dict[torch.nn.Module, None] = {}
    waiting = [module]
    while waiting:
        for part in waiting.pop().modules():
            if part not in found:
                found[part] = None
                waiting += [x for _, value in _plain(part) for _, x in _leaves(value) if isinstance(x, torch.nn.Module)]
    return list(found)


def _attributes(part: torch.nn.Module) -> Iterator[tuple[torch.Tensor, _Place]]:
    """The tensors that are a module's plain attributes or in one of them."""
    for name, value in _plain(part):
        for keys, leaf in _leaves(value):
            if isinstance(leaf, torch.Tensor):
                yield leaf, (weakref.ref(part), (name, *keys))


def _plain(part: torch.nn.Module) -> list[tuple[str, Any]]:
    registered = ("_parameters", "_buffers", "_modules")
    return [(name, value) for name, value in vars(part).items() if name not in registered]


def _leaves(value: Any, depth: int = _DEPTH) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """The contents of lists, tuples and dicts, with the keys that lead there."""
    items: Any = ()
    if depth and type(value) in (list, tuple):
        items = enumerate(value)
    elif depth and type(value) in (dict, OrderedDict, defaultdict):
        # Looking up other keys, or in other dicts, could run Python code in the middle of a call.
        items = [(key, item) for key, item in value.items() if type(key) in (str, int)]
    else:
        yield (), value
    for key, item in tuple(items):
        for keys, leaf in _leaves(item, depth - 1):
            yield (key, *keys), leaf


def _at(place: _Place) -> torch.Tensor:
    """The tensor that is now in a place of a module that still exists."""
    reference, keys = place
    value: Any = vars(reference())
    for key in keys:
        try:
            value = value[key]
        except (KeyError, IndexError, TypeError):
            value = None
            break
    if not isinstance(value, torch.Tensor):
        where = keys[0] + "".join(f"[{key!r}]" for key in keys[1:])
        raise CompileError(
            "load", f"the module's attribute {where} was a tensor when it was compiled: compile it again"
        )
    return value
