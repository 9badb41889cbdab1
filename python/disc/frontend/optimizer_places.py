"""Where an optimizer of PyTorch keeps its numbers and tensors, and copies of it in which others are in these places.

An optimizer has options for groups of parameters, a state for each parameter, and attributes of its own. All of them
may have lists, tuples and dicts inside. A :class:`Place` names one value of them.
"""

from __future__ import annotations

import functools
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

NUMBERS = (int, float, torch.SymInt, torch.SymFloat)

GROUP, STATE, SHARED, ATTRIBUTE = "group", "state", "shared", "attribute"

# Attributes that the base class and learning rate schedulers set.
_OF_TORCH = frozenset(
    "defaults state param_groups step grad_scale found_inf _optimizer_step_pre_hooks _optimizer_step_post_hooks"
    " _optimizer_state_dict_pre_hooks _optimizer_state_dict_post_hooks _optimizer_load_state_dict_pre_hooks"
    " _optimizer_load_state_dict_post_hooks _zero_grad_profile_name _warned_capturable_if_run_uncaptured"
    " _opt_called _step_count _step_supports_amp_scaling _need_device_dtype_check_for_fused".split()
)

# How PyTorch is to compute an update: one operation after the other, as traced code does.
EXECUTION = {"foreach": False, "fused": None, "capturable": False, "differentiable": False}


@dataclass(frozen=True)
class Place:
    """One value that an optimizer keeps."""

    kind: str
    """An option of a group, in the state of a parameter, in the state beside those of parameters, or an attribute."""
    owner: int
    """The number of the group or of the parameter, among those that are traced; else 0."""
    path: tuple[Any, ...]
    """Keys and indices that lead to the value: ``("betas", 0)``."""

    @property
    def text(self) -> str:
        """The path, as code writes it: ``betas[0]``."""
        first, *others = self.path
        return str(first) + "".join(f"[{key!r}]" for key in others)


class Options(dict[str, Any]):
    """The options of a group, which note the names that are asked for; the values are those of a copy."""

    def __init__(self, values: dict[str, Any], asked: set[str]) -> None:
        super().__init__(values)
        self.asked = asked

    def __getitem__(self, key: str) -> Any:
        self.asked.add(key)
        return super().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        self.asked.add(str(key))
        return super().__contains__(key)

    def get(self, key: str, default: Any = None) -> Any:
        """As that of a dict."""
        self.asked.add(key)
        return super().get(key, default)

    def setdefault(self, key: str, default: Any = None) -> Any:
        """As that of a dict."""
        self.asked.add(key)
        return super().setdefault(key, default)

    def pop(self, key: str, *default: Any) -> Any:
        """As that of a dict."""
        self.asked.add(key)
        return super().pop(key, *default)

    def __iter__(self) -> Iterator[str]:
        self.asked.update(super().keys())
        return super().__iter__()

    def keys(self) -> Any:
        """As that of a dict."""
        self.asked.update(super().keys())
        return super().keys()

    def values(self) -> Any:
        """As that of a dict."""
        self.asked.update(super().keys())
        return super().values()

    def items(self) -> Any:
        """As that of a dict."""
        self.asked.update(super().keys())
        return super().items()

    def copy(self) -> dict[str, Any]:
        """As that of a dict."""
        return dict(self.items())


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """The leaves of a value that are not lists, tuples or dicts, with the keys that lead there."""
    if isinstance(value, dict):
        for key, element in dict.items(value):
            yield from leaves(element, (*path, key))
    elif isinstance(value, (list, tuple)):
        for index, element in enumerate(value):
            yield from leaves(element, (*path, index))
    else:
        yield path, value


def rebuilt(value: Any, leaf: Callable[[tuple[Any, ...], Any], Any], path: tuple[Any, ...] = ()) -> Any:
    """A copy of a value with others in its places."""
    if isinstance(value, (defaultdict, OrderedDict)):
        copy: Any = value.copy()
        copy.update({key: rebuilt(element, leaf, (*path, key)) for key, element in value.items()})
        return copy
    if isinstance(value, dict):
        return {key: rebuilt(element, leaf, (*path, key)) for key, element in dict.items(value)}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(rebuilt(element, leaf, (*path, index)) for index, element in enumerate(value)))
    if isinstance(value, (list, tuple)):
        elements = [rebuilt(element, leaf, (*path, index)) for index, element in enumerate(value)]
        return elements if isinstance(value, list) else tuple(elements)
    return leaf(path, value)


def _options(group: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in dict.items(group) if name != "params"}


def _attributes(optimizer: Optimizer) -> dict[str, Any]:
    return {name: value for name, value in vars(optimizer).items() if name not in _OF_TORCH}


@dataclass(frozen=True)
class Scope:
    """Some groups and some parameters of an optimizer: ``groups[i]`` has those of ``parameters`` that are in it."""

    groups: tuple[int, ...]
    """Their numbers in the optimizer."""
    parameters: tuple[Tensor, ...]
    states: tuple[dict[Any, Any] | None, ...] = ()
    """States of parameters that are not the optimizer's yet; None, or no element, where the optimizer's own counts."""

    def state_of(self, optimizer: Optimizer, owner: int) -> dict[Any, Any] | None:
        """The state of a parameter; None if it has none."""
        state = self.states[owner] if owner < len(self.states) else None
        if state is None and self.parameters[owner] in optimizer.state:
            state = optimizer.state[self.parameters[owner]]
        return state

    def contents(self, optimizer: Optimizer) -> dict[Place, Any]:
        """All values that the optimizer keeps for them, by place."""
        found: dict[Place, Any] = {}
        for owner, number in enumerate(self.groups):
            for path, value in leaves(_options(optimizer.param_groups[number])):
                if path:
                    found[Place(GROUP, owner, path)] = value
        for owner in range(len(self.parameters)):
            for path, value in leaves(self.state_of(optimizer, owner) or {}):
                found[Place(STATE, owner, path)] = value
        others = {key: value for key, value in optimizer.state.items() if not isinstance(key, Tensor)}
        for path, value in leaves(others):
            found[Place(SHARED, 0, path)] = value
        for path, value in leaves(_attributes(optimizer)):
            if path:
                found[Place(ATTRIBUTE, 0, path)] = value
        return found

    def stand_in(
        self,
        optimizer: Optimizer,
        parameters: Sequence[Tensor],
        leaf: Callable[[Place, Any], Any],
        asked: Sequence[set[str]] | None = None,
    ) -> Optimizer:
        """A copy of the optimizer with ``parameters`` in the places of the scope's own, and other values.

        Args:
            optimizer: the optimizer.
            parameters: one for each parameter of the scope.
            leaf: the value for each place, given the optimizer's own.
            asked: for each group, where the names of options go that the class asks for.
        """
        copy: Optimizer = object.__new__(type(optimizer))
        vars(copy).update(vars(optimizer))
        vars(copy).pop("step", None)
        copy._optimizer_step_pre_hooks = OrderedDict()
        copy._optimizer_step_post_hooks = OrderedDict()

        def value(kind: str, owner: int) -> Callable[[tuple[Any, ...], Any], Any]:
            return lambda path, value: leaf(Place(kind, owner, path), value)

        vars(copy).update(rebuilt(_attributes(optimizer), value(ATTRIBUTE, 0)))
        copies = {id(own): new for own, new in zip(self.parameters, parameters, strict=True)}
        copy.param_groups = []
        for owner, number in enumerate(self.groups):
            group = optimizer.param_groups[number]
            options = rebuilt(_options(group), value(GROUP, owner))
            options.update({name: mode for name, mode in EXECUTION.items() if name in options})
            mine = [copies[id(p)] for p in group["params"] if id(p) in copies]
            copy.param_groups.append(Options({"params": mine, **options}, set() if asked is None else asked[owner]))
        copy.state = defaultdict(dict)
        for owner, new in enumerate(parameters):
            if (state := self.state_of(optimizer, owner)) is not None:
                copy.state[new] = rebuilt(state, value(STATE, owner))
        others = {key: value for key, value in optimizer.state.items() if not isinstance(key, Tensor)}
        copy.state.update(rebuilt(others, value(SHARED, 0)))
        return copy

    def contents_of_stand_in(self, copy: Optimizer, parameters: Sequence[Tensor]) -> dict[Place, Any]:
        """All values that a stand-in keeps."""
        return Scope(tuple(range(len(self.groups))), tuple(parameters)).contents(copy)


def at(optimizer: Optimizer, scope: Scope, place: Place) -> Any:
    """The value in a place now. Raises KeyError, IndexError or AttributeError if there is none."""
    return functools.reduce(lambda inside, key: inside[key], *_start(optimizer, scope, place))


def put(optimizer: Optimizer, scope: Scope, place: Place, value: Any) -> None:
    """Has the optimizer keep another value in a place."""
    keys, root = _start(optimizer, scope, place)
    inside = functools.reduce(lambda inside, key: inside[key], keys[:-1], root)
    if isinstance(inside, tuple):
        changed = (*inside[: keys[-1]], value, *inside[keys[-1] + 1 :])
        put(optimizer, scope, Place(place.kind, place.owner, place.path[:-1]), changed)
    else:
        inside[keys[-1]] = value


def _start(optimizer: Optimizer, scope: Scope, place: Place) -> tuple[tuple[Any, ...], Any]:
    if place.kind == GROUP:
        return place.path, optimizer.param_groups[scope.groups[place.owner]]
    if place.kind == STATE:
        # Not by [], which would make a state.
        return place.path, optimizer.state.get(scope.parameters[place.owner], {})
    if place.kind == SHARED:
        return place.path, optimizer.state
    return place.path, vars(optimizer)


def step_of(kind: type[Optimizer]) -> Callable[..., Any]:
    """The function of a class that makes a step, without PyTorch's wrappers, which call hooks and switch gradients."""
    step: Any = kind.step
    package = torch.__path__[0]
    while hasattr(step, "__wrapped__"):
        file = step.__code__.co_filename
        if not file.startswith((f"{package}/optim/optimizer.py", f"{package}/utils/_contextlib.py")):
            break
        step = step.__wrapped__
    function: Callable[..., Any] = step
    return function
