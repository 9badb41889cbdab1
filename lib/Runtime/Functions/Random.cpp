//===- Random.cpp - random numbers by counting ------------------------------===//
//
// Philox4x32-10 (Salmon, Moraes, Dror, Shaw, Parallel Random Numbers: As Easy as 1, 2, 3, 2011): four 32-bit numbers
// from a counter and a key. The key is the model's seed, the counter says which run of the model, which operation, and
// which elements: any thread can compute any of them.
//
//===----------------------------------------------------------------------===//

#include "lib/Runtime/Functions/Numbers.h"

using namespace disc::rt;

namespace {
struct Block {
  uint32_t words[4];
};

Block philox(Block counter, uint32_t key0, uint32_t key1) {
  uint32_t *c = counter.words;
  for (int round = 0; round < 10; ++round) {
    uint64_t first = uint64_t(0xD2511F53) * c[0], second = uint64_t(0xCD9E8D57) * c[2];
    uint32_t next[] = {uint32_t(second >> 32) ^ c[1] ^ key0, uint32_t(second), uint32_t(first >> 32) ^ c[3] ^ key1,
                       uint32_t(first)};
    for (int i = 0; i < 4; ++i)
      c[i] = next[i];
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
  return counter;
}

/// An element from 32 or 64 random bits: a float in [0, 1), or all bits.
template <typename T> T element(uint64_t bits) {
  if constexpr (std::is_same_v<T, double>)
    return double(bits >> 11) * 0x1p-53;
  else if constexpr (std::is_same_v<T, float>)
    return float(uint32_t(bits) >> 8) * 0x1p-24f;
  else if constexpr (std::is_same_v<T, Half>)
    return Half(float(uint32_t(bits) >> 21) * 0x1p-11f);
  else if constexpr (std::is_same_v<T, BFloat>)
    return BFloat(float(uint32_t(bits) >> 24) * 0x1p-8f);
  else
    return T(bits);
}

template <typename T> void fill(T *to, int64_t first, int64_t last, const uint64_t state[2], uint32_t operation) {
  constexpr int64_t perBlock = sizeof(T) == 8 ? 2 : 4;
  Block block = {};
  for (int64_t i = first; i < last; ++i) {
    int64_t number = i / perBlock, lane = i % perBlock;
    if (lane == 0 || i == first)
      block = philox({{uint32_t(number), uint32_t(uint64_t(number) >> 32) ^ uint32_t(state[1] >> 32), operation,
                       uint32_t(state[1])}},
                     uint32_t(state[0]), uint32_t(state[0] >> 32));
    if constexpr (perBlock == 2)
      to[i] = element<T>(uint64_t(block.words[2 * lane + 1]) << 32 | block.words[2 * lane]);
    else
      to[i] = element<T>(block.words[lane]);
  }
}
} // namespace

/// -> x: numbers distributed evenly, floats in [0, 1), integers over all their values. config: dtype; the number of the
/// operation in the model; the number of tasks.
int32_t disc_fn_random(disc_call *call, const disc_view *operands, const int64_t *config, int64_t begin, int64_t end,
                       void *) {
  uint64_t state[2] = {0, 0};
  if (call)
    disc_rt_random_state(call, state);
  int64_t total = numElements(operands[0]), parts = config[2];
  return withNumber(call, config[0], [&](auto zero) {
    fill(dataOf<decltype(zero)>(operands[0]), total * begin / parts, total * end / parts, state, uint32_t(config[1]));
    return DISC_OK;
  });
}
