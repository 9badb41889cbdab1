//===- Matrices.cpp - batches of matrices ----------------------------------===//

#include "lib/Runtime/Functions/Dense.h"

#include <Eigen/Cholesky>
#include <Eigen/LU>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iterator>

using namespace disc::rt;

// Loops are faster than Eigen's blocks below these sizes.
static constexpr int64_t kBlockedFactors = 48;
static constexpr int64_t kBlockedTriangles = 16;

template <typename T> static void copyFrom(const disc_view &view, int64_t batch, Matrix to) {
  int64_t rank = view.rank;
  StridedWalk walk(rank > 2 ? rank - 2 : 0, view.dims, view.strides, batch);
  const T *from = static_cast<const T *>(view.data) + walk.offset;
  for (int64_t i = 0; i < to.rows; ++i)
    for (int64_t j = 0; j < to.cols; ++j)
      to(i, j) = double(from[i * view.strides[rank - 2] + j * view.strides[rank - 1]]);
}

void disc::rt::loadMatrix(const disc_view &view, int64_t batch, Matrix to) {
  return view.dtype == DISC_F64 ? copyFrom<double>(view, batch, to) : copyFrom<float>(view, batch, to);
}

template <typename T> static void copyTo(void *data, int64_t batch, Matrix from) {
  int64_t count = from.rows * from.cols;
  T *to = static_cast<T *>(data) + batch * count;
  for (int64_t i = 0; i < count; ++i)
    to[i] = T(from.data[i]);
}

void disc::rt::storeMatrix(const disc_view &view, int64_t batch, Matrix from) {
  return view.dtype == DISC_F64 ? copyTo<double>(view.data, batch, from) : copyTo<float>(view.data, batch, from);
}

int32_t disc::rt::matrixFailed(disc_call *call, const disc_view &view, int64_t batch, const char *format,
                               int64_t number) {
  char text[256];
  int used = 0;
  if (view.rank > 2)
    used = std::snprintf(text, sizeof(text), "(Batch element %lld): ", static_cast<long long>(batch));
  std::snprintf(text + used, sizeof(text) - size_t(used), format, static_cast<long long>(number));
  return disc_rt_function_failed(call, DISC_ERROR_INVALID, text);
}

int64_t disc::rt::decompose(Matrix a, int64_t *pivots) {
  int64_t zero = 0, count = a.rows < a.cols ? a.rows : a.cols;
  if (count >= kBlockedFactors && a.rows >= a.cols) { // Eigen leaves columns beyond the diagonal as they are
    int64_t exchanges;
    return Eigen::internal::partial_lu_impl<double, Eigen::RowMajor, int64_t>::blocked_lu(a.rows, a.cols, a.data,
                                                                                          a.cols, pivots, exchanges) +
           1;
  }
  for (int64_t k = 0; k < count; ++k) {
    int64_t best = k;
    for (int64_t i = k + 1; i < a.rows; ++i)
      if (std::fabs(a(i, k)) > std::fabs(a(best, k)))
        best = i;
    pivots[k] = best;
    swapRows(a, k, best);
    if (a(k, k) == 0) {
      zero = zero ? zero : k + 1;
      continue;
    }
    for (int64_t i = k + 1; i < a.rows; ++i) {
      a(i, k) /= a(k, k);
      if (a(i, k) != 0)
        subtractRow(a, i, a, k, a(i, k), k + 1);
    }
  }
  return zero;
}

/// b = inverse of the triangle of `a` times b, for a vector or a matrix.
template <typename Right> static void solveInPlace(Matrix a, Right b, bool upper, bool unit) {
  auto matrix = inRows(a);
  if (upper && unit)
    matrix.triangularView<Eigen::UnitUpper>().solveInPlace(b);
  else if (upper)
    matrix.triangularView<Eigen::Upper>().solveInPlace(b);
  else if (unit)
    matrix.triangularView<Eigen::UnitLower>().solveInPlace(b);
  else
    matrix.triangularView<Eigen::Lower>().solveInPlace(b);
}

void disc::rt::solveTriangle(Matrix a, Matrix b, bool upper, bool unit) {
  if (b.rows >= kBlockedTriangles)
    return b.cols == 1 ? solveInPlace(a, Eigen::Map<Eigen::VectorXd>(b.data, b.rows), upper, unit)
                       : solveInPlace(a, inRows(b), upper, unit);
  for (int64_t step = 0; step < b.rows; ++step) {
    int64_t i = upper ? b.rows - 1 - step : step;
    for (int64_t k = upper ? i + 1 : 0; k < (upper ? b.rows : i); ++k)
      subtractRow(b, i, b, k, a(i, k));
    for (int64_t j = 0; j < b.cols && !unit; ++j)
      b(i, j) /= a(i, i);
  }
}

/// The lower triangle of `a` becomes its factor. Returns the order of the first leading minor that is not positive, or
/// 0.
static int64_t factorize(Matrix a) {
  int64_t n = a.rows, minor = 0;
  if (n >= kBlockedFactors) {
    auto matrix = inRows(a);
    minor = Eigen::internal::llt_inplace<double, Eigen::Lower>::blocked(matrix) + 1;
    for (int64_t i = 0; i < n && !minor; ++i) // NaN passes
      minor = a(i, i) > 0 ? 0 : i + 1;
    return minor;
  }
  for (int64_t j = 0; j < n; ++j)
    for (int64_t i = j; i < n; ++i) {
      double sum = a(i, j);
      for (int64_t k = 0; k < j; ++k)
        sum -= a(i, k) * a(j, k);
      if (i == j && !(sum > 0) && !minor)
        minor = j + 1;
      a(i, j) = i == j ? std::sqrt(sum) : sum / a(j, j);
    }
  return minor;
}

/// a [.., n, n] -> factor [.., n, n], info i32 [..]: of a symmetric matrix, of which one triangle is read. config:
/// upper, and whether to fail. info is the order of the first leading minor that is not positive, or 0. scratch: 8 * n
/// * n.
int32_t disc_fn_cholesky(disc_call *call, const disc_view *operands, const int64_t *config, int64_t begin, int64_t end,
                         void *scratch) {
  int64_t n = rowsOf(operands[0]);
  bool upper = config[0];
  Matrix a = {static_cast<double *>(scratch), n, n};
  return decomposing(call, [&]() -> int32_t {
    for (int64_t batch = begin; batch < end; ++batch) {
      loadMatrix(operands[0], batch, a);
      for (int64_t i = 0; i < n && upper; ++i)
        for (int64_t j = 0; j < i; ++j)
          a(i, j) = a(j, i);
      int64_t info = factorize(a);
      if (info && config[1])
        return matrixFailed(call, operands[0], batch,
                            "The factorization could not be completed because the input is not positive-definite (the "
                            "leading minor of order %lld is not positive-definite).",
                            info);
      for (int64_t i = 0; i < n; ++i)
        for (int64_t j = i + 1; j < n; ++j) {
          a(i, j) = upper ? a(j, i) : 0;
          a(j, i) = upper ? 0 : a(j, i);
        }
      storeMatrix(operands[1], batch, a);
      static_cast<int32_t *>(operands[2].data)[batch] = int32_t(info);
    }
    return DISC_OK;
  });
}

/// a [.., m, n] -> LU [.., m, n], pivots i32 [.., min(m, n)] counted from 1, info i32 [..]. config: what to say when a
/// diagonal element of U is zero: 0 nothing, 1 that of solve, 2 of inv, 3 of lu_factor. scratch: 8 * (m * n + m + n).
int32_t disc_fn_lu_factor(disc_call *call, const disc_view *operands, const int64_t *config, int64_t begin, int64_t end,
                          void *scratch) {
  static const char *const texts[] = {
      "", "The solver failed because the input matrix is singular.",
      "The diagonal element %lld is zero, the inversion could not be completed because the input matrix is singular.",
      "The diagonal element %lld of U is zero, and using it on lu_solve would result in a division by zero."};
  Matrix a = {static_cast<double *>(scratch), rowsOf(operands[0]), colsOf(operands[0])};
  auto *pivots = reinterpret_cast<int64_t *>(a.end());
  int64_t count = a.rows < a.cols ? a.rows : a.cols;
  return decomposing(call, [&]() -> int32_t {
    for (int64_t batch = begin; batch < end; ++batch) {
      loadMatrix(operands[0], batch, a);
      int64_t info = decompose(a, pivots);
      if (info && config[0])
        return matrixFailed(call, operands[0], batch, texts[config[0]], info);
      storeMatrix(operands[1], batch, a);
      for (int64_t i = 0; i < count; ++i)
        static_cast<int32_t *>(operands[2].data)[batch * count + i] = int32_t(pivots[i] + 1);
      static_cast<int32_t *>(operands[3].data)[batch] = int32_t(info);
    }
    return DISC_OK;
  });
}

/// LU [.., n, n], pivots i32 [.., n], b [.., n, k] -> x [.., n, k] with A x = b, or (config: transposed) A^T x = b.
/// scratch: 8 * (n * n + n * k).
int32_t disc_fn_lu_solve(disc_call *call, const disc_view *operands, const int64_t *config, int64_t begin, int64_t end,
                         void *scratch) {
  int64_t n = rowsOf(operands[0]);
  Matrix a = {static_cast<double *>(scratch), n, n}, b = {a.end(), n, colsOf(operands[2])};
  const disc_view &pivots = operands[1];
  return decomposing(call, [&]() -> int32_t {
    for (int64_t batch = begin; batch < end; ++batch) {
      loadMatrix(operands[0], batch, a);
      loadMatrix(operands[2], batch, b);
      StridedWalk walk(pivots.rank - 1, pivots.dims, pivots.strides, batch);
      auto pivot = [&](int64_t i) {
        return int64_t(static_cast<const int32_t *>(pivots.data)[walk.offset + i * pivots.strides[pivots.rank - 1]]) -
               1;
      };
      for (int64_t i = 0; i < n; ++i)
        if (pivot(i) < 0 || pivot(i) >= n)
          return matrixFailed(call, operands[0], batch, "pivots are out of range");
      if (config[0]) {
        for (int64_t i = 0; i < n; ++i)
          for (int64_t j = 0; j < i; ++j)
            std::swap(a(i, j), a(j, i));
        // U^T is lower, L^T upper with ones.
        solveTriangle(a, b, /*upper=*/false, /*unit=*/false);
        solveTriangle(a, b, /*upper=*/true, /*unit=*/true);
        for (int64_t i = n; i-- > 0;)
          swapRows(b, i, pivot(i));
      } else {
        for (int64_t i = 0; i < n; ++i)
          swapRows(b, i, pivot(i));
        solveTriangle(a, b, /*upper=*/false, /*unit=*/true);
        solveTriangle(a, b, /*upper=*/true, /*unit=*/false);
      }
      storeMatrix(operands[3], batch, b);
    }
    return DISC_OK;
  });
}

/// a [.., n, n], b [.., n, k] -> x [.., n, k] with A x = b, of which one triangle counts. config: upper, ones on the
/// diagonal. scratch: 8 * (n * n + n * k).
int32_t disc_fn_solve_triangular(disc_call *call, const disc_view *operands, const int64_t *config, int64_t begin,
                                 int64_t end, void *scratch) {
  int64_t n = rowsOf(operands[0]);
  Matrix a = {static_cast<double *>(scratch), n, n}, b = {a.end(), n, colsOf(operands[1])};
  return decomposing(call, [&]() -> int32_t {
    for (int64_t batch = begin; batch < end; ++batch) {
      loadMatrix(operands[0], batch, a);
      loadMatrix(operands[1], batch, b);
      solveTriangle(a, b, config[0], config[1]);
      storeMatrix(operands[2], batch, b);
    }
    return DISC_OK;
  });
}

namespace {
/// A Padé approximant of e^x: sums of the even and the odd powers, by the coefficients and by these with other signs.
struct Approximant {
  int degree;
  /// The largest norm at which its error is below half a unit of the last place.
  double limit;
  double coefficients[14];
};
} // namespace

static const Approximant kForF32[] = {
    {3, 0.4258730016922831, {120, 60, 12, 1}},
    {5, 1.880152677804762, {30240, 15120, 3360, 420, 30, 1}},
    {7, 3.925724783138660, {17297280, 8648640, 1995840, 277200, 25200, 1512, 56, 1}},
};
static const Approximant kForF64[] = {
    {3, 0.01495585217958292, {120, 60, 12, 1}},
    {5, 0.2539398330063230, {30240, 15120, 3360, 420, 30, 1}},
    {7, 0.9504178996162932, {17297280, 8648640, 1995840, 277200, 25200, 1512, 56, 1}},
    {13,
     5.371920351148152,
     {64764752532480000, 32382376266240000, 7771770303897600, 1187353796428800, 129060195264000, 10559470521600,
      670442572800, 33522128640, 1323241920, 40840800, 960960, 16380, 182, 1}},
};

/// The first one that is exact enough at this norm, or the last one.
static const Approximant &approximantFor(const disc_view &view, double norm) {
  const Approximant *all = view.dtype == DISC_F64 ? kForF64 : kForF32;
  size_t count = view.dtype == DISC_F64 ? std::size(kForF64) : std::size(kForF32), i = 0;
  while (i + 1 < count && !(norm <= all[i].limit))
    ++i;
  return all[i];
}

/// e^A by scaling, a Padé approximant, and squaring (Higham, The scaling and squaring method for the matrix exponential
/// revisited, 2005). a [.., n, n] -> [.., n, n]; scratch: 8 * (6 * n * n + n).
int32_t disc_fn_matrix_exp(disc_call *call, const disc_view *operands, const int64_t *, int64_t begin, int64_t end,
                           void *scratch) {
  int64_t n = rowsOf(operands[0]), count = n * n;
  auto *memory = static_cast<double *>(scratch);
  Matrix a = {memory, n, n}, spare = {a.end(), n, n}, sum = {spare.end(), n, n}, square = {sum.end(), n, n},
         fourth = {square.end(), n, n}, sixth = {fourth.end(), n, n};
  auto *pivots = reinterpret_cast<int64_t *>(sixth.end());
  auto multiply = [](Matrix x, Matrix y, Matrix into) { inRows(into).noalias() = inRows(x) * inRows(y); };
  return decomposing(call, [&]() -> int32_t {
    for (int64_t batch = begin; batch < end; ++batch) {
      loadMatrix(operands[0], batch, a);
      double norm = 0;
      for (int64_t j = 0; j < n; ++j) {
        double total = 0;
        for (int64_t i = 0; i < n; ++i)
          total += std::fabs(a(i, j));
        norm = total > norm || total != total ? total : norm;
      }
      const Approximant &form = approximantFor(operands[0], norm);
      int squarings = 0;
      if (norm > form.limit && norm <= 1e300)
        squarings = int(std::ceil(std::log2(norm / form.limit)));
      double scale = std::ldexp(1.0, -squarings);
      for (int64_t i = 0; i < count; ++i)
        a.data[i] *= scale;
      multiply(a, a, square);
      if (form.degree > 3)
        multiply(square, square, fourth);
      if (form.degree > 5)
        multiply(fourth, square, sixth);
      // into = c[first] + c[first + 2] A^2 + ...; what lies beyond A^6 by a second sum of that form.
      auto add = [&](int first, Matrix into) {
        const double *c = form.coefficients + first;
        int terms = std::min((form.degree - first) / 2, 3);
        for (int64_t i = 0; i < count; ++i) {
          double value = c[2] * square.data[i];
          if (terms > 1)
            value += c[4] * fourth.data[i];
          if (terms > 2)
            value += c[6] * sixth.data[i];
          into.data[i] = value;
        }
      };
      auto polynomial = [&](int first, Matrix into, Matrix high) {
        add(first, into);
        for (int64_t i = 0; i < n; ++i)
          into(i, i) += form.coefficients[first];
        if (form.degree < 13)
          return;
        add(first + 6, high);
        inRows(into).noalias() += inRows(sixth) * inRows(high);
      };
      polynomial(1, sum, spare);
      multiply(a, sum, spare); // the odd powers
      polynomial(0, a, sum);   // the even ones
      Matrix divisor = square, result = fourth, other = sixth;
      for (int64_t i = 0; i < count; ++i) {
        divisor.data[i] = a.data[i] - spare.data[i];
        result.data[i] = a.data[i] + spare.data[i];
      }
      decompose(divisor, pivots);
      for (int64_t i = 0; i < n; ++i)
        swapRows(result, i, pivots[i]);
      solveTriangle(divisor, result, /*upper=*/false, /*unit=*/true);
      solveTriangle(divisor, result, /*upper=*/true, /*unit=*/false);
      for (int i = 0; i < squarings; ++i) {
        multiply(result, result, other);
        std::swap(result, other);
      }
      storeMatrix(operands[1], batch, result);
    }
    return DISC_OK;
  });
}

/// pivots i32 [.., k] -> i64 [.., m]: which row of the matrix each row of its decomposition was, before.
int32_t disc_fn_permutation(disc_call *call, const disc_view *operands, const int64_t *, int64_t begin, int64_t end,
                            void *) {
  const disc_view &pivots = operands[0];
  int64_t last = pivots.rank - 1, count = pivots.dims[last], m = operands[1].dims[last];
  for (int64_t batch = begin; batch < end; ++batch) {
    StridedWalk walk(last, pivots.dims, pivots.strides, batch);
    int64_t *rows = static_cast<int64_t *>(operands[1].data) + batch * m;
    for (int64_t i = 0; i < m; ++i)
      rows[i] = i;
    for (int64_t i = 0; i < count; ++i) {
      int64_t pivot = int64_t(static_cast<const int32_t *>(pivots.data)[walk.offset + i * pivots.strides[last]]) - 1;
      if (pivot < 0 || pivot >= m)
        return disc_rt_function_failed(call, DISC_ERROR_INDEX, "pivots are out of range");
      std::swap(rows[i], rows[pivot]);
    }
  }
  return DISC_OK;
}
