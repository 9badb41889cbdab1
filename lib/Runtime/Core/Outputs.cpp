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
  std::vector<int64_t> extents;     ///< Shape, then strides.
  MemoryAccount *account = nullptr; ///< Lives as long as `counted` is not 0.
  int64_t counted = 0;              ///< Bytes that the account counts, until the caller has the tensor.

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
    if (self->counted)
      self->account->subtract(self->counted);
    delete self;
  }
};
} // namespace

int64_t handOver(DLManagedTensorVersioned *tensor) {
  return std::exchange(static_cast<Managed *>(tensor->manager_ctx)->counted, 0);
}

int64_t countedBytes(const DLManagedTensorVersioned *tensor) {
  return static_cast<const Managed *>(tensor->manager_ctx)->counted;
}

int64_t deviceOutputBytes(int64_t bytes) { return int64_t(Allocator::standard().taken(memorySize(bytes))); }

/// In a block of the pool's.
struct OutputPool::Output : Managed {
  std::shared_ptr<OutputPool> pool;
  Block block;

  static void destroy(DLManagedTensorVersioned *tensor) {
    auto *self = static_cast<Output *>(static_cast<Managed *>(tensor->manager_ctx));
    self->pool->give(self->block, self->counted != 0);
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

Status allocateOutput(Device &device, Stream stream, Meter &meter, int64_t dtype, int64_t rank, const int64_t *dims,
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
  int64_t counted = deviceOutputBytes(bytes);
  if (!meter.take(size_t(counted)))
    return Status(Code::Memory, "the memory budget does not allow it");
  if (Status status = device.allocate(size_t(bytes), stream, data); !status.ok()) {
    meter.give(size_t(counted));
    return status;
  }
  output->account = meter.countsIn();
  output->counted = output->account ? counted : 0;
  tensor = &output.release()->tensor;
  tensor->dl_tensor.data = data;
  return Status();
}

OutputPool::~OutputPool() { close(); }

void OutputPool::close() {
  std::lock_guard<Mutex> lock(mutex);
  closed = true;
  for (Block &block : free)
    drop(block);
  free.clear();
  freeBytes = 0;
}

void OutputPool::drop(Block block) {
  allocator.release(block.data, block.capacity);
  if (account)
    account->subtract(int64_t(block.capacity));
}

bool OutputPool::reclaim() {
  Block block;
  {
    std::lock_guard<Mutex> lock(mutex);
    if (free.empty())
      return false;
    block = free.front();
    freeBytes -= block.capacity;
    free.erase(free.begin());
  }
  drop(block);
  return true;
}

DLManagedTensorVersioned *OutputPool::allocate(int64_t dtype, int64_t rank, const int64_t *dims, size_t redZone,
                                               Meter *meter, Block *block) {
  int64_t bytes;
  size_t size = denseBytes(dims, rank, elementBytes(dtype), bytes) ? memorySize(bytes) : SIZE_MAX;
  bool fits = size <= size_t(PTRDIFF_MAX) - 2 * redZone;
  if (block && block->data && (!fits || block->capacity < size + 2 * redZone))
    give(std::exchange(*block, {}));
  if (!fits)
    return nullptr;
  auto output = std::make_unique<Output>();
  output->pool = shared_from_this();
  output->describe({kDLCPU, 0}, dtype, rank, dims);
  output->tensor.deleter = &Output::destroy;
  output->block = block && block->data ? std::exchange(*block, {}) : take(size + 2 * redZone, meter);
  if (!output->block.data)
    return nullptr;
  output->account = account.get();
  output->counted = account ? int64_t(output->block.capacity) : 0;
  output->tensor.dl_tensor.data = static_cast<char *>(output->block.data) + redZone;
  return &output.release()->tensor;
}

size_t OutputPool::capacityFor(size_t bytes) {
  // Rounded so that nearby sizes can share a block, and a capacity is its own capacity.
  constexpr size_t kUnit = 512;
  return std::max(kUnit, (bytes + kUnit - 1) / kUnit * kUnit);
}

OutputPool::Block OutputPool::takeKept(size_t capacity) {
  std::lock_guard<Mutex> lock(mutex);
  for (auto it = free.begin(); it != free.end(); ++it)
    if (it->capacity == capacity) {
      Block result = *it;
      freeBytes -= capacity, usedBytes += capacity;
      peakBytes = std::max(peakBytes, usedBytes);
      free.erase(it);
      return result;
    }
  return {};
}

OutputPool::Block OutputPool::take(size_t bytes, Meter *meter) {
  size_t rounded = capacityFor(bytes);
  Block result;
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
    drop(dropped);
  if (!result.data) {
    Allocator counting = allocator;
    counting.meter = meter;
    result = {counting.allocate(rounded), rounded};
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
    return {};
  Block block = free.front();
  freeBytes -= block.capacity;
  free.erase(free.begin());
  return block;
}

size_t OutputPool::heldBytes() {
  std::lock_guard<Mutex> lock(mutex);
  return freeBytes;
}

void OutputPool::give(Block block, bool isCounted) {
  int64_t capacity = int64_t(block.capacity), budget = account ? account->budget.load(std::memory_order_relaxed) : 0;
  // What the budget has no room for is not kept.
  bool keeps = true;
  if (account && !isCounted && budget)
    keeps = isCounted = account->take(capacity, budget);
  else if (account && !isCounted)
    account->add(capacity), isCounted = true;
  else if (budget)
    keeps = account->held() <= budget;
  {
    std::lock_guard<Mutex> lock(mutex);
    usedBytes -= block.capacity;
    if (keeps && !closed && attempt([&] { free.push_back(block); })) {
      freeBytes += block.capacity;
      block = {};
    }
  }
  if (!block.data) {
    if (account)
      account->changed();
  } else if (isCounted) {
    drop(block);
  } else {
    allocator.release(block.data, block.capacity);
  }
}

} // namespace disc::rt
