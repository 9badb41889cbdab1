//===- Hip.cpp - the driver table over libamdhip64 ------------------------===//

#include "lib/Runtime/Device/Driver.h"

namespace disc::rt {

namespace {
/// hipDeviceProp_tR0600: a version of its own function has this layout for good.
struct Properties {
  char before[1160];
  char arch[256];
  char behind[2680];
};

/// dim3
struct Extents {
  unsigned x, y = 1, z = 1;
};

/// hipKernelNodeParams
struct KernelParams {
  Extents block;
  void **extra;
  void *function;
  Extents grid;
  void **args;
  unsigned sharedBytes;
};
constexpr int kCopyWithinDevice = 3;

struct Hip {
  DriverResult (*getDevice)(int *device);
  DriverResult (*setDevice)(int device);
  const char *(*errorName)(DriverResult result);
  DriverResult (*properties)(void *properties, int device);
  DriverResult (*addKernel)(void **node, void *graph, void *const *after, size_t count, const void *params);
  DriverResult (*setKernel)(void *executable, void *node, const void *params);
  DriverResult (*addCopy)(void **node, void *graph, void *const *after, size_t count, void *to, const void *from,
                          size_t bytes, int kind);
  DriverResult (*setCopy)(void *executable, void *node, void *to, const void *from, size_t bytes, int kind);
  Driver table;
};
} // namespace

static Hip hip;

static constexpr std::initializer_list<const char *> kFiles = {"libamdhip64.so", "libamdhip64.so.7",
                                                               "libamdhip64.so.6"};

static DriverResult arch(int device, std::string &arch) {
  Properties properties = {};
  DriverResult result = hip.properties(&properties, device);
  properties.arch[sizeof(properties.arch) - 1] = '\0';
  // "gfx90a:sramecc+:xnack-"
  arch = properties.arch;
  arch = arch.substr(0, arch.find(':'));
  return result;
}

static DriverResult enter(int device, void *, void *&previous) {
  int before = device;
  DriverResult result = hip.getDevice(&before);
  if (result == kDriverOk && before != device)
    result = hip.setDevice(device);
  previous = reinterpret_cast<void *>(intptr_t(before));
  return result;
}

static void leave(void *previous) {
  int before = int(reinterpret_cast<intptr_t>(previous)), now = before;
  (void)hip.getDevice(&now);
  if (now != before)
    (void)hip.setDevice(before);
}

/// A device's context is HIP's own business.
static DriverResult retainContext(void **context, int) {
  *context = nullptr;
  return kDriverOk;
}

static KernelParams paramsOf(const KernelNode &kernel) {
  return {{kernel.threads}, nullptr, kernel.function, {kernel.blocks}, kernel.args, kernel.sharedBytes};
}

static DriverResult addKernel(void **node, void *graph, void *const *after, size_t count, const KernelNode &kernel) {
  KernelParams params = paramsOf(kernel);
  return hip.addKernel(node, graph, after, count, &params);
}

static DriverResult setKernel(void *executable, void *node, const KernelNode &kernel) {
  KernelParams params = paramsOf(kernel);
  return hip.setKernel(executable, node, &params);
}

static DriverResult addCopy(void **node, void *graph, void *const *after, size_t count, const CopyNode &copy) {
  return hip.addCopy(node, graph, after, count, copy.to, copy.from, copy.bytes, kCopyWithinDevice);
}

static DriverResult setCopy(void *executable, void *node, const CopyNode &copy) {
  return hip.setCopy(executable, node, copy.to, copy.from, copy.bytes, kCopyWithinDevice);
}

static bool fillGraphs() {
  Driver &table = hip.table;
  table.addKernel = addKernel;
  table.setKernel = setKernel;
  table.addCopy = addCopy;
  table.setCopy = setCopy;
  SharedLibrary library("graphs", kFiles);
  library.find(hip.addKernel, "hipGraphAddKernelNode");
  library.find(hip.setKernel, "hipGraphExecKernelNodeSetParams");
  library.find(hip.addCopy, "hipGraphAddMemcpyNode1D");
  library.find(hip.setCopy, "hipGraphExecMemcpyNodeSetParams1D");
  library.find(table.createStream, "hipStreamCreateWithFlags");
  library.find(table.beginCapture, "hipStreamBeginCapture");
  library.find(table.endCapture, "hipStreamEndCapture");
  library.find(table.createGraph, "hipGraphCreate");
  library.find(table.destroyGraph, "hipGraphDestroy");
  library.find(table.addChild, "hipGraphAddChildGraphNode");
  library.find(table.instantiate, "hipGraphInstantiateWithFlags");
  library.find(table.destroyExecutable, "hipGraphExecDestroy");
  library.find(table.setChild, "hipGraphExecChildGraphNodeSetParams");
  library.find(table.launchGraph, "hipGraphLaunch");
  return library.take().ok();
}

static Status fill() {
  Driver &table = hip.table;
  table.name = "rocm";
  table.deviceType = kDLROCM;
  table.maxThreads = UINT32_MAX;
  table.arch = arch;
  table.enter = enter;
  table.leave = leave;
  table.retainContext = retainContext;
  table.hasGraphs = fillGraphs();
  SharedLibrary library("target 'rocm' needs the ROCm runtime", kFiles);
  library.find(hip.getDevice, "hipGetDevice");
  library.find(hip.setDevice, "hipSetDevice");
  library.find(table.errorName, "hipGetErrorName");
  library.find(table.lastError, "hipGetLastError");
  library.find(hip.properties, "hipGetDevicePropertiesR0600");
  library.find(table.init, "hipInit");
  library.find(table.count, "hipGetDeviceCount");
  library.find(table.device, "hipDeviceGet");
  library.find(table.deviceName, "hipDeviceGetName");
  library.find(table.synchronizeContext, "hipDeviceSynchronize");
  library.find(table.synchronizeStream, "hipStreamSynchronize");
  library.find(table.streamWait, "hipStreamWaitEvent");
  library.find(table.isCapturing, "hipStreamIsCapturing");
  library.find(table.createEvent, "hipEventCreateWithFlags");
  library.find(table.destroyEvent, "hipEventDestroy");
  library.find(table.recordEvent, "hipEventRecord");
  library.find(table.queryEvent, "hipEventQuery");
  library.find(table.synchronizeEvent, "hipEventSynchronize");
  library.find(table.elapsed, "hipEventElapsedTime");
  library.find(table.createPool, "hipMemPoolCreate");
  library.find(table.setPool, "hipMemPoolSetAttribute");
  library.find(table.trimPool, "hipMemPoolTrimTo");
  library.find(table.allocate, "hipMallocFromPoolAsync");
  library.find(table.free, "hipFreeAsync");
  library.find(table.allocateHost, "hipHostMalloc");
  library.find(table.copyIn, "hipMemcpyHtoDAsync");
  library.find(table.copyOut, "hipMemcpyDtoHAsync");
  library.find(table.copy, "hipMemcpyDtoDAsync");
  library.find(table.loadModule, "hipModuleLoadDataEx");
  library.find(table.unloadModule, "hipModuleUnload");
  library.find(table.getFunction, "hipModuleGetFunction");
  library.find(table.launch, "hipModuleLaunchKernel");
  return library.take();
}

Status hipDriver(const Driver *&driver) {
  static bool filled = false;
  driver = &hip.table;
  if (filled)
    return Status();
  Status status = fill();
  filled = status.ok();
  return status;
}

} // namespace disc::rt
