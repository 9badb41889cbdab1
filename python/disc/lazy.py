"""``@disc.compile``: a function that is compiled when it is first called."""

from __future__ import annotations

import copy
import functools
import inspect
import threading
import types
from collections.abc import Callable
from typing import Any

import torch

from .errors import ArgumentTypeError, NotCompiledError
from .model import Model

_MODEL_ATTRIBUTES = frozenset(
    {name for name in dir(Model) if not name.startswith("_")} | {"backends", "fallbacks", "name", "timeline", "timings"}
)
"""The public attributes of a compiled model."""


def decorated(function: Any, compile: Callable[..., Any]) -> Any:
    """What ``@disc.compile`` makes of a function, also of one that is a classmethod or a staticmethod already."""
    if isinstance(function, (classmethod, staticmethod)):
        return type(function)(decorated(function.__func__, compile))
    if isinstance(function, type):
        raise ArgumentTypeError(
            f"@disc.compile: {function.__qualname__} is a class; decorate its method forward, or compile an instance:"
            f" disc.compile({function.__qualname__}(...), ...)"
        )
    if not callable(function):
        raise ArgumentTypeError(f"@disc.compile: expected a function, got {type(function).__name__}")
    return LazyModel(function, compile)


class LazyModel:
    """A function that is compiled at its first call, with that call's arguments as the example.

    Later calls run the compiled model, which accepts other sizes in the dims that ``dynamic_shapes`` has as dynamic.
    While something else traces it, such as a compilation of a model that calls it, it is the function that it was
    made of. A decorated method is compiled for each object, a classmethod for each class.

    After the first call it has the attributes and methods of the compiled model too: ``save``, ``state_dict``,
    ``load_state_dict``, ``profile``, ``ir``, ... Before it they raise :class:`disc.errors.NotCompiledError`.

    Attributes:
        model: the compiled :class:`disc.Model`, or None before the first call.
    """

    def __init__(self, function: Callable[..., Any], compile: Callable[..., Any]) -> None:
        """``compile``: compiles a function for the arguments of a call."""
        functools.update_wrapper(self, function)
        self._function = function
        self._compile = compile
        self._lock = threading.Lock()
        self._name = getattr(function, "__name__", "")
        self.model: Any = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the compiled function; the first call compiles it.

        Raises:
            CompileError: the first call cannot be compiled.
            ShapeError, TypeError: as :meth:`disc.Model.__call__`.
        """
        if args and isinstance(args[0], type) and self._is_classmethod_of(args[0]):
            # Since Python 3.13 a classmethod calls this with the class, and does not ask for its binding to it.
            return self._bound_to(args[0])(*args[1:], **kwargs)
        if self.model is None:
            if torch.compiler.is_compiling():
                return self._function(*args, **kwargs)
            with self._lock:
                if self.model is None:
                    self.model = self._compile(self._function, args, kwargs)
        elif torch.compiler.is_compiling():
            return self._function(*args, **kwargs)
        return self.model(*args, **kwargs)

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, owner: type | None = None) -> LazyModel:
        return self if instance is None else self._bound_to(instance)

    def _bound_to(self, instance: Any) -> LazyModel:
        """The method of an object or, in a classmethod, of a class: one that is compiled for it alone."""
        bound = LazyModel(types.MethodType(self._function, instance), self._compile)
        bound._name = self._name
        if isinstance(instance, type):
            # Its own attribute, not a base class's; the name is the classmethod's.
            key = f"_disc_compiled_{self._name}"
            with self._lock:
                if key not in vars(instance):
                    setattr(instance, key, bound)
                return vars(instance)[key]  # type: ignore[no-any-return]
        if not hasattr(instance, "__dict__"):
            kind = type(instance).__qualname__
            raise ArgumentTypeError(
                f"@disc.compile on {self._function.__qualname__}: objects of {kind} have __slots__, and no __dict__ for"
                f" the compiled method; add '__dict__' to the __slots__ of {kind}"
            )
        # As functools.cached_property does: what is found in the object itself comes before this.
        return vars(instance).setdefault(self._name, bound)  # type: ignore[no-any-return]

    def _is_classmethod_of(self, owner: type) -> bool:
        found = inspect.getattr_static(owner, self._name, None)
        return isinstance(found, classmethod) and found.__func__ is self

    def __getattr__(self, name: str) -> Any:
        state = vars(self)
        model = state.get("model")
        if model is not None and name in _MODEL_ATTRIBUTES:
            return getattr(model, name)
        if name in _MODEL_ATTRIBUTES:
            function = getattr(state.get("_function"), "__qualname__", "function")
            raise NotCompiledError(
                f"{name}: {function} is not compiled yet: its first call compiles it, with that call's arguments as the"
                " example; call it before"
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __deepcopy__(self, memo: dict[int, Any]) -> LazyModel:
        return LazyModel(copy.deepcopy(self._function, memo), self._compile)

    def __reduce__(self) -> Any:
        # By its name, as functions are pickled; or as an attribute of its object.
        if isinstance(self._function, types.MethodType):
            return getattr, (self._function.__self__, self._name)
        return self._function.__qualname__

    def __repr__(self) -> str:
        state = "not compiled yet" if self.model is None else repr(self.model)
        return f"<disc.compile of {getattr(self._function, '__qualname__', self._function)}: {state}>"
