//===- Arena.h - memory that one call owns while it runs --------*- C++ -*-===//
//
// A model keeps a list of Storages. A call takes one, and gives it back at its end, so
// that concurrent calls never share one and a steady state allocates nothing. Buffers
// grow to the largest size asked for and stay there: memory is flat after the largest
// call. Storages that only a burst of calls needed are freed after it.
//
//===----------------------------------------------------------------------===//

#ifndef DISC_RUNTIME_CORE_ARENA_H
#define DISC_RUNTIME_CORE_ARENA_H

#include "lib/Runtime/Core/Allocator.h"
#include "lib/Runtime/Core/Budget.h"
#include "lib/Runtime/Core/CallStream.h"
#include "lib/Runtime/Core/DeviceMemory.h"
#include "lib/Runtime/Core/ModelInfo.h"
#include "lib/Runtime/Core/Mutex.h"
#include "lib/Runtime/Core/Outputs.h"
#include "lib/Runtime/Core/Stack.h"
#include "lib/Runtime/Core/Tensor.h"
#include "lib/Runtime/disc.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace disc::rt {

/// Owned aligned memory that only grows. The allocator lives longer.
class Buffer {
public:
  explicit Buffer(const Allocator &allocator = Allocator::standard()) : allocator_(&allocator) {}
  Buffer(Buffer &&other) noexcept : allocator_(other.allocator_), data_(other.data_), capacity_(other.capacity_) {
    other.data_ = nullptr;
    other.capacity_ = 0;
  }
  Buffer &operator=(Buffer &&other) noexcept;
  Buffer(const Buffer &) = delete;
  Buffer &operator=(const Buffer &) = delete;
  ~Buffer() { release(); }

  /// At least `bytes` bytes, or null if there is no memory. What was in the buffer is
  /// lost when it grows. Never null for zero bytes.
  void *reserve(size_t bytes);
  /// The same, but at least doubled when it grows; with `keep` what was in the buffer stays.
  void *grow(size_t bytes, bool keep);
  void release();
  void *data() const { return data_; }
  size_t capacity() const { return capacity_; }
  /// What the memory counts for in a budget.
  size_t takenBytes() const { return data_ ? allocator_->taken(capacity_, Use::Lasting) : 0; }

  /// Whether a call with a budget has asked for it since it began.
  bool isTouched() const { return touched_; }
  void untouch() { touched_ = false; }

private:
  const Allocator *allocator_;
  void *data_ = nullptr;
  size_t capacity_ = 0;
  bool touched_ = false;
};

/// Memory for blocks that are all freed at the same time, side by side on huge pages. In pages of their own, blocks
/// that are smaller than a huge page lie on small ones, and reading a few megabytes of weights in a row then waits for
/// the translation of each page's address.
class Region {
public:
  Region() = default;
  Region(const Region &) = delete;
  Region &operator=(const Region &) = delete;
  ~Region();

  /// Reserves addresses for blocks of about `expected` bytes together; memory is used as it is written to. False, and
  /// nothing reserved, if that is less than a huge page, or if there is no memory.
  bool open(size_t expected);
  bool isOpen() const { return begin != nullptr; }
  /// The next block, at a multiple of kAlignment. Null if no room is left.
  void *take(size_t bytes);

private:
  char *begin = nullptr;
  size_t size = 0, used = 0;
};

/// Memory of nested activations: taken at its end, and given back down to a mark. What it grew to it keeps.
class Frames {
public:
  explicit Frames(const Allocator &allocator) : allocator(&allocator) {}

  void *push(size_t bytes);
  int64_t mark() const { return int64_t(chunk) << 40 | int64_t(used); }
  void pop(int64_t mark) {
    chunk = size_t(mark >> 40);
    used = size_t(mark & ((int64_t(1) << 40) - 1));
  }
  /// Frees what lies behind the end; false if there is none.
  bool freeUnused();
  size_t heldBytes() const;

private:
  const Allocator *allocator;
  std::vector<Buffer> chunks;
  size_t chunk = 0, used = 0; ///< Where the end is.
  bool isGrowing = false;     ///< A chunk at the end is being allocated.
};

/// What a call does with one output.
struct OutputSlot {
  DLTensor *given = nullptr;                ///< The caller's tensor.
  DLManagedTensorVersioned *made = nullptr; ///< Or ours.
  int64_t *dims = nullptr;                  ///< The extents, once the compiled code told them.
  void *scattered = nullptr;                ///< Where they are computed if not in place; copied at the end.
  bool done = false;
  int64_t plannedBytes = -1; ///< With a budget: of the elements, as far as they are known at the beginning.
  OutputBlock block;         ///< With a budget: memory for `made`.
  int64_t setAside = 0;      ///< With a budget, on a device: room for `made`.
};

/// A view of an input with other extents.
struct Repeated {
  DLTensor tensor;
  std::array<int64_t, kMaxRank> shape, strides;
};

/// The buffers of one call. Those of kernels lie on the device if there is one: work that an earlier call put into a
/// stream may still use them.
struct Storage final : Reclaimer {
  /// What is allocated counts in the account, if there is one; `kept` is what the model keeps.
  Storage(const disc_model_info_t &info, const Allocator &host, Device *device, MemoryAccount *account = nullptr,
          Reclaimer *kept = nullptr);
  ~Storage();

  /// A call with a budget begins, which ends with meter.end().
  void begin(int64_t budget);
  /// Frees buffers that the call has not asked for.
  bool reclaim() override;
  /// Frees all buffers.
  void releaseAll();
  template <typename Use> void eachBuffer(Use use);

  Meter meter; ///< Of both allocators.
  DeviceMemory memory;
  const Allocator allocator;         ///< The memory's, or the host's.
  const Allocator hostAllocator;     ///< The host's.
  std::unique_ptr<DeviceEvent> used; ///< Behind the last call in `memory.stream`; null if there was none.

  KernelError *failure = nullptr; ///< What kernels of calls report to; null before the first that may fail.
  RecordedCalls recorded;         ///< Graphs of calls, whose addresses are those of this storage.

  std::vector<Buffer> arena;           ///< Temporaries, in parts.
  std::vector<Buffer> slots;           ///< What loops carry, where its size changes.
  Frames frames;                       ///< Memory of procedures' activations.
  Stack stack;                         ///< What they run on.
  Buffer workspace;                    ///< What a product or a reduction in parts needs while it runs on a device.
  Buffer scratch;                      ///< Of the calling thread, while it takes part.
  std::vector<Buffer> staged;          ///< On the host, what kernels there have of a device's buffers.
  std::vector<Buffer> inputs;          ///< Contiguous copies of strided inputs.
  std::vector<Buffer> scattered;       ///< Strided outputs before they are scattered.
  std::vector<Repeated> repeated;      ///< Inputs that are repeated along dims of extent 1, or empty.
  std::vector<const DLTensor *> given; ///< With those in their places, the inputs of such a call.
  std::vector<OutputSlot> outputs;     ///< Their `dims` point into `dims`.
  std::vector<int64_t> dims;
};

/// Whether a record tells of an error, as far as this process can tell at any time.
bool hasFailure(const KernelError *record);

/// The error that a record tells of, once. Whoever wrote to it has ended.
Status takeFailure(KernelError *record);

/// Things that calls take and give back, the last one given back first: it is still in the caches. Those at the bottom
/// that were not needed for many calls are freed, one at a time; else memory would be that of the most calls that ever
/// ran at once, each at its largest extents, and creep there for days.
template <class T> class Spares {
public:
  /// How often one is taken between two looks at what was needed.
  static constexpr int64_t kPeriod = 1024;

  bool empty() const { return items.empty(); }
  size_t size() const { return items.size(); }
  T &operator[](size_t i) { return items[i]; }
  auto begin() { return items.begin(); }
  auto end() { return items.end(); }
  void clear() { items.clear(), untouched = 0; }

  void push(T item) { items.push_back(std::move(item)); }
  T pop() {
    T item = std::move(items.back());
    items.pop_back();
    untouched = std::min(untouched, items.size());
    return item;
  }

  T popOldest() {
    T item = std::move(items.front());
    items.erase(items.begin());
    untouched -= untouched > 0;
    return item;
  }

  /// To be called for each taking, whether there was one or not. One that is not needed any more, for the caller to
  /// free without the lock.
  T trim() {
    T unneeded = T();
    if (++taken < kPeriod)
      return unneeded;
    if (untouched > 0) {
      unneeded = std::move(items.front());
      items.erase(items.begin());
    }
    taken = 0, untouched = items.size();
    return unneeded;
  }

private:
  std::vector<T> items;
  size_t untouched = 0; ///< So many at the bottom have not been taken since the last look.
  int64_t taken = 0;
};

/// The storages that no call uses at the moment. What it is made from lives longer.
class StoragePool {
public:
  StoragePool(const disc_model_info_t &info, const Allocator &allocator, MemoryAccount *account = nullptr,
              Reclaimer *kept = nullptr)
      : info(info), allocator(allocator), account(account), kept(kept) {}

  /// `device` is that of all calls, or null. A storage that the stream used last comes first, then one that the device
  /// is done with; another stream's is shared only when there are many.
  /// With `anyOne` it does not matter: the device will not use it.
  std::unique_ptr<Storage> acquire(Device *device = nullptr, Stream stream = nullptr, bool anyOne = false);
  void release(std::unique_ptr<Storage> storage);
  /// A storage without buffers.
  std::unique_ptr<Storage> make(Device *device);
  /// Frees the one that was used least recently; false if there is none.
  bool reclaim();
  /// What the kernels of earlier calls found wrong, once, as far as the device has come.
  Status failure();
  /// No device uses any of them by now.
  void clear();

private:
  const disc_model_info_t &info;
  const Allocator &allocator;
  MemoryAccount *const account;
  Reclaimer *const kept;
  Mutex mutex;
  Spares<std::unique_ptr<Storage>> free;
};

/// Scratch for threads that are not ours.
class ScratchPool {
public:
  explicit ScratchPool(const Allocator &allocator) : allocator(allocator) {}

  Buffer acquire();
  void release(Buffer buffer);
  /// Frees one; false if there is none.
  bool reclaim();

private:
  const Allocator &allocator;
  Mutex mutex;
  Spares<Buffer> free;
};

} // namespace disc::rt

#endif // DISC_RUNTIME_CORE_ARENA_H
