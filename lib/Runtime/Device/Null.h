//===- Null.h - a device that computes nothing ------------------*- C++ -*-===//

#ifndef DISC_RUNTIME_DEVICE_NULL_H
#define DISC_RUNTIME_DEVICE_NULL_H

#include "lib/Runtime/Device/Device.h"

namespace disc::rt {

/// Memory is the host's; launches are counted, and compute nothing. What a device has to be, and no more.
Status makeNullDevice(int32_t id, std::unique_ptr<Device> &device);

} // namespace disc::rt

#endif // DISC_RUNTIME_DEVICE_NULL_H
