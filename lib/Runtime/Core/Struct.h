//===- Struct.h - structs of disc.h that say their size ---------*- C++ -*-===//

#ifndef DISC_RUNTIME_CORE_STRUCT_H
#define DISC_RUNTIME_CORE_STRUCT_H

#include "lib/Runtime/Core/Status.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace disc::rt {

/// No version of a struct will be larger: such a size was never set.
constexpr size_t kMaxStructSize = 4096;

inline Status checkStructSize(size_t size, const char *name) {
  if (size >= sizeof(size_t) && size <= kMaxStructSize)
    return Status();
  return Status(Code::Invalid,
                std::string(name) + ".size is " + std::to_string(size) + ": set it to sizeof(" + name + ")");
}

/// Fields that the caller's version lacks become 0; those that ours lacks must be 0.
template <typename T> Status readStruct(const T *given, const char *name, T &result) {
  size_t size = given->size;
  if (Status status = checkStructSize(size, name); !status.ok())
    return status;
  result = {};
  std::memcpy(&result, given, std::min(size, sizeof(T)));
  auto *bytes = reinterpret_cast<const unsigned char *>(given);
  if (size > sizeof(T) && std::any_of(bytes + sizeof(T), bytes + size, [](unsigned char byte) { return byte != 0; }))
    return Status(Code::Version, std::string(name) + " has fields that are newer than this runtime");
  return Status();
}

/// The caller's version gets the fields that it has; those that ours lacks become 0.
template <typename T> Status writeStruct(const T &value, const char *name, T *target) {
  if (!target)
    return Status(Code::Invalid, std::string(name) + " is null");
  size_t size = target->size;
  if (Status status = checkStructSize(size, name); !status.ok())
    return status;
  std::memcpy(target, &value, std::min(size, sizeof(T)));
  target->size = size;
  if (size > sizeof(T))
    std::memset(reinterpret_cast<unsigned char *>(target) + sizeof(T), 0, size - sizeof(T));
  return Status();
}

} // namespace disc::rt

#endif // DISC_RUNTIME_CORE_STRUCT_H
