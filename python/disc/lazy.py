"""``@disc.compile``: a function that is compiled when it is first called."""

from __future__ import annotations

import copy
import functools
import threading
import types
from collections.abc import Callable
from typing import Any

import torch


class LazyModel:
    """A function that is compiled at its first call, with that call's arguments as the example.

    Later calls run the compiled model, which accepts other sizes in the dims that ``dynamic_shapes`` has as dynamic.
    While something else traces it, such as a compilation of a model that calls it, it is the function that it was
    made of. A decorated method is compiled for each object.

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
        if instance is None:
            return self
        # As functools.cached_property does: what is found in the object itself comes before this.
        bound = LazyModel(types.MethodType(self._function, instance), self._compile)
        bound._name = self._name
        return vars(instance).setdefault(self._name, bound)  # type: ignore[no-any-return]

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
