//===- Faults.cpp - system calls and allocations that fail on demand ------===//

#include "Faults.h"

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <new>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

using namespace disc::test;

static std::atomic<int> armed{-1}; ///< The kind of fault.
static std::atomic<long> left{0};  ///< Calls until the one that fails.
static std::atomic<bool> all{false}, inside{false};

void disc::test::expectFaults(bool expected) { inside = expected; }

FailAt::FailAt(Fault fault, long n, bool onwards) {
  left = n;
  all = onwards;
  armed = int(fault);
}

FailAt::~FailAt() { armed = -1; }

bool FailAt::fired() const { return left <= 0; }

static const char *cutPath = nullptr;
static std::atomic<long> cutBytes{0}, cutLeft{0};

CutAt::CutAt(const char *path, long bytes, long n) {
  cutPath = path;
  cutBytes = bytes;
  cutLeft = n;
}

CutAt::~CutAt() { cutLeft = 0; }

bool CutAt::fired() const { return cutLeft <= 0; }

static std::atomic<const char *> insteadPath{nullptr};

OpenInstead::OpenInstead(const char *path) { insteadPath = path; }

OpenInstead::~OpenInstead() { insteadPath = nullptr; }

static bool fails(Fault fault) {
  if (armed.load(std::memory_order_relaxed) != int(fault) || !inside.load(std::memory_order_relaxed))
    return false;
  long before = left.fetch_sub(1);
  return before == 1 || (before < 1 && all);
}

//===-- operator new ------------------------------------------------------===//

extern "C" int __real_posix_memalign(void **data, size_t alignment, size_t bytes);

static void *allocated(size_t bytes, size_t alignment) {
  void *data = nullptr;
  if (fails(Fault::New) || __real_posix_memalign(&data, alignment, bytes ? bytes : 1) != 0)
    return nullptr;
  return data;
}

static void *required(size_t bytes, size_t alignment) {
  if (void *data = allocated(bytes, alignment))
    return data;
  throw std::bad_alloc();
}

constexpr size_t kUsual = alignof(std::max_align_t);
void *operator new(size_t bytes) { return required(bytes, kUsual); }
void *operator new[](size_t bytes) { return required(bytes, kUsual); }
void *operator new(size_t bytes, std::align_val_t alignment) { return required(bytes, size_t(alignment)); }
void *operator new[](size_t bytes, std::align_val_t alignment) { return required(bytes, size_t(alignment)); }
void *operator new(size_t bytes, const std::nothrow_t &) noexcept { return allocated(bytes, kUsual); }
void *operator new[](size_t bytes, const std::nothrow_t &) noexcept { return allocated(bytes, kUsual); }
void operator delete(void *data) noexcept { std::free(data); }
void operator delete[](void *data) noexcept { std::free(data); }
void operator delete(void *data, size_t) noexcept { std::free(data); }
void operator delete[](void *data, size_t) noexcept { std::free(data); }
void operator delete(void *data, std::align_val_t) noexcept { std::free(data); }
void operator delete[](void *data, std::align_val_t) noexcept { std::free(data); }
void operator delete(void *data, size_t, std::align_val_t) noexcept { std::free(data); }
void operator delete[](void *data, size_t, std::align_val_t) noexcept { std::free(data); }

//===-- The C library -----------------------------------------------------===//

extern "C" {
int __wrap_posix_memalign(void **data, size_t alignment, size_t bytes) {
  return fails(Fault::Memory) ? ENOMEM : __real_posix_memalign(data, alignment, bytes);
}

void *__real_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes) { return fails(Fault::Malloc) ? nullptr : __real_malloc(bytes); }

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *arg) {
  return fails(Fault::Thread) ? EAGAIN : __real_pthread_create(thread, attributes, start, arg);
}

int __real_pthread_key_create(pthread_key_t *key, void (*destroy)(void *));
int __wrap_pthread_key_create(pthread_key_t *key, void (*destroy)(void *)) {
  return fails(Fault::Key) ? EAGAIN : __real_pthread_key_create(key, destroy);
}

void *__real_mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset) {
  if (!fails(Fault::Map))
    return __real_mmap(at, bytes, protection, flags, fd, offset);
  errno = ENOMEM;
  return MAP_FAILED;
}

ssize_t __real_pread(int fd, void *to, size_t bytes, off_t offset);
ssize_t __wrap_pread(int fd, void *to, size_t bytes, off_t offset) {
  if (cutLeft > 0 && cutLeft.fetch_sub(1) == 1)
    (void)!truncate(cutPath, cutBytes);
  if (!fails(Fault::Read))
    return __real_pread(fd, to, bytes, offset);
  errno = EIO;
  return -1;
}

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  mode_t mode = flags & O_CREAT ? va_arg(more, mode_t) : 0;
  va_end(more);
  if (!fails(Fault::Open))
    return __real_open(path, flags, mode);
  errno = EMFILE;
  return -1;
}

int __real_fstat(int fd, struct stat *info);
int __wrap_fstat(int fd, struct stat *info) {
  if (!fails(Fault::Stat))
    return __real_fstat(fd, info);
  errno = EIO;
  return -1;
}

std::FILE *__real_fopen(const char *path, const char *mode);
std::FILE *__wrap_fopen(const char *path, const char *mode) {
  if (!fails(Fault::Stream))
    return __real_fopen(insteadPath ? insteadPath.load() : path, mode);
  errno = EMFILE;
  return nullptr;
}

void *__real_dlopen(const char *path, int flags);
void *__wrap_dlopen(const char *path, int flags) {
  return fails(Fault::Library) ? nullptr : __real_dlopen(path, flags);
}
}
