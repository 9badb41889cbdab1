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
#include "lib/Runtime/Core/Budget.h"
#include "lib/Runtime/Core/Mutex.h"
#include "lib/Runtime/Device/Device.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace disc::rt {

/// A contiguous tensor in memory of the device's, which is freed in the order of the stream. The meter's account counts
/// it until handOver().
Status allocateOutput(Device &device, Stream stream, Meter &meter, int64_t dtype, int64_t rank, const int64_t *dims,
                      DLManagedTensorVersioned *&tensor);
/// What a tensor of so many bytes counts for.
int64_t deviceOutputBytes(int64_t bytes);

/// A tensor of either kind becomes the caller's: the bytes that it counted for until now.
int64_t handOver(DLManagedTensorVersioned *tensor);
int64_t countedBytes(const DLManagedTensorVersioned *tensor);

/// A block of an OutputPool; without data there is none.
struct OutputBlock {
  void *data = nullptr;
  size_t capacity = 0;
};

class OutputPool : public std::enable_shared_from_this<OutputPool> {
public:
  /// Blocks that are kept, or used by calls, count in the account, if there is one.
  explicit OutputPool(const Allocator &allocator = Allocator::standard(),
                      std::shared_ptr<MemoryAccount> account = nullptr)
      : allocator(allocator), account(std::move(account)) {}
  ~OutputPool();

  using Block = OutputBlock;

  /// A contiguous tensor, or null if there is no memory. The pool lives on until the
  /// last of its tensors is deleted. `redZone` bytes before and after it are nobody's.
  /// A `block` of the call's is taken; it is used if it is large enough, and given back if not.
  DLManagedTensorVersioned *allocate(int64_t dtype, int64_t rank, const int64_t *dims, size_t redZone = 0,
                                     Meter *meter = nullptr, Block *block = nullptr);

  /// The capacity of a new block for so many bytes.
  static size_t capacityFor(size_t bytes);
  /// A block of this capacity that is kept, or one without data.
  Block takeKept(size_t capacity);
  /// A block, or one without data if there is no memory.
  Block take(size_t bytes, Meter *meter);
  /// Gives back one that a call has.
  void give(Block block) { give(block, /*isCounted=*/true); }

  /// Frees a block that is kept; false if there is none.
  bool reclaim();

  /// There will be no later calls: nothing is kept any more.
  void close();

  /// Bytes kept for later calls.
  size_t heldBytes();

private:
  struct Output;

  void give(Block block, bool isCounted);
  /// Frees one that the account counts.
  void drop(Block block);
  /// A block that is not to be kept any longer, or one without data.
  Block dropOne();

  const Allocator allocator; ///< A copy: outputs outlive the model.
  const std::shared_ptr<MemoryAccount> account;
  Mutex mutex;
  std::vector<Block> free; ///< Least recently given first.
  bool closed = false;
  size_t freeBytes = 0, usedBytes = 0;
  size_t peakBytes = 0, earlierPeak = 0; ///< Most in use at once, in this period of blocks taken and in the one before.
  int64_t taken = 0;                     ///< In this period.
};

} // namespace disc::rt

#endif // DISC_RUNTIME_CORE_OUTPUTS_H
