//===- FftKernels.h - Fourier transforms for one vector width --------------===//
//
// Fft.cpp includes this file once for each instruction set, inside a namespace and a region of functions compiled for
// it, with DISC_FFT_BYTES bytes in a vector. It therefore has no include guard, includes nothing, and everything in it
// has internal linkage: no function compiled for a wide instruction set can replace one of another file.
//
// Every transform runs on vectors whose lanes are independent transforms, so that twiddle factors are scalars. The
// lanes are rows (`Rows`) or, where there are few or long rows, the columns of one row seen as a matrix (`Row`).
//
//===----------------------------------------------------------------------===//

template <typename T, int V> struct VectorOf {
  typedef T type __attribute__((vector_size(sizeof(T) * V)));
};
template <typename T, int V> using Vector = typename VectorOf<T, V>::type;

template <typename T> constexpr int kWidest = DISC_FFT_BYTES / int(sizeof(T));
template <typename T> constexpr int kNarrowest = 16 / int(sizeof(T));

#define DISC_INLINE inline __attribute__((always_inline))

template <typename T, int V> DISC_INLINE Vector<T, V> load(const T *from) {
  Vector<T, V> value;
  __builtin_memcpy(&value, from, sizeof(value));
  return value;
}
template <typename T, int V> DISC_INLINE void store(T *to, Vector<T, V> value) {
  __builtin_memcpy(to, &value, sizeof(value));
}

//===--- lanes ---------------------------------------------------------------===//

template <int V, typename Vec, int... kI>
DISC_INLINE Vec interleaveLow(Vec a, Vec b, std::integer_sequence<int, kI...>) {
  return __builtin_shufflevector(a, b, (kI / 2 + kI % 2 * V)...);
}
template <int V, typename Vec, int... kI>
DISC_INLINE Vec interleaveHigh(Vec a, Vec b, std::integer_sequence<int, kI...>) {
  return __builtin_shufflevector(a, b, (V / 2 + kI / 2 + kI % 2 * V)...);
}
template <typename Vec, int... kI> DISC_INLINE Vec everySecond(Vec a, Vec b, std::integer_sequence<int, kI...>) {
  return __builtin_shufflevector(a, b, (2 * kI)...);
}
template <typename Vec, int... kI> DISC_INLINE Vec everyOther(Vec a, Vec b, std::integer_sequence<int, kI...>) {
  return __builtin_shufflevector(a, b, (2 * kI + 1)...);
}
template <int V, typename Vec, int... kI> DISC_INLINE Vec reversed(Vec a, std::integer_sequence<int, kI...>) {
  return __builtin_shufflevector(a, a, (V - 1 - kI)...);
}
template <int V> using Lanes = std::make_integer_sequence<int, V>;

/// Stores a and b as pairs.
template <typename T, int V> DISC_INLINE void storePairs(T *to, Vector<T, V> a, Vector<T, V> b) {
  store<T, V>(to, interleaveLow<V>(a, b, Lanes<V>()));
  store<T, V>(to + V, interleaveHigh<V>(a, b, Lanes<V>()));
}

/// V rows of V elements become columns. Each round interleaves the first half of the rows with the second.
template <typename T, int V> DISC_INLINE void transpose(Vector<T, V> (&rows)[V]) {
  Vector<T, V> next[V];
#pragma clang loop unroll(full)
  for (int width = 1; width < V; width *= 2) {
#pragma clang loop unroll(full)
    for (int i = 0; i < V / 2; ++i) {
      next[2 * i] = interleaveLow<V>(rows[i], rows[i + V / 2], Lanes<V>());
      next[2 * i + 1] = interleaveHigh<V>(rows[i], rows[i + V / 2], Lanes<V>());
    }
#pragma clang loop unroll(full)
    for (int i = 0; i < V; ++i)
      rows[i] = next[i];
  }
}

//===--- passes --------------------------------------------------------------===//

template <typename E> struct Pair {
  E re, im;
};
template <typename E> DISC_INLINE Pair<E> operator+(Pair<E> x, Pair<E> y) { return {x.re + y.re, x.im + y.im}; }
template <typename E> DISC_INLINE Pair<E> operator-(Pair<E> x, Pair<E> y) { return {x.re - y.re, x.im - y.im}; }
/// x times -i.
template <typename E> DISC_INLINE Pair<E> turned(Pair<E> x) { return {x.im, -x.re}; }

template <typename E>
DISC_INLINE void butterfly4(Pair<E> a, Pair<E> b, Pair<E> c, Pair<E> d, Pair<E> &w, Pair<E> &x, Pair<E> &y,
                            Pair<E> &z) {
  Pair<E> even = a + c, odd = a - c, sum = b + d, turn = turned(b - d);
  w = even + sum;
  x = odd + turn;
  y = even - sum;
  z = odd - turn;
}

/// The transform of R vectors.
template <typename T, int R, typename E> DISC_INLINE void butterfly(Pair<E> (&x)[R]) {
  if constexpr (R == 2) {
    Pair<E> a = x[0], b = x[1];
    x[0] = a + b;
    x[1] = a - b;
  } else if constexpr (R == 4) {
    butterfly4(x[0], x[1], x[2], x[3], x[0], x[1], x[2], x[3]);
  } else if constexpr (R == 8) {
    constexpr T kHalf = T(0.70710678118654752440L);
    Pair<E> e[4], o[4];
    butterfly4(x[0], x[2], x[4], x[6], e[0], e[1], e[2], e[3]);
    butterfly4(x[1], x[3], x[5], x[7], o[0], o[1], o[2], o[3]);
    o[1] = {kHalf * (o[1].re + o[1].im), kHalf * (o[1].im - o[1].re)};
    o[2] = turned(o[2]);
    o[3] = {kHalf * (o[3].im - o[3].re), -kHalf * (o[3].re + o[3].im)};
#pragma clang loop unroll(full)
    for (int i = 0; i < 4; ++i) {
      x[i] = e[i] + o[i];
      x[i + 4] = e[i] - o[i];
    }
  } else {
    // Inputs q and R - q share their products.
    Pair<E> sums[R / 2 + 1], differences[R / 2 + 1], first = x[0];
#pragma clang loop unroll(full)
    for (int q = 1; q <= R / 2; ++q) {
      sums[q] = x[q] + x[R - q];
      differences[q] = x[q] - x[R - q];
      x[0] = x[0] + sums[q];
    }
    // Large radices are rare, and would be half of the code if it were written out for each result.
#pragma clang loop unroll_count(R > 7 ? 1 : R / 2)
    for (int r = 1; r <= R / 2; ++r) {
      Pair<E> even = first, odd = {E{}, E{}};
      int at = 0;
#pragma clang loop unroll(full)
      for (int q = 1; q <= R / 2; ++q) {
        at = at + r < R ? at + r : at + r - R;
        const T c = T(UnitRoots<R>::cosines[at]), s = T(UnitRoots<R>::sines[at]);
        even.re += c * sums[q].re;
        even.im += c * sums[q].im;
        odd.re += s * differences[q].re;
        odd.im += s * differences[q].im;
      }
      x[r] = {even.re + odd.im, even.im - odd.re};
      x[R - r] = {even.re - odd.im, even.im + odd.re};
    }
  }
}

/// Where the vectors of a transform are stored: parts and the distance between neighbours, in elements.
template <typename T> struct Place {
  T *re, *im;
  int64_t stride;
};

/// The butterflies of a pass that share their twiddle factors: `s` neighbours.
template <typename T, int V, int R, bool kTwiddled>
DISC_INLINE void passPart(Place<const T> in, Place<T> out, const T *twiddles, int64_t s, int64_t step) {
  using Vec = Vector<T, V>;
  for (int64_t q = 0; q < s; ++q) {
    Pair<Vec> x[R];
#pragma clang loop unroll(full)
    for (int k = 0; k < R; ++k) {
      int64_t at = (q + step * k) * in.stride;
      x[k] = {load<T, V>(in.re + at), load<T, V>(in.im + at)};
    }
    butterfly<T, R>(x);
#pragma clang loop unroll(full)
    for (int k = 0; k < R; ++k) {
      Pair<Vec> y = x[k];
      if (kTwiddled && k > 0) {
        T c = twiddles[2 * k - 2], d = twiddles[2 * k - 1];
        y = {x[k].re * c - x[k].im * d, x[k].re * d + x[k].im * c};
      }
      int64_t at = (q + s * k) * out.stride;
      store<T, V>(out.re + at, y.re);
      store<T, V>(out.im + at, y.im);
    }
  }
}

/// One pass of Stockham's algorithm, decimation in frequency: from [R][m][s] to [m][R][s], times w^(p k) for p of m and
/// k of R. Nothing is multiplied where p is 0.
template <typename T, int V, int R>
__attribute__((noinline)) void pass(Place<const T> in, Place<T> out, const T *twiddles, int64_t s, int64_t m) {
  passPart<T, V, R, false>(in, out, nullptr, s, s * m);
  for (int64_t p = 1; p < m; ++p) {
    in.re += s * in.stride;
    in.im += s * in.stride;
    out.re += R * s * out.stride;
    out.im += R * s * out.stride;
    passPart<T, V, R, true>(in, out, twiddles, s, s * m);
    twiddles += 2 * (R - 1);
  }
}

template <typename T, int V>
void anyPass(int radix, Place<const T> in, Place<T> out, const T *twiddles, int64_t s, int64_t m) {
  switch (radix) {
  case 2:
    return pass<T, V, 2>(in, out, twiddles, s, m);
  case 3:
    return pass<T, V, 3>(in, out, twiddles, s, m);
  case 4:
    return pass<T, V, 4>(in, out, twiddles, s, m);
  case 5:
    return pass<T, V, 5>(in, out, twiddles, s, m);
  case 7:
    return pass<T, V, 7>(in, out, twiddles, s, m);
  case 8:
    return pass<T, V, 8>(in, out, twiddles, s, m);
  case 11:
    return pass<T, V, 11>(in, out, twiddles, s, m);
  default:
    return pass<T, V, 13>(in, out, twiddles, s, m);
  }
}

/// The transforms of `n` vectors from `in` to `out`, by way of `other`, which has room for them, and may be `in`. With
/// more than two passes `out` is overwritten before the last.
template <typename T, int V>
void transform(const Radices &radices, int64_t n, const T *twiddles, Place<const T> in, Place<T> other, Place<T> out) {
  int64_t s = 1;
  for (int i = 0; i < radices.count; ++i) {
    int radix = radices.radix[i];
    int64_t m = n / s / radix;
    bool toOut = (radices.count - 1 - i) % 2 == 0;
    Place<T> to = toOut ? out : other;
    anyPass<T, V>(radix, in, to, twiddles, s, m);
    in = {to.re, to.im, to.stride};
    twiddles += 2 * (m - 1) * (radix - 1);
    s *= radix;
  }
}

//===--- one row, its columns as lanes ----------------------------------------===//

/// The transform of `a`, plan.size elements: a matrix [first][second] whose columns are transformed, multiplied by
/// twiddle factors and transposed, then the columns of that. `b` has as much room, `local` what Scratch says.
template <typename T, int V>
void transformMatrix(const Lengths &lengths, const Tables<T> &plan, Place<T> a, Place<T> b, T *local) {
  using Vec = Vector<T, V>;
  const int64_t first = lengths.first, second = lengths.second;
  Place<T> x = {local, local + V, 2 * V};
  Place<T> y = {local + 2 * V * second, local + 2 * V * second + V, 2 * V};
  for (int64_t begin = 0; begin < second; begin += V) {
    int64_t j = begin + V <= second ? begin : second - V; // some columns again rather than a part of a vector
    transform<T, V>(lengths.firstRadices, first, plan.first, {a.re + j, a.im + j, second}, x, y);
    for (int64_t start = 0; start < first; start += V) {
      int64_t k = start + V <= first ? start : first - V;
      Vec re[V], im[V];
#pragma clang loop unroll(full)
      for (int i = 0; i < V; ++i) {
        Vec c = load<T, V>(plan.crossRe + (k + i) * second + j), d = load<T, V>(plan.crossIm + (k + i) * second + j);
        Vec yr = load<T, V>(y.re + (k + i) * y.stride), yi = load<T, V>(y.im + (k + i) * y.stride);
        re[i] = yr * c - yi * d;
        im[i] = yr * d + yi * c;
      }
      transpose<T, V>(re);
#pragma clang loop unroll(full)
      for (int i = 0; i < V; ++i)
        store<T, V>(b.re + (j + i) * first + k, re[i]);
      transpose<T, V>(im);
#pragma clang loop unroll(full)
      for (int i = 0; i < V; ++i)
        store<T, V>(b.im + (j + i) * first + k, im[i]);
    }
  }
  for (int64_t begin = 0; begin < first; begin += V) {
    int64_t k = begin + V <= first ? begin : first - V;
    transform<T, V>(lengths.secondRadices, second, plan.second, {b.re + k, b.im + k, first}, x,
                    {a.re + k, a.im + k, first});
  }
}

template <typename T, int V = kWidest<T>>
void transformRow(const Lengths &lengths, const Tables<T> &plan, Place<T> a, Place<T> b, T *local) {
  if constexpr (V > kNarrowest<T>) {
    if (lengths.first < V)
      return transformRow<T, V / 2>(lengths, plan, a, b, local);
  }
  transformMatrix<T, V>(lengths, plan, a, b, local);
}

//===--- real numbers by complex ones of half the length ----------------------===//

/// Elements k and length - k of the spectrum of 2 * length real numbers, of those of its even and odd ones as parts.
template <typename E, typename W> DISC_INLINE void splitForward(Pair<E> &a, Pair<E> &b, W c, W d) {
  typedef __typeof__(a.re[0] + 0) T;
  E er = T(0.5) * (a.re + b.re), ei = T(0.5) * (a.im - b.im), dr = T(0.5) * (a.re - b.re), di = T(0.5) * (a.im + b.im);
  E tr = c * di + d * dr, ti = d * di - c * dr;
  a = {er + tr, ei + ti};
  b = {er - tr, ti - ei};
}

/// The opposite, times 2.
template <typename E, typename W> DISC_INLINE void splitBackward(Pair<E> &a, Pair<E> &b, W c, W d) {
  E er = a.re + b.re, ei = a.im - b.im, dr = a.re - b.re, di = a.im + b.im;
  E re = c * dr + d * di, im = c * di - d * dr;
  a = {er - im, ei + re};
  b = {er + im, re - ei};
}

template <bool kBackward, typename E, typename W> DISC_INLINE void split(Pair<E> &a, Pair<E> &b, W c, W d) {
  if (kBackward)
    splitBackward(a, b, c, d);
  else
    splitForward(a, b, c, d);
}

/// Elements [begin, end) and what mirrors them, V at once.
template <typename T, int V, bool kBackward>
int64_t splitPart(const Tables<T> &plan, T *re, T *im, int64_t length, int64_t k) {
  using Vec = Vector<T, V>;
  for (; k + V <= length - k - V + 1; k += V) {
    int64_t mirror = length - k - V + 1;
    Pair<Vec> a = {load<T, V>(re + k), load<T, V>(im + k)};
    Pair<Vec> b = {reversed<V>(load<T, V>(re + mirror), Lanes<V>()), reversed<V>(load<T, V>(im + mirror), Lanes<V>())};
    split<kBackward>(a, b, load<T, V>(plan.splitRe + k), load<T, V>(plan.splitIm + k));
    store<T, V>(re + k, a.re);
    store<T, V>(im + k, a.im);
    store<T, V>(re + mirror, reversed<V>(b.re, Lanes<V>()));
    store<T, V>(im + mirror, reversed<V>(b.im, Lanes<V>()));
  }
  return k;
}

/// In place, between `length` elements and the length + 1 of half a spectrum.
template <typename T, bool kBackward> void splitRow(const Tables<T> &plan, T *re, T *im, int64_t length) {
  using One = Vector<T, 1>;
  if (kBackward) {
    T sum = re[0] + re[length], difference = re[0] - re[length];
    re[0] = sum;
    im[0] = difference;
  } else {
    T sum = re[0] + im[0], difference = re[0] - im[0];
    re[0] = sum;
    re[length] = difference;
    im[0] = im[length] = 0;
  }
  int64_t k = splitPart<T, kWidest<T>, kBackward>(plan, re, im, length, 1);
  for (; k <= length - k; ++k) {
    Pair<One> a = {load<T, 1>(re + k), load<T, 1>(im + k)},
              b = {load<T, 1>(re + length - k), load<T, 1>(im + length - k)};
    split<kBackward>(a, b, plan.splitRe[k], plan.splitIm[k]);
    store<T, 1>(re + length - k, b.re);
    store<T, 1>(im + length - k, b.im);
    store<T, 1>(re + k, a.re);
    store<T, 1>(im + k, a.im);
  }
}

/// The same for V rows: [length][2][V].
template <typename T, int V, bool kBackward> void splitRows(const Tables<T> &plan, T *data, int64_t length) {
  using Vec = Vector<T, V>;
  T *last = data + 2 * V * length;
  if (kBackward) {
    Vec a = load<T, V>(data), b = load<T, V>(last);
    store<T, V>(data, a + b);
    store<T, V>(data + V, a - b);
  } else {
    Vec a = load<T, V>(data), b = load<T, V>(data + V);
    store<T, V>(data, a + b);
    store<T, V>(data + V, Vec{});
    store<T, V>(last, a - b);
    store<T, V>(last + V, Vec{});
  }
  for (int64_t k = 1; k <= length - k; ++k) {
    T *x = data + 2 * V * k, *y = data + 2 * V * (length - k);
    Pair<Vec> a = {load<T, V>(x), load<T, V>(x + V)}, b = {load<T, V>(y), load<T, V>(y + V)};
    split<kBackward>(a, b, plan.splitRe[k], plan.splitIm[k]);
    store<T, V>(y, b.re);
    store<T, V>(y + V, b.im);
    store<T, V>(x, a.re);
    store<T, V>(x + V, a.im);
  }
}

//===--- lengths with large primes --------------------------------------------===//

/// Bluestein's: the transform of lengths.length elements by a convolution of lengths.size.
template <typename T>
void convolveRow(const Lengths &lengths, const Tables<T> &plan, Place<T> a, Place<T> b, T *local) {
  const int64_t length = lengths.length, size = lengths.size;
  T *__restrict re = a.re, *__restrict im = a.im;
  for (int64_t k = 0; k < length; ++k) {
    T x = re[k], y = im[k], c = plan.chirpRe[k], d = plan.chirpIm[k];
    re[k] = x * c - y * d;
    im[k] = x * d + y * c;
  }
  std::memset(re + length, 0, size_t(size - length) * sizeof(T));
  std::memset(im + length, 0, size_t(size - length) * sizeof(T));
  transformRow<T>(lengths, plan, a, b, local);
  for (int64_t k = 0; k < size; ++k) {
    T x = re[k], y = im[k], c = plan.spectrumRe[k], d = plan.spectrumIm[k];
    re[k] = x * c - y * d;
    im[k] = x * d + y * c;
  }
  // Backward is forward with the parts exchanged.
  transformRow<T>(lengths, plan, {a.im, a.re, 1}, b, local);
  for (int64_t k = 0; k < length; ++k) {
    T x = re[k], y = im[k], c = plan.chirpRe[k], d = plan.chirpIm[k];
    re[k] = x * c - y * d;
    im[k] = x * d + y * c;
  }
}

/// Multiplies [count][2][V] by factors; `x` says which part is first.
template <typename T, int V> void multiplyRows(Place<T> x, const T *factorRe, const T *factorIm, int64_t count) {
  using Vec = Vector<T, V>;
  for (int64_t k = 0; k < count; ++k) {
    T *re = x.re + k * x.stride, *im = x.im + k * x.stride, c = factorRe[k], d = factorIm[k];
    Vec a = load<T, V>(re), b = load<T, V>(im);
    store<T, V>(re, a * c - b * d);
    store<T, V>(im, a * d + b * c);
  }
}

/// V rows, [size][2][V], with the parts exchanged if backward.
template <typename T, int V> Place<T> placeOfRows(T *data, bool backward) {
  return {data + (backward ? V : 0), data + (backward ? 0 : V), 2 * V};
}

/// Transforms V rows by way of `y` and back. Returns `x` or `y`, which has the result.
template <typename T, int V> T *passesOfRows(const Lengths &lengths, const Tables<T> &plan, T *x, T *y, bool backward) {
  bool even = lengths.radices.count % 2 == 0;
  Place<T> from = placeOfRows<T, V>(x, backward), to = placeOfRows<T, V>(y, backward);
  transform<T, V>(lengths.radices, lengths.size, plan.rows, {from.re, from.im, from.stride}, even ? to : from,
                  even ? from : to);
  return even ? x : y;
}

/// The same for any length.
template <typename T, int V>
T *transformRows(const Lengths &lengths, const Tables<T> &plan, T *x, T *y, bool backward) {
  if (!lengths.convolution)
    return passesOfRows<T, V>(lengths, plan, x, y, backward);
  const int64_t length = lengths.length;
  multiplyRows<T, V>(placeOfRows<T, V>(x, backward), plan.chirpRe, plan.chirpIm, length);
  std::memset(x + 2 * V * length, 0, size_t(2 * V * (lengths.size - length)) * sizeof(T));
  T *product = passesOfRows<T, V>(lengths, plan, x, y, backward);
  multiplyRows<T, V>(placeOfRows<T, V>(product, backward), plan.spectrumRe, plan.spectrumIm, lengths.size);
  T *result = passesOfRows<T, V>(lengths, plan, product, product == x ? y : x, !backward);
  multiplyRows<T, V>(placeOfRows<T, V>(result, backward), plan.chirpRe, plan.chirpIm, length);
  return result;
}

//===--- rows in and out -------------------------------------------------------===//

/// Elements of V rows that start at `from`, to [width][V]. Numbers are `stride` apart, and have parts if `pairs`.
template <typename T, int V>
void loadRows(const Access &access, const T *const *from, T *to, int64_t width, int components) {
  using Vec = Vector<T, V>;
  bool neighbours = access.part == 1 || components == 1;
  int64_t j = 0;
  if (neighbours && access.stride == components) {
    for (; j + V <= width; j += V) {
      Vec rows[V];
#pragma clang loop unroll(full)
      for (int i = 0; i < V; ++i)
        rows[i] = load<T, V>(from[i] + j);
      transpose<T, V>(rows);
#pragma clang loop unroll(full)
      for (int i = 0; i < V; ++i)
        store<T, V>(to + (j + i) * V, rows[i]);
    }
  } else if (neighbours && consecutive<V>(from, components)) {
    const T *base = from[0];
    if (components == 1) {
      for (; j < width; ++j)
        store<T, V>(to + j * V, load<T, V>(base + j * access.stride));
    } else {
      for (; j < width; j += 2) {
        Vec a = load<T, V>(base + j / 2 * access.stride), b = load<T, V>(base + j / 2 * access.stride + V);
        store<T, V>(to + j * V, everySecond(a, b, Lanes<V>()));
        store<T, V>(to + j * V + V, everyOther(a, b, Lanes<V>()));
      }
    }
  }
  for (; j < width; ++j) {
    int64_t offset = components == 1 ? j * access.stride : j / 2 * access.stride + j % 2 * access.part;
    for (int i = 0; i < V; ++i)
      to[j * V + i] = from[i][offset];
  }
}

/// The opposite, times `scale`. Results have no gaps: parts are neighbours.
template <typename T, int V>
void storeRows(int64_t stride, const T *from, T *const *to, int64_t width, int components, T scale) {
  using Vec = Vector<T, V>;
  int64_t j = 0;
  if (stride == components) {
    for (; j + V <= width; j += V) {
      Vec rows[V];
#pragma clang loop unroll(full)
      for (int i = 0; i < V; ++i)
        rows[i] = load<T, V>(from + (j + i) * V) * scale;
      transpose<T, V>(rows);
#pragma clang loop unroll(full)
      for (int i = 0; i < V; ++i)
        store<T, V>(to[i] + j, rows[i]);
    }
  } else if (consecutive<V>(to, components)) {
    T *base = to[0];
    if (components == 1)
      for (; j < width; ++j)
        store<T, V>(base + j * stride, load<T, V>(from + j * V) * scale);
    else
      for (; j < width; j += 2)
        storePairs<T, V>(base + j / 2 * stride, load<T, V>(from + j * V) * scale, load<T, V>(from + j * V + V) * scale);
  }
  for (; j < width; ++j) {
    int64_t offset = components == 1 ? j * stride : j / 2 * stride + j % 2;
    for (int i = 0; i < V; ++i)
      to[i][offset] = from[j * V + i] * scale;
  }
}

/// The rest of a whole spectrum of a row of real numbers.
template <typename T> void mirror(const Job<T> &job, T *to) {
  int64_t stride = job.resultStride;
  for (int64_t k = job.n / 2 + 1; k < job.results; ++k) {
    to[k * stride] = to[(job.n - k) * stride];
    to[k * stride + 1] = -to[(job.n - k) * stride + 1];
  }
}

/// Rows [row, row + count), count being V at most, as lanes.
template <typename T, int V> void doRows(const Job<T> &job, int64_t row, int64_t count, T *scratch) {
  using Vec = Vector<T, V>;
  const Lengths &lengths = job.lengths;
  const int64_t length = lengths.length, half = job.n / 2;
  const T *from[V];
  T *to[V];
  StridedWalk walk(job.rank, job.dims, job.access.strides, row);
  for (int64_t i = 0; i < V; ++i) {
    // Lanes without a row repeat the last.
    from[i] = i < count ? job.x + walk.offset : from[count - 1];
    to[i] = i < count ? job.result(row + i) : to[count - 1];
    if (i + 1 < count)
      walk.next();
  }
  T *x = scratch, *y = scratch + 2 * V * (lengths.size + 1), *result;
  int64_t filled = job.results < half + 1 ? job.results : half + 1;
  switch (job.kind) {
  case ComplexToComplex:
    loadRows<T, V>(job.access, from, x, 2 * length, 2);
    result = transformRows<T, V>(lengths, job.plan, x, y, job.backward);
    return storeRows<T, V>(job.resultStride, result, to, 2 * length, 2, job.scale);
  case RealToComplex:
    if (lengths.split) {
      loadRows<T, V>(job.access, from, x, 2 * length, 1);
    } else {
      loadRows<T, V>(job.access, from, y, length, 1);
      for (int64_t k = 0; k < length; ++k) {
        store<T, V>(x + 2 * V * k, load<T, V>(y + V * k));
        store<T, V>(x + 2 * V * k + V, Vec{});
      }
    }
    result = transformRows<T, V>(lengths, job.plan, x, y, false);
    if (lengths.split)
      splitRows<T, V, false>(job.plan, result, length);
    storeRows<T, V>(job.resultStride, result, to, 2 * filled, 2, job.scale);
    for (int64_t i = 0; i < count; ++i)
      mirror(job, to[i]);
    return;
  case ComplexToReal:
    loadRows<T, V>(job.access, from, x, 2 * (half + 1), 2);
    if (lengths.split) {
      splitRows<T, V, true>(job.plan, x, length);
      result = transformRows<T, V>(lengths, job.plan, x, y, true);
    } else {
      store<T, V>(x + V, Vec{});
      for (int64_t k = half + 1; k < length; ++k) {
        store<T, V>(x + 2 * V * k, load<T, V>(x + 2 * V * (length - k)));
        store<T, V>(x + 2 * V * k + V, -load<T, V>(x + 2 * V * (length - k) + V));
      }
      result = transformRows<T, V>(lengths, job.plan, x, y, true);
      for (int64_t k = 1; k < length; ++k)
        store<T, V>(result + V * k, load<T, V>(result + 2 * V * k));
    }
    return storeRows<T, V>(job.resultStride, result, to, job.n, 1, job.scale);
  }
}

/// Splits pairs, `stride` apart, into parts.
template <typename T> void loadPairs(const T *from, int64_t stride, int64_t part, Place<T> to, int64_t count) {
  constexpr int V = kWidest<T>;
  int64_t k = 0;
  if (stride == 2 && part == 1)
    for (; k + V <= count; k += V) {
      Vector<T, V> a = load<T, V>(from + 2 * k), b = load<T, V>(from + 2 * k + V);
      store<T, V>(to.re + k, everySecond(a, b, Lanes<V>()));
      store<T, V>(to.im + k, everyOther(a, b, Lanes<V>()));
    }
  for (; k < count; ++k) {
    to.re[k] = from[k * stride];
    to.im[k] = from[k * stride + part];
  }
}

template <typename T>
void storePairs(const T *re, const T *im, T *to, int64_t stride, int64_t part, int64_t count, T scale) {
  constexpr int V = kWidest<T>;
  int64_t k = 0;
  if (stride == 2 && part == 1)
    for (; k + V <= count; k += V)
      storePairs<T, V>(to + 2 * k, load<T, V>(re + k) * scale, load<T, V>(im + k) * scale);
  for (; k < count; ++k) {
    to[k * stride] = re[k] * scale;
    to[k * stride + part] = im[k] * scale;
  }
}

/// One row.
template <typename T> void doRow(const Job<T> &job, const T *from, T *to, T *scratch) {
  const Lengths &lengths = job.lengths;
  const int64_t length = lengths.length, half = job.n / 2, room = lengths.size + kPadding, stride = job.access.stride;
  const int64_t out = job.resultStride;
  Place<T> a = {scratch, scratch + room, 1}, b = {scratch + 2 * room, scratch + 3 * room, 1};
  T *local = scratch + 4 * room;
  bool backward = job.backward;
  if (job.kind == ComplexToComplex) {
    loadPairs(from, stride, job.access.part, a, length);
  } else if (job.kind == RealToComplex && lengths.split) {
    loadPairs(from, 2 * stride, stride, a, length);
  } else if (job.kind == RealToComplex) {
    for (int64_t k = 0; k < length; ++k)
      a.re[k] = from[k * stride];
    std::memset(a.im, 0, size_t(length) * sizeof(T));
  } else {
    loadPairs(from, stride, job.access.part, a, half + 1);
    if (lengths.split) {
      splitRow<T, true>(job.plan, a.re, a.im, length);
    } else {
      a.im[0] = 0;
      for (int64_t k = half + 1; k < length; ++k) {
        a.re[k] = a.re[length - k];
        a.im[k] = -a.im[length - k];
      }
    }
  }
  Place<T> parts = backward ? Place<T>{a.im, a.re, 1} : a;
  if (lengths.convolution)
    convolveRow<T>(lengths, job.plan, parts, b, local);
  else
    transformRow<T>(lengths, job.plan, parts, b, local);
  if (job.kind == ComplexToComplex) {
    storePairs(a.re, a.im, to, out, 1, length, job.scale);
  } else if (job.kind == RealToComplex) {
    if (lengths.split)
      splitRow<T, false>(job.plan, a.re, a.im, length);
    storePairs(a.re, a.im, to, out, 1, job.results < half + 1 ? job.results : half + 1, job.scale);
    mirror(job, to);
  } else if (lengths.split) {
    storePairs(a.re, a.im, to, 2 * out, out, length, job.scale);
  } else {
    for (int64_t k = 0; k < length; ++k)
      to[k * out] = a.re[k] * job.scale;
  }
}

/// Transforms some of the rows [row, end), with the rows from `begin` on at hand to fill a vector. Returns how many.
template <typename T, int V = kWidest<T>>
int64_t someRows(const Job<T> &job, int64_t begin, int64_t row, int64_t end, T *scratch) {
  int64_t left = end - row;
  if constexpr (V > kNarrowest<T>) {
    if (left <= V / 2 || (job.inner > 1 && left < V && row - begin < V - left))
      return someRows<T, V / 2>(job, begin, row, end, scratch);
  }
  if (left < V && row - begin >= V - left)
    row = end - V; // some rows again
  doRows<T, V>(job, row, end - row < V ? end - row : V, scratch);
  return left < V ? left : V;
}

template <typename T> void doJob(const Job<T> &job, int64_t begin, int64_t end, T *scratch) {
  if (job.together) {
    while (begin < end) {
      // Rows that are neighbours in the results come first in the order of rows.
      int64_t last = job.inner > 1 ? begin + job.inner - begin % job.inner : end;
      last = last < end ? last : end;
      for (int64_t row = begin; row < last;)
        row += someRows<T>(job, begin, row, last, scratch);
      begin = last;
    }
    return;
  }
  StridedWalk walk(job.rank, job.dims, job.access.strides, begin);
  for (int64_t row = begin; row < end; ++row, walk.next())
    doRow(job, job.x + walk.offset, job.result(row), scratch);
}

//===--- plans -----------------------------------------------------------------===//

/// exp(-2 pi i k / n) for k below `count`: a root in steps, times one plus the difference of a small angle's from 1.
template <typename T> void fillRoots(T *re, T *im, int64_t n, int64_t count) {
  int64_t step = 8;
  while (step < 256 && step * step < n)
    step *= 2;
  double c[256], d[256];
  for (int64_t i = 0; i < step && i < count; ++i) {
    double angle = kPi * double(i) / double(n), sine = std::sin(angle);
    c[i] = -2 * sine * sine;
    d[i] = -2 * sine * std::cos(angle);
  }
  for (int64_t k = 0; k < count; k += step) {
    Root base = rootOf(k, n);
    int64_t end = count - k < step ? count - k : step;
    for (int64_t i = 0; i < end; ++i) {
      re[k + i] = T(base.re + (base.re * c[i] - base.im * d[i]));
      im[k + i] = T(base.im + (base.re * d[i] + base.im * c[i]));
    }
  }
}

/// The twiddle factors of the passes of length n, where `factor` times as many roots are stored.
template <typename T>
void fillTwiddles(T *to, const Radices &radices, int64_t n, const T *re, const T *im, int64_t factor) {
  int64_t s = 1;
  for (int i = 0; i < radices.count; ++i) {
    int radix = radices.radix[i];
    int64_t m = n / s / radix;
    for (int64_t p = 1; p < m; ++p)
      for (int64_t k = 1; k < radix; ++k, to += 2) {
        to[0] = re[p * k * s * factor];
        to[1] = im[p * k * s * factor];
      }
    s *= radix;
  }
}

/// All tables. `scratch` is that of a transform.
template <typename T> void makePlan(const Lengths &lengths, const Tables<T> &plan, T *scratch) {
  const int64_t size = lengths.size, length = lengths.length;
  auto writable = [](const T *table) { return const_cast<T *>(table); };
  if (lengths.split)
    fillRoots<T>(writable(plan.splitRe), writable(plan.splitIm), 2 * length, length / 2 + 1);
  T *re = scratch, *im = scratch + size + kPadding;
  fillRoots<T>(re, im, size, size);
  if (plan.rows)
    fillTwiddles<T>(writable(plan.rows), lengths.radices, size, re, im, 1);
  if (lengths.first) {
    fillTwiddles<T>(writable(plan.first), lengths.firstRadices, lengths.first, re, im, lengths.second);
    fillTwiddles<T>(writable(plan.second), lengths.secondRadices, lengths.second, re, im, lengths.first);
    T *crossRe = writable(plan.crossRe), *crossIm = writable(plan.crossIm);
    for (int64_t k = 0; k < lengths.first; ++k)
      for (int64_t j = 0; j < lengths.second; ++j) {
        *crossRe++ = re[k * j];
        *crossIm++ = im[k * j];
      }
  }
  if (!lengths.convolution)
    return;
  fillRoots<T>(re, im, 2 * length, 2 * length);
  T *chirpRe = writable(plan.chirpRe), *chirpIm = writable(plan.chirpIm);
  for (int64_t k = 0, square = 0; k < length; ++k) {
    chirpRe[k] = re[square];
    chirpIm[k] = im[square];
    square += 2 * k + 1; // k^2 modulo 2 * length
    square -= square >= 2 * length ? 2 * length : 0;
  }
  T *spectrumRe = writable(plan.spectrumRe), *spectrumIm = writable(plan.spectrumIm);
  std::memset(spectrumRe, 0, size_t(size) * sizeof(T));
  std::memset(spectrumIm, 0, size_t(size) * sizeof(T));
  T scale = T(1) / T(size);
  for (int64_t k = 0; k < length; ++k) {
    int64_t other = k ? size - k : 0;
    spectrumRe[other] = spectrumRe[k] = chirpRe[k] * scale;
    spectrumIm[other] = spectrumIm[k] = -chirpIm[k] * scale;
  }
  const int64_t room = size + kPadding;
  transformRow<T>(lengths, plan, {spectrumRe, spectrumIm, 1}, {scratch, scratch + room, 1}, scratch + 2 * room);
}

#undef DISC_INLINE
