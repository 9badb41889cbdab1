//===- Matrices.h - batches of matrices -------------------------*- C++ -*-===//
//
// The linear algebra of the functions computes in double whatever the dtype, row-major, in scratch memory, one matrix a
// task. Small matrices are decomposed by loops, larger ones by Eigen (Dense.h).
//
//===----------------------------------------------------------------------===//

#ifndef DISC_RUNTIME_FUNCTIONS_MATRICES_H
#define DISC_RUNTIME_FUNCTIONS_MATRICES_H

#include "lib/Runtime/Functions/Elements.h"

#include <utility>

namespace disc::rt {

struct Matrix {
  double *data;
  int64_t rows, cols;

  double &operator()(int64_t i, int64_t j) const { return data[i * cols + j]; }
  double *row(int64_t i) const { return data + i * cols; }
  double *end() const { return data + rows * cols; }
};

/// Matrices.cpp: the matrix, or row, of this number in a batch, to and from double. f32 and f64.
void loadMatrix(const disc_view &view, int64_t batch, Matrix to);
void storeMatrix(const disc_view &view, int64_t batch, Matrix from);

inline int64_t rowsOf(const disc_view &view) { return view.dims[view.rank - 2]; }
inline int64_t colsOf(const disc_view &view) { return view.dims[view.rank - 1]; }

/// Fails with "(Batch element 3): " before the text if the operand is a batch.
int32_t matrixFailed(disc_call *call, const disc_view &view, int64_t batch, const char *format, int64_t number = 0);

inline void setIdentity(Matrix a) {
  for (int64_t i = 0; i < a.rows; ++i)
    for (int64_t j = 0; j < a.cols; ++j)
      a(i, j) = i == j;
}

/// row(i) -= factor * row(k), from column `first`.
inline void subtractRow(Matrix a, int64_t i, Matrix b, int64_t k, double factor, int64_t first = 0) {
  double *to = a.row(i);
  const double *from = b.row(k);
  for (int64_t j = first; j < a.cols; ++j)
    to[j] -= factor * from[j];
}

inline void swapRows(Matrix a, int64_t i, int64_t k) {
  for (int64_t j = 0; i != k && j < a.cols; ++j)
    std::swap(a(i, j), a(k, j));
}

/// LU decomposition in place with partial pivoting: row i was exchanged with row pivots[i]. Returns the number, from 1,
/// of the first zero on the diagonal, or 0.
int64_t decompose(Matrix a, int64_t *pivots);

/// b = inverse of the triangle of `a` times b.
void solveTriangle(Matrix a, Matrix b, bool upper, bool unit);

} // namespace disc::rt

#endif // DISC_RUNTIME_FUNCTIONS_MATRICES_H
