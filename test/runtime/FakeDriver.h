//===- FakeDriver.h - a driver's library over host memory -------*- C++ -*-===//
//
// Built twice, as libcuda.so.1 and as libamdhip64.so, beside the test, whose own search path finds them. What is put
// into a stream runs when somebody waits for it, in the order that streams and events give and no earlier: results
// that are read too early, or memory that is freed too early, show.
//
//===----------------------------------------------------------------------===//

#ifndef DISC_TEST_RUNTIME_FAKEDRIVER_H
#define DISC_TEST_RUNTIME_FAKEDRIVER_H

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace disc::test {

struct FakeDriver {
  std::mutex mutex;
  int devices = 2, major = 9, minor = 0;
  std::string arch = "gfx942:sramecc+:xnack-";
  std::string jitLog; ///< Not empty: images do not load.

  /// "launch scale 4 on 1", "free 0 on 2", ...: streams by their addresses, blocks of memory by their numbers.
  std::vector<std::string> calls;
  /// By function ("launch"): the result, once `after` more calls succeeded; for good if `sticky`.
  struct Fault {
    int result, after = 0;
    bool sticky = false;
  };
  std::map<std::string, Fault> faults;

  int64_t blocks = 0;      ///< Allocated and not freed, as the driver sees it.
  int64_t pinned = 0;      ///< Bytes.
  int64_t modules = 0;     ///< Loaded.
  int64_t events = 0;      ///< Not destroyed.
  int64_t graphs = 0;      ///< Not destroyed, with executable ones.
  int64_t contexts = 0;    ///< How deep the thread is in contexts (cuda), or its device (rocm).
  int64_t badAccesses = 0; ///< To memory that was freed or never allocated, double frees, calls outside a context.
  std::string loaded;      ///< The last image.
  int contextFault = 0;    ///< What making a device the current one returns.
  int lastError = 0;       ///< That HIP keeps until somebody asks for it.
  void *captured = this;   ///< The stream that is being captured; this: none.
};

/// For the fake libraries over the driver: one call of `function`, and what it puts into a stream.
int fakeCall(const char *function, const std::string &what);
/// The same for a function that `calls` does not list.
int fakeOutcome(const char *function);
/// Into the stream, or the graph that it is captured into.
void fakeEnqueue(void *stream, std::function<void()> work);

using FakeDriverFn = FakeDriver *();

} // namespace disc::test

#endif // DISC_TEST_RUNTIME_FAKEDRIVER_H
