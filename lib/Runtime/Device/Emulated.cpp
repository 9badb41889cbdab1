//===- Emulated.cpp - a device that runs kernels of a GPU on the CPU ------===//

#include "lib/Runtime/Device/Emulated.h"
#include "lib/Runtime/Core/Guarded.h"
#include "lib/Runtime/Device/AccessChecks.h"
#include "lib/Runtime/Device/EmulatedProduct.h"
#include "lib/Runtime/Device/Emulator.h"

#include <cstdlib>
#include <new>
#include <utility>

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

  void lend(const void *data, size_t bytes) override { memory.lend(data, bytes); }

protected:
  /// A gap on both sides keeps what goes a little too far out of other blocks.
  static constexpr size_t kGap = 256;

  Status doAllocate(size_t bytes, Stream stream, void *&data) override {
    if (bytes > size_t(INT64_MAX) - 2 * kGap)
      return HostDevice::doAllocate(bytes, stream, data);
    if (Status status = HostDevice::doAllocate(bytes + 2 * kGap, stream, data); !status.ok())
      return status;
    void *block = std::exchange(data, static_cast<char *>(data) + kGap);
    if (attempt([&] { memory.add(data, bytes); }))
      return Status();
    HostDevice::doRelease(block, stream);
    throw std::bad_alloc();
  }

  void doRelease(void *data, Stream stream) override {
    memory.remove(data);
    HostDevice::doRelease(static_cast<char *>(data) - kGap, stream);
  }

  Status doLaunch(DeviceModule &module, const DeviceLaunch &launch, Stream) override {
    const disc_device_kernel &kernel = static_cast<EmulatedModule &>(module).code.kernels[launch.kernel];
    return emulator.run(kernel, launch.args, launch.blocks, memory);
  }

  /// Kernels do products, too, unless DISC_EMULATE_LIBRARY says that there is a library.
  Status doMultiply(const DeviceProduct &product, const ProductMemory &, Stream, bool &done) override {
    const char *library = std::getenv("DISC_EMULATE_LIBRARY");
    done = library && std::string(library) == "1" && emulateProduct(product);
    return Status();
  }

private:
  EmulatedMemory memory;
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
