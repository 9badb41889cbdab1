//===- Sanitizer.h - the memory of a sanitized call -------------*- C++ -*-===//
//
// A model that is compiled with `sanitize` checks its own memory accesses. Kernels compare each address with the bounds
// of the buffer that it derives from. This class knows the rest: which bytes of the call's memory have been written,
// and the red zones around buffers.
//
//   arena slot:   | red zone | x: poison, then data, then poison again after its last use | red zone |
//
// Memory is tracked by whole buffers: a launch writes all of its results. A byte that a kernel leaves out keeps the
// poison pattern, which is a NaN of every floating-point type and a conspicuous integer.
//
//===----------------------------------------------------------------------===//

#ifndef DISC_RUNTIME_CORE_SANITIZER_H
#define DISC_RUNTIME_CORE_SANITIZER_H

#include "lib/Runtime/Core/Abi.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

namespace disc::rt {

class Sanitizer {
public:
  static constexpr size_t kRedZone = DISC_RT_RED_ZONE;
  /// Every 16 bits. Two of them are a NaN of 32 bits, four a signalling NaN of 64 bits; as an integer, -12 or -65292.
  static constexpr uint16_t kPoison = 0xfff4;
  static constexpr unsigned char kCanary = 0xc5;

  static void poison(void *data, size_t bytes);
  static void fillRedZone(void *data, size_t bytes);
  /// The first byte that is not as it was filled, or -1.
  static int64_t changedByte(const void *zone, size_t bytes);

  /// New memory: poisoned, and not written yet. With `hasRedZones`, kRedZone bytes before and after it are its own.
  void track(void *data, size_t bytes, const std::string &name, bool hasRedZones = false);
  /// The same for a part of the arena, in place of what it was before.
  void trackPart(int64_t part, void *data, size_t bytes);

  /// A kernel is going to read this memory: what is wrong with that, or "".
  std::string read(const void *data, size_t bytes) const;
  /// The kernel `by` is going to write a buffer from scratch.
  void beginWrite(void *data, size_t bytes, const std::string &name, const std::string &by, bool isSlot);
  /// All of it has been written.
  void endWrite(const void *data, size_t bytes);
  /// Nothing reads it any more, after the kernel `by`.
  void endLife(void *data, size_t bytes, const std::string &name, const std::string &by);
  /// Whether something was written to a red zone: what, or "".
  std::string verify() const;

private:
  /// Disjoint ranges of addresses, each with a text.
  class Ranges {
  public:
    struct Range {
      uintptr_t end;
      std::string text;
    };
    void cut(uintptr_t begin, uintptr_t end);
    void set(uintptr_t begin, uintptr_t end, const std::string &text);
    /// The first one that meets [begin, end), or the map's end.
    std::map<uintptr_t, Range>::const_iterator find(uintptr_t begin, uintptr_t end) const;
    bool covers(uintptr_t begin, uintptr_t end) const;
    const std::map<uintptr_t, Range> &all() const { return ranges; }

  private:
    std::map<uintptr_t, Range> ranges;
  };

  void setRedZone(uintptr_t begin, uintptr_t end, const std::string &name);

  Ranges tracked;   ///< Memory of the call, with what it is.
  Ranges undefined; ///< Of that, what must not be read, with the reason.
  Ranges zones;     ///< Red zones, with whose they are.
  std::map<int64_t, uintptr_t> parts;
};

} // namespace disc::rt

#endif // DISC_RUNTIME_CORE_SANITIZER_H
