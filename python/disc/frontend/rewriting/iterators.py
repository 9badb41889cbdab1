"""Iterators, whose position may depend on data, and groups of equal elements."""

from __future__ import annotations

import builtins
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from . import choice, graph, operators
from .conditions import known_truth, number_tensor
from .dynamic import Dynamic, Once, Steps, at_least, is_dynamic, sequence_of, whole_of
from .optional import OptionalValue, used
from .sites import Site
from .tuples import Tuples
from .values import is_traced

_NOTHING: Any = object()


class Iterator(Once):
    """``iter`` of a sequence: the position is a number, which branches and loops merge and carry."""

    _disc_is_state = True

    def __init__(self, values: Any, site: Site) -> None:
        """``values``: a list, tuple, range or tensor, or a sequence of dynamic length."""
        self._values, self._site, self.position = values, site, 0

    @property
    def count(self) -> Any:
        """The number of elements of the sequence."""
        steps = sequence_of(self._values)
        return steps.count if steps is not None else len(self._values)

    def at(self, number: Any) -> Any:
        """An element of the sequence."""
        steps = sequence_of(self._values)
        if steps is not None:
            return steps.at(number)
        if isinstance(self._values, range):
            return self._values.start + number * self._values.step
        if isinstance(self._values, Tensor):
            return self._values[number]
        return choice.sequence(self._values, self._site, lambda f, _: f)[number]

    def take(self) -> Dynamic | None:
        """The elements that are left; None if Python can count them."""
        first, count = self.position, self.count
        if not is_dynamic(first) and not is_dynamic(count):
            return None
        self.position = count
        left = count - first
        if known_truth(left >= 0) is not True:
            left = at_least(left, 0)
        return Dynamic(left, lambda number: self.at(first + number))

    def __iter__(self) -> Iterator:
        return self

    def __next__(self) -> Any:
        if is_dynamic(self.position) or is_dynamic(self.count):
            raise NotImplementedError(
                "an iterator whose position or length depends on data, passed to a Python function"
            )
        if self.position >= self.count:
            raise StopIteration
        self.position += 1
        return self.at(self.position - 1)


class Group(Once):
    """The elements of a group."""

    def __init__(self, elements: Dynamic) -> None:
        """``elements``: the sequence of them."""
        self._elements, self._taken = elements, False

    def take(self) -> Dynamic:
        """The elements, if nothing has taken them yet."""
        if self._taken:
            raise NotImplementedError("the elements of a group are read twice: make a list of them")
        self._taken = True
        return self._elements


def iterate(site: Site, *args: Any) -> Any:
    """``iter``."""
    (value, *others) = args
    if others or isinstance(value, Iterator):
        return builtins.iter(*args)
    if type(value) in (list, tuple, range) or isinstance(value, Dynamic) or (isinstance(value, Tensor) and value.dim()):
        return Iterator(value, site)
    return builtins.iter(value)


def advance(site: Site, iterator: Any, default: Any = _NOTHING) -> Any:
    """``next``."""
    if isinstance(iterator, OptionalValue):
        iterator = used(iterator)
    if isinstance(iterator, choice.Chosen):
        return iterator.map(lambda one: advance(site, one, default))
    if not isinstance(iterator, Iterator):
        return builtins.next(iterator, *(() if default is _NOTHING else (default,)))
    position, count = iterator.position, iterator.count
    there = position < count
    known = known_truth(there)
    if known is False or (known is None and default is not _NOTHING):

        def one() -> Any:
            return _taken(iterator, position)

        def other() -> Any:
            if default is _NOTHING:
                raise StopIteration
            return default

        return other() if known is False else operators.if_exp(there, one, other, site)
    if known is None:
        graph.require(number_tensor(there, torch.bool), f"StopIteration: no element is left ({site.source})")
    return _taken(iterator, position)


def _taken(iterator: Iterator, position: Any) -> Any:
    count: Any = iterator.count
    iterator.position = position + 1
    if is_dynamic(position) or is_dynamic(count):
        # In range whatever it is: what is not has its error.
        last = number_tensor(count, torch.int64) - 1
        position = torch.minimum(number_tensor(position, torch.int64), last).clamp(min=0).item()
        torch._check(position >= 0)
        torch._check(position < count)
    return iterator.at(position)


def collected(steps: Dynamic, function: Callable[[Any], Any], site: Site) -> list[Any]:
    """The list of what a function returns for each element."""
    found: list[Any] = []

    def step(element: Any) -> None:
        found.append(function(element))

    seen = {"the list": found, "the function": function}
    operators.for_(steps, step, None, tuple, lambda _: None, (), site, needed=(), read=(), seen=lambda: seen)
    return found


def groups(site: Site, iterable: Any, key: Callable[[Any], Any] | None = None) -> Any:
    """``itertools.groupby``."""
    steps = sequence_of(iterable)
    key = key or (lambda element: element)
    if steps is None:
        values = list(iterable)
        keys = [key(value) for value in values]
        if not any(map(is_traced, keys)):
            return itertools.groupby(values, key)
        steps = Dynamic(len(values), lambda number: choice.sequence(values, site, lambda f, _: f)[number])
    else:
        keys = collected(steps, key, site)
    whole = whole_of(keys)
    rows, all_of = whole.rows, None if steps.steps is None else steps.steps()
    if rows.dim() != 1:
        raise NotImplementedError("groupby() with a key that is not a number")
    places = torch.arange(rows.shape[0])
    begins = (rows != rows.index_select(0, (places - 1).clamp(min=0))) | (places == 0)
    starts = begins.nonzero().squeeze(1)
    lengths = torch.zeros_like(starts).index_add(0, begins.to(torch.int64).cumsum(0) - 1, torch.ones_like(places))

    def at(number: Any) -> tuple[Any, Group]:
        start: Any
        length: Any
        start, length = (x.select(0, number).item() for x in (starts, lengths))
        torch._check(start >= 0)
        torch._check(length >= 1)
        torch._check(start + length <= rows.shape[0])
        part = None if all_of is None else lambda: _narrowed(all_of, start, length)
        return whole.element(rows, start), Group(Dynamic(length, lambda n: steps.at(start + n), part))

    return Dynamic(starts.shape[0], at)


def _narrowed(part: Steps | Tuples, start: Any, length: Any) -> Steps | Tuples | None:
    if isinstance(part, Tuples) and part.present is None:
        return Tuples([x.narrow(0, start, length) for x in part.columns], None, part.kinds)
    if isinstance(part, Steps):
        return Steps(part.rows.narrow(0, start, length), kind=part.kind)
    return part.part(slice(start, start + length))


def pairs(sequences: Sequence[Dynamic]) -> Callable[[], Tuples] | None:
    """The tuples of the elements of sequences of one length as one part; None if these are no rows."""
    found = [x.steps() if x.steps is not None else None for x in sequences]
    if not all(isinstance(x, Steps) for x in found):
        return None
    return lambda: Tuples([x.rows for x in found], None, tuple(x.kind for x in found))  # type: ignore[union-attr]
