//===- Fiber.cpp - a flow of control with a stack of its own --------------===//

#include "lib/Runtime/Device/Fiber.h"

#include <cstdint>
#include <sys/mman.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define DISC_ASAN 1
#endif
#if __has_feature(thread_sanitizer)
#define DISC_TSAN 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define DISC_ASAN 1
#endif
#if defined(__SANITIZE_THREAD__)
#define DISC_TSAN 1
#endif
#ifdef DISC_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef DISC_TSAN
#include <sanitizer/tsan_interface.h>
#endif

/// Saves what a function must preserve on the stack and where that is in `*from`; goes on from `to`, which was saved
/// so.
extern "C" void disc_switch_stacks(void **from, void *to) __attribute__((visibility("hidden")));
/// Where a fiber begins: calls the function in the first register that is preserved with the second one as argument.
extern "C" void disc_enter_fiber() __attribute__((visibility("hidden")));

// What a new fiber's stack holds for the first change to it: as many words as are saved, among them the two registers
// and the address to go on from.
#define DISC_ASSEMBLY(name, body)                                                                                      \
  asm(".pushsection .text." #name ",\"ax\",%progbits\n"                                                                \
      ".globl " #name "\n.hidden " #name "\n.type " #name ",%function\n" #name ":\n" body ".size " #name ",.-" #name   \
      "\n.popsection\n")

#if defined(__x86_64__)
constexpr size_t kSaved = 7, kFunction = 0, kArgument = 1, kAddress = 6;
DISC_ASSEMBLY(disc_switch_stacks, "pushq %rbp\npushq %r15\npushq %r14\npushq %r13\npushq %r12\npushq %rbx\n"
                                  "movq %rsp, (%rdi)\nmovq %rsi, %rsp\n"
                                  "popq %rbx\npopq %r12\npopq %r13\npopq %r14\npopq %r15\npopq %rbp\nret\n");
DISC_ASSEMBLY(disc_enter_fiber, "movq %r12, %rdi\ncallq *%rbx\nud2\n");
#elif defined(__aarch64__)
constexpr size_t kSaved = 20, kFunction = 0, kArgument = 1, kAddress = 11;
DISC_ASSEMBLY(disc_switch_stacks, "stp x19, x20, [sp, #-160]!\nstp x21, x22, [sp, #16]\nstp x23, x24, [sp, #32]\n"
                                  "stp x25, x26, [sp, #48]\nstp x27, x28, [sp, #64]\nstp x29, x30, [sp, #80]\n"
                                  "stp d8, d9, [sp, #96]\nstp d10, d11, [sp, #112]\nstp d12, d13, [sp, #128]\n"
                                  "stp d14, d15, [sp, #144]\nmov x9, sp\nstr x9, [x0]\nmov sp, x1\n"
                                  "ldp d14, d15, [sp, #144]\nldp d12, d13, [sp, #128]\nldp d10, d11, [sp, #112]\n"
                                  "ldp d8, d9, [sp, #96]\nldp x29, x30, [sp, #80]\nldp x27, x28, [sp, #64]\n"
                                  "ldp x25, x26, [sp, #48]\nldp x23, x24, [sp, #32]\nldp x21, x22, [sp, #16]\n"
                                  "ldp x19, x20, [sp], #160\nret\n");
DISC_ASSEMBLY(disc_enter_fiber, "mov x0, x20\nblr x19\nbrk #1\n");
#elif defined(__arm__)
constexpr size_t kSaved = 26, kFunction = 17, kArgument = 18, kAddress = 25;
DISC_ASSEMBLY(disc_switch_stacks, ".arm\npush {r3-r11, lr}\nvpush {d8-d15}\nstr sp, [r0]\nmov sp, r1\n"
                                  "vpop {d8-d15}\npop {r3-r11, pc}\n");
DISC_ASSEMBLY(disc_enter_fiber, ".arm\nmov r0, r5\nblx r4\nudf #0\n");
#else
#error "the emulated device needs a way to change stacks on this machine"
#endif

namespace disc::rt {

// The first calls of kernels and of their checks need little; a page more, and a bit of another, keeps the threads'
// frames from falling on the same sets of the caches.
constexpr size_t kStackBytes = (size_t(256) << 10) + 4096 + 320;

Fiber::Fiber(char *stack, size_t bytes) : stack(stack), bytes(bytes) {}

Fiber::~Fiber() {
#ifdef DISC_ASAN
  __asan_unpoison_memory_region(stack, bytes);
#endif
#ifdef DISC_TSAN
  if (sanitizers.ownThread)
    __tsan_destroy_fiber(sanitizers.ownThread);
#endif
}

void Fiber::start(Body newBody, void *newArgument) {
#ifdef DISC_ASAN
  // Frames that were dropped have left marks.
  __asan_unpoison_memory_region(stack, bytes);
  sanitizers.ownFakeStack = nullptr;
#endif
#ifdef DISC_TSAN
  if (sanitizers.ownThread)
    __tsan_destroy_fiber(sanitizers.ownThread);
  sanitizers.ownThread = __tsan_create_fiber(0);
#endif
  body = newBody;
  argument = newArgument;
  auto top = (reinterpret_cast<uintptr_t>(stack) + bytes) & ~uintptr_t(63);
  auto *saved = reinterpret_cast<uintptr_t *>(top) - kSaved;
  for (size_t i = 0; i < kSaved; ++i)
    saved[i] = 0;
  saved[kFunction] = reinterpret_cast<uintptr_t>(&Fiber::enter);
  saved[kArgument] = reinterpret_cast<uintptr_t>(this);
  saved[kAddress] = reinterpret_cast<uintptr_t>(&disc_enter_fiber);
  own = saved;
}

void Fiber::enter(void *self) {
  auto &fiber = *static_cast<Fiber *>(self);
#ifdef DISC_ASAN
  __sanitizer_finish_switch_fiber(nullptr, &fiber.sanitizers.callerStack, &fiber.sanitizers.callerBytes);
#endif
  fiber.body(fiber.argument);
  __builtin_trap();
}

void Fiber::resume() {
#ifdef DISC_ASAN
  __sanitizer_start_switch_fiber(&sanitizers.callerFakeStack, stack, bytes);
#endif
#ifdef DISC_TSAN
  sanitizers.callerThread = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(sanitizers.ownThread, 0);
#endif
  disc_switch_stacks(&caller, own);
#ifdef DISC_ASAN
  __sanitizer_finish_switch_fiber(sanitizers.callerFakeStack, nullptr, nullptr);
#endif
}

void Fiber::suspend() {
#ifdef DISC_ASAN
  __sanitizer_start_switch_fiber(&sanitizers.ownFakeStack, sanitizers.callerStack, sanitizers.callerBytes);
#endif
#ifdef DISC_TSAN
  __tsan_switch_to_fiber(sanitizers.callerThread, 0);
#endif
  disc_switch_stacks(&own, caller);
#ifdef DISC_ASAN
  __sanitizer_finish_switch_fiber(sanitizers.ownFakeStack, &sanitizers.callerStack, &sanitizers.callerBytes);
#endif
}

FiberPool::~FiberPool() {
  fibers.clear();
  if (memory)
    munmap(memory, kMost * kStackBytes);
}

Fiber *FiberPool::get(size_t number) {
  if (!memory) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS;
#ifdef MAP_NORESERVE
    flags |= MAP_NORESERVE;
#endif
    void *mapped = mmap(nullptr, kMost * kStackBytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (mapped == MAP_FAILED)
      return nullptr;
    memory = static_cast<char *>(mapped);
  }
  while (fibers.size() <= number)
    fibers.push_back(std::make_unique<Fiber>(memory + fibers.size() * kStackBytes, kStackBytes));
  return fibers[number].get();
}

} // namespace disc::rt
