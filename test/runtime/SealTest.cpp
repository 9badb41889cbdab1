//===- SealTest.cpp - files are checked before they are believed ----------===//

#include "lib/Runtime/Core/Seal.h"
#include "Check.h"
#include "HandModel.h"
#include "lib/Runtime/Core/Cpu.h"
#include "lib/Runtime/Core/Hash.h"

#include <cstring>
#include <elf.h>

using namespace disc::test;
using namespace disc::rt;

/// The least that passes for a shared library.
static std::string tinyElf() {
  Elf64_Ehdr header = {};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_ident[EI_VERSION] = EV_CURRENT;
  header.e_type = ET_DYN;
  header.e_machine = Elf64_Half(elfMachine());
  header.e_phoff = sizeof(header);
  header.e_phentsize = sizeof(Elf64_Phdr);
  header.e_phnum = 1;
  return std::string(reinterpret_cast<char *>(&header), sizeof(header)) + std::string(sizeof(Elf64_Phdr) + 100, 'x');
}

static std::string sealed(const std::string &contents) {
  std::string path = temporaryPath("sealed");
  writeFile(path, contents);
  CHECK(sealFile(path).ok());
  return readFile(path);
}

static std::string complaint(const std::string &file, Code expected = Code::File, bool trusted = false) {
  Status status = checkSealed(file.data(), file.size(), "f", trusted);
  if (status.ok())
    return "";
  CHECK(status.code() == expected);
  return status.error().message;
}

/// A file whose seal says something else, and is whole.
static std::string withSeal(std::string file, void (*change)(Seal &)) {
  Seal seal;
  char *place = &file[file.size() - sizeof(seal)];
  std::memcpy(&seal, place, sizeof(seal));
  change(seal);
  Hash128 hash = blockwiseHash(file.data(), file.size() - sizeof(seal));
  seal.hashLow = hash.low;
  seal.hashHigh = hash.high;
  seal.check = hash64(&seal, 56);
  std::memcpy(place, &seal, sizeof(seal));
  return file;
}

TEST(sealedFilesAreWhole) {
  std::string file = sealed(tinyElf());
  CHECK(file.size() == tinyElf().size() + sizeof(Seal));
  CHECK_TEXT(complaint(file), "");
  CHECK_TEXT(complaint(file, Code::File, /*trusted=*/true), "");
  // Sealing again changes nothing.
  CHECK(sealed(file) == file);
}

TEST(everyFlippedByteIsTold) {
  std::string file = sealed(tinyElf());
  for (size_t i = 0; i < file.size(); ++i)
    for (unsigned char flip : {0x01, 0x80, 0xff}) {
      std::string bad = file;
      bad[i] = char(bad[i] ^ flip);
      CHECK(!complaint(bad).empty());
    }
}

TEST(everyCutAndGrownFileIsTold) {
  std::string file = sealed(tinyElf());
  for (size_t length = 0; length < file.size(); ++length)
    CHECK(!complaint(file.substr(0, length)).empty());
  CHECK_TEXT(complaint(file + "x"), "f: not a library that DISC compiled, or cut short: it does not end with a seal");
  // The end of one file behind the beginning of another.
  std::string longer = tinyElf() + file.substr(file.size() - sizeof(Seal) - 8);
  CHECK_TEXT(complaint(longer), "f: damaged: it has 292 bytes, but 284 were written");
}

TEST(sealsOfOthersAreTold) {
  std::string file = sealed(tinyElf());
  CHECK_TEXT(complaint(withSeal(file, [](Seal &seal) { seal.version = 9; }), Code::Version),
             "f: its seal has version 9, this runtime reads version 2");
  CHECK_TEXT(complaint(withSeal(file, [](Seal &seal) { seal.machine = EM_S390; }), Code::Target),
             std::string("f: made for another kind of machine (ELF machine 22), this one is ") + machineName());
  auto withHeader = [&](void (*change)(Elf64_Ehdr &)) {
    std::string changed = file;
    Elf64_Ehdr header;
    std::memcpy(&header, changed.data(), sizeof(header));
    change(header);
    std::memcpy(&changed[0], &header, sizeof(header));
    return withSeal(changed, [](Seal &) {});
  };
  CHECK_TEXT(complaint(withHeader([](Elf64_Ehdr &header) { header.e_machine = EM_S390; })),
             "f: damaged: its header and its seal name different machines");
  CHECK_TEXT(complaint(withHeader([](Elf64_Ehdr &header) { header.e_type = ET_EXEC; })), "f: not a shared library");
  CHECK_TEXT(complaint(withHeader([](Elf64_Ehdr &header) { header.e_ident[EI_DATA] = ELFDATA2MSB; })),
             "f: not a little-endian ELF file");
  CHECK_TEXT(complaint(withHeader([](Elf64_Ehdr &header) { header.e_phnum = 60000; })),
             "f: its program headers are beyond the end of the file");
  CHECK_TEXT(complaint(withHeader([](Elf64_Ehdr &header) { header.e_phoff = UINT64_MAX; })),
             "f: its program headers are beyond the end of the file");
  CHECK_TEXT(complaint(withHeader([](Elf64_Ehdr &header) { header.e_ident[0] = 'x'; })), "f: not an ELF file");
}

template <typename Header, typename Segment> static std::string elfOf(unsigned char kind, Segment segment) {
  Header header = {};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = kind;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_ident[EI_VERSION] = EV_CURRENT;
  header.e_type = ET_DYN;
  header.e_machine = decltype(header.e_machine)(elfMachine());
  header.e_phoff = sizeof(header);
  header.e_phentsize = sizeof(segment);
  header.e_phnum = 1;
  return std::string(reinterpret_cast<char *>(&header), sizeof(header)) +
         std::string(reinterpret_cast<char *>(&segment), sizeof(segment));
}

TEST(headersOfLibrariesAreChecked) {
  std::string path = temporaryPath("header");
  auto complains = [&](const std::string &file, const char *why) {
    writeFile(path, file);
    Status status = sealFile(path);
    CHECK_TEXT(status.ok() ? "" : status.error().message, *why ? path + ": " + why : "");
  };
  // Both kinds of headers, with a segment that may lie beyond the file.
  for (uint64_t offset : {0, 4, 100000}) {
    Elf64_Phdr wide = {};
    Elf32_Phdr narrow = {};
    wide.p_type = narrow.p_type = PT_LOAD;
    wide.p_offset = offset;
    narrow.p_offset = Elf32_Off(offset);
    wide.p_filesz = narrow.p_filesz = 84; // all of the narrow file
    std::string small = elfOf<Elf32_Ehdr>(ELFCLASS32, narrow), large = elfOf<Elf64_Ehdr>(ELFCLASS64, wide);
    CHECK(small.size() == 84 && large.size() == 120);
    complains(small, offset ? "its segments are beyond the end of the file" : "");
    complains(large, offset == 100000 ? "its segments are beyond the end of the file" : "");
    wide.p_type = PT_NOTE; // nobody maps it
    complains(elfOf<Elf64_Ehdr>(ELFCLASS64, wide), "");
  }
  const std::string whole = elfOf<Elf64_Ehdr>(ELFCLASS64, Elf64_Phdr{});
  complains(whole.substr(0, 10), "too short for a library");
  complains(whole.substr(0, 40), "too short for a library");
  complains(whole.substr(0, 70), "its program headers are beyond the end of the file");
  auto changed = [&](void (*change)(Elf64_Ehdr &)) {
    std::string file = whole;
    Elf64_Ehdr header;
    std::memcpy(&header, file.data(), sizeof(header));
    change(header);
    std::memcpy(&file[0], &header, sizeof(header));
    return file;
  };
  complains(changed([](Elf64_Ehdr &header) { header.e_phentsize = 8; }),
            "its program headers are beyond the end of the file");
  complains(changed([](Elf64_Ehdr &header) { header.e_phnum = 0; }),
            "its program headers are beyond the end of the file");
  complains(changed([](Elf64_Ehdr &header) { header.e_ident[EI_VERSION] = 9; }), "not a little-endian ELF file");
  complains(changed([](Elf64_Ehdr &header) { header.e_ident[EI_CLASS] = 3; }), "not an ELF file of 32 or 64 bits");
}

TEST(onlyLibrariesAreSealed) {
  std::string path = temporaryPath("text");
  writeFile(path, std::string(200, 'x'));
  CHECK_TEXT(sealFile(path).error().message, path + ": not an ELF file");
  CHECK_TEXT(sealFile("/no/such/file").error().message, "/no/such/file: cannot open: No such file or directory");
}
