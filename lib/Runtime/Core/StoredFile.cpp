//===- StoredFile.cpp - a file's bytes, read-only -------------------------===//

#include "lib/Runtime/Core/StoredFile.h"
#include "lib/Runtime/Core/ThreadPool.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <new>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

namespace disc::rt {

StoredFile::~StoredFile() {
  if (data_)
    munmap(data_, size_);
  if (fd_ >= 0)
    close(fd_);
}

static Status failedTo(const char *what, const std::string &path) {
  int error = errno;
  return Status(Code::File, path + ": cannot " + what + ": " + std::strerror(error));
}

Status StoredFile::open(const std::string &path, Access access, std::shared_ptr<StoredFile> &result) {
  std::shared_ptr<StoredFile> file(new StoredFile);
  file->path_ = path;
  // Without O_NONBLOCK, to open a pipe would wait for its writer.
  file->fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file->fd_ < 0)
    return failedTo("open", path);
  struct stat info;
  if (fstat(file->fd_, &info) != 0)
    return failedTo("stat", path);
  const char *wrong = S_ISDIR(info.st_mode)    ? "is a directory"
                      : !S_ISREG(info.st_mode) ? "is not a regular file"
                      : info.st_size == 0      ? "is empty"
                                               : nullptr;
  if (wrong)
    return Status(Code::File, path + ": " + wrong);
  file->size_ = size_t(info.st_size);
  if (access != Access::Parts)
    if (Status status = file->fill(access); !status.ok())
      return status;
  result = std::move(file);
  return Status();
}

Status StoredFile::fill(Access access) {
  bool mapped = access == Access::Map;
  void *data = mmap(nullptr, size_, mapped ? PROT_READ : PROT_READ | PROT_WRITE,
                    mapped ? MAP_PRIVATE : MAP_PRIVATE | MAP_ANONYMOUS, mapped ? fd_ : -1, 0);
  if (data == MAP_FAILED && mapped)
    return failedTo("map", path_);
  if (data == MAP_FAILED)
    return Status(Code::Memory, path_ + ": no memory for its " + std::to_string(size_) + " bytes");
  data_ = static_cast<unsigned char *>(data);
  if (mapped)
    return Status();
#ifdef MADV_HUGEPAGE
  (void)madvise(data_, size_, MADV_HUGEPAGE); // fewer page faults while it is filled
#endif
  if (Status status = read(0, data_, size_); !status.ok())
    return status;
  (void)mprotect(data_, size_, PROT_READ);
  return Status();
}

/// 0, or what errno says: EIO also for a file that ends too early.
static int readAll(int fd, size_t offset, void *to, size_t bytes) {
  for (size_t done = 0; done < bytes;) {
    ssize_t got = pread(fd, static_cast<unsigned char *>(to) + done, bytes - done, off_t(offset + done));
    if (got < 0 && errno == EINTR)
      continue;
    if (got <= 0)
      return got < 0 ? errno : EIO;
    done += size_t(got);
  }
  return 0;
}

Status StoredFile::read(size_t offset, void *to, size_t bytes) const {
  int error = readAll(fd_, offset, to, bytes);
  if (!error)
    return Status();
  struct stat info;
  bool isCut = error == EIO && fstat(fd_, &info) == 0 && size_t(info.st_size) < offset + bytes;
  return Status(Code::File, path_ + ": cannot read: " +
                                (isCut ? "it was cut short while it was being read" : std::strerror(error)));
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
    std::unique_ptr<unsigned char[]> block(new (std::nothrow) unsigned char[kHashBlock]);
    if (!block)
      error.store(ENOMEM, std::memory_order_relaxed);
    for (size_t i; block && (i = next.fetch_add(1, std::memory_order_relaxed)) < blocks.size();) {
      size_t begin = i * kHashBlock, size = std::min(kHashBlock, bytes - begin);
      if (int failed = readAll(fd, begin, block.get(), size)) {
        error.store(failed, std::memory_order_relaxed);
        return;
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

Status StoredFile::hash(size_t bytes, Hash128 &result) const {
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
  int error = job.error.load(std::memory_order_relaxed);
  if (error == ENOMEM)
    return Status(Code::Memory, path_ + ": no memory to compute its checksum");
  if (error)
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

void StoredFile::prefetch(const void *data, size_t bytes) const {
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

void StoredFile::letGo(const void *data, size_t bytes) const {
  void *begin;
  size_t size;
  if (pagesOf(data, bytes, /*partly=*/false, begin, size))
    (void)madvise(begin, size, MADV_DONTNEED);
}

} // namespace disc::rt
