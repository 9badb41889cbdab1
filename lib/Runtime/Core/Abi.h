//===- Abi.h - the C functions that compiled code calls -------------------===//
//
// A compiled model is straight native code: `disc_init` and `disc_main` take one
// opaque call and reach everything else through the functions below. The lowering
// of disc_rt declares them; the JIT and the AOT link resolve them.
//
// A function that returns `int32_t` returns DISC_OK or another disc_status. One that
// returns a pointer returns NULL on failure. In both cases the call has recorded what
// went wrong, so compiled code returns at once, with any nonzero status: the runtime
// reports the recorded one.
//
//===----------------------------------------------------------------------===//

#ifndef DISC_RUNTIME_CORE_ABI_H
#define DISC_RUNTIME_CORE_ABI_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/// One execution of a model: inputs, outputs, arena and the error, if any. It begins with an int64_t that compiled code
/// decrements at the end of each step of a loop; below 0, it calls disc_rt_poll. A second int64_t, at offset 8, is not
/// 0 if the model has a memory budget during this call: see disc_rt_budget. Of a model with device code, all data that
/// the functions below give lies on the device.
typedef struct disc_call disc_call;

/// Where in a call an int64_t lies that is not 0 if the model has a memory budget.
#define DISC_RT_BUDGETED_OFFSET 8

/// Runs tasks [begin, end). `args` holds operand pointers, result pointers, symbol values (int64) and, for a kernel
/// that checks indices, the call. `scratch` is 64-byte aligned and private to the calling worker.
typedef void (*disc_kernel_fn)(void *const *args, int64_t begin, int64_t end, void *scratch);

/// Signature of the entry symbols `disc_init`, `disc_main` and `disc_shapes` of a compiled object. The last one checks
/// inputs, evaluates guards and tells the outputs' shapes; it may run at the same time as `disc_main`.
typedef int32_t (*disc_entry_fn)(disc_call *call);

/// Rank, dtype, device, static extents and data of every input against the model's table, and the caller's tensors for
/// outputs as far as they can be judged yet. Comes first in `disc_main` and `disc_shapes`. In `disc_init`, which has no
/// inputs, there is nothing to check.
int32_t disc_rt_check_inputs(disc_call *call);

/// Extent of one dim of one input. Valid after disc_rt_check_inputs.
int64_t disc_rt_extent(disc_call *call, int64_t input, int64_t dim);

/// Records the failure of guard number `guard` of the model's table; called only when
/// the inline comparison failed. `lhs` is what came, `rhs` what was expected.
int32_t disc_rt_guard_failed(disc_call *call, int64_t guard, int64_t lhs, int64_t rhs);

/// Records that a size overflows; called only when the inline comparison failed. `pairs` holds a text and a value for
/// each of `sizes` sizes and `numbers` numbers (as double), then the name and the value of each of `symbols` symbols
/// (int64).
int32_t disc_rt_size_failed(disc_call *call, int64_t sizes, int64_t numbers, int64_t symbols, const int64_t *pairs);

/// Row-major contiguous data of an input; a strided input is copied, once per call.
void *disc_rt_input(disc_call *call, int64_t input);

/// Data of a parameter, by its number in the model's table.
void *disc_rt_parameter(disc_call *call, int64_t parameter);

/// Storage that `disc_init` fills and `disc_main` reads. The first request allocates `bytes` bytes; later ones may not
/// ask for more.
void *disc_rt_global(disc_call *call, int64_t global, int64_t bytes);

/// With a memory budget, `disc_main` calls these three functions after disc_rt_check_inputs and all guards, before it
/// asks for any memory. Without one it need not call them, and disc_rt_budget returns INT64_MAX.
///
/// disc_rt_budget returns how large the first part of the arena may be in this call, so that all fits in the budget:
/// a plan of `bytes` bytes fits if `bytes` is not larger. `scratch_bytes` is the most that a launch of the call asks
/// for. `output_bytes` has the size of each output, or -1 if it is not known yet; it is read during this function only.
/// The results are subtracted that the library allocates or scatters, scratch of all threads, and contiguous copies of
/// strided inputs, all as they are rounded when they are allocated (Allocator::taken). What other calls hold does not
/// matter. Less than 0: no plan fits.
int64_t disc_rt_budget(disc_call *call, int64_t scratch_bytes, const int64_t *output_bytes);

/// The call goes on with plan number `plan`, the first part of whose arena has `bytes` bytes. Allocates that part, and
/// what disc_rt_budget subtracted. If other calls hold too much, waits for them, or fails if the model does not wait.
/// Later requests for these buffers succeed.
int32_t disc_rt_begin_plan(disc_call *call, int64_t plan, int64_t bytes);

/// Records that no plan fits; `bytes` is the smallest arena of all.
int32_t disc_rt_over_budget(disc_call *call, int64_t bytes);

/// Temporary storage of the call, at least `bytes` bytes, 64-byte aligned. It may have several parts, numbered from 0:
/// sizes that depend on data are known late. What was in a part is lost when it is requested again, in a loop.
void *disc_rt_arena(disc_call *call, int64_t part, int64_t bytes);

/// Storage like an arena's part, which grows by doubling, for what gets larger from step to step of a loop. With `keep`
/// it holds what it held before, though it may lie elsewhere.
void *disc_rt_slot(disc_call *call, int64_t number, int64_t bytes, int32_t keep);

/// Between two steps of a loop: whether the host program wants the run to end, which is an error then. Sets when to ask
/// again.
int32_t disc_rt_poll(disc_call *call);

/// Runs `body` on a stack of the call's own, which is large: procedures recurse on it.
int32_t disc_rt_on_stack(disc_call *call, int32_t (*body)(disc_call *));

/// Begins an activation of a procedure, with `slots` slots of its own: their first number, or -1 if the stack is used
/// up. `mark` is told where the memory of activations ends.
int64_t disc_rt_enter(disc_call *call, int64_t slots, int64_t *mark);

/// Ends it: memory behind the mark is free again, and slots from the first one on.
void disc_rt_leave(disc_call *call, int64_t slot, int64_t mark);

/// Memory of the current activation, 64-byte aligned.
void *disc_rt_push(disc_call *call, int64_t bytes);

/// Where the memory of activations ends; what is pushed from here on is free again after `disc_rt_pop`.
int64_t disc_rt_mark(disc_call *call);
void disc_rt_pop(disc_call *call, int64_t mark);

/// Where one output goes, row-major contiguous: memory of the caller's or a new block. Never NULL for an empty tensor.
/// Called once per output.
void *disc_rt_output(disc_call *call, int64_t output, int64_t rank, const int64_t *dims);

/// In `disc_shapes`, in place of disc_rt_output: what its extents will be. Dims that the table calls data-dependent are
/// not read.
int32_t disc_rt_output_shape(disc_call *call, int64_t output, int64_t rank, const int64_t *dims);

/// Runs `tasks` independent tasks, about `cost_ns` nanoseconds each, on the pool.
/// Which worker runs a task, and how many there are, never changes a result.
int32_t disc_rt_parallel_for(disc_call *call, disc_kernel_fn kernel, void *const *args, int64_t tasks, int64_t cost_ns,
                             int64_t scratch_bytes);

/// Begins the checks of a sanitized model's call: the functions above then track the memory that they return, fill it
/// with a poison pattern, and surround outputs with red zones.
void disc_rt_sanitize(disc_call *call);

/// disc_rt_parallel_for for a kernel of a sanitized model. `buffers` describes the first `count` args, a line each:
/// flags, a space, and the buffer's name for reports. `bytes` are their sizes. `args[-1]` is free: this function stores
/// the address of the launch's bounds there, int64_t numbers at DISC_RT_BOUNDS_*. Flags:
///   r  an operand: it must have been written
///   w  a result: it is poisoned before the launch, unless an operand is stored in the same memory
///   s  the buffer is an arena slot of its own, with red zones of DISC_RT_RED_ZONE bytes before and after it
///   l  nothing reads the buffer after this launch: it is poisoned
int32_t disc_rt_checked_launch(disc_call *call, disc_kernel_fn kernel, void **args, const char *buffers, int64_t count,
                               const int64_t *bytes, int64_t tasks, int64_t cost_ns, int64_t scratch_bytes);
#define DISC_RT_RED_ZONE 128
#define DISC_RT_BOUNDS_OWNER 0   ///< The runtime's.
#define DISC_RT_BOUNDS_SCRATCH 1 ///< Bytes of a worker's scratch.
#define DISC_RT_BOUNDS_BUFFERS 2 ///< The addresses of the first buffer's begin and end, then of the next one's, ...

/// A copy of the host flow in a sanitized model.
void disc_rt_checked_copy(disc_call *call, void *to, const void *from, int64_t bytes);

/// An operation of a sanitized kernel that accesses memory. Each field has 8 bytes.
typedef struct disc_access_site {
  __attribute__((aligned(8))) const char *source; ///< "model.py:12", or "".
  int64_t writes;                                 ///< 1: it writes, 0: it reads.
  int64_t buffer;                                 ///< An arg of the kernel, or DISC_ACCESS_*.
  int64_t form;                                   ///< enum disc_access_form
} disc_access_site;

#define DISC_ACCESS_ANY (-1)     ///< Any buffer of the launch, or scratch.
#define DISC_ACCESS_SCRATCH (-2) ///< The worker's scratch.
#define DISC_ACCESS_STACK (-3)   ///< An array on the stack.
#define DISC_ACCESS_CONSTANT (-4)
#define DISC_ACCESS_PANEL (-5) ///< What the caller passed to a function that several kernels share.

enum disc_access_form {
  DISC_ACCESS_WHOLE = 0,    ///< `bytes` bytes at the address.
  DISC_ACCESS_LANES = 1,    ///< `bytes` bytes for each lane, one after the other.
  DISC_ACCESS_ADDRESSES = 2 ///< `bytes` bytes at each lane's own address; the address is that of an array of int64_t.
};

/// Called by a sanitized kernel before an access that may be out of bounds: returns 0 if all lanes in `mask` access
/// [begin, end) only, or with DISC_ACCESS_ANY another buffer. Else the launch fails with a report, and the kernel must
/// not do the access. Thread-safe.
int32_t disc_rt_check_access(const int64_t *bounds, const disc_access_site *site, int64_t address, int64_t mask,
                             int64_t bytes, int64_t begin, int64_t end);

/// The begin and the end of the buffer of the launch that an address is in; 0 if there is none. `scratch` and
/// `scratch_end` are the worker's.
int64_t disc_rt_buffer_begin(const int64_t *bounds, int64_t address, int64_t scratch, int64_t scratch_end);
int64_t disc_rt_buffer_end(const int64_t *bounds, int64_t address, int64_t scratch, int64_t scratch_end);

/// The same for the operands of a function (lib/Runtime/Functions): each must be in one buffer as a whole. Memory that
/// the function accesses is not checked one by one.
int32_t disc_rt_check_views(const int64_t *bounds, const struct disc_view *views, int64_t count);

/// Puts a kernel of the model's device code, by its number there, into the call's stream. `args` holds `count` values
/// of 8 bytes, as for disc_rt_parallel_for. Without blocks there is nothing to do.
int32_t disc_rt_device_launch(disc_call *call, int64_t kernel, void *const *args, int64_t count, int64_t blocks);

/// Puts a product of matrices into the stream that a library of the device's does (cuBLASLt, hipBLASLt). `buffers` are
/// a, b, c and the bias, if there is one; `extents` are batch, m, n, k, and how many elements the matrices of a batch
/// are apart in a, b, c. All lie without gaps. DISC_RT_UNSUPPORTED: nothing was done, and the compiled code launches
/// its own kernel; which of the two follows from the extents and the addresses' alignment.
#define DISC_RT_UNSUPPORTED (-1)
int32_t disc_rt_device_matmul(disc_call *call, const struct disc_device_product *product, void *const *buffers,
                              const int64_t *extents);

/// Launches the kernels that put `length` things in order by their keys in each of `rows` rows: `tiles` sorts
/// DISC_RT_ORDER_TILE of a row in each block, `merge` makes of two sorted runs one, and `last`, in `blocks` blocks,
/// does what the order is for. At `first_own` of the `count` args are DISC_RT_ORDER_ARGS numbers that this function
/// writes: at which of `rows` * `length` * 4 numbers of the order's memory a kernel reads and writes, and how long the
/// runs are that it merges.
#define DISC_RT_ORDER_TILE 256
#define DISC_RT_ORDER_ARGS 3
int32_t disc_rt_device_order(disc_call *call, int64_t tiles, int64_t merge, int64_t last, void **args, int64_t count,
                             int64_t first_own, int64_t rows, int64_t length, int64_t blocks);

/// Launches a kernel that reduces in `blocks` blocks: `all`, or where these are few, and up to `most` parts of what
/// each has to do are worth a block, `part` and then `whole`, which has a block for each of `points` points. At
/// `first_own` of the `count` args are DISC_RT_SPLIT_ARGS that this function writes: memory for `values` numbers of
/// each part, and the number of parts.
#define DISC_RT_SPLIT_ARGS 2
int32_t disc_rt_device_reduce(disc_call *call, int64_t all, int64_t part, int64_t whole, void **args, int64_t count,
                              int64_t first_own, int64_t blocks, int64_t most, int64_t points, int64_t values);

/// Where the call's kernels report an index that is out of range (KernelError in Device.h).
void *disc_rt_device_errors(disc_call *call);

/// Runs a kernel on the host, as disc_rt_parallel_for does, in the order of the stream, for which it waits. The first
/// `buffers` of the `count` args are the device's; as many numbers behind the args say how many bytes of each are
/// copied to the host before, and of the last `results` back after.
int32_t disc_rt_device_call_host(disc_call *call, disc_kernel_fn kernel, void *const *args, int64_t count,
                                 int64_t buffers, int64_t results, int64_t tasks, int64_t cost_ns,
                                 int64_t scratch_bytes);

/// A copy within the device, in the stream's order.
int32_t disc_rt_device_copy(disc_call *call, void *to, const void *from, int64_t bytes);

/// From the device to host memory; waits for the stream.
int32_t disc_rt_device_read(disc_call *call, void *to, const void *from, int64_t bytes);

/// Called by a kernel that came upon an index outside of [0, extent): the launch that the kernel belongs to fails.
/// `what` says which operation. Thread-safe.
void disc_rt_index_failed(disc_call *call, const char *what, int64_t index, int64_t extent);

/// Called by a function (lib/Runtime/Functions) that cannot do its work: the launch that it belongs to fails with
/// `status`, a disc_status, which this returns. `text` says what is wrong; it is copied. Thread-safe.
int32_t disc_rt_function_failed(disc_call *call, int32_t status, const char *text);

/// Runs the code of a back end, by its number in the model's table. `operands` are `inputs` operands and `results`
/// results, `numbers` what the region's description lists. Thread-safe.
int32_t disc_rt_run_region(disc_call *call, int64_t region, const struct disc_view *operands, int64_t inputs,
                           int64_t results, const int64_t *numbers, int64_t count);

/// Called by a kernel after a function returned `status`, which is not DISC_OK: `what` says which operation called the
/// function. Thread-safe.
void disc_rt_function_at(disc_call *call, int32_t status, const char *what);

/// For a function that makes random numbers: the model's seed, and the number of this call since it was set.
void disc_rt_random_state(disc_call *call, uint64_t state[2]);

#ifdef __cplusplus
} // extern "C"
#endif

#endif // DISC_RUNTIME_CORE_ABI_H
