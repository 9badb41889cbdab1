"""Lists of tensors that differ in several sizes, as images of their own heights and widths."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NoReturn

import torch
from torch import Tensor

from .conditions import equal_sizes
from .dynamic import Dynamic, from_start
from .parts import Part
from .uneven import Uneven


class Ragged(Part):
    """Tensors that differ in some of their sizes: their elements, one tensor behind the other, and these sizes."""

    differs = True

    def __init__(self, flat: Tensor, sizes: Tensor, shape: Sequence[Any]) -> None:
        """``flat``: [elements]; ``sizes``: int64 [n, those that differ]; ``shape``: None for each size that differs."""
        self.flat, self.sizes, self.shape = flat, sizes, tuple(shape)

    @property
    def count(self) -> Any:
        """The number of tensors that it stands for."""
        return self.sizes.shape[0]

    def sequence(self) -> Dynamic:
        """To iterate over."""
        starts = self._starts()
        return Dynamic(self.count, lambda number: self._at(starts, number))

    def pick(self, index: Any) -> Tensor:
        """One of the tensors; a negative index counts from the last."""
        return self._at(self._starts(), from_start(index, self.count))

    def joined(self, dim: int) -> NoReturn:
        """``torch.cat`` of the tensors."""
        self._only_one_by_one(f"torch.cat() along dim {dim}")

    def stacked(self) -> NoReturn:
        """``torch.stack`` of the tensors."""
        self._only_one_by_one("torch.stack()")

    def table(self) -> NoReturn:
        """``torch.tensor`` of the tensors."""
        self._only_one_by_one("torch.tensor()")

    def _only_one_by_one(self, name: str) -> NoReturn:
        raise NotImplementedError(f"{name} of a list of tensors that differ in several sizes; flatten them first")

    def turned(self) -> Ragged:
        """The same, the last first."""
        return Ragged(self._elements().turned().flat, self.sizes.flip(0), self.shape)

    def part(self, index: slice) -> Ragged:
        """A slice of the tensors."""
        return Ragged(self._elements().part(index).flat, self.sizes[index], self.shape)

    def whole(self, values: Sequence[Any]) -> Ragged:
        """All elements of a list that it is in."""
        if not can_follow(values, self.shape):
            raise NotImplementedError("a list of tensors of different sizes that also has elements of another kind")
        return Ragged(flat_of(values), sizes_of(values, self.shape), self.shape)

    def _elements(self) -> Uneven:
        return Uneven(self.flat, self._lengths(), 0)

    def _lengths(self) -> Tensor:
        """The number of elements of each tensor."""
        return self.sizes.prod(1) * math.prod(size for size in self.shape if size is not None)

    def _starts(self) -> Tensor:
        lengths = self._lengths()
        return lengths.cumsum(0) - lengths

    def _at(self, starts: Tensor, number: Any) -> Tensor:
        start: Any = starts.select(0, number).item()
        sizes = iter(self.sizes.select(0, number).unbind())
        shape: list[Any] = [next(sizes).item() if size is None else size for size in self.shape]
        length = math.prod(shape)
        torch._check(start >= 0)
        for size in shape:
            torch._check(size >= 0)
        torch._check(start + length <= self.flat.shape[0])
        return self.flat.narrow(0, start, length).reshape(shape)


def flat_of(values: Sequence[Any]) -> Tensor:
    """The elements of tensors, or of lists of them, one behind the other."""
    parts = [x.flat if isinstance(x, Ragged) else x.flatten() for x in values]
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def sizes_of(values: Sequence[Any], shape: Sequence[Any]) -> Tensor:
    """The sizes of tensors, or of lists of them, that are None in ``shape``."""
    dims = [dim for dim, size in enumerate(shape) if size is None]
    parts = [
        x.sizes
        if isinstance(x, Ragged)
        else torch.stack([torch.scalar_tensor(x.shape[dim], dtype=torch.int64) for dim in dims]).unsqueeze(0)
        for x in values
    ]
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def can_follow(values: Sequence[Any], shape: Sequence[Any]) -> bool:
    """Whether each value is a tensor, or a list of them, of this shape but for the sizes that are None in it."""
    if not all(isinstance(x, (Ragged, Tensor)) for x in values):
        return False
    flat = [x.flat if isinstance(x, Ragged) else x for x in values]
    shapes = [x.shape for x in values]
    return len({x.dtype for x in flat}) == 1 and all(
        len(other) == len(shape)
        and all(size is None or (n is not None and equal_sizes(n, size)) for n, size in zip(other, shape, strict=True))
        for other in shapes
    )


class Shapes:
    """How such a list is stored: the sizes of each tensor beside the elements of all."""

    def __init__(self, shape: Sequence[Any], dtype: torch.dtype) -> None:
        """``shape``: None for each size that differs."""
        self.shape, self.dtype = tuple(shape), dtype

    @property
    def extents(self) -> list[Any]:
        """The sizes that all tensors have."""
        return [size for size in self.shape if size is not None]

    def flat(self, values: Sequence[Any]) -> Tensor:
        """The elements of all tensors."""
        return flat_of(values) if values else torch.zeros(0, dtype=self.dtype)

    def sizes(self, values: Sequence[Any]) -> Tensor:
        """The sizes that differ."""
        count = self.shape.count(None)
        return sizes_of(values, self.shape) if values else torch.zeros([0, count], dtype=torch.int64)

    def can_follow(self, values: Sequence[Any]) -> bool:
        """Whether all values can be in such a list."""
        return can_follow(values, self.shape)

    def part(self, flat: Tensor, sizes: Tensor) -> Ragged:
        """The list."""
        return Ragged(flat, sizes, self.shape)
