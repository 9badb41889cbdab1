//===- Bessel.cpp - Bessel and Airy functions --------------------------------===//
//
// Computed in f64 for f32 too. Formulas by their numbers in the NIST Digital Library of Mathematical Functions
// (dlmf.nist.gov); what they give at poles and outside of their domains is what PyTorch gives.
//
//===----------------------------------------------------------------------===//

#include "lib/Runtime/Functions/SpecialMaps.h"

#include <cmath>
#include <limits>

static constexpr double kInfinity = std::numeric_limits<double>::infinity();
static constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
static constexpr double kPi = 3.14159265358979323846;

// J and Y are the C library's.
static double besselJ0(double x) { return std::isinf(x) ? kNaN : ::j0(x); }
static double besselJ1(double x) { return std::isinf(x) ? kNaN : ::j1(x); }
static double besselY0(double x) { return x == 0 ? -kInfinity : x < 0 || std::isinf(x) ? kNaN : ::y0(x); }
static double besselY1(double x) { return x == 0 ? -kInfinity : x < 0 || std::isinf(x) ? kNaN : ::y1(x); }

/// e^-|x| I_n(x), n = 0 or 1: the power series (10.25.2), or the asymptotic one (10.40.1).
static double scaledI(int n, double x) {
  double size = std::fabs(x), sum;
  if (size < 20) {
    double quarter = size * size / 4, term = n == 0 ? 1 : size / 2;
    sum = term;
    for (int k = 1; term > sum * 1e-18; ++k)
      sum += term *= quarter / (double(k) * (k + n));
    sum *= std::exp(-size);
  } else {
    double term = 1;
    sum = 1;
    for (int k = 1; k < 30; ++k) {
      double odd = 2 * k - 1;
      term *= -(4.0 * n * n - odd * odd) / (8 * k * size);
      sum += term;
    }
    sum /= std::sqrt(2 * kPi * size);
  }
  return n == 1 && x < 0 ? -sum : sum;
}
static double scaledI0(double x) { return std::isnan(x) ? x : scaledI(0, x); }
static double scaledI1(double x) { return std::isnan(x) ? x : scaledI(1, x); }
static double grown(double scaled, double x) {
  // In two factors: the product may be finite where e^|x| is not.
  double half = std::exp(std::fabs(x) / 2);
  return scaled * half * half;
}
static double besselI0(double x) { return std::isinf(x) ? kNaN : grown(scaledI0(x), x); }
static double besselI1(double x) { return std::isinf(x) ? kNaN : grown(scaledI1(x), x); }

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
static double besselK(double nu, double x, bool scaled) {
  if (x == 0)
    return kInfinity;
  if (!(x > 0))
    return kNaN;
  if (std::isinf(x))
    return 0;
  return scaledK(nu, x) * (scaled ? 1 : std::exp(-x));
}
static double besselK0(double x) { return besselK(0, x, false); }
static double besselK1(double x) { return besselK(1, x, false); }
static double scaledK0(double x) { return besselK(0, x, true); }
static double scaledK1(double x) { return besselK(1, x, true); }

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
