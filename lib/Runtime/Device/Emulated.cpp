//===- Emulated.cpp - a device that runs kernels of a GPU on the CPU ------===//

#include "lib/Runtime/Device/Emulated.h"
#include "lib/Runtime/Device/Emulator.h"

namespace disc::rt {

namespace {
struct EmulatedModule : DeviceModule {
  explicit EmulatedModule(const disc_device_code &code) : code(code) {}
  const disc_device_code &code;
};

class EmulatedDevice : public HostDevice {
public:
  EmulatedDevice() : HostDevice("emulated") {}

  Status load(const disc_device_code &code, std::unique_ptr<DeviceModule> &module) override {
    module = std::make_unique<EmulatedModule>(code);
    return Status();
  }

protected:
  Status doLaunch(DeviceModule &module, const DeviceLaunch &launch, Stream) override {
    const disc_device_kernel &kernel = static_cast<EmulatedModule &>(module).code.kernels[launch.kernel];
    return emulator.run(kernel, launch.args, launch.blocks);
  }

private:
  Emulator emulator;
};
} // namespace

Status makeEmulatedDevice(int32_t id, std::unique_ptr<Device> &device) {
  if (id != 0)
    return Status(Code::Target, "there is one device 'emulated', not " + std::to_string(id + 1));
  device = std::make_unique<EmulatedDevice>();
  return Status();
}

} // namespace disc::rt
