//===- BudgetApiTest.cpp - memory budgets in the C interface --------------===//

#include "Check.h"
#include "HandModel.h"

using namespace disc::test;

TEST(budgetsOfLibraries) {
  auto library = scaleLibrary(3);
  disc_options options = disc_default_options();
  options.memory_budget = -1;
  disc_model *model = nullptr;
  CHECK(disc_open(&library->library, &options, &model) == DISC_ERROR_INVALID);
  CHECK_TEXT(disc_last_error(), "disc_options.memory_budget is -1");
  options.memory_budget = 4096;
  options.flags = DISC_FAIL_OVER_BUDGET;
  options.threads = 1;
  CHECK(disc_open(&library->library, &options, &model) == DISC_OK);
  Floats x({4, 16}), large({64, 512});
  Longs mask({4, 3}), largeMask({64, 3});
  const DLTensor *small[] = {&x.tensor, &mask.tensor}, *big[] = {&large.tensor, &largeMask.tensor};
  disc_output y = {};
  CHECK(disc_run(model, small, 2, &y, 1) == DISC_OK);
  disc_memory_usage usage = {};
  CHECK(disc_memory(model, &usage) == DISC_ERROR_INVALID);
  usage.size = sizeof(usage);
  CHECK(disc_memory(model, &usage) == DISC_OK);
  CHECK(usage.budget == 4096 && usage.held == 256 && usage.peak == 768 && usage.allocations == 2);
  CHECK(usage.other_plans == 0 && usage.last_plan == -1);
  y.managed->deleter(y.managed);
  CHECK(disc_memory(model, &usage) == DISC_OK && usage.held == 768);
  y = {};
  CHECK(disc_run(model, big, 2, &y, 1) == DISC_ERROR_MEMORY && !y.managed);
  CHECK(disc_reset_memory_peak(model) == DISC_OK && disc_wait_for_memory(model, 1) == DISC_OK);
  // The part that an older program knows.
  struct {
    size_t size;
    int64_t budget;
  } older = {sizeof(older), 0};
  CHECK(disc_memory(model, reinterpret_cast<disc_memory_usage *>(&older)) == DISC_OK && older.budget == 4096);
  CHECK(disc_set_memory_budget(model, -5) == DISC_ERROR_INVALID);
  CHECK_TEXT(disc_last_error(), "the memory budget must be at least 0 bytes, got -5");
  CHECK(disc_set_memory_budget(model, 0) == DISC_OK);
  CHECK(disc_run(model, big, 2, &y, 1) == DISC_OK);
  CHECK(disc_free(model) == DISC_OK);
  y.managed->deleter(y.managed);
}
