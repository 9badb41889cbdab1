"""Lists of tensors that differ in one size, as those that the steps of a loop append."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import torch
from torch import Tensor

from ...torch_compat.operators import pad_sequence
from .dynamic import Dynamic, from_start
from .parts import Part


class Uneven(Part):
    """Tensors that differ in the size of one dim, one behind the other along it."""

    differs = True

    def __init__(self, flat: Tensor, lengths: Tensor, dim: int) -> None:
        """``flat``: all of them along dim 0, where each has its dim ``dim``; ``lengths``: int64, one for each."""
        self.flat, self.lengths, self.dim = flat, lengths, dim

    @property
    def count(self) -> Any:
        """The number of tensors that it stands for."""
        return self.lengths.shape[0]

    def sequence(self) -> Dynamic:
        """To iterate over."""
        starts = self._starts()
        return Dynamic(self.count, lambda number: self._at(starts, number))

    def pick(self, index: Any) -> Tensor:
        """One of the tensors; a negative index counts from the last."""
        return self._at(self._starts(), from_start(index, self.count))

    def joined(self, dim: int) -> Tensor:
        """``torch.cat`` of the tensors."""
        if dim % self.flat.dim() != self.dim:
            raise NotImplementedError(
                f"the tensors of a list differ in dim {self.dim}, and torch.cat joins them along dim {dim}"
            )
        return self.flat.movedim(0, self.dim)

    def padded(self, batch_first: bool, value: float, side: str) -> Tensor:
        """``pad_sequence`` of the tensors."""
        if self.dim:
            raise NotImplementedError(f"pad_sequence() of tensors that differ in dim {self.dim}")
        longest = self.lengths.max().item()
        torch._check(longest >= 0)
        place = torch.arange(longest) - (0 if side == "right" else longest - self.lengths.unsqueeze(1))
        there = (place >= 0) & (place < self.lengths.unsqueeze(1))
        # One more row, for the places without an element.
        blank = self.flat.new_full([1, *self.flat.shape[1:]], value)
        source = torch.cat([self.flat, blank])
        at = torch.where(there, place + self._starts().unsqueeze(1), self.flat.shape[0])
        result = source[at]
        return result if batch_first else result.transpose(0, 1)

    def stacked(self) -> NoReturn:
        """``torch.stack`` of the tensors."""
        raise NotImplementedError(f"torch.stack() of tensors that differ in dim {self.dim}; pad them")

    def table(self) -> NoReturn:
        """``torch.tensor`` of the tensors."""
        raise NotImplementedError("torch.tensor() of a list of tensors with dims; stack them")

    def turned(self) -> Uneven:
        """The same, the last first."""
        count, total = self.lengths.shape[0], self.flat.shape[0]
        lengths = self.lengths.flip(0)
        number = torch.repeat_interleave(torch.arange(count), lengths, output_size=total)
        moved = self._starts().flip(0) - (lengths.cumsum(0) - lengths)
        return Uneven(self.flat.index_select(0, torch.arange(total) + moved[number]), lengths, self.dim)

    def part(self, index: slice) -> Uneven:
        """A slice of the tensors."""
        if index.step not in (None, 1):
            raise NotImplementedError(
                "every n-th of a list of a length that depends on data, of tensors of other sizes"
            )
        lengths = self.lengths[index]
        before: Any = 0 if index.start is None else self.lengths[: index.start].sum().item()
        total: Any = lengths.sum().item()
        torch._check(before >= 0)
        torch._check(total >= 0)
        torch._check(before + total <= self.flat.shape[0])
        return Uneven(self.flat.narrow(0, before, total), lengths, self.dim)

    def whole(self, values: Sequence[Any]) -> Uneven:
        """All elements of a list that it is in."""
        if not can_follow(values, self.dim):
            raise NotImplementedError("a list of tensors of different sizes that also has elements of another kind")
        return Uneven(flat_of(values, self.dim), lengths_of(values, self.dim), self.dim)

    def _starts(self) -> Tensor:
        return self.lengths.cumsum(0) - self.lengths

    def _at(self, starts: Tensor, number: Any) -> Tensor:
        start: Any
        length: Any
        start, length = (x.select(0, number).item() for x in (starts, self.lengths))
        torch._check(start >= 0)
        torch._check(length >= 0)
        torch._check(start + length <= self.flat.shape[0])
        return self.flat.narrow(0, start, length).movedim(0, self.dim)


def flat_of(values: Sequence[Any], dim: int) -> Tensor:
    """Tensors, or lists of them, one behind the other along ``dim``, which becomes dim 0."""
    parts = [x.flat if isinstance(x, Uneven) else x.movedim(dim, 0) for x in values]
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def lengths_of(values: Sequence[Any], dim: int) -> Tensor:
    """The sizes of tensors, or lists of them, along ``dim``."""
    parts = [
        x.lengths if isinstance(x, Uneven) else torch.scalar_tensor(x.shape[dim], dtype=torch.int64).reshape(1)
        for x in values
    ]
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def can_follow(values: Sequence[Any], dim: int) -> bool:
    """Whether each value is a tensor, or a list of them, that can follow the others along ``dim``."""
    kinds = {
        (x.flat.dtype, x.flat.dim(), x.dim) if isinstance(x, Uneven) else (x.dtype, x.dim(), dim)
        for x in values
        if isinstance(x, (Uneven, Tensor))
    }
    return len(kinds) == 1 and all(isinstance(x, (Uneven, Tensor)) for x in values)


class Along:
    """How such a list is stored: all tensors along the dim in which they differ, and their sizes there."""

    def __init__(self, dim: int, rest: Sequence[Any], dtype: torch.dtype) -> None:
        """``rest``: the sizes of the other dims."""
        self.dim, self.extents, self.dtype = dim, list(rest), dtype

    def flat(self, values: Sequence[Any]) -> Tensor:
        """All tensors, one behind the other."""
        return flat_of(values, self.dim) if values else torch.zeros([0, *self.extents], dtype=self.dtype)

    def sizes(self, values: Sequence[Any]) -> Tensor:
        """The sizes that differ."""
        return lengths_of(values, self.dim) if values else torch.zeros(0, dtype=torch.int64)

    def can_follow(self, values: Sequence[Any]) -> bool:
        """Whether all values can be in such a list."""
        return can_follow(values, self.dim)

    def part(self, flat: Tensor, sizes: Tensor) -> Uneven:
        """The list."""
        return Uneven(flat, sizes, self.dim)


def _padded(
    sequences: Sequence[Any], batch_first: bool = False, padding_value: float = 0.0, padding_side: str = "right"
) -> Tensor:
    uneven = next((x for x in sequences if isinstance(x, Uneven)), None)
    if uneven is None:
        raise NotImplementedError("pad_sequence() of a list whose length depends on data, of tensors of one size")
    return uneven.whole(sequences).padded(batch_first, padding_value, padding_side)


Part.joins[pad_sequence] = _padded
