//===- Seal.cpp - the seal that marks a library's file as complete --------===//

#include "lib/Runtime/Core/Seal.h"
#include "lib/Runtime/Core/Cpu.h"
#include "lib/Runtime/Core/Hash.h"
#include "lib/Runtime/Core/StoredFile.h"

#include <cerrno>
#include <cstring>
#include <elf.h>
#include <fcntl.h>
#include <functional>
#include <unistd.h>

namespace disc::rt {

static uint64_t checkOf(const Seal &seal) { return hash64(&seal, offsetof(Seal, check)); }

namespace {
/// A file, or bytes in memory.
struct Source {
  std::string name;
  size_t size;
  std::function<Status(size_t offset, void *to, size_t bytes)> read;
  std::function<Status(size_t bytes, Hash128 &hash)> hash; ///< Of the first bytes; null if they are not compared.
};
} // namespace

static Source sourceOf(const StoredFile &file) {
  return {file.path(), file.size(), [&](size_t offset, void *to, size_t bytes) { return file.read(offset, to, bytes); },
          [&](size_t bytes, Hash128 &hash) { return file.hash(bytes, hash); }};
}

/// The seal at the end of a file, if there is one.
static Status readSeal(const Source &file, Seal &seal, bool &found) {
  found = false;
  if (file.size < sizeof(Seal))
    return Status();
  if (Status status = file.read(file.size - sizeof(Seal), &seal, sizeof(Seal)); !status.ok())
    return status;
  found = std::memcmp(seal.magic, kSealMagic, sizeof(kSealMagic)) == 0;
  return Status();
}

/// e_machine of a little-endian shared library of `bytes` bytes whose headers are of these types; an error if it is
/// something else.
template <typename Header, typename Segment>
static Status readHeaders(const Source &file, size_t bytes, unsigned &machine) {
  auto wrong = [&](const char *why) { return Status(Code::File, file.name + ": " + why); };
  Header header;
  if (bytes < sizeof(header))
    return wrong("too short for a library");
  if (Status status = file.read(0, &header, sizeof(header)); !status.ok())
    return status;
  if (header.e_type != ET_DYN)
    return wrong("not a shared library");
  if (header.e_phentsize != sizeof(Segment) || header.e_phnum == 0 || header.e_phoff > bytes ||
      bytes - header.e_phoff < size_t(header.e_phnum) * sizeof(Segment))
    return wrong("its program headers are beyond the end of the file");
  for (size_t i = 0; i < header.e_phnum; ++i) {
    Segment segment;
    if (Status status = file.read(header.e_phoff + i * sizeof(segment), &segment, sizeof(segment)); !status.ok())
      return status;
    bool mapped = segment.p_type == PT_LOAD || segment.p_type == PT_DYNAMIC;
    if (mapped && (segment.p_offset > bytes || segment.p_filesz > bytes - segment.p_offset))
      return wrong("its segments are beyond the end of the file"); // reading such a mapping raises SIGBUS
  }
  machine = header.e_machine;
  return Status();
}

static Status readElf(const Source &file, size_t bytes, unsigned &machine) {
  auto wrong = [&](const char *why) { return Status(Code::File, file.name + ": " + why); };
  if (bytes < EI_NIDENT)
    return wrong("too short for a library");
  unsigned char identity[EI_NIDENT];
  if (Status status = file.read(0, identity, sizeof(identity)); !status.ok())
    return status;
  if (std::memcmp(identity, ELFMAG, SELFMAG) != 0)
    return wrong("not an ELF file");
  if (identity[EI_DATA] != ELFDATA2LSB || identity[EI_VERSION] != EV_CURRENT)
    return wrong("not a little-endian ELF file");
  if (identity[EI_CLASS] == ELFCLASS32)
    return readHeaders<Elf32_Ehdr, Elf32_Phdr>(file, bytes, machine);
  if (identity[EI_CLASS] == ELFCLASS64)
    return readHeaders<Elf64_Ehdr, Elf64_Phdr>(file, bytes, machine);
  return wrong("not an ELF file of 32 or 64 bits");
}

static Status check(const Source &file, Seal &seal) {
  auto failed = [&](Code code, const std::string &why) { return Status(code, file.name + ": " + why); };
  bool found;
  if (Status status = readSeal(file, seal, found); !status.ok())
    return status;
  if (!found)
    return failed(Code::File, "not a library that DISC compiled, or cut short: it does not end with a seal");
  if (seal.check != checkOf(seal))
    return failed(Code::File, "damaged: the seal at its end has a wrong checksum");
  if (seal.version != kSealVersion)
    return failed(Code::Version, "its seal has version " + std::to_string(seal.version) +
                                     ", this runtime reads version " + std::to_string(kSealVersion));
  if (seal.payload != file.size - sizeof(Seal))
    return failed(Code::File, "damaged: it has " + std::to_string(file.size) + " bytes, but " +
                                  std::to_string(seal.payload + sizeof(Seal)) + " were written");
  if (seal.machine != elfMachine())
    return failed(Code::Target, "made for another kind of machine (ELF machine " + std::to_string(seal.machine) +
                                    "), this one is " + machineName());
  Hash128 hash = {seal.hashLow, seal.hashHigh};
  if (file.hash)
    if (Status status = file.hash(size_t(seal.payload), hash); !status.ok())
      return status;
  if (!(hash == Hash128{seal.hashLow, seal.hashHigh}))
    return failed(Code::File, "damaged: its contents have another checksum than when it was written");
  // Checked last, so that a damaged file is reported as damaged.
  unsigned machine;
  if (Status status = readElf(file, size_t(seal.payload), machine); !status.ok())
    return status;
  if (machine != seal.machine)
    return failed(Code::File, "damaged: its header and its seal name different machines");
  return Status();
}

Status checkSealed(const StoredFile &file, bool trusted, Seal &seal) {
  Source source = sourceOf(file);
  if (trusted)
    source.hash = nullptr;
  return check(source, seal);
}

Status checkSealed(const void *file, size_t bytes, const std::string &name, bool trusted) {
  Source source = {name, bytes,
                   [&](size_t offset, void *to, size_t size) {
                     std::memcpy(to, static_cast<const unsigned char *>(file) + offset, size);
                     return Status();
                   },
                   nullptr};
  if (!trusted)
    source.hash = [&](size_t size, Hash128 &hash) {
      hash = blockwiseHash(file, size);
      return Status();
    };
  Seal seal;
  return check(source, seal);
}

Status sealFile(const std::string &path) {
  std::shared_ptr<StoredFile> file;
  if (Status status = StoredFile::open(path, StoredFile::Access::Parts, file); !status.ok())
    return status;
  Source source = sourceOf(*file);
  Seal seal;
  bool found;
  if (Status status = readSeal(source, seal, found); !status.ok())
    return status;
  size_t payload = file->size() - (found && seal.check == checkOf(seal) ? sizeof(Seal) : 0);
  unsigned machine;
  if (Status status = readElf(source, payload, machine); !status.ok())
    return status;
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
