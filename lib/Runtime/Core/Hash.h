//===- Hash.h - checksums of files and tensors ------------------*- C++ -*-===//
//
// XXH3: finds damage at the speed of memory. It is no defence against a forger.
//
//===----------------------------------------------------------------------===//

#ifndef DISC_RUNTIME_CORE_HASH_H
#define DISC_RUNTIME_CORE_HASH_H

#include <cstddef>
#include <cstdint>

namespace disc::rt {

struct Hash128 {
  uint64_t low, high;
  bool operator==(const Hash128 &other) const { return low == other.low && high == other.high; }
};

Hash128 hash128(const void *data, size_t bytes);
uint64_t hash64(const void *data, size_t bytes);

} // namespace disc::rt

#endif // DISC_RUNTIME_CORE_HASH_H
