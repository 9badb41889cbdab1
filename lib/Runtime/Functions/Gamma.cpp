//===- Gamma.cpp - the gamma and error functions' families ------------------===//
//
// Computed in f64 for f32 too. Boost's approximations where they are faster than a few lines of our own
// (docs/rationale/numerics.md); formulas by their numbers in the NIST Digital Library of Mathematical Functions
// (dlmf.nist.gov); what they give at poles and outside of their domains is what PyTorch gives.
//
//===----------------------------------------------------------------------===//

#include "lib/Runtime/Functions/BoostMath.h"
#include "lib/Runtime/Functions/SpecialMaps.h"

#include <boost/math/special_functions/digamma.hpp>
#include <boost/math/special_functions/erf.hpp>
#include <boost/math/special_functions/trigamma.hpp>
#include <cmath>
#include <limits>

using namespace disc::rt;

static constexpr double kInfinity = std::numeric_limits<double>::infinity();
static constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
static constexpr double kPi = 3.14159265358979323846;
static constexpr double kRootTwo = 1.41421356237309504880;
static constexpr double kRootPi = 1.77245385090551602730;

// B(2k) for k = 1, 2, ...
static constexpr double kBernoulli[] = {1.0 / 6,       -1.0 / 30, 1.0 / 42,      -1.0 / 30,     5.0 / 66,
                                        -691.0 / 2730, 7.0 / 6,   -3617.0 / 510, 43867.0 / 798, -174611.0 / 330};

static double logGamma(double x) {
  int sign; // The plain function stores it in a global variable.
  return ::lgamma_r(x, &sign);
}

static double digamma(double x) {
  if (x == 0)
    return std::copysign(kInfinity, -x);
  if (x < 0 && x == std::floor(x))
    return kNaN;
  return boost::math::detail::digamma_imp(x, &kDouble, Quiet());
}

/// The Hurwitz zeta function by Euler and Maclaurin's formula (25.11.5 and 2.10.1).
static double zeta(double s, double q) {
  if (s == 1)
    return kInfinity;
  if (s < 1 || std::isnan(s) || std::isnan(q))
    return kNaN;
  if (q <= 0) {
    if (q == std::floor(q))
      return kInfinity;
    if (s != std::floor(s))
      return kNaN;
  }
  if (std::isinf(q))
    return 0;
  double sum = 0;
  for (int k = 0; k < 12 || q < 12; ++k, q += 1) {
    double term = std::pow(q, -s);
    sum += term;
    if (q > 0 && std::fabs(term) < 1e-17 * std::fabs(sum))
      return sum;
  }
  double power = std::pow(q, -s);
  sum += power * q / (s - 1) + 0.5 * power;
  double factor = s * power / q; // s (s + 1) ... / (2k)!, less the Bernoulli number, as in (2.10.1)
  for (int k = 1; k <= 10; ++k) {
    double term = kBernoulli[k - 1] * factor / 2;
    sum += term;
    if (std::fabs(term) < 1e-17 * std::fabs(sum))
      break;
    factor *= (s + 2 * k - 1) * (s + 2 * k) / (q * q * (2 * k + 1) * (2 * k + 2));
  }
  return sum;
}

static double trigamma(double x) { return boost::math::detail::trigamma_imp(x, &kDouble, Quiet()); }

/// The derivatives of digamma (5.15.1); the first one reflected (5.15.6), with the value of PyTorch at its poles.
static double polygamma(double n, double x) {
  if (n == 0)
    return digamma(x);
  if (n == 1 && x < 0.5) {
    double sine = std::sin(kPi * x);
    return kPi * kPi / (sine * sine) - trigamma(1 - x);
  }
  if (n == 1)
    return trigamma(x);
  double value = std::exp(logGamma(n + 1)) * zeta(n + 1, x);
  return std::fmod(n, 2) != 0 ? value : -value;
}

/// x^a e^-x / gamma(a).
static double gammaFactor(double a, double x) { return std::exp(a * std::log(x) - x - logGamma(a)); }

/// P(a, x) by its power series (8.11.4).
static double lowerSeries(double a, double x) {
  double term = 1 / a, sum = term;
  for (int n = 1; n < 100000 && term > sum * 1e-17; ++n)
    sum += term *= x / (a + n);
  return sum * gammaFactor(a, x);
}

/// Q(a, x) by its continued fraction (8.9.2), evaluated as Lentz and Thompson do.
static double upperFraction(double a, double x) {
  double b = x + 1 - a, c = 1e300, d = 1 / b, h = d;
  for (int n = 1; n < 100000; ++n) {
    double an = -n * (n - a);
    b += 2;
    d = an * d + b;
    d = 1 / (std::fabs(d) < 1e-300 ? 1e-300 : d);
    c = b + an / c;
    c = std::fabs(c) < 1e-300 ? 1e-300 : c;
    double factor = d * c;
    h *= factor;
    if (std::fabs(factor - 1) < 1e-16)
      break;
  }
  return h * gammaFactor(a, x);
}

static double gammaPart(double a, double x, bool upper) {
  if (!(x >= 0) || !(a >= 0))
    return kNaN;
  double none = upper ? 1 : 0;
  if (a == 0)
    return x > 0 ? 1 - none : kNaN;
  if (x == 0)
    return none;
  if (std::isinf(a))
    return std::isinf(x) ? kNaN : none;
  if (std::isinf(x))
    return 1 - none;
  bool series = x < a + 1;
  double part = series ? lowerSeries(a, x) : upperFraction(a, x);
  return series == upper ? 1 - part : part;
}
static double lowerGamma(double a, double x) { return gammaPart(a, x, false); }
static double upperGamma(double a, double x) { return gammaPart(a, x, true); }

// -- the error function ---------------------------------------------------------------------------

/// e^(x^2) erfc(x): directly, or by the continued fraction (7.9.2) where erfc would vanish.
static double scaledErfc(double x) {
  if (std::isnan(x))
    return x;
  if (x < 5) {
    double square = x * x, error = std::fma(x, x, -square);
    double power = std::exp(square);
    return std::isinf(power) ? kInfinity : power * (1 + error) * std::erfc(x);
  }
  if (x > 1e8)
    return 1 / (kRootPi * x);
  double fraction = x;
  for (int n = 60; n >= 1; --n)
    fraction = x + 0.5 * n / fraction;
  return 1 / (kRootPi * fraction);
}

/// The z with erfc(z) = y, for y in (0, 1].
static double inverseErfc(double y) { return boost::math::detail::erf_inv_imp(1 - y, y, Quiet(), &kExtended); }

static double inverseErf(double x) {
  double size = std::fabs(x);
  if (!(size <= 1))
    return kNaN;
  if (size == 1)
    return std::copysign(kInfinity, x);
  return std::copysign(boost::math::detail::erf_inv_imp(size, 1 - size, Quiet(), &kExtended), x);
}

/// The inverse of the normal distribution function.
static double inverseNormal(double p) {
  if (!(p >= 0 && p <= 1))
    return kNaN;
  if (p == 0 || p == 1)
    return p == 0 ? -kInfinity : kInfinity;
  if (p < 0.25)
    return -kRootTwo * inverseErfc(2 * p);
  return p > 0.75 ? kRootTwo * inverseErfc(2 * (1 - p)) : kRootTwo * inverseErf(2 * p - 1);
}

/// The logarithm of the normal distribution function.
static double logNormal(double x) {
  double t = x / kRootTwo;
  if (x < -1)
    return std::log(scaledErfc(-t) / 2) - t * t;
  return std::log1p(-std::erfc(t) / 2);
}

DISC_SPECIAL_MAP(lgamma, logGamma)
DISC_SPECIAL_MAP(digamma, digamma)
DISC_SPECIAL_MAP(polygamma, polygamma)
DISC_SPECIAL_MAP(zeta, zeta)
DISC_SPECIAL_MAP(igamma, lowerGamma)
DISC_SPECIAL_MAP(igammac, upperGamma)
DISC_SPECIAL_MAP(erfcx, scaledErfc)
DISC_SPECIAL_MAP(erfinv, inverseErf)
DISC_SPECIAL_MAP(ndtri, inverseNormal)
DISC_SPECIAL_MAP(log_ndtr, logNormal)
