//===- Call.cpp - one execution of a model --------------------------------===//

#include "lib/Runtime/Core/Call.h"
#include "lib/Runtime/Core/Guarded.h"
#include "lib/Runtime/Core/Tensor.h"

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <new>

using namespace disc::rt;

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Winvalid-offsetof"
static_assert(offsetof(disc_call, stepsToPoll) == 0, "compiled code counts it down");
static_assert(offsetof(disc_call, budgeted) == 8, "compiled code reads it");
#pragma GCC diagnostic pop

/// With a budget, memory of an init belongs to the weights that it makes, and a call for shapes takes none.
std::unique_ptr<Storage> disc_call::storageFor(Model &model, Entry entry, Stream stream) {
  if (entry == Entry::Main || !model.account_->budget.load(std::memory_order_relaxed))
    return model.storages_.acquire(model.device(), stream, /*anyOne=*/entry == Entry::Shapes);
  return std::make_unique<Storage>(model.info(), model.allocator(), model.device());
}

disc_call::disc_call(Model &model, Weights &weights, Entry entry, Stream stream)
    : model(model), weights(weights), entry(entry), stream(stream), storage(storageFor(model, entry, stream)),
      work(model.info(), model.device(), model.module_.get(), stream),
      random(entry == Entry::Main ? model.nextRandom() : Model::Random{}) {
  for (OutputSlot &slot : storage->outputs)
    slot = {nullptr, nullptr, slot.dims, nullptr, false, -1, {}, 0};
  if (int64_t budget = model.account_->budget.load(std::memory_order_relaxed); budget && entry == Entry::Main) {
    budgeted = 1;
    storage->begin(budget);
    running.emplace(*model.account_);
  }
  if (model.device() && entry != Entry::Shapes)
    record(beginOnDevice());
}

disc_call::~disc_call() {
  work.abandon();
  for (OutputSlot &slot : storage->outputs)
    if (slot.made)
      slot.made->deleter(slot.made);
  for (OutputSlot &slot : storage->outputs)
    if (slot.block.data)
      model.outputPool_->give(std::exchange(slot.block, {}));
  // Without the events nobody would know when the buffers are free.
  if (model.device() && entry != Entry::Shapes && !attempt([&] { endOnDevice(); }))
    (void)model.device()->synchronizeAll();
  if (budgeted)
    storage->meter.end();
  if (!storage->meter.countsIn()) { // it is not for other calls
    if (model.device() && entry != Entry::Shapes)
      (void)model.device()->synchronizeAll();
    storage.reset();
    return;
  }
  model.storages_.release(std::move(storage));
}

int32_t disc_call::record(Status next) {
  int32_t code = int32_t(next.code());
  if (status.ok())
    status = std::move(next);
  return code;
}

void *disc_call::fail(Code code, std::string message) {
  record(Status(code, std::move(message)));
  return nullptr;
}

void *disc_call::noMemory(const DeviceMemory &memory, std::string message) {
  message = lacking(std::move(message));
  if (memory.failure.ok())
    return fail(Code::Memory, std::move(message));
  return fail(memory.failure.code(), message + " (" + memory.failure.error().message + ")");
}

Status disc_call::execute(disc_entry_fn function) {
  int32_t code = status.ok() ? function(this) : 0;
  if (!status.ok())
    return std::move(status);
  if (lacksMemory.load(std::memory_order_relaxed))
    throw std::bad_alloc();
  if (model.device() && model.device()->isSynchronous())
    if (Status failed = takeFailure(storage->failure); !failed.ok())
      return failed;
  if (code != 0)
    return Status(Code::Invalid, "the compiled code gave up with status " + std::to_string(code));
  return work.end();
}

int32_t disc_call::checkTensors() {
  if (entry == Entry::Init)
    return 0;
  if (int32_t code = record(checkInputs(model.info(), inputs, /*readsData=*/entry == Entry::Main, model.where())))
    return code;
  if (model.info().num_repeats > 0 && !model.device())
    repeatInputs();
  if (entry != Entry::Main)
    return 0;
  if (int32_t code = record(checkOutputs()))
    return code;
  if (model.usesGraphs_ && !model.profile_.on())
    work.begin(storage->recorded, storage->memory, inputs);
  return 0;
}

void disc_call::repeatInputs() {
  const disc_model_info_t &info = model.info();
  const disc_repeat_info *end = info.repeats + info.num_repeats;
  for (const disc_repeat_info *dim = info.repeats; dim != end;) {
    const disc_repeat_info *first = dim;
    int64_t extent = 1;
    for (; dim != end && dim->symbol == first->symbol; ++dim)
      if (extent == 1)
        extent = inputs[dim->input]->shape[dim->dim];
    if (extent == 1)
      continue;
    for (const disc_repeat_info *each = first; each != dim; ++each)
      if (each->repeats && inputs[each->input]->shape[each->dim] == 1)
        repeat(each->input, each->dim, extent);
  }
}

void disc_call::repeat(int64_t input, int64_t dim, int64_t extent) {
  size_t count = size_t(model.info().num_inputs);
  if (inputs != storage->given.data()) {
    std::copy_n(inputs, count, storage->given.begin());
    inputs = storage->given.data();
  }
  Repeated &view = storage->repeated[size_t(input)];
  if (inputs[input] != &view.tensor) {
    view.tensor = *inputs[input];
    int64_t stride = 1;
    for (int32_t i = view.tensor.ndim; i-- > 0;) {
      view.shape[size_t(i)] = view.tensor.shape[i];
      view.strides[size_t(i)] = view.tensor.strides ? view.tensor.strides[i] : stride;
      stride *= std::max<int64_t>(view.tensor.shape[i], 1);
    }
    view.tensor.shape = view.shape.data();
    view.tensor.strides = view.strides.data();
    storage->given[size_t(input)] = &view.tensor;
  }
  view.shape[size_t(dim)] = extent;
  view.strides[size_t(dim)] = 0;
}

int32_t disc_call::guardFailed(int64_t guard, int64_t lhs, int64_t rhs) {
  return record(guardError(model.info(), guard, lhs, rhs));
}

void disc_call::indexFailed(const char *what, int64_t index, int64_t extent) {
  std::lock_guard<std::mutex> lock(failing);
  // Which of several wrong indices is met first depends on timing.
  if (status.ok())
    status = indexError(what, index, extent);
  failureIsNamed = true;
  kernelFailed.store(true, std::memory_order_relaxed);
}

int32_t disc_call::functionFailed(int32_t code, const char *text) {
  std::lock_guard<std::mutex> lock(failing);
  if (status.ok())
    status = Status(Code(code), text);
  kernelFailed.store(true, std::memory_order_relaxed);
  return code;
}

int32_t disc_call::runRegion(int64_t region, RegionOperands operands, const int64_t *numbers, int64_t count) {
  char error[1024];
  error[0] = 0;
  disc_backend_run run{sizeof(run), operands.views, operands.inputs, operands.results,
                       numbers,     count,          error,           sizeof(error)};
  int32_t code = model.info().regions[region].table->run(weights.regions[size_t(region)], &run);
  if (code == 0)
    return DISC_OK;
  error[sizeof(error) - 1] = 0;
  if (!*error)
    std::snprintf(error, sizeof(error), "the back end's code returned %d", int(code));
  return functionFailed(int32_t(Code::Invalid), error);
}

void disc_call::functionAt(int32_t code, const char *what) {
  std::lock_guard<std::mutex> lock(failing);
  kernelFailed.store(true, std::memory_order_relaxed);
  if (failureIsNamed)
    return;
  failureIsNamed = true;
  Error error = status.ok() ? Error() : status.error();
  error.code = status.ok() ? Code(code) : error.code;
  error.message = std::string(what) + ": " + (status.ok() ? "failed" : error.message);
  status = Status(std::move(error));
}

void disc_call::finishInputs() {
  for (int64_t i = 0; i < model.info().num_inputs; ++i)
    if (model.info().inputs[i].updated && !(inPlace(*inputs[i]) && isAlignedFor(model.device(), *inputs[i])))
      scatterContiguous(storage->inputs[i].data(), inputs[i]->shape, *inputs[i]);
}

void *disc_call::input(int64_t index) {
  if (entry != Entry::Main || index < 0 || index >= model.info().num_inputs)
    return fail(Code::Invalid, "no input " + std::to_string(index));
  const DLTensor &tensor = *inputs[index];
  int64_t width = elementBytes(dtypeOf(tensor)), bytes;
  void *data = dataOf(tensor);
  bool suits = isAlignedFor(model.device(), tensor);
  if (inPlace(tensor) && suits) {
    if (model.device() && data && denseBytes(tensor.shape, tensor.ndim, width, bytes))
      model.device()->lend(data, size_t(bytes));
    // Frameworks give an empty tensor a null pointer, which here means failure.
    return data ? data : storage->inputs[index].reserve(0);
  }
  void *copy = nullptr;
  if (denseBytes(tensor.shape, tensor.ndim, width, bytes))
    copy = storage->inputs[index].reserve(memorySize(bytes));
  if (!copy)
    return noMemory(storage->memory, "no memory for a contiguous copy of " + inputText(model.info(), index));
  if (suits || model.where().device_type == kDLCPU)
    copyContiguous(tensor, copy);
  else if (record(work.copy(copy, data, size_t(bytes))))
    return nullptr;
  return copy;
}

void *disc_call::parameter(int64_t index) {
  if (index < 0 || size_t(index) >= weights.parameters.size())
    return fail(Code::Invalid, "no parameter " + std::to_string(index));
  void *data = weights.parameters[index];
  return data ? data : fail(Code::Invalid, "parameter " + std::to_string(index) + " was let go of after init");
}

void *disc_call::global(int64_t index, int64_t bytes) {
  if (index < 0 || size_t(index) >= weights.globals.size() || bytes < 0)
    return fail(Code::Invalid, "no global " + std::to_string(index));
  Weights::Global &global = weights.globals[index];
  // Only init may allocate: other calls run at the same time.
  if (!global.data && entry == Entry::Init) {
    global.data = weights.allocate(size_t(index), memorySize(bytes), sanitizer != nullptr);
    global.bytes = size_t(bytes);
    if (!global.data)
      return noMemory(weights.memory, "no memory for a global of " + std::to_string(bytes) + " bytes");
    if (sanitizer)
      sanitizer->track(global.data, size_t(bytes), "packed weights " + std::to_string(index));
  }
  if (!global.data)
    return fail(Code::Invalid, "global " + std::to_string(index) + " was never filled");
  if (global.bytes < size_t(bytes))
    return fail(Code::Invalid, "global " + std::to_string(index) + " has " + std::to_string(global.bytes) + " bytes, " +
                                   std::to_string(bytes) + " are needed");
  return global.data;
}

/// The buffer of this number: a model has as many as its code asks for.
static Buffer *numbered(std::vector<Buffer> &buffers, int64_t number, const Allocator &allocator) {
  constexpr int64_t kMost = 1 << 24;
  if (number < 0 || number >= kMost)
    return nullptr;
  while (size_t(number) >= buffers.size())
    buffers.emplace_back(allocator);
  return &buffers[size_t(number)];
}

void *disc_call::arena(int64_t part, int64_t bytes) {
  Buffer *buffer = bytes < 0 ? nullptr : numbered(storage->arena, part, storage->allocator);
  void *data = buffer ? buffer->reserve(memorySize(bytes)) : nullptr;
  if (sanitizer && data)
    sanitizer->trackPart(part, data, size_t(bytes));
  return data ? data : noMemory(storage->memory, "no memory for temporaries of " + std::to_string(bytes) + " bytes");
}

void *disc_call::slot(int64_t number, int64_t bytes, bool keep) {
  Buffer *buffer = bytes < 0 ? nullptr : numbered(storage->slots, number, storage->allocator);
  void *data = buffer ? buffer->grow(memorySize(bytes), keep) : nullptr;
  if (sanitizer && data && !keep)
    Sanitizer::poison(data, size_t(bytes));
  return data ? data
              : noMemory(storage->memory, "no memory for a loop's tensor of " + std::to_string(bytes) + " bytes");
}

/// Slots of activations come behind those of the entry, of which there are fewer than this.
static constexpr int64_t kEntrySlots = 1 << 12;

int32_t disc_call::onStack(int32_t (*body)(disc_call *)) {
  storage->frames.pop(0);
  depth = 0;
  nextSlot = kEntrySlots;
  if (storage->slots.size() > size_t(kEntrySlots)) // of activations that an error left
    storage->slots.erase(storage->slots.begin() + kEntrySlots, storage->slots.end());
  if (!storage->stack.reserve())
    return record(Status(Code::Memory, lacking("no memory for the stack of a recursive model")));
  return storage->stack.run(body, this);
}

int64_t disc_call::enter(int64_t slots, int64_t *mark) {
  if (!storage->stack.hasRoom()) {
    fail(Code::Memory, "recursion is too deep: " + std::to_string(depth) + " activations have used up the stack of " +
                           std::to_string(Stack::kBytes >> 20) + " MiB");
    return -1;
  }
  ++depth;
  *mark = storage->frames.mark();
  int64_t first = nextSlot;
  nextSlot += slots;
  return first;
}

void disc_call::leave(int64_t slot, int64_t mark) {
  --depth;
  // What each activation grew to would be too much to keep.
  for (int64_t i = slot, end = std::min(nextSlot, int64_t(storage->slots.size())); i < end; ++i)
    storage->slots[size_t(i)].release();
  nextSlot = slot;
  storage->frames.pop(mark);
}

void *disc_call::push(int64_t bytes) {
  void *data = bytes < 0 ? nullptr : storage->frames.push(memorySize(bytes));
  if (sanitizer && data)
    Sanitizer::poison(data, size_t(bytes));
  return data ? data : noMemory(storage->memory, "no memory for temporaries of " + std::to_string(bytes) + " bytes");
}

// Kernels that are called directly take less than a microsecond each: this many steps of a loop over some hundreds of
// them are over within milliseconds. A step with a longer kernel is followed by a poll at once.
constexpr int64_t kStepsPerPoll = 64;
constexpr int64_t kPollNs = 10'000'000;

int32_t disc_call::poll() {
  if (!model.options_.interrupted) {
    stepsToPoll = INT64_MAX;
    return 0;
  }
  stepsToPoll = kStepsPerPoll;
  return askHost();
}

int32_t disc_call::askHost() {
  int64_t now = Profile::now();
  if (askedNs == 0)
    askedNs = now;
  if (now - askedNs < kPollNs)
    return 0;
  askedNs = now;
  return isInterrupted() ? cancelled() : 0;
}

bool disc_call::isInterrupted() const {
  return model.options_.interrupted && model.options_.interrupted(model.options_.interruptedContext);
}

int32_t disc_call::cancelled() {
  return record(Status(Code::Cancelled, "the run was cancelled by the host program (disc_options.interrupted)"));
}

int32_t disc_call::parallelFor(disc_kernel_fn kernel, void *const *args, int64_t tasks, int64_t costNs,
                               int64_t scratchBytes) {
  bool profiled = model.profile_.on();
  int64_t begin = profiled ? Profile::now() : 0;
  Status done = model.parallelFor(kernel, args, tasks, costNs, scratchBytes, storage->scratch, scratchThreads());
  if (profiled)
    model.profile_.add({kernel, begin, Profile::now(), tasks});
  if (kernelFailed.load(std::memory_order_relaxed)) // its threads are done, so `status` is ours again
    return status.ok() ? int32_t(Code::Memory) : int32_t(status.code());
  if (!done.ok())
    return record(Status(done.code(), lacking(done.error().message)));
  if (!model.options_.interrupted)
    return 0;
  stepsToPoll = 0;
  return tasks > 0 && costNs > kPollNs / tasks ? askHost() : 0;
}
