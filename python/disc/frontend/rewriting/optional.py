"""Variables that are None, or have no value, where data decides so: ``y = None``, then ``if condition: y = f(x)``."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from ...torch_compat import pytree
from .sites import called_from


class OptionalValue:
    """A value, and the condition that it is not None.

    Code may use it as the value: where it is None, Python's TypeError is the compiled model's.
    """

    call: ClassVar[Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]]
    """Calls a function of torch with optional values among its arguments (``operators``, which come later)."""
    require: ClassVar[Callable[[torch.Tensor, str], None]]
    """Puts an error for run time where a condition does not hold (``graph.require``, which comes later)."""

    def __init__(self, value: Any, present: Any, name: str) -> None:
        """``present``: a bool, or a tensor that stands for one; ``name``: of the variable."""
        self.__dict__.update(_disc_value=value, _disc_present=present, _disc_name=name)

    def parts(self) -> dict[str, Any]:
        """What it consists of."""
        held = self.__dict__
        return {"value": held["_disc_value"], "present": held["_disc_present"]}

    def rebuilt(self, elements: dict[str, Any]) -> OptionalValue:
        """The same variable with other contents."""
        return type(self)(elements["value"], elements["present"], self.__dict__["_disc_name"])

    def missing(self) -> str:
        """The error of Python where it is not there."""
        return f"TypeError: {self.__dict__['_disc_name']} is None here"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(used(self), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(used(self), name, value)

    def __delattr__(self, name: str) -> None:
        delattr(used(self), name)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Calls the function of torch with the values, or with None where it takes that."""
        return cls.call(func, args, kwargs or {})


def _forwarded(name: str) -> Callable[..., Any]:
    def method(self: OptionalValue, *args: Any) -> Any:
        return getattr(used(self), name)(*(_used(args)))

    return method


_METHODS = (
    "getitem iter len call add radd sub rsub mul rmul truediv rtruediv floordiv rfloordiv mod rmod pow rpow matmul"
    " rmatmul neg pos abs invert and rand or ror xor rxor lshift rlshift rshift rrshift divmod rdivmod round"
    " lt le gt ge int float index contains setitem delitem reversed"
)
for _name in _METHODS.split():
    setattr(OptionalValue, f"__{_name}__", _forwarded(f"__{_name}__"))


def _in_place(function: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def method(self: OptionalValue, other: Any) -> Any:
        return function(used(self), _used(other))

    return method


# Without these Python would compute a new value, and other names of the same tensor would not see the change.
for _name in "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift".split():
    setattr(OptionalValue, f"__i{_name}__", _in_place(getattr(operator, f"i{_name}")))


class OneSided(OptionalValue):
    """The value of a variable that has one where a condition holds: ``if a: y = f(x)``, and later ``if a: g(y)``.

    Reading it elsewhere is Python's error, which is the compiled model's.
    """

    def missing(self) -> str:
        """The error of Python where it has no value."""
        return f"UnboundLocalError: {self.__dict__['_disc_name']} has no value here"


@dataclass(frozen=True)
class Present:
    """A fact: whether an optional value is there."""

    optional: OptionalValue
    there: bool

    @property
    def free_symbols(self) -> set[Any]:
        """None: it says nothing of numbers."""
        return set()

    def __hash__(self) -> int:
        return id(self.optional)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Present) and other.optional is self.optional and other.there is self.there


_known: list[Present] = []


@contextmanager
def where(facts: Iterable[Any]) -> Iterator[None]:
    """Traces code that runs only where the facts hold."""
    before = len(_known)
    _known.extend(fact for fact in facts if isinstance(fact, Present))
    try:
        yield
    finally:
        del _known[before:]


def is_there(value: OptionalValue, facts: Iterable[Any] = ()) -> bool | None:
    """Whether a value is known to be there, or to be None, by what holds here or by ``facts``."""
    present = value.parts()["present"]
    if isinstance(present, bool):
        return present
    found = [fact.there for fact in (*_known, *facts) if isinstance(fact, Present) and fact.optional is value]
    return found[-1] if found else None


def settled(value: Any, facts: Iterable[Any] = ()) -> Any:
    """An optional value of which it is known whether it is there, as what it is; anything else as it is."""
    if not isinstance(value, OptionalValue):
        return value
    if isinstance(value, OneSided):
        return used(value)
    there = is_there(value, facts)
    return value if there is None else value.parts()["value"] if there else None


def used(value: OptionalValue) -> Any:
    """The value, which must be there."""
    held, there = value.parts(), is_there(value)
    if there is False and not isinstance(value, OneSided):
        return None
    if there is not True:
        name = value.__dict__["_disc_name"]
        OptionalValue.require(held["present"], f"{value.missing()} ({called_from(name).source})")
    return held["value"]


def values_of(args: Any) -> list[OptionalValue]:
    """The optional values among arguments."""
    return [x for x in pytree.tree_leaves(args) if isinstance(x, OptionalValue)]


def replaced(args: Any, old: OptionalValue, new: Any) -> Any:
    """Arguments with something else in the place of an optional value."""
    return pytree.tree_map(lambda x: new if x is old else x, args)


def with_values(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """A call with the values of variables that one side of a branch has set, which must be there."""
    args, kwargs = pytree.tree_map(lambda x: used(x) if isinstance(x, OneSided) else x, (args, kwargs))
    return function(*args, **kwargs)


def _used(value: Any) -> Any:
    if isinstance(value, OptionalValue):
        return used(value)
    if isinstance(value, (tuple, list)) and any(isinstance(x, (OptionalValue, tuple, list)) for x in value):
        return type(value)(map(_used, value)) if not hasattr(value, "_fields") else value
    return {key: _used(x) for key, x in value.items()} if type(value) is dict else value
