//===- RegionTest.cpp - code of other back ends -------------------------------===//

#include "HandModel.h"
#include "Script.h"
#include "lib/Runtime/Functions/Function.h"

#include <cstring>

using namespace disc::rt;
using namespace disc::test;

namespace {
/// A back end that counts what is asked of it. Its state is a copy of its constant.
struct Counts {
  int inits = 0, runs = 0, releases = 0;
  int32_t initCode = 0, runCode = 0;
  const char *text = "";
} counts;

int32_t countedInit(const disc_backend_init *init, void **state) {
  ++counts.inits;
  CHECK(init->size == sizeof(*init) && init->num_constants == 1 && !std::strcmp(init->region, "{}"));
  const disc_view &w = init->constants[0];
  CHECK(w.dtype == DISC_VIEW_F32 && w.rank == 2 && w.dims[0] == 2 && w.dims[1] == 3 && w.strides[0] == 3 &&
        w.strides[1] == 1);
  std::strncpy(init->error, counts.text, init->error_size);
  *state = new float(static_cast<const float *>(w.data)[5]);
  if (counts.initCode)
    delete static_cast<float *>(*state);
  return counts.initCode;
}

int32_t countedRun(void *state, const disc_backend_run *run) {
  ++counts.runs;
  CHECK(run->size == sizeof(*run) && run->num_inputs == 1 && run->num_results == 1 && run->num_numbers == 2);
  CHECK(run->numbers[0] == 7 && run->numbers[1] == -1);
  std::strncpy(run->error, counts.text, run->error_size);
  *static_cast<float *>(run->operands[1].data) =
      *static_cast<const float *>(run->operands[0].data) * *static_cast<float *>(state);
  return counts.runCode;
}

void countedRelease(void *state) {
  ++counts.releases;
  delete static_cast<float *>(state);
}

disc_backend_table table = {DISC_BACKEND_VERSION, sizeof(disc_backend_table), countedInit, countedRun, countedRelease};

const int64_t shape[] = {2, 3}, constants[] = {0};
const disc_parameter_info parameter = {"w", DISC_F32, 2, shape, 1, 0};

/// Lives longer than the model.
struct Region {
  disc_region_info region;
};

/// A model with one region, which gets the parameter once.
struct WithRegion : Region, Script {
  explicit WithRegion(const disc_backend_table *functions = &table)
      : Region{{"region3", "counted", "{}", functions, 1, constants}}, Script(describe(region)) {}
  std::string load() {
    managed.version = {1, 0};
    managed.deleter = [](DLManagedTensorVersioned *) {};
    managed.flags = 0;
    managed.dl_tensor = weights.tensor;
    return Script::load({}, {&managed});
  }
  /// The result for 2, or a text.
  std::string run() {
    float x = 2, y = 0;
    std::string text = Script::run([&](disc_call *call) {
      disc_view operands[] = {{&x, DISC_F32, 0, nullptr, nullptr}, {&y, DISC_F32, 0, nullptr, nullptr}};
      int64_t config[] = {0, 1, 1, 2, 7, -1};
      return disc_fn_region(call, operands, config, 0, 1, nullptr);
    });
    return text.empty() ? std::to_string(int(y)) : text;
  }
  static disc_model_info_t describe(const disc_region_info &region) {
    disc_model_info_t info = blankInfo();
    info.num_parameters = 1;
    info.parameters = &parameter;
    info.num_regions = 1;
    info.regions = &region;
    return info;
  }

  Floats weights{{2, 3}};
  DLManagedTensorVersioned managed;
};
} // namespace

TEST(regionsHaveAStateForEachSetOfWeights) {
  counts = {};
  {
    WithRegion script;
    CHECK_TEXT(script.load(), "");
    CHECK_TEXT(script.run(), "10");
    script.weights.data[5] = 7;
    CHECK_TEXT(script.load(), "");
    CHECK(counts.inits == 2 && counts.releases == 1);
    CHECK_TEXT(script.run(), "14");
  }
  CHECK(counts.inits == 2 && counts.runs == 2 && counts.releases == 2);
}

TEST(regionsThatFailSayWhy) {
  counts = {};
  WithRegion script;
  CHECK_TEXT(script.load(), "");
  counts.runCode = 5;
  CHECK_TEXT(script.run(), "the back end's code returned 5");
  counts.text = "out of paper";
  CHECK_TEXT(script.run(), "out of paper");
  counts.runCode = 0;
  CHECK_TEXT(script.run(), "10");
  // The weights that are there stay.
  counts.initCode = 3;
  CHECK_TEXT(script.load(), "back end 'counted', region3: init failed: out of paper");
  counts.text = "";
  CHECK_TEXT(script.load(), "back end 'counted', region3: init failed: it returned 3");
  CHECK_TEXT(script.run(), "10");
  CHECK(counts.releases == 0);
}

TEST(tablesOfOtherVersionsAreRefused) {
  counts = {};
  disc_backend_table other = table;
  other.version = 9;
  WithRegion newer(&other);
  CHECK_TEXT(newer.load(), "back end 'counted', region3: its table of functions has version 9 and 32 bytes, expected "
                           "version 1 and at least 32 bytes");
  other = table;
  other.size = 8;
  WithRegion smaller(&other);
  CHECK_TEXT(smaller.load(), "back end 'counted', region3: its table of functions has version 1 and 8 bytes, expected "
                             "version 1 and at least 32 bytes");
  CHECK(counts.inits == 0);
}
