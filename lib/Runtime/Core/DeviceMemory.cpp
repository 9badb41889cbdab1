//===- DeviceMemory.cpp - a device's memory for buffers -------------------===//

#include "lib/Runtime/Core/DeviceMemory.h"

#include <utility>

namespace disc::rt {

void *DeviceMemory::allocate(void *opaque, size_t bytes, size_t) {
  auto &self = *static_cast<DeviceMemory *>(opaque);
  void *data = nullptr;
  Status status = self.device->allocate(bytes, self.stream, data);
  if (status.ok())
    return data;
  self.failure = std::move(status);
  return nullptr;
}

void DeviceMemory::release(void *opaque, void *data, size_t) {
  auto &self = *static_cast<DeviceMemory *>(opaque);
  if (self.deferred && data)
    self.deferred->settle();
  self.device->release(data, self.stream);
}

bool DeviceMemory::copy(void *opaque, void *to, const void *from, size_t bytes) {
  auto &self = *static_cast<DeviceMemory *>(opaque);
  if (self.deferred)
    self.deferred->settle();
  Status status = self.device->copy(to, from, bytes, self.stream);
  if (status.ok())
    return true;
  self.failure = std::move(status);
  return false;
}

} // namespace disc::rt
