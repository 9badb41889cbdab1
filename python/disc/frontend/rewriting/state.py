"""What Python holds: variables without a value, structures of tensors and numbers, and the objects that change."""

from __future__ import annotations

import collections
import contextlib
import copy
import dataclasses
import enum
import functools
import types
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, NoReturn

import torch
from torch import Tensor

from ... import errors
from ...trees import Placeholder, Row, Table, placeholder
from ..locations import user_line
from .conditions import SYMBOLIC, is_bool, is_float, is_int
from .optional import OneSided, OptionalValue


class Undefined:
    """The value of a variable that has none. Code never sees one, but in the place of an attribute or an element."""

    def __init__(self, name: str) -> None:
        """``name``: what the variable is called."""
        self.name = name

    def _fail(self, *_: Any) -> NoReturn:
        raise UnboundLocalError(f"{self.name} has no value here: it is set on one path only")

    __getattr__ = __call__ = __bool__ = __iter__ = __len__ = __getitem__ = __eq__ = __add__ = __radd__ = _fail  # type: ignore[assignment]
    __mul__ = __rmul__ = __sub__ = __rsub__ = __lt__ = __gt__ = __le__ = __ge__ = _fail
    __hash__ = object.__hash__


# What holds nothing that code in a region could change.
_PASSIVE = (type, types.ModuleType, types.BuiltinFunctionType, str, bytes, bool, int, float, complex, *SYMBOLIC,
            torch.dtype, torch.device, torch.Size, Tensor, enum.Enum, Undefined, Placeholder, Table,
            type(None))  # fmt: skip


def is_scalar(value: Any) -> bool:
    """Whether a value is a number of Python or of torch."""
    return is_int(value) or is_float(value) or is_bool(value)


# -- structures --------------------------------------------------------------------------------------------


def parts(value: Any) -> dict[Any, Any] | None:
    """The elements of a list, tuple or dict, the attributes of an object of the user's; None if there are none."""
    if isinstance(value, Placeholder):
        source = value._disc_source
        return {"table": source.table, "row": source.row} if isinstance(source, Row) else None
    if isinstance(value, OptionalValue):
        return value.parts()
    if isinstance(value, (list, tuple)) and not isinstance(value, torch.Size):
        return dict(enumerate(value))
    if isinstance(value, dict):
        return dict(value)
    if isinstance(value, (*_PASSIVE, types.FunctionType, types.MethodType, torch.nn.Module)):
        return None
    held = _attributes(value)
    return dict(held) if held is not None else None


def rebuilt(value: Any, elements: dict[Any, Any]) -> Any:
    """A structure like ``value`` with other elements."""
    if isinstance(value, Placeholder):
        return placeholder(value._disc_type, Row(elements["table"], elements["row"]))
    if isinstance(value, OptionalValue):
        return value.rebuilt(elements)
    if isinstance(value, tuple):
        return type(value)(*elements.values()) if hasattr(value, "_fields") else type(value)(elements.values())
    if type(value) is list:
        return list(elements.values())
    if type(value) is dict:
        return elements
    new = copy.copy(value)
    _fill(new, elements)
    return new


_GROUPS = ("_parameters", "_buffers", "_modules")


def _attributes(value: Any) -> dict[str, Any] | None:
    held = getattr(value, "__dict__", None)
    if isinstance(value, torch.nn.Module) and held is not None:
        groups = {key: x for group in _GROUPS for key, x in held[group].items()}
        return {**{key: x for key, x in held.items() if key not in _GROUPS}, **groups}
    if isinstance(held, dict):
        return held
    if dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value)]
        return {name: getattr(value, name) for name in names if hasattr(value, name)}
    return None


def _fill(holder: Any, contents: dict[Any, Any]) -> None:
    """Makes ``contents`` all that a holder has."""
    if isinstance(holder, list):
        holder[:] = contents.values()
    elif isinstance(holder, collections.deque):
        holder.clear()
        holder.extend(contents.values())
    elif isinstance(holder, types.CellType):
        if "cell_contents" in contents:
            holder.cell_contents = contents["cell_contents"]
    elif isinstance(holder, set):
        holder.clear()
        holder.update(contents[""])
    elif isinstance(holder, dict):
        for key in [key for key in holder if key not in contents]:
            dict.__delitem__(holder, key)
        for key, value in contents.items():
            dict.__setitem__(holder, key, value)
    elif isinstance(holder, torch.nn.Module):
        now = _attributes(holder) or {}
        for key in now.keys() - contents.keys():
            delattr(holder, key)
        for key, value in contents.items():
            if now.get(key, holder) is not value:
                # By the name: torch.export notices the buffers that are set so.
                setattr(holder, key, value)
    elif isinstance(getattr(holder, "__dict__", None), dict):
        vars(holder).clear()
        vars(holder).update(contents)
    else:
        for key, value in contents.items():
            object.__setattr__(holder, key, value)


# -- objects that change -----------------------------------------------------------------------------------


class Change(NamedTuple):
    """An element or an attribute that is another one than before."""

    holder: Any
    key: Any
    old: Any
    new: Any
    name: str


_OURS = __name__.rpartition(".")[0]


class Heap:
    """The objects that code can reach, as they are now."""

    def __init__(self, roots: Iterable[tuple[str, Any]], apart: Iterable[Any] = ()) -> None:
        """``roots``: named values to start from; ``apart`` are cells of variables that somebody else looks after."""
        self._held: dict[int, tuple[Any, dict[Any, Any], str]] = {}
        self._seen: dict[int, Any] = {id(x): x for x in apart}
        pending = list(roots)
        while pending:
            name, value = pending.pop()
            if isinstance(value, _PASSIVE) or id(value) in self._seen:
                continue
            self._seen[id(value)] = value
            if isinstance(value, OptionalValue):
                pending.append((name, value.parts()["value"]))
                continue
            inner = self._inner(value)
            ours = type(value).__module__.startswith(_OURS) and not getattr(type(value), "_disc_is_state", False)
            if inner is None or ours:
                continue
            if not isinstance(value, (tuple, types.FunctionType, types.MethodType, functools.partial)):
                self._held[id(value)] = value, inner, name
            pending += [(part_name(name, value, key), x) for key, x in inner.items() if not isinstance(x, _PASSIVE)]

    @staticmethod
    def _inner(value: Any) -> dict[Any, Any] | None:
        if isinstance(value, types.FunctionType):
            defaults = (*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values())
            return dict(enumerate((*(value.__closure__ or ()), *defaults)))
        if isinstance(value, types.CellType):
            try:
                return {"cell_contents": value.cell_contents}
            except ValueError:
                return {}
        if isinstance(value, types.MethodType):
            return {"": value.__self__, "function": value.__func__}
        if isinstance(value, functools.partial):
            return {"": value.func, "args": value.args, "keywords": value.keywords}
        if isinstance(value, (list, tuple, collections.deque)):
            return dict(enumerate(value))
        if isinstance(value, dict):
            return dict(value)
        if isinstance(value, set):
            return {"": frozenset(value)}
        held = _attributes(value)
        return dict(held) if held is not None else None

    def has(self, holder: Any) -> bool:
        """Whether an object was there."""
        return id(holder) in self._held

    def contents(self, holder: Any) -> dict[Any, Any]:
        """What a holder had."""
        return self._held[id(holder)][1]

    def parts(self, value: Any) -> dict[Any, Any] | None:
        """The elements or attributes that a value had."""
        return dict(self._held[id(value)][1]) if self.has(value) else parts(value)

    def changes(self) -> list[Change]:
        """What has become different, in the order of the walk."""
        found = []
        for holder, before, name in self._held.values():
            now = self._inner(holder) or {}
            for key in [*before, *(key for key in now if key not in before)]:
                label = part_name(name, holder, key)
                old, new = (side.get(key, Undefined(label)) if key not in side else side[key] for side in (before, now))
                if not _unchanged(old, new) and not (key not in before and key not in now):
                    found.append(Change(holder, key, old, new, label))
        return found

    def restore(self, changes: Iterable[Change]) -> None:
        """Undoes changes."""
        for holder in {id(change.holder): change.holder for change in changes}.values():
            _fill(holder, self.contents(holder))


def store(changes: Iterable[tuple[Any, Any, Any]]) -> None:
    """Sets elements and attributes: triples of holder, key and value."""
    for holder, values in _grouped(changes).values():
        contents = dict(Heap._inner(holder) or {})
        contents.update(values)
        _fill(holder, contents)


def _grouped(changes: Iterable[tuple[Any, Any, Any]]) -> dict[int, tuple[Any, dict[Any, Any]]]:
    groups: dict[int, tuple[Any, dict[Any, Any]]] = {}
    for holder, key, value in changes:
        groups.setdefault(id(holder), (holder, {}))[1][key] = value
    return groups


def part_name(name: str, value: Any, key: Any) -> str:
    """What an element or attribute of a value is called."""
    if isinstance(value, (types.CellType, types.FunctionType, types.MethodType)):
        return name
    if isinstance(value, (list, tuple, collections.deque)):
        return f"{name}[{key}]"
    if isinstance(value, dict):
        return f"{name}[{key!r}]"
    return f"{name}.{key}"


# -- containers that data chooses ----------------------------------------------------------------------------

_chosen: list[tuple[Any, dict[Any, Any], errors.CompileError]] = []


def note_chosen(value: Any, error: errors.CompileError) -> None:
    """Notes a container that stands for one of two that were there before: ``error`` is what changing it would be."""
    _chosen.append((value, parts(value) or {}, error))


_copies: list[tuple[Tensor, int, str | None]] = []


def note_copy(elements: Tensor) -> Tensor:
    """Notes a tensor that has copies of a list's elements: a change of them in place would be lost."""
    _copies.append((elements, elements._version, user_line()))
    return elements


def check_chosen() -> None:
    """Refuses that one of them is changed: the two would not be. Also that copies of elements are."""
    for elements, version, source in _copies:
        if elements._version != version:
            raise errors.ControlFlowError(
                "import",
                "an element of a list whose length depends on data is changed in place, and the list would not see it:"
                " assign a new list, or keep a tensor instead",
                source,
            )
    for value, before, error in _chosen:
        now = parts(value) or {}
        if list(now) != list(before) or not all(_unchanged(before[key], now[key]) for key in now):
            raise error


def forget_chosen() -> None:
    """Forgets what was noted."""
    _chosen.clear()
    _copies.clear()


def _unchanged(old: Any, new: Any) -> bool:
    if old is new:
        return True
    return isinstance(old, (bool, int, float, str, frozenset)) and type(old) is type(new) and old == new


def described(value: Any) -> str:
    """A value in words, for messages."""
    if isinstance(value, Undefined):
        return "not set"
    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
    if isinstance(value, (list, tuple, dict)):
        return f"{type(value).__name__} of {len(value)}"
    if value is None or isinstance(value, (bool, int, float, str)):
        return repr(value)
    if isinstance(value, OptionalValue):
        return f"{described(value.parts()['value'])} or {'not set' if isinstance(value, OneSided) else 'None'}"
    return type(value).__name__


def closure_of(*functions: Callable[..., Any]) -> list[tuple[str, Any]]:
    """The named values in the closures of functions."""
    found = []
    for function in functions:
        names = getattr(getattr(function, "__code__", None), "co_freevars", ())
        for name, cell in zip(names, getattr(function, "__closure__", None) or (), strict=True):
            with contextlib.suppress(ValueError):
                found.append((name, cell.cell_contents))
    return found
