"""Sums, means, extrema, variances, norms, and running sums."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from .. import dtypes, scalar
from ..builder import Builder
from ..registry import NotLowerable, lowers
from ..scalar import Elem
from ..values import Number, RuntimeNumber, Tensor, normalize_dim
from .common import axes
from .elementwise import convert


def fold(
    b: Builder,
    x: Tensor,
    dims: Any,
    keepdim: bool,
    dtype: torch.dtype,
    neutral: Number,
    fn: Callable[[Elem, Elem], Elem],
) -> Tensor:
    """Folds ``fn`` in the type PyTorch accumulates ``dtype`` in."""
    compute = dtypes.opmath(dtype)
    folded = b.reduce(
        [x],
        axes(dims, x.rank),
        compute,
        neutral,
        lambda acc, x: fn(acc, x.to(compute)),
        keepdim=keepdim,
    )
    return convert(b, folded, dtype)


@lowers("torch.aten.sum")
def sum_(b: Builder, x: Tensor, dims: Any = None, keepdim: Any = False, *_: Any) -> Tensor:
    """The sum over ``dims``."""
    if "dim" not in b.op_name:
        # The overload without dims has the dtype in their place.
        dims, keepdim = None, False
    return fold(b, x, dims, keepdim, b.out.dtype, 0, lambda acc, x: acc + x)


@lowers("torch.aten.prod")
def prod(b: Builder, x: Tensor, dims: Any = None, keepdim: Any = False, *_: Any) -> Tensor:
    """The product over ``dims``."""
    if "dim" not in b.op_name:
        dims, keepdim = None, False
    return fold(b, x, dims, keepdim, b.out.dtype, 1, lambda acc, x: acc * x)


@lowers("torch.aten.mean")
def mean(b: Builder, x: Tensor, dims: Any = None, keepdim: Any = False, *_: Any) -> Tensor:
    """The mean over ``dims``."""
    if "dim" not in b.op_name:
        dims, keepdim = None, False
    reduced = axes(dims, x.rank)
    compute = dtypes.opmath(b.out.dtype)
    total = b.reduce([x], reduced, compute, 0, lambda acc, x: acc + x.to(compute), keepdim=keepdim)
    return b.elementwise(b.out.dtype, [total, _count(b, x, reduced, compute)], lambda s, n: s / n)


def _count(b: Builder, x: Tensor, reduced: list[int], dtype: torch.dtype, correction: Number = 0) -> RuntimeNumber:
    """The number of elements folded into one, less ``correction`` but never negative."""
    size = b.product([x.dims[i] for i in reduced])

    def emit() -> Elem:
        count = scalar.from_extent(size, dtype)
        return scalar.maximum(count - correction, 0) if correction else count

    return RuntimeNumber(dtype, emit)


def centred_moments(b: Builder, x: Tensor, reduced: list[int]) -> tuple[Tensor, Tensor]:
    """The mean over ``reduced``, and the sum of the squared differences from it, in the accumulation type."""
    compute = dtypes.opmath(x.dtype)
    total = b.reduce([x], reduced, compute, 0, lambda acc, x: acc + x.to(compute))
    mean = b.elementwise(compute, [total, _count(b, x, reduced, compute)], lambda s, n: s / n)

    def add_square(acc: Elem, x: Elem, m: Elem) -> Elem:
        centred = x.to(compute) - m
        return acc + centred * centred

    return mean, b.reduce([x, mean], reduced, compute, 0, add_square)


def corrected_moments(b: Builder, x: Tensor, reduced: list[int]) -> tuple[Tensor, Tensor]:
    """The results of :func:`centred_moments` to more digits; the mean of equal numbers is that number.

    The rounded mean of large numbers is far from the true one, in terms of their spread. The second pass sums the
    differences as well: their mean corrects the mean, and its square what the sum of the squares has too much.
    PyTorch's norms of groups are not as exact, so that those here do without.
    """
    compute = dtypes.opmath(x.dtype)
    count = _count(b, x, reduced, compute)
    rough, squares = centred_moments(b, x, reduced)
    rest = b.reduce([x, rough], reduced, compute, 0, lambda acc, x, m: acc + (x.to(compute) - m))

    def average_of(m: Elem, r: Elem, n: Elem) -> Elem:
        # An infinite mean differs from its own terms by NaN.
        return scalar.select(scalar.absolute(m).eq(math.inf), m, m + r / n)

    average = b.elementwise(compute, [rough, rest, count], average_of)

    def corrected(s: Elem, r: Elem, n: Elem) -> Elem:
        # Rounding may make the difference of two equal numbers negative; infinity stays.
        return scalar.select(s.eq(math.inf), s, scalar.maximum(s - r * (r / n), 0))

    return average, b.elementwise(compute, [squares, rest, count], corrected)


def variance(b: Builder, x: Tensor, dims: Any, correction: Number, keepdim: bool) -> tuple[Tensor, Tensor]:
    """Mean and variance in the accumulation type."""
    reduced = axes(dims, x.rank)
    compute = dtypes.opmath(x.dtype)
    average, squares = corrected_moments(b, x, reduced)
    count = _count(b, x, reduced, compute, correction)
    spread = b.elementwise(compute, [squares, count], lambda s, n: s / n)
    if keepdim:
        dims_out = [1 if i in reduced else d for i, d in enumerate(x.dims)]
        average, spread = b.reshape(average, dims_out), b.reshape(spread, dims_out)
    return average, spread


def variance_arguments(b: Builder, args: tuple[Any, ...]) -> tuple[Any, Number, bool]:
    """(dims, correction, keepdim) of the overloads of var and std."""
    if b.op_name.endswith((".correction", ".correction_names")):
        dims, correction, keepdim = args
        return dims, 1 if correction is None else correction, keepdim
    if b.op_name.endswith(".dim"):
        dims, unbiased, keepdim = args
        return dims, int(unbiased), keepdim
    return None, int(args[0]) if args else 1, False


@lowers("torch.aten.var")
def var(b: Builder, x: Tensor, *args: Any) -> Tensor:
    """The variance over dims."""
    return convert(b, variance(b, x, *variance_arguments(b, args))[1], b.out.dtype)


@lowers("torch.aten.std")
def std(b: Builder, x: Tensor, *args: Any) -> Tensor:
    """The standard deviation over dims."""
    spread = variance(b, x, *variance_arguments(b, args))[1]
    return b.elementwise(b.out.dtype, [spread], scalar.sqrt)


@lowers("torch.aten.var_mean")
def var_mean(b: Builder, x: Tensor, *args: Any) -> tuple[Tensor, Tensor]:
    """Variance and mean over dims."""
    average, spread = variance(b, x, *variance_arguments(b, args))
    return convert(b, spread, b.results[0].dtype), convert(b, average, b.results[1].dtype)


# -- extrema ---------------------------------------------------------------------------------------


_EXTREMA = ("amax", "amin", "max", "min", "argmax", "argmin", "aminmax")


@lowers("torch.aten.amax")
def amax(b: Builder, x: Tensor, dims: Any = None, keepdim: bool = False) -> Tensor:
    """The maximum over ``dims``; NaN wins."""
    return _extremum(b, x, dims, keepdim, largest=True)


@lowers("torch.aten.amin")
def amin(b: Builder, x: Tensor, dims: Any = None, keepdim: bool = False) -> Tensor:
    """The minimum over ``dims``; NaN wins."""
    return _extremum(b, x, dims, keepdim, largest=False)


def _extremum(b: Builder, x: Tensor, dims: Any, keepdim: bool, *, largest: bool) -> Tensor:
    original = None if b.node is None else b.node.meta.get("original_aten")
    if original is None or str(original).removeprefix("aten.").split(".")[0] in _EXTREMA:
        # Otherwise a part of logsumexp or the like, which have a value for no elements.
        b.require_elements([x.dims[axis] for axis in axes(dims, x.rank)])
    neutral = dtypes.lowest(x.dtype) if largest else dtypes.highest(x.dtype)
    pick = scalar.maximum if largest else scalar.minimum
    return b.reduce([x], axes(dims, x.rank), x.dtype, neutral, pick, keepdim=keepdim)


@lowers("torch.aten.max", "torch.aten.max.dim")
def max_(b: Builder, x: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """The maximum of all elements; along ``dim`` also where it is."""
    return _extremum_along(b, x, dim, keepdim, largest=True)


@lowers("torch.aten.min", "torch.aten.min.dim")
def min_(b: Builder, x: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """The minimum of all elements; along ``dim`` also where it is."""
    return _extremum_along(b, x, dim, keepdim, largest=False)


def _extremum_along(b: Builder, x: Tensor, dim: int | None, keepdim: bool, *, largest: bool) -> Any:
    if dim is None:
        return _extremum(b, x, None, False, largest=largest)
    best = _extremum(b, x, [dim], False, largest=largest)
    where = _position(b, x, best, dim)
    if keepdim and x.rank:
        dims = [1 if i == normalize_dim(dim, x.rank) else d for i, d in enumerate(x.dims)]
        best, where = b.reshape(best, dims), b.reshape(where, dims)
    return best, where


def _position(b: Builder, x: Tensor, best: Tensor, dim: int) -> Tensor:
    """The first index along ``dim`` at which ``x`` is ``best`` (or NaN, when best is)."""
    if x.rank == 0:
        return b.full([], 0, torch.int64)
    axis = normalize_dim(dim, x.rank)
    nowhere = torch.iinfo(torch.int64).max

    def first(acc: Elem, x: Elem, best: Elem) -> Elem:
        hit = x.eq(best)
        if dtypes.is_float(x.dtype):
            hit = hit | x.ne(x)
        # One combination of the accumulator with something else: what can be done in any order, and so in lanes.
        return scalar.minimum(acc, scalar.select(hit, scalar.loop_index(axis), nowhere))

    return b.reduce([x, best], [axis], torch.int64, nowhere, first)


@lowers("torch.aten.argmax")
def argmax(b: Builder, x: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """Where the maximum along ``dim`` is."""
    return _arg_extremum(b, x, dim, keepdim, largest=True)


@lowers("torch.aten.argmin")
def argmin(b: Builder, x: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """Where the minimum along ``dim`` is."""
    return _arg_extremum(b, x, dim, keepdim, largest=False)


def _arg_extremum(b: Builder, x: Tensor, dim: int | None, keepdim: bool, *, largest: bool) -> Tensor:
    if dim is not None:
        return _extremum_along(b, x, dim, keepdim, largest=largest)[1]
    flat = b.reshape(x, [b.product(x.dims)])
    where = _extremum_along(b, flat, 0, False, largest=largest)[1]
    return b.reshape(where, [1] * x.rank) if keepdim else where


@lowers("torch.aten.logsumexp")
def logsumexp(b: Builder, x: Tensor, dims: Any, keepdim: bool = False) -> Tensor:
    """log(sum of e^x) over ``dims``; the greatest element is taken out, unless it is infinite."""
    reduced = axes(dims, x.rank)
    dtype = b.out.dtype
    compute = dtypes.opmath(dtype)
    top = b.reduce([x], reduced, compute, dtypes.lowest(compute), lambda acc, x: scalar.maximum(acc, x.to(compute)))
    base = b.elementwise(compute, [top], lambda m: scalar.select(scalar.absolute(m).eq(math.inf), m.like(0), m))
    total = b.reduce([x, base], reduced, compute, 0, lambda acc, x, m: acc + scalar.exp(x.to(compute) - m))
    result = b.elementwise(dtype, [total, base], lambda s, m: scalar.log(s) + m)
    return b.reshape(result, [1 if i in reduced else d for i, d in enumerate(x.dims)]) if keepdim else result


# -- logic -----------------------------------------------------------------------------------------


def _register_logic(name: str, of_all: str, neutral: bool, fn: Callable[[Elem, Elem], Elem]) -> None:
    @lowers(f"torch.aten.{name}", f"torch.aten.{of_all}")
    def rule(b: Builder, x: Tensor, dims: Any = None, keepdim: bool = False) -> Tensor:
        # Unlike for sums, an empty list of dims means no dim, not all.
        empty = dims == [] and b.op_name.endswith(".dims")
        folded = b.reduce(
            [x],
            [] if empty else axes(dims, x.rank),
            torch.bool,
            neutral,
            lambda acc, x: fn(acc, x.to(torch.bool)),
            keepdim=keepdim,
        )
        return convert(b, folded, b.out.dtype)


_register_logic("any", "_is_any_true", False, lambda acc, x: acc | x)
_register_logic("all", "_is_all_true", True, lambda acc, x: acc & x)

# -- norms and running sums ------------------------------------------------------------------------


@lowers("torch.aten.linalg_vector_norm", "torch.aten.norm.ScalarOpt_dim")
def vector_norm(
    b: Builder, x: Tensor, order: Number | None, dims: Any = None, keepdim: bool = False, *_: Any
) -> Tensor:
    """The ``order``-norm over ``dims``."""
    order = 2 if order is None else order
    dtype = b.out.dtype
    compute = dtypes.opmath(dtype)
    finite = order not in (float("inf"), float("-inf"))
    neutral = 0 if finite else (0 if order > 0 else float("inf"))
    if not finite or (isinstance(order, (int, float)) and order < 0):
        b.require_elements([x.dims[axis] for axis in axes(dims, x.rank)])

    def fn(acc: Elem, x: Elem) -> Elem:
        if order == 2:
            return acc + x * x
        size = scalar.absolute(x)
        if not finite:
            return scalar.maximum(acc, size) if order > 0 else scalar.minimum(acc, size)
        if order == 0:
            return acc + x.ne(0).to(compute)
        return acc + scalar.power(size, order)

    total = b.reduce(
        [x],
        axes(dims, x.rank),
        compute,
        neutral,
        lambda acc, x: fn(acc, x.to(compute)),
        keepdim=keepdim,
    )
    if order in (0, 1) or not finite:
        return convert(b, total, dtype)
    return b.elementwise(dtype, [total], lambda s: scalar.power(s, 1.0 / order))


@lowers("torch.aten.cumsum")
def cumsum(b: Builder, x: Tensor, dim: int, *_: Any) -> Tensor:
    """Running sums along ``dim``: for each element the sum of those up to it."""
    dtype = b.out.dtype
    if x.rank == 0:
        return convert(b, x, dtype)
    if dtype == torch.bool:
        raise NotLowerable("cumsum of bool")
    total = b.running_sum(convert(b, x, dtypes.opmath(dtype)), normalize_dim(dim, x.rank))
    return convert(b, total, dtype)
