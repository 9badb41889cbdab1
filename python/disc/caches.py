"""Key-value caches of the transformers package as arguments and results of compiled models.

They become pytree nodes whose leaves are the tensors of their layers; everything else of a cache is part of the
structure. As in eager PyTorch, a model that returns a cache that it was given returns that object, with new tensors.
transformers is never imported here: a caller that passes its caches has done that.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from .torch_compat import pytree

_MODULE = "transformers.cache_utils"


def _is_part(value: Any) -> bool:
    """Whether an object is a cache, or a layer of one."""
    return any(base.__module__ == _MODULE for base in type(value).__mro__)


def is_cache(value: Any) -> bool:
    """Whether an argument is a cache."""
    module = sys.modules.get(_MODULE)
    return module is not None and isinstance(value, module.Cache)


def register() -> None:
    """Makes pytree nodes of all classes of caches there are: a model may make one that it was not given."""
    module = sys.modules.get(_MODULE)
    if module is None:
        return
    pending, known = [module.Cache], pytree.SUPPORTED_NODES
    while pending:
        cls = pending.pop()
        pending += cls.__subclasses__()
        if cls not in known:
            pytree.register_pytree_node(
                cls,
                _flatten,
                _unflatten,
                serialized_type_name=f"{cls.__module__}.{cls.__qualname__}",
                flatten_with_keys_fn=_flatten_with_keys,
            )


def _taken_apart(value: Any, path: str, leaves: list[tuple[str, Any]]) -> Any:
    """The structure of ``value``, whose tensors and symbolic numbers are added to ``leaves``."""
    if isinstance(value, (torch.Tensor, torch.SymInt)):
        leaves.append((path, value))
        return ("leaf",)
    if isinstance(value, (list, tuple)):
        return ("sequence", type(value), [_taken_apart(x, f"{path}_{i}", leaves) for i, x in enumerate(value)])
    if isinstance(value, dict):
        return ("dict", {k: _taken_apart(value[k], f"{path}_{k}", leaves) for k in value})
    if _is_part(value):
        parts = vars(value)
        prefix = f"{path}_" if path else ""
        return ("object", type(value), {k: _taken_apart(parts[k], prefix + k, leaves) for k in sorted(parts)})
    return ("value", value)


def _put_together(structure: Any, leaves: Iterator[Any]) -> Any:
    kind = structure[0]
    if kind == "leaf":
        return next(leaves)
    if kind == "sequence":
        return structure[1](_put_together(x, leaves) for x in structure[2])
    if kind == "dict":
        return {k: _put_together(x, leaves) for k, x in structure[1].items()}
    if kind == "object":
        made = object.__new__(structure[1])
        made.__dict__.update({k: _put_together(x, leaves) for k, x in structure[2].items()})
        return made
    return structure[1]


def _flatten(cache: Any) -> tuple[list[Any], Any]:
    leaves: list[tuple[str, Any]] = []
    structure = _taken_apart(cache, "", leaves)
    return [value for _, value in leaves], structure


def _flatten_with_keys(cache: Any) -> tuple[list[tuple[Any, Any]], Any]:
    leaves: list[tuple[str, Any]] = []
    structure = _taken_apart(cache, "", leaves)
    return [(pytree.MappingKey(name), value) for name, value in leaves], structure


def _unflatten(leaves: Any, structure: Any) -> Any:
    return _put_together(structure, iter(leaves))


def dynamic_shapes(shapes: Any, args: Sequence[Any], kwargs: Mapping[str, Any], names: Sequence[str]) -> Any:
    """``dynamic_shapes`` as torch.export wants it: of a cache a list, with one spec for each tensor.

    A cache's spec may also be one for all its keys and values, such as ``{0: batch, 2: length}``.
    """
    if shapes is None:
        return None

    def spread(value: Any, spec: Any) -> Any:
        if not is_cache(value):
            if isinstance(value, dict) and isinstance(spec, Mapping):
                return {k: spread(value[k], s) if k in value else s for k, s in spec.items()}
            if isinstance(value, (list, tuple)) and isinstance(spec, (list, tuple)) and len(spec) == len(value):
                return type(spec)(map(spread, value, spec)) if type(spec) in (list, tuple) else spec
            return spec
        tensors = _flatten(value)[0]
        if spec is None:
            return [None] * len(tensors)
        if not isinstance(spec, Mapping) or not all(isinstance(dim, int) for dim in spec):
            return spec
        last = max(spec, default=-1)
        return [spec if isinstance(t, torch.Tensor) and t.dim() > last else None for t in tensors]

    if isinstance(shapes, Mapping):
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        return {name: spread(given[name], spec) if name in given else spec for name, spec in shapes.items()}
    if isinstance(shapes, (list, tuple)) and len(shapes) == len(args) + len(kwargs):
        return type(shapes)(map(spread, [*args, *kwargs.values()], shapes))
    return shapes


Path = tuple[Any, ...]


def find(tree: Any) -> list[tuple[Path, Any]]:
    """The caches in a tree, with their paths."""
    leaves, _ = pytree.tree_flatten_with_path(tree, is_leaf=is_cache)
    return [(tuple(path), value) for path, value in leaves if is_cache(value)]


@contextmanager
def returned(module: torch.nn.Module, same: dict[Path, Path]) -> Iterator[None]:
    """Notes in ``same`` which results of ``module`` are caches that it was given: the result's path, the argument's."""

    def leave(_: Any, args: Any, kwargs: Any, result: Any) -> None:
        # Of a model that calls itself the outermost call is the last to end.
        given = find((args, kwargs))
        same.clear()
        same.update({path: place for path, cache in find(result) for place, known in given if known is cache})

    if _MODULE not in sys.modules:
        yield
        return
    # In front of hooks that make other objects of results.
    hook = module.register_forward_hook(leave, with_kwargs=True, prepend=True)
    try:
        yield
    finally:
        hook.remove()


def given_back(result: Any, args: Any, kwargs: Any, same: Mapping[Path, Path]) -> Any:
    """``result`` with the caller's own caches, updated, in the places of those that the model returns."""
    given = dict(find((args, kwargs)))

    def leaf(path: Any, value: Any) -> Any:
        own = given.get(same.get(tuple(path), ()))
        if own is None:
            return value
        own.__dict__.clear()
        own.__dict__.update(value.__dict__)
        return own

    return pytree.tree_map_with_path(leaf, result, is_leaf=is_cache)
