//===- UpdatesTest.cpp - functions that write at places: scatter, insert --===//

#include "Check.h"
#include "Operands.h"

#include <cmath>
#include <random>

using namespace disc::test;

namespace {
enum Operation : int64_t { Set, Add, Multiply, Minimum, Maximum };

/// target[index[i]] of one row, updated by values[i], in any division into tasks.
template <typename T>
std::vector<T> updated(int64_t dtype, Operation operation, std::vector<T> self, std::vector<T> values,
                       std::vector<int64_t> places) {
  const auto n = int64_t(self.size()), count = int64_t(values.size());
  Tensor<T> from(dtype, {n}, std::move(self)), by(dtype, {count}, std::move(values)), result(dtype, {n}),
      parts(dtype, {n});
  Ints index(DISC_I64, {count}, std::move(places));
  CHECK(runParts(disc_fn_scatter, {from, by, index, result}, {dtype, operation, 1, 0, 1, 4, 1, 1, -1, 0}, 4, 4) ==
        DISC_OK);
  CHECK(runParts(disc_fn_scatter, {from, by, index, parts}, {dtype, operation, 1, 0, 1, 4, 1, 1, -1, 0}, 4, 1) ==
        DISC_OK);
  // As bytes: NaN too is the same.
  CHECK(std::memcmp(result.data.data(), parts.data.data(), size_t(n) * sizeof(T)) == 0);
  return result.data;
}

/// The dims and strides of a view of a tensor.
struct Strided {
  std::vector<int64_t> dims, strides;
  template <typename T> disc_view of(Tensor<T> &tensor) {
    return {tensor.data.data(), tensor.dtype, int64_t(dims.size()), dims.data(), strides.data()};
  }
};
} // namespace

TEST(updatesOfEveryKind) {
  using F = std::vector<float>;
  CHECK(updated<float>(DISC_F32, Set, {1, 2, 3}, {7, 8, 9}, {0, -1, 0}) == (F{9, 2, 8})); // the last one stays
  CHECK(updated<float>(DISC_F32, Add, {1, 2, 3}, {7, 8, 9}, {0, 2, 0}) == (F{17, 2, 11}));
  CHECK(updated<float>(DISC_F32, Multiply, {1, 2, 3}, {2, 4, 3}, {1, 2, 1}) == (F{1, 12, 12}));
  CHECK(updated<float>(DISC_F32, Minimum, {1, 2, 3}, {2, 0, 5}, {0, 1, 2}) == (F{1, 0, 3}));
  CHECK(updated<float>(DISC_F32, Maximum, {1, 2, 3}, {2, 0, 5}, {0, 1, 2}) == (F{2, 2, 5}));
  // NaN wins on either side.
  const auto nan = float(kNan);
  for (Operation operation : {Minimum, Maximum}) {
    F both = updated<float>(DISC_F32, operation, {nan, 2}, {1, nan}, {0, 1});
    CHECK(std::isnan(both[0]) && std::isnan(both[1]));
  }
  // Integers wrap; sums and products of booleans are "or" and "and".
  CHECK((updated<int16_t>(DISC_I16, Add, {32767}, {1}, {0}) == std::vector<int16_t>{-32768}));
  CHECK((updated<int16_t>(DISC_I16, Multiply, {-300}, {300}, {0}) == std::vector<int16_t>{int16_t(-90000)}));
  CHECK((updated<uint8_t>(DISC_U8, Maximum, {3}, {200}, {0}) == std::vector<uint8_t>{200}));
  CHECK((updated<int8_t>(DISC_I8, Minimum, {3}, {-4}, {0}) == std::vector<int8_t>{-4}));
  CHECK(
      (updated<uint8_t>(DISC_BOOL, Add, {0, 0, 1, 1}, {0, 1, 0, 1}, {0, 1, 2, 3}) == std::vector<uint8_t>{0, 1, 1, 1}));
  CHECK((updated<uint8_t>(DISC_BOOL, Multiply, {0, 0, 1, 1}, {0, 1, 0, 1}, {0, 1, 2, 3}) ==
         std::vector<uint8_t>{0, 0, 0, 1}));
  CHECK((updated<int64_t>(DISC_I64, Add, {INT64_MAX}, {1}, {0}) == std::vector<int64_t>{INT64_MIN}));
  CHECK((updated<double>(DISC_F64, Add, {1, 2}, {0.5, 0.25}, {1, 1}) == std::vector<double>{1, 2.75}));
}

// self[i, :, j, :] += values with rows that lie apart: several loops inside, none of them dense.
TEST(updatesOfStridedBlocks) {
  std::mt19937 random(5);
  const int64_t a = 4, b = 3, c = 5, d = 2, n = 7, m = 2;
  for (int64_t parts : {1, 2, 8})
    for (bool wrap : {false, true}) {
      Floats self(DISC_F32, {a, b, c, d}), values(DISC_F32, {n, m, b, d}), result(DISC_F32, {a, b, c, d});
      Ints first(DISC_I64, {n, m}), second(DISC_I64, {n, m});
      for (float &x : self.data)
        x = float(random() % 100);
      for (float &x : values.data)
        x = float(random() % 100);
      for (size_t i = 0; i < first.data.size(); ++i) {
        first.data[i] = int64_t(random() % a) - (wrap && i % 2 ? a : 0);
        second.data[i] = int64_t(random() % c) - (wrap && i % 3 ? c : 0);
      }
      std::vector<float> expected = self.data;
      for (int64_t u = 0; u < n * m; ++u)
        for (int64_t j = 0; j < b; ++j)
          for (int64_t k = 0; k < d; ++k) {
            int64_t i = (first.data[size_t(u)] + a) % a, l = (second.data[size_t(u)] + c) % c;
            expected[size_t(((i * b + j) * c + l) * d + k)] += values.data[size_t((u * b + j) * d + k)];
          }
      // The indices do not change along the loops that run along dims of the target.
      Strided spread{{n, m, b, d}, {m, 1, 0, 0}};
      std::vector<int64_t> config = {DISC_F32, Add, 1, 0, wrap, parts, 4, 2, -1, -1, 1, 3, 0, 2};
      CHECK(runParts(disc_fn_scatter, {self, values, spread.of(first), spread.of(second), result}, config, parts, 1) ==
            DISC_OK);
      CHECK(result.data == expected);
      // The same from a self that is not dense, with the values and the target transposed inside.
      Floats wide(DISC_F32, {a, b, c, d, 2});
      for (size_t i = 0; i < self.data.size(); ++i)
        wide.data[2 * i] = self.data[i];
      Strided gaps{self.dims, {b * c * d * 2, c * d * 2, d * 2, 2}};
      CHECK(runParts(disc_fn_scatter, {gaps.of(wide), values, spread.of(first), spread.of(second), result}, config,
                     parts, 1) == DISC_OK);
      CHECK(result.data == expected);
      // An index that is out of range, in the second of two loops.
      for (int64_t wrong : {c, -c - 1, int64_t(INT64_MIN)}) {
        Ints bad = second;
        bad.data.back() = wrong;
        CHECK(runParts(disc_fn_scatter, {self, values, spread.of(first), spread.of(bad), result}, config, parts,
                       parts) == DISC_ERROR_INDEX);
      }
    }
}

// Loops that follow each other in both tensors are one; a part may be cut from a dim that no index is for.
TEST(updatesAlongDimsWithoutIndices) {
  const int64_t rows = 3, columns = 40, depth = 4, count = 5;
  Floats self(DISC_F32, {columns, rows, depth}), values(DISC_F32, {columns, count, depth}),
      result(DISC_F32, {columns, rows, depth});
  Ints index(DISC_I64, {count}, {0, 2, 2, 1, 0});
  for (size_t i = 0; i < values.data.size(); ++i)
    values.data[i] = float(i % 13);
  std::vector<float> expected = self.data;
  for (int64_t i = 0; i < columns; ++i)
    for (int64_t e = 0; e < count; ++e)
      for (int64_t j = 0; j < depth; ++j)
        expected[size_t((i * rows + index.data[size_t(e)]) * depth + j)] +=
            values.data[size_t((i * count + e) * depth + j)];
  Strided spread{{columns, count, depth}, {0, 1, 0}};
  for (int64_t parts : {1, 3, 8, 64}) { // by columns, then by columns that are too few for all
    CHECK(runParts(disc_fn_scatter, {self, values, spread.of(index), result},
                   {DISC_F32, Add, 1, 0, 0, parts, 3, 1, 0, -1, 2, 1}, parts, 1) == DISC_OK);
    CHECK(result.data == expected);
  }
  // One index for whole matrices: two dims of the target that are one loop.
  Floats blocks(DISC_F32, {2, 3, 4}), block(DISC_F32, {1, 3, 4});
  std::fill(block.data.begin(), block.data.end(), 1.0f);
  Ints which(DISC_I64, {1}, {1});
  Strided one{{1, 3, 4}, {1, 0, 0}};
  for (int64_t parts : {1, 2}) {
    Floats updated(DISC_F32, {2, 3, 4});
    CHECK(runParts(disc_fn_scatter, {blocks, block, one.of(which), updated},
                   {DISC_F32, Set, 1, 0, 0, parts, 3, 1, -1, 1, 2, 0}, parts, 1) == DISC_OK);
    CHECK(updated.data[11] == 0 && updated.data[12] == 1 && updated.data[23] == 1);
  }
  // Values that repeat along a loop.
  Floats number(DISC_F32, {1}, {5}), filled(DISC_F32, {4, 2});
  Ints places(DISC_I64, {2}, {3, 1});
  Strided repeated{{2, 2}, {0, 0}}, along{{2, 2}, {1, 0}};
  CHECK(runParts(disc_fn_scatter, {repeated.of(number), along.of(places), filled},
                 {DISC_F32, Set, 0, bitsOf(-1), 0, 1, 2, 1, -1, 1, 0}, 1, 1) == DISC_OK);
  CHECK((filled.data == std::vector<float>{-1, -1, 5, 5, -1, -1, 5, 5}));
  // Without indices: a copy of one tensor into the corner of another; integers are filled with integers.
  Tensor<int32_t> corner(DISC_I32, {2, 2}, {1, 2, 3, 4}), sheet(DISC_I32, {3, 3});
  for (int64_t parts : {1, 2, 8}) {
    CHECK(runParts(disc_fn_scatter, {corner, sheet}, {DISC_I32, Set, 0, 9, 0, parts, 2, 0, 0, 1}, parts, 1) == DISC_OK);
    CHECK((sheet.data == std::vector<int32_t>{1, 2, 9, 3, 4, 9, 9, 9, 9}));
  }
  // A self without elements, and one without dims.
  Floats none(DISC_F32, {0, 3}), nothing(DISC_F32, {0, 3}), scalar(DISC_F32, {}, {2}), sum(DISC_F32, {});
  Ints noIndex(DISC_I64, {0, 3});
  CHECK(runParts(disc_fn_scatter, {none, none, noIndex, nothing}, {DISC_F32, Add, 1, 0, 0, 4, 2, 1, -1, 1, 0}, 4, 1) ==
        DISC_OK);
  CHECK(runParts(disc_fn_scatter, {scalar, number, sum}, {DISC_F32, Add, 1, 0, 0, 4, 1, 0, -1}, 4, 1) == DISC_OK);
  CHECK(sum.data[0] == 7);
}

TEST(updatesCheckTheirNumbers) {
  Floats x(DISC_F32, {1}), result(DISC_F32, {1});
  CHECK(runParts(disc_fn_scatter, {x, result}, {DISC_F32, Set, 0, 0, 0, 1, 1, 17}, 1, 1) == DISC_ERROR_SHAPE);
  CHECK(runParts(disc_fn_scatter, {x, result}, {DISC_F32, Set, 0, 0, 0, 1, 33, 0}, 1, 1) == DISC_ERROR_SHAPE);
  CHECK(runParts(disc_fn_scatter, {x, result}, {0x999, Set, 0, 0, 0, 1, 0, 0}, 1, 1) == DISC_ERROR_TYPE);
}

template <typename T> static void checkInsert(int64_t dtype) {
  Tensor<T> x(dtype, {2, 5}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}), source(dtype, {2, 2}, {20, 21, 22, 23}),
      result(dtype, {2, 5});
  // Every second column from the second one on.
  CHECK(runParts(disc_fn_insert, {x, source, result}, {1, 1, 2}, 1, 1) == DISC_OK);
  CHECK((result.data == std::vector<T>{1, 20, 3, 21, 5, 6, 22, 8, 23, 10}));
  // A column of columns, from a source that is a transpose.
  Strided columns{{2, 2}, {1, 2}};
  CHECK(runParts(disc_fn_insert, {x, columns.of(source), result}, {1, 3, 1}, 1, 1) == DISC_OK);
  CHECK((result.data == std::vector<T>{1, 2, 3, 20, 22, 6, 7, 8, 21, 23}));
  // In place: x itself.
  Tensor<T> row(dtype, {1, 5}, {30, 31, 32, 33, 34});
  CHECK(runParts(disc_fn_insert, {x, row, x}, {0, 1, 1}, 1, 1) == DISC_OK);
  CHECK((x.data == std::vector<T>{1, 2, 3, 4, 5, 30, 31, 32, 33, 34}));
}

TEST(insertsOfEverySize) {
  checkInsert<uint8_t>(DISC_U8);
  checkInsert<uint16_t>(DISC_F16);
  checkInsert<float>(DISC_F32);
  checkInsert<int64_t>(DISC_I64);
  Floats x(DISC_F32, {1}), y(DISC_F32, {1});
  x.dtype = 0x203; // of 3 bits
  CHECK(runParts(disc_fn_insert, {x, y, y}, {0, 0, 1}, 1, 1) == DISC_ERROR_TYPE);
  const std::vector<int64_t> many(33, 1);
  disc_view deep = {x.data.data(), DISC_F32, 33, many.data(), many.data()};
  CHECK(runParts(disc_fn_insert, {deep, y, y}, {0, 0, 1}, 1, 1) == DISC_ERROR_SHAPE);
}

TEST(repetitionsFillTheirRoom) {
  Ints repeats(DISC_I64, {3}, {2, 0, 1}), indices(DISC_I64, {3}), few(DISC_I64, {2}), many(DISC_I64, {5});
  CHECK(runParts(disc_fn_repeat_interleave, {repeats, indices}, {}, 1, 1) == DISC_OK);
  CHECK((indices.data == std::vector<int64_t>{0, 0, 2}));
  // Another thread may change the repeats after they were summed: never more than there is room for.
  CHECK(runParts(disc_fn_repeat_interleave, {repeats, few}, {}, 1, 1) == DISC_OK);
  CHECK((few.data == std::vector<int64_t>{0, 0}));
  CHECK(runParts(disc_fn_repeat_interleave, {repeats, many}, {}, 1, 1) == DISC_OK);
  CHECK((many.data == std::vector<int64_t>{0, 0, 2, 0, 0}));
  repeats.data[1] = -1;
  CHECK(runParts(disc_fn_repeat_interleave, {repeats, indices}, {}, 1, 1) == DISC_ERROR_INDEX);
}

TEST(binsCountAndSum) {
  Ints numbers(DISC_I64, {4}, {1, 3, 1, 9}), counts(DISC_I64, {4});
  CHECK(runParts(disc_fn_bincount, {numbers, counts}, {}, 1, 1) == DISC_OK);
  CHECK((counts.data == std::vector<int64_t>{0, 2, 0, 1})); // 9 is beyond the bins
  Doubles weights(DISC_F64, {4}, {0.5, 2, 1, 100}), sums(DISC_F64, {4});
  CHECK(runParts(disc_fn_bincount, {numbers, weights, sums}, {}, 1, 1) == DISC_OK);
  CHECK((sums.data == std::vector<double>{0, 1.5, 0, 2}));
  numbers.data[2] = -1;
  CHECK(runParts(disc_fn_bincount, {numbers, counts}, {}, 1, 1) == DISC_ERROR_INDEX);
  CHECK(runParts(disc_fn_bincount, {numbers, weights, sums}, {}, 1, 1) == DISC_ERROR_INDEX);
}

TEST(callbacksSayWhetherTheyWorked) {
  int32_t (*function)(int64_t, const disc_view *) = [](int64_t number, const disc_view *operands) {
    static_cast<float *>(operands[0].data)[0] = float(number);
    return int32_t(number == 7 ? 3 : 0);
  };
  Floats x(DISC_F32, {1});
  auto address = int64_t(reinterpret_cast<intptr_t>(function));
  CHECK(runParts(disc_fn_callback, {x}, {address, 5}, 1, 1) == DISC_OK && x.data[0] == 5);
  CHECK(runParts(disc_fn_callback, {x}, {address, 7}, 1, 1) == DISC_ERROR_INVALID && x.data[0] == 7);
}

// Boxes around centres, and equal scores, of which the first box wins; as many as there is room for.
TEST(suppressionOfCenteredBoxes) {
  float boxes[] = {5, 5, 2, 2, 5, 5, 2, 2, 20, 20, 4, 4, 40, 40, 4, 4}, scores[] = {0.5f, 0.5f, 0.5f, 0.4f};
  Floats box(DISC_F32, {1, 4, 4}, {boxes, boxes + 16}), score(DISC_F32, {1, 1, 4}, {scores, scores + 4}),
      overlap(DISC_F32, {}, {0.5f}), lowest(DISC_F32, {}, {0.1f});
  Ints limit(DISC_I64, {}, {9}), count(DISC_I64, {});
  for (int64_t capacity : {4, 1}) {
    Ints indices(DISC_I64, {capacity, 3});
    CHECK(runParts(disc_fn_non_max_suppression, {box, score, limit, overlap, lowest, indices, count}, {1}, 1, 1, 64) ==
          DISC_OK);
    CHECK(count.data[0] == std::min<int64_t>(capacity, 3) && indices.data[2] == 0);
    if (capacity == 4)
      CHECK(indices.data[5] == 2 && indices.data[8] == 3);
  }
  limit.data[0] = 2;
  Ints indices(DISC_I64, {4, 3});
  CHECK(runParts(disc_fn_non_max_suppression, {box, score, limit, overlap, lowest, indices, count}, {1}, 1, 1, 64) ==
        DISC_OK);
  CHECK(count.data[0] == 2);
  // Two corners, of f32.
  Floats corners(DISC_F32, {2, 4}, {0, 0, 2, 2, 1, 0, 3, 2});
  Ints order(DISC_I64, {2}, {1, 0}), kept(DISC_I64, {2});
  for (double threshold : {0.3, 0.4}) {
    CHECK(runParts(disc_fn_suppress_boxes, {corners, order, kept, count}, {bitsOf(threshold)}, 1, 1, 64) == DISC_OK);
    CHECK(count.data[0] == (threshold < 1.0 / 3 ? 1 : 2) && kept.data[0] == 1);
  }
}
