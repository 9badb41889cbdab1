//===- Function.h - native functions that kernels call ---------------------===//
//
// What is neither a map nor a reduction over a domain - sorting, scattering, decompositions - is written in C++ and
// called by kernels of kind `call`. The IR says `disc_tensor.call "sort"`; the function is `disc_fn_sort`.
// Functions.def lists them. A library that is compiled ahead of time holds those that it calls.
//
// A function knows the dtypes, extents and strides of its operands only when it runs: it is a template over what it
// needs and dispatches once. It uses the C and C++ libraries alone, throws nothing, and keeps no state.
//
//===----------------------------------------------------------------------===//

#ifndef DISC_RUNTIME_FUNCTIONS_FUNCTION_H
#define DISC_RUNTIME_FUNCTIONS_FUNCTION_H

#include "lib/Runtime/Core/Abi.h"
#include "lib/Runtime/Core/ModelInfo.h"
#include "lib/Runtime/disc.h"
#include "lib/Runtime/disc_backend.h"

#ifdef __cplusplus
extern "C" {
#endif

// disc_view (disc_backend.h) is a tensor. Complex numbers are pairs of f32 along a last dimension of extent 2.

/// Does the tasks [begin, end) of the operation's `tasks`. Tasks are independent, and the result does not depend on how
/// they are divided. `operands` are the inputs, then the results; `config` the operation's numbers, of which floats are
/// the bits of a double. `scratch` has the bytes that the operation asks for, 64-byte aligned, this thread's alone; its
/// contents are unspecified. Returns DISC_OK, or what disc_rt_function_failed(call, ...) returned.
typedef int32_t (*disc_function)(disc_call *call, const disc_view *operands, const int64_t *config, int64_t begin,
                                 int64_t end, void *scratch);

#define DISC_FUNCTION(name)                                                                                            \
  int32_t disc_fn_##name(disc_call *call, const disc_view *operands, const int64_t *config, int64_t begin,             \
                         int64_t end, void *scratch);
#include "lib/Runtime/Functions/Functions.def"
#undef DISC_FUNCTION

#ifdef __cplusplus
} // extern "C"

#include <cstring>

namespace disc::rt {

/// A row of the table of all functions.
struct FunctionEntry {
  const char *name; ///< "sort"
  disc_function function;
};

/// All functions, by name; ends with a null name. For the compiler in this process: a library's code refers to each
/// function that it calls by itself.
extern const FunctionEntry functionTable[];

/// A float among the numbers of `config`.
inline double configFloat(int64_t bits) {
  double value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

/// The number of elements.
inline int64_t numElements(const disc_view &view) {
  int64_t count = 1;
  for (int64_t i = 0; i < view.rank; ++i)
    count *= view.dims[i];
  return count;
}

} // namespace disc::rt
#endif // __cplusplus

#endif // DISC_RUNTIME_FUNCTIONS_FUNCTION_H
