//===- Arena.cpp - memory that one call owns while it runs ----------------===//

#include "lib/Runtime/Core/Arena.h"
#include "lib/Runtime/Core/Guarded.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace disc::rt {

constexpr size_t kHugePage = size_t(2) << 20;
/// From here on, memory that lasts has pages of its own.
constexpr size_t kOwnPages = size_t(128) << 10;
constexpr size_t kMappedUnit = size_t(64) << 10;

bool Allocator::copy(void *to, const void *from, size_t bytes) const {
  if (copyFn)
    return copyFn(context, to, from, bytes);
  std::memcpy(to, from, bytes);
  return true;
}

static size_t rounded(size_t bytes) { return std::max(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment); }

const Allocator &Allocator::standard() {
  static const Allocator allocator;
  return allocator;
}

#ifdef __linux__
static bool isMapped(size_t bytes, Use use) { return use == Use::Lasting && bytes >= kOwnPages; }

/// In whole pages, of whichever size the machine has.
static size_t mappedSize(size_t bytes) { return (bytes + kMappedUnit - 1) / kMappedUnit * kMappedUnit; }

/// Large memory begins with a huge page. Null if there is none.
static void *map(size_t bytes) {
  size_t size = mappedSize(bytes), more = bytes >= kHugePage ? kHugePage : 0;
  void *mapped = mmap(nullptr, size + more, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED || !more)
    return mapped == MAP_FAILED ? nullptr : mapped;
  char *begin = static_cast<char *>(mapped);
  size_t before = (kHugePage - reinterpret_cast<uintptr_t>(begin) % kHugePage) % kHugePage;
  if (before)
    (void)munmap(begin, before);
  (void)munmap(begin + before + size, more - before);
  return begin + before;
}

static void unmap(void *data, size_t bytes) { (void)munmap(data, mappedSize(bytes)); }
#else
static bool isMapped(size_t, Use) { return false; }
static void *map(size_t) { return nullptr; }
static void unmap(void *, size_t) {}
#endif

/// Sizes come from arithmetic on extents; one larger than this is an overflow.
constexpr size_t kMostBytes = size_t(PTRDIFF_MAX) - kHugePage;

size_t Allocator::taken(size_t bytes, Use use) const {
  if (bytes > kMostBytes)
    return size_t(PTRDIFF_MAX);
  bytes = rounded(bytes);
#ifdef __linux__
  if (!allocateFn && isMapped(bytes, use))
    return mappedSize(bytes);
#endif
  return bytes;
}

int64_t Allocator::largest(int64_t room) const {
  if (room < 0)
    return room;
  size_t bytes = std::min(size_t(room), kMostBytes) / kAlignment * kAlignment;
  // More than the room by less than a page.
  if (size_t more = taken(bytes, Use::Lasting); bytes && more > size_t(room))
    bytes = more - kMappedUnit;
  return int64_t(bytes);
}

/// Without the meter.
static void *allocateFrom(const Allocator &from, size_t bytes, Use use) {
  if (from.allocateFn) {
    void *data = from.allocateFn(from.context, bytes, kAlignment);
    if (reinterpret_cast<uintptr_t>(data) % kAlignment == 0)
      return data;
    // Compiled code would fault on it, or worse.
    from.releaseFn(from.context, data, bytes);
    return nullptr;
  }
  size_t alignment = bytes >= kHugePage ? kHugePage : kAlignment;
  void *data = nullptr;
  if (isMapped(bytes, use))
    data = map(bytes);
  else if (posix_memalign(&data, alignment, bytes) != 0)
    data = nullptr;
#ifdef __linux__
  // Only a hint: fewer page faults on first touch, fewer TLB misses after.
  if (data && alignment == kHugePage)
    (void)madvise(data, bytes, MADV_HUGEPAGE);
#endif
  return data;
}

void *Allocator::allocate(size_t bytes, Use use) const {
  if (meter && !meter->take(taken(bytes, use)))
    return nullptr;
  void *data = bytes > kMostBytes ? nullptr : allocateFrom(*this, rounded(bytes), use);
  if (meter && !data)
    meter->give(taken(bytes, use));
  return data;
}

static void releaseTo(const Allocator &to, void *data, size_t bytes, Use use) {
  if (to.releaseFn)
    to.releaseFn(to.context, data, bytes);
  else if (isMapped(bytes, use))
    unmap(data, bytes);
  else
    std::free(data);
}

void Allocator::release(void *data, size_t bytes, Use use) const {
  if (!data)
    return;
  releaseTo(*this, data, rounded(bytes), use);
  if (meter)
    meter->give(taken(bytes, use));
}

Region::~Region() {
  if (begin)
    unmap(begin, size);
}

bool Region::open(size_t expected) {
  if (begin || expected < kHugePage || expected > size_t(PTRDIFF_MAX) / 2)
    return begin;
  // Blocks are padded, to whole panels.
  size_t wanted = expected + expected / 8;
  begin = static_cast<char *>(map(wanted));
  if (!begin)
    return false;
  size = wanted;
#ifdef __linux__
  // Behind the last whole huge page lie small ones, of which only those that are written to become resident.
  (void)madvise(begin, expected / kHugePage * kHugePage, MADV_HUGEPAGE);
#endif
  return true;
}

void *Region::take(size_t bytes) {
  if (bytes > size - used || rounded(bytes) > size - used)
    return nullptr;
  void *data = begin + used;
  used += rounded(bytes);
  return data;
}

void Buffer::release() {
  allocator_->release(data_, capacity_, Use::Lasting);
  data_ = nullptr;
  capacity_ = 0;
}

Buffer &Buffer::operator=(Buffer &&other) noexcept {
  std::swap(allocator_, other.allocator_);
  std::swap(data_, other.data_);
  std::swap(capacity_, other.capacity_);
  return *this;
}

void *Buffer::reserve(size_t bytes) {
  touched_ = true;
  if (data_ && bytes <= capacity_)
    return data_;
  // Nobody reads or writes it. Kernels of a device are given its own memory.
  alignas(kAlignment) static unsigned char nothing[kAlignment];
  if (bytes == 0 && !allocator_->copyFn)
    return nothing;
  // Freed first: the old and the new one together would be the peak.
  release();
  data_ = allocator_->allocate(bytes, Use::Lasting);
  capacity_ = data_ ? bytes : 0;
  return data_;
}

void *Buffer::grow(size_t bytes, bool keep) {
  touched_ = true;
  if (bytes == 0 || (data_ && bytes <= capacity_))
    return reserve(bytes);
  size_t wanted = std::max(bytes, 2 * capacity_);
  // Where there is too little for twice as much, there may be enough for what is needed.
  if (!keep)
    return reserve(wanted) || wanted == bytes ? data_ : reserve(bytes);
  Buffer larger(*allocator_);
  if (!larger.reserve(wanted) && (wanted == bytes || !larger.reserve(bytes)))
    return nullptr;
  if (data_ && !allocator_->copy(larger.data_, data_, capacity_))
    return nullptr;
  *this = std::move(larger);
  return data_;
}

void *Frames::push(size_t bytes) {
  constexpr size_t kChunk = size_t(1) << 20;
  bytes = rounded(bytes);
  if (uint64_t(bytes) >> 40)
    return nullptr;
  while (chunk >= chunks.size() || used + bytes > chunks[chunk].capacity()) {
    // A chunk that is in use is left as it is; the next one may be replaced by a larger.
    if (chunk < chunks.size() && used != 0) {
      ++chunk, used = 0;
      continue;
    }
    if (chunk >= chunks.size())
      chunks.emplace_back(*allocator);
    isGrowing = true;
    bool grew = chunks[chunk].reserve(std::max(bytes, kChunk)) || (bytes < kChunk && chunks[chunk].reserve(bytes));
    isGrowing = false;
    if (!grew)
      return nullptr;
  }
  void *data = static_cast<char *>(chunks[chunk].data()) + used;
  used += bytes;
  return data;
}

bool Frames::freeUnused() {
  size_t inUse = used || isGrowing ? chunk + 1 : chunk;
  if (chunks.size() <= inUse)
    return false;
  chunks.erase(chunks.begin() + ptrdiff_t(inUse), chunks.end());
  return true;
}

size_t Frames::heldBytes() const {
  size_t bytes = 0;
  for (const Buffer &each : chunks)
    bytes += each.takenBytes();
  return bytes;
}

bool hasFailure(const KernelError *record) {
  // Kernels write it at any time.
  return record && *static_cast<const volatile int32_t *>(&record->raised);
}

Status takeFailure(KernelError *record) {
  if (!hasFailure(record))
    return Status();
  KernelError error = *record;
  *record = {};
  return indexError(error.what, error.index, error.extent);
}

Storage::~Storage() {
  if (meter.limit())
    meter.end();
  if (failure)
    memory.device->giveBack(failure);
}

Storage::Storage(const disc_model_info_t &info, const Allocator &host, Device *device, MemoryAccount *account,
                 Reclaimer *kept)
    : meter(account, kept), memory(device), allocator(metered(device ? memory.allocator() : host, meter)),
      hostAllocator(metered(host, meter)), frames(allocator), stack(&meter), workspace(allocator),
      scratch(hostAllocator), outputs(size_t(info.num_outputs)) {
  for (int64_t i = 0; i < info.num_inputs; ++i)
    inputs.emplace_back(allocator);
  if (info.num_repeats > 0) {
    repeated.resize(size_t(info.num_inputs));
    given.resize(size_t(info.num_inputs));
  }
  size_t ranks = 0;
  for (int64_t i = 0; i < info.num_outputs; ++i) {
    scattered.emplace_back(allocator);
    ranks += size_t(info.outputs[i].rank);
  }
  dims.resize(ranks);
  int64_t *next = dims.data();
  for (size_t i = 0; i < outputs.size(); next += info.outputs[i++].rank)
    outputs[i].dims = next;
}

template <typename Use> void Storage::eachBuffer(Use use) {
  for (std::vector<Buffer> *list : {&arena, &slots, &staged, &inputs, &scattered})
    for (Buffer &buffer : *list)
      use(buffer);
  use(workspace);
  use(scratch);
}

void Storage::begin(int64_t budget) {
  eachBuffer([](Buffer &buffer) { buffer.untouch(); });
  frames.pop(0);
  stack.untouch();
  meter.begin(budget, *this);
}

bool Storage::reclaim() {
  bool any = frames.freeUnused();
  any |= stack.releaseUnused();
  eachBuffer([&](Buffer &buffer) {
    if (buffer.isTouched() || !buffer.data())
      return;
    buffer.release();
    any = true;
  });
  return any;
}

void Storage::releaseAll() {
  eachBuffer([](Buffer &buffer) { buffer.untouch(); });
  frames.pop(0);
  stack.untouch();
  (void)reclaim();
}

/// Of the storages of a device's model: how well one suits a call on the stream.
static int suits(Storage &storage, Stream stream) {
  if (storage.memory.stream == stream || !storage.used)
    return 2;
  return storage.memory.device->finished(*storage.used) ? 1 : 0;
}

std::unique_ptr<Storage> StoragePool::acquire(Device *device, Stream stream, bool anyOne) {
  constexpr size_t kWithoutSharing = 8;
  std::unique_ptr<Storage> storage;
  std::unique_ptr<Storage> unneeded; // freed without the lock
  {
    std::lock_guard<Mutex> lock(mutex);
    bool found = !free.empty();
    if (device && found && !anyOne) {
      size_t chosen = free.size();
      int best = free.size() < kWithoutSharing ? 0 : -1;
      for (size_t i = 0; i < free.size(); ++i)
        if (int fit = suits(*free[i], stream); fit > best)
          best = fit, chosen = i;
      found = chosen < free.size();
      if (found)
        std::swap(free[chosen], free[free.size() - 1]);
    }
    if (found)
      storage = free.pop();
    // A device's work may still use those that are spare.
    if (!device)
      unneeded = free.trim();
  }
  return storage ? std::move(storage) : make(device);
}

std::unique_ptr<Storage> StoragePool::make(Device *device) {
  return std::make_unique<Storage>(info, allocator, device, account, kept);
}

/// What the device still does with a storage that goes comes to its end.
static void finish(Storage &storage) {
  Device *device = storage.memory.device;
  if (!device)
    return;
  if (storage.used && !device->finished(*storage.used))
    (void)device->synchronizeAll();
  storage.memory.stream = nullptr; // the caller's may be gone
}

bool StoragePool::reclaim() {
  std::unique_ptr<Storage> storage;
  {
    std::lock_guard<Mutex> lock(mutex);
    if (free.empty())
      return false;
    storage = free.popOldest();
  }
  finish(*storage);
  return true;
}

Status StoragePool::failure() {
  std::lock_guard<Mutex> lock(mutex);
  for (std::unique_ptr<Storage> &storage : free) {
    // Others are being written to.
    if (!storage->used || !storage->memory.device->finished(*storage->used))
      continue;
    if (Status status = takeFailure(storage->failure); !status.ok())
      return status;
  }
  return Status();
}

void StoragePool::clear() {
  for (std::unique_ptr<Storage> &storage : free)
    storage->memory.stream = nullptr; // the callers' streams may be gone
  free.clear();
}

void StoragePool::release(std::unique_ptr<Storage> storage) {
  if (int64_t budget = account ? account->budget.load(std::memory_order_relaxed) : 0) {
    // A smaller budget than when the call began: less is kept.
    if (account->held() > budget) {
      finish(*storage);
      storage->releaseAll();
    }
  }
  // Without memory for the list it is freed: the next call makes another.
  (void)attempt([&] {
    std::lock_guard<Mutex> lock(mutex);
    free.push(std::move(storage));
  });
  if (account)
    account->changed();
}

bool ScratchPool::reclaim() {
  Buffer buffer;
  std::lock_guard<Mutex> lock(mutex);
  if (free.empty())
    return false;
  buffer = free.popOldest();
  return true;
}

Buffer ScratchPool::acquire() {
  Buffer unneeded;
  std::lock_guard<Mutex> lock(mutex);
  Buffer buffer = free.empty() ? Buffer(allocator) : free.pop();
  unneeded = free.trim();
  return buffer;
}

void ScratchPool::release(Buffer buffer) {
  (void)attempt([&] {
    std::lock_guard<Mutex> lock(mutex);
    free.push(std::move(buffer));
  });
}

} // namespace disc::rt
