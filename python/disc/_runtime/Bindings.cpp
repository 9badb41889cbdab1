//===- Bindings.cpp - compiled libraries in Python ------------------------===//
//
// disc._runtime: the C interface of disc.h, without compiler and framework. The class that users see is
// python/disc/library.py; the types here are in python/disc/_runtime.pyi.
//
//===----------------------------------------------------------------------===//

#include "python/disc/_runtime/Argument.h"
#include "python/disc/_runtime/GilRelease.h"

#include <algorithm>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <optional>
#include <utility>
#include <vector>

using namespace disc::py;

/// Raises what the last failing call on this thread said.
[[noreturn]] static void raiseLast() {
  disc_error error{};
  error.size = sizeof(error);
  disc_last_error_details(&error);
  raiseError(error);
}

static void check(disc_status status) {
  if (status != DISC_OK)
    raiseLast();
}

namespace {
/// A loaded model.
class Model {
public:
  Model(nb::bytes path, int32_t threads, std::optional<nb::bytes> weights, bool trustFiles, int32_t device);
  ~Model() { disc_free(model); }
  Model(const Model &) = delete;
  Model &operator=(const Model &) = delete;

  nb::object run(nb::tuple inputs, nb::object outputs);
  nb::object outputShapes(nb::tuple inputs);
  void swapWeights(nb::bytes path);
  void seed(uint64_t seed) { check(disc_seed(model, seed)); }
  void reset();
  void readState(int64_t index, nb::object buffer);
  void saveState(nb::bytes path);
  void loadState(nb::bytes path);
  void setMemoryBudget(int64_t bytes, bool fail);
  disc_memory_usage memory();
  void resetMemoryPeak() { check(disc_reset_memory_peak(model)); }
  nb::dict describe() const;
  nb::list tensors(disc_status (*query)(const disc_model *, int64_t, disc_tensor_spec *), int64_t count) const;
  nb::list inputs() const { return tensors(disc_describe_input, spec.num_inputs); }
  nb::list outputs() const { return tensors(disc_describe_output, spec.num_outputs); }
  nb::list parameters() const { return tensors(disc_describe_parameter, spec.num_parameters); }
  nb::list symbols() const;

private:
  std::vector<Argument> borrow(nb::tuple inputs, std::vector<const DLTensor *> &pointers) const;
  void requireBfloat(nb::object outputs) const;

  disc_model *model = nullptr;
  disc_model_spec spec{};
  std::vector<const char *> inputNames, outputNames;
  std::vector<bool> inputUpdated;
  std::vector<int32_t> outputRanks;
  bool givesBfloat = false, isOnDevice = false;
};
} // namespace

static std::string dtypeName(DLDataType dtype) {
  std::string bits = std::to_string(dtype.bits);
  switch (dtype.code) {
  case kDLBool:
    return "bool";
  case kDLInt:
    return "int" + bits;
  case kDLUInt:
    return "uint" + bits;
  case kDLBfloat:
    return "bfloat" + bits;
  default:
    return "float" + bits;
  }
}

//===----------------------------------------------------------------------===//
// Loading and asking
//===----------------------------------------------------------------------===//

Model::Model(nb::bytes path, int32_t threads, std::optional<nb::bytes> weights, bool trustFiles, int32_t device) {
  disc_options options = disc_default_options();
  options.threads = threads;
  options.weights = weights ? weights->c_str() : nullptr;
  options.device = device;
  options.interrupted = checkSignals;
  options.flags = trustFiles ? DISC_TRUST_FILES : 0;
  disc_status status;
  {
    GilRelease release;
    status = disc_load(path.c_str(), &options, &model);
  }
  check(status);
  spec.size = sizeof(spec);
  check(disc_describe(model, &spec));
  isOnDevice = spec.device != std::string("cpu");
  disc_tensor_spec tensor{};
  tensor.size = sizeof(tensor);
  for (int64_t i = 0; i < spec.num_inputs; ++i) {
    check(disc_describe_input(model, i, &tensor));
    inputNames.push_back(tensor.name);
    inputUpdated.push_back((tensor.flags & DISC_TENSOR_UPDATED) != 0);
  }
  for (int64_t i = 0; i < spec.num_outputs; ++i) {
    check(disc_describe_output(model, i, &tensor));
    outputNames.push_back(tensor.name);
    outputRanks.push_back(tensor.ndim);
    givesBfloat |= tensor.dtype.code == kDLBfloat;
  }
}

nb::dict Model::describe() const {
  nb::dict result;
  result["name"] = spec.name;
  result["cpu"] = spec.cpu;
  result["version"] = spec.version;
  result["threads"] = spec.threads;
  result["device"] = spec.device;
  result["device_id"] = spec.device_id;
  return result;
}

static nb::object orNone(int64_t bound) { return bound == INT64_MAX ? nb::none() : nb::object(nb::int_(bound)); }

nb::list Model::tensors(disc_status (*query)(const disc_model *, int64_t, disc_tensor_spec *), int64_t count) const {
  nb::list result;
  disc_tensor_spec tensor{};
  tensor.size = sizeof(tensor);
  for (int64_t i = 0; i < count; ++i) {
    check(query(model, i, &tensor));
    nb::list dims;
    for (int32_t j = 0; j < tensor.ndim; ++j)
      dims.append(tensor.dims[j]);
    result.append(nb::make_tuple(tensor.name, dtypeName(tensor.dtype).c_str(), nb::tuple(dims),
                                 (tensor.flags & DISC_TENSOR_UPDATED) != 0));
  }
  return result;
}

nb::list Model::symbols() const {
  nb::list result;
  disc_symbol_spec symbol{};
  symbol.size = sizeof(symbol);
  for (int64_t i = 0; i < spec.num_symbols; ++i) {
    check(disc_describe_symbol(model, i, &symbol));
    result.append(nb::make_tuple(symbol.name, symbol.min, orNone(symbol.max), symbol.divisor));
  }
  return result;
}

void Model::swapWeights(nb::bytes path) {
  disc_status status;
  {
    GilRelease release;
    status = disc_swap_weights(model, path.c_str());
  }
  check(status);
}

void Model::reset() {
  disc_status status;
  {
    GilRelease release;
    status = disc_reset(model);
  }
  check(status);
}

void Model::setMemoryBudget(int64_t bytes, bool fail) {
  disc_status status;
  {
    GilRelease release;
    status = disc_set_memory_budget(model, bytes);
    if (status == DISC_OK)
      status = disc_wait_for_memory(model, !fail);
  }
  check(status);
}

disc_memory_usage Model::memory() {
  disc_memory_usage usage{};
  usage.size = sizeof(usage);
  check(disc_memory(model, &usage));
  return usage;
}

/// To the memory of a contiguous buffer.
void Model::readState(int64_t index, nb::object buffer) {
  Py_buffer view;
  if (PyObject_GetBuffer(buffer.ptr(), &view, PyBUF_WRITABLE) != 0)
    throw nb::python_error();
  disc_status status;
  {
    GilRelease release;
    status = disc_read_state(model, index, view.buf, size_t(view.len));
  }
  PyBuffer_Release(&view);
  check(status);
}

void Model::saveState(nb::bytes path) {
  disc_status status;
  {
    GilRelease release;
    status = disc_save_state(model, path.c_str());
  }
  check(status);
}

void Model::loadState(nb::bytes path) {
  disc_status status;
  {
    GilRelease release;
    status = disc_load_state(model, path.c_str());
  }
  check(status);
}

//===----------------------------------------------------------------------===//
// Running
//===----------------------------------------------------------------------===//

std::vector<Argument> Model::borrow(nb::tuple inputs, std::vector<const DLTensor *> &pointers) const {
  std::vector<Argument> arguments(inputs.size());
  for (size_t i = 0; i < arguments.size(); ++i) {
    const char *name = i < inputNames.size() ? inputNames[i] : "";
    arguments[i].borrow(PyTuple_GET_ITEM(inputs.ptr(), Py_ssize_t(i)), {"input", name},
                        /*writable=*/i < inputUpdated.size() && inputUpdated[i]);
    pointers.push_back(&arguments[i].tensor);
  }
  return arguments;
}

/// NumPy's bfloat16 comes from another package; null if that is not installed.
static nb::object bfloat16() {
  static nb::object &type = *new nb::object;
  if (!type) {
    try {
      type = nb::module_::import_("ml_dtypes").attr("bfloat16");
    } catch (nb::python_error &error) {
      if (!error.matches(PyExc_ImportError))
        throw;
    }
  }
  return type;
}

/// Before a run whose results will be NumPy arrays: all of them must be such.
void Model::requireBfloat(nb::object outputs) const {
  if (!givesBfloat || bfloat16())
    return;
  disc_tensor_spec tensor{};
  tensor.size = sizeof(tensor);
  for (int64_t i = 0; i < spec.num_outputs; ++i) {
    check(disc_describe_output(model, i, &tensor));
    bool given = PyTuple_Check(outputs.ptr()) && i < PyTuple_GET_SIZE(outputs.ptr()) &&
                 PyTuple_GET_ITEM(outputs.ptr(), i) != Py_None;
    if (tensor.dtype.code == kDLBfloat && !given)
      raise(PyExc_TypeError, std::string("output '") + tensor.name +
                                 "' is bfloat16, which NumPy supports only with a package: run pip install ml_dtypes");
  }
}

/// A NumPy array that owns the tensor, which is taken over whatever happens.
static nb::object toNumpy(DLManagedTensorVersioned *managed) {
  nb::capsule owner(managed, [](void *pointer) noexcept {
    auto *tensor = static_cast<DLManagedTensorVersioned *>(pointer);
    tensor->deleter(tensor);
  });
  const DLTensor &tensor = managed->dl_tensor;
  std::vector<size_t> shape(tensor.shape, tensor.shape + tensor.ndim);
  bool isBfloat = tensor.dtype.code == kDLBfloat;
  nb::dlpack::dtype dtype{isBfloat ? uint8_t(kDLUInt) : tensor.dtype.code, tensor.dtype.bits, 1};
  nb::ndarray<nb::numpy> array(static_cast<char *>(tensor.data) + tensor.byte_offset, shape.size(), shape.data(), owner,
                               tensor.strides, dtype, nb::device::cpu::value);
  nb::object result = nb::cast(array, nb::rv_policy::reference);
  return isBfloat ? result.attr("view")(bfloat16()) : result;
}

namespace {
/// Where the results of one run go. What the library allocated and nobody took is deleted.
struct Outputs : std::vector<disc_output> {
  explicit Outputs(size_t count) : std::vector<disc_output>(count, disc_output{nullptr, nullptr}) {}
  ~Outputs() {
    for (disc_output &output : *this)
      if (output.managed)
        output.managed->deleter(output.managed);
  }
};
} // namespace

/// The caller's output, or the part of it that was written, if its extents were known only after the run.
static nb::object written(nb::handle output, const Argument &argument, const std::vector<int64_t> &before) {
  if (std::equal(before.begin(), before.end(), argument.tensor.shape))
    return nb::borrow(output);
  nb::object index = nb::steal(PyTuple_New(argument.tensor.ndim));
  for (int32_t i = 0; i < argument.tensor.ndim; ++i) {
    nb::object stop = nb::int_(argument.tensor.shape[i]);
    PyTuple_SET_ITEM(index.ptr(), i, PySlice_New(nullptr, stop.ptr(), nullptr));
  }
  return output[index];
}

nb::object Model::run(nb::tuple given, nb::object givenOutputs) {
  std::vector<const DLTensor *> pointers;
  std::vector<Argument> inputs = borrow(given, pointers);
  // Results are of the kind of the inputs.
  const TensorType *type = nullptr;
  for (const Argument &input : inputs)
    type = type ? type : input.type;
  if (!type)
    requireBfloat(givenOutputs);

  size_t count = outputNames.size();
  Outputs outputs(count);
  std::vector<Argument> targets(givenOutputs.is_none() ? 0 : count);
  std::vector<std::vector<int64_t>> shapes(targets.size());
  if (!givenOutputs.is_none() && (!PyTuple_Check(givenOutputs.ptr()) || nb::len(givenOutputs) != count))
    raise(PyExc_TypeError, "outputs must be None or a tuple with an item for each");
  for (size_t i = 0; i < targets.size(); ++i) {
    PyObject *object = PyTuple_GET_ITEM(givenOutputs.ptr(), Py_ssize_t(i));
    if (object == Py_None)
      continue;
    targets[i].borrow(object, {"output", outputNames[i]}, /*writable=*/true);
    outputs[i].tensor = &targets[i].tensor;
    shapes[i].assign(targets[i].tensor.shape, targets[i].tensor.shape + targets[i].tensor.ndim);
  }

  // On a device, behind what the inputs' framework does there.
  void *stream = nullptr;
  for (const Argument &input : inputs)
    if (isOnDevice && input.type && !stream && !input.type->currentStream(input.tensor.device, stream))
      throw nb::python_error();
  disc_status status;
  {
    GilRelease release;
    status = stream
                 ? disc_run_on(model, stream, pointers.data(), int64_t(pointers.size()), outputs.data(), int64_t(count))
                 : disc_run(model, pointers.data(), int64_t(pointers.size()), outputs.data(), int64_t(count));
  }
  check(status);

  nb::object result = nb::steal(PyTuple_New(Py_ssize_t(count)));
  for (size_t i = 0; i < count; ++i) {
    nb::object object;
    if (outputs[i].tensor) {
      object = written(PyTuple_GET_ITEM(givenOutputs.ptr(), Py_ssize_t(i)), targets[i], shapes[i]);
    } else if (type) {
      object = nb::steal(type->wrap(outputs[i].managed));
      if (!object)
        throw nb::python_error();
      outputs[i].managed = nullptr;
    } else if (outputs[i].managed->dl_tensor.device.device_type != kDLCPU) {
      raise(PyExc_TypeError, "NumPy has no arrays on " + std::string(spec.device) + ": pass `out`");
    } else {
      object = toNumpy(std::exchange(outputs[i].managed, nullptr));
    }
    PyTuple_SET_ITEM(result.ptr(), Py_ssize_t(i), object.release().ptr());
  }
  return result;
}

nb::object Model::outputShapes(nb::tuple given) {
  std::vector<const DLTensor *> pointers;
  std::vector<Argument> inputs = borrow(given, pointers);
  size_t count = outputRanks.size();
  std::vector<std::vector<int64_t>> shapes(count);
  std::vector<int64_t *> targets(count);
  for (size_t i = 0; i < count; ++i) {
    // Not empty, so that no pointer is null.
    shapes[i].resize(size_t(outputRanks[i]) + 1);
    targets[i] = shapes[i].data();
  }
  check(disc_output_shapes(model, pointers.data(), int64_t(pointers.size()), targets.data(), int64_t(count)));
  nb::list result;
  for (size_t i = 0; i < count; ++i) {
    nb::list shape;
    for (int32_t j = 0; j < outputRanks[i]; ++j)
      shape.append(shapes[i][size_t(j)] < 0 ? nb::none() : nb::object(nb::int_(shapes[i][size_t(j)])));
    result.append(nb::tuple(shape));
  }
  return nb::tuple(result);
}

NB_MODULE(_runtime, m) {
  m.doc() = "Compiled libraries: the C interface of DISC.";
  // Dynamo keeps compiled functions to the end of the process; nanobind reports them on stderr as leaked.
  nb::set_leak_warnings(false);
  nb::class_<disc_memory_usage>(m, "MemoryUsage", "How much memory a model holds, in bytes, as its budget counts it.")
      .def_ro("budget", &disc_memory_usage::budget, "0: none.")
      .def_ro("held", &disc_memory_usage::held, "By calls, or kept for later ones.")
      .def_ro("peak", &disc_memory_usage::peak, "The most at once since reset_memory_peak().")
      .def_ro("allocations", &disc_memory_usage::allocations)
      .def_ro("other_plans", &disc_memory_usage::other_plans, "Calls that used another plan than the first.")
      .def_ro("last_plan", &disc_memory_usage::last_plan, "-1: no call has chosen one.");
  nb::class_<Model>(m, "Model", "A loaded model.")
      .def(nb::init<nb::bytes, int32_t, std::optional<nb::bytes>, bool, int32_t>(), nb::arg("path"), nb::arg("threads"),
           nb::arg("weights").none(), nb::arg("trust_files"), nb::arg("device"))
      .def("run", &Model::run, nb::arg("inputs"), nb::arg("outputs").none(),
           "Runs the model on a tuple of arrays; `outputs` is None or a tuple of arrays to write to, or None.")
      .def("output_shapes", &Model::outputShapes, nb::arg("inputs"))
      .def("swap_weights", &Model::swapWeights, nb::arg("path"))
      .def("seed", &Model::seed, nb::arg("seed"))
      .def("reset", &Model::reset)
      .def("read_state", &Model::readState)
      .def("save_state", &Model::saveState)
      .def("load_state", &Model::loadState)
      .def(
          "set_memory_budget", &Model::setMemoryBudget, nb::arg("bytes"), nb::arg("fail") = false,
          "The most bytes that all calls may hold at once; 0: no limit. A call that there is no room for at the moment "
          "waits, or fails with `fail`.")
      .def("memory", &Model::memory)
      .def("reset_memory_peak", &Model::resetMemoryPeak)
      .def("describe", &Model::describe, "Name, cpu, version of the runtime, threads, device.")
      .def("inputs", &Model::inputs, "Tuples (name, dtype, texts of the dims, whether it is updated).")
      .def("outputs", &Model::outputs)
      .def("parameters", &Model::parameters)
      .def("symbols", &Model::symbols, "Tuples (name, min, max or None, divisor).");
  m.def(
      "device_missing",
      [](const char *kind) { return disc_find_device(kind, 0) == DISC_OK ? std::string() : disc_last_error(); },
      nb::arg("kind"), "What this process lacks to run models for a kind of device; \"\" if nothing.");
  m.attr("version") = nb::int_(disc_version());
}
