//===- StackTest.cpp - memory that grows with loops and recursion ---------===//

#include "lib/Runtime/Core/Stack.h"
#include "Check.h"
#include "lib/Runtime/Core/Arena.h"

#include <cstring>

using namespace disc::rt;

TEST(slots_grow_by_doubling_and_keep_what_they_hold) {
  Buffer buffer;
  auto *first = static_cast<char *>(buffer.grow(100, true));
  std::memset(first, 7, 100);
  CHECK(buffer.grow(50, true) == first);
  auto *second = static_cast<char *>(buffer.grow(101, true));
  CHECK(buffer.capacity() >= 200);
  CHECK(second[0] == 7 && second[99] == 7);
  size_t capacity = buffer.capacity();
  CHECK(buffer.grow(capacity + 1, false) != nullptr);
  CHECK(buffer.capacity() >= 2 * capacity);
}

TEST(frames_are_given_back_down_to_a_mark) {
  Frames frames{Allocator::standard()};
  auto *a = static_cast<char *>(frames.push(1000));
  std::memset(a, 1, 1000);
  int64_t mark = frames.mark();
  void *b = frames.push(500);
  // More than a chunk, and more again: what was taken before stays where it is.
  auto *large = static_cast<char *>(frames.push(size_t(3) << 20));
  std::memset(large, 2, size_t(3) << 20);
  CHECK(frames.push(100) != nullptr);
  frames.pop(mark);
  CHECK(frames.push(500) == b);
  CHECK(a[0] == 1 && a[999] == 1);
  frames.pop(0);
  CHECK(frames.push(10) == a);
  CHECK(frames.push(size_t(1) << 50) == nullptr);
}

namespace {
struct Recursion {
  Stack stack;
  int64_t depth = 0, limit = 0;
};
} // namespace

static Recursion recursion;

// ThreadSanitizer keeps a stack of its own, of 64 Ki calls.
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define DISC_SHALLOW 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define DISC_SHALLOW 1
#endif
#ifdef DISC_SHALLOW
constexpr int64_t kDeep = 10'000;
#else
constexpr int64_t kDeep = 100'000;
#endif

__attribute__((noinline)) static int32_t descend(disc_call *call) {
  if (!recursion.stack.hasRoom())
    return 3;
  if (recursion.depth == recursion.limit)
    return 5;
  ++recursion.depth;
  volatile char frame[256];
  frame[0] = 1;
  return descend(call) + (frame[0] - 1);
}

TEST(recursion_is_as_deep_as_the_stack_and_fails_behind_that) {
  CHECK(recursion.stack.reserve());
  recursion.limit = kDeep;
  CHECK(recursion.stack.run(descend, nullptr) == 5);
  CHECK(recursion.depth == kDeep);
#ifndef DISC_SHALLOW
  recursion.depth = 0;
  recursion.limit = int64_t(1) << 40;
  CHECK(recursion.stack.run(descend, nullptr) == 3);
  CHECK(recursion.depth > kDeep);
#endif
}
