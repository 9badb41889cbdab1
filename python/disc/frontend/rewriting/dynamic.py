"""Sequences of dynamic length for loops: ranges, rows of tensors, elements that earlier loops appended."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import torch
from torch import Tensor

from ...torch_compat.symbols import free_unbacked_symbols, hint_of
from . import graph
from .conditions import equal_sizes, is_bool, is_float, is_int, known_truth, marked, number_tensor, stands_for_bool
from .parts import Part, has_parts
from .sites import Site
from .state import note_copy


def is_dynamic(value: Any) -> bool:
    """Whether a number is known at run time only."""
    return isinstance(value, torch.SymInt) and value.node.maybe_as_int() is None


_alike: list[None] = []


@contextmanager
def only_if_alike() -> Iterator[None]:
    """For a loop whose steps could be traced one by one, too: inside, a step may not choose a layer by its number."""
    _alike.append(None)
    try:
        yield
    finally:
        _alike.pop()


def check_alike() -> None:
    """Raises an error for an element at a dynamic index where all steps must be the same."""
    if _alike:
        raise NotImplementedError("an element at the number of a step")


class Dynamic:
    """A sequence whose length is known only at run time."""

    def __init__(self, count: Any, at: Callable[[Any], Any], steps: Callable[[], Any] | None = None) -> None:
        """``count`` is the length, ``at`` returns the element at an index, ``steps`` all elements as one part."""
        self.count, self.at, self.steps = count, at, steps

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return View(elements(self))[index]
        return self.at(index if known_truth(index >= 0) else self.count + index)

    def __reversed__(self) -> Dynamic:
        steps = self.steps
        turned = None if steps is None else lambda: steps().turned()
        return Dynamic(self.count, lambda n: self.at(self.count - 1 - n), turned)

    def __iter__(self) -> Any:
        raise NotImplementedError("a sequence of dynamic length can be iterated over by a for statement alone")


class Once:
    """What can be iterated over once."""

    def take(self) -> Dynamic | None:
        """The elements that nothing has taken yet; None if Python can iterate over them."""
        raise NotImplementedError


def at_least(number: Any, least: int) -> Any:
    """The larger one of a dynamic number and ``least``, also for sizes of 0 and 1, which torch takes for impossible."""
    larger = torch.scalar_tensor(number, dtype=torch.int64).clamp(min=least).item()
    torch._check(larger >= least)
    return larger


FEWEST_STEPS = 3
"""With so many steps a loop is worth tracing as one."""


def constant_number(number: Any) -> int | None:
    """The number that a dynamic one is for all sizes; None if it differs."""
    if not is_dynamic(number):
        return int(number)
    env, expr = number.node.shape_env, number.node.expr
    if free_unbacked_symbols(expr):
        return None
    example = int(hint_of(env, expr))
    return example if known_truth(number == example) is True else None


def dynamic_range(*args: Any) -> Dynamic | list[Any]:
    """``range`` of numbers of which some are dynamic: a list if it has fewer than ``FEWEST_STEPS`` for all sizes."""
    start, stop, step = (0, args[0], 1) if len(args) == 1 else (*args, 1)[:3]
    if is_dynamic(step) and known_truth(step > 0) is not True:
        raise NotImplementedError("a range whose step is dynamic, and may be negative or 0")
    if not is_dynamic(step) and step == 0:
        raise ValueError("range() arg 3 must not be zero")
    forward = is_dynamic(step) or step > 0
    room = stop - start if forward else start - stop
    if known_truth(room >= 0) is not True:
        room = at_least(room, 0)
    width = step if forward else -step
    count = (room + width - 1) // width
    if (steps := constant_number(count)) is not None and steps < FEWEST_STEPS:
        return [start + n * step for n in range(steps)]
    return Dynamic(count, lambda n: start + n * step, lambda: Steps(torch.arange(count) * step + start, kind=int))


def sequence_of(value: Any) -> Dynamic | None:
    """The sequence for a value that is iterated over; None if Python can iterate over it."""
    if isinstance(value, Once):
        return value.take()
    if isinstance(value, Dynamic):
        return value
    if isinstance(value, Tensor) and value.dim() > 0 and is_dynamic(value.shape[0]):
        return Dynamic(value.shape[0], lambda n: value.select(0, n), lambda: Steps(value))
    if has_parts(value) and (_uneven(value) is not None or not any(isinstance(x, Maybe) for x in value)):
        return _all_of(value).sequence()  # type: ignore[no-any-return]
    return None


def joint(values: Sequence[Any]) -> tuple[Any, list[Dynamic]] | None:
    """The number of steps of ``zip``, and its sequences, of which some are dynamic."""
    found = [sequence_of(value) for value in values]
    if all(x is None for x in found):
        return None
    known = [x if x is not None else _listed(value) for x, value in zip(found, values, strict=True)]
    count = known[0].count
    for x in known[1:]:
        if known_truth(x.count == count) is not True:
            count = torch.sym_min(count, x.count)
    return count, known


def _listed(value: Any) -> Dynamic:
    if isinstance(value, (range, Tensor)):
        return Dynamic(len(value), lambda n: value.start + n * value.step if isinstance(value, range) else value[n])
    raise NotImplementedError("a list beside a sequence of dynamic length in zip()")


# -- lists whose length is known at run time only -----------------------------------------------------------------


class Steps(Part):
    """Tensors, or numbers, of one shape: rows of a tensor, all of them or those that are ``present``."""

    def __init__(self, rows: Tensor, present: Tensor | None = None, kind: type = Tensor) -> None:
        """``rows``: [n, ...], ``present``: bool [n]; the elements are of ``kind``: tensors, ints, floats or bools."""
        self.all, self.present, self.kind = rows, present, kind

    @property
    def count(self) -> Any:
        """The number of elements that it stands for."""
        if self.present is None:
            return self.all.shape[0]
        count = self.present.sum().item()
        torch._check(count >= 0)
        torch._check(count <= self.all.shape[0])
        return count

    @property
    def rows(self) -> Tensor:
        """All elements along a new first dim."""
        # Not cached: a value that one side of a branch computes does not exist in the other.
        if self.present is None:
            return self.all
        return note_copy(self.all.index_select(0, self.present.nonzero().squeeze(1)))

    def sequence(self) -> Dynamic:
        """To iterate over."""
        rows = self.rows
        return Dynamic(rows.shape[0], lambda n: self.element(rows, n), lambda: self)

    def turned(self) -> Steps:
        """The same, the last first."""
        return Steps(self.all.flip(0), None if self.present is None else self.present.flip(0), self.kind)

    def part(self, index: slice) -> Steps:
        """A slice of the elements."""
        return Steps(self.rows[index], kind=self.kind)

    def pick(self, index: Any) -> Any:
        """One of the elements; a negative index counts from the last."""
        rows = self.rows
        return self.element(rows, from_start(index, rows.shape[0]))

    def element(self, rows: Tensor, number: Any) -> Any:
        """One of the rows."""
        row = rows.select(0, number)
        return row if self.kind is Tensor else marked(row) if self.kind is bool else row.item()


class Maybe(Part):
    """An element that is there where a condition holds."""

    def __init__(self, element: Any, pred: Tensor) -> None:
        """``pred``: 0-d, bool."""
        self.element, self.pred = element, pred

    @property
    def count(self) -> Any:
        """0 or 1."""
        count = self.pred.to(torch.int64).item()
        torch._check(count >= 0)
        torch._check(count <= 1)
        return count


class Front(Part):
    """In a list whose front the steps of a loop insert into: the inserted elements follow it, the earliest first."""

    @property
    def count(self) -> Any:
        """Always 0: it is not an element."""
        return 0


def as_python_has_it(values: Sequence[Any]) -> Sequence[Any]:
    """A list, what steps of a loop inserted at its front in its place."""
    at = next((n for n, x in enumerate(values) if isinstance(x, Front)), None)
    if at is None:
        return values
    return [*(x.turned() if isinstance(x, Steps) else x for x in values[:at:-1]), *values[:at]]


_loops: list[Callable[[list[Any]], bool]] = []


@contextmanager
def in_step(has: Callable[[list[Any]], bool]) -> Iterator[None]:
    """While a step of a loop is traced; ``has`` is true of the lists that were there before the loop."""
    _loops.append(has)
    try:
        yield
    finally:
        _loops.pop()


def is_of_loop(values: list[Any]) -> bool:
    """Whether a loop that is being traced may change a list from step to step."""
    return any(has(values) for has in _loops)


def is_filled_in_front(values: Sequence[Any]) -> bool:
    """Whether steps of a loop insert elements at a list's front."""
    return any(isinstance(x, Front) for x in values)


def kind_of(value: Any) -> type:
    """The type of the elements that an entry of a list stands for."""
    if isinstance(value, Steps):
        return value.kind
    if isinstance(value, Tensor):
        return bool if stands_for_bool(value) else Tensor
    for kind, test in ((bool, is_bool), (int, is_int), (float, is_float)):
        if test(value):
            return kind
    return type(value)


_DTYPES = {bool: torch.bool, int: torch.int64, float: torch.float64}


def row_of(value: Any) -> Tensor:
    """A tensor, or a number as one."""
    return value if isinstance(value, Tensor) else number_tensor(value, _DTYPES[kind_of(value)])


def row_type(value: Any) -> tuple[Sequence[Any], torch.dtype]:
    """The shape and the dtype of the rows that an element of a list can be."""
    if isinstance(value, Steps):
        return value.all.shape[1:], value.all.dtype
    if isinstance(value, Tensor):
        return value.shape, value.dtype
    return (), _DTYPES[kind_of(value)]


def is_row(value: Any) -> bool:
    """Whether an element of a list can be a row, or rows, of a tensor."""
    return isinstance(value, (Steps, Tensor)) or kind_of(value) in _DTYPES


def can_join(values: Sequence[Any]) -> bool:
    """Whether all elements that some entries of lists stand for can be rows of one tensor."""
    if not all(map(is_row, values)) or len({kind_of(x) for x in values}) != 1:
        return False
    (first, dtype), *others = map(row_type, values)
    return all(len(a) == len(first) and all(map(equal_sizes, a, first)) and b == dtype for a, b in others)


def whole_of(values: Sequence[Any]) -> Steps:
    """All elements of a list as one part."""
    values = as_python_has_it(values)
    kinds = {kind_of(x) for x in values}
    if len(kinds) != 1 or not all(is_row(x) for x in values):
        for x in values:
            if isinstance(x, Part) and not isinstance(x, Steps):
                x._fail()
        raise NotImplementedError("a list whose length depends on data, and its elements are not of one kind")
    parts = [x.rows if isinstance(x, Steps) else row_of(x).unsqueeze(0) for x in values]
    return Steps(parts[0] if len(parts) == 1 else note_copy(torch.cat(parts)), kind=kinds.pop())


def _uneven(values: Sequence[Any]) -> Any:
    """The first entry of a list that stands for tensors that differ in a size; None if there is none."""
    return next((x for x in values if isinstance(x, Part) and x.differs), None)


def _all_of(values: Sequence[Any]) -> Any:
    """All elements of a list as one part, also if they differ in a size."""
    uneven = _uneven(values)
    return whole_of(values) if uneven is None else uneven.whole(values)


class View:
    """A list with parts, as code reads it."""

    def __init__(self, values: Sequence[Any]) -> None:
        """``values``: the list."""
        self._values = as_python_has_it(values)

    def __getitem__(self, index: Any) -> Any:
        values = self._values
        if isinstance(index, slice):
            return (tuple if isinstance(values, tuple) else list)(self._slice(index))
        if isinstance(index, Tensor):
            index = index.item()
        if isinstance(index, int):
            near = values[index:] if index < 0 else values[: index + 1]
            if len(near) == (-index if index < 0 else index + 1) and not has_parts(near):
                return values[index]
        known = all(isinstance(x, (Steps, Maybe)) or not isinstance(x, Part) for x in values)
        if not isinstance(index, int) or known or _uneven(values) is not None:
            return _all_of(values).pick(index)
        # Of a list that steps append to: what the steps before have appended.
        return _alone(values[index])

    def _slice(self, index: slice) -> Sequence[Any]:
        values = self._values
        start, stop, step = index.start, index.stop, index.step
        if step is None and start is None and stop is None:
            return values
        if step in (None, 1) and not has_parts(values[:stop]) and isinstance(stop, int) and 0 <= stop <= len(values):
            return values[index]
        if step == -1 and start is None and stop is None:
            return [x.turned() if hasattr(x, "turned") else _alone(x) for x in values[::-1]]
        if step is not None and (not isinstance(step, int) or step < 1):
            raise NotImplementedError("a slice backwards of a list of a length that depends on data, but all of it")
        if step in (None, 1) and stop is None and isinstance(start, int) and start >= 0:
            head = values[:start]
            if len(head) == start and not has_parts(head):
                return values[start:]
        return [_all_of(values).part(slice(start, stop, step))]


def _alone(value: Any) -> Any:
    if isinstance(value, Part) and not isinstance(value, Maybe):
        value._fail()
    return value


def from_start(index: Any, count: Any) -> Any:
    """An index into ``count`` elements, which may be one from their end, from their start."""
    if isinstance(index, int):
        return index if index >= 0 else count + index
    if known_truth(index >= 0) is True:
        return index
    at = number_tensor(index, torch.int64)
    number = torch.where(at < 0, at + count, at).item()
    torch._check(number >= 0)
    return number


def plain(value: Any) -> Any:
    """The object whose elements code sets."""
    if type(value) is list and has_parts(value):
        raise NotImplementedError("an element is set of a list whose length depends on data: keep a tensor instead")
    return value


def pop(values: list[Any], index: Any = -1) -> Any:
    """``values.pop(index)``."""
    if index not in (0, -1) or is_filled_in_front(values):
        raise NotImplementedError("pop() of a list whose length depends on data takes its first or last element only")
    if not isinstance(values[index], Part):
        return values.pop(index)
    element = View(values)[index]
    whole = whole_of(values)
    values[:] = [Steps(whole.rows[1:] if index == 0 else whole.rows[:-1], kind=whole.kind)]
    return element


def extend(values: list[Any], more: Any) -> None:
    """``values.extend(more)``."""
    steps = sequence_of(more)
    if is_filled_in_front(values):
        raise NotImplementedError("a step of a loop appends to a list that it inserts into")
    if isinstance(more, Tensor) and steps is not None:
        values.append(Steps(more))
    else:
        list.extend(values, elements(more))


def insert(values: list[Any], index: Any, value: Any) -> None:
    """``values.insert(index, value)``."""
    if is_of_loop(values) and not is_dynamic(index) and index == 0:
        if not is_filled_in_front(values):
            list.append(values, Front())
        list.append(values, value)
    elif not has_parts(values) or (not is_dynamic(index) and index == 0 and not is_filled_in_front(values)):
        list.insert(values, index, value)
    else:
        raise NotImplementedError("insert() into a list whose length depends on data puts an element first only")


def append(values: list[Any], value: Any) -> None:
    """``values.append(value)``."""
    if is_filled_in_front(values):
        raise NotImplementedError("a step of a loop appends to a list that it inserts into")
    list.append(values, value)


def reverse(values: list[Any]) -> None:
    """``values.reverse()``."""
    if is_filled_in_front(values):
        raise NotImplementedError("a step of a loop reverses a list that it inserts into")
    values[:] = View(values)[::-1]


def elements(value: Any) -> Any:
    """What ``[*value]`` has, and what ``x += value`` adds to a list: a part stands for what Python would count."""
    if not isinstance(value, Dynamic):
        return value
    if value.steps is None:
        raise NotImplementedError("the elements of a sequence of dynamic length in a list: append them in a loop")
    return (value.steps(),)


def starred(value: Any) -> Any:
    """``*value`` in a list or a tuple."""
    steps = sequence_of(value) if isinstance(value, Tensor) else None
    return elements(value if steps is None else steps)


def times(a: Any, b: Any) -> Any:
    """``a * b``, of which one is a list or a tuple."""
    values, count = (a, b) if isinstance(a, (list, tuple)) else (b, a)
    if not is_dynamic(count) or not values:
        return a * b
    if not can_join(values):
        raise NotImplementedError("a list of different kinds or shapes, repeated as often as is known at run time only")
    rows = whole_of(values).rows
    count = count if known_truth(count >= 0) is True else at_least(count, 0)
    every = rows.unsqueeze(0).expand(count, *rows.shape).flatten(0, 1)
    kind = kind_of(values[0])
    return type(values)([Steps(note_copy(every) if kind is Tensor else every, kind=kind)])


def unpacked(value: Any, before: int, after: int | None, site: Site) -> Any:
    """What is assigned to ``before`` variables, a starred one unless ``after`` is None, and ``after`` more of them."""
    steps = sequence_of(value)
    if steps is None:
        return value
    enough = steps.count == before if after is None else steps.count >= before + after
    if known_truth(enough) is not True:
        text = f"ValueError: the number of values to unpack is not that of the variables ({site.source})"
        graph.require(number_tensor(enough, torch.bool), text)
    front = [steps.at(n) for n in range(before)]
    if after is None:
        return front
    back = [steps.at(steps.count - n) for n in range(after, 0, -1)]
    return [*front, *View(elements(steps))[before : -after or None], *back]


def refused(name: str) -> Callable[..., Any]:
    """The error for a method that is of no use for such a list."""

    def fail(*_: Any, **__: Any) -> NoReturn:
        raise NotImplementedError(f"{name}() of a list whose length depends on data")

    return fail


METHODS: dict[str, Callable[..., Any]] = {
    "pop": pop,
    "extend": extend,
    "reverse": reverse,
    "insert": insert,
    "append": append,
}


def tensor_of(values: Any, **options: Any) -> Tensor:
    """``torch.tensor(values)``."""
    uneven = _uneven(values)
    whole = whole_of(values) if uneven is None else uneven.whole(values).table()
    if whole.kind is Tensor and whole.all.dim() != 1:
        raise NotImplementedError("torch.tensor() of a list of tensors with dims; stack them")
    dtype = options.pop("dtype", None)
    if dtype is None:
        dtype = torch.get_default_dtype() if whole.kind is float else whole.all.dtype
    if options.pop("requires_grad", False):
        raise NotImplementedError("torch.tensor() of a list that wants a gradient")
    return whole.rows.to(dtype=dtype, **options)


def _stacked(tensors: Sequence[Any], dim: int = 0) -> Tensor:
    if hasattr(uneven := _uneven(tensors), "stacked"):
        uneven.stacked()
    if any(kind_of(x) is not Tensor for x in tensors if not isinstance(x, Maybe)):
        raise TypeError("expected Tensors as elements of the list that is stacked")
    rows = whole_of(tensors).rows
    some = rows.shape[0] >= 1
    if known_truth(some) is not True:
        graph.require(number_tensor(some, torch.bool), "RuntimeError: stack expects a non-empty list of tensors")
    # A copy, as Python's is: the list still has the tensors that were appended.
    return rows.clone().movedim(0, dim)


def _joined(tensors: Sequence[Any], dim: int = 0, **named: Any) -> Tensor:
    dim = named.get("axis", dim)
    if all(isinstance(t, Part) for t in tensors):
        some = sum(t.count if t.differs else whole_of([t]).rows.shape[0] for t in tensors) >= 1  # type: ignore[attr-defined]
        # Pieces of what data finds may be one without elements, which is not counted.
        of_shapes = isinstance(some, torch.SymBool) and not free_unbacked_symbols(some.node.expr)
        if of_shapes and known_truth(some) is not True:
            graph.require(
                number_tensor(some, torch.bool), "ValueError: torch.cat(): expected a non-empty list of Tensors"
            )

    def part(t: Any) -> Tensor:
        if not isinstance(t, Part):
            return t  # type: ignore[no-any-return]
        if t.differs:
            return t.joined(dim)  # type: ignore[no-any-return, attr-defined]
        rows = whole_of([t]).rows
        if rows.dim() == 1:
            raise RuntimeError("zero-dimensional tensors cannot be concatenated")
        at = dim % (rows.dim() - 1)
        return rows.movedim(0, at).flatten(at, at + 1)

    return torch.cat([part(t) for t in tensors], dim)


JOINS: dict[Any, Callable[..., Tensor]] = {
    torch.stack: _stacked,
    **dict.fromkeys((torch.cat, torch.concat, torch.concatenate), _joined),
}
Part.joins.update(JOINS)
