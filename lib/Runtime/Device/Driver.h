//===- Driver.h - what CUDA's and HIP's drivers have in common --*- C++ -*-===//
//
// The two interfaces differ in names and in little else. Each fills this table from its library, opened at run time;
// GpuDevice knows only the table. Numbers (results, flags, options) mean the same in both.
//
//===----------------------------------------------------------------------===//

#ifndef DISC_RUNTIME_DEVICE_DRIVER_H
#define DISC_RUNTIME_DEVICE_DRIVER_H

#include "lib/Runtime/Device/Device.h"

#include <initializer_list>
#include <string>

namespace disc::rt {

/// CUresult, hipError_t.
using DriverResult = int;
constexpr DriverResult kDriverOk = 0, kDriverNoMemory = 2, kDriverNoDevice = 100, kDriverNotReady = 600;

constexpr unsigned kHostPortable = 1, kHostMapped = 2, kEventWithoutTiming = 2;
constexpr unsigned kStreamNonBlocking = 1;
constexpr int kCaptureRelaxed = 2;
constexpr int kPoolReleaseThreshold = 4, kJitErrorLog = 5, kJitErrorLogBytes = 6, kDynamicSharedBytes = 8;

/// CUmemPoolProps, hipMemPoolProps.
struct PoolProperties {
  int allocationType = 1; ///< Pinned, the only one.
  int handleTypes = 0;
  int locationType = 1; ///< A device.
  int locationId = 0;
  void *security = nullptr;
  size_t maxBytes = 0;
  unsigned char reserved[56] = {};
};

/// What a node of a graph launches or copies, which the two describe in different ways.
struct KernelNode {
  void *function;
  unsigned blocks, threads, sharedBytes;
  void **args;
  bool isEarly; ///< Waits itself for the kernels before it.
};
struct CopyNode {
  void *to;
  const void *from;
  size_t bytes;
  void *context;
};

struct Driver {
  const char *name;   ///< Of the device: "cuda".
  int32_t deviceType; ///< DLPack's.
  int64_t maxThreads; ///< Of a launch: blocks times threads.

  DriverResult (*init)(unsigned flags);
  DriverResult (*count)(int *count);
  DriverResult (*device)(int *device, int number);
  DriverResult (*deviceName)(char *name, int bytes, int device);
  DriverResult (*retainContext)(void **context, int device);
  DriverResult (*synchronizeContext)();

  DriverResult (*synchronizeStream)(void *stream);
  DriverResult (*streamWait)(void *stream, void *event, unsigned flags);
  DriverResult (*isCapturing)(void *stream, int *capturing);

  DriverResult (*createEvent)(void **event, unsigned flags);
  DriverResult (*destroyEvent)(void *event);
  DriverResult (*recordEvent)(void *event, void *stream);
  DriverResult (*queryEvent)(void *event);
  DriverResult (*synchronizeEvent)(void *event);
  DriverResult (*elapsed)(float *milliseconds, void *begin, void *end);

  DriverResult (*createPool)(void **pool, const PoolProperties *properties);
  DriverResult (*setPool)(void *pool, int attribute, void *value);
  DriverResult (*trimPool)(void *pool, size_t keep);
  DriverResult (*allocate)(void **data, size_t bytes, void *pool, void *stream);
  DriverResult (*free)(void *data, void *stream);
  DriverResult (*allocateHost)(void **data, size_t bytes, unsigned flags);
  DriverResult (*copyIn)(void *to, const void *from, size_t bytes, void *stream);
  DriverResult (*copyOut)(void *to, const void *from, size_t bytes, void *stream);
  DriverResult (*copy)(void *to, const void *from, size_t bytes, void *stream);

  DriverResult (*loadModule)(void **module, const void *image, unsigned count, int *options, void **values);
  DriverResult (*unloadModule)(void *module);
  DriverResult (*getFunction)(void **function, void *module, const char *name);
  DriverResult (*setFunction)(void *function, int attribute, int value); ///< Null: no need.
  DriverResult (*launch)(void *function, unsigned gridX, unsigned gridY, unsigned gridZ, unsigned blockX,
                         unsigned blockY, unsigned blockZ, unsigned sharedBytes, void *stream, void **args,
                         void **extra);

  // Graphs; a driver that lacks any of these functions has none.
  bool hasGraphs;
  DriverResult (*createStream)(void **stream, unsigned flags);
  DriverResult (*beginCapture)(void *stream, int mode);
  DriverResult (*endCapture)(void *stream, void **graph);
  DriverResult (*createGraph)(void **graph, unsigned flags);
  DriverResult (*destroyGraph)(void *graph);
  DriverResult (*addChild)(void **node, void *graph, void *const *after, size_t count, void *child);
  DriverResult (*instantiate)(void **executable, void *graph, unsigned long long flags);
  DriverResult (*destroyExecutable)(void *executable);
  DriverResult (*setChild)(void *executable, void *node, void *child);
  DriverResult (*launchGraph)(void *executable, void *stream);

  // Where they do differ:
  DriverResult (*addKernel)(void **node, void *graph, void *const *after, size_t count, const KernelNode &kernel);
  DriverResult (*setKernel)(void *executable, void *node, const KernelNode &kernel);
  /// Lets `node`, a kernel that waits itself, start before the kernel `after` has finished. Null: there is no such
  /// thing.
  DriverResult (*startEarly)(void *graph, void *after, void *node);
  /// Launches a kernel that waits itself, which may start before what is in the stream has finished. Null: as above.
  DriverResult (*launchEarly)(const KernelNode &kernel, void *stream);
  DriverResult (*addCopy)(void **node, void *graph, void *const *after, size_t count, const CopyNode &copy);
  DriverResult (*setCopy)(void *executable, void *node, const CopyNode &copy);
  /// The last error, which the thread then has no longer. Null: the driver keeps none.
  DriverResult (*lastError)();
  /// "CUDA_ERROR_OUT_OF_MEMORY"
  const char *(*errorName)(DriverResult result);
  /// What images say that fit: "sm_90", "gfx942".
  DriverResult (*arch)(int device, std::string &arch);
  /// Makes it the thread's current one; `previous` is for leave(). On failure nothing changed, and leave() is not
  /// called.
  DriverResult (*enter)(int device, void *context, void *&previous);
  void (*leave)(void *previous);
};

/// A library of the driver's, and the functions in it. It is never closed.
class SharedLibrary {
public:
  /// The first of `files` that is in the process already, else the first one that can be opened. `who` begins the
  /// error: "target 'cuda' needs an NVIDIA driver".
  SharedLibrary(std::string who, std::initializer_list<const char *> files);

  template <typename Function> void find(Function *&function, const char *name) {
    function = reinterpret_cast<Function *>(symbol(name));
  }
  /// What was missing first.
  Status take() { return std::move(status); }

private:
  void *symbol(const char *name);

  const std::string who;
  const char *file = nullptr;
  void *handle = nullptr;
  Status status;
};

/// Tables that are filled when they are asked for first, under the registry's lock, and live as long as the process:
/// devices that are open read them at any time. After a failure the next one who asks tries again.
Status cudaDriver(const Driver *&driver);
Status hipDriver(const Driver *&driver);

/// Devices over them, for the registry.
Status makeCudaDevice(int32_t id, std::unique_ptr<Device> &device);
Status makeRocmDevice(int32_t id, std::unique_ptr<Device> &device);

} // namespace disc::rt

#endif // DISC_RUNTIME_DEVICE_DRIVER_H
