//===- Profile.h - where the time of calls goes -----------------*- C++ -*-===//
//
// While a profile is taken, every launch through the runtime leaves one record. Otherwise a launch costs one relaxed
// load more. On a device, events in the stream say when a kernel ran; they are read at the end.
//
//===----------------------------------------------------------------------===//

#ifndef DISC_RUNTIME_CORE_PROFILE_H
#define DISC_RUNTIME_CORE_PROFILE_H

#include "lib/Runtime/Core/Abi.h"
#include "lib/Runtime/Core/Mutex.h"
#include "lib/Runtime/Device/Device.h"

#include <atomic>
#include <chrono>
#include <mutex>
#include <utility>
#include <vector>

namespace disc::rt {

struct LaunchRecord {
  disc_kernel_fn kernel = nullptr;                             ///< Null on a device.
  int64_t beginNs = 0, endNs = 0;                              ///< On a monotonic clock.
  int64_t tasks = 0;                                           ///< On a device: blocks.
  bool isLibrary = false;                                      ///< A library did what the kernel would.
  const char *name = nullptr;                                  ///< Of a device's kernel...
  std::unique_ptr<DeviceEvent> begin = nullptr, end = nullptr; ///< ...with when it ran.
};

class Profile {
public:
  void start() {
    std::lock_guard<Mutex> lock(mutex);
    launches.clear();
    active.store(true, std::memory_order_relaxed);
  }

  /// What was launched since start(), in the order of completion.
  std::vector<LaunchRecord> stop() {
    std::lock_guard<Mutex> lock(mutex);
    active.store(false, std::memory_order_relaxed);
    return std::move(launches);
  }

  bool on() const { return active.load(std::memory_order_relaxed); }

  void add(LaunchRecord record) {
    std::lock_guard<Mutex> lock(mutex);
    launches.push_back(std::move(record));
  }

  static int64_t now() {
    auto time = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::nanoseconds>(time).count();
  }

private:
  std::atomic<bool> active{false};
  Mutex mutex;
  std::vector<LaunchRecord> launches;
};

} // namespace disc::rt

#endif // DISC_RUNTIME_CORE_PROFILE_H
