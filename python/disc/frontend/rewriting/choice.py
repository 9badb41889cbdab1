"""One of several values, layers or functions, at a number that is known at run time only: branches."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from . import graph, operators
from .conditions import constant_of, decide, known_truth, number_tensor, stand_in
from .dynamic import Once, View, check_alike, is_dynamic
from .optional import OptionalValue
from .parts import has_parts
from .sites import Site
from .texts import Numbered

_Call = Callable[[Any, Site], Callable[..., Any]]
_SEQUENCES = (list, tuple, nn.ModuleList, nn.ParameterList, nn.Sequential)


def sequence(value: Any, site: Site, call: _Call) -> Any:
    """The sequence whose elements code reads, by data-dependent indices. ``call`` returns the functions to call."""
    if isinstance(value, (list, tuple)) and has_parts(value):
        return View(value)
    if type(value) is dict or (
        isinstance(value, nn.ModuleDict) and type(value).__getitem__ is nn.ModuleDict.__getitem__
    ):
        return Table(value, site, call)
    return Options(value, site, call) if isinstance(value, _SEQUENCES) else value


class Options:
    """A sequence of a known length, as code reads it."""

    def __init__(self, values: Any, site: Site, call: _Call) -> None:
        """``values``: the sequence."""
        self._values, self._site, self._call = values, site, call

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, Tensor) and index.dim() == 0 and constant_of(index) is None:
            index = index.item()
        if not is_dynamic(index):
            return self._values[index]
        check_alike()
        values, count = list(self._values), len(self._values)
        there = (index >= -count) & (index < count) if count else False
        if known_truth(there) is not True:
            text = f"IndexError: index out of range ({self._site.source})"
            graph.require(number_tensor(there, torch.bool), text)
        if not values:
            raise IndexError("index out of range")
        at = number_tensor(index, torch.int64)
        # In range whatever it is: what is not has its error.
        number = torch.where(at < 0, at + count, at).clamp(0, count - 1).item()
        torch._check(number >= 0)
        torch._check(number < count)
        chosen = Chosen(values, number, self._site, self._call)
        return chosen if all(callable(x) and not isinstance(x, Tensor) for x in values) else chosen.map(lambda x: x)


class Table:
    """A dict, as code reads it."""

    def __init__(self, values: dict[Any, Any] | nn.ModuleDict, site: Site, call: _Call) -> None:
        """``values``: the dict."""
        self._values, self._site, self._call = values, site, call

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, Numbered):
            found = {n: self._values[k] for k in self._values if (n := key.number_in(k)) is not None}
            return self._at(found, key.number)
        if not is_dynamic(key):
            return self._values[key]
        return self._at({k: x for k, x in self._values.items() if isinstance(k, int)}, key)

    def _at(self, found: dict[int, Any], key: Any) -> Any:
        check_alike()
        there = functools.reduce(operator.or_, (key == k for k in found), False)
        if known_truth(there) is not True:
            text = f"KeyError: a number that is not among the keys ({self._site.source})"
            graph.require(number_tensor(there, torch.bool), text)
        held = {k: x for k, x in found.items() if x is not None}
        if len(held) < len(found):
            some = functools.reduce(operator.or_, (key == k for k in held), False)
            value = self._of(held, key) if held else None
            return (
                None if value is None else OptionalValue(value, stand_in(number_tensor(some, torch.bool)), "the value")
            )
        return self._of(held, key)

    def _of(self, found: dict[int, Any], key: Any) -> Any:
        if not found:
            raise KeyError("a number that data computes")
        values = list(found.values())
        if all(x is values[0] for x in values):
            return values[0]
        # The number of the key, 0 if there is no such key.
        number = number_tensor(key, torch.int64)
        index: Any = sum(torch.where(number == k, place, 0) for place, k in enumerate(found) if place)
        index = index.item()
        torch._check(index >= 0)
        torch._check(index < len(values))
        chosen = Chosen(values, index, self._site, self._call)
        alone = [(callable(x) and not isinstance(x, Tensor)) or isinstance(x, Once) for x in values]
        return chosen if all(alone) else chosen.map(lambda x: x)


def attribute(site: Site, value: Any, name: Any, *default: Any) -> Any:
    """``getattr``."""
    if not isinstance(name, Numbered):
        return getattr(value, name, *default)
    found = {n: getattr(value, k) for k in dir(value) if (n := name.number_in(k)) is not None}
    if default:
        raise NotImplementedError("getattr() with a default, whose name contains a number known at run time only")
    return Table(found, site, lambda f, _: f)[name.number]


class Chosen:
    """One of several functions, layers or iterators."""

    def __init__(self, values: Sequence[Any], index: Any, site: Site, call: _Call) -> None:
        """``index``: the number of the one that it is."""
        self.__dict__.update(values=values, index=index, site=site, call=call)

    def map(self, function: Callable[[Any], Any]) -> Any:
        """``function`` of the one that it is."""
        values, index, site = self.__dict__["values"], self.__dict__["index"], self.__dict__["site"]

        def among(first: int, last: int) -> Any:
            if last - first == 1:
                return function(values[first])
            middle = (first + last) // 2
            return operators.if_exp(
                decide(index < middle), lambda: among(first, middle), lambda: among(middle, last), site
            )

        return among(0, len(values))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the one that it is."""
        return self.map(lambda x: self.__dict__["call"](x, self.__dict__["site"])(*args, **kwargs))

    def __getattr__(self, name: str) -> Any:
        return self.map(lambda x: getattr(x, name))
