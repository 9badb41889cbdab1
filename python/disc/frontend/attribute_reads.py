"""Which attributes a call reads before it sets them: what they were before the call matters only then."""

from __future__ import annotations

import threading
import types
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from .state_places import MISSING, Record, is_of_users


class Reads:
    """What is known of the attributes of objects since a trace has begun."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        self._first: dict[tuple[int, str], bool] = {}
        self.watched: set[tuple[type, str]] = set()

    def note(self, holder: Any, name: str, is_read: bool) -> None:
        """Notes a use of an attribute, if it is the first one."""
        if threading.get_ident() == self._thread:
            self._first.setdefault((id(holder), name), is_read)

    def may_matter(self, record: Record) -> bool:
        """Whether a call may read what was there before: it was read first, or is not watched."""
        if not record.name or (record.kind, record.name) not in self.watched:
            return True
        return self._first.get((record.holder, record.name), False)


class _Watched:
    """In the place of a class attribute: passes on reads and assignments to the object's dictionary, and notes them."""

    def __init__(self, reads: Reads, name: str, default: Any) -> None:
        self._reads, self._name, self._default = reads, name, default

    def __get__(self, holder: Any, kind: Any = None) -> Any:
        if holder is not None:
            self._reads.note(holder, self._name, is_read=True)
            value = holder.__dict__.get(self._name, MISSING)
            if value is not MISSING:
                return value
        if self._default is MISSING:
            raise AttributeError(f"{(kind or type(holder)).__name__!r} object has no attribute {self._name!r}")
        return self._default

    def __set__(self, holder: Any, value: Any) -> None:
        self._reads.note(holder, self._name, is_read=False)
        holder.__dict__[self._name] = value

    def __delete__(self, holder: Any) -> None:
        if holder.__dict__.pop(self._name, MISSING) is MISSING:
            raise AttributeError(self._name)


@contextmanager
def watched(records: Iterable[Record], stored: Iterable[str]) -> Iterator[Reads]:
    """While it is active, the first use of each attribute in ``records`` that the code may assign is noted.

    ``stored`` are the names that code assigns. Tensors are not watched.
    """
    reads = Reads()
    names = set(stored)
    installed: list[tuple[type, str, Any]] = []
    try:
        for record in records:
            kind, name = record.kind, record.name
            if name not in names or (kind, name) in reads.watched or isinstance(record.value, torch.Tensor):
                continue
            if not is_of_users(kind) or not _may_watch(kind, name):
                continue
            own = vars(kind).get(name, MISSING)
            try:
                setattr(kind, name, _Watched(reads, name, getattr(kind, name, MISSING)))
            except (AttributeError, TypeError):
                continue
            installed.append((kind, name, own))
            reads.watched.add((kind, name))
        yield reads
    finally:
        for kind, name, own in reversed(installed):
            if own is MISSING:
                delattr(kind, name)
            else:
                setattr(kind, name, own)


def _may_watch(kind: type, name: str) -> bool:
    """Whether an attribute is in the object's dictionary and read by the usual rules."""
    if kind.__getattribute__ is not object.__getattribute__:
        return False
    found = [vars(base)[name] for base in kind.__mro__ if name in vars(base)]
    return not any(hasattr(type(x), "__get__") and not isinstance(x, types.FunctionType) for x in found)
