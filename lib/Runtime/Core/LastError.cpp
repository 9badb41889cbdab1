//===- LastError.cpp - what the last failing call said --------------------===//
//
// A key of pthreads, not a thread_local: a library that is linked without the compiler's own start files has no place
// to register destructors of those, and static TLS of libraries that are opened late is scarce.
//
//===----------------------------------------------------------------------===//

#include "lib/Runtime/Core/LastError.h"
#include "lib/Runtime/Core/Guarded.h"
#include "lib/Runtime/Core/Struct.h"

#include <atomic>
#include <new>
#include <pthread.h>

namespace disc::rt {

namespace {
/// Its destructor runs when the library is unloaded, or the process ends. Threads that live on would otherwise call the
/// key's destructor when they exit, in memory that may be unmapped by then. Their texts are leaked: a thread may be
/// reading its own.
struct Key {
  Key() { valid = pthread_key_create(&key, destroy) == 0; }
  ~Key() {
    if (valid.exchange(false))
      pthread_key_delete(key);
  }
  static void destroy(void *error);
  pthread_key_t key;
  std::atomic<bool> valid{false};
};
} // namespace

/// An error that is never destroyed, and whose texts are too short to need memory.
static Error &permanentError(void *memory, Code code, const char *text) {
  auto *error = new (memory) Error;
  error->code = code;
  error->message = text;
  return *error;
}

/// Of threads that had no memory for an error of their own. It never changes: all of them read it.
static Error &noMemoryError() {
  alignas(Error) static unsigned char memory[sizeof(Error)];
  static Error &error = permanentError(memory, Code::Memory, "out of memory");
  return error;
}

void Key::destroy(void *error) {
  if (error != &noMemoryError())
    delete static_cast<Error *>(error);
}

static Key &errorKey() {
  static Key key;
  return key;
}

/// A process without free keys, or that is ending, has one text for all of its threads.
static Error &sharedError() {
  alignas(Error) static unsigned char memory[sizeof(Error)];
  static Error &error = permanentError(memory, Code::Ok, "");
  return error;
}

/// What this thread has, which may be nothing so far.
static Error *knownError(const Key &key) {
  return key.valid.load(std::memory_order_relaxed) ? static_cast<Error *>(pthread_getspecific(key.key))
                                                   : &sharedError();
}

/// An error to write to; null if there is no memory for one.
static Error *ownError() {
  Key &key = errorKey();
  Error *known = knownError(key);
  if (known && known != &noMemoryError())
    return known;
  auto *fresh = new (std::nothrow) Error;
  if (!fresh)
    return nullptr;
  fresh->code = Code::Ok;
  if (pthread_setspecific(key.key, fresh) == 0)
    return fresh;
  delete fresh;
  return &sharedError();
}

const Error &lastError() {
  Error *known = knownError(errorKey());
  if (known)
    return *known;
  Error *own = ownError();
  return own ? *own : noMemoryError();
}

disc_status reportNoMemory() {
  Error *error = ownError();
  if (!error) {
    (void)pthread_setspecific(errorKey().key, &noMemoryError());
    return DISC_ERROR_MEMORY;
  }
  // Each text is short enough for what a string has room for at least.
  error->code = Code::Memory;
  error->message = noMemoryError().message;
  for (std::string *text : {&error->input, &error->symbol, &error->expected, &error->got})
    text->clear();
  error->dim = -1;
  return DISC_ERROR_MEMORY;
}

disc_status report(const Status &status) {
  if (status.ok())
    return DISC_OK;
  Error *own = ownError();
  if (!own || !attempt([&] { *own = Error(status.error()); }))
    return reportNoMemory();
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
