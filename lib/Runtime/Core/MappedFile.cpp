//===- MappedFile.cpp - a file's bytes, read-only -------------------------===//

#include "lib/Runtime/Core/MappedFile.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace disc::rt {

MappedFile::~MappedFile() {
  if (data_)
    munmap(const_cast<unsigned char *>(data_), size_);
}

Status MappedFile::open(const std::string &path, std::shared_ptr<MappedFile> &file) {
  auto failed = [&](const char *what) { return Status(Code::File, path + ": " + what + ": " + std::strerror(errno)); };
  // Without O_NONBLOCK, to open a pipe would wait for its writer.
  int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0)
    return failed("cannot open");
  struct stat info;
  if (fstat(fd, &info) != 0) {
    Status status = failed("cannot stat");
    close(fd);
    return status;
  }
  const char *wrong = S_ISDIR(info.st_mode)    ? "is a directory"
                      : !S_ISREG(info.st_mode) ? "is not a regular file"
                      : info.st_size == 0      ? "is empty"
                                               : nullptr;
  if (wrong) {
    close(fd);
    return Status(Code::File, path + ": " + wrong);
  }
  void *data = mmap(nullptr, size_t(info.st_size), PROT_READ, MAP_PRIVATE, fd, 0);
  Status status = data == MAP_FAILED ? failed("cannot map") : Status();
  close(fd);
  if (!status.ok())
    return status;
  file.reset(new MappedFile);
  file->path_ = path;
  file->data_ = static_cast<const unsigned char *>(data);
  file->size_ = size_t(info.st_size);
  return Status();
}

void MappedFile::prefetch() const {
#ifdef MADV_POPULATE_READ
  // Maps what the page cache has in one go; older kernels fault the pages one by one.
  if (madvise(const_cast<unsigned char *>(data_), size_, MADV_POPULATE_READ) == 0)
    return;
#endif
  (void)madvise(const_cast<unsigned char *>(data_), size_, MADV_WILLNEED);
}

void MappedFile::letGo(const void *data, size_t bytes) const {
  uintptr_t page = uintptr_t(sysconf(_SC_PAGESIZE));
  uintptr_t begin = (reinterpret_cast<uintptr_t>(data) + page - 1) / page * page;
  uintptr_t end = (reinterpret_cast<uintptr_t>(data) + bytes) / page * page;
  if (begin < end)
    (void)madvise(reinterpret_cast<void *>(begin), end - begin, MADV_DONTNEED);
}

} // namespace disc::rt
