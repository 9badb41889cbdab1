"""Jagged nested tensors (``layout=torch.jagged``) as arguments and results of compiled models.

A program takes and returns their parts: ``values`` [total, ...], ``offsets`` [sequences + 1] and, where a tensor has
them, ``lengths`` and the cached ``min_seqlen`` and ``max_seqlen``. In front of the model's code the parts become a
nested tensor, and a nested tensor among its results becomes parts. Two nested tensors have the same raggedness if they
share one tensor of offsets: a program then takes it once, and calls are checked for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.export import Dim

from .errors import ArgumentTypeError
from .torch_compat import pytree
from .torch_compat.nested import NestedTensor
from .torch_compat.symbols import DimHint, DimHintType
from .torch_compat.tracing import maybe_enable_thunkify

_NUMBERS = ("min_seqlen", "max_seqlen")
LONGEST = "max_seqlen"
CARRIED = (
    "a branch or loop on data cannot pass on a nested tensor: pass on its values, and make a nested tensor of them"
    " behind it"
)


@dataclass(frozen=True)
class Kind:
    """The structure of a nested tensor."""

    ragged: int
    """The ragged dimension."""
    names: tuple[str, ...]
    """The parts that a program takes."""
    shared: tuple[tuple[str, int], ...] = ()
    """Parts that are those of an earlier argument, with its number among the nested arguments."""
    order: tuple[int, ...] = ()
    """Of a result the dimensions of the values from the outermost in memory on; () if that is their order."""

    @property
    def _fields(self) -> tuple[str, ...]:
        # Named as the fields of a named tuple are.
        return self.names


class Parts:
    """The parts of a nested tensor: a pytree node."""

    def __init__(self, kind: Kind, tensors: Sequence[Any]) -> None:
        self.kind = kind
        self.tensors = list(tensors)


pytree.register_pytree_node(
    Parts,
    lambda parts: (parts.tensors, parts.kind),
    lambda tensors, kind: Parts(kind, list(tensors)),
    flatten_with_keys_fn=lambda parts: (
        list(zip(map(pytree.GetAttrKey, parts.kind.names), parts.tensors, strict=True)),
        parts.kind,
    ),
)


@dataclass(frozen=True)
class Argument:
    """A nested tensor among a program's arguments."""

    path: tuple[Any, ...]
    kind: Kind
    pads: bool = False
    """Whether the program pads to the cached ``max_seqlen``, or else to the total length, as PyTorch does."""

    @property
    def name(self) -> str:
        """The argument in words."""
        what = "argument" if self.path[0] == pytree.SequenceKey(0) else "keyword argument"
        return f"{what} {pytree.keystr(self.path[1:])}"


def is_jagged(value: Any) -> bool:
    """Whether a value is a jagged nested tensor."""
    return isinstance(value, NestedTensor)


def _present(tensor: NestedTensor) -> dict[str, Any]:
    """The parts of a nested tensor, of numbers the tensors whose extent they are."""
    parts = {"values": tensor._values, "offsets": tensor._offsets, "lengths": tensor._lengths}
    parts |= {name: tensor._metadata_cache.get(name) for name in _NUMBERS}
    return {name: part for name, part in parts.items() if part is not None}


def find(args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Argument]:
    """The nested tensors among arguments."""
    leaves, _ = pytree.tree_flatten_with_path((tuple(args), dict(kwargs)))
    found: list[Argument] = []
    tensors: list[NestedTensor] = []
    for path, leaf in leaves:
        if not isinstance(leaf, NestedTensor):
            continue
        parts, shared = _present(leaf), []
        for name in ("offsets", "lengths"):
            known = (i for i, other in enumerate(tensors) if name in parts and _present(other).get(name) is parts[name])
            if (first := next(known, None)) is not None:
                shared.append((name, first))
        names = tuple(name for name in parts if name not in dict(shared))
        found.append(Argument(tuple(path), Kind(leaf._ragged_idx, names, tuple(shared))))
        tensors.append(leaf)
    return found


def replaced(args: Sequence[Any], kwargs: Mapping[str, Any], arguments: Sequence[Argument]) -> tuple[Any, Any]:
    """The arguments with parts in the place of nested tensors; TypeError where these are not like the example's."""
    known = {argument.path: argument for argument in arguments}
    earlier: list[NestedTensor] = []

    def leaf(path: Any, value: Any) -> Any:
        argument = known.get(tuple(path))
        if argument is None:
            return value
        parts = _parts(argument, value, earlier)
        earlier.append(value)
        return parts

    return pytree.tree_map_with_path(leaf, (tuple(args), dict(kwargs)))  # type: ignore[no-any-return]


def _parts(argument: Argument, tensor: Any, earlier: Sequence[NestedTensor]) -> Parts:
    kind, where = argument.kind, argument.name
    if not isinstance(tensor, NestedTensor):
        found = "another tensor" if isinstance(tensor, torch.Tensor) else type(tensor).__name__
        raise ArgumentTypeError(f"{where}: expected a nested tensor with layout=torch.jagged, got {found}")
    shared = dict(kind.shared)
    if tensor._ragged_idx != kind.ragged:
        raise ArgumentTypeError(f"{where}: expected dimension {kind.ragged} to be ragged, got {tensor._ragged_idx}")
    if (tensor._lengths is not None) != ("lengths" in (*kind.names, *shared)):
        raise ArgumentTypeError(
            f"{where}: expected a nested tensor {'without' if tensor._lengths is not None else 'with'} lengths beside"
            " its offsets, as in the example"
        )
    parts = _present(tensor)
    for name, first in shared.items():
        if parts[name] is not _present(earlier[first])[name]:
            raise ArgumentTypeError(
                f"{where}: expected the {name} tensor of nested argument {first}, as in the example, got another one."
                " Tensors with equal offsets have different raggedness: use one in nested_tensor_from_jagged"
            )
    if argument.pads and (LONGEST in parts) != (LONGEST in kind.names):
        raise ArgumentTypeError(
            f"{where}: expected a nested tensor {'without' if LONGEST in parts else 'with'} a cached max_seqlen, as in"
            " the example: to_padded_tensor pads to it, or else to the total length. Pass max_seqlen to"
            " nested_tensor_from_jagged, or compile with an example that is made in the same way"
        )
    tensors = []
    for name in kind.names:
        if name in _NUMBERS:
            number = tensor._get_min_seqlen() if name == "min_seqlen" else tensor._get_max_seqlen()
            tensors.append(torch.tensor(number))
        else:
            tensors.append(parts[name])
    return Parts(kind, tensors)


def _assembled(parts: Parts, earlier: Sequence[NestedTensor], number: Any) -> NestedTensor:
    """The nested tensor with these parts; ``number`` makes a size of a part that is one."""
    found = dict(zip(parts.kind.names, parts.tensors, strict=True))
    found |= {name: _present(earlier[first])[name] for name, first in parts.kind.shared}
    cache = {name: torch.zeros(number(found[name]), 0) for name in _NUMBERS if name in found}
    values, order = found["values"], parts.kind.order
    if order:
        values = values.permute([order.index(dim) for dim in range(len(order))])
    return NestedTensor(
        values,
        found["offsets"],
        lengths=found.get("lengths"),
        _ragged_idx=parts.kind.ragged,
        _metadata_cache=cache,
    )


def _mapped(tree: Any, number: Any) -> Any:
    made: list[NestedTensor] = []

    def leaf(value: Any) -> Any:
        if not isinstance(value, Parts):
            return value
        made.append(_assembled(value, made, number))
        return made[-1]

    return pytree.tree_map(leaf, tree, is_leaf=lambda value: isinstance(value, Parts))


def more_than_sequences(tree: Any) -> list[int]:
    """Of each leaf of a tree 1 if it is the offsets of a nested tensor, which are one more than the sequences, or 0."""
    nodes = pytree.tree_leaves(tree, is_leaf=lambda value: isinstance(value, Parts))
    names = (node.kind.names if isinstance(node, Parts) else ("",) for node in nodes)
    return [int(name == "offsets") for found in names for name in found]


def are_returned(spec: pytree.TreeSpec) -> bool:
    """Whether the result of a program with this structure has parts of nested tensors."""
    return spec.type is Parts or any(map(are_returned, spec.children()))


def rebuilt(result: Any) -> Any:
    """A call's result with nested tensors in the place of their parts."""
    return _mapped(result, int)


def _size(tensor: Any) -> Any:
    size = torch.ops.aten.item.default(tensor)
    torch._check(size >= 0)
    return size


def _memory_order(values: torch.Tensor) -> tuple[int, ...]:
    """The dimensions from the largest stride to the least; () if they are in order, or if that is unknown."""
    strides = [size.node.hint if isinstance(size, torch.SymInt) else size for size in values.stride()]
    if None in strides or 0 in strides:
        return ()
    order = sorted(range(values.dim()), key=lambda dim: -strides[dim])
    return () if order == sorted(order) else tuple(order)


def _result(value: Any) -> Any:
    if not isinstance(value, NestedTensor):
        return value
    parts = _present(value)
    order = _memory_order(value._values)
    if order:
        parts["values"] = value._values.permute(order)
    kind = Kind(value._ragged_idx, tuple(parts), order=order)
    return Parts(kind, [part.shape[0] if name in _NUMBERS else part for name, part in parts.items()])


@contextmanager
def as_parts(module: torch.nn.Module, arguments: Sequence[Argument]) -> Iterator[None]:
    """While it is active, calls of ``module`` take and return parts; its code sees nested tensors."""

    def enter(_: Any, args: Any, kwargs: Any) -> Any:
        with maybe_enable_thunkify():
            return _mapped((args, kwargs), _size)

    def leave(_: Any, args: Any, result: Any) -> Any:
        del args
        # Objects stay themselves where there is nothing to do.
        return pytree.tree_map(_result, result) if any(map(is_jagged, pytree.tree_leaves(result))) else result

    hooks = [module.register_forward_hook(leave)]
    if arguments:
        hooks.append(module.register_forward_pre_hook(enter, with_kwargs=True, prepend=True))
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


_watched: list[set[str]] = []


@contextmanager
def watched() -> Iterator[set[str]]:
    """Notes what traced programs ask of the caches of nested tensors."""
    asked: set[str] = set()
    _watched.append(asked)
    try:
        yield asked
    finally:
        _watched.remove(asked)


def asks(name: str) -> None:
    """A traced program depends on whether a nested tensor has ``name`` in its cache."""
    for asked in _watched:
        asked.add(name)


def with_asked(arguments: Sequence[Argument], asked: set[str]) -> list[Argument]:
    """The arguments of a program that asked this while it was traced."""
    return [replace(argument, pads=LONGEST in asked) for argument in arguments]


# -- dynamic_shapes ------------------------------------------------------------------------------------------------


def dynamic_shapes(shapes: Any, args: Sequence[Any], kwargs: Mapping[str, Any], names: Sequence[str]) -> Any:
    """``dynamic_shapes`` with a list of specs, one for each part, in the place of each nested tensor's.

    The first dimension and the ragged one are dynamic, unless the user fixes them. What the user says of the ragged
    dimension is said of the total length.
    """
    arguments = find(args, kwargs)
    if not arguments:
        return shapes
    kinds = iter(arguments)

    def spread(value: Any, spec: Any) -> Any:
        if isinstance(value, NestedTensor):
            return _spec_of_parts(next(kinds).kind, value.dim(), spec)
        if not any(map(is_jagged, pytree.tree_leaves(value))):
            return spec
        if isinstance(value, dict):
            by_key = spec if isinstance(spec, Mapping) else {}
            return {key: spread(part, by_key.get(key)) for key, part in value.items()}
        if type(value) in (list, tuple):
            specs = spec if isinstance(spec, (list, tuple)) else [None] * len(value)
            return type(value)(map(spread, value, specs))
        return spec

    given = dict(zip((name for name in names if not name.startswith("*")), args, strict=False))
    variadic = next((name[1:] for name in names if name.startswith("*") and not name.startswith("**")), None)
    if variadic is not None and len(args) > len(given):
        given[variadic] = tuple(args[len(given) :])
    given |= kwargs
    if isinstance(shapes, (list, tuple)):
        values = [*args, *kwargs.values()] if len(shapes) != len(given) else list(given.values())
        return tuple(map(spread, values, shapes)) if len(shapes) == len(values) else shapes
    shapes = dict(shapes or {})
    return {**shapes, **{name: spread(value, shapes.get(name)) for name, value in given.items()}}


def _spec_of_parts(kind: Kind, rank: int, spec: Any) -> list[Any]:
    if isinstance(spec, (list, tuple)):
        spec = dict(enumerate(spec))
    dims = {dim: said for dim, said in (spec or {}).items() if said is not None}
    dims = {0: Dim.AUTO, kind.ragged: Dim.AUTO, **dims}
    values = {dim - 1: dims[dim] for dim in range(1, rank) if dim in dims}
    specs = {"values": values, "offsets": {0: _plus_one(dims[0])}, "lengths": {0: dims[0]}}
    return [specs.get(name) for name in kind.names]


def _plus_one(dim: Any) -> Any:
    """The spec of the offsets' extent, which is one more than the number of sequences."""
    if not isinstance(dim, DimHint):
        return dim + 1
    if dim.type is DimHintType.STATIC or (dim.min is None and dim.max is None):
        return dim
    more = {name: n + 1 for name, n in (("min", dim.min), ("max", dim.max)) if n is not None}
    return (Dim.AUTO if dim.type is DimHintType.AUTO else Dim.DYNAMIC)(**more)
