"""What of an optimizer may change between the calls of a compiled step, and what may not."""

from __future__ import annotations

import operator
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import sympy
from torch import Tensor
from torch.optim import Optimizer

from .. import errors
from .optimizer_places import EXECUTION, leaves, rebuilt
from .rewriting.given import holds

_MISSING: Any = type("missing", (), {"__repr__": lambda _: "none"})()


@dataclass(frozen=True)
class HyperParameter:
    """A number among the options of a group, which each call reads."""

    group: int
    name: str
    index: int | None = None
    """Its place in a tuple, such as that of the betas; None where the option itself is the number."""

    def read(self, optimizer: Optimizer) -> float:
        """The number now. Raises CallError if it is not a number any more."""
        value = optimizer.param_groups[self.group].get(self.name, _MISSING)
        if self.index is not None and isinstance(value, (tuple, list)) and self.index < len(value):
            value = value[self.index]
        if type(value) is float:
            return value
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise errors.CallError(f"{self}: expected a number, got {value!r}; compile the step again")
        return float(value)

    def __str__(self) -> str:
        index = "" if self.index is None else f"[{self.index}]"
        return f"param_groups[{self.group}][{self.name!r}]{index} of the optimizer"


@dataclass
class Condition:
    """A condition on numbers that the optimizer's code asks for."""

    expression: Any
    numbers: dict[sympy.Symbol, HyperParameter]
    answer: bool
    _values: tuple[float, ...] | None = None

    def check(self, optimizer: Optimizer) -> None:
        """Raises ConstantError if the answer would be another one now."""
        values = tuple([number.read(optimizer) for number in self.numbers.values()])
        if values == self._values:
            return
        if holds(self.expression, dict(zip(self.numbers, values, strict=True))) != self.answer:
            texts = [f"{number} is {value!r}" for number, value in zip(self.numbers.values(), values, strict=True)]
            expression = str(self.expression.subs({s: sympy.Symbol(n.name) for s, n in self.numbers.items()}))
            raise errors.ConstantError(
                f"{' and '.join(texts)}: the step is compiled for {self.answer} as the answer to {expression}, which"
                " the optimizer's code asks; compile the step again"
            )
        self._values = values


@dataclass
class Structure:
    """What must be as it was when the optimizer was traced."""

    kind: type[Optimizer]
    parameters: list[list[Tensor]]
    """The parameters of each group."""
    options: list[tuple[int, str, Any]] = field(default_factory=list)
    """Group, name and value of options that are constants: copies, and ``_MISSING`` where there is none."""
    attributes: list[tuple[str, Any]] = field(default_factory=list)
    conditions: list[Condition] = field(default_factory=list)

    def check(self, optimizer: Optimizer) -> None:
        """Raises CallError or ConstantError, with the group and the option, if the optimizer is not as it was."""
        groups = optimizer.param_groups
        if type(optimizer) is not self.kind:
            raise errors.CallError(f"optimizer: expected {self.kind.__name__}, got {type(optimizer).__name__}")
        if len(groups) != len(self.parameters):
            raise errors.CallError(f"optimizer: expected {len(self.parameters)} groups, got {len(groups)}")
        for number, (group, known) in enumerate(zip(groups, self.parameters, strict=True)):
            now = group["params"]
            if len(now) != len(known) or not all(map(operator.is_, now, known)):
                raise errors.CallError(
                    f"param_groups[{number}] of the optimizer has other parameters; compile the step again"
                )
        for number, name, expected in self.options:
            found = groups[number].get(name, _MISSING)
            if found is not expected and not _equal(found, expected):
                raise errors.ConstantError(
                    f"param_groups[{number}][{name!r}] of the optimizer is a constant of the compiled step: expected"
                    f" {expected!r}, got {found!r}; compile the step again"
                )
        for name, expected in self.attributes:
            found = getattr(optimizer, name, _MISSING)
            if found is not expected and not _equal(found, expected):
                raise errors.ConstantError(
                    f"attribute {name!r} of the optimizer is a constant of the compiled step: expected {expected!r},"
                    f" got {found!r}; compile the step again"
                )
        for condition in self.conditions:
            condition.check(optimizer)


def _equal(found: Any, expected: Any) -> bool:
    if isinstance(expected, _Others):
        return expected.matches(found)
    if type(found) is not type(expected) or isinstance(found, Tensor):
        return False
    return bool(found == expected)


class _Others:
    """A list or tuple with numbers that are inputs: all else in it is constant."""

    def __init__(self, value: Any, numbers: Collection[tuple[Any, ...]]) -> None:
        self._kind, self._numbers = type(value), frozenset(numbers)
        self._leaves = self._constants(value)
        self._text = repr(value)

    def _constants(self, value: Any) -> dict[tuple[Any, ...], Any]:
        return {path: None if path in self._numbers else leaf for path, leaf in leaves(value)}

    def matches(self, value: Any) -> bool:
        """Whether another value differs in the numbers alone."""
        return type(value) is self._kind and self._constants(value) == self._leaves

    def __repr__(self) -> str:
        return f"{self._text}, with other numbers"


def structure_of(
    optimizer: Optimizer,
    asked: Mapping[int, set[str]],
    inputs: Collection[tuple[int, tuple[Any, ...]]],
    attributes: Collection[str],
    conditions: Sequence[Condition],
) -> Structure:
    """What must not change.

    Args:
        optimizer: as it is now.
        asked: for each group, the names of the options that steps read.
        inputs: the places, as group and path, of options that are inputs or tensors of the program.
        attributes: the names of attributes that are constants.
        conditions: what code asked about numbers.
    """
    options: list[tuple[int, str, Any]] = []
    for number, names in sorted(asked.items()):
        group = optimizer.param_groups[number]
        for name in sorted(names - EXECUTION.keys() - {"params"}):
            value = group.get(name, _MISSING)
            within = {path[1:] for owner, path in inputs if owner == number and path[0] == name}
            if () not in within:
                options.append((number, name, _Others(value, within) if within else _kept(value)))
    return Structure(
        type(optimizer),
        [list(group["params"]) for group in optimizer.param_groups],
        options,
        [(name, _kept(getattr(optimizer, name))) for name in attributes],
        list(conditions),
    )


def _kept(value: Any) -> Any:
    """A copy of a list, so that a later change of the list does not change it; another value as it is."""
    return rebuilt(value, lambda _, leaf: leaf) if isinstance(value, (list, dict)) else value
