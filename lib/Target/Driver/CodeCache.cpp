//===- CodeCache.cpp - Compiled objects by content ------------------------===//
//
// A file is a magic word, the SHA-256 of the rest, the number of objects, their
// sizes (64 bits each, of this machine's order), and the objects.
//
//===----------------------------------------------------------------------===//

#include "lib/Target/Driver/CodeCache.h"

#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/SHA256.h"
#include "llvm/Support/raw_ostream.h"

#include <algorithm>
#include <cstring>
#include <sys/stat.h>
#include <unistd.h>

using namespace mlir::disc;
namespace fs = llvm::sys::fs;

static constexpr llvm::StringLiteral kMagic = "DISCOBJ1";
static constexpr llvm::StringLiteral kSuffix = ".disc-object";
static constexpr llvm::StringLiteral kUnfinished = ".disc-unfinished";
static constexpr size_t kHash = 32;
/// A process that died while it wrote leaves a file that nobody renames.
static constexpr auto kAbandoned = std::chrono::hours(1);
/// Evicting leaves room, so that not every store has to.
static constexpr double kKept = 0.8;

/// Whether code in the folder can only come from this user: it is run without further checks.
static bool isPrivate(llvm::StringRef folder) {
  struct stat status;
  return stat(folder.str().c_str(), &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == geteuid() &&
         !(status.st_mode & (S_IWGRP | S_IWOTH));
}

CodeCache::CodeCache(std::string where, uint64_t limit) : folder(std::move(where)), limit(limit) {
  if (folder.empty())
    return;
  if (fs::create_directories(folder, /*IgnoreExisting=*/true, fs::owner_all) || !isPrivate(folder))
    folder.clear();
}

std::string CodeCache::key(llvm::ArrayRef<llvm::StringRef> parts) {
  llvm::SHA256 hash;
  for (llvm::StringRef part : parts) {
    // Sizes keep ("a", "bc") apart from ("ab", "c").
    uint64_t size = part.size();
    hash.update(llvm::StringRef(reinterpret_cast<const char *>(&size), sizeof(size)));
    hash.update(part);
  }
  std::array<uint8_t, kHash> bytes = hash.final();
  return llvm::toHex(bytes, /*LowerCase=*/true);
}

std::string CodeCache::path(llvm::StringRef key) const {
  llvm::SmallString<128> path(folder);
  llvm::sys::path::append(path, key + kSuffix);
  return std::string(path);
}

static std::array<uint8_t, kHash> hashOf(llvm::StringRef bytes) {
  return llvm::SHA256::hash(llvm::ArrayRef(reinterpret_cast<const uint8_t *>(bytes.data()), bytes.size()));
}

CodeCache::Objects CodeCache::find(llvm::StringRef key) const {
  if (!enabled())
    return {};
  std::string name = path(key);
  auto file = llvm::MemoryBuffer::getFile(name, /*IsText=*/false, /*RequiresNullTerminator=*/false);
  if (!file)
    return {};
  llvm::StringRef bytes = (*file)->getBuffer();
  if (!bytes.consume_front(kMagic) || bytes.size() < kHash + sizeof(uint64_t))
    return {};
  llvm::StringRef expected = bytes.take_front(kHash);
  bytes = bytes.drop_front(kHash);
  if (std::memcmp(hashOf(bytes).data(), expected.data(), kHash) != 0)
    return {};

  auto read = [&](llvm::StringRef &rest) {
    uint64_t value;
    std::memcpy(&value, rest.data(), sizeof(value));
    rest = rest.drop_front(sizeof(value));
    return value;
  };
  uint64_t count = read(bytes);
  if (count > bytes.size() / sizeof(uint64_t))
    return {};
  llvm::StringRef sizes = bytes.take_front(count * sizeof(uint64_t));
  bytes = bytes.drop_front(sizes.size());
  Objects objects;
  for (uint64_t i = 0; i < count; ++i) {
    uint64_t size = read(sizes);
    if (size > bytes.size())
      return {};
    objects.push_back(llvm::MemoryBuffer::getMemBufferCopy(bytes.take_front(size), ("disc." + llvm::Twine(i)).str()));
    bytes = bytes.drop_front(size);
  }
  // The time of the last change says when an entry was last used.
  if (int fd; !fs::openFileForWrite(name, fd, fs::CD_OpenExisting, fs::OF_Append)) {
    (void)fs::setLastAccessAndModificationTime(fd, std::chrono::system_clock::now());
    close(fd);
  }
  return objects;
}

void CodeCache::store(llvm::StringRef key, const Objects &objects) const {
  if (!enabled())
    return;
  std::string content;
  llvm::raw_string_ostream os(content);
  auto write = [&](uint64_t value) { os.write(reinterpret_cast<const char *>(&value), sizeof(value)); };
  write(objects.size());
  for (const auto &object : objects)
    write(object->getBufferSize());
  for (const auto &object : objects)
    os << object->getBuffer();
  os.flush();
  if (content.size() > limit)
    return;

  int fd;
  llvm::SmallString<128> unfinished;
  if (fs::createUniqueFile(folder + "/%%%%%%%%%%%%" + kUnfinished, fd, unfinished, fs::OF_None,
                           fs::owner_read | fs::owner_write))
    return;
  llvm::raw_fd_ostream file(fd, /*shouldClose=*/true);
  std::array<uint8_t, kHash> hash = hashOf(content);
  file << kMagic << llvm::StringRef(reinterpret_cast<const char *>(hash.data()), kHash) << content;
  file.close();
  bool failed = file.has_error();
  file.clear_error();
  if (failed || fs::rename(unfinished, path(key))) {
    (void)fs::remove(unfinished);
    return;
  }
  evict();
}

void CodeCache::evict() const {
  struct Entry {
    std::string path;
    llvm::sys::TimePoint<> used;
    uint64_t size;
  };
  std::vector<Entry> entries;
  uint64_t total = 0;
  auto now = std::chrono::system_clock::now();
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; it != end && !error; it.increment(error)) {
    bool finished = llvm::StringRef(it->path()).ends_with(kSuffix);
    if (!finished && !llvm::StringRef(it->path()).ends_with(kUnfinished))
      continue;
    llvm::ErrorOr<fs::basic_file_status> status = it->status();
    if (!status)
      continue; // another process removed it
    if (!finished) {
      if (now - status->getLastModificationTime() > kAbandoned)
        (void)fs::remove(it->path());
      continue;
    }
    entries.push_back({it->path(), status->getLastModificationTime(), status->getSize()});
    total += status->getSize();
  }
  if (total <= limit)
    return;
  std::sort(entries.begin(), entries.end(), [](const Entry &a, const Entry &b) { return a.used < b.used; });
  for (const Entry &entry : entries) {
    if (double(total) <= kKept * double(limit))
      return;
    (void)fs::remove(entry.path);
    total -= entry.size;
  }
}
