//===- Library.h - a compiled library as data ------------------------------===//
//
// What the compiler emits beside the code of an ahead-of-time library: one constant `disc_library_NAME`. As in
// ModelInfo.h, every field is an int64_t or a pointer, text is never NULL, and an empty table may have a NULL pointer.
//
//===----------------------------------------------------------------------===//

#ifndef DISC_RUNTIME_CORE_LIBRARY_H
#define DISC_RUNTIME_CORE_LIBRARY_H

#include "lib/Runtime/Core/Abi.h"
#include "lib/Runtime/Core/ModelInfo.h"
#include "lib/Runtime/disc.h"

#ifdef __cplusplus
extern "C" {
#endif

#define DISC_LIBRARY_VERSION 1

/// The symbol by which a library opened by path is found; an alias of disc_library_NAME.
#define DISC_LIBRARY_SYMBOL "disc_library_model"

/// The code of the model for one kind of CPU.
typedef struct disc_variant {
  const char *cpu;      ///< "x86-64-v3"
  const char *features; ///< What a machine must have to run it: "avx2,fma", or "".
  const disc_model_info_t *info;
  disc_entry_fn init;
  disc_entry_fn main;
  disc_entry_fn shapes;
  /// 1 if the weights hold what `init` would compute: tensor "disc.packed.CPU.N" (bytes) is global N. `init` then runs
  /// only for weights that are swapped in.
  int64_t packed;
} disc_variant;

/// A tensor that the weights must hold.
typedef struct disc_stored_tensor {
  const char *name;
  int64_t dtype; ///< enum disc_dtype
  int64_t rank;
  const int64_t *shape;
  uint64_t hash_low, hash_high; ///< XXH3 128 of its bytes.
} disc_stored_tensor;

/// The C interface as the library's own runtime implements it: what is called on a model is done by the runtime that
/// made it, whichever library's functions the linker chose. Entries are only ever added at the end.
typedef struct disc_api {
  int64_t version; ///< DISC_VERSION; above its 32 bits, the table's revision: 1 has the functions about state, 2 those
                   ///< about memory.
  disc_status (*last_error)(disc_error *error);
  disc_status (*open)(const struct disc_library *library, const char *folder, const disc_options *options,
                      disc_model **model);
  disc_status (*free)(disc_model *model);
  disc_status (*swap_weights)(disc_model *model, const char *path);
  disc_status (*describe)(const disc_model *model, disc_model_spec *spec);
  disc_status (*describe_input)(const disc_model *model, int64_t index, disc_tensor_spec *spec);
  disc_status (*describe_output)(const disc_model *model, int64_t index, disc_tensor_spec *spec);
  disc_status (*describe_parameter)(const disc_model *model, int64_t index, disc_tensor_spec *spec);
  disc_status (*describe_symbol)(const disc_model *model, int64_t index, disc_symbol_spec *spec);
  disc_status (*run)(disc_model *model, const DLTensor *const *inputs, int64_t num_inputs, disc_output *outputs,
                     int64_t num_outputs);
  disc_status (*output_shapes)(disc_model *model, const DLTensor *const *inputs, int64_t num_inputs,
                               int64_t *const *shapes, int64_t num_outputs);
  disc_status (*seed)(disc_model *model, uint64_t seed);
  disc_status (*reset)(disc_model *model);
  // Since version 0.1.1.
  disc_status (*run_on)(disc_model *model, void *stream, const DLTensor *const *inputs, int64_t num_inputs,
                        disc_output *outputs, int64_t num_outputs);
  disc_status (*synchronize)(disc_model *model, void *stream);
  // Since revision 1.
  disc_status (*read_state)(disc_model *model, int64_t index, void *data, size_t bytes);
  disc_status (*write_state)(disc_model *model, int64_t index, const void *data, size_t bytes);
  disc_status (*save_state)(disc_model *model, const char *path);
  disc_status (*load_state)(disc_model *model, const char *path);
  // Since revision 2.
  disc_status (*set_memory_budget)(disc_model *model, int64_t bytes);
  disc_status (*wait_for_memory)(disc_model *model, int32_t waits);
  disc_status (*memory)(disc_model *model, disc_memory_usage *usage);
  disc_status (*reset_memory_peak)(disc_model *model);
} disc_api;

#define DISC_API_REVISION 2

/// The table of the runtime in this library.
extern const disc_api disc_rt_api;

struct disc_library {
  int64_t version; ///< DISC_LIBRARY_VERSION
  const disc_api *api;
  const char *name;
  int64_t num_variants;
  const disc_variant *variants; ///< The best first: the first one that the machine can run is chosen.
  const void *weights;          ///< A safetensors image, at a multiple of 64 bytes; NULL if it is a file of its own.
  int64_t weights_bytes;
  const char *weights_file; ///< The name of that file, to be found in the library's folder; "" if it is in the library.
  int64_t num_tensors;
  const disc_stored_tensor *tensors;
};

#ifdef __cplusplus
} // extern "C"
#endif

#endif // DISC_RUNTIME_CORE_LIBRARY_H
