"""Fourier transforms: the function ``fft`` transforms rows, one dim after the other."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from .. import dtypes, scalar
from ..builder import Builder
from ..registry import lowers
from ..values import Extent, Tensor, normalize_dim
from .elementwise import convert

_COMPLEX, _TO_COMPLEX, _TO_REAL = range(3)
_NONE, _ROOT, _WHOLE = range(3)
_RADICES = (2, 3, 5, 7, 11, 13)


_TOGETHER = 2048
"""The longest transform of which several rows are done at once (kLongestTogether of the runtime's Fft.cpp)."""


def _complex_length(b: Builder, n: Extent, kind: int) -> Extent:
    """The length of the complex transform: half of an even number of real elements, else at most ``n``."""
    return n // 2 if isinstance(n, int) and kind != _COMPLEX and n % 2 == 0 else n


def _convolution(b: Builder, n: Extent) -> Extent:
    """The length of the convolution that a complex transform of length ``n`` needs, or an upper bound."""
    if not isinstance(n, int):
        # Of the lengths below, neighbours are at most a quarter apart.
        return b.floordiv(b.mul(n, 5), 2)
    rest = n
    for radix in _RADICES:
        while rest > 1 and rest % radix == 0:
            rest //= radix
    if rest <= 1:
        return 0
    return min(factor << max(-(-(2 * n - 1) // factor) - 1, 0).bit_length() for factor in (1, 3, 5, 9, 15))


def _rows_per_task(b: Builder, n: Extent, count: Extent, last: bool) -> Extent:
    """How many of ``count`` rows of length ``n`` a task transforms at once.

    Fewer where rows are long, or where ``count`` is too few for two threads. Columns next to each other share cache
    lines and are worth it for longer ones.
    """
    n = b.maximum(n, 1)
    long = b.minimum(b.floordiv((8 if last else 16) * _TOGETHER, n), b.floordiv(count, 2))
    return b.maximum(b.minimum(b.maximum(long, b.floordiv(2 * _TOGETHER, n)), 16), 1)


def _transform(
    b: Builder, x: Tensor, dim: int, n: Extent, kind: int, backward: bool, scale: float, results: Extent
) -> Tensor:
    """The transforms of length ``n`` along ``dim``."""
    part = dtypes.part(x.dtype)
    scalar_ = x.rank == 0
    x = b.reshape(x, [1]) if scalar_ else x
    dim = normalize_dim(dim, x.rank)
    length = _complex_length(b, n, kind)
    convolution = _convolution(b, length)
    size = b.add(b.add(b.mul(length, 7), b.mul(convolution, 9)), 160)
    longest = b.maximum(length, convolution)
    scratch = b.add(b.add(b.mul(longest, 5 * part.itemsize), b.mul(b.minimum(longest, _TOGETHER), 256)), 1024)
    plan = b.call("fft_plan", [], [([size], part)], config=[n, int(kind != _COMPLEX)], scratch=scratch)[0]
    dims = [*x.dims[:dim], results, *x.dims[dim + 1 :]]
    after = x.rank - 1 - dim
    count = b.product([*x.dims[:dim], *x.dims[dim + 1 :]])
    rows = _rows_per_task(b, n, count, after == 0)
    made = b.call(
        "fft",
        [x if kind == _TO_COMPLEX else b.as_pairs(x), plan],
        [(dims if kind == _TO_REAL else [*dims, 2], part)],
        config=[n, kind, int(backward), float(scale), after, rows],
        tasks=b.floordiv(b.add(count, b.sub(rows, 1)), rows),
        scratch=scratch,
    )[0]
    result = made if kind == _TO_REAL else b.as_complex(made)
    return b.reshape(result, []) if scalar_ else result


def _scale(extents: Sequence[Extent], normalization: int) -> float | None:
    """The factor that ``normalization`` asks for, or None if it depends on extents that are dynamic."""
    if normalization == _NONE:
        return 1.0
    if not all(isinstance(n, int) for n in extents):
        return None
    total = math.prod(int(n) for n in extents if isinstance(n, int))
    return 1.0 / math.sqrt(total) if normalization == _ROOT else 1.0 / total


def _scaled(b: Builder, x: Tensor, extents: Sequence[Extent], normalization: int) -> Tensor:
    """``x`` times a factor that depends on dynamic extents."""
    total = b.product(extents)
    whole = b.as_pairs(x) if dtypes.is_complex(x.dtype) else x

    def body(x: scalar.Elem) -> scalar.Elem:
        count = scalar.from_extent(total, torch.int64).to(x.dtype)
        return x / (scalar.sqrt(count) if normalization == _ROOT else count)

    scaled = b.elementwise(whole.dtype, [whole], body)
    return b.as_complex(scaled) if dtypes.is_complex(x.dtype) else scaled


def _along(b: Builder, x: Tensor, dims: Sequence[int], backward: bool, scale: float) -> Tensor:
    """Complex transforms along all of ``dims``."""
    for dim in dims:
        x = _transform(b, x, dim, x.dims[dim], _COMPLEX, backward, scale, x.dims[dim])
        scale = 1.0
    return x


@lowers("torch.aten._fft_c2c")
def c2c(b: Builder, x: Tensor, dims: Sequence[int], normalization: int, forward: bool) -> Tensor:
    """Complex to complex."""
    dims = [normalize_dim(d, x.rank) for d in dims]
    extents = [x.dims[d] for d in dims]
    scale = _scale(extents, normalization)
    result = _along(b, x, dims, not forward, 1.0 if scale is None else scale)
    return _scaled(b, result, extents, normalization) if scale is None else result


@lowers("torch.aten._fft_r2c")
def r2c(b: Builder, x: Tensor, dims: Sequence[int], normalization: int, onesided: bool) -> Tensor:
    """Real to complex; ``onesided`` returns half of the last dim's spectrum: the rest is its mirror image."""
    dims = [normalize_dim(d, x.rank) for d in dims]
    extents = [x.dims[d] for d in dims]
    scale = _scale(extents, normalization)
    x = convert(b, x, torch.float32) if dtypes.is_half(x.dtype) else x
    n = x.dims[dims[-1]]
    results = b.add(b.floordiv(n, 2), 1) if onesided else n
    result = _transform(b, x, dims[-1], n, _TO_COMPLEX, False, 1.0 if scale is None else scale, results)
    result = _along(b, result, dims[:-1], False, 1.0)
    return _scaled(b, result, extents, normalization) if scale is None else result


@lowers("torch.aten._fft_c2r")
def c2r(b: Builder, x: Tensor, dims: Sequence[int], normalization: int, n: Extent) -> Tensor:
    """Half a spectrum to ``n`` real numbers along the last of ``dims``."""
    dims = [normalize_dim(d, x.rank) for d in dims]
    extents = [*(x.dims[d] for d in dims[:-1]), n]
    scale = _scale(extents, normalization)
    x = _along(b, x, dims[:-1], True, 1.0)
    result = _transform(b, x, dims[-1], n, _TO_REAL, True, 1.0 if scale is None else scale, n)
    return _scaled(b, result, extents, normalization) if scale is None else result
