//===- Fiber.h - a flow of control with a stack of its own ------*- C++ -*-===//
//
// A thread of an emulated device is a fiber: it stops in the middle of a kernel, at a barrier, and goes on when the
// others have come there. Changing from one to another is a function call that exchanges stack pointers.
//
//===----------------------------------------------------------------------===//

#ifndef DISC_RUNTIME_DEVICE_FIBER_H
#define DISC_RUNTIME_DEVICE_FIBER_H

#include <cstddef>
#include <memory>
#include <vector>

namespace disc::rt {

class Fiber {
public:
  using Body = void (*)(void *argument);

  /// Runs on `stack`, which is the caller's.
  Fiber(char *stack, size_t bytes);
  ~Fiber();
  Fiber(const Fiber &) = delete;
  Fiber &operator=(const Fiber &) = delete;

  /// Begins anew: the next resume() calls `body`, which does not return. What the fiber was in the middle of is
  /// dropped, without unwinding.
  void start(Body body, void *argument);

  /// Runs the fiber on this thread, until it calls suspend().
  void resume();
  /// Goes back to whoever called resume(). Called on the fiber itself.
  void suspend();

private:
  static void enter(void *self);

  char *stack;
  size_t bytes;
  Body body = nullptr;
  void *argument = nullptr;
  void *own = nullptr;    ///< Where it stands, while it does not run.
  void *caller = nullptr; ///< Where the caller of resume() stands, while it runs.

  /// What sanitizers want to be told at each change of stacks.
  struct Sanitizers {
    void *ownFakeStack = nullptr, *callerFakeStack = nullptr;
    const void *callerStack = nullptr;
    size_t callerBytes = 0;
    void *ownThread = nullptr, *callerThread = nullptr;
  };
  [[maybe_unused]] Sanitizers sanitizers;
};

/// Fibers and the memory of their stacks, which is reserved at once and taken as it is used.
class FiberPool {
public:
  FiberPool() = default;
  FiberPool(const FiberPool &) = delete;
  FiberPool &operator=(const FiberPool &) = delete;
  ~FiberPool();

  /// The fiber of this number, made when it is first asked for; null if there is no memory. Not more than `kMost`.
  Fiber *get(size_t number);

  static constexpr size_t kMost = 1024;

private:
  char *memory = nullptr;
  std::vector<std::unique_ptr<Fiber>> fibers;
};

} // namespace disc::rt

#endif // DISC_RUNTIME_DEVICE_FIBER_H
