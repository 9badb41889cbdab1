//===- FakeDevices.h - devices over fake drivers, for tests -----*- C++ -*-===//

#ifndef DISC_TEST_RUNTIME_FAKEDEVICES_H
#define DISC_TEST_RUNTIME_FAKEDEVICES_H

#include "Check.h"
#include "FakeDriver.h"
#include "HandModel.h"
#include "lib/Runtime/Core/Model.h"

#include <cstring>
#include <dlfcn.h>
#include <functional>
#include <utility>

namespace disc::test {

constexpr char kPtx80[] = "PTX of 80", kPtx90[] = "PTX of 90", kCubin[] = "cubin", kHsaco[] = "hsaco";
const disc_device_image kImages[] = {{"compute_80", kPtx80, sizeof(kPtx80), 0},
                                     {"sm_90", kCubin, sizeof(kCubin), 0},
                                     {"compute_90", kPtx90, sizeof(kPtx90), 0},
                                     {"gfx942", kHsaco, sizeof(kHsaco), 0}};
/// Whose kernels wait themselves.
const disc_device_image kEarlyImages[] = {{"compute_80", kPtx80, sizeof(kPtx80), 0},
                                          {"sm_90", kCubin, sizeof(kCubin), 1},
                                          {"compute_90", kPtx90, sizeof(kPtx90), 1},
                                          {"gfx942", kHsaco, sizeof(kHsaco), 0}};

/// One driver, or the null device.
struct On {
  On(const char *name, int64_t numKernels = 0, const disc_device_kernel *kernels = nullptr,
     const disc_device_image *images = kImages)
      : name(name) {
    bool isHip = !std::strcmp(name, "rocm");
    if (void *handle =
            std::strcmp(name, "null") ? dlopen(isHip ? "libamdhip64.so" : "libcuda.so.1", RTLD_NOW) : nullptr) {
      fake = reinterpret_cast<FakeDriverFn *>(dlsym(handle, "disc_fake_driver"))();
      recover = reinterpret_cast<void (*)()>(dlsym(handle, "disc_fake_recover"));
    }
    code = {name, 4, images, numKernels, kernels};
    CHECK(rt::DeviceRegistry::get().find(name, 0, device).ok());
    if (fake) {
      fake->calls.clear();
      fake->faults.clear();
      fake->jitLog.clear();
      blocks = fake->blocks, modules = fake->modules, events = fake->events;
      graphs = fake->graphs;
      fake->badAccesses = fake->lastError = 0;
    }
  }
  /// Nothing leaks, and nothing was touched that was not to be.
  ~On() {
    if (!fake)
      return;
    CHECK(fake->blocks == blocks);
    CHECK(fake->modules == modules);
    CHECK(fake->graphs == graphs);
    // Two are kept for uploads.
    CHECK(fake->events <= events + 2);
    CHECK(fake->badAccesses == 0);
    CHECK(fake->contexts == 0);
    CHECK(fake->lastError == 0);
  }

  /// How often a function of the driver's was called, on any stream.
  int64_t count(const std::string &function) const {
    int64_t count = 0;
    for (const std::string &call : fake->calls)
      count += call.rfind(function + " ", 0) == 0 || call == function;
    return count;
  }

  const char *name;
  FakeDriver *fake = nullptr;
  void (*recover)() = nullptr;
  rt::Device *device = nullptr;
  disc_device_code code;
  int64_t blocks = 0, modules = 0, events = 0, graphs = 0;
};

/// A tensor on the host, of which a model takes a reference.
struct Parameter {
  explicit Parameter(float value) : floats({1}) {
    floats.data[0] = value;
    managed.version = {1, 0};
    managed.manager_ctx = this;
    managed.deleter = [](DLManagedTensorVersioned *self) { ++static_cast<Parameter *>(self->manager_ctx)->deleted; };
    managed.flags = 0;
    managed.dl_tensor = floats.tensor;
  }
  Floats floats;
  DLManagedTensorVersioned managed;
  int deleted = 0;
};

/// Floats on the device, 1, 2, 3, ...; read() waits.
struct OnDevice {
  OnDevice(rt::Device &device, int64_t n) : device(device), shape{n} {
    rt::DeviceScope scope(&device);
    std::vector<float> values;
    for (int64_t i = 0; i < n; ++i)
      values.push_back(float(i + 1));
    CHECK(device.allocate(size_t(n) * 4, nullptr, data).ok());
    CHECK(device.copyIn(data, values.data(), size_t(n) * 4, nullptr).ok());
    CHECK(device.synchronize(nullptr).ok());
    tensor = {data, device.where, 1, {kDLFloat, 32, 1}, shape, nullptr, 0};
  }
  ~OnDevice() {
    rt::DeviceScope scope(&device);
    device.release(data, nullptr);
  }
  rt::Device &device;
  void *data = nullptr;
  int64_t shape[1];
  DLTensor tensor;
};

inline std::vector<float> values(rt::Device &device, const DLTensor &tensor, rt::Stream stream) {
  rt::DeviceScope scope(&device);
  std::vector<float> result(size_t(tensor.shape[0]));
  CHECK(device.read(result.data(), tensor.data, result.size() * 4, stream).ok());
  return result;
}

/// A product's memory, which the stream frees.
struct TemporaryMemory {
  explicit TemporaryMemory(rt::Device &device, rt::Stream stream) : device(device), stream(stream) {}
  ~TemporaryMemory() { device.release(data, stream); }
  void *operator()(size_t bytes) {
    device.release(std::exchange(data, nullptr), stream);
    return device.allocate(bytes, stream, data).ok() ? data : nullptr;
  }
  rt::Device &device;
  rt::Stream stream;
  void *data = nullptr;
};

inline rt::Status compute(rt::Device &device, const rt::DeviceProduct &product, rt::Stream stream, bool &done) {
  TemporaryMemory memory(device, stream);
  return device.multiply(product, std::ref(memory), stream, done);
}

inline void *word(int64_t value) { return reinterpret_cast<void *>(value); }
inline rt::Stream stream(int64_t number) { return word(number); }

constexpr const char *kDrivers[] = {"cuda", "rocm"};

} // namespace disc::test

#endif // DISC_TEST_RUNTIME_FAKEDEVICES_H
