//===- disc_model.cpp - any library that DISC compiled, opened by its path ===//

#include "model.h"

#include <disc.h>

#include <cstring>

namespace service {

namespace {

using Kind = RequestError::Kind;

void check(disc_status status) {
  if (status == DISC_OK)
    return;
  bool request = status == DISC_ERROR_TYPE || status == DISC_ERROR_SHAPE || status == DISC_ERROR_INDEX;
  throw RequestError(request ? Kind::Invalid : Kind::Failed, disc_last_error());
}

constexpr struct {
  Datatype type;
  uint8_t code, bits;
} kTypes[] = {
    {Datatype::Bool, kDLBool, 8},    {Datatype::UInt8, kDLUInt, 8},   {Datatype::UInt16, kDLUInt, 16},
    {Datatype::UInt32, kDLUInt, 32}, {Datatype::UInt64, kDLUInt, 64}, {Datatype::Int8, kDLInt, 8},
    {Datatype::Int16, kDLInt, 16},   {Datatype::Int32, kDLInt, 32},   {Datatype::Int64, kDLInt, 64},
    {Datatype::FP16, kDLFloat, 16},  {Datatype::BF16, kDLBfloat, 16}, {Datatype::FP32, kDLFloat, 32},
    {Datatype::FP64, kDLFloat, 64},
};

Datatype datatypeOf(const std::string &where, DLDataType type) {
  for (const auto &entry : kTypes)
    if (type.code == entry.code && type.bits == entry.bits && type.lanes == 1)
      return entry.type;
  throw std::runtime_error(where + ": its dtype (DLPack code " + std::to_string(type.code) + ", " +
                           std::to_string(type.bits) + " bits) is not in the Open Inference Protocol");
}

DLDataType dtypeOf(Datatype type) {
  for (const auto &entry : kTypes)
    if (type == entry.type)
      return {entry.code, entry.bits, 1};
  return {};
}

TensorSpec readSpec(const disc_tensor_spec &spec, const char *kind, int64_t index) {
  TensorSpec result;
  std::string number = kind + std::string("_") + std::to_string(index);
  result.name = spec.name && *spec.name ? spec.name : number;
  result.type = datatypeOf(std::string(kind) + " '" + result.name + "'", spec.dtype);
  result.dims.assign(spec.dims, spec.dims + spec.ndim);
  result.min.assign(spec.min, spec.min + spec.ndim);
  result.max.assign(spec.max, spec.max + spec.ndim);
  return result;
}

/// Names that several have get their numbers.
void makeUnique(std::vector<TensorSpec> &specs, const char *kind) {
  for (size_t i = 0; i < specs.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      if (specs[i].name == specs[j].name)
        specs[i].name = kind + std::string("_") + std::to_string(i);
}

/// Takes over the tensor that a run made.
Tensor adopt(Datatype type, DLManagedTensorVersioned *managed) {
  std::shared_ptr<DLManagedTensorVersioned> owner(managed, [](DLManagedTensorVersioned *it) { it->deleter(it); });
  const DLTensor &tensor = managed->dl_tensor;
  Tensor result{type, Shape(tensor.shape, tensor.shape + tensor.ndim), nullptr};
  for (int64_t step = 1, d = tensor.ndim; tensor.strides && d-- > 0; step *= tensor.shape[d])
    if (tensor.strides[d] != step && tensor.shape[d] > 1)
      throw std::runtime_error("the library returned a tensor that is not row-major");
  static char nothing;
  char *data = tensor.data ? static_cast<char *>(tensor.data) + tensor.byte_offset : &nothing;
  result.data = std::shared_ptr<char>(owner, data);
  return result;
}

class DiscModel : public Model {
public:
  DiscModel(const std::string &path, int threads) {
    disc_options options = disc_default_options();
    options.threads = threads;
    disc_model *model = nullptr;
    check(disc_load(path.c_str(), &options, &model));
    model_.reset(model);
    spec_.size = sizeof(spec_);
    check(disc_describe(model, &spec_));
    if (std::strcmp(spec_.device, "cpu") != 0)
      throw std::runtime_error(std::string("the library is for ") + spec_.device +
                               "; only libraries for the CPU are supported");
    signature_.platform = "disc";
    readTensors();
  }

  std::string description() const override {
    return "DISC " + std::to_string(spec_.version >> 16) + "." + std::to_string(spec_.version >> 8 & 0xff) +
           ", model " + spec_.name + " for " + spec_.cpu + ", threads: " + std::to_string(spec_.threads);
  }

  const Signature &signature() const override { return signature_; }

  std::vector<Shape> outputShapes(const std::vector<Tensor> &inputs) const override {
    Call call(inputs);
    std::vector<Shape> shapes;
    std::vector<int64_t *> places;
    for (const TensorSpec &spec : signature_.outputs)
      shapes.emplace_back(spec.dims.size());
    for (int64_t i = 0; i < spec_.num_outputs; ++i)
      places.push_back(shapes[size_t(i)].data());
    check(disc_output_shapes(model_.get(), call.inputs.data(), spec_.num_inputs, places.data(), spec_.num_outputs));
    for (size_t i = 0; i < updated_.size(); ++i)
      shapes[size_t(spec_.num_outputs) + i] = inputs[updated_[i]].shape;
    return shapes;
  }

  std::vector<Tensor> run(const std::vector<Tensor> &inputs) const override {
    std::vector<Tensor> given = inputs;
    for (size_t index : updated_) { // The caller's tensors stay as they are.
      given[index] = Tensor::make(given[index].type, given[index].shape);
      std::memcpy(given[index].data.get(), inputs[index].data.get(), given[index].bytes());
    }
    Call call(given);
    std::vector<disc_output> outputs(size_t(spec_.num_outputs), disc_output{nullptr, nullptr});
    check(disc_run(model_.get(), call.inputs.data(), spec_.num_inputs, outputs.data(), spec_.num_outputs));
    std::vector<Tensor> results;
    for (size_t i = 0; i < outputs.size(); ++i)
      results.push_back(adopt(signature_.outputs[i].type, outputs[i].managed));
    for (size_t index : updated_)
      results.push_back(given[index]);
    return results;
  }

private:
  /// The arguments of a call.
  struct Call {
    explicit Call(const std::vector<Tensor> &given) {
      for (const Tensor &tensor : given)
        tensors.push_back({tensor.data.get(),
                           {kDLCPU, 0},
                           int32_t(tensor.shape.size()),
                           dtypeOf(tensor.type),
                           const_cast<int64_t *>(tensor.shape.data()),
                           nullptr,
                           0});
      for (const DLTensor &tensor : tensors)
        inputs.push_back(&tensor);
    }
    std::vector<DLTensor> tensors;
    std::vector<const DLTensor *> inputs;
  };

  void readTensors() {
    disc_tensor_spec spec{};
    spec.size = sizeof(spec);
    for (int64_t i = 0; i < spec_.num_outputs; ++i) {
      check(disc_describe_output(model_.get(), i, &spec));
      signature_.outputs.push_back(readSpec(spec, "output", i));
    }
    for (int64_t i = 0; i < spec_.num_inputs; ++i) {
      check(disc_describe_input(model_.get(), i, &spec));
      signature_.inputs.push_back(readSpec(spec, "input", i));
      if (spec.flags & DISC_TENSOR_UPDATED)
        updated_.push_back(size_t(i));
    }
    makeUnique(signature_.inputs, "input");
    // What a run writes to an input would be lost: it is one more output.
    for (size_t index : updated_) {
      signature_.outputs.push_back(signature_.inputs[index]);
      signature_.outputs.back().name += ".updated";
    }
    makeUnique(signature_.outputs, "output");
    signature_.keepsState = !updated_.empty();
    for (int64_t i = 0; i < spec_.num_parameters; ++i) {
      check(disc_describe_parameter(model_.get(), i, &spec));
      signature_.keepsState |= (spec.flags & DISC_TENSOR_UPDATED) != 0;
    }
  }

  struct Free {
    void operator()(disc_model *model) const { disc_free(model); }
  };
  std::unique_ptr<disc_model, Free> model_;
  disc_model_spec spec_{};
  Signature signature_;
  std::vector<size_t> updated_; ///< Inputs that a run writes to.
};

} // namespace

std::unique_ptr<Model> openModel(const std::string &path, int threads) {
  return std::make_unique<DiscModel>(path, threads);
}

} // namespace service
