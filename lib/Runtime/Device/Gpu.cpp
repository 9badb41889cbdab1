//===- Gpu.cpp - a device over a driver table -----------------------------===//

#include "lib/Runtime/Device/Gpu.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>

namespace disc::rt {

//===-- Libraries ---------------------------------------------------------===//

SharedLibrary::SharedLibrary(std::string who, std::initializer_list<const char *> files) : who(std::move(who)) {
  for (int mode : {RTLD_NOW | RTLD_NOLOAD, RTLD_NOW})
    for (const char *name : files)
      if (!handle && (handle = dlopen(name, mode | RTLD_LOCAL)))
        file = name;
  if (handle)
    return;
  // Of the name that is tried first.
  (void)dlopen(*files.begin(), RTLD_NOW | RTLD_LOCAL);
  const char *why = dlerror();
  status = Status(Code::Target, this->who + ": " + *files.begin() + " could not be opened: " + (why ? why : "unknown"));
}

void *SharedLibrary::symbol(const char *name) {
  void *address = handle ? dlsym(handle, name) : nullptr;
  if (!address && status.ok())
    status = Status(Code::Target, who + ": " + file + " is too old or damaged, it has no " + name);
  return address;
}

//===-- The device --------------------------------------------------------===//

/// Results that say that work which was under way came to an end: those of the context, not of the call that tells.
static bool isLate(DriverResult result) {
  for (int late : {214, 220, 226, 700, 702, 710, 714, 715, 716, 717, 718, 719, 721})
    if (result == late)
      return true;
  return false;
}

/// An error that is told is not to be found by the framework, which asks for the last one after kernels of its own.
void GpuDevice::forget() const {
  if (driver.lastError)
    (void)driver.lastError();
}

Status GpuDevice::check(DriverResult result, std::string_view what) const {
  if (result == kDriverOk)
    return Status();
  forget();
  std::string error = driver.errorName(result);
  if (isLate(result))
    return Status(Code::Device, title() + ": something that was put into a stream before failed when it ran: " + error +
                                    " (told by " + std::string(what) + ")");
  return Status(result == kDriverNoMemory ? Code::Memory : Code::Device,
                title() + ": " + std::string(what) + ": " + error);
}

Status GpuDevice::open() {
  DriverResult result = driver.init(0);
  int count = 0;
  if (result == kDriverOk)
    result = driver.count(&count);
  if (result != kDriverOk)
    forget();
  if (result != kDriverOk && result != kDriverNoDevice)
    return Status(Code::Target, "target '" + name + "': the driver does not start: " + driver.errorName(result));
  if (where.device_id < 0 || where.device_id >= count)
    return Status(Code::Target, "target '" + name + "': there is no device " + std::to_string(where.device_id) +
                                    ", the driver found " + (count ? std::to_string(count) : "none"));
  char text[256] = "";
  if (Status status = check(driver.device(&device, where.device_id), "opening the device"); !status.ok())
    return status;
  if (Status status = check(driver.deviceName(text, sizeof(text) - 1, device), "asking for its name"); !status.ok())
    return status;
  label = text;
  if (Status status = check(driver.arch(device, arch), "asking what it is"); !status.ok())
    return status;
  if (Status status = check(driver.retainContext(&context, device), "making its context"); !status.ok())
    return status;
  DeviceScope scope(this);
  if (!scope.status().ok())
    return scope.status();
  PoolProperties properties;
  properties.locationId = where.device_id;
  // What was needed once is kept: a pool that shrinks whenever somebody waits would make every call slow.
  uint64_t keep = UINT64_MAX;
  Status status = check(driver.createPool(&pool, &properties), "making a pool of memory");
  return status.ok() ? check(driver.setPool(pool, kPoolReleaseThreshold, &keep), "setting up its pool")
                     : std::move(status);
}

Status GpuDevice::mayRun(Stream stream) {
  int capturing = 0;
  Status status = check(driver.isCapturing(stream, &capturing), "asking for a stream's state");
  if (status.ok() && capturing)
    status =
        Status(Code::Invalid, title() + ": the stream is being captured into a graph, but what a run allocates and "
                                        "launches depends on its inputs; capture without it");
  return status;
}

Status GpuDevice::doAllocate(size_t bytes, Stream stream, void *&data) {
  return check(driver.allocate(&data, std::max<size_t>(bytes, 1), pool, stream),
               "allocating " + std::to_string(bytes) + " bytes");
}

//===-- Copies ------------------------------------------------------------===//

Status GpuDevice::staging(Staging &buffer) {
  if (!buffer.data)
    if (Status status = check(driver.allocateHost(&buffer.data, Staging::kBytes, kHostPortable), "pinned memory");
        !status.ok())
      return status;
  if (!buffer.event)
    return check(driver.createEvent(&buffer.event, kEventWithoutTiming), "making an event");
  return check(driver.synchronizeEvent(buffer.event), "waiting for an upload");
}

Status GpuDevice::doCopyIn(void *to, const void *from, size_t bytes, Stream stream) {
  std::lock_guard<Mutex> lock(stagingMutex);
  for (size_t done = 0; done < bytes;) {
    Staging &buffer = upload[nextUpload++ % std::size(upload)];
    size_t part = std::min(bytes - done, Staging::kBytes);
    if (Status status = staging(buffer); !status.ok())
      return status;
    std::memcpy(buffer.data, static_cast<const char *>(from) + done, part);
    if (Status status = check(driver.copyIn(static_cast<char *>(to) + done, buffer.data, part, stream), "an upload");
        !status.ok())
      return status;
    if (Status status = check(driver.recordEvent(buffer.event, stream), "recording an event"); !status.ok())
      return status;
    done += part;
  }
  return Status();
}

Status GpuDevice::doRead(void *to, const void *from, size_t bytes, Stream stream) {
  constexpr size_t kPinned = size_t(64) << 10;
  void *pinned = nullptr;
  if (bytes <= kPinned) {
    std::lock_guard<Mutex> lock(readingMutex);
    if (!reading.empty()) {
      pinned = reading.back();
      reading.pop_back();
    } else {
      reading.reserve(pinnedBlocks + 1); // to give it back needs no memory then
      if (Status status = check(driver.allocateHost(&pinned, kPinned, kHostPortable), "pinned memory"); !status.ok())
        return status;
      ++pinnedBlocks;
    }
  }
  // What is larger, the driver takes through memory of its own.
  Status status = check(driver.copyOut(pinned ? pinned : to, from, bytes, stream), "reading from the device");
  if (status.ok())
    status = check(driver.synchronizeStream(stream), "reading from the device");
  if (!pinned)
    return status;
  if (status.ok())
    std::memcpy(to, pinned, bytes);
  std::lock_guard<Mutex> lock(readingMutex);
  reading.push_back(pinned);
  return status;
}

//===-- Events ------------------------------------------------------------===//

GpuEvent::~GpuEvent() {
  DeviceScope scope(&device);
  if (event)
    (void)device.driver.destroyEvent(event);
}

Status GpuDevice::record(std::unique_ptr<DeviceEvent> &event, Stream stream, bool timed) {
  if (!event) {
    auto made = std::make_unique<GpuEvent>(*this, nullptr);
    if (Status status = check(driver.createEvent(&made->event, timed ? 0 : kEventWithoutTiming), "making an event");
        !status.ok())
      return status;
    event = std::move(made);
  }
  return check(driver.recordEvent(static_cast<GpuEvent &>(*event).event, stream), "recording an event");
}

int64_t GpuDevice::elapsed(DeviceEvent &begin, DeviceEvent &end) {
  float milliseconds = 0;
  (void)driver.elapsed(&milliseconds, static_cast<GpuEvent &>(begin).event, static_cast<GpuEvent &>(end).event);
  return int64_t(double(milliseconds) * 1e6);
}

//===-- Kernels -----------------------------------------------------------===//

GpuModule::~GpuModule() {
  DeviceScope scope(&device);
  if (module)
    (void)device.driver.unloadModule(module);
}

/// The number in "sm_90" or "compute_80" behind the prefix; -1 if there is none.
static int64_t capability(const std::string &text, const char *prefix) {
  size_t length = std::strlen(prefix);
  if (text.compare(0, length, prefix) != 0 || text.size() == length || text.size() > length + 6)
    return -1;
  int64_t number = 0;
  for (char digit : text.substr(length)) {
    if (digit < '0' || digit > '9')
      return -1; // "sm_90a" fits nothing but itself
    number = 10 * number + (digit - '0');
  }
  return number;
}

/// How well an image suits: code for this very device, then for a lesser one of its generation, then PTX, of the
/// greatest capability that the device has. 0: not at all.
int64_t GpuDevice::suits(const std::string &image) const {
  constexpr int64_t kRank = 1000000;
  // NVIDIA's code with what no other chip has ends in "a".
  bool isOnlyFor = image != arch && !image.empty() && image.back() == 'a';
  std::string chip = isOnlyFor ? image.substr(0, image.size() - 1) : image;
  if (chip == arch)
    return 3 * kRank;
  int64_t own = capability(arch, "sm_"), cubin = capability(chip, "sm_"), ptx = capability(chip, "compute_");
  if (isOnlyFor && ptx != own)
    return 0;
  if (cubin >= 0 && cubin <= own && cubin / 10 == own / 10)
    return 2 * kRank + cubin;
  return ptx >= 0 && ptx <= own ? kRank + ptx : 0;
}

Status GpuDevice::load(const disc_device_code &code, std::unique_ptr<DeviceModule> &module) {
  std::vector<std::pair<int64_t, const disc_device_image *>> images;
  for (int64_t i = 0; i < code.num_images; ++i)
    if (int64_t rank = suits(code.images[i].arch))
      images.push_back({-rank, &code.images[i]});
  std::sort(images.begin(), images.end());
  if (images.empty()) {
    std::string has;
    for (int64_t i = 0; i < code.num_images; ++i)
      has += (i ? ", " : "") + std::string(code.images[i].arch);
    return Status(Code::Target,
                  title() + " is " + describe() + "; the model has code for " + (has.empty() ? "nothing" : has));
  }
  auto loaded = std::make_unique<GpuModule>(*this, code);
  const disc_device_image *image = nullptr;
  std::string errors;
  // A driver may be too old for a cubin of a newer assembler's, and yet have a compiler for PTX.
  for (size_t i = 0; i < images.size() && !loaded->module; ++i) {
    image = images[i].second;
    char log[4096] = "";
    int options[] = {kJitErrorLog, kJitErrorLogBytes};
    void *values[] = {log, reinterpret_cast<void *>(sizeof(log) - 1)};
    DriverResult result = driver.loadModule(&loaded->module, image->data, 2, options, values);
    if (result == kDriverOk)
      break;
    forget();
    loaded->module = nullptr;
    errors += (errors.empty() ? "" : "; ") + std::string(image->arch) + ": " + driver.errorName(result) +
              (*log ? std::string(": ") + log : "");
  }
  if (!loaded->module)
    return Status(Code::Device, title() + " (" + describe() + ") does not load the model's code for " + errors);
  for (int64_t i = 0; i < code.num_kernels; ++i) {
    const disc_device_kernel &kernel = code.kernels[i];
    std::string what = "the code for " + std::string(image->arch) + ", kernel '" + kernel.name + "'";
    loaded->functions.push_back(nullptr);
    void *&function = loaded->functions.back();
    if (Status status = check(driver.getFunction(&function, loaded->module, kernel.name), what); !status.ok())
      return status;
    constexpr int64_t kSharedWithoutAsking = 48 << 10;
    if (driver.setFunction && kernel.shared > kSharedWithoutAsking)
      if (Status status = check(driver.setFunction(function, kDynamicSharedBytes, int(kernel.shared)), what);
          !status.ok())
        return status;
  }
  const char *early = std::getenv("DISC_DEVICE_EARLY");
  loaded->isEarly = image->early != 0 && !(early && std::strcmp(early, "0") == 0);
  module = std::move(loaded);
  return Status();
}

Status GpuDevice::find(DeviceModule &module, const DeviceLaunch &launch, KernelNode &found) const {
  auto &loaded = static_cast<GpuModule &>(module);
  const disc_device_kernel &kernel = loaded.code.kernels[launch.kernel];
  if (launch.blocks > INT32_MAX || launch.blocks > driver.maxThreads / kernel.threads)
    return Status(Code::Device, title() + ": a launch of " + std::to_string(launch.blocks) + " blocks of " +
                                    std::to_string(kernel.threads) + " threads is too large");
  found = {loaded.functions[size_t(launch.kernel)],
           unsigned(launch.blocks),
           unsigned(kernel.threads),
           unsigned(kernel.shared),
           const_cast<void **>(launch.args),
           loaded.isEarly};
  return Status();
}

Status GpuDevice::doLaunch(DeviceModule &module, const DeviceLaunch &launch, Stream stream) {
  KernelNode node;
  if (Status status = find(module, launch, node); !status.ok())
    return status;
  if (node.isEarly && launch.isBehindKernel && driver.launchEarly)
    return check(driver.launchEarly(node, stream), "a launch");
  return check(
      driver.launch(node.function, node.blocks, 1, 1, node.threads, 1, 1, node.sharedBytes, stream, node.args, nullptr),
      "a launch");
}

Blas *GpuDevice::library() {
  std::lock_guard<Mutex> lock(blasMutex);
  if (!std::exchange(blasOpened, true))
    blas = Blas::open(name);
  return blas.get();
}

Status GpuDevice::doMultiply(const DeviceProduct &product, const ProductMemory &memory, Stream stream, bool &done) {
  done = false;
  Blas *library = this->library();
  Status status = library ? library->multiply(product, memory, stream, done) : Status();
  if (library && !done) // an error that the library met
    forget();
  return status;
}

ProductBy GpuDevice::productBy(const DeviceProduct &product, size_t &memoryBytes) {
  Blas *library = this->library();
  return library ? library->by(product, memoryBytes) : ProductBy::Kernel;
}

//===-- By name -----------------------------------------------------------===//

static Status make(Status (*table)(const Driver *&), int32_t id, std::unique_ptr<Device> &device) {
  const Driver *driver = nullptr;
  if (Status status = table(driver); !status.ok())
    return status;
  auto made = std::make_unique<GpuDevice>(*driver, id);
  if (Status status = made->open(); !status.ok())
    return status;
  device = std::move(made);
  return Status();
}

Status makeCudaDevice(int32_t id, std::unique_ptr<Device> &device) { return make(&cudaDriver, id, device); }

Status makeRocmDevice(int32_t id, std::unique_ptr<Device> &device) { return make(&hipDriver, id, device); }

} // namespace disc::rt
