//===- Cuda.cpp - the driver table over libcuda ---------------------------===//

#include "lib/Runtime/Device/Driver.h"

namespace disc::rt {

namespace {
struct Cuda {
  DriverResult (*pushContext)(void *context);
  DriverResult (*popContext)(void **context);
  DriverResult (*errorName)(DriverResult result, const char **name);
  DriverResult (*attribute)(int *value, int attribute, int device);
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

static Status fill() {
  Driver &table = cuda.table;
  table.name = "cuda";
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
