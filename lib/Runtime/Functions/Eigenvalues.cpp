//===- Eigenvalues.cpp - eigenvalues of matrices that are not symmetric ----===//
//
// Reduction to Hessenberg's form and Francis' double steps (Golub, Van Loan, Matrix Computations, 7.4 and 7.5; the
// procedures orthes and hqr2 of Wilkinson, Reinsch, Handbook for Automatic Computation II). Eigenvalues come in the
// order in which they stand on the diagonal, the one of a pair with the positive imaginary part first, as LAPACK has
// them.
//
//===----------------------------------------------------------------------===//

#include "lib/Runtime/Functions/Matrices.h"

#include <algorithm>
#include <cmath>

using namespace disc::rt;

namespace {
constexpr double kEpsilon = 0x1p-52;
constexpr int kMaxSteps = 300; // For one eigenvalue; 3 are usual.

struct Complex {
  double re, im;
};

/// Smith, Algorithm 116: Complex division, 1962.
Complex divide(double re, double im, double byRe, double byIm) {
  if (std::fabs(byRe) > std::fabs(byIm)) {
    double ratio = byIm / byRe, scale = byRe + ratio * byIm;
    return {(re + ratio * im) / scale, (im - ratio * re) / scale};
  }
  double ratio = byRe / byIm, scale = byIm + ratio * byRe;
  return {(ratio * re + im) / scale, (ratio * im - re) / scale};
}

/// a = v h v^T with nothing below the first subdiagonal of h, which takes a's place. `spare` has room for a row.
void reduceToHessenberg(Matrix h, Matrix v, double *spare) {
  int64_t n = h.rows;
  for (int64_t m = 1; m + 1 < n; ++m) {
    double scale = 0, square = 0;
    for (int64_t i = m; i < n; ++i)
      scale += std::fabs(h(i, m - 1));
    if (scale == 0)
      continue;
    for (int64_t i = m; i < n; ++i) {
      spare[i] = h(i, m - 1) / scale;
      square += spare[i] * spare[i];
    }
    double g = spare[m] > 0 ? -std::sqrt(square) : std::sqrt(square);
    square -= spare[m] * g;
    spare[m] -= g;
    for (int64_t j = m; j < n; ++j) {
      double f = 0;
      for (int64_t i = m; i < n; ++i)
        f += spare[i] * h(i, j);
      for (int64_t i = m; i < n; ++i)
        h(i, j) -= f / square * spare[i];
    }
    for (int64_t i = 0; i < n; ++i) {
      double f = 0;
      for (int64_t j = m; j < n; ++j)
        f += spare[j] * h(i, j);
      for (int64_t j = m; j < n; ++j)
        h(i, j) -= f / square * spare[j];
    }
    spare[m] *= scale;
    h(m, m - 1) = scale * g;
  }
  setIdentity(v);
  for (int64_t m = n - 2; m >= 1; --m) {
    if (h(m, m - 1) == 0)
      continue;
    // The reflection's first element is still in `spare`, the others where they were.
    for (int64_t i = m + 1; i < n; ++i) {
      spare[i] = h(i, m - 1);
      h(i, m - 1) = 0;
    }
    for (int64_t j = m; j < n; ++j) {
      double f = 0;
      for (int64_t i = m; i < n; ++i)
        f += spare[i] * v(i, j);
      f = f / spare[m] / h(m, m - 1);
      for (int64_t i = m; i < n; ++i)
        v(i, j) += f * spare[i];
    }
  }
}

/// Rows p and p + 1 of h, its columns, and those of v, by the rotation (c, s).
void rotate(Matrix h, Matrix v, int64_t p, int64_t last, double c, double s) {
  auto turn = [&](double &x, double &y) {
    double old = x;
    x = c * old + s * y;
    y = c * y - s * old;
  };
  for (int64_t j = p; j < h.cols; ++j)
    turn(h(p, j), h(p + 1, j));
  for (int64_t i = 0; i <= last; ++i)
    turn(h(i, p), h(i, p + 1));
  for (int64_t i = 0; i < v.rows; ++i)
    turn(v(i, p), v(i, p + 1));
}

/// One double step on the rows and columns first .. last, of which `from` is where it begins; (p, q, r) is the first
/// column that it makes.
void step(Matrix h, Matrix v, int64_t first, int64_t from, int64_t last, double p, double q, double r) {
  double x = 0;
  for (int64_t k = from; k < last; ++k) {
    bool three = k + 1 < last;
    if (k != from) {
      p = h(k, k - 1);
      q = h(k + 1, k - 1);
      r = three ? h(k + 2, k - 1) : 0;
      x = std::fabs(p) + std::fabs(q) + std::fabs(r);
      if (x == 0)
        continue;
      p /= x;
      q /= x;
      r /= x;
    }
    double s = std::sqrt(p * p + q * q + r * r);
    if (p < 0)
      s = -s;
    if (s == 0)
      continue;
    if (k != from)
      h(k, k - 1) = -s * x;
    else if (first != from)
      h(k, k - 1) = -h(k, k - 1);
    p += s;
    double u = p / s, w = q / s, z = r / s;
    q /= p;
    r /= p;
    for (int64_t j = k; j < h.cols; ++j) {
      double f = h(k, j) + q * h(k + 1, j) + (three ? r * h(k + 2, j) : 0);
      h(k, j) -= f * u;
      h(k + 1, j) -= f * w;
      if (three)
        h(k + 2, j) -= f * z;
    }
    auto column = [&](Matrix a, int64_t rows) {
      for (int64_t i = 0; i < rows; ++i) {
        double f = u * a(i, k) + w * a(i, k + 1) + (three ? z * a(i, k + 2) : 0);
        a(i, k) -= f;
        a(i, k + 1) -= f * q;
        if (three)
          a(i, k + 2) -= f * r;
      }
    };
    column(h, std::min(last, k + 3) + 1);
    column(v, v.rows);
  }
}

/// h becomes triangular but for the pairs, of which `values` are the eigenvalues. Whether that worked.
bool triangularize(Matrix h, Matrix v, Complex *values, double norm) {
  double moved = 0;
  int steps = 0;
  for (int64_t n = h.rows - 1; n >= 0;) {
    int64_t l = n;
    for (; l > 0; --l) {
      double size = std::fabs(h(l - 1, l - 1)) + std::fabs(h(l, l));
      if (std::fabs(h(l, l - 1)) <= kEpsilon * (size == 0 ? norm : size)) // equal: both are 0 in a matrix of zeros
        break;
    }
    if (l == n) {
      h(n, n) += moved;
      values[n--] = {h(n, n), 0};
      steps = 0;
      continue;
    }
    double x = h(n, n), y = h(n - 1, n - 1), w = h(n, n - 1) * h(n - 1, n);
    if (l == n - 1) {
      double p = (y - x) / 2, q = p * p + w, z = std::sqrt(std::fabs(q));
      h(n, n) = x += moved;
      h(n - 1, n - 1) = y + moved;
      if (q >= 0) {
        z = p >= 0 ? p + z : p - z;
        values[n - 1] = {x + z, 0};
        values[n] = {z != 0 ? x - w / z : x + z, 0};
        double low = h(n, n - 1), length = std::hypot(low, z);
        rotate(h, v, n - 1, n, z / length, low / length);
      } else {
        values[n - 1] = {x + p, z};
        values[n] = {x + p, -z};
      }
      n -= 2;
      steps = 0;
      continue;
    }
    if (steps == kMaxSteps)
      return false;
    if (steps && steps % 10 == 0) { // A shift that is none of the eigenvalues' breaks cycles.
      moved += x;
      for (int64_t i = 0; i <= n; ++i)
        h(i, i) -= x;
      double size = std::fabs(h(n, n - 1)) + std::fabs(h(n - 1, n - 2));
      x = y = 0.75 * size;
      w = -0.4375 * size * size;
    }
    ++steps;
    double p = 0, q = 0, r = 0;
    int64_t m = n - 2;
    for (;; --m) {
      double z = h(m, m);
      r = x - z;
      double s = y - z;
      p = (r * s - w) / h(m + 1, m) + h(m, m + 1);
      q = h(m + 1, m + 1) - z - r - s;
      r = h(m + 2, m + 1);
      s = std::fabs(p) + std::fabs(q) + std::fabs(r);
      p /= s;
      q /= s;
      r /= s;
      if (m == l ||
          std::fabs(h(m, m - 1)) * (std::fabs(q) + std::fabs(r)) <
              kEpsilon * std::fabs(p) * (std::fabs(h(m - 1, m - 1)) + std::fabs(z) + std::fabs(h(m + 1, m + 1))))
        break;
    }
    for (int64_t i = m + 2; i <= n; ++i) {
      h(i, i - 2) = 0;
      if (i > m + 2)
        h(i, i - 3) = 0;
    }
    step(h, v, l, m, n, p, q, r);
  }
  return true;
}

/// The eigenvector of the triangle h with the value of place k, by substitution from row k (that of a pair: k - 1) up.
/// Pairs of rows are solved together. (re, im) are n numbers each.
void eigenvector(Matrix h, const Complex *values, int64_t k, double norm, double *re, double *im) {
  int64_t n = h.rows;
  Complex value = values[k];
  std::fill(re, re + n, 0.0);
  std::fill(im, im + n, 0.0);
  re[k] = 1;
  int64_t i = k - 1;
  if (value.im != 0) { // (h - value) x = 0 in the rows of the pair, whose first is k here.
    int64_t low = k + 1;
    Complex below = std::fabs(h(low, k)) > std::fabs(h(k, low))
                        ? divide(-h(low, k), 0, h(low, low) - value.re, -value.im)
                        : divide(value.re - h(k, k), value.im, h(k, low), 0);
    re[low] = below.re;
    im[low] = below.im;
  }
  double tiny = std::max(kEpsilon * norm, 0x1p-1000);
  auto right = [&](int64_t row, int64_t from) {
    Complex sum = {0, 0};
    for (int64_t j = from; j < n; ++j) {
      sum.re -= h(row, j) * re[j];
      sum.im -= h(row, j) * im[j];
    }
    return sum;
  };
  while (i >= 0) {
    Complex b = right(i, i + 1);
    double top;
    if (values[i].im == 0) {
      double d = h(i, i) - value.re;
      if (d == 0 && value.im == 0)
        d = tiny;
      Complex x = divide(b.re, b.im, d, -value.im);
      re[i] = x.re;
      im[i] = x.im;
      top = std::max(std::fabs(x.re), std::fabs(x.im));
      --i;
    } else { // Rows i - 1 and i are a pair: by Cramer's rule.
      Complex a = right(i - 1, i + 1);
      double first = h(i - 1, i - 1) - value.re, second = h(i, i) - value.re;
      double up = h(i - 1, i), down = h(i, i - 1);
      double detRe = first * second - value.im * value.im - up * down, detIm = -value.im * (first + second);
      if (detRe == 0 && detIm == 0)
        detRe = tiny * tiny;
      Complex x = divide(a.re * second + a.im * value.im - up * b.re, a.im * second - a.re * value.im - up * b.im,
                         detRe, detIm);
      Complex y = divide(b.re * first + b.im * value.im - down * a.re, b.im * first - b.re * value.im - down * a.im,
                         detRe, detIm);
      re[i - 1] = x.re;
      im[i - 1] = x.im;
      re[i] = y.re;
      im[i] = y.im;
      top = std::max({std::fabs(x.re), std::fabs(x.im), std::fabs(y.re), std::fabs(y.im)});
      i -= 2;
    }
    if (kEpsilon * top * top > 1)
      for (int64_t j = 0; j < n; ++j) {
        re[j] /= top;
        im[j] /= top;
      }
  }
}
} // namespace

/// a [.., n, n] -> values [.., n, 2], vectors [.., n, n * 2] as columns, of length 1 and with their largest element
/// real: pairs of the real and the imaginary part. scratch: 8 * (4 * n * n + 5 * n).
int32_t disc_fn_eig(disc_call *call, const disc_view *operands, const int64_t *, int64_t begin, int64_t end,
                    void *scratch) {
  int64_t n = rowsOf(operands[0]);
  Matrix h = {static_cast<double *>(scratch), n, n}, v = {h.end(), n, n}, vectors = {v.end(), n, 2 * n};
  Matrix values = {vectors.end(), n, 2};
  double *re = values.end(), *im = re + n, *spare = im + n;
  auto *pairs = reinterpret_cast<Complex *>(values.data);
  for (int64_t batch = begin; batch < end; ++batch) {
    loadMatrix(operands[0], batch, h);
    double norm = 0;
    for (int64_t i = 0; i < n * n; ++i)
      norm += std::fabs(h.data[i]);
    if (!(norm < 1e300))
      return matrixFailed(call, operands[0], batch, "the input tensor should not contain infs or NaNs");
    reduceToHessenberg(h, v, spare);
    if (!triangularize(h, v, pairs, norm))
      return matrixFailed(call, operands[0], batch, "the algorithm failed to converge");
    for (int64_t k = 0; k < n; ++k) {
      eigenvector(h, pairs, k, norm, re, im);
      double length = 0, most = -1;
      Complex largest = {1, 0};
      for (int64_t i = 0; i < n; ++i) {
        Complex x = {0, 0};
        for (int64_t j = 0; j < n; ++j) {
          x.re += v(i, j) * re[j];
          x.im += v(i, j) * im[j];
        }
        vectors(i, 2 * k) = x.re;
        vectors(i, 2 * k + 1) = x.im;
        double square = x.re * x.re + x.im * x.im;
        length += square;
        if (square > most) {
          most = square;
          largest = x;
        }
      }
      // Real vectors keep their signs.
      double size = std::sqrt(most), scale = std::sqrt(length);
      Complex turn = pairs[k].im == 0 ? Complex{1, 0} : Complex{largest.re / size, -largest.im / size};
      for (int64_t i = 0; i < n; ++i) {
        double x = vectors(i, 2 * k) / scale, y = vectors(i, 2 * k + 1) / scale;
        vectors(i, 2 * k) = x * turn.re - y * turn.im;
        vectors(i, 2 * k + 1) = x * turn.im + y * turn.re;
      }
      // The other one of a pair is the conjugate.
      if (pairs[k].im > 0) {
        for (int64_t i = 0; i < n; ++i) {
          vectors(i, 2 * k + 2) = vectors(i, 2 * k);
          vectors(i, 2 * k + 3) = -vectors(i, 2 * k + 1);
        }
        ++k;
      }
    }
    storeMatrix(operands[1], batch, values);
    storeMatrix(operands[2], batch, vectors);
  }
  return DISC_OK;
}
