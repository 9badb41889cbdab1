//===- Call.h - one execution of a model ------------------------*- C++ -*-===//
//
// What the opaque `disc_call` of Abi.h is. It lives on the stack of the Model's functions
// and owns nothing that outlives the call except, on success, the outputs.
//
//===----------------------------------------------------------------------===//

#ifndef DISC_RUNTIME_CORE_CALL_H
#define DISC_RUNTIME_CORE_CALL_H

#include "lib/Runtime/Core/Model.h"
#include "lib/Runtime/Core/Sanitizer.h"

#include <atomic>
#include <mutex>
#include <optional>

struct disc_call {
  /// Steps of loops until the next poll(). Compiled code counts it down: it is the first field (Abi.h).
  int64_t stepsToPoll = 0;
  /// Not 0: the model has a memory budget during this call. Compiled code reads it.
  int64_t budgeted = 0;

  using Status = disc::rt::Status;

  /// The entry function that runs: `disc_init` has neither inputs nor outputs, `disc_shapes` reads no data.
  enum class Entry { Init, Main, Shapes };

  /// `stream` is the device's, if there is one. The caller holds a DeviceScope.
  disc_call(disc::rt::Model &model, disc::rt::Weights &weights, Entry entry, disc::rt::Stream stream = nullptr);
  ~disc_call();

  /// Runs the compiled function.
  Status execute(disc_entry_fn function);

  /// The caller's tensors; their number was compared with the model's.
  void setInputs(const DLTensor *const *list) { inputs = list; }
  void setOutputs(const disc_output *list);

  // What Abi.h says of the functions of these names.
  int32_t checkTensors();
  int32_t guardFailed(int64_t guard, int64_t lhs, int64_t rhs);
  void *input(int64_t index);
  void *parameter(int64_t index);
  void *global(int64_t index, int64_t bytes);
  void *arena(int64_t part, int64_t bytes);
  void *slot(int64_t number, int64_t bytes, bool keep);
  int32_t onStack(int32_t (*body)(disc_call *));
  int64_t enter(int64_t slots, int64_t *mark);
  void leave(int64_t slot, int64_t mark);
  void *push(int64_t bytes);
  void *output(int64_t index, int64_t rank, const int64_t *dims);
  int32_t outputShape(int64_t index, int64_t rank, const int64_t *dims);
  int32_t poll();
  int64_t arenaBudget(int64_t scratchBytes, const int64_t *outputBytes);
  int32_t beginPlan(int64_t plan, int64_t bytes);
  int32_t overBudget(int64_t bytes);
  int32_t parallelFor(disc_kernel_fn kernel, void *const *args, int64_t tasks, int64_t costNs, int64_t scratchBytes);
  void sanitize();
  struct CheckedBuffers {
    int64_t count;
    const int64_t *bytes;
  };
  int32_t checkedLaunch(disc_kernel_fn kernel, void **args, const char *text, CheckedBuffers buffers, int64_t tasks,
                        int64_t costNs, int64_t scratchBytes);
  void checkedCopy(void *to, const void *from, int64_t bytes);
  /// Reports wrong use of memory. From kernels, so from any thread.
  void accessFailed(std::string message);
  int32_t deviceLaunch(int64_t kernel, void *const *args, int64_t count, int64_t blocks);
  /// The numbers of kernels among the device's.
  struct OrderKernels {
    int64_t tiles, merge, last;
  };
  int32_t deviceOrder(OrderKernels kernels, void **args, int64_t count, int64_t firstOwn, int64_t rows, int64_t length,
                      int64_t blocks);
  struct ReduceKernels {
    int64_t all, part, whole;
  };
  struct ReduceExtents {
    int64_t blocks, most, points, values;
  };
  int32_t deviceReduce(ReduceKernels kernels, void **args, int64_t count, int64_t firstOwn, ReduceExtents extents);
  void *deviceErrors();
  int32_t deviceProduct(const disc_device_product &product, void *const *buffers, const int64_t *extents);
  struct HostArgs {
    int64_t count, buffers, results;
  };
  int32_t deviceCallHost(disc_kernel_fn kernel, void *const *args, HostArgs numbers, int64_t tasks, int64_t costNs,
                         int64_t scratchBytes);
  int32_t deviceCopy(void *to, const void *from, int64_t bytes);
  int32_t deviceRead(void *to, const void *from, int64_t bytes);
  /// From kernels, so from any thread.
  void indexFailed(const char *what, int64_t index, int64_t extent);
  int32_t functionFailed(int32_t code, const char *text);
  void functionAt(int32_t code, const char *what);
  struct RegionOperands {
    const disc_view *views;
    int64_t inputs, results;
  };
  int32_t runRegion(int64_t region, RegionOperands operands, const int64_t *numbers, int64_t count);

  /// After a successful run: every output is there; what was computed beside the caller's tensors is copied there, as
  /// are updates of strided inputs.
  Status finishOutputs();
  /// The outputs that are ours go to the caller.
  void handOver(disc_output *list);

  /// For a callee of compiled code that has no memory: execute() throws once that code has returned. A code of failure.
  int32_t outOfMemory() {
    lacksMemory.store(true, std::memory_order_relaxed);
    kernelFailed.store(true, std::memory_order_relaxed);
    return int32_t(disc::rt::Code::Memory);
  }

  /// Keeps the first error of the call, returns its code.
  int32_t record(Status status);
  void *fail(disc::rt::Code code, std::string message);
  /// The same for `memory`, where there was not enough; it may know more.
  void *noMemory(const disc::rt::DeviceMemory &memory, std::string message);
  /// A message about an allocation that failed, with more if the memory budget did not allow it.
  std::string lacking(std::string message);
  /// Threads that share the call's scratch in one piece; 0 without a budget.
  unsigned scratchThreads() const { return budgeted ? model.threads() : 0; }

  disc::rt::Model &model;
  disc::rt::Weights &weights;
  const Entry entry;
  const disc::rt::Stream stream;
  std::unique_ptr<disc::rt::Storage> storage;
  disc::rt::CallStream work; ///< On a device.
  const DLTensor *const *inputs = nullptr;
  Status status;
  /// Set as soon as a kernel failed: by any thread, while others run.
  std::atomic<bool> kernelFailed{false};
  std::atomic<bool> lacksMemory{false}; ///< So much that there is no `status` that says so.
  std::mutex failing;                   ///< Held by kernels that set `status`.
  bool failureIsNamed = false;          ///< `status` says which operation failed.
  const disc::rt::Model::Random random;
  std::unique_ptr<disc::rt::Sanitizer> sanitizer; ///< Of a sanitized model's call, else null.
  int64_t depth = 0;                              ///< Activations of procedures.
  int64_t nextSlot = 0;                           ///< Of the next activation.

private:
  void repeatInputs();
  void repeat(int64_t input, int64_t dim, int64_t extent);
  void finishInputs();
  Status checkOutputs() const;
  int32_t askHost();
  Status beginOnDevice();
  void endOnDevice();
  bool isInterrupted() const;
  int32_t cancelled();
  static std::unique_ptr<disc::rt::Storage> storageFor(disc::rt::Model &model, Entry entry, disc::rt::Stream stream);
  /// What the call takes in new memory, by kind.
  struct Needs {
    int64_t temporaries, results, scratch, copies;
    int64_t total() const;
  };
  Needs needsWith(int64_t arenaBytes);
  template <typename Use> void eachPlanned(int64_t arenaBytes, Use use);
  int64_t resultBytes(const disc::rt::OutputSlot &slot) const;
  int64_t keepFitting(int64_t arenaBytes);
  void giveUpMemory();
  int32_t waitForMemory(const Needs &needs);
  int32_t allocatePlanned(int64_t arenaBytes);
  std::string needsText(const Needs &needs) const;
  std::optional<disc::rt::MemoryAccount::Running> running; ///< With a budget.
  int64_t plannedScratch = 0;                              ///< Bytes per thread.
  int64_t askedNs = 0;                                     ///< When the host was asked last whether the run should end.
  template <typename Request> int32_t onDevice(int64_t kernel, int64_t tasks, Request request);
  Status checkOutputMemory() const;
  Status placeOutput(disc::rt::OutputSlot &slot, int64_t index);
};

namespace disc::rt {
// Guards.cpp
Status checkInputs(const disc_model_info_t &info, const DLTensor *const *inputs, bool readsData, DLDevice where);
Status guardError(const disc_model_info_t &info, int64_t guard, int64_t lhs, int64_t rhs);
/// What disc_rt_size_failed says.
Status sizeError(int64_t sizes, int64_t numbers, int64_t symbols, const int64_t *pairs);
/// "input 'mask'", or "input 1" if it has no name.
std::string inputText(const disc_model_info_t &info, int64_t index);
std::string outputText(const disc_model_info_t &info, int64_t index);
} // namespace disc::rt

#endif // DISC_RUNTIME_CORE_CALL_H
