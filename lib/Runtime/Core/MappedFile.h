//===- MappedFile.h - a file's bytes, read-only -----------------*- C++ -*-===//

#ifndef DISC_RUNTIME_CORE_MAPPEDFILE_H
#define DISC_RUNTIME_CORE_MAPPEDFILE_H

#include "lib/Runtime/Core/Hash.h"
#include "lib/Runtime/Core/Status.h"

#include <cstddef>

namespace disc::rt {

/// Processes that map one file share its pages. A file that is cut short while it is mapped faults on access: replace
/// files by renaming.
class MappedFile {
public:
  ~MappedFile();
  MappedFile(const MappedFile &) = delete;
  MappedFile &operator=(const MappedFile &) = delete;

  /// Only regular files that are not empty.
  static Status open(const std::string &path, std::shared_ptr<MappedFile> &file);

  const std::string &path() const { return path_; }
  const unsigned char *data() const { return data_; }
  size_t size() const { return size_; }

  /// blockwiseHash() of the first `bytes` bytes, by reading instead of mapping, which is twice as fast.
  Status hash(size_t bytes, Hash128 &result) const;

  /// [data, data + bytes) will be read soon.
  void prefetch(const void *data, size_t bytes) const;
  /// [data, data + bytes) will hardly be read again: memory that only this range needs is given back.
  void letGo(const void *data, size_t bytes) const;

private:
  MappedFile() = default;

  std::string path_;
  int fd_ = -1;
  const unsigned char *data_ = nullptr;
  size_t size_ = 0;
};

} // namespace disc::rt

#endif // DISC_RUNTIME_CORE_MAPPEDFILE_H
