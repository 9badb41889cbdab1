"""Special functions, by element: polynomials in f32 where there are some, else those of lib/Runtime/Functions."""

from __future__ import annotations

import math

import torch

from .. import dtypes, scalar
from ..builder import Builder, Input
from ..registry import lowers
from ..scalar import Elem
from ..values import Tensor
from . import bessel_polynomials, gamma_polynomials, special_polynomials
from .common import number
from .elementwise import convert

_IN_LANES = {**special_polynomials.FUNCTIONS, **gamma_polynomials.FUNCTIONS, **bessel_polynomials.FUNCTIONS}

# Elements that one task computes: kPerTask of SpecialMaps.h.
_PER_TASK = 1024

_UNARY = {
    "lgamma": ("lgamma", "special_gammaln"),
    "digamma": ("digamma", "special_digamma", "special_psi"),
    "erfinv": ("erfinv", "special_erfinv"),
    "erfcx": ("special_erfcx",),
    "ndtri": ("special_ndtri",),
    "log_ndtr": ("special_log_ndtr",),
    "i0": ("i0", "special_i0", "special_modified_bessel_i0"),
    "i0e": ("special_i0e",),
    "i1": ("special_i1", "special_modified_bessel_i1"),
    "i1e": ("special_i1e",),
    "bessel_j0": ("special_bessel_j0",),
    "bessel_j1": ("special_bessel_j1",),
    "bessel_y0": ("special_bessel_y0",),
    "bessel_y1": ("special_bessel_y1",),
    "modified_bessel_k0": ("special_modified_bessel_k0",),
    "modified_bessel_k1": ("special_modified_bessel_k1",),
    "scaled_modified_bessel_k0": ("special_scaled_modified_bessel_k0",),
    "scaled_modified_bessel_k1": ("special_scaled_modified_bessel_k1",),
    "airy_ai": ("special_airy_ai",),
}

_BINARY = {
    "igamma": ("igamma", "special_gammainc"),
    "igammac": ("igammac", "special_gammaincc"),
    "zeta": ("special_zeta",),
    **{
        f"{shifted}chebyshev_polynomial_{kind}": (f"special_{shifted}chebyshev_polynomial_{kind}",)
        for shifted in ("", "shifted_")
        for kind in "tuvw"
    },
    "hermite_polynomial_h": ("special_hermite_polynomial_h",),
    "hermite_polynomial_he": ("special_hermite_polynomial_he",),
    "laguerre_polynomial_l": ("special_laguerre_polynomial_l",),
    "legendre_polynomial_p": ("special_legendre_polynomial_p",),
}


def _call(b: Builder, function: str, operands: list[Input]) -> Tensor:
    """The function over the broadcast of its operands, computed in f32 or f64."""
    compute = dtypes.opmath(b.out.dtype)
    dims = b.broadcast_dims([x.dims for x in operands if isinstance(x, Tensor)])
    inputs = []
    for x in operands:
        tensor = convert(b, x, compute) if isinstance(x, Tensor) else b.map(compute, [number(x)], lambda e: e, dims=[])
        inputs.append(b.broadcast(tensor, dims))
    tasks = b.floordiv(b.add(b.product(dims), _PER_TASK - 1), _PER_TASK)
    return convert(b, b.call(function, inputs, [(dims, compute)], tasks=tasks)[0], b.out.dtype)


def _register_unary(function: str, names: tuple[str, ...]) -> None:
    @lowers(*(f"torch.aten.{name}" for name in names))
    def rule(b: Builder, x: Tensor) -> Tensor:
        if function in _IN_LANES and dtypes.opmath(b.out.dtype) == torch.float32:
            return b.elementwise(b.out.dtype, [x], _IN_LANES[function])
        return _call(b, function, [x])


def _register_binary(function: str, names: tuple[str, ...]) -> None:
    @lowers(*(f"torch.aten.{name}" for name in names))
    def rule(b: Builder, x: Input, y: Input) -> Tensor:
        return _call(b, function, [x, y])


for _function, _names in _UNARY.items():
    _register_unary(_function, _names)
for _function, _names in _BINARY.items():
    _register_binary(_function, _names)


@lowers("torch.aten.polygamma", "torch.aten.special_polygamma")
def polygamma(b: Builder, order: int, x: Tensor) -> Tensor:
    """The derivatives of digamma."""
    return _call(b, "polygamma", [float(order), x])


@lowers("torch.aten.mvlgamma", "torch.aten.special_multigammaln")
def mvlgamma(b: Builder, x: Tensor, dimension: int) -> Tensor:
    """The logarithm of the multivariate gamma function: that of gamma(x - i / 2), summed."""
    if dtypes.opmath(b.out.dtype) == torch.float32:
        return b.elementwise(b.out.dtype, [x], lambda x: gamma_polynomials.mvlgamma(x, dimension))
    shift = math.log(math.pi) * dimension * (dimension - 1) / 4
    parts = []
    for i in range(dimension):
        moved = b.elementwise(b.out.dtype, [x], lambda x, i=i: x - i / 2)
        parts.append(_call(b, "lgamma", [moved]))

    def total(*terms: Elem) -> Elem:
        result = terms[0] + shift
        for term in terms[1:]:
            result = result + term
        return result

    return b.elementwise(b.out.dtype, list(parts), total)


@lowers("torch.aten.special_spherical_bessel_j0")
def spherical_bessel_j0(b: Builder, x: Tensor) -> Tensor:
    """sin(x) / x."""

    def fn(x: Elem) -> Elem:
        result = scalar.select(x.eq(0), x.like(1), scalar.unary("sin", x) / x)
        return scalar.select(scalar.absolute(x).eq(math.inf), x.like(0), result)

    return b.elementwise(b.out.dtype, [x], fn)


@lowers("torch.aten.special_ndtr")
def ndtr(b: Builder, x: Tensor) -> Tensor:
    """The normal distribution function."""
    return b.elementwise(b.out.dtype, [x], lambda x: 0.5 * scalar.unary("erfc", x * -math.sqrt(0.5)))


@lowers("torch.aten.erfc", "torch.aten.special_erfc")
def erfc(b: Builder, x: Tensor) -> Tensor:
    """1 - erf(x)."""
    return b.elementwise(b.out.dtype, [x], lambda x: scalar.unary("erfc", x))
