//===- Arena.cpp - memory that one call owns while it runs ----------------===//

#include "lib/Runtime/Core/Arena.h"

#include <cstdlib>
#include <utility>

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace disc::rt {

constexpr size_t kHugePage = size_t(2) << 20;

void *allocateAligned(size_t bytes) {
  // Sizes come from arithmetic on extents; one this large is an overflow.
  if (bytes > size_t(INT64_MAX) - kHugePage)
    return nullptr;
  size_t alignment = bytes >= kHugePage ? kHugePage : kAlignment;
  size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  void *data = nullptr;
  if (posix_memalign(&data, alignment, rounded ? rounded : kAlignment) != 0)
    return nullptr;
#ifdef __linux__
  // Only a hint: fewer page faults on first touch, fewer TLB misses after.
  if (alignment == kHugePage)
    (void)madvise(data, rounded, MADV_HUGEPAGE);
#endif
  return data;
}

void freeAligned(void *data) { std::free(data); }

Buffer::~Buffer() { freeAligned(data_); }

Buffer &Buffer::operator=(Buffer &&other) noexcept {
  std::swap(data_, other.data_);
  std::swap(capacity_, other.capacity_);
  return *this;
}

void *Buffer::reserve(size_t bytes) {
  if (data_ && bytes <= capacity_)
    return data_;
  // Freed first: the old and the new one together would be the peak.
  freeAligned(data_);
  data_ = allocateAligned(bytes);
  capacity_ = data_ ? bytes : 0;
  return data_;
}

std::unique_ptr<Storage> StoragePool::acquire() {
  {
    std::lock_guard<std::mutex> lock(mutex);
    if (!free.empty()) {
      // The last one given back is the one still in the caches.
      std::unique_ptr<Storage> storage = std::move(free.back());
      free.pop_back();
      return storage;
    }
  }
  auto storage = std::make_unique<Storage>();
  storage->inputs.resize(numInputs);
  return storage;
}

void StoragePool::release(std::unique_ptr<Storage> storage) {
  std::lock_guard<std::mutex> lock(mutex);
  free.push_back(std::move(storage));
}

} // namespace disc::rt
