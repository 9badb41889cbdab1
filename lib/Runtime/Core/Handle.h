//===- Handle.h - what a disc_model points to -------------------*- C++ -*-===//
//
// The first two fields are the same in every version: the library that made a model need not be the one whose functions
// are called. A handle's memory is never given back, so that one that was freed can be told.
//
//===----------------------------------------------------------------------===//

#ifndef DISC_RUNTIME_CORE_HANDLE_H
#define DISC_RUNTIME_CORE_HANDLE_H

#include "lib/Runtime/Core/Library.h"

#include <atomic>

namespace disc::rt {
struct LoadedModel;

constexpr uint64_t kLiveModel = 0x6c65646f4d435344;  // "DSCModel"
constexpr uint64_t kFreedModel = 0x6465657246435344; // "DSCFreed"
} // namespace disc::rt

struct disc_model {
  std::atomic<uint64_t> magic;
  const disc_api *api;
  // Only for the runtime that the table is of.
  disc::rt::LoadedModel *loaded;
};
static_assert(sizeof(std::atomic<uint64_t>) == 8, "one word for all versions");

#endif // DISC_RUNTIME_CORE_HANDLE_H
