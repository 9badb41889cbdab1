//===- StoredFile.h - a file's bytes, read-only -----------------*- C++ -*-===//
//
// A mapped file that somebody cuts short is a bus error for whoever touches its pages, and nothing a library may do
// about signals of its host program changes that. Files are therefore read: a file that is cut short while it is read
// is an error, and later changes do not matter. Whoever prefers to share the pages of a large file between processes
// asks for a mapping (DISC_MAP_FILES), and must replace such files by renaming.
//
//===----------------------------------------------------------------------===//

#ifndef DISC_RUNTIME_CORE_STOREDFILE_H
#define DISC_RUNTIME_CORE_STOREDFILE_H

#include "lib/Runtime/Core/Hash.h"
#include "lib/Runtime/Core/Status.h"

#include <cstddef>

namespace disc::rt {

class StoredFile {
public:
  enum class Access {
    Parts, ///< read() and hash() alone: there is no data().
    Copy,  ///< The data is in memory of our own.
    Map    ///< The data is the file's pages.
  };

  ~StoredFile();
  StoredFile(const StoredFile &) = delete;
  StoredFile &operator=(const StoredFile &) = delete;

  /// Only regular files that are not empty.
  static Status open(const std::string &path, Access access, std::shared_ptr<StoredFile> &file);

  const std::string &path() const { return path_; }
  const unsigned char *data() const { return data_; }
  size_t size() const { return size_; }

  /// The bytes from `offset` on, which lie within size(); an error if the file has become shorter since.
  Status read(size_t offset, void *to, size_t bytes) const;

  /// blockwiseHash() of the first `bytes` bytes, as the file has them now.
  Status hash(size_t bytes, Hash128 &result) const;

  /// [data, data + bytes) will be read soon.
  void prefetch(const void *data, size_t bytes) const;
  /// [data, data + bytes) is not read again: memory that only this range needs is given back.
  void letGo(const void *data, size_t bytes) const;

private:
  StoredFile() = default;
  Status fill(Access access);

  std::string path_;
  int fd_ = -1;
  unsigned char *data_ = nullptr;
  size_t size_ = 0;
};

} // namespace disc::rt

#endif // DISC_RUNTIME_CORE_STOREDFILE_H
