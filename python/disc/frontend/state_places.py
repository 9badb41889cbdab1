"""The places, beside buffers and parameters, where a model's code can keep values from one call to the next.

These are attributes of modules and of their classes, objects, lists, dicts, tuples and deques that are reached from
there, global variables, and variables of enclosing functions. A place is a way from a root, as ``self.cell.state[0]``:
what a call puts there is found also if the call has made a new list.
"""

from __future__ import annotations

import collections
import dis
import functools
import sys
import sysconfig
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from ..logs import log
from .callables import CallableModule
from .locations import is_user_line

STANDARD = frozenset(torch.nn.Module().__dict__)
"""The attributes that every module has."""
_HELD = ("_parameters", "_buffers", "_modules")
_STANDARD_LIBRARY = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib")})
_CONTAINERS = (list, tuple, dict, collections.deque, set)
_CODE = (types.FunctionType, types.MethodType, functools.partial, type, staticmethod, classmethod)
_MOST = 20_000
"""After so many values the walk ends: a model refers to large structures that are not its state."""
_LARGE = 1_000
"""Of containers with more elements, as vocabularies, numbers and strings in them are not looked at."""
PLAIN = (int, float, complex, str, bytes, type(None))
"""Values without parts, which compare with each other."""
MISSING: Any = type("Missing", (), {"__repr__": lambda _: "missing"})()


class Place:
    """Where a value is kept."""

    path: str
    """``self.cell.state[0]``, for messages."""
    fixed = False
    """Whether nothing else can be put there."""
    shared = False
    """Whether code that is not the model's may change it, too: it is found by code, and not in the model's objects."""

    def get(self) -> Any:
        """The value now; ``MISSING`` if there is none."""
        raise NotImplementedError

    def put(self, value: Any) -> None:
        """Sets the value; ``MISSING`` removes it."""
        raise NotImplementedError


class Variable(Place):
    """An entry of a dictionary that Python has for a module's attributes or for global variables."""

    def __init__(self, path: str, variables: dict[str, Any], name: str, shared: bool = False) -> None:
        self.path, self.variables, self.name, self.shared = path, variables, name, shared

    def get(self) -> Any:
        """The value now."""
        return self.variables.get(self.name, MISSING)

    def put(self, value: Any) -> None:
        """Sets or removes it."""
        if value is MISSING:
            self.variables.pop(self.name, None)
        else:
            self.variables[self.name] = value


class ModuleAttribute(Variable):
    """An attribute of a module: a call that assigns a parameter makes it one, and one that deletes it ends that."""

    def __init__(self, path: str, module: torch.nn.Module, name: str, group: str = "") -> None:
        """``group``: the dictionary that has it before the call, ``_buffers`` or ``_parameters``."""
        super().__init__(path, vars(module)[group] if group else vars(module), name)
        self._module = module
        self._is_persistent = name not in module._non_persistent_buffers_set

    def get(self) -> Any:
        """The value now."""
        # In the order in which Python looks.
        found = (group[self.name] for group in self._groups() if self.name in group)
        return next(found, MISSING)

    def put(self, value: Any) -> None:
        """Sets it where it was before the call."""
        for group in self._groups():
            if group is not self.variables:
                group.pop(self.name, None)
        super().put(value)
        if not self._is_persistent:
            self._module._non_persistent_buffers_set.add(self.name)

    def _groups(self) -> tuple[dict[str, Any], ...]:
        own = vars(self._module)
        return own, own["_parameters"], own["_buffers"]


class _OfClass(Place):
    """An attribute of a class."""

    shared = True

    def __init__(self, path: str, kind: type, name: str) -> None:
        self.path, self._kind, self._name = path, kind, name

    def get(self) -> Any:
        return vars(self._kind).get(self._name, MISSING)

    def put(self, value: Any) -> None:
        if value is MISSING:
            delattr(self._kind, self._name)
        else:
            setattr(self._kind, self._name, value)


class _Cell(Place):
    """A variable of an enclosing function."""

    shared = True

    def __init__(self, path: str, cell: types.CellType) -> None:
        self.path, self._cell = path, cell

    def get(self) -> Any:
        try:
            return self._cell.cell_contents
        except ValueError:
            return MISSING

    def put(self, value: Any) -> None:
        if value is not MISSING:
            self._cell.cell_contents = value


class _OfFunction(Place):
    """The defaults of a function's parameters."""

    shared = True

    def __init__(self, path: str, function: types.FunctionType, name: str) -> None:
        self.path, self._function, self._name = path, function, name

    def get(self) -> Any:
        return getattr(self._function, self._name)

    def put(self, value: Any) -> None:
        setattr(self._function, self._name, value)


class _Fixed(Place):
    """An argument of a ``functools.partial``, or the object of a bound method."""

    fixed = True

    def __init__(self, path: str, value: Any) -> None:
        self.path, self._value = path, value

    def get(self) -> Any:
        return self._value

    def put(self, value: Any) -> None:
        raise AttributeError(self.path)


class Part(Place):
    """An element of a container, or an attribute of an object, in another place."""

    def __init__(self, path: str, parent: Place, key: Any) -> None:
        self.path, self.parent, self.key, self.shared = path, parent, key, parent.shared
        self.fixed = parent.fixed and isinstance(parent.get(), tuple)

    def get(self) -> Any:
        """The value now."""
        return elements(self.parent.get(), self.key).get(self.key, MISSING)

    def put(self, value: Any) -> None:
        """Sets it. A tuple is replaced."""
        holder = self.parent.get()
        if isinstance(holder, tuple):
            items = [value if n == self.key else x for n, x in enumerate(holder)]
            self.parent.put(_tuple_like(holder, items))
        elif isinstance(holder, dict):
            if value is MISSING:
                dict.pop(holder, self.key, None)
            else:
                dict.__setitem__(holder, self.key, value)
        elif isinstance(holder, (list, collections.deque)):
            if value is not MISSING and self.key < len(holder):
                holder[self.key] = value
        elif holder is not MISSING:
            _set_attribute(holder, self.key, value)


def _set_attribute(holder: Any, name: str, value: Any) -> None:
    held = getattr(holder, "__dict__", None)
    if isinstance(held, dict) and not isinstance(getattr(type(holder), name, None), types.MemberDescriptorType):
        if value is MISSING:
            held.pop(name, None)
        else:
            held[name] = value
    elif value is not MISSING:
        object.__setattr__(holder, name, value)


def _tuple_like(old: tuple[Any, ...], items: list[Any]) -> Any:
    return type(old)(*items) if hasattr(old, "_fields") else type(old)(items)


def elements(value: Any, *wanted: Any) -> Mapping[Any, Any]:
    """The elements of a container, the attributes of an object of the user's; none of other values.

    ``wanted`` are keys that alone matter.
    """
    if isinstance(value, (list, tuple, collections.deque)):
        if wanted:
            return {n: value[n] for n in wanted if isinstance(n, int) and n < len(value)}
        return dict(enumerate(value))
    if isinstance(value, dict):
        return {k: dict.__getitem__(value, k) for k in wanted if k in value} if wanted else dict(value)
    if isinstance(value, set):
        return dict(enumerate(value))
    if not is_object(value):
        return {}
    held = getattr(value, "__dict__", None)
    found = dict(held) if isinstance(held, dict) else {}
    if isinstance(value, torch.nn.Module):
        found = {name: x for name, x in found.items() if name not in STANDARD or name in _HELD}
    for name in _slots(type(value)):  # type: ignore[arg-type]
        try:
            found[name] = object.__getattribute__(value, name)
        except AttributeError:
            continue
    return found


@functools.cache
def _slots(kind: type) -> tuple[str, ...]:
    return tuple(
        name for base in kind.__mro__ for name, x in vars(base).items() if isinstance(x, types.MemberDescriptorType)
    )


def is_object(value: Any) -> bool:
    """Whether a value is an object of a class of the user's, which may have attributes."""
    if isinstance(value, (type, types.ModuleType, types.FunctionType, types.MethodType, torch.Tensor)):
        return False
    known = isinstance(value, (types.SimpleNamespace, torch.nn.Module))
    return known or is_of_users(type(value))  # type: ignore[arg-type]


@functools.cache
def is_of_users(kind: type) -> bool:
    """Whether a class is neither PyTorch's, nor Python's, nor ours."""
    if kind.__module__ in ("__main__", "builtins"):
        return kind.__module__ == "__main__"
    module = sys.modules.get(kind.__module__ or "")
    file = getattr(module, "__file__", None)
    return module is None or (file is not None and is_user_line(file) and not _is_standard(file))


def _is_standard(file: str) -> bool:
    return file.startswith(_STANDARD_LIBRARY) and not _is_installed(file)


def _is_installed(file: str) -> bool:
    return "site-packages" in file or "dist-packages" in file


@functools.cache
def _is_own(file: str) -> bool:
    """Whether a file is the user's own code, and not a library, whose global variables are not a model's state."""
    return is_user_line(file) and not _is_standard(file) and not _is_installed(file)


def _is_own_class(kind: type) -> bool:
    file = getattr(sys.modules.get(kind.__module__ or ""), "__file__", None)
    return is_of_users(kind) and (file is None or _is_own(file))


@dataclass(eq=False)
class Record:
    """A place, and what was there before the call."""

    place: Place
    value: Any
    elements: Mapping[Any, Any] | None
    """Of a container or an object: what it held; None for other values."""
    kind: type = object
    """The class of the module or the object whose attribute it is."""
    holder: int = 0
    """The identity of that object."""
    again: bool = False
    """Whether a container is found elsewhere, too."""

    @property
    def can_be_replaced(self) -> bool:
        """Whether the place may have something else."""
        return not self.place.fixed

    @property
    def name(self) -> str:
        """The name of an attribute; an empty string for other places."""
        place = self.place
        key = place.name if isinstance(place, Variable) else place.key if isinstance(place, Part) else ""
        return key if isinstance(key, str) and self.kind is not object else ""


class _Walk:
    """Finds the places that a module's code can reach."""

    def __init__(self, root: torch.nn.Module) -> None:
        self.records: list[Record] = []
        self.stored: set[str] = set()
        self._seen: dict[int, Record | None] = {}
        self._kept: list[Any] = []
        """What was seen: an identity is another object's when the first one is gone."""
        self._named: set[tuple[Any, str]] = set()
        """Variables and classes that were seen."""
        self._waiting: collections.deque[Callable[[], None]] = collections.deque()
        modules = dict(root.named_modules())
        self._modules = {id(module) for module in modules.values()}
        for path, module in modules.items():
            start = f"self.{path}." if path else "self."
            for name in list(vars(module)):
                # The code of a callable does not see what it uses as attributes of the module.
                if name not in STANDARD and (name == "forward" or not isinstance(module, CallableModule)):
                    self._add(ModuleAttribute(start + name, module, name), type(module), id(module))
        for module in modules.values():
            self._class(type(module))
        while self._waiting and len(self.records) < _MOST:
            self._waiting.popleft()()
        if self._waiting:
            log.info("the search for a model's state ends after %d values", _MOST)

    def _add(self, place: Place, kind: type = object, holder: int = 0) -> None:
        value = place.get()
        if value is MISSING or id(value) in self._modules:
            return
        if isinstance(value, _CODE):
            self._later(self._code, place, value)
            return
        if isinstance(value, types.ModuleType):
            return
        inner = elements(value) if isinstance(value, _CONTAINERS) or is_object(value) else None
        record = Record(place, value, inner, kind, holder)
        self.records.append(record)
        if inner is None:
            return
        if id(value) in self._seen:
            record.again = True
            if (first := self._seen[id(value)]) is not None:
                first.again = True
            return
        self._seen[id(value)] = record
        self._kept.append(value)
        if isinstance(value, set):
            return
        if is_object(value):
            self._later(self._class, type(value))
        for key, element in inner.items():
            if len(inner) > _LARGE and isinstance(element, PLAIN):
                continue
            self._later(self._add, Part(_path(place.path, value, key), place, key), *self._owner(value))

    @staticmethod
    def _owner(value: Any) -> tuple[type, int]:
        return (type(value), id(value)) if is_object(value) else (object, 0)

    def _later(self, function: Callable[..., None], *args: Any) -> None:
        self._waiting.append(functools.partial(function, *args))

    def _is_new(self, value: Any) -> bool:
        if id(value) in self._seen:
            return False
        self._seen[id(value)] = None
        self._kept.append(value)
        return True

    def _code(self, place: Place, value: Any) -> None:
        if isinstance(value, functools.partial):
            for part in (value.func, *value.args, *value.keywords.values()):
                self._value(f"an argument of {place.path}", part)
        elif isinstance(value, types.MethodType):
            self._value(f"{place.path}.__self__", value.__self__)
            self._function(value.__func__)
        elif isinstance(value, (staticmethod, classmethod)):
            self._function(value.__func__)
        elif isinstance(value, type):
            self._class(value, methods=False)
        else:
            self._function(value)

    def _value(self, path: str, value: Any) -> None:
        self._add(_Fixed(path, value))

    def _class(self, kind: type, methods: bool = True) -> None:
        """The attributes of a class and of those it is derived from, and what its methods refer to."""
        for base in kind.__mro__:
            if not is_of_users(base) or issubclass(base, BaseException):
                continue
            if not _is_own_class(base):
                for function in (x for value in vars(base).values() for x in _functions(value)):
                    self._function(function)
                continue
            if (base, "") not in self._named:
                self._named.add((base, ""))
                for name, value in list(vars(base).items()):
                    if _may_change(name, value):
                        self._add(_OfClass(f"{base.__name__}.{name}", base, name))
            if methods and (base, "methods") not in self._named:
                self._named.add((base, "methods"))
                for value in list(vars(base).values()):
                    for function in _functions(value):
                        self._function(function)

    def _function(self, function: Any) -> None:
        function = getattr(function, "__func__", function)
        wrapped = getattr(function, "__wrapped__", None)
        if wrapped is not None:
            self._later(self._function, wrapped)
        if not isinstance(function, types.FunctionType) or not self._is_new(function):
            return
        code = function.__code__
        if function.__name__ != "__init__":
            self.stored |= _stored(code)
        if not _is_own(code.co_filename):
            return
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=False):
            if name != "__class__" and self._is_new(cell):
                self._add(_Cell(f"the variable {name}", cell))
        for name in ("__defaults__", "__kwdefaults__"):
            if getattr(function, name):
                self._add(_OfFunction(f"a default of {function.__name__}", function, name))
        self._names(function.__globals__, _names_of(code))

    def _names(self, variables: dict[str, Any], names: frozenset[str]) -> None:
        for name in names:
            value = variables.get(name, MISSING)
            if isinstance(value, types.ModuleType):
                file = getattr(value, "__file__", None)
                if file is not None and _is_own(file) and value.__dict__ is not variables:
                    self._later(self._names_in, value, names)
            elif value is not MISSING and self._is_new_name(variables, name):
                self._later(self._add, Variable(f"the global variable {name}", variables, name, shared=True))

    def _names_in(self, module: types.ModuleType, names: frozenset[str]) -> None:
        for name in names:
            value = vars(module).get(name, MISSING)
            if not isinstance(value, (types.ModuleType, type(MISSING))) and self._is_new_name(vars(module), name):
                self._add(Variable(f"{module.__name__}.{name}", vars(module), name, shared=True))

    def _is_new_name(self, variables: dict[str, Any], name: str) -> bool:
        key = (id(variables), name)
        if key in self._named:
            return False
        self._named.add(key)
        return True


@functools.cache
def _names_of(code: types.CodeType) -> frozenset[str]:
    inner = (names for x in code.co_consts if isinstance(x, types.CodeType) for names in _names_of(x))
    return frozenset((*code.co_names, *inner))


@functools.cache
def _stored(code: types.CodeType) -> frozenset[str]:
    """The names of the attributes that code assigns or deletes."""
    found = {str(x.argval) for x in dis.get_instructions(code) if x.opname in ("STORE_ATTR", "DELETE_ATTR")}
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            found |= _stored(inner)
    return frozenset(found)


def _functions(value: Any) -> Iterator[Any]:
    if isinstance(value, property):
        yield from (x for x in (value.fget, value.fset) if x is not None)
    elif isinstance(value, (staticmethod, classmethod)):
        yield value.__func__
    elif isinstance(value, types.FunctionType):
        yield value


def _may_change(name: str, value: Any) -> bool:
    if name.startswith("__") or isinstance(value, (types.MemberDescriptorType, types.GetSetDescriptorType, property)):
        return False
    return not isinstance(value, (types.FunctionType, staticmethod, classmethod, type)) and not hasattr(
        type(value), "__get__"
    )


def _path(path: str, value: Any, key: Any) -> str:
    if isinstance(value, dict):
        return f"{path}[{key!r}]"
    return f"{path}[{key}]" if isinstance(value, (list, tuple, collections.deque)) else f"{path}.{key}"


def find(root: torch.nn.Module) -> tuple[list[Record], set[str]]:
    """The places that the code of a module can reach, with what is there; and the names of attributes that it sets."""
    walk = _Walk(root)
    return walk.records, walk.stored


def restore(records: list[Record], kept: Callable[[Record, Any], bool]) -> None:
    """Puts back what was there before, where ``kept`` does not say that the value now stays."""
    for record in records:
        now = record.place.get()
        if now is not record.value and not kept(record, now):
            record.place.put(record.value)
    for record in records:
        if record.elements is not None:
            _restore_elements(record, kept)


def _restore_elements(record: Record, kept: Callable[[Record, Any], bool]) -> None:
    container, before = record.value, record.elements
    assert before is not None
    now = elements(container)
    same = list(now) == list(before) and all(now[key] is before[key] for key in before)
    if same or isinstance(container, tuple) or kept(record, container):
        return
    if isinstance(container, dict):
        dict.clear(container)
        for key, value in before.items():
            dict.__setitem__(container, key, value)
    elif isinstance(container, list):
        container[:] = before.values()
    elif isinstance(container, set):
        container.clear()
        container.update(before.values())
    elif isinstance(container, collections.deque):
        container.clear()
        container.extend(before.values())
    else:
        for key in now:
            if key not in before:
                _set_attribute(container, key, MISSING)
        for key, value in before.items():
            if now.get(key, MISSING) is not value:
                _set_attribute(container, key, value)
