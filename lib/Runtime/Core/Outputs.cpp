//===- Outputs.cpp - tensors that outlive the call ------------------------===//

#include "lib/Runtime/Core/Outputs.h"
#include "lib/Runtime/Core/Tensor.h"

#include <algorithm>

namespace disc::rt {

constexpr size_t kMaxFreeBlocks = 64;

/// A managed tensor, its extents and its memory in one object.
struct OutputPool::Output {
  DLManagedTensorVersioned tensor;
  std::shared_ptr<OutputPool> pool;
  Block block;
  std::vector<int64_t> extents; ///< Shape, then strides.

  static void destroy(DLManagedTensorVersioned *tensor) {
    auto *self = static_cast<Output *>(tensor->manager_ctx);
    self->pool->give(self->block);
    delete self;
  }
};

OutputPool::~OutputPool() { close(); }

void OutputPool::close() {
  std::lock_guard<std::mutex> lock(mutex);
  closed = true;
  for (Block &block : free)
    allocator.release(block.data, block.capacity);
  free.clear();
  freeBytes = 0;
}

DLManagedTensorVersioned *OutputPool::allocate(int64_t dtype, int64_t rank, const int64_t *dims) {
  int64_t stride = 1, bytes;
  if (!denseBytes(dims, rank, elementBytes(dtype), bytes))
    return nullptr;
  std::vector<int64_t> extents(2 * rank);
  // Strides of an empty tensor are those of a tensor with its zeros read as ones.
  for (int64_t i = rank - 1; i >= 0; --i) {
    extents[i] = dims[i];
    extents[rank + i] = stride;
    // Beside a zero, other extents may be of any size.
    stride = int64_t(uint64_t(stride) * uint64_t(std::max<int64_t>(dims[i], 1)));
  }
  Block block = take(size_t(bytes));
  if (!block.data)
    return nullptr;

  auto *output = new Output;
  output->pool = shared_from_this();
  output->block = block;
  output->extents = std::move(extents);
  DLManagedTensorVersioned &managed = output->tensor;
  managed.version = {1, 0};
  managed.manager_ctx = output;
  managed.deleter = &Output::destroy;
  managed.flags = 0;
  DLTensor &tensor = managed.dl_tensor;
  tensor.data = block.data;
  tensor.device = {kDLCPU, 0};
  tensor.ndim = int32_t(rank);
  tensor.dtype = {uint8_t(dtype >> 8), uint8_t(dtype & 0xff), 1};
  tensor.shape = output->extents.data();
  tensor.strides = output->extents.data() + rank;
  tensor.byte_offset = 0;
  return &managed;
}

OutputPool::Block OutputPool::take(size_t bytes) {
  // Rounded so that nearby sizes can share a block.
  size_t rounded = std::max<size_t>(kAlignment, (bytes + 511) / 512 * 512);
  std::vector<Block> dropped;
  Block result{nullptr, 0};
  {
    std::lock_guard<std::mutex> lock(mutex);
    // Best fit, of blocks that would not waste more than they hold.
    auto best = free.end();
    for (auto it = free.begin(); it != free.end(); ++it)
      if (it->capacity >= bytes && it->capacity / 2 <= rounded && (best == free.end() || it->capacity < best->capacity))
        best = it;
    if (best != free.end()) {
      result = *best;
      freeBytes -= best->capacity;
      free.erase(best);
    }
    size_t capacity = result.data ? result.capacity : rounded;
    usedBytes += capacity;
    peakBytes = std::max(peakBytes, usedBytes);
    // What is kept and what is in use together stay within the peak; a long list
    // would make the search above slow.
    while (!free.empty() && (usedBytes + freeBytes > peakBytes || free.size() > kMaxFreeBlocks)) {
      freeBytes -= free.front().capacity;
      dropped.push_back(free.front());
      free.erase(free.begin());
    }
  }
  for (Block &block : dropped)
    allocator.release(block.data, block.capacity);
  if (!result.data) {
    result = {allocator.allocate(rounded), rounded};
    if (!result.data) {
      std::lock_guard<std::mutex> lock(mutex);
      usedBytes -= rounded;
    }
  }
  return result;
}

size_t OutputPool::heldBytes() {
  std::lock_guard<std::mutex> lock(mutex);
  return freeBytes;
}

void OutputPool::give(Block block) {
  {
    std::lock_guard<std::mutex> lock(mutex);
    usedBytes -= block.capacity;
    if (!closed) {
      freeBytes += block.capacity;
      free.push_back(block);
      return;
    }
  }
  allocator.release(block.data, block.capacity);
}

} // namespace disc::rt
