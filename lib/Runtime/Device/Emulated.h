//===- Emulated.h - a device that runs kernels of a GPU on the CPU -*- C++ -*-===//

#ifndef DISC_RUNTIME_DEVICE_EMULATED_H
#define DISC_RUNTIME_DEVICE_EMULATED_H

#include "lib/Runtime/Device/Device.h"

namespace disc::rt {

/// Memory is the host's, and a launch is done when it returns. See Emulator.h.
Status makeEmulatedDevice(int32_t id, std::unique_ptr<Device> &device);

} // namespace disc::rt

#endif // DISC_RUNTIME_DEVICE_EMULATED_H
