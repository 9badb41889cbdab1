//===- CallStream.cpp - a call's work on its way into a stream ------------===//

#include "lib/Runtime/Core/CallStream.h"
#include "lib/Runtime/Core/Hash.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

namespace disc::rt {

std::string kernelText(const disc_model_info_t &info, int64_t kernel) {
  const char *name = info.device->kernels[kernel].name;
  std::string text = "kernel '" + std::string(name) + "'";
  for (int64_t i = 0; i < info.num_kernels; ++i)
    if (std::strcmp(info.kernels[i].name, name) == 0 && *info.kernels[i].source)
      return text + " (" + info.kernels[i].source + ")";
  return text;
}

//===-- What is known of earlier calls ------------------------------------===//

RecordedCall &RecordedCalls::find(const DLTensor *const *inputs, int64_t count) {
  // A graph that was launched less often than this cost more than it saved.
  constexpr int64_t kWorth = 4, kMostNeeded = 64;
  extents.clear();
  for (int64_t i = 0; i < count; ++i)
    extents.insert(extents.end(), inputs[i]->shape, inputs[i]->shape + inputs[i]->ndim);
  uint64_t hash = hash64(extents.data(), extents.size() * sizeof(int64_t));
  ++clock;
  RecordedCall *oldest = nullptr;
  for (const std::unique_ptr<RecordedCall> &call : calls) {
    if (call->hash == hash && call->extents == extents) {
      call->used = clock;
      call->moves = false;
      numNew = 0;
      return *(latest = call.get());
    }
    if (!oldest || call->used < oldest->used)
      oldest = call.get();
  }
  if (calls.size() < kMost) {
    calls.push_back(std::make_unique<RecordedCall>());
    oldest = calls.back().get();
  } else if (oldest->graph) {
    needed = oldest->replays < kWorth ? std::min(2 * needed, kMostNeeded) : std::max<int64_t>(needed / 2, 1);
  }
  *oldest = RecordedCall();
  oldest->extents = extents;
  oldest->hash = hash;
  oldest->used = clock;
  ++numNew;
  if (rest)
    --rest;
  if (mayMove() && latest && latest != oldest && latest->moves && latest->graph) {
    oldest->graph = std::move(latest->graph);
    oldest->steps.swap(latest->steps);
    oldest->args.swap(latest->args);
    oldest->moves = true;
  }
  return *(latest = oldest);
}

void RecordedCalls::moved(bool fits) {
  constexpr int64_t kShortest = 8, kLongest = 256;
  lastRest = fits ? lastRest / 2 : std::clamp(2 * lastRest, kShortest, kLongest);
  if (!fits)
    rest = lastRest;
}

bool RecordedCalls::isWorth(const RecordedCall &call) const {
  bool isKnown = call.calls >= needed, isOneOfMany = mayMove() && numNew >= kManyNew;
  return (isKnown || isOneOfMany) && call.failures < CallStream::kAttempts;
}

//===-- Steps -------------------------------------------------------------===//

/// Calls `use` with a launch that has its arguments' places.
template <typename Use>
static Status withPlaces(int64_t kernel, void *const *args, int64_t count, int64_t blocks, bool isBehindKernel,
                         Use use) {
  void *few[32];
  std::vector<void *> many(size_t(count) > std::size(few) ? size_t(count) : 0);
  void **places = many.empty() ? few : many.data();
  for (int64_t i = 0; i < count; ++i)
    places[i] = const_cast<void **>(&args[i]);
  return use(DeviceLaunch{kernel, places, count, blocks, isBehindKernel});
}

static bool isAlike(const DeviceProduct &a, const DeviceProduct &b) {
  return a.what == b.what && a.batch == b.batch && a.m == b.m && a.n == b.n && a.k == b.k && a.strideA == b.strideA &&
         a.strideB == b.strideB && a.strideC == b.strideC && a.alignment() == b.alignment();
}

static bool hasSameAddresses(const DeviceProduct &a, const DeviceProduct &b) {
  return a.a == b.a && a.b == b.b && a.c == b.c && a.bias == b.bias;
}

Status CallStream::named(int64_t kernel, Status status) const {
  if (status.ok())
    return status;
  return Status(status.code(), kernelText(info, kernel) + ": " + status.error().message);
}

Status CallStream::launchNow(int64_t kernel, void *const *args, int64_t count, int64_t blocks) {
  // The first kernel of a call is behind what others have put into the stream: it may change weights.
  bool isBehind = std::exchange(isBehindKernel, true);
  return named(kernel, withPlaces(kernel, args, count, blocks, isBehind,
                                  [&](const DeviceLaunch &launch) { return device->launch(*module, launch, stream); }));
}

Status CallStream::issue(const DeviceStep &step) {
  bool done = true;
  Status status;
  switch (step.kind) {
  case DeviceStep::Launch:
    return launchNow(step.kernel, call->args.data() + step.first, step.count, step.blocks);
  case DeviceStep::Copy:
    isBehindKernel = false;
    return device->copy(step.memory, step.from, step.bytes, stream);
  case DeviceStep::Product:
    isBehindKernel = false;
    status = device->multiply(
        step.product, [&](size_t bytes) { return bytes <= step.bytes ? step.memory : nullptr; }, stream, done);
    break;
  case DeviceStep::KernelProduct:
    break;
  }
  if (status.ok() && !done)
    status = Status(Code::Device, "the library does not compute a product that it computed before");
  return named(step.kernel, std::move(status));
}

Status CallStream::place(const DeviceStep &step, DeviceGraph &graph) {
  switch (step.kind) {
  case DeviceStep::Launch:
    return withPlaces(step.kernel, call->args.data() + step.first, step.count, step.blocks,
                      /*isBehindKernel=*/false, // which a graph knows
                      [&](const DeviceLaunch &launch) { return graph.put(step.node, *module, launch); });
  case DeviceStep::Copy:
    return graph.put(step.node, step.memory, step.from, step.bytes);
  case DeviceStep::Product:
    return graph.put(step.node, step.product, step.memory);
  case DeviceStep::KernelProduct:
    break;
  }
  return Status();
}

//===-- A call ------------------------------------------------------------===//

void CallStream::begin(RecordedCalls &known, DeviceMemory &memory, const DLTensor *const *inputs) {
  call = &known.find(inputs, info.num_inputs);
  if (!call->graph && !known.isWorth(*call))
    return;
  this->known = &known;
  if (!call->graph)
    call->moves = call->calls == 0;
  this->memory = &memory;
  memory.deferred = this;
  isKept = true;
}

void CallStream::abandon() {
  if (!std::exchange(isKept, false))
    return;
  memory->deferred = nullptr;
  // A graph's steps have what the next call compares with, whether the nodes have it yet or not.
  if (!call->graph)
    call->steps.clear(), call->args.clear();
}

void CallStream::settle() {
  // Before the first request there is nothing that uses the memory.
  if (isKept && (call->graph ? position : call->steps.size()) > 0)
    leave();
}

void CallStream::leave() {
  if (Status status = flush(1); !status.ok())
    failed = std::move(status);
}

Status CallStream::flush(int64_t failures) {
  if (!isKept)
    return Status();
  isKept = false;
  memory->deferred = nullptr;
  size_t count = call->graph ? position : call->steps.size();
  if (call->graph && call->moves)
    known->moved(/*fits=*/false);
  call->graph.reset();
  call->failures += failures;
  Status status;
  for (size_t i = 0; i < count && status.ok(); ++i)
    status = issue(call->steps[i]);
  call->steps.clear(), call->args.clear();
  return status;
}

DeviceStep *CallStream::next(DeviceStep::Kind kind) {
  DeviceStep *step = position < call->steps.size() ? &call->steps[position] : nullptr;
  return step && step->kind == kind ? step : nullptr;
}

DeviceStep *CallStream::add(DeviceStep::Kind kind) {
  // The device would wait for the host to come to the end.
  constexpr size_t kMostSteps = 2048;
  if (call->steps.size() >= kMostSteps) {
    if (Status status = interrupt(); !status.ok())
      failed = std::move(status);
    return nullptr;
  }
  call->steps.emplace_back();
  call->steps.back().kind = kind;
  return &call->steps.back();
}

Status CallStream::launch(int64_t kernel, void *const *args, int64_t count, int64_t blocks) {
  if (isReplay()) {
    DeviceStep *step = next(DeviceStep::Launch);
    if (step && step->kernel == kernel && step->count == count) {
      void **before = call->args.data() + step->first;
      if (step->blocks != blocks || (count && std::memcmp(before, args, size_t(count) * sizeof(void *)) != 0)) {
        std::copy_n(args, count, before);
        step->blocks = blocks;
        step->isChanged = true;
      }
      ++position;
      return Status();
    }
    leave();
  } else if (isKept) {
    if (DeviceStep *step = add(DeviceStep::Launch)) {
      step->kernel = kernel, step->count = count, step->blocks = blocks;
      step->first = call->args.size();
      call->args.insert(call->args.end(), args, args + count);
      return Status();
    }
  }
  if (!failed.ok())
    return std::move(failed);
  return launchNow(kernel, args, count, blocks);
}

Status CallStream::copy(void *to, const void *from, size_t bytes) {
  if (!bytes)
    return Status();
  if (isReplay()) {
    DeviceStep *step = next(DeviceStep::Copy);
    if (step) {
      if (step->memory != to || step->from != from || step->bytes != bytes)
        step->memory = to, step->from = from, step->bytes = bytes, step->isChanged = true;
      ++position;
      return Status();
    }
    leave();
  } else if (isKept) {
    if (DeviceStep *step = add(DeviceStep::Copy)) {
      step->memory = to, step->from = from, step->bytes = bytes;
      return Status();
    }
  }
  if (!failed.ok())
    return std::move(failed);
  isBehindKernel = false;
  return device->copy(to, from, bytes, stream);
}

Status CallStream::multiply(const DeviceProduct &product, const ProductMemory &own, bool &done) {
  done = false;
  int64_t kernel = product.what->kernel;
  if (isReplay()) {
    DeviceStep *step = next(DeviceStep::KernelProduct);
    if (step && isAlike(step->product, product)) {
      ++position;
      return Status();
    }
    step = next(DeviceStep::Product);
    // Memory that has to grow settles what was kept, and there are no steps any more.
    void *data = step && step->bytes ? own(step->bytes) : nullptr;
    if (isKept && step && isAlike(step->product, product) && (data || !step->bytes)) {
      if (step->memory != data || !hasSameAddresses(step->product, product))
        step->product = product, step->memory = data, step->isChanged = true;
      ++position;
      done = true;
      return Status();
    }
    leave();
  } else if (isKept) {
    size_t bytes = 0;
    ProductBy by = device->productBy(product, bytes);
    void *data = by == ProductBy::Library && bytes ? own(bytes) : nullptr;
    if (by == ProductBy::Unknown || (bytes && !data))
      leave();
    if (DeviceStep *step =
            isKept ? add(by == ProductBy::Library ? DeviceStep::Product : DeviceStep::KernelProduct) : nullptr) {
      step->kernel = kernel;
      step->product = product, step->memory = data, step->bytes = bytes;
      done = by == ProductBy::Library;
      return Status();
    }
  }
  if (!failed.ok())
    return std::move(failed);
  Status status = named(kernel, device->multiply(product, own, stream, done));
  isBehindKernel &= !done;
  return status;
}

/// A graph of the steps that were kept.
Status CallStream::make() {
  std::unique_ptr<DeviceGraph> graph = device->makeGraph();
  size_t nodes = 0;
  for (DeviceStep &step : call->steps) {
    step.node = nodes;
    nodes += step.kind != DeviceStep::KernelProduct;
    if (Status status = place(step, *graph); !status.ok())
      return status;
  }
  if (Status status = graph->finish(); !status.ok())
    return status;
  call->graph = std::move(graph);
  return Status();
}

/// Gives the graph's nodes what this call asked for.
Status CallStream::change() {
  for (DeviceStep &step : call->steps)
    if (step.isChanged) {
      if (Status status = place(step, *call->graph); !status.ok())
        return status;
      step.isChanged = false;
    }
  return Status();
}

Status CallStream::end() {
  // As many launches cost no more than a graph with as many nodes to change.
  constexpr auto kFewest = 3;
  if (!failed.ok())
    return std::move(failed);
  if (!isKept) {
    if (call)
      ++call->calls;
    return Status();
  }
  bool isNew = !call->graph;
  if (isNew) {
    auto isNode = [](const DeviceStep &step) { return step.kind != DeviceStep::KernelProduct; };
    if (std::count_if(call->steps.begin(), call->steps.end(), isNode) < kFewest)
      return interrupt();
    position = call->steps.size();
  } else if (position != call->steps.size()) {
    return flush(1);
  }
  // A driver that refuses a part of it takes launches, or says why not.
  Status status = isNew ? make() : change();
  if (status.ok())
    status = call->graph->launch(stream);
  if (!status.ok())
    return flush(1);
  isKept = false;
  memory->deferred = nullptr;
  if (!isNew && call->moves)
    known->moved(/*fits=*/true);
  call->replays += !isNew;
  return Status();
}

} // namespace disc::rt
