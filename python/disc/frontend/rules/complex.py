"""Complex numbers: pairs of real ones along a last dim of the IR, which rules do not see in a tensor's ``dims``."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch_mlir import ir

from .. import dtypes, scalar
from ..builder import Builder
from ..registry import NotLowerable, Rule, find_rule, lowers, lowers_complex
from ..scalar import Elem
from ..values import Extent, Number, RuntimeNumber, Tensor, normalize_dim
from . import contraction, gather
from .common import axes, number
from .elementwise import convert

Pair = tuple[Elem, Elem]


def parts(b: Builder, x: Tensor) -> tuple[Tensor, Tensor]:
    """Views of the real and of the imaginary parts, with a last dim of 1."""
    pairs = b.as_pairs(x)
    return b.slice(pairs, x.rank, 0, 1), b.slice(pairs, x.rank, 1, 1)


def real_part(b: Builder, x: Tensor) -> Tensor:
    """The real parts."""
    return b.reshape(parts(b, x)[0], x.dims)


def imaginary_part(b: Builder, x: Tensor) -> Tensor:
    """The imaginary parts."""
    return b.reshape(parts(b, x)[1], x.dims)


def joined(b: Builder, re: Tensor, im: Tensor) -> Tensor:
    """Complex numbers of two tensors of one shape and dtype."""
    last = re.rank
    return b.as_complex(b.concat([b.unsqueeze(re, last), b.unsqueeze(im, last)], last))


def _operands(
    b: Builder, inputs: Sequence[Any]
) -> tuple[list[Tensor], Callable[[Sequence[Elem], torch.dtype], list[Pair]]]:
    """Tensors of parts (with a last dim of 1), and what puts their elements together to pairs."""
    tensors: list[Tensor] = []
    places: list[Any] = []
    for x in inputs:
        if not isinstance(x, Tensor):
            places.append(number(x))
        elif dtypes.is_complex(x.dtype):
            places.append((len(tensors), True))
            tensors += parts(b, x)
        else:
            places.append((len(tensors), False))
            tensors.append(b.unsqueeze(x, x.rank))

    def together(elems: Sequence[Elem], dtype: torch.dtype) -> list[Pair]:
        pairs: list[Pair] = []
        for place in places:
            if isinstance(place, tuple):
                at, whole = place
                re = elems[at].to(dtype)
                pairs.append((re, elems[at + 1].to(dtype) if whole else re.like(0)))
            elif isinstance(place, RuntimeNumber):
                re = place.emit().to(dtype)
                pairs.append((re, re.like(0)))
            else:
                value = complex(place)
                pairs.append((scalar.constant(value.real, dtype), scalar.constant(value.imag, dtype)))
        return pairs

    return tensors, together


def complex_map(b: Builder, inputs: Sequence[Any], fn: Callable[..., Pair], dtype: torch.dtype) -> Tensor:
    """``fn`` of pairs over the broadcast of ``inputs``, as complex numbers of ``dtype``."""
    part = dtypes.part(dtype)
    tensors, together = _operands(b, inputs)
    dims = [*b.broadcast_dims([t.dims for t in tensors])[:-1], 2]
    last = len(dims) - 1

    def body(*elems: Elem) -> Elem:
        re, im = fn(*together(elems, part))
        return scalar.select(scalar.loop_index(last).eq(0), re, im)

    maps = [b.broadcast_map(t.dims, dims) for t in tensors]
    return b.as_complex(b.generic(tensors, maps, dims, part, body))


def real_map(b: Builder, inputs: Sequence[Any], fn: Callable[..., Elem], dtype: torch.dtype) -> Tensor:
    """``fn`` of pairs over the broadcast of ``inputs``, as real numbers of ``dtype``."""
    compute = next(dtypes.part(x.dtype) for x in inputs if isinstance(x, Tensor) and dtypes.is_complex(x.dtype))
    tensors, together = _operands(b, inputs)
    dims = b.broadcast_dims([t.dims for t in tensors])
    maps = [b.broadcast_map(t.dims, dims) for t in tensors]
    result = b.generic(tensors, maps, dims, dtype, lambda *elems: fn(*together(elems, compute)).to(dtype))
    return b.reshape(result, dims[:-1])


# -- arithmetic ------------------------------------------------------------------------------------


def times(x: Pair, y: Pair) -> Pair:
    """x y."""
    return x[0] * y[0] - x[1] * y[1], x[0] * y[1] + x[1] * y[0]


def quotient(x: Pair, y: Pair) -> Pair:
    """x / y, scaled by the larger part of y (Smith, Algorithm 116: Complex division, 1962)."""
    wide = scalar.absolute(y[0]) >= scalar.absolute(y[1])
    large, small = scalar.select(wide, y[0], y[1]), scalar.select(wide, y[1], y[0])
    # A ratio of 0 where both are: the quotients then are those by zero.
    ratio = scalar.select(large.eq(0), large.like(0), small / large)
    scale = large + small * ratio
    re = scalar.select(wide, x[0] + x[1] * ratio, x[0] * ratio + x[1]) / scale
    im = scalar.select(wide, x[1] - x[0] * ratio, x[1] * ratio - x[0]) / scale
    return re, im


def size(x: Pair) -> Elem:
    """The absolute value, without overflow."""
    re, im = scalar.absolute(x[0]), scalar.absolute(x[1])
    large, small = scalar.maximum(re, im), scalar.minimum(re, im)
    ratio = scalar.select(large.eq(0), large.like(0), small / large)
    whole = large * scalar.sqrt(ratio * ratio + 1.0)
    infinite = re.eq(math.inf) | im.eq(math.inf)
    return scalar.select(infinite, whole.like(math.inf), whole)


def arc_tangent(y: Elem, x: Elem) -> Elem:
    """The angle of the point (x, y)."""
    return Elem(ir.Operation.create("math.atan2", [y.value.type], [y.value, x.value]).result, y.dtype)


def exponential(x: Pair) -> Pair:
    """e to the x."""
    radius = scalar.exp(x[0])
    real = x[1].eq(0)
    return radius * scalar.unary("cos", x[1]), scalar.select(real, x[1], radius * scalar.unary("sin", x[1]))


def logarithm(x: Pair) -> Pair:
    """The principal logarithm."""
    return scalar.log(size(x)), arc_tangent(x[1], x[0])


def root(x: Pair) -> Pair:
    """The principal square root."""
    whole = scalar.sqrt((size(x) + scalar.absolute(x[0])) * 0.5)
    other = scalar.select(whole.eq(0), whole, scalar.absolute(x[1]) / (whole * 2.0))
    right = x[0] >= 0
    im = scalar.select(right, other, whole)
    return scalar.select(right, whole, other), scalar.select(x[1] < 0, -im, im)


def power(x: Pair, y: Pair) -> Pair:
    """x to the y; 0 to the 0 is 1."""
    result = exponential(times(logarithm(x), y))
    zero = x[0].eq(0) & x[1].eq(0)
    one = y[0].eq(0) & y[1].eq(0)
    at_zero = (scalar.select(one, x[0].like(1), 0.0), x[0].like(0))
    return scalar.select(zero, at_zero[0], result[0]), scalar.select(zero, at_zero[1], result[1])


def _hyperbolic(x: Elem) -> tuple[Elem, Elem]:
    """cosh and sinh."""
    up, down = scalar.exp(x), scalar.exp(-x)
    small = scalar.absolute(x) < 0.3
    cube = x * x
    series = x * (1.0 + cube * (1 / 6 + cube * (1 / 120 + cube * (1 / 5040 + cube * (1 / 362880)))))
    return (up + down) * 0.5, scalar.select(small, series, (up - down) * 0.5)


def sine(x: Pair) -> Pair:
    """sin."""
    cosh, sinh = _hyperbolic(x[1])
    return scalar.unary("sin", x[0]) * cosh, scalar.unary("cos", x[0]) * sinh


def cosine(x: Pair) -> Pair:
    """cos."""
    cosh, sinh = _hyperbolic(x[1])
    return scalar.unary("cos", x[0]) * cosh, -(scalar.unary("sin", x[0]) * sinh)


def _hyperbolic_sine(x: Pair) -> Pair:
    im, re = sine((-x[1], x[0]))
    return re, -im


def _hyperbolic_cosine(x: Pair) -> Pair:
    return cosine((-x[1], x[0]))


def _hyperbolic_tangent(x: Pair) -> Pair:
    # Of 2x, beyond where it is 1, nothing is left to compute.
    bounded = (scalar.maximum(scalar.minimum(x[0], 20.0), -20.0), x[1])
    result = quotient(_hyperbolic_sine(bounded), _hyperbolic_cosine(bounded))
    return result


def _sign(x: Pair) -> Pair:
    whole = size(x)
    zero = whole.eq(0)
    return scalar.select(zero, whole, x[0] / whole), scalar.select(zero, whole, x[1] / whole)


def _sigmoid(x: Pair) -> Pair:
    grown = exponential((-x[0], -x[1]))
    return quotient((x[0].like(1), x[0].like(0)), (grown[0] + 1.0, grown[1]))


def _unary(name: str, fn: Callable[[Pair], Pair]) -> None:
    @lowers_complex(f"torch.aten.{name}")
    def rule(b: Builder, x: Tensor, *_: Any) -> Tensor:
        return complex_map(b, [x], fn, b.out.dtype)


for _name, _fn in {
    "neg": lambda x: (-x[0], -x[1]),
    "positive": lambda x: x,
    "reciprocal": lambda x: quotient((x[0].like(1), x[0].like(0)), x),
    "square": lambda x: times(x, x),
    "exp": exponential,
    "log": logarithm,
    "log2": lambda x: tuple(p * (1 / math.log(2)) for p in logarithm(x)),
    "log10": lambda x: tuple(p * (1 / math.log(10)) for p in logarithm(x)),
    "sqrt": root,
    "rsqrt": lambda x: quotient((x[0].like(1), x[0].like(0)), root(x)),
    "sin": sine,
    "cos": cosine,
    "tan": lambda x: quotient(sine(x), cosine(x)),
    "sinh": _hyperbolic_sine,
    "cosh": _hyperbolic_cosine,
    "tanh": _hyperbolic_tangent,
    "sgn": _sign,
    "_conj": lambda x: (x[0], -x[1]),
    "conj": lambda x: (x[0], -x[1]),
    "_conj_physical": lambda x: (x[0], -x[1]),
    "conj_physical": lambda x: (x[0], -x[1]),
    "sigmoid": _sigmoid,
}.items():
    _unary(_name, _fn)


@lowers_complex("torch.aten.add")
def add(b: Builder, x: Any, y: Any, alpha: Any = 1) -> Tensor:
    """x + alpha y."""
    return complex_map(b, [x, y, alpha], lambda x, y, a: _plus(x, y if alpha == 1 else times(y, a)), b.out.dtype)


def _plus(x: Pair, y: Pair) -> Pair:
    return x[0] + y[0], x[1] + y[1]


@lowers_complex("torch.aten.sub")
def sub(b: Builder, x: Any, y: Any, alpha: Any = 1) -> Tensor:
    """x - alpha y."""

    def fn(x: Pair, y: Pair, a: Pair) -> Pair:
        y = y if alpha == 1 else times(y, a)
        return x[0] - y[0], x[1] - y[1]

    return complex_map(b, [x, y, alpha], fn, b.out.dtype)


@lowers_complex("torch.aten.rsub")
def rsub(b: Builder, x: Any, y: Any, alpha: Any = 1) -> Tensor:
    """y - alpha x."""
    return sub(b, y, x, alpha)


@lowers_complex("torch.aten.mul")
def mul(b: Builder, x: Any, y: Any) -> Tensor:
    """x y."""
    return complex_map(b, [x, y], times, b.out.dtype)


@lowers_complex("torch.aten.div.Tensor", "torch.aten.div.Scalar", "torch.aten.true_divide")
def div(b: Builder, x: Any, y: Any) -> Tensor:
    """x / y."""
    if not (isinstance(y, Tensor) and dtypes.is_complex(y.dtype)) and not isinstance(y, complex):
        return complex_map(b, [x, y], lambda x, y: (x[0] / y[0], x[1] / y[0]), b.out.dtype)
    return complex_map(b, [x, y], quotient, b.out.dtype)


@lowers_complex("torch.aten.pow")
def pow_(b: Builder, x: Any, y: Any) -> Tensor:
    """x to the y."""
    if isinstance(y, (int, float)) and float(y).is_integer() and 0 < y <= 8:

        def repeated(x: Pair) -> Pair:
            result = x
            for _ in range(int(y) - 1):
                result = times(result, x)
            return result

        return complex_map(b, [x], repeated, b.out.dtype)
    return complex_map(b, [x, y], power, b.out.dtype)


@lowers_complex("torch.aten.where.self", "torch.aten.where.ScalarOther", "torch.aten.where.ScalarSelf")
def where(b: Builder, condition: Tensor, x: Any, y: Any) -> Tensor:
    """x where the condition holds, else y."""

    def body(c: Pair, x: Pair, y: Pair) -> Pair:
        holds = c[0].ne(0)
        return scalar.select(holds, x[0], y[0]), scalar.select(holds, x[1], y[1])

    return complex_map(b, [condition, x, y], body, b.out.dtype)


@lowers_complex("torch.aten.masked_fill")
def masked_fill(b: Builder, x: Tensor, mask: Tensor, value: Any) -> Tensor:
    """x, but ``value`` where the mask holds."""
    return where(b, mask, value, x)


# -- to and from real numbers ----------------------------------------------------------------------


@lowers_complex("torch.aten.abs")
def abs_(b: Builder, x: Tensor) -> Tensor:
    """Absolute values."""
    return real_map(b, [x], size, b.out.dtype)


@lowers_complex("torch.aten.angle")
def angle(b: Builder, x: Tensor) -> Tensor:
    """Angles in (-pi, pi]."""
    return real_map(b, [x], lambda x: arc_tangent(x[1], x[0]), b.out.dtype)


@lowers_complex("torch.aten.eq")
def eq(b: Builder, x: Any, y: Any) -> Tensor:
    """Whether both parts are equal."""
    return real_map(b, [x, y], lambda x, y: x[0].eq(y[0]) & x[1].eq(y[1]), torch.bool)


@lowers_complex("torch.aten.ne")
def ne(b: Builder, x: Any, y: Any) -> Tensor:
    """Whether a part differs."""
    return real_map(b, [x, y], lambda x, y: x[0].ne(y[0]) | x[1].ne(y[1]), torch.bool)


@lowers_complex("torch.aten.isnan")
def isnan(b: Builder, x: Tensor) -> Tensor:
    """Whether a part is no number."""
    return real_map(b, [x], lambda x: x[0].ne(x[0]) | x[1].ne(x[1]), torch.bool)


@lowers_complex("torch.aten.isfinite")
def isfinite(b: Builder, x: Tensor) -> Tensor:
    """Whether both parts are finite."""
    return real_map(
        b, [x], lambda x: (scalar.absolute(x[0]) < math.inf) & (scalar.absolute(x[1]) < math.inf), torch.bool
    )


@lowers_complex("torch.aten.isinf")
def isinf(b: Builder, x: Tensor) -> Tensor:
    """Whether a part is infinite."""
    return real_map(
        b, [x], lambda x: scalar.absolute(x[0]).eq(math.inf) | scalar.absolute(x[1]).eq(math.inf), torch.bool
    )


@lowers_complex("torch.aten.logical_not")
def logical_not(b: Builder, x: Tensor) -> Tensor:
    """Whether both parts are 0."""
    return real_map(b, [x], lambda x: x[0].eq(0) & x[1].eq(0), torch.bool)


def _register_logical(name: str, fn: Callable[[Elem, Elem], Elem]) -> None:
    @lowers_complex(f"torch.aten.logical_{name}")
    def rule(b: Builder, x: Tensor, y: Tensor) -> Tensor:
        return real_map(b, [x, y], lambda x, y: fn(_nonzero(x), _nonzero(y)), torch.bool)


def _nonzero(x: Pair) -> Elem:
    return x[0].ne(0) | x[1].ne(0)


_register_logical("and", lambda x, y: x & y)
_register_logical("or", lambda x, y: x | y)
_register_logical("xor", lambda x, y: x ^ y)


@lowers("torch.aten.real")
def real(b: Builder, x: Tensor) -> Tensor:
    """The real parts."""
    return real_part(b, x) if dtypes.is_complex(x.dtype) else x


@lowers("torch.aten.imag")
def imag(b: Builder, x: Tensor) -> Tensor:
    """The imaginary parts."""
    return imaginary_part(b, x)


@lowers("torch.aten.view_as_real", "torch.aten._view_as_real_physical")
def view_as_real(b: Builder, x: Tensor) -> Tensor:
    """Both parts along a last dim."""
    return b.as_pairs(x)


@lowers("torch.aten.view_as_complex")
def view_as_complex(b: Builder, x: Tensor) -> Tensor:
    """The reverse."""
    if x.dtype == torch.float16:
        raise NotLowerable("complex numbers of float16")
    return b.as_complex(x)


@lowers("torch.aten.complex")
def complex_(b: Builder, re: Tensor, im: Tensor) -> Tensor:
    """re + i im."""
    if re.dtype == torch.float16:
        raise NotLowerable("complex numbers of float16")
    dims = b.broadcast_dims([re.dims, im.dims])
    return joined(b, b.broadcast(re, dims), b.broadcast(im, dims))


@lowers("torch.aten.polar")
def polar(b: Builder, radius: Tensor, angle: Tensor) -> Tensor:
    """radius e^(i angle)."""
    dtype = b.out.dtype
    return complex_map(
        b,
        [radius, angle],
        lambda r, a: (r[0] * scalar.unary("cos", a[0]), r[0] * scalar.unary("sin", a[0])),
        dtype,
    )


@lowers("torch.aten.resolve_conj", "torch.aten.resolve_neg")
def resolve(b: Builder, x: Tensor) -> Tensor:
    """x: nothing is left to be resolved."""
    return x


@lowers("torch.aten._conj", "torch.aten.conj", "torch.aten._conj_physical", "torch.aten.conj_physical")
def conj_of_real(b: Builder, x: Tensor) -> Tensor:
    """The conjugate of a real number: the number itself."""
    return x


@lowers_complex("torch.aten._to_copy", "torch.aten.to", "torch.aten.type_as", "torch.prims.convert_element_type")
def to(b: Builder, x: Tensor, *_: Any) -> Tensor:
    """x as another type; from complex to real the imaginary parts are lost."""
    if x.dtype == b.out.dtype:
        return x
    if dtypes.is_complex(b.out.dtype):
        return complex_map(b, [x], lambda x: x, b.out.dtype)
    return convert(b, real_part(b, x), b.out.dtype)


@lowers_complex(
    "torch.aten.clone",
    "torch.aten.contiguous",
    "torch.aten.detach",
    "torch.aten.alias",
    "torch.aten.lift",
    "torch.aten.lift_fresh",
    "torch.aten.lift_fresh_copy",
)
def clone(b: Builder, x: Tensor, *_: Any) -> Tensor:
    """x: tensors are values."""
    return x


# -- sums and products -----------------------------------------------------------------------------


def of_result_type(rule: Rule) -> Rule:
    """The rule after a conversion to the result's type, which may be real: then the rule of real tensors."""

    @functools.wraps(rule)
    def converted(b: Builder, x: Tensor, *operands: Any) -> Any:
        x = to(b, x)
        if dtypes.is_complex(x.dtype):
            return rule(b, x, *operands)
        real = find_rule(b.op_name)
        assert real is not None
        return real(b, x, *operands)

    return converted


@lowers_complex("torch.aten.sum")
@of_result_type
def sum_(b: Builder, x: Tensor, dims: Any = None, keepdim: Any = False, *_: Any) -> Tensor:
    """The sum over ``dims``."""
    if "dim" not in b.op_name:
        dims, keepdim = None, False
    pairs = b.as_pairs(x)
    return b.as_complex(b.reduce([pairs], axes(dims, x.rank), pairs.dtype, 0, lambda acc, x: acc + x, keepdim=keepdim))


@lowers_complex("torch.aten.mean")
@of_result_type
def mean(b: Builder, x: Tensor, dims: Any = None, keepdim: Any = False, *_: Any) -> Tensor:
    """The mean over ``dims``."""
    if "dim" not in b.op_name:
        dims, keepdim = None, False
    reduced = axes(dims, x.rank)
    pairs = b.as_pairs(x)
    total = b.reduce([pairs], reduced, pairs.dtype, 0, lambda acc, x: acc + x, keepdim=keepdim)
    count = b.product([x.dims[i] for i in reduced])
    return b.as_complex(
        b.elementwise(pairs.dtype, [total], lambda s: s / scalar.from_extent(count, torch.int64).to(pairs.dtype))
    )


@lowers_complex("torch.aten.cumsum")
@of_result_type
def cumsum(b: Builder, x: Tensor, dim: int, *_: Any) -> Tensor:
    """Running sums."""
    if x.rank == 0:
        return x
    return b.as_complex(b.running_sum(b.as_pairs(x), normalize_dim(dim, x.rank)))


def _product(b: Builder, x: Tensor, y: Tensor) -> Tensor:
    pieces = [parts_of(b, t) for t in (x, y)]
    (xr, xi), (yr, yi) = pieces
    rr, ii = contraction.matmul_product(b, xr, yr), contraction.matmul_product(b, xi, yi)
    ri, im_re = contraction.matmul_product(b, xr, yi), contraction.matmul_product(b, xi, yr)
    dtype = rr.dtype
    re = b.elementwise(dtype, [rr, ii], lambda p, q: p - q)
    im = b.elementwise(dtype, [ri, im_re], lambda p, q: p + q)
    return joined(b, re, im)


def parts_of(b: Builder, x: Tensor) -> tuple[Tensor, Tensor]:
    """Real and imaginary parts, dense."""
    return real_part(b, x), imaginary_part(b, x)


@lowers_complex("torch.aten.matmul", "torch.aten.mm", "torch.aten.bmm", "torch.aten.mv", "torch.aten.dot")
def matmul(b: Builder, x: Tensor, y: Tensor) -> Tensor:
    """The matrix product."""
    return _product(b, x, y)


@lowers_complex("torch.aten.linear")
def linear(b: Builder, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x W^T + bias."""
    result = _product(b, x, b.permute(weight, [1, 0]))
    return result if bias is None else add(b, result, bias)


# -- what only moves elements ----------------------------------------------------------------------


def _filled_like(b: Builder, dims: Sequence[Extent], value: Any) -> Tensor:
    return b.full(dims, value, b.out.dtype)


@lowers_complex("torch.aten.zeros_like", "torch.aten.empty_like", "torch.aten.new_zeros", "torch.aten.new_empty")
def zeros_like(b: Builder, x: Tensor, *args: Any) -> Tensor:
    """Zeros."""
    dims = args[0] if "new_" in b.op_name else x.dims
    return _filled_like(b, dims, 0)


@lowers_complex("torch.aten.ones_like")
def ones_like(b: Builder, x: Tensor, *_: Any) -> Tensor:
    """Ones."""
    return _filled_like(b, x.dims, 1)


def _dim_of(x: Tensor, dim: Number) -> int:
    return normalize_dim(int(dim), x.rank)


@lowers_complex("torch.aten.index_select")
def index_select(b: Builder, x: Tensor, dim: int, index: Tensor) -> Tensor:
    """The slices of ``dim`` that ``index`` lists."""
    return b.as_complex(gather.index_select(b, b.as_pairs(x), _dim_of(x, dim), index))


@lowers_complex("torch.aten.embedding")
def embedding(b: Builder, weight: Tensor, indices: Tensor, *_: Any) -> Tensor:
    """weight[indices]."""
    return b.as_complex(gather.embedding(b, b.as_pairs(weight), indices))


@lowers_complex("torch.aten.index.Tensor", "torch.aten._unsafe_index.Tensor")
def index(b: Builder, x: Tensor, indices: Sequence[Tensor | None]) -> Tensor:
    """x[i, :, j]."""
    return b.as_complex(gather.index_tensor(b, b.as_pairs(x), indices))


@lowers_complex("torch.aten.constant_pad_nd")
def constant_pad(b: Builder, x: Tensor, pad: Sequence[Extent], value: Any = 0) -> Tensor:
    """x within ``value``, which is real."""
    plain = find_rule("torch.aten.constant_pad_nd")
    if plain is None or value != 0:
        raise NotLowerable("complex numbers within others than zeros")
    return b.as_complex(plain(b, b.as_pairs(x), [0, 0, *pad], value))
