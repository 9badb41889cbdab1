//===- FuzzSeal.cpp - files that may be libraries -------------------------===//
//
// What is checked before the dynamic linker sees a file. Bytes as they are, and with a seal that fits them, behind
// which is the ELF header.
//
//===----------------------------------------------------------------------===//

#include "lib/Runtime/Core/Cpu.h"
#include "lib/Runtime/Core/Hash.h"
#include "lib/Runtime/Core/Seal.h"

#include <cstdlib>
#include <cstring>
#include <elf.h>
#include <string>
#include <vector>

using namespace disc::rt;

/// A header to begin with, since bytes alone hardly ever hit one.
static void makeElf(std::vector<unsigned char> &file) {
  Elf64_Ehdr header = {};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_ident[EI_VERSION] = EV_CURRENT;
  header.e_type = ET_DYN;
  header.e_machine = Elf64_Half(elfMachine());
  header.e_phentsize = sizeof(Elf64_Phdr);
  header.e_phoff = sizeof(header);
  header.e_phnum = 1;
  std::vector<unsigned char> changed(file);
  file.resize(std::max(file.size(), sizeof(header)));
  std::memcpy(file.data(), &header, sizeof(header));
  // What the fuzzer has is laid over the fields that matter.
  for (size_t i = 0; i < changed.size() && i < sizeof(header); ++i)
    file[i] ^= changed[i];
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size == 0)
    return 0;
  std::vector<unsigned char> file(data + 1, data + size);
  unsigned mode = data[0];
  if (mode & 1)
    makeElf(file);
  if (mode & 2) {
    Seal seal = {};
    std::memcpy(seal.magic, kSealMagic, sizeof(kSealMagic));
    seal.version = mode & 4 ? mode : kSealVersion;
    seal.machine = mode & 8 ? mode : elfMachine();
    seal.payload = file.size() - (mode & 16 ? 1 : 0);
    Hash128 hash = blockwiseHash(file.data(), file.size());
    seal.hashLow = hash.low ^ (mode & 32 ? 1 : 0);
    seal.hashHigh = hash.high;
    seal.check = hash64(&seal, offsetof(Seal, check)) ^ (mode & 64 ? 1 : 0);
    auto *bytes = reinterpret_cast<unsigned char *>(&seal);
    file.insert(file.end(), bytes, bytes + sizeof(seal));
  }
  file.shrink_to_fit();
  for (bool trusted : {false, true}) {
    Status status = checkSealed(file.data(), file.size(), "file", trusted);
    // Damage that the seal knows of is always told.
    if (status.ok() && (!(mode & 2) || mode & 4 || mode & 16 || mode & 64 || (mode & 32 && !trusted)))
      if (mode & 2)
        std::abort();
    if (!status.ok() && status.error().message.empty())
      std::abort();
  }
  return 0;
}
