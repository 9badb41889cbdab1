//===- BudgetTest.cpp - memory budgets ------------------------------------===//
//
// Models whose compiled code is a request of the test: sizes to choose from, scratch, what is asked for later. The
// caller's allocator counts what they hold, independently of the runtime.
//
//===----------------------------------------------------------------------===//

#include "Check.h"
#include "HandModel.h"
#include "lib/Runtime/Core/Call.h"

#include <atomic>
#include <cstdlib>
#include <functional>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <thread>

using namespace disc::rt;
using namespace disc::test;

namespace {
/// The caller's allocator: what is held, without results that the caller has.
struct Hooks {
  std::mutex mutex;
  int64_t held = 0, peak = 0, theirs = 0, allocations = 0;
  std::map<void *, int64_t> sizes;

  static void *allocate(void *opaque, size_t bytes, size_t alignment) {
    auto &self = *static_cast<Hooks *>(opaque);
    std::lock_guard<std::mutex> lock(self.mutex);
    self.held += int64_t(bytes);
    ++self.allocations;
    self.peak = std::max(self.peak, self.held - self.theirs);
    void *data = aligned_alloc(alignment, bytes);
    self.sizes[data] = int64_t(bytes);
    return data;
  }
  static void release(void *opaque, void *data, size_t bytes) {
    auto &self = *static_cast<Hooks *>(opaque);
    std::lock_guard<std::mutex> lock(self.mutex);
    self.held -= int64_t(bytes);
    CHECK(self.sizes[data] == int64_t(bytes));
    self.sizes.erase(data);
    std::free(data);
  }
  /// Of a block, which may be larger than what was asked for.
  int64_t sizeOf(void *data) {
    std::lock_guard<std::mutex> lock(mutex);
    return sizes[data];
  }
  int64_t now() {
    std::lock_guard<std::mutex> lock(mutex);
    return held - theirs;
  }
  int64_t count() {
    std::lock_guard<std::mutex> lock(mutex);
    return allocations;
  }
  int64_t takePeak() {
    std::lock_guard<std::mutex> lock(mutex);
    return std::exchange(peak, held - theirs);
  }
  void hand(int64_t bytes) {
    std::lock_guard<std::mutex> lock(mutex);
    theirs += bytes;
  }
};

int64_t rounded(int64_t bytes, int64_t unit) { return (bytes + unit - 1) / unit * unit; }

/// One call.
struct Request {
  std::vector<int64_t> plans = {0}; ///< Sizes of the arena, the fastest plan first.
  int64_t scratch = 0;
  bool isPlanned = true;                     ///< As compiled code with plans.
  std::function<int32_t(disc_call *)> later; ///< While the call holds its memory.
};
thread_local const Request *request = nullptr;
std::atomic<int> launches{0};
} // namespace

static const disc_dim_info dimsN[] = {{DISC_DYNAMIC, "n", 0, DISC_UNBOUNDED}};
static const disc_dim_info dimsFound[] = {{DISC_DATA_DEPENDENT, "found", 0, DISC_UNBOUNDED}};
static const disc_tensor_info oneInput[] = {{"x", DISC_F32, 1, dimsN, 0}};
static const disc_tensor_info twoOutputs[] = {{"y", DISC_F32, 1, dimsN, 0}, {"found", DISC_F32, 1, dimsFound, 0}};

/// Fills its scratch, and adds 1.
static void addOne(void *const *args, int64_t begin, int64_t end, void *scratch) {
  std::fill_n(static_cast<char *>(scratch), int64_t(args[2]), char(1));
  for (int64_t i = begin; i < end; ++i)
    static_cast<float *>(args[1])[i] = static_cast<float *>(args[0])[i] + 1;
}

/// y = x + 1, found = x[:3].
static int32_t runRequest(disc_call *call) {
  const Request &asked = *request;
  if (int32_t status = disc_rt_check_inputs(call))
    return status;
  int64_t n = disc_rt_extent(call, 0, 0), arena = asked.plans[0];
  if (asked.isPlanned && reinterpret_cast<const int64_t *>(call)[1] != 0) {
    const int64_t outputs[] = {n * 4, -1};
    int64_t room = disc_rt_budget(call, asked.scratch, outputs);
    size_t plan = 0;
    while (plan < asked.plans.size() && asked.plans[plan] > room)
      ++plan;
    if (plan == asked.plans.size())
      return disc_rt_over_budget(call, asked.plans.back());
    arena = asked.plans[plan];
    if (int32_t status = disc_rt_begin_plan(call, int64_t(plan), arena))
      return status;
  }
  void *temporaries = disc_rt_arena(call, 0, arena);
  if (!temporaries)
    return 1;
  std::fill_n(static_cast<char *>(temporaries), arena, char(2));
  void *x = disc_rt_input(call, 0);
  void *y = x ? disc_rt_output(call, 0, 1, &n) : nullptr;
  if (!y)
    return 1;
  void *args[] = {x, y, reinterpret_cast<void *>(asked.scratch)};
  ++launches;
  if (int32_t status = disc_rt_parallel_for(call, addOne, args, n, 100'000, asked.scratch))
    return status;
  if (int32_t status = asked.later ? asked.later(call) : 0)
    return status;
  int64_t found = std::min<int64_t>(n, 3);
  void *third = disc_rt_output(call, 1, 1, &found);
  if (!third)
    return 1;
  std::copy_n(static_cast<float *>(x), found, static_cast<float *>(third));
  return 0;
}

namespace {
struct Fixture {
  explicit Fixture(int64_t budget, ModelOptions options = {}) {
    info.version = DISC_MODEL_INFO_VERSION;
    info.num_inputs = 1, info.inputs = oneInput;
    info.num_outputs = 2, info.outputs = twoOutputs;
    options.threads = options.threads ? options.threads : 2;
    options.allocator = {Hooks::allocate, Hooks::release, &hooks};
    options.memoryBudget = budget;
    CHECK(Model::create({&info, nullptr, runRequest, nullptr}, options, model).ok());
    CHECK(model->load(nullptr, 0).ok());
  }
  ~Fixture() {
    model.reset();
    CHECK(hooks.held == 0);
  }

  /// What is wrong, or "". Results are the library's, and deleted.
  std::string run(const Request &asked, int64_t n, bool isStrided = false, DLTensor *y = nullptr) {
    Floats x({n}, size_t(2 * n)), found({3});
    if (isStrided)
      x.setStrides({2});
    return runOn(asked, x, y, &found.tensor);
  }
  std::string runOn(const Request &asked, const Floats &x, DLTensor *y, DLTensor *found) {
    const DLTensor *inputs[] = {&x.tensor};
    disc_output outputs[] = {{y, nullptr}, {found, nullptr}};
    int64_t n = x.shape[0], stride = x.tensor.strides ? x.tensor.strides[0] : 1;
    request = &asked;
    Status status = model->run(inputs, 1, outputs, 2);
    request = nullptr;
    if (status.ok()) {
      const DLTensor &result = y ? *y : outputs[0].managed->dl_tensor;
      for (int64_t i = 0; i < n && !result.strides; ++i)
        CHECK(static_cast<float *>(result.data)[i] == x.data[size_t(i * stride)] + 1);
    }
    for (disc_output &output : outputs)
      if (output.managed)
        output.managed->deleter(output.managed);
    return status.ok() ? "" : status.error().message;
  }
  MemoryUsage usage() const { return model->memoryUsage(); }

  Hooks hooks;
  disc_model_info_t info = {};
  std::unique_ptr<Model> model;
};

bool mentions(const std::string &text, const std::string &part) {
  bool found = text.find(part) != std::string::npos;
  if (!found)
    std::printf("     \"%s\" lacks \"%s\"\n", text.c_str(), part.c_str());
  return found;
}
} // namespace

//===-- One call ----------------------------------------------------------===//

TEST(budgetIsExact) {
  Request asked;
  asked.plans = {1000};
  asked.scratch = 100;
  // Temporaries 1024, result 512, scratch 2 * 128, copy 448.
  constexpr int64_t kAll = 1024 + 512 + 256 + 448;
  Fixture fixture(kAll);
  CHECK_TEXT(fixture.run(asked, 100, /*isStrided=*/true), "");
  CHECK(fixture.hooks.takePeak() == kAll);
  CHECK(fixture.usage().peak == kAll && fixture.usage().budget == kAll);
  CHECK(fixture.usage().held == fixture.hooks.now());
  CHECK(fixture.usage().allocations == fixture.hooks.count());
  CHECK(fixture.usage().lastPlan == 0 && fixture.usage().otherPlans == 0);
  // Later calls use the same memory again.
  int64_t before = fixture.hooks.count();
  for (int i = 0; i < 3; ++i)
    CHECK_TEXT(fixture.run(asked, 100, /*isStrided=*/true), "");
  CHECK(fixture.hooks.count() == before && fixture.hooks.takePeak() == kAll);

  CHECK(fixture.model->setMemoryBudget(kAll - 1).ok());
  (void)fixture.hooks.takePeak();
  int ran = launches;
  CHECK_TEXT(fixture.run(asked, 100, /*isStrided=*/true),
             "the model's memory budget is 2239 bytes, and a call at these shapes needs at least 2240 bytes: "
             "temporaries 1024 bytes, results 512 bytes, scratch of 2 threads 256 bytes, copies of inputs 448 bytes. "
             "Raise the budget, or call the model with smaller inputs");
  CHECK(launches == ran);
  CHECK(fixture.hooks.now() <= kAll - 1);
  // Without the copy there is room.
  CHECK_TEXT(fixture.run(asked, 100), "");
  CHECK(fixture.hooks.takePeak() <= kAll - 1);
  fixture.model->resetMemoryPeak();
  CHECK(fixture.usage().peak == fixture.usage().held);
}

TEST(roomForTheArenaIsExact) {
  Fixture fixture(10'000);
  int64_t room = 0;
  Request asked;
  asked.isPlanned = false;
  auto roomOf = [&](int64_t scratch, int64_t y, int64_t budget) {
    CHECK(fixture.model->setMemoryBudget(budget).ok());
    asked.later = [&](disc_call *call) {
      const int64_t outputs[] = {y, -1};
      room = disc_rt_budget(call, scratch, outputs);
      return 0;
    };
    Floats x({1}), result({1}), found({3});
    CHECK_TEXT(fixture.runOn(asked, x, &result.tensor, &found.tensor), "");
    return room;
  };
  CHECK(roomOf(0, -1, 10'000) == 10'000 / 64 * 64);
  CHECK(roomOf(1, -1, 10'000) == (10'000 - 128) / 64 * 64);
  CHECK(roomOf(64, -1, 10'048) == 10'048 / 64 * 64 - 128);
  // The caller's tensor does not count.
  CHECK(roomOf(0, 4, 10'000) == 10'000 / 64 * 64);
  CHECK(roomOf(65, -1, 255) == -1);
  CHECK(roomOf(65, -1, 256) == 0);
  CHECK(roomOf(0, -1, 63) == 0);
  CHECK(roomOf(0, 4, 0) == INT64_MAX);
  CHECK(Allocator::standard().largest(131071) == 131008);
  CHECK(Allocator::standard().largest(131072) == 131072);
  CHECK(Allocator::standard().largest(196607) == 131072);
  CHECK(Allocator::standard().largest(INT64_MAX) > INT64_MAX / 2);
  for (int64_t room : {0, 63, 64, 131071, 131072, 131073, 196608, 1 << 30}) {
    int64_t most = Allocator::standard().largest(room);
    CHECK(most == 0 || int64_t(Allocator::standard().taken(size_t(most), Use::Lasting)) <= room);
    CHECK(int64_t(Allocator::standard().taken(size_t(most) + 1, Use::Lasting)) > room);
  }
}

TEST(plansAreChosenByTheBudget) {
  Request asked;
  asked.plans = {4096, 2048, 1024};
  Fixture fixture(0);
  CHECK_TEXT(fixture.run(asked, 1), "");
  CHECK(fixture.usage().lastPlan == -1 && fixture.hooks.now() == 4096 + 512);
  CHECK(fixture.usage().held == 4096 + 512);
  // What is kept is too much for the new budget, and goes at once.
  CHECK(fixture.model->setMemoryBudget(3000).ok());
  CHECK(fixture.hooks.now() <= 3000);
  (void)fixture.hooks.takePeak();
  CHECK_TEXT(fixture.run(asked, 1), "");
  CHECK(fixture.usage().lastPlan == 1 && fixture.usage().otherPlans == 1);
  CHECK(fixture.hooks.takePeak() <= 3000);
  CHECK(fixture.model->setMemoryBudget(1536).ok());
  (void)fixture.hooks.takePeak();
  CHECK_TEXT(fixture.run(asked, 1), "");
  CHECK(fixture.usage().lastPlan == 2 && fixture.usage().otherPlans == 2);
  CHECK(fixture.hooks.takePeak() <= 1536);
  CHECK(fixture.model->setMemoryBudget(1535).ok());
  CHECK(mentions(fixture.run(asked, 1), "needs at least 1536 bytes"));
  CHECK(fixture.model->setMemoryBudget(0).ok());
  CHECK_TEXT(fixture.run(asked, 1), "");
  CHECK(!fixture.model->setMemoryBudget(-1).ok());
}

TEST(keptMemoryIsFreedRatherThanRefused) {
  Fixture fixture(8192);
  Request small, large, other;
  small.plans = {64};
  // A result of 4096 bytes and a slot of 2048 bytes are kept.
  small.later = [](disc_call *call) { return disc_rt_slot(call, 0, 2048, 0) ? 0 : 1; };
  CHECK_TEXT(fixture.run(small, 1024), "");
  CHECK(fixture.hooks.now() == 64 + 4096 + 2048);
  (void)fixture.hooks.takePeak();
  large.plans = {8192 - 512};
  CHECK_TEXT(fixture.run(large, 1), "");
  CHECK(fixture.hooks.takePeak() <= 8192);
  // An arena that is larger than needed makes room for a copy.
  other.plans = {64};
  CHECK_TEXT(fixture.run(other, 960, /*isStrided=*/true), "");
  CHECK(fixture.hooks.takePeak() <= 8192);
  // Spare storages of calls at the same time.
  CHECK(fixture.model->setMemoryBudget(0).ok());
  Request outer = small;
  outer.later = [&](disc_call *) {
    const Request *before = request;
    CHECK_TEXT(fixture.run(small, 1024), "");
    request = before;
    return 0;
  };
  CHECK_TEXT(fixture.run(outer, 1024), "");
  CHECK(fixture.model->setMemoryBudget(8192).ok());
  (void)fixture.hooks.takePeak();
  CHECK_TEXT(fixture.run(large, 1), "");
  CHECK(fixture.hooks.takePeak() <= 8192);
}

TEST(resultsOfTheCallersDoNotCount) {
  Fixture fixture(1024);
  Request asked;
  asked.plans = {1024};
  Floats x({1000}), y({1000}), found({3});
  CHECK_TEXT(fixture.runOn(asked, x, &y.tensor, &found.tensor), "");
  CHECK(fixture.hooks.takePeak() == 1024);
  CHECK(mentions(fixture.runOn(asked, x, nullptr, &found.tensor), "results 4096 bytes"));
  // A strided one is written by way of a contiguous copy.
  Floats strided({1000}, 2000);
  strided.setStrides({2});
  CHECK(mentions(fixture.runOn(asked, x, &strided.tensor, &found.tensor), "results 4032 bytes"));
  CHECK(fixture.model->setMemoryBudget(1024 + 4032).ok());
  CHECK_TEXT(fixture.runOn(asked, x, &strided.tensor, &found.tensor), "");
  CHECK(strided.data[1998] == 1000);
  CHECK(fixture.hooks.takePeak() == 1024 + 4032);
}

TEST(resultsThatTheCallerHasDoNotCount) {
  Fixture fixture(1024);
  Request asked;
  asked.plans = {512};
  Floats x({100}), found({3});
  const DLTensor *inputs[] = {&x.tensor};
  std::vector<DLManagedTensorVersioned *> results;
  request = &asked;
  for (int i = 0; i < 5; ++i) {
    disc_output outputs[] = {{nullptr, nullptr}, {&found.tensor, nullptr}};
    CHECK(fixture.model->run(inputs, 1, outputs, 2).ok());
    results.push_back(outputs[0].managed);
    fixture.hooks.hand(512);
    CHECK(fixture.usage().held == 512 && fixture.hooks.now() == 512);
  }
  for (DLManagedTensorVersioned *result : results) {
    result->deleter(result);
    fixture.hooks.hand(-512);
  }
  // Only as many blocks are kept as there is room for.
  CHECK(fixture.usage().held == 1024 && fixture.hooks.now() == 1024);
}

TEST(laterAllocationsDrawOnTheRest) {
  Fixture fixture(4096);
  Request asked;
  asked.plans = {1024};
  asked.later = [](disc_call *call) { return disc_rt_arena(call, 1, 4096 - 1024 - 512) ? 0 : 1; };
  CHECK_TEXT(fixture.run(asked, 1), "");
  CHECK(fixture.hooks.takePeak() == 4096);
  asked.later = [](disc_call *call) { return disc_rt_arena(call, 1, 4096 - 1024 - 512 + 1) ? 0 : 1; };
  CHECK_TEXT(fixture.run(asked, 1),
             "no memory for temporaries of 2561 bytes: the model's memory budget of 4096 bytes has no room for 2624 "
             "bytes more. This call holds temporaries 1024 bytes, results 512 bytes, scratch 0 bytes, copies of inputs "
             "0 bytes, a stack of 0 bytes; other calls hold 0 bytes");
  CHECK(fixture.hooks.takePeak() <= 4096);
  asked.later = [](disc_call *call) {
    const int64_t n = 2000;
    return disc_rt_output(call, 1, 1, &n) ? 0 : 1;
  };
  Floats x({1});
  CHECK(mentions(fixture.runOn(asked, x, nullptr, nullptr), "no memory for output 'found' of shape [2000]: the model's "
                                                            "memory budget of 4096 bytes has no room for 8192 bytes"));
  CHECK(fixture.usage().held == fixture.hooks.now());
}

TEST(slotsGrowWithinTheBudget) {
  Fixture fixture(8192);
  Request asked;
  asked.plans = {1024};
  // 8192 - 1024 - 512 leaves 6656: both the old and the new memory of a slot that keeps what it holds.
  asked.later = [](disc_call *call) {
    auto *data = static_cast<char *>(disc_rt_slot(call, 0, 1024, 1));
    std::fill_n(data, 1024, char(5));
    data = static_cast<char *>(disc_rt_slot(call, 0, 2048, 1));
    CHECK(data && data[1023] == 5);
    data = static_cast<char *>(disc_rt_slot(call, 0, 2049, 1)); // doubled: 2048 + 4096
    CHECK(data && data[1023] == 5);
    return disc_rt_slot(call, 0, 4097, 1) ? 0 : 1; // 4096 + 4160
  };
  CHECK(mentions(fixture.run(asked, 1), "no memory for a loop's tensor of 4097 bytes: the model's memory budget of "
                                        "8192 bytes has no room for 4160 bytes more. This call holds temporaries 5120 "
                                        "bytes"));
  CHECK(fixture.hooks.takePeak() <= 8192);
  // Where there is no room for twice as much: what is needed.
  asked.later = [](disc_call *call) {
    return disc_rt_slot(call, 0, 3000, 1) && disc_rt_slot(call, 0, 3500, 1) ? 0 : 1;
  };
  CHECK_TEXT(fixture.run(asked, 1), "");
  // Without `keep` the old memory goes first.
  asked.later = [](disc_call *call) {
    return disc_rt_slot(call, 0, 3000, 0) && disc_rt_slot(call, 0, 6656, 0) ? 0 : 1;
  };
  CHECK_TEXT(fixture.run(asked, 1), "");
  CHECK(fixture.hooks.takePeak() == 8192);
}

TEST(stacksCountAsAWhole) {
  Fixture fixture(int64_t(Stack::kBytes) + 1024 + 512);
  Request asked;
  asked.plans = {1024};
  asked.later = [](disc_call *call) { return disc_rt_on_stack(call, [](disc_call *) { return 0; }); };
  CHECK_TEXT(fixture.run(asked, 1), "");
  CHECK(fixture.usage().held == int64_t(Stack::kBytes) + 1024 + 512);
  asked.later = [](disc_call *call) {
    return disc_rt_on_stack(call, [](disc_call *call) { return disc_rt_push(call, 64) ? 0 : 1; });
  };
  CHECK(mentions(fixture.run(asked, 1), "no memory for temporaries of 64 bytes: the model's memory budget of"));
  // An unused stack is freed, and a used one is not given room for.
  asked.later = nullptr;
  asked.plans = {2048};
  CHECK_TEXT(fixture.run(asked, 1), "");
  CHECK(fixture.usage().held < int64_t(Stack::kBytes));
  CHECK(fixture.model->setMemoryBudget(int64_t(Stack::kBytes)).ok());
  asked.later = [](disc_call *call) { return disc_rt_on_stack(call, [](disc_call *) { return 0; }); };
  CHECK(mentions(fixture.run(asked, 1), "no memory for the stack of a recursive model: the model's memory budget of"));
}

TEST(framesGrowWithinTheBudget) {
  Fixture fixture(int64_t(Stack::kBytes) + 1024 + 512 + 4096);
  Request asked;
  asked.plans = {1024};
  // Less than a chunk, which is larger than the budget.
  asked.later = [](disc_call *call) {
    return disc_rt_on_stack(call, [](disc_call *call) {
      char *first = static_cast<char *>(disc_rt_push(call, 1000));
      int64_t mark = disc_rt_mark(call);
      if (!first || !disc_rt_push(call, 3000))
        return 1;
      std::fill_n(first, 1000, char(3));
      disc_rt_pop(call, mark);
      // The chunk that is not in use any more is freed for a slot.
      return disc_rt_slot(call, 0, 3072, 0) ? 0 : 1;
    });
  };
  CHECK_TEXT(fixture.run(asked, 1), "");
  CHECK(fixture.hooks.takePeak() == 1024 + 512 + 4096);
  asked.later = [](disc_call *call) {
    return disc_rt_on_stack(
        call, [](disc_call *call) { return disc_rt_push(call, 2048) && disc_rt_push(call, 2049) ? 0 : 1; });
  };
  CHECK(mentions(fixture.run(asked, 1), "no memory for temporaries of 2049 bytes: the model's memory budget of"));
}

TEST(codeWithoutPlansIsBoundedToo) {
  Fixture fixture(2048);
  Request asked;
  asked.isPlanned = false;
  asked.plans = {1536};
  CHECK_TEXT(fixture.run(asked, 1), "");
  CHECK(fixture.hooks.takePeak() == 2048);
  asked.plans = {1537};
  CHECK(mentions(fixture.run(asked, 1), "no memory for output 'y' of shape [1]: the model's memory budget"));
  asked.scratch = 100'000;
  CHECK(mentions(fixture.run(asked, 1), ": the model's memory budget of 2048 bytes has no room for"));
  CHECK(fixture.hooks.takePeak() <= 2048);
}

TEST(scratchOfTheCallersThreadsCounts) {
  ModelOptions options;
  options.threads = 3;
  options.parallelFor = [](void *, int64_t count, disc_task_fn task, void *job) {
    std::vector<std::thread> threads;
    for (int64_t i = 0; i < count; ++i)
      threads.emplace_back(task, job, i, i + 1);
    for (std::thread &thread : threads)
      thread.join();
  };
  Request asked;
  asked.plans = {64};
  asked.scratch = 1000;
  Fixture fixture(64 + 512 + 3 * 1024, options);
  for (int i = 0; i < 5; ++i)
    CHECK_TEXT(fixture.run(asked, 100), "");
  CHECK(fixture.hooks.takePeak() == 64 + 512 + 3 * 1024);
  CHECK(fixture.model->setMemoryBudget(64 + 512 + 3 * 1024 - 1).ok());
  CHECK(mentions(fixture.run(asked, 100), "scratch of 3 threads 3072 bytes"));
  // Spare scratch of calls without a budget is freed.
  CHECK(fixture.model->setMemoryBudget(0).ok());
  CHECK_TEXT(fixture.run(asked, 100), "");
  CHECK(fixture.model->setMemoryBudget(64 + 512 + 3 * 1024).ok());
  (void)fixture.hooks.takePeak();
  CHECK_TEXT(fixture.run(asked, 100), "");
  CHECK(fixture.hooks.takePeak() <= 64 + 512 + 3 * 1024);
}

//===-- Calls at the same time --------------------------------------------===//

static void onThreads(int count, const std::function<void(int)> &body) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i)
    threads.emplace_back(body, i);
  for (std::thread &thread : threads)
    thread.join();
}

TEST(callsWaitForEachOther) {
  constexpr int64_t kOne = 4096 + 512;
  Fixture fixture(2 * kOne);
  std::atomic<int> inside{0}, most{0};
  onThreads(8, [&](int) {
    Request asked;
    asked.plans = {4096};
    asked.later = [&](disc_call *) {
      int now = ++inside, before = most;
      while (now > before && !most.compare_exchange_weak(before, now)) {
      }
      std::this_thread::sleep_for(std::chrono::microseconds(200));
      --inside;
      return 0;
    };
    Floats x({100}), y({100}, 200), found({3});
    y.setStrides({2});
    for (int i = 0; i < 20; ++i)
      CHECK_TEXT(fixture.runOn(asked, x, &y.tensor, &found.tensor), "");
  });
  CHECK(most == 2);
  CHECK(fixture.hooks.takePeak() <= 2 * kOne);
  CHECK(fixture.usage().peak <= 2 * kOne);
  CHECK(fixture.usage().held == fixture.hooks.now());
}

TEST(callsFailInsteadOfWaiting) {
  ModelOptions options;
  options.failsOverBudget = true;
  Fixture fixture(4096 + 512, options);
  Request asked;
  asked.plans = {4096};
  std::string said;
  Request outer = asked;
  outer.later = [&](disc_call *) {
    std::thread([&] { said = fixture.run(asked, 1); }).join();
    return 0;
  };
  CHECK_TEXT(fixture.run(outer, 1), "");
  CHECK_TEXT(said, "the model's memory budget is 4608 bytes, other calls hold 4608 bytes of it at the moment, and this "
                   "call needs 4608 bytes: temporaries 4096 bytes, results 512 bytes, scratch of 2 threads 0 bytes, "
                   "copies of inputs 0 bytes");
  // On the same thread it cannot wait.
  fixture.model->waitForMemory(true);
  outer.later = [&](disc_call *) {
    said = fixture.run(asked, 1);
    return 0;
  };
  CHECK_TEXT(fixture.run(outer, 1), "");
  CHECK(mentions(said, "It cannot wait for them: its thread is inside of another call of the model"));
  CHECK_TEXT(fixture.run(asked, 1), "");
  CHECK(fixture.hooks.takePeak() <= 4096 + 512);
}

TEST(waitingCallsAreCancelled) {
  static std::atomic<bool> cancel;
  cancel = false;
  ModelOptions options;
  options.interrupted = [](void *) { return int(cancel.load()); };
  Fixture fixture(4096 + 512, options);
  Request asked;
  asked.plans = {4096};
  Request outer = asked;
  std::string said;
  outer.later = [&](disc_call *) {
    std::thread waiting([&] { said = fixture.run(asked, 1); });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    cancel = true;
    waiting.join();
    cancel = false;
    return 0;
  };
  CHECK_TEXT(fixture.run(outer, 1), "");
  CHECK_TEXT(said, "the run was cancelled by the host program (disc_options.interrupted)");
  CHECK_TEXT(fixture.run(asked, 1), "");
}

TEST(budgetsThatChangeWhileCallsRun) {
  Fixture fixture(16384);
  std::atomic<bool> stop{false};
  std::thread changer([&] {
    for (int i = 0; !stop; ++i) {
      const int64_t budgets[] = {16384, 0, 5000, 9000};
      CHECK(fixture.model->setMemoryBudget(budgets[i % 4]).ok());
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  });
  onThreads(4, [&](int) {
    Request asked;
    asked.plans = {4096, 1024};
    for (int i = 0; i < 100; ++i)
      CHECK_TEXT(fixture.run(asked, 100), "");
  });
  stop = true;
  changer.join();
  CHECK(fixture.model->setMemoryBudget(4608).ok());
  CHECK(fixture.hooks.now() <= 4608);
  CHECK(fixture.usage().held == fixture.hooks.now());
}

TEST(randomCallsStayWithinTheirBudgets) {
  std::mt19937_64 random(7);
  auto below = [&](int64_t limit) { return int64_t(random() % uint64_t(limit)); };
  int64_t failed = 0, finished = 0;
  for (int round = 0; round < 1000; ++round) {
    int64_t budget = 512 + below(40'000);
    int threads = int(1 + below(4));
    ModelOptions options;
    options.threads = unsigned(1 + below(3));
    options.failsOverBudget = below(4) == 0;
    Fixture fixture(budget, options);
    struct Work {
      Request asked;
      int64_t n;
      bool isStrided, isGiven;
    };
    std::vector<std::vector<Work>> all;
    for (int i = 0; i < threads; ++i) {
      std::vector<Work> list;
      for (int64_t calls = 1 + below(3); calls > 0; --calls) {
        Request asked;
        int64_t largest = below(20'000);
        asked.plans = {largest, largest / 2, largest / 4};
        asked.scratch = below(3) ? 0 : below(2000);
        asked.isPlanned = below(8) != 0;
        int64_t slot = below(2) ? 0 : below(3000), part = below(2) ? 0 : below(4000);
        asked.later = [slot, part](disc_call *call) {
          for (int64_t bytes = slot; bytes > 0 && bytes <= 4 * slot; bytes += slot)
            if (!disc_rt_slot(call, 0, bytes, bytes % 2 == 0))
              return 1;
          return !part || disc_rt_arena(call, 1, part) ? 0 : 1;
        };
        list.push_back({asked, below(1500), below(2) == 0, below(2) == 0});
      }
      all.push_back(std::move(list));
    }
    std::atomic<int64_t> errors{0}, fine{0};
    onThreads(threads, [&](int i) {
      for (const Work &work : all[size_t(i)]) {
        Floats y({work.n}), x({work.n}, size_t(2 * work.n)), found({3});
        if (work.isStrided)
          x.setStrides({2});
        Request asked = work.asked;
        int64_t handed = 0;
        auto later = asked.later;
        asked.later = [&](disc_call *call) {
          if (int32_t status = later(call))
            return status;
          // Nothing fails from here on: the result is the caller's soon.
          handed = work.isGiven ? 0 : fixture.hooks.sizeOf(call->storage->outputs[0].made->dl_tensor.data);
          fixture.hooks.hand(handed);
          return 0;
        };
        std::string said = fixture.runOn(asked, x, work.isGiven ? &y.tensor : nullptr, &found.tensor);
        fixture.hooks.hand(-handed);
        ++(said.empty() ? fine : errors);
        if (!said.empty())
          CHECK(said.find("memory budget") != std::string::npos);
      }
    });
    CHECK(fixture.hooks.takePeak() <= budget);
    CHECK(fixture.usage().held == fixture.hooks.now());
    CHECK(fixture.usage().peak <= budget);
    failed += errors, finished += fine;
  }
  CHECK(failed > 100 && finished > 100);
}

//===-- Devices -----------------------------------------------------------===//

namespace {
/// A device that counts the bytes it gave.
class CountingDevice : public HostDevice {
public:
  CountingDevice() : HostDevice("counting") {}
  static CountingDevice *&the() {
    static CountingDevice *device = nullptr;
    return device;
  }
  static Status make(int32_t, std::unique_ptr<Device> &device) {
    the() = new CountingDevice;
    device.reset(the());
    return Status();
  }
  Status load(const disc_device_code &, std::unique_ptr<DeviceModule> &module) override {
    module = std::make_unique<DeviceModule>();
    return Status();
  }
  int64_t held = 0, peak = 0;

protected:
  Status doLaunch(DeviceModule &, const DeviceLaunch &, Stream) override { return Status(); }
  Status doAllocate(size_t bytes, Stream stream, void *&data) override {
    int64_t counted = std::max<int64_t>(rounded(int64_t(bytes), 64), 64);
    if (Status status = HostDevice::doAllocate(size_t(counted) + 256, stream, data); !status.ok())
      return status;
    *static_cast<int64_t *>(data) = counted;
    data = static_cast<char *>(data) + 256;
    held += counted, peak = std::max(peak, held);
    return Status();
  }
  void doRelease(void *data, Stream stream) override {
    data = static_cast<char *>(data) - 256;
    held -= *static_cast<int64_t *>(data);
    HostDevice::doRelease(data, stream);
  }
};
} // namespace

TEST(memoryOfDevicesCounts) {
  CHECK(DeviceRegistry::get().add("counting", CountingDevice::make));
  static const disc_device_code code = {"counting", 0, nullptr, 0, nullptr};
  disc_model_info_t info = {};
  info.version = DISC_MODEL_INFO_VERSION;
  info.num_inputs = 1, info.inputs = oneInput;
  info.num_outputs = 2, info.outputs = twoOutputs;
  info.device = &code;
  ModelOptions options;
  options.threads = 1;
  constexpr int64_t kAll = 1024 + 448; // and results: y 448, found 64
  options.memoryBudget = kAll + 448 + 64;
  std::unique_ptr<Model> model;
  CHECK(Model::create({&info, nullptr, runRequest, nullptr}, options, model).ok());
  CHECK(model->load(nullptr, 0).ok());
  CountingDevice &device = *CountingDevice::the();
  int64_t before = device.held;
  Request asked;
  asked.plans = {1024};
  Floats x({100}, 200);
  x.setStrides({2});
  auto run = [&] {
    device.peak = device.held;
    const DLTensor *inputs[] = {&x.tensor};
    disc_output outputs[2] = {};
    request = &asked;
    Status status = model->run(inputs, 1, outputs, 2);
    request = nullptr;
    CHECK(!status.ok() ||
          static_cast<float *>(outputs[0].managed->dl_tensor.data)[99] == x.data[size_t(99 * x.strides[0])] + 1);
    CHECK(model->memoryUsage().held + (status.ok() ? 448 + 64 : 0) == device.held - before);
    for (disc_output &output : outputs)
      if (output.managed)
        output.managed->deleter(output.managed);
    return status.ok() ? std::string() : status.error().message;
  };
  for (int i = 0; i < 3; ++i)
    CHECK_TEXT(run(), "");
  CHECK(device.peak - before == kAll + 448 + 64);
  CHECK(model->setMemoryBudget(kAll + 448 + 63).ok());
  CHECK(mentions(run(), "no memory for output 'found' of shape [3] (the memory budget does not allow it): the model's "
                        "memory budget of"));
  CHECK(model->setMemoryBudget(kAll + 447).ok());
  CHECK(mentions(run(), "needs at least 1920 bytes: temporaries 1024 bytes, results 448 bytes"));
  // An arena that is kept is too small, and a copy is not needed.
  asked.plans = {1472};
  x.setStrides({1});
  CHECK(model->setMemoryBudget(1472 + 448 + 64).ok());
  for (int i = 0; i < 2; ++i) {
    run();
    CHECK(device.peak - before <= 1472 + 448 + 64);
  }
  model.reset();
  CHECK(device.held == before);
}
