//===- RegionTest.cpp - blocks side by side on huge pages -----------------===//

#include "Check.h"
#include "lib/Runtime/Core/Arena.h"

#include <cstdint>
#include <cstring>

using namespace disc::rt;

TEST(regionOfFewBytesIsNotOpened) {
  Region region;
  CHECK(!region.open(1000) && !region.isOpen());
  CHECK(!region.take(1));
  CHECK(!region.open(SIZE_MAX) && !region.isOpen());
}

TEST(regionGivesBlocksOneAfterTheOther) {
  constexpr size_t expected = size_t(5) << 20;
  Region region;
  if (!region.open(expected))
    return; // this system has no such memory
  auto *first = static_cast<char *>(region.take(1000)), *second = static_cast<char *>(region.take(0));
  auto *third = static_cast<char *>(region.take(size_t(3) << 20));
  CHECK(first && second && third);
  CHECK(reinterpret_cast<uintptr_t>(first) % (size_t(2) << 20) == 0);
  CHECK(second == first + 1024 && third == second + 64);
  std::memset(third, 1, size_t(3) << 20);
  // What does not fit leaves room for what does.
  CHECK(!region.take(size_t(3) << 20) && !region.take(SIZE_MAX) && !region.take(SIZE_MAX - 10));
  CHECK(region.take(size_t(1) << 20) == third + (size_t(3) << 20));
  CHECK(region.open(expected) && region.take(64) == third + (size_t(4) << 20));
}
