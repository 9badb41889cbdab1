"""Pooling. Channels are last, as in convolutions: a small window is unrolled in the body of one map, read by index;
a large one, or one whose size depends on extents, is a reduction."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch_mlir.dialects import linalg

from .. import dtypes, scalar
from ..builder import Builder
from ..registry import NotLowerable, lowers
from ..scalar import Elem
from ..values import Extent, Number, Tensor, is_one
from .common import read_if, require_channels, require_pixels
from .convolution import channels_first, channels_last, per_dim
from .quantization import decode

_UNROLLED = 32
"""Windows of up to this many elements are unrolled."""

_I64 = torch.int64


@dataclass(frozen=True)
class Window:
    """The windows along one spatial dim. ``at`` returns, for a result's index and an element's number in the
    window, the position in the input and whether it is inside the window and the input (None: always)."""

    size: Extent
    count: Extent
    at: Callable[[Elem, Elem | int], tuple[Elem, Elem | None]]


def sliding(
    b: Builder,
    extent: Extent,
    kernel: int,
    stride: int,
    low: Extent,
    high: Extent,
    dilation: int,
    ceil_mode: bool,
    *,
    required: bool = True,
) -> Window:
    """Windows at regular distances over an input with ``low`` and ``high`` elements of padding at its ends.

    One window is ``required`` to fit, as in PyTorch, or the caller sees to it that their number is not negative.
    """
    reach = dilation * (kernel - 1) + 1
    room = b.add(extent, b.add(b.add(low, high), -reach))
    count = b.add(b.floordiv(b.add(room, stride - 1 if ceil_mode else 0), stride), 1)
    if ceil_mode:
        # The last window starts inside the input or the padding before it.
        count = b.minimum(count, b.add(b.floordiv(b.add(extent, b.add(low, -1)), stride), 1))
    if required:
        b.require_at_most(1, count, f"{b.op_name.removeprefix('torch.')}: the window is larger than the input")
    tested = ceil_mode or (low, high) != (0, 0)

    def at(result: Elem, element: Elem | int) -> tuple[Elem, Elem | None]:
        position = result * stride + element * dilation - scalar.from_extent(low, _I64)
        if not tested:
            return position, None
        inside = (position >= 0) & (position < scalar.from_extent(extent, _I64))
        return position, inside

    return Window(count, kernel, at)


def _adaptive(b: Builder, extent: Extent, size: Extent) -> Window:
    """Windows that together cover the input evenly."""
    if isinstance(extent, int) and isinstance(size, int) and size and extent % size == 0:
        return sliding(b, extent, extent // size, extent // size, 0, 0, 1, False)
    count = b.add(b.floordiv(b.sub(extent, 1), size), 2)

    def at(result: Elem, element: Elem | int) -> tuple[Elem, Elem | None]:
        have, want = scalar.from_extent(extent, _I64), scalar.from_extent(size, _I64)
        position = scalar.trunc_divide(result * have, want) + element
        end = scalar.trunc_divide((result + 1) * have + want - 1, want)
        return position, position < end

    return Window(size, count, at)


def _both(a: Elem | None, b: Elem | None) -> Elem | None:
    return b if a is None else a if b is None else a & b


class Pool:
    """Folds over the windows of an input [N, C, s...] or [C, s...], channels last inside."""

    def __init__(self, b: Builder, x: Tensor, windows: Callable[[Sequence[Extent]], list[Window]], spatial: int):
        self.b, self.x = b, x
        self.image = channels_last(b, x if x.rank == spatial + 2 else b.unsqueeze(x, 0))
        self.spatial = spatial
        require_pixels(b, self.image.dims[1:-1], "the input")
        self.windows = windows(self.image.dims[1:-1])
        self.dims: list[Extent] = [self.image.dims[0], *(w.size for w in self.windows), self.image.dims[-1]]
        counts = [w.count for w in self.windows]
        self.unrolled = all(isinstance(c, int) for c in counts) and math.prod(c for c in counts) <= _UNROLLED  # type: ignore[misc]

    def _at(self, elements: Sequence[Elem | int], results: Sequence[Elem]) -> tuple[list[Elem], Elem | None]:
        """The position of an element of the window, moved inside the input, and whether it was there before."""
        positions, inside = [], None
        for window, extent, i, k in zip(self.windows, self.image.dims[1:-1], results, elements, strict=True):
            position, valid = window.at(i, k)
            inside = _both(inside, valid)
            if valid is not None:
                last = scalar.from_extent(extent, _I64) - 1
                position = scalar.minimum(scalar.maximum(position, 0), last)
            positions.append(position)
        return positions, inside

    def fold(
        self,
        dtype: torch.dtype,
        neutral: Number,
        step: Callable[[Elem, Elem, Elem | None, list[Elem]], Elem],
        finish: Callable[[Elem, list[Elem]], Elem] = lambda acc, _: acc,
        result: torch.dtype | None = None,
        others: Sequence[Tensor] = (),
    ) -> Tensor:
        """``step(acc, element, inside, position)`` over each window, then ``finish(acc, window's index)``.

        ``others`` are tensors over the results, whose elements follow the arguments of ``step``.
        """
        b, rank = self.b, self.spatial + 2
        result = result or dtype

        def element(positions: list[Elem], channel: int) -> Elem:
            return b.extract(self.image, [linalg.IndexOp(0).result, *positions, linalg.IndexOp(channel).result])

        def finished(acc: Elem) -> Elem:
            return finish(acc, [scalar.loop_index(d + 1) for d in range(self.spatial)]).to(result)

        if self.unrolled:

            def body(*more: Elem) -> Elem:
                results = [scalar.loop_index(d + 1) for d in range(self.spatial)]
                acc = scalar.constant(neutral, dtype)
                for taps in itertools.product(*(range(w.count) for w in self.windows)):  # type: ignore[arg-type]
                    positions, inside = self._at(taps, results)
                    acc = step(acc, element(positions, rank - 1), inside, positions, *more)  # type: ignore[call-arg]
                return finished(acc)

            return b.generic(others, [b.identity(rank)] * len(others), self.dims, result, body)

        # [N, o..., k..., C], summed over k: vectors run along the channels.
        counts = [w.count for w in self.windows]
        domain = [*self.dims[:-1], *counts, self.dims[-1]]
        extents = Tensor(b.empty(counts, dtype), tuple(counts), dtype)
        taps = [rank - 1 + d for d in range(self.spatial)]
        kept = [*range(rank - 1), len(domain) - 1]

        def reduced(acc: Elem, *more: Elem) -> Elem:
            results = [scalar.loop_index(d + 1) for d in range(self.spatial)]
            positions, inside = self._at([scalar.loop_index(d) for d in taps], results)
            return step(acc, element(positions, len(domain) - 1), inside, positions, *more[:-1])  # type: ignore[call-arg]

        over = b.loop_map(kept, len(domain))
        folded = b.generic(
            [*others, extents],
            [over] * len(others) + [b.loop_map(taps, len(domain))],
            self.dims,
            dtype,
            reduced,
            domain=domain,
            out_map=over,
            reduced=taps,
            init=neutral,
        )
        return b.map(result, [folded], finished)

    def done(self, y: Tensor) -> Tensor:
        """A folded result in torch's layout."""
        y = channels_first(self.b, y)
        return y if self.x.rank == y.rank else self.b.reshape(y, y.dims[1:])

    def maximum(self) -> Tensor:
        """The largest element of each window; NaN wins."""
        dtype = self.x.dtype

        def step(acc: Elem, x: Elem, inside: Elem | None, _: list[Elem]) -> Elem:
            x = x if inside is None else scalar.select(inside, x, dtypes.lowest(dtype))
            return scalar.maximum(acc, x)

        return self.fold(dtype, dtypes.lowest(dtype), step)

    def position_of(self, best: Tensor) -> Tensor:
        """The place in the input's spatial dims, row-major, at which a window has its largest element.

        It is the first such place, but of several NaN the last one. Places of NaN are counted down from -1, so that
        the least number is that place in both cases.
        """
        nowhere = torch.iinfo(_I64).max
        floating = dtypes.is_float(self.x.dtype)

        def step(acc: Elem, x: Elem, inside: Elem | None, at: list[Elem], best: Elem) -> Elem:
            hit = x.eq(best)
            flat = at[0]
            for extent, position in zip(self.image.dims[2:-1], at[1:], strict=True):
                flat = flat * scalar.from_extent(extent, _I64) + position
            if floating:
                none = x.ne(x)
                hit, flat = hit | none, scalar.select(none, -1 - flat, flat)
            hit = hit if inside is None else hit & inside
            return scalar.minimum(acc, scalar.select(hit, flat, nowhere))

        def finish(place: Elem, _: list[Elem]) -> Elem:
            return scalar.select(place < 0, -1 - place, place) if floating else place

        return self.fold(_I64, nowhere, step, finish, others=[best])  # type: ignore[arg-type]


def _max_windows(b: Builder, args: Sequence[Any], spatial: int) -> Callable[[Sequence[Extent]], list[Window]]:
    given: list[Any] = [*args, *[None] * (5 - len(args))]
    kernel, stride, padding, dilation, ceil_mode = given
    sizes = per_dim(kernel, spatial)
    strides = per_dim(stride, spatial) if stride else sizes
    paddings, dilations = per_dim(padding or 0, spatial), per_dim(dilation or 1, spatial)

    def windows(extents: Sequence[Extent]) -> list[Window]:
        return [
            sliding(b, extent, sizes[i], strides[i], paddings[i], paddings[i], dilations[i], bool(ceil_mode))
            for i, extent in enumerate(extents)
        ]

    return windows


def _spatial(b: Builder) -> int:
    """2 of torch.aten.max_pool2d_with_indices."""
    return int(b.op_name.split("pool")[1][0])


def _meets_input(args: Sequence[Any]) -> bool:
    """Whether each window has an element of the input: without dilation, as at most half of a window is padding."""
    dilation = args[3] if len(args) > 3 else None
    return all(d == 1 for d in (dilation if isinstance(dilation, (list, tuple)) else [dilation or 1]))


@lowers("torch.aten.max_pool1d", "torch.aten.max_pool2d", "torch.aten.max_pool3d")
def max_pool(b: Builder, x: Tensor, *args: Any) -> Tensor:
    """The largest element of each window."""
    require_channels(b, x, _spatial(b))
    # The largest number is that of the largest code.
    if x.coded and _meets_input(args):
        return decode(b, max_pool(b, x.coded.codes, *args), x.coded)
    pool = Pool(b, x, _max_windows(b, args, _spatial(b)), _spatial(b))
    return pool.done(pool.maximum())


@lowers(
    "torch.aten.max_pool1d_with_indices", "torch.aten.max_pool2d_with_indices", "torch.aten.max_pool3d_with_indices"
)
def max_pool_with_indices(b: Builder, x: Tensor, *args: Any) -> tuple[Tensor, Tensor]:
    """The largest element of each window, and where in the image it is."""
    require_channels(b, x, _spatial(b))
    if x.coded and _meets_input(args):
        codes, places = max_pool_with_indices(b, x.coded.codes, *args)
        return decode(b, codes, x.coded), places
    pool = Pool(b, x, _max_windows(b, args, _spatial(b)), _spatial(b))
    best = pool.maximum()
    return pool.done(best), pool.done(pool.position_of(best))


@lowers("torch.aten.im2col")
def im2col(
    b: Builder,
    x: Tensor,
    kernel: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> Tensor:
    """The windows of an image, [N, C * window, number of windows]; padding is 0."""
    require_channels(b, x, 2)
    require_pixels(b, x.dims[-2:], "the input")
    windows = [
        sliding(b, extent, kernel[i], stride[i], padding[i], padding[i], dilation[i], False)
        for i, extent in enumerate(x.dims[-2:])
    ]
    outer = x.dims[:-2]
    taps, counts = [w.count for w in windows], [w.size for w in windows]

    def body() -> Elem:
        at = [scalar.loop_index(d) for d in range(len(outer) + 4)]
        first, inside = list(at[: len(outer)]), None
        for d, window in enumerate(windows):
            position, valid = window.at(at[len(outer) + 2 + d], at[len(outer) + d])
            inside = _both(inside, valid)
            first.append(position)
        return b.extract(x, first) if inside is None else read_if(b, inside, x, first)

    y = b.generic([], [], [*outer, *taps, *counts], x.dtype, body)
    columns = b.mul(outer[-1], b.product(taps))
    return b.reshape(y, [*outer[:-1], columns, b.product(counts)])


@lowers("torch.aten.adaptive_max_pool1d", "torch.aten.adaptive_max_pool2d", "torch.aten.adaptive_max_pool3d")
def adaptive_max_pool(b: Builder, x: Tensor, size: Sequence[Extent]) -> tuple[Tensor, Tensor]:
    """The largest element of each of ``size`` even windows, and where in the image it is."""
    require_channels(b, x, _spatial(b), single=False)
    pool = Pool(b, x, _even_windows(b, x, size, _spatial(b)), _spatial(b))
    best = pool.maximum()
    return pool.done(best), pool.done(pool.position_of(best))


def _even_windows(
    b: Builder, x: Tensor, size: Sequence[Extent], spatial: int
) -> Callable[[Sequence[Extent]], list[Window]]:
    sizes = list(size) if isinstance(size, (list, tuple)) else [size]
    sizes = sizes * spatial if len(sizes) == 1 else sizes
    return lambda extents: [_adaptive(b, extent, sizes[i]) for i, extent in enumerate(extents)]


@lowers(
    "torch.aten.adaptive_avg_pool1d",
    "torch.aten.adaptive_avg_pool2d",
    "torch.aten.adaptive_avg_pool3d",
    "torch.aten._adaptive_avg_pool2d",
    "torch.aten._adaptive_avg_pool3d",
)
def adaptive_avg_pool(b: Builder, x: Tensor, size: Sequence[Extent]) -> Tensor:
    """The mean of each of ``size`` even windows."""
    spatial = _spatial(b)
    compute = dtypes.opmath(x.dtype)
    if all(is_one(s) for s in size):
        axes = list(range(x.rank - spatial, x.rank))
        total = b.reduce([x], axes, compute, 0, lambda acc, x: acc + x.to(compute), keepdim=True)
        count = b.product([x.dims[i] for i in axes])
        return b.map(b.out.dtype, [total], lambda s: s / scalar.from_extent(count, compute))
    if spatial == 3:
        require_channels(b, x, spatial, single=False)
    pool = Pool(b, x, _even_windows(b, x, size, spatial), spatial)

    def divide(acc: Elem, at: list[Elem]) -> Elem:
        count = None
        for window, extent, i in zip(pool.windows, pool.image.dims[1:-1], at, strict=True):
            have, want = scalar.from_extent(extent, _I64), scalar.from_extent(window.size, _I64)
            start = scalar.trunc_divide(i * have, want)
            length = scalar.trunc_divide((i + 1) * have + want - 1, want) - start
            count = length if count is None else count * length
        assert count is not None
        return acc / count.to(compute)

    return pool.done(pool.fold(compute, 0, _add(compute), divide, b.out.dtype))


def _add(compute: torch.dtype) -> Callable[[Elem, Elem, Elem | None, list[Elem]], Elem]:
    def step(acc: Elem, x: Elem, inside: Elem | None, _: list[Elem]) -> Elem:
        x = x.to(compute)
        return acc + (x if inside is None else scalar.select(inside, x, 0))

    return step


@lowers("torch.aten.avg_pool1d", "torch.aten.avg_pool2d", "torch.aten.avg_pool3d")
def avg_pool(
    b: Builder,
    x: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """The mean of each window, or its sum over ``divisor_override``."""
    spatial = _spatial(b)
    require_channels(b, x, spatial)
    sizes, paddings = per_dim(kernel, spatial), per_dim(padding, spatial)
    strides = per_dim(stride, spatial) if stride else sizes
    if divisor_override == 0:
        raise NotLowerable("a divisor of zero")
    compute = dtypes.opmath(x.dtype)

    def windows(extents: Sequence[Extent]) -> list[Window]:
        return [
            sliding(b, extent, sizes[i], strides[i], paddings[i], paddings[i], 1, bool(ceil_mode))
            for i, extent in enumerate(extents)
        ]

    pool = Pool(b, x, windows, spatial)
    whole = not ceil_mode and (count_include_pad or not any(paddings))

    def divide(acc: Elem, at: list[Elem]) -> Elem:
        if divisor_override is not None or whole:
            return over(acc, divisor_override or math.prod(sizes))
        count = None
        for d, (extent, i) in enumerate(zip(pool.image.dims[1:-1], at, strict=True)):
            size = scalar.from_extent(extent, _I64)
            start = i * strides[d] - paddings[d]
            end = scalar.minimum(start + sizes[d], size + paddings[d])
            if not count_include_pad:
                start, end = scalar.maximum(start, 0), scalar.minimum(end, size)
            count = end - start if count is None else count * (end - start)
        assert count is not None
        return over(acc, count)

    return pool.done(pool.fold(compute, 0, _add(compute), divide, b.out.dtype))


def over(total: Elem, count: Elem | int) -> Elem:
    """The mean of ``count`` elements, integers towards zero."""
    if not dtypes.is_float(total.dtype):
        return scalar.trunc_divide(total, count)
    return total / (count.to(total.dtype) if isinstance(count, Elem) else float(count))
