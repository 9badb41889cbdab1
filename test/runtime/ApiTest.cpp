//===- ApiTest.cpp - handles, options, structs and descriptions -----------===//

#include "Check.h"
#include "HandModel.h"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>

using namespace disc::test;

namespace {
/// An allocator that counts; fails from its `limit`-th allocation on.
struct Counting {
  std::mutex mutex;
  std::map<void *, size_t> live;
  int allocations = 0, mistakes = 0, limit = 1 << 30;
  bool misaligned = false;

  static void *allocate(void *context, size_t bytes, size_t alignment) {
    auto &self = *static_cast<Counting *>(context);
    std::lock_guard<std::mutex> lock(self.mutex);
    if (self.allocations++ >= self.limit)
      return nullptr;
    char *data = static_cast<char *>(aligned_alloc(alignment, bytes + (self.misaligned ? alignment : 0)));
    data += self.misaligned ? 8 : 0;
    self.live[data] = bytes;
    return data;
  }
  static void release(void *context, void *data, size_t bytes) {
    auto &self = *static_cast<Counting *>(context);
    std::lock_guard<std::mutex> lock(self.mutex);
    auto found = self.live.find(data);
    self.mistakes += found == self.live.end() || found->second != bytes;
    self.live.erase(data);
    std::free(static_cast<char *>(data) - (self.misaligned ? 8 : 0));
  }
  disc_options options() {
    disc_options result = disc_default_options();
    result.allocate = allocate;
    result.release = release;
    result.allocator_context = this;
    return result;
  }
};

struct Scale {
  explicit Scale(const disc_options *options = nullptr) : library(scaleLibrary(3)) {
    status = disc_open(&library->library, options, &model);
  }
  ~Scale() { disc_free(model); }
  disc_status run(disc_output &y, int64_t b = 4, int64_t s = 8, bool strided = false) {
    Floats x({b, s}), mask({b, 3});
    Longs longs({b, 3});
    if (strided)
      x.setStrides({1, b});
    const DLTensor *list[] = {&x.tensor, &longs.tensor};
    return disc_run(model, list, 2, &y, 1);
  }
  std::unique_ptr<Library> library;
  disc_model *model = nullptr;
  disc_status status;
};
} // namespace

TEST(statusNames) {
  CHECK_TEXT(disc_status_name(DISC_OK), "DISC_OK");
  CHECK_TEXT(disc_status_name(DISC_ERROR_DEVICE), "DISC_ERROR_DEVICE");
  CHECK_TEXT(disc_status_name(DISC_ERROR_CANCELLED), "DISC_ERROR_CANCELLED");
  CHECK_TEXT(disc_status_name(DISC_ERROR_SANITIZER), "DISC_ERROR_SANITIZER");
  CHECK_TEXT(disc_status_name(disc_status(13)), "unknown status");
  CHECK(disc_version() == DISC_VERSION);
}

TEST(freedModelsAreTold) {
  auto library = scaleLibrary(3);
  disc_model *model = nullptr;
  CHECK(disc_open(&library->library, nullptr, &model) == DISC_OK);
  CHECK(disc_free(model) == DISC_OK);
  CHECK(disc_free(nullptr) == DISC_OK);
  CHECK(disc_free(model) == DISC_ERROR_INVALID);
  CHECK_TEXT(disc_last_error(), "the model was freed");
  disc_output y = {};
  disc_model_spec spec = {};
  spec.size = sizeof(spec);
  CHECK(disc_run(model, nullptr, 0, &y, 1) == DISC_ERROR_INVALID);
  CHECK(disc_swap_weights(model, "x") == DISC_ERROR_INVALID);
  CHECK(disc_describe(model, &spec) == DISC_ERROR_INVALID);
  CHECK(disc_output_shapes(model, nullptr, 0, nullptr, 0) == DISC_ERROR_INVALID);
  CHECK_TEXT(disc_last_error(), "the model was freed");
}

TEST(foreignHandlesAreTold) {
  alignas(16) unsigned char zeros[64] = {}, text[64] = "this is not a model, is it?";
  disc_model_spec spec = {};
  spec.size = sizeof(spec);
  for (void *wrong : {static_cast<void *>(zeros), static_cast<void *>(text)}) {
    auto *model = static_cast<disc_model *>(wrong);
    CHECK(disc_describe(model, &spec) == DISC_ERROR_INVALID);
    CHECK_TEXT(disc_last_error(), "not a model: the handle points to something else");
    CHECK(disc_free(model) == DISC_ERROR_INVALID);
  }
  CHECK(disc_describe(nullptr, &spec) == DISC_ERROR_INVALID);
  CHECK_TEXT(disc_last_error(), "the model is null");
}

TEST(openRefusesMisuse) {
  auto library = scaleLibrary(3);
  disc_model *untouched = reinterpret_cast<disc_model *>(16), *model = untouched;
  CHECK(disc_open(&library->library, nullptr, nullptr) == DISC_ERROR_INVALID);
  CHECK(disc_open(nullptr, nullptr, &model) == DISC_ERROR_INVALID);
  auto fails = [&](disc_options options, disc_status code, const char *message) {
    CHECK(disc_open(&library->library, &options, &model) == code);
    CHECK_TEXT(disc_last_error(), message);
    CHECK(model == untouched);
  };
  disc_options options = disc_default_options();
  options.size = 0;
  fails(options, DISC_ERROR_INVALID, "disc_options.size is 0: set it to sizeof(disc_options)");
  options.size = 4097;
  fails(options, DISC_ERROR_INVALID, "disc_options.size is 4097: set it to sizeof(disc_options)");
  options = disc_default_options();
  options.threads = -1;
  fails(options, DISC_ERROR_INVALID, "disc_options.threads is -1");
  options.threads = 1 << 20;
  fails(options, DISC_ERROR_INVALID, "expected at most 1024 threads, got 1048576");
  options = disc_default_options();
  options.flags = 10;
  fails(options, DISC_ERROR_INVALID, "disc_options.flags has bits that mean nothing: 10");
  options = disc_default_options();
  options.allocate = Counting::allocate;
  fails(options, DISC_ERROR_INVALID, "disc_options: allocate and release go together");
  library->library.version = 7;
  fails(disc_default_options(), DISC_ERROR_VERSION,
        "the library's descriptor has version 7, this runtime reads version 1");
  library->library.version = DISC_LIBRARY_VERSION;
  disc_model_info_t info = kScaleInfo;
  info.version = 1;
  library->variant.info = &info;
  CHECK(disc_open(&library->library, nullptr, &model) == DISC_ERROR_VERSION);
  library->variant.info = &kScaleInfo;
  library->variant.features = "avx1024,no-such-thing";
  fails(disc_default_options(), DISC_ERROR_TARGET,
        "model 'hand' has no code for this machine (x86-64): test needs avx1024,no-such-thing");
}

TEST(optionsOfOtherVersions) {
  auto library = scaleLibrary(3);
  disc_model *model = nullptr;
  // Older: only threads. What lies behind its size is not read.
  struct {
    size_t size = 12;
    int32_t threads = 3;
    uint32_t garbage = 0xffffffff;
  } old;
  disc_options storage;
  std::memset(static_cast<void *>(&storage), 0xff, sizeof(storage));
  std::memcpy(static_cast<void *>(&storage), &old, sizeof(old));
  CHECK(disc_open(&library->library, &storage, &model) == DISC_OK);
  disc_model_spec spec = {};
  spec.size = sizeof(spec);
  CHECK(disc_describe(model, &spec) == DISC_OK && spec.threads == 3);
  disc_free(model);
  // Newer: fields that are not known must be 0.
  struct {
    disc_options known = disc_default_options();
    int64_t more = 0;
  } newer;
  newer.known.size = sizeof(newer);
  CHECK(disc_open(&library->library, &newer.known, &model) == DISC_OK);
  disc_free(model);
  newer.more = 1;
  CHECK(disc_open(&library->library, &newer.known, &model) == DISC_ERROR_VERSION);
  CHECK_TEXT(disc_last_error(), "disc_options has fields that are newer than this runtime");
}

TEST(descriptions) {
  Scale scale;
  disc_model_spec model = {};
  model.size = sizeof(model);
  CHECK(disc_describe(scale.model, &model) == DISC_OK);
  CHECK_TEXT(model.name, "hand");
  CHECK_TEXT(model.cpu, "test");
  CHECK(model.size == sizeof(model) && model.version == DISC_VERSION && model.threads >= 1);
  CHECK(model.num_inputs == 2 && model.num_outputs == 1 && model.num_symbols == 2 && model.num_parameters == 1);
  disc_tensor_spec tensor = {};
  tensor.size = sizeof(tensor);
  CHECK(disc_describe_input(scale.model, 1, &tensor) == DISC_OK);
  CHECK_TEXT(tensor.name, "mask");
  CHECK(tensor.dtype.code == kDLInt && tensor.dtype.bits == 64 && tensor.dtype.lanes == 1 && tensor.ndim == 2);
  CHECK_TEXT(tensor.dims[0], "B");
  CHECK(tensor.min[0] == 1 && tensor.max[0] == 64 && tensor.min[1] == 3 && tensor.max[1] == 3);
  CHECK(disc_describe_output(scale.model, 0, &tensor) == DISC_OK);
  CHECK_TEXT(tensor.name, "y");
  CHECK(disc_describe_parameter(scale.model, 0, &tensor) == DISC_OK);
  CHECK_TEXT(tensor.name, "scale");
  CHECK_TEXT(tensor.dims[0], "1");
  disc_symbol_spec symbol = {};
  symbol.size = sizeof(symbol);
  CHECK(disc_describe_symbol(scale.model, 1, &symbol) == DISC_OK);
  CHECK_TEXT(symbol.name, "S");
  CHECK(symbol.min == 2 && symbol.max == 512 && symbol.input == 0 && symbol.dim == 1);

  CHECK(disc_describe_input(scale.model, 2, &tensor) == DISC_ERROR_INVALID);
  CHECK_TEXT(disc_last_error(), "there is no input 2: the model has 2");
  CHECK(disc_describe_output(scale.model, -1, &tensor) == DISC_ERROR_INVALID);
  CHECK(disc_describe_symbol(scale.model, 2, &symbol) == DISC_ERROR_INVALID);
  CHECK(disc_describe_input(scale.model, 0, nullptr) == DISC_ERROR_INVALID);
  CHECK_TEXT(disc_last_error(), "disc_tensor_spec is null");
  tensor.size = 0;
  CHECK(disc_describe_input(scale.model, 0, &tensor) == DISC_ERROR_INVALID);
  CHECK_TEXT(disc_last_error(), "disc_tensor_spec.size is 0: set it to sizeof(disc_tensor_spec)");
  // A caller of an older version gets what fits; one of a newer version gets zeros.
  disc_tensor_spec old;
  std::memset(static_cast<void *>(&old), 0x55, sizeof(old));
  old.size = offsetof(disc_tensor_spec, dtype);
  CHECK(disc_describe_input(scale.model, 0, &old) == DISC_OK);
  CHECK_TEXT(old.name, "x");
  CHECK(old.size == offsetof(disc_tensor_spec, dtype) && old.ndim == 0x55555555);
  struct {
    disc_symbol_spec known;
    int64_t more = 99;
  } newer;
  newer.known.size = sizeof(newer);
  CHECK(disc_describe_symbol(scale.model, 0, &newer.known) == DISC_OK && newer.more == 0);
  disc_error error = {};
  CHECK(disc_last_error_details(&error) == DISC_ERROR_INVALID);
  CHECK(disc_last_error_details(nullptr) == DISC_ERROR_INVALID);
}

TEST(errorsArePerThread) {
  CHECK(disc_open(nullptr, nullptr, nullptr) == DISC_ERROR_INVALID);
  std::string here = disc_last_error(), there = "?";
  std::thread([&] {
    there = disc_last_error();
    disc_error error = {};
    error.size = sizeof(error);
    CHECK(disc_last_error_details(&error) == DISC_OK && error.status == DISC_OK);
    disc_describe(nullptr, nullptr);
  }).join();
  CHECK_TEXT(there, "");
  CHECK_TEXT(disc_last_error(), here);
}

//===-- A runtime in another library --------------------------------------===//

static disc_status foreignError(disc_error *error) {
  error->status = DISC_ERROR_INDEX;
  error->message = "from afar";
  error->input = "there";
  error->dim = 5;
  error->symbol = error->expected = error->got = "";
  return DISC_OK;
}

TEST(callsGoToTheModelsRuntime) {
  static disc_api api = disc_rt_api;
  api.last_error = foreignError;
  api.describe = [](const disc_model *, disc_model_spec *) { return DISC_ERROR_INDEX; };
  struct {
    uint64_t magic;
    const disc_api *api;
  } foreign = {0x6c65646f4d435344, &api};
  disc_model_spec spec = {};
  spec.size = sizeof(spec);
  CHECK(disc_describe(reinterpret_cast<disc_model *>(&foreign), &spec) == DISC_ERROR_INDEX);
  CHECK_TEXT(disc_last_error(), "from afar");
  disc_error error = {};
  error.size = sizeof(error);
  CHECK(disc_last_error_details(&error) == DISC_OK && error.dim == 5 && error.status == DISC_ERROR_INDEX);
  CHECK_TEXT(error.input, "there");
}

// A runtime that is older has no streams, may not know an option, or cannot say what was wrong.
TEST(olderRuntimes) {
  static disc_api api = disc_rt_api;
  struct {
    uint64_t magic;
    const disc_api *api;
  } foreign = {0x6c65646f4d435344, &api};
  auto *model = reinterpret_cast<disc_model *>(&foreign);
  api.run_on = [](disc_model *, void *, const DLTensor *const *, int64_t, disc_output *, int64_t) { return DISC_OK; };
  api.synchronize = [](disc_model *, void *) { return DISC_ERROR_DEVICE; };
  api.last_error = foreignError;
  CHECK(disc_run_on(model, nullptr, nullptr, 0, nullptr, 0) == DISC_OK);
  CHECK(disc_synchronize(model, nullptr) == DISC_ERROR_DEVICE);
  CHECK_TEXT(disc_last_error(), "from afar");
  api.last_error = [](disc_error *) { return DISC_ERROR_INVALID; };
  CHECK(disc_synchronize(model, nullptr) == DISC_ERROR_DEVICE);
  CHECK_TEXT(disc_last_error(), "a library of another version failed");
  float number = 0;
  CHECK(disc_read_state(nullptr, 0, &number, sizeof(number)) == DISC_ERROR_INVALID);
  api.version = 0x000101;
  CHECK(disc_read_state(model, 0, &number, sizeof(number)) == DISC_ERROR_VERSION);
  CHECK_TEXT(disc_last_error(), "the model's library is of a version that cannot read or write state");
  api.version = 0x000101 | int64_t(1) << 32;
  disc_memory_usage usage = {};
  usage.size = sizeof(usage);
  CHECK(disc_set_memory_budget(model, 1000) == DISC_ERROR_VERSION);
  CHECK(disc_memory(model, &usage) == DISC_ERROR_VERSION);
  CHECK_TEXT(disc_last_error(), "the model's library is of a version without memory budgets");
  api.version = 0x000100;
  CHECK(disc_run_on(model, nullptr, nullptr, 0, nullptr, 0) == DISC_ERROR_VERSION);
  CHECK_TEXT(disc_last_error(), "the model's library is of a version without streams");
  CHECK(disc_synchronize(model, nullptr) == DISC_OK);
  CHECK(disc_run_on(nullptr, nullptr, nullptr, 0, nullptr, 0) == DISC_ERROR_INVALID);
  CHECK(disc_synchronize(nullptr, nullptr) == DISC_ERROR_INVALID);

  // disc_options.interrupted is newer than the runtime: the model is opened without.
  static int opened;
  opened = 0;
  api.open = [](const disc_library *, const char *, const disc_options *options, disc_model **) {
    ++opened;
    return options && !options->interrupted ? DISC_OK : DISC_ERROR_VERSION;
  };
  std::unique_ptr<Library> library = scaleLibrary(3);
  library->library.api = &api;
  disc_options options = disc_default_options();
  disc_model *made = nullptr;
  options.interrupted = [](void *) { return 0; };
  CHECK(disc_open(&library->library, &options, &made) == DISC_OK && opened == 2);
  options.interrupted = nullptr;
  CHECK(disc_open(&library->library, &options, &made) == DISC_OK && opened == 3);
  CHECK(disc_open(&library->library, nullptr, &made) == DISC_ERROR_VERSION && opened == 4);
  // Options that this runtime cannot read are not given again.
  options.size = 1;
  options.interrupted = [](void *) { return 0; };
  CHECK(disc_open(&library->library, &options, &made) == DISC_ERROR_VERSION && opened == 5);
  library->library.api = nullptr;
  CHECK(disc_open(&library->library, nullptr, &made) == DISC_ERROR_VERSION && opened == 5);
}

//===-- Allocators --------------------------------------------------------===//

TEST(allocatorServesEverything) {
  Counting counting;
  disc_options options = counting.options();
  disc_output kept = {};
  {
    Scale scale(&options);
    CHECK(scale.status == DISC_OK);
    CHECK(counting.allocations == 1); // the global
    CHECK(scale.run(kept, 4, 8, /*strided=*/true) == DISC_OK);
    CHECK(counting.live.count(kept.managed->dl_tensor.data) == 1);
    disc_output y = {};
    CHECK(scale.run(y, 4, 8, /*strided=*/true) == DISC_OK);
    y.managed->deleter(y.managed);
    int before = counting.allocations;
    for (int i = 0; i < 10; ++i) {
      CHECK(scale.run(y, 4, 8, /*strided=*/true) == DISC_OK);
      y.managed->deleter(y.managed);
    }
    CHECK(counting.allocations == before);
  }
  CHECK(counting.live.size() == 1); // the output that lives on
  kept.managed->deleter(kept.managed);
  CHECK(counting.live.empty() && counting.mistakes == 0);
}

TEST(allocatorMayFail) {
  for (int limit = 0; limit < 8; ++limit) {
    Counting counting;
    counting.limit = limit;
    disc_options options = counting.options();
    {
      Scale scale(&options);
      CHECK(scale.status == (limit ? DISC_OK : DISC_ERROR_MEMORY));
      disc_output y = {};
      if (!scale.model) {
        CHECK_TEXT(disc_last_error(), "no memory for a global of 4 bytes");
      } else if (disc_status status = scale.run(y, 4, 8, /*strided=*/true)) {
        CHECK(status == DISC_ERROR_MEMORY && !y.managed);
        CHECK(std::strncmp(disc_last_error(), "no memory for ", 14) == 0);
        counting.limit = 1 << 30; // and again, with memory
        CHECK(scale.run(y) == DISC_OK);
      } else {
        CHECK(limit >= 4); // scratch of 0 bytes needs none
      }
      if (y.managed)
        y.managed->deleter(y.managed);
    }
    CHECK(counting.live.empty() && counting.mistakes == 0);
  }
}

TEST(allocatorMustAlign) {
  Counting counting;
  counting.misaligned = true;
  disc_options options = counting.options();
  Scale scale(&options);
  CHECK(scale.status == DISC_ERROR_MEMORY);
  CHECK(counting.live.empty());
}

//===-- The caller's threads ----------------------------------------------===//

namespace {
struct Callers {
  std::atomic<int> jobs{0}, ranges{0};
  enum { Serial, Threads, Forgetful, Beyond } mode = Serial;

  static void parallelFor(void *context, int64_t count, disc_task_fn task, void *job) {
    auto &self = *static_cast<Callers *>(context);
    ++self.jobs;
    self.ranges += int(count);
    if (self.mode == Forgetful)
      return task(job, 0, count - 1);
    if (self.mode == Beyond)
      return task(job, 0, count + 1);
    if (self.mode == Serial) {
      for (int64_t i = count; i-- > 0;)
        task(job, i, i + 1);
      return;
    }
    std::vector<std::thread> threads;
    for (int64_t i = 0; i < count; ++i)
      threads.emplace_back(task, job, i, i + 1);
    for (std::thread &thread : threads)
      thread.join();
  }
};
} // namespace

TEST(callersParallelFor) {
  Callers callers;
  disc_options options = disc_default_options();
  options.parallel_for = Callers::parallelFor;
  options.parallel_context = &callers;
  options.threads = 3;
  Scale scale(&options);
  disc_model_spec spec = {};
  spec.size = sizeof(spec);
  CHECK(disc_describe(scale.model, &spec) == DISC_OK && spec.threads == 3);
  auto computes = [&](int64_t b) {
    disc_output y = {};
    if (scale.run(y, b, 8) != DISC_OK)
      return false;
    bool right = true;
    for (int64_t i = 0; i < b * 8; ++i)
      right &= static_cast<float *>(y.managed->dl_tensor.data)[i] == float(i) * 3 + 6;
    y.managed->deleter(y.managed);
    return right;
  };
  for (int64_t b : {1, 2, 5, 64})
    CHECK(computes(b));
  CHECK(callers.jobs == 3 && callers.ranges == 2 + 3 + 3); // one task is not worth a job
  callers.mode = Callers::Threads;
  CHECK(computes(64));
  callers.mode = Callers::Forgetful;
  CHECK(!computes(64));
  CHECK_TEXT(disc_last_error(), "parallel_for must run each of 3 ranges once, but ran 2");
  callers.mode = Callers::Beyond;
  CHECK(!computes(64));
}
