"""Branches on extents of which one side does what, where the other one is taken, would do nothing.

``if x.shape[0] != n: x = x.expand(n, -1)`` may expand always. That keeps what is known of shapes, and costs no branch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import sympy
import torch
from torch import Tensor

from . import graph
from .conditions import implied
from .region import NoValue, Region, storage_of
from .state import Heap


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
        facts = [fact for fact in implied(pred)[1 - side] if isinstance(fact, sympy.Eq)]
        if not facts:
            continue
        before = get()
        other, this = (_left(sides[n], get, put, heap) for n in (1 - side, side))
        if other is None or this is None or any(a is not b for a, b in zip(other, before, strict=True)):
            continue
        pairs = [pair for name, *pair in zip(names, before, this, strict=True) if name in needed]
        if all(a is b or _is_same(a, b, facts) for a, b in pairs):
            return sides[side]
    return None


def _left(
    side: Callable[[], Any], get: Callable[[], tuple[Any, ...]], put: Callable[[tuple[Any, ...]], Any], heap: Heap
) -> tuple[Any, ...] | None:
    """What a side leaves in the variables, if it does nothing else."""
    before = get()
    with graph.tried():
        region = Region(torch.clone, "a side of a branch", None)
        try:
            with region:
                side()
        except (Exception, NoValue):
            after = None
        else:
            after = get()
        changes = heap.changes()
        heap.restore(changes)
        put(before)
    return None if changes or region.copies else after


def equal(a: Any, b: Any, facts: Sequence[Any]) -> bool:
    """Whether two numbers are the same where the facts hold."""
    return bool(_expression(a, facts) == _expression(b, facts))


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
