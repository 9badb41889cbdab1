//===- Seal.h - how a library's file says that it is whole -----*- C++ -*-===//
//
// The last 64 bytes of the file of an ahead-of-time library. They are written after linking, and read before the file
// is handed to the dynamic linker, which trusts what it maps. The checksum finds damage, not forgery.
//
//===----------------------------------------------------------------------===//

#ifndef DISC_RUNTIME_CORE_SEAL_H
#define DISC_RUNTIME_CORE_SEAL_H

#include "lib/Runtime/Core/Status.h"

#include <cstddef>
#include <cstdint>

namespace disc::rt {
class StoredFile;

constexpr char kSealMagic[8] = {'D', 'I', 'S', 'C', 'S', 'E', 'A', 'L'};
constexpr uint32_t kSealVersion = 2;

/// Little-endian, as every machine that we compile for.
struct Seal {
  char magic[8];
  uint32_t version; ///< kSealVersion
  uint32_t machine; ///< e_machine of the ELF header.
  uint64_t payload; ///< Bytes before the seal: all others of the file.
  uint64_t hashLow; ///< blockwiseHash() of them (Hash.h).
  uint64_t hashHigh;
  uint8_t reserved[16]; ///< 0
  uint64_t check;       ///< XXH3 64 of the 56 bytes before.
};
static_assert(sizeof(Seal) == 64, "as the file has it");

/// Appends the seal to a linked library, in place of one that is there already.
Status sealFile(const std::string &path);

/// Whether a file is a whole library for this machine, and its seal. `trusted` skips the checksum of the contents.
Status checkSealed(const StoredFile &file, bool trusted, Seal &seal);

/// The same of bytes in memory.
Status checkSealed(const void *file, size_t bytes, const std::string &name, bool trusted);

} // namespace disc::rt

#endif // DISC_RUNTIME_CORE_SEAL_H
