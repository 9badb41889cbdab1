//===- Orthogonal.cpp - QR, eigenvalues and singular values ----------------===//
//
// QR by Householder's reflections with LAPACK's signs and symmetric eigenvalues by tridiagonal matrices are Eigen's.
// Singular values are by one-sided rotations (Hestenes; Golub, Van Loan, Matrix Computations, 8.6) of rows that the
// eigenvectors of their products have made nearly orthogonal, so that few rotations are left: after a failed
// allocation, Eigen 3.4's SVD classes free memory twice (docs/rationale/numerics.md).
//
//===----------------------------------------------------------------------===//

#include "lib/Runtime/Functions/Dense.h"

#include <Eigen/Eigenvalues>
#include <Eigen/QR>
#include <algorithm>
#include <cmath>
#include <limits>

using namespace disc::rt;

namespace {
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr int kMaxSweeps = 60;
/// Rotations alone are faster for so few rows that are so short.
constexpr int64_t kFewRows = 5, kShortRows = 64;
constexpr double kFarShorter = 0x1p-16;
constexpr double kEpsilon = std::numeric_limits<double>::epsilon();

/// The power of two by which `a` is divided so that the squares of its elements neither overflow nor vanish.
double scaleOf(Matrix a) {
  double largest = a.rows * a.cols ? inRows(a).cwiseAbs().maxCoeff() : 0;
  if (!(largest > 0) || std::isinf(largest) || (largest > 1e-100 && largest < 1e100))
    return 1;
  return std::ldexp(1.0, std::ilogb(largest));
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

double dot(const double *x, const double *y, int64_t count) {
  using Vector = Eigen::Map<const Eigen::VectorXd>;
  return Vector(x, count).dot(Vector(y, count)); // several sums at once
}

/// The length up to which a row is nothing but rounding errors, where the longest row has the length 1.
double noiseOf(Matrix u) { return kEpsilon * double(std::max(u.rows, u.cols)); }

/// The rows of u become orthogonal, but for cosines of up to `tolerance`, and but for those that are rounding errors; v
/// takes the same rotations. `squares` has room for a number of each row.
void orthogonalize(Matrix u, Matrix v, double *squares, double tolerance) {
  for (int sweep = 0; sweep < kMaxSweeps; ++sweep) {
    bool rotated = false;
    double least = 0;
    for (int64_t p = 0; p < u.rows; ++p) {
      squares[p] = dot(u.row(p), u.row(p), u.cols);
      least = std::max(least, squares[p] * noiseOf(u) * noiseOf(u));
    }
    for (int64_t p = 0; p < u.rows; ++p)
      for (int64_t q = p + 1; q < u.rows; ++q) {
        if (squares[p] <= least || squares[q] <= least)
          continue;
        double pq = dot(u.row(p), u.row(q), u.cols);
        if (!(std::fabs(pq) > tolerance * std::sqrt(squares[p]) * std::sqrt(squares[q])) ||
            !(std::fabs(pq) > 0x1p-1000))
          continue;
        rotated = true;
        Rotation rotation = rotationFor(squares[p], pq, squares[q]);
        rotateRows(u.row(p), u.row(q), u.cols, rotation);
        rotateRows(v.row(p), v.row(q), v.cols, rotation);
        squares[p] = dot(u.row(p), u.row(p), u.cols);
        squares[q] = dot(u.row(q), u.row(q), u.cols);
      }
    if (!rotated)
      return;
  }
}

/// Makes the rows from `first` on unit vectors orthogonal to all before, which are unit vectors orthogonal to each
/// other.
void complete(Matrix u, int64_t first) {
  int64_t count = u.rows - first;
  if (count <= 0) // no vectors are asked for
    return;
  ColumnMajor rest = ColumnMajor::Zero(u.cols, count);
  rest.diagonal(-first).setOnes();
  if (first) {
    Eigen::HouseholderQR<ColumnMajor> solver(inRows({u.data, first, u.cols}).transpose());
    Eigen::RowVectorXd workspace;
    solver.householderQ().applyThisOnTheLeft(rest, workspace);
  }
  inRows({u.row(first), count, u.cols}) = rest.transpose();
}
} // namespace

/// a [.., m, n] -> a [.., m, n], tau [.., min(m, n)]: R on and above the diagonal, below it the reflections whose
/// product is Q. scratch: 8 * (m * n + m + n).
int32_t disc_fn_geqrf(disc_call *call, const disc_view *operands, const int64_t *, int64_t begin, int64_t end,
                      void *scratch) {
  Matrix a = {static_cast<double *>(scratch), rowsOf(operands[0]), colsOf(operands[0])};
  Matrix tau = {a.end(), 1, std::min(a.rows, a.cols)};
  return decomposing(call, [&] {
    Eigen::HouseholderQR<ColumnMajor> solver(a.rows, a.cols);
    for (int64_t batch = begin; batch < end && tau.cols; ++batch) {
      loadMatrix(operands[0], batch, a);
      double scale = scaleOf(a);
      solver.compute(inRows(a) / scale);
      inRows(a) = solver.matrixQR();
      inRows(tau) = solver.hCoeffs().transpose();
      if (scale != 1)
        inRows(a).triangularView<Eigen::Upper>() *= scale;
      storeMatrix(operands[1], batch, a);
      storeMatrix(operands[2], batch, tau);
    }
    return DISC_OK;
  });
}

/// reflections [.., m, n], tau [.., 1, k] -> the first columns of their product Q, as many as the result has.
/// scratch: 8 * (m * n + m * columns + k).
int32_t disc_fn_householder_product(disc_call *call, const disc_view *operands, const int64_t *, int64_t begin,
                                    int64_t end, void *scratch) {
  Matrix a = {static_cast<double *>(scratch), rowsOf(operands[0]), colsOf(operands[0])};
  Matrix q = {a.end(), a.rows, colsOf(operands[2])}, tau = {q.end(), 1, colsOf(operands[1])};
  return decomposing(call, [&] {
    ColumnMajor reflections(a.rows, a.cols), product(q.rows, q.cols);
    Eigen::VectorXd factors(tau.cols), workspace;
    for (int64_t batch = begin; batch < end; ++batch) {
      loadMatrix(operands[0], batch, a);
      loadMatrix(operands[1], batch, tau);
      reflections = inRows(a);
      factors = inRows(tau).transpose();
      product.setIdentity();
      Eigen::HouseholderSequence<ColumnMajor, Eigen::VectorXd> sequence(reflections, factors);
      sequence.setLength(std::min({tau.cols, a.rows, a.cols}));
      sequence.applyThisOnTheLeft(product, workspace);
      inRows(q) = product;
      storeMatrix(operands[2], batch, q);
    }
    return DISC_OK;
  });
}

/// a [.., n, n] symmetric, of which one triangle is read -> values [.., n] ascending, vectors [.., n, n] as columns, or
/// [.., n, 0]. NaN throughout if `a` is not finite. config: upper. scratch: 8 * (n * n + n).
int32_t disc_fn_eigh(disc_call *call, const disc_view *operands, const int64_t *config, int64_t begin, int64_t end,
                     void *scratch) {
  int64_t n = rowsOf(operands[0]);
  Matrix a = {static_cast<double *>(scratch), n, n}, values = {a.end(), 1, n};
  bool vectors = colsOf(operands[2]);
  return decomposing(call, [&] {
    Eigen::SelfAdjointEigenSolver<ColumnMajor> solver(n);
    for (int64_t batch = begin; batch < end && n; ++batch) {
      loadMatrix(operands[0], batch, a);
      // The solver reads the lower triangle.
      if (config[0])
        inRows(a).transposeInPlace();
      solver.compute(inRows(a), vectors ? Eigen::ComputeEigenvectors : Eigen::EigenvaluesOnly);
      bool found = solver.info() == Eigen::Success;
      if (found)
        inRows(values) = solver.eigenvalues().transpose();
      else
        inRows(values).setConstant(kNaN);
      storeMatrix(operands[1], batch, values);
      if (!vectors)
        continue;
      if (found)
        inRows(a) = solver.eigenvectors();
      else
        inRows(a).setConstant(kNaN);
      storeMatrix(operands[2], batch, a);
    }
    return DISC_OK;
  });
}

/// a [.., m, n] -> U [.., m, m or k], values [.., k] descending, V^T [.., k or n, n], k = min(m, n): how many columns
/// and rows the results have decides; 0 for no vectors. NaN throughout if `a` is not finite. scratch: 8 * (2 * max(m,
/// n)^2
/// + 2 * (m * n + m * m + n * n) + 3 * k).
int32_t disc_fn_svd(disc_call *call, const disc_view *operands, const int64_t *, int64_t begin, int64_t end,
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
  bool vectors = u.cols || vt.rows || !count;
  double *squares = values.end();
  auto *order = reinterpret_cast<int64_t *>(squares + count);
  auto *sortedRows = left.data;
  // f32 holds no more digits than the roots of the eigenvalues have.
  bool single = operands[0].dtype == DISC_F32, rootsSuffice = single && !vectors;
  double tolerance = single ? 0x1p-32 : kEpsilon * std::max(1.0, std::sqrt(double(length)));
  bool prepares = count > kFewRows || length > kShortRows;
  return decomposing(call, [&] {
    Eigen::SelfAdjointEigenSolver<ColumnMajor> solver(prepares ? count : 0);
    ColumnMajor products;
    RowMajor rows;
    for (int64_t batch = begin; batch < end; ++batch) {
      loadMatrix(operands[0], batch, a);
      if (!inRows(a).allFinite()) {
        for (Matrix result : {u, values, vt})
          inRows(result).setConstant(kNaN);
        storeMatrix(operands[1], batch, u);
        storeMatrix(operands[2], batch, values);
        storeMatrix(operands[3], batch, vt);
        continue;
      }
      double scale = scaleOf(a);
      Matrix work = {left.data, count, length};
      if (wide)
        inRows(work) = inRows(a) / scale;
      else
        inRows(work) = inRows(a).transpose() / scale;
      if (rootsSuffice && prepares) {
        products.noalias() = inRows(work) * inRows(work).transpose();
        if (solver.compute(products, Eigen::EigenvaluesOnly).info() == Eigen::Success) {
          for (int64_t i = 0; i < count; ++i)
            values(0, i) = std::sqrt(std::max(solver.eigenvalues()[count - 1 - i], 0.0)) * scale;
          storeMatrix(operands[2], batch, values);
          continue;
        }
      }
      setIdentity(right);
      // Rows that are far shorter than the first are not told apart by the first products, but by their own.
      double longest = 0;
      for (int64_t first = 0; prepares && first < count;) {
        Matrix block = {work.row(first), count - first, length}, turned = {right.row(first), count - first, count};
        products.noalias() = inRows(block) * inRows(block).transpose();
        if (solver.compute(products).info() != Eigen::Success)
          break;
        products = solver.eigenvectors().rowwise().reverse().transpose();
        rows.noalias() = products * inRows(block);
        inRows(block) = rows;
        if (vectors) {
          rows.noalias() = products * inRows(turned);
          inRows(turned) = rows;
        }
        double top = inRows(block).row(0).norm();
        longest = std::max(longest, top);
        if (top <= longest * noiseOf(work))
          break;
        while (first < count && inRows(work).row(first).norm() > top * kFarShorter)
          ++first;
      }
      orthogonalize(work, vectors ? right : Matrix{right.data, count, 0}, squares, tolerance);
      for (int64_t i = 0; i < count; ++i) {
        values(0, i) = std::sqrt(dot(work.row(i), work.row(i), length));
        order[i] = i;
      }
      std::sort(order, order + count, [&](int64_t i, int64_t j) {
        return values(0, i) > values(0, j) || (values(0, i) == values(0, j) && i < j);
      });
      // Into order, through `a`, which is as large.
      std::copy(work.data, work.data + count * length, a.data);
      double largest = count ? values(0, order[0]) : 0;
      int64_t rank = 0;
      for (int64_t i = 0; i < count; ++i) {
        double value = values(0, order[i]);
        if (value > largest * noiseOf(work)) {
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
      for (int64_t k = 0; k < count && vectors; ++k)
        for (int64_t j = 0; j < count; ++j)
          (wide ? u(j, k) : vt(k, j)) = right(order[k], j);
      std::copy(values.data, values.data + count, a.data);
      for (int64_t i = 0; i < count; ++i)
        values(0, i) = a.data[order[i]] * scale;
      storeMatrix(operands[1], batch, u);
      storeMatrix(operands[2], batch, values);
      storeMatrix(operands[3], batch, vt);
    }
    return DISC_OK;
  });
}
