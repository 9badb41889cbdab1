//===- Orthogonal.cpp - QR, eigenvalues and singular values ----------------===//
//
// QR by Householder's reflections with LAPACK's signs (Golub, Van Loan, Matrix Computations, 5.2). Symmetric
// eigenvalues by Jacobi's rotations (8.5), singular values by one-sided ones (Hestenes, 8.6): both reach full
// precision, also for small values, and are quick enough for small matrices.
//
//===----------------------------------------------------------------------===//

#include "lib/Runtime/Functions/Matrices.h"

#include <algorithm>
#include <cmath>

using namespace disc::rt;

namespace {
constexpr int kMaxSweeps = 60;
constexpr double kEpsilon = 2.220446049250313e-16;

/// Householder's reflections below the diagonal, R on and above it.
void reflect(Matrix a, double *tau) {
  int64_t count = std::min(a.rows, a.cols);
  for (int64_t k = 0; k < count; ++k) {
    double rest = 0;
    for (int64_t i = k + 1; i < a.rows; ++i)
      rest = std::hypot(rest, a(i, k));
    tau[k] = 0;
    if (rest == 0)
      continue;
    double alpha = a(k, k), beta = -std::copysign(std::hypot(alpha, rest), alpha);
    tau[k] = (beta - alpha) / beta;
    for (int64_t i = k + 1; i < a.rows; ++i)
      a(i, k) /= alpha - beta;
    a(k, k) = beta;
    for (int64_t j = k + 1; j < a.cols; ++j) {
      double sum = a(k, j);
      for (int64_t i = k + 1; i < a.rows; ++i)
        sum += a(i, k) * a(i, j);
      sum *= tau[k];
      a(k, j) -= sum;
      for (int64_t i = k + 1; i < a.rows; ++i)
        a(i, j) -= sum * a(i, k);
    }
  }
}

/// The first columns of the product of `count` reflections.
void formProduct(Matrix reflections, const double *tau, int64_t count, Matrix q) {
  setIdentity(q);
  for (int64_t k = count; k-- > 0;)
    for (int64_t j = 0; j < q.cols; ++j) {
      double sum = q(k, j);
      for (int64_t i = k + 1; i < q.rows; ++i)
        sum += reflections(i, k) * q(i, j);
      sum *= tau[k];
      q(k, j) -= sum;
      for (int64_t i = k + 1; i < q.rows; ++i)
        q(i, j) -= sum * reflections(i, k);
    }
}

struct Rotation {
  double c, s;
};

/// That makes the off-diagonal element of [[p, q], [q, r]] zero.
Rotation rotationFor(double p, double q, double r) {
  double theta = (r - p) / (2 * q);
  double t = std::copysign(1.0, theta) / (std::fabs(theta) + std::hypot(theta, 1.0));
  double c = 1 / std::hypot(t, 1.0);
  return {c, t * c};
}

void rotateRows(double *x, double *y, int64_t count, Rotation rotation) {
  for (int64_t i = 0; i < count; ++i) {
    double first = x[i], second = y[i];
    x[i] = rotation.c * first - rotation.s * second;
    y[i] = rotation.s * first + rotation.c * second;
  }
}

/// A symmetric matrix becomes diagonal; the rows of v are its eigenvectors.
void diagonalize(Matrix a, Matrix v) {
  int64_t n = a.rows;
  setIdentity(v);
  for (int sweep = 0; sweep < kMaxSweeps; ++sweep) {
    bool rotated = false;
    for (int64_t p = 0; p < n; ++p)
      for (int64_t q = p + 1; q < n; ++q) {
        double off = a(p, q);
        if (!(std::fabs(off) > 0x1p-1000) ||
            std::fabs(off) <= kEpsilon * 0.25 * std::sqrt(std::fabs(a(p, p))) * std::sqrt(std::fabs(a(q, q))))
          continue;
        rotated = true;
        Rotation rotation = rotationFor(a(p, p), off, a(q, q));
        rotateRows(a.row(p), a.row(q), n, rotation);
        for (int64_t i = 0; i < n; ++i)
          rotateRows(&a(i, p), &a(i, q), 1, rotation);
        a(p, q) = a(q, p) = 0;
        rotateRows(v.row(p), v.row(q), n, rotation);
      }
    if (!rotated)
      return;
  }
}

double dot(const double *x, const double *y, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i)
    sum += x[i] * y[i];
  return sum;
}

/// The rows of u become orthogonal; v takes the same rotations.
void orthogonalize(Matrix u, Matrix v) {
  for (int sweep = 0; sweep < kMaxSweeps; ++sweep) {
    bool rotated = false;
    for (int64_t p = 0; p < u.rows; ++p)
      for (int64_t q = p + 1; q < u.rows; ++q) {
        double pp = dot(u.row(p), u.row(p), u.cols), qq = dot(u.row(q), u.row(q), u.cols);
        double pq = dot(u.row(p), u.row(q), u.cols);
        if (!(std::fabs(pq) > kEpsilon * std::sqrt(pp) * std::sqrt(qq)) || !(std::fabs(pq) > 0x1p-1000))
          continue;
        rotated = true;
        Rotation rotation = rotationFor(pp, pq, qq);
        rotateRows(u.row(p), u.row(q), u.cols, rotation);
        rotateRows(v.row(p), v.row(q), v.cols, rotation);
      }
    if (!rotated)
      return;
  }
}

/// Makes the rows from `first` on unit vectors orthogonal to all before.
void complete(Matrix u, int64_t first) {
  int64_t candidate = 0;
  for (int64_t k = first; k < u.rows; ++k) {
    double norm = 0;
    // Some unit vector is not nearly in the span of fewer than u.cols vectors: the threshold is below its distance.
    double threshold = 0.5 / std::sqrt(double(u.cols));
    while (norm < threshold) {
      double *row = u.row(k);
      std::fill(row, row + u.cols, 0.0);
      row[candidate++ % u.cols] = 1;
      for (int twice = 0; twice < 2; ++twice)
        for (int64_t i = 0; i < k; ++i)
          subtractRow(u, k, u, i, dot(row, u.row(i), u.cols));
      norm = std::sqrt(dot(row, row, u.cols));
      if (candidate > 4 * u.cols * (u.rows + 1)) // there are numbers that are none
        break;
    }
    for (int64_t j = 0; j < u.cols; ++j)
      u(k, j) /= norm;
  }
}
} // namespace

/// a [.., m, n] -> a [.., m, n], tau [.., min(m, n)]: R on and above the diagonal, below it the reflections whose
/// product is Q. scratch: 8 * (m * n + m + n).
int32_t disc_fn_geqrf(disc_call *, const disc_view *operands, const int64_t *, int64_t begin, int64_t end,
                      void *scratch) {
  Matrix a = {static_cast<double *>(scratch), rowsOf(operands[0]), colsOf(operands[0])};
  Matrix tau = {a.end(), 1, std::min(a.rows, a.cols)};
  for (int64_t batch = begin; batch < end; ++batch) {
    loadMatrix(operands[0], batch, a);
    reflect(a, tau.data);
    storeMatrix(operands[1], batch, a);
    storeMatrix(operands[2], batch, tau);
  }
  return DISC_OK;
}

/// reflections [.., m, n], tau [.., 1, k] -> the first columns of their product Q, as many as the result has.
/// scratch: 8 * (m * n + m * columns + k).
int32_t disc_fn_householder_product(disc_call *, const disc_view *operands, const int64_t *, int64_t begin, int64_t end,
                                    void *scratch) {
  Matrix a = {static_cast<double *>(scratch), rowsOf(operands[0]), colsOf(operands[0])};
  Matrix q = {a.end(), a.rows, colsOf(operands[2])}, tau = {q.end(), 1, colsOf(operands[1])};
  for (int64_t batch = begin; batch < end; ++batch) {
    loadMatrix(operands[0], batch, a);
    loadMatrix(operands[1], batch, tau);
    formProduct(a, tau.data, std::min({tau.cols, a.rows, a.cols}), q);
    storeMatrix(operands[2], batch, q);
  }
  return DISC_OK;
}

/// a [.., n, n] symmetric, of which one triangle is read -> values [.., n] ascending, vectors [.., n, n] as columns.
/// config: upper. scratch: 8 * (3 * n * n + 2 * n).
int32_t disc_fn_eigh(disc_call *, const disc_view *operands, const int64_t *config, int64_t begin, int64_t end,
                     void *scratch) {
  int64_t n = rowsOf(operands[0]);
  Matrix a = {static_cast<double *>(scratch), n, n}, v = {a.end(), n, n}, sorted = {v.end(), n, n};
  Matrix values = {sorted.end(), 1, n};
  auto *order = reinterpret_cast<int64_t *>(values.end());
  for (int64_t batch = begin; batch < end; ++batch) {
    loadMatrix(operands[0], batch, a);
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j < i; ++j)
        (config[0] ? a(i, j) : a(j, i)) = config[0] ? a(j, i) : a(i, j);
    diagonalize(a, v);
    for (int64_t i = 0; i < n; ++i)
      order[i] = i;
    std::sort(order, order + n, [&](int64_t i, int64_t j) {
      double x = a(i, i), y = a(j, j);
      return x < y || (!(y < x) && x == x && y == y && i < j) || (x == x && y != y);
    });
    for (int64_t j = 0; j < n; ++j) {
      values(0, j) = a(order[j], order[j]);
      for (int64_t i = 0; i < n; ++i)
        sorted(i, j) = v(order[j], i);
    }
    storeMatrix(operands[1], batch, values);
    storeMatrix(operands[2], batch, sorted);
  }
  return DISC_OK;
}

/// a [.., m, n] -> U [.., m, m or k], values [.., k] descending, V^T [.., k or n, n], k = min(m, n): how many columns
/// and rows the results have decides. scratch: 8 * (2 * max(m, n)^2 + 2 * (m * n + m * m + n * n) + 2 * k).
int32_t disc_fn_svd(disc_call *, const disc_view *operands, const int64_t *, int64_t begin, int64_t end,
                    void *scratch) {
  int64_t m = rowsOf(operands[0]), n = colsOf(operands[0]);
  bool wide = m < n;
  int64_t count = wide ? m : n, length = wide ? n : m;
  // The shorter vectors' side: rows of `left` are orthogonalized columns of a (rows, if a is wide), those of `right`
  // the rotations.
  Matrix a = {static_cast<double *>(scratch), m, n};
  Matrix left = {a.end(), length, length}, right = {left.end(), count, count};
  Matrix u = {right.end(), m, colsOf(operands[1])}, vt = {u.end(), rowsOf(operands[3]), n};
  Matrix values = {vt.end(), 1, count};
  auto *order = reinterpret_cast<int64_t *>(values.end());
  auto *sortedRows = left.data;
  for (int64_t batch = begin; batch < end; ++batch) {
    loadMatrix(operands[0], batch, a);
    Matrix work = {left.data, count, length};
    for (int64_t i = 0; i < count; ++i)
      for (int64_t j = 0; j < length; ++j)
        work(i, j) = wide ? a(i, j) : a(j, i);
    setIdentity(right);
    orthogonalize(work, right);
    for (int64_t i = 0; i < count; ++i) {
      values(0, i) = std::sqrt(dot(work.row(i), work.row(i), length));
      order[i] = i;
    }
    std::sort(order, order + count, [&](int64_t i, int64_t j) {
      double x = values(0, i), y = values(0, j);
      return x > y || (!(y > x) && x == x && y == y && i < j) || (x == x && y != y);
    });
    // Into order, through `a`, which is as large.
    std::copy(work.data, work.data + count * length, a.data);
    double largest = count ? values(0, order[0]) : 0;
    int64_t rank = 0;
    for (int64_t i = 0; i < count; ++i) {
      double value = values(0, order[i]);
      if (value > largest * kEpsilon * 1e-3 && value > 0) {
        ++rank;
        for (int64_t j = 0; j < length; ++j)
          sortedRows[i * length + j] = a.data[order[i] * length + j] / value;
      }
    }
    Matrix longer = {left.data, wide ? vt.rows : u.cols, length};
    complete(longer, rank);
    for (int64_t k = 0; k < longer.rows; ++k)
      for (int64_t j = 0; j < length; ++j)
        (wide ? vt(k, j) : u(j, k)) = longer(k, j);
    for (int64_t k = 0; k < count; ++k)
      for (int64_t j = 0; j < count; ++j)
        (wide ? u(j, k) : vt(k, j)) = right(order[k], j);
    std::copy(values.data, values.data + count, a.data);
    for (int64_t i = 0; i < count; ++i)
      values(0, i) = a.data[order[i]];
    storeMatrix(operands[1], batch, u);
    storeMatrix(operands[2], batch, values);
    storeMatrix(operands[3], batch, vt);
  }
  return DISC_OK;
}
