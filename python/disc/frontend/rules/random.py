"""Random numbers: the function ``random`` counts, and what follows from even numbers is elementwise.

Distributions are PyTorch's, the numbers are not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from .. import dtypes, scalar
from ..builder import Builder
from ..registry import lowers
from ..scalar import Elem
from ..values import Extent, Number, Tensor
from .calls import PARTS, dtype_code
from .common import number
from .elementwise import convert
from .sorting import search, sort_rows


def draw(b: Builder, dims: Sequence[Extent], dtype: torch.dtype) -> Tensor:
    """Numbers distributed evenly: floats in [0, 1), integers over all of their values."""
    b.random_operations += 1
    # Random operations draw different numbers, also in each step of a loop.
    return b.call(
        "random",
        [],
        [(dims, dtype)],
        config=[dtype_code(dtype), b.step_key(b.random_operations), PARTS],
        tasks=PARTS,
    )[0]


def _uniform_dtype(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32


def _normal(b: Builder, dims: Sequence[Extent], dtype: torch.dtype) -> Tensor:
    """Box and Muller's transform of two even numbers (A Note on the Generation of Random Normal Deviates, 1958)."""
    wide = _uniform_dtype(dtype)
    radius, angle = draw(b, dims, wide), draw(b, dims, wide)

    def body(radius: Elem, angle: Elem) -> Elem:
        # 1 - u is never 0.
        size = scalar.sqrt(scalar.log(1.0 - radius) * -2.0)
        return size * scalar.unary("cos", angle * (2 * math.pi))

    return b.elementwise(dtype, [radius, angle], body, compute=wide)


def _of_shape(name: str, make: Callable[[Builder, Sequence[Extent], torch.dtype], Tensor]) -> None:
    @lowers(f"torch.aten.{name}")
    def of_dims(b: Builder, dims: Sequence[Extent], *_: Any) -> Tensor:
        return make(b, dims, b.out.dtype)

    @lowers(f"torch.aten.{name}_like")
    def like(b: Builder, x: Tensor, *_: Any) -> Tensor:
        return make(b, x.dims, b.out.dtype)


_of_shape("rand", lambda b, dims, dtype: draw(b, dims, dtype))
_of_shape("randn", lambda b, dims, dtype: _normal(b, dims, dtype))


def _integers(b: Builder, low: Any, high: Any, dims: Sequence[Extent]) -> Tensor:
    bits = draw(b, dims, torch.int64)

    def body(bits: Elem, low: Elem, high: Elem) -> Elem:
        return scalar.fmod(bits & (2**63 - 1), high - low) + low

    return b.map(b.out.dtype, [bits, number(low), number(high)], body, number_dtype=torch.int64)


@lowers("torch.aten.randint")
def randint(b: Builder, high: Any, dims: Sequence[Extent], *_: Any) -> Tensor:
    """Integers in [0, high)."""
    return _integers(b, 0, high, dims)


@lowers("torch.aten.randint.low")
def randint_low(b: Builder, low: Any, high: Any, dims: Sequence[Extent], *_: Any) -> Tensor:
    """Integers in [low, high)."""
    return _integers(b, low, high, dims)


@lowers("torch.aten.randint_like")
def randint_like(b: Builder, x: Tensor, high: Any, *_: Any) -> Tensor:
    """Integers in [0, high), in the shape of x."""
    return _integers(b, 0, high, x.dims)


@lowers("torch.aten.randint_like.low_dtype")
def randint_like_low(b: Builder, x: Tensor, low: Any, high: Any, *_: Any) -> Tensor:
    """Integers in [low, high), in the shape of x."""
    return _integers(b, low, high, x.dims)


@lowers("torch.aten.randperm")
def randperm(b: Builder, count: Extent, *_: Any) -> Tensor:
    """0, 1, ... count - 1 in random order: the order of random keys."""
    keys = draw(b, [count], torch.int64)
    return convert(b, sort_rows(b, keys, 0, count, descending=False)[1], b.out.dtype)


@lowers("torch.aten.bernoulli.p", "torch.aten.bernoulli.Tensor", "torch.aten.bernoulli")
def bernoulli(b: Builder, x: Tensor, p: Any = None, *_: Any) -> Tensor:
    """1 with a probability, else 0."""
    even = draw(b, x.dims, torch.float32)
    p = x if p is None else number(p)
    return b.map(b.out.dtype, [even, p], lambda u, p: u.to(p.dtype) < p, number_dtype=torch.float32)


@lowers("torch.aten.uniform")
def uniform(b: Builder, x: Tensor, low: Number = 0.0, high: Number = 1.0, *_: Any) -> Tensor:
    """Even in [low, high)."""
    return b.elementwise(x.dtype, [draw(b, x.dims, _uniform_dtype(x.dtype))], lambda u: u * (high - low) + low)


@lowers("torch.aten.normal_functional")
def normal_functional(b: Builder, x: Tensor, mean: Number = 0.0, std: Number = 1.0, *_: Any) -> Tensor:
    """Normal, in the shape of x."""
    return b.elementwise(x.dtype, [_normal(b, x.dims, _uniform_dtype(x.dtype))], lambda z: z * std + mean)


@lowers("torch.aten.normal.Tensor_float", "torch.aten.normal.float_Tensor", "torch.aten.normal.Tensor_Tensor")
def normal(b: Builder, mean: Any = 0.0, std: Any = 1.0, *_: Any) -> Tensor:
    """Normal, with a mean and deviation for each element."""
    dims = b.broadcast_dims([t.dims for t in (mean, std) if isinstance(t, Tensor)])
    noise = _normal(b, dims, _uniform_dtype(b.out.dtype))
    return b.elementwise(b.out.dtype, [noise, number(mean), number(std)], lambda z, m, s: z * s + m)


@lowers("torch.aten.normal.float_float")
def normal_of_shape(b: Builder, mean: Number, std: Number, dims: Sequence[Extent], *_: Any) -> Tensor:
    """Normal, with one mean and deviation."""
    return b.elementwise(b.out.dtype, [_normal(b, dims, _uniform_dtype(b.out.dtype))], lambda z: z * std + mean)


def _transformed(name: str, fn: Callable[..., Elem]) -> None:
    @lowers(f"torch.aten.{name}")
    def rule(b: Builder, x: Tensor, *args: Any) -> Tensor:
        numbers = [float(a) for a in args if isinstance(a, (int, float))]
        # Open at both ends, as logarithms want it.
        return b.elementwise(
            x.dtype,
            [draw(b, x.dims, torch.float64)],
            lambda u: fn(u + 2.0**-54, *numbers),
            compute=torch.float64,
        )


_transformed("exponential", lambda u, rate=1.0: scalar.log(u) * (-1.0 / rate))
_transformed("cauchy", lambda u, median=0.0, sigma=1.0: scalar.unary("tan", (u - 0.5) * math.pi) * sigma + median)
_transformed("geometric", lambda u, p=0.5: scalar.unary("ceil", scalar.log(u) * (1.0 / math.log1p(-p))))


@lowers("torch.aten.log_normal")
def log_normal(b: Builder, x: Tensor, mean: Number = 1.0, std: Number = 2.0, *_: Any) -> Tensor:
    """e to the power of normal numbers."""
    noise = _normal(b, x.dims, _uniform_dtype(x.dtype))
    return b.elementwise(x.dtype, [noise], lambda z: scalar.exp(z * std + mean))


@lowers("torch.aten.dropout")
def dropout(b: Builder, x: Tensor, p: Number, train: bool) -> Tensor:
    """x / (1 - p) with a probability of 1 - p, else 0; in inference x."""
    return _dropout(b, x, p)[0] if train and p > 0 else x


@lowers("torch.aten.native_dropout")
def native_dropout(b: Builder, x: Tensor, p: Number, train: bool | None) -> tuple[Tensor, Tensor]:
    """The same, and what was kept."""
    if train is False or p == 0:
        return x, b.full(x.dims, True, torch.bool)
    return _dropout(b, x, p)


def _dropout(b: Builder, x: Tensor, p: Number) -> tuple[Tensor, Tensor]:
    even = draw(b, x.dims, torch.float32)
    factor = 0.0 if p == 1 else 1.0 / (1.0 - p)
    kept = b.map(torch.bool, [even], lambda u: u >= float(p))
    dtype = dtypes.opmath(x.dtype)
    result = b.map(x.dtype, [x, even], lambda x, u: scalar.select(u >= float(p), x.to(dtype) * factor, 0.0))
    return result, kept


@lowers("torch.aten.multinomial")
def multinomial(b: Builder, weights: Tensor, count: Extent, replacement: bool = False, *_: Any) -> Tensor:
    """Indices drawn by weight from each row."""
    wide = convert(b, weights, torch.float64)
    last = weights.rank - 1
    if not replacement:
        # The smallest of exponential numbers with these rates come in that order (Efraimidis, Spirakis, 2006).
        even = draw(b, weights.dims, torch.float64)
        keys = b.map(
            torch.float64,
            [even, wide],
            lambda u, w: scalar.select(w > 0.0, scalar.log(u + 2.0**-54) / w, -math.inf),
        )
        return sort_rows(b, keys, -1, count, descending=True)[1]
    sums = b.running_sum(wide, last)
    total = b.slice(sums, last, b.sub(sums.dims[last], 1), 1)
    dims = [*weights.dims[:-1], count]
    points = b.map(torch.float64, [draw(b, dims, torch.float64), total], lambda u, t: u * t)
    places = search(b, sums, points, True, None, torch.int64)
    # Rounding may leave a point at the very end.
    return b.map(
        torch.int64, [places], lambda i: scalar.minimum(i, scalar.from_extent(b.sub(sums.dims[last], 1), torch.int64))
    )


@lowers("torch.aten.rrelu_with_noise_functional")
def rrelu_with_noise(
    b: Builder, x: Tensor, noise: Tensor, low: Number = 0.125, high: Number = 1 / 3, train: bool = False, *_: Any
) -> tuple[Tensor, Tensor]:
    """x where it is positive, else x times a random (in inference the mean) slope."""
    if not train:
        return b.elementwise(x.dtype, [x], lambda x: scalar.select(x > 0, x, x * ((low + high) / 2))), noise
    even = draw(b, x.dims, _uniform_dtype(x.dtype))
    slope = b.map(
        x.dtype, [x, even], lambda x, u: scalar.select(x.to(u.dtype) > 0, u.like(1.0), u * (high - low) + low)
    )
    return b.elementwise(x.dtype, [x, slope], lambda x, s: x * s), slope
