//===- Polynomials.cpp - orthogonal polynomials of any degree ----------------===//
//
// Each by its three-term recurrence, in f64 for f32 too (table 18.9.1 of dlmf.nist.gov); inside of the interval of
// orthogonality those of Chebyshev by their angle (18.5.1 to 18.5.4). Degrees are truncated to integers; a negative one
// gives 0, as in PyTorch.
//
//===----------------------------------------------------------------------===//

#include "lib/Runtime/Functions/SpecialMaps.h"

#include <cmath>
#include <limits>

static int64_t degree(double n) { return std::isfinite(n) && std::fabs(n) < 9e18 ? static_cast<int64_t>(n) : -1; }

/// The last of p(0) = 1, p(1) = `first`, p(k + 1) = next(k, p(k), p(k - 1)).
template <typename Next> static double recurrence(int64_t n, double first, Next next) {
  double before = 1, p = first;
  if (n <= 0)
    return n == 0 ? 1 : 0;
  for (int64_t k = 1; k < n && !std::isnan(p); ++k) {
    double after = next(static_cast<double>(k), p, before);
    before = p;
    p = after;
  }
  return p;
}

/// A polynomial of Chebyshev whose degree 1 is 2x + `shift`, or x for the first kind.
static double chebyshev(int64_t n, double x, double first) {
  return recurrence(n, first, [x](double, double p, double q) { return 2 * x * p - q; });
}

static double chebyshevT(double x, double order) {
  int64_t n = degree(order);
  return n > 6 && std::fabs(x) < 1 ? std::cos(n * std::acos(x)) : chebyshev(n, x, x);
}
static double chebyshevU(double x, double order) {
  int64_t n = degree(order);
  double angle = std::acos(x);
  return n > 8 && std::fabs(x) < 1 ? std::sin((n + 1) * angle) / std::sin(angle) : chebyshev(n, x, 2 * x);
}
static double chebyshevV(double x, double order) {
  int64_t n = degree(order);
  double angle = std::acos(x);
  return n > 8 && std::fabs(x) < 1 ? std::cos((n + 0.5) * angle) / std::cos(angle / 2) : chebyshev(n, x, 2 * x - 1);
}
static double chebyshevW(double x, double order) {
  int64_t n = degree(order);
  double angle = std::acos(x);
  return n > 8 && std::fabs(x) < 1 ? std::sin((n + 0.5) * angle) / std::sin(angle / 2) : chebyshev(n, x, 2 * x + 1);
}

// The shifted ones live on [0, 1].
static double shiftedT(double x, double n) { return chebyshevT(2 * x - 1, n); }
static double shiftedU(double x, double n) { return chebyshevU(2 * x - 1, n); }
static double shiftedV(double x, double n) { return chebyshevV(2 * x - 1, n); }
static double shiftedW(double x, double n) { return chebyshevW(2 * x - 1, n); }

static double hermiteH(double x, double n) {
  return recurrence(degree(n), 2 * x, [x](double k, double p, double q) { return 2 * x * p - 2 * k * q; });
}
static double hermiteHe(double x, double n) {
  return recurrence(degree(n), x, [x](double k, double p, double q) { return x * p - k * q; });
}
static double laguerreL(double x, double n) {
  return recurrence(degree(n), 1 - x,
                    [x](double k, double p, double q) { return ((2 * k + 1 - x) * p - k * q) / (k + 1); });
}
static double legendreP(double x, double n) {
  return recurrence(degree(n), x,
                    [x](double k, double p, double q) { return ((2 * k + 1) * x * p - k * q) / (k + 1); });
}

DISC_SPECIAL_MAP(chebyshev_polynomial_t, chebyshevT)
DISC_SPECIAL_MAP(chebyshev_polynomial_u, chebyshevU)
DISC_SPECIAL_MAP(chebyshev_polynomial_v, chebyshevV)
DISC_SPECIAL_MAP(chebyshev_polynomial_w, chebyshevW)
DISC_SPECIAL_MAP(shifted_chebyshev_polynomial_t, shiftedT)
DISC_SPECIAL_MAP(shifted_chebyshev_polynomial_u, shiftedU)
DISC_SPECIAL_MAP(shifted_chebyshev_polynomial_v, shiftedV)
DISC_SPECIAL_MAP(shifted_chebyshev_polynomial_w, shiftedW)
DISC_SPECIAL_MAP(hermite_polynomial_h, hermiteH)
DISC_SPECIAL_MAP(hermite_polynomial_he, hermiteHe)
DISC_SPECIAL_MAP(laguerre_polynomial_l, laguerreL)
DISC_SPECIAL_MAP(legendre_polynomial_p, legendreP)
