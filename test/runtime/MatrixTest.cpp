//===- MatrixTest.cpp - decompositions by what defines them ---------------===//
//
// A decomposition is multiplied out again, an eigenvector is put into its equation: no other library says what is
// right.
//
//===----------------------------------------------------------------------===//

#include "Check.h"
#include "Operands.h"

#include <cmath>
#include <complex>
#include <functional>
#include <random>
#include <type_traits>

using namespace disc::test;

namespace {
using Values = std::vector<double>;

/// One matrix of doubles, whatever the dtype that a function was given.
struct Dense {
  int64_t rows, cols;
  Values data;
  Dense(int64_t rows, int64_t cols) : rows(rows), cols(cols), data(size_t(rows * cols)) {}
  double &operator()(int64_t i, int64_t j) { return data[size_t(i * cols + j)]; }
  double operator()(int64_t i, int64_t j) const { return data[size_t(i * cols + j)]; }
};

template <typename T> Dense at(const Tensor<T> &tensor, int64_t batch, int64_t rows, int64_t cols) {
  Dense a(rows, cols);
  for (int64_t i = 0; i < rows * cols; ++i)
    a.data[size_t(i)] = double(tensor.data[size_t(batch * rows * cols + i)]);
  return a;
}

Dense operator*(const Dense &a, const Dense &b) {
  Dense c(a.rows, b.cols);
  for (int64_t i = 0; i < a.rows; ++i)
    for (int64_t k = 0; k < a.cols; ++k)
      for (int64_t j = 0; j < b.cols; ++j)
        c(i, j) += a(i, k) * b(k, j);
  return c;
}

Dense transposed(const Dense &a) {
  Dense b(a.cols, a.rows);
  for (int64_t i = 0; i < a.rows; ++i)
    for (int64_t j = 0; j < a.cols; ++j)
      b(j, i) = a(i, j);
  return b;
}

Dense identity(int64_t n) {
  Dense a(n, n);
  for (int64_t i = 0; i < n; ++i)
    a(i, i) = 1;
  return a;
}

/// The largest difference; NaN counts as infinite.
double distance(const Dense &a, const Dense &b) {
  double most = 0;
  for (size_t i = 0; i < a.data.size(); ++i) {
    double off = std::fabs(a.data[i] - b.data[i]);
    most = off <= most ? most : off == off ? off : kInfinity;
  }
  return a.rows == b.rows && a.cols == b.cols ? most : kInfinity;
}

template <typename T> constexpr int64_t dtypeOf = std::is_same_v<T, double> ? DISC_F64 : DISC_F32;
template <typename T> constexpr double tolerance = std::is_same_v<T, double> ? 1e-11 : 2e-4;

template <typename T> Tensor<T> randomTensor(std::vector<int64_t> dims, unsigned seed) {
  Tensor<T> x(dtypeOf<T>, std::move(dims));
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  for (T &value : x.data)
    value = T(normal(random));
  return x;
}

template <typename T> Tensor<T> like(std::vector<int64_t> dims) { return Tensor<T>(dtypeOf<T>, std::move(dims)); }

constexpr size_t kScratch = 1 << 19;

/// The triangle of a matrix; with ones on the diagonal if `unit`.
Dense triangle(const Dense &a, bool upper, bool unit = false) {
  Dense b(a.rows, a.cols);
  for (int64_t i = 0; i < a.rows; ++i)
    for (int64_t j = 0; j < a.cols; ++j)
      b(i, j) = i == j && unit ? 1 : (upper ? j >= i : j <= i) ? a(i, j) : 0;
  return b;
}

template <typename T> void checkLu(int64_t m, int64_t n) {
  const int64_t batches = 3, k = std::min(m, n);
  auto a = randomTensor<T>({batches, m, n}, unsigned(m * 10 + n)), lu = like<T>({batches, m, n});
  Tensor<int32_t> pivots(DISC_I32, {batches, k}), info(DISC_I32, {batches});
  Ints rows(DISC_I64, {batches, m});
  CHECK(runParts(disc_fn_lu_factor, {a, lu, pivots, info}, {3}, batches, 2, kScratch) == DISC_OK);
  CHECK(runParts(disc_fn_permutation, {pivots, rows}, {}, batches, 2) == DISC_OK);
  for (int64_t batch = 0; batch < batches; ++batch) {
    Dense factors = at(lu, batch, m, n), lower(m, k), upper(k, n), original = at(a, batch, m, n), permuted(m, n);
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) {
        if (j < k)
          lower(i, j) = i == j ? 1 : j < i ? factors(i, j) : 0;
        if (i < k)
          upper(i, j) = j >= i ? factors(i, j) : 0;
        permuted(i, j) = original(rows.data[size_t(batch * m + i)], j);
      }
    CHECK(info.data[size_t(batch)] == 0);
    CHECK(distance(lower * upper, permuted) < tolerance<T>);
  }
  if (m != n)
    return;
  const int64_t columns = 2;
  auto b = randomTensor<T>({batches, n, columns}, 7), x = like<T>({batches, n, columns});
  for (int64_t transpose : {0, 1}) {
    CHECK(runParts(disc_fn_lu_solve, {lu, pivots, b, x}, {transpose}, batches, 1, kScratch) == DISC_OK);
    for (int64_t batch = 0; batch < batches; ++batch) {
      Dense matrix = at(a, batch, n, n);
      CHECK(distance((transpose ? transposed(matrix) : matrix) * at(x, batch, n, columns), at(b, batch, n, columns)) <
            tolerance<T>);
    }
  }
}

template <typename T> void checkTriangular(int64_t n) {
  auto a = randomTensor<T>({2, n, n}, 3), b = randomTensor<T>({2, n, 3}, 4), x = like<T>({2, n, 3});
  for (int64_t i = 0; i < 2 * n; ++i) // far from singular
    a.data[size_t(i / n * n * n + i % n * (n + 1))] += T(4);
  for (int64_t upper : {0, 1})
    for (int64_t unit : {0, 1}) {
      CHECK(runParts(disc_fn_solve_triangular, {a, b, x}, {upper, unit}, 2, 1, kScratch) == DISC_OK);
      for (int64_t batch = 0; batch < 2; ++batch) {
        Dense right = triangle(at(a, batch, n, n), upper, unit) * at(x, batch, n, 3), wanted = at(b, batch, n, 3);
        // Ones on the diagonal of a random matrix let the solution grow.
        CHECK(distance(right, wanted) < (unit ? 100 : 1) * tolerance<T>);
      }
    }
}

template <typename T> void checkCholesky(int64_t n) {
  auto a = randomTensor<T>({2, n, n}, 5), factor = like<T>({2, n, n});
  Tensor<int32_t> info(DISC_I32, {2});
  for (int64_t batch = 0; batch < 2; ++batch) {
    Dense root = at(a, batch, n, n), square = root * transposed(root);
    for (int64_t i = 0; i < n * n; ++i)
      a.data[size_t(batch * n * n + i)] = T(square.data[size_t(i)] + double(i % (n + 1) == 0));
  }
  for (int64_t upper : {0, 1}) {
    CHECK(runParts(disc_fn_cholesky, {a, factor, info}, {upper, 1}, 2, 1, kScratch) == DISC_OK);
    for (int64_t batch = 0; batch < 2; ++batch) {
      Dense f = at(factor, batch, n, n);
      CHECK(distance(f, triangle(f, upper)) == 0);
      CHECK(distance(upper ? transposed(f) * f : f * transposed(f), at(a, batch, n, n)) < 10 * tolerance<T>);
    }
  }
}

template <typename T> void checkQr(int64_t m, int64_t n, const Tensor<T> *given = nullptr) {
  const int64_t batches = given ? 1 : 2, k = std::min(m, n);
  auto a = given ? *given : randomTensor<T>({batches, m, n}, unsigned(m + 20 * n));
  auto reflections = like<T>({batches, m, n}), tau = like<T>({batches, 1, k});
  CHECK(runParts(disc_fn_geqrf, {a, reflections, tau}, {}, batches, 1, kScratch) == DISC_OK);
  for (int64_t columns : {k, m}) {
    auto q = like<T>({batches, m, columns});
    CHECK(runParts(disc_fn_householder_product, {reflections, tau, q}, {}, batches, 1, kScratch) == DISC_OK);
    for (int64_t batch = 0; batch < batches; ++batch) {
      Dense full = at(q, batch, m, columns), r(columns, n), packed = at(reflections, batch, m, n);
      for (int64_t i = 0; i < columns; ++i)
        for (int64_t j = i; j < n; ++j)
          r(i, j) = packed(i, j);
      CHECK(distance(full * r, at(a, batch, m, n)) < tolerance<T>);
      CHECK(distance(transposed(full) * full, identity(columns)) < tolerance<T>);
    }
  }
}

template <typename T> void checkEigh(int64_t n, const std::function<double(int64_t, int64_t)> &element) {
  auto a = like<T>({n, n}), values = like<T>({n}), vectors = like<T>({n, n});
  for (int64_t upper : {0, 1}) {
    Dense symmetric(n, n);
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j < n; ++j) {
        bool read = upper ? j >= i : j <= i; // the other triangle does not count
        symmetric(i, j) = double(T(element(std::min(i, j), std::max(i, j))));
        a.data[size_t(i * n + j)] = read ? T(symmetric(i, j)) : T(1e3);
      }
    CHECK(runParts(disc_fn_eigh, {a, values, vectors}, {upper}, 1, 1, kScratch) == DISC_OK);
    CHECK(std::is_sorted(values.data.begin(), values.data.end()));
    Dense v = at(vectors, 0, n, n), scaled = v;
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j < n; ++j)
        scaled(i, j) *= double(values.data[size_t(j)]);
    CHECK(distance(symmetric * v, scaled) < tolerance<T>);
    CHECK(distance(transposed(v) * v, identity(n)) < tolerance<T>);
    auto alone = like<T>({n}), none = like<T>({n, 0});
    CHECK(runParts(disc_fn_eigh, {a, alone, none}, {upper}, 1, 1, kScratch) == DISC_OK);
    CHECK(distance(at(alone, 0, 1, n), at(values, 0, 1, n)) < tolerance<T>);
  }
}

template <typename T> void checkSvd(Tensor<T> a, bool full) {
  const int64_t m = a.dims[0], n = a.dims[1], k = std::min(m, n);
  auto u = like<T>({m, full ? m : k}), s = like<T>({k}), vt = like<T>({full ? n : k, n});
  CHECK(runParts(disc_fn_svd, {a, u, s, vt}, {}, 1, 1, kScratch) == DISC_OK);
  CHECK(std::is_sorted(s.data.rbegin(), s.data.rend()) && (k == 0 || s.data[size_t(k - 1)] >= 0));
  Dense left = at(u, 0, m, u.dims[1]), right = at(vt, 0, vt.dims[0], n), scaled(u.dims[1], n);
  for (int64_t i = 0; i < k; ++i)
    for (int64_t j = 0; j < n; ++j)
      scaled(i, j) = double(s.data[size_t(i)]) * right(i, j);
  CHECK(distance(left * scaled, at(a, 0, m, n)) < tolerance<T>);
  CHECK(distance(transposed(left) * left, identity(u.dims[1])) < tolerance<T>);
  CHECK(distance(right * transposed(right), identity(vt.dims[0])) < tolerance<T>);
  auto alone = like<T>({k}), noLeft = like<T>({m, 0}), noRight = like<T>({0, n});
  CHECK(runParts(disc_fn_svd, {a, noLeft, alone, noRight}, {}, 1, 1, kScratch) == DISC_OK);
  CHECK(distance(at(alone, 0, 1, k), at(s, 0, 1, k)) < tolerance<T>);
}

/// The largest |A v - value v| of the eigenvectors, relative to the largest element of A; infinite if a vector has not
/// the length 1 or a pair does not begin with the positive imaginary part.
template <typename T> double eigError(Tensor<T> a) {
  const int64_t n = a.dims[0];
  auto values = like<T>({n, 2}), vectors = like<T>({n, 2 * n});
  if (runParts(disc_fn_eig, {a, values, vectors}, {}, 1, 1, kScratch) != DISC_OK)
    return kInfinity;
  double worst = 0, size = 1;
  for (T x : a.data)
    size = std::max(size, std::fabs(double(x)));
  for (int64_t k = 0; k < n; ++k) {
    std::complex<double> value(double(values.data[size_t(2 * k)]), double(values.data[size_t(2 * k + 1)]));
    auto element = [&](int64_t i) {
      return std::complex<double>(double(vectors.data[size_t(i * 2 * n + 2 * k)]),
                                  double(vectors.data[size_t(i * 2 * n + 2 * k + 1)]));
    };
    double length = 0;
    for (int64_t i = 0; i < n; ++i) {
      std::complex<double> off = -value * element(i);
      for (int64_t j = 0; j < n; ++j)
        off += double(a.data[size_t(i * n + j)]) * element(j);
      worst = std::max(worst, std::abs(off) / size);
      length += std::norm(element(i));
    }
    bool second = value.imag() < 0;
    if (!(std::fabs(length - 1) < 1e-5) || (second && double(values.data[size_t(2 * k - 1)]) != -value.imag()))
      return kInfinity;
  }
  return worst;
}
} // namespace

TEST(factorsOfMatricesMultiplyToThem) {
  for (int64_t m : {1, 2, 3, 5, 8})
    for (int64_t n : {1, 3, 4, 8}) {
      checkLu<float>(m, n);
      checkLu<double>(m, n);
    }
  for (int64_t n : {1, 2, 5}) {
    checkTriangular<float>(n);
    checkTriangular<double>(n);
    checkCholesky<float>(n);
    checkCholesky<double>(n);
  }
  // Where blocks take over from loops.
  for (int64_t n : {15, 16, 47, 48, 70}) {
    checkLu<double>(n, n);
    checkCholesky<double>(n);
  }
  checkLu<double>(50, 70);
  checkLu<double>(70, 50);
  for (int64_t n : {15, 16, 17})
    checkTriangular<double>(n);
}

TEST(pivotsAreChecked) {
  Doubles lu(DISC_F64, {2, 2}, {1, 0, 0, 1}), b(DISC_F64, {2, 1}, {1, 2}), x(DISC_F64, {2, 1});
  Ints rows(DISC_I64, {2});
  for (int32_t wrong : {0, 3, INT32_MIN, INT32_MAX}) {
    Tensor<int32_t> pivots(DISC_I32, {2}, {1, wrong});
    CHECK(runParts(disc_fn_lu_solve, {lu, pivots, b, x}, {0}, 1, 1, kScratch) == DISC_ERROR_INVALID);
    CHECK(runParts(disc_fn_permutation, {pivots, rows}, {}, 1, 1) == DISC_ERROR_INDEX);
  }
}

// The first zero is reported, and its place counts from 1; not a number is not positive either.
TEST(matricesWithoutFactorsSayWhere) {
  Doubles a(DISC_F64, {3, 3}, {0, 1, 2, 0, 0, 3, 0, 0, 0}), lu(DISC_F64, {3, 3});
  Tensor<int32_t> pivots(DISC_I32, {3}), info(DISC_I32, {1});
  CHECK(runParts(disc_fn_lu_factor, {a, lu, pivots, info}, {0}, 1, 1, kScratch) == DISC_OK && info.data[0] == 1);
  CHECK(runParts(disc_fn_lu_factor, {a, lu, pivots, info}, {1}, 1, 1, kScratch) == DISC_ERROR_INVALID);
  for (double wrong : {0.0, -1.0, kNan}) {
    Doubles b(DISC_F64, {3, 3}, {1, 0, 0, 0, wrong, 0, 0, 0, wrong}), factor(DISC_F64, {3, 3});
    CHECK(runParts(disc_fn_cholesky, {b, factor, info}, {0, 0}, 1, 1, kScratch) == DISC_OK && info.data[0] == 2);
  }
}

TEST(orthogonalFactorsMultiplyToTheMatrix) {
  for (int64_t m : {1, 2, 5, 8})
    for (int64_t n : {1, 3, 8}) {
      checkQr<float>(m, n);
      checkQr<double>(m, n);
    }
  Doubles triangular(DISC_F64, {3, 3}, {1, 2, 3, 0, 4, 5, 0, 0, 6}); // nothing to reflect
  checkQr<double>(3, 3, &triangular);
  checkQr<double>(70, 60);
  for (double factor : {0x1p-800, 0x1p800}) { // whose squares are no numbers
    auto a = randomTensor<double>({4, 3}, 1), reflections = like<double>({4, 3}), tau = like<double>({1, 3}), b = a;
    auto scaled = reflections, same = tau;
    for (double &x : b.data)
      x *= factor;
    CHECK(runParts(disc_fn_geqrf, {a, reflections, tau}, {}, 1, 1, kScratch) == DISC_OK);
    CHECK(runParts(disc_fn_geqrf, {b, scaled, same}, {}, 1, 1, kScratch) == DISC_OK);
    CHECK(distance(at(tau, 0, 1, 3), at(same, 0, 1, 3)) < 1e-13);
    CHECK(std::fabs(scaled.data[0] / factor - reflections.data[0]) < 1e-13);
    CHECK(std::fabs(scaled.data[3] - reflections.data[3]) < 1e-13);
  }
}

TEST(symmetricMatricesHaveOrthogonalEigenvectors) {
  std::mt19937 random(1);
  std::vector<double> numbers(64);
  for (double &x : numbers)
    x = double(random() % 1000) / 500 - 1;
  auto some = [&](int64_t i, int64_t j) { return numbers[size_t(i * 8 + j)]; };
  for (int64_t n : {1, 2, 3, 5, 8}) {
    checkEigh<float>(n, some);
    checkEigh<double>(n, some);
    checkEigh<double>(n, [](int64_t i, int64_t j) { return double(i == j); });                  // equal values
    checkEigh<double>(n, [](int64_t, int64_t) { return 1.0; });                                 // zeros and one n
    checkEigh<double>(n, [](int64_t i, int64_t j) { return i == j ? double(-i) : 0x1p-1010; }); // hardly coupled
  }
  Doubles a(DISC_F64, {2, 2}, {kNan, 0, 0, 1}), values(DISC_F64, {2}), vectors(DISC_F64, {2, 2});
  CHECK(runParts(disc_fn_eigh, {a, values, vectors}, {0}, 1, 1, kScratch) == DISC_OK);
  CHECK(std::isnan(values.data[0]) && std::isnan(values.data[1]));
  Doubles large(DISC_F64, {40, 40});
  for (int64_t i = 0; i < 1600; ++i)
    large.data[size_t(i)] = numbers[size_t(i % 64)];
  checkEigh<double>(40, [&](int64_t i, int64_t j) { return large.data[size_t(i * 40 + j)]; });
}

TEST(singularValuesOfEveryShape) {
  for (int64_t m : {0, 1, 2, 5, 8})
    for (int64_t n : {0, 1, 3, 8})
      for (bool full : {false, true}) {
        checkSvd(randomTensor<float>({m, n}, unsigned(m + n)), full);
        checkSvd(randomTensor<double>({m, n}, unsigned(m + n)), full);
      }
  checkSvd(Doubles(DISC_F64, {2, 3}, {1, 0, 0, 0, 1, 0}), true);               // equal values
  checkSvd(Doubles(DISC_F64, {3, 2}, {1, 0, 0x1p-600, 0x1p-600, 0, 0}), true); // hardly coupled
  checkSvd(Doubles(DISC_F64, {3, 3}, {1, 0, 0, 0, 1e-30, 0, 0, 0, 0}), true);  // a value that is as good as none
  Doubles a(DISC_F64, {2, 2}, {kNan, 0, 0, 1}), u(DISC_F64, {2, 2}), s(DISC_F64, {2}), vt(DISC_F64, {2, 2});
  CHECK(runParts(disc_fn_svd, {a, u, s, vt}, {}, 1, 1, kScratch) == DISC_OK);
  CHECK(std::isnan(s.data[0]) || std::isnan(s.data[1]));
  checkSvd(randomTensor<double>({40, 24}, 1), true);
  checkSvd(randomTensor<double>({24, 40}, 2), false);
}

TEST(eigenvectorsSolveTheirEquation) {
  for (int64_t n = 1; n <= 9; ++n)
    for (unsigned seed = 0; seed < 20; ++seed) {
      CHECK(eigError(randomTensor<double>({n, n}, 100 * unsigned(n) + seed)) < 1e-13 * double(n));
      CHECK(eigError(randomTensor<float>({n, n}, seed)) < 1e-5);
    }
  const std::vector<std::pair<int64_t, Values>> special = {
      {1, {0}},
      {2, {0, 0, 0, 0}},
      {2, {1, 1, 0, 1}},                                       // one eigenvector
      {2, {0, 1, -1, 0}},                                      // a pair
      {2, {0, -1, 1, 0}},                                      // the same, mirrored
      {2, {2, 100, -0.01, 2}},                                 // a pair far from normal
      {2, {2, 0.01, -100, 2}},                                 //
      {2, {1, 2, 3, 2}},                                       // real, by one rotation
      {2, {3, 2, 1, -2}},                                      //
      {3, {0, 0, 1, 1, 0, 0, 0, 1, 0}},                        // a cycle, which shifts by eigenvalues do not move
      {4, {0, 0, 0, 1, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0}},   //
      {4, {0, 1, 0, 0, -1, 0, 0, 0, 0, 0, 0, 1, 0, 0, -1, 0}}, // the same pair twice
      {4, {0, 1, 1, 0, -1, 0, 0, 1, 0, 0, 0, 1, 0, 0, -1, 0}}, // the same with one pair of vectors
      {3, {5, 1, 0, 0, 5, 1, 0, 0, 5}},                        // one eigenvector for three values
      {4, {1, 1, 0, 0, 0, 1, 1, 0, 0, 0, 1, 1, 0, 0, 0, 1}},   // for four: components beyond 1e30
      {3, {1, 0, 0, 0, 0, 1, 0, -1, 0}},                       // a real one before a pair
      {3, {0, 1, 0, -1, 0, 0, 0, 0, 1}},                       // and behind
      {3, {1, 2, 3, 4, 5, 6, 7, 8, 9}},                        // singular
      {4, {1, 0, 0, 0, 0, 2, 0, 0, 0, 0, 3, 0, 0, 0, 0, 4}},   // diagonal: nothing to reduce
      {5, {2, 1, 0, 0, 0, 1, 2, 1, 0, 0, 0, 1, 2, 1, 0, 0, 0, 1, 2, 1, 0, 0, 0, 1, 2}}, // symmetric
  };
  for (const auto &[n, values] : special) {
    CHECK(eigError(Doubles(DISC_F64, {n, n}, values)) < 1e-13);
    // Of any size: what is compared with the matrix must scale with it.
    for (double factor : {1e-20, 1e20}) {
      Values scaled = values;
      for (double &x : scaled)
        x *= factor;
      CHECK(eigError(Doubles(DISC_F64, {n, n}, scaled)) < 1e-13);
    }
  }
  for (double wrong : {kNan, kInfinity}) {
    Doubles a(DISC_F64, {1, 2, 2}, {1, 2, 3, wrong}), values(DISC_F64, {1, 2, 2}), vectors(DISC_F64, {1, 2, 4});
    CHECK(runParts(disc_fn_eig, {a, values, vectors}, {}, 1, 1, kScratch) == DISC_ERROR_INVALID);
  }
}

TEST(exponentialsOfMatrices) {
  auto exponential = [](int64_t n, Values values) {
    Doubles a(DISC_F64, {n, n}, std::move(values)), result(DISC_F64, {n, n});
    CHECK(runParts(disc_fn_matrix_exp, {a, result}, {}, 1, 1, kScratch) == DISC_OK);
    return at(result, 0, n, n);
  };
  auto matrix = [](Values values) {
    Dense a(2, 2);
    a.data = std::move(values);
    return a;
  };
  CHECK(distance(exponential(2, {0, 0, 0, 0}), identity(2)) == 0);
  CHECK(distance(exponential(2, {1, 0, 0, -2}), matrix({std::exp(1), 0, 0, std::exp(-2)})) < 1e-15);
  CHECK(distance(exponential(2, {0, 1, 0, 0}), matrix({1, 1, 0, 1})) < 1e-15);
  // Each approximant: a rotation by a small angle.
  for (double angle : {1e-3, 0.014, 0.2, 0.9, 3.0, 5.3})
    CHECK(distance(exponential(2, {0, -angle, angle, 0}),
                   matrix({std::cos(angle), -std::sin(angle), std::sin(angle), std::cos(angle)})) < 2e-15);
  // A rotation by 100, which is squared again and again.
  CHECK(distance(exponential(2, {0, -100, 100, 0}),
                 matrix({std::cos(100), -std::sin(100), std::sin(100), std::cos(100)})) < 1e-12);
  // The inverse of e^A is e^-A; the larger column is not the first.
  Dense forth = exponential(3, {0, 1, 9, -1, 2, 0, 0.5, 0, 1}),
        back = exponential(3, {0, -1, -9, 1, -2, 0, -0.5, 0, -1});
  CHECK(distance(forth * back, identity(3)) < 1e-10);
  for (double wrong : {kNan, kInfinity}) {
    Dense none = exponential(2, {wrong, 0, 0, 0});
    CHECK(none(0, 0) != none(0, 0));
  }
}
