//===- Model.cpp - a loaded model -----------------------------------------===//

#include "lib/Runtime/Core/Model.h"
#include "lib/Runtime/Core/Call.h"
#include "lib/Runtime/Core/Tensor.h"

#include <algorithm>

namespace disc::rt {

static void release(DLManagedTensorVersioned *tensor) {
  if (tensor && tensor->deleter)
    tensor->deleter(tensor);
}

Model::Model(const disc_model_info_t &info, disc_entry_fn init, disc_entry_fn main, unsigned threads)
    : info_(info), init_(init), main_(main), pool_(ThreadPool::get(threads)), storages_(size_t(info.num_inputs)) {}

Model::~Model() {
  for (DLManagedTensorVersioned *tensor : owned_)
    release(tensor);
}

/// Types that differ in nothing but the sign of an integer: a parameter's table entry
/// comes from MLIR's signless types.
static bool sameStorage(int64_t a, int64_t b) {
  auto isInteger = [](int64_t dtype) { return dtype >> 8 <= 1; };
  return a == b || (isInteger(a) && isInteger(b) && (a & 0xff) == (b & 0xff));
}

Status Model::bindParameter(size_t index, DLManagedTensorVersioned *managed) {
  const disc_parameter_info &expected = info_.parameters[index];
  const DLTensor &tensor = managed->dl_tensor;
  std::string name = "parameter '" + std::string(expected.name) + "'";
  if (!sameStorage(dtypeOf(tensor), expected.dtype))
    return Status(Code::Type, name + ": expected " + dtypeName(expected.dtype) + ", got " + dtypeName(dtypeOf(tensor)));
  if (tensor.device.device_type != kDLCPU)
    return Status(Code::Type, name + ": expected a tensor on cpu, got " + deviceName(tensor.device));
  if (tensor.ndim != expected.rank || !std::equal(tensor.shape, tensor.shape + tensor.ndim, expected.shape))
    return Status(Code::Shape, name + ": expected shape " + shapeText(expected.shape, expected.rank) + ", got " +
                                   shapeText(tensor.shape, tensor.ndim));
  void *data = dataOf(tensor);
  if (!isContiguous(tensor) || !data) {
    Buffer copy;
    data = copy.reserve(size_t(numElements(tensor) * elementBytes(expected.dtype)));
    if (!data)
      return Status(Code::Memory, "no memory for a copy of " + name);
    copyContiguous(tensor, data);
    copies_[index] = std::move(copy);
  }
  parameters_.push_back(data);
  return Status();
}

Status Model::load(DLManagedTensorVersioned *const *parameters, size_t count) {
  owned_.assign(parameters, parameters + count);
  copies_.resize(count);
  if (info_.version != DISC_MODEL_INFO_VERSION)
    return Status(Code::Invalid, "the model's table has version " + std::to_string(info_.version) +
                                     ", this runtime reads version " + std::to_string(DISC_MODEL_INFO_VERSION));
  if (count != size_t(info_.num_parameters))
    return Status(Code::Invalid,
                  "expected " + std::to_string(info_.num_parameters) + " parameters, got " + std::to_string(count));
  for (size_t i = 0; i < count; ++i)
    if (Status status = bindParameter(i, parameters[i]); !status.ok())
      return status;
  globals_.resize(size_t(info_.num_globals));

  if (init_) {
    disc_call call(*this, /*initialising=*/true);
    if (Status status = call.execute(init_); !status.ok())
      return status;
  }
  // What only `disc_init` read, weights that are packed now above all, would double the model's size.
  for (size_t i = 0; i < count; ++i) {
    if (info_.parameters[i].kept)
      continue;
    release(owned_[i]);
    owned_[i] = nullptr;
    copies_[i] = Buffer();
    parameters_[i] = nullptr;
  }
  loaded_ = true;
  return Status();
}

Status Model::run(const DLTensor *const *inputs, size_t numInputs, DLManagedTensorVersioned **outputs,
                  size_t numOutputs) {
  if (!loaded_)
    return Status(Code::Invalid, "the model is not loaded");
  if (numInputs != size_t(info_.num_inputs))
    return Status(Code::Type,
                  "expected " + std::to_string(info_.num_inputs) + " tensor inputs, got " + std::to_string(numInputs));
  if (numOutputs != size_t(info_.num_outputs))
    return Status(Code::Invalid, "expected room for " + std::to_string(info_.num_outputs) + " outputs, got " +
                                     std::to_string(numOutputs));
  std::fill(outputs, outputs + numOutputs, nullptr);

  disc_call call(*this, /*initialising=*/false);
  call.inputs = inputs;
  call.numInputs = numInputs;
  call.outputs = outputs;
  Status status = call.execute(main_);
  for (size_t i = 0; status.ok() && i < numOutputs; ++i)
    if (!outputs[i])
      status = Status(Code::Invalid, "the compiled code made no output " + std::to_string(i));
  if (!status.ok())
    for (size_t i = 0; i < numOutputs; ++i) {
      release(outputs[i]);
      outputs[i] = nullptr;
    }
  return status;
}

} // namespace disc::rt
