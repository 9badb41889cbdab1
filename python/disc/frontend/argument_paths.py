"""How texts name a model's arguments: ``mask``, ``pair['shift']``, ``args[1]``."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from ..torch_compat import pytree


def signature_of(function: Any) -> inspect.Signature | None:
    """The signature of a function, or of a module's ``forward``; None if it has none, as functions in C."""
    try:
        return inspect.signature(getattr(function, "forward", function))
    except (TypeError, ValueError):
        return None


def positional_names(signature: inspect.Signature | None, count: int) -> list[str]:
    """The names of the first ``count`` positional arguments; those of ``*rest`` are ``rest[0]``, ``rest[1]``."""
    names: list[str] = []
    for parameter in signature.parameters.values() if signature is not None else ():
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            names.append(parameter.name)
        elif parameter.kind is parameter.VAR_POSITIONAL:
            names += [f"{parameter.name}[{i}]" for i in range(max(0, count - len(names)))]
    names += [f"argument {i}" for i in range(len(names), count)]
    return names[:count]


def leaf_names(signature: inspect.Signature | None, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[str]:
    """A name for each leaf of ``(args, kwargs)``."""
    positional = positional_names(signature, len(args))
    paths, _ = pytree.tree_flatten_with_path((tuple(args), dict(kwargs)))
    return [_name(path, positional) for path, _ in paths]


def _name(path: Sequence[Any], positional: Sequence[str]) -> str:
    place, argument = path[0], path[1]
    inside = pytree.keystr(tuple(path[2:]))
    if place == pytree.SequenceKey(0) and isinstance(argument, pytree.SequenceKey):
        return positional[argument.idx] + inside
    return str(getattr(argument, "key", argument)) + inside
