//===- Arena.h - memory that one call owns while it runs --------*- C++ -*-===//
//
// A model keeps a list of Storages. A call takes one, and gives it back at its end, so
// that concurrent calls never share one and a steady state allocates nothing. Buffers
// grow to the largest size asked for and stay there: memory is flat after the largest
// call.
//
//===----------------------------------------------------------------------===//

#ifndef DISC_RUNTIME_CORE_ARENA_H
#define DISC_RUNTIME_CORE_ARENA_H

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace disc::rt {

/// Every buffer starts on a cache line, which is also the widest vector.
constexpr size_t kAlignment = 64;

/// Owned aligned memory that only grows.
class Buffer {
public:
  Buffer() = default;
  Buffer(Buffer &&other) noexcept : data_(other.data_), capacity_(other.capacity_) {
    other.data_ = nullptr;
    other.capacity_ = 0;
  }
  Buffer &operator=(Buffer &&other) noexcept;
  Buffer(const Buffer &) = delete;
  Buffer &operator=(const Buffer &) = delete;
  ~Buffer();

  /// At least `bytes` bytes, or null if there is no memory. What was in the buffer is
  /// lost when it grows. Never null for zero bytes.
  void *reserve(size_t bytes);
  void *data() const { return data_; }
  size_t capacity() const { return capacity_; }

private:
  void *data_ = nullptr;
  size_t capacity_ = 0;
};

/// Aligned memory, on huge pages where it is large; null if there is none.
void *allocateAligned(size_t bytes);
void freeAligned(void *data);

/// The buffers of one call.
struct Storage {
  Buffer arena;               ///< Temporaries.
  Buffer scratch;             ///< Of the calling thread, while it takes part.
  std::vector<Buffer> inputs; ///< Contiguous copies of strided inputs.
};

/// The storages that no call uses at the moment.
class StoragePool {
public:
  explicit StoragePool(size_t numInputs) : numInputs(numInputs) {}

  std::unique_ptr<Storage> acquire();
  void release(std::unique_ptr<Storage> storage);

private:
  size_t numInputs;
  std::mutex mutex;
  std::vector<std::unique_ptr<Storage>> free;
};

} // namespace disc::rt

#endif // DISC_RUNTIME_CORE_ARENA_H
