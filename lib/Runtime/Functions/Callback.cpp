//===- Callback.cpp - operations that the process itself does --------------===//

#include "lib/Runtime/Functions/Function.h"

#include <cstdio>

/// Any operands. config: the address of a function of this process, and the number that it is called with. One task.
/// The function takes the operands in the order of disc_view, and returns 0, or the number of what went wrong.
int32_t disc_fn_callback(disc_call *call, const disc_view *operands, const int64_t *config, int64_t, int64_t, void *) {
  using Function = int32_t (*)(int64_t, const disc_view *);
  int32_t error = reinterpret_cast<Function>(static_cast<intptr_t>(config[0]))(config[1], operands);
  if (error == 0)
    return DISC_OK;
  char text[64];
  std::snprintf(text, sizeof(text), "fails with exception #%d", static_cast<int>(error));
  return disc_rt_function_failed(call, DISC_ERROR_INVALID, text);
}
