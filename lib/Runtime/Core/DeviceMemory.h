//===- DeviceMemory.h - a device's memory for buffers -----------*- C++ -*-===//

#ifndef DISC_RUNTIME_CORE_DEVICEMEMORY_H
#define DISC_RUNTIME_CORE_DEVICEMEMORY_H

#include "lib/Runtime/Core/Allocator.h"
#include "lib/Runtime/Device/Device.h"

namespace disc::rt {

/// Work of a call that is not in the stream yet.
class DeferredWork {
public:
  /// Puts it there, and whatever follows too.
  virtual void settle() = 0;

protected:
  ~DeferredWork() = default;
};

/// What is allocated, copied and released is so in the order of `stream`, which whoever owns the buffers sets.
class DeviceMemory {
public:
  explicit DeviceMemory(Device *device) : device(device), allocator_{allocate, release, this, copy} {}
  DeviceMemory(const DeviceMemory &) = delete;
  DeviceMemory &operator=(const DeviceMemory &) = delete;

  const Allocator &allocator() const { return allocator_; }

  Device *const device; ///< Null if nobody will allocate.
  Stream stream = nullptr;
  DeferredWork *deferred = nullptr; ///< May use the memory: settled before any is copied or released.
  Status failure;                   ///< Why the last allocation or copy that failed did.

private:
  static void *allocate(void *self, size_t bytes, size_t alignment);
  static void release(void *self, void *data, size_t bytes);
  static bool copy(void *self, void *to, const void *from, size_t bytes);

  const Allocator allocator_;
};

} // namespace disc::rt

#endif // DISC_RUNTIME_CORE_DEVICEMEMORY_H
