"""Branches on extents of which one side may be taken always.

``if x.shape[0] != n: x = x.expand(n, -1)`` may expand always, since that does nothing where the extents are equal. That
keeps what is known of shapes, and costs no branch. So may ``if padding > 0: x = x[:, :n]``, where ``padding`` is 0 for
lengths that need none.

``if n > 0: x = x.reshape(n, -1, 4)`` leaves another rank where ``n`` is 0. No compiled model has both; the rank without
elements is an error at run time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import sympy
import torch
from torch import Tensor

from ..proving import follows
from . import graph
from .conditions import Zero, implied
from .region import NoValue, Region, storage_of
from .state import Heap

_trials: list[Any] = []
"""The sides that are being tried."""


def always(
    pred: Tensor,
    sides: Sequence[Callable[[], Any]],
    get: Callable[[], tuple[Any, ...]],
    put: Callable[[tuple[Any, ...]], Any],
    names: Sequence[str],
    needed: Sequence[str],
    heap: Heap,
) -> Callable[[], Any] | None:
    """The side that may be taken whatever ``pred`` is; None if there is none."""
    for side in (0, 1):
        # What holds where the other side is taken.
        facts = implied(pred)[1 - side]
        # Each trial traces a side once more: inside of one only those that are most likely to succeed are made.
        if not facts or (_trials and not any(isinstance(fact, sympy.Eq) for fact in facts)):
            continue
        before = get()
        other = _left(sides[1 - side], get, put, heap, facts)
        if other is None or any(a is not b for a, b in zip(other, before, strict=True)):
            continue
        this = _left(sides[side], get, put, heap, implied(pred)[side])
        if this is None:
            continue
        pairs = [pair for name, *pair in zip(names, before, this, strict=True) if name in needed]
        if all(a is b or _is_same(a, b, facts) for a, b in pairs):
            return sides[side]
    return None


def with_elements(
    pred: Tensor,
    sides: Sequence[Callable[[], Any]],
    get: Callable[[], tuple[Any, ...]],
    put: Callable[[tuple[Any, ...]], Any],
    names: Sequence[str],
    needed: Sequence[str],
    heap: Heap,
) -> tuple[int, str] | None:
    """Which side may be taken because the other one leaves a tensor without elements and of another rank; and why."""
    for side in (0, 1):
        facts = [fact for fact in implied(pred)[1 - side] if _zeros(fact)]
        if not facts:
            continue
        other, this = (_left(sides[n], get, put, heap, implied(pred)[n]) for n in (1 - side, side))
        if other is None or this is None:
            continue
        for name, a, b in zip(names, other, this, strict=True):
            if name not in needed or not isinstance(a, Tensor) or not isinstance(b, Tensor) or a.dim() == b.dim():
                continue
            if a.dtype == b.dtype and any(_is_zero(size, facts) for size in a.shape):
                return side, f"{name} has {a.dim()} dims where it has no elements, and {b.dim()} dims elsewhere"
    return None


def _zeros(fact: Any) -> list[Any]:
    """The expressions that are 0 where a fact holds."""
    if isinstance(fact, Zero):
        return _terms(fact.expr)
    if isinstance(fact, (sympy.Le, sympy.Ge)):
        low, high = fact.args if isinstance(fact, sympy.Ge) else reversed(fact.args)
        if low == 0 and _is_never_negative(high):
            return _terms(high)
    return [a for a, b in (fact.args, fact.args[::-1]) if b == 0] if isinstance(fact, sympy.Eq) else []


def _terms(zero: Any) -> list[Any]:
    """What is 0 where an expression is: of a sum of extents each one."""
    terms = sympy.Add.make_args(zero)
    return list(terms) if all(_is_never_negative(term) for term in terms) else [zero]


def _is_never_negative(expr: Any) -> bool:
    if expr.is_number:
        return bool(expr >= 0)
    low, _ = graph.bounds([graph.environment().create_symintnode(expr, hint=None)])
    return low is not None and low >= 0


def _is_zero(size: Any, facts: Sequence[Any]) -> bool:
    expr = size.node.expr if isinstance(size, torch.SymInt) else sympy.Integer(size)
    return bool(expr.subs({zero: 0 for fact in facts for zero in _zeros(fact)}) == 0)


def _left(
    side: Callable[[], Any],
    get: Callable[[], tuple[Any, ...]],
    put: Callable[[tuple[Any, ...]], Any],
    heap: Heap,
    holding: Sequence[Any],
) -> tuple[Any, ...] | None:
    """What a side leaves in the variables, if it does nothing else; ``holding`` is what holds there."""
    before = get()
    with graph.tried(holding):
        region = Region(torch.clone, "a side of a branch", None)
        _trials.append(side)
        try:
            with region:
                side()
        except (Exception, NoValue):
            after = None
        else:
            after = get()
        finally:
            _trials.pop()
        changes = heap.changes()
        heap.restore(changes)
        put(before)
    return None if changes or region.copies or region.checks else after


def equal(a: Any, b: Any, facts: Sequence[Any]) -> bool:
    """Whether two numbers are the same where the facts hold."""
    sides = [_expression(x, facts) for x in (a, b)]
    if sides[0] == sides[1]:
        return True
    difference = sympy.Eq(*sides)
    return not isinstance(difference, sympy.logic.boolalg.BooleanAtom) and follows(
        graph.environment(), facts, difference
    )


def _expression(value: Any, facts: Sequence[Any]) -> Any:
    equalities = [fact.args for fact in facts if isinstance(fact, sympy.Eq)]
    known = {a: b for x, y in equalities for a, b in ((x, y), (y, x)) if a.is_Symbol}
    return (value.node.expr if isinstance(value, torch.SymInt) else sympy.Integer(value)).subs(known)


def _is_same(before: Any, after: Any, facts: Sequence[Any]) -> bool:
    """Whether a tensor is a view of another one that is, where the facts hold, the same."""
    if not isinstance(before, Tensor) or not isinstance(after, Tensor):
        return False
    if before.dtype != after.dtype or before.dim() != after.dim() or storage_of(before) != storage_of(after):
        return False
    return equal(before.storage_offset(), after.storage_offset(), facts) and all(
        equal(a, b, facts) and (equal(a, 1, facts) or equal(c, d, facts))
        for a, b, c, d in zip(before.shape, after.shape, before.stride(), after.stride(), strict=True)
    )
