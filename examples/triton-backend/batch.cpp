//===- batch.cpp - the requests of one call of Triton's -------------------===//

#include "batch.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace triton_disc {

using service::Combiner;
using service::Items;
using service::RequestError;

static std::string quoted(const char *kind, const std::string &name) { return std::string(kind) + " '" + name + "'"; }

static bool isOfHost(TRITONSERVER_MemoryType memory) { return memory != TRITONSERVER_MEMORY_GPU; }

/// Whether a run may read Triton's own buffer. A client may change shared memory during a run: integers may be indices
/// or offsets, which must not change once they have been checked.
static bool isShareable(service::Datatype type) {
  using service::Datatype;
  return type == Datatype::FP16 || type == Datatype::BF16 || type == Datatype::FP32 || type == Datatype::FP64;
}

void Batch::answer(TRITONBACKEND_Request **requests, uint32_t count) noexcept {
  begin_ = computeStart_ = computeEnd_ = Clock::now();
  TRITONSERVER_Error *failure = guarded([&] {
    requests_.reserve(count); // Items keep their addresses.
    for (uint32_t i = 0; i < count; ++i) {
      requests_.push_back({requests[i], {}, 0, {}, false});
      bool isCancelled = false;
      check(TRITONBACKEND_RequestIsCancelled(requests[i], &isCancelled));
      TRITONSERVER_Error *error = isCancelled
                                      ? TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_CANCELLED, "the request was cancelled")
                                      : guarded([&] { prepare(requests_.back()); });
      if (error)
        respond(requests_.back(), nullptr, error);
    }
    Items items;
    for (const Request &request : requests_)
      if (!request.isAnswered)
        items.push_back(&request.item);
    service::runItems(model_.library(), model_.combiner(), items, *this);
  });
  // Only if memory ran out: those without an answer get this error.
  for (uint32_t i = 0; i < count; ++i) {
    if (i < requests_.size() && requests_[i].isAnswered)
      continue;
    Request request{requests[i], {}, 0, {}, false};
    respond(request, nullptr,
            TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INTERNAL,
                                  failure ? TRITONSERVER_ErrorMessage(failure) : "the request was not run"));
  }
  if (failure)
    TRITONSERVER_ErrorDelete(failure);
  for (uint32_t i = 0; i < count; ++i)
    logFailure(TRITONBACKEND_RequestRelease(requests[i], TRITONSERVER_REQUEST_RELEASE_ALL));
}

// -- Inputs

void Batch::prepare(Request &request) const {
  const std::vector<Port> &ports = model_.layout().inputs();
  std::vector<Tensor> inputs;
  for (const Port &port : ports)
    inputs.push_back({port.spec->type, {}, nullptr});
  uint32_t count = 0;
  check(TRITONBACKEND_RequestInputCount(request.handle, &count));
  for (uint32_t i = 0; i < count; ++i) {
    TRITONBACKEND_Input *input = nullptr;
    check(TRITONBACKEND_RequestInputByIndex(request.handle, i, &input));
    readInput(input, request, inputs);
  }
  for (size_t i = 0; i < ports.size(); ++i) {
    if (inputs[i].data || ports[i].form == Port::Form::Made)
      continue;
    auto made = model_.combiner().makeMissing(i, inputs);
    if (!made)
      refuse(quoted("input", ports[i].spec->name) + " is missing");
    inputs[i] = std::move(*made);
  }
  model_.layout().toLibrary(inputs);
  request.item = model_.combiner().examine(std::move(inputs));
  readOutputNames(request);
}

void Batch::readInput(TRITONBACKEND_Input *input, Request &request, std::vector<Tensor> &inputs) const {
  const char *name = nullptr;
  TRITONSERVER_DataType type = TRITONSERVER_TYPE_INVALID;
  const int64_t *extents = nullptr;
  uint32_t rank = 0, buffers = 0;
  uint64_t bytes = 0;
  check(TRITONBACKEND_InputProperties(input, &name, &type, &extents, &rank, &bytes, &buffers));
  const std::vector<Port> &ports = model_.layout().inputs();
  size_t index = 0;
  while (index < ports.size() && (ports[index].spec->name != name || ports[index].form == Port::Form::Made))
    ++index;
  if (index == ports.size())
    refuse("the model has no " + quoted("input", name));
  const Port &port = ports[index];
  const std::string where = quoted("input", name);
  if (type != tritonType(port.spec->type))
    refuse(where + ": expected datatype " + service::datatypeName(port.spec->type) + ", found " +
           TRITONSERVER_DataTypeString(type));
  Shape shape(extents, extents + rank);
  const size_t expected = port.min.size() + (model_.layout().hasBatch() ? 1 : 0);
  if (rank != expected)
    refuse(where + ": expected " + std::to_string(expected) + " dims, found shape " + service::shapeText(shape));
  if (model_.layout().hasBatch())
    request.batch = shape[0];
  inputs[index] = readElements(input, *port.spec, std::move(shape), bytes, buffers);
}

Tensor Batch::readElements(TRITONBACKEND_Input *input, const TensorSpec &spec, Shape shape, uint64_t bytes,
                           uint32_t buffers) const {
  const std::string where = quoted("input", spec.name);
  std::optional<size_t> count = service::countElements(shape, spec.type);
  const size_t width = service::elementBytes(spec.type);
  if (!count)
    refuse(where + ": shape " + service::shapeText(shape) + " has a negative extent or too many elements");
  if (bytes != *count * width)
    refuse(where + ": shape " + service::shapeText(shape) + " needs " + std::to_string(*count * width) +
           " bytes, found " + std::to_string(bytes));
  Tensor result;
  size_t filled = 0;
  for (uint32_t i = 0; i < buffers; ++i) {
    const void *data = nullptr;
    uint64_t size = 0;
    TRITONSERVER_MemoryType memory = TRITONSERVER_MEMORY_CPU;
    int64_t device = 0;
    check(TRITONBACKEND_InputBuffer(input, i, &data, &size, &memory, &device));
    if (!isOfHost(memory))
      refuse(where + ": its elements are in " + TRITONSERVER_MemoryTypeString(memory) +
             " memory; the backend reads memory of the CPU only");
    if (size > bytes - filled)
      refuse(where + ": its buffers are larger than " + std::to_string(bytes) + " bytes");
    if (isShareable(spec.type) && size == bytes && size > 0 && reinterpret_cast<uintptr_t>(data) % width == 0) {
      // Triton keeps it until the request is released, and the library only reads it.
      auto *elements = const_cast<char *>(static_cast<const char *>(data));
      return {spec.type, std::move(shape), std::shared_ptr<char>(elements, [](char *) {})};
    }
    if (!result.data)
      result = Tensor::make(spec.type, shape);
    if (size > 0)
      std::memcpy(result.data.get() + filled, data, size);
    filled += size;
  }
  if (filled != bytes)
    refuse(where + ": its buffers have " + std::to_string(filled) + " of " + std::to_string(bytes) + " bytes");
  return result.data ? result : Tensor::make(spec.type, std::move(shape));
}

void Batch::readOutputNames(Request &request) const {
  const std::vector<Port> &ports = model_.layout().outputs();
  uint32_t count = 0;
  check(TRITONBACKEND_RequestOutputCount(request.handle, &count));
  for (uint32_t i = 0; i < count; ++i) {
    const char *name = nullptr;
    check(TRITONBACKEND_RequestOutputName(request.handle, i, &name));
    auto port = std::find_if(ports.begin(), ports.end(), [&](const Port &p) { return p.spec->name == name; });
    if (port == ports.end())
      refuse("the model has no " + quoted("output", name));
    request.outputs.push_back(size_t(port - ports.begin()));
  }
}

// -- Runs

static uint64_t nanoseconds(std::chrono::steady_clock::time_point time) {
  return uint64_t(std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count());
}

Batch::Request &Batch::requestOf(const Combiner::Item &item) {
  return *std::find_if(requests_.begin(), requests_.end(), [&](const Request &r) { return &r.item == &item; });
}

/// Each run counts as one execution: Triton's statistics then show which requests shared one.
void Batch::reportRun() const {
  logFailure(TRITONBACKEND_ModelInstanceReportBatchStatistics(instance_, uint64_t(rows_), nanoseconds(begin_),
                                                              nanoseconds(computeStart_), nanoseconds(computeEnd_),
                                                              nanoseconds(Clock::now())));
}

void Batch::ran(const Items &items, Time start, Time end) {
  computeStart_ = start;
  computeEnd_ = end;
  unanswered_ = items.size();
  rows_ = 0;
  for (const Combiner::Item *item : items)
    rows_ += std::max<int64_t>(requestOf(*item).batch, 1);
}

void Batch::finished(const Combiner::Item &item, service::Outcome outcome) {
  Request &request = requestOf(item);
  respond(request, &outcome.outputs, outcome.error ? makeError(*outcome.error) : nullptr);
  if (unanswered_ > 0 && --unanswered_ == 0)
    reportRun();
}

// -- Responses

void Batch::writeOutputs(TRITONBACKEND_Response *response, const Request &request,
                         const std::vector<Tensor> &outputs) const {
  for (size_t index : request.outputs) {
    const Tensor &tensor = outputs[index];
    const std::string &name = model_.layout().outputs()[index].spec->name;
    const Shape shape = model_.layout().toClient(index, tensor.shape, request.batch);
    TRITONBACKEND_Output *output = nullptr;
    check(TRITONBACKEND_ResponseOutput(response, &output, name.c_str(), tritonType(tensor.type), shape.data(),
                                       uint32_t(shape.size())));
    void *buffer = nullptr;
    TRITONSERVER_MemoryType memory = TRITONSERVER_MEMORY_CPU;
    int64_t device = 0;
    check(TRITONBACKEND_OutputBuffer(output, &buffer, tensor.bytes(), &memory, &device));
    if (!isOfHost(memory))
      throw RequestError(RequestError::Kind::Failed, quoted("output", name) + ": its buffer is in " +
                                                         TRITONSERVER_MemoryTypeString(memory) +
                                                         " memory; the backend writes memory of the CPU only");
    if (tensor.bytes() > 0)
      std::memcpy(buffer, tensor.data.get(), tensor.bytes());
  }
}

/// Takes the error over, which is null for a request that succeeded. The request is released later, since its inputs
/// are in use.
void Batch::respond(Request &request, const std::vector<Tensor> *outputs, TRITONSERVER_Error *error) {
  request.isAnswered = true;
  TRITONBACKEND_Response *response = nullptr;
  TRITONSERVER_Error *missing = TRITONBACKEND_ResponseNew(&response, request.handle);
  if (!missing) {
    if (!error)
      error = guarded([&] { writeOutputs(response, request, *outputs); });
    logFailure(TRITONBACKEND_ResponseSend(response, TRITONSERVER_RESPONSE_COMPLETE_FINAL, error));
  }
  logFailure(TRITONBACKEND_ModelInstanceReportStatistics(instance_, request.handle, !error && !missing,
                                                         nanoseconds(begin_), nanoseconds(computeStart_),
                                                         nanoseconds(computeEnd_), nanoseconds(Clock::now())));
  logFailure(missing);
  if (error)
    TRITONSERVER_ErrorDelete(error);
}

} // namespace triton_disc
