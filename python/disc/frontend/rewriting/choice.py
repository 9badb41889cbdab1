"""One of several values, layers or functions, at a number that is known at run time only: branches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from . import graph, operators
from .conditions import constant_of, decide, known_truth, number_tensor
from .dynamic import View, check_alike, is_dynamic
from .parts import has_parts
from .sites import Site

_Call = Callable[[Any, Site], Callable[..., Any]]
_SEQUENCES = (list, tuple, nn.ModuleList, nn.ParameterList, nn.Sequential)


def sequence(value: Any, site: Site, call: _Call) -> Any:
    """The sequence whose elements code reads, by data-dependent indices. ``call`` returns the functions to call."""
    if isinstance(value, (list, tuple)) and has_parts(value):
        return View(value)
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


class Chosen:
    """One of several functions or layers."""

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
