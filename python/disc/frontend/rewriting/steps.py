"""Loops whose number of steps is known only at run time: one step is traced.

Trials come first; their graphs are discarded. They find what a step changes, and which extents and numbers differ
between the steps. These values are carried.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import torch
from torch import Tensor

from ... import errors
from ...torch_compat import pytree
from .. import markers
from ..proving import is_positive
from . import graph, tuples
from .carried import (
    Carried,
    Filled,
    Markers,
    Mismatch,
    Rows,
    TupleRows,
    UnevenRows,
    Value,
    Zeros,
    carry,
    optional_variables,
    refuse,
)
from .conditions import decide, known_truth, number_tensor
from .dynamic import Front, Maybe, Steps, can_join, in_step, is_of_loop, kind_of, row_of
from .parts import Part
from .ragged import Shapes
from .region import NoValue, Region, version_of
from .sites import Site
from .state import Change, Heap, Undefined, store
from .uneven import Along

# Each trial may find more changes.
_TRIALS = 12
_REACH = 64


class Earlier(Part):
    """In a list that grows: the elements that earlier steps have appended. It cannot be used in a step."""

    def __init__(self, grown: _Grown, count: Callable[[], Any] | None) -> None:
        """``count`` returns how many elements it stands for; None if that is unknown."""
        self.__dict__.update(grown=grown, counted=count)

    @property
    def count(self) -> Any:
        """The number of elements that it stands for."""
        count = self.__dict__["counted"]
        return self._fail() if count is None else count()

    def _fail(self, *_: Any, **__: Any) -> NoReturn:
        raise _LooksBack(self.__dict__["grown"])

    __getattr__ = __getitem__ = __iter__ = __bool__ = __call__ = __add__ = __radd__ = __mul__ = __rmul__ = _fail
    __sub__ = __rsub__ = __truediv__ = __rtruediv__ = __matmul__ = __len__ = __lt__ = __gt__ = __eq__ = _fail  # type: ignore[assignment]
    __hash__ = object.__hash__

    @classmethod
    def __torch_function__(cls, func: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Raises an error where it is an operand."""
        for leaf in pytree.tree_leaves((args, kwargs)):
            if isinstance(leaf, Earlier):
                leaf._fail()
        return super().__torch_function__(func, kinds, args, kwargs)


class _OtherKind(Exception):
    """A variable has another type after a step: ``error`` names it."""

    def __init__(self, error: errors.CompileError) -> None:
        self.error = error
        super().__init__(str(error))


@dataclass
class _Grown:
    """A list that steps append to, or remove from."""

    holder: list[Any]
    name: str
    elements: list[Any]
    """The elements that a step of a trial appended."""
    previous: list[Value] | None = None
    """The elements that the previous step appended, if steps read them."""
    all: Rows | TupleRows | UnevenRows | None = None
    """The rows of the whole list, which is carried if steps read more of it, or append an unbounded number."""
    front: bool = False
    """Whether steps insert at the front, so that the last is the first."""

    @property
    def kind(self) -> type:
        """The type of the elements."""
        return kind_of(self.elements[0])

    @property
    def flagged(self) -> bool:
        """Whether data decides which elements a step appends."""
        return any(map(_is_flagged, self.elements))

    @property
    def of_tuples(self) -> bool:
        """Whether the elements are tuples."""
        return isinstance(tuples.kinds_of(self.elements[0]), tuple)

    @property
    def bounded(self) -> bool:
        """Whether the number of elements that a step appends has a bound."""
        rows = [x.all if isinstance(x, Steps) else x.columns[0] for x in self.elements if isinstance(x, _SEVERAL)]
        return all(isinstance(x.shape[0], int) for x in rows)


class _LooksBack(Exception):
    """A step reads elements that earlier steps have appended to a list."""

    def __init__(self, grown: _Grown) -> None:
        self.grown = grown
        super().__init__(grown.name)


class Loop:
    """Traces one loop."""

    def __init__(
        self,
        site: Site,
        names: Sequence[str],
        get: Callable[[], tuple[Any, ...]],
        put: Callable[[tuple[Any, ...]], Any],
        needed: Sequence[str],
        read: Sequence[str],
        roots: Sequence[tuple[str, Any]],
    ) -> None:
        """``roots``: the objects that a step can reach besides the variables."""
        self._site, self._names, self._get, self._put = site, names, get, put
        self._needed, self._read, self._roots = needed, read, roots
        self._peeled = self._optional = False
        self.begun = False
        """Whether anything besides trials has been traced."""

    def run(
        self,
        count: Any,
        pred: Tensor | None,
        step: Callable[[Any], Any],
        more: Callable[[], Any] | None,
        fact: Callable[[], Any] | None = None,
    ) -> None:
        """Traces a loop of at most ``count`` steps (if that is not None), while ``pred``, then ``more()``, is true.

        ``step`` takes the step's number. ``fact()`` is true at the beginning of each step.
        """
        self._count, self._pred, self._step, self._more, self._fact = count, pred, step, more, fact
        self._begin()
        try:
            self._try()
        except _OtherKind as other:
            self._reset()
            if not self._may_begin() or self._peeled:
                if self._optional:
                    raise other.error from None
                with optional_variables():
                    again = Loop(self._site, self._names, self._get, self._put, self._needed, self._read, self._roots)
                    again._optional = True
                    again.run(count, pred, step, more, fact)
                self.begun = again.begun
                return
            # The first step turns None or a number into the first value of the others: it is traced separately.
            self._peeled = self.begun = True
            step(0)
            going = True if more is None else decide(more())
            if going is not False:
                pred = None if going is True else going
                self.run(count - 1, pred, lambda n: step(n + 1), more)
            return
        except NoValue:
            # While the results of a recursive function are unknown, the loop has no step.
            self._reset()
            if self._has_step():
                raise
            return
        except BaseException:
            self._reset()
            raise
        self.begun = True
        self._trace(trial=False)

    def _reset(self) -> None:
        """Resets everything to its state before the loop."""
        self._heap.restore(self._heap.changes())
        self._put(self._before)

    def _try(self) -> None:
        for _ in range(_TRIALS):
            try:
                with graph.tried():
                    news = self._trace(trial=True)
                if not news:
                    return
            except _LooksBack as back:
                grown = back.grown
                with graph.tried():
                    self._reset()
                    if grown.front and (grown.previous is not None or grown.flagged or grown.kind is not Tensor):
                        raise self._site.refuse(
                            f"a step of a loop inserts into {grown.name}, and reads more than the last elements"
                        ) from None
                    if grown.previous is not None or grown.flagged or grown.kind is not Tensor:
                        grown.previous, grown.all = None, self._carried_whole(grown)
                    else:
                        grown.previous = self._previous(grown)
        raise self._site.refuse(
            "each step of this loop changes more values than the one before; keep them in a list or a tensor"
        )

    def _begin(self) -> None:
        self._before = self._get()
        apart = getattr(self._get, "__closure__", None) or ()
        self._apart = apart
        self._heap = Heap([*zip(self._names, self._before, strict=True), *self._roots], apart)
        self._variables: dict[int, Carried] = {}
        self._places: dict[tuple[int, Any], tuple[Change, Carried]] = {}
        self._written: dict[int, tuple[Tensor, Value]] = {}
        self._grown: dict[int, _Grown] = {}
        self._conditional = self._pred is not None
        self._symbols = graph.Symbols()

    def _previous(self, grown: _Grown) -> list[Value]:
        before = self._heap.contents(grown.holder)
        symbols = graph.Symbols()
        rows = grown.elements
        last = list(before.values())[-len(rows) :] if len(before) >= len(rows) else []
        if grown.front and last:
            last = list(before.values())[: len(rows)][::-1]
        if all(isinstance(x, Tensor) and _alike(x, row) for x, row in zip(last, rows, strict=False)) and last:
            return [Value(x, row, symbols) for x, row in zip(last, rows, strict=True)]
        # It does not exist before the first step, so nothing may read it there.
        return [Value(Zeros(), row, symbols) for row in rows]

    def _carried_whole(self, grown: _Grown) -> Rows | TupleRows:
        before = list(self._heap.contents(grown.holder).values())
        try:
            kind = TupleRows if grown.of_tuples else Rows
            return kind(before, [*before, *grown.elements], self._symbols)
        except Mismatch:
            raise self._site.refuse(
                f"the values that a step of a loop appends to {grown.name} must have the same shape in all steps"
            ) from None

    def _carried_uneven(self, grown: _Grown, kind: Along | Shapes) -> UnevenRows:
        before = list(self._heap.contents(grown.holder).values())
        try:
            return UnevenRows(before, [*before, *grown.elements], kind, self._symbols)
        except Mismatch:
            raise self._site.refuse(
                f"the values that a step of a loop appends to {grown.name} may differ in sizes that depend on the step"
            ) from None

    # -- one step ----------------------------------------------------------------------------------------

    def _all(self) -> list[Carried]:
        return [
            *self._variables.values(),
            *(carried for _, carried in self._places.values()),
            *(carried for _, carried in self._written.values()),
            *(value for grown in self._grown.values() for value in (*(grown.previous or ()), *_given(grown.all))),
        ]

    def _trace(self, *, trial: bool) -> bool:
        """Traces a step; a trial returns whether it found something new, else the loop's results are stored."""
        run = Markers()
        for carried in self._all():
            carried.prepare()
        pred = self._pred
        if pred is None and self._conditional:
            pred = number_tensor(True, torch.bool)
        symbols = graph.Symbols()
        run.begin = markers.loop_begin(-1 if self._count is None else self._count, pred)
        run.index = run.begin.item()
        torch._check(run.index >= 0)
        if self._count is not None:
            torch._check(run.index < self._count)
        inside = self._open(run)
        heap = Heap([*zip(self._names, inside, strict=True), *self._roots], self._apart)
        entered = {id(outer): value for outer, value in self._written.values()}

        def enter(outer: Tensor) -> Tensor:
            value = entered.get(id(outer))
            if value is None:
                value = Value(outer, outer, symbols)
                value.prepare()
                self._written[id(outer)] = outer, value
            return value.open(run)  # type: ignore[no-any-return]

        region = Region(enter, "a step of a loop", self._site.source)
        run.now = region.now
        for tensor in run.opened:
            region.own(tensor)
        with region:
            for outer, _ in list(self._written.values()):
                region.change(outer)
            known = {key: version_of(value.inside) for key, (_, value) in self._written.items()}
            self._check_fact()
            with in_step(self._heap.has):
                self._step(run.index)
                more = True if self._more is None else decide(self._more())
            graph.keep_conditions(run.begin)
        after, changes = self._get(), heap.changes()
        self._heap.restore(self._heap.changes())
        news = self._learn(inside, after, changes, heap, symbols) if trial else False
        news |= len(self._written) != len(known)
        if more is not True and not self._conditional:
            self._conditional = news = True
        if trial:
            lost = [key for key, (change, _) in self._places.items() if not heap.has(change.holder)]
            for key in lost:
                # The steps replace this container: it is part of a variable's value.
                del self._places[key]
            # An earlier trial treated it as a tensor from outside, but it is carried.
            idle = [key for key, version in known.items() if version_of(self._written[key][1].inside) == version]
            for storage in idle:
                del self._written[storage]
            news |= bool(lost) or bool(idle)
            self._put(self._before)
            return news
        self._finish(run, region, heap, after, changes, more, symbols)
        return False

    def _open(self, run: Markers) -> tuple[Any, ...]:
        """Sets everything to its state at the beginning of a step."""
        inside = tuple(
            self._variables[n].open(run) if n in self._variables else before for n, before in enumerate(self._before)
        )
        store((change.holder, change.key, carried.open(run)) for change, carried in self._places.values())
        for grown in self._grown.values():
            if grown.all is not None:
                grown.holder[:] = grown.all.open(run)
                continue
            previous = grown.previous or []
            counted = functools.partial(lambda n, m: n * run.index - m, len(grown.elements), len(previous))
            earlier = Earlier(grown, None if grown.flagged else counted)
            if grown.front:
                grown.holder.append(Front())
            # Repeated, so that an index from the end finds it too.
            more = [Earlier(grown, lambda: 0)] * _REACH
            grown.holder += [earlier, *more, *(value.open(run) for value in previous)]
        self._put(inside)
        return inside

    def _check_fact(self) -> None:
        if self._fact is None:
            return
        before = self._get()
        with graph.tried():
            fact = self._fact()
            # A test may set variables, here to values that are not in the graph.
            self._put(before)
        if isinstance(fact, torch.SymBool):
            torch._check(fact)

    # -- what changes ------------------------------------------------------------------------------------

    def _learn(
        self,
        inside: tuple[Any, ...],
        after: tuple[Any, ...],
        changes: list[Change],
        heap: Heap,
        symbols: graph.Symbols,
    ) -> bool:
        news = False
        for n, (name, before, old, new) in enumerate(zip(self._names, self._before, inside, after, strict=True)):
            if name not in self._needed and name not in self._read:
                continue
            if name not in self._read and self._has_step() and not isinstance(before, Undefined):
                before = Undefined(name)
            try:
                carried, changed = carry(self._variables.get(n), before, old, new, name, symbols, heap.parts)
            except Mismatch:
                # The first step may be traced separately; after the loop the number itself may be read.
                known = n in self._variables or name in self._needed or self._may_begin()
                filled = None if known else Filled.of(before, new, symbols)
                if filled is None:
                    raise _OtherKind(refuse(self._site, name, before, new)) from None
                carried, changed = Value(filled, new, symbols), True
            if carried is not None:
                self._variables[n] = carried
            news |= changed
        news |= self._learn_lists(changes, heap, symbols)
        for change in changes:
            news |= self._learn_place(change, heap, symbols)
        return news

    def _learn_lists(self, changes: list[Change], heap: Heap, symbols: graph.Symbols) -> bool:
        news = False
        appended: dict[int, list[Change]] = {}
        for change in changes:
            holder = change.holder
            if isinstance(holder, list) and self._heap.has(holder):
                known = self._grown.get(id(holder))
                if isinstance(change.old, Undefined) and (known is None or known.all is None):
                    appended.setdefault(id(holder), []).append(change)
        news |= self._learn_whole(changes, heap)
        for key, found in appended.items():
            if key in self._grown and self._grown[key].all is not None:
                continue
            name = found[0].name.rpartition("[")[0]
            elements = [change.new for change in found if not isinstance(change.new, Front)]
            front = len(elements) < len(found)
            if front and not isinstance(found[0].new, Front):
                raise self._site.refuse(
                    f"a step of a loop both appends to {name} and inserts into it; do only one of them"
                )
            if not can_join(elements) and not tuples.can_follow(elements):
                raise self._site.refuse(
                    f"a step of a loop appends values of different types, dtypes or shapes to {name}"
                )
            grown = self._grown.get(key)
            if grown is None or grown.flagged != any(map(_is_flagged, elements)):
                grown = self._grown[key] = _Grown(found[0].holder, name, elements)
                news = True
            grown.elements = elements
            news |= front and not grown.front
            grown.front |= front
            if grown.front and not grown.bounded:
                raise self._site.refuse(f"a step of a loop inserts a data-dependent number of elements into {name}")
            if not grown.bounded:
                grown.previous, grown.all = None, self._carried_whole(grown)
                news = True
            elif (kind := _differing(grown, symbols)) is not None:
                grown.previous, grown.all = None, self._carried_uneven(grown, kind)
                news = True
                continue
            for value, row in zip(grown.previous or (), elements, strict=False):
                news |= value.learn(row)
        for grown in self._grown.values():
            if grown.all is not None and id(grown.holder) not in appended:
                news |= grown.all.learn(self._whole_after(grown, changes, heap))
        return news

    def _learn_whole(self, changes: list[Change], heap: Heap) -> bool:
        """Finds lists that steps remove elements from, or with elements that already stand for several."""
        news = False
        for change in changes:
            holder = change.holder
            if not isinstance(holder, list) or not self._heap.has(holder):
                continue
            if not isinstance(change.new, Undefined) and not any(isinstance(x, Part) for x in (change.old, change.new)):
                continue
            known = self._grown.get(id(holder))
            if isinstance(change.old, (Undefined, Earlier)) or (known is not None and known.all is not None):
                continue
            name = change.name.rpartition("[")[0]
            elements = [*self._heap.contents(holder).values()]
            if not can_join(elements):
                raise self._site.refuse(
                    f"a step of a loop removes elements from {name}, whose elements differ in type, dtype or shape"
                )
            grown = self._grown[id(holder)] = _Grown(holder, name, elements)
            grown.all = self._carried_whole(grown)
            news = True
        return news

    @staticmethod
    def _whole_after(grown: _Grown, changes: list[Change], heap: Heap) -> list[Any]:
        """A list after a step."""
        after = dict(heap.contents(grown.holder))
        after.update((change.key, change.new) for change in changes if change.holder is grown.holder)
        return [x for x in after.values() if not isinstance(x, Undefined)]

    def _learn_place(self, change: Change, heap: Heap, symbols: graph.Symbols) -> bool:
        holder, key, name = change.holder, change.key, change.name
        if not self._heap.has(holder) or (id(holder) in self._grown and self._grown[id(holder)].all is not None):
            return False
        contents = self._heap.contents(holder)
        if isinstance(holder, list) and key not in contents:
            if isinstance(change.new, Undefined):
                raise self._site.refuse(f"a step of a loop makes {name.rpartition('[')[0]} shorter")
            return False
        before = contents.get(key, Undefined(name))
        known = self._places.get((id(holder), key))
        if isinstance(change.new, Undefined):
            raise self._site.refuse(f"a step of a loop removes {name}")
        try:
            carry_now = None if known is None else known[1]
            carried, news = carry(carry_now, before, change.old, change.new, name, symbols, heap.parts)
        except Mismatch:
            raise _OtherKind(refuse(self._site, name, before, change.new)) from None
        if carried is not None:
            self._places[id(holder), key] = change, carried
        return news

    def _may_begin(self) -> bool:
        """Whether the first step may be traced by itself: there is one if extents are 2 or more, as torch.export takes
        them. For those of 0 the count of the other steps is negative, which is an error at run time.
        """
        return self._count is not None and self._pred is None and known_truth(self._count >= 1) is True

    def _has_step(self) -> bool:
        """Whether there is a step, whatever the data."""
        return self._count is not None and self._pred is None and is_positive(self._count)

    # -- its results ------------------------------------------------------------------------------------

    def _finish(
        self,
        run: Markers,
        region: Region,
        heap: Heap,
        after: tuple[Any, ...],
        changes: list[Change],
        more: bool | Tensor,
        symbols: graph.Symbols,
    ) -> None:
        now = {(id(change.holder), change.key): change for change in changes}
        # In the order of opening; a later trial may have found an earlier variable.
        for n, carried in sorted(self._variables.items()):
            carried.close(run, after[n])
        for key, (change, carried) in self._places.items():
            current = now.pop(key, None)
            carried.close(run, heap.contents(change.holder)[change.key] if current is None else current.new)
        # In the order of opening.
        rows = []
        for grown in self._grown.values():
            found = [] if grown.all is not None else self._rows(grown, changes, symbols)
            for value, row in zip(grown.previous or (), found, strict=False):
                value.close(run, row)
            if grown.all is not None:
                grown.all.close(run, self._whole_after(grown, changes, heap))
            rows.append((grown, found))
        for _, carried in self._written.values():
            carried.close(run, carried.inside)
        flat = [row for _, found in rows for row in found]
        pred = number_tensor(more, torch.bool) if self._conditional else None
        run.end = markers.loop_end(
            run.begin, list(range(len(run.carried))), run.carried, run.next, flat, pred, run.numbers
        )
        run.trips = self._count
        if self._conditional:
            run.trips = markers.loop_trips(run.end).item()
            torch._check(run.trips >= 0)
            if self._count is not None:
                torch._check(run.trips <= self._count)
        for outer, carried in self._written.values():
            outer.copy_(carried.result(run))
        put = []
        for n, (name, before) in enumerate(zip(self._names, self._before, strict=True)):
            if name not in self._needed:
                put.append(Undefined(name))
            else:
                put.append(self._variables[n].result(run) if n in self._variables else before)
        self._put(tuple(put))
        store((change.holder, change.key, carried.result(run)) for change, carried in self._places.values())
        number = 0
        for grown, found in rows:
            if grown.all is not None:
                grown.holder[:] = grown.all.result(run)
                continue
            stacks = [markers.loop_stack(run.end, row, run.trips, number + n) for n, row in enumerate(found)]
            number += len(found)
            if stacks and grown.of_tuples:
                columns = [x.flatten(0, 1) for x in stacks]
                present = columns.pop() if grown.flagged else None
                self._leave(grown, tuples.Tuples(columns, present, tuples.kinds_of(grown.elements[0])))
            elif grown.flagged:
                self._leave(grown, Steps(stacks[0].flatten(0, 1), stacks[1].flatten(0, 1), grown.kind))
            elif stacks:
                together = stacks[0] if len(stacks) == 1 else torch.stack(stacks, 1).flatten(0, 1)
                self._leave(grown, Steps(together, kind=grown.kind))

    @staticmethod
    def _leave(grown: _Grown, made: Steps | tuples.Tuples) -> None:
        """Adds the elements that the steps made to the list, at their place."""
        if not grown.front:
            grown.holder.append(made)
        elif is_of_loop(grown.holder):
            grown.holder += [Front(), made]
        else:
            grown.holder.insert(0, made.turned())

    def _rows(self, grown: _Grown, changes: list[Change], symbols: graph.Symbols) -> list[Tensor]:
        """The rows that a step appends: its elements; if they are flagged, all of them and the flags."""
        new = (x.new for x in changes if x.holder is grown.holder and isinstance(x.old, Undefined))
        found = [x for x in new if not isinstance(x, Front)]
        if grown.of_tuples:
            parts = [tuples.Tuples.of(x) for x in found]
            found = [torch.cat(columns) for columns in zip(*(x.columns for x in parts), strict=True)]
            if grown.flagged:
                found.append(_flags([(x.present, x.columns[0].shape[0]) for x in parts]))
        elif grown.flagged:
            given = [x if isinstance(x, Steps) else Steps(row_of(x).unsqueeze(0)) for x in found]
            flags = _flags([(x.present, x.all.shape[0]) for x in given])
            found = [torch.cat([x.all for x in given]), flags]
        rows = list(map(row_of, found))
        for row in rows:
            if not all(symbols.know(size) for size in row.shape):
                raise self._site.refuse(
                    f"the values that a step of a loop appends to {grown.name} must have the same shape in all steps"
                )
        return rows


_SEVERAL = Steps, tuples.Tuples


def _is_flagged(element: Any) -> bool:
    """Whether data decides if an element, or some of those that it stands for, are there."""
    return isinstance(element, (Maybe, *_SEVERAL))


def _flags(given: Sequence[tuple[Tensor | None, Any]]) -> Tensor:
    """Which elements are there, of several entries of a list: which are present of each, and how many it has."""
    return torch.cat([torch.ones(n, dtype=torch.bool) if present is None else present for present, n in given])


def _given(value: Any) -> tuple[Any, ...]:
    return () if value is None else (value,)


def _differing(grown: _Grown, symbols: graph.Symbols) -> Along | Shapes | None:
    """How tensors are stored that differ in the sizes that a step computes; None if they do not differ."""
    if grown.kind is not Tensor or grown.front or grown.flagged:
        return None
    like = grown.elements[0]
    shape = [size if symbols.know(size) else None for size in like.shape]
    if shape.count(None) == 1:
        dim = shape.index(None)
        return Along(dim, [*shape[:dim], *shape[dim + 1 :]], like.dtype)
    return Shapes(shape, like.dtype) if None in shape else None


def _alike(a: Tensor, b: Tensor) -> bool:
    return a.dtype == b.dtype and a.dim() == b.dim()
