//===- infer_proto.cpp - requests and answers as protocol buffers ---------===//

#include "infer_proto.h"
#include "element.h"

#include <cstring>

namespace service {

using inference::InferParameter;
using inference::InferTensorContents;
using Parameters = google::protobuf::Map<std::string, InferParameter>;

static void refuseParameters(const Parameters &parameters, const std::string &where) {
  if (!parameters.empty())
    InferCall::refuseParameter(where + ": ", parameters.begin()->first);
}

static void readParameters(const Parameters &parameters, InferCall &call) {
  for (const auto &[name, value] : parameters) {
    if (name != "timeout")
      InferCall::refuseParameter("", name);
    bool isUnsigned = value.parameter_choice_case() == InferParameter::kUint64Param;
    if (!isUnsigned && value.parameter_choice_case() != InferParameter::kInt64Param)
      refuse("parameter 'timeout': expected microseconds as int64");
    call.setTimeout(isUnsigned ? int64_t(std::min(value.uint64_param(), uint64_t(1) << 62)) : value.int64_param());
  }
}

/// Calls a function with the field for a datatype; false if there is none.
template <typename Contents, typename Function>
static bool withField(Datatype type, Contents &contents, Function visit) {
  switch (type) {
  case Datatype::Bool:
    visit(contents.bool_contents());
    return true;
  case Datatype::Int8:
  case Datatype::Int16:
  case Datatype::Int32:
    visit(contents.int_contents());
    return true;
  case Datatype::Int64:
    visit(contents.int64_contents());
    return true;
  case Datatype::UInt8:
  case Datatype::UInt16:
  case Datatype::UInt32:
    visit(contents.uint_contents());
    return true;
  case Datatype::UInt64:
    visit(contents.uint64_contents());
    return true;
  case Datatype::FP32:
    visit(contents.fp32_contents());
    return true;
  case Datatype::FP64:
    visit(contents.fp64_contents());
    return true;
  case Datatype::FP16:
  case Datatype::BF16:
    return false;
  }
  return false;
}

static int allElements(const InferTensorContents &contents) {
  return contents.bool_contents_size() + contents.int_contents_size() + contents.int64_contents_size() +
         contents.uint_contents_size() + contents.uint64_contents_size() + contents.fp32_contents_size() +
         contents.fp64_contents_size() + contents.bytes_contents_size();
}

static void readContents(const inference::ModelInferRequest::InferInputTensor &input, const Shape &shape,
                         InferCall &call) {
  const std::string where = InferCall::inputText(input.name());
  const std::optional<Datatype> type = parseDatatype(input.datatype());
  int count = allElements(input.contents()), own = 0;
  bool hasField =
      withField(type.value_or(Datatype::FP32), input.contents(), [&](const auto &list) { own = list.size(); });
  if (type && !hasField && count > 0)
    refuse(where + ": there is no field for " + input.datatype() + ": send it in raw_input_contents");
  if (type && own != count)
    refuse(where + ": its contents are not in the field for " + input.datatype());
  Tensor &tensor = call.addInput(input.name(), input.datatype(), shape, size_t(count), /*bytes=*/false);
  withField(*type, input.contents(), [&](const auto &list) {
    for (int i = 0; i < list.size(); ++i) {
      bool stored = false;
      if constexpr (std::is_same_v<std::decay_t<decltype(list[i])>, bool>)
        stored = storeBoolean(tensor, size_t(i), list[i]);
      else
        stored = storeNumber(tensor, size_t(i), list[i]);
      if (!stored)
        refuse(where + ": element " + std::to_string(i) + " is not a value of " + input.datatype());
    }
  });
}

InferCall readInferRequest(const ServedModel &model, const inference::ModelInferRequest &request) {
  InferCall call(model);
  call.id = request.id();
  readParameters(request.parameters(), call);
  const bool raw = request.raw_input_contents_size() > 0;
  if (raw && request.raw_input_contents_size() != request.inputs_size())
    refuse("raw_input_contents: expected one for each of " + std::to_string(request.inputs_size()) + " inputs, found " +
           std::to_string(request.raw_input_contents_size()));
  for (int i = 0; i < request.inputs_size(); ++i) {
    const auto &input = request.inputs(i);
    refuseParameters(input.parameters(), InferCall::inputText(input.name()));
    const Shape shape(input.shape().begin(), input.shape().end());
    if (!raw) {
      readContents(input, shape, call);
      continue;
    }
    if (allElements(input.contents()) > 0)
      refuse(InferCall::inputText(input.name()) + ": has both contents and raw_input_contents");
    const std::string &bytes = request.raw_input_contents(i);
    Tensor &tensor = call.addInput(input.name(), input.datatype(), shape, bytes.size(), /*bytes=*/true);
    std::memcpy(tensor.data.get(), bytes.data(), bytes.size());
  }
  for (const auto &output : request.outputs()) {
    refuseParameters(output.parameters(), "output '" + output.name() + "'");
    call.addOutput(output.name());
  }
  call.finish();
  return call;
}

template <typename T, typename List> static void append(const Tensor &tensor, List &list) {
  const T *data = tensor.as<T>();
  list.Reserve(int(tensor.count()));
  for (size_t i = 0; i < tensor.count(); ++i)
    list.AddAlreadyReserved(data[i]);
}

static void writeContents(const Tensor &tensor, InferTensorContents &contents) {
  switch (tensor.type) {
  case Datatype::Bool:
    return append<bool>(tensor, *contents.mutable_bool_contents());
  case Datatype::Int8:
    return append<int8_t>(tensor, *contents.mutable_int_contents());
  case Datatype::Int16:
    return append<int16_t>(tensor, *contents.mutable_int_contents());
  case Datatype::Int32:
    return append<int32_t>(tensor, *contents.mutable_int_contents());
  case Datatype::Int64:
    return append<int64_t>(tensor, *contents.mutable_int64_contents());
  case Datatype::UInt8:
    return append<uint8_t>(tensor, *contents.mutable_uint_contents());
  case Datatype::UInt16:
    return append<uint16_t>(tensor, *contents.mutable_uint_contents());
  case Datatype::UInt32:
    return append<uint32_t>(tensor, *contents.mutable_uint_contents());
  case Datatype::UInt64:
    return append<uint64_t>(tensor, *contents.mutable_uint64_contents());
  case Datatype::FP32:
    return append<float>(tensor, *contents.mutable_fp32_contents());
  case Datatype::FP64:
    return append<double>(tensor, *contents.mutable_fp64_contents());
  case Datatype::FP16:
  case Datatype::BF16:
    return;
  }
}

void writeInferResponse(const ServedModel &model, const InferCall &call, const std::vector<Tensor> &results,
                        const inference::ModelInferRequest &request, inference::ModelInferResponse &response) {
  response.set_model_name(model.name());
  response.set_model_version(kModelVersion);
  response.set_id(call.id);
  bool raw = request.raw_input_contents_size() > 0;
  size_t bytes = 0;
  for (const Tensor &tensor : results) {
    raw |= tensor.type == Datatype::FP16 || tensor.type == Datatype::BF16;
    bytes += tensor.bytes();
  }
  if (bytes > size_t(1) << 30)
    throw RequestError(RequestError::Kind::TooLarge, "the results have " + std::to_string(bytes) +
                                                         " bytes, more than a message of gRPC may have: use HTTP");
  for (size_t i = 0; i < results.size(); ++i) {
    auto &output = *response.add_outputs();
    output.set_name(model.signature().outputs[call.outputs[i].index].name);
    output.set_datatype(datatypeName(results[i].type));
    for (int64_t extent : results[i].shape)
      output.add_shape(extent);
    if (raw)
      response.add_raw_output_contents(results[i].data.get(), results[i].bytes());
    else
      writeContents(results[i], *output.mutable_contents());
  }
}

} // namespace service
