//===- AccessChecks.h - what an emulated kernel may do to memory -*- C++ -*-===//
//
// In checking mode every access of a kernel comes here first. It must lie in the buffer that the kernel's code derives
// its address from, and must not race: threads of a block may share a byte only with a barrier in between, blocks not
// at all, unless all of them read, or all are atomic.
//
//===----------------------------------------------------------------------===//

#ifndef DISC_RUNTIME_DEVICE_ACCESSCHECKS_H
#define DISC_RUNTIME_DEVICE_ACCESSCHECKS_H

#include "lib/Runtime/Core/Mutex.h"
#include "lib/Runtime/Device/Emulator.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

namespace disc::rt {

/// The blocks of memory that kernels may use at all: the device's own, and what callers lend, of which nobody says when
/// they take it back.
class EmulatedMemory {
public:
  void add(const void *data, size_t bytes);
  void remove(const void *data);
  void lend(const void *data, size_t bytes);
  /// How many bytes there are from this address on, in its block; 0 if it is in none.
  size_t bytesFrom(const void *address) const;

private:
  using Blocks = std::map<uintptr_t, uintptr_t>; ///< Where each begins and ends.
  static void eraseWithin(Blocks &blocks, uintptr_t begin, uintptr_t end);
  static size_t bytesIn(const Blocks &blocks, uintptr_t address);

  mutable Mutex mutex;
  Blocks own;
  Blocks lent; ///< May overlap: tensors of one storage. None lies in one of the device's own.
};

/// Of one launch, whose blocks run one after another.
class AccessChecks {
public:
  AccessChecks(const disc_device_kernel &kernel, void *const *args, const EmulatedMemory &memory);

  /// How large a buffer really is, where the kernel knows. "", or what is wrong.
  std::string narrow(int64_t argument, int64_t bytes);

  /// Threads of the block have met, or another block begins.
  void nextInterval() { ++interval; }

  /// Bytes of shared memory that a copy will write at some time, or has written.
  void setPending(const char *address, size_t bytes, bool pending) {
    for (size_t i = 0; i < bytes; ++i)
      byteAt(reinterpret_cast<uintptr_t>(address) + i).pending = pending;
  }

  /// What `thread` does at `site`, for each lane whose bit is set; its block's shared memory is `[shared, sharedEnd)`.
  /// "", or what is wrong.
  std::string access(const disc_thread &thread, const disc_emulated_site &site, const char *address, uint64_t lanes,
                     const char *shared, const char *sharedEnd);

private:
  struct Buffer {
    uintptr_t begin = 0, end = 0;
    bool isPointer = false, writable = false;
    bool mayRace = false; ///< It is written, or has bytes in common with one that is.
  };

  /// Who has used a byte: one user, by number, or several.
  struct Users {
    static constexpr uint32_t kNone = 0, kSeveral = UINT32_MAX;
    uint32_t writer = kNone, reader = kNone;
    bool atomic = false; ///< All that `writer` stands for were atomic.

    /// Notes a use by `user`. kNone, or whoever's use conflicts; it then has `written`.
    uint32_t use(uint32_t user, int64_t kind, bool &written);
  };
  struct Byte {
    uint64_t interval = 0;                    ///< In which `threads` used it.
    Users threads, blocks;                    ///< Numbers plus 1.
    const disc_emulated_site *site = nullptr; ///< Of the last write.
    bool pending = false;                     ///< A copy is under way.
  };
  static constexpr uintptr_t kLine = 64;
  using Line = std::array<Byte, kLine>;

  std::string check(const disc_thread &thread, const disc_emulated_site &site, uintptr_t address, const char *shared,
                    const char *sharedEnd);
  Byte &byteAt(uintptr_t address);
  void findOverlaps();

  std::vector<Buffer> buffers;
  uint64_t interval = 1;
  std::unordered_map<uintptr_t, std::unique_ptr<Line>> lines;
  uintptr_t lastLine = 0;
  Line *last = nullptr;
};

} // namespace disc::rt

#endif // DISC_RUNTIME_DEVICE_ACCESSCHECKS_H
