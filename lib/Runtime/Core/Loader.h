//===- Loader.h - libraries from files --------------------------*- C++ -*-===//

#ifndef DISC_RUNTIME_CORE_LOADER_H
#define DISC_RUNTIME_CORE_LOADER_H

#include "lib/Runtime/Core/Library.h"
#include "lib/Runtime/Core/Status.h"

namespace disc::rt {

/// The folder of the library or program that holds `object`; "." if the system does not know.
std::string folderOf(const void *object);

/// The folder of a file's path.
std::string folderOfPath(const std::string &path);

/// Checks a file (Seal.h) and opens the library in it. `trusted` skips the checksum of its contents.
Status loadLibrary(const std::string &path, bool trusted, const disc_library *&library);

} // namespace disc::rt

#endif // DISC_RUNTIME_CORE_LOADER_H
