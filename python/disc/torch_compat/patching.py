"""Replaces attributes of PyTorch and Python for the calling thread only.

A :class:`Patch` names a place: an attribute of a module or a class, an item of a dictionary, or the code of a function.
While :func:`replaced` is active in a thread, calls by that thread run a replacement; calls by other threads run the
original function. The place holds a dispatcher, a function that decides by the calling thread, from the first thread
that enters until the last one leaves. Then the place is as it was.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
import operator
import sys
import threading
import types
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from .versions import MINOR

Replacement = Callable[..., Any]
"""Called instead of the original function, with that function as an additional first argument."""

_MISSING: Any = object()
_lock = threading.RLock()
_installed: dict[types.FunctionType, _Dispatch] = {}
"""The dispatchers that are in their places."""


def resolve(place: str) -> Any:
    """The object that ``"package.module:attribute.attribute"`` names; the module is imported if necessary.

    Raises ImportError or AttributeError.
    """
    module, _, path = place.partition(":")
    found = importlib.import_module(module)
    return operator.attrgetter(path)(found) if path else found


class _Attribute:
    """An attribute of a module or a class."""

    def __init__(self, owner: Any, name: str, default: Any = _MISSING) -> None:
        self._owner, self._name, self._default = owner, name, default

    def stored(self) -> Any:
        """What the owner itself has under the name; ``_MISSING`` if it is inherited."""
        return vars(self._owner).get(self._name, _MISSING)

    def function(self) -> Any:
        """What a call by the name runs."""
        if self._default is not _MISSING:
            return getattr(self._owner, self._name, self._default)
        return getattr(self._owner, self._name)

    def store(self, value: Any) -> None:
        if value is _MISSING:
            delattr(self._owner, self._name)
        else:
            setattr(self._owner, self._name, value)


class _Item:
    """An item of a dictionary."""

    def __init__(self, items: MutableMapping[Any, Any], key: Any) -> None:
        self._items, self._key = items, key

    def stored(self) -> Any:
        return self._items.get(self._key, _MISSING)

    def function(self) -> Any:
        return self._items[self._key]

    def store(self, value: Any) -> None:
        if value is not _MISSING:
            self._items[self._key] = value


class _Code:
    """The code of a function, which other modules may have imported under a name of their own."""

    def __init__(self, function: types.FunctionType) -> None:
        self._function = function

    def stored(self) -> Any:
        # The code has the dispatcher among its constants.
        known = [x for x in self._function.__code__.co_consts if type(x) is types.FunctionType]
        return known[0] if known and known[0] in _installed else self._function.__code__

    def function(self) -> Any:
        """A function that does what this one does now."""
        old = self._function
        assert old.__closure__ is None
        copy = types.FunctionType(old.__code__, old.__globals__, old.__name__, old.__defaults__)
        copy.__kwdefaults__ = old.__kwdefaults__
        return functools.update_wrapper(copy, old)

    def store(self, value: Any) -> None:
        if isinstance(value, types.FunctionType):
            value = _forwarding(inspect.signature(self._function), value)
        self._function.__code__ = value


_DISPATCHER = "the function to call"


def _forwarding(signature: inspect.Signature, function: Callable[..., Any]) -> types.CodeType:
    """Code of a function of ``signature``, without ``*`` parameters, that calls ``function``."""
    names = list(signature.parameters)
    assert all(p.kind is p.POSITIONAL_OR_KEYWORD for p in signature.parameters.values())
    text = f"def forward({', '.join(names)}):\n    _call = {_DISPATCHER!r}\n    return _call({', '.join(names)})\n"
    scope: dict[str, Any] = {}
    exec(compile(text, _FILE, "exec"), scope)
    code: types.CodeType = scope["forward"].__code__
    return code.replace(co_consts=tuple(function if x == _DISPATCHER else x for x in code.co_consts))


_Place = _Attribute | _Item | _Code


class _Dispatch:
    """A function in a place, and the replacements that threads have for it."""

    def __init__(self, place: _Place) -> None:
        self._place = place
        self._before = place.stored()
        if isinstance(self._before, (classmethod, property)):
            raise TypeError(f"{self._before!r} is not a function")
        original = place.function()
        self._stacks: dict[int, list[Callable[..., Any]]] = {}
        self.original, self.function = original, _dispatcher(original, self._stacks)

    def push(self, thread: int, replacement: Replacement) -> None:
        stack = self._stacks.get(thread)
        inner = stack[-1] if stack else self.original
        # A new list each time: the dispatcher reads without the lock.
        self._stacks[thread] = [*(stack or ()), functools.partial(replacement, inner)]
        if len(self._stacks) == 1 and self.function not in _installed:
            _installed[self.function] = self
            static = isinstance(self._before, staticmethod)
            self._place.store(staticmethod(self.function) if static else self.function)

    def depth(self, thread: int) -> int:
        return len(self._stacks.get(thread, ()))

    def cut(self, thread: int, depth: int) -> None:
        """Removes the replacements of a thread beyond the first ``depth``. Repeating it changes nothing."""
        if depth:
            self._stacks[thread] = self._stacks[thread][:depth]
        else:
            self._stacks.pop(thread, None)
        if not self._stacks and self.function in _installed:
            # Code that has replaced the dispatcher meanwhile calls it, and with it the original.
            if _function_of(self._place.stored()) is self.function:
                self._place.store(self._before)
            del _installed[self.function]


def _function_of(stored: Any) -> Any:
    return stored.__func__ if isinstance(stored, staticmethod) else stored


def _dispatch_in(place: _Place) -> _Dispatch | None:
    function = _function_of(place.stored())
    return _installed.get(function) if isinstance(function, types.FunctionType) else None


def _dispatcher(original: Callable[..., Any], stacks: dict[int, list[Callable[..., Any]]]) -> types.FunctionType:
    thread = threading.get_ident

    def dispatch(*args: Any, **kwargs: Any) -> Any:
        stack = stacks.get(thread())
        return original(*args, **kwargs) if stack is None else stack[-1](*args, **kwargs)

    functools.update_wrapper(dispatch, original)
    return dispatch  # type: ignore[return-value]


_FILE = _dispatcher.__code__.co_filename


def is_between(code: types.CodeType) -> bool:
    """Whether code is of this module: its frames are between the caller and the replacement."""
    return code.co_filename == _FILE


def caller(level: int = 1) -> types.FrameType:
    """The frame that called the replacement; ``level`` is 1 inside the replacement, 2 in what it calls, and so on."""
    frame: Any = sys._getframe(level + 1)
    while frame.f_code.co_filename == _FILE:
        frame = frame.f_back
    found: types.FrameType = frame
    return found


@dataclass(frozen=True)
class Patch:
    """A place where DISC replaces a function.

    ``place``: ``"package.module:attribute"``.
    ``purpose``: what the replacement is for, and what does not work without it.
    ``parameters``: the signature that the replacements rely on, as ``str(inspect.signature)`` returns it without
    annotations and defaults; None for a function written in C.
    ``default``: the place of the function that is called if the attribute is absent.
    ``minors``: the minor versions of PyTorch 2 that need the replacement; others are left as they are.
    """

    place: str
    purpose: str
    parameters: str | None
    default: str | None = None
    minors: range = range(100)

    @property
    def is_needed(self) -> bool:
        """Whether the installed PyTorch needs the replacement."""
        return MINOR in self.minors

    @property
    def name(self) -> str:
        """The name of the attribute."""
        return self.place.replace(":", ".").rpartition(".")[-1]

    def find(self) -> _Place:
        """The place in this process. Raises ImportError or AttributeError if it does not exist."""
        owner = self.place[: -len(self.name) - 1]
        default = _MISSING if self.default is None else resolve(self.default)
        return _Attribute(resolve(owner), self.name, default)

    def original(self) -> Any:
        """The function in the place, without replacements."""
        with _lock:
            place = self.find()
            known = _dispatch_in(place)
            return place.function() if known is None else known.original


class CodePatch(Patch):
    """A function whose code DISC replaces because models import it by name."""

    def find(self) -> _Place:
        """The code of the function. Raises ImportError or AttributeError if it does not exist."""
        return _Code(resolve(self.place))


@dataclass(frozen=True)
class ItemPatch(Patch):
    """An item of a dictionary; ``place`` is the dictionary's."""

    key: Any = None

    def at(self, key: Any) -> ItemPatch:
        """The patch of the item with a key."""
        return dataclasses.replace(self, key=key)

    def items(self) -> dict[Any, Any]:
        """The dictionary. Raises ImportError or AttributeError if it does not exist."""
        found: dict[Any, Any] = resolve(self.place)
        return found

    def find(self) -> _Place:
        """The item. Raises ImportError or AttributeError if the dictionary does not exist."""
        return _Item(self.items(), self.key)


def instead(function: Callable[..., Any]) -> Replacement:
    """A replacement that never calls the original."""
    return lambda _, /, *args, **kwargs: function(*args, **kwargs)


@contextmanager
def replaced(replacements: Mapping[Patch, Replacement]) -> Iterator[None]:
    """While it is active, the calling thread's calls of the patched functions run the replacements.

    May be nested: the original of an inner replacement is the outer one. Raises ImportError or AttributeError if a
    place does not exist, with nothing replaced.
    """
    thread = threading.get_ident()
    entered: list[tuple[_Dispatch, int]] = []
    try:
        try:
            for patch, replacement in replacements.items():
                if not patch.is_needed:
                    continue
                with _lock:
                    place = patch.find()
                    dispatch = _dispatch_in(place) or _Dispatch(place)
                    entered.append((dispatch, dispatch.depth(thread)))
                    dispatch.push(thread, replacement)
            yield
        finally:
            _leave(thread, entered)
    finally:
        # Once more, for Ctrl-C in the first one.
        _leave(thread, entered)


def _leave(thread: int, entered: list[tuple[_Dispatch, int]]) -> None:
    for dispatch, depth in reversed(entered):
        with _lock:
            dispatch.cut(thread, depth)
