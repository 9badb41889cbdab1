//===- Allocator.h - where memory comes from --------------------*- C++ -*-===//

#ifndef DISC_RUNTIME_CORE_ALLOCATOR_H
#define DISC_RUNTIME_CORE_ALLOCATOR_H

#include "lib/Runtime/disc.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace disc::rt {

/// Every buffer starts on a cache line, which is also the widest vector.
constexpr size_t kAlignment = 64;

/// The size of memory that compiled code asks for: what has more bits than sizes have here stays too large.
inline size_t memorySize(int64_t bytes) { return size_t(std::min(uint64_t(bytes), uint64_t(PTRDIFF_MAX) + 1)); }

/// How long memory is likely to be used. What large blocks that last leave in malloc's heap when they go fits nothing
/// else.
enum class Use { Brief, Lasting };

class Meter;

/// The caller's functions, a device's, or the C library where there are none.
struct Allocator {
  disc_allocate_fn allocateFn = nullptr;
  disc_release_fn releaseFn = nullptr;
  void *context = nullptr;
  /// Within the memory, if the host cannot.
  bool (*copyFn)(void *context, void *to, const void *from, size_t bytes) = nullptr;
  /// Counts, and may refuse; null: nobody does.
  Meter *meter = nullptr;

  /// At a multiple of kAlignment, on huge pages where it is large; null if there is none. Never null for zero bytes
  /// otherwise.
  void *allocate(size_t bytes, Use use = Use::Brief) const;
  /// `bytes` and `use` as it was allocated.
  void release(void *data, size_t bytes, Use use = Use::Brief) const;
  /// What an allocation of `bytes` bytes takes, which is what the meter counts: a multiple of kAlignment, and of pages
  /// of 64 KiB for lasting memory of at least 128 KiB that the C library's system gives.
  size_t taken(size_t bytes, Use use = Use::Brief) const;
  /// The most bytes that can be allocated in `room` bytes for lasting use; `room` if it is negative.
  int64_t largest(int64_t room) const;
  bool copy(void *to, const void *from, size_t bytes) const;

  static const Allocator &standard();
};

inline Allocator metered(Allocator allocator, Meter &meter) {
  allocator.meter = &meter;
  return allocator;
}

} // namespace disc::rt

#endif // DISC_RUNTIME_CORE_ALLOCATOR_H
