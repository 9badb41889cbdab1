//===- ModelInfo.h - what a compiled model says about itself ---------------===//
//
// The compiler emits one constant `disc_model_info` (symbol `disc_model_info`) into every
// object; the runtime reads it to check inputs, to bind parameters and to word errors.
// Every field is an int64_t or a pointer, so that the emitter needs no layout
// rules of its own. Text is NUL-terminated UTF-8 and never NULL ("" when there is none). An empty
// table may have a NULL pointer.
//
//===----------------------------------------------------------------------===//

#ifndef DISC_RUNTIME_CORE_MODELINFO_H
#define DISC_RUNTIME_CORE_MODELINFO_H

#include "lib/Runtime/disc_backend.h"

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define DISC_MODEL_INFO_VERSION 9
/// Extent of a dim that is not static.
#define DISC_DYNAMIC (-1)
/// Extent of an output's dim that is known only after the run.
#define DISC_DATA_DEPENDENT (-2)
/// `max` of a symbol without an upper bound.
#define DISC_UNBOUNDED INT64_MAX

/// An element type: DLPack's type code in bits 8.. and the number of bits in bits 0..7.
/// MLIR's signless integers are DISC_I*, except where an argument or result says
/// `disc_tensor.unsigned` (a unit attribute); i1 is DISC_BOOL, one byte in memory.
enum disc_dtype {
  DISC_I8 = 0x008,
  DISC_I16 = 0x010,
  DISC_I32 = 0x020,
  DISC_I64 = 0x040,
  DISC_U8 = 0x108,
  DISC_U16 = 0x110,
  DISC_U32 = 0x120,
  DISC_U64 = 0x140,
  DISC_F16 = 0x210,
  DISC_F32 = 0x220,
  DISC_F64 = 0x240,
  DISC_BF16 = 0x410,
  DISC_BOOL = 0x608
};

typedef struct disc_dim_info {
  int64_t extent;   ///< Static extent, DISC_DYNAMIC or DISC_DATA_DEPENDENT.
  const char *text; ///< Its expression: "S", "B * S", "384".
  int64_t min;      ///< The range of its values,
  int64_t max;      ///< DISC_UNBOUNDED if there is no bound.
} disc_dim_info;

/// An input or an output.
typedef struct disc_tensor_info {
  const char *name;
  int64_t dtype; ///< enum disc_dtype
  int64_t rank;
  const disc_dim_info *dims;
  int64_t updated; ///< 1 if a run writes to this input.
} disc_tensor_info;

/// A dynamic extent that the user named.
typedef struct disc_symbol_info {
  const char *name;
  int64_t min;
  int64_t max; ///< DISC_UNBOUNDED if there is none.
  int64_t divisor;
  int64_t input; ///< Where its value comes from, or -1.
  int64_t dim;
} disc_symbol_info;

enum disc_predicate {
  DISC_EQ = 0,       ///< lhs == rhs
  DISC_LE = 1,       ///< lhs <= rhs
  DISC_GE = 2,       ///< lhs >= rhs
  DISC_DIVISIBLE = 3 ///< lhs % rhs == 0
};

/// A check at the entry. `lhs` describes what came, `rhs` what was expected.
typedef struct disc_guard_info {
  int64_t predicate;   ///< enum disc_predicate
  int64_t input;       ///< The input to blame, or -1.
  int64_t dim;         ///< Its dim, or -1.
  const char *symbol;  ///< "S", or "".
  const char *lhs;     ///< Text of what came, or "".
  const char *rhs;     ///< Text of what was expected: an expression, or the whole
                       ///< relation ("1 <= B <= 64").
  const char *message; ///< What is wrong ("is out of range"), or "".
} disc_guard_info;

/// A dim of an input whose extent is a symbol, where the model's code broadcasts some of that symbol's dims. They are
/// listed symbol by symbol, all of them.
typedef struct disc_repeat_info {
  int64_t symbol; ///< A number for it.
  int64_t input;
  int64_t dim;
  int64_t repeats; ///< 1 if the dim may be 1 where the others are not: the input is repeated along it.
} disc_repeat_info;

typedef struct disc_parameter_info {
  const char *name;
  int64_t dtype; ///< enum disc_dtype
  int64_t rank;
  const int64_t *shape;
  int64_t kept;    ///< 1 if `disc_main` reads it; if 0, `disc_init` alone does, and the runtime lets go of it then.
  int64_t updated; ///< 1 if `disc_main` writes to it: the model's state, not weights that calls share.
} disc_parameter_info;

/// A kernel, for reports on where time goes.
typedef struct disc_kernel_info {
  const char *name;
  const char *kind;   ///< "contraction", "row", ...
  const char *source; ///< Where the user's program asks for it, "model.py:12", or "".
  const void *function;
} disc_kernel_info;

/// A kernel that runs on a device.
typedef struct disc_device_kernel {
  const char *name; ///< In the images, and of the disc_kernel_info that says more.
  int64_t threads;  ///< Of a block.
  int64_t shared;   ///< Bytes of dynamic shared memory.
  const void *host; ///< What the emulated device runs; NULL elsewhere.
  const char
      *writes; ///< Of each argument: '0' a buffer that is only read, '1' one that is written, 's' a symbol's value.
} disc_device_kernel;

/// All kernels, for one kind of device.
typedef struct disc_device_image {
  const char *arch; ///< "sm_90" (a cubin), "compute_80" (PTX text, with its NUL), "gfx942" (a code object).
  const void *data;
  int64_t bytes;
  int64_t early; ///< 1: every kernel waits itself for those before it, and may be launched before they have finished.
} disc_device_image;

enum disc_product_epilogue {
  DISC_PRODUCT_PLAIN = 0,
  DISC_PRODUCT_BIAS = 1,          ///< Adds a row.
  DISC_PRODUCT_BIAS_GELU_TANH = 2 ///< Then GELU, by its approximation with tanh.
};

/// A product of matrices c = a * b that a library of the device's may do in place of a kernel: [m, k] * [k, n].
typedef struct disc_device_product {
  int64_t kernel;    ///< The one that does the same, by its number in disc_device_code.
  int64_t dtype;     ///< Of all matrices: DISC_F32, DISC_F16 or DISC_BF16. Sums are float32.
  int64_t a_columns; ///< 1: `a` lies in memory by columns, as a row-major [k, m].
  int64_t b_columns; ///< 1: `b` does, as a row-major [n, k].
  int64_t epilogue;  ///< enum disc_product_epilogue
  int64_t tf32;      ///< 1: float32 operands may be rounded to TF32.
} disc_device_product;

/// The code of a model that runs on a device.
typedef struct disc_device_code {
  const char *device; ///< "cuda", "rocm", "emulated", "null", or what a third party registered.
  int64_t num_images;
  const disc_device_image *images;
  int64_t num_kernels;
  const disc_device_kernel *kernels;
} disc_device_code;

/// A region that a back end compiled.
typedef struct disc_region_info {
  const char *name;        ///< "region0"
  const char *backend;     ///< "onednn"
  const char *description; ///< JSON
  const disc_backend_table *table;
  int64_t num_constants;
  const int64_t *constants; ///< Parameters, by their numbers in the model's table.
} disc_region_info;

typedef struct disc_model_info_t {
  int64_t version; ///< DISC_MODEL_INFO_VERSION
  int64_t num_inputs;
  const disc_tensor_info *inputs;
  int64_t num_outputs;
  const disc_tensor_info *outputs;
  int64_t num_symbols;
  const disc_symbol_info *symbols;
  int64_t num_guards;
  const disc_guard_info *guards;
  int64_t num_parameters;
  const disc_parameter_info *parameters;
  int64_t num_globals;
  int64_t num_kernels;
  const disc_kernel_info *kernels;
  const disc_device_code *device; ///< NULL: kernels run on the CPU.
  int64_t num_repeats;
  const disc_repeat_info *repeats;
  int64_t num_regions;
  const disc_region_info *regions;
  int64_t memory_budget; ///< Of calls, unless who loads the model sets another; 0: none.
} disc_model_info_t;

#ifdef __cplusplus
} // extern "C"
#endif

#endif // DISC_RUNTIME_CORE_MODELINFO_H
