//===- FunctionEdgeTest.cpp - functions at their edges ---------------------===//
//
// Against eager PyTorch they are tested in test/python/e2e/test_functions.py; here is what that does not reach: any
// division into tasks, errors, strides, and memory, under sanitizers.
//
//===----------------------------------------------------------------------===//

#include "Check.h"
#include "Operands.h"
#include "lib/Runtime/Functions/Order.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

using namespace disc::rt;
using namespace disc::test;

TEST(scatterDoesNotDependOnTasks) {
  std::mt19937 random(1);
  for (int64_t rows : {1, 2, 5, 40}) {
    for (int64_t width : {1, 3, 64}) {
      const int64_t edges = 50, parts = 8;
      Floats self(DISC_F32, {rows, width}), values(DISC_F32, {edges, width}), result(DISC_F32, {rows, width});
      Ints index(DISC_I64, {edges});
      for (float &x : self.data)
        x = float(random() % 100);
      for (float &x : values.data)
        x = float(random() % 100) / 7;
      for (int64_t &i : index.data)
        i = int64_t(random() % uint64_t(rows));
      std::vector<float> expected = self.data;
      for (int64_t e = 0; e < edges; ++e)
        for (int64_t j = 0; j < width; ++j)
          expected[size_t(index.data[size_t(e)] * width + j)] += values.data[size_t(e * width + j)];
      // The index is the same along the columns.
      std::vector<int64_t> dims{edges, width}, strides{1, 0};
      disc_view spread = {index.data.data(), DISC_I64, 2, dims.data(), strides.data()};
      for (int64_t step : {1, 3, 8}) {
        std::fill(result.data.begin(), result.data.end(), -1.0f);
        CHECK(runParts(disc_fn_scatter, {self, values, spread, result}, {DISC_F32, 1, 1, 0, 0, parts, 2, 1, -1, 1, 0},
                       parts, step) == DISC_OK);
        CHECK(result.data == expected);
      }
    }
  }
}

TEST(scatterChecksIndices) {
  Floats values(DISC_F32, {2}, {1, 2}), result(DISC_F32, {3});
  for (int64_t wrong : {int64_t(3), int64_t(-1), INT64_MIN, INT64_MAX}) {
    Ints index(DISC_I64, {2}, {0, wrong});
    CHECK(runParts(disc_fn_scatter, {values, index, result}, {DISC_F32, 0, 0, 0, 0, 8, 1, 1, -1, 0}, 8, 1) ==
          DISC_ERROR_INDEX);
    // From the end, -1 is the last.
    CHECK(runParts(disc_fn_scatter, {values, index, result}, {DISC_F32, 0, 0, 0, 1, 8, 1, 1, -1, 0}, 8, 8) ==
          (wrong == -1 ? DISC_OK : DISC_ERROR_INDEX));
    if (wrong == -1)
      CHECK(result.data[0] == 1 && result.data[1] == 0 && result.data[2] == 2);
  }
  Floats none(DISC_F32, {0});
  Ints noIndex(DISC_I64, {0});
  result.data = {7, 7, 7};
  CHECK(runParts(disc_fn_scatter, {none, noIndex, result}, {DISC_F32, 0, 0, 0, 0, 8, 1, 1, -1, 0}, 8, 2) == DISC_OK);
  CHECK(result.data[0] == 0 && result.data[2] == 0);
  CHECK(runParts(disc_fn_scatter, {none, noIndex, none}, {DISC_F32, 0, 0, 0, 0, 8, 1, 1, -1, 0}, 8, 2) == DISC_OK);
  // A target without dims takes the update of the first task.
  Floats one(DISC_F32, {}), value(DISC_F32, {1}, {5});
  CHECK(runParts(disc_fn_scatter, {value, one}, {DISC_F32, 1, 0, 0, 0, 8, 1, 0, -1}, 8, 1) == DISC_OK);
  CHECK(one.data[0] == 5);
}

TEST(scatterInPlaceTouchesOnlyWhatChanges) {
  Floats self(DISC_F32, {4}, {1, 2, 3, 4}), values(DISC_F32, {1}, {9});
  Ints index(DISC_I64, {1}, {2});
  CHECK(runParts(disc_fn_scatter, {self, values, index, self}, {DISC_F32, 0, 1, 0, 0, 8, 1, 1, -1, 0}, 8, 1) ==
        DISC_OK);
  CHECK((self.data == std::vector<float>{1, 2, 9, 4}));
}

template <typename T> static void checkOrder(int64_t dtype, int64_t count, bool descending, uint64_t range) {
  std::mt19937_64 random(uint64_t(count) + range);
  Tensor<T> x(dtype, {count}), values(dtype, {count});
  Ints indices(DISC_I64, {count});
  for (T &value : x.data)
    value = T(double(random() % range) - double(range) / 2);
  if constexpr (isReal<T>)
    for (size_t i = 0; i < x.data.size(); i += 7)
      x.data[i] = i % 2 ? T(kNan) : T(-0.0);
  CHECK(runParts(disc_fn_sort, {x, values, indices}, {dtype, descending}, 1, 1, size_t(orderScratch<T>(count))) ==
        DISC_OK);
  bool ordered = true;
  for (int64_t i = 0; i < count; ++i) {
    int64_t at = indices.data[size_t(i)];
    T value = values.data[size_t(i)], source = x.data[size_t(at)];
    ordered &= value == source || (isNan(value) && isNan(source));
    if (i == 0)
      continue;
    T before = values.data[size_t(i - 1)];
    bool same = before == value || (isNan(before) && isNan(value));
    bool rises = isNan(value) ? !isNan(before) : before < value;
    bool falls = isNan(before) ? !isNan(value) : value < before;
    ordered &= same ? indices.data[size_t(i - 1)] < at : descending ? falls : rises;
  }
  CHECK(ordered);
}

TEST(sortIsStableWithNanLast) {
  for (bool descending : {false, true})
    for (int64_t count : {0, 1, 2, 33, 1023, 1024, 5000}) {
      checkOrder<float>(DISC_F32, count, descending, 50);
      checkOrder<float>(DISC_F32, count, descending, 1 << 20);
      checkOrder<double>(DISC_F64, count, descending, 1ull << 50);
      checkOrder<int64_t>(DISC_I64, count, descending, 1ull << 62);
      checkOrder<int32_t>(DISC_I32, count, descending, 1000);
      checkOrder<int8_t>(DISC_I8, count, descending, 100);
      checkOrder<BFloat>(DISC_BF16, count, descending, 100);
    }
}

// Whatever a 16-bit float is, a signaling NaN too, its bits are what is copied.
TEST(halvesKeepTheirBits) {
  for (int64_t dtype : {DISC_F16, DISC_BF16}) {
    // An infinity, NaNs of each kind and sign, zeros, a subnormal and a number.
    uint16_t infinity = dtype == DISC_F16 ? 0x7c00 : 0x7f80, quiet = dtype == DISC_F16 ? 0x200 : 0x40;
    std::vector<uint16_t> bits{
        infinity, uint16_t(infinity | 1),  uint16_t(0x8000 | infinity | 3), uint16_t(infinity | quiet), 0, 0x8000, 1,
        0x3c00,   uint16_t(0xffff ^ quiet)};
    auto n = int64_t(bits.size());
    Tensor<uint16_t> x(dtype, {1, n}, bits), values(dtype, {1, n}), one(dtype, {1});
    Ints indices(DISC_I64, {1, n}), index(DISC_I64, {1}), count(DISC_I64, {});
    auto scratch = size_t(16 * n);

    for (int64_t descending : {0, 1}) {
      CHECK(runParts(disc_fn_sort, {x, values, indices}, {dtype, descending}, 1, 1, scratch) == DISC_OK);
      for (size_t i = 0; i < bits.size(); ++i)
        CHECK(values.data[i] == bits[size_t(indices.data[i])]);
    }
    for (int64_t k = 0; k < n; ++k) // more often than the other statistics need
      for (int64_t statistic = 0; statistic < 4; ++statistic) {
        CHECK(runParts(disc_fn_select, {x, one, index}, {dtype, statistic, k}, 1, 1, scratch) == DISC_OK);
        CHECK(one.data[0] == bits[size_t(index.data[0])]);
      }
    for (int64_t operation : {2, 3}) {
      CHECK(runParts(disc_fn_cumulative, {x, values, indices}, {dtype, operation}, 1, 1) == DISC_OK);
      for (size_t i = 0; i < bits.size(); ++i)
        CHECK(values.data[i] == bits[size_t(indices.data[i])]);
    }
    Tensor<uint16_t> row(dtype, {n}, bits), distinct(dtype, {n}), updated(dtype, {n});
    Ints inverse(DISC_I64, {n}), counts(DISC_I64, {n}), reversed(DISC_I64, {n});
    CHECK(runParts(disc_fn_unique, {row, distinct, inverse, counts, count}, {dtype, 1}, 1, 1, scratch) == DISC_OK);
    for (size_t i = 0; i < bits.size(); ++i)
      if (bits[i] != 0x8000) // equals the 0 before it
        CHECK(distinct.data[size_t(inverse.data[i])] == bits[i]);
    for (int64_t i = 0; i < n; ++i)
      reversed.data[size_t(i)] = n - 1 - i;
    // dtype, operation, hasSelf, fill, wrap, parts, loops, indices; the loops' dims, the indices' dims
    CHECK(runParts(disc_fn_scatter, {row, row, reversed, updated}, {dtype, 0, 1, 0, 0, 1, 1, 1, -1, 0}, 1, 1) ==
          DISC_OK);
    for (size_t i = 0; i < bits.size(); ++i)
      CHECK(updated.data[i] == bits[bits.size() - 1 - i]);
  }
}

// Each row has a sorter of its own, whichever task begins there.
TEST(searchChecksEverySorter) {
  Floats sorted(DISC_F32, {2, 2}, {1, 2, 1, 2}), values(DISC_F32, {2, 3}, {0, 1, 2, 0, 1, 2});
  Ints places(DISC_I64, {2, 3});
  for (int64_t wrong : {int64_t(2), int64_t(-1), int64_t(1) << 60})
    for (int64_t tasks = 1; tasks <= 6; ++tasks) {
      Ints sorter(DISC_I64, {2, 2}, {0, 1, 0, wrong});
      CHECK(runParts(disc_fn_searchsorted, {sorted, values, sorter, places}, {DISC_F32, 0, 1, tasks}, tasks, 1) ==
            DISC_ERROR_INDEX);
    }
}

TEST(selectOfNothingFails) {
  Floats x(DISC_F32, {2, 0}), values(DISC_F32, {2}), none(DISC_F32, {0, 0}), nothing(DISC_F32, {0});
  Ints indices(DISC_I64, {2}), noIndices(DISC_I64, {0});
  CHECK(runParts(disc_fn_select, {x, values, indices}, {DISC_F32, 1, 0}, 2, 1) == DISC_ERROR_INDEX);
  CHECK(runParts(disc_fn_select, {none, nothing, noIndices}, {DISC_F32, 1, 0}, 0, 1) == DISC_OK);
  Floats three(DISC_F32, {1, 3}, {3, float(kNan), 1}), one(DISC_F32, {1});
  Ints where(DISC_I64, {1});
  CHECK(runParts(disc_fn_select, {three, one, where}, {DISC_F32, 0, 3}, 1, 1, 48) == DISC_ERROR_INDEX);
  CHECK(runParts(disc_fn_select, {three, one, where}, {DISC_F32, 1, 0}, 1, 1, 48) == DISC_OK);
  CHECK(std::isnan(one.data[0]) && where.data[0] == 1);
  CHECK(runParts(disc_fn_select, {three, one, where}, {DISC_F32, 2, 0}, 1, 1, 48) == DISC_OK);
  CHECK(one.data[0] == 1 && where.data[0] == 2);
}

TEST(uniqueKeepsNansApart) {
  Floats x(DISC_F32, {6}, {2, float(kNan), -0.0f, 2, float(kNan), 0}), values(DISC_F32, {6});
  Ints inverse(DISC_I64, {6}), counts(DISC_I64, {6}), count(DISC_I64, {});
  CHECK(runParts(disc_fn_unique, {x, values, inverse, counts, count}, {DISC_F32, 0}, 1, 1, 6 * 16) == DISC_OK);
  CHECK(count.data[0] == 4 && counts.data[0] == 2 && counts.data[1] == 2 && counts.data[2] == 1);
  CHECK((inverse.data == std::vector<int64_t>{1, 2, 0, 1, 3, 0}));
  CHECK(runParts(disc_fn_unique, {x, values, inverse, counts, count}, {DISC_F32, 1}, 1, 1) == DISC_OK);
  CHECK(count.data[0] == 6);
  Tensor<int32_t> rows(DISC_I32, {3, 2}, {2, 1, 0, 5, 2, 1});
  Ints first(DISC_I64, {3}), of(DISC_I64, {3}), times(DISC_I64, {3});
  CHECK(runParts(disc_fn_unique_rows, {rows, first, of, times, count}, {DISC_I32, 0}, 1, 1, 24) == DISC_OK);
  CHECK(count.data[0] == 2 && first.data[0] == 1 && first.data[1] == 0 && times.data[1] == 2 && of.data[2] == 1);
}

namespace {
using Spectrum = std::vector<std::complex<double>>;

/// The transform by its definition.
Spectrum slowTransform(const Spectrum &x) {
  size_t n = x.size();
  Spectrum roots(n), y(n);
  for (size_t k = 0; k < n; ++k)
    roots[k] = std::polar(1.0, -2 * 3.14159265358979323846 * double(k) / double(n));
  for (size_t k = 0; k < n; ++k)
    for (size_t j = 0; j < n; ++j)
      y[k] += x[j] * roots[j * k % n];
  return y;
}

enum class Layout { Rows, Columns, Gaps };

/// Transforms rows that are multiples of one, of n elements of `x` with 1 or 2 components, and compares with those of
/// `want`. The largest error, relative to the largest element; or 1 if a division into tasks changes the result.
template <typename T>
double fftError(int64_t n, int64_t rows, int64_t kind, bool backward, double factor, const Spectrum &x,
                const Spectrum &want, Layout layout) {
  const int64_t dtype = sizeof(T) == 8 ? DISC_F64 : DISC_F32, count = int64_t(x.size()), results = int64_t(want.size());
  const int64_t m = kind != 0 && n % 2 == 0 ? n / 2 : n, in = kind == 1 ? 1 : 2, out = kind == 2 ? 1 : 2;
  int64_t convolution = 1;
  while (convolution < 2 * m - 1)
    convolution *= 2;
  int64_t rest = m;
  for (int64_t prime : {2, 3, 5, 7, 11, 13})
    while (rest % prime == 0)
      rest /= prime;
  convolution = rest > 1 ? convolution : 0;
  const int64_t longest = std::max(m, convolution);
  const auto scratch = size_t(longest * 5 * int64_t(sizeof(T)) + std::min<int64_t>(longest, 2048) * 256 + 1024);

  const bool columns = layout == Layout::Columns;
  const int64_t gap = layout == Layout::Gaps ? 3 : 1, stride = (columns ? rows : 1) * in * gap,
                rowStride = (columns ? 1 : count) * in * gap;
  std::vector<int64_t> dims = columns ? std::vector<int64_t>{count, rows} : std::vector<int64_t>{rows, count};
  std::vector<int64_t> strides =
      columns ? std::vector<int64_t>{stride, rowStride} : std::vector<int64_t>{rowStride, stride};
  std::vector<T> data(size_t(rows * count * in * gap));
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t k = 0; k < count; ++k)
      for (int64_t part = 0; part < in; ++part)
        data[size_t(r * rowStride + k * stride + part * gap)] =
            T(double(r % 5 + 1) * (part ? x[size_t(k)].imag() : x[size_t(k)].real()));
  if (in == 2) {
    dims.push_back(2);
    strides.push_back(gap);
  }
  disc_view from{data.data(), dtype, int64_t(dims.size()), dims.data(), strides.data()};
  std::vector<int64_t> to = columns ? std::vector<int64_t>{results, rows} : std::vector<int64_t>{rows, results};
  if (out == 2)
    to.push_back(2);
  Tensor<T> plan(dtype, {7 * m + 9 * convolution + 160}), y(dtype, to), again(dtype, to);
  int64_t bits;
  std::memcpy(&bits, &factor, sizeof(bits));
  if (runParts(disc_fn_fft_plan, {plan}, {n, kind != 0}, 1, 1, scratch) != DISC_OK)
    return 1;
  const int64_t group = rows % 2 ? 16 : 1, tasks = (rows + group - 1) / group;
  const std::vector<int64_t> config = {n, kind, backward, bits, columns, group};
  if (runParts(disc_fn_fft, {from, plan, y}, config, tasks, tasks, scratch) != DISC_OK ||
      runParts(disc_fn_fft, {from, plan, again}, config, tasks, 1, scratch) != DISC_OK || y.data != again.data)
    return 1;
  double worst = 0, most = 0;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t k = 0; k < results; ++k)
      for (int64_t part = 0; part < out; ++part) {
        double value =
            double(y.data[size_t(((columns ? k * rows + r : r * results + k)) * out + part)]) / double(r % 5 + 1);
        double wanted = part ? want[size_t(k)].imag() : want[size_t(k)].real();
        worst = std::max(worst, std::fabs(value - wanted));
        most = std::max(most, std::fabs(wanted));
      }
  return most > 0 ? worst / most : worst;
}

/// All kinds of transforms of length n; the largest error over the dtype's epsilon.
template <typename T>
double fftErrors(int64_t n, int64_t rows, Layout layout, const Spectrum &x, const Spectrum &y, const Spectrum &real,
                 const Spectrum &spectrum) {
  Spectrum conjugate(x.size()), backward(x.size());
  std::transform(x.begin(), x.end(), conjugate.begin(), [](auto z) { return std::conj(z); });
  std::transform(y.begin(), y.end(), backward.begin(), [](auto z) { return std::conj(z) * 0.5; });
  const Spectrum half(spectrum.begin(), spectrum.begin() + n / 2 + 1);
  double worst = 0;
  for (double error : {fftError<T>(n, rows, 0, false, 1, x, y, layout),
                       fftError<T>(n, rows, 0, true, 0.5, conjugate, backward, layout),
                       fftError<T>(n, rows, 1, false, 1, real, half, layout),
                       fftError<T>(n, rows, 1, false, 1, real, spectrum, layout),
                       fftError<T>(n, rows, 2, true, 1 / double(n), half, real, layout)})
    worst = std::max(worst, error);
  return worst / double(std::numeric_limits<T>::epsilon());
}
} // namespace

TEST(fftOfEveryLength) {
  std::mt19937 random(1);
  std::normal_distribution<double> normal;
  std::vector<int64_t> lengths(132);
  std::iota(lengths.begin(), lengths.end(), 1);
  lengths.insert(lengths.end(), {169, 256, 400, 509, 997, 1000, 1018});
  for (int64_t n : lengths) {
    Spectrum x(static_cast<size_t>(n)), real(x);
    for (size_t k = 0; k < x.size(); ++k) {
      // Floats, so that the inputs are the same numbers for both dtypes.
      x[k] = {float(normal(random)), float(normal(random))};
      real[k] = x[k].real();
    }
    const Spectrum y = slowTransform(x), spectrum = slowTransform(real);
    int64_t turn = n;
    // Around the numbers of lanes: 4, 8 and 16 rows of f32, 2, 4 and 8 of f64.
    for (int64_t rows : {1, 2, 3, 7, 8, 9, 15, 17, 35}) {
      if (n > 132 && rows > 9)
        continue;
      auto layout = Layout(turn++ % 3);
      CHECK(fftErrors<float>(n, rows, layout, x, y, real, spectrum) < 16);
      CHECK(fftErrors<double>(n, rows, layout, x, y, real, spectrum) <
            16 + 0.1 * double(n)); // of slowTransform as well
    }
  }
}

TEST(fftOfLongRows) {
  // A wave has one line in its spectrum.
  for (int64_t n : {4096, 4098, 5000, 4099, 65536, 78125}) {
    Spectrum wave(static_cast<size_t>(n)), line(wave);
    for (size_t k = 0; k < wave.size(); ++k)
      wave[k] = std::polar(1.0, 2 * 3.14159265358979323846 * double(3 * k % size_t(n)) / double(n));
    line[3] = double(n);
    for (int64_t rows : {1, 2, 9}) {
      auto layout = Layout(rows % 3);
      CHECK(fftError<float>(n, rows, 0, false, 1, wave, line, layout) < 1e-6);
      CHECK(fftError<double>(n, rows, 0, false, 1, wave, line, layout) < 1e-14);
      Spectrum real(wave), half(static_cast<size_t>(n / 2 + 1));
      for (auto &z : real)
        z = z.real();
      half[3] = double(n) / 2;
      CHECK(fftError<float>(n, rows, 1, false, 1, real, half, layout) < 1e-6);
      CHECK(fftError<double>(n, rows, 2, true, 1 / double(n), half, real, layout) < 1e-14);
    }
  }
}

TEST(fftErrors) {
  Tensor<double> small(DISC_F64, {3}), plan(DISC_F64, {500}), x(DISC_F64, {2, 2}), y(DISC_F64, {40, 2});
  CHECK(runParts(disc_fn_fft_plan, {small}, {4, 0}, 1, 1, 4096) == DISC_ERROR_SHAPE);
  CHECK(runParts(disc_fn_fft_plan, {plan}, {0, 0}, 1, 1, 4096) == DISC_ERROR_SHAPE);
  CHECK(runParts(disc_fn_fft, {x, plan, x}, {4, 0, 0, 0, 0, 1}, 1, 1, 4096) == DISC_ERROR_SHAPE);
  CHECK(runParts(disc_fn_fft, {y, small, y}, {40, 0, 0, 0, 0, 1}, 1, 1, 65536) == DISC_ERROR_SHAPE);
}

TEST(philoxIsPhilox) {
  // The known answer of Random123 for a counter and a key of zeros.
  Tensor<int32_t> bits(DISC_I32, {6});
  CHECK(runParts(disc_fn_random, {bits}, {DISC_I32, 0, 8}, 8, 1) == DISC_OK);
  CHECK(uint32_t(bits.data[0]) == 0x6627e8d5 && uint32_t(bits.data[1]) == 0xe169c58d);
  CHECK(uint32_t(bits.data[2]) == 0xbc57ac4c && uint32_t(bits.data[3]) == 0x9b00dbd8);
  Tensor<int32_t> whole(DISC_I32, {6});
  CHECK(runParts(disc_fn_random, {whole}, {DISC_I32, 0, 8}, 8, 8) == DISC_OK);
  CHECK(whole.data == bits.data);
}

TEST(matricesThatHaveNoInverse) {
  Floats a(DISC_F32, {2, 2, 2}, {1, 0, 0, 1, 1, 2, 2, 4}), factor(DISC_F32, {2, 2, 2});
  Tensor<int32_t> pivots(DISC_I32, {2, 2}), info(DISC_I32, {2});
  CHECK(runParts(disc_fn_lu_factor, {a, factor, pivots, info}, {0}, 2, 1, 64) == DISC_OK);
  CHECK(info.data[0] == 0 && info.data[1] == 2 && pivots.data[2] == 2);
  CHECK(runParts(disc_fn_lu_factor, {a, factor, pivots, info}, {2}, 2, 1, 64) == DISC_ERROR_INVALID);
  CHECK(runParts(disc_fn_cholesky, {a, factor, info}, {0, 0}, 2, 2, 64) == DISC_OK);
  CHECK(info.data[0] == 0 && info.data[1] == 2);
  CHECK(runParts(disc_fn_cholesky, {a, factor, info}, {0, 1}, 2, 2, 64) == DISC_ERROR_INVALID);
}

TEST(singularValuesOfStrangeMatrices) {
  const int64_t m = 5, n = 3;
  for (double fill : {0.0, 1.0, kNan, 1e30}) {
    Tensor<double> a(DISC_F64, {m, n}), u(DISC_F64, {m, m}), s(DISC_F64, {n}), vt(DISC_F64, {n, n});
    std::fill(a.data.begin(), a.data.end(), fill);
    CHECK(runParts(disc_fn_svd, {a, u, s, vt}, {}, 1, 1, 8 * (2 * m * m + 2 * (m * n + m * m + n * n) + 4 * n)) ==
          DISC_OK);
    if (fill != fill)
      continue;
    CHECK(std::fabs(s.data[0] - fill * std::sqrt(15.0)) <= 1e-12 * fill && s.data[1] <= 1e-14 * fill);
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < m; ++j) {
        double sum = 0;
        for (int64_t k = 0; k < m; ++k)
          sum += u.data[size_t(k * m + i)] * u.data[size_t(k * m + j)];
        CHECK(std::fabs(sum - double(i == j)) < 1e-12);
      }
  }
}
