"""Trees as arguments: a dataclass or a NamedTuple with optional children, flattened to tensors.

>>> @dataclass
... class Tree:
...     value: torch.Tensor              # of one shape in all nodes
...     left: Tree | None = None
...     right: Tree | None = None
>>> disc.flatten_tree(Tree(torch.zeros(3), left=Tree(torch.ones(3))))
{'children': tensor([[1, -1], [-1, -1]]), 'value': tensor([[0., 0., 0.], [1., 1., 1.]])}

A tree of n nodes is a table with n rows, the root's first: ``children`` int64 [n, number of children], the rows of each
node's children (-1 for a missing child), then a tensor [n, ...] for each field. A field that is None is stored as
zeros, and ``present`` bool [n, number of optional fields] is False for it. Subtrees may be shared; children must not
lead back to a parent, which a compiled model checks.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import operator
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .errors import ArgumentTypeError, ArgumentValueError, CompileError, ShapeError, TreeError
from .torch_compat import pytree

CHILDREN = "children"
PRESENT = "present"
_NUMBERS: dict[type, torch.dtype] = {bool: torch.bool, int: torch.int64, float: torch.float64}
# The most optional fields and children that a schedule supports for one node: see Trees.cpp.
_MOST_BITS = 6


@dataclass(frozen=True)
class Field:
    """A field of a tree's nodes that is a tensor or a number."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    optional: bool
    number: bool
    """Whether the user's nodes hold a Python number."""


@dataclass(frozen=True)
class TreeType:
    """The class of a tree's nodes, its children and its fields."""

    cls: type
    children: tuple[str, ...]
    """The fields that hold another node, or None."""
    fields: tuple[Field, ...]

    @property
    def optional(self) -> tuple[Field, ...]:
        """The fields that may be None."""
        return tuple(f for f in self.fields if f.optional)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the tensors that a tree is flattened to."""
        taken = (CHILDREN, PRESENT) if self.optional else (CHILDREN,)
        return (*taken, *(f"{f.name}_" if f.name in taken else f.name for f in self.fields))

    def flatten(self, root: Any) -> list[Tensor]:
        """A tree as tensors, in the order of :attr:`names`; TypeError or ShapeError where it is not as the example."""
        nodes, children = self._walk(root)
        tensors = [torch.tensor(children, dtype=torch.int64).view(len(nodes), len(self.children))]
        columns = [list(map(operator.attrgetter(f.name), nodes)) for f in self.fields]
        flags = [[x is not None for x in c] for c, f in zip(columns, self.fields, strict=True) if f.optional]
        if flags:
            tensors.append(torch.tensor(flags).t().contiguous())
        tensors += [self._stack(f, column) for f, column in zip(self.fields, columns, strict=True)]
        return tensors

    def _walk(self, root: Any) -> tuple[list[Any], list[int]]:
        """The nodes, the root first, and the number of each node's children among them."""
        names, cls = self.children, self.cls
        nodes, numbers, children = [root], {id(root): 0}, []
        get = operator.attrgetter(*names)
        single = len(names) == 1
        for node in nodes:
            if not isinstance(node, cls):
                raise ArgumentTypeError(f"a node of the tree is a {type(node).__name__}, expected {cls.__name__}")
            for child in (get(node),) if single else get(node):
                if child is None:
                    children.append(-1)
                    continue
                number = numbers.setdefault(id(child), len(nodes))
                if number == len(nodes):
                    nodes.append(child)
                children.append(number)
        return nodes, children

    def _stack(self, field: Field, column: list[Any]) -> Tensor:
        if field.number:
            if not field.optional and set(map(type, column)) == {_type_of(field.dtype)}:
                return torch.tensor(column, dtype=field.dtype)
            for i, x in enumerate(column):
                if x is not None and type(x) is not _type_of(field.dtype):
                    raise ArgumentTypeError(
                        f"node {i}: {field.name} is {x!r}, expected a {_type_of(field.dtype).__name__}"
                    )
            return torch.tensor([0 if x is None else x for x in column], dtype=field.dtype)
        if field.optional:
            none = torch.zeros(field.shape, dtype=field.dtype)
            column = [none if x is None else x for x in column]
        for i, x in enumerate(column):
            if not isinstance(x, Tensor) or x.dtype is not field.dtype:
                what = f"a tensor of {x.dtype}" if isinstance(x, Tensor) else f"a {type(x).__name__}"
                raise ArgumentTypeError(f"node {i}: {field.name} is {what}, expected a tensor of {field.dtype}")
            if x.shape != field.shape:
                raise ShapeError(
                    f"node {i}: {field.name} has the shape {list(x.shape)}, expected {list(field.shape)}",
                    input=field.name,
                    expected=str(list(field.shape)),
                    got=str(list(x.shape)),
                )
        with torch.no_grad():
            return torch.stack(column)


def _type_of(dtype: torch.dtype) -> type:
    return next(kind for kind, known in _NUMBERS.items() if known == dtype)


def flatten_tree(tree: Any) -> dict[str, Tensor]:
    """A tree as the tensors that a compiled library takes for it, by name, in its order.

    See :mod:`disc.trees`. Raises CompileError where a field's type is not what trees can have.
    """
    kind = describe(tree)
    return dict(zip(kind.names, kind.flatten(tree), strict=True))


# -- what a tree is ----------------------------------------------------------------------------------------------


def is_tree(value: Any) -> bool:
    """Whether ``value`` is a node: of a dataclass or NamedTuple with a field for another of its kind."""
    cls: Any = type(value)
    named = issubclass(cls, tuple) and hasattr(cls, "_fields")
    return (named or dataclasses.is_dataclass(cls)) and bool(_children_of(cls))


def _field_names(cls: type) -> list[str]:
    if dataclasses.is_dataclass(cls):
        return [f.name for f in dataclasses.fields(cls)]
    return list(cls._fields)  # type: ignore[attr-defined]


@functools.lru_cache(maxsize=256)
def _hints(cls: type) -> dict[str, Any]:
    """The types of a class's fields; those that cannot be resolved are left out."""
    found: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        for name, hint in inspect.get_annotations(base).items():
            # One by one: a name that only a type checker knows leaves the others readable.
            holder = type("_", (), {"__annotations__": {name: hint}, "__module__": base.__module__})
            try:
                found[name] = typing.get_type_hints(holder, localns={cls.__name__: cls, base.__name__: base})[name]
            except Exception:
                found.pop(name, None)
    return found


def _alternatives(hint: Any) -> tuple[Any, ...]:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return typing.get_args(hint)
    return (hint,)


@functools.lru_cache(maxsize=256)
def _children_of(cls: type) -> tuple[str, ...]:
    hints = _hints(cls)
    return tuple(n for n in _field_names(cls) if n in hints and any(a is cls for a in _alternatives(hints[n])))


def describe(tree: Any) -> TreeType:
    """The type of a tree, from its annotations, and from an example for what they do not say."""
    cls: Any = type(tree)
    children, hints = _children_of(cls), _hints(cls)
    nodes, _ = TreeType(cls, children, ())._walk(tree)
    fields = []
    for name in _field_names(cls):
        if name in children:
            continue
        values = [getattr(node, name) for node in nodes]
        known = next((x for x in values if x is not None), None)
        hint = hints.get(name)
        allowed = _alternatives(hint) if hint is not None else ()
        optional = type(None) in allowed or any(x is None for x in values)
        if known is None and any(a is Tensor or a in _NUMBERS for a in allowed):
            raise _refuse(cls, f"{name} is None in all nodes of the example: give one that has it")
        if isinstance(known, Tensor):
            if known.layout != torch.strided or known.is_quantized:
                raise _refuse(cls, f"{name} is a tensor that is not dense")
            fields.append(Field(name, known.dtype, tuple(known.shape), optional, number=False))
        elif type(known) in _NUMBERS:
            # 1 may stand for 1.0 where floats are declared.
            kind = float if float in allowed else type(known)
            fields.append(Field(name, _NUMBERS[kind], (), optional, number=True))
        elif any(_holds(a, cls) for a in allowed):
            raise _refuse(cls, f"{name} is a {hint}: children are fields of the type {cls.__name__} | None, one each")
    found = TreeType(cls, children, tuple(fields))
    bits = len(children) + len(found.optional)
    if bits > _MOST_BITS:
        raise _refuse(cls, f"nodes have {bits} children and fields that may be None; {_MOST_BITS} are supported")
    return found


def _holds(hint: Any, cls: type) -> bool:
    return any(a is cls or _holds(a, cls) for a in typing.get_args(hint))


def _refuse(cls: type, why: str) -> CompileError:
    return TreeError("import", f"trees of {cls.__name__}: {why}")


# -- trees among arguments ---------------------------------------------------------------------------------------


class Placeholder:
    """A node in a traced program: a subclass of the user's class, whose fields call ``_disc_source``.

    ``_disc_source.get(name)`` returns the value of a field.
    """

    _disc_source: Any
    _disc_type: TreeType

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other

    def __repr__(self) -> str:
        return f"<node of a {self._disc_type.cls.__name__} that is traced>"


class Unknown(TreeError):
    """Something of a tree is asked for that is known when the program runs."""


class Row:
    """One row of a table: the source of a node that is known when the program runs. Negative: there is no node."""

    def __init__(self, table: Table, row: Tensor) -> None:
        self.table, self.row = table, row

    @property
    def missing(self) -> Tensor:
        """Whether there is no such node."""
        return self.row < 0

    def get(self, name: str) -> Any:
        """A field, or a child."""
        kind = self.table.kind
        if name in kind.children:
            rows = self.table.children.select(1, kind.children.index(name))
            return placeholder(kind, Row(self.table, self._of(rows)))
        return self._of(self.table.column(self.table.known_field(name).name))

    def _of(self, column: Tensor) -> Tensor:
        # There is no row of that number where there is no node: an IndexError.
        return column.index_select(0, self.row.reshape(1)).reshape(column.shape[1:])


class Table:
    """A whole tree, as tensors: the source of its root, as far as that is known without running the program."""

    def __init__(self, kind: TreeType, tensors: Sequence[Any]) -> None:
        self.kind = kind
        self.tensors = list(tensors)

    def column(self, name: str) -> Any:
        """The tensor of a field."""
        return self.tensors[len(self.tensors) - len(self.kind.fields) + [f.name for f in self.kind.fields].index(name)]

    @property
    def children(self) -> Any:
        """The rows of the children."""
        return self.tensors[0]

    @property
    def present(self) -> Any:
        """Where optional fields are not None, or None where no field is optional."""
        return self.tensors[1] if self.kind.optional else None

    def known_field(self, name: str) -> Field:
        """A field of the root that every tree has; CompileError for other fields."""
        known = next((f for f in self.kind.fields if f.name == name), None)
        if known is None or known.optional:
            raise Unknown(
                "import",
                f"{name} of a tree's root is read outside of a function that calls itself for children: "
                "what a tree is like is known there alone",
            )
        return known

    def get(self, name: str) -> Any:
        """A field of the root."""
        if _by_rows and name in self.kind.children:
            return Row(self, torch.zeros((), dtype=torch.int64)).get(name)
        return self.column(self.known_field(name).name)[0]


_by_rows: list[bool] = []


@contextmanager
def by_rows() -> Iterator[None]:
    """While it is active, children are rows."""
    _by_rows.append(True)
    try:
        yield
    finally:
        _by_rows.pop()


def is_by_rows() -> bool:
    """Whether children are rows."""
    return bool(_by_rows)


def _property(name: str) -> property:
    return property(lambda self: self._disc_source.get(name))


def _classes(kind: TreeType) -> tuple[type, type]:
    """The classes of the root of a whole tree, which is a pytree of its tensors, and of other nodes."""
    members: dict[str, Any] = {name: _property(name) for name in _field_names(kind.cls)}
    members["_disc_type"] = kind
    if issubclass(kind.cls, tuple):
        names = _field_names(kind.cls)
        # Else PyTorch takes it for a tuple of its fields.
        members["_fields"] = None
        members["__iter__"] = lambda self: iter([getattr(self, name) for name in names])
        members["__getitem__"] = lambda self, index: [getattr(self, name) for name in names][index]
    root, node = (type(kind.cls.__name__, (Placeholder, kind.cls), dict(members)) for _ in range(2))

    def keys(value: Any) -> tuple[list[Any], Any]:
        return list(zip(map(pytree.GetAttrKey, kind.names), value._disc_source.tensors, strict=True)), kind

    pytree.register_pytree_node(
        root,
        lambda value: (value._disc_source.tensors, kind),
        lambda tensors, _: placeholder(kind, Table(kind, list(tensors))),
        flatten_with_keys_fn=keys,
    )
    return root, node


_known: dict[TreeType, tuple[type, type]] = {}


def placeholder(kind: TreeType, source: Any) -> Any:
    """The object that stands for a node."""
    if kind not in _known:
        _known[kind] = _classes(kind)
    cls = _known[kind][0 if isinstance(source, Table) else 1]
    names = _field_names(kind.cls)
    made: Any = tuple.__new__(cls, [None] * len(names)) if issubclass(kind.cls, tuple) else object.__new__(cls)
    object.__setattr__(made, "_disc_source", source)
    return made


@dataclass(frozen=True)
class Argument:
    """Trees of one type among a program's arguments, at one place."""

    path: tuple[Any, ...]
    kind: TreeType


def find(args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Argument]:
    """The trees among arguments."""
    leaves, _ = pytree.tree_flatten_with_path((tuple(args), dict(kwargs)), is_leaf=is_tree)
    return [Argument(tuple(path), describe(value)) for path, value in leaves if is_tree(value)]


def replaced(
    args: Sequence[Any], kwargs: Mapping[str, Any], trees: Sequence[Argument], make: Callable[[TreeType, Any], Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments with ``make(kind, tree)`` in the place of each tree."""
    kinds = {argument.path: argument.kind for argument in trees}

    def leaf(path: Any, value: Any) -> Any:
        kind = kinds.get(tuple(path))
        if kind is None:
            return value
        return make(kind, value)

    return pytree.tree_map_with_path(leaf, (tuple(args), dict(kwargs)), is_leaf=is_tree)  # type: ignore[no-any-return]


def tensors(kind: TreeType, tree: Any) -> list[Tensor]:
    """A tree of a known type as tensors."""
    if not isinstance(tree, kind.cls):
        raise ArgumentTypeError(f"expected a tree of {kind.cls.__name__}, got {type(tree).__name__}")
    return kind.flatten(tree)


def table(kind: TreeType, tree: Any) -> Any:
    """A tree as what a program that takes it is called with."""
    return placeholder(kind, Table(kind, tensors(kind, tree)))


def example(kind: TreeType, tree: Any) -> Any:
    """The same for tracing: of more than one row, as programs are specialised for extents of one."""
    columns = tensors(kind, tree)
    if len(columns[0]) == 1:
        columns = [torch.cat([x, x, x]) for x in columns]
    return placeholder(kind, Table(kind, columns))


def dynamic_shapes(
    given: Any, args: Sequence[Any], kwargs: Mapping[str, Any], names: Sequence[str], trees: Sequence[Argument]
) -> Any:
    """The ``dynamic_shapes`` for ``torch.export``, with the number of nodes of each tree."""
    places: dict[Any, int] = {}
    dims: dict[tuple[Any, ...], Any] = {}
    variadic = next((n for n, name in enumerate(names) if name.startswith("*")), None)
    fixed = names[: len(args) if variadic is None else variadic]
    keys = [*fixed, *(f"{names[len(fixed)][1:]}_{n}" for n in range(len(args) - len(fixed))), *kwargs]
    for argument in trees:
        position = argument.path[1]
        key = keys[position.idx] if isinstance(position, pytree.SequenceKey) else position.key
        places[key] = places.get(key, 0) + 1
        number = "" if places[key] == 1 else f"_{places[key]}"
        nodes = torch.export.Dim(f"{key}_nodes{number}", min=1)
        dims[argument.path] = [{0: nodes} for _ in argument.kind.names]
    full = pytree.tree_map_with_path(
        lambda path, value: dims.get(tuple(path)), (tuple(args), dict(kwargs)), is_leaf=is_tree
    )
    specs = dict(zip(keys, [*full[0], *full[1].values()], strict=True))
    if given is None:
        given = {}
    elif not isinstance(given, Mapping):
        given = dict(zip(keys, given, strict=False))
    for key, spec in given.items():
        if key not in specs:
            known = ", ".join(specs)
            raise ArgumentValueError(f"dynamic_shapes: {key!r} is not an argument; the arguments are: {known}")
        if key in places and spec is not None:
            raise ArgumentValueError(
                f"dynamic_shapes: {key} holds a tree, whose number of nodes is always dynamic; give None"
            )
        if key not in places:
            specs[key] = spec
    if variadic is None or len(args) == len(fixed):
        return specs
    rest = tuple(specs.pop(key) for key in keys[len(fixed) : len(args)])
    return {**specs, names[len(fixed)][1:]: rest}
