//===- Hash.cpp - checksums of files and tensors --------------------------===//

#include "lib/Runtime/Core/Hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace disc::rt {

Hash128 hash128(const void *data, size_t bytes) {
  XXH128_hash_t hash = XXH3_128bits(data, bytes);
  return {hash.low64, hash.high64};
}

uint64_t hash64(const void *data, size_t bytes) { return XXH3_64bits(data, bytes); }

} // namespace disc::rt
