"""Branches: both sides traced from the same state, and what they leave merged."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ... import errors
from .. import markers
from . import conditions, graph, identities, lists
from .conditions import equal_sizes, implied, is_bool, is_int, known_truth, marked, number_tensor, same_number
from .optional import OneSided, OptionalValue, settled, where
from .parts import has_parts
from .raised import text_of_raise
from .region import NoValue, Region, raised_by_user, share
from .sites import Site, handlers
from .state import Change, Heap, Undefined, described, is_scalar, note_chosen, part_name, parts, rebuilt, store


@dataclass
class _Slot:
    """A tensor that both sides return."""

    then: Callable[[], Tensor]
    orelse: Callable[[], Tensor]
    sides: list[Tensor] = field(default_factory=list)
    result: Any = None
    outside: tuple[Tensor | None, Tensor | None] = (None, None)
    """For each side, the tensor from before the branch that it returns unchanged, if it does."""


@dataclass
class _Number:
    """An int that both sides return."""

    then: Any
    orelse: Any
    result: Any = None


class _Merge:
    """Merges the results of two sides: planned first, then computed."""

    def __init__(
        self, site: Site, pred: Tensor, symbols: graph.Symbols, heap: Heap, then: _Side, orelse: _Side
    ) -> None:
        """``symbols`` and ``heap``: those from before the branch."""
        self._heap = heap
        self.site, self.pred, self._symbols, self._sides = site, pred, symbols, (then, orelse)
        self.regions = then.region, orelse.region
        self.slots: list[_Slot] = []
        self.numbers: list[_Number] = []

    def plan(self, a: Any, b: Any, name: str, made: bool = False) -> Callable[[], Any]:
        """Returns a function that computes the merged value later. ``made``: a side without a value may use any."""
        if a is b:
            return lambda: a
        if OneSided in (type(a), type(b)):
            return self._optional(a, b, name, OneSided)
        a, b = (settled(x, side.facts) for x, side in zip((a, b), self._sides, strict=True))
        optional = (a is None) is not (b is None) or OptionalValue in (type(a), type(b))
        if optional and not isinstance(a, Undefined) and not isinstance(b, Undefined):
            return self._optional(a, b, name)
        if isinstance(a, Undefined) or isinstance(b, Undefined):
            if isinstance(a, Undefined) and isinstance(b, Undefined):
                return lambda: a
            if not made:
                self.site.partial.add(name)
                if name in self.site.kept:
                    return self._optional(a, b, name, OneSided)
                return lambda: Undefined(name)
            if is_scalar(a) or is_scalar(b):
                a, b = _zero(b) if isinstance(a, Undefined) else a, _zero(a) if isinstance(b, Undefined) else b
        if isinstance(a, Tensor) or isinstance(b, Tensor):
            return self._tensors(a, b, name)
        if is_scalar(a) and is_scalar(b):
            return self._scalars(a, b, name)
        return self._structures(a, b, name, made)

    def _optional(self, a: Any, b: Any, name: str, kind: type[OptionalValue] = OptionalValue) -> Callable[[], Any]:
        """A value of one side, where the other one leaves None, or nothing, or either may."""
        no_value = Undefined if kind is OneSided else type(None)
        held = [x.parts() if isinstance(x, OptionalValue) else {"value": x, "present": True} for x in (a, b)]
        missing = {"value": Undefined(name), "present": False}
        held = [missing if isinstance(x, no_value) else parts for x, parts in zip((a, b), held, strict=True)]
        value = self.plan(held[0]["value"], held[1]["value"], name, made=True)

        def there(present: Any, side: _Side) -> Callable[[], Tensor]:
            known = isinstance(present, bool)
            return lambda: torch.full((), present) if known else side.region.now(present).view_as(present)

        slot = self._slot(*(there(x["present"], side) for x, side in zip(held, self._sides, strict=True)))
        return lambda: kind(value(), marked(slot.result), name)

    def _slot(self, then: Callable[[], Tensor], orelse: Callable[[], Tensor]) -> _Slot:
        self.slots.append(_Slot(then, orelse))
        return self.slots[-1]

    def _tensors(self, a: Any, b: Any, name: str) -> Callable[[], Any]:
        """Merges tensors; a number becomes a tensor without dims."""
        like = a if isinstance(a, Tensor) else b

        def side(x: Any, now: Callable[[Tensor], Tensor]) -> Callable[[], Tensor]:
            if isinstance(x, Undefined):
                # The nodes of the other side's sizes may be in that side.
                sizes = [self._anew(size) if self._symbols.know(size) else 0 for size in like.shape]
                return lambda: torch.zeros(sizes, dtype=like.dtype, device=like.device)
            if is_scalar(x) and like.dim() == 0:
                return lambda: number_tensor(x, like.dtype)
            if not isinstance(x, Tensor) or x.dtype != like.dtype or x.dim() != like.dim():
                raise self._differ(name, a, b)
            return lambda: now(x)

        ways = [side(x, given.region.now) for x, given in zip((a, b), self._sides, strict=True)]
        if isinstance(a, Tensor) and isinstance(b, Tensor):
            # The other way around its extent would come after what it is for.
            ways[1] = self._fitted(ways[1], b, a)
            ways = [self._single(ways[0], a, b, 0), self._single(ways[1], b, a, 1)]
        slot = self._slot(*ways)
        slot.outside = tuple(  # type: ignore[assignment]
            x if isinstance(x, Tensor) and given.region.is_outside(x) else None
            for x, given in zip((a, b), self._sides, strict=True)
        )
        return lambda: slot.result

    @staticmethod
    def _anew(size: Any) -> Any:
        """An extent, computed where it is used."""
        return conditions.number(size.node.expr, graph.environment()) if isinstance(size, torch.SymInt) else size

    def _fitted(self, value: Callable[[], Tensor], inside: Tensor, other: Tensor) -> Callable[[], Tensor]:
        """The else side's tensor, of an extent that is 1 there: seen as the other side's extent, if it is the same."""
        facts = implied(self.pred)[1]
        sizes = [
            y if isinstance(x, int) and x == 1 and self._symbols.know(y) and identities.equal(x, y, facts) else x
            for x, y in zip(inside.shape, other.shape, strict=True)
        ]
        if all(new is old for new, old in zip(sizes, inside.shape, strict=True)):
            return value
        return lambda: value().expand(sizes)

    def _single(self, value: Callable[[], Tensor], inside: Tensor, other: Tensor, which: int) -> Callable[[], Tensor]:
        """One side's tensor, with an extent of 1 where it must be 1 there and the other side's is: it broadcasts."""
        facts = implied(self.pred)[which]
        dims = [
            dim
            for dim, (x, y) in enumerate(zip(inside.shape, other.shape, strict=True))
            if not isinstance(x, int) and isinstance(y, int) and y == 1 and identities.equal(x, y, facts)
        ]
        # A slice would ask whether there is an element.
        return lambda: functools.reduce(
            lambda x, dim: x.index_select(dim, torch.zeros(1, dtype=torch.int64)), dims, value()
        )

    def _scalars(self, a: Any, b: Any, name: str) -> Callable[[], Any]:
        if same_number(a, b):
            return lambda: a
        if is_bool(a) is not is_bool(b):
            raise self._differ(name, a, b)
        if is_int(a) and is_int(b):
            number = _Number(a, b)
            self.numbers.append(number)
            return lambda: number.result
        dtype = torch.bool if is_bool(a) else torch.float64
        slot = self._slot(lambda: number_tensor(a, dtype), lambda: number_tensor(b, dtype))
        return lambda: marked(slot.result) if dtype == torch.bool else slot.result.item()

    def _structures(self, a: Any, b: Any, name: str, made: bool) -> Callable[[], Any]:
        whole = b if isinstance(a, Undefined) else a
        inner = self._sides[1 if whole is b else 0].parts(whole)
        if inner is not None and _alike(a, whole) and _alike(b, whole):
            first, second = (
                dict.fromkeys(inner, x) if isinstance(x, Undefined) else side.parts(x) or {}
                for x, side in zip((a, b), self._sides, strict=True)
            )
            both = [*first.values(), *second.values()]
            if type(whole) in (list, tuple) and (list(first) != list(second) or has_parts(both)):
                plan = self.lists(list(first.values()), list(second.values()), name)
                return self._chosen(plan if type(whole) is list else lambda: tuple(plan()), a, b, name)
            if list(first) == list(second):
                plans = {key: self.plan(first[key], second[key], part_name(name, whole, key), made) for key in first}
                return self._chosen(lambda: rebuilt(whole, {key: plan() for key, plan in plans.items()}), a, b, name)
        elif inner is None and (isinstance(a, Undefined) or isinstance(b, Undefined) or _equal(a, b)):
            return lambda: whole
        raise self._differ(name, a, b)

    def tensors(self, then: Callable[[], Tensor], orelse: Callable[[], Tensor]) -> Callable[[], Any]:
        """A function that returns the merged tensor of the two sides."""
        slot = self._slot(then, orelse)
        return lambda: slot.result

    def known(self, size: Any) -> bool:
        """Whether an extent is known before the branch."""
        return self._symbols.know(size)

    def lists(self, a: list[Any], b: list[Any], name: str) -> Callable[[], list[Any]]:
        """Lists that may have other lengths after the two sides."""
        found = lists.merged(self, a, b, name)
        if found is None:
            raise self._differ(name, a, b)
        return found

    def _chosen(self, plan: Callable[[], Any], a: Any, b: Any, name: str) -> Callable[[], Any]:
        """The same plan. If it selects one of two containers from before the branch, its result must not be changed."""
        if not self._heap.has(a) or not self._heap.has(b):
            return plan

        def noted() -> Any:
            result = plan()
            error = self.site.refuse(
                f"{name} is one of two {type(a).__name__}s that data chooses, and is changed afterwards: the one that"
                " it is would not be; change each of them on its side of the branch"
            )
            note_chosen(result, error)
            return result

        return noted

    def _differ(self, name: str, a: Any, b: Any) -> errors.CompileError:
        return self.site.refuse(
            f"{name} is {described(a)} where the condition holds and {described(b)} where it does not: both sides of a"
            " branch on data must leave one kind of value, of one dtype and rank, in containers of one structure"
        )

    # -- computing ---------------------------------------------------------------------------------------

    def then(self) -> tuple[list[Tensor], list[Any]]:
        """The results of the then side."""
        return self._side([slot.then for slot in self.slots]), [number.then for number in self.numbers]

    def orelse(self) -> tuple[list[Tensor], list[Any]]:
        """The results of the else side."""
        return self._side([slot.orelse for slot in self.slots]), [number.orelse for number in self.numbers]

    def _side(self, make: list[Callable[[], Tensor]]) -> list[Tensor]:
        values = [one() for one in make]
        for slot, value in zip(self.slots, values, strict=True):
            slot.sides.append(value)
        return values

    def finish(self, end: Tensor, pred: Tensor) -> None:
        """Computes the results."""
        for n, number in enumerate(self.numbers):
            number.result = markers.branch_number(end, n).item()
            graph.bound(number.result, [number.then, number.orelse])
            self._between(number.result, number.then, number.orelse)
        for n, slot in enumerate(self.slots):
            a, b = slot.sides
            sizes = []
            for dim, (x, y) in enumerate(zip(a.shape, b.shape, strict=True)):
                if equal_sizes(x, y):
                    sizes.append(x)
                    continue
                one = self._of_both(x, y)
                if one is not None:
                    sizes.append(one)
                    continue
                size = markers.branch_size(end, n, dim).item()
                graph.bound(size, [x, y], size=True)
                sizes.append(size)
            slot.result = markers.branch_result(end, a, sizes, n)
            for outer, holds in zip(slot.outside, (True, False), strict=True):
                if outer is not None:
                    share(pred, holds, outer, slot.result)

    def _of_both(self, a: Any, b: Any) -> Any:
        """The size of the result if one side's has the form of both: n rounded up, where the other's is a rounded n."""
        then, orelse = implied(self.pred)
        if self._symbols.know(a) and identities.equal(a, b, orelse):
            return a
        return b if self._symbols.know(b) and identities.equal(a, b, then) else None

    def _between(self, number: Any, a: Any, b: Any) -> None:
        """Notes which side's number is the larger one, where that is known."""
        if not self._symbols.know(a) or not self._symbols.know(b):
            return
        if known_truth(a >= b) is not True:
            a, b = b, a
        if known_truth(a >= b) is True:
            torch._check(number <= a)
            torch._check(number >= b)
            graph.widen(number, [a, b])


def _zero(value: Any) -> Any:
    return False if is_bool(value) else 0 if is_int(value) else 0.0


def _alike(value: Any, whole: Any) -> bool:
    return isinstance(value, Undefined) or type(value) is type(whole)


def _equal(a: Any, b: Any) -> bool:
    try:
        return type(a) is type(b) and bool(a == b)
    except Exception:
        return False


# -- branches ----------------------------------------------------------------------------------------------


@dataclass
class _Side:
    """The results of one side."""

    values: tuple[Any, ...]
    changes: list[Change]
    copies: list[tuple[Tensor, Tensor]]
    raised: BaseException | None
    """The exception that stopped it: an error of the user's code, or a call without a known result yet."""
    region: Region
    facts: tuple[Any, ...]
    """The conditions that are true there."""

    def parts(self, value: Any) -> dict[Any, Any] | None:
        """The elements or attributes that a value has on this side."""
        found = parts(value)
        if found is not None:
            changes = [change for change in self.changes if change.holder is value]
            found.update({change.key: change.new for change in changes})
            gone = [change.key for change in changes if isinstance(change.new, Undefined)]
            found = {key: x for key, x in found.items() if key not in gone}
        return found


def branch(
    pred: Tensor,
    sides: Sequence[Callable[[], Any]],
    get: Callable[[], tuple[Any, ...]],
    put: Callable[[tuple[Any, ...]], Any],
    names: Sequence[str],
    site: Site,
    needed: Sequence[str],
    roots: Sequence[tuple[str, Any]],
) -> None:
    """Traces both sides of a branch on ``pred`` and sets the variables to what comes out."""
    before = get()
    heap = Heap([*zip(names, before, strict=True), *roots], apart=get.__closure__ or ())
    whole = identities.always(pred, sides, get, put, names, needed, heap)
    if whole is not None:
        whole()
        return
    full = identities.with_elements(pred, sides, get, put, names, needed, heap)
    if full is not None:
        taken, why = full
        graph.require(torch.logical_not(pred) if taken else pred, f"{why}, which alone are compiled ({site.source})")
        sides[taken]()
        return
    symbols = graph.Symbols()
    begin = markers.branch_begin(pred)

    def run(side: Callable[[], Any], token: Tensor) -> _Side:
        region = Region(lambda x: markers.branch_enter(token, x), "a side of a branch on data", site.source)
        raised: BaseException | None = None
        for fact in implied(pred)[0 if side is sides[0] else 1]:
            graph.assume(token, fact)
        facts = implied(pred)[0 if side is sides[0] else 1]
        with region, where(facts):
            try:
                side()
            except NoValue as error:
                raised = error
            except Exception as error:
                if not raised_by_user(error):
                    raise
                if any(isinstance(error, kinds()) for kinds in handlers):
                    raise site.refuse(
                        f"a side of a branch on data raises {type(error).__name__}, which a try statement around it"
                        " catches: do there what the except clause does"
                    ) from None
                raised = error
                graph.require(torch.logical_not(pred) if side is sides[0] else pred, text_of_raise(error))
            graph.keep_conditions(token)
        left = _Side(get(), heap.changes(), region.copies, raised, region, facts)
        heap.restore(left.changes)
        put(before)
        return left

    then = run(sides[0], begin)
    else_ = graph.Placeholder(begin)
    orelse = run(sides[1], else_.token)
    if then.raised is not None and orelse.raised is not None:
        raise then.raised
    merge = _Merge(site, pred, symbols, heap, then, orelse)
    # Neither the results of the then side nor what has the same size on both sides depends on the conditions of the
    # else side, where an extent may be known to be 1.
    graph.forget_facts(else_.token)
    put_later, store_later, fill_later = _plan(merge, then, orelse, before, names, needed)
    copies = _copies(merge, then, orelse)
    else_.fill(lambda: _with_entered(merge.then(), then))
    values, entered, numbers = _with_entered(merge.orelse(), orelse)
    end = markers.branch_end(else_.token, values, entered, numbers)
    merge.finish(end, pred)
    for outer, result in copies:
        outer.copy_(result())
    put(tuple(plan() for plan in put_later))
    store((holder, key, plan()) for holder, key, plan in store_later)
    for holder, fill in fill_later:
        holder[:] = fill()


def _with_entered(given: tuple[list[Tensor], list[Any]], side: _Side) -> tuple[list[Tensor], list[Tensor], list[Any]]:
    return given[0], [inside for _, inside in side.copies], given[1]


def _plan(
    merge: _Merge, then: _Side, orelse: _Side, before: tuple[Any, ...], names: Sequence[str], needed: Sequence[str]
) -> tuple[
    list[Callable[[], Any]], list[tuple[Any, Any, Callable[[], Any]]], list[tuple[list[Any], Callable[[], list[Any]]]]
]:
    """How variables, elements of containers, and whole lists come about."""
    raised = then.raised is not None, orelse.raised is not None

    # After a side that returns from the function, nothing reads its variables.
    given = [dict(zip(names, side.values, strict=True)).get(_RETURNED) for side in (then, orelse)]
    was = dict(zip(names, before, strict=True)).get(_RETURNED)
    returns = [isinstance(was, Undefined) and not isinstance(x, Undefined) for x in given]

    def plan(name: str, old: Any, a: Any, b: Any) -> Callable[[], Any]:
        gone = any(isinstance(x, Undefined) and left for x, left in zip((a, b), returns, strict=True))
        if any(raised):
            # Nobody comes back from that side: what it leaves is as good as any.
            a, b = (b if b is old else Undefined(name), b) if raised[0] else (a, a if a is old else Undefined(name))
        return merge.plan(a, b, name, made=any(raised) or gone or name.startswith("_disc_"))

    put: list[Callable[[], Any]] = []
    for name, old, a, b in zip(names, before, then.values, orelse.values, strict=True):
        put.append(plan(name, old, a, b) if name in needed else _nothing(name))
    stored = []
    whole: dict[int, tuple[list[Any], str]] = {}
    found = [{(id(c.holder), c.key): c for c in side.changes} for side in (then, orelse)]
    for key in {**found[0], **found[1]}:
        here = [side.get(key) for side in found]
        change = here[0] or here[1]
        assert change is not None
        values = [change.old if c is None else c.new for c in here]
        missing = [isinstance(x, Undefined) for x in values]
        if isinstance(change.holder, list) and not any(raised) and (missing[0] is not missing[1] or has_parts(values)):
            whole[id(change.holder)] = change.holder, change.name.rpartition("[")[0]
    for key in {**found[0], **found[1]}:
        here = [side.get(key) for side in found]
        change = here[0] or here[1]
        assert change is not None
        if id(change.holder) not in whole:
            values = [change.old if c is None else c.new for c in here]
            stored.append((change.holder, change.key, plan(change.name, change.old, *values)))
    filled = []
    for holder, name in whole.values():
        a, b = (list((side.parts(holder) or {}).values()) for side in (then, orelse))
        filled.append((holder, merge.lists(a, b, name)))
    return put, stored, filled


_RETURNED = "_disc_returned"


def _nothing(name: str) -> Callable[[], Any]:
    return lambda: Undefined(name)


def _copies(merge: _Merge, then: _Side, orelse: _Side) -> list[tuple[Tensor, Callable[[], Any]]]:
    """The tensors outside that are changed in place, with functions that compute their new contents."""
    inside = [{id(outer): x for outer, x in side.copies} for side in (then, orelse)]
    found = []
    for outer in {id(outer): outer for side in (then, orelse) for outer, _ in side.copies}.values():
        a, b = (side.get(id(outer), outer) for side in inside)
        found.append((outer, merge.plan(a, b, "a tensor changed in place")))
    return found
