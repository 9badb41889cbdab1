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

struct Hip {
  DriverResult (*getDevice)(int *device);
  DriverResult (*setDevice)(int device);
  const char *(*errorName)(DriverResult result);
  DriverResult (*properties)(void *properties, int device);
  Driver table;
};
} // namespace

static Hip hip;

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

static Status fill() {
  Driver &table = hip.table;
  table.name = "rocm";
  table.deviceType = kDLROCM;
  table.maxThreads = UINT32_MAX;
  table.arch = arch;
  table.enter = enter;
  table.leave = leave;
  table.retainContext = retainContext;
  SharedLibrary library("target 'rocm' needs the ROCm runtime",
                        {"libamdhip64.so", "libamdhip64.so.7", "libamdhip64.so.6"});
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
