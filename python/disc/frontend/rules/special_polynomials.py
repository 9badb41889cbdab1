"""Special functions in f32 as polynomials: unlike calls of the runtime they vectorise, fuse and run on any device.

Largest errors found, in ulp (test/python/unit/test_math_accuracy.py checks them): erfinv 3.5 · i0e 7 · i1e 6.5 · i0 6 ·
i1 8. Eager's are 0.5 for erfinv and 6 to 10 for the others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from .. import scalar
from ..scalar import Elem

# Of w = -log(1 - x^2), from the highest power. M. Giles, "Approximating the erfinv function", GPU Computing Gems, 2011.
_ERFINV_MIDDLE = (2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087, -0.00125372503,
                  -0.00417768164, 0.246640727, 1.50140941)  # fmt: skip
_ERFINV_TAIL = (-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613,
                0.00943887047, 1.00167406, 2.83297682)  # fmt: skip

# Chebyshev series, interpolated with 30 digits and rounded to f32. For x <= 8 of e^-x I0(x) (1 + x / 4) and of
# e^-x I1(x) / x (1 + x^2 / 4) over x / 4 - 1; for larger x of both scaled functions times sqrt(x) over 16 / x - 1. The
# factors make the functions nearly flat, since a sum that is much smaller than its terms loses bits.
_I0_SMALL = (
    0.5244539380073547, -0.18515725433826447, 0.14344991743564606, -0.07933910191059113,
    0.03929131105542183, -0.017548957839608192, 0.007062058430165052, -0.002555652055889368,
    0.0008286084630526602, -0.00023876190243754536, 6.004700844641775e-05, -1.2608233191713225e-05,
    1.9175517991243396e-06, -5.0558913500253766e-08, -1.0713379339222229e-07, 5.476997344544543e-08,
    -1.9099918091569634e-08, 5.564386729162152e-09,
)  # fmt: skip
_I0_LARGE = (0.4022451937198639, 0.0033691164571791887, 6.889758515171707e-05, 2.891370513680158e-06,
             2.0489186169925233e-07, 2.266668985839715e-08, 3.3962319623270787e-09)  # fmt: skip
_I1_SMALL = (
    0.2810327410697937, -0.04335474595427513, 0.07836924493312836, -0.048122040927410126,
    0.025844959542155266, -0.012876659631729126, 0.006023066118359566, -0.0026460173539817333,
    0.0010889072436839342, -0.0004187648883089423, 0.00015032984083518386, -5.038622475694865e-05,
    1.5787596566951834e-05, -4.633395292330533e-06, 1.2766487316184794e-06, -3.310693728053593e-07,
    8.10114286764474e-08, -1.875158872621796e-08, 4.115648266633798e-09,
)  # fmt: skip
_I1_LARGE = (0.38928812742233276, -0.009761097840964794, -0.00011058893869630992, -3.882564669765998e-06,
             -2.5122361080320843e-07, -2.631468909441992e-08, -3.8353804576729544e-09)  # fmt: skip


def _polynomial(x: Elem, coefficients: Sequence[float]) -> Elem:
    result = x.like(coefficients[0])
    for coefficient in coefficients[1:]:
        result = result * x + coefficient
    return result


def _chebyshev(x: Elem, coefficients: Sequence[float]) -> Elem:
    """A Chebyshev series, by Clenshaw's method."""
    twice = x + x
    last, result = x.like(0.0), x.like(coefficients[-1])
    for coefficient in coefficients[-2:0:-1]:
        last, result = result, result * twice + coefficient - last
    return result * x + coefficients[0] - last


def erfinv(x: Elem) -> Elem:
    """The inverse of erf."""
    w = -scalar.log((1.0 - x) * (1.0 + x))
    middle = _polynomial(w - 2.5, _ERFINV_MIDDLE)
    tail = _polynomial(scalar.sqrt(w) - 3.0, _ERFINV_TAIL)
    result = scalar.select(w < 5.0, middle, tail) * x
    return scalar.select(scalar.absolute(x).eq(1.0), x * math.inf, result)


def i0e(x: Elem) -> Elem:
    """e^-|x| I0(x)."""
    size = scalar.absolute(x)
    large = _chebyshev(16.0 / size - 1.0, _I0_LARGE) * scalar.rsqrt(size)
    small = _chebyshev(size * 0.25 - 1.0, _I0_SMALL) / (size * 0.25 + 1.0)
    return scalar.select(size <= 8.0, small, large)


def i1e(x: Elem) -> Elem:
    """e^-|x| I1(x)."""
    size = scalar.absolute(x)
    large = _chebyshev(16.0 / size - 1.0, _I1_LARGE) * scalar.rsqrt(size)
    large = scalar.select(x < 0.0, -large, large)
    small = x * (_chebyshev(size * 0.25 - 1.0, _I1_SMALL) / (x * x * 0.25 + 1.0))
    return scalar.select(size <= 8.0, small, large)


def _unscaled(function: Callable[[Elem], Elem]) -> Callable[[Elem], Elem]:
    """The function times e^|x|, which may be beyond f32 where the product is not. NaN at infinities, as eager's."""

    def unscaled(x: Elem) -> Elem:
        root = scalar.exp(scalar.absolute(x) * 0.5)
        return function(x) * root * root

    return unscaled


FUNCTIONS: dict[str, Callable[[Elem], Elem]] = {
    "erfinv": erfinv,
    "i0": _unscaled(i0e),
    "i0e": i0e,
    "i1": _unscaled(i1e),
    "i1e": i1e,
}
"""By the names of the runtime's functions."""
