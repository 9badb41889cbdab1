//===- RowsTest.cpp - functions of rows: orders, sums, places, segments ---===//

#include "Check.h"
#include "Operands.h"
#include "lib/Runtime/Functions/Order.h"

#include <cmath>
#include <numeric>
#include <random>
#include <string>

using namespace disc::rt;
using namespace disc::test;

namespace {
/// A view of the columns of a matrix as rows.
template <typename T> struct Columns {
  explicit Columns(Tensor<T> &of)
      : dims{of.dims[1], of.dims[0]}, strides{1, of.dims[1]}, view{of.data.data(), of.dtype, 2, dims, strides} {}
  int64_t dims[2], strides[2];
  disc_view view;
};

template <typename T> std::vector<int64_t> orderOf(const std::vector<T> &row, bool descending) {
  std::vector<int64_t> order(row.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int64_t i, int64_t j) {
    T x = row[size_t(i)], y = row[size_t(j)];
    return x == y ? i < j : descending ? x > y : x < y;
  });
  return order;
}

template <typename T> void checkFirstOf(int64_t dtype, int64_t count, int64_t kept, bool descending, int64_t range) {
  std::mt19937_64 random(uint64_t(count * 1000 + kept));
  Tensor<T> x(dtype, {2, count}), values(dtype, {2, kept});
  Ints indices(DISC_I64, {2, kept});
  for (T &value : x.data)
    value = T(int64_t(random() % uint64_t(range)) - range / 2);
  CHECK(runParts(disc_fn_sort, {x, values, indices}, {dtype, descending}, 2, 1, size_t(orderScratch<T>(count))) ==
        DISC_OK);
  for (int64_t row = 0; row < 2; ++row) {
    std::vector<T> of(x.data.begin() + row * count, x.data.begin() + (row + 1) * count);
    std::vector<int64_t> wanted = orderOf(of, descending);
    CHECK(std::equal(wanted.begin(), wanted.begin() + kept, indices.data.begin() + row * kept));
  }
}

/// The statistic of one row, as its value and position; -1 if it fails.
std::pair<float, int64_t> statistic(std::vector<float> row, int64_t what, int64_t k = 0) {
  const auto count = int64_t(row.size());
  Floats x(DISC_F32, {1, count}, std::move(row)), value(DISC_F32, {1});
  Ints index(DISC_I64, {1});
  int32_t status = runParts(disc_fn_select, {x, value, index}, {DISC_F32, what, k}, 1, 1, size_t(32 * count));
  return {value.data[0], status == DISC_OK ? index.data[0] : -1};
}

template <typename T> std::vector<double> cumulative(int64_t dtype, std::vector<T> row, int64_t operation) {
  const auto count = int64_t(row.size());
  Tensor<T> x(dtype, {1, count}, std::move(row)), result(dtype, {1, count});
  Ints indices(DISC_I64, {1, count});
  CHECK(runParts(disc_fn_cumulative, {x, result, indices}, {dtype, operation}, 1, 1) == DISC_OK);
  return {result.data.begin(), result.data.end()};
}
using Row = std::vector<double>;
} // namespace

TEST(firstFewOfARowAreThoseOfTheOrder) {
  // Beyond the row's first elements, from less than a quarter of it, from more; with many equal ones and few.
  for (bool descending : {false, true})
    for (int64_t range : {7, 100000})
      for (int64_t count : {50, 400, 3000})
        for (int64_t kept : {1, 3, 40, 49}) {
          checkFirstOf<float>(DISC_F32, count, kept, descending, range);
          checkFirstOf<int64_t>(DISC_I64, count, kept, descending, range);
          checkFirstOf<int16_t>(DISC_I16, count, kept, descending, range);
        }
  Floats scalar(DISC_F32, {}, {3}), value(DISC_F32, {});
  Ints index(DISC_I64, {}, {-1});
  CHECK(runParts(disc_fn_sort, {scalar, value, index}, {DISC_F32, 0}, 1, 1, 16) == DISC_OK);
  CHECK(value.data[0] == 3 && index.data[0] == 0);
}

// No memory is read: the length alone is too large for 32 bits of a position.
TEST(rowsOfMoreElementsThanPositions) {
  int64_t dims[] = {int64_t(1) << 33}, strides[] = {0};
  float x = 0;
  disc_view row = {&x, DISC_F32, 1, dims, strides}, operands[] = {row, row, row, row, row};
  const int64_t config[] = {DISC_F32, 0, 0};
  for (disc_function function : {disc_fn_sort, disc_fn_select, disc_fn_unique})
    CHECK(function(nullptr, operands, config, 0, 1, nullptr) == DISC_ERROR_SHAPE);
}

TEST(statisticsOfRows) {
  const float nan = float(kNan);
  enum { Kth, Median, NanMedian, Mode };
  CHECK(statistic({5, 1, 4, 2, 3}, Kth, 0) == std::make_pair(1.0f, int64_t(1)));
  CHECK(statistic({5, 1, 4, 2, 3}, Kth, 4) == std::make_pair(5.0f, int64_t(0)));
  CHECK(statistic({2, 1}, Kth, 0) == std::make_pair(1.0f, int64_t(1)));
  CHECK(statistic({5, 1, 4, 2}, Median) == std::make_pair(2.0f, int64_t(3)));
  CHECK(statistic({5, 1, nan, 2, 3}, NanMedian) == std::make_pair(2.0f, int64_t(3)));
  CHECK(std::isnan(statistic({nan, nan}, NanMedian).first));
  CHECK(statistic({3, 1, 3, 1, 2}, Mode) == std::make_pair(1.0f, int64_t(3)));
  CHECK(statistic({nan, nan, 2}, Mode) == std::make_pair(2.0f, int64_t(2)));
  for (int64_t k : {-1, 3})
    CHECK(statistic({1, 2, 3}, Kth, k).second == -1);
  // Every rank of a long row, whose elements occur several times.
  std::mt19937 random(3);
  std::vector<float> row(200);
  for (float &x : row)
    x = float(random() % 50);
  std::vector<float> sorted = row;
  std::sort(sorted.begin(), sorted.end());
  for (size_t k = 0; k < row.size(); ++k) {
    auto [value, at] = statistic(row, Kth, int64_t(k));
    CHECK(value == sorted[k] && row[size_t(at)] == value);
  }
}

TEST(runsOfEqualRows) {
  Tensor<int32_t> rows(DISC_I32, {4, 1}, {3, 3, 1, 3});
  Ints first(DISC_I64, {4}), of(DISC_I64, {4}), times(DISC_I64, {4}), count(DISC_I64, {});
  CHECK(runParts(disc_fn_unique_rows, {rows, first, of, times, count}, {DISC_I32, 1}, 1, 1, 32) == DISC_OK);
  CHECK(count.data[0] == 3 && (first.data == std::vector<int64_t>{0, 2, 3, 0}));
  CHECK((of.data == std::vector<int64_t>{0, 0, 1, 2}) && (times.data == std::vector<int64_t>{2, 1, 1, 0}));
}

TEST(runningSumsProductsAndExtrema) {
  enum { Sum, Product, Maximum, Minimum, LogSumExp };
  const float inf = float(kInfinity), nan = float(kNan);
  CHECK(cumulative<float>(DISC_F32, {1, 2, 3}, Sum) == (Row{1, 3, 6}));
  CHECK(cumulative<double>(DISC_F64, {2, 3, -1}, Product) == (Row{2, 6, -6}));
  CHECK(cumulative<int64_t>(DISC_I64, {INT64_MAX, 1}, Sum)[1] == double(INT64_MIN)); // wraps
  CHECK(cumulative<int16_t>(DISC_I16, {-300, 300}, Product) == (Row{-300, double(int16_t(-90000))}));
  CHECK(cumulative<uint8_t>(DISC_U8, {200, 100}, Sum) == (Row{200, 44}));
  CHECK(cumulative<int8_t>(DISC_I8, {100, 100}, Sum) == (Row{100, -56}));
  CHECK(cumulative<int32_t>(DISC_I32, {3, 1, 2}, Minimum) == (Row{3, 1, 1}));
  CHECK(cumulative<int32_t>(DISC_I32, {1, 3, 2}, Maximum) == (Row{1, 3, 3}));
  CHECK((cumulative<uint8_t>(DISC_BOOL, {0, 1, 0}, Sum) == Row{0, 1, 1}));
  CHECK((cumulative<uint8_t>(DISC_BOOL, {1, 1, 0}, Product) == Row{1, 1, 0}));
  Row logs = cumulative<double>(DISC_F64, {std::log(1.0), std::log(3.0), std::log(2.0)}, LogSumExp);
  CHECK(std::fabs(logs[1] - std::log(4)) < 1e-15 && std::fabs(logs[2] - std::log(6)) < 1e-15);
  CHECK(cumulative<float>(DISC_F32, {-inf, -inf, 2, inf, inf}, LogSumExp) ==
        (Row{-kInfinity, -kInfinity, 2, kInfinity, kInfinity}));
  Row nans = cumulative<float>(DISC_F32, {1, nan, 2}, LogSumExp);
  CHECK(nans[0] == 1 && std::isnan(nans[1]) && std::isnan(nans[2]));

  // In bfloat16 each sum is rounded, what is added up is not.
  Tensor<uint16_t> halves(DISC_BF16, {3}, {0x3f80, 0x3b80, 0x3b80}), sums(DISC_BF16, {3}); // 1, 2^-8, 2^-8
  CHECK(runParts(disc_fn_cumulative, {halves, sums}, {DISC_BF16, Sum}, 1, 1) == DISC_OK);
  CHECK(sums.data[1] == 0x3f80 && sums.data[2] == 0x3f81);

  Ints numbers(DISC_I64, {2}), result(DISC_I64, {2});
  CHECK(runParts(disc_fn_cumulative, {numbers, result}, {DISC_I64, LogSumExp}, 1, 1) == DISC_ERROR_TYPE);
  CHECK(runParts(disc_fn_cumulative, {numbers, result}, {DISC_F32, 5}, 1, 1) == DISC_ERROR_TYPE);
  CHECK(runParts(disc_fn_cumulative, {numbers, result}, {0x999, Sum}, 1, 1) == DISC_ERROR_TYPE);

  // Columns, in any division into tasks.
  Floats matrix(DISC_F32, {3, 4}), whole(DISC_F32, {4, 3}), parts(DISC_F32, {4, 3});
  std::iota(matrix.data.begin(), matrix.data.end(), 1.0f);
  Columns<float> columns(matrix);
  CHECK(runParts(disc_fn_cumulative, {columns.view, whole}, {DISC_F32, Sum}, 4, 4) == DISC_OK);
  CHECK(runParts(disc_fn_cumulative, {columns.view, parts}, {DISC_F32, Sum}, 4, 3) == DISC_OK);
  CHECK(whole.data == parts.data && whole.data[1] == 6 && whole.data[11] == 24);
}

TEST(placesInSortedRows) {
  auto place = [](std::vector<float> sorted, float value, bool right) {
    Floats row(DISC_F32, {int64_t(sorted.size())}, std::move(sorted)), values(DISC_F32, {}, {value});
    Ints result(DISC_I64, {});
    CHECK(runParts(disc_fn_searchsorted, {row, values, result}, {DISC_F32, right, 0, 1}, 1, 1) == DISC_OK);
    return result.data[0];
  };
  CHECK(place({1, 2, 2, 3}, 2, false) == 1 && place({1, 2, 2, 3}, 2, true) == 3);
  CHECK(place({1, 2, 2, 3}, 0, true) == 0 && place({1, 2, 2, 3}, 9, false) == 4);
  CHECK(place({1, float(kNan)}, float(kNan), true) == 2 && place({}, 1, false) == 0);

  // A row for each row of values, by way of an order; more tasks than values.
  Floats rows(DISC_F32, {2, 3}, {3, 1, 2, 10, 30, 20}), values(DISC_F32, {2, 2}, {2, 9, 5, 20});
  Ints sorter(DISC_I64, {2, 3}, {1, 2, 0, 0, 2, 1});
  for (int64_t tasks : {1, 2, 3, 4, 9})
    for (int64_t right : {0, 1}) {
      Ints result(DISC_I64, {2, 2});
      CHECK(runParts(disc_fn_searchsorted, {rows, values, sorter, result}, {DISC_F32, right, 1, tasks}, tasks, 1) ==
            DISC_OK);
      CHECK((result.data == std::vector<int64_t>{1 + right, 3, 0, 1 + right}));
      // One row for all.
      Ints one(DISC_I64, {3}, {1, 2, 0}), all(DISC_I64, {2, 2});
      Floats row(DISC_F32, {3}, {3, 1, 2});
      CHECK(runParts(disc_fn_searchsorted, {row, values, one, all}, {DISC_F32, right, 1, tasks}, tasks, 1) == DISC_OK);
      CHECK((all.data == std::vector<int64_t>{1 + right, 3, 3, 3}));
      Ints plain(DISC_I64, {2, 2});
      Floats ordered(DISC_F32, {2, 3}, {1, 2, 3, 10, 20, 30});
      CHECK(runParts(disc_fn_searchsorted, {ordered, values, plain}, {DISC_F32, right, 0, tasks}, tasks, 1) == DISC_OK);
      CHECK(plain.data == result.data);
    }
}

TEST(foldsOfSegments) {
  enum { Sum, Mean, Max, Min, Prod };
  // Rows 0 and 1, row 3 without row 2, which is left out, and none.
  auto fold = [](auto zero, int64_t dtype, int64_t which, double initial, std::vector<double> numbers) {
    using T = decltype(zero);
    Tensor<T> data(dtype, {1, 4, 1}), out(dtype, {1, 3, 1});
    std::copy(numbers.begin(), numbers.end(), data.data.begin());
    Ints offsets(DISC_I64, {1, 4}, {0, 2, 4, 4});
    Tensor<uint8_t> kept(DISC_BOOL, {1, 4}, {1, 1, 0, 1});
    CHECK(runParts(disc_fn_segment_reduce, {data, offsets, kept, out}, {which, bitsOf(initial), bitsOf(-7)}, 3, 2) ==
          DISC_OK);
    return Row(out.data.begin(), out.data.end());
  };
  CHECK(fold(double(), DISC_F64, Sum, 0, {1, 2, 100, 4}) == (Row{3, 4, -7}));
  CHECK(fold(float(), DISC_F32, Mean, 0, {1, 2, 100, 4}) == (Row{1.5, 4, -7}));
  CHECK(fold(float(), DISC_F32, Prod, 1, {3, 2, 100, 4}) == (Row{6, 4, -7}));
  CHECK(fold(double(), DISC_F64, Max, -kInfinity, {1, 2, 100, 4}) == (Row{2, 4, -7}));
  CHECK(fold(float(), DISC_F32, Min, kInfinity, {2, 1, -100, 4}) == (Row{1, 4, -7}));
  CHECK(fold(float(), DISC_F32, Min, kInfinity, {1, 2, -100, 4}) == (Row{1, 4, -7}));
  for (int64_t which : {Max, Min})
    for (const Row &numbers : {Row{kNan, 1, 0, 4}, Row{1, kNan, 0, 4}}) {
      Row folded = fold(double(), DISC_F64, which, which == Max ? -kInfinity : kInfinity, numbers);
      CHECK(std::isnan(folded[0]) && folded[1] == 4);
    }

  Floats data(DISC_F32, {1, 2, 1}), out(DISC_F32, {1, 1, 1});
  Tensor<uint8_t> kept(DISC_BOOL, {1, 2}, {1, 1});
  for (auto [first, last] : {std::pair<int64_t, int64_t>{-1, 1}, {2, 1}, {0, 3}}) {
    Ints offsets(DISC_I64, {1, 2}, {first, last});
    CHECK(runParts(disc_fn_segment_reduce, {data, offsets, kept, out}, {Sum, 0, 0}, 1, 1) == DISC_ERROR_INDEX);
  }
  Ints integers(DISC_I64, {1, 2, 1}), offsets(DISC_I64, {1, 2}, {0, 2});
  CHECK(runParts(disc_fn_segment_reduce, {integers, offsets, kept, out}, {Sum, 0, 0}, 1, 1) == DISC_ERROR_TYPE);
}

template <typename T> static void checkNonzero(int64_t dtype, T one) {
  Tensor<T> x(dtype, {2, 3}, {T(), one, T(), one, T(), one}), row(dtype, {3}, {one, T(), one});
  Ints indices(DISC_I64, {6, 2}), places(DISC_I64, {3, 1}), count(DISC_I64, {});
  CHECK(runParts(disc_fn_nonzero, {x, indices, count}, {}, 1, 1) == DISC_OK && count.data[0] == 3);
  const int64_t wanted[] = {0, 1, 1, 0, 1, 2};
  CHECK(std::equal(wanted, wanted + 6, indices.data.begin()));
  CHECK(runParts(disc_fn_nonzero, {row, places, count}, {}, 1, 1) == DISC_OK && count.data[0] == 2);
  CHECK(places.data[0] == 0 && places.data[1] == 2);
}

TEST(nonzeroOfEveryType) {
  checkNonzero<uint8_t>(DISC_BOOL, 1);
  checkNonzero<int8_t>(DISC_I8, -1);
  checkNonzero<uint8_t>(DISC_U8, 255);
  checkNonzero<int16_t>(DISC_I16, -1);
  checkNonzero<uint16_t>(DISC_U16, 1);
  checkNonzero<uint16_t>(DISC_F16, 1); // a subnormal
  checkNonzero<uint16_t>(DISC_BF16, 0x8001);
  checkNonzero<int32_t>(DISC_I32, 1);
  checkNonzero<uint32_t>(DISC_U32, 1);
  checkNonzero<int64_t>(DISC_I64, INT64_MIN);
  checkNonzero<uint64_t>(DISC_U64, 1);
  checkNonzero<float>(DISC_F32, 1e-45f);
  checkNonzero<double>(DISC_F64, kNan);
  const std::vector<int64_t> many(33, 1);
  disc_view deep = {nullptr, DISC_F32, 33, many.data(), many.data()};
  Ints indices(DISC_I64, {1, 33}), count(DISC_I64, {});
  CHECK(runParts(disc_fn_nonzero, {deep, indices, count}, {}, 1, 1) == DISC_ERROR_SHAPE);
}

TEST(randomNumbersOfEveryType) {
  // Floats are in [0, 1) and not few; integers have all their bits.
  Doubles doubles(DISC_F64, {1001}), again(DISC_F64, {1001});
  CHECK(runParts(disc_fn_random, {doubles}, {DISC_F64, 3, 8}, 8, 8) == DISC_OK);
  CHECK(runParts(disc_fn_random, {again}, {DISC_F64, 3, 8}, 8, 1) == DISC_OK && doubles.data == again.data);
  double sum = std::accumulate(doubles.data.begin(), doubles.data.end(), 0.0);
  CHECK(std::all_of(doubles.data.begin(), doubles.data.end(), [](double x) { return x >= 0 && x < 1; }));
  CHECK(sum > 450 && sum < 550);
  Tensor<uint16_t> halves(DISC_F16, {100}), bfloats(DISC_BF16, {100});
  CHECK(runParts(disc_fn_random, {halves}, {DISC_F16, 0, 8}, 8, 3) == DISC_OK);
  CHECK(runParts(disc_fn_random, {bfloats}, {DISC_BF16, 0, 8}, 8, 3) == DISC_OK);
  // Below 1, which is 0x3c00 and 0x3f80.
  CHECK(*std::max_element(halves.data.begin(), halves.data.end()) < 0x3c00);
  CHECK(*std::max_element(bfloats.data.begin(), bfloats.data.end()) < 0x3f80);
  Ints integers(DISC_I64, {64});
  CHECK(runParts(disc_fn_random, {integers}, {DISC_I64, 0, 8}, 8, 8) == DISC_OK);
  int64_t all = 0, common = -1;
  for (int64_t x : integers.data)
    all |= x, common &= x;
  CHECK(all == -1 && common == 0);
}
