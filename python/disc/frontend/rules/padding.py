"""Padding, flips and rolls: each element of the result is one of the input, or a constant."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from .. import scalar
from ..builder import Builder
from ..registry import lowers
from ..scalar import Elem
from ..values import Extent, Tensor, normalize_dim
from .common import loops, number, within


def _padded_dims(b: Builder, x: Tensor, pads: Sequence[Extent]) -> tuple[list[Extent], dict[int, Extent]]:
    """The extents after padding, and what each padded dim gets in front; ``pads`` begin with the last dim."""
    dims, front = list(x.dims), {}
    for i in range(len(pads) // 2):
        dim = x.rank - 1 - i
        before, after = pads[2 * i], pads[2 * i + 1]
        if before == after == 0:
            continue
        dims[dim] = b.add(b.add(dims[dim], before), after)
        front[dim] = before
    return dims, front


@lowers("torch.aten.constant_pad_nd")
def constant_pad(b: Builder, x: Tensor, pads: Sequence[Extent], value: Any = 0) -> Tensor:
    """x with ``value`` around it; negative pads cut."""
    dims, front = _padded_dims(b, x, pads)
    return _filled(b, x, b.as_exported(dims), front, pads, value)


def zero_padded(b: Builder, x: Tensor, pads: Sequence[Extent]) -> Tensor:
    """A part of another op's work: x with zeros around it; ``pads`` begin with the last dim, negative ones cut."""
    return _filled(b, x, *_padded_dims(b, x, pads), pads, 0)


def _filled(
    b: Builder, x: Tensor, dims: Sequence[Extent], front: dict[int, Extent], pads: Sequence[Extent], value: Any
) -> Tensor:
    if all(isinstance(p, int) and p <= 0 for p in pads):
        for dim, before in front.items():
            x = b.slice(x, dim, b.sub(0, before), dims[dim])
        return x

    def body() -> Elem:
        index = loops(x.rank)
        inside: Elem | None = None
        for dim, before in front.items():
            index[dim] = index[dim] - scalar.from_extent(before, torch.int64)
            here = within(index[dim], x.dims[dim])
            inside = here if inside is None else inside & here
        fill = number(0 if value is None else value)
        other = fill if isinstance(fill, (int, float)) else fill.emit().to(x.dtype)
        if inside is None:
            return b.extract(x, index)
        # The other dims are the result's: rows that are read whole stay so.
        for dim in front:
            index[dim] = scalar.select(inside, index[dim], 0)
        return scalar.select(inside, b.extract(x, index), other)

    return b.generic([], [], dims, x.dtype, body)


def _mapped(b: Builder, x: Tensor, dims: Sequence[Extent], source: dict[int, Callable[[Elem], Elem]]) -> Tensor:
    """The tensor whose elements are read from x at the indices that the functions in ``source`` return, by dim."""

    def body() -> Elem:
        index: list[Any] = loops(x.rank)
        for dim, fn in source.items():
            index[dim] = fn(index[dim])
        return b.extract(x, index)

    return b.generic([], [], dims, x.dtype, body)


_Place = Callable[[Elem, Elem], Elem]


def _pad_by(b: Builder, x: Tensor, pads: Sequence[Extent], source: _Place) -> Tensor:
    """x padded with its own elements: ``source`` maps an index and the extent to the index of the element."""
    dims, front = _padded_dims(b, x, pads)
    dims = b.as_exported(dims)

    def place(dim: int, before: Extent) -> Callable[[Elem], Elem]:
        extent = x.dims[dim]
        return lambda i: source(i - scalar.from_extent(before, torch.int64), scalar.from_extent(extent, torch.int64))

    return _mapped(b, x, dims, {dim: place(dim, before) for dim, before in front.items()})


def _reflect(i: Elem, extent: Elem) -> Elem:
    last = extent - 1
    return last - scalar.absolute(last - scalar.absolute(i))


_SOURCES: dict[str, _Place] = {
    "reflect": _reflect,
    "replicate": lambda i, extent: scalar.maximum(scalar.minimum(i, extent - 1), 0),
    "circular": scalar.remainder,
}


@lowers("torch.aten.pad")
def pad(b: Builder, x: Tensor, pads: Sequence[Extent], mode: str = "constant", value: Any = None) -> Tensor:
    """x with more elements around its last dims."""
    if mode == "constant":
        return constant_pad(b, x, pads, value)
    return _pad_by(b, x, pads, _SOURCES[mode])


def _register_pad(name: str, mode: str) -> None:
    @lowers(*(f"torch.aten.{name}_pad{n}d" for n in (1, 2, 3)))
    def rule(b: Builder, x: Tensor, pads: Sequence[Extent]) -> Tensor:
        return _pad_by(b, x, pads, _SOURCES[mode])


_register_pad("reflection", "reflect")
_register_pad("replication", "replicate")


@lowers("torch.aten.flip")
def flip(b: Builder, x: Tensor, dims: Sequence[int]) -> Tensor:
    """x backwards along ``dims``."""
    if x.rank == 0:
        return x

    def backwards(dim: int) -> Callable[[Elem], Elem]:
        last = b.sub(x.dims[dim], 1)
        return lambda i: scalar.from_extent(last, torch.int64) - i

    chosen = {normalize_dim(d, x.rank) for d in dims}
    return _mapped(b, x, x.dims, {d: backwards(d) for d in sorted(chosen)}) if chosen else x


@lowers("torch.aten.roll")
def roll(b: Builder, x: Tensor, shifts: Sequence[Extent], dims: Sequence[int] = ()) -> Tensor:
    """x moved along ``dims``, what leaves at one end entering at the other."""
    if x.rank == 0:
        return x
    if not dims:
        flat = b.reshape(x, [b.product(x.dims)])
        return b.reshape(roll(b, flat, shifts, [0]), x.dims)
    for shift, d in zip(shifts, dims, strict=True):
        dim = normalize_dim(d, x.rank)
        size = x.dims[dim]
        if isinstance(size, int) and size <= 1:
            continue
        moved = b.mod(shift, b.maximum(size, 1))
        first = b.sub(size, moved)
        x = b.concat([b.slice(x, dim, first, moved), b.slice(x, dim, 0, first)], dim)
    return x
