//===- AllocationTest.cpp - a steady state allocates nothing --------------===//
//
// Every `new` of this program is counted, besides what the caller's allocator is asked for.
//
//===----------------------------------------------------------------------===//

#include "Check.h"
#include "HandModel.h"

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

using namespace disc::test;

static std::atomic<long> news{0}, asked{0};

static void *counted(size_t bytes, size_t alignment) {
  news.fetch_add(1, std::memory_order_relaxed);
  void *data = nullptr;
  if (posix_memalign(&data, alignment, bytes ? bytes : 1) != 0)
    std::abort();
  return data;
}

void *operator new(size_t bytes) { return counted(bytes, alignof(std::max_align_t)); }
void *operator new[](size_t bytes) { return counted(bytes, alignof(std::max_align_t)); }
void *operator new(size_t bytes, std::align_val_t alignment) { return counted(bytes, size_t(alignment)); }
void *operator new[](size_t bytes, std::align_val_t alignment) { return counted(bytes, size_t(alignment)); }
void operator delete(void *data) noexcept { std::free(data); }
void operator delete[](void *data) noexcept { std::free(data); }
void operator delete(void *data, size_t) noexcept { std::free(data); }
void operator delete[](void *data, size_t) noexcept { std::free(data); }
void operator delete(void *data, std::align_val_t) noexcept { std::free(data); }
void operator delete[](void *data, std::align_val_t) noexcept { std::free(data); }
void operator delete(void *data, size_t, std::align_val_t) noexcept { std::free(data); }
void operator delete[](void *data, size_t, std::align_val_t) noexcept { std::free(data); }

TEST(callsIntoTheCallersOutputsAllocateNothing) {
  disc_options options = disc_default_options();
  options.allocate = [](void *, size_t bytes, size_t alignment) {
    asked.fetch_add(1, std::memory_order_relaxed);
    return aligned_alloc(alignment, bytes);
  };
  options.release = [](void *, void *data, size_t) { std::free(data); };
  disc_parallel_for_fn callers = [](void *, int64_t count, disc_task_fn task, void *job) { task(job, 0, count); };
  for (disc_parallel_for_fn parallelFor : {disc_parallel_for_fn(nullptr), callers}) {
    options.parallel_for = parallelFor;
    auto library = scaleLibrary(3);
    disc_model *model = nullptr;
    CHECK(disc_open(&library->library, &options, &model) == DISC_OK);
    Floats x({4, 16}), y({4, 16}), strided({4, 16}, 128);
    Longs mask({4, 3});
    strided.setStrides({32, 2});
    x.setStrides({1, 4}); // copied on the way in
    const DLTensor *list[] = {&x.tensor, &mask.tensor};
    int64_t shape[2], *shapes[] = {shape};
    auto calls = [&] {
      disc_output output = {&y.tensor, nullptr}, scattered = {&strided.tensor, nullptr};
      bool ok = disc_run(model, list, 2, &output, 1) == DISC_OK;
      ok &= disc_run(model, list, 2, &scattered, 1) == DISC_OK;
      return ok && disc_output_shapes(model, list, 2, shapes, 1) == DISC_OK;
    };
    CHECK(calls());
    long newsBefore = news, askedBefore = asked;
    bool ok = true;
    for (int i = 0; i < 100; ++i)
      ok &= calls();
    CHECK(ok && news == newsBefore && asked == askedBefore);
    CHECK(disc_free(model) == DISC_OK);
  }
}
