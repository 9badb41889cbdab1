"""Optimizers of PyTorch as programs: what ``optimizer.step()`` does to parameters and state, for a compiled step.

>>> traced = trace_optimizer(optimizer, module.named_parameters())
>>> traced.program      # (*gradients, *numbers) -> (), which updates the parameters and traced.states in place

The class's own ``step`` is traced, so classes of users work as those of PyTorch do, as long as they are tensor code.
The program computes as PyTorch's loop over parameters does (``foreach=False``), with bias corrections in double.
"""

from __future__ import annotations

import inspect
import itertools
import operator
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.optim import Optimizer

from .. import errors
from ..torch_compat.optimizers import global_post_hooks, global_pre_hooks
from ..torch_compat.tracing import FakeTensorMode
from .optimizer_agreement import agrees
from .optimizer_places import ATTRIBUTE, GROUP, STATE, Place, Scope, at, leaves, put, step_of
from .optimizer_program import Buffer, Instance, is_of_all_shapes, joined
from .optimizer_states import first_state
from .optimizer_structure import Condition, HyperParameter, Structure, structure_of
from .optimizer_update import NUMBER, Update, is_number, trace_update
from .rewriting.given import holds


@dataclass
class _Number:
    """A number of Python that the step changes, with the tensor that has it in the program."""

    place: Place
    tensor: Tensor
    whole: bool


@dataclass
class TracedOptimizer:
    """The step of an optimizer as a program.

    The program's inputs are a gradient for each of ``parameters``, with its shape and dtype, then a 0-d float64 tensor
    for each of ``hyper_parameters``. It returns nothing. Its buffers are the parameters and ``states``.
    """

    parameters: list[str]
    """The names of the parameters that it updates."""
    states: dict[str, Tensor]
    """The optimizer's tensors, by a name such as ``optimizer.<parameter>.exp_avg``; and those of numbers of Python."""
    hyper_parameters: list[HyperParameter]
    structure: Structure
    program: ExportedProgram
    needs_first_step: bool
    """Whether PyTorch must make the first step: the state is not there, and a first step does something else. The
    tensors in ``states`` stand for those of :meth:`current_states` until then."""
    _scope: Scope = field(repr=False)
    _places: dict[str, Place] = field(repr=False)
    _numbers: dict[str, _Number] = field(repr=False)
    _kept: list[Any] = field(default_factory=list, repr=False)
    """All values in the optimizer's states, in their order."""
    _others: list[tuple[Place, Tensor]] = field(default_factory=list, repr=False)

    def current_states(self, optimizer: Optimizer) -> dict[str, Tensor]:
        """The tensors that the optimizer keeps now, under the names of ``states``.

        They are others after ``load_state_dict``. Raises CallError if one is missing, or of another shape or dtype.
        """
        found = {name: number.tensor for name, number in self._numbers.items()}
        for name, place in self._places.items():
            value, known = _found(optimizer, self._scope, place), self.states[name]
            if not isinstance(value, Tensor) or value.shape != known.shape or value.dtype != known.dtype:
                expected = f"a tensor of shape {list(known.shape)} and dtype {known.dtype}"
                got = f"{list(value.shape)}, {value.dtype}" if isinstance(value, Tensor) else repr(value)
                raise errors.CallError(f"the state {name!r} of the optimizer: expected {expected}, got {got}")
            found[name] = value
        return {name: found[name] for name in self.states}

    def changed(self, optimizer: Optimizer) -> bool:
        """Whether the optimizer keeps other tensors than ``states``, as after ``load_state_dict``."""
        if self._kept and not all(map(operator.is_, self._kept, _values(optimizer))):
            return True
        return any(_found(optimizer, self._scope, place) is not tensor for place, tensor in self._others)

    def adopt(self, optimizer: Optimizer) -> None:
        """Copies the optimizer's current values to ``states``, which it then keeps.

        Raises as :meth:`current_states`.
        """
        found = self.current_states(optimizer)
        with torch.no_grad():
            for name, place in self._places.items():
                if found[name] is not self.states[name]:
                    self.states[name].copy_(found[name])
                    put(optimizer, self._scope, place, self.states[name])
        self.needs_first_step = False
        self.watch(optimizer)

    def watch(self, optimizer: Optimizer) -> None:
        """Notes where the optimizer keeps its tensors, which :meth:`changed` looks at."""
        counts = any(number.place.kind == STATE for number in self._numbers.values())
        plain = not counts and all(isinstance(state, dict) for state in optimizer.state.values())
        self._kept = list(_values(optimizer)) if plain else []
        self._others = [
            (place, self.states[name])
            for name, place in self._places.items()
            if not plain or place.kind != STATE or len(place.path) > 1
        ]

    def before_step(self, optimizer: Optimizer) -> None:
        """To be called before the program runs: writes the numbers of Python in the state into their tensors."""
        for number in self._numbers.values():
            number.tensor.fill_(at(optimizer, self._scope, number.place))

    def after_step(self, optimizer: Optimizer) -> None:
        """To be called after the program ran: reads these numbers again, and notifies learning rate schedulers."""
        for number in self._numbers.values():
            value = number.tensor.item()
            put(optimizer, self._scope, number.place, int(value) if number.whole else value)
        optimizer._opt_called = True  # type: ignore[attr-defined]


def _values(optimizer: Optimizer) -> Iterator[Any]:
    """The values in the states; comparing hundreds of them is to cost little."""
    return itertools.chain.from_iterable(map(dict.values, optimizer.state.values()))


def _found(optimizer: Optimizer, scope: Scope, place: Place) -> Any:
    try:
        return at(optimizer, scope, place)
    except (KeyError, IndexError):
        return None


def trace_optimizer(
    optimizer: Optimizer,
    names: Iterable[tuple[str, Tensor]],
    unused: Collection[str] = (),
    fake_mode: FakeTensorMode | None = None,
) -> TracedOptimizer:
    """The step of an optimizer as a program; states that it lacks are made in ``optimizer.state``.

    Args:
        optimizer: of any class whose ``step`` needs no closure and is tensor code.
        names: the parameters with their names, as ``module.named_parameters()``. Those without ``requires_grad``, or in
            no group, are not updated.
        unused: the names of parameters that have no gradient, and are not updated either.
        fake_mode: that of the values in the program, so that it can be joined with another one; with a ShapeEnv.

    Raises:
        CompileError: its step cannot be traced.
    """
    _check(optimizer)
    groups = {id(p): number for number, group in enumerate(optimizer.param_groups) for p in group["params"]}
    named: dict[int, tuple[str, Tensor]] = {}
    for name, parameter in names:
        if id(parameter) in groups and parameter.requires_grad and name not in unused:
            if parameter.is_complex():
                raise errors.UnsupportedTypeError("import", f"the parameter {name!r} is complex: such have no update")
            named.setdefault(id(parameter), (name, parameter))
    if not named:
        raise errors.UnsupportedTypeError("import", "the optimizer has none of the parameters that have gradients")
    return _Tracing(optimizer, list(named.values()), [groups[key] for key in named]).run(fake_mode)


def _check(optimizer: Optimizer) -> None:
    kind = type(optimizer).__name__
    closure, *_ = [*list(inspect.signature(step_of(type(optimizer))).parameters.values())[1:], None]
    if closure is not None and closure.default is closure.empty and closure.kind is closure.POSITIONAL_OR_KEYWORD:
        raise errors.UnsupportedTypeError("import", f"{kind}.step needs a closure, which runs the model several times")
    hooks = [
        *optimizer._optimizer_step_pre_hooks.values(),
        *optimizer._optimizer_step_post_hooks.values(),
        *global_pre_hooks.values(),
        *global_post_hooks.values(),
    ]
    if hooks:
        names = ", ".join(getattr(hook, "__qualname__", type(hook).__name__) for hook in hooks)
        raise errors.UnsupportedTypeError(
            "import", f"{kind} has hooks of its steps ({names}), which a compiled step does not call: remove them"
        )


class _Tracing:
    def __init__(self, optimizer: Optimizer, named: Sequence[tuple[str, Tensor]], groups: Sequence[int]) -> None:
        self._optimizer, self._named, self._groups = optimizer, named, groups
        self._parameters = [Buffer(name, tensor.detach()) for name, tensor in named]
        self._places: dict[str, Place] = {}
        self._numbers: dict[str, _Number] = {}
        self._states: dict[str, Tensor] = {}
        # PyTorch's own update each parameter by itself.
        self._is_separate = step_of(type(optimizer)).__module__.startswith("torch.optim")

    def run(self, fake_mode: FakeTensorMode | None) -> TracedOptimizer:
        optimizer = self._optimizer
        tensors = tuple(tensor for _, tensor in self._named)
        extra, needs_first_step = self._first_states()
        self._scope = Scope(tuple(range(len(optimizer.param_groups))), tensors, extra)
        instances = self._instances()
        program, inputs = joined(self._parameters, instances, self._buffer, fake_mode)
        hyper_parameters = [HyperParameter(group, *_name_and_index(place)) for group, place in inputs]
        traced = TracedOptimizer(
            [name for name, _ in self._named],
            self._states,
            hyper_parameters,
            self._structure(instances, inputs),
            program,
            needs_first_step,
            Scope(self._scope.groups, tensors),
            self._places,
            self._numbers,
        )
        traced.watch(optimizer)
        return traced

    # -- states ----------------------------------------------------------------------------------------------

    def _first_states(self) -> tuple[tuple[dict[Any, Any] | None, ...], bool]:
        """Makes the states that are missing; or returns what stands for them if PyTorch must make the first step."""
        optimizer = self._optimizer
        missing = [i for i, (_, p) in enumerate(self._named) if not optimizer.state.get(p)]
        scopes = [[i] for i in missing] if self._is_separate else [missing] if missing else []
        extra: list[dict[Any, Any] | None] = [None] * len(self._named)
        differs = False
        for numbers in scopes:
            groups = (self._groups[numbers[0]],) if self._is_separate else tuple(range(len(optimizer.param_groups)))
            found = first_state(optimizer, Scope(groups, tuple(self._named[i][1] for i in numbers)))
            differs |= found.differs
            for i, state in zip(numbers, found.states, strict=True):
                extra[i] = state
        if differs:
            return tuple(extra), True
        for i, made in enumerate(extra):
            if made:
                optimizer.state[self._named[i][1]] = made
        return (), False

    def _buffer(self, instance: Instance, place: Place, is_number: bool) -> Buffer:
        """The tensor for a place of an instance's update."""
        owner = place.owner
        if place.kind == STATE:
            owner = instance.parameters[owner]
            name = f"optimizer.{self._named[owner][0]}.{place.text}"
        elif place.kind == GROUP:
            owner = instance.groups[owner]
            name = f"optimizer.group_{owner}.{place.text}"
        else:
            name = f"optimizer.{place.text}"
        if name not in self._states:
            own = Place(place.kind, owner, place.path)
            state = self._scope.state_of(self._optimizer, owner) if place.kind == STATE else None
            value = dict(leaves(state))[place.path] if state is not None else at(self._optimizer, self._scope, own)
            if is_number:
                whole = isinstance(value, int)
                tensor = torch.tensor(value, dtype=torch.int64 if whole else torch.float64)
                self._numbers[name] = _Number(own, tensor, whole)
                self._states[name] = tensor
            else:
                self._states[name], self._places[name] = value, own
        tensor = self._states[name]
        return Buffer(name, tensor.detach() if tensor.requires_grad else tensor)

    # -- updates ---------------------------------------------------------------------------------------------

    def _instances(self) -> list[Instance]:
        whole = range(len(self._named))
        if self._is_separate or len(whole) > 2:
            instances = self._separate()
            if instances is not None and (self._is_separate or self._agree(instances)):
                return instances
        update = trace_update(self._optimizer, self._scope)
        return [Instance(update, tuple(whole), self._scope.groups)]

    def _separate(self) -> list[Instance] | None:
        """An update for each parameter, few of them traced; None if it changes what is not the parameter's own."""
        known: dict[Any, list[Update]] = {}
        instances = []
        for i, group in enumerate(self._groups):
            keys = (self._signature(i, None), self._signature(i, self._named[i][1].shape))
            fitting = [u for key in keys for u in known.get(key, ()) if self._fits(u, group)]
            if not fitting:
                scope = Scope((group,), (self._named[i][1],), self._scope.states[i : i + 1])
                update = trace_update(self._optimizer, scope)
                if any(place.kind != STATE for place in update.changed):
                    return None
                known.setdefault(keys[0 if is_of_all_shapes(update) else 1], []).append(update)
                fitting = [update]
            instances.append(Instance(fitting[0], (i,), (group,)))
        return instances

    def _signature(self, i: int, shape: torch.Size | None) -> Any:
        """What parameters of one update have in common."""
        parameter = self._named[i][1]
        state = self._scope.state_of(self._optimizer, i) or {}
        kinds = tuple((path, _kind(value, parameter)) for path, value in leaves(state))
        group = {k: v for k, v in self._optimizer.param_groups[self._groups[i]].items() if k != "params"}
        options = tuple((path, _constant(value)) for path, value in leaves(group))
        return _kind(parameter, None if shape is None else torch.empty(0)), parameter.dim() == 0, shape, kinds, options

    def _fits(self, update: Update, group: int) -> bool:
        """Whether what an update asks about options has the same answers for a group."""
        scope = Scope((group,), ())
        for expression, places, answer in update.conditions:
            values = {symbol: float(at(self._optimizer, scope, place)) for symbol, place in places.items()}
            if holds(expression, values) != answer:
                return False
        return True

    def _agree(self, instances: Sequence[Instance]) -> bool:
        """Whether updates of one parameter each do what a step of the class does, which may combine parameters."""
        return agrees(self._optimizer, self._scope, instances)

    def _structure(self, instances: Sequence[Instance], inputs: Sequence[tuple[int, Place]]) -> Structure:
        asked: dict[int, set[str]] = {}
        conditions: dict[Any, Condition] = {}
        places = {(group, place.path) for group, place in inputs}
        places |= {(place.owner, place.path) for place in self._places.values() if place.kind == GROUP}
        places |= {(n.place.owner, n.place.path) for n in self._numbers.values() if n.place.kind == GROUP}
        attributes: set[str] = set()
        changed: set[str] = set()
        for instance in instances:
            update = instance.update
            for owner, names in enumerate(update.asked):
                asked.setdefault(instance.groups[owner], set()).update(names)
            # Unread numbers are not inputs, and may have any value.
            for role in update.roles.values():
                if role.kind == NUMBER and role.place is not None:
                    places.add((instance.groups[role.place.owner], role.place.path))
            changed |= {place.path[0] for place in update.changed if place.kind == ATTRIBUTE}
            for place, value in update.contents.items():
                if place.kind == ATTRIBUTE and isinstance(value, (bool, int, float, str, type(None))):
                    attributes.add(place.path[0])
            for expression, numbers, answer in update.conditions:
                mine = {
                    symbol: HyperParameter(instance.groups[place.owner], *_name_and_index(place))
                    for symbol, place in numbers.items()
                }
                conditions[str(expression), tuple(mine.values())] = Condition(expression, mine, answer)
        constant = sorted(name for name in attributes - changed if not name.startswith("_"))
        return structure_of(self._optimizer, asked, places, constant, list(conditions.values()))


def _name_and_index(place: Place) -> tuple[str, int | None]:
    return place.path[0], place.path[1] if len(place.path) > 1 else None


def _kind(value: Any, parameter: Tensor | None) -> Any:
    """What a traced update depends on, of a value in a state, or of a parameter."""
    if not isinstance(value, Tensor):
        return type(value) if is_number(value) else (type(value), str(value))
    is_same = parameter is None or value.shape == parameter.shape
    shape = "same" if is_same else tuple(value.shape)
    strides = value.is_contiguous() or value.stride()
    return shape, value.dtype, value.device, strides


def _constant(value: Any) -> Any:
    """What a traced update depends on, of an option: not of a float, whose value is an input."""
    if isinstance(value, Tensor):
        return "tensor", value.dtype, tuple(value.shape)
    return float if isinstance(value, float) else (type(value), repr(value))
