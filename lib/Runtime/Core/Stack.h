//===- Stack.h - a large stack for recursive models -------------*- C++ -*-===//
//
// A model that recurses runs on a stack of its own, whose size does not depend on the thread that calls. Its memory is
// reserved once, and taken as far as recursion goes.
//
//===----------------------------------------------------------------------===//

#ifndef DISC_RUNTIME_CORE_STACK_H
#define DISC_RUNTIME_CORE_STACK_H

#include "lib/Runtime/Core/Abi.h"

#include <cstddef>
#include <cstdint>

namespace disc::rt {

class Stack {
public:
  static constexpr size_t kBytes = size_t(256) << 20;

  Stack() = default;
  Stack(const Stack &) = delete;
  Stack &operator=(const Stack &) = delete;
  ~Stack();

  /// True if there is a stack, made now if need be.
  bool reserve();
  /// Runs `body` on it.
  int32_t run(int32_t (*body)(disc_call *), disc_call *call);
  /// Whether the function that asks, which runs on it, may go deeper.
  bool hasRoom() const;

private:
  char *memory = nullptr;
};

} // namespace disc::rt

#endif // DISC_RUNTIME_CORE_STACK_H
