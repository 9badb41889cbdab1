"""What differs between the arguments of a call and those that a model was compiled for, in words."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ..suggestions import suggesting
from ..torch_compat.pytree import SUPPORTED_NODES, TreeSpec
from .argument_paths import positional_names


def difference(
    expected: TreeSpec,
    got: TreeSpec,
    signature: inspect.Signature | None = None,
    *,
    what: str = "the model was compiled for",
) -> str:
    """The first difference between two structures of ``(args, kwargs)``, as Python would say it.

    ``signature``: that of the model, whose parameters give positional arguments their names. ``what`` introduces what
    was expected.
    """
    wanted, given = _arguments(expected, signature), _arguments(got, signature)
    missing = [name for name in wanted if name not in given]
    extra = [name for name in given if name not in wanted]
    misspelled = [name for name in extra if missing and name in (got.child(1).context or ())]
    if misspelled:
        return suggesting(unexpected(misspelled), misspelled[0], missing, f"{what} {_listed(wanted)}")
    if missing:
        return f"missing {_named(missing)}; {what} {_listed(wanted)}"
    if extra:
        return f"unexpected {_named(extra)}{_why(extra, signature)}; {what} {_listed(wanted)}"
    for name, old in wanted.items():
        if old != given[name]:
            return _inside(f"argument {_quoted(name)}", old, given[name], what)
    return f"the arguments are structured as {got}; {what} {expected}"


def misfit(
    signature: inspect.Signature, args: Sequence[Any], kwargs: Mapping[str, Any], then: str | None = None
) -> str | None:
    """Why arguments do not fit a signature, then what it has, or what ``then`` says; None if they fit.

    A name that the signature does not have comes first: it is why another argument is missing.
    """
    parameters = signature.parameters.values()
    kinds = {parameter.kind for parameter in parameters}
    named = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    positional = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if then is None:
        then = f"the parameters are {', '.join(signature.parameters) or 'none'}"
    given = positional[: len(args)]
    unknown = [name for name in kwargs if name not in named]
    if unknown and inspect.Parameter.VAR_KEYWORD not in kinds:
        if unknown[0] in positional:
            return f"argument {unknown[0]!r} is positional only, but was passed by name; {then}"
        free = [name for name in named if name not in kwargs and name not in given]
        return suggesting(unexpected(unknown), unknown[0], free, then)
    if twice := [name for name in given if name in named and name in kwargs]:
        return f"argument {twice[0]!r} was passed twice, by position and by name; {then}"
    if len(args) > len(positional) and inspect.Parameter.VAR_POSITIONAL not in kinds:
        return f"too many positional arguments: expected at most {len(positional)}, got {len(args)}; {then}"
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    missing = [
        p.name
        for p in parameters
        if p.default is p.empty and p.kind not in variadic and p.name not in given and p.name not in kwargs
    ]
    return f"missing {_named(missing)}; {then}" if missing else None


def unexpected(names: Sequence[str]) -> str:
    """The text about keyword arguments that a model does not take."""
    return f"unexpected keyword argument{'' if len(names) == 1 else 's'} {', '.join(map(repr, names))}"


def plain(value: Any) -> Any:
    """``value`` with dicts in the place of mappings that PyTorch does not look into, such as a tokenizer's results, and
    tuples in the place of sizes, as torch.export has it."""
    if isinstance(value, Mapping) and type(value) not in SUPPORTED_NODES:
        return {key: plain(part) for key, part in value.items()}
    if type(value) is dict:
        return {key: plain(part) for key, part in value.items()}
    if type(value) is torch.Size:
        return tuple(value)
    return type(value)(map(plain, value)) if type(value) in (list, tuple) else value


def ordered(value: Any, spec: TreeSpec) -> Any:
    """``value`` with the keys of its dicts in the order of ``spec``, where they are the same keys; sizes as tuples."""
    if spec.type is dict and isinstance(value, Mapping) and set(value) == set(spec.context):
        return {key: ordered(value[key], spec.child(i)) for i, key in enumerate(spec.context)}
    if spec.type is tuple and type(value) is torch.Size:
        value = tuple(value)
    if spec.type in (list, tuple) and type(value) is spec.type and len(value) == spec.num_children:
        return spec.type(ordered(part, spec.child(i)) for i, part in enumerate(value))
    return value


def _arguments(spec: TreeSpec, signature: inspect.Signature | None) -> dict[str, TreeSpec]:
    args, kwargs = (spec.child(i) for i in (0, 1))
    names = positional_names(signature, args.num_children)
    found = {name: args.child(i) for i, name in enumerate(names)}
    return found | {str(key): kwargs.child(i) for i, key in enumerate(kwargs.context or ())}


def _quoted(name: str) -> str:
    # What has no name is "argument 2".
    return name.removeprefix("argument ") if name.startswith("argument ") else repr(name)


def _named(names: list[str]) -> str:
    return f"argument{'' if len(names) == 1 else 's'} {', '.join(map(_quoted, names))}"


def _listed(names: dict[str, TreeSpec]) -> str:
    return ", ".join(map(_quoted, names)) or "no arguments"


def _why(names: list[str], signature: inspect.Signature | None) -> str:
    """What to say of arguments that the model's code has, but the compiled model has not."""
    parameters = [None if signature is None else signature.parameters.get(name) for name in names]
    defaults = [p.default for p in parameters if p is not None and p.default is not inspect.Parameter.empty]
    if len(defaults) != len(names):
        return ""
    values = ", ".join(map(repr, defaults))
    had = f"had its default, {values}," if len(names) == 1 else f"had their defaults, {values},"
    return (
        f", which {had} when the model was compiled: compile with an example of {'it' if len(names) == 1 else 'them'}"
    )


def _inside(where: str, expected: TreeSpec, got: TreeSpec, what: str) -> str:
    """The first difference in one argument."""
    if expected.type is dict and got.type is dict:
        missing = [key for key in expected.context if key not in got.context]
        extra = [key for key in got.context if key not in expected.context]
        if missing or extra:
            problem = f"missing key {missing[0]!r}" if missing else f"unexpected key {extra[0]!r}"
            return f"{where}: {problem}; {what} a dict with {', '.join(map(repr, expected.context))}"
    if expected.type is not got.type or expected.num_children != got.num_children or expected.context != got.context:
        return f"{where}: {what} {_kind(expected)}; got {_kind(got)}"
    for i in range(expected.num_children):
        old, new = expected.child(i), got.child(i)
        if old != new:
            key = expected.context[i] if isinstance(expected.context, list) else i
            return _inside(f"{where}[{key!r}]", old, new, what)
    return f"{where}: {what} {expected}; got {got}"


def _kind(spec: TreeSpec) -> str:
    if spec.is_leaf():
        return "one value"
    kind = getattr(spec.type, "__name__", str(spec.type))
    if dataclasses.is_dataclass(spec.type) and isinstance(spec.context, list) and len(spec.context) == 2:
        # The names of the fields that have a value, then of those that are None.
        return f"a {kind} with {', '.join(map(repr, spec.context[0])) or 'no fields'}"
    if isinstance(spec.context, list) and spec.context:
        return f"a {kind} with {', '.join(map(repr, spec.context))}"
    return f"a {kind} of {spec.num_children}"
