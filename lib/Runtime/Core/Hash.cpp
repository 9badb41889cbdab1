//===- Hash.cpp - checksums of files and tensors --------------------------===//

#include "lib/Runtime/Core/Hash.h"

#define XXH_INLINE_ALL
#include <algorithm>
#include <vector>
#include <xxhash.h>

namespace disc::rt {

Hash128 hash128(const void *data, size_t bytes) {
  XXH128_hash_t hash = XXH3_128bits(data, bytes);
  return {hash.low64, hash.high64};
}

uint64_t hash64(const void *data, size_t bytes) { return XXH3_64bits(data, bytes); }

Hash128 blockwiseHash(const void *data, size_t bytes) {
  std::vector<Hash128> blocks;
  auto *at = static_cast<const unsigned char *>(data);
  for (size_t begin = 0; begin < bytes; begin += kHashBlock)
    blocks.push_back(hash128(at + begin, std::min(kHashBlock, bytes - begin)));
  return hash128(blocks.data(), blocks.size() * sizeof(Hash128));
}

} // namespace disc::rt
