//===- Region.cpp - code of other back ends -----------------------------------===//

#include "lib/Runtime/Functions/Function.h"

/// Any operands. config: which region of the model's table, how many operands, results and numbers, and the numbers.
/// One task.
int32_t disc_fn_region(disc_call *call, const disc_view *operands, const int64_t *config, int64_t, int64_t, void *) {
  return disc_rt_run_region(call, config[0], operands, config[1], config[2], config + 4, config[3]);
}
