"""What a call changes that is not a buffer: attributes of modules, of their classes and of objects that they have,
elements of containers, global variables and variables of enclosing functions.

Tensors that stay tensors of the same shape and dtype become state of the compiled model (``state_tensors.py``). A
tensor that the call reads and then replaces by another kind (``self.h = torch.cat([self.h, x])``) is an error. Numbers
that it counts on (``self.calls += 1``) and containers that it adds to (``self.history.append(x)``) are a warning, since
much code notes such things for others than the model.
"""

from __future__ import annotations

import sys
import warnings
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch.export import ExportedProgram

from .. import errors
from ..torch_compat import patches
from ..torch_compat.patching import replaced
from ..torch_compat.tracing import FakeTensor
from . import state_places
from .attribute_reads import Reads, watched
from .locations import warn
from .replaced_buffers import misfit
from .result_layouts import storage_of
from .rewriting.conditions import SYMBOLIC
from .state_places import Part, Record
from .state_tensors import HELP, NeedsState, check_constants

_PLAIN = (*state_places.PLAIN, torch.dtype, torch.device, torch.Size)


class _Attributes(NamedTuple):
    path: str
    module: torch.nn.Module
    names: tuple[set[str], ...]
    """What is in the module's dictionaries before the call."""

    @staticmethod
    def of(path: str, module: torch.nn.Module) -> _Attributes:
        return _Attributes(path, module, tuple(set(group) for group in _groups(module)))

    def new(self) -> list[tuple[dict[str, Any], str]]:
        """What is there and was not before the call, also if it was in another one of the dictionaries."""
        groups = zip(_groups(self.module), self.names, strict=True)
        return [(group, name) for group, names in groups for name in group.keys() - names]


def _groups(module: torch.nn.Module) -> list[dict[str, Any]]:
    own = vars(module)
    return [own, own["_buffers"], own["_parameters"]]


@dataclass
class Changes:
    """What the last trace of a model changed."""

    records: list[Record] = field(default_factory=list)
    """The places that the model's code can reach."""
    states: list[Record] = field(default_factory=list)
    """Tensors that are replaced by others of the same shape and dtype."""
    tensors: list[tuple[Record, str]] = field(default_factory=list)
    """Tensors that are replaced by others of the same kind, and how."""
    others: set[str] = field(default_factory=set)
    parted: dict[int, Record] = field(default_factory=dict)
    """What is in containers that are at several places, and at others after the call; by the identity of its place."""

    def note(
        self, records: list[Record], reads: Reads, before: list[_Attributes], traced: dict[int, torch.Tensor]
    ) -> None:
        """Compares the places with what they were.

        ``traced``: what stands for a parameter or buffer in the trace, by the identity of that. A list of parameters,
        as recurrent layers keep one, may have either.
        """
        self.records, self.states, self.tensors, self.others, self.parted = records, [], [], set(), {}
        for attributes in before:
            known = set().union(*attributes.names)
            for group, name in attributes.new():
                if name not in known and _is_from_trace(group[name]):
                    self.others.add(f"self.{attributes.path}.{name}" if attributes.path else f"self.{name}")
        renewed: set[int] = set()
        """The places that each call sets before it reads them."""
        shared = _shared_containers(records)
        for record in records:
            now, place = record.place.get(), record.place
            known = _referred(now)
            if isinstance(known, torch.Tensor) and traced.get(id(_referred(record.value))) is known:
                continue
            if isinstance(place, Part) and id(place.parent) in renewed:
                renewed.add(id(place))
            if now is not record.value and not reads.may_matter(record):
                renewed.add(id(place))
            if id(record) in shared or (isinstance(place, Part) and id(place.parent) in self.parted):
                self.parted[id(place)] = record
            if now is record.value:
                if record.elements is not None and self._is_changed_inside(record):
                    self.others.add(place.path)
            elif isinstance(record.value, torch.Tensor):
                self._note_tensor(record, now)
            elif isinstance(now, torch.Tensor) or (id(place) not in renewed and _differs(record, now)):
                self.others.add(place.path)

    def _note_tensor(self, record: Record, now: Any) -> None:
        if isinstance(now, torch.Tensor) and misfit(record.value, now) is None and record.can_be_replaced:
            self.states.append(record)
        elif _alike(record.value, now):
            self.tensors.append((record, misfit(record.value, now) or "replaced"))
        else:
            # Another kind of tensor is a conversion, with one result in all calls: self.grid = self.grid.to(x).
            self.others.add(record.place.path)

    @staticmethod
    def _is_changed_inside(record: Record) -> bool:
        """Whether a container has other keys than before. Elements have records of their own."""
        before = record.elements
        assert before is not None
        now = state_places.elements(record.value)
        if isinstance(record.value, (set, frozenset)):
            return set(map(id, now.values())) != set(map(id, before.values()))
        if state_places.is_object(record.value):
            return any(_is_from_trace(value) for name, value in now.items() if name not in before)
        return list(now) != list(before)

    def report(self, program: ExportedProgram) -> None:
        """Raises for a tensor that the program reads as it was before the call, and warns of what else changed.

        Raises NeedsState if tensors change that are no buffers.
        """
        for record in self.states:
            if id(record.place) in self.parted:
                raise errors.ControlFlowError(
                    "import",
                    f"{record.place.path} is in a container that the call replaces, and that is at another place, too:"
                    " copy the container, or change its elements",
                )
        if self.states:
            raise NeedsState([record.value for record in self.states])
        check_constants(program, self.records)
        read = {storage_of(value) for value in program.constants.values() if isinstance(value, torch.Tensor)}
        others = set(self.others)
        for old, change in self.tensors:
            if storage_of(old.value) in read:
                raise errors.ControlFlowError("import", f"{old.place.path} is read and then {change}: {HELP}")
            others.add(old.place.path)
        if others:
            names = " and ".join(sorted(others))
            warn(
                f"the call changes {names}, which a compiled model does not: it always has what was there when it was "
                f"compiled. If results depend on that, {HELP}"
            )


def _shared_containers(records: list[Record]) -> set[int]:
    """The records of containers that are replaced, and were or are at another place, too."""
    now: dict[int, list[Record]] = {}
    for record in records:
        if record.elements is not None:
            now.setdefault(id(record.place.get()), []).append(record)
    replaced = (record for record in records if record.elements is not None and record.place.get() is not record.value)
    return {id(record) for record in replaced if record.again or len(now[id(record.place.get())]) > 1}


def _alike(old: torch.Tensor, new: Any) -> bool:
    """Whether a tensor replaces one, and is no conversion of it."""
    return isinstance(new, torch.Tensor) and new.dtype == old.dtype


def _differs(record: Record, now: Any) -> bool:
    """Whether a value that is no tensor has become another one."""
    old = record.value
    if record.elements is None:
        return not (type(now) is type(old) and isinstance(old, _PLAIN) and now == old)
    # A new container with the same keys: its elements have records. Another name of it would not see them.
    return type(now) is not type(old) or record.again or list(state_places.elements(now)) != list(record.elements)


def _is_of_trace(value: Any) -> bool:
    """Whether a value means nothing after the trace: also what stands for a value that a branch may leave unset."""
    return isinstance(value, (FakeTensor, *SYMBOLIC)) or type(value).__module__.startswith("disc.")


def _is_from_trace(value: Any) -> bool:
    return isinstance(value, torch.Tensor) or _is_of_trace(value)


def _stays(record: Record, now: Any) -> bool:
    """Whether what is there after a trace may stay: another thread may have added to a container that it sees, too."""
    if not record.place.shared or record.elements is None:
        return False
    return now is record.value and not any(map(_is_of_trace, state_places.elements(now).values()))


def _referred(value: Any) -> Any:
    return value() if isinstance(value, weakref.ref) else value


def _held(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """The parameters and buffers by all of their names."""
    parameters = module.named_parameters(remove_duplicate=False)
    return {**dict(parameters), **dict(module.named_buffers(remove_duplicate=False))}


@contextmanager
def noticed(root: torch.nn.Module) -> Iterator[Changes]:
    """While it is active, a trace of ``root`` notes the attributes that the model's call changes."""
    changes = Changes()
    own = _held(root)

    @contextmanager
    def around(original: Any, mod: torch.nn.Module) -> Iterator[None]:
        inner = original(mod)
        inner.__enter__()
        before = [_Attributes.of(path, module) for path, module in mod.named_modules()]
        records, stored = state_places.find(mod)
        traced = {id(own[name]): tensor for name, tensor in _held(mod).items() if name in own}
        try:
            with watched(records, stored) as reads:
                yield
            changes.note(records, reads, before, traced)
        finally:
            # PyTorch's own warning is left out: `changes` says it with its consequence. Filters are those of all
            # threads, so that they change for this moment only.
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="The tensor attribute")
                inner.__exit__(*sys.exc_info())
            state_places.restore(records, _stays)
            for attributes in before:
                for group, name in attributes.new():
                    if any(map(_is_from_trace, (group[name], *state_places.elements(group[name]).values()))):
                        del group[name]

    with replaced({patches.ATTRIBUTES: around}):
        yield changes
