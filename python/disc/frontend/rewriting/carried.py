"""Values that a loop carries from one step to the next: tensors, numbers, structures of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ...jagged import CARRIED, is_jagged
from .. import markers
from . import graph, tuples
from .conditions import (
    equal_sizes,
    is_bool,
    is_float,
    is_int,
    known_truth,
    marked,
    number_tensor,
    same_number,
    stands_for_bool,
)
from .dynamic import Steps, can_join, kind_of, row_type, whole_of
from .optional import OptionalValue
from .parts import has_parts
from .ragged import Shapes
from .sites import Site
from .state import Undefined, described, is_scalar, part_name, parts, rebuilt
from .uneven import Along

_allowed: list[bool] = []


@contextmanager
def optional_variables() -> Iterator[None]:
    """Inside, a variable may be None before some steps of a loop."""
    _allowed.append(True)
    try:
        yield
    finally:
        _allowed.pop()


class Mismatch(Exception):
    """A variable is another kind of thing after a step."""


@dataclass
class Markers:
    """The markers of one loop, while it is traced."""

    begin: Any = None
    index: Any = None
    slots: int = 0
    numbers: list[Any] = field(default_factory=list)
    """The values of the loop's numbers in the next step."""
    carried: list[Tensor] = field(default_factory=list)
    next: list[Tensor] = field(default_factory=list)
    end: Any = None
    trips: Any = None
    now: Callable[[Tensor], Tensor] = field(default=lambda x: x)
    """Returns the tensor to use in a step: a copy if the step changes it in place."""
    opened: list[Tensor] = field(default_factory=list)


class Carried:
    """A carried value. The methods are called in this order."""

    def prepare(self) -> None:
        """Computes values that are needed before the loop."""

    def open(self, run: Markers) -> Any:
        """Returns its value in a step."""
        raise NotImplementedError

    def close(self, run: Markers, after: Any) -> None:
        """``after`` is its value at the end of a step."""

    def result(self, run: Markers) -> Any:
        """Returns its value after the loop."""
        raise NotImplementedError


class Number(Carried):
    """An int that changes from step to step; an extent, if ``size``."""

    def __init__(self, first: Any, *, size: bool = False) -> None:
        """``first``: before the first step."""
        self.first, self.size = first, size
        self.stride: int | None = None
        """The amount that each step adds, if it is known."""
        self.direction = 0
        """1: it never decreases; -1: it never increases."""
        self._inside: Any = None
        self._last = 0

    def open(self, run: Markers) -> Any:
        """Returns its value in a step."""
        if self.stride is not None:
            self._inside = self.first + self.stride * run.index
            return self._inside
        self._last = len(run.numbers)
        run.numbers.append(None)
        self._inside = markers.loop_number(run.begin, self.first, self._last).item()
        self._bound(self._inside)
        return self._inside

    def _bound(self, number: Any) -> None:
        low, high = graph.bounds([self.first])
        if self.size:
            torch._check(number >= 0)
        if self.direction == 1 and low is not None:
            torch._check(number >= low)
        if self.direction == -1 and high is not None:
            torch._check(number <= high)

    def close(self, run: Markers, after: Any) -> None:
        """Notes its value for the next step."""
        if self.stride is None:
            run.numbers[self._last] = after

    def learn(self, after: Any) -> bool:
        """Compares with a step's; whether something has changed in what is known."""
        if self._inside is None:
            # The first trial, in which it was what it is before the loop.
            by = after - self.first
            self.stride = _static(by)
            self.direction = 0 if self.stride is not None else _direction(self.first, after)
            return True
        if self.stride is not None:
            if _static(after - self._inside) == self.stride:
                return False
            self.stride, self.direction = None, _direction(self._inside, after)
            return True
        if self.direction and _direction(self._inside, after) != self.direction:
            self.direction = 0
            return True
        return False

    def result(self, run: Markers) -> Any:
        """Returns its last value."""
        if self.stride is not None:
            return self.first + self.stride * run.trips
        last = markers.loop_last_number(run.end, self._last).item()
        self._bound(last)
        return last


def _static(value: Any) -> int | None:
    if isinstance(value, int):
        return value
    return int(value.node.expr) if value.node.expr.is_Integer else None


def _direction(old: Any, new: Any) -> int:
    if known_truth(new >= old):
        return 1
    return -1 if known_truth(new <= old) else 0


class Zeros:
    """The first value of a tensor that nothing reads before the first step."""

    number: int | float = 0
    """The value of all elements."""


class Filled(Zeros):
    """A number as the first value of a variable that is a tensor after a step: it broadcasts like the number."""

    def __init__(self, number: int | float) -> None:
        """``number``: the number."""
        self.number = number

    @staticmethod
    def of(first: Any, after: Any, symbols: graph.Symbols) -> Filled | None:
        """The number ``first``, if a tensor like ``after`` can represent it in every computation."""
        if type(first) not in (int, float) or not isinstance(after, Tensor) or after.dtype == torch.bool:
            return None
        if float(torch.tensor(first, dtype=after.dtype)) != first or not all(map(symbols.know, after.shape)):
            return None
        return Filled(first)


class Value(Carried):
    """A tensor, or a bool or float as one."""

    def __init__(self, first: Any, like: Any, symbols: graph.Symbols) -> None:
        """``first``: the value before the first step, undefined if it is not used; ``like``: the value after a step."""
        self.kind = (
            bool
            if _is_bool(like) or (_is_bool(first) and like.dtype == torch.bool)
            else Tensor
            if isinstance(like, Tensor)
            else float
        )
        self.dtype = like.dtype if isinstance(like, Tensor) else torch.bool if self.kind is bool else torch.float64
        self._device = like.device if isinstance(like, Tensor) else torch.device("cpu")
        self.first = first
        self.made = isinstance(first, Undefined)
        unset = self.made or isinstance(first, Zeros)
        source = like if unset else first
        self.shape = list(source.shape) if isinstance(source, Tensor) else []
        self.sizes: dict[int, Number] = {}
        if unset:
            for dim, size in enumerate(self.shape):
                if not symbols.know(size):
                    self.shape[dim] = 0
                    self.sizes[dim] = Number(0, size=True)
        self.inside: Any = None
        self._slot = 0
        self._before: Any = None

    def begin(self, first: Tensor) -> None:
        """Takes another tensor for the first value: the same, computed once more."""
        self.first, self.shape = first, list(first.shape)
        for dim, size in self.sizes.items():
            size.first = self.shape[dim]

    def prepare(self) -> None:
        """Computes its first value."""
        if is_jagged(self.first):
            raise RuntimeError(CARRIED)
        if self.made or isinstance(self.first, Zeros):
            number = self.first.number if isinstance(self.first, Zeros) else 0
            self._before = torch.full(self.shape, number, dtype=self.dtype, device=self._device)
        else:
            self._before = self.first if isinstance(self.first, Tensor) else number_tensor(self.first, self.dtype)

    def open(self, run: Markers) -> Any:
        """Returns its value in a step."""
        self._slot = run.slots
        run.slots += 1
        size = [self.sizes[dim].open(run) if dim in self.sizes else n for dim, n in enumerate(self.shape)]
        self.inside = markers.loop_carried(run.begin, self._before, size, self._slot)
        run.opened.append(self.inside)
        if self.made:
            return self.first
        return self._as_kind(self.inside)

    def _as_kind(self, value: Tensor) -> Any:
        return value.item() if self.kind is float else marked(value) if self.kind is bool else value

    def close(self, run: Markers, after: Any) -> None:
        """Notes its value for the next step."""
        after = run.now(after) if isinstance(after, Tensor) else number_tensor(after, self.dtype)
        run.carried.append(self.inside)
        run.next.append(after)
        for dim, size in self.sizes.items():
            size.close(run, after.shape[dim])

    def learn(self, after: Any) -> bool:
        """Compares with a step's; whether something has changed in what is known."""
        if not isinstance(after, Tensor):
            return False
        if after.dim() != len(self.shape) or after.dtype != self.dtype:
            raise Mismatch
        changed = False
        inside = self.shape if self.inside is None else self.inside.shape
        for dim, (old, new) in enumerate(zip(inside, after.shape, strict=True)):
            if dim in self.sizes:
                changed |= self.sizes[dim].learn(new)
            elif not equal_sizes(old, new):
                self.sizes[dim] = Number(self.shape[dim], size=True)
                self.sizes[dim].learn(new)
                changed = True
        return changed

    def result(self, run: Markers) -> Any:
        """Returns its last value."""
        size = [self.sizes[dim].result(run) if dim in self.sizes else n for dim, n in enumerate(self.shape)]
        last = markers.loop_last(run.end, run.next[self._slot], size, self._slot)
        return self._as_kind(last)


class Kept(Carried):
    """A variable that every step sets to the same object."""

    def __init__(self, value: Any) -> None:
        """``value``: the object."""
        self._value = value

    def open(self, run: Markers) -> Any:
        """Returns its value in a step."""
        return self._value

    def result(self, run: Markers) -> Any:
        """Returns its last value."""
        return self._value


class Structure(Carried):
    """A container of which some elements are carried."""

    def __init__(self, whole: Any, made: bool) -> None:
        """``whole``: a container like it; ``made``: the steps create it, so it does not exist before the first one."""
        self._whole, self._made = whole, made
        self.elements: dict[Any, tuple[Any, Carried | None]] = {}
        """The value of each element before the loop, and how it is carried, if it is."""

    def prepare(self) -> None:
        """Computes its first value."""
        for _, carried in self.elements.values():
            if carried is not None:
                carried.prepare()

    def open(self, run: Markers) -> Any:
        """Returns its value in a step."""
        inside = {
            key: before if carried is None else carried.open(run) for key, (before, carried) in self.elements.items()
        }
        return Undefined("the variable") if self._made else rebuilt(self._whole, inside)

    def close(self, run: Markers, after: Any) -> None:
        """Notes its value for the next step."""
        now = parts(after)
        assert now is not None
        for key, (_, carried) in self.elements.items():
            if carried is not None:
                carried.close(run, now[key])

    def result(self, run: Markers) -> Any:
        """Returns its last value."""
        return rebuilt(
            self._whole,
            {
                key: before if carried is None else carried.result(run)
                for key, (before, carried) in self.elements.items()
            },
        )


class _Optional(Structure):
    """A variable that is None before some steps, and something else before others."""

    def __init__(self, name: str) -> None:
        """``name``: the variable's."""
        super().__init__(OptionalValue(None, False, name), made=False)

    def close(self, run: Markers, after: Any) -> None:
        """Notes its value for the next step."""
        super().close(run, _optional(after, self._inside))

    def open(self, run: Markers) -> Any:
        """Returns its value in a step."""
        self._inside = super().open(run)
        return self._inside


def _optional(value: Any, otherwise: Any = None) -> OptionalValue:
    """A value as an optional one; ``otherwise`` has the placeholder for a value that is None."""
    if isinstance(value, OptionalValue):
        return value
    if value is not None:
        return OptionalValue(value, True, "")
    held = otherwise.parts()["value"] if isinstance(otherwise, OptionalValue) else otherwise
    return OptionalValue(held, False, "")


def _carry_optional(
    known: Carried | None,
    before: Any,
    inside: Any,
    after: Any,
    name: str,
    symbols: graph.Symbols,
    were: Callable[[Any], dict[Any, Any] | None],
) -> tuple[Carried | None, bool]:
    now = _optional(after, inside if isinstance(inside, OptionalValue) else before)
    if known is None:
        known = _Optional(name)
    assert isinstance(known, _Optional)
    first = before if before is not None else OptionalValue(_nothing_like(now.parts()["value"]), False, name)
    outer = inside if inside is not None else first
    return _carry_parts(known, now, _optional(first), _optional(outer), now, name, symbols, were)


def _nothing_like(value: Any) -> Any:
    """The first value of a variable that is None before the first step: nothing reads it."""
    if isinstance(value, Tensor) or is_scalar(value):
        return False if is_bool(value) else 0 if is_int(value) else 0.0 if is_float(value) else Zeros()
    held = parts(value)
    return value if held is None else rebuilt(value, {key: _nothing_like(x) for key, x in held.items()})


class Rows(Carried):
    """A list whose length changes from step to step: the rows of one tensor."""

    def __init__(self, before: list[Any], after: list[Any], symbols: graph.Symbols) -> None:
        """``before``: the values before the first step; ``after``: those after a step."""
        like = (before or after)[0]
        shape, dtype = row_type(like)
        if not all(symbols.know(size) for size in shape):
            raise Mismatch
        self._before, self._kind = before, kind_of(like)
        self._empty = [0, *shape], dtype
        self.value = Value(self._rows(before), self._rows(before), symbols)
        self.learn(after)

    def _rows(self, values: list[Any]) -> Tensor:
        return whole_of(values).rows if values else torch.zeros(self._empty[0], dtype=self._empty[1])

    def learn(self, after: Any) -> bool:
        """Compares with a step's; whether something has changed in what is known."""
        if not isinstance(after, list):
            raise Mismatch
        return self.value.learn(self._rows(after))

    def prepare(self) -> None:
        """Computes its first value."""
        self.value.begin(self._rows(self._before))
        self.value.prepare()

    def open(self, run: Markers) -> Any:
        """Returns its value in a step."""
        return [Steps(self.value.open(run), kind=self._kind)]

    def close(self, run: Markers, after: Any) -> None:
        """Notes its value for the next step."""
        self.value.close(run, self._rows(after))

    def result(self, run: Markers) -> Any:
        """Returns its last value."""
        return [Steps(self.value.result(run), kind=self._kind)]


class UnevenRows(Carried):
    """A list of tensors that differ in sizes: the elements of all of them, and these sizes."""

    def __init__(self, before: list[Any], after: list[Any], kind: Along | Shapes, symbols: graph.Symbols) -> None:
        """``before``: the values before the first step; ``after``: those after a step; ``kind``: how it is stored."""
        self._before, self._kind = before, kind
        if not all(map(symbols.know, kind.extents)) or not kind.can_follow(after):
            raise Mismatch
        self._flat = Value(kind.flat(before), kind.flat(after[-1:]), symbols)
        self._sizes = Value(kind.sizes(before), kind.sizes(before), symbols)
        self.learn(after)

    def learn(self, after: Any) -> bool:
        """Compares with a step's; whether something has changed in what is known."""
        if not isinstance(after, list) or not self._kind.can_follow(after):
            raise Mismatch
        changed = self._flat.learn(self._kind.flat(after))
        return self._sizes.learn(self._kind.sizes(after)) or changed

    def prepare(self) -> None:
        """Computes its first value."""
        self._flat.begin(self._kind.flat(self._before))
        self._sizes.begin(self._kind.sizes(self._before))
        self._flat.prepare()
        self._sizes.prepare()

    def open(self, run: Markers) -> Any:
        """Returns its value in a step."""
        return [self._kind.part(self._flat.open(run), self._sizes.open(run))]

    def close(self, run: Markers, after: Any) -> None:
        """Notes its value for the next step."""
        self._flat.close(run, self._kind.flat(after))
        self._sizes.close(run, self._kind.sizes(after))

    def result(self, run: Markers) -> Any:
        """Returns its last value."""
        return [self._kind.part(self._flat.result(run), self._sizes.result(run))]


class TupleRows(Carried):
    """A list of tuples whose length changes from step to step: rows for each value of the tuples."""

    def __init__(self, before: list[Any], after: list[Any], symbols: graph.Symbols) -> None:
        """``before``: the values before the first step; ``after``: those after a step."""
        like = tuples.Tuples.of((before or after)[0])
        if not all(symbols.know(size) for column in like.columns for size in column.shape[1:]):
            raise Mismatch
        self._before, self._kinds = before, like.kinds
        self._empty = [([0, *x.shape[1:]], x.dtype) for x in like.columns]
        self._columns = [Value(x, x, symbols) for x in self._rows(before)]
        self.learn(after)

    def _rows(self, values: list[Any]) -> Sequence[Tensor]:
        if not values:
            return [torch.zeros(shape, dtype=dtype) for shape, dtype in self._empty]
        if not tuples.can_follow(values):
            raise Mismatch
        return tuples.Tuples.of(values[0]).whole(values).columns

    def learn(self, after: Any) -> bool:
        """Compares with a step's; whether something has changed in what is known."""
        if not isinstance(after, list):
            raise Mismatch
        news = [value.learn(x) for value, x in zip(self._columns, self._rows(after), strict=True)]
        return any(news)

    def prepare(self) -> None:
        """Computes its first value."""
        for value, x in zip(self._columns, self._rows(self._before), strict=True):
            value.begin(x)
            value.prepare()

    def open(self, run: Markers) -> Any:
        """Returns its value in a step."""
        return [tuples.Tuples([value.open(run) for value in self._columns], None, self._kinds)]

    def close(self, run: Markers, after: Any) -> None:
        """Notes its value for the next step."""
        for value, x in zip(self._columns, self._rows(after), strict=True):
            value.close(run, x)

    def result(self, run: Markers) -> Any:
        """Returns its last value."""
        return [tuples.Tuples([value.result(run) for value in self._columns], None, self._kinds)]


class Grown(Carried):
    """A tuple whose length changes from step to step."""

    def __init__(self, rows: Rows | TupleRows) -> None:
        """``rows``: its elements as a list."""
        self._rows = rows

    def learn(self, after: Any) -> bool:
        """Compares with a step's; whether something has changed in what is known."""
        if type(after) is not tuple:
            raise Mismatch
        return self._rows.learn(list(after))

    def prepare(self) -> None:
        """Computes its first value."""
        self._rows.prepare()

    def open(self, run: Markers) -> Any:
        """Returns its value in a step."""
        return tuple(self._rows.open(run))

    def close(self, run: Markers, after: Any) -> None:
        """Notes its value for the next step."""
        self._rows.close(run, list(after))

    def result(self, run: Markers) -> Any:
        """Returns its last value."""
        return tuple(self._rows.result(run))


def carry(
    known: Carried | None,
    before: Any,
    inside: Any,
    after: Any,
    name: str,
    symbols: graph.Symbols,
    were: Callable[[Any], dict[Any, Any] | None],
) -> tuple[Carried | None, bool]:
    """How a value is carried, and whether that is new: ``inside`` before a step, ``after`` it.

    ``were`` returns the elements that a container had before the step. Mismatch if it cannot be carried.
    """
    if after is inside and not isinstance(known, (Value, Structure)):
        return known, False
    begins = known is None and _allowed and (before is None) is not (after is None) and not isinstance(after, Undefined)
    if begins or isinstance(known, _Optional):
        return _carry_optional(known, before, inside, after, name, symbols, were)
    if isinstance(known, (Rows, UnevenRows, TupleRows, Grown)):
        return known, known.learn(after)
    if isinstance(known, Value):
        if not _fits(known, after):
            raise Mismatch
        return known, known.learn(after)
    if isinstance(known, Number) and is_int(after):
        return known, known.learn(after)
    if isinstance(known, Structure):
        return _carry_parts(known, known._whole, before, inside, after, name, symbols, were)
    if isinstance(after, Undefined):
        return known, False
    made = isinstance(before, Undefined)
    if isinstance(known, Number) and is_float(after):
        known = None
    if known is not None:
        if isinstance(known, Kept):
            return known, False
        raise Mismatch
    if isinstance(after, Tensor) or isinstance(before, Tensor):
        if not made and not isinstance(before, Zeros) and not _comparable(before, after):
            raise Mismatch
        value = Value(before, after if isinstance(after, Tensor) else before, symbols)
        value.learn(after)
        return value, True
    if is_scalar(after) and (made or is_scalar(before)):
        if not made and same_number(before, after):
            return None, False
        if not made and is_bool(before) is not is_bool(after):
            raise Mismatch
        if is_int(after) and (made or is_int(before)):
            number = Number(0 if made else before)
            if not made:
                number.learn(after)
            return number, True
        return Value(before, after if is_bool(after) else 0.0, symbols), True
    sequence = type(before) in (list, tuple) and type(after) is type(before)
    if sequence and (len(before) != len(after) or has_parts(after)):
        both = [*before, *after]
        if not can_join(both) and not tuples.can_follow(both):
            raise Mismatch
        rows = (Rows if can_join(both) else TupleRows)(list(before), list(after), symbols)
        return (rows if type(before) is list else Grown(rows)), True
    if parts(after) is not None and (made or type(before) is type(after)):
        fresh = Structure(after if made else before, made)
        return _carry_parts(fresh, after, before, inside, after, name, symbols, were)
    if made:
        return Kept(after), True
    if type(before) is type(after) and _equal(before, after):
        return None, False
    raise Mismatch


def _equal(a: Any, b: Any) -> bool:
    try:
        return bool(a == b)
    except Exception:
        return False


def _is_bool(value: Any) -> bool:
    return is_bool(value) or (isinstance(value, Tensor) and stands_for_bool(value))


def _fits(known: Value, after: Any) -> bool:
    if known.kind is Tensor:
        return isinstance(after, Tensor) or (is_scalar(after) and not known.shape)
    if known.kind is bool:
        return is_bool(after) or (isinstance(after, Tensor) and after.dtype == torch.bool)
    return is_scalar(after) and not is_bool(after)


def _comparable(before: Any, after: Any) -> bool:
    if isinstance(before, Tensor) and isinstance(after, Tensor):
        return before.dtype == after.dtype and before.dim() == after.dim()
    tensor, other = (before, after) if isinstance(before, Tensor) else (after, before)
    return is_scalar(other) and tensor.dim() == 0


def _carry_parts(
    known: Structure,
    whole: Any,
    before: Any,
    inside: Any,
    after: Any,
    name: str,
    symbols: graph.Symbols,
    were: Callable[[Any], dict[Any, Any] | None],
) -> tuple[Carried | None, bool]:
    now = parts(after)
    if now is None or type(after) is not type(whole):
        raise Mismatch
    old = dict.fromkeys(now, before) if isinstance(before, Undefined) else parts(before)
    given = dict.fromkeys(now, inside) if isinstance(inside, Undefined) else were(inside)
    assert old is not None and given is not None
    if list(old) != list(now):
        raise Mismatch
    news = False
    for key, value in now.items():
        carried, changed = carry(
            known.elements.get(key, (None, None))[1],
            old[key],
            given[key],
            value,
            part_name(name, whole, key),
            symbols,
            were,
        )
        known.elements[key] = old[key], carried
        news |= changed
    return known, news


def refuse(site: Site, name: str, before: Any, after: Any) -> Any:
    """The error for something that is of another kind after a step."""
    return site.refuse(
        f"{name} is {described(before)} before a step of a loop and {described(after)} after it: a loop whose number of"
        " steps depends on data or on a dynamic extent is traced once, so a variable needs one kind of value, dtype and"
        " rank; set it to such a value before the loop"
    )
