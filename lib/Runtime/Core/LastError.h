//===- LastError.h - what the last failing call said ------------*- C++ -*-===//

#ifndef DISC_RUNTIME_CORE_LASTERROR_H
#define DISC_RUNTIME_CORE_LASTERROR_H

#include "lib/Runtime/Core/Status.h"
#include "lib/Runtime/disc.h"

namespace disc::rt {

/// Of this thread; with Code::Ok and no text before the first.
const Error &lastError();

/// Keeps an error for lastError(); success leaves what is there. Returns the code.
disc_status report(const Status &status);

/// What is reported when there is no memory, not even for a text of its own. Allocates nothing.
disc_status reportNoMemory();

/// lastError() as the public struct.
disc_status describeLastError(disc_error *error);

} // namespace disc::rt

#endif // DISC_RUNTIME_CORE_LASTERROR_H
