"""Lists that are of other lengths after the two sides of a branch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from .dynamic import Front, Maybe, Steps, can_join, is_filled_in_front, kind_of, row_of, row_type, whole_of
from .parts import Part
from .region import Region
from .state import Undefined

_Plan = Callable[[], Any]


class Merge(Protocol):
    """Merges the results of two sides, one value at a time."""

    pred: Tensor
    regions: tuple[Region, Region]

    def plan(self, a: Any, b: Any, name: str, made: bool = False) -> _Plan:
        """A function that computes the merged value later."""

    def tensors(self, then: Callable[[], Tensor], orelse: Callable[[], Tensor]) -> _Plan:
        """A function that returns the merged tensor of the two sides."""

    def known(self, size: Any) -> bool:
        """Whether an extent is known before the branch."""


def merged(merge: Merge, a: Sequence[Any], b: Sequence[Any], name: str) -> Callable[[], list[Any]] | None:
    """A function that returns the list that is ``a`` after one side and ``b`` after the other; None if impossible.

    Elements of one kind and shape become rows, of which those of the side that was taken are there; others are there
    each by itself, on a condition.
    """
    same = 0
    while same < min(len(a), len(b)) and a[same] is b[same]:
        same += 1
    head, tails = a[:same], (a[same:], b[same:])
    if any(map(is_filled_in_front, tails)):
        # A step of a loop inserts at the front, on one side or both.
        if not all(isinstance(tail[0], Front) for tail in tails if tail):
            return None
        head, tails = [*head, Front()], tuple(tail[1:] for tail in tails)  # type: ignore[assignment]
    both = [*tails[0], *tails[1]]
    if len(tails[0]) == len(tails[1]) and not any(isinstance(x, Part) for x in both):
        plans = [merge.plan(x, y, f"{name}[{same + n}]") for n, (x, y) in enumerate(zip(*tails, strict=True))]
        return lambda: [*head, *(plan() for plan in plans)]
    if can_join(both):
        rows = _rows(merge, tails)
        return lambda: [*head, rows()]
    if any(isinstance(x, Part) and not isinstance(x, Maybe) for x in both):
        return None
    found = [_optional(merge, x, name, side) for side in (0, 1) for x in tails[side]]
    return lambda: [*head, *(one() for one in found)]


def _optional(merge: Merge, value: Any, name: str, side: int) -> Callable[[], Maybe]:
    nothing = Undefined(name)
    element = value.element if isinstance(value, Maybe) else value
    sides = (element, nothing) if side == 0 else (nothing, element)
    plan = merge.plan(sides[0], sides[1], f"an element of {name}", made=True)
    if not isinstance(value, Maybe):
        return lambda: Maybe(plan(), merge.pred if side == 0 else torch.logical_not(merge.pred))
    never = torch.zeros((), dtype=torch.bool)
    pred = merge.tensors(*((lambda: value.pred, lambda: never) if side == 0 else (lambda: never, lambda: value.pred)))
    return lambda: Maybe(plan(), pred())


def _rows(merge: Merge, tails: tuple[Sequence[Any], Sequence[Any]]) -> Callable[[], Steps]:
    like = (tails[0] or tails[1])[0]
    kind = kind_of(like)
    shape, dtype = row_type(like)
    sizes = [size if merge.known(size) else 0 for size in shape]
    counts = [[x.all.shape[0] if isinstance(x, Steps) else 1 for x in tail] for tail in tails]

    def all_of(side: int) -> list[Tensor]:
        now = merge.regions[side].now
        return [now(x.all) if isinstance(x, Steps) else now(row_of(x)).unsqueeze(0) for x in tails[side]]

    def zeros(count: int) -> Tensor:
        return torch.zeros([count, *sizes], dtype=dtype)

    if not all(isinstance(n, int) for count in counts for n in count):
        # As many as there are on the side that is taken.
        found = merge.tensors(*(lambda tail=tail: whole_of(tail).rows if tail else zeros(0) for tail in tails))  # type: ignore[misc]
        return lambda: Steps(found(), kind=kind)
    most = max(map(sum, counts))

    def padded(side: int) -> Tensor:
        missing = most - sum(counts[side])
        given = all_of(side)
        if missing:
            some = torch.zeros_like(given[0][:1]).expand(missing, *given[0].shape[1:]) if given else zeros(missing)
            given.append(some)
        return torch.cat(given)

    def present(side: int) -> Tensor:
        flags = [
            x.present if isinstance(x, Steps) and x.present is not None else torch.ones(n, dtype=torch.bool)
            for x, n in zip(tails[side], counts[side], strict=True)
        ]
        return torch.cat([*flags, torch.zeros(most - sum(counts[side]), dtype=torch.bool)])

    rows = merge.tensors(lambda: padded(0), lambda: padded(1))
    there = merge.tensors(lambda: present(0), lambda: present(1))
    return lambda: Steps(rows(), there(), kind)
