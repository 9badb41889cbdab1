//===- Outputs.h - tensors that outlive the call ----------------*- C++ -*-===//
//
// Outputs belong to the caller once the call returns, as DLPack managed tensors. Their
// blocks come back here when the caller lets go of them, and serve later calls: fresh
// pages cost more than many a kernel. How much is kept is bounded by the most that
// was in use at one time, of late.
//
//===----------------------------------------------------------------------===//

#ifndef DISC_RUNTIME_CORE_OUTPUTS_H
#define DISC_RUNTIME_CORE_OUTPUTS_H

#include "lib/Runtime/Core/Allocator.h"
#include "lib/Runtime/Core/Mutex.h"
#include "lib/Runtime/Device/Device.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace disc::rt {

/// A contiguous tensor in memory of the device's, which is freed in the order of the stream.
Status allocateOutput(Device &device, Stream stream, int64_t dtype, int64_t rank, const int64_t *dims,
                      DLManagedTensorVersioned *&tensor);

class OutputPool : public std::enable_shared_from_this<OutputPool> {
public:
  explicit OutputPool(const Allocator &allocator = Allocator::standard()) : allocator(allocator) {}
  ~OutputPool();

  /// A contiguous tensor, or null if there is no memory. The pool lives on until the
  /// last of its tensors is deleted. `redZone` bytes before and after it are nobody's.
  DLManagedTensorVersioned *allocate(int64_t dtype, int64_t rank, const int64_t *dims, size_t redZone = 0);

  /// There will be no later calls: nothing is kept any more.
  void close();

  /// Bytes kept for later calls.
  size_t heldBytes();

private:
  struct Block {
    void *data;
    size_t capacity;
  };
  struct Output;

  Block take(size_t bytes);
  void give(Block block);
  /// A block that is not to be kept any longer, or one without data.
  Block dropOne();

  const Allocator allocator; ///< A copy: outputs outlive the model.
  Mutex mutex;
  std::vector<Block> free; ///< Least recently given first.
  bool closed = false;
  size_t freeBytes = 0, usedBytes = 0;
  size_t peakBytes = 0, earlierPeak = 0; ///< Most in use at once, in this period of blocks taken and in the one before.
  int64_t taken = 0;                     ///< In this period.
};

} // namespace disc::rt

#endif // DISC_RUNTIME_CORE_OUTPUTS_H
