"""Ops that only look at a tensor differently: views, slices, joins."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import sympy
import torch
from torch_mlir import ir

from .. import locations, scalar
from ..builder import Builder
from ..registry import NotLowerable, lowers
from ..scalar import Elem
from ..values import Extent, RuntimeNumber, Tensor, is_one, normalize_dim
from .common import loops, signed_number

_MOST_TRIED = 4
"""Lengths that depend on more symbols are not tried."""


@lowers("torch.aten.view", "torch.aten.reshape", "torch.aten._unsafe_view", "torch.aten._reshape_alias")
def view(b: Builder, x: Tensor, shape: Sequence[Extent], *_: Any) -> Tensor:
    """The same elements with another shape; one extent may be -1."""
    dims = list(shape)
    unknown = [i for i, dim in enumerate(dims) if isinstance(dim, int) and dim == -1]
    if unknown:
        known = [dim for i, dim in enumerate(dims) if i not in unknown]
        dims[unknown[0]] = b.quotient(x.dims, known)
    return b.reshape(x, _refined(b, dims))


def _refined(b: Builder, dims: list[Extent]) -> list[Extent]:
    """Extents torch knows to be static, although we computed them."""
    refined = list(dims)
    for i, static in enumerate(b.out.shape):
        if static is not None and not isinstance(dims[i], int):
            b.require_equal(dims[i], static, "view: extent differs from the one exported")
            refined[i] = static
    return refined


@lowers("torch.aten.view_as", "torch.aten.reshape_as")
def view_as(b: Builder, x: Tensor, other: Tensor) -> Tensor:
    """The same elements with the shape of another tensor."""
    return b.reshape(x, other.dims)


@lowers("torch.aten.flatten")
def flatten(b: Builder, x: Tensor, start: int = 0, end: int = -1) -> Tensor:
    """Merges dims start..end."""
    if x.rank == 0:
        return b.reshape(x, [1])
    start, end = normalize_dim(start, x.rank), normalize_dim(end, x.rank)
    merged = b.product(x.dims[start : end + 1])
    return b.reshape(x, [*x.dims[:start], merged, *x.dims[end + 1 :]])


@lowers("torch.aten.unflatten")
def unflatten(b: Builder, x: Tensor, dim: int, sizes: Sequence[Extent]) -> Tensor:
    """Splits a dim into ``sizes``."""
    dim = normalize_dim(dim, x.rank)
    return view(b, x, [*x.dims[:dim], *sizes, *x.dims[dim + 1 :]])


@lowers("torch.aten.squeeze")
def squeeze(b: Builder, x: Tensor, dims: Any = None) -> Tensor:
    """Drops dims of size 1: all, or those among ``dims``."""
    if dims is None or x.rank == 0:
        chosen = set(range(x.rank))
    else:
        chosen = {normalize_dim(d, x.rank) for d in ([dims] if isinstance(dims, int) else dims)}
    unknown = [i for i in sorted(chosen) if not isinstance(x.dims[i], int)]
    kept = [i for i in range(x.rank) if i not in chosen or not is_one(x.dims[i])]
    if unknown and len(b.out.shape) == len(kept) - len(unknown):
        # In a branch that asks for it, the sizes are 1.
        for i in unknown:
            b.require_at_most(1, x.dims[i], f"{locations.operation()}: dim {i} has size 0, which squeeze would keep")
            b.require_at_most(x.dims[i], 1, f"{locations.operation()}: dim {i} must have size 1 to be dropped")
            x = b.slice(x, i, 0, 1)
        return b.reshape(x, [x.dims[i] for i in kept if i not in unknown])
    for i in unknown:
        # With size 1 the result has another rank, and everything after it another shape.
        distance = b.maximum(b.sub(x.dims[i], 1), b.sub(1, x.dims[i]))
        b.require_at_most(1, distance, f"{locations.operation()}: dim {i} has size 1, which squeeze would drop")
    return b.reshape(x, [x.dims[i] for i in kept])


@lowers("torch.aten.unsqueeze")
def unsqueeze(b: Builder, x: Tensor, dim: int) -> Tensor:
    """Inserts a dim of size 1."""
    return b.unsqueeze(x, normalize_dim(dim, x.rank + 1))


@lowers("torch.aten.permute")
def permute(b: Builder, x: Tensor, order: Sequence[int]) -> Tensor:
    """Reorders the dims."""
    return b.permute(x, [normalize_dim(i, x.rank) for i in order])


@lowers("torch.aten.transpose", "torch.aten.swapaxes")
def transpose(b: Builder, x: Tensor, first: int, second: int) -> Tensor:
    """Exchanges two dims."""
    if x.rank == 0:
        return x
    order = list(range(x.rank))
    first, second = normalize_dim(first, x.rank), normalize_dim(second, x.rank)
    order[first], order[second] = second, first
    return b.permute(x, order)


@lowers("torch.aten.numpy_T")
def numpy_t(b: Builder, x: Tensor) -> Tensor:
    """All dims in reverse order."""
    return b.permute(x, list(range(x.rank))[::-1])


@lowers("torch.aten.t", "torch.aten.mT")
def t(b: Builder, x: Tensor) -> Tensor:
    """The transpose of a matrix; vectors stay."""
    return x if x.rank < 2 else transpose(b, x, -2, -1)


@lowers("torch.aten.movedim.int")
def movedim(b: Builder, x: Tensor, source: int, target: int) -> Tensor:
    """Moves one dim to another place."""
    if not x.rank:
        return x
    order = list(range(x.rank))
    order.insert(normalize_dim(target, x.rank), order.pop(normalize_dim(source, x.rank)))
    return b.permute(x, order)


@lowers("torch.aten.expand", "torch.aten.broadcast_to")
def expand(b: Builder, x: Tensor, shape: Sequence[Extent], *_: Any) -> Tensor:
    """Repeats dims of size 1; -1 keeps a dim."""
    offset = len(shape) - x.rank
    dims = [x.dims[i - offset] if isinstance(dim, int) and dim == -1 else dim for i, dim in enumerate(shape)]
    return b.broadcast(x, dims)


@lowers("torch.aten.expand_as")
def expand_as(b: Builder, x: Tensor, other: Tensor) -> Tensor:
    """Repeats dims of size 1 to the shape of another tensor."""
    return b.broadcast(x, other.dims)


@lowers("torch.aten.repeat")
def repeat(b: Builder, x: Tensor, counts: Sequence[Extent]) -> Tensor:
    """Repeats the whole tensor along each dim."""
    extended: list[Extent] = [*[1] * (len(counts) - x.rank), *x.dims]
    dims, places = [], []
    for count, dim in zip(counts, extended, strict=True):
        dims += [count, dim]
        places.append(len(dims) - 1)
    repeated = b.broadcast(b.reshape(x, extended), dims, places)
    total = [b.mul(count, dim) for count, dim in zip(counts, extended, strict=True)]
    return b.reshape(repeated, total)


@lowers("torch.aten.repeat_interleave.self_int")
def repeat_interleave(b: Builder, x: Tensor, count: Extent, dim: int | None = None, *_: Any) -> Tensor:
    """Repeats each element along ``dim``."""
    if dim is None:
        x, dim = b.reshape(x, [b.product(x.dims)]), 0
    dim = normalize_dim(dim, x.rank)
    unit = b.unsqueeze(x, dim + 1)
    repeated = b.broadcast(unit, [*x.dims[: dim + 1], count, *x.dims[dim + 1 :]])
    return b.reshape(repeated, [*x.dims[:dim], b.mul(x.dims[dim], count), *x.dims[dim + 1 :]])


# -- slices ----------------------------------------------------------------------------------------


@lowers("torch.aten.slice.Tensor", "torch.aten.slice")
def slice_(
    b: Builder,
    x: Tensor,
    dim: int = 0,
    start: Extent | None = None,
    end: Extent | None = None,
    step: int = 1,
) -> Tensor:
    """x[start:end:step] along ``dim``, with Python's bounds."""
    dim = normalize_dim(dim, x.rank)
    return _piece(b, x, dim, start, end, b.node_value, step)


def _piece(b: Builder, x: Tensor, dim: int, start: Any, end: Any, exported: Any, step: int = 1) -> Tensor:
    """x[start:end:step], which is ``exported`` to torch.export."""
    if not isinstance(step, int):
        raise NotLowerable("the step is known at run time only: use x[torch.arange(start, stop, step)]")
    given = [*b.operand_values[2:4], None, None]
    known = [g if isinstance(g, torch.SymInt) else n for g, n in zip(given, (start, end), strict=False)]
    start, end = signed_number(b, start, given[0]), signed_number(b, end, given[1])
    begin, span = slice_bounds(b, x.dims[dim], start, end)
    size = b.floordiv(b.add(span, step - 1), step)
    depends = any(isinstance(bound, RuntimeNumber) for bound in (start, end)) and not isinstance(size, int)
    if depends and isinstance(found := exported.shape[dim], torch.SymInt) and not found.node.expr.is_number:
        # Export has a new symbol for a data-dependent size.
        size = _bound_to(b, lambda: scalar.from_extent(size, torch.int64), found)
    length = _exported(b, dim, size, exported, [*known, step])
    computed = not all(isinstance(bound, int) for bound in (start, end))
    if computed and isinstance(length, int) and not isinstance(size, int) and length > 0 and step == 1:
        # That there are so many elements follows from a condition of the model: it begins inside of the dim.
        what = f"{locations.operation()}: the slice has another length than {length}"
        b.require_equal(size, length, what)
        if isinstance(start, ir.Value) and from_start(b, start, x.dims[dim], given[0]) is start:
            begin = start
        b.require_at_most(b.add(begin, length), x.dims[dim], what)
    return b.slice(x, dim, begin, length, step)


def _bound_to(b: Builder, fn: Callable[[], Elem], size: Any = None) -> Extent:
    """A number that depends on data as an extent."""
    return b.bind(b.generic([], [], [], torch.int64, fn), size)


def slice_bounds(b: Builder, extent: Extent, start: Any, end: Any, place: int = 2) -> tuple[Extent, Extent]:
    """Where start:end begins in ``extent``, and how far it goes, with Python's bounds; start is operand ``place``."""
    given = [*b.operand_values[place : place + 2], None, None]
    begin = _bound(b, 0 if start is None else start, extent, given[0])
    if isinstance(end, int) and end >= 2**62:
        end = None
    end = extent if end is None else _bound(b, end, extent, given[1])
    return begin, b.maximum(b.sub(end, begin), 0) if _may_cross(begin, end) else b.sub(end, begin)


def _bound(b: Builder, bound: Extent | RuntimeNumber, extent: Extent, given: Any) -> Extent:
    """A bound of a slice, with negative ones counted from the end, clamped to the extent."""
    if isinstance(bound, RuntimeNumber):

        def clamped() -> Elem:
            place, size = bound.emit(), scalar.from_extent(extent, torch.int64)
            place = scalar.select(place < 0, place + size, place)
            return scalar.minimum(scalar.maximum(place, 0), size)

        return _bound_to(b, clamped)
    place = from_start(b, bound, extent, given)
    if place is not bound:
        return b.maximum(place, 0)
    if bound == 0:
        return 0
    return b.minimum(bound, extent)


def _is_known(number: torch.SymInt, condition: Any) -> bool:
    """Whether a condition on it holds; comparing the number itself would be recorded in what another thread traces."""
    known = number.node.shape_env._maybe_evaluate_static(condition)
    return known is not None and bool(known)


def from_start(b: Builder, index: Extent, extent: Extent, given: Any) -> Extent:
    """An index into ``extent``, which is ``given`` to torch.export, with negative ones counted from the end.

    torch.export decides the sign of a symbolic index by its example. One that may also be 0, as ``-n`` where ``n`` may
    be, counts from the end only where it is negative: ``x[-0:]`` is all of ``x``. The same holds for an index without
    an example, as ``-n`` where ``n`` depends on the step of a loop.
    """
    if isinstance(index, int):
        return b.add(index, extent) if index < 0 else index
    if not isinstance(given, torch.SymInt):
        return index
    if b.bounds(given.node.expr).upper < 0:
        return b.add(index, extent)
    if b.bounds(given.node.expr).lower >= 0 or b.never_negative(index):
        return index
    if given.node.hint >= 0 if given.node.has_hint() else _is_known(given, sympy.Ge(given.node.expr, 0)):
        return index
    is_negative = b.minimum(b.maximum(b.sub(0, index), 0), 1)
    return b.minimum(b.add(index, b.mul(extent, is_negative)), extent)


def _may_cross(start: Extent, end: Extent) -> bool:
    if isinstance(start, int) and isinstance(end, int):
        return start > end
    return start != 0


def _exported(b: Builder, dim: int, size: Extent, exported: Any, bounds: Sequence[Any]) -> Extent:
    """The size as torch.export wrote it, which knows the symbols' ranges: ``min(S, 512)`` is ``S``.

    The ranges are guards of the compiled program. That sizes are 2 or more may only be an assumption of torch.export:
    if its expression is not correct for smaller sizes, the assumption becomes a requirement.
    """
    if isinstance(size, int) or not isinstance(exported, torch.Tensor):
        return size
    known, whole = exported.shape[dim], b.operand_value(0)
    expr = known.node.expr if isinstance(known, torch.SymInt) else sympy.Integer(known)
    extent = b.extent_of(expr)
    if extent is None:
        return size
    if isinstance(whole, torch.Tensor) and not _holds_for_less(b, expr, whole.shape[dim], bounds):
        message = f"{locations.operation()}: dim {dim} is too small: a slice has another length there"
        b.require_equal(size, extent, message)
    return extent


def _holds_for_less(b: Builder, expr: sympy.Expr, whole: Any, bounds: Sequence[Any]) -> bool:
    """Whether ``expr`` is the length of start:end:step of ``whole``, where symbols are 0 or 1 that may be."""
    if any(isinstance(x, (ir.Value, RuntimeNumber)) for x in bounds):
        return True
    numbers = [x.node.expr if isinstance(x, torch.SymInt) else x for x in (whole, *bounds)]
    symbols = sorted(set().union(*(sympy.sympify(x).free_symbols for x in (expr, *numbers) if x is not None)), key=str)
    ranges = [b.symbol_ranges.get(symbol) for symbol in symbols]
    if len(symbols) > _MOST_TRIED or any(known is None for known in ranges):
        return True
    choices = [[n for n in (0, 1, 2, 7) if known is not None and n in known] for known in ranges]
    for values in itertools.product(*choices):
        if all(value > 1 for value in values):
            continue
        point = dict(zip(symbols, map(sympy.Integer, values), strict=True))
        try:
            size, start, end, step = (None if x is None else int(sympy.sympify(x).xreplace(point)) for x in numbers)
            length = expr.xreplace(point)
        except ZeroDivisionError:
            continue  # the model divides by this extent
        if size is not None and size >= 0 and len(range(*slice(start, end, step).indices(size))) != length:
            return False
    return True


@lowers("torch.aten.select.int")
def select(b: Builder, x: Tensor, dim: int, index: Any) -> Tensor:
    """x[index] along ``dim``."""
    dim = normalize_dim(dim, x.rank)
    index = signed_number(b, index, b.operand_value(2))
    if isinstance(index, RuntimeNumber):
        return _select_by_data(b, x, dim, index)
    index = from_start(b, index, x.dims[dim], b.operand_value(2))
    return b.reshape(b.slice(x, dim, index, 1), [*x.dims[:dim], *x.dims[dim + 1 :]])


def _select_by_data(b: Builder, x: Tensor, dim: int, index: RuntimeNumber) -> Tensor:
    if x.dtype.is_complex:
        return b.as_complex(_select_by_data(b, b.as_pairs(x), dim, index))
    rest = [*x.dims[:dim], *x.dims[dim + 1 :]]

    def element() -> Elem:
        at = loops(len(rest))
        at.insert(dim, b.checked_index(index.emit(), x.dims[dim], wrap=True))
        return b.extract(x, at)

    return b.generic([], [], rest, x.dtype, element)


@lowers("torch.aten.narrow")
def narrow(b: Builder, x: Tensor, dim: int, start: Extent | RuntimeNumber, length: Extent) -> Tensor:
    """``length`` elements from ``start`` along ``dim``."""
    dim = normalize_dim(dim, x.rank)
    start = signed_number(b, start, b.operand_value(2))
    if isinstance(start, RuntimeNumber):
        signed, extent = start, x.dims[dim]

        def begin() -> Elem:
            place = signed.emit()
            return scalar.select(place < 0, place + scalar.from_extent(extent, torch.int64), place)

        start = _bound_to(b, begin)
    else:
        start = from_start(b, start, x.dims[dim], b.operand_value(2))
    return b.slice(x, dim, start, length)


@lowers("torch.aten.split.Tensor", "torch.aten.split")
def split(b: Builder, x: Tensor, size: Extent, dim: int = 0) -> list[Tensor]:
    """Pieces of ``size`` along ``dim``, the last one smaller."""
    dim = normalize_dim(dim, x.rank)
    return [b.slice(x, dim, offset, length) for offset, length in _pieces(b, x, dim, size)]


def _pieces(b: Builder, x: Tensor, dim: int, size: Extent) -> list[tuple[Extent, Extent]]:
    """Offsets and sizes; their number is torch's, which had to know it."""
    count = len(b.node_value)
    pieces: list[tuple[Extent, Extent]] = []
    for i in range(count):
        offset = b.mul(size, i)
        last = b.sub(x.dims[dim], offset)
        pieces.append((offset, last if i == count - 1 else size))
    return pieces


@lowers("torch.aten.split_with_sizes")
def split_with_sizes(b: Builder, x: Tensor, sizes: Sequence[Extent], dim: int = 0) -> list[Tensor]:
    """Pieces of the given sizes along ``dim``."""
    dim = normalize_dim(dim, x.rank)
    pieces, offset = [], 0
    for size in sizes:
        pieces.append(b.slice(x, dim, offset, size))
        offset = b.add(offset, size)
    b.require_equal(offset, x.dims[dim], "split: sizes do not add up to the extent")
    return pieces


@lowers("torch.aten.tensor_split.sections")
def tensor_split(b: Builder, x: Tensor, sections: int, dim: int = 0) -> list[Tensor]:
    """``sections`` pieces along ``dim``, the first ones larger by one where they cannot be equal."""
    dim = normalize_dim(dim, x.rank)
    size = b.floordiv(x.dims[dim], sections)
    larger = b.mod(x.dims[dim], sections)
    starts = [b.add(b.mul(size, i), b.minimum(larger, i)) for i in range(sections + 1)]
    ends = [*starts[1:-1], x.dims[dim]]
    return [b.slice(x, dim, at, b.sub(end, at)) for at, end in zip(starts[:-1], ends, strict=True)]


@lowers("torch.aten.tensor_split.indices")
def tensor_split_at(b: Builder, x: Tensor, indices: Sequence[Any], dim: int = 0) -> list[Tensor]:
    """The pieces between ``indices`` along ``dim``."""
    dim = normalize_dim(dim, x.rank)
    bounds = pairwise([None, *indices, None])
    return [_piece(b, x, dim, *bound, value) for bound, value in zip(bounds, b.node_value, strict=True)]


@lowers("torch.aten.tensor_split.tensor_indices_or_sections")
def tensor_split_at_tensor(b: Builder, x: Tensor, indices: Tensor, dim: int = 0) -> list[Tensor]:
    """The same, where the indices are elements of a tensor."""
    if indices.rank == 0:
        raise NotLowerable("the number of pieces depends on data")

    def place(i: int) -> RuntimeNumber:
        at = lambda: b.extract(indices, [scalar.constant(i, torch.int64)]).to(torch.int64)  # noqa: E731
        return RuntimeNumber(torch.int64, at)

    return tensor_split_at(b, x, [place(i) for i in range(len(b.node_value) - 1)], dim)


@lowers("torch.aten.chunk")
def chunk(b: Builder, x: Tensor, count: int, dim: int = 0) -> list[Tensor]:
    """``count`` pieces along ``dim``, as even as PyTorch makes them."""
    size = b.floordiv(b.add(x.dims[normalize_dim(dim, x.rank)], count - 1), count)
    return split(b, x, size, dim)


@lowers("torch.aten.unbind.int")
def unbind(b: Builder, x: Tensor, dim: int = 0) -> list[Tensor]:
    """All slices along a dim of static extent."""
    return [select(b, x, dim, i) for i in range(len(b.node_value))]


# -- joins -----------------------------------------------------------------------------------------


@lowers("torch.aten.cat", "torch.aten.concat")
def cat(b: Builder, xs: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Joins tensors along ``dim``; PyTorch ignores empty vectors among them."""
    from .elementwise import convert

    rank = max(x.rank for x in xs)
    kept = [x for x in xs if x.rank == rank]
    return b.concat([convert(b, x, b.out.dtype) for x in kept], normalize_dim(dim, rank))


@lowers("torch.aten.stack")
def stack(b: Builder, xs: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Joins tensors along a new dim."""
    from .elementwise import convert

    dim = normalize_dim(dim, xs[0].rank + 1)
    return b.concat([b.unsqueeze(convert(b, x, b.out.dtype), dim) for x in xs], dim)
