"""What loops over a dynamic number of steps run over: ranges, rows of tensors, what earlier loops appended."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from .conditions import known_truth


def is_dynamic(value: Any) -> bool:
    """Whether a number is known at run time only."""
    return isinstance(value, torch.SymInt) and value.node.maybe_as_int() is None


class Dynamic:
    """A sequence whose length is known at run time only."""

    def __init__(self, count: Any, at: Callable[[Any], Any]) -> None:
        """``count`` is the length, ``at`` gives the element of a number."""
        self.count, self.at = count, at

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            raise NotImplementedError("a slice of a sequence of dynamic length")
        return self.at(index if known_truth(index >= 0) else self.count + index)

    def __reversed__(self) -> Dynamic:
        return Dynamic(self.count, lambda n: self.at(self.count - 1 - n))

    def __iter__(self) -> Any:
        raise NotImplementedError("a sequence of dynamic length can be iterated over by a for statement alone")


def dynamic_range(*args: Any) -> Dynamic:
    """``range`` of numbers of which some are dynamic."""
    start, stop, step = (0, args[0], 1) if len(args) == 1 else (*args, 1)[:3]
    if is_dynamic(step):
        raise NotImplementedError("a range whose step is dynamic")
    if step == 0:
        raise ValueError("range() arg 3 must not be zero")
    room = stop - start if step > 0 else start - stop
    if known_truth(room >= 0) is not True:
        room = torch.scalar_tensor(room, dtype=torch.int64).clamp(min=0).item()
        torch._check(room >= 0)
    return Dynamic((room + abs(step) - 1) // abs(step), lambda n: start + n * step)


def sequence_of(value: Any) -> Dynamic | None:
    """What stands for a value that is iterated over; None if Python may do that."""
    if isinstance(value, Dynamic):
        return value
    if isinstance(value, Tensor) and value.dim() > 0 and is_dynamic(value.shape[0]):
        return Dynamic(value.shape[0], lambda n: value.select(0, n))
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], Steps):
        return value[0].sequence()
    return None


def joint(values: Sequence[Any]) -> Dynamic | None:
    """``zip`` of sequences of which some are dynamic."""
    found = [sequence_of(value) for value in values]
    if all(x is None for x in found):
        return None
    known = [x if x is not None else _listed(value) for x, value in zip(found, values, strict=True)]
    count = known[0].count
    for x in known[1:]:
        if known_truth(x.count == count) is not True:
            count = torch.sym_min(count, x.count)
    return Dynamic(count, lambda n: tuple(x.at(n) for x in known))


def _listed(value: Any) -> Dynamic:
    if isinstance(value, (range, Tensor)):
        return Dynamic(len(value), lambda n: value.start + n * value.step if isinstance(value, range) else value[n])
    raise NotImplementedError("a list beside a sequence of dynamic length in zip()")


class Steps:
    """What the steps of a loop appended to a list, as one element of it."""

    def __init__(self, stacks: Sequence[Tensor]) -> None:
        """``stacks``: of each tensor that a step appends, those of all steps."""
        self._stacks = stacks

    @property
    def count(self) -> Any:
        """How many elements it stands for."""
        return self._stacks[0].shape[0] * len(self._stacks)

    @property
    def rows(self) -> Tensor:
        """All of them along a new first dim."""
        return self._stacks[0] if len(self._stacks) == 1 else torch.stack(list(self._stacks), 1).flatten(0, 1)

    def sequence(self) -> Dynamic:
        """To iterate over."""
        rows = self.rows
        return Dynamic(rows.shape[0], lambda n: rows.select(0, n))

    @classmethod
    def __torch_function__(cls, func: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Joins what a list with steps in it holds."""
        join = {torch.stack: _stacked, torch.cat: _joined, torch.concat: _joined, torch.concatenate: _joined}.get(func)
        if join is None:
            raise NotImplementedError(
                "what a loop over a dynamic range appends to a list can be stacked or concatenated"
            )
        return join(*args, **(kwargs or {}))


def _stacked(tensors: Sequence[Any], dim: int = 0) -> Tensor:
    parts = [t.rows if isinstance(t, Steps) else t.unsqueeze(0) for t in tensors]
    # A copy, as Python's is: the list still has the tensors that were appended.
    whole = parts[0].clone() if len(parts) == 1 else torch.cat(parts)
    return whole.movedim(0, dim)


def _joined(tensors: Sequence[Any], dim: int = 0, **named: Any) -> Tensor:
    dim = named.get("axis", dim)

    def part(t: Any) -> Tensor:
        if not isinstance(t, Steps):
            return t  # type: ignore[no-any-return]
        at = dim % (t.rows.dim() - 1)
        return t.rows.movedim(0, at).flatten(at, at + 1)

    return torch.cat([part(t) for t in tensors], dim)
