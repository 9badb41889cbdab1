//===- infer_json_writer.cpp - answers as JSON and bytes ------------------===//

#include "infer_json.h"
#include "number.h"

#include <nlohmann/json.hpp>

#include <cmath>
#include <limits>

namespace service {

static std::string quote(const std::string &text) {
  using nlohmann::json;
  return json(text).dump(-1, ' ', false, json::error_handler_t::replace);
}

/// Appends a number; false if JSON has no such number.
template <typename T> static bool appendElement(std::string &out, const Tensor &tensor, size_t index) {
  T value = tensor.as<T>()[index];
  if constexpr (std::is_floating_point_v<T>)
    if (!std::isfinite(value))
      return false;
  appendNumber(out, value);
  return true;
}

static bool appendReal(std::string &out, float value) {
  if (!std::isfinite(value))
    return false;
  appendNumber(out, value);
  return true;
}

static bool appendAny(std::string &out, const Tensor &tensor, size_t index) {
  switch (tensor.type) {
  case Datatype::Bool:
    out += tensor.as<uint8_t>()[index] ? "true" : "false";
    return true;
  case Datatype::UInt8:
    return appendElement<uint8_t>(out, tensor, index);
  case Datatype::UInt16:
    return appendElement<uint16_t>(out, tensor, index);
  case Datatype::UInt32:
    return appendElement<uint32_t>(out, tensor, index);
  case Datatype::UInt64:
    return appendElement<uint64_t>(out, tensor, index);
  case Datatype::Int8:
    return appendElement<int8_t>(out, tensor, index);
  case Datatype::Int16:
    return appendElement<int16_t>(out, tensor, index);
  case Datatype::Int32:
    return appendElement<int32_t>(out, tensor, index);
  case Datatype::Int64:
    return appendElement<int64_t>(out, tensor, index);
  case Datatype::FP16:
    return appendReal(out, fromHalf(tensor.as<uint16_t>()[index]));
  case Datatype::BF16:
    return appendReal(out, fromBFloat(tensor.as<uint16_t>()[index]));
  case Datatype::FP32:
    return appendReal(out, tensor.as<float>()[index]);
  case Datatype::FP64:
    return appendElement<double>(out, tensor, index);
  }
  return false;
}

static void appendData(std::string &out, const std::string &name, const Tensor &tensor) {
  const size_t count = tensor.count();
  out.reserve(out.size() + count * 8);
  out += ",\"data\":[";
  for (size_t i = 0; i < count; ++i) {
    if (i)
      out.push_back(',');
    if (!appendAny(out, tensor, i))
      refuse("output '" + name + "': element " + std::to_string(i) +
             " is NaN or infinite, which JSON cannot express: ask for binary_data");
  }
  out.push_back(']');
}

std::string writeInferResponse(const ServedModel &model, const InferCall &call, const std::vector<Tensor> &results,
                               std::optional<size_t> &headerLength) {
  std::string out = "{\"model_name\":" + quote(model.name()) + ",\"model_version\":\"" + kModelVersion + "\"";
  if (!call.id.empty())
    out += ",\"id\":" + quote(call.id);
  out += ",\"outputs\":[";
  std::vector<const Tensor *> binary;
  for (size_t i = 0; i < results.size(); ++i) {
    const Tensor &tensor = results[i];
    const InferCall::Output &output = call.outputs[i];
    const std::string &name = model.signature().outputs[output.index].name;
    out += (i ? ",{\"name\":" : "{\"name\":") + quote(name) + ",\"datatype\":\"" + datatypeName(tensor.type) +
           "\",\"shape\":" + shapeText(tensor.shape);
    if (output.binary.value_or(call.binaryOutputs)) {
      binary.push_back(&tensor);
      out += ",\"parameters\":{\"binary_data_size\":" + std::to_string(tensor.bytes()) + "}";
    } else {
      appendData(out, name, tensor);
    }
    out.push_back('}');
  }
  out += "]}";
  headerLength.reset();
  if (!binary.empty())
    headerLength = out.size();
  for (const Tensor *tensor : binary)
    out.append(tensor->data.get(), tensor->bytes());
  return out;
}

} // namespace service
