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
