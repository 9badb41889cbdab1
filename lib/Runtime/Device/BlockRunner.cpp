//===- BlockRunner.cpp - the threads of an emulated block -----------------===//

#include "lib/Runtime/Device/BlockRunner.h"

#include <algorithm>
#include <cstring>

namespace disc::rt {

/// What a fiber does: it never returns, but is dropped or started anew.
void BlockRunner::runThreads(void *self) {
  auto &runner = *static_cast<BlockRunner *>(self);
  while (true) {
    auto kernel = reinterpret_cast<disc_emulated_kernel>(const_cast<void *>(runner.launch->kernel.host));
    while (runner.next < runner.behind) {
      EmulatedThread &thread = runner.threads[runner.next++];
      kernel(&thread, runner.launch->args);
      thread.state = State::Left;
    }
    Fiber *fiber = runner.running;
    runner.idle.push_back(fiber);
    fiber->suspend();
  }
}

/// The thread that runs waits. It goes on once it is ready.
void BlockRunner::stop(EmulatedThread &thread, State state, const disc_emulated_site *site) {
  thread.state = state;
  thread.site = site;
  thread.fiber = running;
  thread.fiber->suspend();
}

bool BlockRunner::run(EmulatedLaunch &newLaunch, uint32_t block) {
  launch = &newLaunch;
  count = uint32_t(launch->kernel.threads);
  if (threads.size() < count)
    threads.resize(count);
  idle.reserve(count); // fibers add to it, which cannot report that there is no memory
  for (uint32_t i = 0; i < count; ++i) {
    EmulatedThread &thread = threads[i];
    thread.thread = i;
    thread.block = block;
    thread.blockDim = count;
    thread.gridDim = launch->blocks;
    thread.runner = this;
    thread.state = State::New;
    thread.copies.clear();
    thread.groups = 0;
  }
  next = 0;
  sharedBytes = 0;
  if (launch->checks)
    launch->checks->nextInterval();

  bool ok = true, done = false;
  while (ok && !done) {
    for (uint32_t i = 0; i < count && ok; ++i) {
      if (threads[i].state == State::New || threads[i].state == State::Ready)
        ok = advance(i, count);
      if (ok && threads[i].state == State::Shuffling)
        ok = runWarp(i);
    }
    ok = ok && passBarrier(done);
  }
  if (!ok) {
    // Fibers stand in the middle of the kernel.
    idle.clear();
    made = 0;
  }
  return ok;
}

/// Runs a thread until it waits or leaves; if it is new, perhaps those behind it too, below `last`.
bool BlockRunner::advance(uint32_t i, uint32_t last) {
  Fiber *fiber = threads[i].fiber;
  if (threads[i].state == State::New) {
    if (idle.empty()) {
      fiber = fibers.get(made);
      if (!fiber) {
        launch->fail(Code::Memory, "no memory for the stacks of a block's threads");
        return false;
      }
      ++made;
      fiber->start(&BlockRunner::runThreads, this);
    } else {
      fiber = idle.back();
      idle.pop_back();
    }
  }
  behind = last;
  running = fiber;
  fiber->resume();
  return !launch->failed.load(std::memory_order_relaxed);
}

/// Runs the threads of a warp, one of which waits for a shuffle, until none does.
bool BlockRunner::runWarp(uint32_t i) {
  uint32_t width = uint32_t(threads[i].width);
  uint32_t first = i / width * width, last = std::min(first + width, count);
  while (true) {
    bool shuffling = false;
    for (uint32_t k = first; k < last; ++k) {
      if (threads[k].state == State::New || threads[k].state == State::Ready)
        if (!advance(k, last))
          return false;
      shuffling |= threads[k].state == State::Shuffling;
    }
    if (!shuffling)
      return true;
    if (!exchange(first, last))
      return false;
  }
}

/// A shuffle, at which all threads of the warp must stand.
bool BlockRunner::exchange(uint32_t first, uint32_t last) {
  auto one = std::find_if(threads.begin() + first, threads.begin() + last,
                          [](const EmulatedThread &t) { return t.state == State::Shuffling; });
  for (uint32_t k = first; k < last; ++k) {
    const EmulatedThread &other = threads[k];
    if (other.state != State::Shuffling || other.site != one->site)
      return diverged(*one, other);
  }
  if (one->site->kind == DISC_EMULATED_MATRIX_LOAD)
    return loadMatrices(first, last);
  if (one->site->kind >= DISC_EMULATED_MATRIX_TF32)
    return multiplyFragments(first, last);
  for (uint32_t k = first; k < last; ++k) {
    EmulatedThread &thread = threads[k];
    int64_t lane = k - first, from = lane;
    switch (one->site->kind) {
    case DISC_EMULATED_SHUFFLE_XOR:
      from = lane ^ thread.offset;
      break;
    case DISC_EMULATED_SHUFFLE_UP:
      from = lane - thread.offset;
      break;
    case DISC_EMULATED_SHUFFLE_DOWN:
      from = lane + thread.offset;
      break;
    default:
      from = thread.offset;
      break;
    }
    // Outside of the warp a lane gets its own value, as on a GPU.
    thread.inRange = from >= 0 && from < one->width;
    if (!thread.inRange)
      from = lane;
    if (first + from >= last)
      return report(thread, thread.site,
                    "shuffles with lane " + std::to_string(from) + ", but the block has no thread " +
                        std::to_string(first + from));
    // `value` stays what it was until all have theirs.
    thread.offset = int32_t(from);
  }
  received.resize(last - first);
  for (uint32_t k = first; k < last; ++k)
    received[k - first] = threads[first + uint32_t(threads[k].offset)].value;
  for (uint32_t k = first; k < last; ++k) {
    threads[k].value = received[k - first];
    threads[k].state = State::Ready;
  }
  return true;
}

/// An element of a fragment. tf32 is f32 without its 13 lower bits.
static double elementOf(uint32_t word, uint32_t half, int64_t kind) {
  uint32_t bits = kind == DISC_EMULATED_MATRIX_TF32   ? word & 0xffffe000u
                  : kind == DISC_EMULATED_MATRIX_BF16 ? (half ? word & 0xffff0000u : word << 16)
                                                      : 0;
  if (kind == DISC_EMULATED_MATRIX_F16) {
    auto part = uint16_t(half ? word >> 16 : word);
    _Float16 value;
    std::memcpy(&value, &part, sizeof(value));
    return double(value);
  }
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return double(value);
}

/// D = A * B + C with the lanes' elements (PTX ISA, "Matrix Fragments for mma.m16n8k16" and "m16n8k8"): lane 4 * g + t
/// has of A the rows g and g + 8, of B the column g, at t and at t + 4 along the sum, where each word stands for one
/// element or a pair; and of C and D the columns 2 * t and 2 * t + 1.
bool BlockRunner::multiplyFragments(uint32_t first, uint32_t last) {
  constexpr uint32_t kLanes = 32;
  const disc_emulated_site *site = threads[first].site;
  if (last - first != kLanes)
    return report(threads[first], site,
                  "multiplies fragments in a warp of " + std::to_string(last - first) + " threads");
  auto fragment = [&](uint32_t lane) -> disc_emulated_fragment & {
    return *reinterpret_cast<disc_emulated_fragment *>(uintptr_t(threads[first + lane].value));
  };
  const int64_t kind = site->kind;
  const uint32_t perWord = kind == DISC_EMULATED_MATRIX_TF32 ? 1 : 2;
  float sums[16][8];
  for (uint32_t row = 0; row < 16; ++row)
    for (uint32_t column = 0; column < 8; ++column) {
      double sum = fragment(row % 8 * 4 + column / 2).sums[row / 8 * 2 + column % 2];
      for (uint32_t word = 0; word < 8; ++word)
        for (uint32_t half = 0; half < perWord; ++half) {
          uint32_t a = fragment(row % 8 * 4 + word % 4).a[word / 4 * 2 + row / 8];
          uint32_t b = fragment(column * 4 + word % 4).b[word / 4];
          sum += elementOf(a, half, kind) * elementOf(b, half, kind);
        }
      sums[row][column] = float(sum);
    }
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    for (uint32_t i = 0; i < 4; ++i)
      fragment(lane).sums[i] = sums[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2];
    threads[first + lane].state = State::Ready;
  }
  return true;
}

bool BlockRunner::loadMatrices(uint32_t first, uint32_t last) {
  constexpr uint32_t kLanes = 32;
  if (last - first != kLanes)
    return report(threads[first], threads[first].site,
                  "loads matrices in a warp of " + std::to_string(last - first) + " threads");
  auto element = [&](uint32_t matrix, uint32_t row, uint32_t column) {
    const EmulatedThread &owner = threads[first + 8 * matrix + row];
    uint16_t bits = 0;
    std::memcpy(&bits, reinterpret_cast<const char *>(uintptr_t(owner.value)) + 2 * column, sizeof(bits));
    return uint32_t(bits);
  };
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    EmulatedThread &thread = threads[first + lane];
    for (uint32_t matrix = 0; matrix < 4; ++matrix) {
      uint32_t row = lane % 4 * 2, column = lane / 4;
      thread.words[matrix] = element(matrix, row, column) | element(matrix, row + 1, column) << 16;
    }
    thread.state = State::Ready;
  }
  return true;
}

/// All threads wait or have left: `done` if all have left.
bool BlockRunner::passBarrier(bool &done) {
  const EmulatedThread *one = nullptr;
  for (uint32_t i = 0; i < count && !one; ++i)
    if (threads[i].state == State::Waiting)
      one = &threads[i];
  done = !one;
  if (done)
    return true;
  for (uint32_t i = 0; i < count; ++i)
    if (threads[i].state != State::Waiting || threads[i].site != one->site)
      return diverged(*one, threads[i]);
  for (uint32_t i = 0; i < count; ++i)
    threads[i].state = State::Ready;
  if (launch->checks)
    launch->checks->nextInterval();
  return true;
}

bool BlockRunner::diverged(const EmulatedThread &one, const EmulatedThread &other) {
  std::string text =
      one.state == State::Shuffling ? "waits for its warp at a shuffle" : "waits for its block at a barrier";
  text += ", but thread " + std::to_string(other.thread);
  if (other.state == State::Left)
    return report(one, one.site, text + " has left the kernel");
  text += other.state != one.state ? " is at a " : " is at another ";
  text += other.state == State::Shuffling ? "shuffle" : "barrier";
  if (*other.site->where)
    text += std::string(" (") + other.site->where + ")";
  return report(one, one.site, text);
}

bool BlockRunner::report(const EmulatedThread &thread, const disc_emulated_site *site, const std::string &what) {
  std::string text = "block " + std::to_string(thread.block) + ", thread " + std::to_string(thread.thread);
  if (*site->where)
    text += std::string(" at ") + site->where;
  launch->fail(Code::Invalid, text + ": " + what);
  return false;
}

void BlockRunner::outOfMemory(EmulatedThread &thread) {
  launch->failed.store(true, std::memory_order_relaxed);
  stop(thread, State::Left, nullptr);
}

char *BlockRunner::shared(EmulatedThread &thread, int64_t bytes) {
  void *memory = sharedMemory.reserve(size_t(bytes));
  if (!memory) {
    launch->fail(Code::Memory, "no memory for " + std::to_string(bytes) + " bytes that a block shares");
    stop(thread, State::Left, nullptr);
  }
  if (launch->checks && sharedBytes == 0) {
    // What it held before is of no use to anybody: signalling NaNs.
    constexpr uint32_t kPoison = 0x7fa0dead;
    for (size_t i = 0; i + 4 <= size_t(bytes); i += 4)
      std::memcpy(static_cast<char *>(memory) + i, &kPoison, 4);
  }
  sharedBytes = size_t(bytes);
  return static_cast<char *>(memory);
}

void BlockRunner::barrier(EmulatedThread &thread, const disc_emulated_site *site) {
  stop(thread, State::Waiting, site);
}

uint64_t BlockRunner::shuffle(EmulatedThread &thread, const disc_emulated_site *site, uint64_t value, int32_t offset,
                              int32_t width) {
  thread.value = value;
  thread.offset = offset;
  thread.width = width;
  stop(thread, State::Shuffling, site);
  return thread.value;
}

void BlockRunner::multiply(EmulatedThread &thread, const disc_emulated_site *site, disc_emulated_fragment *fragment) {
  thread.value = uint64_t(reinterpret_cast<uintptr_t>(fragment));
  thread.width = 32;
  stop(thread, State::Shuffling, site);
}

void BlockRunner::loadTransposed(EmulatedThread &thread, const disc_emulated_site *site, const char *row,
                                 uint32_t *words) {
  thread.value = uint64_t(reinterpret_cast<uintptr_t>(row));
  thread.words = words;
  thread.width = 32;
  stop(thread, State::Shuffling, site);
}

/// As late as it may be: at the wait. Nobody may use the bytes until then.
void BlockRunner::copy(EmulatedThread &thread, const disc_emulated_site *site, char *to, const char *from,
                       int32_t bytes) {
  thread.copies.push_back({site, to, from, bytes, thread.groups});
  if (launch->checks)
    launch->checks->setPending(to, size_t(site->bytes), true);
}

void BlockRunner::wait(EmulatedThread &thread, int32_t pending) {
  size_t done = 0;
  for (const EmulatedThread::Copy &copy : thread.copies) {
    if (int64_t(copy.group) >= int64_t(thread.groups) - pending)
      break;
    ++done;
    auto bytes = size_t(copy.bytes), all = size_t(copy.site->bytes);
    if (launch->checks)
      launch->checks->setPending(copy.to, all, false);
    std::memcpy(copy.to, copy.from, bytes);
    std::memset(copy.to + bytes, 0, all - bytes);
  }
  std::vector<EmulatedThread::Copy> ended(thread.copies.begin(), thread.copies.begin() + ptrdiff_t(done));
  thread.copies.erase(thread.copies.begin(), thread.copies.begin() + ptrdiff_t(done));
  // The bytes are written now, as far as other threads are concerned.
  for (const EmulatedThread::Copy &copy : ended)
    if (launch->checks)
      access(thread, copy.site, copy.to, 1);
}

void BlockRunner::check(EmulatedThread &thread, int64_t most) {
  if (!launch->checks)
    launch->checks = std::make_unique<AccessChecks>(launch->kernel, launch->args, launch->memory);
  if (most == 0 || thread.gridDim <= uint64_t(most))
    return;
  launch->fail(Code::Invalid, std::to_string(thread.gridDim) + " blocks, where the kernel's code counts on at most " +
                                  std::to_string(most));
  stop(thread, State::Left, nullptr);
}

void BlockRunner::extent(EmulatedThread &thread, const disc_emulated_site *site, int64_t bytes) {
  // All threads say the same.
  if (thread.thread != 0 || thread.block != 0)
    return;
  {
    std::string problem = launch->checks->narrow(site->argument, bytes);
    if (problem.empty())
      return;
    report(thread, site, problem);
  }
  stop(thread, State::Left, site);
}

void BlockRunner::access(EmulatedThread &thread, const disc_emulated_site *site, const void *address, uint64_t lanes) {
  {
    auto *shared = static_cast<const char *>(sharedMemory.data());
    std::string problem =
        launch->checks->access(thread, *site, static_cast<const char *>(address), lanes, shared, shared + sharedBytes);
    if (problem.empty())
      return;
    report(thread, site, problem);
  }
  stop(thread, State::Left, site); // for good, as the launch has failed
}

} // namespace disc::rt
