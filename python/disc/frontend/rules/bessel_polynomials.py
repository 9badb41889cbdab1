"""Bessel and Airy functions of f32 in the lanes of vectors, with f64 inside.

Largest errors found (test/python/unit/test_special_accuracy.py checks them): K 1 ulp; J, Y and Ai 1e-7 of the
amplitude, since they have zeros.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from .. import scalar
from ..scalar import Elem
from .arithmetic import bits_of
from .wide_math import exp, horner, log, wide

# Minimax polynomials with 25 digits. Formulas by their numbers in the NIST Digital Library of Mathematical Functions.
# For x <= 2 over x^2 / 4: of I0 and 2 I1 / x, of K0 + ln(x/2) I0 and (K1 - ln(x/2) I1) x (10.31.1, 10.31.2). For larger
# x over 2 / x: of sqrt(x) e^x K.
_I0 = (
    1.0000000000033202, 0.9999999996352171, 0.25000000634981234, 0.02777773716234408, 0.0017362330012998628,
    6.925891946203351e-05, 2.0672570428671605e-06,
)  # fmt: skip
_I1 = (
    1.000000000000501, 0.4999999999478165, 0.08333333420681509, 0.006944439021445708, 0.00034723812269154907,
    1.1550315044437974e-05, 2.930222182562668e-07,
)  # fmt: skip
_K0 = (
    -0.5772156649015755, 0.4227843351039111, 0.23069608366048736, 0.03489215836770315, 0.0026147840475620565,
    0.00011848798643888689, 3.6036991345516107e-06, 8.478582920423893e-08,
)  # fmt: skip
_K1 = (
    1.0000000000006664, 0.1544313297178814, -0.6727843333130126, -0.18157518121323546, -0.01918213400174642,
    -0.0011154781561591503, -4.1283089511212425e-05, -1.1563111716955998e-06,
)  # fmt: skip
_K0_FAR = (
    1.2533141372953602, -0.07833212714646581, 0.02203057063796917, -0.011467227123402328, 0.008704787871458545,
    -0.008345589028460925, 0.008670560534612293, -0.008298538522684274, 0.006359995995108082,
    -0.003458676980899459, 0.001155212953622668, -0.0001759230901345388,
)  # fmt: skip
_K1_FAR = (
    1.2533141373367622, 0.2349963938384409, -0.03671781569945764, 0.01605628348379191, -0.011206061310273574,
    0.01025835681509912, -0.010401612846474399, 0.009845233435941174, -0.007515644451560955,
    0.004085598974437979, -0.0013664256184908515, 0.0002085295896951895,
)  # fmt: skip

# For x <= 8 over x^2 / 64: of J0 and J1 / x, of Y0 - 2/pi ln(x) J0, and of Y1 - 2/pi (ln(x) J1 - 1/x), by x (10.8.1).
_J0 = (
    0.9999999999980562, -15.999999999338595, 63.999999962708955, -113.77777695147604, 113.77776826008422,
    -72.817712480403, 32.36316886224846, -10.566806856040014, 2.640181430393633, -0.5194262971450744,
    0.08116743537679164, -0.00957131065688536, 0.0006587513890075325,
)  # fmt: skip
_J1 = (
    0.4999999999999278, -3.999999999975441, 10.66666666528267, -14.222222191571001, 11.377777424921643,
    -6.068145728875486, 2.311664825300627, -0.6604471778039661, 0.1467090087597203, -0.02600323499166642,
    0.003709610251366048, -0.0004061795068249977, 2.652156524315265e-05,
)  # fmt: skip
_Y0 = (
    -0.07380429510466083, 11.366785078250052, -65.83897295697481, 141.19145578935175, -159.29973352096593,
    111.22315412583218, -52.86584543874414, 18.221826409495048, -4.762538418663655, 0.9733202865318287,
    -0.15701327706290216, 0.018983336977247973, -0.0013293026353583372,
)  # fmt: skip
_Y1 = (
    -0.19605709064608753, 3.478316042221151, -12.104930653680087, 18.78070060763177, -16.654306414465925,
    9.590527639330068, -3.8812705431898458, 1.1651880862376325, -0.2698418482633689, 0.04956061775337306,
    -0.007286608003980002, 0.0008172028088768028, -5.425991119197719e-05,
)  # fmt: skip

# For larger x over 64 / x^2: the amplitudes P and Q x of cosine and sine (10.17.3).
_P0 = (
    0.999999999921027, -0.00109862862788791, 2.7345103840904923e-05, -2.0733699866119424e-06,
    2.093883052208689e-07,
)  # fmt: skip
_Q0 = (
    -0.12499999966043127, 0.0011443910127736608, -5.528918403403097e-05, 6.0968807860875895e-06,
    -7.47958412168854e-07,
)  # fmt: skip
_P1 = (
    1.0000000000885305, 0.0018310500008197911, -3.516396437181384e-05, 2.4575190053828623e-06,
    -2.403363697872516e-07,
)  # fmt: skip
_Q1 = (
    0.374999999622978, -0.0016021526991756372, 6.75935963837796e-05, -7.0583247411408375e-06,
    8.463020738640043e-07,
)  # fmt: skip

# Of Ai from -5 to 2 over (x + 3/2) / (7/2); for larger x of 2 sqrt(pi) x^(1/4) e^z Ai over z(2) / z, z = 2/3 x^(3/2)
# (9.7.5); for smaller x over z(5)^2 / z^2 of the amplitudes of cosine, and of sine by z (9.7.9).
_AIRY = (
    0.46425657775288576, 1.082154385192275, -4.26535730943202, 0.003402325642852936, 10.397775893842576,
    -9.14698567730893, -6.363776909637813, 14.616203366455393, -4.915027407092531, -7.5197256398443475,
    7.9663497796320915, -0.6595637282685183, -3.5508570464582903, 2.266997801820137, 0.20139995444936848,
    -0.9229249775451717, 0.3930681497809743, 0.0933867709864755, -0.15781820104989028, 0.0451238259678592,
    0.022838201881910138, -0.018805104886029177, 0.00036226571917801213, 0.003009090850714327,
    -0.00037137966878063295, -0.0001908783631296839,
)  # fmt: skip
_AIRY_POSITIVE = (
    0.9999999997810338, -0.036828428823349954, 0.010441946387894828, -0.005639542074245487, 0.00434706582976288,
    -0.00385031462507746, 0.0031390151232463933, -0.0019367909210033143, 0.0007492641116381031,
    -0.00013220304363283615,
)  # fmt: skip
_AIRY_COSINE = (
    0.9999999999269715, -0.0006683988845853459, 1.8644808356592414e-05, -1.5957997906615854e-06,
    1.7534435215295117e-07,
)  # fmt: skip
_AIRY_SINE = (
    0.06944444413537738, -0.000683858412134961, 3.7470883947714205e-05, -4.656074492436744e-06,
    6.177429490302231e-07,
)  # fmt: skip


def _bessel_k(order: int, scaled: bool) -> Callable[[Elem], Elem]:
    """K of the order, or e^x times it."""

    def function(x: Elem) -> Elem:
        w = wide(x)
        near, square, logarithm = w <= 2.0, w * w * 0.25, log(w * 0.5)
        if order == 0:
            small = scalar.fma(-logarithm, horner(square, _I0), horner(square, _K0))
        else:
            small = scalar.fma(logarithm * (w * 0.5), horner(square, _I1), horner(square, _K1) / w)
        large = horner(2.0 / w, _K0_FAR if order == 0 else _K1_FAR) / scalar.sqrt(w)
        power = exp(w if scaled else -w)
        result = scalar.select(near, small * power, large) if scaled else scalar.select(near, small, large * power)
        result = scalar.select(w.eq(0.0), w.like(math.inf), result)
        return scalar.select(w < 0.0, w.like(math.nan), result).to(x.dtype)

    return function


def _oscillation(order: int, x: Elem, second: bool) -> Elem:
    """J or Y for x >= 8: the angle is x - pi/4, or x - 3 pi/4 for order 1."""
    w = wide(x)
    inverse = 1.0 / w
    square = 64.0 * inverse * inverse
    p = horner(square, _P0 if order == 0 else _P1)
    q = horner(square, _Q0 if order == 0 else _Q1) * inverse
    sine, cosine = (wide(scalar.unary(name, x)) for name in ("sin", "cos"))
    plus, minus = cosine + sine, sine - cosine  # by sqrt(2), cosine and sine of x - pi/4
    cosine, sine = (plus, minus) if order == 0 else (minus, -plus)
    total = p * sine + q * cosine if second else p * cosine - q * sine
    return scalar.sqrt(inverse * (1 / math.pi)) * total


def _bessel_j(order: int) -> Callable[[Elem], Elem]:
    def function(x: Elem) -> Elem:
        size = scalar.absolute(x)
        w = wide(size)
        square = w * w * (1 / 64)
        small = horner(square, _J0) if order == 0 else w * horner(square, _J1)
        result = scalar.select(w < 8.0, small, _oscillation(order, size, second=False)).to(x.dtype)
        return scalar.select(x < 0.0, -result, result) if order == 1 else result

    return function


def _bessel_y(order: int) -> Callable[[Elem], Elem]:
    def function(x: Elem) -> Elem:
        w = wide(x)
        square, logarithm = w * w * (1 / 64), log(w) * (2 / math.pi)
        if order == 0:
            small = scalar.fma(logarithm, horner(square, _J0), horner(square, _Y0))
        else:
            small = scalar.fma(logarithm, horner(square, _J1), horner(square, _Y1)) * w - (2 / math.pi) / w
        result = scalar.select(w < 8.0, small, _oscillation(order, x, second=True))
        result = scalar.select(w.eq(0.0), w.like(-math.inf), result)
        return scalar.select(w < 0.0, w.like(math.nan), result).to(x.dtype)

    return function


def airy_ai(x: Elem) -> Elem:
    """The Airy function; NaN at infinities, as eager's."""
    w = wide(x)
    size = scalar.absolute(w)
    root = scalar.sqrt(size)
    z = size * root * (2 / 3)
    inverse, fourth_root = 1.0 / z, scalar.sqrt(root)
    edge = {at: 2 / 3 * at * math.sqrt(at) for at in (2, 5)}
    near = horner((w + 1.5) * (1 / 3.5), _AIRY)
    positive = horner(inverse * edge[2], _AIRY_POSITIVE) * exp(-z) / (fourth_root * (2 * math.sqrt(math.pi)))

    # Sine and cosine of z - pi/4, whose quarters of a turn are the last bits of what the addition leaves.
    angle, magic = z - math.pi / 4, 1.5 * 2.0**52
    shifted = scalar.fma(angle, 2 / math.pi, magic)
    turns = shifted - magic
    r = scalar.fma(turns, -6.123233995736766e-17, scalar.fma(turns, -math.pi / 2, angle))
    # Far out f64 has no digits for the angle: any one will do.
    r = scalar.minimum(scalar.maximum(r, -1.0), 1.0).to(x.dtype)
    sine, cosine = (wide(scalar.unary(name, r)) for name in ("sin", "cos"))
    quarter = bits_of(shifted)
    odd, half = (quarter & 1).ne(0), (quarter & 2).ne(0)
    sine, cosine = scalar.select(odd, cosine, sine), scalar.select(odd, -sine, cosine)
    square = inverse * inverse * edge[5] ** 2
    total = cosine * horner(square, _AIRY_COSINE) + sine * inverse * horner(square, _AIRY_SINE)
    total = scalar.select(half, -total, total) / (fourth_root * math.sqrt(math.pi))

    result = scalar.select(w > 2.0, positive, scalar.select(w < -5.0, total, near)).to(x.dtype)
    return scalar.select(scalar.absolute(x).eq(math.inf), x.like(math.nan), result)


FUNCTIONS: dict[str, Callable[[Elem], Elem]] = {
    "bessel_j0": _bessel_j(0),
    "bessel_j1": _bessel_j(1),
    "bessel_y0": _bessel_y(0),
    "bessel_y1": _bessel_y(1),
    "modified_bessel_k0": _bessel_k(0, scaled=False),
    "modified_bessel_k1": _bessel_k(1, scaled=False),
    "scaled_modified_bessel_k0": _bessel_k(0, scaled=True),
    "scaled_modified_bessel_k1": _bessel_k(1, scaled=True),
    "airy_ai": airy_ai,
}
"""By the names of the runtime's functions."""
