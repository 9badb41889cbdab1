//===- MappedFile.cpp - a file's bytes, read-only -------------------------===//

#include "lib/Runtime/Core/MappedFile.h"
#include "lib/Runtime/Core/ThreadPool.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

namespace disc::rt {

MappedFile::~MappedFile() {
  if (data_)
    munmap(const_cast<unsigned char *>(data_), size_);
  if (fd_ >= 0)
    close(fd_);
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
  if (data == MAP_FAILED) {
    Status status = failed("cannot map");
    close(fd);
    return status;
  }
  file.reset(new MappedFile);
  file->path_ = path;
  file->fd_ = fd;
  file->data_ = static_cast<const unsigned char *>(data);
  file->size_ = size_t(info.st_size);
  return Status();
}

//===-- Hashing -----------------------------------------------------------===//

namespace {
struct Hashing {
  int fd;
  size_t bytes;
  std::vector<Hash128> blocks;
  std::atomic<size_t> next{0};
  std::atomic<int> error{0};

  void work() {
    std::unique_ptr<unsigned char[]> block(new unsigned char[kHashBlock]);
    for (size_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < blocks.size();) {
      size_t begin = i * kHashBlock, size = std::min(kHashBlock, bytes - begin), done = 0;
      while (done < size) {
        ssize_t got = pread(fd, block.get() + done, size - done, off_t(begin + done));
        if (got < 0 && errno == EINTR)
          continue;
        if (got <= 0) { // 0: cut short since it was opened
          error.store(got < 0 ? errno : EIO, std::memory_order_relaxed);
          return;
        }
        done += size_t(got);
      }
      blocks[i] = hash128(block.get(), size);
    }
  }
  static void *main(void *self) {
    static_cast<Hashing *>(self)->work();
    return nullptr;
  }
};
} // namespace

Status MappedFile::hash(size_t bytes, Hash128 &result) const {
  // Memory is what limits it: more threads hardly help. With fewer than these it takes longer, no more.
  constexpr size_t kHelpers = 3;
  Hashing job;
  job.fd = fd_;
  job.bytes = bytes;
  job.blocks.resize((bytes + kHashBlock - 1) / kHashBlock);
  pthread_t helpers[kHelpers];
  size_t started = 0, wanted = std::min({kHelpers, size_t(defaultThreads() - 1), job.blocks.size() / 16});
  while (started < wanted && pthread_create(&helpers[started], nullptr, Hashing::main, &job) == 0)
    ++started;
  job.work();
  for (size_t i = 0; i < started; ++i)
    pthread_join(helpers[i], nullptr);
  if (int error = job.error.load(std::memory_order_relaxed))
    return Status(Code::File, path_ + ": cannot read: " + std::strerror(error));
  result = hash128(job.blocks.data(), job.blocks.size() * sizeof(Hash128));
  return Status();
}

//===-- Memory ------------------------------------------------------------===//

/// The pages that lie wholly in a range, or with `partly` all that it touches.
static bool pagesOf(const void *data, size_t bytes, bool partly, void *&begin, size_t &size) {
  uintptr_t page = uintptr_t(sysconf(_SC_PAGESIZE)), from = reinterpret_cast<uintptr_t>(data), to = from + bytes;
  from = (partly ? from : from + page - 1) / page * page;
  to = (partly ? to + page - 1 : to) / page * page;
  begin = reinterpret_cast<void *>(from);
  size = to - from;
  return from < to;
}

void MappedFile::prefetch(const void *data, size_t bytes) const {
  void *begin;
  size_t size;
  if (!pagesOf(data, bytes, /*partly=*/true, begin, size))
    return;
#ifdef MADV_POPULATE_READ
  // Maps what the page cache has in one go; older kernels fault the pages one by one.
  if (madvise(begin, size, MADV_POPULATE_READ) == 0)
    return;
#endif
  (void)madvise(begin, size, MADV_WILLNEED);
}

void MappedFile::letGo(const void *data, size_t bytes) const {
  void *begin;
  size_t size;
  if (pagesOf(data, bytes, /*partly=*/false, begin, size))
    (void)madvise(begin, size, MADV_DONTNEED);
}

} // namespace disc::rt
