"""Loops of Python over a dynamic range, kept whole through ``torch.export``.

``for t in range(x.shape[1])`` is unrolled by ``torch.export``, which fixes the length. While :func:`kept_loops` is
active, such a loop is traced once, between markers: ``disc::loop_begin`` and ``loop_end``. The tensors that are local
variables, or lie in lists, tuples and dicts that are, go through ``disc::loop_carried`` before the body runs; what they
are afterwards is what the next step starts with, and what is appended to a list is stacked. The lowering makes a
``disc_tensor.loop`` of it (``lower_regions.py``).

A step that leaves a tensor anywhere else, where the next one could find it, is refused: no step but the one is run.
"""

from __future__ import annotations

import builtins
import ctypes
import dis
import sys
import types
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.overrides import TorchFunctionMode

from .. import errors
from . import markers
from .locations import is_user_file

_range = builtins.range
# What holds no tensors that a step could change.
_PASSIVE = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, str, bytes, int, float, torch.SymInt,
            torch.SymFloat, torch.SymBool, torch.dtype, torch.device)  # fmt: skip


# -- what stands for range, and for a list that a loop filled -----------------------------------------------


class _Ranges(type):
    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, _range)

    def __subclasscheck__(cls, other: type) -> bool:
        return issubclass(other, _range)


class _Range(metaclass=_Ranges):
    """In the place of ``range``."""

    def __new__(cls, *args: Any) -> Any:
        dynamic = any(isinstance(a, torch.SymInt) and a.node.maybe_as_int() is None for a in args)
        if not dynamic or (len(args) == 3 and not isinstance(args[2], int)):
            return _range(*args)
        return _Dynamic(*args) if is_user_file(sys._getframe(1).f_code.co_filename) else _range(*args)


class _Dynamic:
    """A range with a dynamic extent."""

    def __init__(self, *args: Any) -> None:
        start, stop, step = (0, args[0], 1) if len(args) == 1 else (*args, 1)[:3]
        self.first, self.step = start, step
        if step == 0:
            raise ValueError("range() arg 3 must not be zero")
        room = stop - start if step > 0 else start - stop
        room = room if statically_known_true(room >= 0) else torch.sym_max(room, 0)
        self.count = (room + abs(step) - 1) // abs(step)
        self._args = args

    def at(self, number: Any) -> Any:
        return self.first + number * self.step

    def _fixed(self) -> range:
        return _range(*(int(a) for a in self._args))

    def __len__(self) -> int:
        return len(self._fixed())

    def __getitem__(self, index: Any) -> Any:
        return self._fixed()[index]

    def __reversed__(self) -> Any:
        turned = _Dynamic(*self._args)
        turned.first, turned.step = self.at(self.count - 1), -self.step
        turned._fixed = lambda: self._fixed()[::-1]  # type: ignore[method-assign]
        return turned

    def __iter__(self) -> Any:
        frame = sys._getframe(1)
        body = _body_of(frame)
        return iter(self._fixed()) if body is None else _Loop(self, frame, body)


class _Steps:
    """What the steps of a loop appended to a list, as one element of it."""

    def __init__(self, stacks: Sequence[Tensor]) -> None:
        """``stacks``: of each tensor that a step appends, those of all steps."""
        self._stacks = stacks

    @property
    def rows(self) -> Tensor:
        """All of them along a new first dim."""
        return self._stacks[0] if len(self._stacks) == 1 else torch.stack(list(self._stacks), 1).flatten(0, 1)

    @classmethod
    def __torch_function__(cls, func: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        join = {torch.stack: _stacked, torch.cat: _joined, torch.concat: _joined, torch.concatenate: _joined}.get(func)
        if join is None:
            raise NotImplementedError(
                "what a loop over a dynamic range appends to a list can be stacked or concatenated"
            )
        return join(*args, **(kwargs or {}))


def _stacked(tensors: Sequence[Any], dim: int = 0) -> Tensor:
    parts = [t.rows if isinstance(t, _Steps) else t.unsqueeze(0) for t in tensors]
    whole = parts[0] if len(parts) == 1 else torch.cat(parts)
    return whole.movedim(0, dim)


def _joined(tensors: Sequence[Any], dim: int = 0, **named: Any) -> Tensor:
    dim = named.get("axis", dim)

    def part(t: Any) -> Tensor:
        if not isinstance(t, _Steps):
            return t  # type: ignore[no-any-return]
        at = dim % (t.rows.dim() - 1)
        return t.rows.movedim(0, at).flatten(at, at + 1)

    return torch.cat([part(t) for t in tensors], dim)


# -- the loop ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Body:
    """The local variables that a loop's body names."""

    loaded: frozenset[str]
    stored: frozenset[str]
    first_stored: frozenset[str]
    """Those that are stored before anything loads them, as far as the order of the lines tells."""
    globals: frozenset[str]
    used_outside: frozenset[str]
    line: int


def _body_of(frame: types.FrameType) -> _Body | None:
    """The body of the ``for`` statement that ``frame`` enters just now; None if it is no such statement."""
    code = frame.f_code
    if not code.co_flags & 1:
        return None
    instructions = [i for i in dis.get_instructions(code) if i.opname not in ("EXTENDED_ARG", "CACHE")]
    here = next((n for n, i in enumerate(instructions) if i.offset == frame.f_lasti), None)
    if here is None or instructions[here].opname != "GET_ITER" or instructions[here + 1].opname != "FOR_ITER":
        return None
    loop = instructions[here + 1]

    def names(inside: bool, *kinds: str) -> frozenset[str]:
        found: set[str] = set()
        for i in instructions:
            if (loop.offset < i.offset < loop.argval) is inside and i.opname.startswith(kinds):
                found.update(i.argval if isinstance(i.argval, tuple) else [str(i.argval)])
        return frozenset(found)

    local = ("_FAST", "_DEREF", "_CLOSURE", "_CLASSDEREF")
    loads, stores = tuple("LOAD" + k for k in local), tuple("STORE" + k for k in local)
    mixed = ("STORE_FAST_LOAD_FAST",)
    order: dict[str, bool] = {}
    for i in instructions:
        if loop.offset < i.offset < loop.argval and i.opname.startswith((*loads, *stores)):
            for name in i.argval if isinstance(i.argval, tuple) else [str(i.argval)]:
                order.setdefault(name, i.opname.startswith(stores))
    return _Body(
        names(True, *loads, *mixed),
        names(True, *stores),
        frozenset(name for name, stored in order.items() if stored),
        names(True, "LOAD_GLOBAL", "LOAD_NAME"),
        names(False, *loads, *mixed),
        frame.f_lineno,
    )


@dataclass
class _Cell:
    """A place that holds a tensor, or a tuple of them: a local variable, or one in a list or a dict."""

    holder: Any
    key: Any
    name: str
    before: Any
    inside: Any
    """What it holds while the step runs."""


class _Loop:
    """The iterator of one loop: of its two calls the first begins the step that is traced, the second ends it."""

    def __init__(self, over: _Dynamic, frame: types.FrameType, body: _Body) -> None:
        self._over, self._frame, self._body = over, frame, body
        self._cells: list[_Cell] = []
        self._lists: dict[int, tuple[str, Any, int]] = {}
        self._carried: list[tuple[Tensor, Tensor, int]] = []
        """Tensors before the loop, each with what stands for it in the step, and the version of that."""
        self._begun = False

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        if self._begun:
            self._finish()
            raise StopIteration
        self._begun = True
        return self._begin()

    def _refuse(self, why: str) -> errors.CompileError:
        source = f"{self._frame.f_code.co_filename}:{self._body.line}"
        return errors.CompileError("import", f"a loop over a dynamic range is traced once, but {why}", source)

    def _begin(self) -> Any:
        self._index = markers.loop_begin(self._over.count, None)
        number: Any = self._index.item()
        torch._check(number >= 0)
        torch._check(number < self._over.count)
        self._value = self._over.at(number)
        known = self._frame.f_locals
        for name in self._body.first_stored & known.keys():
            # What an earlier loop left there is of no use; should it be after all, that fails.
            known[name] = _Unset()
        for name in sorted((self._body.loaded | self._body.stored) & known.keys()):
            self._open(known, name, name)
        cells = {cell.key for cell in self._cells if cell.holder is known}
        self._plain = {name: known[name] for name in self._body.stored & known.keys() - cells - self._body.first_stored}
        _store(self._frame)
        self._elsewhere = self._others()
        return self._value

    def _open(self, holder: Any, key: Any, name: str) -> None:
        value = holder[key]
        if isinstance(value, (list, dict)):
            if id(value) not in self._lists:
                self._lists[id(value)] = name, value, len(value)
                for k in _range(len(value)) if isinstance(value, list) else list(value):
                    self._open(value, k, f"{name}[{k!r}]")
            return
        for leaf in _leaves(value):
            if isinstance(leaf, (list, dict)):
                self._open([leaf], 0, name)
        if any(isinstance(leaf, Tensor) for leaf in _leaves(value)):
            inside = pytree.tree_map(self._carry, value, is_leaf=_is_leaf)
            self._cells.append(_Cell(holder, key, name, value, inside))
            holder[key] = inside

    def _carry(self, tensor: Any) -> Any:
        if not isinstance(tensor, Tensor):
            return tensor
        inside = markers.loop_carried(self._index, tensor, tensor.shape, len(self._carried))
        self._carried.append((tensor, inside, inside._version))
        return inside

    def _finish(self) -> None:
        known = self._frame.f_locals
        if not _same(self._elsewhere, self._others()):
            raise self._refuse("a step changes or keeps a tensor that is no local variable of the function")
        for name, value in self._plain.items():
            if not _unchanged(value, known[name]):
                raise self._refuse(
                    f"{name} is {_described(value)} before a step and {_described(known[name])} after it"
                )
        for name, value, size in self._lists.values():
            if len(value) < size or (isinstance(value, dict) and len(value) > size):
                raise self._refuse(f"a step changes what {name} holds")
        nexts: dict[int, Tensor] = {}
        for cell in self._cells:
            self._compare(cell, cell.holder[cell.key], nexts)
        rows: list[Tensor] = []
        grown = [
            (value, [self._row(name, x, rows) for x in value[size:]])
            for name, value, size in self._lists.values()
            if isinstance(value, list)
        ]
        # Variables that the body makes and that are read behind it have the value of the last step.
        handled = {cell.key for cell in self._cells if cell.holder is known}
        made = [
            name
            for name in sorted((self._body.stored & self._body.used_outside & known.keys()) - handled)
            if isinstance(known[name], Tensor)
        ]
        made_rows = [self._row(name, known[name], rows) for name in made]
        inside = {id(tensor): (first, tensor) for first, tensor, _ in self._carried}
        slots = [list(inside).index(key) for key in nexts]
        carried = [inside[key][1] for key in nexts]
        end = markers.loop_end(self._index, slots, carried, list(nexts.values()), rows, None, [])
        after: dict[int, Tensor] = {key: first for key, (first, _) in inside.items()}
        for number, (key, new) in enumerate(nexts.items()):
            last = markers.loop_last(end, new, new.shape, number)
            # Changed in place: so is what came into the loop, and its views.
            after[key] = after[key].copy_(last) if new is inside[key][1] else last
        count = self._over.count
        stacks = [markers.loop_stack(end, row, count, number) for number, row in enumerate(rows)]
        for cell in self._cells:
            cell.holder[cell.key] = pytree.tree_map(lambda x: after.get(id(x), x), cell.inside, is_leaf=_is_leaf)
        for value, numbers in grown:
            if numbers:
                value[-len(numbers) :] = [_Steps([stacks[n] for n in numbers])]
        for name, number in zip(made, made_rows, strict=True):
            known[name] = stacks[number][-1]
        for name in [name for name, value in known.items() if value is self._value]:
            known[name] = self._over.at(count - 1)
        _store(self._frame)

    def _compare(self, cell: _Cell, now: Any, nexts: dict[int, Tensor]) -> None:
        """Notes in ``nexts`` what stands for the tensors of ``cell`` in the next step."""
        olds, news = _leaves(cell.inside), _leaves(now)
        if len(olds) != len(news) or (type(now) is not type(cell.inside) and not isinstance(now, Tensor)):
            raise self._refuse(f"{cell.name} is another kind of object after a step")
        for old, new in zip(olds, news, strict=True):
            if not isinstance(old, Tensor):
                if not _unchanged(old, new):
                    raise self._refuse(f"a step changes a part of {cell.name} that is no tensor")
                continue
            first, _, version = next(entry for entry in self._carried if entry[1] is old)
            if new is old and old._version == version:
                continue
            if not isinstance(new, Tensor) or not _alike(old, new):
                raise self._refuse(f"{cell.name} is {_described(old)} before a step and {_described(new)} after it")
            if old._version != version:
                self._check_alone(cell, old, first, new is old)
            nexts[id(old)] = new

    def _check_alone(self, cell: _Cell, inside: Tensor, first: Tensor, stays: bool) -> None:
        """What is changed in place is seen by its name alone."""
        others: list[Any] = [tensor for tensor, own, _ in self._carried if own is not inside]
        others += [value for value, _ in self._elsewhere.values()]
        shared = any(isinstance(x, Tensor) and _storage(x) == _storage(first) for x in others)
        if shared or not stays:
            raise self._refuse(f"a step changes {cell.name} in place, which has other names")

    def _row(self, name: str, value: Any, rows: list[Tensor]) -> int:
        if not isinstance(value, Tensor):
            raise self._refuse(f"a step appends to {name} what is no tensor")
        rows.append(value)
        return len(rows) - 1

    def _others(self) -> dict[tuple[int, Any], tuple[Any, int]]:
        """What the body can reach through objects: tensors, with their versions, and numbers."""
        known = self._frame.f_locals
        pending = [known[name] for name in (self._body.loaded | self._body.stored) & known.keys()]
        pending += [self._frame.f_globals.get(name) for name in self._body.globals]
        # Tensors in variables, and in lists and dicts that are such, are cells.
        cells = {id(known), *(id(value) for _, value, _ in self._lists.values())}
        found: dict[tuple[int, Any], tuple[Any, int]] = {}
        seen: set[int] = set()
        while pending:
            value = pending.pop()
            if isinstance(value, (*_PASSIVE, Tensor)) or id(value) in seen:
                continue
            if isinstance(value, tuple):
                pending += _leaves(value)
                continue
            seen.add(id(value))
            inner: Any = value if isinstance(value, (list, dict)) else getattr(value, "__dict__", {})
            if isinstance(value, types.MethodType):
                inner = {"": value.__self__}
            for key, item in list(inner.items() if isinstance(inner, dict) else enumerate(inner)):
                pending.append(item)
                if id(value) not in cells:
                    for number, leaf in enumerate(_leaves(item)):
                        if isinstance(leaf, Tensor):
                            found[id(value), (key, number)] = leaf, leaf._version
                        elif isinstance(leaf, (bool, int, float, str)):
                            found[id(value), (key, number)] = leaf, 0
        return found


def _same(before: dict[Any, tuple[Any, int]], after: dict[Any, tuple[Any, int]]) -> bool:
    return before.keys() == after.keys() and all(
        _unchanged(value, after[key][0]) and version == after[key][1] for key, (value, version) in before.items()
    )


class _Unset:
    """The value of a variable that a step is going to set."""


def _unchanged(old: Any, new: Any) -> bool:
    return old is new or (isinstance(old, (bool, int, float, str)) and type(old) is type(new) and old == new)


def _is_leaf(value: Any) -> bool:
    return not isinstance(value, tuple)


def _leaves(value: Any) -> list[Any]:
    return pytree.tree_leaves(value, is_leaf=_is_leaf)


def _alike(a: Tensor, b: Tensor) -> bool:
    return a.dtype == b.dtype and a.dim() == b.dim() and all(map(_equal, a.shape, b.shape))


def _equal(a: Any, b: Any) -> bool:
    return statically_known_true(a == b)


def _described(value: Any) -> str:
    return f"{value.dtype} {list(value.shape)}" if isinstance(value, Tensor) else type(value).__name__


def _storage(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata


def _store(frame: types.FrameType) -> None:
    """Makes the variables of a running function what its ``f_locals`` say."""
    if sys.version_info < (3, 13):
        ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), ctypes.c_int(0))


class _Assignments(TorchFunctionMode):
    """``x[:, t] = y`` with a dynamic t, which torch.export does for reading alone."""

    def __torch_function__(self, func: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is Tensor.__setitem__:
            x, index, y = args
            items = list(index) if isinstance(index, tuple) else [index]
            if any(isinstance(item, torch.SymInt) for item in items):
                view = _view(x, items)
                return view.copy_(y) if isinstance(y, Tensor) else view.fill_(y)
        return func(*args, **(kwargs or {}))


def _view(x: Tensor, items: list[Any]) -> Tensor:
    if any(item is Ellipsis for item in items):
        at = next(i for i, item in enumerate(items) if item is Ellipsis)
        missing = x.dim() - sum(item is not None and item is not Ellipsis for item in items)
        items[at : at + 1] = [slice(None)] * missing
    dim = 0
    for item in items:
        if isinstance(item, (int, torch.SymInt)):
            x = x.select(dim, item)
            continue
        if item is None:
            x = x.unsqueeze(dim)
        elif isinstance(item, slice):
            x = torch.ops.aten.slice(x, dim, item.start, item.stop, 1 if item.step is None else item.step)
        else:
            raise IndexError("a dynamic number and a tensor as indices of one assignment")
        dim += 1
    return x


@contextmanager
def kept_loops() -> Iterator[None]:
    """While it is active, loops over dynamic ranges are traced as this module says."""
    builtins.range = _Range  # type: ignore[misc, assignment]
    try:
        with _Assignments():
            yield
    finally:
        builtins.range = _range  # type: ignore[misc]
