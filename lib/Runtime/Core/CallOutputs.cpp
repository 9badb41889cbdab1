//===- CallOutputs.cpp - where a call's results go ------------------------===//
//
// Compiled code writes an output once, row-major. That is the caller's own memory where it is laid out so, a block of
// the model's that is copied there afterwards where it is not, and a new tensor where the caller gave none.
//
//===----------------------------------------------------------------------===//

#include "lib/Runtime/Core/Call.h"
#include "lib/Runtime/Core/Tensor.h"

#include <algorithm>

using namespace disc::rt;

std::string disc::rt::outputText(const disc_model_info_t &info, int64_t index) {
  const char *name = info.outputs[index].name;
  return *name ? "output '" + std::string(name) + "'" : "output " + std::to_string(index);
}

static Status mismatch(Code code, const std::string &where, std::string expected, std::string got) {
  Error error;
  error.code = code;
  error.message = where + ": expected " + expected + ", got " + got;
  error.expected = std::move(expected);
  error.got = std::move(got);
  return error;
}

void disc_call::setOutputs(const disc_output *list) {
  for (size_t i = 0; i < storage->outputs.size(); ++i)
    storage->outputs[i].given = list[i].tensor;
}

/// What needs neither symbols nor the other tensors.
static Status checkOutput(const disc_model_info_t &info, int64_t index, const DLTensor &tensor, DLDevice device,
                          ByteRange &range) {
  const disc_tensor_info &expected = info.outputs[index];
  auto where = [&] { return outputText(info, index); };
  if (tensor.ndim < 0 || (!tensor.shape && tensor.ndim > 0))
    return Status(Code::Invalid, where() + ": the tensor has no shape");
  if (dtypeOf(tensor) != expected.dtype)
    return mismatch(Code::Type, where() + ", dtype", dtypeName(expected.dtype), dtypeName(tensor));
  if (!sameDevice(tensor.device, device))
    return mismatch(Code::Type, where() + ", device", deviceName(device), deviceName(tensor.device));
  if (tensor.ndim != expected.rank)
    return mismatch(Code::Shape, where() + ", rank", std::to_string(expected.rank) + " dims",
                    std::to_string(tensor.ndim) + " dims");
  for (int64_t dim = 0; dim < expected.rank; ++dim) {
    int64_t wanted = expected.dims[dim].extent, extent = tensor.shape[dim];
    if (extent < 0 || (wanted >= 0 && extent != wanted))
      return mismatch(Code::Shape, where() + ", dim " + std::to_string(dim),
                      wanted >= 0 ? std::to_string(wanted) : "an extent of at least 0", std::to_string(extent));
  }
  if (!byteRange(tensor, range))
    return Status(Code::Shape, where() + ": its extents and strides go beyond the address space");
  if (range.begin != range.end && !tensor.data)
    return Status(Code::Invalid, where() + ": its data is null");
  if (repeatsElements(tensor))
    return Status(Code::Invalid, where() + ": a stride of 0 puts several elements at one place");
  return Status();
}

Status disc_call::checkOutputs() const {
  const disc_model_info_t &info = model.info();
  for (int64_t i = 0; i < info.num_outputs; ++i) {
    const DLTensor *tensor = storage->outputs[i].given;
    if (!tensor)
      continue;
    ByteRange range;
    if (Status status = checkOutput(info, i, *tensor, model.where(), range); !status.ok())
      return status;
    for (int64_t j = 0; j < info.num_inputs; ++j)
      if (mayOverlap(*tensor, *inputs[j]))
        return Status(Code::Invalid, outputText(info, i) + " overlaps " + inputText(info, j));
    for (int64_t j = 0; j < i; ++j)
      if (storage->outputs[j].given && mayOverlap(*tensor, *storage->outputs[j].given))
        return Status(Code::Invalid, outputText(info, i) + " overlaps " + outputText(info, j));
  }
  return Status();
}

/// Compares the caller's tensor with the extents that came, and finds the memory to compute them in.
Status disc_call::placeOutput(OutputSlot &slot, int64_t index) {
  const disc_tensor_info &expected = model.info().outputs[index];
  const DLTensor &tensor = *slot.given;
  for (int64_t dim = 0; dim < expected.rank; ++dim) {
    int64_t got = tensor.shape[dim], real = slot.dims[dim];
    bool atMost = expected.dims[dim].extent == DISC_DATA_DEPENDENT;
    if (got == real || (atMost && got > real))
      continue;
    return mismatch(Code::Shape, outputText(model.info(), index) + ", dim " + std::to_string(dim),
                    (atMost ? "at least " : "") + std::to_string(real), std::to_string(got));
  }
  int64_t width = elementBytes(expected.dtype), bytes;
  if (!denseBytes(slot.dims, expected.rank, width, bytes))
    return Status(Code::Shape, outputText(model.info(), index) + ": too many elements");
  uintptr_t data = reinterpret_cast<uintptr_t>(dataOf(tensor));
  if (data && data % uintptr_t(width) == 0 && isAlignedFor(model.device(), tensor) &&
      isContiguous(slot.dims, tensor.strides, expected.rank)) {
    if (model.device())
      model.device()->lend(dataOf(tensor), size_t(bytes));
    return Status();
  }
  // Without elements nothing is written; compiled code still wants a pointer.
  if (bytes > 0 && model.where().device_type != kDLCPU)
    return Status(Code::Invalid, outputText(model.info(), index) + ": on " + deviceName(model.where()) +
                                     " it must be contiguous and begin at a multiple of 16 bytes");
  slot.scattered = storage->scattered[index].reserve(memorySize(bytes));
  if (!slot.scattered)
    return Status(Code::Memory,
                  lacking("no memory for " + outputText(model.info(), index) + " before it is scattered"));
  return Status();
}

/// A size below 0, which sizes of inputs can lead to that no guard rules out: those of 0, mostly.
static bool hasNegative(int64_t rank, const int64_t *dims) {
  return std::any_of(dims, dims + rank, [](int64_t size) { return size < 0; });
}

static Status noSuchShape(const disc_model_info_t &info, int64_t index, int64_t rank, const int64_t *dims) {
  return Status(Code::Shape, outputText(info, index) + " would have the shape " + shapeText(dims, rank) +
                                 ": the inputs are too small for the model");
}

void *disc_call::output(int64_t index, int64_t rank, const int64_t *dims) {
  const disc_model_info_t &info = model.info();
  if (entry != Entry::Main || index < 0 || index >= info.num_outputs || rank != info.outputs[index].rank ||
      storage->outputs[index].done)
    return fail(Code::Invalid, "cannot make output " + std::to_string(index));
  OutputSlot &slot = storage->outputs[index];
  slot.done = true;
  std::copy(dims, dims + rank, slot.dims);
  if (hasNegative(rank, dims)) {
    record(noSuchShape(info, index, rank, dims));
    return nullptr;
  }
  if (slot.given) {
    if (record(placeOutput(slot, index)))
      return nullptr;
    void *data = slot.scattered ? slot.scattered : dataOf(*slot.given);
    int64_t bytes;
    if (sanitizer && data && denseBytes(slot.dims, rank, elementBytes(info.outputs[index].dtype), bytes))
      sanitizer->track(data, size_t(bytes), outputText(info, index));
    return data;
  }
  if (Device *device = model.device()) {
    storage->meter.bringBack(std::exchange(slot.setAside, 0));
    Status made = allocateOutput(*device, stream, storage->meter, info.outputs[index].dtype, rank, dims, slot.made);
    if (!made.ok())
      return fail(made.code(), lacking("no memory for " + outputText(info, index) + " of shape " +
                                       shapeText(dims, rank) + " (" + made.error().message + ")"));
    return slot.made->dl_tensor.data;
  }
  slot.made = model.outputPool_->allocate(info.outputs[index].dtype, rank, dims, sanitizer ? Sanitizer::kRedZone : 0,
                                          &storage->meter, &slot.block);
  if (!slot.made)
    return fail(Code::Memory,
                lacking("no memory for " + outputText(info, index) + " of shape " + shapeText(dims, rank)));
  void *data = slot.made->dl_tensor.data;
  int64_t bytes;
  if (sanitizer && denseBytes(dims, rank, elementBytes(info.outputs[index].dtype), bytes))
    sanitizer->track(data, size_t(bytes), outputText(info, index), /*hasRedZones=*/true);
  return data;
}

int32_t disc_call::outputShape(int64_t index, int64_t rank, const int64_t *dims) {
  const disc_model_info_t &info = model.info();
  if (entry != Entry::Shapes || index < 0 || index >= info.num_outputs || rank != info.outputs[index].rank ||
      storage->outputs[index].done)
    return record(Status(Code::Invalid, "cannot tell the shape of output " + std::to_string(index)));
  OutputSlot &slot = storage->outputs[index];
  slot.done = true;
  for (int64_t dim = 0; dim < rank; ++dim) {
    bool known = info.outputs[index].dims[dim].extent != DISC_DATA_DEPENDENT;
    if (known && dims[dim] < 0)
      return record(noSuchShape(info, index, rank, dims));
    slot.dims[dim] = known ? dims[dim] : -1;
  }
  return 0;
}

Status disc_call::finishOutputs() {
  for (size_t i = 0; i < storage->outputs.size(); ++i)
    if (!storage->outputs[i].done)
      return Status(Code::Invalid, "the compiled code made no output " + std::to_string(i));
  if (sanitizer)
    if (Status checked = checkOutputMemory(); !checked.ok())
      return checked;
  for (OutputSlot &slot : storage->outputs) {
    if (slot.scattered)
      scatterContiguous(slot.scattered, slot.dims, *slot.given);
    // Only where they differ: a shape may be constant, or shared by threads.
    for (int32_t dim = 0; slot.given && dim < slot.given->ndim; ++dim)
      if (slot.given->shape[dim] != slot.dims[dim])
        slot.given->shape[dim] = slot.dims[dim];
  }
  if (entry == Entry::Main)
    finishInputs();
  return Status();
}

/// In a sanitized model: every output has been written, and nothing beyond it.
Status disc_call::checkOutputMemory() const {
  for (size_t i = 0; i < storage->outputs.size(); ++i) {
    const OutputSlot &slot = storage->outputs[i];
    const disc_tensor_info &output = model.info().outputs[i];
    void *data = slot.made ? slot.made->dl_tensor.data : slot.scattered ? slot.scattered : dataOf(*slot.given);
    int64_t bytes;
    if (!data || !denseBytes(slot.dims, output.rank, elementBytes(output.dtype), bytes))
      continue;
    if (std::string problem = sanitizer->read(data, size_t(bytes)); !problem.empty())
      return Status(Code::Sanitizer, "sanitizer: " + outputText(model.info(), int64_t(i)) + ": " + problem);
  }
  std::string problem = sanitizer->verify();
  return problem.empty() ? Status() : Status(Code::Sanitizer, "sanitizer: at the end of the call, " + problem);
}

void disc_call::handOver(disc_output *list) {
  int64_t bytes = 0;
  for (size_t i = 0; i < storage->outputs.size(); ++i) {
    OutputSlot &slot = storage->outputs[i];
    if (!slot.made)
      continue;
    bytes += disc::rt::handOver(slot.made);
    list[i].managed = slot.made;
    slot.made = nullptr;
  }
  if (bytes)
    model.account_->subtract(bytes);
}
