//===- CallDevice.cpp - a call whose kernels run on a device --------------===//
//
// A call puts its work into one stream and does not wait. Its buffers may still be in use by then: a later call in the
// same stream comes behind that by itself, one in another stream by an event.
//
//===----------------------------------------------------------------------===//

#include "lib/Runtime/Core/Call.h"

#include <algorithm>

using namespace disc::rt;

Status disc_call::beginOnDevice() {
  Device &device = *model.device();
  storage->memory.failure = Status();
  Stream before = std::exchange(storage->memory.stream, stream);
  if (storage->used && before != stream && !device.finished(*storage->used))
    if (Status status = device.wait(*storage->used, stream); !status.ok())
      return status;
  // A record is read once nobody writes to it.
  if (storage->used && hasFailure(storage->failure) && device.finished(*storage->used))
    if (Status failed = takeFailure(storage->failure); !failed.ok())
      return Status(failed.code(), "in an earlier run: " + failed.error().message);
  // What earlier calls wrote to the model's state.
  if (entry == Entry::Main && weights.written && weights.writtenIn != stream)
    return device.wait(*weights.written, stream);
  return Status();
}

void disc_call::endOnDevice() {
  Device &device = *model.device();
  Status end = device.record(storage->used, stream);
  if (end.ok() && entry == Entry::Main && weights.hasState) {
    end = device.record(weights.written, stream);
    weights.writtenIn = stream;
  }
  if (!end.ok())
    (void)device.synchronizeAll();
}

/// Makes a request of the device; `kernel` is what profiles call it.
template <typename Request> int32_t disc_call::onDevice(int64_t kernel, int64_t tasks, Request request) {
  if (!model.profile_.on()) {
    bool isLibrary = false;
    return record(request(isLibrary));
  }
  Device &device = *model.device();
  LaunchRecord times;
  Status done = work.interrupt();
  if (done.ok())
    done = device.record(times.begin, stream, /*timed=*/true);
  if (done.ok())
    done = request(times.isLibrary);
  if (done.ok() && (times.isLibrary || tasks)) {
    times.name = model.info().device->kernels[kernel].name;
    times.tasks = tasks;
    done = device.record(times.end, stream, /*timed=*/true);
    if (done.ok()) // else there is no second event to measure with
      model.profile_.add(std::move(times));
  }
  return record(std::move(done));
}

int32_t disc_call::deviceLaunch(int64_t kernel, void *const *args, int64_t count, int64_t blocks) {
  const disc_device_code *code = model.info().device;
  if (!code || kernel < 0 || kernel >= code->num_kernels || count < 0 || blocks < 0)
    return record(Status(Code::Invalid, "the compiled code launches kernel " + std::to_string(kernel) + " in " +
                                            std::to_string(blocks) + " blocks, which its table does not have"));
  if (blocks == 0)
    return 0;
  return onDevice(kernel, blocks, [&](bool &) { return work.launch(kernel, args, count, blocks); });
}

int32_t disc_call::deviceOrder(OrderKernels kernels, void **args, int64_t count, int64_t firstOwn, int64_t rows,
                               int64_t length, int64_t blocks) {
  if (rows < 0 || length < 0 || firstOwn < 0 || firstOwn + DISC_RT_ORDER_ARGS > count)
    return record(Status(Code::Invalid, "the compiled code puts " + std::to_string(rows) + " rows of " +
                                            std::to_string(length) + " things in order"));
  constexpr int64_t tile = DISC_RT_ORDER_TILE;
  auto blocksOf = [](int64_t n) { return (n + tile - 1) / tile; };
  int64_t things = rows * length;
  // Keys and numbers of things go back and forth between the memory's halves.
  auto launch = [&](int64_t kernel, int64_t from, int64_t run, int64_t grid) {
    const int64_t own[DISC_RT_ORDER_ARGS] = {from, 2 * things - from, run};
    for (int64_t i = 0; i < DISC_RT_ORDER_ARGS; ++i)
      args[firstOwn + i] = reinterpret_cast<void *>(own[i]);
    return deviceLaunch(kernel, args, count, grid);
  };
  if (int32_t code = launch(kernels.tiles, 2 * things, 0, rows * blocksOf(length)))
    return code;
  int64_t from = 0;
  for (int64_t run = tile; run < length; run *= 2, from = 2 * things - from)
    if (int32_t code = launch(kernels.merge, from, run, blocksOf(things)))
      return code;
  return things ? launch(kernels.last, from, 0, blocks) : 0;
}

int32_t disc_call::deviceReduce(ReduceKernels kernels, void **args, int64_t count, int64_t firstOwn,
                                ReduceExtents extents) {
  if (firstOwn < 0 || firstOwn + DISC_RT_SPLIT_ARGS > count || !model.device())
    return record(Status(Code::Invalid, "the compiled code reduces in parts without arguments for them"));
  // Several blocks for each multiprocessor of the largest devices; the same for all, so that results are.
  constexpr int64_t kEnough = 1024;
  int64_t parts = std::min(extents.most, kEnough / std::max<int64_t>(extents.blocks, 1));
  args[firstOwn] = nullptr;
  args[firstOwn + 1] = reinterpret_cast<void *>(parts);
  if (parts <= 1)
    return deviceLaunch(kernels.all, args, count, extents.blocks);
  args[firstOwn] = storage->workspace.reserve(size_t(parts * extents.values) * 8);
  if (!args[firstOwn]) {
    noMemory(storage->memory, "no memory for the parts of a reduction");
    return int32_t(status.code());
  }
  int32_t code = deviceLaunch(kernels.part, args, count, extents.blocks * parts);
  return code ? code : deviceLaunch(kernels.whole, args, count, extents.points);
}

int32_t disc_call::deviceProduct(const disc_device_product &what, void *const *buffers, const int64_t *extents) {
  const disc_device_code *code = model.info().device;
  if (!code || what.kernel < 0 || what.kernel >= code->num_kernels)
    return record(Status(Code::Invalid, "the compiled code has a product of a kernel that is not in its table"));
  const void *bias = what.epilogue == DISC_PRODUCT_PLAIN ? nullptr : buffers[3];
  DeviceProduct product = {&what,      buffers[0], buffers[1], buffers[2], bias,       extents[0],
                           extents[1], extents[2], extents[3], extents[4], extents[5], extents[6]};
  if (product.batch <= 0 || product.m <= 0 || product.n <= 0)
    return 0;
  bool isDone = false;
  int32_t status = product.k <= 0 ? 0 : onDevice(what.kernel, 0, [&](bool &isLibrary) {
    auto memory = [this](size_t bytes) { return storage->workspace.reserve(bytes); };
    Status made = work.multiply(product, memory, isDone);
    isLibrary = isDone;
    return made;
  });
  return status ? status : isDone ? 0 : DISC_RT_UNSUPPORTED;
}

int32_t disc_call::deviceCallHost(disc_kernel_fn kernel, void *const *args, HostArgs numbers, int64_t tasks,
                                  int64_t costNs, int64_t scratchBytes) {
  int64_t count = numbers.count, buffers = numbers.buffers, results = numbers.results;
  if (!model.device() || buffers < 0 || count < buffers || results < 0 || results > buffers)
    return record(Status(Code::Invalid, "the compiled code runs a kernel on the host beside no device"));
  Device &device = *model.device();
  if (device.where.device_type == kDLCPU)
    return parallelFor(kernel, args, tasks, costNs, scratchBytes);
  if (int32_t code = record(work.interrupt()))
    return code;
  std::vector<void *> here(args, args + count);
  auto bytesOf = [&](int64_t i) { return size_t(reinterpret_cast<uintptr_t>(args[count + i])); };
  while (int64_t(storage->staged.size()) < buffers)
    storage->staged.emplace_back(storage->hostAllocator);
  for (int64_t i = 0; i < buffers; ++i) {
    here[size_t(i)] = storage->staged[size_t(i)].reserve(bytesOf(i));
    if (!here[size_t(i)])
      return record(Status(Code::Memory, lacking("no memory for " + std::to_string(bytesOf(i)) +
                                                 " bytes on the host, of a kernel that runs there")));
    // Results too: a kernel may write to a part.
    if (int32_t code = record(device.read(here[size_t(i)], args[i], bytesOf(i), stream)))
      return code;
  }
  if (int32_t code = parallelFor(kernel, here.data(), tasks, costNs, scratchBytes))
    return code;
  for (int64_t i = buffers - results; i < buffers; ++i)
    if (int32_t code = record(device.copyIn(args[i], here[size_t(i)], bytesOf(i), stream)))
      return code;
  return 0;
}

int32_t disc_call::deviceCopy(void *to, const void *from, int64_t bytes) {
  if (!model.device() || bytes < 0)
    return record(Status(Code::Invalid, "the compiled code copies " + std::to_string(bytes) + " bytes on no device"));
  return to == from ? 0 : record(work.copy(to, from, size_t(bytes)));
}

int32_t disc_call::deviceRead(void *to, const void *from, int64_t bytes) {
  if (!model.device() || bytes < 0)
    return record(Status(Code::Invalid, "the compiled code reads " + std::to_string(bytes) + " bytes from no device"));
  Status done = work.interrupt();
  if (done.ok())
    done = model.device()->read(to, from, size_t(bytes), stream);
  // The device has come by all of the call's kernels so far.
  return record(done.ok() ? takeFailure(storage->failure) : std::move(done));
}

void *disc_call::deviceErrors() {
  if (!storage->failure)
    if (Status status = model.device()->takeRecord(storage->failure); !status.ok()) {
      record(std::move(status));
      return nullptr;
    }
  model.device()->lend(storage->failure, sizeof(KernelError));
  return storage->failure;
}
