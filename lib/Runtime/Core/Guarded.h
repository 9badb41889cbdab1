//===- Guarded.h - no exception leaves the runtime --------------*- C++ -*-===//
//
// The C++ library reports a failed allocation as std::bad_alloc. The runtime throws nothing itself, but lets that pass:
// destructors give back what was taken, and the functions that a host program or compiled code calls turn it into a
// status. Compiled code has no tables for unwinding, so nothing may pass through it either: its callees keep the
// failure in the call (disc_call::outOfMemory), and the call throws it again once the compiled code has returned.
//
//===----------------------------------------------------------------------===//

#ifndef DISC_RUNTIME_CORE_GUARDED_H
#define DISC_RUNTIME_CORE_GUARDED_H

#include <exception>
#include <utility>

namespace disc::rt {

/// What `body` returns, or what `failed` returns if there was no memory. Other kinds of exceptions are not ours: they
/// are, for example, how a thread is cancelled.
template <typename Body, typename Failed> auto guarded(Body body, Failed failed) -> decltype(body()) {
  try {
    return body();
  } catch (const std::exception &) {
    return failed();
  }
}

/// For what may be left out, as in destructors: whether `body` came to its end.
template <typename Body> bool attempt(Body body) {
  return guarded(
      [&] {
        body();
        return true;
      },
      [] { return false; });
}

} // namespace disc::rt

#endif // DISC_RUNTIME_CORE_GUARDED_H
