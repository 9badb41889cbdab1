//===- Cuda.cpp - the driver table over libcuda ---------------------------===//

#include "lib/Runtime/Device/Driver.h"

namespace disc::rt {

namespace {
/// CUDA_KERNEL_NODE_PARAMS_v1, which every driver with graphs takes.
struct KernelParams {
  void *function;
  unsigned gridX, gridY, gridZ, blockX, blockY, blockZ, sharedBytes;
  void **args;
  void **extra;
};

/// One side of a CUDA_MEMCPY3D.
struct CopySide {
  size_t x = 0, y = 0, z = 0, level = 0;
  int memory = 2; ///< CU_MEMORYTYPE_DEVICE
  const void *host = nullptr;
  const void *device = nullptr;
  void *array = nullptr, *reserved = nullptr;
  size_t pitch = 0, height = 0;
};

struct CopyParams {
  CopySide from, to;
  size_t width, height = 1, depth = 1;
};

/// CUgraphEdgeData
struct EdgeData {
  unsigned char from = 1; ///< CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC: from when all blocks have said so.
  unsigned char to = 0;
  unsigned char type = 1; ///< CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC
  unsigned char reserved[5] = {};
};

/// CUlaunchAttribute and CUlaunchConfig
struct LaunchAttribute {
  int id = 6; ///< CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
  int padding = 0;
  int value = 1;
  int rest[15] = {};
};
struct LaunchConfig {
  unsigned gridX, gridY, gridZ, blockX, blockY, blockZ, sharedBytes;
  void *stream;
  LaunchAttribute *attributes;
  unsigned count;
};

struct Cuda {
  DriverResult (*pushContext)(void *context);
  DriverResult (*popContext)(void **context);
  DriverResult (*errorName)(DriverResult result, const char **name);
  DriverResult (*attribute)(int *value, int attribute, int device);
  DriverResult (*addKernel)(void **node, void *graph, void *const *after, size_t count, const void *params);
  DriverResult (*setKernel)(void *executable, void *node, const void *params);
  DriverResult (*addCopy)(void **node, void *graph, void *const *after, size_t count, const void *params,
                          void *context);
  DriverResult (*setCopy)(void *executable, void *node, const void *params, void *context);
  DriverResult (*launch)(const void *config, void *function, void **args, void **extra);
  DriverResult (*addEdges)(void *graph, void *const *from, void *const *to, const void *data, size_t count);
  Driver table;
};
} // namespace

static Cuda cuda;

static const char *errorName(DriverResult result) {
  const char *name = nullptr;
  return cuda.errorName(result, &name) == kDriverOk && name ? name : "an unknown error";
}

static DriverResult arch(int device, std::string &arch) {
  constexpr int kMajor = 75, kMinor = 76; // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*
  int major = 0, minor = 0;
  DriverResult result = cuda.attribute(&major, kMajor, device);
  if (result == kDriverOk)
    result = cuda.attribute(&minor, kMinor, device);
  arch = "sm_" + std::to_string(major) + std::to_string(minor);
  return result;
}

static DriverResult enter(int, void *context, void *&) { return cuda.pushContext(context); }

static void leave(void *) {
  void *context = nullptr;
  (void)cuda.popContext(&context);
}

static DriverResult startEarly(void *graph, void *after, void *node) {
  EdgeData edge;
  return cuda.addEdges(graph, &after, &node, &edge, 1);
}

static DriverResult launchEarly(const KernelNode &kernel, void *stream) {
  LaunchAttribute attribute;
  LaunchConfig config = {kernel.blocks, 1, 1, kernel.threads, 1, 1, kernel.sharedBytes, stream, &attribute, 1};
  return cuda.launch(&config, kernel.function, kernel.args, nullptr);
}

static KernelParams paramsOf(const KernelNode &kernel) {
  return {kernel.function, kernel.blocks, 1, 1, kernel.threads, 1, 1, kernel.sharedBytes, kernel.args, nullptr};
}

static DriverResult addKernel(void **node, void *graph, void *const *after, size_t count, const KernelNode &kernel) {
  KernelParams params = paramsOf(kernel);
  return cuda.addKernel(node, graph, after, count, &params);
}

static DriverResult setKernel(void *executable, void *node, const KernelNode &kernel) {
  KernelParams params = paramsOf(kernel);
  return cuda.setKernel(executable, node, &params);
}

static CopyParams paramsOf(const CopyNode &copy) {
  CopyParams params;
  params.from.device = copy.from;
  params.to.device = copy.to;
  params.width = copy.bytes;
  return params;
}

static DriverResult addCopy(void **node, void *graph, void *const *after, size_t count, const CopyNode &copy) {
  CopyParams params = paramsOf(copy);
  return cuda.addCopy(node, graph, after, count, &params, copy.context);
}

static DriverResult setCopy(void *executable, void *node, const CopyNode &copy) {
  CopyParams params = paramsOf(copy);
  return cuda.setCopy(executable, node, &params, copy.context);
}

static bool fillGraphs() {
  Driver &table = cuda.table;
  table.addKernel = addKernel;
  table.setKernel = setKernel;
  table.addCopy = addCopy;
  table.setCopy = setCopy;
  SharedLibrary library("graphs", {"libcuda.so.1"});
  library.find(cuda.addKernel, "cuGraphAddKernelNode");
  library.find(cuda.setKernel, "cuGraphExecKernelNodeSetParams");
  library.find(cuda.addCopy, "cuGraphAddMemcpyNode");
  library.find(cuda.setCopy, "cuGraphExecMemcpyNodeSetParams");
  library.find(table.createStream, "cuStreamCreate");
  library.find(table.beginCapture, "cuStreamBeginCapture_v2");
  library.find(table.endCapture, "cuStreamEndCapture");
  library.find(table.createGraph, "cuGraphCreate");
  library.find(table.destroyGraph, "cuGraphDestroy");
  library.find(table.addChild, "cuGraphAddChildGraphNode");
  library.find(table.instantiate, "cuGraphInstantiateWithFlags");
  library.find(table.destroyExecutable, "cuGraphExecDestroy");
  library.find(table.setChild, "cuGraphExecChildGraphNodeSetParams");
  library.find(table.launchGraph, "cuGraphLaunch");
  SharedLibrary newer("graphs", {"libcuda.so.1"}); // CUDA 12.3
  newer.find(cuda.addEdges, "cuGraphAddDependencies_v2");
  table.startEarly = newer.take().ok() ? startEarly : nullptr;
  return library.take().ok();
}

static Status fill() {
  Driver &table = cuda.table;
  table.name = "cuda";
  table.hasGraphs = fillGraphs();
  table.deviceType = kDLCUDA;
  table.maxThreads = INT64_MAX;
  table.errorName = errorName;
  table.arch = arch;
  table.enter = enter;
  table.leave = leave;
  SharedLibrary library("target 'cuda' needs an NVIDIA driver", {"libcuda.so.1"});
  library.find(cuda.pushContext, "cuCtxPushCurrent_v2");
  library.find(cuda.popContext, "cuCtxPopCurrent_v2");
  library.find(cuda.errorName, "cuGetErrorName");
  library.find(cuda.attribute, "cuDeviceGetAttribute");
  library.find(table.init, "cuInit");
  library.find(table.count, "cuDeviceGetCount");
  library.find(table.device, "cuDeviceGet");
  library.find(table.deviceName, "cuDeviceGetName");
  library.find(table.retainContext, "cuDevicePrimaryCtxRetain");
  library.find(table.synchronizeContext, "cuCtxSynchronize");
  library.find(table.synchronizeStream, "cuStreamSynchronize");
  library.find(table.streamWait, "cuStreamWaitEvent");
  library.find(table.isCapturing, "cuStreamIsCapturing");
  library.find(table.createEvent, "cuEventCreate");
  library.find(table.destroyEvent, "cuEventDestroy_v2");
  library.find(table.recordEvent, "cuEventRecord");
  library.find(table.queryEvent, "cuEventQuery");
  library.find(table.synchronizeEvent, "cuEventSynchronize");
  library.find(table.elapsed, "cuEventElapsedTime");
  library.find(table.createPool, "cuMemPoolCreate");
  library.find(table.setPool, "cuMemPoolSetAttribute");
  library.find(table.trimPool, "cuMemPoolTrimTo");
  library.find(table.allocate, "cuMemAllocFromPoolAsync");
  library.find(table.free, "cuMemFreeAsync");
  library.find(table.allocateHost, "cuMemHostAlloc");
  library.find(table.copyIn, "cuMemcpyHtoDAsync_v2");
  library.find(table.copyOut, "cuMemcpyDtoHAsync_v2");
  library.find(table.copy, "cuMemcpyDtoDAsync_v2");
  library.find(table.loadModule, "cuModuleLoadDataEx");
  library.find(table.unloadModule, "cuModuleUnload");
  library.find(table.getFunction, "cuModuleGetFunction");
  library.find(table.setFunction, "cuFuncSetAttribute");
  library.find(table.launch, "cuLaunchKernel");
  SharedLibrary newer("early launches", {"libcuda.so.1"}); // CUDA 11.8
  newer.find(cuda.launch, "cuLaunchKernelEx");
  table.launchEarly = newer.take().ok() ? launchEarly : nullptr;
  return library.take();
}

Status cudaDriver(const Driver *&driver) {
  static bool filled = false;
  driver = &cuda.table;
  if (filled)
    return Status();
  Status status = fill();
  filled = status.ok();
  return status;
}

} // namespace disc::rt
