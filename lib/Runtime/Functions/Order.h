//===- Order.h - sorting with the order of PyTorch -------------*- C++ -*-===//
//
// Elements are sorted as unsigned keys of the same order (NaN above everything, -0 equal to 0) beside their positions,
// which makes every order total: sorts are stable whatever the algorithm. Long rows take a radix sort from the least
// significant byte (Knuth, The Art of Computer Programming 3, 5.2.5) that leaves out bytes that are all the same.
//
//===----------------------------------------------------------------------===//

#ifndef DISC_RUNTIME_FUNCTIONS_ORDER_H
#define DISC_RUNTIME_FUNCTIONS_ORDER_H

#include "lib/Runtime/Functions/Numbers.h"

#include <algorithm>
#include <cstring>

namespace disc::rt {

/// A key and a position. Narrow types take 8 bytes, which compare as one number.
template <typename Key> struct Entry;
template <> struct Entry<uint32_t> {
  uint64_t bits;
  Entry() = default;
  Entry(uint32_t key, uint64_t position) : bits(uint64_t(key) << 32 | position) {}
  uint32_t key() const { return uint32_t(bits >> 32); }
  int64_t position() const { return int64_t(bits & 0xffffffff); }
  bool operator<(const Entry &other) const { return bits < other.bits; }
};
template <> struct Entry<uint64_t> {
  uint64_t bits, at;
  Entry() = default;
  Entry(uint64_t key, uint64_t position) : bits(key), at(position) {}
  uint64_t key() const { return bits; }
  int64_t position() const { return int64_t(at); }
  bool operator<(const Entry &other) const { return bits < other.bits || (bits == other.bits && at < other.at); }
};

template <typename T> using KeyOf = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
template <typename T> using EntryOf = Entry<KeyOf<T>>;

/// What a row of `count` elements needs of scratch: two arrays of entries.
template <typename T> constexpr int64_t orderScratch(int64_t count) { return 2 * count * int64_t(sizeof(EntryOf<T>)); }

/// Ordered as PyTorch orders: ascending, NaN last.
template <typename T> inline KeyOf<T> keyOf(T x) {
  using Key = KeyOf<T>;
  if constexpr (isReal<T>) {
    using Wide = std::conditional_t<sizeof(T) == 8, double, float>;
    Wide wide = Wide(x);
    if (wide != wide)
      return ~Key(0);
    wide += Wide(0); // -0 becomes 0
    Key bits;
    std::memcpy(&bits, &wide, sizeof(bits));
    Key sign = Key(1) << (sizeof(Key) * 8 - 1);
    return bits & sign ? ~bits : bits | sign;
  } else if constexpr (std::is_signed_v<T>) {
    return Key(x) ^ Key(1) << (sizeof(Key) * 8 - 1);
  } else {
    return Key(x);
  }
}

template <typename T>
void fillEntries(EntryOf<T> *entries, const T *row, int64_t count, int64_t stride, bool descending) {
  KeyOf<T> flip = descending ? ~KeyOf<T>(0) : 0;
  for (int64_t i = 0; i < count; ++i)
    entries[i] = EntryOf<T>(keyOf(row[i * stride]) ^ flip, uint64_t(i));
}

/// Sorts; `spare` has room for as many. The result is in `entries` or `spare`: where, it returns.
template <typename Key> Entry<Key> *sortEntries(Entry<Key> *entries, Entry<Key> *spare, int64_t count) {
  constexpr int kBytes = int(sizeof(Key));
  if (count < 1024) {
    std::sort(entries, entries + count);
    return entries;
  }
  int64_t counts[kBytes][256];
  std::memset(counts, 0, sizeof(counts));
  for (int64_t i = 0; i < count; ++i) {
    Key key = entries[i].key();
    for (int byte = 0; byte < kBytes; ++byte)
      ++counts[byte][key >> (8 * byte) & 255];
  }
  for (int byte = 0; byte < kBytes; ++byte) {
    int64_t *of = counts[byte];
    if (of[entries[0].key() >> (8 * byte) & 255] == count)
      continue;
    for (int64_t i = 0, sum = 0; i < 256; ++i) {
      int64_t here = of[i];
      of[i] = sum;
      sum += here;
    }
    for (int64_t i = 0; i < count; ++i)
      spare[of[entries[i].key() >> (8 * byte) & 255]++] = entries[i];
    std::swap(entries, spare);
  }
  return entries;
}

} // namespace disc::rt

#endif // DISC_RUNTIME_FUNCTIONS_ORDER_H
