//===- FaultTest.cpp - every allocation and system call fails once --------===//
//
// A story - load, run, swap the weights, free - is told again and again: the first call of a kind fails, then the
// second, until the story has no such call left. Each failure must be a status with a text; nothing may leak (under
// AddressSanitizer), hang or crash; the failed step must work when it is repeated.
//
//===----------------------------------------------------------------------===//

#include "Check.h"
#include "Faults.h"
#include "HandModel.h"
#include "lib/Runtime/Core/Model.h"
#include "lib/Runtime/Core/Seal.h"
#include "lib/Runtime/Core/Stack.h"
#include "lib/Runtime/Core/ThreadPool.h"
#include "lib/Runtime/Device/Device.h"
#include "lib/Runtime/Device/Emulator.h"
#include "lib/Runtime/Functions/Function.h"

#include <cstdio>
#include <cstring>
#include <functional>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

using namespace disc::test;

namespace {
constexpr Fault kFaults[] = {Fault::New,  Fault::Memory, Fault::Thread, Fault::Map,     Fault::Read,
                             Fault::Open, Fault::Stat,   Fault::Stream, Fault::Library, Fault::Key};

long walked = 0;

/// What a story says of its calls. A tolerated failure changes nothing; any other is a status with a text.
struct Told {
  bool ok = true;
  void call(disc_status status) {
    if (status == DISC_OK)
      return;
    ok = false;
    CHECK(*disc_last_error());
    disc_error error = {};
    error.size = sizeof(error);
    CHECK(disc_last_error_details(&error) == DISC_OK && error.status == status && *error.message);
  }
};

/// Tells the story with the first, second, ... call of each kind failing, then once without.
void walk(const char *name, const std::function<Told()> &story, bool onwards = false) {
  CHECK(story().ok);
  for (Fault fault : kFaults) {
    for (long n = 1;; ++n) {
      bool fired;
      {
        FailAt failing(fault, n, onwards);
        story();
        fired = failing.fired();
      }
      if (!fired)
        break;
      ++walked;
      Told again = story();
      CHECK(again.ok);
      if (!again.ok)
        std::fprintf(stderr, "%s: not usable after %s %ld failed\n", name, kFaultNames[int(fault)], n);
      if (n > 5000) {
        CHECK(!"too many calls");
        break;
      }
    }
  }
}

void release(disc_output &output) {
  faulty([&] { return output.managed->deleter(output.managed), 0; });
  output.managed = nullptr;
}

disc_options twoThreads() {
  disc_options options = disc_default_options();
  options.threads = 3;
  return options;
}

void runScale(Told &told, disc_model *model, float w) {
  Floats x({64, 4}), y({64, 4});
  Longs mask({64, 3});
  const DLTensor *list[] = {&x.tensor, &mask.tensor};
  disc_output given = {&y.tensor, nullptr}, made = {nullptr, nullptr};
  told.call(faulty([&] { return disc_run(model, list, 2, &given, 1); }));
  if (told.ok)
    CHECK(y.data[255] == x.data[255] * w + 2 * w);
  x.setStrides({1, 64}); // copied on the way in
  disc_status status = faulty([&] { return disc_run(model, list, 2, &made, 1); });
  told.call(status);
  CHECK((status == DISC_OK) == (made.managed != nullptr));
  if (made.managed) {
    CHECK(static_cast<float *>(made.managed->dl_tensor.data)[1] == 64 * w + 2 * w);
    release(made);
  }
  int64_t shape[2], *shapes[] = {shape};
  told.call(faulty([&] { return disc_output_shapes(model, list, 2, shapes, 1); }));
  x.shape[1] = 3; // an error whose text is long
  disc_error error = {};
  error.size = sizeof(error);
  disc_status wrong = faulty([&] { return disc_run(model, list, 2, &given, 1); });
  CHECK(wrong == DISC_ERROR_SHAPE || wrong == DISC_ERROR_MEMORY);
  CHECK(disc_last_error_details(&error) == DISC_OK && error.status == wrong && *error.message);
}

Told lifeOf(const std::function<disc_status(const disc_options &, disc_model **)> &open, const std::string &swapped) {
  Told told;
  disc_options options = twoThreads();
  disc_model *model = nullptr;
  disc_status status = faulty([&] { return open(options, &model); });
  told.call(status);
  CHECK((status == DISC_OK) == (model != nullptr));
  if (!model)
    return told;
  runScale(told, model, 3);
  disc_model_spec spec = {};
  spec.size = sizeof(spec);
  told.call(faulty([&] { return disc_describe(model, &spec); }));
  disc_status swap = faulty([&] { return disc_swap_weights(model, swapped.c_str()); });
  told.call(swap);
  Told after;
  runScale(after, model, swap == DISC_OK ? 5 : 3); // the old weights stay if the swap failed
  told.ok &= after.ok;
  told.call(faulty([&] { return disc_reset(model); }));
  CHECK(faulty([&] { return disc_free(model); }) == DISC_OK);
  return told;
}
} // namespace

/// Runs last: tests run in the reverse order of their places.
TEST(faultsWereWalked) {
  if (walked)
    std::printf("%ld faults walked\n", walked);
}

TEST(everyFaultOfALinkedModelIsAStatus) {
  auto library = scaleLibrary(3);
  std::string swapped = temporaryPath("swapped.safetensors");
  writeFile(swapped, scaleWeights(5));
  auto story = [&] {
    return lifeOf([&](const disc_options &o, disc_model **m) { return disc_open(&library->library, &o, m); }, swapped);
  };
  walk("linked", story);
  walk("linked, without memory from there on", story, /*onwards=*/true);
}

TEST(everyFaultOfAWeightsFileIsAStatus) {
  for (bool packed : {false, true}) {
    auto library = scaleLibrary(3, packed, "beside.safetensors");
    std::string path = temporaryPath("beside.safetensors"), swapped = temporaryPath("swapped.safetensors");
    writeFile(path, safetensors(library->data));
    writeFile(swapped, scaleWeights(5));
    walk("weights beside", [&] {
      return lifeOf(
          [&](disc_options o, disc_model **m) {
            o.weights = path.c_str();
            return disc_open(&library->library, &o, m);
          },
          swapped);
    });
  }
}

TEST(everyFaultOfALoadedLibraryIsAStatus) {
  std::string path = temporaryPath("faulty.so"), swapped = temporaryPath("swapped.safetensors");
  writeFile(path, readFile(DISC_TEST_LIBRARY));
  CHECK(disc::rt::sealFile(path).ok());
  writeFile(swapped, scaleWeights(5));
  walk("loaded", [&] {
    return lifeOf([&](const disc_options &o, disc_model **m) { return disc_load(path.c_str(), &o, m); }, swapped);
  });
}

TEST(everyFaultOfDataDependentOutputsIsAStatus) {
  auto library = nonzeroLibrary();
  walk("nonzero", [&] {
    Told told;
    disc_options options = twoThreads();
    disc_model *model = nullptr;
    told.call(faulty([&] { return disc_open(&library->library, &options, &model); }));
    if (!model)
      return told;
    Longs v({50});
    const DLTensor *list[] = {&v.tensor};
    disc_output outputs[] = {{nullptr, nullptr}, {nullptr, nullptr}};
    for (int run = 0; run < 2; ++run) {
      told.call(faulty([&] { return disc_run(model, list, 1, outputs, 2); }));
      for (disc_output &output : outputs)
        if (output.managed)
          release(output);
    }
    CHECK(faulty([&] { return disc_free(model); }) == DISC_OK);
    return told;
  });
}

//===-- Models that do more than call kernels -----------------------------===//

static int32_t recurse(disc_call *call) {
  int64_t mark = 0, first = disc_rt_enter(call, 1, &mark);
  if (first < 0)
    return 1;
  auto *memory = static_cast<int64_t *>(disc_rt_push(call, 1 << 20));
  auto *slot = static_cast<int64_t *>(memory ? disc_rt_slot(call, first, 1000, 0) : nullptr);
  if (!slot)
    return 1;
  *memory = *slot = first;
  int64_t depth = first - (1 << 12);
  int32_t status = depth < 5 ? recurse(call) : 0;
  bool isKept = *memory == first && *slot == first; // CHECK would allocate
  disc_rt_leave(call, first, mark);
  return status ? status : isKept ? 0 : 1;
}

static int32_t recursiveMain(disc_call *call) {
  for (int64_t bytes : {100, 5000, 100000}) {
    auto *slot = static_cast<char *>(disc_rt_slot(call, 0, bytes, 1));
    if (!slot || !disc_rt_arena(call, 3, bytes))
      return 1;
    slot[0] = slot[bytes - 1] = 1;
  }
  return disc_rt_on_stack(call, recurse);
}

/// Block b of 64 threads reverses its numbers by way of shared memory.
static void reverseBlock(disc_thread *thread, void *const *args) {
  static const disc_emulated_site barrier = {"model.py:7", DISC_EMULATED_BARRIER, 0, 0, 0, 0, 0};
  auto *shared = reinterpret_cast<float *>(disc_rt_emulate_shared(thread, int64_t(thread->blockDim) * 4));
  float *row = *static_cast<float *const *>(args[0]) + int64_t(thread->block) * thread->blockDim;
  shared[thread->thread] = row[thread->thread];
  disc_rt_emulate_barrier(thread, &barrier);
  row[thread->thread] = shared[thread->blockDim - 1 - thread->thread];
}

static int32_t emulatedMain(disc_call *call) {
  auto *data = static_cast<float *>(disc_rt_arena(call, 0, 64 * 64 * 4));
  if (!data || !disc_rt_device_errors(call))
    return 1;
  for (int i = 0; i < 64 * 64; ++i)
    data[i] = float(i);
  void *args[] = {data};
  int32_t status = disc_rt_device_launch(call, 0, args, 1, 64);
  return status ? status : data[0] == 63 && data[64 * 64 - 1] == 63 * 64 ? 0 : 1;
}

/// Opens a model without tensors, runs it twice and closes it.
static Told lifeWithoutTensors(const Library &library) {
  Told told;
  disc_options options = twoThreads();
  disc_model *model = nullptr;
  told.call(faulty([&] { return disc_open(&library.library, &options, &model); }));
  for (int run = 0; model && run < 2; ++run)
    told.call(faulty([&] { return disc_run(model, nullptr, 0, nullptr, 0); }));
  (void)disc_free(model);
  return told;
}

TEST(everyFaultOfProceduresIsAStatus) {
  disc_model_info_t info = {};
  info.version = DISC_MODEL_INFO_VERSION;
  Library library(info, nullptr, recursiveMain, nullptr, {});
  walk("procedures", [&] { return lifeWithoutTensors(library); });
  walk("procedures, without memory from there on", [&] { return lifeWithoutTensors(library); }, /*onwards=*/true);
}

TEST(everyFaultOfTheEmulatedDeviceIsAStatus) {
  const disc_device_kernel kernel = {"reverse", 64, 0, reinterpret_cast<const void *>(&reverseBlock), "1"};
  const disc_device_code code = {"emulated", 0, nullptr, 1, &kernel};
  disc_model_info_t info = {};
  info.version = DISC_MODEL_INFO_VERSION;
  info.device = &code;
  Library library(info, nullptr, emulatedMain, nullptr, {});
  walk("emulated", [&] { return lifeWithoutTensors(library); });
}

// The container's share of the cores, as the kernel words it. Linux alone has the file.
TEST(threadsAreAsManyAsTheQuota) {
#ifdef __linux__
  const unsigned all = disc::rt::defaultThreads();
  const struct {
    const char *text;
    unsigned most;
  } table[] = {{"max 100000\n", all},
               {"", all},
               {"-1 100000\n", all},
               {"50000 0\n", all},
               {"100000 100000\n", 1},
               {"50000 100000\n", 1},
               {"150000 100000\n", std::min(all, 2u)}};
  for (const auto &row : table) {
    std::string path = temporaryPath("cpu.max");
    writeFile(path, row.text);
    OpenInstead file(path.c_str());
    // Without a quota as many as before, which may be bounded by the real one.
    CHECK(disc::rt::defaultThreads() == row.most || (row.most == all && disc::rt::defaultThreads() >= all));
  }
  OpenInstead none("/no/such/file");
  CHECK(disc::rt::defaultThreads() >= all);
#endif
}

TEST(everyFaultOfAThreadOfItsOwnIsAStatus) {
  // The thread has no error text yet, so that its first failure is also its first allocation.
  auto library = scaleLibrary(3);
  for (long n = 1; n < 200; ++n) {
    std::thread thread([&] {
      disc_model *model = nullptr;
      disc_status status;
      {
        FailAt failing(Fault::New, n, /*onwards=*/true);
        status = faulty([&] { return disc_open(&library->library, nullptr, &model); });
      }
      CHECK((status == DISC_OK) == (model != nullptr));
      if (status != DISC_OK)
        CHECK(*disc_last_error());
      (void)disc_free(model);
    });
    thread.join();
    ++walked;
  }
}

TEST(everyFaultOfAHostsThreadsIsAStatus) {
  auto library = scaleLibrary(3);
  walk("parallel_for", [&] {
    Told told;
    disc_options options = twoThreads();
    options.parallel_for = [](void *, int64_t count, disc_task_fn task, void *job) {
      for (int64_t i = 0; i < count; ++i)
        task(job, i, i + 1);
    };
    disc_model *model = nullptr;
    told.call(faulty([&] { return disc_open(&library->library, &options, &model); }));
    if (model)
      runScale(told, model, 3);
    (void)disc_free(model);
    return told;
  });
}

TEST(everyFaultInAChildOfForkIsAStatus) {
  auto library = scaleLibrary(3);
  disc_options options = twoThreads();
  disc_model *model = nullptr;
  CHECK(disc_open(&library->library, &options, &model) == DISC_OK);
  for (Fault fault : {Fault::New, Fault::Memory, Fault::Thread})
    for (long n = 1; n < 12; ++n) {
      pid_t child = fork();
      if (child == 0) {
        Told told;
        {
          FailAt failing(fault, n);
          Told failed;
          runScale(failed, model, 3);
        }
        runScale(told, model, 3);
        _exit(told.ok ? 0 : 1);
      }
      int state = 0;
      CHECK(waitpid(child, &state, 0) == child && WIFEXITED(state) && WEXITSTATUS(state) == 0);
      ++walked;
    }
  CHECK(faulty([&] { return disc_free(model); }) == DISC_OK);
}

// Decompositions take their workspaces from malloc.
TEST(everyFaultOfDecompositionsIsAStatus) {
  constexpr int64_t kSize = 80;
  const int64_t matrix[] = {kSize, kSize}, byRow[] = {kSize, 1}, vector[] = {1, kSize}, one = 1;
  std::vector<double> a(kSize * kSize), scratch(8 * kSize * kSize), square = a, right = a, row(kSize);
  std::vector<int32_t> pivots(kSize), info(1);
  for (int64_t i = 0; i < kSize * kSize; ++i) // symmetric, and more than that
    a[size_t(i)] = i % (kSize + 1) ? 1.0 / double(1 + i / kSize + i % kSize) : kSize;
  auto matrixOf = [&](std::vector<double> &of) -> disc_view { return {of.data(), DISC_F64, 2, matrix, byRow}; };
  disc_view from = matrixOf(a), to = matrixOf(square), other = matrixOf(right);
  disc_view values = {row.data(), DISC_F64, 1, vector + 1, &one}, tau = {row.data(), DISC_F64, 2, vector, byRow};
  disc_view exchanges = {pivots.data(), DISC_I32, 1, vector + 1, &one}, zero = {info.data(), DISC_I32, 0, {}, {}};
  const struct {
    disc_function function;
    std::vector<disc_view> operands;
  } calls[] = {
      {disc_fn_cholesky, {from, to, zero}},
      {disc_fn_solve_triangular, {from, from, to}},
      {disc_fn_geqrf, {from, to, tau}},
      {disc_fn_householder_product, {to, tau, other}},
      {disc_fn_eigh, {from, values, to}},
      {disc_fn_lu_factor, {from, to, exchanges, zero}},
      {disc_fn_lu_solve, {to, exchanges, from, other}},
      {disc_fn_matrix_exp, {from, to}},
  };
  const int64_t config[] = {0, 0};
  for (const auto &call : calls) {
    long n = 1;
    for (bool fired = true; fired; ++n) {
      FailAt failing(Fault::Malloc, n);
      int32_t status =
          faulty([&] { return call.function(nullptr, call.operands.data(), config, 0, 1, scratch.data()); });
      fired = failing.fired();
      CHECK(status == (fired ? DISC_ERROR_MEMORY : DISC_OK));
    }
    walked += n - 2;
  }
}

TEST(everyFaultOfSealingIsAStatus) {
  std::string path = temporaryPath("sealed.so");
  writeFile(path, readFile(DISC_TEST_LIBRARY));
  for (Fault fault : kFaults)
    for (long n = 1; n < 100; ++n) {
      bool fired = true;
      {
        FailAt failing(fault, n);
        if (fault != Fault::New) { // not of the C interface: bad_alloc is for its callers
          disc::rt::Status status = faulty([&] { return disc::rt::sealFile(path); });
          fired = failing.fired();
          if (!status.ok())
            CHECK(!status.error().message.empty());
        }
      }
      if (!fired || fault == Fault::New)
        break;
      ++walked;
      CHECK(disc::rt::sealFile(path).ok());
    }
}

//===-- Files that are cut short ------------------------------------------===//

TEST(filesCutShortWhileTheyAreReadAreErrors) {
  auto library = scaleLibrary(3, false, "cut.safetensors");
  std::string weights = temporaryPath("cut.safetensors"), file = temporaryPath("cut.so");
  disc_options options = disc_default_options();
  options.weights = weights.c_str();
  for (long bytes : {0, 1, 7, 64, 80})
    for (long n = 1;; ++n) {
      writeFile(weights, safetensors(library->data));
      CutAt cut(weights.c_str(), bytes, n);
      disc_model *model = nullptr;
      disc_status status = disc_open(&library->library, &options, &model);
      CHECK(status == (cut.fired() ? DISC_ERROR_FILE : DISC_OK));
      if (status != DISC_OK)
        CHECK_TEXT(disc_last_error(), weights + ": cannot read: it was cut short while it was being read");
      (void)disc_free(model);
      if (!cut.fired())
        break;
      ++walked;
    }
  for (long bytes : {0, 100, 5000})
    for (long n = 1;; ++n) {
      writeFile(file, readFile(DISC_TEST_LIBRARY));
      CHECK(disc::rt::sealFile(file).ok());
      CutAt cut(file.c_str(), bytes, n);
      disc::rt::Status status = disc::rt::sealFile(file);
      if (!cut.fired())
        break;
      ++walked;
      CHECK(!status.ok() && status.code() == disc::rt::Code::File);
      disc_model *model = nullptr;
      CHECK(disc_load(file.c_str(), nullptr, &model) == DISC_ERROR_FILE);
    }
}

TEST(filesMayBeCutShortOnceTheyAreLoaded) {
  for (bool packed : {false, true}) {
    auto library = scaleLibrary(3, packed, "later.safetensors");
    std::string path = temporaryPath("later.safetensors");
    writeFile(path, safetensors(library->data));
    disc_options options = twoThreads();
    options.weights = path.c_str();
    disc_model *model = nullptr;
    CHECK(disc_open(&library->library, &options, &model) == DISC_OK);
    CHECK(truncate(path.c_str(), 0) == 0);
    Told told;
    runScale(told, model, 3);
    CHECK(told.ok && disc_reset(model) == DISC_OK);
    CHECK(disc_swap_weights(model, path.c_str()) == DISC_ERROR_FILE);
    runScale(told, model, 3);
    CHECK(told.ok && disc_free(model) == DISC_OK);
  }
}

TEST(filesOfWeightsMayBeMapped) {
  auto library = scaleLibrary(3, false, "mapped.safetensors");
  std::string path = temporaryPath("mapped.safetensors");
  writeFile(path, safetensors(library->data));
  walk("mapped", [&] {
    return lifeOf(
        [&](disc_options o, disc_model **m) {
          o.weights = path.c_str();
          o.flags = DISC_MAP_FILES;
          return disc_open(&library->library, &o, m);
        },
        [&] {
          std::string swapped = temporaryPath("swapped.safetensors");
          writeFile(swapped, scaleWeights(5));
          return swapped;
        }());
  });
}
