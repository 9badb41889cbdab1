//===- Emulator.cpp - kernels of a GPU on the CPU -------------------------===//

#include "lib/Runtime/Device/Emulator.h"
#include "lib/Runtime/Core/Guarded.h"
#include "lib/Runtime/Device/BlockRunner.h"

#include <cmath>
#include <utility>

using namespace disc::rt;

//===-- What kernels call -------------------------------------------------===//

static EmulatedThread &threadOf(disc_thread *thread) { return *static_cast<EmulatedThread *>(thread); }

/// Nothing unwinds through a kernel: without memory the thread stops for good.
template <typename Body> static void safely(disc_thread *thread, Body body) {
  if (!attempt(body))
    threadOf(thread).runner->outOfMemory(threadOf(thread));
}

char *disc_rt_emulate_shared(disc_thread *thread, int64_t bytes) {
  char *memory = nullptr;
  safely(thread, [&] { memory = threadOf(thread).runner->shared(threadOf(thread), bytes); });
  return memory;
}

void disc_rt_emulate_barrier(disc_thread *thread, const disc_emulated_site *site) {
  threadOf(thread).runner->barrier(threadOf(thread), site);
}

uint64_t disc_rt_emulate_shuffle(disc_thread *thread, const disc_emulated_site *site, uint64_t value, int32_t offset,
                                 int32_t width) {
  return threadOf(thread).runner->shuffle(threadOf(thread), site, value, offset, width);
}

void disc_rt_emulate_multiply(disc_thread *thread, const disc_emulated_site *site, disc_emulated_fragment *fragment) {
  threadOf(thread).runner->multiply(threadOf(thread), site, fragment);
}

void disc_rt_emulate_load_transposed(disc_thread *thread, const disc_emulated_site *site, const char *row,
                                     uint32_t *words) {
  threadOf(thread).runner->loadTransposed(threadOf(thread), site, row, words);
}

float disc_rt_emulate_power(float value) { return std::exp2(value); }

void disc_rt_emulate_copy(disc_thread *thread, const disc_emulated_site *site, char *to, const char *from,
                          int32_t bytes) {
  safely(thread, [&] { threadOf(thread).runner->copy(threadOf(thread), site, to, from, bytes); });
}

void disc_rt_emulate_commit(disc_thread *thread) { ++threadOf(thread).groups; }

void disc_rt_emulate_wait(disc_thread *thread, int32_t pending) {
  safely(thread, [&] { threadOf(thread).runner->wait(threadOf(thread), pending); });
}

void disc_rt_emulate_check(disc_thread *thread, int64_t most) {
  safely(thread, [&] { threadOf(thread).runner->check(threadOf(thread), most); });
}

void disc_rt_emulate_extent(disc_thread *thread, const disc_emulated_site *site, int64_t bytes) {
  safely(thread, [&] { threadOf(thread).runner->extent(threadOf(thread), site, bytes); });
}

void disc_rt_emulate_access(disc_thread *thread, const disc_emulated_site *site, const void *address, uint64_t lanes) {
  safely(thread, [&] { threadOf(thread).runner->access(threadOf(thread), site, address, lanes); });
}

namespace disc::rt {

//===-- Launches ----------------------------------------------------------===//

void EmulatedLaunch::fail(Code code, std::string message) {
  std::lock_guard<std::mutex> lock(mutex);
  if (!failed.exchange(true))
    status = Status(code, std::move(message));
}

void EmulatedLaunch::run(uint32_t begin, uint32_t end) {
  // Its threads are a pool's.
  bool done = attempt([&] {
    std::unique_ptr<BlockRunner> runner = emulator.acquire();
    for (uint32_t block = begin; block < end && !failed.load(std::memory_order_relaxed); ++block)
      if (!runner->run(*this, block))
        break;
    emulator.release(std::move(runner));
  });
  if (!done)
    failed.store(true, std::memory_order_relaxed);
}

Status EmulatedLaunch::end() {
  if (failed.load(std::memory_order_relaxed) && status.ok())
    return Status(Code::Memory, "no memory to run it");
  return std::move(status);
}

Emulator::Emulator(unsigned threads) : pool(ThreadPool::get(threads)) {}

Emulator::~Emulator() = default;

std::unique_ptr<BlockRunner> Emulator::acquire() {
  std::lock_guard<Mutex> lock(mutex);
  if (idle.empty())
    return std::make_unique<BlockRunner>();
  std::unique_ptr<BlockRunner> runner = std::move(idle.back());
  idle.pop_back();
  return runner;
}

void Emulator::release(std::unique_ptr<BlockRunner> runner) {
  std::lock_guard<Mutex> lock(mutex);
  idle.push_back(std::move(runner));
}

Status Emulator::run(const disc_device_kernel &kernel, void *const *args, int64_t blocks,
                     const EmulatedMemory &memory) {
  if (!kernel.host)
    return Status(Code::Target, "it was not compiled for the emulated device");
  if (kernel.threads < 1 || kernel.threads > int64_t(FiberPool::kMost) || blocks > INT32_MAX)
    return Status(Code::Invalid, std::to_string(blocks) + " blocks of " + std::to_string(kernel.threads) +
                                     " threads are more than a device runs");
  EmulatedLaunch launch(*this, kernel, args, uint32_t(blocks), memory);
  if (blocks == 0)
    return Status();
  // Whether it checks is known from the first thread on. Checks see one block after another, so that what they say does
  // not depend on anything else.
  launch.run(0, 1);
  if (launch.checks)
    launch.run(1, uint32_t(blocks));
  if (launch.checks || blocks == 1)
    return launch.end();
  void *self = &launch;
  // About what a call of a small kernel costs.
  constexpr int64_t kThreadNs = 20;
  Buffer scratch;
  auto runBlocks = [](void *const *args, int64_t begin, int64_t end, void *) {
    static_cast<EmulatedLaunch *>(args[0])->run(uint32_t(begin) + 1, uint32_t(end) + 1);
  };
  if (!pool || !pool->parallelFor(runBlocks, &self, blocks - 1, kernel.threads * kThreadNs, 0, scratch))
    return Status(Code::Memory, "no memory to run it");
  return launch.end();
}

} // namespace disc::rt
