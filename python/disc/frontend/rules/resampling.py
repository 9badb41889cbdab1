"""Up-sampling and grid sampling: results read between the elements of the input, by index."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from fractions import Fraction

import torch

from .. import dtypes, scalar
from ..builder import Builder
from ..registry import NotLowerable, lowers
from ..scalar import Elem
from ..values import Extent, Tensor
from .common import loops, read_if, require_channels, require_pixels, within
from .elementwise import convert

# The place of an output index in the input: (index, distance towards the next), or a list of (index, weight).
Taps = list[tuple[Elem, Elem]]


def _sizes(b: Builder, x: Tensor, sizes: Sequence[Extent] | None, scales: Sequence[float] | None) -> list[Extent]:
    """The extents of the result's last dims; a scale is taken for the fraction that it was written as."""
    inner = x.dims[2:]
    if sizes is not None:
        return b.as_exported([*x.dims[:2], *sizes])[2:]
    assert scales is not None
    found: list[Extent] = []
    for dim, scale in zip(inner, scales, strict=True):
        ratio = Fraction(scale).limit_denominator(1 << 16)
        found.append(b.floordiv(b.mul(dim, ratio.numerator), ratio.denominator))
    return b.as_exported([*x.dims[:2], *found])[2:]


def _step(size: Extent, out: Extent, scale: float | None, dtype: torch.dtype) -> Elem:
    """How far the input moves for one step of the output."""
    if scale is not None and scale > 0:
        return scalar.constant(1.0 / scale, dtype)
    return scalar.from_extent(size, dtype) / scalar.from_extent(out, dtype)


def _corner_step(size: Extent, out: Extent, dtype: torch.dtype) -> Elem:
    span = scalar.from_extent(out, dtype) - 1.0
    step = (scalar.from_extent(size, dtype) - 1.0) / scalar.maximum(span, 1.0)
    return scalar.select(span > 0, step, step.like(0))


def _clamped(index: Elem, size: Extent) -> Elem:
    last = scalar.from_extent(size, torch.int64) - 1
    return scalar.maximum(scalar.minimum(index, last), 0)


def _require_images(b: Builder, x: Tensor, sizes: Sequence[Extent]) -> None:
    require_channels(b, x, x.rank - 2)
    require_pixels(b, x.dims[2:], "the input")
    require_pixels(b, sizes, "the result")


def _resample(b: Builder, x: Tensor, sizes: Sequence[Extent], taps: Callable[[int, Elem], Taps]) -> Tensor:
    """Sums of products over the taps of each dim; ``taps`` gets the number of a dim and the index in it."""
    dims = [*x.dims[:2], *sizes]
    compute = dtypes.opmath(x.dtype)
    _require_images(b, x, sizes)

    def body() -> Elem:
        n, c, *inner = loops(len(dims))
        found = [taps(d, i) for d, i in enumerate(inner)]
        total: Elem | None = None
        for combination in itertools.product(*found):
            value = b.extract(x, [n, c, *(index for index, _ in combination)]).to(compute)
            for _, weight in reversed(combination):
                value = value * weight
            total = value if total is None else total + value
        assert total is not None
        return total.to(x.dtype)

    return b.generic([], [], dims, x.dtype, body)


# -- nearest ---------------------------------------------------------------------------------------


def _nearest(
    b: Builder, x: Tensor, sizes: Sequence[Extent], scales: Sequence[float | None], *, centred: bool
) -> Tensor:
    _require_images(b, x, sizes)

    def body() -> Elem:
        n, c, *inner = loops(len(sizes) + 2)
        index = []
        for d, i in enumerate(inner):
            step = _step(x.dims[d + 2], sizes[d], scales[d], torch.float32)
            place = i.to(torch.float32)
            source = scalar.floor((place + 0.5) * step if centred else place * step).to(torch.int64)
            if scales[d] is not None and len(sizes) == 2 and not centred:
                # PyTorch ignores the scale for images that keep or double their size.
                size, out = (scalar.from_extent(n, torch.int64) for n in (x.dims[d + 2], sizes[d]))
                source = scalar.select(out.eq(size * 2), scalar.floor_divide(i, 2), source)
                source = scalar.select(out.eq(size), i, source)
            index.append(_clamped(source, x.dims[d + 2]))
        return b.extract(x, [n, c, *index])

    return b.generic([], [], [*x.dims[:2], *sizes], x.dtype, body)


def _register_nearest(name: str, count: int, *, centred: bool) -> None:
    @lowers(f"torch.aten.{name}")
    def plain(b: Builder, x: Tensor, sizes: Sequence[Extent], *scales: float | None) -> Tensor:
        return _nearest(b, x, _sizes(b, x, sizes, None), scales or [None] * count, centred=centred)

    @lowers(f"torch.aten.{name}.vec")
    def vec(b: Builder, x: Tensor, sizes: Sequence[Extent] | None, scales: Sequence[float] | None) -> Tensor:
        return _nearest(b, x, _sizes(b, x, sizes, scales), scales or [None] * count, centred=centred)


for _count in (1, 2, 3):
    _register_nearest(f"upsample_nearest{_count}d", _count, centred=False)
    _register_nearest(f"_upsample_nearest_exact{_count}d", _count, centred=True)

# -- linear and cubic ------------------------------------------------------------------------------


def _compute(x: Tensor) -> torch.dtype:
    """The dtype in which weights are computed."""
    if not dtypes.is_float(x.dtype):
        raise NotLowerable("interpolation between integers, which PyTorch does by rounded weights: convert to float")
    return dtypes.opmath(x.dtype)


def _source(x: Tensor, d: int, i: Elem, out: Extent, scale: float | None, corners: bool) -> Elem:
    """The place of output index ``i`` of inner dim ``d`` in the input."""
    compute = _compute(x)
    place = i.to(compute)
    if corners:
        return place * _corner_step(x.dims[d + 2], out, compute)
    return (place + 0.5) * _step(x.dims[d + 2], out, scale, compute) - 0.5


def _linear(b: Builder, x: Tensor, sizes: Sequence[Extent], corners: bool, scales: Sequence[float | None]) -> Tensor:
    def taps(d: int, i: Elem) -> Taps:
        source = scalar.maximum(_source(x, d, i, sizes[d], scales[d], corners), 0)
        low = _clamped(source.to(torch.int64), x.dims[d + 2])
        share = scalar.minimum(scalar.maximum(source - low.to(source.dtype), 0), 1)
        return [(low, 1.0 - share), (_clamped(low + 1, x.dims[d + 2]), share)]

    return _resample(b, x, sizes, taps)


def cubic_weights(t: Elem) -> list[Elem]:
    """Weights of the four neighbours; ``t`` is between the middle two (Keys, 1981, with A = -3/4)."""
    a = -0.75

    def near(s: Elem) -> Elem:
        return ((a + 2) * s - (a + 3)) * s * s + 1.0

    def far(s: Elem) -> Elem:
        return ((a * s - 5 * a) * s + 8 * a) * s - 4 * a

    return [far(t + 1.0), near(t), near(1.0 - t), far(2.0 - t)]


def _cubic(b: Builder, x: Tensor, sizes: Sequence[Extent], corners: bool, scales: Sequence[float | None]) -> Tensor:
    def taps(d: int, i: Elem) -> Taps:
        source = _source(x, d, i, sizes[d], scales[d], corners)
        whole = scalar.floor(source)
        low = whole.to(torch.int64)
        weights = cubic_weights(source - whole)
        return [(_clamped(low + (k - 1), x.dims[d + 2]), w) for k, w in enumerate(weights)]

    return _resample(b, x, sizes, taps)


def _register_smooth(name: str, count: int, lower: Callable[..., Tensor]) -> None:
    @lowers(f"torch.aten.{name}")
    def plain(b: Builder, x: Tensor, sizes: Sequence[Extent], corners: bool, *scales: float | None) -> Tensor:
        return lower(b, x, _sizes(b, x, sizes, None), corners, scales or [None] * count)

    @lowers(f"torch.aten.{name}.vec")
    def vec(
        b: Builder, x: Tensor, sizes: Sequence[Extent] | None, corners: bool, scales: Sequence[float] | None
    ) -> Tensor:
        return lower(b, x, _sizes(b, x, sizes, scales), corners, scales or [None] * count)


_register_smooth("upsample_linear1d", 1, _linear)
_register_smooth("upsample_bilinear2d", 2, _linear)
_register_smooth("upsample_trilinear3d", 3, _linear)
_register_smooth("upsample_bicubic2d", 2, _cubic)

# -- grids -----------------------------------------------------------------------------------------

_BILINEAR, _NEAREST, _BICUBIC = range(3)
_ZEROS, _BORDER, _REFLECTION = range(3)


def _reflected(at: Elem, low: float, span: Elem) -> Elem:
    """``at`` thrown back from both ends of [low, low + span]."""
    at = scalar.absolute(at - low)
    extra = scalar.fmod(at, scalar.select(span.eq(0), span.like(1), span))
    flips = scalar.floor(at / scalar.select(span.eq(0), span.like(1), span))
    even = scalar.fmod(flips, 2.0).eq(0)
    result = scalar.select(even, extra + low, span - extra + low)
    return scalar.select(span.eq(0), span.like(0), result)


@lowers("torch.aten.grid_sampler_2d", "torch.aten.grid_sampler_3d", "torch.aten.grid_sampler")
def grid_sampler(b: Builder, x: Tensor, grid: Tensor, mode: int, padding: int, corners: bool) -> Tensor:
    """x [n, c, ...] at the places in [-1, 1] that ``grid`` [n, ..., dims] lists, the last dim of x first."""
    count = x.rank - 2
    inner = list(x.dims[2:])
    out = b.as_exported([*x.dims[:2], *grid.dims[1:-1]])
    if mode == _BICUBIC and count != 2:
        raise NotLowerable("bicubic sampling of a volume")
    require_pixels(b, inner, "the input")
    compute = dtypes.opmath(x.dtype)

    def place(at: Elem, size: Extent) -> Elem:
        extent = scalar.from_extent(size, compute)
        return (at + 1.0) / 2.0 * (extent - 1.0) if corners else ((at + 1.0) * extent - 1.0) / 2.0

    def kept(at: Elem, size: Extent) -> Elem:
        extent = scalar.from_extent(size, compute)
        if padding == _REFLECTION:
            at = _reflected(at, 0.0, extent - 1.0) if corners else _reflected(at, -0.5, extent)
        if padding != _ZEROS:
            at = scalar.minimum(scalar.maximum(at, 0), extent - 1.0)
        # Numbers that no integer can represent, including NaN, are outside.
        return scalar.select(scalar.absolute(at) < 1e9, at, at.like(-100.0))

    def read(n: Elem, c: Elem, index: Sequence[Elem]) -> Elem:
        inside = within(index[0], inner[0])
        for i, size in zip(index[1:], inner[1:], strict=True):
            inside = inside & within(i, size)
        return read_if(b, inside, x, [n, c, *index]).to(compute)

    def body() -> Elem:
        n, c, *at = loops(len(out))
        axes = [scalar.constant(count - 1 - d, torch.int64) for d in range(count)]
        places = [
            place(b.extract(grid, [n, *at, axis]).to(compute), size) for axis, size in zip(axes, inner, strict=True)
        ]
        found: list[Taps] = []
        for source, size in zip(places, inner, strict=True):
            if mode == _BICUBIC:
                finite = scalar.select(scalar.absolute(source) < 1e9, source, source.like(-100.0))
                whole = scalar.floor(finite)
                weights = cubic_weights(finite - whole)
                found.append([(kept(whole + float(k - 1), size), w) for k, w in enumerate(weights)])
                continue
            source = kept(source, size)
            if mode == _NEAREST:
                found.append([(scalar.unary("roundeven", source), source.like(1))])
                continue
            whole = scalar.floor(source)
            found.append([(whole, whole + 1.0 - source), (whole + 1.0, source - whole)])
        total: Elem | None = None
        for combination in itertools.product(*found):
            value = read(n, c, [index.to(torch.int64) for index, _ in combination])
            for _, weight in combination:
                value = value * weight
            total = value if total is None else total + value
        assert total is not None
        return total.to(x.dtype)

    return b.generic([], [], out, x.dtype, body)


# -- with anti-aliasing ----------------------------------------------------------------------------


def _window_weights(
    b: Builder,
    dtype: torch.dtype,
    size: Extent,
    out: Extent,
    step: Callable[[], Elem],
    support: float,
    shape: Callable[[Elem], Elem],
) -> Tensor:
    """[out, size]: what each input element counts for each output, over a window as wide as the step."""

    def weight() -> Elem:
        i, j = loops(2)
        stride = step()
        wide = scalar.maximum(stride, 1)
        centre = (i.to(dtype) + 0.5) * stride
        first = scalar.maximum((centre - wide * support + 0.5).to(torch.int64), 0)
        last = scalar.minimum((centre + wide * support + 0.5).to(torch.int64), scalar.from_extent(size, torch.int64))
        value = shape(scalar.absolute((j.to(dtype) - centre + 0.5) / wide))
        return scalar.select((j >= first) & (j < last), value, 0)

    weights = b.generic([], [], [out, size], dtype, weight)
    total = b.reduce([weights], [1], dtype, 0, lambda acc, w: acc + w)
    return b.along(weights, [1], dtype, [total], lambda w, t: w / t)


def _triangle(t: Elem) -> Elem:
    return scalar.maximum(1.0 - t, 0)


def _keys(t: Elem) -> Elem:
    """Keys' cubic with A = -1/2, which anti-aliasing uses."""
    near = (1.5 * t - 2.5) * t * t + 1.0
    far = ((-0.5 * t + 2.5) * t - 4.0) * t + 2.0
    return scalar.select(t < 1.0, near, scalar.select(t < 2.0, far, 0.0))


def _antialiased(
    b: Builder,
    x: Tensor,
    sizes: Sequence[Extent],
    corners: bool,
    scales: Sequence[float | None],
    support: float,
    shape: Callable[[Elem], Elem],
) -> Tensor:
    """One product with a matrix of weights along each dim."""
    n, c, height, width = x.dims
    rows, columns = sizes
    compute = _compute(x)

    def step(size: Extent, out: Extent, scale: float | None) -> Callable[[], Elem]:
        if corners:
            return lambda: _corner_step(size, out, compute)
        return lambda: _step(size, out, scale, compute)

    across = _window_weights(b, compute, width, columns, step(width, columns, scales[1]), support, shape)
    along = _window_weights(b, compute, height, rows, step(height, rows, scales[0]), support, shape)
    flat = convert(b, b.reshape(x, [b.product([n, c, height]), width]), compute)
    wide = b.contract(flat, across, [0, 2], [1, 2], [flat.dims[0], columns, width])
    planes = b.reshape(wide, [b.mul(n, c), height, columns])
    result = b.contract(along, planes, [1, 3], [0, 3, 2], [planes.dims[0], rows, columns, height])
    return convert(b, b.reshape(result, [n, c, rows, columns]), x.dtype)


def _register_antialiased(name: str, support: float, shape: Callable[[Elem], Elem]) -> None:
    @lowers(f"torch.aten.{name}")
    def plain(b: Builder, x: Tensor, sizes: Sequence[Extent], corners: bool, *scales: float | None) -> Tensor:
        return _antialiased(b, x, _sizes(b, x, sizes, None), corners, scales or [None] * 2, support, shape)

    @lowers(f"torch.aten.{name}.vec")
    def vec(
        b: Builder, x: Tensor, sizes: Sequence[Extent] | None, corners: bool, scales: Sequence[float] | None
    ) -> Tensor:
        given: Sequence[float | None] = scales or [None] * 2
        return _antialiased(b, x, _sizes(b, x, sizes, scales), corners, given, support, shape)


_register_antialiased("_upsample_bilinear2d_aa", 1.0, _triangle)
_register_antialiased("_upsample_bicubic2d_aa", 2.0, _keys)
