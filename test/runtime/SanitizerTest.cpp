//===- SanitizerTest.cpp - the memory of a sanitized call -----------------===//

#include "lib/Runtime/Core/Sanitizer.h"
#include "Check.h"

#include <cmath>
#include <cstring>
#include <string>

using namespace disc::rt;

namespace {
/// An arena of 2 KiB, with a slot of 100 bytes at offset 128.
struct Tracked {
  alignas(64) unsigned char memory[2048];
  Sanitizer sanitizer;
  unsigned char *slot = memory + 128;

  Tracked() {
    sanitizer.trackPart(0, memory, sizeof(memory));
    sanitizer.beginWrite(slot, 100, "temporary 'k0'", "kernel 'k0'", /*isSlot=*/true);
    sanitizer.endWrite(slot, 100);
  }
};
} // namespace

static bool mentions(const std::string &text, const char *part) { return text.find(part) != std::string::npos; }

TEST(poisonIsANaNOfEveryType) {
  unsigned char bytes[24];
  Sanitizer::poison(bytes, 24);
  float f;
  double d;
  std::memcpy(&f, bytes + 4, 4);
  std::memcpy(&d, bytes + 8, 8);
  CHECK(std::isnan(f) && std::isnan(d));
  Sanitizer::poison(bytes, 3);
  CHECK(bytes[2] == 0xff && bytes[3] == 0xff);
}

TEST(writesToRedZonesAreFound) {
  Tracked after, before, inside;
  inside.slot[0] = inside.slot[99] = 1;
  CHECK_TEXT(inside.sanitizer.verify(), "");
  after.slot[100] = 1;
  CHECK_TEXT(after.sanitizer.verify(), "byte 0 of the 128 bytes of a red zone of temporary 'k0' was overwritten");
  before.slot[-2] = 1;
  CHECK_TEXT(before.sanitizer.verify(), "byte 126 of the 128 bytes of a red zone of temporary 'k0' was overwritten");
}

TEST(readsOfWhatWasNotWrittenAreFound) {
  Tracked t;
  CHECK_TEXT(t.sanitizer.read(t.slot, 100), "");
  CHECK(mentions(t.sanitizer.read(t.slot, 101), "from offset 100 to 101 of 101 bytes is a red zone of"));
  CHECK(mentions(t.sanitizer.read(t.memory + 1024, 8), "was never written"));
  // Memory that is not the call's is not known.
  unsigned char other[8];
  CHECK_TEXT(t.sanitizer.read(other, 8), "");
}

TEST(slotsDieWhenTheyAreReusedOrAtTheirLastUse) {
  Tracked t;
  t.sanitizer.beginWrite(t.slot + 64, 500, "temporary 'k1'", "kernel 'k1'", /*isSlot=*/true);
  t.sanitizer.endWrite(t.slot + 64, 500);
  CHECK(mentions(t.sanitizer.read(t.slot, 100), "red zone of temporary 'k1'"));
  CHECK_TEXT(t.sanitizer.read(t.slot + 64, 500), "");
  CHECK_TEXT(t.sanitizer.verify(), "");
  t.sanitizer.endLife(t.slot + 64, 500, "temporary 'k1'", "kernel 'k2'");
  CHECK(mentions(t.sanitizer.read(t.slot + 64, 4),
                 "poisoned after the last planned use of temporary 'k1', in kernel 'k2'"));
  float value;
  std::memcpy(&value, t.slot + 64, 4);
  CHECK(std::isnan(value));
}

TEST(anArenaThatIsRequestedAgainIsNewMemory) {
  Tracked t;
  t.sanitizer.trackPart(0, t.memory, 1024);
  CHECK(mentions(t.sanitizer.read(t.slot, 100), "was never written"));
  CHECK_TEXT(t.sanitizer.read(t.memory + 1024, 100), "");
  CHECK_TEXT(t.sanitizer.verify(), "");
}

TEST(memoryThatIsNotTrackedIsLeftAlone) {
  Tracked t;
  unsigned char other[64] = {1};
  t.sanitizer.beginWrite(other, 64, "o", "k", /*isSlot=*/true);
  t.sanitizer.endLife(other, 64, "o", "k");
  CHECK(other[0] == 1);
  CHECK_TEXT(t.sanitizer.read(other, 64), "");
  // Partly beyond the arena, on either side: nothing is known of that buffer.
  unsigned char *begin = t.memory;
  for (unsigned char *at : {begin - 32, begin + sizeof(t.memory) - 32}) {
    t.sanitizer.endLife(at, 64, "o", "k");
    t.sanitizer.beginWrite(at, 64, "o", "k", /*isSlot=*/true);
  }
  CHECK_TEXT(t.sanitizer.read(t.slot, 100), "");
  t.sanitizer.endLife(t.slot, 0, "o", "k");
  CHECK_TEXT(t.sanitizer.read(t.slot, 100), "");
  // A buffer without bytes has no red zones, and neither has one that is no slot.
  t.sanitizer.beginWrite(t.slot + 50, 0, "empty", "k", /*isSlot=*/true);
  CHECK_TEXT(t.sanitizer.read(t.slot, 100), "");
  t.sanitizer.beginWrite(t.memory + 1024, 16, "plain", "k", /*isSlot=*/false);
  t.memory[1024 + 16] = 7;
  CHECK_TEXT(t.sanitizer.verify(), "");
}

TEST(redZonesEndWithTheArena) {
  Tracked t;
  t.sanitizer.beginWrite(t.memory, 64, "first", "k", /*isSlot=*/true);
  t.sanitizer.beginWrite(t.memory + sizeof(t.memory) - 64, 64, "last", "k", /*isSlot=*/true);
  CHECK_TEXT(t.sanitizer.verify(), "");
  t.memory[sizeof(t.memory) - 65] = 0;
  CHECK(mentions(t.sanitizer.verify(), "red zone of last was overwritten"));
}

// Other memory that was tracked since over a part of the arena.
TEST(partsMayBeReplaced) {
  Tracked t;
  alignas(64) unsigned char elsewhere[64];
  t.sanitizer.track(t.memory, 0, "nothing", /*hasRedZones=*/false);
  t.sanitizer.trackPart(1, t.memory + 512, 64);
  t.sanitizer.track(t.memory + 500, 128, "an output");
  t.sanitizer.trackPart(1, elsewhere, 64);
  CHECK(mentions(t.sanitizer.read(elsewhere, 64), "was never written"));
  CHECK(mentions(t.sanitizer.read(t.memory + 512, 64), "was never written"));
}
