//===- Gpu.h - a device over a driver table ---------------------*- C++ -*-===//

#ifndef DISC_RUNTIME_DEVICE_GPU_H
#define DISC_RUNTIME_DEVICE_GPU_H

#include "lib/Runtime/Device/Blas.h"
#include "lib/Runtime/Device/Driver.h"

#include <string_view>

namespace disc::rt {

class GpuDevice;

struct GpuEvent : DeviceEvent {
  GpuEvent(GpuDevice &device, void *event) : device(device), event(event) {}
  ~GpuEvent() override;
  GpuDevice &device;
  void *event;
};

struct GpuModule : DeviceModule {
  GpuModule(GpuDevice &device, const disc_device_code &code) : device(device), code(code) {}
  ~GpuModule() override;
  GpuDevice &device;
  const disc_device_code &code;
  bool isEarly = false; ///< Kernels wait themselves for those before them.
  void *module = nullptr;
  std::vector<void *> functions; ///< Of the kernels, by number.
};

/// Pinned host memory that copies go through: the driver's own copies from other memory wait.
struct Staging {
  static constexpr size_t kBytes = size_t(2) << 20;
  void *data = nullptr;
  void *event = nullptr; ///< After the last copy.
};

/// Nodes of a graph, and the executable graph that finish() makes of them.
class GpuGraph : public DeviceGraph {
public:
  explicit GpuGraph(GpuDevice &device) : device(device) {}
  ~GpuGraph() override;

  Status put(size_t node, DeviceModule &module, const DeviceLaunch &launch) override;
  Status put(size_t node, void *to, const void *from, size_t bytes) override;
  Status put(size_t node, const DeviceProduct &product, void *memory) override;
  Status finish() override;
  Status launch(Stream stream) override;

private:
  template <typename Add, typename Set> Status place(size_t node, bool isEarly, Add add, Set set);

  GpuDevice &device;
  void *graph = nullptr, *executable = nullptr;
  std::vector<void *> nodes;
  bool lastIsEarly = false; ///< The last node is a kernel that lets the next one start early.
};

class GpuDevice : public Device {
public:
  GpuDevice(const Driver &driver, int32_t id) : Device(driver.name, {driver.deviceType, id}), driver(driver) {}
  Status open();

  std::string describe() const override { return label + " (" + arch + ")"; }
  Status load(const disc_device_code &code, std::unique_ptr<DeviceModule> &module) override;
  Status record(std::unique_ptr<DeviceEvent> &event, Stream stream, bool timed) override;
  bool finished(DeviceEvent &event) override {
    return driver.queryEvent(static_cast<GpuEvent &>(event).event) != kDriverNotReady;
  }
  int64_t elapsed(DeviceEvent &begin, DeviceEvent &end) override;
  void trim() override { (void)driver.trimPool(pool, 0); }
  Status mayRun(Stream stream) override;
  ProductBy productBy(const DeviceProduct &product, size_t &memoryBytes) override;
  bool takesGraphs() const override { return driver.hasGraphs; }
  std::unique_ptr<DeviceGraph> makeGraph() override {
    return driver.hasGraphs ? std::make_unique<GpuGraph>(*this) : nullptr;
  }

  // For its parts:
  Status check(DriverResult result, std::string_view what) const;
  Status find(DeviceModule &module, const DeviceLaunch &launch, KernelNode &kernel) const;
  /// What the library puts into a stream for a product, as a graph, which is the caller's.
  Status capture(const DeviceProduct &product, void *memory, void *&graph);
  void *currentContext() const { return context; }

  const Driver &driver;

protected:
  Status doAllocate(size_t bytes, Stream stream, void *&data) override;
  void doRelease(void *data, Stream stream) override { (void)driver.free(data, stream); }
  Status doCopyIn(void *to, const void *from, size_t bytes, Stream stream) override;
  Status doCopy(void *to, const void *from, size_t bytes, Stream stream) override {
    return check(driver.copy(to, from, bytes, stream), "a copy within the device");
  }
  Status doRead(void *to, const void *from, size_t bytes, Stream stream) override;
  Status doSynchronize(Stream stream) override {
    return check(driver.synchronizeStream(stream), "waiting for a stream");
  }
  Status doSynchronizeAll() override { return check(driver.synchronizeContext(), "waiting for the device"); }
  Status doLaunch(DeviceModule &module, const DeviceLaunch &launch, Stream stream) override;
  Status doMultiply(const DeviceProduct &product, const ProductMemory &memory, Stream stream, bool &done) override;
  Status doWait(DeviceEvent &event, Stream stream) override {
    return check(driver.streamWait(stream, static_cast<GpuEvent &>(event).event, 0), "a wait for another stream");
  }
  Status doAllocateVisible(size_t bytes, void *&data) override {
    // HIP's caches hold what is not mapped from one kernel to the next.
    return check(driver.allocateHost(&data, bytes, kHostPortable | kHostMapped), "pinned memory");
  }
  Status enter(void *&previous) override {
    return check(driver.enter(device, context, previous), "making it the thread's current device");
  }
  void leave(void *previous) override { driver.leave(previous); }

private:
  std::string title() const { return name + ":" + std::to_string(where.device_id); }
  Blas *library();
  int64_t suits(const std::string &image) const;
  void forget() const;
  Status staging(Staging &buffer);

  int device = 0;
  void *context = nullptr, *pool = nullptr;
  std::string arch, label;

  Mutex stagingMutex;
  Staging upload[2];
  size_t nextUpload = 0;
  Mutex blasMutex;
  bool blasOpened = false;
  std::unique_ptr<Blas> blas; ///< Null if there is none.
  Mutex capturingMutex;
  void *capturing = nullptr; ///< A stream for captures, once there was one.
  Mutex readingMutex;
  std::vector<void *> reading; ///< Pinned blocks that no read uses; there is room for all of them.
  size_t pinnedBlocks = 0;
};

} // namespace disc::rt

#endif // DISC_RUNTIME_DEVICE_GPU_H
