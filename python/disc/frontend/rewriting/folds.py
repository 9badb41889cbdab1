"""``functools.reduce`` and its like over sequences of dynamic length."""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable
from typing import Any

from ..proving import is_positive
from . import operators
from .conditions import known_truth
from .dynamic import Dynamic, at_least, sequence_of
from .sites import Site

_NOTHING: Any = object()


def reduce(site: Site, function: Callable[[Any, Any], Any], iterable: Any, initial: Any = _NOTHING) -> Any:
    """``functools.reduce``."""
    steps = sequence_of(iterable)
    if steps is None:
        return functools.reduce(function, iterable, *(() if initial is _NOTHING else (initial,)))
    value, rest = (initial, steps) if initial is not _NOTHING else _first(steps)

    def step(element: Any) -> None:
        nonlocal value
        value = function(value, element)

    def put(values: tuple[Any, ...]) -> None:
        nonlocal value
        (value,) = values

    names = ["the value of reduce()"]
    operators.for_(rest, step, None, lambda: (value,), put, names, site, needed=names, read=names)
    return value


def accumulate(site: Site, iterable: Any, func: Callable[[Any, Any], Any] | None = None, *, initial: Any = None) -> Any:
    """``itertools.accumulate``."""
    steps = sequence_of(iterable)
    if steps is None:
        return itertools.accumulate(iterable, func, initial=initial)
    function = operator.add if func is None else func
    value, rest = (initial, steps) if initial is not None else _first(steps)
    found = [value]

    def step(element: Any) -> None:
        nonlocal value
        value = function(value, element)
        found.append(value)

    def put(values: tuple[Any, ...]) -> None:
        nonlocal value
        (value,) = values

    names, seen = ["the value of accumulate()"], {"the list of accumulate()": found}
    operators.for_(rest, step, None, lambda: (value,), put, names, site, needed=(), read=names, seen=lambda: seen)
    return found


def pairwise(_: Site, iterable: Any) -> Any:
    """``itertools.pairwise``."""
    steps = sequence_of(iterable)
    if steps is None:
        return itertools.pairwise(iterable)
    count = steps.count - 1 if is_positive(steps.count) else at_least(steps.count - 1, 0)
    return Dynamic(count, lambda n: (steps.at(n), steps.at(n + 1)))


def _first(steps: Dynamic) -> tuple[Any, Dynamic]:
    """The first element, and a sequence of the others."""
    if known_truth(steps.count >= 1) is not True:
        raise NotImplementedError("reduce() or accumulate() of a sequence that may be empty, without an initial value")
    return steps.at(0), Dynamic(steps.count - 1, lambda n: steps.at(n + 1))
