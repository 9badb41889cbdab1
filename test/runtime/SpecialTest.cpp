//===- SpecialTest.cpp - special functions, and folding segments ----------===//

#include "Check.h"
#include "lib/Runtime/Functions/Function.h"

#include <cmath>
#include <cstring>
#include <limits>

namespace {
const int64_t kOne[] = {1}, kNone[] = {0};

disc_view scalar(double &x) { return {&x, DISC_F64, 1, kOne, kNone}; }

double of(disc_function fn, double x) {
  double y = 0;
  disc_view operands[] = {scalar(x), scalar(y)};
  CHECK(fn(nullptr, operands, nullptr, 0, 1, nullptr) == DISC_OK);
  return y;
}

double of(disc_function fn, double x, double y) {
  double z = 0;
  disc_view operands[] = {scalar(x), scalar(y), scalar(z)};
  CHECK(fn(nullptr, operands, nullptr, 0, 1, nullptr) == DISC_OK);
  return z;
}

bool near(double x, double y) { return std::fabs(x - y) <= 1e-14 * std::fmax(1, std::fabs(y)); }
} // namespace

// Values from the tables of Abramowitz and Stegun's handbook, with more digits.
TEST(specialFunctionsAtKnownPoints) {
  CHECK(near(of(disc_fn_lgamma, 0.5), 0.57236494292470009));
  CHECK(near(of(disc_fn_digamma, 1), -0.57721566490153286));
  CHECK(near(of(disc_fn_digamma, -0.5), 0.03648997397857652));
  CHECK(near(of(disc_fn_zeta, 2, 1), 1.6449340668482264));
  CHECK(near(of(disc_fn_polygamma, 1, 1), 1.6449340668482264));
  CHECK(near(of(disc_fn_igamma, 2, 1), 0.26424111765711536));
  CHECK(near(of(disc_fn_igammac, 2, 1), 0.73575888234288464));
  CHECK(near(of(disc_fn_erfinv, 0.5), 0.47693627620446987));
  CHECK(near(of(disc_fn_ndtri, 0.975), 1.9599639845400543));
  CHECK(near(of(disc_fn_erfcx, 10), 0.056140992743822586));
  CHECK(near(of(disc_fn_i0, 1), 1.2660658777520084));
  CHECK(near(of(disc_fn_i1, -1), -0.56515910399248503));
  CHECK(near(of(disc_fn_modified_bessel_k0, 1), 0.42102443824070834));
  CHECK(near(of(disc_fn_modified_bessel_k1, 1), 0.60190723019723457));
  CHECK(near(of(disc_fn_airy_ai, 1), 0.13529241631288141));
  CHECK(near(of(disc_fn_airy_ai, -1), 0.53556088329235211));
  CHECK(near(of(disc_fn_chebyshev_polynomial_t, 0.5, 9), -1));
  CHECK(near(of(disc_fn_legendre_polynomial_p, 0.5, 3), -0.4375));
  CHECK(near(of(disc_fn_hermite_polynomial_h, 1, 3), -4));
  CHECK(of(disc_fn_hermite_polynomial_he, 1, -1) == 0);
}

TEST(specialFunctionsAtPoles) {
  double infinity = std::numeric_limits<double>::infinity();
  CHECK(of(disc_fn_digamma, 0) == -infinity);
  CHECK(std::isnan(of(disc_fn_digamma, -1)));
  CHECK(of(disc_fn_erfinv, 1) == infinity && std::isnan(of(disc_fn_erfinv, 1.5)));
  CHECK(of(disc_fn_ndtri, 0) == -infinity);
  CHECK(of(disc_fn_zeta, 1, 2) == infinity && std::isnan(of(disc_fn_zeta, 0.5, 2)));
  CHECK(of(disc_fn_modified_bessel_k0, 0) == infinity && std::isnan(of(disc_fn_modified_bessel_k0, -1)));
  CHECK(std::isnan(of(disc_fn_igamma, -1, 1)) && of(disc_fn_igamma, 1, infinity) == 1);
}

TEST(segmentsAreFolded) {
  float data[] = {1, 10, 2, 20, 3, 30}, out[6] = {};
  int64_t offsets[] = {0, 2, 2, 3};
  bool kept[] = {true, true, true};
  int64_t dims[] = {1, 3, 2}, strides[] = {6, 2, 1}, ends[] = {1, 4}, rows[] = {1, 3}, dense4[] = {4, 1},
          dense3[] = {3, 1};
  disc_view operands[] = {{data, DISC_F32, 3, dims, strides},
                          {offsets, DISC_I64, 2, ends, dense4},
                          {kept, DISC_BOOL, 2, rows, dense3},
                          {out, DISC_F32, 3, dims, strides}};
  int64_t config[3] = {1, 0, 0};
  double empty = -1;
  std::memcpy(&config[2], &empty, sizeof(empty));
  CHECK(disc_fn_segment_reduce(nullptr, operands, config, 0, 3, nullptr) == DISC_OK);
  const float means[] = {1.5f, 15, -1, -1, 3, 30};
  CHECK(std::memcmp(out, means, sizeof(means)) == 0);
}
