//===- GuardTest.cpp - what errors about shapes and sizes say -------------===//

#include "Script.h"

#include <cstring>

using namespace disc::rt;
using namespace disc::test;

static const disc_dim_info dimsN[] = {{DISC_DYNAMIC, "n", 0, DISC_UNBOUNDED}};
static const disc_tensor_info twoInputs[] = {{"x", DISC_F32, 1, dimsN, 0}, {"", DISC_F32, 1, dimsN, 0}};

TEST(guardsSayWhatCame) {
  static const disc_symbol_info symbols[] = {{"C", 1, 64, 1, -1, 0}, {"B", 1, 64, 1, 0, 0}, {"S", 1, 64, 1, 1, 0}};
  const struct {
    disc_guard_info guard;
    int64_t lhs, rhs;
    const char *message;
  } rows[] = {
      {{DISC_LE, 0, 0, "B", "B", "64", ""}, 65, 64, "input 'x', dim 0 (B): expected at most 64, got 65"},
      {{DISC_GE, 0, 0, "", "B", "2", "is small"}, 1, 2, "input 'x', dim 0 is small: expected at least 2, got 1"},
      {{DISC_DIVISIBLE, 1, 0, "S", "S", "2 * B", ""},
       5,
       4,
       "input 1, dim 0 (S): expected a multiple of 2 * B = 4, got 5"},
      {{DISC_EQ, 1, 0, "", "", "B", ""}, 5, 4, "input 1, dim 0: expected B = 4, got 5 (B comes from input 'x', dim 0)"},
      {{DISC_EQ, 0, 0, "", "", "B", ""}, 5, 4, "input 'x', dim 0: expected B = 4, got 5"},
      {{DISC_EQ, 0, 0, "", "", "C", ""}, 5, 4, "input 'x', dim 0: expected C = 4, got 5"},
      {{DISC_EQ, 0, 0, "", "", "", ""}, 5, 4, "input 'x', dim 0: expected 4, got 5"},
      {{DISC_EQ, 1, -1, "", "", "S", ""}, 5, 4, "input 1: expected S = 4, got 5 (S comes from input 1, dim 0)"},
      {{DISC_EQ, -1, -1, "", "", "7", "sizes differ"}, 5, 7, "sizes differ: expected 7, got 5"},
      {{DISC_EQ, 2, -1, "", "B + S", "7", ""}, 5, 7, "B + S: expected 7, got 5"},
      {{DISC_EQ, -1, -1, "", "", "7", ""}, 5, 7, "the inputs' shapes: expected 7, got 5"},
      {{DISC_EQ, -1, -1, "", "", "B == S", ""}, 5, 7, "the inputs' shapes: expected B == S, got 5 and 7"},
      {{DISC_EQ, -1, -1, "", "", "count == 7", ""}, 5, 7, "the inputs' shapes: expected count == 7, got 5"},
      {{DISC_LE, -1, -1, "", "", "1 <= count", ""}, 1, 0, "the inputs' shapes: expected 1 <= count, got 0"},
      {{DISC_EQ, -1, -1, "", "", " == ", ""}, 123456, 7, "the inputs' shapes: expected  == , got 123456 and 7"},
  };
  disc_model_info_t info = blankInfo();
  info.num_inputs = 2;
  info.inputs = twoInputs;
  info.num_symbols = 3;
  info.symbols = symbols;
  for (const auto &row : rows) {
    info.num_guards = 1;
    info.guards = &row.guard;
    Status status = guardError(info, 0, row.lhs, row.rhs);
    CHECK_TEXT(Script::textOf(status), row.message);
    CHECK(status.code() == Code::Shape);
  }
  CHECK_TEXT(Script::textOf(guardError(info, -1, 0, 0)), "guard -1 failed, which the model does not list");
  CHECK_TEXT(Script::textOf(guardError(info, 1, 0, 0)), "guard 1 failed, which the model does not list");
}

TEST(sizesThatOverflowSayWhich) {
  struct Pair {
    const char *text;
    double value;
  };
  auto error = [](const std::vector<Pair> &sizes, const std::vector<Pair> &numbers,
                  const std::vector<std::pair<const char *, int64_t>> &symbols) {
    std::vector<int64_t> pairs;
    auto add = [&](const char *text, int64_t value) {
      pairs.push_back(int64_t(reinterpret_cast<uintptr_t>(text)));
      pairs.push_back(value);
    };
    for (const auto *list : {&sizes, &numbers})
      for (const Pair &pair : *list) {
        int64_t bits;
        std::memcpy(&bits, &pair.value, sizeof(bits));
        add(pair.text, bits);
      }
    for (const auto &[text, value] : symbols)
      add(text, value);
    Status status = sizeError(int64_t(sizes.size()), int64_t(numbers.size()), int64_t(symbols.size()), pairs.data());
    CHECK(status.code() == Code::Memory);
    return Script::textOf(status);
  };
  CHECK_TEXT(error({{"B * B", 1e19}, {"B", 1e9}}, {}, {{"B", 7}, {"S", 9}}),
             "B * B: the size overflows; expected at most 2^59, got about 1e+19 with B = 7, S = 9");
  CHECK_TEXT(error({{"B", 1e9}, {"B * B", 1e19}}, {{"B * B", 1e19}}, {}),
             "B * B: the size overflows; expected at most 2^59, got about 1e+19");
  CHECK_TEXT(error({{"B", 1e9}}, {{"S", 12}, {"B ** 3", 1e27}}, {{"B", 7}}),
             "B ** 3: the size overflows; expected a 64-bit integer, got about 1e+27 with B = 7");
  CHECK_TEXT(error({}, {{"-B ** 3", -1e27}}, {}),
             "-B ** 3: the size overflows; expected a 64-bit integer, got about -1e+27");
  CHECK_TEXT(error({{"B", 4e17}, {"S", 5e17}}, {{"B", 3}}, {}),
             "S: the size overflows; expected at most 2^59, got about 5e+17 for it alone, and more with others");
}
