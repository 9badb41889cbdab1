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

class Meter;

class Stack {
public:
  static constexpr size_t kBytes = size_t(256) << 20;

  /// `meter` counts all of its size; null: nobody does.
  explicit Stack(Meter *meter = nullptr) : meter(meter) {}
  Stack(const Stack &) = delete;
  Stack &operator=(const Stack &) = delete;
  ~Stack();

  /// True if there is a stack, made now if need be.
  bool reserve();
  /// Runs `body` on it.
  int32_t run(int32_t (*body)(disc_call *), disc_call *call);
  /// Whether the function that asks, which runs on it, may go deeper.
  bool hasRoom() const;

  /// As Buffer has them, for a call with a budget.
  void untouch() { touched = false; }
  bool releaseUnused();
  size_t heldBytes() const { return memory ? kBytes : 0; }

private:
  void release();

  Meter *const meter;
  char *memory = nullptr;
  bool touched = false;
};

} // namespace disc::rt

#endif // DISC_RUNTIME_CORE_STACK_H
