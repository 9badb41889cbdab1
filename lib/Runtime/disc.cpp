//===- disc.cpp - the public C interface ----------------------------------===//
//
// Each function checks the handle and goes on in the runtime that made it, which is this one unless several libraries
// are in the process.
//
//===----------------------------------------------------------------------===//

#include "lib/Runtime/Core/Guarded.h"
#include "lib/Runtime/Core/Handle.h"
#include "lib/Runtime/Core/LastError.h"
#include "lib/Runtime/Core/Loader.h"
#include "lib/Runtime/Core/Struct.h"
#include "lib/Runtime/Device/Device.h"

using namespace disc::rt;

/// `body`, whose allocations may fail.
template <typename Body> static disc_status safely(Body body) { return guarded(body, reportNoMemory); }

static disc_status fail(Code code, const char *what) {
  return safely([&] { return report(Status(code, what)); });
}

static disc_status invalid(const char *what) { return fail(Code::Invalid, what); }

/// What a foreign runtime said becomes what this one says.
static disc_status takeOver(const disc_api *api, disc_status status) {
  if (status == DISC_OK || api == &disc_rt_api)
    return status;
  disc_error from = {};
  from.size = sizeof(from);
  if (api->last_error(&from) != DISC_OK)
    return fail(Code(status), "a library of another version failed");
  return safely([&] {
    Error error;
    error.code = Code(status);
    error.message = from.message;
    error.input = from.input;
    error.dim = from.dim;
    error.symbol = from.symbol;
    error.expected = from.expected;
    error.got = from.got;
    return report(error);
  });
}

/// Null, with an error, unless the handle is a model's.
static const disc_api *apiOf(const disc_model *model) {
  const char *wrong = nullptr;
  if (!model) {
    wrong = "the model is null";
  } else {
    uint64_t magic = model->magic.load(std::memory_order_acquire);
    if (magic == kLiveModel)
      return model->api;
    wrong = magic == kFreedModel ? "the model was freed" : "not a model: the handle points to something else";
  }
  (void)invalid(wrong);
  return nullptr;
}

template <typename Function, typename Model, typename... Args>
static disc_status onModel(Function disc_api::*function, Model *model, Args... args) {
  const disc_api *api = apiOf(model);
  return api ? takeOver(api, (api->*function)(model, args...)) : DISC_ERROR_INVALID;
}

const char *disc_status_name(disc_status status) {
  static const char *const kNames[] = {
      "DISC_OK",           "DISC_ERROR_TYPE",      "DISC_ERROR_SHAPE",    "DISC_ERROR_MEMORY", "DISC_ERROR_INVALID",
      "DISC_ERROR_INDEX",  "DISC_ERROR_FILE",      "DISC_ERROR_VERSION",  "DISC_ERROR_TARGET", "DISC_ERROR_WEIGHTS",
      "DISC_ERROR_DEVICE", "DISC_ERROR_CANCELLED", "DISC_ERROR_SANITIZER"};
  // C programs may pass any number.
  uint32_t number;
  static_assert(sizeof(number) == sizeof(status), "an int");
  std::memcpy(&number, &status, sizeof(number));
  return number < sizeof(kNames) / sizeof(*kNames) ? kNames[number] : "unknown status";
}

const char *disc_last_error(void) { return lastError().message.c_str(); }

disc_status disc_last_error_details(disc_error *error) {
  return safely([&] { return describeLastError(error); });
}

uint32_t disc_version(void) { return DISC_VERSION; }

static disc_status open(const disc_library *library, const char *folder, const disc_options *options,
                        disc_model **model) {
  if (library->version != DISC_LIBRARY_VERSION || !library->api)
    return report(Status(Code::Version, "the library's descriptor has version " + std::to_string(library->version) +
                                            ", this runtime reads version " + std::to_string(DISC_LIBRARY_VERSION)));
  disc_status status = library->api->open(library, folder, options, model);
  disc_options known;
  if (status == DISC_ERROR_VERSION && options && library->api != &disc_rt_api &&
      readStruct(options, "disc_options", known).ok() && known.interrupted) {
    // The library may be older than this field. Its runs cannot be interrupted then.
    known.interrupted = nullptr;
    known.interrupted_context = nullptr;
    status = library->api->open(library, folder, &known, model);
  }
  return takeOver(library->api, status);
}

disc_status disc_open(const disc_library *library, const disc_options *options, disc_model **model) {
  if (!model)
    return invalid("the place for the model is null");
  if (!library)
    return invalid("the library is null");
  return safely([&] { return open(library, nullptr, options, model); });
}

disc_status disc_load(const char *path, const disc_options *options, disc_model **model) {
  if (!model)
    return invalid("the place for the model is null");
  if (!path)
    return invalid("the path is null");
  return safely([&] {
    disc_options read = disc_default_options();
    if (options)
      if (Status status = readStruct(options, "disc_options", read); !status.ok())
        return report(status);
    const disc_library *library = nullptr;
    if (Status status = loadLibrary(path, read.flags & DISC_TRUST_FILES, library); !status.ok())
      return report(status);
    return open(library, folderOfPath(path).c_str(), options, model);
  });
}

disc_status disc_free(disc_model *model) { return model ? onModel(&disc_api::free, model) : DISC_OK; }

disc_status disc_swap_weights(disc_model *model, const char *path) {
  return onModel(&disc_api::swap_weights, model, path);
}

disc_status disc_seed(disc_model *model, uint64_t seed) { return onModel(&disc_api::seed, model, seed); }

disc_status disc_reset(disc_model *model) { return onModel(&disc_api::reset, model); }

disc_status disc_describe(const disc_model *model, disc_model_spec *spec) {
  return onModel(&disc_api::describe, model, spec);
}

disc_status disc_describe_input(const disc_model *model, int64_t index, disc_tensor_spec *spec) {
  return onModel(&disc_api::describe_input, model, index, spec);
}

disc_status disc_describe_output(const disc_model *model, int64_t index, disc_tensor_spec *spec) {
  return onModel(&disc_api::describe_output, model, index, spec);
}

disc_status disc_describe_parameter(const disc_model *model, int64_t index, disc_tensor_spec *spec) {
  return onModel(&disc_api::describe_parameter, model, index, spec);
}

disc_status disc_describe_symbol(const disc_model *model, int64_t index, disc_symbol_spec *spec) {
  return onModel(&disc_api::describe_symbol, model, index, spec);
}

disc_status disc_run(disc_model *model, const DLTensor *const *inputs, int64_t num_inputs, disc_output *outputs,
                     int64_t num_outputs) {
  return onModel(&disc_api::run, model, inputs, num_inputs, outputs, num_outputs);
}

disc_status disc_find_device(const char *kind, int32_t number) {
  if (!kind)
    return invalid("the kind of device is null");
  return safely([&] {
    Device *device = nullptr;
    return kind == std::string("cpu") ? DISC_OK : report(DeviceRegistry::get().find(kind, number, device));
  });
}

/// The first version whose table has the functions about streams.
static constexpr int64_t kStreams = 0x000101;

disc_status disc_run_on(disc_model *model, void *stream, const DLTensor *const *inputs, int64_t num_inputs,
                        disc_output *outputs, int64_t num_outputs) {
  const disc_api *api = apiOf(model);
  if (api && api->version < kStreams)
    return fail(Code::Version, "the model's library is of a version without streams");
  return api ? takeOver(api, api->run_on(model, stream, inputs, num_inputs, outputs, num_outputs)) : DISC_ERROR_INVALID;
}

disc_status disc_synchronize(disc_model *model, void *stream) {
  const disc_api *api = apiOf(model);
  if (api && api->version < kStreams) // nor devices
    return DISC_OK;
  return api ? takeOver(api, api->synchronize(model, stream)) : DISC_ERROR_INVALID;
}

/// `function` of the table, which revisions before this one lack; `lacking` says what those cannot do.
template <typename Function, typename... Args>
static disc_status since(int64_t revision, const char *lacking, Function disc_api::*function, disc_model *model,
                         Args... args) {
  const disc_api *api = apiOf(model);
  if (api && api->version >> 32 < revision)
    return fail(Code::Version, lacking);
  return api ? takeOver(api, (api->*function)(model, args...)) : DISC_ERROR_INVALID;
}

template <typename Function, typename... Args>
static disc_status onState(Function disc_api::*function, disc_model *model, Args... args) {
  return since(1, "the model's library is of a version that cannot read or write state", function, model, args...);
}

template <typename Function, typename... Args>
static disc_status onMemory(Function disc_api::*function, disc_model *model, Args... args) {
  return since(2, "the model's library is of a version without memory budgets", function, model, args...);
}

disc_status disc_set_memory_budget(disc_model *model, int64_t bytes) {
  return onMemory(&disc_api::set_memory_budget, model, bytes);
}

disc_status disc_wait_for_memory(disc_model *model, int32_t waits) {
  return onMemory(&disc_api::wait_for_memory, model, waits);
}

disc_status disc_memory(disc_model *model, disc_memory_usage *usage) {
  return onMemory(&disc_api::memory, model, usage);
}

disc_status disc_reset_memory_peak(disc_model *model) { return onMemory(&disc_api::reset_memory_peak, model); }

disc_status disc_read_state(disc_model *model, int64_t index, void *data, size_t bytes) {
  return onState(&disc_api::read_state, model, index, data, bytes);
}

disc_status disc_write_state(disc_model *model, int64_t index, const void *data, size_t bytes) {
  return onState(&disc_api::write_state, model, index, data, bytes);
}

disc_status disc_save_state(disc_model *model, const char *path) { return onState(&disc_api::save_state, model, path); }

disc_status disc_load_state(disc_model *model, const char *path) { return onState(&disc_api::load_state, model, path); }

disc_status disc_output_shapes(disc_model *model, const DLTensor *const *inputs, int64_t num_inputs,
                               int64_t *const *shapes, int64_t num_outputs) {
  return onModel(&disc_api::output_shapes, model, inputs, num_inputs, shapes, num_outputs);
}
