/*===- disc_backend.h - code of a back end in a compiled model ----------------===
 *
 * A back end's code for a region of a model is one table of functions. The compiler knows it by the name of a constant;
 * code that DISC compiles from C or C++ defines it as
 *
 *   const disc_backend_table DISC_REGION = {DISC_BACKEND_VERSION, sizeof(disc_backend_table), init, run, release};
 *
 * C99, also usable from C++; no other file is needed. No C++ type and no exception may cross it.
 *
 * Threads: any number of threads may be in `run` of one state at the same time. `init` and `release` of a state are
 * called once, before the first and after the last run.
 *
 * Versions: structs begin with `size`, which whoever fills them in sets to its sizeof, and only grow at their end.
 * A change of what is there raises DISC_BACKEND_VERSION; a model refuses a table of another version.
 *
 *===----------------------------------------------------------------------===*/

#ifndef DISC_BACKEND_H
#define DISC_BACKEND_H

#include <stddef.h>
#include <stdint.h>

#define DISC_BACKEND_VERSION 1

#ifdef __cplusplus
extern "C" {
#endif

/* The fields of disc_view have 8 bytes also where pointers have 4. */
#define DISC_SLOT __attribute__((aligned(8)))

/* A tensor in memory that the host owns. */
typedef struct disc_view {
  DISC_SLOT void *data; /* The first element. */
  int64_t dtype;        /* DLPack's type code times 256 plus the bits of an element: DISC_VIEW_F32... */
  int64_t rank;
  DISC_SLOT const int64_t *dims; /* Extents; any may be 0. */
  DISC_SLOT const int64_t
      *strides; /* In elements. Operands may have any, also 0; results are row-major without gaps. */
} disc_view;

enum {
  DISC_VIEW_I8 = 0x008,
  DISC_VIEW_I16 = 0x010,
  DISC_VIEW_I32 = 0x020,
  DISC_VIEW_I64 = 0x040,
  DISC_VIEW_U8 = 0x108,
  DISC_VIEW_F16 = 0x210,
  DISC_VIEW_F32 = 0x220,
  DISC_VIEW_F64 = 0x240,
  DISC_VIEW_BF16 = 0x410,
  DISC_VIEW_BOOL = 0x608 /* bytes 0 and 1 */
};

/* What `init` is called with, once for each loaded model, and again when its weights are replaced. */
typedef struct disc_backend_init {
  size_t size;
  const char *region;         /* The description, JSON; as long as the model lives. */
  const disc_view *constants; /* The parameters that the back end asked for, in the description's order. Their data
                                 lives until `release`; the views themselves only during this call. */
  int64_t num_constants;
  char *error;       /* Where a function that fails writes why, NUL-terminated, */
  size_t error_size; /* in at most so many bytes. */
} disc_backend_init;

/* What `run` is called with. */
typedef struct disc_backend_run {
  size_t size;
  const disc_view *operands; /* The inputs, then the results. */
  int64_t num_inputs, num_results;
  const int64_t *numbers; /* The values of the symbols and expressions that the description lists as `numbers`. */
  int64_t num_numbers;
  char *error; /* As above. */
  size_t error_size;
} disc_backend_run;

/* Functions return 0, or another number if they failed. */
typedef struct disc_backend_table {
  uint32_t version;                                             /* DISC_BACKEND_VERSION */
  uint32_t size;                                                /* sizeof(disc_backend_table) */
  int32_t (*init)(const disc_backend_init *init, void **state); /* May be NULL: the state is NULL. */
  int32_t (*run)(void *state, const disc_backend_run *run);
  void (*release)(void *state); /* May be NULL. Not called after a failed init. */
} disc_backend_table;

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* DISC_BACKEND_H */
