//===- Weights.cpp - what a model reads beside its inputs -----------------===//

#include "lib/Runtime/Core/Weights.h"
#include "lib/Runtime/Core/Guarded.h"
#include "lib/Runtime/Core/Hash.h"
#include "lib/Runtime/Core/Tensor.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>
#include <pthread.h>

namespace disc::rt {

static void release(DLManagedTensorVersioned *tensor) {
  if (tensor && tensor->deleter)
    tensor->deleter(tensor);
}

Weights::Weights(const disc_model_info_t &info, const Allocator &host, Device *device, Stream stream)
    : memory(device), info(info) {
  memory.stream = stream;
  const Allocator &allocator = device ? memory.allocator() : host;
  parameters.resize(size_t(info.num_parameters));
  for (int64_t i = 0; i < info.num_parameters; ++i) {
    copies.emplace_back(allocator);
    hasState |= info.parameters[i].updated != 0;
  }
  for (int64_t i = 0; i < info.num_globals; ++i)
    globals.emplace_back(allocator);
  // A caller that allocates itself wants to see each block.
  pooled = !device && !host.allocateFn;
}

Weights::~Weights() {
  DeviceScope scope(memory.device);
  // Calls whose work is still in a stream use them.
  if (memory.device)
    (void)memory.device->synchronizeAll();
  for (size_t i = 0; i < regions.size(); ++i)
    if (const disc_backend_table *table = info.regions[i].table; table->release)
      table->release(regions[i]);
  copies.clear();
  globals.clear();
  written.reset();
  for (DLManagedTensorVersioned *tensor : owned)
    release(tensor);
}

void *Weights::allocate(size_t index, size_t bytes, bool apart) {
  if (pooled && !region.isOpen()) {
    // What init makes of parameters takes about as much memory as they do.
    int64_t expected = 0, size = 0;
    for (int64_t i = 0; i < info.num_parameters; ++i)
      if (const disc_parameter_info &p = info.parameters[i]; denseBytes(p.shape, p.rank, elementBytes(p.dtype), size))
        expected += std::min<int64_t>(size, PTRDIFF_MAX / 4 - expected);
    pooled = region.open(size_t(expected));
  }
  void *data = pooled && !apart ? region.take(bytes) : nullptr;
  return data ? data : globals[index].own.reserve(bytes);
}

bool sameStorage(int64_t a, int64_t b) {
  auto isInteger = [](int64_t dtype) { return dtype >> 8 <= 1; };
  return a == b || (isInteger(a) && isInteger(b) && (a & 0xff) == (b & 0xff));
}

Status Weights::noMemory(const std::string &what) const {
  if (memory.failure.ok())
    return Status(Code::Memory, "no memory for " + what);
  return Status(memory.failure.code(), "no memory for " + what + " (" + memory.failure.error().message + ")");
}

Status Weights::fill(Buffer &buffer, const void *data, size_t bytes, const std::string &what) {
  if (!buffer.reserve(bytes))
    return noMemory(what);
  if (memory.device)
    return memory.device->copyIn(buffer.data(), data, bytes, memory.stream);
  if (bytes)
    std::memcpy(buffer.data(), data, bytes);
  return Status();
}

void Weights::lend() {
  for (size_t i = 0; memory.device && i < parameters.size(); ++i) {
    const disc_parameter_info &parameter = info.parameters[i];
    int64_t bytes = 0;
    if (parameters[i] && denseBytes(parameter.shape, parameter.rank, elementBytes(parameter.dtype), bytes))
      memory.device->lend(parameters[i], size_t(bytes));
  }
}

//===-- From tensors ------------------------------------------------------===//

Status Weights::takeOne(size_t index, DLManagedTensorVersioned *managed) {
  const disc_parameter_info &expected = info.parameters[index];
  const DLTensor &tensor = managed->dl_tensor;
  std::string name = "parameter '" + std::string(expected.name) + "'";
  if (!sameStorage(dtypeOf(tensor), expected.dtype))
    return Status(Code::Type, name + ": expected " + dtypeName(expected.dtype) + ", got " + dtypeName(tensor));
  DLDevice where = memory.device ? memory.device->where : DLDevice{kDLCPU, 0};
  bool isHere = sameDevice(tensor.device, where);
  if (!isHere && tensor.device.device_type != kDLCPU)
    return Status(Code::Type,
                  name + ": expected a tensor on " + deviceName(where) + ", got " + deviceName(tensor.device));
  if (tensor.ndim != expected.rank || !std::equal(tensor.shape, tensor.shape + tensor.ndim, expected.shape))
    return Status(Code::Shape, name + ": expected shape " + shapeText(expected.shape, expected.rank) + ", got " +
                                   shapeText(tensor.shape, tensor.ndim));
  void *data = dataOf(tensor);
  // A copy would be updated in its place.
  if (expected.updated && (!isHere || !isContiguous(tensor)))
    return Status(Code::Invalid, name + " is updated by the model, so it must be contiguous" +
                                     (isHere ? "" : " and on " + deviceName(where)));
  if (isHere && isApart() && !inPlace(tensor))
    return Status(Code::Invalid, name + ": on " + deviceName(where) + " it must be contiguous and aligned");
  int64_t bytes = 0;
  (void)denseBytes(expected.shape, expected.rank, elementBytes(expected.dtype), bytes);
  if (!isHere) {
    Buffer dense;
    void *from = isContiguous(tensor) ? data : dense.reserve(memorySize(bytes));
    if (!from && bytes)
      return Status(Code::Memory, "no memory for a copy of " + name);
    if (from != data)
      copyContiguous(tensor, from);
    if (Status status = fill(copies[index], from, size_t(bytes), "a copy of " + name); !status.ok())
      return status;
    data = copies[index].data();
    release(std::exchange(owned[index], nullptr));
  } else if (!suitsKernels(data, where)) {
    if (expected.updated)
      return Status(Code::Invalid, name + " is updated by the model, so it must begin at a multiple of 16 bytes");
    void *copy = copies[index].reserve(memorySize(bytes));
    if (!copy)
      return noMemory("a copy of " + name);
    if (Status status = memory.device->copy(copy, data, size_t(bytes), memory.stream); !status.ok())
      return status;
    data = copy;
  } else if (!isContiguous(tensor) || !data) {
    data = copies[index].reserve(memorySize(bytes));
    if (!data)
      return noMemory("a copy of " + name);
    copyContiguous(tensor, data);
  }
  parameters[index] = data;
  return Status();
}

Status Weights::take(DLManagedTensorVersioned *const *tensors, size_t count) {
  if (!attempt([&] { owned.assign(tensors, tensors + count); })) {
    std::for_each(tensors, tensors + count, release);
    throw std::bad_alloc();
  }
  if (count != size_t(info.num_parameters))
    return Status(Code::Invalid,
                  "expected " + std::to_string(info.num_parameters) + " parameters, got " + std::to_string(count));
  for (size_t i = 0; i < count; ++i)
    if (Status status = takeOne(i, tensors[i]); !status.ok())
      return status;
  lend();
  return Status();
}

Status Weights::restore(DLManagedTensorVersioned *const *tensors, size_t count, DLManagedTensorVersioned *const *packed,
                        size_t numPacked) {
  bool taken = attempt([&] {
    owned.assign(tensors, tensors + count);
    owned.insert(owned.end(), packed, packed + numPacked);
  });
  if (!taken) {
    std::for_each(tensors, tensors + count, release);
    std::for_each(packed, packed + numPacked, release);
    throw std::bad_alloc();
  }
  if (count != size_t(info.num_parameters) || numPacked != size_t(info.num_globals))
    return Status(Code::Invalid, "expected " + std::to_string(info.num_parameters) + " parameters and " +
                                     std::to_string(info.num_globals) + " packed weights, got " +
                                     std::to_string(count) + " and " + std::to_string(numPacked));
  for (size_t i = 0; i < count; ++i) {
    if (!tensors[i] && info.parameters[i].kept)
      return Status(Code::Invalid, "parameter '" + std::string(info.parameters[i].name) + "' is missing");
    if (tensors[i])
      if (Status status = takeOne(i, tensors[i]); !status.ok())
        return status;
  }
  for (size_t i = 0; i < numPacked; ++i) {
    const DLTensor &tensor = packed[i]->dl_tensor;
    if (dtypeOf(tensor) != DISC_U8 || tensor.ndim != 1 || tensor.device.device_type != kDLCPU || !isContiguous(tensor))
      return Status(Code::Type, "packed weights " + std::to_string(i) + ": expected bytes on the CPU");
    void *data = dataOf(tensor);
    globals[i].bytes = size_t(tensor.shape[0]);
    if (!isApart() && data && reinterpret_cast<uintptr_t>(data) % kAlignment == 0) {
      globals[i].data = data;
      continue;
    }
    if (Status status = fill(globals[i].own, data, globals[i].bytes, "packed weights"); !status.ok())
      return status;
    globals[i].data = globals[i].own.data();
  }
  lend();
  return Status();
}

Status Weights::startRegions() {
  regions.reserve(size_t(info.num_regions));
  for (int64_t i = 0; i < info.num_regions; ++i) {
    const disc_region_info &region = info.regions[i];
    const disc_backend_table &table = *region.table;
    std::string name = "back end '" + std::string(region.backend) + "', " + region.name;
    if (table.version != DISC_BACKEND_VERSION || table.size < sizeof(disc_backend_table))
      return Status(Code::Version, name + ": its table of functions has version " + std::to_string(table.version) +
                                       " and " + std::to_string(table.size) + " bytes, expected version " +
                                       std::to_string(DISC_BACKEND_VERSION) + " and at least " +
                                       std::to_string(sizeof(disc_backend_table)) + " bytes");
    if (isApart() && region.num_constants)
      return Status(Code::Device, name + ": constants are on the host, the model's weights on a device");
    std::vector<disc_view> constants;
    std::vector<std::vector<int64_t>> strides(static_cast<size_t>(region.num_constants));
    for (int64_t c = 0; c < region.num_constants; ++c) {
      const disc_parameter_info &parameter = info.parameters[region.constants[c]];
      std::vector<int64_t> &steps = strides[size_t(c)];
      steps.resize(size_t(parameter.rank));
      int64_t step = 1;
      for (int64_t d = parameter.rank; d-- > 0; step *= parameter.shape[d])
        steps[size_t(d)] = step;
      constants.push_back(
          {parameters[size_t(region.constants[c])], parameter.dtype, parameter.rank, parameter.shape, steps.data()});
    }
    char error[1024] = "";
    disc_backend_init init{sizeof(init), region.description, constants.data(), region.num_constants,
                           error,        sizeof(error)};
    void *state = nullptr;
    if (table.init)
      if (int32_t code = table.init(&init, &state)) {
        error[sizeof(error) - 1] = 0;
        return Status(Code::Invalid,
                      name + ": init failed: " + (*error ? std::string(error) : "it returned " + std::to_string(code)));
      }
    regions.push_back(state);
  }
  return Status();
}

void Weights::initialised() {
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (info.parameters[i].kept)
      continue;
    if (i < owned.size()) {
      release(owned[i]);
      owned[i] = nullptr;
    }
    copies[i].release();
    parameters[i] = nullptr;
  }
  for (auto [data, bytes] : onlyForInit)
    mapping->letGo(data, bytes);
  onlyForInit.clear();
  memory.stream = nullptr; // the caller's may be gone when they are
}

Status Weights::reset() {
  std::lock_guard<Mutex> turn(updating);
  (void)updating.takeAbandoned();
  Device *device = memory.device;
  DeviceScope scope(device);
  if (!scope.status().ok())
    return scope.status();
  if (device && !states.empty()) // runs in any stream come before
    if (Status status = device->synchronizeAll(); !status.ok())
      return status;
  for (const State &state : states) {
    if (!device && state.bytes)
      std::memcpy(state.data, state.first, state.bytes);
    if (device)
      if (Status status = device->copyIn(state.data, state.first, state.bytes, memory.stream); !status.ok())
        return status;
  }
  return device && !states.empty() ? device->synchronize(memory.stream) : Status();
}

//===-- From a file -------------------------------------------------------===//

namespace {
/// What is wrong with a file, as far as it is worth telling.
class Problems {
public:
  void add(const std::string &text) {
    if (count++ < kTold)
      told += (told.empty() ? "" : "; ") + text;
  }
  Status status(const std::string &file) const {
    if (count == 0)
      return Status();
    std::string text = file + ": " + told;
    if (count > kTold)
      text += "; and " + std::to_string(count - kTold) + " more";
    return Status(Code::Weights, text);
  }

private:
  static constexpr size_t kTold = 5;
  size_t count = 0;
  std::string told;
};

/// A tensor that was found and is to be compared with its recorded hash.
struct Comparison {
  const StoredTensor *tensor;
  const disc_stored_tensor *recorded;
  bool equal = false;
};

/// Shared by the threads that hash.
struct Hashing {
  std::vector<Comparison> list;
  const StoredFile *mapping = nullptr;
  std::atomic<size_t> next{0};

  void work() {
    for (size_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < list.size();) {
      if (mapping)
        mapping->prefetch(list[i].tensor->data, list[i].tensor->bytes);
      Hash128 hash = hash128(list[i].tensor->data, list[i].tensor->bytes);
      list[i].equal = hash == Hash128{list[i].recorded->hash_low, list[i].recorded->hash_high};
    }
  }
  static void *main(void *self) {
    static_cast<Hashing *>(self)->work();
    return nullptr;
  }
  void run(unsigned threads) {
    // Large ones first: a small one at the end fills the gap.
    std::sort(list.begin(), list.end(),
              [](const Comparison &a, const Comparison &b) { return a.tensor->bytes > b.tensor->bytes; });
    pthread_t helper;
    // Memory is what limits it, so more than two hardly help; without the second it takes longer, no more.
    bool helped = threads > 1 && list.size() > 1 && pthread_create(&helper, nullptr, main, this) == 0;
    work();
    if (helped)
      pthread_join(helper, nullptr);
  }
};
} // namespace

static std::string tensorText(int64_t dtype, const int64_t *shape, int64_t rank) {
  return dtypeName(dtype) + " " + shapeText(shape, rank);
}

static std::string tensorText(const StoredTensor &tensor) {
  return tensorText(tensor.dtype, tensor.shape.data(), int64_t(tensor.shape.size()));
}

Status Weights::bind(const Safetensors &file, std::shared_ptr<StoredFile> stored, const Binding &binding) {
  mapping = std::move(stored);
  Problems problems;
  Hashing hashing;
  std::vector<const disc_stored_tensor *> recorded;
  if (binding.compare) {
    for (int64_t i = 0; i < binding.library->num_tensors; ++i)
      recorded.push_back(&binding.library->tensors[i]);
    std::sort(recorded.begin(), recorded.end(), [](const disc_stored_tensor *a, const disc_stored_tensor *b) {
      return std::strcmp(a->name, b->name) < 0;
    });
  }
  auto compareLater = [&](const StoredTensor &tensor) {
    if (!binding.compare)
      return;
    auto found = std::lower_bound(recorded.begin(), recorded.end(), tensor.name,
                                  [](const disc_stored_tensor *a, const std::string &name) { return a->name < name; });
    if (found == recorded.end() || tensor.name != (*found)->name)
      problems.add("the library records no hash of '" + printable(tensor.name) + "'");
    else
      hashing.list.push_back({&tensor, *found});
  };
  // Compiled code counts on elements at multiples of their size, and on globals as we would allocate them.
  auto place = [&](const StoredTensor &tensor, size_t alignment, Buffer &copy, void *&data) {
    data = const_cast<unsigned char *>(tensor.data);
    if (!isApart() && tensor.bytes && reinterpret_cast<uintptr_t>(tensor.data) % alignment == 0)
      return Status();
    Status status = fill(copy, tensor.data, tensor.bytes, "a copy of '" + printable(tensor.name) + "'");
    data = copy.data();
    return status;
  };

  for (int64_t i = 0; i < info.num_parameters; ++i) {
    const disc_parameter_info &expected = info.parameters[i];
    const StoredTensor *tensor = file.find(expected.name);
    if (!tensor) {
      if (expected.kept || !binding.packed)
        problems.add("there is no '" + std::string(expected.name) + "'");
      continue;
    }
    if (!sameStorage(tensor->dtype, expected.dtype) || int64_t(tensor->shape.size()) != expected.rank ||
        !std::equal(tensor->shape.begin(), tensor->shape.end(), expected.shape)) {
      problems.add("'" + std::string(expected.name) + "': expected " +
                   tensorText(expected.dtype, expected.shape, expected.rank) + ", got " + tensorText(*tensor));
      continue;
    }
    if (binding.packed && !expected.kept)
      continue; // nobody reads it
    compareLater(*tensor);
    if (expected.updated) {
      // Each model has its own.
      parameters[i] = copies[i].reserve(tensor->bytes);
      if (!parameters[i])
        return noMemory("a copy of '" + printable(tensor->name) + "'");
      states.push_back({parameters[i], tensor->data, tensor->bytes});
      continue;
    }
    size_t alignment = size_t(elementBytes(expected.dtype));
    if (Status status = place(*tensor, alignment, copies[i], parameters[i]); !status.ok())
      return status;
    if (mapping && (!expected.kept || isApart()))
      onlyForInit.push_back({const_cast<unsigned char *>(tensor->data), tensor->bytes});
  }
  for (int64_t i = 0; binding.packed && i < info.num_globals; ++i) {
    std::string name = "disc.packed." + std::string(binding.variant->cpu) + "." + std::to_string(i);
    const StoredTensor *tensor = file.find(name);
    if (!tensor) {
      problems.add("there is no '" + name + "'");
      continue;
    }
    if (tensor->dtype != DISC_U8 || tensor->shape.size() != 1) {
      problems.add("'" + name + "': expected bytes, got " + tensorText(*tensor));
      continue;
    }
    compareLater(*tensor);
    globals[i].bytes = tensor->bytes;
    if (Status status = place(*tensor, kAlignment, globals[i].own, globals[i].data); !status.ok())
      return status;
  }
  if (Status status = problems.status(file.name()); !status.ok())
    return status;
  if (Status status = reset(); !status.ok())
    return status;
  lend();
  hashing.mapping = mapping.get();
  hashing.run(binding.threads);
  for (const Comparison &comparison : hashing.list)
    if (!comparison.equal)
      problems.add("'" + printable(comparison.tensor->name) +
                   "' has other contents than the library was compiled with");
  return problems.status(file.name());
}

} // namespace disc::rt
