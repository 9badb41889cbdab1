//===- Seal.cpp - how a library's file says that it is whole --------------===//

#include "lib/Runtime/Core/Seal.h"
#include "lib/Runtime/Core/Cpu.h"
#include "lib/Runtime/Core/Hash.h"
#include "lib/Runtime/Core/MappedFile.h"

#include <cerrno>
#include <cstring>
#include <elf.h>
#include <fcntl.h>
#include <functional>
#include <unistd.h>

namespace disc::rt {

static uint64_t checkOf(const Seal &seal) { return hash64(&seal, offsetof(Seal, check)); }

/// The seal at the end of a file, if there is one.
static bool readSeal(const void *file, size_t bytes, Seal &seal) {
  if (bytes < sizeof(Seal))
    return false;
  std::memcpy(&seal, static_cast<const unsigned char *>(file) + bytes - sizeof(Seal), sizeof(Seal));
  return std::memcmp(seal.magic, kSealMagic, sizeof(kSealMagic)) == 0;
}

/// e_machine of a little-endian shared library whose headers are of these types; a reason if it is something else.
template <typename Header, typename Segment>
static const char *readHeaders(const void *file, size_t bytes, unsigned &machine) {
  Header header;
  if (bytes < sizeof(header))
    return "too short for a library";
  std::memcpy(&header, file, sizeof(header));
  if (header.e_type != ET_DYN)
    return "not a shared library";
  if (header.e_phentsize != sizeof(Segment) || header.e_phnum == 0 || header.e_phoff > bytes ||
      bytes - header.e_phoff < size_t(header.e_phnum) * sizeof(Segment))
    return "its program headers lie beyond the file";
  for (size_t i = 0; i < header.e_phnum; ++i) {
    Segment segment;
    std::memcpy(&segment, static_cast<const unsigned char *>(file) + header.e_phoff + i * sizeof(segment),
                sizeof(segment));
    bool mapped = segment.p_type == PT_LOAD || segment.p_type == PT_DYNAMIC;
    if (mapped && (segment.p_offset > bytes || segment.p_filesz > bytes - segment.p_offset))
      return "its segments lie beyond the file"; // to map them and touch them is a bus error
  }
  machine = header.e_machine;
  return nullptr;
}

static const char *readElf(const void *file, size_t bytes, unsigned &machine) {
  if (bytes < EI_NIDENT)
    return "too short for a library";
  auto *identity = static_cast<const unsigned char *>(file);
  if (std::memcmp(identity, ELFMAG, SELFMAG) != 0)
    return "not an ELF file";
  if (identity[EI_DATA] != ELFDATA2LSB || identity[EI_VERSION] != EV_CURRENT)
    return "not a little-endian ELF file";
  if (identity[EI_CLASS] == ELFCLASS32)
    return readHeaders<Elf32_Ehdr, Elf32_Phdr>(file, bytes, machine);
  if (identity[EI_CLASS] == ELFCLASS64)
    return readHeaders<Elf64_Ehdr, Elf64_Phdr>(file, bytes, machine);
  return "not an ELF file of 32 or 64 bits";
}

/// `contents` tells the hash of as many bytes of the file; null if that is not to be compared.
using ContentsHash = std::function<Status(size_t, Hash128 &)>;

static Status check(const void *file, size_t bytes, const std::string &name, const ContentsHash &contents) {
  auto failed = [&](Code code, const std::string &why) { return Status(code, name + ": " + why); };
  Seal seal;
  if (!readSeal(file, bytes, seal))
    return failed(Code::File, "not a library that DISC compiled, or cut short: it does not end with a seal");
  if (seal.check != checkOf(seal))
    return failed(Code::File, "damaged: the seal at its end is not whole");
  if (seal.version != kSealVersion)
    return failed(Code::Version, "its seal has version " + std::to_string(seal.version) +
                                     ", this runtime reads version " + std::to_string(kSealVersion));
  if (seal.payload != bytes - sizeof(Seal))
    return failed(Code::File, "damaged: " + std::to_string(bytes) + " bytes, " +
                                  std::to_string(seal.payload + sizeof(Seal)) + " were written");
  if (seal.machine != elfMachine())
    return failed(Code::Target, "made for another kind of machine (ELF machine " + std::to_string(seal.machine) +
                                    "), this one is " + machineName());
  Hash128 hash = {seal.hashLow, seal.hashHigh};
  if (contents)
    if (Status status = contents(size_t(seal.payload), hash); !status.ok())
      return status;
  if (!(hash == Hash128{seal.hashLow, seal.hashHigh}))
    return failed(Code::File, "damaged: its contents have another checksum than when it was written");
  // Only now: of a damaged file, the damage is what is to be told.
  unsigned machine;
  if (const char *wrong = readElf(file, size_t(seal.payload), machine))
    return failed(Code::File, wrong);
  if (machine != seal.machine)
    return failed(Code::File, "damaged: its header and its seal name different machines");
  return Status();
}

Status checkSealed(const MappedFile &file, bool trusted) {
  ContentsHash contents = [&](size_t bytes, Hash128 &hash) { return file.hash(bytes, hash); };
  return check(file.data(), file.size(), file.path(), trusted ? nullptr : contents);
}

Status checkSealed(const void *file, size_t bytes, const std::string &name, bool trusted) {
  ContentsHash contents = [&](size_t size, Hash128 &hash) {
    hash = blockwiseHash(file, size);
    return Status();
  };
  return check(file, bytes, name, trusted ? nullptr : contents);
}

Status sealFile(const std::string &path) {
  std::shared_ptr<MappedFile> file;
  if (Status status = MappedFile::open(path, file); !status.ok())
    return status;
  Seal seal;
  size_t payload = file->size();
  if (readSeal(file->data(), payload, seal) && seal.check == checkOf(seal))
    payload -= sizeof(Seal);
  unsigned machine;
  if (const char *wrong = readElf(file->data(), payload, machine))
    return Status(Code::File, path + ": " + wrong);
  Hash128 hash;
  if (Status status = file->hash(payload, hash); !status.ok())
    return status;
  seal = {};
  std::memcpy(seal.magic, kSealMagic, sizeof(kSealMagic));
  seal.version = kSealVersion;
  seal.machine = machine;
  seal.payload = payload;
  seal.hashLow = hash.low;
  seal.hashHigh = hash.high;
  seal.check = checkOf(seal);

  int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  bool written = fd >= 0 && pwrite(fd, &seal, sizeof(seal), off_t(payload)) == ssize_t(sizeof(seal));
  int error = errno;
  if (fd >= 0 && close(fd) != 0 && written) {
    written = false;
    error = errno;
  }
  return written ? Status() : Status(Code::File, path + ": cannot write: " + std::strerror(error));
}

} // namespace disc::rt
