//===- Executable.cpp - compiled code that Python can call ----------------===//

#include "lib/Runtime/Core/Model.h"
#include "lib/Runtime/Core/Tensor.h"
#include "lib/Target/Driver/CodeCache.h"
#include "lib/Target/Driver/Driver.h"
#include "python/disc/_native/Errors.h"
#include "python/disc/_native/Interruptible.h"
#include "python/disc/_native/Module.h"
#include "python/disc/_runtime/Exchange.h"
#include "python/disc/_runtime/GilRelease.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"
#include <map>
#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
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
  /// What is linked, to be written to a file.
  using Objects = std::vector<std::string>;

  Executable(std::unique_ptr<Jit> jit, Objects objects, CodegenTimes times, nb::type_object type, unsigned threads,
             int32_t device);

  void init(nb::sequence parameters);
  void restore(nb::sequence parameters, nb::sequence packed);
  nb::list kept(nb::handle self) const;
  nb::list objects() const;
  nb::tuple run(nb::handle self, nb::handle inputs);
  void watch(nb::sequence versions, nb::sequence storages, nb::sequence places, nb::object changed);
  nb::dict info() const;
  nb::list globals(nb::handle self) const;
  nb::dict times() const;
  unsigned threads() const { return model->threads(); }
  std::string device() const { return rt::deviceName(model->where()); }
  nb::dict deviceCounters() const;
  void seed(uint64_t seed) { model->seed(seed); }
  void setMemoryBudget(int64_t bytes, bool fail);
  rt::MemoryUsage memory() const { return model->memoryUsage(); }
  void resetMemoryPeak() { model->resetMemoryPeak(); }
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

  /// Each parameter, or null for None.
  std::vector<DLManagedTensorVersioned *> acquire(nb::sequence tensors, const char *what) const;

  std::unique_ptr<Jit> jit;
  Objects linked;
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

Executable::Executable(std::unique_ptr<Jit> code, Objects objects, CodegenTimes times, nb::type_object type,
                       unsigned threads, int32_t device)
    : jit(std::move(code)), linked(std::move(objects)), codegenTimes(times), tensors(std::move(type)) {
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

void Executable::setMemoryBudget(int64_t bytes, bool fail) {
  rt::Status status;
  {
    GilRelease release;
    status = model->setMemoryBudget(bytes);
    if (status.ok())
      model->waitForMemory(!fail);
  }
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

std::vector<DLManagedTensorVersioned *> Executable::acquire(nb::sequence sequence, const char *what) const {
  std::vector<DLManagedTensorVersioned *> owned;
  for (nb::handle entry : sequence) {
    if (entry.is_none()) {
      owned.push_back(nullptr);
      continue;
    }
    DLManagedTensorVersioned *tensor = tensors.isInstance(entry.ptr()) ? tensors.acquire(entry.ptr()) : nullptr;
    if (!tensor) {
      for (DLManagedTensorVersioned *other : owned)
        if (other)
          other->deleter(other);
      if (!PyErr_Occurred())
        raise(PyExc_TypeError, std::string(what) + " must be tensors");
      throw nb::python_error();
    }
    owned.push_back(tensor);
  }
  return owned;
}

void Executable::init(nb::sequence parameters) {
  rt::Stream stream = currentStream();
  for (nb::handle parameter : parameters)
    if (parameter.is_none())
      raise(PyExc_TypeError, "parameters must be tensors");
  std::vector<DLManagedTensorVersioned *> owned = acquire(parameters, "parameters");
  rt::Status status;
  {
    GilRelease release;
    status = model->load(owned.data(), owned.size(), stream);
  }
  if (!status.ok())
    raiseRuntimeError(status.error());
}

void Executable::restore(nb::sequence parameters, nb::sequence packed) {
  rt::Stream stream = currentStream();
  std::vector<DLManagedTensorVersioned *> owned = acquire(parameters, "parameters");
  std::vector<DLManagedTensorVersioned *> globals = acquire(packed, "packed weights");
  rt::Status status;
  {
    GilRelease release;
    status = model->restore(owned.data(), owned.size(), globals.data(), globals.size(), stream);
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

/// Memory of the model's, which lives as long as `owner`; of a device a copy.
static nb::object bytesOf(rt::Device *device, const void *data, size_t size, nb::handle owner) {
  size_t shape[] = {size};
  if (!device)
    return nb::cast(nb::ndarray<nb::numpy, const uint8_t>(data, 1, shape, owner));
  rt::DeviceScope scope(device);
  auto bytes = std::make_unique<uint8_t[]>(size);
  if (rt::Status status = device->read(bytes.get(), data, size, nullptr); !status.ok())
    raiseRuntimeError(status.error());
  nb::capsule copy(bytes.get(), [](void *allocated) noexcept { delete[] static_cast<uint8_t *>(allocated); });
  return nb::cast(nb::ndarray<nb::numpy, const uint8_t>(bytes.release(), 1, shape, copy));
}

nb::list Executable::globals(nb::handle self) const {
  nb::list result;
  std::shared_ptr<rt::Weights> weights = model->weights();
  for (const rt::Weights::Global &global : weights->globals)
    result.append(bytesOf(model->device(), global.data, global.bytes, self));
  return result;
}

nb::list Executable::kept(nb::handle self) const {
  nb::list result;
  const disc_model_info_t &info = model->info();
  std::shared_ptr<rt::Weights> weights = model->weights();
  for (int64_t i = 0; i < info.num_parameters; ++i) {
    const disc_parameter_info &parameter = info.parameters[i];
    int64_t bytes = 0;
    if (!parameter.kept || !rt::denseBytes(parameter.shape, parameter.rank, rt::elementBytes(parameter.dtype), bytes))
      continue;
    nb::list shape;
    for (int64_t d = 0; d < parameter.rank; ++d)
      shape.append(parameter.shape[d]);
    result.append(nb::make_tuple(parameter.name, rt::dtypeName(parameter.dtype), nb::tuple(shape),
                                 bytesOf(model->device(), weights->parameters[size_t(i)], size_t(bytes), self)));
  }
  return result;
}

nb::list Executable::objects() const {
  nb::list result;
  for (const std::string &object : linked)
    result.append(nb::bytes(object.data(), object.size()));
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

namespace {
/// What a thread that may outlive its caller makes.
struct Loading {
  CodegenTimes times;
  Executable::Objects objects;
  std::unique_ptr<Jit> code;
  std::string message;

  void link(ObjectCode code, const JitOptions &options) {
    for (const std::unique_ptr<llvm::MemoryBuffer> &object : code)
      objects.push_back(object->getBuffer().str());
    if (auto linked = Jit::create(std::move(code), options))
      this->code = std::move(*linked);
    else
      message = llvm::toString(linked.takeError());
  }
};
} // namespace

static std::unique_ptr<Executable> load(ModuleHandle self, nb::type_object type, unsigned threads, int32_t device,
                                        const CodegenOptions &options, const JitOptions &jitOptions) {
  auto outcome = std::make_shared<Loading>();
  auto &module = nb::cast<Module &>(self);
  runInterruptibly(nb::borrow(self), [=, &module](const std::atomic<bool> &cancelled) {
    CodegenOptions own = options;
    own.cancelled = &cancelled;
    if (llvm::Expected<ObjectCode> objects = generateCode(*module.op, own, &outcome->times))
      outcome->link(std::move(*objects), jitOptions);
    else
      outcome->message = llvm::toString(objects.takeError());
  });
  if (!outcome->code)
    raise(PyExc_RuntimeError, outcome->message);
  return std::make_unique<Executable>(std::move(outcome->code), std::move(outcome->objects), outcome->times,
                                      std::move(type), threads, device);
}

static std::unique_ptr<Executable> linkObjects(nb::sequence objects, nb::type_object type, unsigned threads,
                                               unsigned symbols, int32_t device) {
  ObjectCode code;
  for (nb::handle object : objects) {
    auto bytes = nb::cast<nb::bytes>(object);
    code.push_back(llvm::MemoryBuffer::getMemBufferCopy(
        llvm::StringRef(static_cast<const char *>(bytes.data()), bytes.size()), "disc." + llvm::Twine(code.size())));
  }
  JitOptions options;
  options.symbols = static_cast<CodeSymbols>(symbols);
  Loading loading;
  {
    GilRelease release;
    loading.link(std::move(code), options);
  }
  if (!loading.code)
    raise(PyExc_RuntimeError, loading.message);
  return std::make_unique<Executable>(std::move(loading.code), std::move(loading.objects), loading.times,
                                      std::move(type), threads, device);
}

/// The objects that are cached under a key; None if there are none.
static nb::object findCached(const std::string &folder, uint64_t limit, const std::string &key) {
  CodeCache::Objects objects;
  {
    GilRelease release;
    objects = CodeCache(folder, limit).find(key);
  }
  if (objects.empty())
    return nb::none();
  nb::list result;
  for (const std::unique_ptr<llvm::MemoryBuffer> &object : objects)
    result.append(nb::bytes(object->getBufferStart(), object->getBufferSize()));
  return result;
}

static void storeCached(const std::string &folder, uint64_t limit, const std::string &key, nb::sequence contents) {
  CodeCache::Objects objects;
  for (nb::handle content : contents) {
    auto bytes = nb::cast<nb::bytes>(content);
    objects.push_back(
        llvm::MemoryBuffer::getMemBufferCopy(llvm::StringRef(static_cast<const char *>(bytes.data()), bytes.size())));
  }
  GilRelease release;
  CodeCache(folder, limit).store(key, objects);
}

static std::unique_ptr<Executable> jit(ModuleHandle module, nb::type_object type, unsigned threads, unsigned symbols,
                                       int optLevel, const std::string &dumpPrefix, int32_t device,
                                       const std::string &cacheFolder, uint64_t cacheLimit,
                                       const std::map<std::string, uint64_t> &addresses, nb::object) {
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
  jitOptions.symbols = static_cast<CodeSymbols>(symbols);
  jitOptions.addresses.assign(addresses.begin(), addresses.end());
  return load(module, std::move(type), threads, device, options, jitOptions);
}

static std::unique_ptr<Executable> loadInit(ModuleHandle module, nb::type_object type,
                                            const std::map<std::string, uint64_t> &addresses, nb::object) {
  CodegenOptions options;
  options.initOnly = true;
  JitOptions jitOptions;
  jitOptions.addresses.assign(addresses.begin(), addresses.end());
  return load(module, std::move(type), /*threads=*/0, /*device=*/0, options, jitOptions);
}

void disc::py::bindExecutable(nb::module_ &m) {
  nb::class_<rt::MemoryUsage>(m, "MemoryUsage", "How much memory a model holds, in bytes, as its budget counts it.")
      .def_ro("budget", &rt::MemoryUsage::budget, "0: none.")
      .def_ro("held", &rt::MemoryUsage::held, "By calls, or kept for later ones.")
      .def_ro("peak", &rt::MemoryUsage::peak, "The most at once since reset_memory_peak().")
      .def_ro("allocations", &rt::MemoryUsage::allocations)
      .def_ro("other_plans", &rt::MemoryUsage::otherPlans, "Calls that used another plan than the first.")
      .def_ro("last_plan", &rt::MemoryUsage::lastPlan, "-1: no call has chosen one.");
  nb::class_<Executable>(m, "Executable", "Compiled code, loaded.")
      .def("init", &Executable::init, nb::arg("parameters"),
           "Binds the parameters, in the order of info()['parameters'], and does "
           "the work that depends on them alone. Once.")
      .def("restore", &Executable::restore, nb::arg("parameters"), nb::arg("packed"),
           "In place of init(): the kept() parameters, in the order of info()['parameters'] and None for the others, "
           "and the globals() of an executable of the same objects().")
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
      .def(
          "kept", [](nb::handle_t<Executable> self) { return nb::cast<Executable &>(self).kept(self); },
          "The parameters that runs read: (name, dtype, shape, bytes as a numpy array that keeps this object alive).")
      .def("objects", &Executable::objects, "The machine code, as ELF objects that link() takes.")
      .def("times", &Executable::times, "Seconds of code generation, by step.")
      .def("seed", &Executable::seed, nb::arg("seed"), "What random numbers follow from.")
      .def(
          "set_memory_budget", &Executable::setMemoryBudget, nb::arg("bytes"), nb::arg("fail") = false,
          "The most bytes that all calls may hold at once; 0: no limit. A call that there is no room for at the moment "
          "waits, or fails with `fail`.")
      .def("memory", &Executable::memory)
      .def("reset_memory_peak", &Executable::resetMemoryPeak)
      .def("start_profile", &Executable::startProfile, "Records every launch from here on.")
      .def("stop_profile", &Executable::stopProfile,
           "The launches since start_profile: kernel, kind, source, begin and end in ns, tasks.")
      .def("device_counters", &Executable::deviceCounters,
           "How often the device was asked to launch, copy, ..., by all models of the process; empty on the CPU.")
      .def_prop_ro("device", &Executable::device, "Where tensors must be: \"cpu\", \"cuda:0\", ...")
      .def_prop_ro("threads", &Executable::threads, "Threads that a call may use.");
  m.def("load_init", &loadInit, nb::arg("module"), nb::arg("tensor_type"), nb::kw_only(),
        nb::arg("addresses") = nb::dict(), nb::arg("owner") = nb::none(), nb::keep_alive<0, 4>(),
        "Loads what lays out the weights of a module, in the LLVM dialect, for whatever target; it can't run(). For "
        "`addresses` and `owner` see jit().");
  m.def("jit", &jit, nb::arg("module"), nb::arg("tensor_type"), nb::kw_only(), nb::arg("threads") = 0,
        nb::arg("symbols") = 0, nb::arg("opt_level") = 3, nb::arg("dump_prefix") = "", nb::arg("device") = 0,
        nb::arg("cache_folder") = "", nb::arg("cache_limit") = 0, nb::arg("addresses") = nb::dict(),
        nb::arg("owner") = nb::none(), nb::keep_alive<0, 11>(),
        "Compiles a module that is in the LLVM dialect and loads it. `threads` = 0 "
        "means every core; `device` is the number of the device that the module is for. Objects are looked up in "
        "`cache_folder` first and stored there, unless it is empty. `addresses`: of symbols that the code refers to, "
        "which `owner` keeps alive.");
  m.def("link", &linkObjects, nb::arg("objects"), nb::arg("tensor_type"), nb::kw_only(), nb::arg("threads") = 0,
        nb::arg("symbols") = 0, nb::arg("device") = 0, "Loads what Executable.objects() returns.");
  m.def("find_cached", &findCached, nb::arg("folder"), nb::arg("limit"), nb::arg("key"),
        "What is stored under a key in a folder of cached code, or None.");
  m.def("store_cached", &storeCached, nb::arg("folder"), nb::arg("limit"), nb::arg("key"), nb::arg("contents"),
        "Stores contents under a key in a folder of cached code, unless they are larger than its limit.");
}
