//===- DeviceTest.cpp - devices by name, and the one that does nothing ----===//

#include "lib/Runtime/Device/Device.h"
#include "Check.h"

using namespace disc::rt;

TEST(devices_are_found_by_name) {
  Device *device = nullptr, *again = nullptr;
  CHECK(DeviceRegistry::get().find("null", 0, device).ok());
  CHECK(DeviceRegistry::get().find("null", 0, again).ok() && again == device);
  CHECK(device->where.device_type == kDLCPU);
  Status status = DeviceRegistry::get().find("abacus", 0, device);
  CHECK(status.code() == Code::Target);
  CHECK(status.error().message.rfind("this runtime has no device 'abacus', only ", 0) == 0);
  CHECK(DeviceRegistry::get().find("null", 1, device).code() == Code::Target);
}

TEST(null_device_counts) {
  Device *device = nullptr;
  CHECK(DeviceRegistry::get().find("null", 0, device).ok());
  disc_device_kernel kernel = {"k", 32, 0, nullptr, "10s"};
  disc_device_code code = {"null", 0, nullptr, 1, &kernel};
  std::unique_ptr<DeviceModule> module;
  CHECK(device->load(code, module).ok());
  int64_t launches = device->counters.launches, copies = device->counters.copies;
  int64_t waits = device->counters.synchronizations;
  void *data = nullptr;
  CHECK(device->allocate(0, nullptr, data).ok() && data);
  device->release(data, nullptr);
  CHECK(device->allocate(8, nullptr, data).ok());
  int64_t value = 7, got = 0;
  CHECK(device->copyIn(data, &value, 8, nullptr).ok());
  CHECK(device->launch(*module, {0, nullptr, 0, 1}, nullptr).ok());
  CHECK(device->counters.synchronizations == waits);
  CHECK(device->read(&got, data, 8, nullptr).ok() && got == 7);
  CHECK(device->counters.synchronizations == waits + 1);
  CHECK(device->counters.launches == launches + 1 && device->counters.copies == copies + 2);
  device->release(data, nullptr);
}
