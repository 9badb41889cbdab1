"""Objects of Python as arguments: dtypes, devices, slices, ranges and functions are constants of the compiled model.

``torch.export`` has no place for them. It receives strings, for which the objects are put back before the model's code.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from ..torch_compat import pytree

Path = tuple[Any, ...]

_KINDS = (torch.dtype, torch.device, torch.layout, torch.memory_format, slice, range)


def find_objects(args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[Path, Any]:
    """The objects among the arguments, by their paths in ``(args, kwargs)``."""
    leaves, _ = pytree.tree_flatten_with_path((tuple(args), dict(kwargs)))
    return {tuple(path): leaf for path, leaf in leaves if _is_object(leaf)}


def _is_object(value: Any) -> bool:
    if isinstance(value, slice):
        return not any(isinstance(x, torch.Tensor) for x in (value.start, value.stop, value.step))
    # The weights of a module that is an argument would be constants, too.
    return isinstance(value, _KINDS) or (callable(value) and not isinstance(value, (torch.Tensor, torch.nn.Module)))


def is_same(value: Any, other: Any) -> bool:
    """Whether an argument is the constant that a model was compiled with."""
    if value is other:
        return True
    if type(value) is not type(other):
        return False
    if isinstance(value, functools.partial):
        return (value.func, value.args, value.keywords) == (other.func, other.args, other.keywords)
    return bool(value == other)


def as_strings(args: Sequence[Any], kwargs: Mapping[str, Any], found: Mapping[Path, Any]) -> tuple[Any, Any]:
    """The arguments with strings in the place of objects."""
    return _mapped(args, kwargs, {path: repr(value) for path, value in found.items()})


def _mapped(args: Any, kwargs: Any, values: Mapping[Path, Any]) -> tuple[Any, Any]:
    return pytree.tree_map_with_path(  # type: ignore[no-any-return]
        lambda path, leaf: values.get(tuple(path), leaf), (tuple(args), dict(kwargs))
    )


@contextmanager
def put_back(module: torch.nn.Module, found: Mapping[Path, Any]) -> Iterator[None]:
    """While it is active, a call of ``module`` receives the objects instead of the strings."""
    if not found:
        yield
        return
    hook = module.register_forward_pre_hook(
        lambda _, args, kwargs: _mapped(args, kwargs, found), with_kwargs=True, prepend=True
    )
    try:
        yield
    finally:
        hook.remove()


def constants(args: Sequence[Any], kwargs: Mapping[str, Any], found: Mapping[Path, Any]) -> dict[int, Any]:
    """The objects, by the numbers of their leaves."""
    leaves, _ = pytree.tree_flatten_with_path((tuple(args), dict(kwargs)))
    return {i: found[tuple(path)] for i, (path, _) in enumerate(leaves) if tuple(path) in found}
