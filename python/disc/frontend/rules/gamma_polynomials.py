"""Functions of f32 around the gamma and error functions, in the lanes of vectors and with f64 inside.

Largest errors found, in ulp (test/python/unit/test_special_accuracy.py checks them):
lgamma 1 · digamma 1 · erfcx 1 · log_ndtr 1 · ndtri 1.
Of negative x, lgamma and digamma have errors of 2e-7 of 1 + |y|, for they have zeros there.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from .. import scalar, scalar_flow
from ..scalar import Elem
from .arithmetic import copy_sign
from .wide_math import cos_pi, exp, from_integer, horner, log, sin_pi, wide

# Minimax polynomials with 25 digits. Of ln gamma(2 + t) / t for |t| <= 1/2, and for a >= 5/2 of the rest of Stirling's
# series times a, over 1 / a^2. Formulas by their numbers in the NIST Digital Library of Mathematical Functions.
_LGAMMA = (
    0.422784335099712, 0.32246703340317356, -0.06735230141878695, 0.020580810232062475, -0.007385533792804844,
    0.0028904656267992146, -0.001193048758068512, 0.0005101425608583903, -0.00022089698778998543,
    9.706306752835653e-05, -5.274379351382114e-05, 2.6095169993009093e-05,
)  # fmt: skip
_STIRLING = (
    0.08333333010135485, -0.002777547872892421, 0.0007877557611500409, -0.0005222858910526526,
    0.00035721039723733293,
)  # fmt: skip

# Of digamma(a) / (a - root) over a - 3/2 for a from 1 to 2, and of (ln a - 1 / 2a - digamma(a)) a^2 over 1 / a^2.
_DIGAMMA_ROOT = 1.4616321449683622
_DIGAMMA = (
    0.9510558760434802, -0.4236274185817032, 0.24054247907804965, -0.1484052226593373, 0.09498908139741234,
    -0.06191267830487546, 0.04075184448901351, -0.02710268706605614, 0.01801257805357851, -0.011092805164775553,
    0.007309669605318463, -0.007701789648790345, 0.00523090096418015,
)  # fmt: skip
_DIGAMMA_FAR = (
    0.08333333322057891, -0.008333284031630878, 0.003964699746388336, -0.004067321508479595,
    0.006152341414797289, -0.008788604374534777, 0.0068728592651527585,
)  # fmt: skip

# Of (1 + 2x) e^(x^2) erfc(x) over (x - 4) / (x + 4), for x >= 0.
_SCALED_ERFC = (
    1.2329951174144393, -0.1396211119252766, 0.015379771061385102, 0.06809688369570199, -0.10104097204931191,
    0.09373455997826587, -0.0663188976289942, 0.037159745033958524, -0.016230694263112865, 0.00505022212845258,
    -0.0007088498371326388, -0.0002228636421798933, 0.00011410993599124618, -7.851655690750506e-06,
)  # fmt: skip

# Of erfinv(x) / x: up to 5 over w = -ln(1 - x^2), then over sqrt(w) up to 4.1 and up to 10.3.
_ERFINV = (
    0.8862269258190093, 0.2320136444436728, 0.011549558617702162, -0.0023359174806094492,
    -0.00012649209418065933, 4.492752252084701e-05, 3.117986599342049e-06, -1.4364467447220364e-06,
    4.4862562118439196e-08, 2.3722009896490912e-08, -3.216649798828341e-09, 1.3286097737005776e-10,
)  # fmt: skip
_ERFINV_TAIL = (
    3.001526809677623, 0.9359706897358169, 0.005562162156417567, -0.0037988303872419785, 0.0024775806505110375,
    -0.0015496834513644751, 0.0007656221956302583, -0.00022110275481769707, -3.7176523877522774e-05,
    6.87051655468913e-05, -1.617837123852861e-05, -3.7178416580168207e-06,
)  # fmt: skip
_ERFINV_FAR = (
    7.07071832750167, 3.12601367625911, -0.004877439870086094, 0.0003127237706596089, 0.0004239792380926783,
    -0.000361922138758546, 0.00022709754501843826, -0.0001296865495317143, 4.2719701341400654e-05,
    -8.589076328383521e-06, 2.2269036299224158e-05, -1.4129987996947096e-05,
)  # fmt: skip


def _shift_to_two(a: Elem) -> Elem:
    """a less the integer for which a gamma function is looked up next to 2."""
    return a - scalar.select(a < 0.5, a.like(0.0), scalar.select(a < 1.5, a.like(1.0), a.like(2.0)))


def _lgamma(x: Elem) -> Elem:
    """The logarithm of |gamma(x)| as f64."""
    a = scalar.absolute(wide(x))
    t = _shift_to_two(a)
    # The recurrence (5.5.1) towards 2 multiplies; Stirling's series (5.11.1) has the logarithm of a.
    product = scalar.select(a < 0.5, a * (a + 1.0), scalar.select((a >= 1.5) & (a < 2.5), a.like(1.0), a))
    logarithm, inverse = log(product), 1.0 / a
    near = scalar.fma(t, horner(t, _LGAMMA), -logarithm)
    series = scalar.fma(inverse, horner(inverse * inverse, _STIRLING), 0.5 * math.log(2 * math.pi))
    far = scalar.fma(a, logarithm - 1.0, scalar.fma(logarithm, -0.5, series))
    result = scalar.select(a.eq(0.0), a.like(math.inf), scalar.select(a < 2.5, near, far))

    def reflected() -> Elem:
        # (5.5.3); infinite at integers, which all large numbers are.
        u = from_integer(a)
        value = math.log(math.pi) - log(scalar.absolute(a * sin_pi(u))) - result
        return scalar.select(u.ne(0.0) & u.eq(u), value, a.like(math.inf))

    negative = x < 0.0
    return scalar.select(negative, scalar_flow.branch(negative, reflected, result), result)


def lgamma(x: Elem) -> Elem:
    """The logarithm of |gamma(x)|."""
    return _lgamma(x).to(x.dtype)


def mvlgamma(x: Elem, dimension: int) -> Elem:
    """The logarithm of the multivariate gamma function (35.3.4)."""
    result = wide(x).like(math.log(math.pi) * dimension * (dimension - 1) / 4)
    for i in range(dimension):
        result = result + _lgamma(x - i / 2)
    return result.to(x.dtype)


def digamma(x: Elem) -> Elem:
    """The derivative of ln gamma."""
    a = scalar.absolute(wide(x))
    inverse, tiny = 1.0 / a, a < 1.0
    t = scalar.select(tiny, a + 1.0, a)
    near = (t - _DIGAMMA_ROOT) * horner(t - 1.5, _DIGAMMA) - scalar.select(tiny, inverse, a.like(0.0))  # (5.5.2)
    square = inverse * inverse
    far = log(a) - scalar.fma(square, horner(square, _DIGAMMA_FAR), inverse * 0.5)
    result = scalar.select(a < 2.0, near, scalar.select(a.eq(math.inf), a, far))

    def reflected() -> Elem:
        u = from_integer(a)  # (5.5.4)
        value = result + inverse + math.pi * (cos_pi(u) / sin_pi(u))
        return scalar.select(u.ne(0.0), value, a.like(math.nan))

    negative = x < 0.0
    result = scalar.select(negative, scalar_flow.branch(negative, reflected, result), result)
    return scalar.select(x.eq(0.0), copy_sign(x.like(math.inf), -x), result.to(x.dtype))


def _scaled_erfc(a: Elem) -> Elem:
    """e^(a^2) erfc(a) for a >= 0."""
    return horner(1.0 - 8.0 / (a + 4.0), _SCALED_ERFC) / (a + a + 1.0)


def erfcx(x: Elem) -> Elem:
    """e^(x^2) erfc(x)."""
    w = wide(x)
    positive = _scaled_erfc(scalar.absolute(w))
    return scalar.select(w < 0.0, 2.0 * exp(w * w) - positive, positive).to(x.dtype)


def log_ndtr(x: Elem) -> Elem:
    """The logarithm of the normal distribution function."""
    t = wide(x) * math.sqrt(0.5)
    scaled, square = _scaled_erfc(scalar.absolute(t)), t * t
    below = log(scaled * 0.5) - square
    tail = scaled * exp(-square) * 0.5
    # ln(1 - tail), by its series where 1 - tail would be rounded.
    series = -tail * scalar.fma(tail, scalar.fma(tail, 1 / 3, 0.5), 1.0)
    above = scalar.select(tail < 1e-4, series, log(1.0 - tail))
    result = scalar.select(t < 0.0, below, above)
    return scalar.select(x.ne(x), x, result.to(x.dtype))


def ndtri(p: Elem) -> Elem:
    """The inverse of the normal distribution function: sqrt(2) erfinv(2p - 1)."""
    w = wide(p)
    x = scalar.fma(w, 2.0, -1.0)
    log_product = -log(4.0 * w * (1.0 - w))  # of 1 - x^2
    root = scalar.sqrt(log_product)
    tail = scalar.select(
        root < 4.1,
        horner((root - 3.168033988749894848) * (1 / 0.9319660112501051518), _ERFINV_TAIL),
        horner((root - 7.2) * (1 / 3.1), _ERFINV_FAR),
    )
    result = scalar.select(log_product < 5.0, horner(log_product, _ERFINV), tail) * x * math.sqrt(2)
    result = scalar.select(p.eq(0.0), x.like(-math.inf), scalar.select(p.eq(1.0), x.like(math.inf), result))
    inside = (p >= 0.0) & (p <= 1.0)
    return scalar.select(inside, result, x.like(math.nan)).to(p.dtype)


FUNCTIONS: dict[str, Callable[[Elem], Elem]] = {
    "lgamma": lgamma,
    "digamma": digamma,
    "erfcx": erfcx,
    "log_ndtr": log_ndtr,
    "ndtri": ndtri,
}
"""By the names of the runtime's functions."""
