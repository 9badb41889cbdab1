"""Operators of ONNX that look at shapes, move elements, or make tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import sympy
import torch
from torch_mlir import ir
from torch_mlir.dialects import arith, linalg

from ... import dtypes, scalar
from ...registry import NotLowerable, lowers
from ...rules.gather import _take
from ...scalar import Elem
from ...values import Extent, Iota, Tensor, is_one, normalize_dim
from ..builder import OnnxBuilder, known
from ..known import Known, Unknown, elements, integers


@lowers("onnx.Shape")
def shape(b: OnnxBuilder, x: Tensor, start: int = 0, end: int | None = None) -> Known:
    """The extents."""
    return Known.of([b.expression(d) for d in x.dims[start:end]], torch.int64)


@lowers("onnx.Size")
def size(b: OnnxBuilder, x: Tensor) -> Known:
    """The number of elements."""
    return Known.of(math.prod(b.expression(d) for d in x.dims), torch.int64)


@lowers("onnx.OptionalHasElement")
def optional_has_element(b: OnnxBuilder, x: Any = None) -> Known:
    """Whether there is an operand: tensors are."""
    return Known.of(x is not None, torch.bool)


@lowers("onnx.OptionalGetElement")
def optional_get_element(b: OnnxBuilder, x: Tensor) -> Tensor:
    """The operand itself, a tensor."""
    return x


@lowers("onnx.Reshape")
@known(1)
def reshape(b: OnnxBuilder, x: Tensor, shape: Any, allowzero: int = 0) -> Tensor:
    """The same elements with other extents: -1 is what remains, 0 keeps one."""
    if isinstance(shape, Tensor) and not allowzero:
        shape = _kept(b, shape, x)
    dims = b.extents(shape)
    if not allowzero:
        dims = [x.dims[i] if isinstance(d, int) and d == 0 else d for i, d in enumerate(dims)]
    unknown = [i for i, d in enumerate(dims) if isinstance(d, int) and d == -1]
    if unknown:
        dims[unknown[0]] = b.quotient(x.dims, [d for i, d in enumerate(dims) if i not in unknown])
    return b.reshape(x, dims)


def _kept(b: OnnxBuilder, shape: Tensor, x: Tensor) -> Tensor:
    """A data-dependent shape, where 0 keeps an extent of x and -1 is computed from the others."""
    if shape.rank != 1 or not isinstance(shape.dims[0], int) or isinstance(shape.value.owner, ir.Block):
        raise Unknown(shape)
    count = shape.dims[0]
    size = b.product(x.dims)

    def body() -> Elem:
        at = scalar.loop_index(0)
        value = [b.extract(shape, [scalar.constant(i, torch.int64)]).to(torch.int64) for i in range(count)]
        for i, extent in enumerate(x.dims[:count]):
            value[i] = scalar.select(value[i].eq(0), scalar.from_extent(extent, torch.int64), value[i])
        others = math.prod((scalar.select(v >= 0, v, 1) for v in value), start=scalar.constant(1, torch.int64))
        rest = scalar.trunc_divide(scalar.from_extent(size, torch.int64), scalar.maximum(others, 1))
        result = value[-1]
        for i, v in enumerate(value[:-1]):
            result = scalar.select(at.eq(i), v, result)
        return scalar.select(result.eq(-1), rest, result)

    return b.generic([], [], [count], torch.int64, body)


@lowers("onnx.Flatten")
def flatten(b: OnnxBuilder, x: Tensor, axis: int = 1) -> Tensor:
    """A matrix: the dims before ``axis``, and the others."""
    axis = axis + x.rank if axis < 0 else axis
    return b.reshape(x, [b.product(x.dims[:axis]), b.product(x.dims[axis:])])


@lowers("onnx.Transpose")
def transpose(b: OnnxBuilder, x: Tensor, perm: Sequence[int] | None = None) -> Tensor:
    """Reorders the dims; reverses them by default."""
    order = list(perm) if perm is not None else list(reversed(range(x.rank)))
    if sorted(order) != list(range(x.rank)):
        raise NotLowerable(f"perm {order} of an operand of rank {x.rank}")
    return b.permute(x, order)


@lowers("onnx.Unsqueeze")
@known(1)
def unsqueeze(b: OnnxBuilder, x: Tensor, given: Any = None, axes: list[int] | None = None) -> Tensor:
    """Inserts dims of size 1 at places of the result."""
    places = integers(given) if given is not None else axes
    assert places is not None
    rank = x.rank + len(places)
    chosen = {p % rank for p in places}
    rest = iter(x.dims)
    return b.reshape(x, [1 if i in chosen else next(rest) for i in range(rank)])


@lowers("onnx.Squeeze")
@known(1)
def squeeze(b: OnnxBuilder, x: Tensor, given: Any = None, axes: list[int] | None = None) -> Tensor:
    """Drops dims of size 1: those among ``axes``, or all."""
    places = integers(given) if given is not None else axes
    if places is None:
        return b.reshape(x, _without_units(b, x))
    chosen = {normalize_dim(p, x.rank) for p in places}
    for i in chosen:
        b.require_equal(x.dims[i], 1, "Squeeze: the extent is not 1")
    return b.reshape(x, [d for i, d in enumerate(x.dims) if i not in chosen])


def _without_units(b: OnnxBuilder, x: Tensor) -> list[Extent]:
    """The extents that are not 1; where the ranges leave that open, by the rank that the file declares."""
    maybe = [d for d in x.dims if isinstance(d, ir.Value) and b.may_be_unit(d)]
    rest = sum(not is_one(d) for d in x.dims)
    likely = b.declared == rest - len(maybe)
    return [d for d in x.dims if not is_one(d) and not b.is_unit(d, "Squeeze without axes", likely=likely)]


@lowers("onnx.Expand")
@known(1)
def expand(b: OnnxBuilder, x: Tensor, shape: Any) -> Tensor:
    """Broadcasts x and the shape with each other."""
    dims = b.extents(shape)
    rank = max(len(dims), x.rank)
    own = [1] * (rank - x.rank) + list(x.dims)
    wanted = [1] * (rank - len(dims)) + dims
    pairs = [_expanded(b, o, w) for o, w in zip(own, wanted, strict=True)]
    out = [extent for extent, _ in pairs]
    if not any(repeats for _, repeats in pairs):
        return b.broadcast(x, out)

    def body() -> Elem:
        at = []
        for d in range(rank - x.rank, rank):
            if is_one(own[d]):
                at.append(scalar.constant(0, torch.int64))
                continue
            index = scalar.loop_index(d)
            if pairs[d][1]:
                # Either the loop's own index, or 0 throughout.
                index = scalar.minimum(index, scalar.from_extent(b.sub(own[d], 1), torch.int64))
            at.append(index)
        return b.extract(x, at)

    return b.generic([], [], out, x.dtype, body)


def _expanded(b: OnnxBuilder, own: Extent, wanted: Extent) -> tuple[Extent, bool]:
    """The extent of the broadcast, and whether the operand may be repeated although its extent is not known to be 1."""
    if is_one(wanted) or own == wanted:
        return own, False
    if is_one(own):
        return wanted, False
    message = "Expand: the size of an operand is neither 1 nor the wanted one"
    if not b.may_be_unit(own):
        if not b.may_be_unit(wanted):
            b.require_equal(own, wanted, message)
        else:
            b.require_equal(b.mul(b.sub(own, wanted), b.sub(wanted, 1)), 0, message)
        return own, False
    if not b.may_be_unit(wanted):
        b.require_equal(b.mul(b.sub(own, wanted), b.sub(own, 1)), 0, message)
        return wanted, True
    product = b.mul(b.sub(own, 1), b.sub(wanted, 1))
    b.require_equal(b.mul(product, b.sub(own, wanted)), 0, message)
    return b.minimum(b.mul(own, wanted), b.maximum(own, wanted)), True


@lowers("onnx.Tile")
@known(1)
def tile(b: OnnxBuilder, x: Tensor, repeats: Any) -> Tensor:
    """Repeats the whole along each dim."""
    return b.aten("repeat", x, b.extents(repeats), dtype=x.dtype)


@lowers("onnx.Concat")
def concat(b: OnnxBuilder, *xs: Tensor, axis: int) -> Tensor:
    """Joins tensors along a dim."""
    return b.concat(list(xs), normalize_dim(axis, xs[0].rank))


def _known_pieces(x: Known, sizes: list[int] | None, axis: int, count: int) -> list[Known]:
    extent = x.values.shape[axis]
    if not sizes:
        each = -(-extent // count)
        sizes = [each] * (count - 1) + [extent - each * (count - 1)]
    ends = [sum(sizes[: i + 1]) for i in range(len(sizes) - 1)]
    return [Known.of(piece, x.dtype) for piece in np.split(x.values, ends, axis)]


@lowers("onnx.Split")
@known(0, 1)
def split(
    b: OnnxBuilder, x: Any, given: Any = None, axis: int = 0, split: Any = None, num_outputs: int | None = None
) -> Any:
    """Pieces along a dim: of given sizes, or equal but for the last."""
    if isinstance(x, Known):
        sizes = integers(given) if given is not None else split
        return _known_pieces(x, sizes, axis, num_outputs or len(b.results))
    dim = normalize_dim(axis, x.rank)
    lengths: list[Extent] = b.extents(given) if given is not None else list(split or ())
    if not lengths:
        count = num_outputs or len(b.results)
        each = b.floordiv(b.add(x.dims[dim], count - 1), count)
        lengths = [each] * (count - 1)
        lengths.append(b.sub(x.dims[dim], b.mul(each, count - 1)))
    pieces, offset = [], 0
    for length in lengths:
        pieces.append(b.slice(x, dim, offset, length))
        offset = b.add(offset, length)  # type: ignore[assignment]
    return pieces


@lowers("onnx.Gather")
@known(1)
def gather(b: OnnxBuilder, x: Tensor, indices: Any, axis: int = 0) -> Tensor:
    """The slices of a dim that ``indices`` list; negative ones count from the end."""
    dim = normalize_dim(axis, x.rank)
    if isinstance(indices, Known):
        if indices.values.ndim == 0:
            at = b.extent(indices.list[0])
            if isinstance(at, int) and at < 0:
                at = b.add(at, x.dims[dim])
            return b.reshape(b.slice(x, dim, at, 1), [*x.dims[:dim], *x.dims[dim + 1 :]])
        indices = b.tensor(indices)
    return _take(b, x, dim, indices, wrap=True)


@lowers("onnx.GatherElements")
def gather_elements(b: OnnxBuilder, x: Tensor, indices: Tensor, axis: int = 0) -> Tensor:
    """result[i][j] = x[indices[i][j]][j], for axis 0 of two."""
    dim = normalize_dim(axis, x.rank)

    def body(i: Elem) -> Elem:
        row = b.checked_index(i, x.dims[dim], wrap=True)
        return b.extract(x, [row if d == dim else linalg.IndexOp(d).result for d in range(x.rank)])

    return b.generic([indices], [b.identity(indices.rank)], indices.dims, x.dtype, body)


@lowers("onnx.GatherND")
def gather_nd(b: OnnxBuilder, x: Tensor, indices: Tensor, batch_dims: int = 0) -> Tensor:
    """Slices of x at the places that the last dim of ``indices`` spells."""
    depth = indices.dims[-1]
    if not isinstance(depth, int):
        raise NotLowerable("the last extent of its indices is dynamic")
    lead = indices.rank - 1
    dims = [*indices.dims[:-1], *x.dims[batch_dims + depth :]]

    def body() -> Elem:
        loops = [linalg.IndexOp(d).result for d in range(len(dims))]
        at: list[Any] = loops[:batch_dims]
        for k in range(depth):
            place = arith.ConstantOp(ir.IndexType.get(), k).result
            index = b.extract(indices, [*loops[:lead], place])
            at.append(b.checked_index(index, x.dims[batch_dims + k], wrap=True))
        return b.extract(x, [*at, *loops[lead:]])

    return b.generic([], [], dims, x.dtype, body)


@lowers("onnx.ConstantOfShape")
@known(0)
def constant_of_shape(b: OnnxBuilder, shape: Any, value: torch.Tensor | None = None) -> Tensor:
    """A tensor of one value."""
    if value is None:
        return b.full(b.extents(shape), 0.0, torch.float32)
    return b.full(b.extents(shape), value.flatten()[0].item(), value.dtype)


@lowers("onnx.Range")
@known(0, 1, 2)
def range_(b: OnnxBuilder, start: Any, limit: Any, delta: Any) -> Tensor:
    """start, start + delta, ... below limit."""
    first, last, step = (_whole(x) for x in (start, limit, delta))
    dtype = start.dtype
    if isinstance(step, sympy.Expr):
        raise NotLowerable("a step that depends on extents")
    if step == 0:
        raise NotLowerable("a step of 0")
    if all(isinstance(v, (int, float)) for v in (first, last)):
        count: Extent = max(math.ceil((last - first) / step), 0)
    else:
        fraction = sympy.nsimplify(step, rational=True)
        # ceil(span / step), for a fraction over / under.
        span = (last - first) * fraction.q * (1 if step > 0 else -1)
        over = abs(int(fraction.p))
        least, _ = b.limits(span)
        count = b.floordiv(b.add(b.extent(span), over - 1), over)
        if least is None or least < 0:
            count = b.maximum(count, 0)
    begin = b.extent(first)
    compute = dtypes.opmath(dtype)

    def body() -> Elem:
        index = scalar.loop_index(0).to(compute)
        origin = scalar.from_extent(begin, compute) if isinstance(begin, ir.Value) else begin
        value = index if step == 1 else index * step
        return (value if first == 0 else value + origin).to(dtype)

    result = b.generic([], [], [count], dtype, body)
    if isinstance(first, int) and isinstance(step, int) and step > 0 and not dtype.is_floating_point:
        return result.with_facts(iota=Iota(0, first, step))
    return result


def _whole(x: Any) -> Any:
    """The number that an operand is; an int where it is whole."""
    (value,) = elements(x) or [0]
    return int(value) if isinstance(value, float) and value.is_integer() else value


@lowers("onnx.Trilu")
@known(1)
def trilu(b: OnnxBuilder, x: Tensor, k: Any = None, upper: int = 1) -> Tensor:
    """The part of a matrix above or below a diagonal."""
    diagonal = (integers(k) or [0])[0]
    return b.aten("triu" if upper else "tril", x, diagonal, dtype=x.dtype, rank=x.rank)


@lowers("onnx.EyeLike")
def eye_like(b: OnnxBuilder, x: Tensor, k: int = 0, dtype: Any = None) -> Tensor:
    """1 on a diagonal, 0 elsewhere."""
    dtype = dtype if isinstance(dtype, torch.dtype) else x.dtype
    return b.generic(
        [],
        [],
        x.dims,
        dtype,
        lambda: (scalar.loop_index(1) - scalar.loop_index(0)).eq(k).to(dtype),
    )


@lowers("onnx.OneHot")
@known(1)
def one_hot(b: OnnxBuilder, indices: Tensor, depth: Any, values: Tensor, axis: int = -1) -> Tensor:
    """values[1] where the index along a new dim is that of ``indices``, values[0] elsewhere."""
    count = b.extents(depth)[0]
    count = int(count) if isinstance(count, float) else count
    place = normalize_dim(axis, indices.rank + 1)
    dims = [*indices.dims[:place], count, *indices.dims[place:]]
    loops: list[int | None] = [i if i < place else i + 1 for i in range(indices.rank)]

    def body(i: Elem) -> Elem:
        index = i.to(torch.int64)
        index = scalar.select(index < 0, index + scalar.from_extent(count, torch.int64), index)
        off, on = (b.extract(values, [arith.ConstantOp(ir.IndexType.get(), k).result]) for k in (0, 1))
        return scalar.select(index.eq(scalar.loop_index(place)), on, off)

    return b.generic([indices], [b.loop_map(loops, len(dims))], dims, values.dtype, body)


@lowers("onnx.DepthToSpace")
def depth_to_space(b: OnnxBuilder, x: Tensor, blocksize: int, mode: str = "DCR") -> Tensor:
    """Moves blocks of channels into height and width."""
    n, c, h, w = x.dims
    rest = b.floordiv(c, blocksize * blocksize)
    if mode == "DCR":
        order = [0, 3, 4, 1, 5, 2]
        y = b.reshape(x, [n, blocksize, blocksize, rest, h, w])
    else:
        order = [0, 1, 4, 2, 5, 3]
        y = b.reshape(x, [n, rest, blocksize, blocksize, h, w])
    return b.reshape(b.permute(y, order), [n, rest, b.mul(h, blocksize), b.mul(w, blocksize)])


@lowers("onnx.SpaceToDepth")
def space_to_depth(b: OnnxBuilder, x: Tensor, blocksize: int, mode: str = "DCR") -> Tensor:
    """Moves blocks of height and width into channels."""
    n, c, h, w = x.dims
    high, wide = b.floordiv(h, blocksize), b.floordiv(w, blocksize)
    order = [0, 3, 5, 1, 2, 4] if mode == "DCR" else [0, 1, 3, 5, 2, 4]
    y = b.permute(b.reshape(x, [n, c, high, blocksize, wide, blocksize]), order)
    return b.reshape(y, [n, b.mul(c, blocksize * blocksize), high, wide])


@lowers("onnx.ReverseSequence")
def reverse_sequence(b: OnnxBuilder, x: Tensor, lengths: Tensor, batch_axis: int = 1, time_axis: int = 0) -> Tensor:
    """Each sequence of a batch in reverse, up to its length."""

    def body(length: Elem) -> Elem:
        step = scalar.loop_index(time_axis)
        index = scalar.select(step < length, length - 1 - step, step)
        at: list[Any] = [linalg.IndexOp(d).result for d in range(x.rank)]
        at[time_axis] = b.checked_index(index, x.dims[time_axis], wrap=False)
        return b.extract(x, at)

    return b.generic([lengths], [b.loop_map([batch_axis], x.rank)], x.dims, x.dtype, body)


@lowers("onnx.TopK")
@known(1)
def topk(b: OnnxBuilder, x: Tensor, k: Any, axis: int = -1, largest: int = 1, sorted: int = 1) -> Any:
    """The k largest or smallest along a dim, and where they are."""
    return b.aten(
        "topk", x, b.extents(k)[0], axis, bool(largest), bool(sorted), dtype=[x.dtype, torch.int64], rank=x.rank
    )


@lowers("onnx.BitCast")
def bit_cast(b: OnnxBuilder, x: Tensor, to: torch.dtype) -> Tensor:
    """The same bits as another type of the same width."""

    def fn(x: Elem) -> Elem:
        if x.dtype == torch.bool or to == torch.bool:
            return x.to(to)
        if x.dtype.is_floating_point == to.is_floating_point:
            return Elem(x.value, to)
        return Elem(arith.BitcastOp(dtypes.element_type(to), x.value).result, to)

    return b.map(to, [x], fn)
