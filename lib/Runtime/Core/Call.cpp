//===- Call.cpp - one execution of a model --------------------------------===//

#include "lib/Runtime/Core/Call.h"
#include "lib/Runtime/Core/Tensor.h"

#include <algorithm>

using namespace disc::rt;

disc_call::disc_call(Model &model, bool initialising)
    : model(model), initialising(initialising), storage(model.storages_.acquire()) {}

disc_call::~disc_call() { model.storages_.release(std::move(storage)); }

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

Status disc_call::execute(disc_entry_fn entry) {
  int32_t code = entry(this);
  if (!status.ok())
    return std::move(status);
  if (code != 0)
    return Status(Code::Invalid, "the compiled code gave up with status " + std::to_string(code));
  return Status();
}

void disc_call::indexFailed(const char *what, int64_t index, int64_t extent) {
  std::lock_guard<std::mutex> lock(failing);
  // Which of several wrong indices is met first depends on timing.
  if (status.ok())
    status = Status(Code::Index, std::string(what) + ": index " + std::to_string(index) +
                                     " is out of range for a dimension of extent " + std::to_string(extent));
}

void *disc_call::input(int64_t index) {
  if (index < 0 || size_t(index) >= numInputs)
    return fail(Code::Invalid, "no input " + std::to_string(index));
  const DLTensor &tensor = *inputs[index];
  if (isContiguous(tensor)) {
    // Frameworks give an empty tensor a null pointer, which here means failure.
    void *data = dataOf(tensor);
    return data ? data : storage->inputs[index].reserve(0);
  }
  void *copy = storage->inputs[index].reserve(size_t(numElements(tensor) * elementBytes(dtypeOf(tensor))));
  if (!copy)
    return fail(Code::Memory, "no memory for a contiguous copy of input " + std::to_string(index));
  copyContiguous(tensor, copy);
  return copy;
}

void *disc_call::parameter(int64_t index) {
  if (index < 0 || size_t(index) >= model.parameters_.size())
    return fail(Code::Invalid, "no parameter " + std::to_string(index));
  return model.parameters_[index];
}

void *disc_call::global(int64_t index, int64_t bytes) {
  if (index < 0 || size_t(index) >= model.globals_.size())
    return fail(Code::Invalid, "no global " + std::to_string(index));
  Buffer &buffer = model.globals_[index];
  if (buffer.data())
    return buffer.data();
  // Only init may allocate: other calls run at the same time.
  if (!initialising)
    return fail(Code::Invalid, "global " + std::to_string(index) + " was never filled");
  void *data = bytes < 0 ? nullptr : buffer.reserve(size_t(bytes));
  return data ? data : fail(Code::Memory, "no memory for a global of " + std::to_string(bytes) + " bytes");
}

void *disc_call::arena(int64_t bytes) {
  void *data = bytes < 0 ? nullptr : storage->arena.reserve(size_t(bytes));
  return data ? data : fail(Code::Memory, "no memory for temporaries of " + std::to_string(bytes) + " bytes");
}

void *disc_call::output(int64_t index, int64_t rank, const int64_t *dims) {
  const disc_model_info_t &info = model.info();
  if (initialising || index < 0 || index >= info.num_outputs || rank != info.outputs[index].rank || outputs[index])
    return fail(Code::Invalid, "cannot make output " + std::to_string(index));
  outputs[index] = model.outputPool_->allocate(info.outputs[index].dtype, rank, dims);
  if (!outputs[index])
    return fail(Code::Memory, "no memory for output " + std::to_string(index) + " of shape " + shapeText(dims, rank));
  return outputs[index]->dl_tensor.data;
}

Status disc_call::outputShape(int64_t index, int64_t rank, const int64_t *dims) {
  const disc_model_info_t &info = model.info();
  if (initialising || index < 0 || index >= info.num_outputs || rank != info.outputs[index].rank)
    return Status(Code::Invalid, "no output " + std::to_string(index));
  if (shapes && shapes[index])
    std::copy(dims, dims + rank, shapes[index]);
  return Status();
}

int32_t disc_call::parallelFor(disc_kernel_fn kernel, void *const *args, int64_t tasks, int64_t costNs,
                               int64_t scratchBytes) {
  bool profiled = model.profile_.on();
  int64_t begin = profiled ? Profile::now() : 0;
  bool done = model.pool_->parallelFor(kernel, args, tasks, costNs, scratchBytes, storage->scratch);
  if (profiled)
    model.profile_.add({kernel, begin, Profile::now(), tasks});
  if (!status.ok())
    return int32_t(status.code()); // from inside the kernel
  if (done)
    return 0;
  return record(Status(Code::Memory, "no memory for scratch of " + std::to_string(scratchBytes) + " bytes per thread"));
}
