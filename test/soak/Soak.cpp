//===- Soak.cpp - six compiled models, sixteen threads, for hours ---------===//
//
//   soak FOLDER seconds=900 | calls=20000 [threads=16] [seed=1]
//
// Threads call models with random inputs; between the calls they swap weights, make mistakes, fork, cancel, open and
// free models, and turn profiles on and off. Every result is compared, bit for bit, with the first one computed for the
// same model, weights and inputs.
//
// At the end memory must not have grown. A line is fitted to the samples behind the warm-up, the first third: resident
// memory may rise by 2 % or 8 MiB over what is left, whichever is more, and what malloc has given out by 1 MiB, beside
// 64 bytes for each freed model, whose handle stays. Large buffers have pages of their own, which only the first
// counts. With calls=N both are only printed. malloc has two arenas: with one for each thread, its fragments were still
// spreading after ten minutes.
//
// Objects of the models, weights and inputs come from models.py.
//
//===----------------------------------------------------------------------===//

#include "lib/Runtime/Core/Handle.h"
#include "lib/Runtime/Core/LoadedModel.h"
#include "lib/Runtime/disc.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <malloc.h>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

extern "C" {
#define MODEL(name, hasState) extern const disc_library disc_library_##name;
#include "models.def"
#undef MODEL
}

namespace {
using Clock = std::chrono::steady_clock;

#define REQUIRE(condition, ...)                                                                                        \
  do {                                                                                                                 \
    if (!(condition)) {                                                                                                \
      std::fprintf(stderr, "soak: line %d: %s: ", __LINE__, #condition);                                               \
      std::fprintf(stderr, __VA_ARGS__);                                                                               \
      std::fprintf(stderr, "; the last error: %s\n", disc_last_error());                                               \
      std::_Exit(1);                                                                                                   \
    }                                                                                                                  \
  } while (false)

struct Tensor {
  DLDataType dtype;
  std::vector<int64_t> shape;
  std::vector<char> data;
};
using Case = std::vector<Tensor>;

/// What happened how often.
enum Count { Calls, Own, Wrong, Swaps, Forks, ForksRefused, Cancelled, CancelledLate, Opened, Profiled, kCounts };
constexpr const char *kNames[kCounts] = {"calls",         "into own tensors", "wrong calls", "swaps",
                                         "forks",         "forks refused",    "cancelled",   "cancelled too late",
                                         "models opened", "profiles"};
std::array<std::atomic<int64_t>, kCounts> counts;

std::string folder;

struct Subject {
  std::string name;
  const disc_library *library;
  bool hasState;
  std::vector<Case> cases;
  disc_model *model = nullptr;
  /// Twice the number of swaps; odd while one is under way. The weights are those of half of it, modulo 2.
  std::atomic<uint64_t> swaps{0};
  std::mutex swapping, profiling;
  std::vector<std::array<uint64_t, 2>> expected; ///< Of each case, for each version of the weights.

  std::string file(const char *end) const { return folder + "/" + name + end; }
};

std::vector<std::unique_ptr<Subject>> subjects;

/// When the run of this thread should end; never if it is zero.
thread_local Clock::time_point deadline;
int isLate(void *) { return deadline != Clock::time_point() && Clock::now() >= deadline; }

disc_model *open(const Subject &s, int32_t threads, bool cancels = false) {
  std::string weights = s.file(".weights");
  disc_options options = disc_default_options();
  options.threads = threads;
  options.weights = weights.c_str();
  options.interrupted = cancels ? isLate : nullptr;
  disc_model *model = nullptr;
  REQUIRE(disc_open(s.library, &options, &model) == DISC_OK, "%s", s.name.c_str());
  REQUIRE(disc_swap_weights(model, s.file(".0").c_str()) == DISC_OK, "%s", s.name.c_str());
  return model;
}

void addTo(uint64_t &hash, const void *data, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i)
    hash = (hash ^ static_cast<const unsigned char *>(data)[i]) * 0x100000001b3;
}

/// Inputs of a call, which may be changed.
struct Call {
  Case inputs;
  std::vector<DLTensor> tensors;
  std::vector<const DLTensor *> list;

  explicit Call(const Case &from) : inputs(from), tensors(from.size()) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      Tensor &t = inputs[i];
      tensors[i] = {t.data.data(), {kDLCPU, 0}, int32_t(t.shape.size()), t.dtype, t.shape.data(), nullptr, 0};
      list.push_back(&tensors[i]);
    }
  }
};

/// Runs once; adds what comes out, and inputs that the model has updated, to `hash`.
disc_status run(disc_model *model, Call &call, uint64_t &hash, bool ownTensors) {
  disc_model_spec about = {};
  about.size = sizeof(about);
  disc_describe(model, &about);
  auto n = size_t(about.num_outputs);
  std::vector<disc_output> outputs(n);
  std::vector<std::array<int64_t, 8>> shapes(n);
  std::vector<std::vector<char>> memory(n);
  std::vector<DLTensor> own(n);
  if (ownTensors) {
    std::vector<int64_t *> into;
    for (auto &shape : shapes)
      into.push_back(shape.data());
    disc_status status =
        disc_output_shapes(model, call.list.data(), int64_t(call.list.size()), into.data(), int64_t(n));
    if (status != DISC_OK)
      return status;
  }
  for (size_t i = 0; ownTensors && i < n; ++i) {
    disc_tensor_spec spec = {};
    spec.size = sizeof(spec);
    disc_describe_output(model, int64_t(i), &spec);
    int64_t elements = 1;
    for (int d = 0; d < spec.ndim; ++d)
      elements *= shapes[i][size_t(d)];
    if (std::find(shapes[i].begin(), shapes[i].begin() + spec.ndim, -1) != shapes[i].begin() + spec.ndim)
      continue; // the model's own, whose extent only the run tells
    memory[i].resize(size_t(elements * spec.dtype.bits / 8));
    own[i] = {memory[i].data(), {kDLCPU, 0}, spec.ndim, spec.dtype, shapes[i].data(), nullptr, 0};
    outputs[i].tensor = &own[i];
  }
  disc_status status =
      disc_run(model, call.list.data(), int64_t(call.list.size()), outputs.data(), int64_t(outputs.size()));
  for (disc_output &output : outputs) {
    if (status == DISC_OK) {
      const DLTensor &t = output.tensor ? *output.tensor : output.managed->dl_tensor;
      size_t bytes = t.dtype.bits / 8;
      for (int d = 0; d < t.ndim; ++d)
        bytes *= size_t(t.shape[d]);
      addTo(hash, t.shape, size_t(t.ndim) * 8);
      addTo(hash, static_cast<char *>(t.data) + t.byte_offset, bytes);
    }
    if (output.managed)
      output.managed->deleter(output.managed);
  }
  for (const Tensor &input : call.inputs)
    addTo(hash, input.data.data(), input.data.size());
  return status;
}

/// A call, or with a state three of them from its first values on.
disc_status runCase(const Subject &s, disc_model *model, size_t index, uint64_t &hash, bool ownTensors = false) {
  hash = 0xcbf29ce484222325;
  Call call(s.cases[index]);
  if (!s.hasState)
    return run(model, call, hash, ownTensors);
  REQUIRE(disc_reset(model) == DISC_OK, "%s", s.name.c_str());
  for (int i = 0; i < 3; ++i)
    if (disc_status status = run(model, call, hash, ownTensors))
      return status;
  return DISC_OK;
}

/// The hash is what it was first, for the weights that the model had; while they are swapped, for either.
bool isExpected(const Subject &s, size_t index, uint64_t hash, uint64_t before, uint64_t after) {
  const auto &expected = s.expected[index];
  if (before == after && before % 2 == 0)
    return hash == expected[before / 2 % 2];
  return hash == expected[0] || hash == expected[1];
}

/// What a thread does for as long as it is asked to.
class Worker {
public:
  explicit Worker(unsigned seed) : random(seed) {
    for (const auto &s : subjects)
      own.push_back(s->hasState ? open(*s, 1 + int32_t(seed % 2)) : nullptr);
    slow = open(*loop(), 1, /*cancels=*/true);
  }
  ~Worker() {
    for (disc_model *model : own)
      disc_free(model);
    disc_free(slow);
  }
  void step();

private:
  static const Subject *loop() {
    for (const auto &s : subjects)
      if (s->name == "loop")
        return s.get();
    REQUIRE(false, "no model for cancelling");
    return nullptr;
  }
  size_t below(size_t n) { return size_t(random()) % n; }
  void call(Subject &s, size_t index);
  void callWrongly(Subject &s, size_t index);
  void swap(Subject &s);
  void forkAndCall(Subject &s, size_t index);
  void cancel();
  void openAndCall(Subject &s, size_t index);
  void profile(Subject &s, size_t index);

  std::mt19937 random;
  std::vector<disc_model *> own; ///< Of models with a state, which cannot be shared.
  disc_model *slow;
};
} // namespace

void Worker::step() {
  Subject &s = *subjects[below(subjects.size())];
  // The last case of the loop is the one that takes long.
  size_t index = below(s.cases.size() - 1);
  switch (size_t what = below(100)) {
  case 0:
    return s.hasState ? call(s, index) : swap(s);
  case 1:
    return below(4) ? call(s, index) : forkAndCall(s, index);
  case 2:
    return cancel();
  case 3:
    return below(4) ? call(s, index) : openAndCall(s, index);
  case 4:
    return profile(s, index);
  default:
    return what < 10 ? callWrongly(s, index) : call(s, index);
  }
}

void Worker::call(Subject &s, size_t index) {
  size_t which = 0;
  while (subjects[which].get() != &s)
    ++which;
  disc_model *model = own[which] ? own[which] : s.model;
  uint64_t before = s.swaps, hash = 0;
  bool ownTensors = below(3) == 0;
  disc_status status = runCase(s, model, index, hash, ownTensors);
  REQUIRE(status == DISC_OK, "%s, case %zu", s.name.c_str(), index);
  REQUIRE(isExpected(s, index, hash, before, s.swaps), "%s, case %zu", s.name.c_str(), index);
  ++counts[Calls];
  counts[Own] += ownTensors;
}

void Worker::callWrongly(Subject &s, size_t index) {
  size_t which = 0;
  while (subjects[which].get() != &s)
    ++which;
  Call call(s.cases[index]);
  size_t input = below(call.list.size());
  DLTensor &t = call.tensors[input];
  switch (below(5)) {
  case 0:
    t.dtype.bits = uint8_t(t.dtype.bits == 64 ? 32 : 64);
    break;
  case 1:
    t.ndim -= t.ndim > 0;
    if (t.ndim == 0)
      t.dtype.code = kDLBfloat;
    break;
  case 2:
    call.list[input] = nullptr;
    break;
  case 3:
    t.device.device_type = kDLCUDA;
    break;
  default:
    if (t.ndim)
      t.shape[0] = -1;
    else
      t.data = nullptr;
  }
  uint64_t hash = 0;
  disc_status status = run(own[which] ? own[which] : s.model, call, hash, below(2));
  REQUIRE(status != DISC_OK && disc_last_error()[0], "%s, case %zu", s.name.c_str(), index);
  ++counts[Wrong];
}

void Worker::swap(Subject &s) {
  std::lock_guard<std::mutex> lock(s.swapping);
  uint64_t to = s.swaps / 2 + 1;
  ++s.swaps;
  REQUIRE(disc_swap_weights(s.model, s.file(to % 2 ? ".1" : ".0").c_str()) == DISC_OK, "%s", s.name.c_str());
  ++s.swaps;
  ++counts[Swaps];
}

void Worker::forkAndCall(Subject &s, size_t index) {
  if (s.hasState)
    return call(s, index);
  pid_t child = fork();
  REQUIRE(child >= 0, "fork");
  if (child == 0) {
    alarm(120);
    uint64_t hash = 0;
    disc_status status = runCase(s, s.model, index, hash);
    // Another thread may have been swapping; then the model may refuse to run here.
    _exit(status != DISC_OK ? 2 : hash == s.expected[index][0] || hash == s.expected[index][1] ? 0 : 3);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child, "waitpid");
  bool refused = WIFEXITED(status) && WEXITSTATUS(status) == 2;
  REQUIRE(refused || (WIFEXITED(status) && WEXITSTATUS(status) == 0), "%s, case %zu: a child ended with %#x",
          s.name.c_str(), index, status);
  ++counts[refused ? ForksRefused : Forks];
}

void Worker::cancel() {
  const Subject &s = *loop();
  uint64_t hash = 0;
  deadline = Clock::now() + std::chrono::microseconds(below(4000));
  disc_status status = runCase(s, slow, s.cases.size() - 1, hash);
  deadline = {};
  REQUIRE(status == DISC_ERROR_CANCELLED || (status == DISC_OK && hash == s.expected.back()[0]), "status %d", status);
  ++counts[status ? Cancelled : CancelledLate];
}

void Worker::openAndCall(Subject &s, size_t index) {
  disc_model *model = open(s, 1 + int32_t(below(3)));
  uint64_t hash = 0;
  disc_status status = runCase(s, model, index, hash);
  REQUIRE(status == DISC_OK && hash == s.expected[index][0], "%s, case %zu", s.name.c_str(), index);
  REQUIRE(disc_free(model) == DISC_OK, "%s", s.name.c_str());
  ++counts[Opened];
}

void Worker::profile(Subject &s, size_t index) {
  if (s.hasState)
    return call(s, index);
  std::lock_guard<std::mutex> lock(s.profiling);
  disc::rt::Model &model = *s.model->loaded->model;
  std::vector<disc::rt::LaunchRecord> launches;
  REQUIRE(model.startProfile().ok(), "%s", s.name.c_str());
  call(s, index);
  REQUIRE(model.stopProfile(launches).ok(), "%s", s.name.c_str());
  ++counts[Profiled];
}

//===-- Set-up and the end ------------------------------------------------===//

static std::vector<Case> readCases(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  auto number = [&] {
    int64_t value = 0;
    file.read(reinterpret_cast<char *>(&value), 8);
    return value;
  };
  std::vector<Case> cases(static_cast<size_t>(number()));
  auto tensors = size_t(number());
  for (Case &each : cases) {
    each.resize(tensors);
    for (Tensor &t : each) {
      int64_t code = number(), bits = number(), bytes = bits / 8;
      t.dtype = {uint8_t(code), uint8_t(bits), 1};
      t.shape.resize(size_t(number()));
      for (int64_t &extent : t.shape)
        bytes *= extent = number();
      t.data.resize(size_t(bytes));
      file.read(t.data.data(), bytes);
    }
  }
  REQUIRE(file.good() && !cases.empty(), "%s", path.c_str());
  return cases;
}

static void setUp() {
#define MODEL(name_, hasState_)                                                                                        \
  subjects.push_back(std::make_unique<Subject>());                                                                     \
  subjects.back()->name = #name_;                                                                                      \
  subjects.back()->library = &disc_library_##name_;                                                                    \
  subjects.back()->hasState = hasState_;
#include "models.def"
#undef MODEL
  for (const auto &s : subjects) {
    s->cases = readCases(s->file(".cases"));
    s->expected.resize(s->cases.size());
    s->model = open(*s, 2);
    for (size_t version : {1, 0}) {
      REQUIRE(disc_swap_weights(s->model, s->file(version ? ".1" : ".0").c_str()) == DISC_OK, "%s", s->name.c_str());
      for (size_t i = 0; i < s->cases.size(); ++i)
        REQUIRE(runCase(*s, s->model, i, s->expected[i][version]) == DISC_OK, "%s, case %zu", s->name.c_str(), i);
    }
  }
}

static double residentMiB() {
  long pages = 0;
  std::ifstream("/proc/self/statm").ignore(64, ' ') >> pages;
  return double(pages) * double(sysconf(_SC_PAGESIZE)) / (1 << 20);
}

/// What malloc has given out.
static double allocatedMiB() {
  struct mallinfo2 info = mallinfo2();
  return double(info.uordblks + info.hblkhd) / (1 << 20);
}

/// How much a line through the samples rises from the first to the last.
static double rise(const std::vector<double> &samples) {
  double n = double(samples.size()), meanX = (n - 1) / 2, meanY = 0, above = 0, below = 0;
  for (double y : samples)
    meanY += y / n;
  for (size_t i = 0; i < samples.size(); ++i) {
    above += (double(i) - meanX) * (samples[i] - meanY);
    below += (double(i) - meanX) * (double(i) - meanX);
  }
  return below > 0 ? above / below * (n - 1) : 0;
}

int main(int argc, char **argv) {
  double seconds = 0;
  int64_t calls = 0;
  unsigned threads = 16, seed = 1;
  folder = argc > 1 ? argv[1] : ".";
  for (int i = 2; i < argc; ++i) {
    std::string option = argv[i];
    size_t equals = option.find('=');
    double value = equals == std::string::npos ? 0 : std::atof(option.c_str() + equals + 1);
    std::string key = option.substr(0, equals);
    if (key == "seconds")
      seconds = value;
    else if (key == "calls")
      calls = int64_t(value);
    else if (key == "threads")
      threads = unsigned(value);
    else if (key == "seed")
      seed = unsigned(value);
    else
      return std::fprintf(stderr, "soak: what is '%s'?\n", argv[i]), 2;
  }
  mallopt(M_ARENA_MAX, 2);
  setUp();

  std::atomic<bool> ends{false};
  std::vector<std::thread> workers;
  for (unsigned i = 0; i < threads; ++i)
    workers.emplace_back([&, i] {
      Worker worker(seed * 1000 + i);
      while (!ends)
        worker.step();
    });
  std::vector<double> resident, allocated;
  auto start = Clock::now(), last = start;
  auto elapsed = [&](Clock::time_point from) { return std::chrono::duration<double>(Clock::now() - from).count(); };
  while (calls ? counts[Calls] < calls : elapsed(start) < seconds) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    resident.push_back(residentMiB());
    allocated.push_back(allocatedMiB());
    if (elapsed(last) > 60) {
      last = Clock::now();
      std::printf("%6.0f s: %" PRId64 " calls, %.1f MiB\n", elapsed(start), counts[Calls].load(), resident.back());
      std::fflush(stdout);
    }
  }
  ends = true;
  for (std::thread &worker : workers)
    worker.join();
  double total = elapsed(start);
  for (const auto &s : subjects)
    REQUIRE(disc_free(s->model) == DISC_OK, "%s", s->name.c_str());

  for (int i = 0; i < kCounts; ++i)
    std::printf("%s%" PRId64 " %s", i ? ", " : "", counts[size_t(i)].load(), kNames[i]);
  auto afterWarmUp = [](std::vector<double> samples) {
    samples.erase(samples.begin(), samples.begin() + long(samples.size() / 3));
    return samples;
  };
  resident = afterWarmUp(resident), allocated = afterWarmUp(allocated);
  if (resident.empty())
    return 0;
  double most = std::max(8.0, 0.02 * resident.front()), grown = rise(resident), held = rise(allocated);
  double mostHeld = 1 + 64.0 * double(counts[Opened]) / (1 << 20);
  std::printf("; %.0f s; after the warm-up resident memory went from %.1f to %.1f MiB, slope %+.2f (at most %.1f), "
              "allocated memory from %.1f to %.1f, slope %+.2f (at most %.1f)\n",
              total, resident.front(), resident.back(), grown, most, allocated.front(), allocated.back(), held,
              mostHeld);
  // A run of a few seconds is all warm-up.
  if (!calls && (grown > most || held > mostHeld))
    return std::fprintf(stderr, "soak: memory grows\n"), 1;
  return 0;
}
