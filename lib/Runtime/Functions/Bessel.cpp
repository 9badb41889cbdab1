//===- Bessel.cpp - Bessel and Airy functions --------------------------------===//
//
// Computed in f64 for f32 too. I and K are Boost's, J and Y the C library's; formulas by their numbers in the NIST
// Digital Library of Mathematical Functions (dlmf.nist.gov); what they give at poles and outside of their domains is
// what PyTorch gives.
//
//===----------------------------------------------------------------------===//

#include "lib/Runtime/Functions/BoostMath.h"
#include "lib/Runtime/Functions/SpecialMaps.h"

#include <boost/math/special_functions/bessel.hpp>
#include <cmath>
#include <limits>

using namespace disc::rt;

static constexpr double kInfinity = std::numeric_limits<double>::infinity();
static constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
static constexpr double kPi = 3.14159265358979323846;

static double besselJ0(double x) { return std::isinf(x) ? kNaN : ::j0(x); }
static double besselJ1(double x) { return std::isinf(x) ? kNaN : ::j1(x); }
static double besselY0(double x) { return x == 0 ? -kInfinity : x < 0 || std::isinf(x) ? kNaN : ::y0(x); }
static double besselY1(double x) { return x == 0 ? -kInfinity : x < 0 || std::isinf(x) ? kNaN : ::y1(x); }

/// From here on e^x is not far from infinity: the scaled functions are an asymptotic series then.
constexpr double kLarge = 700;

/// The series of I_n(x) (10.40.1, sign -1) or K_n(x) (10.40.2, sign 1), less the factor in front of it.
static double asymptotic(int n, double x, double sign) {
  double term = 1, sum = 1;
  for (int k = 1; k < 8; ++k) {
    double odd = 2 * k - 1;
    term *= sign * (4.0 * n * n - odd * odd) / (8 * k * x);
    sum += term;
  }
  return sum;
}

static double besselI0(double x) {
  return std::isinf(x) ? kNaN : boost::math::detail::bessel_i0_imp(std::fabs(x), kDouble);
}
static double besselI1(double x) {
  return std::isinf(x) ? kNaN : std::copysign(boost::math::detail::bessel_i1_imp(std::fabs(x), kDouble), x);
}
static double scaledI0(double x) {
  double size = std::fabs(x);
  return size < kLarge ? besselI0(x) * std::exp(-size) : asymptotic(0, size, -1) / std::sqrt(2 * kPi * size);
}
static double scaledI1(double x) {
  double size = std::fabs(x);
  return size < kLarge ? besselI1(x) * std::exp(-size)
                       : std::copysign(asymptotic(1, size, -1) / std::sqrt(2 * kPi * size), x);
}

static double besselK0(double x) {
  return x == 0 ? kInfinity : x > 0 ? boost::math::detail::bessel_k0_imp(x, kDouble) : kNaN;
}
static double besselK1(double x) {
  return x == 0 ? kInfinity : x > 0 ? boost::math::detail::bessel_k1_imp(x, kDouble) : kNaN;
}
static double scaledK0(double x) {
  return x > kLarge ? asymptotic(0, x, 1) * std::sqrt(kPi / (2 * x)) : besselK0(x) * std::exp(x);
}
static double scaledK1(double x) {
  return x > kLarge ? asymptotic(1, x, 1) * std::sqrt(kPi / (2 * x)) : besselK1(x) * std::exp(x);
}

/// e^x K_nu(x) for x > 0: the integral (10.32.9) by the trapezoidal rule, which converges exponentially here
/// (Trefethen and Weideman, "The exponentially convergent trapezoidal rule", SIAM Review 56, 2014).
static double scaledK(double nu, double x) {
  double step = std::fmin(0.2, 0.5 / std::sqrt(x)), sum = 0.5;
  for (int k = 1;; ++k) {
    double t = k * step, sine = std::sinh(t / 2);
    double decay = 2 * x * sine * sine;
    if (decay > 750)
      return sum * step;
    sum += std::exp(-decay) * std::cosh(nu * t);
  }
}

/// The Airy function: the Maclaurin series (9.4.1), a Bessel function (9.6.2), or the oscillating series (9.7.9).
static double airy(double x) {
  if (std::isnan(x) || std::isinf(x))
    return kNaN;
  double zeta = 2.0 / 3 * std::fabs(x) * std::sqrt(std::fabs(x));
  if (x > 2)
    return std::sqrt(x / 3) / kPi * scaledK(1.0 / 3, zeta) * std::exp(-zeta);
  if (x > -9) {
    // More digits for what cancels.
    long double cube = static_cast<long double>(x) * x * x, f = 1, g = x, even = 1, odd = x;
    for (int k = 1; k < 120; ++k) {
      even *= cube / ((3.0L * k - 1) * (3.0L * k));
      odd *= cube / ((3.0L * k) * (3.0L * k + 1));
      f += even;
      g += odd;
    }
    return static_cast<double>(0.355028053887817239260063186L * f - 0.258819403792806798405183560L * g);
  }
  double term = 1, cosine = 1, sine = 0;
  for (int k = 1; k < 30; ++k) {
    term *= (6.0 * k - 5) * (6 * k - 3) * (6 * k - 1) / ((2 * k - 1) * 216.0 * k * zeta);
    double sign = (k / 2) % 2 ? -1 : 1;
    (k % 2 ? sine : cosine) += sign * term;
  }
  double angle = zeta - kPi / 4;
  return (std::cos(angle) * cosine + std::sin(angle) * sine) / (std::sqrt(kPi) * std::pow(-x, 0.25));
}

DISC_SPECIAL_MAP(bessel_j0, besselJ0)
DISC_SPECIAL_MAP(bessel_j1, besselJ1)
DISC_SPECIAL_MAP(bessel_y0, besselY0)
DISC_SPECIAL_MAP(bessel_y1, besselY1)
DISC_SPECIAL_MAP(i0, besselI0)
DISC_SPECIAL_MAP(i0e, scaledI0)
DISC_SPECIAL_MAP(i1, besselI1)
DISC_SPECIAL_MAP(i1e, scaledI1)
DISC_SPECIAL_MAP(modified_bessel_k0, besselK0)
DISC_SPECIAL_MAP(modified_bessel_k1, besselK1)
DISC_SPECIAL_MAP(scaled_modified_bessel_k0, scaledK0)
DISC_SPECIAL_MAP(scaled_modified_bessel_k1, scaledK1)
DISC_SPECIAL_MAP(airy_ai, airy)
