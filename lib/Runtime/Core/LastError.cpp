//===- LastError.cpp - what the last failing call said --------------------===//
//
// A key of pthreads, not a thread_local: a library that is linked without the compiler's own start files has no place
// to register destructors of those, and static TLS of libraries that are opened late is scarce.
//
//===----------------------------------------------------------------------===//

#include "lib/Runtime/Core/LastError.h"
#include "lib/Runtime/Core/Struct.h"

#include <atomic>
#include <pthread.h>

namespace disc::rt {

namespace {
/// Its destructor runs when the library is unloaded, or the process ends. Threads that live on would otherwise call the
/// key's destructor when they exit, in memory that may be unmapped by then. Their texts are leaked: a thread may be
/// reading its own.
struct Key {
  Key() {
    valid = pthread_key_create(&key, [](void *error) { delete static_cast<Error *>(error); }) == 0;
  }
  ~Key() {
    if (valid.exchange(false))
      pthread_key_delete(key);
  }
  pthread_key_t key;
  std::atomic<bool> valid{false};
};
} // namespace

static Error *threadError() {
  static Key key;
  // A process without free keys, or that is ending, has one text for all of its threads.
  static Error &shared = *new Error;
  if (!key.valid.load(std::memory_order_relaxed))
    return &shared;
  if (void *known = pthread_getspecific(key.key))
    return static_cast<Error *>(known);
  auto *fresh = new Error;
  fresh->code = Code::Ok;
  if (pthread_setspecific(key.key, fresh) == 0)
    return fresh;
  delete fresh;
  return &shared;
}

const Error &lastError() { return *threadError(); }

disc_status report(const Status &status) {
  if (!status.ok())
    *threadError() = status.error();
  return disc_status(status.code());
}

disc_status describeLastError(disc_error *error) {
  const Error &last = lastError();
  disc_error result = {};
  result.status = disc_status(last.code);
  result.message = last.message.c_str();
  result.input = last.input.c_str();
  result.dim = last.dim;
  result.symbol = last.symbol.c_str();
  result.expected = last.expected.c_str();
  result.got = last.got.c_str();
  return report(writeStruct(result, "disc_error", error));
}

} // namespace disc::rt
