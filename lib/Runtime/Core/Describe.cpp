//===- Describe.cpp - what a model says about itself ----------------------===//

#include "lib/Runtime/Core/LoadedModel.h"
#include "lib/Runtime/Core/Struct.h"

namespace disc::rt {

Descriptions::Tensor Descriptions::interface(const disc_tensor_info &info) {
  Tensor tensor{info.name, info.dtype, {}, {}, {}, {}, info.updated != 0};
  for (int64_t i = 0; i < info.rank; ++i) {
    tensor.dims.push_back(info.dims[i].text);
    tensor.min.push_back(info.dims[i].min);
    tensor.max.push_back(info.dims[i].max);
  }
  return tensor;
}

Descriptions::Descriptions(const disc_model_info_t &info) : info(info) {
  for (int64_t i = 0; i < info.num_inputs; ++i)
    inputs.push_back(interface(info.inputs[i]));
  for (int64_t i = 0; i < info.num_outputs; ++i)
    outputs.push_back(interface(info.outputs[i]));
  parameters.resize(size_t(info.num_parameters));
  for (int64_t i = 0; i < info.num_parameters; ++i) {
    const disc_parameter_info &from = info.parameters[i];
    Tensor &tensor = parameters[i];
    tensor.name = from.name;
    tensor.dtype = from.dtype;
    tensor.updated = from.updated != 0;
    tensor.min.assign(from.shape, from.shape + from.rank);
    tensor.max = tensor.min;
    for (int64_t extent : tensor.min)
      tensor.numbers.push_back(std::to_string(extent));
    for (const std::string &text : tensor.numbers)
      tensor.dims.push_back(text.c_str());
  }
}

static Status outOfRange(const char *what, int64_t index, size_t count) {
  return Status(Code::Invalid, "there is no " + std::string(what) + " " + std::to_string(index) + ": the model has " +
                                   std::to_string(count));
}

Status Descriptions::describe(const std::vector<Tensor> &list, const char *what, int64_t index,
                              disc_tensor_spec *spec) {
  if (index < 0 || size_t(index) >= list.size())
    return outOfRange(what, index, list.size());
  const Tensor &tensor = list[index];
  disc_tensor_spec result = {};
  result.name = tensor.name;
  result.dtype = {uint8_t(tensor.dtype >> 8), uint8_t(tensor.dtype & 0xff), 1};
  result.ndim = int32_t(tensor.dims.size());
  result.dims = tensor.dims.data();
  result.min = tensor.min.data();
  result.max = tensor.max.data();
  result.flags = tensor.updated ? DISC_TENSOR_UPDATED : 0;
  return writeStruct(result, "disc_tensor_spec", spec);
}

Status Descriptions::input(int64_t index, disc_tensor_spec *spec) const {
  return describe(inputs, "input", index, spec);
}

Status Descriptions::output(int64_t index, disc_tensor_spec *spec) const {
  return describe(outputs, "output", index, spec);
}

Status Descriptions::parameter(int64_t index, disc_tensor_spec *spec) const {
  return describe(parameters, "parameter", index, spec);
}

Status Descriptions::symbol(int64_t index, disc_symbol_spec *spec) const {
  if (index < 0 || index >= info.num_symbols)
    return outOfRange("symbol", index, size_t(info.num_symbols));
  const disc_symbol_info &symbol = info.symbols[index];
  disc_symbol_spec result = {};
  result.name = symbol.name;
  result.min = symbol.min;
  result.max = symbol.max;
  result.divisor = symbol.divisor;
  result.input = symbol.input;
  result.dim = symbol.dim;
  return writeStruct(result, "disc_symbol_spec", spec);
}

Status LoadedModel::describe(disc_model_spec *spec) const {
  const disc_model_info_t &info = model->info();
  disc_model_spec result = {};
  result.name = library.name;
  result.cpu = variant.cpu;
  result.version = DISC_VERSION;
  result.threads = int32_t(model->threads());
  result.num_inputs = info.num_inputs;
  result.num_outputs = info.num_outputs;
  result.num_symbols = info.num_symbols;
  result.num_parameters = info.num_parameters;
  result.device = info.device ? info.device->device : "cpu";
  result.device_id = model->where().device_id;
  return writeStruct(result, "disc_model_spec", spec);
}

} // namespace disc::rt
