//===- Call.h - one execution of a model ------------------------*- C++ -*-===//
//
// What the opaque `disc_call` of Abi.h is. It lives on the stack of Model::run (or load)
// and owns nothing that outlives the call except, on success, the outputs.
//
//===----------------------------------------------------------------------===//

#ifndef DISC_RUNTIME_CORE_CALL_H
#define DISC_RUNTIME_CORE_CALL_H

#include "lib/Runtime/Core/Model.h"

#include <mutex>

struct disc_call {
  using Status = disc::rt::Status;

  disc_call(disc::rt::Model &model, bool initialising);
  ~disc_call();

  /// Runs `disc_init` or `disc_main`.
  Status execute(disc_entry_fn entry);

  Status checkInputs() const;
  Status guardFailed(int64_t guard, int64_t lhs, int64_t rhs) const;
  void *input(int64_t index);
  void *parameter(int64_t index);
  void *global(int64_t index, int64_t bytes);
  void *arena(int64_t bytes);
  void *output(int64_t index, int64_t rank, const int64_t *dims);
  Status outputShape(int64_t index, int64_t rank, const int64_t *dims);
  int32_t parallelFor(disc_kernel_fn kernel, void *const *args, int64_t tasks, int64_t costNs, int64_t scratchBytes);

  /// From kernels, so from any thread of the pool.
  void indexFailed(const char *what, int64_t index, int64_t extent);

  /// Keeps the first error of the call, returns its code.
  int32_t record(Status status);
  void *fail(disc::rt::Code code, std::string message);

  disc::rt::Model &model;
  const bool initialising; ///< `disc_init` is running: no inputs, no outputs.
  std::unique_ptr<disc::rt::Storage> storage;
  const DLTensor *const *inputs = nullptr;
  size_t numInputs = 0;
  DLManagedTensorVersioned **outputs = nullptr;
  int64_t *const *shapes = nullptr; ///< Of outputs: where `disc_shapes` puts them.
  Status status;
  std::mutex failing; ///< Held by kernels that set `status`.
};

#endif // DISC_RUNTIME_CORE_CALL_H
