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

/// Of large data, as the hash of the hashes of its blocks: several threads can share the work, and a block is read into
/// a cache.
constexpr size_t kHashBlock = size_t(256) << 10;
Hash128 blockwiseHash(const void *data, size_t bytes);

} // namespace disc::rt

#endif // DISC_RUNTIME_CORE_HASH_H
