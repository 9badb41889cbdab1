"""The state that an optimizer has before its first step.

Optimizers make the state of a parameter in their first step: ``state["exp_avg"] = zeros_like(p)``. A compiled step
updates tensors that are there from the start, so they are made before it. Two first steps are made with copies of the
parameters, and with other gradients each; what they put into the state is copied at that moment. That is the state,
if a step that begins with it does what a first step does. Values that depend on the gradients, such as the momentum of
SGD, which begins as the first gradient, are replaced by zeros, if that does the same.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from .. import errors
from .locations import source_of_error
from .optimizer_places import Place, Scope, leaves, rebuilt, step_of

State = dict[Any, Any]


@dataclass
class FirstState:
    """The states of parameters, in their order."""

    states: list[State]
    """The states that must exist before the first step; or, if the first step differs, those that it creates."""
    differs: bool
    """Whether no state makes the first step an ordinary one."""


class _Noting(dict[Any, Any]):
    """A state that keeps copies of its values as they are when they are put in first."""

    def __init__(self) -> None:
        super().__init__()
        self.first: State = {}

    def __setitem__(self, key: Any, value: Any) -> None:
        if key not in self.first:
            self.first[key] = _copied(value)
        super().__setitem__(key, value)

    def setdefault(self, key: Any, default: Any = None) -> Any:
        if key not in self:
            self[key] = default
        return self[key]

    def update(self, *args: Any, **kwargs: Any) -> None:
        for key, value in dict(*args, **kwargs).items():
            self[key] = value


def _copy(_: Any, value: Any) -> Any:
    return value.detach().clone() if isinstance(value, Tensor) else value


def _copied(value: Any) -> Any:
    return rebuilt(value, _copy)


@dataclass
class _Step:
    """What a step left behind."""

    parameters: list[Tensor]
    first: list[State]
    last: list[State]


def _step(optimizer: Optimizer, scope: Scope, gradients: Sequence[Tensor], states: Sequence[State] | None) -> _Step:
    """A step with copies of the parameters, which have no state, or ``states``."""
    copies = [p.detach().clone().requires_grad_(p.requires_grad) for p in scope.parameters]
    own = {id(parameter): copy for parameter, copy in zip(scope.parameters, copies, strict=True)}

    def leaf(_: Place, value: Any) -> Any:
        return own.get(id(value), _copy((), value))

    copy = scope.stand_in(optimizer, copies, leaf)
    noting: list[_Noting] = [_Noting() for _ in copies]
    if states is not None:
        copy.state.update({p: _copied(state) for p, state in zip(copies, states, strict=True)})
    else:
        made = iter(noting)
        copy.state = _States({p: next(made) for p in copies}, copy.state)
    for parameter, gradient in zip(copies, gradients, strict=True):
        parameter.grad = gradient.clone()
    with torch.no_grad():
        step_of(type(optimizer))(copy)
    last = [dict(copy.state.get(p, {})) for p in copies]
    first = [{**_copied(after), **before.first} for before, after in zip(noting, last, strict=True)]
    return _Step([p.detach() for p in copies], first, last)


class _States(defaultdict[Any, Any]):
    """The states of parameters, which appear when they are asked for."""

    def __init__(self, empty: dict[Tensor, _Noting], others: dict[Any, Any]) -> None:
        super().__init__(dict, others)
        self._empty = empty

    def __missing__(self, key: Any) -> Any:
        self[key] = self._empty.get(key, {})
        return self[key]


def _gradients(parameters: Sequence[Tensor], seed: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    made = []
    for parameter in parameters:
        values = torch.empty(parameter.shape, dtype=parameter.dtype).normal_(generator=generator)
        made.append(torch.empty_like(parameter, requires_grad=False).copy_(values))
    return made


def first_state(optimizer: Optimizer, scope: Scope) -> FirstState:
    """The states of a scope's parameters, all of which have none yet."""
    one, two = (_gradients(scope.parameters, seed) for seed in (1, 2))
    with torch.random.fork_rng(devices=[]):
        try:
            step, other = (_step(optimizer, scope, gradients, None) for gradients in (one, two))
        except Exception as error:
            kind = type(optimizer).__name__
            raise errors.ModelError("import", f"{kind}.step fails: {error}", source_of_error(error), error) from error
        if not any(step.first) and not any(other.first):
            return FirstState(step.first, differs=False)
        for states in (other.first, _without_gradients(step.first, other.first)):
            try:
                again = _step(optimizer, scope, one, states)
            except Exception:
                continue  # An optimizer may not accept zeros, for instance where it would divide.
            if _same(again.parameters, step.parameters) and _same(again.last, step.last):
                return FirstState(states, differs=False)
        return FirstState(step.last, differs=True)


def _without_gradients(one: Sequence[State], other: Sequence[State]) -> list[State]:
    """The states with zeros for what differs between two gradients."""
    others = dict(leaves(list(other)))

    def leaf(path: tuple[Any, ...], value: Any) -> Any:
        if isinstance(value, Tensor) and not _same(value, others.get(path)):
            return torch.zeros_like(value)
        return value

    return rebuilt(list(one), leaf)  # type: ignore[no-any-return]


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        same = one.shape == other.shape and one.dtype == other.dtype
        return same and torch.allclose(one, other, rtol=0, atol=0, equal_nan=True)
    values, others = dict(leaves(one)), dict(leaves(other))
    if () in values or () in others:
        return type(one) is type(other) and bool(one == other)
    return values.keys() == others.keys() and all(_same(value, others[path]) for path, value in values.items())
