//===- LoadedModel.cpp - a model of a compiled library --------------------===//

#include "lib/Runtime/Core/LoadedModel.h"
#include "lib/Runtime/Core/Cpu.h"
#include "lib/Runtime/Core/Loader.h"
#include "lib/Runtime/Core/Struct.h"

namespace disc::rt {

static Status readOptions(const disc_options *given, disc_options &options) {
  options = disc_default_options();
  if (given)
    if (Status status = readStruct(given, "disc_options", options); !status.ok())
      return status;
  if (options.threads < 0)
    return Status(Code::Invalid, "disc_options.threads is " + std::to_string(options.threads));
  if (options.flags & ~uint32_t(DISC_TRUST_FILES | DISC_MAP_FILES | DISC_FAIL_OVER_BUDGET))
    return Status(Code::Invalid, "disc_options.flags has bits that mean nothing: " + std::to_string(options.flags));
  if (!options.allocate != !options.release)
    return Status(Code::Invalid, "disc_options: allocate and release go together");
  if (options.memory_budget < 0)
    return Status(Code::Invalid, "disc_options.memory_budget is " + std::to_string(options.memory_budget));
  if (options.device < 0)
    return Status(Code::Invalid, "disc_options.device is " + std::to_string(options.device));
  return Status();
}

/// The first variant that runs here; the compiler put the best one first.
static Status chooseVariant(const disc_library &library, const disc_variant *&chosen) {
  std::string missing;
  for (int64_t i = 0; i < library.num_variants; ++i) {
    std::string lacking = missingFeatures(library.variants[i].features);
    if (lacking.empty()) {
      chosen = &library.variants[i];
      return Status();
    }
    missing += (i ? "; " : "") + std::string(library.variants[i].cpu) + " needs " + lacking;
  }
  return Status(Code::Target, "model '" + std::string(library.name) + "' has no code for this machine (" +
                                  machineName() + "): " + (missing.empty() ? "it has none at all" : missing));
}

/// Reads a file of weights; its memory stays for as long as the weights need it.
static Status bindFile(const std::string &path, bool mapped, const Weights::Binding &binding, Weights &weights) {
  std::shared_ptr<StoredFile> stored;
  StoredFile::Access access = mapped ? StoredFile::Access::Map : StoredFile::Access::Copy;
  if (Status status = StoredFile::open(path, access, stored); !status.ok())
    return status;
  Safetensors file;
  if (Status status = Safetensors::read(stored->data(), stored->size(), path, file); !status.ok())
    return status;
  return weights.bind(file, std::move(stored), binding);
}

static Status bindWeights(const disc_library &library, const char *folder, const disc_options &options,
                          Weights::Binding binding, Weights &weights) {
  bool mapped = options.flags & DISC_MAP_FILES;
  if (options.weights)
    return bindFile(options.weights, mapped, binding, weights);
  Safetensors file;
  if (library.weights) {
    // Part of the library: what checks its file checks them.
    binding.compare = false;
    std::string name = "the weights in library '" + std::string(library.name) + "'";
    if (Status status = Safetensors::read(library.weights, size_t(library.weights_bytes), name, file); !status.ok())
      return status;
    return weights.bind(file, nullptr, binding);
  }
  if (!*library.weights_file) // a model without any
    return weights.bind(file, nullptr, binding);
  std::string path = folder ? folder : folderOf(&library);
  return bindFile(path + "/" + library.weights_file, mapped, binding, weights);
}

Status LoadedModel::open(const disc_library &library, const char *folder, const disc_options *given,
                         std::unique_ptr<LoadedModel> &result) {
  if (library.version != DISC_LIBRARY_VERSION)
    return Status(Code::Version, "the library's descriptor has version " + std::to_string(library.version) +
                                     ", this runtime reads version " + std::to_string(DISC_LIBRARY_VERSION));
  disc_options options;
  if (Status status = readOptions(given, options); !status.ok())
    return status;
  const disc_variant *variant = nullptr;
  if (Status status = chooseVariant(library, variant); !status.ok())
    return status;
  ModelOptions modelOptions;
  modelOptions.threads = unsigned(options.threads);
  modelOptions.parallelFor = options.parallel_for;
  modelOptions.parallelContext = options.parallel_context;
  modelOptions.allocator = {options.allocate, options.release, options.allocator_context};
  modelOptions.device = options.device;
  modelOptions.interrupted = options.interrupted;
  modelOptions.interruptedContext = options.interrupted_context;
  modelOptions.memoryBudget = options.memory_budget;
  modelOptions.failsOverBudget = (options.flags & DISC_FAIL_OVER_BUDGET) != 0;
  std::unique_ptr<Model> model;
  if (Status status =
          Model::create({variant->info, variant->init, variant->main, variant->shapes}, modelOptions, model);
      !status.ok())
    return status;

  DeviceScope scope(model->device());
  if (!scope.status().ok())
    return scope.status();
  auto weights = std::make_shared<Weights>(model->info(), model->allocator(), model->device());
  bool packed = variant->packed != 0;
  Weights::Binding binding{&library, variant, packed, !(options.flags & DISC_TRUST_FILES), model->threads()};
  if (Status status = bindWeights(library, folder, options, binding, *weights); !status.ok())
    return status;
  if (Status status = model->adopt(std::move(weights), /*runInit=*/!packed); !status.ok())
    return status;
  const disc_model_info_t &info = model->info();
  result.reset(
      new LoadedModel{library, *variant, std::move(model), Descriptions(info), (options.flags & DISC_MAP_FILES) != 0});
  return Status();
}

Status LoadedModel::swapWeights(const std::string &path) {
  DeviceScope scope(model->device());
  if (!scope.status().ok())
    return scope.status();
  auto weights = std::make_shared<Weights>(model->info(), model->allocator(), model->device());
  Weights::Binding binding{&library, &variant, /*packed=*/false, /*compare=*/false, model->threads()};
  if (Status status = bindFile(path, mapsFiles, binding, *weights); !status.ok())
    return status;
  return model->adopt(std::move(weights), /*runInit=*/true);
}

} // namespace disc::rt
