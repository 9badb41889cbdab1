//===- Fft.cpp - discrete Fourier transforms of any length -----------------===//
//
// Lengths of small primes by Stockham's autosort with mixed radices (Van Loan, Computational Frameworks for the Fast
// Fourier Transform, 1.7); others by Bluestein's convolution (4.2) with a power of two. Roots of unity and the
// transformed chirp are a tensor, the plan, which is computed before and, for a static length, once.
//
//===----------------------------------------------------------------------===//

#include "lib/Runtime/Functions/Elements.h"

#include <cmath>
#include <utility>

using namespace disc::rt;

namespace {
constexpr int64_t kLargestRadix = 13;

template <typename T> struct Complex {
  T re, im;
};
template <typename T> inline Complex<T> operator+(Complex<T> x, Complex<T> y) { return {x.re + y.re, x.im + y.im}; }
template <typename T> inline Complex<T> operator-(Complex<T> x, Complex<T> y) { return {x.re - y.re, x.im - y.im}; }
template <typename T> inline Complex<T> operator*(Complex<T> x, Complex<T> y) {
  return {x.re * y.re - x.im * y.im, x.re * y.im + x.im * y.re};
}

/// The next radix of what is left of a length.
int64_t radixOf(int64_t rest) {
  for (int64_t radix : {4, 2, 3, 5, 7, 11, 13})
    if (rest % radix == 0)
      return radix;
  return rest;
}

/// The length of the convolution that a length needs, or 0.
int64_t convolutionOf(int64_t n) {
  int64_t rest = n;
  while (rest > 1 && radixOf(rest) <= kLargestRadix)
    rest /= radixOf(rest);
  if (rest == 1 || n <= 1)
    return 0;
  int64_t length = 1;
  while (length < 2 * n - 1)
    length *= 2;
  return length;
}

/// exp(-2 pi i k / n), from an angle of an eighth of a turn at most.
template <typename T> Complex<T> root(int64_t k, int64_t n) {
  int64_t eighth = 8 * k / n;
  double quarter = double((eighth + 1) / 2);
  // k / n - quarter / 4 lies in [-1/8, 1/8]: exact but for one rounding.
  double angle = 2 * 3.14159265358979323846 * (double(4 * k) - quarter * double(n)) / (4 * double(n));
  double c = std::cos(angle), s = std::sin(angle);
  switch (int(quarter) & 3) {
  case 0:
    return {T(c), T(-s)};
  case 1:
    return {T(-s), T(-c)};
  case 2:
    return {T(-c), T(s)};
  default:
    return {T(s), T(c)};
  }
}

/// An odd radix, known while compiling unless kRadix is 0: inputs q and radix - q share their products.
template <int kRadix, typename T>
void oddPass(const Complex<T> *in, Complex<T> *out, const Complex<T> *roots, int64_t radix, int64_t l, int64_t m) {
  const int64_t count = kRadix ? kRadix : radix, half = count / 2;
  Complex<T> unit[kLargestRadix];
  for (int64_t q = 0; q < count; ++q)
    unit[q] = roots[q * l * m];
  for (int64_t k = 0; k < l; ++k) {
    Complex<T> first = in[k], total = first, sums[kLargestRadix / 2 + 1], differences[kLargestRadix / 2 + 1];
    for (int64_t q = 1; q <= half; ++q) {
      Complex<T> x = in[q * m * l + k] * roots[q * k * m];
      Complex<T> y = in[(count - q) * m * l + k] * roots[(count - q) * k * m];
      sums[q] = x + y;
      differences[q] = x - y;
      total = total + sums[q];
    }
    out[k] = total;
    for (int64_t r = 1; r <= half; ++r) {
      Complex<T> even = first, odd = {0, 0};
      for (int64_t q = 1, at = r; q <= half; ++q) {
        even = {even.re + unit[at].re * sums[q].re, even.im + unit[at].re * sums[q].im};
        odd = {odd.re + unit[at].im * differences[q].re, odd.im + unit[at].im * differences[q].im};
        at = at + r < count ? at + r : at + r - count;
      }
      out[r * l + k] = {even.re - odd.im, even.im + odd.re};
      out[(count - r) * l + k] = {even.re + odd.im, even.im - odd.re};
    }
  }
}

/// One pass: m * radix transforms of length l become m of length l * radix.
template <typename T>
void pass(const Complex<T> *from, Complex<T> *to, const Complex<T> *roots, int64_t radix, int64_t l, int64_t m) {
  for (int64_t j = 0; j < m; ++j) {
    const Complex<T> *in = from + j * l;
    Complex<T> *out = to + j * radix * l;
    if (radix == 4) {
      for (int64_t k = 0; k < l; ++k) {
        Complex<T> a = in[k], b = in[m * l + k] * roots[k * m], c = in[2 * m * l + k] * roots[2 * k * m],
                   d = in[3 * m * l + k] * roots[3 * k * m];
        Complex<T> even = a + c, odd = a - c, sum = b + d, turned = {(b - d).im, -(b - d).re};
        out[k] = even + sum;
        out[l + k] = odd + turned;
        out[2 * l + k] = even - sum;
        out[3 * l + k] = odd - turned;
      }
    } else if (radix == 2) {
      for (int64_t k = 0; k < l; ++k) {
        Complex<T> a = in[k], b = in[m * l + k] * roots[k * m];
        out[k] = a + b;
        out[l + k] = a - b;
      }
    } else if (radix == 3) {
      oddPass<3>(in, out, roots, radix, l, m);
    } else if (radix == 5) {
      oddPass<5>(in, out, roots, radix, l, m);
    } else {
      oddPass<0>(in, out, roots, radix, l, m);
    }
  }
}

/// Transforms `data`; the result is there or in `spare`.
template <typename T> Complex<T> *transform(Complex<T> *data, Complex<T> *spare, const Complex<T> *roots, int64_t n) {
  for (int64_t l = 1; l < n;) {
    int64_t radix = radixOf(n / l);
    pass(data, spare, roots, radix, l, n / l / radix);
    std::swap(data, spare);
    l *= radix;
  }
  return data;
}

/// Roots of unity; for a convolution the chirp, the transform of its conjugate, and the roots of that length.
template <typename T> void makePlan(Complex<T> *plan, int64_t n) {
  int64_t length = convolutionOf(n);
  if (length == 0) {
    for (int64_t k = 0; k < n; ++k)
      plan[k] = root<T>(k, n);
    return;
  }
  Complex<T> *chirp = plan, *transformed = plan + n, *roots = transformed + length, *spare = roots + length;
  for (int64_t k = 0; k < length; ++k) {
    roots[k] = root<T>(k, length);
    transformed[k] = {0, 0};
  }
  for (int64_t k = 0, square = 0; k < n; ++k) {
    chirp[k] = root<T>(square, 2 * n);
    transformed[k] = {chirp[k].re, -chirp[k].im};
    if (k)
      transformed[length - k] = transformed[k];
    square = (square + 2 * k + 1) % (2 * n); // k^2 modulo 2n
  }
  Complex<T> *result = transform(transformed, spare, roots, length);
  for (int64_t k = 0; k < length; ++k) {
    Complex<T> value = result[k];
    transformed[k] = {value.re / T(length), value.im / T(length)};
  }
}

/// The forward transform of `data`, which has room for the convolution, as `spare` has.
template <typename T> Complex<T> *forward(Complex<T> *data, Complex<T> *spare, const Complex<T> *plan, int64_t n) {
  int64_t length = convolutionOf(n);
  if (length == 0)
    return transform(data, spare, plan, n);
  const Complex<T> *chirp = plan, *transformed = plan + n, *roots = transformed + length;
  for (int64_t k = 0; k < length; ++k)
    data[k] = k < n ? data[k] * chirp[k] : Complex<T>{0, 0};
  Complex<T> *product = transform(data, spare, roots, length);
  Complex<T> *other = product == data ? spare : data;
  for (int64_t k = 0; k < length; ++k) {
    Complex<T> value = product[k] * transformed[k];
    product[k] = {value.im, value.re}; // backward is forward with the parts exchanged
  }
  Complex<T> *result = transform(product, other, roots, length);
  for (int64_t k = 0; k < n; ++k)
    result[k] = Complex<T>{result[k].im, result[k].re} * chirp[k];
  return result;
}

enum Kind : int64_t { ComplexToComplex, RealToComplex, ComplexToReal };

template <typename T>
void transformRows(const disc_view *operands, const int64_t *config, int64_t begin, int64_t end, void *scratch) {
  const disc_view &x = operands[0], &y = operands[2];
  int64_t n = config[0];
  auto kind = Kind(config[1]);
  // From half a spectrum to real numbers is always backward.
  bool backward = config[2] || kind == ComplexToReal;
  T scale = T(configFloat(config[3]));
  int64_t components = kind == RealToComplex ? 0 : 1, along = x.rank - 1 - components;
  int64_t stride = x.strides[along], imaginary = components ? x.strides[x.rank - 1] : 0;
  int64_t count = x.dims[along], results = kind == ComplexToReal ? n : y.dims[y.rank - 2];
  auto *data = static_cast<Complex<T> *>(scratch);
  Complex<T> *spare = data + (convolutionOf(n) ? convolutionOf(n) : n);
  auto *plan = static_cast<const Complex<T> *>(operands[1].data);
  StridedWalk walk(along, x.dims, x.strides, begin);
  for (int64_t row = begin; row < end; ++row, walk.next()) {
    const T *from = static_cast<const T *>(x.data) + walk.offset;
    for (int64_t k = 0; k < count; ++k)
      data[k] = {from[k * stride], components ? from[k * stride + imaginary] : T(0)};
    if (kind == ComplexToReal) {
      // Only the real part of what is its own mirror image counts.
      data[0].im = 0;
      if (n % 2 == 0)
        data[n / 2].im = 0;
      for (int64_t k = n / 2 + 1; k < n; ++k)
        data[k] = {data[n - k].re, -data[n - k].im};
    }
    for (int64_t k = 0; backward && k < n; ++k)
      std::swap(data[k].re, data[k].im);
    const Complex<T> *result = forward(data, spare, plan, n);
    if (kind == ComplexToReal) {
      T *to = static_cast<T *>(y.data) + row * n;
      for (int64_t k = 0; k < n; ++k)
        to[k] = result[k].im * scale;
      continue;
    }
    auto *to = static_cast<Complex<T> *>(y.data) + row * results;
    for (int64_t k = 0; k < results; ++k)
      to[k] = backward ? Complex<T>{result[k].im * scale, result[k].re * scale}
                       : Complex<T>{result[k].re * scale, result[k].im * scale};
  }
}
} // namespace

/// -> plan [size]: what transforms of length config[0] need. size: 2 * n; unless n is a product of primes to 13, then
/// 2 * (n + 3 * m), with m the power of two from 2 * n - 1 on. f32 or f64.
int32_t disc_fn_fft_plan(disc_call *call, const disc_view *operands, const int64_t *config, int64_t, int64_t, void *) {
  const disc_view &plan = operands[0];
  int64_t n = config[0], length = convolutionOf(n);
  if (plan.dims[0] < 2 * n + 6 * length)
    return disc_rt_function_failed(call, DISC_ERROR_SHAPE, "no room for the plan");
  if (plan.dtype == DISC_F64)
    makePlan(static_cast<Complex<double> *>(plan.data), n);
  else
    makePlan(static_cast<Complex<float> *>(plan.data), n);
  return DISC_OK;
}

/// x, plan -> y: the transforms of rows. config: length n; kind: 0 x [.., n, 2] to y [.., n, 2], 1 x [.., n] to as many
/// [.., m, 2] as y has, 2 x [.., n / 2 + 1, 2] to y [.., n]; backward; a factor (a float). A task is a row. scratch: 4
/// elements for each of n, or of the plan's m.
int32_t disc_fn_fft(disc_call *call, const disc_view *operands, const int64_t *config, int64_t begin, int64_t end,
                    void *scratch) {
  int64_t needed = config[1] == ComplexToReal ? config[0] / 2 + 1 : config[0];
  const disc_view &x = operands[0];
  if (config[0] < 1 || x.dims[x.rank - (config[1] == RealToComplex ? 1 : 2)] < needed)
    return disc_rt_function_failed(call, DISC_ERROR_SHAPE, "not as many elements as the transform has");
  if (x.dtype == DISC_F64)
    transformRows<double>(operands, config, begin, end, scratch);
  else
    transformRows<float>(operands, config, begin, end, scratch);
  return DISC_OK;
}
