//===- Abi.cpp - the C functions that compiled code calls -----------------===//

#include "lib/Runtime/Core/Abi.h"
#include "lib/Runtime/Core/Call.h"
#include "lib/Runtime/Core/Guarded.h"

#include <type_traits>

/// `body`, or what stands for a failure in what it returns: null, or a code.
template <typename Body> static auto safely(disc_call *call, Body body) -> decltype(body()) {
  using Result = decltype(body());
  return disc::rt::guarded(body, [&]() -> Result {
    int32_t code = call->outOfMemory();
    if constexpr (std::is_integral_v<Result>)
      return Result(code);
    else if constexpr (std::is_pointer_v<Result>)
      return nullptr;
  });
}

int32_t disc_rt_check_inputs(disc_call *call) {
  return safely(call, [&] { return call->checkTensors(); });
}

int64_t disc_rt_extent(disc_call *call, int64_t input, int64_t dim) { return call->inputs[input]->shape[dim]; }

int32_t disc_rt_guard_failed(disc_call *call, int64_t guard, int64_t lhs, int64_t rhs) {
  return safely(call, [&] { return call->guardFailed(guard, lhs, rhs); });
}

int32_t disc_rt_size_failed(disc_call *call, int64_t sizes, int64_t numbers, int64_t symbols, const int64_t *pairs) {
  return safely(call, [&] { return call->record(disc::rt::sizeError(sizes, numbers, symbols, pairs)); });
}

void *disc_rt_input(disc_call *call, int64_t input) {
  return safely(call, [&] { return call->input(input); });
}

void *disc_rt_parameter(disc_call *call, int64_t parameter) {
  return safely(call, [&] { return call->parameter(parameter); });
}

void *disc_rt_global(disc_call *call, int64_t global, int64_t bytes) {
  return safely(call, [&] { return call->global(global, bytes); });
}

void *disc_rt_arena(disc_call *call, int64_t part, int64_t bytes) {
  return safely(call, [&] { return call->arena(part, bytes); });
}

int32_t disc_rt_poll(disc_call *call) {
  return safely(call, [&] { return call->poll(); });
}

int64_t disc_rt_budget(disc_call *call, int64_t scratch_bytes, const int64_t *output_bytes) {
  return disc::rt::guarded([&] { return call->arenaBudget(scratch_bytes, output_bytes); },
                           [&] { return -int64_t(call->outOfMemory()); });
}

int32_t disc_rt_begin_plan(disc_call *call, int64_t plan, int64_t bytes) {
  return safely(call, [&] { return call->beginPlan(plan, bytes); });
}

int32_t disc_rt_over_budget(disc_call *call, int64_t bytes) {
  return safely(call, [&] { return call->overBudget(bytes); });
}

int32_t disc_rt_on_stack(disc_call *call, int32_t (*body)(disc_call *)) {
  return safely(call, [&] { return call->onStack(body); });
}

int64_t disc_rt_enter(disc_call *call, int64_t slots, int64_t *mark) {
  // A slot is never negative.
  return disc::rt::guarded([&] { return call->enter(slots, mark); }, [&] { return -int64_t(call->outOfMemory()); });
}

void disc_rt_leave(disc_call *call, int64_t slot, int64_t mark) { call->leave(slot, mark); }

void *disc_rt_push(disc_call *call, int64_t bytes) {
  return safely(call, [&] { return call->push(bytes); });
}

int64_t disc_rt_mark(disc_call *call) { return call->storage->frames.mark(); }

void disc_rt_pop(disc_call *call, int64_t mark) { call->storage->frames.pop(mark); }

void *disc_rt_slot(disc_call *call, int64_t number, int64_t bytes, int32_t keep) {
  return safely(call, [&] { return call->slot(number, bytes, keep != 0); });
}

void *disc_rt_output(disc_call *call, int64_t output, int64_t rank, const int64_t *dims) {
  return safely(call, [&] { return call->output(output, rank, dims); });
}

int32_t disc_rt_output_shape(disc_call *call, int64_t output, int64_t rank, const int64_t *dims) {
  return safely(call, [&] { return call->outputShape(output, rank, dims); });
}

int32_t disc_rt_parallel_for(disc_call *call, disc_kernel_fn kernel, void *const *args, int64_t tasks, int64_t cost_ns,
                             int64_t scratch_bytes) {
  return safely(call, [&] { return call->parallelFor(kernel, args, tasks, cost_ns, scratch_bytes); });
}

void disc_rt_sanitize(disc_call *call) { call->sanitize(); }

int32_t disc_rt_checked_launch(disc_call *call, disc_kernel_fn kernel, void **args, const char *buffers, int64_t count,
                               const int64_t *bytes, int64_t tasks, int64_t cost_ns, int64_t scratch_bytes) {
  return safely(
      call, [&] { return call->checkedLaunch(kernel, args, buffers, {count, bytes}, tasks, cost_ns, scratch_bytes); });
}

void disc_rt_checked_copy(disc_call *call, void *to, const void *from, int64_t bytes) {
  safely(call, [&] { call->checkedCopy(to, from, bytes); });
}

int32_t disc_rt_device_launch(disc_call *call, int64_t kernel, void *const *args, int64_t count, int64_t blocks) {
  return safely(call, [&] { return call->deviceLaunch(kernel, args, count, blocks); });
}

int32_t disc_rt_device_matmul(disc_call *call, const disc_device_product *product, void *const *buffers,
                              const int64_t *extents) {
  return safely(call, [&] { return call->deviceProduct(*product, buffers, extents); });
}

int32_t disc_rt_device_order(disc_call *call, int64_t tiles, int64_t merge, int64_t last, void **args, int64_t count,
                             int64_t first_own, int64_t rows, int64_t length, int64_t blocks) {
  return safely(call,
                [&] { return call->deviceOrder({tiles, merge, last}, args, count, first_own, rows, length, blocks); });
}

int32_t disc_rt_device_reduce(disc_call *call, int64_t all, int64_t part, int64_t whole, void **args, int64_t count,
                              int64_t first_own, int64_t blocks, int64_t most, int64_t points, int64_t values) {
  return safely(call, [&] {
    return call->deviceReduce({all, part, whole}, args, count, first_own, {blocks, most, points, values});
  });
}

void *disc_rt_device_errors(disc_call *call) {
  return safely(call, [&] { return call->deviceErrors(); });
}

int32_t disc_rt_device_call_host(disc_call *call, disc_kernel_fn kernel, void *const *args, int64_t count,
                                 int64_t buffers, int64_t results, int64_t tasks, int64_t cost_ns,
                                 int64_t scratch_bytes) {
  return safely(call, [&] {
    return call->deviceCallHost(kernel, args, {count, buffers, results}, tasks, cost_ns, scratch_bytes);
  });
}

int32_t disc_rt_device_copy(disc_call *call, void *to, const void *from, int64_t bytes) {
  return safely(call, [&] { return call->deviceCopy(to, from, bytes); });
}

int32_t disc_rt_device_read(disc_call *call, void *to, const void *from, int64_t bytes) {
  return safely(call, [&] { return call->deviceRead(to, from, bytes); });
}

void disc_rt_index_failed(disc_call *call, const char *what, int64_t index, int64_t extent) {
  return safely(call, [&] { call->indexFailed(what, index, extent); });
}

int32_t disc_rt_function_failed(disc_call *call, int32_t status, const char *text) {
  if (call)
    safely(call, [&] { return call->functionFailed(status, text); });
  return status;
}

int32_t disc_rt_run_region(disc_call *call, int64_t region, const disc_view *operands, int64_t inputs, int64_t results,
                           const int64_t *numbers, int64_t count) {
  return safely(call, [&] { return call->runRegion(region, {operands, inputs, results}, numbers, count); });
}

void disc_rt_function_at(disc_call *call, int32_t status, const char *what) {
  return safely(call, [&] { call->functionAt(status, what); });
}

void disc_rt_random_state(disc_call *call, uint64_t state[2]) {
  state[0] = call->random.seed;
  state[1] = call->random.run;
}
