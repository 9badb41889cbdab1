//===- DeviceGraphTest.cpp - calls that are graphs, over fake drivers -----===//
//
// A fake graph does its work when somebody waits, with the values that its nodes had when it was launched.
//
//===----------------------------------------------------------------------===//

#include "Check.h"
#include "FakeDevices.h"
#include "Script.h"
#include "lib/Runtime/Device/Driver.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <thread>

using namespace disc::rt;
using namespace disc::test;

//===-- A model -----------------------------------------------------------===//
//
//   y = x * w + w by way of the arena, y[0] += the sum of x * (x * w + w), total += y[0]

static const disc_dim_info dimsN[] = {{DISC_DYNAMIC, "n", 0, DISC_UNBOUNDED}};
static const disc_tensor_info inputs[] = {{"x", DISC_F32, 1, dimsN, 0}}, outputs[] = {{"y", DISC_F32, 1, dimsN, 0}};
static const int64_t shapeW[] = {1};
static const disc_parameter_info parameters[] = {{"w", DISC_F32, 1, shapeW, 1, 0},
                                                 {"total", DISC_F32, 1, shapeW, 1, 1}};
enum { kScale, kAdd, kMove, kCheck };
static const disc_device_kernel kernels[] = {{"scale", 256, 0, nullptr, "0001s"},
                                             {"add", 32, 0, nullptr, "01"},
                                             {"move", 256, 0, nullptr, "01s"},
                                             {"check", 32, 0, nullptr, "0ess"}};
static const disc_kernel_info kernelInfos[] = {{"move", "row", "model.py:12", nullptr}};
static const disc_device_product dot = {kAdd, DISC_F32, 0, 0, DISC_PRODUCT_PLAIN, 0};

/// What a call does beside, after so many of the model's requests.
using Aside = std::function<int32_t(disc_call *call, float *memory, int64_t n)>;
static thread_local Aside aside;

static int32_t run(disc_call *call, bool hasProduct) {
  if (int32_t status = disc_rt_check_inputs(call))
    return status;
  int64_t n = disc_rt_extent(call, 0, 0), extents[] = {1, 1, 1, n, n, n, 1};
  void *x = disc_rt_input(call, 0), *w = disc_rt_parameter(call, 0), *total = disc_rt_parameter(call, 1);
  auto *memory = static_cast<float *>(disc_rt_arena(call, 0, (2 * n + 1) * 4));
  if (!x || !w || !total || !memory)
    return 1;
  void *scale[] = {x, w, w, memory, word(n)};
  if (int32_t status = disc_rt_device_launch(call, kScale, scale, 5, (n + 255) / 256))
    return status;
  if (int32_t status = disc_rt_device_copy(call, memory + n, memory, n * 4))
    return status;
  void *product[] = {x, memory + n, memory + 2 * n};
  int32_t status = hasProduct ? disc_rt_device_matmul(call, &dot, product, extents) : DISC_RT_UNSUPPORTED;
  if (status == DISC_RT_UNSUPPORTED) {
    void *clear[] = {memory, w, w, memory + 2 * n, word(0)}; // tests that have no library expect no sum
    status = disc_rt_device_launch(call, kScale, clear, 5, 1);
  }
  if (status)
    return status;
  if (aside)
    if (int32_t result = aside(call, memory, n))
      return result;
  void *y = disc_rt_output(call, 0, 1, &n), *move[] = {memory, y, word(n * 4)};
  void *first[] = {memory + 2 * n, y}, *count[] = {y, total};
  if (!y || disc_rt_device_launch(call, kMove, move, 3, 1) || disc_rt_device_launch(call, kAdd, first, 2, 1))
    return 1;
  return disc_rt_device_launch(call, kAdd, count, 2, 1);
}
static int32_t runChain(disc_call *call) { return run(call, /*hasProduct=*/true); }
/// Nothing in it depends on the extents but sizes.
static int32_t runSizes(disc_call *call) { return run(call, /*hasProduct=*/false); }

namespace {
struct Chain : On {
  explicit Chain(const char *name, disc_entry_fn main = runChain, const disc_device_image *images = kImages)
      : On(name, 4, kernels, images), total(*device, 1) {
    info.version = DISC_MODEL_INFO_VERSION;
    info.num_inputs = info.num_outputs = 1;
    info.inputs = inputs, info.outputs = outputs;
    info.num_parameters = 2, info.parameters = parameters;
    info.num_kernels = 1, info.kernels = kernelInfos;
    info.device = &code;
    Status status = Model::create({&info, nullptr, main, nullptr}, {}, model);
    CHECK_TEXT(Script::textOf(status), "");
    load(3);
    start();
  }
  ~Chain() {
    aside = nullptr;
    fake->faults.clear();
    for (int64_t s : {0, 1, 2})
      CHECK(model->synchronize(stream(s)).ok());
  }

  void load(float value) {
    w.emplace_back(std::make_unique<Parameter>(value));
    kept.managed.dl_tensor = total.tensor;
    DLManagedTensorVersioned *list[] = {&w.back()->managed, &kept.managed};
    CHECK_TEXT(Script::textOf(model->load(list, 2)), "");
    weight = value;
  }

  /// Counts from here on.
  void start() {
    fake->calls.clear();
    const DeviceCounters &now = device->counters;
    made = now.graphs, launched = now.graphLaunches, updated = now.graphUpdates, single = now.launches;
  }
  /// "graphs made, launched, nodes changed; launches and copies outside of them" since the start.
  std::string counts() const {
    const DeviceCounters &now = device->counters;
    return std::to_string(now.graphs - made) + " " + std::to_string(now.graphLaunches - launched) + " " +
           std::to_string(now.graphUpdates - updated) + "; " + std::to_string(now.launches - single + count("copy"));
  }

  /// Puts a call into the stream; what comes out is in `results`.
  Status run(const OnDevice &x, Stream on = stream(1)) {
    const DLTensor *list[] = {&x.tensor};
    disc_output output = {nullptr, nullptr};
    Status status = model->run(list, 1, &output, 1, on);
    if (status.ok())
      results.push_back({output.managed, on, weight});
    return status;
  }
  /// Whether all that came out is right, of inputs 1, 2, 3, ...
  bool right(bool hasSum = true) {
    bool isRight = true;
    for (Result &result : results) {
      std::vector<float> got = values(*device, result.managed->dl_tensor, result.on);
      float sum = 0;
      for (size_t i = 0; i < got.size(); ++i) {
        float wanted = float(i + 1) * result.weight + result.weight;
        sum += float(i + 1) * wanted;
        isRight = isRight && (i == 0 || got[i] == wanted);
      }
      isRight = isRight && (!hasSum || got.empty() || got[0] == 2 * result.weight + sum);
      result.managed->deleter(result.managed);
    }
    results.clear();
    return isRight;
  }

  OnDevice total;
  Parameter kept{0};
  disc_model_info_t info = {};
  std::vector<std::unique_ptr<Parameter>> w;
  std::unique_ptr<Model> model;
  struct Result {
    DLManagedTensorVersioned *managed;
    Stream on;
    float weight;
  };
  std::vector<Result> results;
  float weight = 0;
  int64_t made = 0, launched = 0, updated = 0, single = 0;
};
} // namespace

//===-- Replays -----------------------------------------------------------===//

TEST(graphsReplayCalls) {
  for (const char *name : kDrivers) {
    Chain on(name);
    OnDevice x(*on.device, 5), other(*on.device, 5);
    CHECK(on.run(x).ok());
    CHECK_TEXT(on.counts(), "0 0 0; 6"); // once is no reason for a graph
    on.start();
    CHECK(on.run(x).ok());
    CHECK_TEXT(on.counts(), "1 1 0; 0");
    CHECK(on.count("addKernel") == 4 && on.count("addCopy") == 1 && on.count("addChild") == 1);
    CHECK(on.count("beginCapture 2") == 1 && on.count("check") == 0 && on.count("allocate") == 1);
    on.start();
    CHECK(on.run(x).ok());
    CHECK_TEXT(on.counts(), "0 1 3; 0"); // there is another output
    CHECK(on.count("setKernel") == 3 && on.count("launchGraph") == 1 && on.count("beginCapture") == 0);
    // Into the same tensor as the caller's.
    OnDevice y(*on.device, 5);
    const DLTensor *list[] = {&x.tensor};
    disc_output output = {&y.tensor, nullptr};
    CHECK(on.model->run(list, 1, &output, 1, stream(1)).ok());
    on.start();
    CHECK(on.model->run(list, 1, &output, 1, stream(1)).ok());
    CHECK_TEXT(on.counts(), "0 1 0; 0");
    // Another input: a kernel and a product read it.
    on.start();
    CHECK(on.run(other).ok());
    CHECK_TEXT(on.counts(), "0 1 5; 0");
    CHECK(on.count("setChild") == 1 && on.count("multiply") == 1);
    // Other weights, of which what is in the stream knows nothing.
    on.load(7);
    on.start();
    CHECK(on.run(x).ok());
    CHECK_TEXT(on.counts(), "0 1 5; 0");
    CHECK(on.right());
    CHECK(values(*on.device, y.tensor, stream(1))[4] == 18);
    // Other extents and another stream have graphs of their own.
    OnDevice longer(*on.device, 600);
    on.start();
    for (int i = 0; i < 3; ++i)
      CHECK(on.run(longer).ok() && on.run(x, stream(2)).ok());
    CHECK_TEXT(on.counts(), "2 4 6; 12");
    CHECK(on.right());
  }
}

// The arena moves when it grows: graphs of earlier extents follow.
TEST(graphsFollowTheArena) {
  for (const char *name : kDrivers) {
    Chain on(name);
    OnDevice few(*on.device, 5), many(*on.device, 3000);
    for (int i = 0; i < 3; ++i)
      CHECK(on.run(few).ok());
    for (int i = 0; i < 3; ++i)
      CHECK(on.run(many).ok());
    on.start();
    CHECK(on.run(few).ok());
    CHECK_TEXT(on.counts(), "0 1 6; 0");
    CHECK(on.right());
  }
}

TEST(graphsOfStateAreInOrder) {
  for (const char *name : kDrivers) {
    Chain on(name);
    OnDevice x(*on.device, 1);
    for (int i = 0; i < 8; ++i)
      CHECK(on.run(x, stream(1 + i % 2)).ok());
    CHECK(on.right());
    CHECK(on.device->counters.graphLaunches - on.launched == 6);
    CHECK(values(*on.device, on.total.tensor, nullptr)[0] == 1 + 8 * 12); // the state began with 1
  }
}

// As many as are bounded, and none where they go before they are of use.
TEST(graphsAreFew) {
  for (const char *name : kDrivers) {
    Chain on(name);
    std::vector<std::unique_ptr<OnDevice>> inputs;
    for (int64_t n = 1; n <= 100; ++n)
      inputs.push_back(std::make_unique<OnDevice>(*on.device, n));
    for (int round = 0; round < 4; ++round)
      for (auto &x : inputs)
        CHECK(on.run(*x).ok());
    // What was not seen of late is not known, and as products differ, no graph fits other extents.
    CHECK_TEXT(on.counts(), "6 6 0; 2364");
    CHECK(on.right());
    // Twice in a row, and then not until it is forgotten.
    on.start();
    int64_t before = on.device->counters.graphs;
    for (int round = 0; round < 4; ++round)
      for (auto &x : inputs)
        CHECK(on.run(*x).ok() && on.run(*x).ok());
    CHECK(on.right());
    CHECK(on.fake->graphs - on.graphs <= 2 * 64 && on.device->counters.graphs - before < 200);
    // Often enough, it has one all the same.
    on.start();
    for (int i = 0; i < 200; ++i)
      CHECK(on.run(*inputs[0]).ok());
    CHECK(on.device->counters.graphLaunches - on.launched > 100);
    CHECK(on.right());
  }
}

// Of calls that all have new extents, one graph moves from each to the next.
TEST(graphsMove) {
  for (const char *name : kDrivers) {
    Chain on(name, runSizes);
    std::vector<std::unique_ptr<OnDevice>> inputs;
    for (int64_t n = 1; n <= 400; n += 3)
      inputs.push_back(std::make_unique<OnDevice>(*on.device, n));
    for (auto &x : inputs)
      CHECK(on.run(*x).ok());
    CHECK(on.right(false));
    CHECK(on.device->counters.graphs - on.made == 1);
    CHECK(on.device->counters.graphLaunches - on.launched == int64_t(inputs.size()) - 2);
    // Extents that occur again get one of their own.
    on.start();
    for (int i = 0; i < 4; ++i)
      CHECK(on.run(*inputs[100]).ok());
    CHECK(on.device->counters.graphs - on.made == 1 && on.device->counters.graphLaunches - on.launched == 3);
    CHECK(on.right(false));
    // One that does not fit ends, and its requests are done one by one; then there is a rest before the next.
    on.start();
    bool more = false;
    aside = [&](disc_call *call, float *memory, int64_t n) {
      void *args[] = {memory, memory + n};
      more = !more;
      return more ? disc_rt_device_launch(call, kAdd, args, 2, 1) : 0;
    };
    for (int64_t n = 1000; n < 1100; ++n)
      CHECK(on.run(OnDevice(*on.device, n)).ok() && on.right(false));
    CHECK(on.device->counters.graphs - on.made < 12);
    aside = nullptr;
  }
}

TEST(graphsOfManyThreads) {
  for (const char *name : kDrivers) {
    Chain on(name);
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&, t] {
        OnDevice x(*on.device, 30 + t / 2);
        const DLTensor *list[] = {&x.tensor};
        Stream own = stream(t % 3 + 1);
        for (int i = 0; i < 20; ++i) {
          disc_output output = {nullptr, nullptr};
          if (!on.model->run(list, 1, &output, 1, own).ok() ||
              values(*on.device, output.managed->dl_tensor, own)[29] != 93)
            ++wrong;
          if (output.managed)
            output.managed->deleter(output.managed);
        }
        DeviceScope scope(on.device);
        CHECK(on.device->synchronize(own).ok());
      });
    for (std::thread &thread : threads)
      thread.join();
    CHECK(wrong == 0 && on.device->counters.graphLaunches > on.launched);
    CHECK(on.model->synchronize(stream(3)).ok());
  }
}

//===-- Calls that are no graph -------------------------------------------===//

// Waiting for the device, or a kernel on the host, in between.
TEST(graphsHaveNoReads) {
  for (const char *name : kDrivers)
    for (bool onHost : {false, true}) {
      Chain on(name);
      OnDevice x(*on.device, 5);
      aside = [&](disc_call *call, float *memory, int64_t) {
        float seen = 0;
        void *args[] = {memory, word(4)};
        auto kernel = [](void *const *, int64_t, int64_t, void *) {};
        int32_t status = onHost ? disc_rt_device_call_host(call, kernel, args, 1, 1, 1, 1, 0, 0)
                                : disc_rt_device_read(call, &seen, memory, 4);
        CHECK(status || onHost || seen == 6);
        return status;
      };
      for (int i = 0; i < 5; ++i)
        CHECK(on.run(x).ok());
      CHECK(on.device->counters.graphs == on.made);
      CHECK(on.right());
    }
}

// The same extents and another sequence.
TEST(graphsOfOtherSequences) {
  for (const char *name : kDrivers) {
    Chain on(name);
    OnDevice x(*on.device, 5);
    bool more = false;
    aside = [&](disc_call *call, float *memory, int64_t n) {
      void *args[] = {memory, memory + n};
      return more ? disc_rt_device_launch(call, kAdd, args, 2, 1) : 0;
    };
    for (int i = 0; i < 4; ++i)
      CHECK(on.run(x).ok());
    CHECK_TEXT(on.counts(), "1 3 6; 6");
    on.start();
    more = true;
    CHECK(on.run(x).ok());
    CHECK_TEXT(on.counts(), "0 0 0; 7");
    CHECK(on.right());
    on.start();
    for (int i = 0; i < 20; ++i, more = !more)
      CHECK(on.run(x).ok());
    CHECK(on.device->counters.graphs - on.made == 2); // then it is given up
    CHECK(on.right());
    // Fewer requests than there are nodes.
    OnDevice longer(*on.device, 6);
    more = true;
    for (int i = 0; i < 3; ++i)
      CHECK(on.run(longer).ok());
    aside = [](disc_call *, float *, int64_t) { return 1; };
    CHECK(!on.run(longer).ok());
    aside = nullptr;
    CHECK(on.run(longer).ok());
    CHECK(on.right());
  }
}

// A call that fails leaves its changes to the next one, and nothing in the stream.
TEST(graphsOfCallsThatFail) {
  for (const char *name : kDrivers) {
    Chain on(name);
    OnDevice x(*on.device, 5), other(*on.device, 5);
    bool fails = false;
    aside = [&](disc_call *, float *, int64_t) { return int32_t(fails); };
    CHECK(on.run(x).ok());
    fails = true;
    CHECK(!on.run(x).ok());
    fails = false;
    CHECK(on.run(x).ok());
    fails = true;
    on.start();
    CHECK(!on.run(other).ok());
    CHECK_TEXT(on.counts(), "0 0 0; 0");
    fails = false;
    CHECK(on.run(other).ok());
    CHECK_TEXT(on.counts(), "0 1 5; 0");
    CHECK(on.right());
  }
}

// Memory that grows in the middle of a call is in use by what the call asked for before.
TEST(graphsAndMemoryThatMoves) {
  for (const char *name : kDrivers) {
    Chain on(name);
    OnDevice x(*on.device, 5);
    int64_t slot = 64;
    for (bool keep : {false, true}) {
      aside = [&](disc_call *call, float *memory, int64_t n) {
        auto *own = static_cast<float *>(disc_rt_slot(call, 0, slot, 0));
        if (!own || disc_rt_device_copy(call, own, memory, n * 4))
          return 1;
        slot *= 3;
        own = static_cast<float *>(disc_rt_slot(call, 0, slot, keep));
        return !own || (keep && disc_rt_device_copy(call, memory, own, n * 4)) ? 1 : 0;
      };
      for (int i = 0; i < 6; ++i)
        CHECK(on.run(x).ok());
      CHECK(on.right());
    }
    CHECK(on.device->counters.graphs == on.made);
    // So it is if there is no memory.
    OnDevice longer(*on.device, 50);
    aside = nullptr;
    CHECK(on.run(longer).ok());
    aside = [&](disc_call *call, float *, int64_t) {
      on.fake->faults["allocate"] = {2};
      return disc_rt_slot(call, 0, slot *= 3, 0) ? 0 : 1;
    };
    CHECK(on.run(longer).code() == Code::Memory);
    on.fake->faults["launch"] = {999};
    Status status = on.run(x);
    CHECK(status.code() == Code::Device || status.ok());
    on.fake->faults.clear();
    on.fake->lastError = 0;
    aside = nullptr;
    CHECK(on.run(longer).ok());
    CHECK(on.right());
  }
}

TEST(graphsAreNotTooLong) {
  Chain on("cuda");
  OnDevice x(*on.device, 5);
  aside = [](disc_call *call, float *memory, int64_t n) {
    void *args[] = {memory, memory + n};
    int32_t status = 0;
    for (int i = 0; i < 3000 && !status; ++i)
      status = disc_rt_device_launch(call, kAdd, args, 2, 1);
    return status;
  };
  for (int i = 0; i < 3; ++i)
    CHECK(on.run(x).ok());
  CHECK(on.device->counters.graphs == on.made && on.right());
}

TEST(graphsWithoutALibrary) {
  for (const char *name : kDrivers) {
    Chain on(name);
    OnDevice x(*on.device, 7);
    on.fake->faults["multiply"] = {7, 0, true};
    CHECK(on.run(x).ok());
    on.start();
    for (int i = 0; i < 3; ++i)
      CHECK(on.run(x).ok());
    CHECK_TEXT(on.counts(), "1 3 6; 0");
    CHECK(on.count("multiply") == 0 && on.count("addChild") == 0);
    CHECK(on.right(/*hasSum=*/false));
    // Of another alignment than any product before.
    const DLTensor *list[] = {&x.tensor};
    x.shape[0] = 6;
    on.fake->faults.clear();
    for (int i = 0; i < 4; ++i) {
      disc_output output = {nullptr, nullptr};
      CHECK(on.model->run(list, 1, &output, 1, stream(1)).ok());
      on.results.push_back({output.managed, stream(1), 3});
    }
    CHECK(on.right());
  }
}

// Kernels that wait for those before them may start early behind another kernel of the call, in a graph and in a
// stream.
TEST(kernelsStartEarly) {
  auto run = [](int64_t launches, int64_t edges) {
    Chain on("cuda", runChain, kEarlyImages);
    OnDevice x(*on.device, 5);
    for (int i = 0; i < 3; ++i)
      CHECK(on.run(x).ok());
    CHECK(on.count("launchEarly") == launches);
    CHECK(on.count("startEarly") == edges);
    CHECK_TEXT(on.counts(), "1 2 3; 6");
    CHECK(on.right());
  };
  run(2, 2);
  setenv("DISC_DEVICE_EARLY", "0", 1);
  run(0, 0);
  unsetenv("DISC_DEVICE_EARLY");
  // A driver that is too old.
  const Driver *table = nullptr;
  CHECK(cudaDriver(table).ok());
  auto &driver = *const_cast<Driver *>(table);
  auto *start = std::exchange(driver.startEarly, nullptr);
  auto *launch = std::exchange(driver.launchEarly, nullptr);
  run(0, 0);
  driver.startEarly = start, driver.launchEarly = launch;
}

TEST(graphsMayBeOff) {
  for (const char *name : kDrivers) {
    setenv("DISC_DEVICE_GRAPHS", "0", 1);
    {
      Chain on(name);
      OnDevice x(*on.device, 5);
      for (int i = 0; i < 4; ++i)
        CHECK(on.run(x).ok());
      CHECK_TEXT(on.counts(), "0 0 0; 24");
      CHECK(on.right());
    }
    unsetenv("DISC_DEVICE_GRAPHS");
    // A driver that lacks their functions.
    const Driver *table = nullptr;
    CHECK((*name == 'c' ? cudaDriver(table) : hipDriver(table)).ok() && table->hasGraphs);
    auto &hasGraphs = const_cast<Driver *>(table)->hasGraphs;
    hasGraphs = false;
    {
      Chain on(name);
      OnDevice x(*on.device, 5);
      for (int i = 0; i < 4; ++i)
        CHECK(on.run(x).ok());
      CHECK_TEXT(on.counts(), "0 0 0; 24");
      CHECK(on.right() && !on.device->makeGraph());
    }
    hasGraphs = true;
    // While a profile is taken: it has events between kernels.
    Chain on(name);
    OnDevice x(*on.device, 5);
    for (int i = 0; i < 3; ++i)
      CHECK(on.run(x).ok());
    CHECK(on.model->startProfile().ok());
    on.start();
    CHECK(on.run(x).ok());
    CHECK_TEXT(on.counts(), "0 0 0; 6");
    std::vector<LaunchRecord> launches;
    CHECK(on.model->stopProfile(launches).ok() && launches.size() == 5);
    // Or from the middle of a call on.
    aside = [&](disc_call *, float *, int64_t) { return on.model->startProfile().ok() ? 0 : 1; };
    on.start();
    CHECK(on.run(x).ok());
    CHECK_TEXT(on.counts(), "0 0 0; 6");
    CHECK(on.model->stopProfile(launches).ok() && launches.size() == 3);
    CHECK(on.right());
  }
}

//===-- What goes wrong ---------------------------------------------------===//

// Kernels of a graph report indices as others do.
TEST(graphsReportIndices) {
  for (const char *name : kDrivers) {
    Chain on(name);
    OnDevice x(*on.device, 5);
    float limit = 7;
    OnDevice seven(*on.device, 1);
    {
      DeviceScope scope(on.device);
      CHECK(on.device->copyIn(seven.data, &limit, 4, nullptr).ok() && on.device->synchronize(nullptr).ok());
    }
    bool isWrong = false;
    static const char text[] = "aten.index at model.py:3";
    aside = [&](disc_call *call, float *, int64_t) {
      void *args[] = {isWrong ? seven.data : x.data, disc_rt_device_errors(call), const_cast<char *>(text), word(5),
                      word(0)};
      return args[1] ? disc_rt_device_launch(call, kCheck, args, 5, 1) : 1;
    };
    for (int i = 0; i < 3; ++i)
      CHECK(on.run(x).ok());
    isWrong = true;
    on.start();
    CHECK(on.run(x).ok());
    CHECK_TEXT(on.counts(), "0 1 4; 0");
    CHECK_TEXT(Script::textOf(on.model->synchronize(stream(1))),
               "aten.index at model.py:3: index 7 is out of range for a dimension of extent 5");
    isWrong = false;
    CHECK(on.run(x).ok() && on.right());
  }
}

// Whatever a driver refuses of a graph, the call's work is launched without one.
TEST(graphsThatADriverRefuses) {
  static const char *const functions[] = {"createStream", "beginCapture", "endCapture", "multiply",    "createGraph",
                                          "addKernel",    "addCopy",      "addChild",   "instantiate", "setKernel",
                                          "setCopy",      "setChild",     "launchGraph"};
  for (const char *name : kDrivers)
    for (const char *function : functions)
      for (int after = 0; after < 6; ++after)
        for (bool sticky : {false, true}) {
          Chain on(name);
          OnDevice x(*on.device, 5), other(*on.device, 5), many(*on.device, 50);
          CHECK(on.run(x).ok() && on.run(many).ok());
          on.fake->faults[function] = {801, after, sticky};
          for (int i = 0; i < 3; ++i) {
            bool isRun = on.run(x).ok() && on.run(other).ok() && on.run(many).ok();
            // A product that fails by itself is an error; it is not computed twice.
            CHECK(isRun || std::string(function) == "multiply");
          }
          CHECK(on.right());
          on.fake->faults.clear();
          on.fake->lastError = 0;
          for (int i = 0; i < 3; ++i)
            CHECK(on.run(x).ok() && on.run(many).ok());
          CHECK(on.right());
        }
}

// Errors of launches in place of a graph name the kernel.
TEST(graphsWhoseLaunchesFail) {
  for (const char *name : kDrivers) {
    Chain on(name);
    OnDevice x(*on.device, 5);
    for (int i = 0; i < 3; ++i)
      CHECK(on.run(x).ok());
    CHECK(on.right());
    on.fake->faults["launchGraph"] = {999};
    on.fake->faults["launch"] = {999, 1};
    CHECK_TEXT(Script::textOf(on.run(x)), "kernel 'move' (model.py:12): " + std::string(name) +
                                              ":0: a launch: " + (*name == 'c' ? "CUDA_ERROR_OTHER" : "hipErrorOther"));
    on.fake->faults.clear();
    on.fake->faults["run"] = {700};
    CHECK(on.run(x).ok() && on.model->synchronize(stream(1)).code() == Code::Device);
    on.results.back().managed->deleter(on.results.back().managed);
    on.results.clear();
    on.recover();
    on.fake->lastError = 0;
    CHECK(on.run(x).ok() && on.right());
  }
}
