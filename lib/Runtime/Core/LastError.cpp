//===- LastError.cpp - what the last failing call said --------------------===//
//
// A key of pthreads, not a thread_local: a library that is linked without the compiler's own start files has no place
// to register destructors of those, and static TLS of libraries that are opened late is scarce.
//
//===----------------------------------------------------------------------===//

#include "lib/Runtime/Core/LastError.h"
#include "lib/Runtime/Core/Struct.h"

#include <pthread.h>

namespace disc::rt {

static Error *threadError() {
  static const struct Key {
    Key() {
      valid = pthread_key_create(&key, [](void *error) { delete static_cast<Error *>(error); }) == 0;
    }
    pthread_key_t key;
    bool valid;
  } &key = *new Key; // threads may outlive static objects
  // A process without free keys gets one text for all of its threads, rather than none.
  static Error &shared = *new Error;
  if (!key.valid)
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
