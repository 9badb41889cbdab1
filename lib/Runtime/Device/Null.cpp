//===- Null.cpp - a device that computes nothing --------------------------===//

#include "lib/Runtime/Device/Null.h"

namespace disc::rt {

namespace {
class NullDevice : public HostDevice {
public:
  NullDevice() : HostDevice("null") {}

  Status load(const disc_device_code &, std::unique_ptr<DeviceModule> &module) override {
    module = std::make_unique<DeviceModule>();
    return Status();
  }

protected:
  Status doLaunch(DeviceModule &, const DeviceLaunch &, Stream) override { return Status(); }
};
} // namespace

Status makeNullDevice(int32_t id, std::unique_ptr<Device> &device) {
  if (id != 0)
    return Status(Code::Target, "there is one device 'null', not " + std::to_string(id + 1));
  device = std::make_unique<NullDevice>();
  return Status();
}

} // namespace disc::rt
