//===- Device.h - where kernels run, if not on the CPU ----------*- C++ -*-===//
//
// A model with device code (ModelInfo.h) has its buffers on a device, and its host code puts launches and copies into
// one of the device's streams. Nothing here waits for the device unless it says so.
//
// A device of one's own is a subclass of Device and a call of DeviceRegistry::add; Null.cpp is the least that one is.
//
//===----------------------------------------------------------------------===//

#ifndef DISC_RUNTIME_DEVICE_DEVICE_H
#define DISC_RUNTIME_DEVICE_DEVICE_H

#include "lib/Runtime/Core/ModelInfo.h"
#include "lib/Runtime/Core/Mutex.h"
#include "lib/Runtime/Core/Status.h"
#include "lib/Runtime/disc.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace disc::rt {

/// A queue of work, as the device's driver knows it (CUstream, hipStream_t). Null: the device's default one.
using Stream = void *;

/// A model's kernels, loaded. Those that run must have ended before it is deleted.
class DeviceModule {
public:
  virtual ~DeviceModule() = default;
};

/// A place in a stream that others wait for.
class DeviceEvent {
public:
  virtual ~DeviceEvent() = default;
};

/// How often a device was asked for what costs time.
struct DeviceCounters {
  std::atomic<int64_t> launches{0};
  std::atomic<int64_t> copies{0};           ///< In, out and within.
  std::atomic<int64_t> synchronizations{0}; ///< Times that the host waited.
  std::atomic<int64_t> waits{0};            ///< Times that a stream waited for an event.
  std::atomic<int64_t> allocations{0};
  std::atomic<int64_t> releases{0};
  std::atomic<int64_t> graphs{0}; ///< Made.
  std::atomic<int64_t> graphLaunches{0};
  std::atomic<int64_t> graphUpdates{0}; ///< Nodes that were changed.
};

/// What a kernel found wrong with an index, in memory that the device writes and the host reads. Compiled kernels know
/// where the fields are.
struct KernelError {
  int32_t raised; ///< Not 0: the rest says what the first thread saw that failed.
  int32_t unused;
  int64_t index;
  int64_t extent;
  const char *what;
};

struct DeviceLaunch {
  int64_t kernel;    ///< Its number in disc_device_code.
  void *const *args; ///< For each argument, where its 8 bytes are: a buffer's address or a symbol's value.
  int64_t count;     ///< Of arguments.
  int64_t blocks;    ///< More than 0.
  /// Of a launch into a stream: the last thing there is a kernel of the same call.
  bool isBehindKernel = false;
};

/// Extents and strides as disc_rt_device_matmul takes them.
struct DeviceProduct {
  const disc_device_product *what;
  const void *a, *b;
  void *c;
  const void *bias;
  int64_t batch, m, n, k;
  int64_t strideA, strideB, strideC;

  /// What all addresses, also those within a batch, are multiples of: at most 16 bytes, which is all that kernels make
  /// use of.
  int64_t alignment() const;
};

/// Memory of at least so many bytes for a product, which uses it until it is done; null if there is none.
using ProductMemory = std::function<void *(size_t bytes)>;

/// Who computes a product.
enum class ProductBy {
  Unknown, ///< multiply() finds out.
  Library,
  Kernel,
};

/// Nodes that run one after the other, and go into a stream at once. What a node does may be changed between launches:
/// those that were put into a stream before keep what it did.
class DeviceGraph {
public:
  virtual ~DeviceGraph() = default;

  /// What node number `node` does in launches from here on. Before finish() it is the next one; afterwards it is any of
  /// them that launched the same kernel, copied as many bytes, or was a product of the same extents and alignment.
  virtual Status put(size_t node, DeviceModule &module, const DeviceLaunch &launch) = 0;
  virtual Status put(size_t node, void *to, const void *from, size_t bytes) = 0;
  /// A product that productBy() says the library computes, with as much memory as it said.
  virtual Status put(size_t node, const DeviceProduct &product, void *memory) = 0;

  /// There are no more nodes.
  virtual Status finish() = 0;
  virtual Status launch(Stream stream) = 0;
};

/// The functions without `do` are for callers: they count. Those with it are what a device implements. Functions may be
/// called from any thread, between the construction and the end of a DeviceScope.
class Device {
public:
  /// `where` is what its tensors say of themselves.
  Device(std::string name, DLDevice where) : name(std::move(name)), where(where) {}
  virtual ~Device() = default;
  Device(const Device &) = delete;
  Device &operator=(const Device &) = delete;

  const std::string name; ///< As in the registry.
  const DLDevice where;
  DeviceCounters counters;

  /// "NVIDIA H200 (sm_90)"
  virtual std::string describe() const { return name; }

  /// Memory for what follows in the stream, aligned for anything (256 bytes). Not null for zero bytes.
  Status allocate(size_t bytes, Stream stream, void *&data) {
    ++counters.allocations;
    return doAllocate(bytes, stream, data);
  }
  /// Once what is in the stream by now is done. Null is allowed.
  void release(void *data, Stream stream) {
    if (!data)
      return;
    ++counters.releases;
    doRelease(data, stream);
  }

  /// From host memory, which is the caller's again when this returns.
  Status copyIn(void *to, const void *from, size_t bytes, Stream stream) {
    return bytes ? (++counters.copies, doCopyIn(to, from, bytes, stream)) : Status();
  }
  /// Within the device.
  Status copy(void *to, const void *from, size_t bytes, Stream stream) {
    return bytes ? (++counters.copies, doCopy(to, from, bytes, stream)) : Status();
  }
  /// To host memory; waits until it is there.
  Status read(void *to, const void *from, size_t bytes, Stream stream) {
    if (!bytes)
      return Status();
    ++counters.copies;
    ++counters.synchronizations;
    return doRead(to, from, bytes, stream);
  }

  /// Whether work may be put into the stream at the moment, to run.
  virtual Status mayRun(Stream) { return Status(); }

  /// Waits for the stream, and tells what failed in it since the last time that somebody asked.
  Status synchronize(Stream stream) {
    ++counters.synchronizations;
    return doSynchronize(stream);
  }
  /// Waits for all streams.
  Status synchronizeAll() {
    ++counters.synchronizations;
    return doSynchronizeAll();
  }

  /// The image that fits this device. `code` outlives the module.
  virtual Status load(const disc_device_code &code, std::unique_ptr<DeviceModule> &module) = 0;
  Status launch(DeviceModule &module, const DeviceLaunch &launch, Stream stream) {
    ++counters.launches;
    return doLaunch(module, launch, stream);
  }

  /// A product by a library of the device's; `done` says whether there is one that can do it.
  Status multiply(const DeviceProduct &product, const ProductMemory &memory, Stream stream, bool &done) {
    Status status = doMultiply(product, memory, stream, done);
    counters.launches += done;
    return status;
  }
  /// Who computed the last product of this kind, these extents and this alignment, and with how much memory.
  virtual ProductBy productBy(const DeviceProduct &, size_t & /*memoryBytes*/) { return ProductBy::Kernel; }

  /// A graph without nodes; null if the device takes none.
  virtual std::unique_ptr<DeviceGraph> makeGraph() { return nullptr; }
  virtual bool takesGraphs() const { return false; }

  /// Puts the event at the stream's end; makes it first if it is null. A device without asynchronous work needs none of
  /// these functions of its own.
  /// `timed`: for elapsed(), when it is made.
  virtual Status record(std::unique_ptr<DeviceEvent> &event, Stream stream, bool timed = false);
  /// What is put into the stream from here on comes after the event.
  Status wait(DeviceEvent &event, Stream stream) {
    ++counters.waits;
    return doWait(event, stream);
  }
  /// Whether the device has come by the event.
  virtual bool finished(DeviceEvent &event);
  /// Nanoseconds between two events that it came by.
  virtual int64_t elapsed(DeviceEvent &begin, DeviceEvent &end);

  /// Gives the driver memory back that was released.
  virtual void trim() {}

  /// Whether work is done when a function returns.
  virtual bool isSynchronous() const { return false; }

  /// A record of no error, for kernels that are launched from here on; giveBack() ends its use.
  Status takeRecord(KernelError *&record);
  void giveBack(KernelError *record);

  /// Memory that is the caller's (an input, a parameter, an output): kernels that are launched from here on may use it.
  /// For a device that checks accesses. What was told of the same addresses before is void.
  virtual void lend(const void *data, size_t bytes);

protected:
  virtual Status doAllocate(size_t bytes, Stream stream, void *&data) = 0;
  virtual void doRelease(void *data, Stream stream) = 0;
  virtual Status doCopyIn(void *to, const void *from, size_t bytes, Stream stream) = 0;
  virtual Status doCopy(void *to, const void *from, size_t bytes, Stream stream) = 0;
  virtual Status doRead(void *to, const void *from, size_t bytes, Stream stream) = 0;
  virtual Status doSynchronize(Stream stream) = 0;
  virtual Status doSynchronizeAll() { return doSynchronize(nullptr); }
  virtual Status doLaunch(DeviceModule &module, const DeviceLaunch &launch, Stream stream) = 0;
  virtual Status doMultiply(const DeviceProduct &, const ProductMemory &, Stream, bool &done) {
    return done = false, Status();
  }
  virtual Status doWait(DeviceEvent &event, Stream stream);
  /// Host memory that kernels can write to. It is never released.
  virtual Status doAllocateVisible(size_t bytes, void *&data) = 0;

  friend class DeviceScope;
  /// Makes the device the calling thread's current one, where the driver has such a thing; leave() undoes it.
  virtual Status enter(void *& /*previous*/) { return Status(); }
  virtual void leave(void * /*previous*/) {}

private:
  Mutex recordsMutex;
  std::vector<KernelError *> records; ///< That nobody uses; there is room for all that were made.
  size_t recordsMade = 0;
};

/// A device without memory of its own, whose work is done when a function returns.
class HostDevice : public Device {
public:
  explicit HostDevice(std::string name) : Device(std::move(name), {kDLCPU, 0}) {}

  bool isSynchronous() const override { return true; }

protected:
  Status doAllocate(size_t bytes, Stream stream, void *&data) override;
  void doRelease(void *data, Stream stream) override;
  Status doCopyIn(void *to, const void *from, size_t bytes, Stream stream) override;
  Status doCopy(void *to, const void *from, size_t bytes, Stream stream) override;
  Status doRead(void *to, const void *from, size_t bytes, Stream stream) override;
  Status doSynchronize(Stream) override { return Status(); }
  Status doAllocateVisible(size_t bytes, void *&data) override { return doAllocate(bytes, nullptr, data); }
};

/// Around calls of a device's functions. Null is allowed, and costs nothing. Whoever can report an error checks
/// status() before it uses the device: the thread may be in the context of another one.
class DeviceScope {
public:
  explicit DeviceScope(Device *device) : device(device) {
    if (device)
      entered = device->enter(previous);
  }
  ~DeviceScope() {
    if (device && entered.ok())
      device->leave(previous);
  }
  Status status() const { return entered.ok() ? Status() : Status(entered.error()); }
  DeviceScope(const DeviceScope &) = delete;
  DeviceScope &operator=(const DeviceScope &) = delete;

private:
  Device *device;
  void *previous = nullptr;
  Status entered;
};

/// Makes the device with this number: 0, 1, ... An error says what is missing.
using DeviceFactory = Status (*)(int32_t id, std::unique_ptr<Device> &device);

/// The kinds of devices, by name, and the devices of the process. They are never deleted: tensors on them may outlive
/// everything else.
class DeviceRegistry {
public:
  static DeviceRegistry &get();

  /// The device, made when it is asked for the first time.
  Status find(const std::string &name, int32_t id, Device *&device);

  /// A kind of devices in addition to "cuda", "rocm", "emulated" and "null". False if there is one of this name.
  bool add(const std::string &name, DeviceFactory factory);

private:
  DeviceRegistry();

  Mutex mutex;
  std::vector<std::pair<std::string, DeviceFactory>> kinds;
  struct Made {
    std::string name;
    int32_t id;
    std::unique_ptr<Device> device;
  };
  std::vector<Made> made;
};

} // namespace disc::rt

#endif // DISC_RUNTIME_DEVICE_DEVICE_H
