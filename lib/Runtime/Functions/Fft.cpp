//===- Fft.cpp - discrete Fourier transforms of any length -----------------===//
//
// Lengths of small primes by Stockham's autosort with mixed radices (Van Loan, Computational Frameworks for the Fast
// Fourier Transform, 1.7), long rows as a matrix whose columns and then rows are transformed (3.3); others by
// Bluestein's convolution (4.2). Real rows of even length are complex rows of half the length. Roots of unity and the
// transformed chirp are a tensor, the plan, which is computed before and, for a static length, once. It depends on the
// length alone, not on the processor: a library's plan is computed where the library is made.
//
// Debian 12 has no maintained header-only FFT library, and a library needs only the C and C++ libraries: hence ours.
//
//===----------------------------------------------------------------------===//

#include "lib/Runtime/Core/Cpu.h"
#include "lib/Runtime/Functions/Elements.h"

#include <cmath>
#include <utility>

using namespace disc::rt;

namespace {
constexpr double kPi = 3.14159265358979323846;
/// Elements behind a table or row that a vector may reach over its end.
constexpr int64_t kPadding = 16;
/// The longest transforms that are done for many rows at once: their scratch memory fits in the second-level cache.
constexpr int64_t kLongestTogether = 2048;

/// cos and sin of 2 pi k / R.
template <int R> struct UnitRoots;
template <> struct UnitRoots<3> {
  static constexpr double cosines[] = {1, -0.5, -0.5};
  static constexpr double sines[] = {0, 0.86602540378443864676, -0.86602540378443864676};
};
template <> struct UnitRoots<5> {
  static constexpr double cosines[] = {1, 0.3090169943749474241, -0.8090169943749474241, -0.8090169943749474241,
                                       0.3090169943749474241};
  static constexpr double sines[] = {0, 0.95105651629515357212, 0.58778525229247312917, -0.58778525229247312917,
                                     -0.95105651629515357212};
};
template <> struct UnitRoots<7> {
  static constexpr double cosines[] = {1,
                                       0.62348980185873353053,
                                       -0.22252093395631440429,
                                       -0.90096886790241912624,
                                       -0.90096886790241912624,
                                       -0.22252093395631440429,
                                       0.62348980185873353053};
  static constexpr double sines[] = {0,
                                     0.78183148246802980871,
                                     0.97492791218182360702,
                                     0.43388373911755812048,
                                     -0.43388373911755812048,
                                     -0.97492791218182360702,
                                     -0.78183148246802980871};
};
template <> struct UnitRoots<11> {
  static constexpr double cosines[] = {1,
                                       0.84125353283118116886,
                                       0.41541501300188642553,
                                       -0.14231483827328514044,
                                       -0.65486073394528506406,
                                       -0.95949297361449738989,
                                       -0.95949297361449738989,
                                       -0.65486073394528506406,
                                       -0.14231483827328514044,
                                       0.41541501300188642553,
                                       0.84125353283118116886};
  static constexpr double sines[] = {0,
                                     0.54064081745559758211,
                                     0.90963199535451837141,
                                     0.98982144188093273238,
                                     0.75574957435425828377,
                                     0.28173255684142969771,
                                     -0.28173255684142969771,
                                     -0.75574957435425828377,
                                     -0.98982144188093273238,
                                     -0.90963199535451837141,
                                     -0.54064081745559758211};
};
template <> struct UnitRoots<13> {
  static constexpr double cosines[] = {1,
                                       0.8854560256532098959,
                                       0.56806474673115580251,
                                       0.12053668025532305335,
                                       -0.35460488704253562597,
                                       -0.74851074817110109863,
                                       -0.97094181742605202716,
                                       -0.97094181742605202716,
                                       -0.74851074817110109863,
                                       -0.35460488704253562597,
                                       0.12053668025532305335,
                                       0.56806474673115580251,
                                       0.8854560256532098959};
  static constexpr double sines[] = {0,
                                     0.46472317204376854566,
                                     0.82298386589365639458,
                                     0.9927088740980539928,
                                     0.93501624268541482344,
                                     0.66312265824079520238,
                                     0.23931566428755776715,
                                     -0.23931566428755776715,
                                     -0.66312265824079520238,
                                     -0.93501624268541482344,
                                     -0.9927088740980539928,
                                     -0.82298386589365639458,
                                     -0.46472317204376854566};
};

/// The radices of a transform's passes.
struct Radices {
  explicit Radices(int64_t n) {
    int twos = 0;
    for (; n > 1 && n % 2 == 0; n /= 2)
      ++twos;
    while (twos > 0) {
      int bits = twos == 4 || twos == 2 ? 2 : twos >= 3 ? 3 : 1;
      radix[count++] = 1 << bits;
      twos -= bits;
    }
    for (int odd : {3, 5, 7, 11, 13})
      for (; n > 1 && n % odd == 0; n /= odd)
        radix[count++] = odd;
    small = n <= 1;
  }

  int count = 0;
  int radix[48];
  bool small; ///< The length has no larger primes.
};

/// The largest divisor up to the square root.
int64_t divisorOf(int64_t n) {
  auto divisor = int64_t(std::sqrt(double(n)));
  while (n % divisor)
    --divisor;
  return divisor;
}

/// The length itself or that of the convolution that it needs: the least power of two, or thrice or five times one,
/// ..., from 2 * n - 1 on.
int64_t sizeOf(int64_t n) {
  if (n <= 1 || Radices(n).small)
    return n;
  int64_t best = INT64_MAX;
  for (int64_t size : {1, 3, 5, 9, 15}) {
    while (size < 2 * n - 1)
      size *= 2;
    best = size < best ? size : best;
  }
  return best;
}

/// What is transformed for a length.
struct Lengths {
  Lengths(int64_t n, bool real)
      : split(real && n % 2 == 0), length(split ? n / 2 : n), size(sizeOf(length)), convolution(size != length),
        first(divisorOf(size)), second(size / first), radices(size), firstRadices(first), secondRadices(second) {}

  bool split;     ///< Even and odd elements of real numbers are the parts of complex ones.
  int64_t length; ///< Of the complex transform.
  int64_t size;   ///< `length`, or that of the convolution.
  bool convolution;
  int64_t first, second; ///< Rows and columns of the matrix that a row is seen as.
  Radices radices, firstRadices, secondRadices;
};

/// The tables of a plan, one after the other.
template <typename T> struct Tables {
  Tables(const Lengths &lengths, const T *data) {
    const T *begin = data;
    auto table = [&](bool needed, int64_t elements) {
      const T *at = data;
      data += needed ? elements : 0;
      return needed ? at : nullptr;
    };
    int64_t splits = lengths.length / 2 + 1 + kPadding;
    splitRe = table(lengths.split, splits);
    splitIm = table(lengths.split, splits);
    chirpRe = table(lengths.convolution, lengths.length);
    chirpIm = table(lengths.convolution, lengths.length);
    spectrumRe = table(lengths.convolution, lengths.size);
    spectrumIm = table(lengths.convolution, lengths.size);
    rows = table(lengths.size <= kLongestTogether, 2 * lengths.size);
    first = table(true, 2 * lengths.first);
    second = table(true, 2 * lengths.second);
    crossRe = table(true, lengths.size + kPadding);
    crossIm = table(true, lengths.size + kPadding);
    count = data - begin;
  }

  int64_t count;              ///< Elements of all.
  const T *splitRe, *splitIm; ///< Roots of the real length.
  const T *chirpRe, *chirpIm;
  const T *spectrumRe, *spectrumIm; ///< The transform of the chirp's conjugate.
  const T *rows, *first, *second;   ///< Twiddle factors of passes: of the whole size, and of the matrix's extents.
  const T *crossRe, *crossIm;       ///< Twiddle factors between columns and rows of the matrix.
};

struct Root {
  double re, im;
};

/// exp(-2 pi i k / n), from an angle of an eighth of a turn at most.
Root rootOf(int64_t k, int64_t n) {
  int64_t eighth = 8 * k / n;
  double quarter = double((eighth + 1) / 2);
  // k / n - quarter / 4 lies in [-1/8, 1/8]: exact but for one rounding.
  double angle = 2 * kPi * (double(4 * k) - quarter * double(n)) / (4 * double(n));
  double c = std::cos(angle), s = std::sin(angle);
  switch (int(quarter) & 3) {
  case 0:
    return {c, -s};
  case 1:
    return {-s, -c};
  case 2:
    return {-c, s};
  default:
    return {s, c};
  }
}

enum Kind : int64_t { ComplexToComplex, RealToComplex, ComplexToReal };

/// How the elements of an input's row are stored.
struct Access {
  int64_t stride, part; ///< Between neighbours; between the parts of one.
  int64_t strides[StridedWalk::kMaxRank];
};

/// The transforms of a call: the rows are what is left of the extents without the transformed one.
template <typename T> struct Job {
  Job(const disc_view *operands, const int64_t *config)
      : n(config[0]), kind(Kind(config[1])), backward(config[2] || kind == ComplexToReal),
        scale(T(configFloat(config[3]))), lengths(n, kind != ComplexToComplex),
        plan(lengths, static_cast<const T *>(operands[1].data)), x(static_cast<const T *>(operands[0].data)),
        y(static_cast<T *>(operands[2].data)) {
    const disc_view &in = operands[0];
    int64_t pairs = kind == RealToComplex ? 0 : 1, along = in.rank - 1 - pairs - config[4];
    access.stride = in.strides[along];
    access.part = pairs ? in.strides[in.rank - 1] : 0;
    for (int64_t i = 0; i < in.rank - pairs; ++i) {
      if (i == along)
        continue;
      dims[rank] = in.dims[i];
      access.strides[rank++] = in.strides[i];
      count *= in.dims[i];
      inner *= i > along ? in.dims[i] : 1;
    }
    results = operands[2].dims[along];
    resultStride = inner * components();
    // Decided by the whole call, as results must not depend on its division into tasks; which lane of how many a row
    // has does not matter to them.
    together = lengths.first < kNarrowest || (lengths.size <= kLongestTogether && config[5] >= 8 && count >= 8);
  }

  int64_t components() const { return kind == ComplexToReal ? 1 : 2; }

  /// Where the results of a row are stored.
  T *result(int64_t row) const { return y + (row / inner * results * inner + row % inner) * components(); }

  static constexpr int64_t kNarrowest = 16 / sizeof(T);
  int64_t n;
  Kind kind;
  bool backward;
  T scale;
  Lengths lengths;
  Tables<T> plan;
  const T *x;
  T *y;
  int64_t rank = 0, count = 1, inner = 1, results, resultStride;
  int64_t dims[StridedWalk::kMaxRank];
  Access access;
  bool together; ///< Rows are the lanes of vectors.
};

/// Whether each of V pointers is `step` behind the one before.
template <int V, typename T> bool consecutive(T *const *pointers, int64_t step) {
  for (int i = 1; i < V; ++i)
    if (pointers[i] != pointers[0] + i * step)
      return false;
  return true;
}

#define DISC_FFT_BYTES 16
namespace baseline {
#include "lib/Runtime/Functions/FftKernels.h"
} // namespace baseline
#undef DISC_FFT_BYTES

#if defined(__x86_64__) && defined(__clang__)
#define DISC_FFT_VARIANTS
#define DISC_FFT_BYTES 32
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
namespace avx2 {
#include "lib/Runtime/Functions/FftKernels.h"
} // namespace avx2
#pragma clang attribute pop
#undef DISC_FFT_BYTES

#define DISC_FFT_BYTES 64
#pragma clang attribute push(__attribute__((target("avx2,fma,avx512f,avx512dq,avx512bw,avx512vl"))),                   \
                             apply_to = function)
namespace avx512 {
#include "lib/Runtime/Functions/FftKernels.h"
} // namespace avx512
#pragma clang attribute pop
#undef DISC_FFT_BYTES
#endif

#ifdef DISC_FFT_VARIANTS
enum class Variant { Baseline, Avx2, Avx512 };

Variant variant() {
  static const Variant chosen = missingFeatures("avx2,fma,avx512f,avx512dq,avx512bw,avx512vl").empty() ? Variant::Avx512
                                : missingFeatures("avx2,fma").empty() ? Variant::Avx2
                                                                      : Variant::Baseline;
  return chosen;
}
#endif

template <typename T> void makePlan(const Lengths &lengths, const Tables<T> &plan, T *scratch) {
#ifdef DISC_FFT_VARIANTS
  if (variant() == Variant::Avx512)
    return avx512::makePlan(lengths, plan, scratch);
  if (variant() == Variant::Avx2)
    return avx2::makePlan(lengths, plan, scratch);
#endif
  baseline::makePlan(lengths, plan, scratch);
}

template <typename T> void doJob(const Job<T> &job, int64_t begin, int64_t end, T *scratch) {
#ifdef DISC_FFT_VARIANTS
  if (variant() == Variant::Avx512)
    return avx512::doJob(job, begin, end, scratch);
  if (variant() == Variant::Avx2)
    return avx2::doJob(job, begin, end, scratch);
#endif
  baseline::doJob(job, begin, end, scratch);
}

template <typename T> bool fillPlan(const disc_view &result, const int64_t *config, void *scratch) {
  Lengths lengths(config[0], config[1] != 0);
  Tables<T> tables(lengths, static_cast<T *>(result.data));
  if (result.dims[0] < tables.count)
    return false;
  makePlan(lengths, tables, static_cast<T *>(scratch));
  return true;
}

template <typename T>
bool transformTasks(const disc_view *operands, const int64_t *config, int64_t begin, int64_t end, void *scratch) {
  Job<T> job(operands, config);
  if (operands[1].dims[0] < job.plan.count)
    return false;
  int64_t rows = config[5], last = end * rows;
  doJob(job, begin * rows, last < job.count ? last : job.count, static_cast<T *>(scratch));
  return true;
}
} // namespace

/// -> plan [size]: what transforms of length config[0] need, of real numbers if config[1]. Let m be the length, or half
/// of it where it is even and numbers are real, and c be 0, or, where m has primes above 13, the least number from
/// 2 * m - 1 on that is a power of two times 1, 3, 5, 9 or 15 (5 / 2 * m suffices). size: 7 * m + 9 * c + 160 suffices.
/// f32 or f64. scratch: as `fft`.
int32_t disc_fn_fft_plan(disc_call *call, const disc_view *operands, const int64_t *config, int64_t, int64_t,
                         void *scratch) {
  bool done = config[0] >= 1 && (operands[0].dtype == DISC_F64 ? fillPlan<double>(operands[0], config, scratch)
                                                               : fillPlan<float>(operands[0], config, scratch));
  return done ? DISC_OK : disc_rt_function_failed(call, DISC_ERROR_SHAPE, "no room for the plan");
}

/// x, plan -> y: the transforms of rows along a dim. config: length n; kind: 0 x [.., n, .., 2] to y [.., n, .., 2], 1
/// x [.., n, ..] to as many [.., m, .., 2] as y has, 2 x [.., n / 2 + 1, .., 2] to y [.., n, ..]; backward; a factor (a
/// float); how many dims follow the transformed one; rows per task, of which 8 and more may be transformed at once.
/// scratch, in bytes: with l the larger of m and c of the plan, 5 elements for each of l, and 256 for each of the first
/// 2048 of l, and 1024.
int32_t disc_fn_fft(disc_call *call, const disc_view *operands, const int64_t *config, int64_t begin, int64_t end,
                    void *scratch) {
  int64_t needed = config[1] == ComplexToReal ? config[0] / 2 + 1 : config[0];
  const disc_view &x = operands[0];
  if (config[0] < 1 || x.dims[x.rank - (config[1] == RealToComplex ? 1 : 2) - config[4]] < needed)
    return disc_rt_function_failed(call, DISC_ERROR_SHAPE, "not as many elements as the transform has");
  bool done = x.dtype == DISC_F64 ? transformTasks<double>(operands, config, begin, end, scratch)
                                  : transformTasks<float>(operands, config, begin, end, scratch);
  return done ? DISC_OK : disc_rt_function_failed(call, DISC_ERROR_SHAPE, "the plan is of another length");
}
