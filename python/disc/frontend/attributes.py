"""What a call changes that is not a buffer: attributes of modules, of their classes and of objects that they have, and
global variables. A compiled model does not change them.

A tensor that the call reads and then replaces (``self.h = self.h * 0.9 + x``) is an error. Numbers that it counts on
(``self.calls += 1``) and containers that it adds to (``self.history.append(x)``) are a warning, since much code notes
such things for others than the model.
"""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
import types
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.export import ExportedProgram

from .. import errors
from ..torch_compat import patches
from ..torch_compat.patching import replaced
from ..torch_compat.tracing import FakeTensor
from .locations import warn
from .result_layouts import storage_of

_STANDARD = frozenset(torch.nn.Module().__dict__)
_HELP = "register it as a buffer (register_buffer), or make it an input and an output"


@dataclass(frozen=True)
class _Value:
    """An attribute, or a global variable, before the call."""

    holder: Mapping[str, Any]
    path: str
    name: str
    value: Any
    items: tuple[int, ...] | None
    """Of a container: what it held."""
    kind: type = object
    """The class that has it, or that of the module that does."""

    def restore(self) -> None:
        """Puts the value back: what the trace put there is of the trace alone."""
        if isinstance(self.holder, _Elements):
            self.holder.restore()
        elif isinstance(self.holder.get(self.name), FakeTensor):  # Not what another thread has put there.
            if isinstance(self.holder, dict):
                self.holder[self.name] = self.value
            else:
                setattr(self.kind, self.name, self.value)

    @staticmethod
    def of(module: torch.nn.Module, path: str, name: str) -> _Value:
        value = module.__dict__[name]
        path = f"self.{path}.{name}" if path else f"self.{name}"
        return _Value(module.__dict__, path, name, value, _items(value), type(module))


class _Elements(dict[str, Any]):
    """The elements of a list or a dict, as attributes."""

    def __init__(self, container: Any) -> None:
        super().__init__()
        self._container, self._before = container, container.copy()

    def get(self, name: Any, default: Any = None) -> Any:
        """The element now."""
        container = self._container
        if isinstance(container, dict):
            return container.get(name, default)
        return container[name] if name < len(container) else default

    def restore(self) -> None:
        """Puts back what was there."""
        container, before = self._container, self._before
        now = container.values() if isinstance(container, dict) else container
        if not any(isinstance(value, FakeTensor) for value in now):
            return
        if isinstance(container, dict):
            container.clear()
            container.update(before)
        else:
            container[:] = before


def _items(value: Any) -> tuple[int, ...] | None:
    """The identities of what a container holds."""
    if not isinstance(value, (list, dict, set)):
        return None
    return tuple(map(id, value.values() if isinstance(value, dict) else value))


@dataclass
class Changes:
    """What the last trace of a model changed."""

    tensors: list[_Value] = field(default_factory=list)
    others: list[_Value] = field(default_factory=list)

    def note(self, before: list[_Value], modules: dict[str, torch.nn.Module]) -> None:
        """Compares the attributes with what they were."""
        self.tensors, self.others = [], []
        known = {(id(old.holder), old.name) for old in before}
        for path, module in modules.items():
            for name, value in module.__dict__.items():
                if (
                    name not in _STANDARD
                    and (id(module.__dict__), name) not in known
                    and isinstance(value, torch.Tensor)
                ):
                    self.others.append(_Value.of(module, path, name))
        for old in before:
            new = old.holder.get(old.name, old.value)
            if new is old.value:
                if _items(new) != old.items:
                    self.others.append(old)
            elif isinstance(old.value, torch.Tensor):
                # Another kind of tensor is a conversion, with one result in all calls: self.grid = self.grid.to(x).
                (self.tensors if _alike(old.value, new) else self.others).append(old)
            elif isinstance(new, torch.Tensor):
                self.others.append(old)
            elif all(isinstance(value, (bool, int, float)) for value in (old.value, new)):
                self.others += [old] if new != old.value and _counts(old.kind, old.name) else []

    def report(self, program: ExportedProgram) -> None:
        """Raises for a tensor that the program reads as it was before the call, and warns of what else changed."""
        read = {storage_of(value) for value in program.constants.values() if isinstance(value, torch.Tensor)}
        for old in self.tensors:
            if storage_of(old.value) in read:
                raise errors.ControlFlowError(
                    "import", f"{old.path} is read and replaced by the call, but is not a buffer: {_HELP}"
                )
            self.others.append(old)
        if self.others:
            names = " and ".join(sorted({old.path for old in self.others}))
            warn(
                f"the call changes {names}, which a compiled model does not: it always has what was there when it was "
                f"compiled. If results depend on that, {_HELP}"
            )


def _tensors_elsewhere(modules: dict[str, torch.nn.Module]) -> list[_Value]:
    """The tensors in classes of modules, in objects, lists and dicts that are attributes, and in global variables."""
    found: dict[tuple[int, Any], _Value] = {}

    def look(holder: Mapping[str, Any], path: str, names: Iterable[Any], kind: type = object) -> None:
        for name in names:
            if isinstance(value := holder.get(name), torch.Tensor):
                place = f"{path}[{name!r}]" if isinstance(holder, _Elements) else f"{path}{name}"
                found.setdefault((id(holder), name), _Value(holder, place, name, value, None, kind))

    def look_in(function: Any) -> None:
        function = getattr(inspect.unwrap(function), "__func__", function)
        if isinstance(function, types.FunctionType):
            look(function.__globals__, "the global variable ", function.__code__.co_names)

    kinds = {kind for module in modules.values() for kind in type(module).__mro__}
    for kind in kinds:
        if not (kind.__module__ or "").startswith(("torch.", "builtins")):
            look(vars(kind), f"{kind.__name__}.", list(vars(kind)), kind)
            for value in list(vars(kind).values()):
                if isinstance(value, types.FunctionType):
                    look_in(value)
    for path, module in modules.items():
        for name, value in module.__dict__.items():
            if isinstance(value, (types.FunctionType, types.MethodType)):
                look_in(value)
            if name not in _STANDARD and type(value) in (list, dict):
                elements = _Elements(value)
                look(
                    elements,
                    f"self.{path}.{name}" if path else f"self.{name}",
                    value if type(value) is dict else range(len(value)),
                )
            held = getattr(value, "__dict__", None)
            if name not in _STANDARD and isinstance(held, dict) and not isinstance(value, (type, torch.Tensor)):
                look(held, f"self.{path}.{name}." if path else f"self.{name}.", list(held))
    return list(found.values())


def _alike(old: torch.Tensor, new: Any) -> bool:
    return isinstance(new, torch.Tensor) and new.dtype == old.dtype and new.dim() == old.dim()


def _counts(kind: type, name: str) -> bool:
    """Whether a method of a class computes an attribute of what it was."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(kind)))
    except (OSError, TypeError, SyntaxError):
        return False
    for node in ast.walk(tree):
        if isinstance(node, ast.AugAssign) and _is_own(node.target, name):
            return True
        assigned = isinstance(node, ast.Assign) and any(_is_own(target, name) for target in node.targets)
        if assigned and any(_is_own(part, name) for part in ast.walk(node.value)):  # type: ignore[attr-defined]
            return True
    return False


def _is_own(node: ast.AST, name: str) -> bool:
    own = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
    return own and node.attr == name  # type: ignore[attr-defined]


@contextmanager
def noticed() -> Iterator[Changes]:
    """While it is active, a trace notes the attributes that the model's call changes."""
    changes = Changes()

    @contextmanager
    def around(original: Any, mod: torch.nn.Module) -> Iterator[None]:
        inner = original(mod)
        inner.__enter__()
        elsewhere: list[_Value] = []
        try:
            modules = dict(mod.named_modules())
            before = [
                _Value.of(module, path, name)
                for path, module in modules.items()
                for name in module.__dict__
                if name not in _STANDARD
            ]
            elsewhere = _tensors_elsewhere(modules)
            yield
            changes.note(before + elsewhere, modules)
        finally:
            for old in elsewhere:
                old.restore()
            # PyTorch's own warning is left out: `changes` says it with its consequence. Filters are those of all
            # threads, so that they change for this moment only.
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="The tensor attribute")
                inner.__exit__(*sys.exc_info())

    with replaced({patches.ATTRIBUTES: around}):
        yield changes
