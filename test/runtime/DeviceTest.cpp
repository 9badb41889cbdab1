//===- DeviceTest.cpp - devices by name, and the one that does nothing ----===//

#include "lib/Runtime/Device/Device.h"
#include "FakeDevices.h"
#include "Script.h"
#include "lib/Runtime/Device/Driver.h"

using namespace disc::rt;
using namespace disc::test;

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

//===-- Opening and copying, over the fake drivers ------------------------===//

TEST(deviceDriversMayBeMissing) {
  SharedLibrary absent("target 'cuda' needs an NVIDIA driver", {"libabsent.so.1", "libabsent.so"});
  void (*function)();
  absent.find(function, "cuInit");
  Status status = absent.take();
  CHECK(status.code() == Code::Target);
  CHECK(Script::textOf(status).rfind(
            "target 'cuda' needs an NVIDIA driver: libabsent.so.1 could not be opened: libabsent.so.1: ", 0) == 0);
  SharedLibrary old("target 'cuda' needs an NVIDIA driver", {"libcuda.so.1"});
  old.find(function, "cuInit");
  CHECK(function);
  old.find(function, "cuFromTheFuture");
  CHECK_TEXT(Script::textOf(old.take()),
             "target 'cuda' needs an NVIDIA driver: libcuda.so.1 is too old or damaged, it has no "
             "cuFromTheFuture");

  for (const char *name : kDrivers) {
    On on(name);
    auto make = *name == 'c' ? &makeCudaDevice : &makeRocmDevice;
    std::string target = std::string("target '") + name + "': ";
    std::unique_ptr<Device> device;
    on.fake->devices = 0;
    CHECK_TEXT(Script::textOf(make(0, device)), target + "there is no device 0, the driver found none");
    on.fake->devices = 2;
    on.fake->faults["init"] = {999};
    CHECK_TEXT(Script::textOf(make(0, device)),
               target + "the driver does not start: " + (*name == 'c' ? "CUDA_ERROR_OTHER" : "hipErrorOther"));
    on.fake->faults["createPool"] = {2};
    CHECK(make(0, device).code() == Code::Memory);
  }
}

TEST(deviceUploadsAreStaged) {
  for (const char *name : kDrivers) {
    On on(name);
    int64_t n = 3 << 20; // more than both pinned blocks hold
    {
      OnDevice x(*on.device, n);
      std::vector<float> got = values(*on.device, x.tensor, nullptr);
      CHECK(got[0] == 1 && got[size_t(n) - 1] == float(n));
    }
    CHECK(on.fake->pinned <= (4 << 20) + (4 * 64 << 10));

    // What kernels write to is mapped, which HIP keeps coherent.
    std::unique_ptr<Device> device;
    CHECK_TEXT(Script::textOf((*name == 'c' ? makeCudaDevice : makeRocmDevice)(1, device)), "");
    DeviceScope scope(device.get());
    KernelError *record = nullptr;
    CHECK(device->takeRecord(record).ok() && on.count("allocateHost 3") == 1);
    device->giveBack(record);
  }
}
