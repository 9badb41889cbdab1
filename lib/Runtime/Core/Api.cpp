//===- Api.cpp - the C interface as this runtime implements it ------------===//

#include "lib/Runtime/Core/Guarded.h"
#include "lib/Runtime/Core/Handle.h"
#include "lib/Runtime/Core/LastError.h"
#include "lib/Runtime/Core/LoadedModel.h"
#include "lib/Runtime/Core/Struct.h"

#include <iterator>
#include <new>

using namespace disc::rt;

static_assert(int32_t(Code::Type) == DISC_ERROR_TYPE && int32_t(Code::Shape) == DISC_ERROR_SHAPE &&
                  int32_t(Code::Memory) == DISC_ERROR_MEMORY && int32_t(Code::Invalid) == DISC_ERROR_INVALID &&
                  int32_t(Code::Index) == DISC_ERROR_INDEX && int32_t(Code::File) == DISC_ERROR_FILE &&
                  int32_t(Code::Version) == DISC_ERROR_VERSION && int32_t(Code::Target) == DISC_ERROR_TARGET &&
                  int32_t(Code::Weights) == DISC_ERROR_WEIGHTS && int32_t(Code::Device) == DISC_ERROR_DEVICE &&
                  int32_t(Code::Cancelled) == DISC_ERROR_CANCELLED && int32_t(Code::Sanitizer) == DISC_ERROR_SANITIZER,
              "one set of codes");

/// Memory for a handle, which is never freed; null if there is no memory. Handles are stored side by side: a lasting
/// one between blocks that are freed would stop the allocator from joining these.
static disc_model *newHandle() {
  struct Block {
    std::atomic<size_t> used;
    Block *previous; ///< So that all stay reachable.
    alignas(disc_model) unsigned char handles[127][sizeof(disc_model)];
  };
  static std::atomic<Block *> newest{nullptr};
  while (true) {
    Block *block = newest.load(std::memory_order_acquire);
    if (block) {
      size_t index = block->used.fetch_add(1, std::memory_order_relaxed);
      if (index < std::size(block->handles))
        return reinterpret_cast<disc_model *>(block->handles[index]);
    }
    auto *more = new (std::nothrow) Block;
    if (!more)
      return nullptr;
    more->used.store(0, std::memory_order_relaxed);
    more->previous = block;
    if (!newest.compare_exchange_strong(block, more, std::memory_order_acq_rel))
      delete more;
  }
}

static disc_status open(const disc_library *library, const char *folder, const disc_options *options,
                        disc_model **model) {
  std::unique_ptr<LoadedModel> loaded;
  if (Status status = LoadedModel::open(*library, folder, options, loaded); !status.ok())
    return report(status);
  disc_model *handle = newHandle();
  if (!handle)
    return report(Status(Code::Memory, "no memory for a model"));
  *model = new (handle) disc_model{{kLiveModel}, &disc_rt_api, loaded.release()};
  return DISC_OK;
}

static disc_status freeModel(disc_model *model) {
  uint64_t expected = kLiveModel;
  if (!model->magic.compare_exchange_strong(expected, kFreedModel))
    return report(Status(Code::Invalid, "the model was freed before"));
  delete model->loaded;
  model->loaded = nullptr;
  return DISC_OK;
}

static disc_status swapWeights(disc_model *model, const char *path) {
  if (!path)
    return report(Status(Code::Invalid, "the path is null"));
  return report(model->loaded->swapWeights(path));
}

static disc_status reset(disc_model *model) { return report(model->loaded->model->reset()); }

static disc_status describe(const disc_model *model, disc_model_spec *spec) {
  return report(model->loaded->describe(spec));
}

static disc_status describeInput(const disc_model *model, int64_t index, disc_tensor_spec *spec) {
  return report(model->loaded->descriptions.input(index, spec));
}

static disc_status describeOutput(const disc_model *model, int64_t index, disc_tensor_spec *spec) {
  return report(model->loaded->descriptions.output(index, spec));
}

static disc_status describeParameter(const disc_model *model, int64_t index, disc_tensor_spec *spec) {
  return report(model->loaded->descriptions.parameter(index, spec));
}

static disc_status describeSymbol(const disc_model *model, int64_t index, disc_symbol_spec *spec) {
  return report(model->loaded->descriptions.symbol(index, spec));
}

/// A negative count is as wrong as any other: never the model's.
static disc_status run(disc_model *model, const DLTensor *const *inputs, int64_t numInputs, disc_output *outputs,
                       int64_t numOutputs) {
  return report(model->loaded->model->run(inputs, numInputs, outputs, numOutputs));
}

static disc_status runOn(disc_model *model, void *stream, const DLTensor *const *inputs, int64_t numInputs,
                         disc_output *outputs, int64_t numOutputs) {
  return report(model->loaded->model->run(inputs, numInputs, outputs, numOutputs, stream));
}

static disc_status synchronize(disc_model *model, void *stream) {
  return report(model->loaded->model->synchronize(stream));
}

static disc_status outputShapes(disc_model *model, const DLTensor *const *inputs, int64_t numInputs,
                                int64_t *const *shapes, int64_t numOutputs) {
  return report(model->loaded->model->outputShapes(inputs, numInputs, shapes, numOutputs));
}

static disc_status readState(disc_model *model, int64_t index, void *data, size_t bytes) {
  return report(model->loaded->model->readState(index, data, bytes));
}

static disc_status writeState(disc_model *model, int64_t index, const void *data, size_t bytes) {
  return report(model->loaded->model->writeState(index, data, bytes));
}

static disc_status saveState(disc_model *model, const char *path) {
  if (!path)
    return report(Status(Code::Invalid, "the path is null"));
  return report(model->loaded->model->saveState(path));
}

static disc_status loadState(disc_model *model, const char *path) {
  if (!path)
    return report(Status(Code::Invalid, "the path is null"));
  return report(model->loaded->model->loadState(path));
}

static disc_status setMemoryBudget(disc_model *model, int64_t bytes) {
  return report(model->loaded->model->setMemoryBudget(bytes));
}

static disc_status waitForMemory(disc_model *model, int32_t waits) {
  model->loaded->model->waitForMemory(waits != 0);
  return DISC_OK;
}

static disc_status memory(disc_model *model, disc_memory_usage *usage) {
  MemoryUsage now = model->loaded->model->memoryUsage();
  disc_memory_usage result = {sizeof(result),  now.budget,     now.held,    now.peak,
                              now.allocations, now.otherPlans, now.lastPlan};
  return report(writeStruct(result, "disc_memory_usage", usage));
}

static disc_status resetMemoryPeak(disc_model *model) {
  model->loaded->model->resetMemoryPeak();
  return DISC_OK;
}

static disc_status seed(disc_model *model, uint64_t value) {
  model->loaded->model->seed(value);
  return DISC_OK;
}

/// A function of the table, which no exception leaves.
template <auto function> struct Guarded;
template <typename... Args, disc_status (*function)(Args...)> struct Guarded<function> {
  static disc_status call(Args... args) {
    return guarded([&] { return function(args...); }, reportNoMemory);
  }
};

const disc_api disc_rt_api = {
    DISC_VERSION | int64_t(DISC_API_REVISION) << 32,
    Guarded<describeLastError>::call,
    Guarded<open>::call,
    Guarded<freeModel>::call,
    Guarded<swapWeights>::call,
    Guarded<describe>::call,
    Guarded<describeInput>::call,
    Guarded<describeOutput>::call,
    Guarded<describeParameter>::call,
    Guarded<describeSymbol>::call,
    Guarded<run>::call,
    Guarded<outputShapes>::call,
    Guarded<seed>::call,
    Guarded<reset>::call,
    Guarded<runOn>::call,
    Guarded<synchronize>::call,
    Guarded<readState>::call,
    Guarded<writeState>::call,
    Guarded<saveState>::call,
    Guarded<loadState>::call,
    Guarded<setMemoryBudget>::call,
    Guarded<waitForMemory>::call,
    Guarded<memory>::call,
    Guarded<resetMemoryPeak>::call,
};
