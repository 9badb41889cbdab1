"""Lists of tuples, as those that the steps of a loop append: one column of rows for each value of a tuple."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from . import graph
from .conditions import equal_sizes, number_tensor
from .dynamic import Dynamic, Maybe, Steps, is_row, kind_of, row_of, row_type
from .parts import Part
from .state import note_copy


class Tuples(Part):
    """Tuples of tensors and numbers that have one structure."""

    differs = True

    def __init__(self, columns: Sequence[Tensor], present: Tensor | None, kinds: Any) -> None:
        """``columns``: [n, ...] for each value, in order; ``present``: bool [n]; ``kinds``: a tuple of types."""
        self.columns, self.present, self.kinds = tuple(columns), present, kinds

    @staticmethod
    def of(value: Any) -> Tuples:
        """An entry of a list as such a part."""
        if isinstance(value, Tuples):
            return value
        element, present = (value.element, value.pred.reshape(1)) if isinstance(value, Maybe) else (value, None)
        return Tuples([row_of(x).unsqueeze(0) for x in _leaves(element)], present, kinds_of(value))

    @property
    def count(self) -> Any:
        """The number of tuples that it stands for."""
        return self._steps()[0].count

    def sequence(self) -> Dynamic:
        """To iterate over."""
        steps = self._steps()
        rows = [x.rows for x in steps]

        def at(number: Any) -> Any:
            return _made(self.kinds, (x.element(row, number) for x, row in zip(steps, rows, strict=True)))

        return Dynamic(rows[0].shape[0], at)

    def pick(self, index: Any) -> Any:
        """One of the tuples; a negative index counts from the last."""
        return _made(self.kinds, (x.pick(index) for x in self._steps()))

    def turned(self) -> Tuples:
        """The same, the last first."""
        present = None if self.present is None else self.present.flip(0)
        return Tuples([x.flip(0) for x in self.columns], present, self.kinds)

    def part(self, index: slice) -> Tuples:
        """A slice of them."""
        return Tuples([x.rows[index] for x in self._steps()], None, self.kinds)

    def whole(self, values: Sequence[Any]) -> Tuples:
        """All elements of a list that it is in."""
        if not can_follow(values):
            raise NotImplementedError("a list of tuples of which some have another structure, or other shapes")
        parts = [Tuples.of(x) for x in values]
        columns = [join([p._steps()[n].rows for p in parts]) for n in range(len(self.columns))]
        return Tuples(columns, None, self.kinds)

    def table(self) -> Steps:
        """The tuples as rows, if they contain numbers of one type only."""
        kinds = set(_leaves(self.kinds))
        if len(kinds) != 1 or Tensor in kinds or any(isinstance(x, tuple) for x in self.kinds):
            raise NotImplementedError("torch.tensor() of a list of tuples that are not numbers of one type")
        table = torch.stack([x.rows for x in self._steps()], 1)
        # PyTorch makes a tensor of one dim, and of another dtype, of an empty list.
        some = number_tensor(table.shape[0] >= 1, torch.bool)
        graph.require(some, "ValueError: torch.tensor() of a list of tuples that is empty")
        return Steps(table, kind=kinds.pop())

    def _steps(self) -> list[Steps]:
        kinds = _leaves(self.kinds)
        return [Steps(x, self.present, kind) for x, kind in zip(self.columns, kinds, strict=True)]


def join(parts: Sequence[Tensor]) -> Tensor:
    """Rows one behind the other."""
    return parts[0] if len(parts) == 1 else note_copy(torch.cat(list(parts)))


def can_follow(values: Sequence[Any]) -> bool:
    """Whether all entries of a list are tuples of one structure, of values of one kind and shape."""
    kinds = [kinds_of(x) for x in values]
    if not kinds or not isinstance(kinds[0], tuple) or not all(_equal(kinds[0], x) for x in kinds[1:]):
        return False
    first, *others = map(_row_types, values)
    return all(
        dtype == other_dtype and len(shape) == len(other_shape) and all(map(equal_sizes, shape, other_shape))
        for other in others
        for (shape, dtype), (other_shape, other_dtype) in zip(first, other, strict=True)
    )


def kinds_of(value: Any) -> Any:
    """The type of a value, as a tuple of types for a tuple; None if it cannot be a row."""
    if isinstance(value, Tuples):
        return value.kinds
    if isinstance(value, Maybe):
        return kinds_of(value.element)
    if isinstance(value, tuple):
        kinds = [kinds_of(x) for x in value]
        return None if not kinds or None in kinds else _made(value, iter(_leaves(tuple(kinds))))
    return kind_of(value) if is_row(value) and not isinstance(value, Part) else None


def _row_types(value: Any) -> list[tuple[Sequence[Any], torch.dtype]]:
    if isinstance(value, Tuples):
        return [(x.shape[1:], x.dtype) for x in value.columns]
    return list(map(row_type, _leaves(value.element if isinstance(value, Maybe) else value)))


def _leaves(value: Any) -> list[Any]:
    """The values of nested tuples in order."""
    return [leaf for x in value for leaf in _leaves(x)] if isinstance(value, tuple) else [value]


def _equal(a: Any, b: Any) -> bool:
    if not isinstance(a, tuple) or not isinstance(b, tuple):
        return a is b
    return type(a) is type(b) and len(a) == len(b) and all(map(_equal, a, b))


def _made(like: Any, values: Iterator[Any]) -> Any:
    """A tuple of the same structure with other values."""
    if not isinstance(like, tuple):
        return next(values)
    made = [_made(x, values) for x in like]
    return type(like)(*made) if hasattr(like, "_fields") else type(like)(made)
