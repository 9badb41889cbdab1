"""Functions of integers that no expression over sizes has: their results are numbers that the model computes."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .conditions import known_truth, number_tensor
from .dynamic import is_dynamic


def _square_root(x: Tensor) -> Tensor:
    # float64 may round the root of a large square up.
    root = x.to(torch.float64).sqrt().floor().to(torch.int64)
    return torch.where(root * root > x, root - 1, root)


def _bit_length(x: Tensor) -> Tensor:
    powers = torch.ones((), dtype=torch.int64) << torch.arange(63)
    return (x.abs() >= powers).sum()


NATURAL: dict[Any, Callable[..., Tensor]] = {
    math.isqrt: _square_root,
    math.gcd: lambda *given: functools.reduce(torch.gcd, given),
    int.bit_length: _bit_length,
}
"""Functions of Python whose results are natural numbers, for tensors."""


def natural(function: Callable[..., Any], *args: Any) -> Any:
    """A function among ``NATURAL`` of numbers of which some may be dynamic."""
    return _number(NATURAL[function], args, 0) if any(map(is_dynamic, args)) else function(*args)


def _number(function: Callable[..., Tensor], args: tuple[Any, ...], least: int | None) -> Any:
    number = function(*(number_tensor(x, torch.int64) for x in args)).item()
    if least is not None:
        torch._check(number >= least)
    return number


_OPERATIONS: dict[str, Callable[..., Tensor]] = {
    "rpow": torch.pow,
    "lshift": torch.bitwise_left_shift,
    "rlshift": torch.bitwise_left_shift,
    "xor": torch.bitwise_xor,
    "rxor": torch.bitwise_xor,
}


def computed_number(name: str) -> Callable[..., Any]:
    """The replacement of a method of ``torch.SymInt``, ``__rlshift__``, say."""
    plain = name.strip("_")
    function = _OPERATIONS[plain]

    def compute(original: Callable[..., Any], self: Any, other: Any) -> Any:
        first, second = (other, self) if plain.startswith("r") else (self, other)
        whole = all(type(x) is int or isinstance(x, torch.SymInt) for x in (first, second))
        if not whole or not (is_dynamic(second) or (plain == "xor" and is_dynamic(first))):
            return original(self, other)
        if "xor" in plain:
            return _number(function, (first, second), None)
        # A negative exponent makes a float, and shifts by a negative number are an error.
        if known_truth(second >= 0) is not True:
            return original(self, other)
        positive = known_truth(first > 0) is True
        return _number(function, (first, second), 1 if positive else None)

    return compute
