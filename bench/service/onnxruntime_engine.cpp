//===- onnxruntime_engine.cpp - the model on ONNX Runtime -----------------===//
//
// For the comparison alone. The wheel of ONNX Runtime has its library but not its headers, so this calls the functions
// of its C interface by their places in the table, which are fixed since version 1 of the interface.
//
//===----------------------------------------------------------------------===//

#include "engine.h"

#include <dlfcn.h>

#include <stdexcept>

namespace service {

namespace {

/// Places in OrtApi, the table of functions.
enum Place {
  kGetErrorMessage = 2,
  kCreateEnv = 3,
  kCreateSession = 7,
  kRun = 9,
  kCreateSessionOptions = 10,
  kSetGraphOptimizationLevel = 23,
  kSetIntraOpNumThreads = 24,
  kSetInterOpNumThreads = 25,
  kSessionGetInputName = 36,
  kSessionGetOutputName = 37,
  kCreateTensorWithData = 49,
  kCreateCpuMemoryInfo = 69,
  kGetDefaultAllocator = 78,
  kReleaseEnv = 92,
  kReleaseStatus = 93,
  kReleaseMemoryInfo = 94,
  kReleaseSession = 95,
  kReleaseValue = 96,
  kReleaseSessionOptions = 100,
};

/// Values of its enumerations.
constexpr int kWarning = 2, kAllOptimisations = 99, kDeviceAllocator = 0, kDefaultMemory = 0, kFloat = 1, kInt64 = 7;

struct ApiBase {
  void *const *(*table)(uint32_t version);
  const char *(*version)();
};

class OnnxRuntimeEngine : public Engine {
public:
  explicit OnnxRuntimeEngine(const Options &options) {
    void *library = dlopen(ONNXRUNTIME_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    auto *base = library ? reinterpret_cast<const ApiBase *(*)()>(dlsym(library, "OrtGetApiBase")) : nullptr;
    if (!base)
      throw std::runtime_error(dlerror());
    table_ = base()->table(1);
    name_ = std::string("ONNX Runtime ") + base()->version() + ", threads: " + std::to_string(options.threads);

    check<int, const char *, void **>(kCreateEnv, kWarning, "service", &environment_);
    void *settings = nullptr;
    check<void **>(kCreateSessionOptions, &settings);
    check<void *, int>(kSetIntraOpNumThreads, settings, options.threads);
    check<void *, int>(kSetInterOpNumThreads, settings, 1);
    check<void *, int>(kSetGraphOptimizationLevel, settings, kAllOptimisations);
    check<void *, const char *, void *, void **>(kCreateSession, environment_, options.model.c_str(), settings,
                                                 &session_);
    release(kReleaseSessionOptions, settings);
    check<int, int, void **>(kCreateCpuMemoryInfo, kDeviceAllocator, kDefaultMemory, &memory_);
    void *allocator = nullptr; // Its own, and what it allocates here lives as long as the process.
    check<void **>(kGetDefaultAllocator, &allocator);
    for (size_t i = 0; i < 2; ++i)
      check<void *, size_t, void *, char **>(kSessionGetInputName, session_, i, allocator, &inputs_[i]);
    check<void *, size_t, void *, char **>(kSessionGetOutputName, session_, 0, allocator, &output_);
  }

  ~OnnxRuntimeEngine() override {
    release(kReleaseMemoryInfo, memory_);
    release(kReleaseSession, session_);
    release(kReleaseEnv, environment_);
  }

  OnnxRuntimeEngine(const OnnxRuntimeEngine &) = delete;
  OnnxRuntimeEngine &operator=(const OnnxRuntimeEngine &) = delete;

  std::string name() const override { return name_; }
  // As the model was exported (bench/workloads/minilm.py).
  int64_t dimension() const override { return 384; }
  int64_t maxBatch() const override { return 64; }
  int64_t minLength() const override { return 2; }
  int64_t maxLength() const override { return 512; }

  void run(const int64_t *ids, const int64_t *mask, int64_t batch, int64_t length, float *out) override {
    int64_t inputShape[] = {batch, length}, outputShape[] = {batch, dimension()};
    Values values{*this, {tensor(ids, inputShape, kInt64), tensor(mask, inputShape, kInt64), nullptr}};
    values.of[2] = tensor(out, outputShape, kFloat);
    check<void *, void *, const char *const *, void *const *, size_t, const char *const *, size_t, void **>(
        kRun, session_, nullptr, inputs_, values.of, 2, &output_, 1, &values.of[2]);
  }

private:
  struct Values {
    const OnnxRuntimeEngine &engine;
    void *of[3];
    ~Values() {
      for (void *value : of)
        engine.release(kReleaseValue, value);
    }
  };

  /// Calls a function that returns a status, which is null if all went well.
  template <typename... Arguments> void check(Place place, Arguments... arguments) const {
    void *status = reinterpret_cast<void *(*)(Arguments...)>(table_[place])(arguments...);
    if (!status)
      return;
    std::string text = reinterpret_cast<const char *(*)(void *)>(table_[kGetErrorMessage])(status);
    release(kReleaseStatus, status);
    throw std::runtime_error(text);
  }

  void release(Place place, void *object) const {
    if (object)
      reinterpret_cast<void (*)(void *)>(table_[place])(object);
  }

  void *tensor(const void *data, const int64_t (&shape)[2], int type) const {
    size_t bytes = size_t(shape[0] * shape[1]) * (type == kFloat ? sizeof(float) : sizeof(int64_t));
    void *value = nullptr;
    check<void *, void *, size_t, const int64_t *, size_t, int, void **>(
        kCreateTensorWithData, memory_, const_cast<void *>(data), bytes, shape, 2, type, &value);
    return value;
  }

  void *const *table_ = nullptr;
  std::string name_;
  void *environment_ = nullptr, *session_ = nullptr, *memory_ = nullptr;
  char *inputs_[2] = {}, *output_ = nullptr;
};

} // namespace

std::unique_ptr<Engine> makeEngine(const Engine::Options &options) {
  return std::make_unique<OnnxRuntimeEngine>(options);
}

} // namespace service
