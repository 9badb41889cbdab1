"""Logarithms, exponentials and polynomials of f64 elements, to about 2^-30 of the result.

Functions of f32 that lose digits on the way (where terms cancel, or a power is taken) are computed in f64 and rounded
once. That needs neither all bits of f64 nor its library: in the lanes of a vector it is twice the work of f32. All
polynomials are minimax, by Remez's algorithm with 40 digits.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence

import torch
from torch_mlir.dialects import arith

from .. import scalar
from ..scalar import Elem
from .arithmetic import bits_of, of_bits

# Of ln((1 + s) / (1 - s)) / s over s^2, of 2^r, and of sin(pi u) / u and cos(pi u) over u^2.
_LOG = (
    2.0000000000084284, 0.6666666523987204, 0.4000038598736488, 0.2853497843093486, 0.23617611284002926,
)  # fmt: skip
_EXP2 = (
    1.0000000005541556, 0.6931472057373329, 0.24022646890650354, 0.0555032877681101, 0.00961848895567845,
    0.0013399931274398111, 0.0001534581241236948,
)  # fmt: skip
_SIN_PI = (
    3.1415926535233534, -5.167712762116408, 2.5501632403320613, -0.599251330194952, 0.08204647895996767,
    -0.00702216339808377,
)  # fmt: skip
_COS_PI = (
    0.9999999997806542, -4.934802137228707, 4.058709164349544, -1.3352120567107997, 0.23493755903905086,
    -0.02439671660527728,
)  # fmt: skip


def _bits(x: float) -> int:
    return int(struct.unpack("<q", struct.pack("<d", x))[0])


_ONE, _MAGIC = _bits(1.0), 1.5 * 2.0**52
_INTEGER = _bits(2.0**52)


def wide(x: Elem) -> Elem:
    """As f64."""
    return x.to(torch.float64)


def horner(x: Elem, coefficients: Sequence[float]) -> Elem:
    """A polynomial; coefficients from the constant one up."""
    result = x.like(coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        result = scalar.fma(result, x, coefficient)
    return result


def _shifted(x: Elem, count: int, left: bool = False) -> Elem:
    op = arith.ShLIOp if left else arith.ShRUIOp
    return Elem(op(x.value, x.like(count).value).result, x.dtype)


def log(x: Elem) -> Elem:
    """The natural logarithm of a positive normal f64; something finite of anything else."""
    bits = bits_of(x)
    # The exponent of x / sqrt(1/2), with its bias; as a float it is the low bits of 2^52.
    exponent = _shifted(bits + (_ONE - _bits(math.sqrt(0.5))), 52)
    n = of_bits(exponent | _INTEGER, x.dtype) - (2.0**52 + 1023)
    f = of_bits(bits - _shifted(exponent, 52, left=True) + _ONE, x.dtype) - 1.0
    s = f / (f + 2.0)
    return scalar.fma(s, horner(s * s, _LOG), n * math.log(2))


def exp(x: Elem) -> Elem:
    """e^x; beyond 200, which is beyond f32, that of 200."""
    x = scalar.select(x > 200.0, x.like(200.0), scalar.select(x < -200.0, x.like(-200.0), x))
    power = x * (1 / math.log(2))
    shifted = power + _MAGIC
    r = power - (shifted - _MAGIC)
    return horner(r, _EXP2) * of_bits(_shifted(bits_of(shifted), 52, left=True) + _ONE, x.dtype)


def from_integer(x: Elem) -> Elem:
    """x less the nearest integer."""
    return x - scalar.unary("roundeven", x)


def sin_pi(u: Elem) -> Elem:
    """sin(pi u) for |u| <= 1/2."""
    return u * horner(u * u, _SIN_PI)


def cos_pi(u: Elem) -> Elem:
    """cos(pi u) for |u| <= 1/2."""
    return horner(u * u, _COS_PI)
