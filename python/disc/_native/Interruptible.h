//===- Interruptible.h - long work that Ctrl-C may end ----------*- C++ -*-===//
//
// Python notices a signal only when its main thread runs Python code. Work that may take seconds therefore runs on a
// thread of its own, while the main thread waits and checks for signals. Once a signal handler raises, the work is told
// to stop. What does not stop soon goes on in the background, on data of its own, and its result is dropped.
//
//===----------------------------------------------------------------------===//

#ifndef DISC_PYTHON_NATIVE_INTERRUPTIBLE_H
#define DISC_PYTHON_NATIVE_INTERRUPTIBLE_H

#include "python/disc/_native/Bindings.h"

#include <atomic>
#include <functional>

namespace disc::py {

/// Runs `work` without the GIL. It must own what it captures, but for what `keep` keeps alive, and it touches no Python
/// object. Its argument becomes true once nobody waits for the result any more. Raises what a signal handler raised.
void runInterruptibly(nb::object keep, std::function<void(const std::atomic<bool> &cancelled)> work);

} // namespace disc::py

#endif // DISC_PYTHON_NATIVE_INTERRUPTIBLE_H
