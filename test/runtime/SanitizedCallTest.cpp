//===- SanitizedCallTest.cpp - launches of sanitized kernels --------------===//
//
// The compiled code is the test's: each kernel does one thing wrong, or none, and the report says which.
//
//===----------------------------------------------------------------------===//

#include "HandModel.h"
#include "Script.h"
#include "lib/Runtime/Functions/Function.h"

#include <cstring>

using namespace disc::rt;
using namespace disc::test;

//===-- Kernels: args are two buffers of 160 bytes --------------------------===//

static void *&argument(void *const *args, int64_t i) { return const_cast<void **>(args)[i]; }

static void fill(void *const *args, int64_t, int64_t, void *) { std::memset(args[0], 1, 160); }
static void copyFirst(void *const *args, int64_t, int64_t, void *) { std::memcpy(args[0], args[1], 160); }
static void writeBehind(void *const *args, int64_t, int64_t, void *) { static_cast<char *>(args[0])[161] = 1; }
static void overrunScratch(void *const *, int64_t, int64_t, void *scratch) { static_cast<char *>(scratch)[67] = 1; }

/// What the next kernel asks the runtime.
static std::function<void(const int64_t *bounds, void *const *args, char *scratch)> question;
static void ask(void *const *args, int64_t, int64_t, void *scratch) {
  question(static_cast<const int64_t *>(argument(args, -1)), args, static_cast<char *>(scratch));
}

static const disc_kernel_info kernels[] = {
    {"fill", "map", "model.py:1", reinterpret_cast<const void *>(fill)},
    {"copy", "map", "", reinterpret_cast<const void *>(copyFirst)},
    {"ask", "map", "model.py:3", reinterpret_cast<const void *>(ask)},
};

namespace {
struct Sanitized : Script {
  Sanitized(const ModelOptions &options = {}) : Script(table(), options) { CHECK_TEXT(load(), ""); }
  static disc_model_info_t table() {
    disc_model_info_t info = blankInfo();
    info.num_kernels = 3;
    info.kernels = kernels;
    return info;
  }
};

/// The memory of a call: slots 'a' and 'b' of an arena, far from each other.
struct Slots {
  explicit Slots(disc_call *call) : call(call) {
    disc_rt_sanitize(call);
    arena = static_cast<char *>(disc_rt_arena(call, 0, 2048));
    CHECK(arena);
  }
  char *a() const { return arena + 256; }
  char *b() const { return arena + 1024; }
  /// A launch of `kernel` over both slots, with the flags of each.
  int32_t launch(disc_kernel_fn kernel, const char *flagsOfA, const char *flagsOfB, int64_t tasks = 1,
                 int64_t scratch = 64) const {
    void *list[] = {nullptr, a(), b()};
    const int64_t bytes[] = {160, 160};
    std::string text = std::string(flagsOfA) + " 'a'\n" + flagsOfB + " 'b'";
    return disc_rt_checked_launch(call, kernel, list + 1, text.c_str(), 2, bytes, tasks, 0, scratch);
  }
  disc_call *call;
  char *arena = nullptr;
};
} // namespace

/// What a run of these launches reports.
static std::string report(const std::function<int32_t(const Slots &)> &body) {
  Sanitized script;
  return script.run([&](disc_call *call) { return body(Slots(call)); });
}

TEST(sanitizedLaunchesPass) {
  CHECK_TEXT(report([](const Slots &slots) {
               CHECK(slots.launch(fill, "ws", "", 0) == 0); // no task, so nothing is written
               CHECK(slots.launch(fill, "ws", "") == 0);
               CHECK(slots.a()[0] == 1 && slots.a()[159] == 1);
               // 'b' becomes a copy of 'a', which is poisoned behind its last use.
               void *list[] = {nullptr, slots.b(), slots.a()};
               const int64_t bytes[] = {160, 160};
               int32_t status =
                   disc_rt_checked_launch(slots.call, copyFirst, list + 1, "ws 'b'\nrl 'a'", 2, bytes, 1, 0, 0);
               CHECK(slots.b()[159] == 1 && slots.a()[0] != 1);
               return status;
             }),
             "");
  // A result in an operand's place is not poisoned first.
  CHECK_TEXT(report([](const Slots &slots) {
               CHECK(slots.launch(fill, "ws", "") == 0);
               void *list[] = {nullptr, slots.a(), slots.a()};
               const int64_t bytes[] = {160, 160};
               auto addOne = [](void *const *args, int64_t, int64_t, void *) {
                 for (int i = 0; i < 160; ++i)
                   ++static_cast<char *>(args[0])[i];
               };
               int32_t status = disc_rt_checked_launch(slots.call, addOne, list + 1, "w 'a'\nr 'a'", 2, bytes, 1, 0, 0);
               CHECK(slots.a()[0] == 2 && slots.a()[159] == 2);
               return status;
             }),
             "");
}

TEST(sanitizedLaunchesReportWhatTheyReadAndWrite) {
  CHECK_TEXT(report([](const Slots &slots) { return slots.launch(copyFirst, "ws", "r"); }),
             "sanitizer: kernel 'copy' reads 'b': its memory from offset 0 to 160 of 160 bytes was never written");
  CHECK_TEXT(report([](const Slots &slots) {
               CHECK(slots.launch(fill, "wsl", "") == 0);
               return slots.launch(fill, "r", "");
             }),
             "sanitizer: kernel 'fill' (model.py:1) reads 'a': its memory from offset 0 to 160 of 160 bytes was "
             "poisoned after the last planned use of 'a', in kernel 'fill' (model.py:1)");
  CHECK_TEXT(report([](const Slots &slots) { return slots.launch(writeBehind, "ws", ""); }),
             "sanitizer: a kernel wrote out of bounds: byte 1 of the 128 bytes of a red zone of 'a' was overwritten");
  CHECK_TEXT(report([](const Slots &slots) { return slots.launch(overrunScratch, "ws", ""); }),
             "sanitizer: a kernel wrote 3 bytes beyond the end of its scratch memory of 64 bytes");
  CHECK(mentions(report([](const Slots &slots) { return slots.launch(fill, "ws", "", 1, int64_t(1) << 60); }),
                 "no memory for scratch of"));
  // The first report stays, whatever follows.
  CHECK_TEXT(report([](const Slots &slots) {
               (void)slots.launch(overrunScratch, "ws", "");
               return slots.launch(writeBehind, "ws", "");
             }),
             "sanitizer: a kernel wrote 3 bytes beyond the end of its scratch memory of 64 bytes");
}

TEST(sanitizedCopiesCheckWhatTheyRead) {
  CHECK_TEXT(report([](const Slots &slots) {
               disc_rt_checked_copy(slots.call, slots.b(), slots.a(), 0);
               disc_rt_checked_copy(slots.call, slots.b(), slots.a(), 8);
               return 0;
             }),
             "sanitizer: a copy of a tensor reads memory that it must not read: its memory from offset 0 to 8 of 8 "
             "bytes was never written");
  CHECK_TEXT(report([](const Slots &slots) {
               CHECK(slots.launch(fill, "ws", "") == 0);
               disc_rt_checked_copy(slots.call, slots.b(), slots.a(), 160);
               return slots.launch(fill, "w", "r");
             }),
             "");
}

/// What a kernel's question about an access leads to; its buffers are 'a' and 'b', scratch has 64 bytes.
static std::string access(std::function<void(const int64_t *bounds, void *const *args, char *scratch)> body) {
  question = std::move(body);
  return report([](const Slots &slots) { return slots.launch(ask, "ws", "ws"); });
}

static int64_t number(const void *address) { return int64_t(reinterpret_cast<uintptr_t>(address)); }

TEST(accessesOutOfBoundsAreNamed) {
  struct Row {
    disc_access_site site;
    const char *report; ///< Behind "sanitizer: kernel 'ask' (model.py:3) "; null: there is none.
    int64_t offset, bytes;
    int begin; ///< Whose bounds are given: 0 of 'a', 1 of 'b', 2 of scratch, 3 of nothing.
  };
  const Row rows[] = {
      {{"", 1, 0, DISC_ACCESS_WHOLE}, nullptr, 152, 8, 0},
      {{"", 1, 0, DISC_ACCESS_WHOLE}, nullptr, 500, 0, 0},
      {{"", 1, 0, DISC_ACCESS_WHOLE}, "writes 8 bytes at offset 153 of 'a', which has 160 bytes", 153, 8, 0},
      {{"model.py:7", 0, 1, DISC_ACCESS_WHOLE},
       "reads 1 byte at offset -1 of 'b', which has 160 bytes; the operation is from model.py:7",
       -1,
       1,
       1},
      {{"", 0, 0, DISC_ACCESS_WHOLE},
       "reads 4 bytes at offset 768 of 'a', which has 160 bytes; the address is inside 'b'",
       768,
       4,
       0},
      {{"", 0, 9, DISC_ACCESS_WHOLE}, "reads 4 bytes outside of all its buffers", 160, 4, 0},
      {{"", 0, DISC_ACCESS_ANY, DISC_ACCESS_WHOLE}, nullptr, 768, 4, 0},
      {{"", 0, DISC_ACCESS_ANY, DISC_ACCESS_WHOLE}, "reads 4 bytes outside of all its buffers", 400, 4, 0},
      {{"", 1, DISC_ACCESS_SCRATCH, DISC_ACCESS_WHOLE},
       "writes 4 bytes at offset 64 of its scratch memory, which has 64 bytes",
       64,
       4,
       2},
      {{"", 1, DISC_ACCESS_STACK, DISC_ACCESS_WHOLE},
       "writes 4 bytes at offset 64 of an array on its stack, which has 64 bytes",
       64,
       4,
       2},
      {{"", 0, DISC_ACCESS_CONSTANT, DISC_ACCESS_WHOLE},
       "reads 4 bytes at offset 64 of a constant, which has 64 bytes",
       64,
       4,
       2},
      {{"", 0, DISC_ACCESS_PANEL, DISC_ACCESS_WHOLE},
       "reads 4 bytes at offset 160 of 'b', which has 160 bytes",
       160,
       4,
       1},
      {{"", 0, DISC_ACCESS_PANEL, DISC_ACCESS_WHOLE},
       "reads 4 bytes at offset 64 of its scratch memory, which has 64 bytes",
       64,
       4,
       2},
      {{"", 0, DISC_ACCESS_PANEL, DISC_ACCESS_WHOLE}, "reads 4 bytes outside of all its buffers", 400, 4, 3},
  };
  for (const Row &row : rows) {
    std::string said = access([&](const int64_t *bounds, void *const *args, char *scratch) {
      CHECK(bounds[DISC_RT_BOUNDS_SCRATCH] == 64);
      const char *bases[] = {static_cast<char *>(args[0]), static_cast<char *>(args[1]), scratch,
                             static_cast<char *>(args[0])};
      const int64_t sizes[] = {160, 160, 64, 0};
      int64_t begin = row.begin == 3 ? 0 : number(bases[row.begin]), end = begin + sizes[row.begin];
      int64_t address = number(bases[row.begin]) + row.offset;
      int32_t status = disc_rt_check_access(bounds, &row.site, address, 0, row.bytes, begin, end);
      CHECK((status == 0) == !row.report);
    });
    CHECK_TEXT(said, row.report ? std::string("sanitizer: kernel 'ask' (model.py:3) ") + row.report : "");
  }
}

// Lanes lie one behind the other or where each says; those that the mask leaves out may be anywhere.
TEST(accessesOfLanes) {
  auto lanes = [](int64_t form, int64_t mask, int64_t bytes, int64_t wrongLane) {
    return access([&](const int64_t *bounds, void *const *args, char *) {
      disc_access_site site = {"", 0, 0, form};
      int64_t begin = number(args[0]), end = begin + 160, addresses[64];
      for (int64_t lane = 0; lane < 64; ++lane)
        addresses[lane] = lane == wrongLane ? begin - 4 : begin + lane;
      int64_t address = form == DISC_ACCESS_ADDRESSES ? number(addresses) : begin;
      (void)disc_rt_check_access(bounds, &site, address, mask, bytes, begin, end);
    });
  };
  CHECK_TEXT(lanes(DISC_ACCESS_LANES, 0xff, 20, -1), "");
  CHECK(mentions(lanes(DISC_ACCESS_LANES, 0x1ff, 20, -1), "reads 20 bytes at offset 160 of 'a'"));
  CHECK_TEXT(lanes(DISC_ACCESS_LANES, 0, 20, -1), "");
  CHECK_TEXT(lanes(DISC_ACCESS_LANES, -1, 2, -1), "");
  CHECK(mentions(lanes(DISC_ACCESS_LANES, INT64_MIN, 4, -1), "reads 4 bytes at offset 252 of 'a'"));
  CHECK_TEXT(lanes(DISC_ACCESS_ADDRESSES, -1, 4, -1), "");
  CHECK(mentions(lanes(DISC_ACCESS_ADDRESSES, -1, 4, 7), "reads 4 bytes at offset -4 of 'a'"));
  CHECK_TEXT(lanes(DISC_ACCESS_ADDRESSES, ~int64_t(1 << 7), 4, 7), "");
}

TEST(bufferOfAnAddress) {
  CHECK_TEXT(
      access([](const int64_t *bounds, void *const *args, char *scratch) {
        const int64_t a = number(args[0]), inScratch = number(scratch);
        auto begin = [&](int64_t address) { return disc_rt_buffer_begin(bounds, address, inScratch, inScratch + 64); };
        auto end = [&](int64_t address) { return disc_rt_buffer_end(bounds, address, inScratch, inScratch + 64); };
        CHECK(begin(a) == a && end(a) == a + 160 && begin(a + 159) == a);
        CHECK(begin(a + 160) == 0 && end(a + 160) == 0 && begin(a - 1) == 0);
        CHECK(begin(inScratch + 3) == inScratch && end(inScratch + 63) == inScratch + 64);
      }),
      "");
}

TEST(operandsOfFunctionsAreInOneBuffer) {
  auto views = [](int64_t offset, int64_t extent, int64_t stride, int64_t rows = 1) {
    return access([&](const int64_t *bounds, void *const *args, char *) {
      const int64_t dims[] = {rows, extent}, strides[] = {4, stride};
      disc_view list[] = {{args[0], DISC_F32, 2, dims, strides}, {args[0], DISC_F32, 0, dims, strides}};
      list[0].data = static_cast<char *>(args[0]) + offset;
      (void)disc_rt_check_views(bounds, list, 2);
    });
  };
  CHECK_TEXT(views(0, 40, 1), "");
  CHECK_TEXT(views(156, 40, -1), "");
  CHECK_TEXT(views(4000, 0, 1), ""); // without elements it may be anywhere
  CHECK_TEXT(views(0, 41, 1), "sanitizer: kernel 'ask' (model.py:3) passes operand 0 of 164 bytes to a function, at "
                              "offset 0 of 'a', which has 160 bytes");
  CHECK(mentions(views(0, 2, -1), "operand 0 of 8 bytes to a function, at offset -4 of 'a'"));
  CHECK(mentions(views(0, 37, 1, 2), "operand 0 of 164 bytes"));
  CHECK(mentions(views(-40, 4, 1), "operand 0 of 16 bytes to a function, outside of all its buffers"));
}

//===-- Outputs -----------------------------------------------------------===//

static const disc_dim_info dims4[] = {{DISC_DYNAMIC, "n", 0, DISC_UNBOUNDED}};
static const disc_tensor_info outputs[] = {{"y", DISC_F32, 1, dims4, 0}};

/// What a model reports whose only output has `extent` elements, of which `written` bytes are written.
static std::string output(int64_t extent, int64_t written, DLTensor *given = nullptr) {
  disc_model_info_t info = blankInfo();
  info.num_outputs = 1;
  info.outputs = outputs;
  Script script(info);
  CHECK_TEXT(script.load(), "");
  std::vector<disc_output> list = {{given, nullptr}};
  std::string said = script.run(
      [&](disc_call *call) {
        disc_rt_sanitize(call);
        auto *y = static_cast<char *>(disc_rt_output(call, 0, 1, &extent));
        void *args[] = {nullptr, y};
        const int64_t bytes = extent * 4;
        int64_t count = written;
        question = [&](const int64_t *, void *const *at, char *) { std::memset(at[0], 0, size_t(count)); };
        // A kernel that is told to write all of it does not always.
        return written < 0 ? 0 : disc_rt_checked_launch(call, ask, args + 1, "w output 'y'", 1, &bytes, 1, 0, 0);
      },
      {}, &list);
  if (list[0].managed)
    list[0].managed->deleter(list[0].managed);
  return said;
}

TEST(sanitizedOutputsAreWrittenAndNotOverrun) {
  CHECK_TEXT(output(4, 16), "");
  CHECK_TEXT(output(0, -1), "");
  CHECK_TEXT(output(4, -1), "sanitizer: output 'y': its memory from offset 0 to 16 of 16 bytes was never written");
  CHECK(mentions(output(4, 17), "byte 0 of the 128 bytes of a red zone of output 'y' was overwritten"));
  // Memory of the caller's has no red zones; strided, it is copied to at the end.
  Floats given({4}), strided({8});
  strided.shape[0] = 4;
  strided.setStrides({2});
  for (DLTensor *tensor : {&given.tensor, &strided.tensor}) {
    CHECK_TEXT(output(4, 16, tensor), "");
    CHECK(given.data[0] == 0 && given.data[3] == 0);
    CHECK(tensor != &strided.tensor || (strided.data[2] == 0 && strided.data[3] == 3));
    CHECK(mentions(output(4, -1, tensor), "output 'y': its memory from offset 0 to 16 of 16 bytes was never written"));
    given.data.assign(4, 0.0f); // poisoned
    given.tensor.data = given.data.data();
  }
  disc_model_info_t info = blankInfo();
  info.num_outputs = 1;
  info.outputs = outputs;
  Script script(info);
  CHECK_TEXT(script.load(), "");
  std::vector<disc_output> list = {{nullptr, nullptr}};
  // An overrun outside of kernels is found at the end.
  CHECK(mentions(script.run(
                     [](disc_call *call) {
                       disc_rt_sanitize(call);
                       const int64_t extent = 4;
                       auto *y = static_cast<char *>(disc_rt_output(call, 0, 1, &extent));
                       const char zeros[17] = {};
                       disc_rt_checked_copy(call, y, zeros, 16);
                       y[20] = 1;
                       return 0;
                     },
                     {}, &list),
                 "sanitizer: at the end of the call, byte 4 of the 128 bytes of a red zone"));
}

TEST(sanitizedMemoryIsPoisonedWhereverItComesFrom) {
  disc_model_info_t info = blankInfo();
  info.num_globals = 1;
  Script script(info, {}, /*hasInit=*/true);
  const uint16_t poison = Sanitizer::kPoison;
  auto poisoned = [&](const void *data, size_t bytes) {
    for (size_t i = 0; i + 1 < bytes; i += 2)
      if (std::memcmp(static_cast<const char *>(data) + i, &poison, 2) != 0)
        return false;
    return data != nullptr;
  };
  CHECK_TEXT(script.load([&](disc_call *call) {
    disc_rt_sanitize(call);
    CHECK(poisoned(disc_rt_global(call, 0, 64), 64));
    return 0;
  }),
             "");
  CHECK_TEXT(script.run([&](disc_call *call) {
    disc_rt_sanitize(call);
    CHECK(poisoned(disc_rt_arena(call, 1, 100), 100));
    CHECK(poisoned(disc_rt_arena(call, 1, 50000), 50000)); // elsewhere
    void *slot = disc_rt_slot(call, 0, 64, 0);
    CHECK(poisoned(slot, 64));
    std::memset(slot, 0, 64);
    CHECK(!poisoned(disc_rt_slot(call, 0, 64, 1), 64)); // it keeps what it had
    return disc_rt_on_stack(call, [](disc_call *inner) {
      int64_t mark = -1, first = disc_rt_enter(inner, 1, &mark);
      auto *memory = static_cast<unsigned char *>(disc_rt_push(inner, 32));
      CHECK(memory[0] == 0xf4 && memory[1] == 0xff && memory[31] == 0xff);
      disc_rt_leave(inner, first, mark);
      return int32_t(0);
    });
  }),
             "");
}

TEST(sanitizedMemoryMayBeLacking) {
  const int64_t huge = int64_t(1) << 60;
  const Script::Body bodies[] = {
      [&](disc_call *call) { return disc_rt_arena(call, 0, huge) ? 0 : 1; },
      [&](disc_call *call) { return disc_rt_slot(call, 0, huge, 0) ? 0 : 1; },
      [&](disc_call *call) { return disc_rt_push(call, huge) ? 0 : 1; },
  };
  for (const Script::Body &body : bodies) {
    Sanitized script;
    CHECK(mentions(script.run([&](disc_call *call) {
      disc_rt_sanitize(call);
      return body(call);
    }),
                   "no memory for"));
  }
}

TEST(sanitizedLaunchesAreProfiledAndPolled) {
  ModelOptions options;
  options.interrupted = [](void *) -> int32_t { return 0; };
  Sanitized script(options);
  CHECK(script.model->startProfile().ok());
  CHECK_TEXT(script.run([](disc_call *call) {
    Slots slots(call);
    call->stepsToPoll = 1000;
    CHECK(slots.launch(fill, "ws", "") == 0);
    CHECK(call->stepsToPoll == 0); // the next step asks the host
    return 0;
  }),
             "");
  std::vector<LaunchRecord> launches;
  CHECK(script.model->stopProfile(launches).ok());
  CHECK(launches.size() == 1 && launches[0].tasks == 1);
}
