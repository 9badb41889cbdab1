//===- Executable.cpp - compiled code that Python can call ----------------===//

#include "lib/Runtime/Core/Model.h"
#include "lib/Runtime/Core/Tensor.h"
#include "lib/Target/Driver/Driver.h"
#include "python/disc/_native/Errors.h"
#include "python/disc/_native/Interruptible.h"
#include "python/disc/_native/Module.h"
#include "python/disc/_runtime/Exchange.h"
#include "python/disc/_runtime/GilRelease.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>

#include <algorithm>
#include <cstring>

using namespace disc::py;
using namespace mlir::disc;
namespace rt = disc::rt;

/// The code, then the model that runs it: the model goes first.
class Executable {
public:
  Executable(std::unique_ptr<Jit> jit, CodegenTimes times, nb::type_object type, unsigned threads, int32_t device);

  void init(nb::sequence parameters);
  nb::tuple run(nb::handle self, nb::handle inputs);
  void watch(nb::sequence versions, nb::sequence storages, nb::sequence places, nb::object changed);
  nb::dict info() const;
  nb::list globals(nb::handle self) const;
  nb::dict times() const;
  unsigned threads() const { return model->threads(); }
  std::string device() const { return rt::deviceName(model->where()); }
  nb::dict deviceCounters() const;
  void seed(uint64_t seed) { model->seed(seed); }
  void startProfile();
  nb::list stopProfile();

private:
  template <typename T> T symbol(const std::string &name);
  rt::Stream currentStream() const;
  [[noreturn]] void raiseInput(size_t index, PyObject *object);

  /// A word of a parameter's own memory that changes with the parameter.
  template <typename T> struct Watched {
    const volatile T *address;
    T expected;
  };
  template <typename T> static llvm::SmallVector<Watched<T>, 0> watched(nb::sequence pairs);
  /// Where an object was found: keys that lead to it from an object's attributes.
  struct Place {
    nb::object owner; ///< A weak reference.
    nb::tuple keys;
    PyObject *expected; ///< Not owned: a freed tensor's storage has changed.
    bool changed() const;
  };
  bool parametersChanged() const;

  std::unique_ptr<Jit> jit;
  CodegenTimes codegenTimes;
  TensorType tensors;
  std::unique_ptr<rt::Model> model;
  llvm::SmallVector<Watched<uint32_t>, 0> versions;
  llvm::SmallVector<Watched<uintptr_t>, 0> storages;
  std::vector<Place> places;
  /// Called with this object when a watched word has changed; keeps the memory of the words alive.
  nb::object whenChanged;
};

[[noreturn]] static void raiseLlvmError(llvm::Error error) {
  raise(PyExc_RuntimeError, llvm::toString(std::move(error)));
}

template <typename T> T Executable::symbol(const std::string &name) {
  llvm::Expected<void *> address = jit->lookup(name);
  if (!address)
    raiseLlvmError(address.takeError());
  return reinterpret_cast<T>(*address);
}

Executable::Executable(std::unique_ptr<Jit> code, CodegenTimes times, nb::type_object type, unsigned threads,
                       int32_t device)
    : jit(std::move(code)), codegenTimes(times), tensors(std::move(type)) {
  auto *info = symbol<const disc_model_info_t *>("disc_model_info");
  auto init = symbol<disc_entry_fn>("disc_init");
  auto main = symbol<disc_entry_fn>("disc_main");
  // Python computes shapes itself.
  rt::ModelOptions options;
  options.threads = threads;
  options.device = device;
  options.interrupted = checkSignals;
  rt::Status status = rt::Model::create({info, init, main, /*shapes=*/nullptr}, options, model);
  if (!status.ok())
    raiseRuntimeError(status.error());
}

/// The framework's, on the model's device.
rt::Stream Executable::currentStream() const {
  rt::Stream stream = nullptr;
  if (!tensors.currentStream(model->where(), stream))
    throw nb::python_error();
  return stream;
}

void Executable::init(nb::sequence parameters) {
  rt::Stream stream = currentStream();
  std::vector<DLManagedTensorVersioned *> owned;
  for (nb::handle parameter : parameters) {
    DLManagedTensorVersioned *tensor = tensors.isInstance(parameter.ptr()) ? tensors.acquire(parameter.ptr()) : nullptr;
    if (!tensor) {
      for (DLManagedTensorVersioned *other : owned)
        other->deleter(other);
      if (!PyErr_Occurred())
        raise(PyExc_TypeError, "parameters must be tensors");
      throw nb::python_error();
    }
    owned.push_back(tensor);
  }
  rt::Status status;
  {
    GilRelease release;
    status = model->load(owned.data(), owned.size(), stream);
  }
  if (!status.ok())
    raiseRuntimeError(status.error());
}

void Executable::raiseInput(size_t index, PyObject *object) {
  // A device that DLPack cannot express (meta), or a layout (sparse): what the framework
  // says about it, with the name of the input.
  const disc_model_info_t &info = model->info();
  std::string what = "input " + std::to_string(index);
  if (index < size_t(info.num_inputs) && *info.inputs[index].name)
    what = "input '" + std::string(info.inputs[index].name) + "'";
  if (!PyErr_Occurred())
    raise(PyExc_TypeError, what + ": expected a " + tensors.name() + ", got " + Py_TYPE(object)->tp_name);
  raise(PyExc_TypeError, what + ": expected a dense tensor on " + device() + " (" + takeErrorText() + ")");
}

template <typename T> llvm::SmallVector<Executable::Watched<T>, 0> Executable::watched(nb::sequence pairs) {
  llvm::SmallVector<Watched<T>, 0> result;
  for (nb::handle pair : pairs)
    result.push_back({reinterpret_cast<const volatile T *>(nb::cast<uintptr_t>(pair[0])), nb::cast<T>(pair[1])});
  return result;
}

void Executable::watch(nb::sequence versionWords, nb::sequence storageWords, nb::sequence placed, nb::object changed) {
  auto newVersions = watched<uint32_t>(versionWords);
  auto newStorages = watched<uintptr_t>(storageWords);
  std::vector<Place> newPlaces;
  for (nb::handle place : placed)
    newPlaces.push_back({nb::borrow(place[0]), nb::cast<nb::tuple>(place[1]), nb::object(place[2]).ptr()});
  versions = std::move(newVersions);
  storages = std::move(newStorages);
  places = std::move(newPlaces);
  whenChanged = std::move(changed);
}

bool Executable::parametersChanged() const {
  auto differs = [](const auto &word) { return *word.address != word.expected; };
  return llvm::any_of(versions, differs) || llvm::any_of(storages, differs) ||
         llvm::any_of(places, [](const Place &place) { return place.changed(); });
}

bool Executable::Place::changed() const {
  nb::object object = nb::steal(PyObject_CallNoArgs(owner.ptr()));
  // What is gone can no longer change.
  if (!object.is_valid() || object.is_none()) {
    PyErr_Clear();
    return false;
  }
  object = nb::steal(PyObject_GenericGetDict(object.ptr(), nullptr));
  for (nb::handle key : keys) {
    if (object.is_valid())
      object = nb::steal(PyObject_GetItem(object.ptr(), key.ptr()));
  }
  if (!object.is_valid())
    PyErr_Clear();
  return object.ptr() != expected;
}

nb::tuple Executable::run(nb::handle self, nb::handle inputs) {
  if (parametersChanged()) {
    nb::object callback = whenChanged;
    callback(self);
  }
  bool isTuple = PyTuple_Check(inputs.ptr());
  if (!isTuple && !PyList_Check(inputs.ptr()))
    raise(PyExc_TypeError, "inputs must be a tuple or a list");
  // References of its own: another thread may change a list while this one runs.
  nb::object held = isTuple ? nb::borrow(inputs) : nb::steal(PyList_AsTuple(inputs.ptr()));
  size_t count = size_t(PyTuple_GET_SIZE(held.ptr()));
  llvm::SmallVector<DLTensor, 8> borrowed(count);
  llvm::SmallVector<const DLTensor *, 8> pointers(count);
  llvm::SmallVector<nb::object, 8> resolved(count), copies;
  for (size_t i = 0; i < count; ++i) {
    PyObject *object = PyTuple_GET_ITEM(held.ptr(), i);
    if (!tensors.isInstance(object) || !tensors.borrow(object, borrowed[i], resolved[i]))
      raiseInput(i, object);
    pointers[i] = &borrowed[i];
  }
  rt::Stream stream = nullptr;
  if (model->where().device_type != kDLCPU) {
    stream = currentStream();
    // The runtime copies no strided tensors there. What the framework copies, it keeps for what is in its stream.
    for (size_t i = 0; i < count && i < size_t(model->info().num_inputs); ++i) {
      if (model->info().inputs[i].updated || rt::isContiguous(borrowed[i]))
        continue;
      nb::object copy = TensorType::contiguous(PyTuple_GET_ITEM(held.ptr(), i));
      if (!copy || !tensors.borrow(copy.ptr(), borrowed[i], resolved[i]))
        throw nb::python_error();
      copies.push_back(std::move(copy));
    }
  }

  llvm::SmallVector<disc_output, 4> outputs(size_t(model->info().num_outputs), disc_output{nullptr, nullptr});
  rt::Status status;
  {
    GilRelease release;
    status = model->run(pointers.data(), count, outputs.data(), outputs.size(), stream);
  }
  if (!status.ok())
    raiseRuntimeError(status.error());

  nb::object result = nb::steal(PyTuple_New(Py_ssize_t(outputs.size())));
  for (size_t i = 0; i < outputs.size(); ++i) {
    PyObject *object = tensors.wrap(outputs[i].managed);
    if (!object) {
      for (size_t j = i; j < outputs.size(); ++j)
        outputs[j].managed->deleter(outputs[j].managed);
      throw nb::python_error();
    }
    PyTuple_SET_ITEM(result.ptr(), Py_ssize_t(i), object);
  }
  return nb::borrow<nb::tuple>(result);
}

static nb::list tensorInfo(int64_t count, const disc_tensor_info *list) {
  nb::list result;
  for (int64_t i = 0; i < count; ++i) {
    nb::list dims;
    for (int64_t j = 0; j < list[i].rank; ++j)
      dims.append(list[i].dims[j].text);
    result.append(nb::make_tuple(list[i].name, rt::dtypeName(list[i].dtype).c_str(), nb::tuple(dims)));
  }
  return result;
}

nb::dict Executable::info() const {
  const disc_model_info_t &info = model->info();
  nb::dict result;
  result["inputs"] = tensorInfo(info.num_inputs, info.inputs);
  result["outputs"] = tensorInfo(info.num_outputs, info.outputs);
  nb::list symbols, parameters, kept;
  for (int64_t i = 0; i < info.num_symbols; ++i) {
    const disc_symbol_info &symbol = info.symbols[i];
    nb::object max = symbol.max == DISC_UNBOUNDED ? nb::none() : nb::object(nb::int_(symbol.max));
    symbols.append(nb::make_tuple(symbol.name, symbol.min, max));
  }
  for (int64_t i = 0; i < info.num_parameters; ++i)
    parameters.append(info.parameters[i].name);
  for (int64_t i = 0; i < info.num_parameters; ++i)
    if (info.parameters[i].kept)
      kept.append(info.parameters[i].name);
  result["symbols"] = symbols;
  result["parameters"] = parameters;
  result["kept"] = kept;
  return result;
}

nb::list Executable::globals(nb::handle self) const {
  nb::list result;
  std::shared_ptr<rt::Weights> weights = model->weights();
  for (const rt::Weights::Global &global : weights->globals) {
    size_t shape[] = {global.bytes};
    if (rt::Device *device = model->device()) {
      rt::DeviceScope scope(device);
      auto bytes = std::make_unique<uint8_t[]>(global.bytes);
      if (rt::Status status = device->read(bytes.get(), global.data, global.bytes, nullptr); !status.ok())
        raiseRuntimeError(status.error());
      nb::capsule owner(bytes.get(), [](void *data) noexcept { delete[] static_cast<uint8_t *>(data); });
      result.append(nb::cast(nb::ndarray<nb::numpy, const uint8_t>(bytes.release(), 1, shape, owner)));
      continue;
    }
    result.append(nb::cast(nb::ndarray<nb::numpy, const uint8_t>(global.data, 1, shape, self)));
  }
  return result;
}

nb::dict Executable::deviceCounters() const {
  nb::dict result;
  if (const rt::Device *device = model->device()) {
    const rt::DeviceCounters &counters = device->counters;
    result["launches"] = counters.launches.load();
    result["copies"] = counters.copies.load();
    result["synchronizations"] = counters.synchronizations.load();
    result["waits"] = counters.waits.load();
    result["allocations"] = counters.allocations.load();
    result["releases"] = counters.releases.load();
  }
  return result;
}

nb::dict Executable::times() const {
  nb::dict result;
  result["translate"] = codegenTimes.translate;
  result["optimize"] = codegenTimes.optimize;
  result["emit"] = codegenTimes.emit;
  return result;
}

void Executable::startProfile() {
  if (rt::Status status = model->startProfile(); !status.ok())
    raiseRuntimeError(status.error());
}

nb::list Executable::stopProfile() {
  const disc_model_info_t &info = model->info();
  nb::list result;
  std::vector<rt::LaunchRecord> launches;
  if (rt::Status status = model->stopProfile(launches); !status.ok())
    raiseRuntimeError(status.error());
  for (const rt::LaunchRecord &launch : launches) {
    const disc_kernel_info *kernel =
        std::find_if(info.kernels, info.kernels + info.num_kernels, [&](const disc_kernel_info &candidate) {
          return launch.name ? std::strcmp(candidate.name, launch.name) == 0
                             : candidate.function == reinterpret_cast<const void *>(launch.kernel);
        });
    bool known = kernel != info.kernels + info.num_kernels;
    const char *name = known ? kernel->name : launch.name ? launch.name : "";
    result.append(nb::make_tuple(name,
                                 launch.isLibrary ? "library"
                                 : known          ? kernel->kind
                                                  : "",
                                 known ? kernel->source : "", launch.beginNs, launch.endNs, launch.tasks));
  }
  return result;
}

using ModuleHandle = nb::handle_t<Module>;

static std::unique_ptr<Executable> load(ModuleHandle self, nb::type_object type, unsigned threads, int32_t device,
                                        const CodegenOptions &options, const JitOptions &jitOptions) {
  struct Outcome {
    CodegenTimes times;
    std::unique_ptr<Jit> code;
    std::string message;
  };
  auto outcome = std::make_shared<Outcome>();
  auto &module = nb::cast<Module &>(self);
  runInterruptibly(nb::borrow(self), [=, &module](const std::atomic<bool> &cancelled) {
    CodegenOptions own = options;
    own.cancelled = &cancelled;
    llvm::Expected<ObjectCode> objects = generateCode(*module.op, own, &outcome->times);
    if (!objects) {
      outcome->message = llvm::toString(objects.takeError());
    } else if (auto linked = Jit::create(std::move(*objects), jitOptions)) {
      outcome->code = std::move(*linked);
    } else {
      outcome->message = llvm::toString(linked.takeError());
    }
  });
  if (!outcome->code)
    raise(PyExc_RuntimeError, outcome->message);
  return std::make_unique<Executable>(std::move(outcome->code), outcome->times, std::move(type), threads, device);
}

static std::unique_ptr<Executable> jit(ModuleHandle module, nb::type_object type, unsigned threads, bool profile,
                                       int optLevel, const std::string &dumpPrefix, int32_t device,
                                       const std::string &cacheFolder, uint64_t cacheLimit) {
  if (llvm::StringRef machine = getHostTarget(*nb::cast<Module &>(module).op).machine();
      machine != HostTarget::ownMachine())
    raise(PyExc_ValueError,
          "code for " + machine.str() + " can't run in this process: disc.aot_compile makes a library of it");
  CodegenOptions options;
  options.optLevel = optLevel;
  options.dumpPrefix = dumpPrefix;
  options.cacheFolder = cacheFolder;
  options.cacheLimit = cacheLimit;
  JitOptions jitOptions;
  jitOptions.perfMap = profile;
  return load(module, std::move(type), threads, device, options, jitOptions);
}

static std::unique_ptr<Executable> loadInit(ModuleHandle module, nb::type_object type) {
  CodegenOptions options;
  options.initOnly = true;
  return load(module, std::move(type), /*threads=*/0, /*device=*/0, options, JitOptions());
}

void disc::py::bindExecutable(nb::module_ &m) {
  nb::class_<Executable>(m, "Executable", "Compiled code, loaded.")
      .def("init", &Executable::init, nb::arg("parameters"),
           "Binds the parameters, in the order of info()['parameters'], and does "
           "the work that depends on them alone. Once.")
      .def(
          "run",
          [](nb::handle_t<Executable> self, nb::handle inputs) {
            return nb::inst_ptr<Executable>(self)->run(self, inputs);
          },
          nb::arg("inputs"), "Runs the model on a tuple of tensors; thread-safe.")
      .def("watch", &Executable::watch, nb::arg("versions"), nb::arg("storages"), nb::arg("places"), nb::arg("changed"),
           "Pairs of an address and the word (of 32 bits, or a pointer) that is stored there now; and weak references "
           "to objects, with the keys that lead from their attributes to a value, and that value. Before a run that "
           "finds another word or value, `changed` is called with this object; it must keep the memory alive.")
      .def("info", &Executable::info,
           "Inputs and outputs (name, dtype, dims), symbols (name, min, max), "
           "parameter names, and which of those are read after init().")
      .def(
          "globals", [](nb::handle_t<Executable> self) { return nb::cast<Executable &>(self).globals(self); },
          "What init() computed: the bytes of each global, as numpy arrays that keep this object alive.")
      .def("times", &Executable::times, "Seconds of code generation, by step.")
      .def("seed", &Executable::seed, nb::arg("seed"), "What random numbers follow from.")
      .def("start_profile", &Executable::startProfile, "Records every launch from here on.")
      .def("stop_profile", &Executable::stopProfile,
           "The launches since start_profile: kernel, kind, source, begin and end in ns, tasks.")
      .def("device_counters", &Executable::deviceCounters,
           "How often the device was asked to launch, copy, ..., by all models of the process; empty on the CPU.")
      .def_prop_ro("device", &Executable::device, "Where tensors must be: \"cpu\", \"cuda:0\", ...")
      .def_prop_ro("threads", &Executable::threads, "Threads that a call may use.");
  m.def("load_init", &loadInit, nb::arg("module"), nb::arg("tensor_type"),
        "Loads what lays out the weights of a module, in the LLVM dialect, for whatever target; it can't run().");
  m.def("jit", &jit, nb::arg("module"), nb::arg("tensor_type"), nb::kw_only(), nb::arg("threads") = 0,
        nb::arg("profile") = false, nb::arg("opt_level") = 3, nb::arg("dump_prefix") = "", nb::arg("device") = 0,
        nb::arg("cache_folder") = "", nb::arg("cache_limit") = 0,
        "Compiles a module that is in the LLVM dialect and loads it. `threads` = 0 "
        "means every core; `device` is the number of the device that the module is for. Objects are looked up in "
        "`cache_folder` first and stored there, unless it is empty.");
}
