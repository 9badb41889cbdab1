//===- LoaderTest.cpp - libraries from files ------------------------------===//
//
// DISC_TEST_LIBRARY is LoaderLibrary.cpp, linked with a runtime of its own: calls on its models cross into that one.
//
//===----------------------------------------------------------------------===//

#include "Check.h"
#include "HandModel.h"
#include "lib/Runtime/Core/Seal.h"

#include <atomic>
#include <cstring>
#include <dlfcn.h>
#include <elf.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

using namespace disc::test;

/// A sealed copy of the library, of that name.
static std::string sealedLibrary(const std::string &name) {
  std::string path = temporaryPath(name);
  writeFile(path, readFile(DISC_TEST_LIBRARY));
  disc::rt::Status status = disc::rt::sealFile(path);
  CHECK(status.ok());
  return path;
}

static bool computes(disc_model *model, float w) {
  Floats x({64, 4}), y({64, 4}); // enough rows for several threads
  Longs mask({64, 3});
  const DLTensor *list[] = {&x.tensor, &mask.tensor};
  disc_output output = {&y.tensor, nullptr};
  bool right = disc_run(model, list, 2, &output, 1) == DISC_OK;
  for (int i = 0; i < 256; ++i)
    right &= y.data[i] == x.data[i] * w + 2 * w;
  return right;
}

static void refuses(const std::string &path, disc_status code, const std::string &message, uint32_t flags = 0) {
  disc_options options = disc_default_options();
  options.flags = flags;
  disc_model *model = nullptr;
  CHECK(disc_load(path.c_str(), &options, &model) == code && !model);
  CHECK_TEXT(disc_last_error(), message);
}

TEST(librariesLoad) {
  std::string path = sealedLibrary("model.so");
  disc_model *first = nullptr, *second = nullptr;
  CHECK(disc_load(path.c_str(), nullptr, &first) == DISC_OK);
  CHECK(disc_load(path.c_str(), nullptr, &second) == DISC_OK);
  CHECK(first != second && computes(first, 3) && computes(second, 3));
  disc_model_spec spec = {};
  spec.size = sizeof(spec);
  CHECK(disc_describe(first, &spec) == DISC_OK);
  CHECK_TEXT(spec.name, "loaded");
  CHECK_TEXT(spec.cpu, "test");
  std::string weights = temporaryPath("loaded.safetensors");
  writeFile(weights, scaleWeights(5));
  CHECK(disc_swap_weights(first, weights.c_str()) == DISC_OK);
  CHECK(computes(first, 5) && computes(second, 3));
  CHECK(disc_free(first) == DISC_OK);
  CHECK(!computes(first, 5) && computes(second, 3));
  CHECK_TEXT(disc_last_error(), "the model was freed");
  // What that runtime says is told by this one.
  Floats x({2, 5});
  Longs mask({2, 3});
  const DLTensor *list[] = {&x.tensor, &mask.tensor};
  disc_output output = {};
  CHECK(disc_run(second, list, 2, &output, 1) == DISC_ERROR_SHAPE);
  disc_error error = {};
  error.size = sizeof(error);
  CHECK(disc_last_error_details(&error) == DISC_OK && error.dim == 1 && error.status == DISC_ERROR_SHAPE);
  CHECK_TEXT(error.message, "input 'x', dim 1 (S): expected a multiple of 2, got 5");
  CHECK_TEXT(error.input, "x");
  CHECK(disc_free(second) == DISC_OK);
  disc_model *wrong = nullptr;
  disc_options options = disc_default_options();
  options.flags = 64;
  CHECK(disc_load(path.c_str(), &options, &wrong) == DISC_ERROR_INVALID);
  CHECK_TEXT(disc_last_error(), "disc_options.flags has bits that mean nothing: 64");
}

TEST(librariesLoadByBareName) {
  sealedLibrary("bare.so");
  char before[4096];
  CHECK(getcwd(before, sizeof(before)) && chdir(temporaryPath(".").c_str()) == 0);
  disc_model *model = nullptr;
  CHECK(disc_load("bare.so", nullptr, &model) == DISC_OK);
  CHECK(disc_free(model) == DISC_OK);
  CHECK(chdir(before) == 0);
}

TEST(librariesLoadFromManyThreads) {
  std::string path = sealedLibrary("many.so");
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int round = 0; round < 5; ++round) {
        disc_model *model = nullptr;
        CHECK(disc_load(path.c_str(), nullptr, &model) == DISC_OK);
        CHECK(computes(model, 3));
        CHECK(disc_free(model) == DISC_OK);
      }
    });
  for (std::thread &thread : threads)
    thread.join();
}

TEST(loadedLibrariesSurviveFork) {
  // That runtime was linked without the C compiler's files, so its handler is registered by Crt.cpp.
  std::string path = sealedLibrary("forked.so");
  disc_options options = disc_default_options();
  options.threads = 3;
  disc_model *model = nullptr;
  CHECK(disc_load(path.c_str(), &options, &model) == DISC_OK);
  CHECK(computes(model, 3));
  pid_t child = fork();
  if (child == 0) {
    disc_model *fresh = nullptr;
    bool right = computes(model, 3) && disc_load(path.c_str(), &options, &fresh) == DISC_OK && computes(fresh, 3);
    _exit(right && disc_free(model) == DISC_OK && disc_free(fresh) == DISC_OK ? 0 : 1);
  }
  int status = 1;
  waitpid(child, &status, 0);
  CHECK(status == 0);
  CHECK(computes(model, 3) && disc_free(model) == DISC_OK);
}

#if __has_feature(address_sanitizer)
extern "C" void __lsan_disable();
extern "C" void __lsan_enable();
namespace {
struct LeaksAllowed {
  LeaksAllowed() { __lsan_disable(); }
  ~LeaksAllowed() { __lsan_enable(); }
};
} // namespace
#else
namespace {
struct LeaksAllowed {
  ~LeaksAllowed() {}
};
} // namespace
#endif

/// A library that is closed leaves nothing behind that would call into it: no destructor of a thread's error text, no
/// handler of fork().
TEST(closedLibrariesLeaveNothingBehind) {
  std::string path = temporaryPath("closed.so");
  writeFile(path, readFile(DISC_TEST_LIBRARY));
  for (int round = 0; round < 3; ++round) {
    void *handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    CHECK(handle);
    auto *library = static_cast<const disc_library *>(dlsym(handle, "disc_library_model"));
    std::atomic<int> stage{0};
    std::thread outlives([&] {
      // A closed library leaves some 300 bytes: its pool of threads, and the error text of a thread that lives on.
      LeaksAllowed ofTheLibrary;
      disc_model *model = nullptr;
      CHECK(disc_open(library, nullptr, &model) == DISC_OK);
      CHECK(computes(model, 3));
      Floats x({2, 5}); // not a multiple of 2
      Longs mask({2, 3});
      const DLTensor *list[] = {&x.tensor, &mask.tensor};
      disc_output output = {};
      CHECK(disc_run(model, list, 2, &output, 1) == DISC_ERROR_SHAPE);
      CHECK(disc_free(model) == DISC_OK);
      stage = 1;
      while (stage != 2)
        usleep(100);
    });
    while (stage != 1)
      usleep(100);
    CHECK(dlclose(handle) == 0);
    CHECK(!dlopen(path.c_str(), RTLD_NOW | RTLD_NOLOAD)); // it is gone
    stage = 2;
    outlives.join();
    pid_t child = fork();
    if (child == 0)
      _exit(0);
    int status = 1;
    waitpid(child, &status, 0);
    CHECK(status == 0);
  }
}

/// Children of fork() use the runtime of the library while another thread runs its model.
TEST(loadedLibrariesForkUnderLoad) {
  disc_options options = disc_default_options();
  options.threads = 2;
  disc_model *model = nullptr;
  CHECK(disc_load(sealedLibrary("load.so").c_str(), &options, &model) == DISC_OK);
  std::atomic<bool> stop{false};
  std::thread load([&] {
    while (!stop)
      CHECK(computes(model, 3));
  });
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
  constexpr int kForks = 20; // which take a sanitizer long
#else
  constexpr int kForks = 1000;
#endif
  for (int i = 0; i < kForks; ++i) {
    pid_t child = fork();
    if (child == 0) {
      alarm(20); // a deadlock ends as a failure
      _exit(computes(model, 3) ? 0 : 1);
    }
    int status = 1;
    waitpid(child, &status, 0);
    CHECK(status == 0);
  }
  stop = true;
  load.join();
  CHECK(disc_free(model) == DISC_OK);
}

TEST(hostileLibrariesAreRefused) {
  std::string missing = temporaryPath("missing.so");
  refuses(missing, DISC_ERROR_FILE, missing + ": cannot open: No such file or directory");
  refuses("/tmp", DISC_ERROR_FILE, "/tmp: is a directory");
  disc_model *model = nullptr;
  CHECK(disc_load(nullptr, nullptr, &model) == DISC_ERROR_INVALID);
  CHECK(disc_load("x", nullptr, nullptr) == DISC_ERROR_INVALID);
  disc_options unsized = disc_default_options();
  unsized.size = 3;
  CHECK(disc_load("x", &unsized, &model) == DISC_ERROR_INVALID);

  std::string file = readFile(sealedLibrary("whole.so")), path = temporaryPath("hostile.so");
  writeFile(path, file.substr(0, file.size() / 2));
  refuses(path, DISC_ERROR_FILE,
          path + ": not a library that DISC compiled, or cut short: it does not end with a seal");
  for (size_t at = 17; at < file.size() - sizeof(disc::rt::Seal); at += file.size() / 50) {
    std::string bad = file;
    bad[at] = char(bad[at] ^ 4);
    writeFile(path, bad);
    refuses(path, DISC_ERROR_FILE, path + ": damaged: its contents have another checksum than when it was written");
  }
  // A library for another machine, sealed as such.
  std::string other = readFile(DISC_TEST_LIBRARY);
  Elf64_Half machine = EM_RISCV;
  std::memcpy(&other[offsetof(Elf64_Ehdr, e_machine)], &machine, sizeof(machine));
  writeFile(path, other);
  CHECK(disc::rt::sealFile(path).ok());
  CHECK(disc_load(path.c_str(), nullptr, &model) == DISC_ERROR_TARGET && !model);
}

TEST(librariesWithoutAModelAreRefused) {
  // Whole and sealed, but not what the dynamic linker or we expect.
  std::string path = temporaryPath("headers-only.so"), file = readFile(DISC_TEST_LIBRARY);
  writeFile(path, file.substr(0, 4096));
  CHECK(!disc::rt::sealFile(path).ok());
  // It needs a library that is not there.
  std::string needs = file;
  size_t needed = needs.find("libc.so.6");
  CHECK(needed != std::string::npos);
  needs.replace(needed, 9, "libq.so.6");
  writeFile(path, needs);
  CHECK(disc::rt::sealFile(path).ok());
  disc_model *model = nullptr;
  CHECK(disc_load(path.c_str(), nullptr, &model) == DISC_ERROR_FILE && !model);
  CHECK(std::strstr(disc_last_error(), ": cannot load: libq.so.6: "));
  size_t name = file.find("disc_library_model");
  for (; name != std::string::npos; name = file.find("disc_library_model", name))
    file[name] = 'D';
  path = temporaryPath("no-model.so");
  writeFile(path, file);
  CHECK(disc::rt::sealFile(path).ok());
  refuses(path, DISC_ERROR_FILE, path + ": there is no model in it (no symbol disc_library_model)");
}

TEST(replacedLibrariesAreNotTheOldOnes) {
  std::string path = sealedLibrary("replaced.so");
  disc_model *model = nullptr;
  CHECK(disc_load(path.c_str(), nullptr, &model) == DISC_OK);
  disc_free(model);
  std::string file = readFile(DISC_TEST_LIBRARY) + std::string(64, '\0');
  writeFile(path, file);
  CHECK(disc::rt::sealFile(path).ok());
  refuses(path, DISC_ERROR_FILE,
          path + ": the process has loaded an earlier file of this path, which stays; give the new one another name");
}
