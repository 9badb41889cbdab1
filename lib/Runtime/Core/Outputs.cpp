//===- Outputs.cpp - tensors that outlive the call ------------------------===//

#include "lib/Runtime/Core/Outputs.h"
#include "lib/Runtime/Core/Guarded.h"
#include "lib/Runtime/Core/Tensor.h"

#include <algorithm>
#include <utility>

namespace disc::rt {

constexpr size_t kMaxFreeBlocks = 64;
/// Blocks taken after which it is asked anew how much is needed.
constexpr int64_t kPeriod = 1024;

namespace {
/// A managed tensor and its extents in one object.
struct Managed {
  DLManagedTensorVersioned tensor;
  std::vector<int64_t> extents; ///< Shape, then strides.

  /// All but where the data is.
  void describe(DLDevice device, int64_t dtype, int64_t rank, const int64_t *dims);
};

/// In a device's memory.
struct DeviceOutput : Managed {
  Device *device;
  Stream stream;

  static void destroy(DLManagedTensorVersioned *tensor) {
    auto *self = static_cast<DeviceOutput *>(static_cast<Managed *>(tensor->manager_ctx));
    DeviceScope scope(self->device);
    self->device->release(tensor->dl_tensor.data, self->stream);
    delete self;
  }
};
} // namespace

/// In a block of the pool's.
struct OutputPool::Output : Managed {
  std::shared_ptr<OutputPool> pool;
  Block block;

  static void destroy(DLManagedTensorVersioned *tensor) {
    auto *self = static_cast<Output *>(static_cast<Managed *>(tensor->manager_ctx));
    self->pool->give(self->block);
    delete self;
  }
};

void Managed::describe(DLDevice device, int64_t dtype, int64_t rank, const int64_t *dims) {
  extents.resize(2 * size_t(rank));
  int64_t stride = 1;
  // Strides of an empty tensor are those of a tensor with its zeros read as ones.
  for (int64_t i = rank - 1; i >= 0; --i) {
    extents[i] = dims[i];
    extents[rank + i] = stride;
    // Beside a zero, other extents may be of any size.
    stride = int64_t(uint64_t(stride) * uint64_t(std::max<int64_t>(dims[i], 1)));
  }
  tensor.version = {1, 0};
  tensor.manager_ctx = this;
  tensor.flags = 0;
  DLDataType type = {uint8_t(dtype >> 8), uint8_t(dtype & 0xff), 1};
  tensor.dl_tensor = {nullptr, device, int32_t(rank), type, extents.data(), extents.data() + rank, 0};
}

Status allocateOutput(Device &device, Stream stream, int64_t dtype, int64_t rank, const int64_t *dims,
                      DLManagedTensorVersioned *&tensor) {
  int64_t bytes;
  void *data = nullptr;
  if (!denseBytes(dims, rank, elementBytes(dtype), bytes))
    return Status(Code::Memory, "too many elements");
  auto output = std::make_unique<DeviceOutput>();
  output->device = &device;
  output->stream = stream;
  output->describe(device.where, dtype, rank, dims);
  output->tensor.deleter = &DeviceOutput::destroy;
  if (Status status = device.allocate(size_t(bytes), stream, data); !status.ok())
    return status;
  tensor = &output.release()->tensor;
  tensor->dl_tensor.data = data;
  return Status();
}

OutputPool::~OutputPool() { close(); }

void OutputPool::close() {
  std::lock_guard<Mutex> lock(mutex);
  closed = true;
  for (Block &block : free)
    allocator.release(block.data, block.capacity);
  free.clear();
  freeBytes = 0;
}

DLManagedTensorVersioned *OutputPool::allocate(int64_t dtype, int64_t rank, const int64_t *dims, size_t redZone) {
  int64_t bytes;
  if (!denseBytes(dims, rank, elementBytes(dtype), bytes))
    return nullptr;
  size_t size = memorySize(bytes);
  if (size > size_t(PTRDIFF_MAX) - 2 * redZone)
    return nullptr;
  auto output = std::make_unique<Output>();
  output->pool = shared_from_this();
  output->describe({kDLCPU, 0}, dtype, rank, dims);
  output->tensor.deleter = &Output::destroy;
  output->block = take(size + 2 * redZone);
  if (!output->block.data)
    return nullptr;
  output->tensor.dl_tensor.data = static_cast<char *>(output->block.data) + redZone;
  return &output.release()->tensor;
}

OutputPool::Block OutputPool::take(size_t bytes) {
  // Rounded so that nearby sizes can share a block.
  size_t rounded = std::max<size_t>(kAlignment, (bytes + 511) / 512 * 512);
  Block result{nullptr, 0};
  {
    std::lock_guard<Mutex> lock(mutex);
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
    if (++taken == kPeriod)
      taken = 0, earlierPeak = std::exchange(peakBytes, 0);
    peakBytes = std::max(peakBytes, usedBytes);
  }
  // What is kept and what is in use together stay within the peak; a long list would make the search above slow.
  for (Block dropped = dropOne(); dropped.data; dropped = dropOne())
    allocator.release(dropped.data, dropped.capacity);
  if (!result.data) {
    result = {allocator.allocate(rounded), rounded};
    if (!result.data) {
      std::lock_guard<Mutex> lock(mutex);
      usedBytes -= rounded;
    }
  }
  return result;
}

OutputPool::Block OutputPool::dropOne() {
  std::lock_guard<Mutex> lock(mutex);
  if (free.empty() || (usedBytes + freeBytes <= std::max(peakBytes, earlierPeak) && free.size() <= kMaxFreeBlocks))
    return {nullptr, 0};
  Block block = free.front();
  freeBytes -= block.capacity;
  free.erase(free.begin());
  return block;
}

size_t OutputPool::heldBytes() {
  std::lock_guard<Mutex> lock(mutex);
  return freeBytes;
}

void OutputPool::give(Block block) {
  {
    std::lock_guard<Mutex> lock(mutex);
    usedBytes -= block.capacity;
    if (!closed && attempt([&] { free.push_back(block); })) {
      freeBytes += block.capacity;
      return;
    }
  }
  allocator.release(block.data, block.capacity);
}

} // namespace disc::rt
