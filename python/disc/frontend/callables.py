"""Functions, methods, partials and other callables as modules, which is what is traced."""

from __future__ import annotations

import contextlib
import functools
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch.export import ExportedProgram

from ..errors import ArgumentTypeError
from ..torch_compat.scripts import ScriptMethod
from .argument_paths import signature_of
from .scripted import unwrapped, unwrapped_module

_DEPTH = 2
"""How many objects deep a callable is searched for modules and tensors."""


class CallableModule(torch.nn.Module):
    """A module whose ``forward`` is a callable; the modules and tensors that it uses are the module's own."""


def as_module(model: Any) -> torch.nn.Module | None:
    """``model`` as a module that can be traced: a module, or any callable; None if it is neither.

    Modules and functions that TorchScript or torch.compile made are those that they were made of.
    """
    if isinstance(model, torch.nn.Module):
        return unwrapped_module(model)
    if isinstance(model, type):
        name = model.__qualname__
        raise ArgumentTypeError(f"{name} is a class; pass an instance: {name}(...)")
    if not callable(model) or isinstance(model, ExportedProgram):
        return None
    if isinstance(model, ScriptMethod):
        raise ArgumentTypeError(
            f"{model.name!r} is a method of a TorchScript module, which has no signature of Python's: compile the"
            " module itself, or the Python method that it was scripted from"
        )
    function = unwrapped(model)
    if isinstance(function, torch.jit.ScriptFunction):
        raise ArgumentTypeError(
            f"{function.qualified_name!r} is a function of TorchScript without its Python source: compile the function"
            " that it was made of"
        )
    if isinstance(function, types.MethodType) and isinstance(function.__self__, torch.nn.Module):
        inside = unwrapped_module(function.__self__)
        if function.__func__ in (torch.nn.Module.__call__, getattr(type(inside), "forward", None)):
            return inside
    name = getattr(function, "__name__", None) or type(function).__name__
    inner = getattr(type(function), "__call__", None)  # noqa: B004
    if isinstance(inner, types.FunctionType) and not isinstance(function, types.FunctionType):
        function = types.MethodType(inner, function)
    module = type(str(name), (CallableModule,), {"__module__": getattr(function, "__module__", __name__)})()
    # An attribute of the instance: it has the callable's own signature, and no ``self``.
    module.__dict__["forward"] = _with_code(function)
    for key, value in _used(function, _DEPTH):
        if isinstance(value, torch.nn.Module):
            if value not in module._modules.values():
                module._modules[_free(key, module)] = value
        else:
            # A plain attribute: torch.export then takes the tensor itself, and changes of it are seen.
            module.__dict__[_free(key, module)] = value
    module.training = any(part.training for part in module._modules.values() if part is not None)
    return module  # type: ignore[no-any-return]


def _with_code(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function``, or one of Python's that calls it: torch.export reads the code of a function, or of a partial's."""
    inside = function.func if isinstance(function, functools.partial) else function
    if hasattr(inside, "__code__"):
        return function

    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    if isinstance(function, functools.partial) and isinstance(inside, torch.nn.Module):
        # Modules are called through ``__call__``, whose signature says nothing.
        signature = signature_of(functools.partial(inside.forward, *function.args, **function.keywords))
    else:
        signature = signature_of(function)
    if signature is not None:
        call.__signature__ = signature  # type: ignore[attr-defined]
    return call


def _free(name: str, module: torch.nn.Module) -> str:
    name = name.replace(".", "_") or "model"
    while name in module._modules or hasattr(module, name):
        name += "_"
    return name


def _used(value: Any, depth: int) -> Iterator[tuple[str, Any]]:
    """The modules and tensors that a callable can reach, with names."""
    for key, part in _parts(value):
        if isinstance(part, (torch.nn.Module, torch.Tensor)):
            yield key, part
        elif depth and not isinstance(part, (types.ModuleType, type)):
            yield from _used(part, depth - 1)


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, types.MethodType):
        yield "self", value.__self__
        yield from _parts(value.__func__)
    elif isinstance(value, types.FunctionType):
        code = value.__code__
        for name, cell in zip(code.co_freevars, value.__closure__ or (), strict=True):
            with contextlib.suppress(ValueError):  # It may have no value yet.
                yield name, cell.cell_contents
        for name in _global_names(code):
            if name in value.__globals__:
                yield name, value.__globals__[name]
    elif isinstance(value, functools.partial):
        yield "function", value.func
        yield from ((f"argument_{i}", x) for i, x in enumerate(value.args))
        yield from value.keywords.items()
    elif isinstance(value, Mapping):
        yield from ((str(key), x) for key, x in value.items())
    elif isinstance(value, (list, tuple)):
        yield from ((str(i), x) for i, x in enumerate(value))
    elif isinstance(value, Callable) or hasattr(value, "__dict__"):  # type: ignore[arg-type]
        yield from ((str(key), x) for key, x in getattr(value, "__dict__", {}).items())


def _global_names(code: types.CodeType) -> Iterator[str]:
    """The global names that code uses, that of functions inside it included."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _global_names(constant)
