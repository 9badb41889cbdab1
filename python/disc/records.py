"""Dataclasses and named tuples as arguments and results.

Dataclasses are pytree nodes with a leaf for each field that is not None.

PyTorch wants ``torch.export.register_dataclass`` for each class. DISC registers those that it sees in an example, and
those that a model returns while it is traced.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from . import trees
from .errors import ArgumentValueError
from .torch_compat import pytree


def is_record(value: Any) -> bool:
    """Whether ``value`` is an instance of a dataclass that is neither a tree nor registered in a way of its own."""
    if not dataclasses.is_dataclass(value) or isinstance(value, (type, dict, torch.Tensor, torch.nn.Module)):
        return False
    return not trees.is_tree(value) and all(field.init for field in dataclasses.fields(value))


def register(tree: Any) -> None:
    """Registers the classes of all dataclasses in ``tree``."""
    pending = [tree]
    while pending:
        for leaf in pytree.tree_leaves(pending.pop()):
            if is_record(leaf):
                if type(leaf) not in pytree.SUPPORTED_NODES:
                    torch.export.register_dataclass(type(leaf))
                pending.append(leaf)


@contextmanager
def returned(module: torch.nn.Module) -> Iterator[None]:
    """While it is active, the classes of dataclasses that ``module`` returns are registered."""

    def leave(_: Any, __: Any, result: Any) -> None:
        register(result)

    # In front of hooks that make other objects of results.
    hook = module.register_forward_hook(leave, prepend=True)
    try:
        yield
    finally:
        hook.remove()


def is_named_tuple(value: Any) -> bool:
    """Whether ``value`` is an instance of a ``typing.NamedTuple`` or a ``collections.namedtuple``."""
    return isinstance(value, tuple) and hasattr(value, "_fields") and hasattr(value, "_make")


def specs(value: Any, spec: Any, where: str) -> Any:
    """A spec of ``dynamic_shapes`` as torch.export wants it: of a dataclass a list, with one for each field; of a named
    tuple one of its class.

    The user's own may be a dict by the names of the fields, an object of the same class, or of a named tuple a list or
    tuple.
    """
    if is_named_tuple(value):
        if isinstance(spec, Mapping):
            _check_fields(spec, value._fields, where)
            spec = [spec.get(name) for name in value._fields]
        if not isinstance(spec, (list, tuple)):
            return spec
        if len(spec) != len(value):
            raise ArgumentValueError(
                f"dynamic_shapes: {where}: expected {len(value)} specs ({', '.join(value._fields)}), got {len(spec)}"
            )
        named = zip(value._fields, value, spec, strict=True)
        return type(value)._make(specs(part, said, f"{where}.{name}") for name, part, said in named)
    if is_record(value):
        if type(spec) is type(value):
            spec = {field.name: getattr(spec, field.name) for field in dataclasses.fields(spec)}
        if spec is not None and not isinstance(spec, Mapping):
            return spec
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        _check_fields(spec or {}, fields, where)
        return [
            specs(part, (spec or {}).get(name), f"{where}.{name}") for name, part in fields.items() if part is not None
        ]
    if isinstance(value, dict) and isinstance(spec, Mapping):
        return {k: specs(value[k], s, f"{where}[{k!r}]") if k in value else s for k, s in spec.items()}
    if type(value) in (list, tuple) and type(spec) in (list, tuple) and len(spec) == len(value):
        return type(spec)(specs(x, s, f"{where}[{i}]") for i, (x, s) in enumerate(zip(value, spec, strict=True)))
    return spec


def _check_fields(spec: Iterable[str], fields: Collection[str], where: str) -> None:
    for name in spec:
        if name not in fields:
            raise ArgumentValueError(f"dynamic_shapes: {where} has no field {name!r}; its fields: {', '.join(fields)}")
