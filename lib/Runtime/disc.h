/*===- disc.h - run compiled models ---------------------------------------===
 *
 * The C interface of every library that DISC compiles, and of libdisc.so, which loads such libraries by path. C99, also
 * usable from C++; no other file is needed. No C++ type and no exception crosses it.
 *
 *   disc_model *model;
 *   if (disc_load("libminilm.so", NULL, &model))
 *     return fprintf(stderr, "%s\n", disc_last_error()), 1;
 *   const DLTensor *inputs[] = {&ids, &mask};
 *   disc_output outputs[] = {{NULL, NULL}};              // one output, memory of the library's
 *   if (disc_run(model, inputs, 2, outputs, 1) == DISC_OK)
 *     outputs[0].managed->deleter(outputs[0].managed);   // after use
 *   disc_free(model);
 *
 * Threads: every function may be called from any thread, and any number of threads may run one model at the same time.
 * A model must not be freed while another thread uses it. Runs of a model with state (disc_reset) take turns. Inputs
 * that a model updates must not be used by another thread during the run.
 *
 * Errors: a function that returns disc_status and fails stores a text for this thread (disc_last_error) and leaves its
 * results untouched, unless it says otherwise. Outputs of a failed run have unspecified contents.
 *
 * Versions: a struct that may grow begins with `size`, which the caller sets to its sizeof; a field beyond the size
 * that the other side knows counts as 0. Libraries of different versions of DISC can live in one process: a call on a
 * model is always done by the runtime that the model's own library contains.
 *
 *===----------------------------------------------------------------------===*/

#ifndef DISC_DISC_H
#define DISC_DISC_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define DISC_API __attribute__((visibility("default")))
#else
#define DISC_API
#endif

#define DISC_VERSION_MAJOR 0
#define DISC_VERSION_MINOR 1
#define DISC_VERSION_PATCH 1
#define DISC_VERSION (DISC_VERSION_MAJOR * 0x10000 + DISC_VERSION_MINOR * 0x100 + DISC_VERSION_PATCH)

#ifdef __cplusplus
extern "C" {
#endif

/*===-- Tensors: the structures of DLPack 1.x, unless its own header came first ---------------------------------===*/

#ifndef DLPACK_DLPACK_H_

enum { kDLCPU = 1, kDLCUDA = 2, kDLROCM = 10 };
enum { kDLInt = 0, kDLUInt = 1, kDLFloat = 2, kDLBfloat = 4, kDLBool = 6 };

typedef struct DLDevice {
  int32_t device_type;
  int32_t device_id;
} DLDevice;

typedef struct DLDataType {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
} DLDataType;

typedef struct DLTensor {
  void *data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t *shape;
  int64_t *strides; /* In elements. NULL: row-major, without gaps. */
  uint64_t byte_offset;
} DLTensor;

typedef struct DLPackVersion {
  uint32_t major;
  uint32_t minor;
} DLPackVersion;

typedef struct DLManagedTensorVersioned {
  DLPackVersion version;
  void *manager_ctx;
  /* Releases the tensor and the structure itself. */
  void (*deleter)(struct DLManagedTensorVersioned *self);
  uint64_t flags;
  DLTensor dl_tensor;
} DLManagedTensorVersioned;

#endif /* DLPACK_DLPACK_H_ */

/*===-- Errors --------------------------------------------------------------------------------------------------===*/

typedef enum disc_status {
  DISC_OK = 0,
  DISC_ERROR_TYPE = 1,       /* dtype, device or number of tensors */
  DISC_ERROR_SHAPE = 2,      /* rank, or sizes that the model was not compiled for */
  DISC_ERROR_MEMORY = 3,     /* an allocation failed */
  DISC_ERROR_INVALID = 4,    /* misuse: a null pointer, a freed model, a struct without its size */
  DISC_ERROR_INDEX = 5,      /* an element of an input indexes beyond a dimension */
  DISC_ERROR_FILE = 6,       /* a file cannot be read, has another format, or is damaged */
  DISC_ERROR_VERSION = 7,    /* made by a version of DISC that does not fit this one */
  DISC_ERROR_TARGET = 8,     /* code for another kind of machine */
  DISC_ERROR_WEIGHTS = 9,    /* weights that are not the model's: names, dtypes, shapes or contents differ */
  DISC_ERROR_DEVICE = 10,    /* a device, or its driver, failed: also work that an earlier call put into a stream */
  DISC_ERROR_CANCELLED = 11, /* disc_options.interrupted ended the run */
  DISC_ERROR_SANITIZER = 12  /* a model compiled with checks of memory accesses failed one: a bug in DISC */
} disc_status;

/* "DISC_OK", "DISC_ERROR_TYPE", ...; "unknown status" for anything else. */
DISC_API const char *disc_status_name(disc_status status);

/* The text of the last failing call on this thread; "" before the first. Valid until the next call fails. */
DISC_API const char *disc_last_error(void);

/* The same as data. Texts are "" where they do not apply, and valid as long as that of disc_last_error. */
typedef struct disc_error {
  size_t size; /* Set it to sizeof(disc_error). */
  disc_status status;
  const char *message;
  const char *input; /* Name of the input at fault. */
  int64_t dim;       /* Its dim, or -1. */
  const char *symbol;
  const char *expected;
  const char *got;
} disc_error;

DISC_API disc_status disc_last_error_details(disc_error *error);

/* DISC_VERSION of the runtime that contains this function. */
DISC_API uint32_t disc_version(void);

/*===-- Models --------------------------------------------------------------------------------------------------===*/

/* A compiled model as code and data. Each library has one, `disc_library_NAME`, which its own header declares. */
typedef struct disc_library disc_library;

/* A loaded model. */
typedef struct disc_model disc_model;

/* Runs the tasks [begin, end) of a job. */
typedef void (*disc_task_fn)(void *job, int64_t begin, int64_t end);

/* Calls task(job, ...) for ranges that cover [0, count) once, from any threads, in any order; returns when all of them
 * have returned. */
typedef void (*disc_parallel_for_fn)(void *context, int64_t count, disc_task_fn task, void *job);

/* Returns at least `bytes` bytes at a multiple of `alignment`, a power of 2, or NULL. Thread-safe. */
typedef void *(*disc_allocate_fn)(void *context, size_t bytes, size_t alignment);
typedef void (*disc_release_fn)(void *context, void *data, size_t bytes);

enum {
  /* Files were checked by other means: their contents are not compared with the checksums recorded in the library.
   * Formats and bounds still are. */
  DISC_TRUST_FILES = 1,
  /* Files of weights are mapped, not read: processes share their pages, and loading costs no copy. A mapped file that
   * is cut short or overwritten while a model uses it ends the process with a bus error; replace it by renaming. */
  DISC_MAP_FILES = 2,
  /* A run that the memory budget has room for, but not while other runs hold so much of it, fails with
   * DISC_ERROR_MEMORY. Without this flag it waits for them. */
  DISC_FAIL_OVER_BUDGET = 4
};

/* Whether the run that calls it should end. */
typedef int (*disc_interrupted_fn)(void *context);

typedef struct disc_options {
  size_t size; /* Set it to sizeof(disc_options), and unused fields to 0: disc_default_options() does. */

  /* Threads of one call, the caller's included; 0: every core this process may use. Models of the same number share one
   * pool. With `parallel_for`, how many ranges are useful. */
  int32_t threads;
  uint32_t flags;

  /* The file of weights. NULL: those in the library, or those of the file beside it. */
  const char *weights;

  /* NULL: the library's own pool. */
  disc_parallel_for_fn parallel_for;
  void *parallel_context;

  /* For temporaries, outputs, packed weights; NULL: the C library. Set both or neither. They are called until the
   * model and all of its outputs are freed. */
  disc_allocate_fn allocate;
  disc_release_fn release;
  void *allocator_context;

  /* For a model that runs on a device: the number of the device, 0, 1, ... */
  int32_t device;

  /* NULL, or called every few milliseconds by the thread that runs the model, between the steps of loops and behind
   * long kernels. Once it returns a value other than 0 the run ends with DISC_ERROR_CANCELLED; the model can be run
   * again. */
  disc_interrupted_fn interrupted;
  void *interrupted_context;

  /* The most bytes that all runs may hold at once; 0: no limit. See disc_set_memory_budget. */
  int64_t memory_budget;
} disc_options;

static inline disc_options disc_default_options(void) {
  disc_options options;
  options.size = sizeof(disc_options);
  options.threads = 0;
  options.flags = 0;
  options.weights = NULL;
  options.parallel_for = NULL;
  options.parallel_context = NULL;
  options.allocate = NULL;
  options.release = NULL;
  options.allocator_context = NULL;
  options.device = 0;
  options.interrupted = NULL;
  options.interrupted_context = NULL;
  options.memory_budget = 0;
  return options;
}

/* Opens the model of a library that this program is linked with. `options` may be NULL. */
DISC_API disc_status disc_open(const disc_library *library, const disc_options *options, disc_model **model);

/* Opens the model of a library's file. The file is checked against its own checksum before any of it runs. The library
 * stays in the process also after disc_free. */
DISC_API disc_status disc_load(const char *path, const disc_options *options, disc_model **model);

/* Frees the model; NULL is allowed. Outputs live on. */
DISC_API disc_status disc_free(disc_model *model);

/* Replaces the weights by those of a safetensors file with the same names, dtypes and shapes. Calls in progress finish
 * with the weights they began with. On failure the model keeps its weights. */
DISC_API disc_status disc_swap_weights(disc_model *model, const char *path);

/* Sets the seed of random operations (0 at first). Their numbers depend on the seed, on how many runs began since it
 * was set, and on their place in the model; not on threads. Runs at the same time share the count. */
DISC_API disc_status disc_seed(disc_model *model, uint64_t seed);

/* Resets the model's state (buffers that runs update, such as caches and counters) to the values it was compiled with.
 * Each model has its own. Waits for runs in progress. Does nothing for a model without state. */
DISC_API disc_status disc_reset(disc_model *model);

/* The same of one parameter that is DISC_TENSOR_UPDATED, by its index in disc_describe_parameter: copied to or from
 * `data`, host memory of exactly its size, row-major. */
DISC_API disc_status disc_read_state(disc_model *model, int64_t index, void *data, size_t bytes);
DISC_API disc_status disc_write_state(disc_model *model, int64_t index, const void *data, size_t bytes);

/* Writes the whole state to a safetensors file, and what random numbers follow from: how far a training got, for
 * example. Waits for runs in progress. The file takes the place of an older one when it is complete. */
DISC_API disc_status disc_save_state(disc_model *model, const char *path);

/* Takes the state from such a file; names, dtypes and shapes must be the model's. On failure nothing changes (but on a
 * device whose driver fails). */
DISC_API disc_status disc_load_state(disc_model *model, const char *path);

/* Whether models for a kind of device ("cuda", "rocm", "emulated", ...) can run here, on the device of this number; the
 * error says what is missing. DISC_OK for "cpu". */
DISC_API disc_status disc_find_device(const char *kind, int32_t number);

/*===-- Memory ----------------------------------------------------------------------------------------------------===*/

/* Sets the memory budget: the most bytes that all runs of the model hold at once, and what the model keeps for later
 * runs; 0: no limit. Temporaries, scratch of all threads, contiguous copies of strided inputs, results that the library
 * allocates until the run that computes them has returned, and the stack of a recursive model count. Weights, the
 * caller's tensors, results that the caller has, and memory while weights are loaded or swapped do not. Nor do the
 * library's own data structures, which are small. On a device, memory of the device and of the host count together.
 *
 * Memory that is merely kept is freed before a run is refused. A run that needs more than the budget fails with
 * DISC_ERROR_MEMORY before any kernel runs, unless its sizes depend on data: then it fails where they become known.
 * A run that there is no room for at the moment waits until others have ended (DISC_FAIL_OVER_BUDGET). A smaller budget
 * holds for runs that begin after it was set; what is kept beyond it is freed.
 *
 * Sizes count as they are taken: multiples of 64 bytes; results on the CPU multiples of 512 bytes; without
 * disc_options.allocate, other memory of at least 128 KiB in multiples of 64 KiB; the stack as 256 MiB. */
DISC_API disc_status disc_set_memory_budget(disc_model *model, int64_t bytes);

/* Whether runs wait for memory that other runs hold: 1, or 0 as with DISC_FAIL_OVER_BUDGET. */
DISC_API disc_status disc_wait_for_memory(disc_model *model, int32_t waits);

typedef struct disc_memory_usage {
  size_t size;         /* Set it to sizeof(disc_memory_usage). */
  int64_t budget;      /* 0: none. */
  int64_t held;        /* Bytes that runs hold, or the model keeps for later ones, at the moment... */
  int64_t peak;        /* ...and the most at once since disc_reset_memory_peak. */
  int64_t allocations; /* Since the model was opened. */
  int64_t other_plans; /* Runs that used another plan than the first, to fit in the budget. */
  int64_t last_plan;   /* Of the run that chose one last: 0, 1, ...; -1 if none has. */
} disc_memory_usage;

/* How much memory the model holds, as its budget counts it, also without a budget. */
DISC_API disc_status disc_memory(disc_model *model, disc_memory_usage *usage);
DISC_API disc_status disc_reset_memory_peak(disc_model *model);

/*===-- What a model is -----------------------------------------------------------------------------------------===*/

typedef struct disc_model_spec {
  size_t size; /* Set it to sizeof(disc_model_spec). */
  const char *name;
  const char *cpu;  /* The kind of CPU whose code was chosen, "x86-64-v3". */
  uint32_t version; /* DISC_VERSION of the model's runtime. */
  int32_t threads;
  int64_t num_inputs;
  int64_t num_outputs;
  int64_t num_symbols;
  int64_t num_parameters;
  const char *device; /* Where it runs: "cpu", "cuda", "rocm", ... */
  int32_t device_id;
} disc_model_spec;

enum {
  /* For an input: a run writes to its elements. For a parameter: it is state. */
  DISC_TENSOR_UPDATED = 1
};

/* An input, output or parameter. */
typedef struct disc_tensor_spec {
  size_t size; /* Set it to sizeof(disc_tensor_spec). */
  const char *name;
  DLDataType dtype;
  int32_t ndim;
  const char *const *dims; /* The expression of each dim: "batch", "batch * length", "384". */
  const int64_t *min;      /* The smallest size of each dim... */
  const int64_t *max;      /* ...and the largest, INT64_MAX without a limit. */
  uint64_t flags;          /* DISC_TENSOR_UPDATED */
} disc_tensor_spec;

/* A symbol: a dynamic size with a name of its own. */
typedef struct disc_symbol_spec {
  size_t size; /* Set it to sizeof(disc_symbol_spec). */
  const char *name;
  int64_t min;
  int64_t max;     /* INT64_MAX without a limit. */
  int64_t divisor; /* Every value is a multiple. */
  int64_t input;   /* The input and dim that the value comes from; -1 if it is not a single one. */
  int64_t dim;
} disc_symbol_spec;

/* Texts and arrays live as long as the model. An index out of range is DISC_ERROR_INVALID. */
DISC_API disc_status disc_describe(const disc_model *model, disc_model_spec *spec);
DISC_API disc_status disc_describe_input(const disc_model *model, int64_t index, disc_tensor_spec *spec);
DISC_API disc_status disc_describe_output(const disc_model *model, int64_t index, disc_tensor_spec *spec);
DISC_API disc_status disc_describe_parameter(const disc_model *model, int64_t index, disc_tensor_spec *spec);
DISC_API disc_status disc_describe_symbol(const disc_model *model, int64_t index, disc_symbol_spec *spec);

/*===-- Running -------------------------------------------------------------------------------------------------===*/

/* The destination of one output. */
typedef struct disc_output {
  /* The caller's tensor, strided or not, written in place; or NULL. Its shape must be the output's. If a size is
   * known only after the run, the tensor may be larger there: the library then writes the size into `shape`. */
  DLTensor *tensor;
  /* Without `tensor`: set to a new tensor, which the caller deletes. */
  DLManagedTensorVersioned *managed;
} disc_output;

/* Runs the model. Inputs may be strided. They are only read, unless they are DISC_TENSOR_UPDATED: the model then writes
 * to them, so strides of 0 and overlaps with other inputs are errors, and their contents are unspecified on failure. An
 * output must not overlap an input. On failure no `managed` is set. */
DISC_API disc_status disc_run(disc_model *model, const DLTensor *const *inputs, int64_t num_inputs,
                              disc_output *outputs, int64_t num_outputs);

/* The same for a model that runs on a device, on a stream of the caller's: a CUstream or cudaStream_t, a hipStream_t;
 * NULL is the device's default stream, which disc_run takes. Inputs and outputs are tensors on that device, contiguous
 * ones.
 *
 * It returns once the work is enqueued, and waits for the device only if a size depends on data. Inputs must not be
 * written to or freed before the stream has executed the work. Outputs are available to later work in the stream, and
 * `managed` ones are freed in its order: the stream must outlive them and its own work (another stream may get its
 * address). A failure after the return is reported by a later call. Runs on several streams may overlap, except those
 * of a model with state, which take turns. A stream that is being captured into a graph is an error. */
DISC_API disc_status disc_run_on(disc_model *model, void *stream, const DLTensor *const *inputs, int64_t num_inputs,
                                 disc_output *outputs, int64_t num_outputs);

/* Waits for all work in the stream, and reports whether any of it failed. Does nothing for a model on the CPU. */
DISC_API disc_status disc_synchronize(disc_model *model, void *stream);

/* The shapes that the outputs of a run with these inputs would have; checks the inputs as a run does, and reads no
 * data: `data` may be NULL. shapes[i] has room for the ndim of output i; NULL skips it. A size that is known only after
 * the run is -1. */
DISC_API disc_status disc_output_shapes(disc_model *model, const DLTensor *const *inputs, int64_t num_inputs,
                                        int64_t *const *shapes, int64_t num_outputs);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* DISC_DISC_H */
