"""Buffers and parameters that a call replaces: ``self.total = self.total + x.sum()``, in any module.

``torch.export`` knows of buffers of the outermost module, and forgets others. Here each becomes an update in place at
the end of the call, as of ``self.total.copy_(...)``. Results that are the old buffer, or views of it, are copies then.
The same is done at other places, whose tensors are buffers for the trace (``state_tensors.py``).
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.export import ExportedProgram

from .. import errors
from ..torch_compat import patches, pytree
from ..torch_compat.patching import instead, replaced
from ..torch_compat.tracing import FakeTensor
from . import state_tensors
from .locations import warn
from .state_places import ModuleAttribute, Place, Variable

_PARTS = "replaced, and shares memory with another one, which is not replaced by the same tensor"
_JOINED = "replaced by the tensor of another attribute, and calls change one of them in place"
_HELP = "make it an input and an output, or give it one shape and dtype"
_HELPS = {_JOINED: "assign a clone()"}


class _Hook:
    """In the place of PyTorch's own, which is never called."""

    def remove(self) -> None:
        """Nothing is to be removed."""


class _Buffer(NamedTuple):
    place: Place
    target: str
    """``layer.total``, as in ``named_buffers``; an empty string for places of other tensors."""
    value: Any
    """The traced tensor."""
    kept: Any
    """What is there after the call."""
    version: int = 0
    """How often the traced tensor was changed in place before the call."""


@dataclass
class ReplacedBuffers:
    """What the last trace of a model replaced by something that the buffer cannot become."""

    others: dict[str, tuple[str, set[str]]] = field(default_factory=dict)
    """Of each place what happens to it, and all names that the buffer has."""

    def report(self, program: ExportedProgram) -> None:
        """Raises for a buffer that the program reads as it was before the call, and warns of others."""
        signature = program.graph_signature
        read = {
            signature.inputs_to_buffers.get(node.name) or signature.inputs_to_parameters.get(node.name)
            for node in program.graph.nodes
            if node.op == "placeholder" and node.users
        }
        for path, (change, names) in self.others.items():
            if names & read:
                raise errors.ControlFlowError(
                    "import", f"{path} is read and then {change}: {_HELPS.get(change, _HELP)}"
                )
            warn(
                f"{path} is {change}, which a compiled model does not do: it always has what was there"
                f" when it was compiled. If results depend on that, {_HELPS.get(change, _HELP)}"
            )


@contextmanager
def as_updates(root: torch.nn.Module, states: Sequence[Tensor] = ()) -> Iterator[ReplacedBuffers]:
    """While it is active, a call of ``root`` ends with updates of the buffers that it has replaced.

    ``states`` are further tensors, which are buffers as long.
    """
    found = ReplacedBuffers()
    before: list[_Buffer] = []
    depth = 0

    def around(original: Any, module: Any) -> Any:
        nonlocal depth
        depth = 0  # The last trace may have ended within a call.
        return original(module)

    def begin(*_: Any) -> None:
        nonlocal depth
        depth += 1
        if depth == 1:
            before[:] = _buffers(root)
            for at in places.substituted:
                traced = at.holder[at.name]
                at.place.put(traced)
                before.append(_Buffer(at.place, "", traced, at.value, _version(traced)))

    def end(module: Any, args: Any, result: Any) -> Any:
        nonlocal depth
        depth -= 1
        if depth:
            return result
        hidden = {(id(at.holder), at.name) for at in places.substituted if at.own}
        pairs, found.others = _replaced(before, hidden, places.partly)
        for old in before:
            if old.place.get() is not old.kept:
                old.place.put(old.kept)
        return _updated(pairs, result)

    with state_tensors.as_buffers(root, states) as places:
        hooks = root.register_forward_pre_hook(begin, prepend=True), root.register_forward_hook(end)
        try:
            with replaced({patches.BUFFER_ASSIGNMENTS: instead(lambda *_: _Hook()), patches.ATTRIBUTES: around}):
                yield found
        finally:
            for hook in hooks:
                hook.remove()
            for at in places.substituted:
                if at.place.get() is not at.value:
                    at.place.put(at.value)


def _replaced(
    before: list[_Buffer], hidden: set[tuple[int, str]], partly: set[tuple[int, str]]
) -> tuple[list[tuple[Tensor, Tensor]], dict[str, tuple[str, set[str]]]]:
    """The old and the new tensor where a call has replaced one by another; and what cannot be an update.

    ``hidden``: buffers that are registered for the trace, which the model's code does not see. ``partly``: buffers
    whose memory is that of other tensors, too.
    """
    pairs: list[tuple[Tensor, Tensor]] = []
    others: dict[str, tuple[str, set[str]]] = {}
    new = {id(old): old.place.get() for old in before}
    seen = [x for x in before if isinstance(x.value, Tensor) and _key(x) not in hidden]
    names = {id(x.value): _key(x) for x in before if x.target}
    now: dict[Any, set[int]] = {}  # For each memory the tensors that its names have after the call.
    then: dict[Any, list[_Buffer]] = {}  # For each memory the places that have it after the call.
    for old in seen:
        now.setdefault(_memory(old.value), set()).add(id(new[id(old)]))
        if isinstance(new[id(old)], Tensor):
            then.setdefault(_memory(new[id(old)]), []).append(old)
    for old in before:
        value = new[id(old)]
        if value is old.value:
            continue
        if isinstance(old.value, Tensor) and (len(now[_memory(old.value)]) > 1 or names[id(old.value)] in partly):
            problem: str | None = _PARTS
        elif isinstance(value, Tensor) and _are_joined(old, value, then.get(_memory(value), [])):
            problem = _JOINED
        else:
            problem = misfit(old.value, value)
        if problem is None:
            pairs.append((old.value, value))
        else:
            others[old.place.path] = problem, {x.target for x in before if x.value is old.value}
    return pairs, others


def _are_joined(old: _Buffer, value: Tensor, places: list[_Buffer]) -> bool:
    """Whether places share memory that did not before, though calls change it in place.

    ``places`` have the memory of ``value``. A tensor with data is at a place whose tensor no call changes.
    """
    if not isinstance(value, FakeTensor) and _version(old.value) != old.version:
        return True
    apart = len({_memory(x.value) for x in places}) > 1
    return apart and any(_version(x.value) != x.version for x in places)


def _key(buffer: _Buffer) -> tuple[int, str]:
    place = buffer.place
    return (id(place.variables), place.name) if isinstance(place, Variable) else (0, "")


def _version(value: Any) -> int:
    return value._version if isinstance(value, Tensor) and not value.is_inference() else 0


def _buffers(root: torch.nn.Module) -> list[_Buffer]:
    found = []
    for path, module in root.named_modules():
        for group in ("_buffers", "_parameters"):
            for name, value in vars(module)[group].items():
                target = f"{path}.{name}" if path else name
                place = ModuleAttribute(f"self.{target}", module, name, group)
                found.append(_Buffer(place, target, value, value, _version(value)))
    return found


def misfit(old: Any, new: Any) -> str | None:
    """Why ``new`` cannot be written to ``old``; None if it can."""
    if not isinstance(old, Tensor) or not isinstance(new, Tensor):
        kinds = ["None" if x is None else "a tensor" if isinstance(x, Tensor) else type(x).__name__ for x in (old, new)]
        return f"replaced ({kinds[1]} instead of {kinds[0]})"
    same = len(old.shape) == len(new.shape) and all(
        isinstance(n, int) and n == o for n, o in zip(new.shape, old.shape, strict=True)
    )
    if isinstance(old, torch.nn.Parameter) and torch.is_grad_enabled():
        return "replaced while its gradient is computed"
    if not same or old.dtype != new.dtype:
        texts = [f"{str(x.dtype).removeprefix('torch.')} {[*x.shape]}" for x in (old, new)]
        return f"replaced by a tensor of another shape or dtype ({texts[1]} instead of {texts[0]})"
    return None


def _updated(pairs: list[tuple[Tensor, Tensor]], result: Any) -> Any:
    """The result of the call, after the updates."""
    if not pairs:
        return result
    storages = {_storage(old) for old, _ in pairs}

    def kept(value: Any) -> Any:
        return value.clone() if isinstance(value, Tensor) and _storage(value) in storages else value

    result = pytree.tree_map(kept, result)
    news = [kept(new.detach()) for _, new in pairs]
    # Without a line of the user's: these copies change no tensor that the model's code sees.
    with replaced({patches.STACK_TRACES: instead(lambda *_: traceback.StackSummary())}):
        for (old, _), new in zip(pairs, news, strict=True):
            old.copy_(new)
    return result


def _memory(value: Tensor) -> Any:
    return _storage(value) or ("alone", id(value))


def _storage(value: Tensor) -> Any:
    try:
        return value.untyped_storage()._cdata
    except (NotImplementedError, RuntimeError):  # A nested or sparse tensor shares none of a buffer's.
        return None
