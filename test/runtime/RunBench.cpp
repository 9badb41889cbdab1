//===- RunBench.cpp - what a call costs beside its kernels ----------------===//
//
// Nanoseconds per call of the hand-written model, whose kernel does next to nothing at these shapes: medians of many
// rounds. Not a test: `ninja disc-runtime-bench && test/runtime/disc-runtime-bench [FILE]`, where FILE is a library
// whose loading is timed too.
//
//===----------------------------------------------------------------------===//

#include "HandModel.h"
#include "lib/Runtime/Core/Hash.h"
#include "lib/Runtime/Core/StoredFile.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>

using namespace disc::test;

static double now() {
  return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

template <typename Body> static double median(int rounds, int calls, Body body) {
  std::vector<double> times;
  for (int round = 0; round < rounds; ++round) {
    double begin = now();
    for (int i = 0; i < calls; ++i)
      body();
    times.push_back((now() - begin) / calls);
  }
  std::nth_element(times.begin(), times.begin() + rounds / 2, times.end());
  return times[rounds / 2];
}

static void expect(disc_status status) {
  if (status == DISC_OK)
    return;
  std::fprintf(stderr, "%s\n", disc_last_error());
  std::exit(1);
}

int main(int argc, char **argv) {
  auto library = scaleLibrary(3);
  disc_model *model = nullptr;
  expect(disc_open(&library->library, nullptr, &model));
  Floats x({1, 2}), y({1, 2}), strided({1, 2}, 4);
  Longs mask({1, 3});
  strided.setStrides({2, 2});
  const DLTensor *inputs[] = {&x.tensor, &mask.tensor};
  disc_output given = {&y.tensor, nullptr}, scattered = {&strided.tensor, nullptr}, made = {};
  int64_t shape[2], *shapes[] = {shape};
  auto print = [](const char *what, double ns) { std::printf("%-58s %8.1f ns\n", what, ns); };
  auto run = [&](disc_output &output) { expect(disc_run(model, inputs, 2, &output, 1)); };
  print("disc_run, the caller's output", median(51, 20000, [&] { run(given); }));
  print("disc_run, the caller's output, strided", median(51, 20000, [&] { run(scattered); }));
  print("disc_run, a new output, deleted", median(51, 20000, [&] {
          run(made);
          made.managed->deleter(made.managed);
        }));
  print("disc_output_shapes (checks and guards)",
        median(51, 20000, [&] { expect(disc_output_shapes(model, inputs, 2, shapes, 1)); }));
  disc_model_spec spec = {};
  spec.size = sizeof(spec);
  print("disc_describe (the way through the handle)", median(51, 20000, [&] { expect(disc_describe(model, &spec)); }));
  expect(disc_free(model));

  if (argc > 1) {
    auto printMs = [](const char *what, double ns) { std::printf("%-58s %8.3f ms\n", what, ns / 1e6); };
    printMs("checksum of the file", median(21, 1, [&] {
              std::shared_ptr<disc::rt::StoredFile> file;
              disc::rt::Hash128 hash;
              if (!disc::rt::StoredFile::open(argv[1], disc::rt::StoredFile::Access::Parts, file).ok() ||
                  !file->hash(file->size(), hash).ok())
                std::exit(1);
            }));
    disc_options options = disc_default_options();
    for (uint32_t flags : {0, int(DISC_TRUST_FILES)}) {
      options.flags = flags;
      double begin = now();
      expect(disc_load(argv[1], &options, &model));
      printMs(flags ? "disc_load again, trusted" : "disc_load", now() - begin);
      expect(disc_free(model));
      printMs("  and again", median(21, 1, [&] {
                expect(disc_load(argv[1], &options, &model));
                expect(disc_free(model));
              }));
    }
  }
}
