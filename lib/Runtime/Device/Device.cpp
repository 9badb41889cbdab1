//===- Device.cpp - where kernels run, if not on the CPU ------------------===//

#include "lib/Runtime/Device/Device.h"
#include "lib/Runtime/Core/Profile.h"
#include "lib/Runtime/Device/Driver.h"
#include "lib/Runtime/Device/Emulated.h"
#include "lib/Runtime/Device/Null.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace disc::rt {

//===-- What a device without asynchronous work has -----------------------===//

namespace {
/// The stream has come by it when it is recorded.
struct PastEvent : DeviceEvent {
  int64_t time = 0;
};
} // namespace

Status Device::record(std::unique_ptr<DeviceEvent> &event, Stream, bool) {
  if (!event)
    event = std::make_unique<PastEvent>();
  static_cast<PastEvent &>(*event).time = Profile::now();
  return Status();
}

Status Device::doWait(DeviceEvent &, Stream) { return Status(); }

bool Device::finished(DeviceEvent &) { return true; }

int64_t Device::elapsed(DeviceEvent &begin, DeviceEvent &end) {
  return static_cast<PastEvent &>(end).time - static_cast<PastEvent &>(begin).time;
}

void Device::lend(const void *, size_t) {}

int64_t DeviceProduct::alignment() const {
  int64_t width = (what->dtype & 0xff) / 8;
  uint64_t all = 16;
  for (const void *data : {a, b, bias, static_cast<const void *>(c)})
    all |= reinterpret_cast<uintptr_t>(data);
  for (int64_t stride : {strideA, strideB, strideC})
    all |= batch > 1 ? uint64_t(stride * width) : 0;
  return int64_t(all & -all);
}

Status Device::takeRecord(KernelError *&record) {
  std::lock_guard<Mutex> lock(recordsMutex);
  if (records.empty()) {
    // Each in a cache line of its own: different devices' kernels do not meet there.
    constexpr size_t kLine = 64, kLines = 64;
    void *data = nullptr;
    records.reserve(recordsMade + kLines);
    if (Status status = doAllocateVisible(kLine * kLines, data); !status.ok())
      return status;
    recordsMade += kLines;
    for (size_t i = 0; i < kLines; ++i)
      records.push_back(reinterpret_cast<KernelError *>(static_cast<char *>(data) + i * kLine));
  }
  record = records.back();
  records.pop_back();
  *record = {};
  return Status();
}

void Device::giveBack(KernelError *record) {
  std::lock_guard<Mutex> lock(recordsMutex);
  records.push_back(record);
}

Status HostDevice::doAllocate(size_t bytes, Stream, void *&data) {
  constexpr size_t kAlignment = 256;
  if (bytes > size_t(INT64_MAX) - kAlignment || posix_memalign(&data, kAlignment, std::max(bytes, kAlignment)) != 0)
    return Status(Code::Memory, "device '" + name + "': no memory for " + std::to_string(bytes) + " bytes");
  return Status();
}

void HostDevice::doRelease(void *data, Stream) { std::free(data); }

Status HostDevice::doCopyIn(void *to, const void *from, size_t bytes, Stream) {
  std::memcpy(to, from, bytes);
  return Status();
}

Status HostDevice::doCopy(void *to, const void *from, size_t bytes, Stream) {
  std::memmove(to, from, bytes);
  return Status();
}

Status HostDevice::doRead(void *to, const void *from, size_t bytes, Stream) {
  std::memcpy(to, from, bytes);
  return Status();
}

//===-- By name -----------------------------------------------------------===//

DeviceRegistry::DeviceRegistry() {
  kinds = {{"cuda", &makeCudaDevice},
           {"rocm", &makeRocmDevice},
           {"emulated", &makeEmulatedDevice},
           {"null", &makeNullDevice}};
}

DeviceRegistry &DeviceRegistry::get() {
  // Not destroyed at exit: tensors that are freed then still need their device.
  static DeviceRegistry *registry = new DeviceRegistry;
  return *registry;
}

bool DeviceRegistry::add(const std::string &name, DeviceFactory factory) {
  std::lock_guard<Mutex> lock(mutex);
  for (const auto &kind : kinds)
    if (kind.first == name)
      return false;
  kinds.emplace_back(name, factory);
  return true;
}

Status DeviceRegistry::find(const std::string &name, int32_t id, Device *&device) {
  std::lock_guard<Mutex> lock(mutex);
  for (const Made &other : made)
    if (other.name == name && other.id == id) {
      device = other.device.get();
      return Status();
    }
  std::string known;
  for (const auto &[kind, factory] : kinds) {
    known += (known.empty() ? "'" : ", '") + kind + "'";
    if (kind != name)
      continue;
    std::unique_ptr<Device> created;
    if (Status status = factory(id, created); !status.ok())
      return status;
    device = created.get();
    made.push_back({name, id, std::move(created)});
    return Status();
  }
  return Status(Code::Target, "this runtime has no device '" + name + "', only " + known);
}

} // namespace disc::rt
