"""``dynamic_shapes`` in all its forms, as the nested specs that ``torch.export`` takes.

Beyond those of ``torch.export`` there are ``"auto"``, for a model, an argument or a dim, and other strings, which name
dims: ``{0: "batch", 1: "length"}``. Dims of one name are one symbol.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.export import AdditionalInputs, Dim, ShapesCollection

from .. import caches, jagged, records, trees
from ..errors import ArgumentTypeError, ArgumentValueError
from ..torch_compat import pytree
from .argument_paths import signature_of
from .dim_hints import AUTO, dynamic
from .hints import spec_of
from .size_refinements import written


def resolved(
    dynamic_shapes: Any, module: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any] | None
) -> Any:
    """``dynamic_shapes`` as nested specs for the arguments, whichever form the user chose."""
    kwargs = kwargs or {}
    if isinstance(dynamic_shapes, (ShapesCollection, AdditionalInputs)):
        dynamic_shapes = dynamic_shapes.dynamic_shapes(module, tuple(args), dict(kwargs))  # type: ignore[no-untyped-call]
    if dynamic_shapes is None:
        return None
    if not isinstance(dynamic_shapes, (Mapping, list, tuple)) and dynamic_shapes != AUTO:
        raise ArgumentTypeError(
            'dynamic_shapes: expected "auto", a dict, list or tuple of specs, a torch.export.ShapesCollection or'
            f" torch.export.AdditionalInputs, got {_shown(dynamic_shapes)}"
        )
    arguments = bound(module, args, kwargs)
    if arguments is None:
        return dynamic_shapes
    if dynamic_shapes == AUTO:
        return {name: automatic(value) for name, value in arguments.items()}
    if isinstance(dynamic_shapes, Mapping):
        dynamic_shapes = _by_name(dynamic_shapes, arguments, _variadic_keyword(module))
        dynamic_shapes = {n: records.specs(arguments[n], spec, n) for n, spec in dynamic_shapes.items()}
    elif _variadic_keyword(module) not in arguments:
        dynamic_shapes = _in_order(dynamic_shapes, arguments)
    if not any(isinstance(leaf, str) for leaf in pytree.tree_leaves(dynamic_shapes)):
        return dynamic_shapes
    names = _Names(dynamic_shapes)
    if isinstance(dynamic_shapes, Mapping):
        return {n: _spread(arguments[n], spec, names, n) for n, spec in dynamic_shapes.items()}
    return {
        name: _spread(value, spec, names, name)
        for (name, value), spec in zip(arguments.items(), dynamic_shapes, strict=True)
    }


def bound(module: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any] | None:
    """The arguments by the names of the parameters, ``*rest`` as a tuple; None if they do not fit the signature."""
    signature = signature_of(module)
    try:
        return None if signature is None else dict(signature.bind(*args, **kwargs).arguments)
    except TypeError:
        return None


def _variadic_keyword(module: Any) -> str | None:
    signature = signature_of(module)
    kinds = {p.kind: p.name for p in signature.parameters.values()} if signature is not None else {}
    return kinds.get(inspect.Parameter.VAR_KEYWORD)


def _by_name(shapes: Mapping[str, Any], arguments: Mapping[str, Any], variadic: str | None) -> dict[str, Any]:
    """A spec for each argument, None where the user says nothing."""
    given = dict(shapes)
    if variadic is not None and variadic not in arguments and isinstance(given.get(variadic), Mapping):
        given.update(given.pop(variadic))  # as torch.export has those of ``**kwargs``
    for name in list(given):
        spec = given[name]
        parts = [f"{name}_{i}" for i in range(len(spec))] if isinstance(spec, (list, tuple)) else []
        if name not in arguments and parts and all(part in arguments for part in parts):
            # ``*rest`` of a module that torch.export has made: an argument for each part.
            given.update(zip(parts, given.pop(name), strict=True))
    for name in given:
        if name not in arguments:
            known = ", ".join(arguments) or "none"
            raise ArgumentValueError(
                f"dynamic_shapes: {name!r} is not an argument of the example; the arguments: {known}"
            )
    return {name: given.get(name) for name in arguments}


def _in_order(shapes: Sequence[Any], arguments: Mapping[str, Any]) -> list[Any]:
    if shapes and arguments and isinstance(list(arguments.values())[-1], torch.Tensor):
        last: Any = shapes[-1]
        # One dict in a tuple is no spec of a tensor, for which a tuple lists dims.
        several = isinstance(last, (list, tuple)) and (len(last) > 1 or any(isinstance(x, Mapping) for x in last))
        if several and len(shapes) - 1 + len(last) == len(arguments):
            # ``*rest`` of a module that torch.export has made: an argument for each part.
            shapes = [*shapes[:-1], *last]
    if len(shapes) != len(arguments):
        raise ArgumentValueError(
            f"dynamic_shapes: expected a spec for each of the {len(arguments)} arguments"
            f" ({', '.join(arguments)}), got {len(shapes)}; a dict by their names may leave some out"
        )
    return [records.specs(value, spec, n) for (n, value), spec in zip(arguments.items(), shapes, strict=True)]


def automatic(value: Any, leaf: Callable[[Any], Any] | None = None) -> Any:
    """A spec by which every dim of every tensor in ``value`` is dynamic if it can be; or what ``leaf`` says of each."""
    leaf = leaf or _every_dim
    if isinstance(value, torch.Tensor) or trees.is_tree(value):
        return leaf(value)
    if caches.is_cache(value):
        return [leaf(part) for part in pytree.tree_leaves(value)]
    if type(value) is dict:
        return {key: automatic(part, leaf) for key, part in value.items()}
    if type(value) in (list, tuple):
        return type(value)([automatic(part, leaf) for part in value])
    if records.is_named_tuple(value):
        return type(value)._make(automatic(part, leaf) for part in value)
    parts = _children(value)
    return leaf(value) if parts is None else [automatic(part, leaf) for part in parts]


def _every_dim(value: Any) -> Any:
    # Of nested tensors the sequences are dynamic anyway, and what is left are features.
    plain = isinstance(value, torch.Tensor) and not jagged.is_jagged(value)
    return dict.fromkeys(range(value.dim()), Dim.AUTO) if plain else None


def _children(value: Any) -> list[Any] | None:
    """The parts of a registered node that is not a plain collection."""
    node = pytree.node_type(value)
    return None if node not in pytree.SUPPORTED_NODES else list(pytree.SUPPORTED_NODES[node].flatten_fn(value)[0])


class _Names:
    """One ``Dim`` for each name: the user's own if ``shapes`` has one of that name."""

    def __init__(self, shapes: Any) -> None:
        roots = (getattr(leaf, "root", leaf) for leaf in pytree.tree_leaves(shapes))
        self._dims: dict[str, Any] = {root.__name__: root for root in roots if isinstance(root, Dim)}

    def dim(self, name: str, where: str) -> Any:
        if name == AUTO:
            return Dim.AUTO
        if not name.isidentifier():
            raise ArgumentValueError(f'dynamic_shapes: {where}: expected the name of a dim or "auto", got {name!r}')
        if name not in self._dims:
            self._dims[name] = Dim(name)
        return self._dims[name]


def _spread(value: Any, spec: Any, names: _Names, where: str) -> Any:
    """A spec with a ``Dim`` in the place of each string."""
    if spec is None:
        return None
    if isinstance(spec, str):
        if isinstance(value, int) and not isinstance(value, bool):
            return Dim.AUTO if spec == AUTO else dynamic(spec)
        if spec != AUTO:
            raise ArgumentValueError(f'dynamic_shapes: {where}: expected a dict of dims or "auto", got {spec!r}')
        return automatic(value)
    if isinstance(value, (str, bool)) and not isinstance(spec, str):
        raise ArgumentValueError(f"dynamic_shapes: {where} is {value!r}, a constant, which has no dims: give None")
    if isinstance(value, torch.Tensor):
        if isinstance(spec, Mapping):
            return {d: _dim(said, names, f"{where}, dim {d}") for d, said in spec.items()}
        if isinstance(spec, (list, tuple)):
            return type(spec)(_dim(said, names, f"{where}, dim {d}") for d, said in enumerate(spec))
        return spec
    if caches.is_cache(value) and isinstance(spec, Mapping):
        return {d: _dim(said, names, f"{where}, dim {d}") for d, said in spec.items()}
    if isinstance(value, Mapping) and isinstance(spec, Mapping):
        for key in spec:
            if key not in value:
                known = ", ".join(map(repr, value))
                raise ArgumentValueError(f"dynamic_shapes: {where} has no key {key!r}; its keys: {known}")
        return {key: _spread(value[key], said, names, f"{where}[{key!r}]") for key, said in spec.items()}
    parts = list(value) if isinstance(value, (list, tuple)) else _children(value)
    if parts is not None and isinstance(spec, (list, tuple)):
        if len(parts) != len(spec):
            raise ArgumentValueError(f"dynamic_shapes: {where}: expected {len(parts)} specs, got {len(spec)}")
        found = [_spread(x, s, names, f"{where}[{i}]") for i, (x, s) in enumerate(zip(parts, spec, strict=True))]
        if records.is_named_tuple(spec):
            return type(spec)(*found)
        return found if type(spec) is list else tuple(found)
    return spec


def _dim(said: Any, names: _Names, where: str) -> Any:
    return names.dim(said, where) if isinstance(said, str) else said


def check_sizes(names: Sequence[str], leaves: Sequence[Any], specs: Sequence[Any]) -> None:
    """ArgumentValueError if the example has a size that ``dynamic_shapes`` excludes."""
    first: dict[str, tuple[str, int]] = {}
    for name, leaf, spec in zip(names, leaves, specs, strict=False):
        for dim, size in enumerate(leaf.shape if type(leaf) is torch.Tensor else ()):
            said = spec_of(spec, dim)
            if isinstance(said, Dim) and not said.min <= size <= said.max:
                raise ArgumentValueError(
                    f"dynamic_shapes: {name}, dim {dim} is {size} in the example, outside of {written(said)}"
                )
            if isinstance(said, Dim):
                where, known = first.setdefault(said.__name__, (f"{name}, dim {dim}", size))
                if known != size:
                    raise ArgumentValueError(
                        f"dynamic_shapes: {said.__name__!r} is {known} in the example ({where}), but {name}, dim {dim},"
                        f" is {size}: give the two dims different names, or the example equal sizes"
                    )
            if isinstance(said, int) and said != size:
                raise ArgumentValueError(
                    f"dynamic_shapes: {name}, dim {dim} is {size} in the example, but dynamic_shapes says {said}"
                )


def _shown(value: Any) -> str:
    return repr(value) if isinstance(value, str) else type(value).__name__
