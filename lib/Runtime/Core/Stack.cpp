//===- Stack.cpp - a large stack for recursive models ---------------------===//

#include "lib/Runtime/Core/Stack.h"
#include "lib/Runtime/Core/Budget.h"

#include <cstdlib>
#include <sys/mman.h>
#include <unistd.h>

namespace disc::rt {

// For what procedures call: kernels, and functions of the runtime.
constexpr size_t kReserve = size_t(1) << 20;

Stack::~Stack() { release(); }

void Stack::release() {
  if (!memory)
    return;
  munmap(memory, kBytes);
  memory = nullptr;
  if (meter)
    meter->give(kBytes);
}

bool Stack::releaseUnused() {
  if (!memory || touched)
    return false;
  release();
  return true;
}

bool Stack::reserve() {
  touched = true;
  if (memory)
    return true;
  if (meter && !meter->take(kBytes))
    return false;
  int flags = MAP_PRIVATE | MAP_ANONYMOUS;
#ifdef MAP_NORESERVE
  flags |= MAP_NORESERVE;
#endif
  void *mapped = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, flags, -1, 0);
  if (mapped == MAP_FAILED) {
    if (meter)
      meter->give(kBytes);
    return false;
  }
  memory = static_cast<char *>(mapped);
  // What should never be reached faults.
  (void)mprotect(memory, size_t(sysconf(_SC_PAGESIZE)), PROT_NONE);
  return true;
}

bool Stack::hasRoom() const { return static_cast<char *>(__builtin_frame_address(0)) - memory > ptrdiff_t(kReserve); }

/// Calls `body(call)` with the stack pointer at `top`. Nothing unwinds through it: compiled code throws nothing.
__attribute__((noinline)) static int32_t callOn(char *top, int32_t (*body)(disc_call *), disc_call *call) {
#if defined(__x86_64__)
  int32_t status;
  asm volatile("movq %%rsp, %%rbx\n\t"
               "movq %[top], %%rsp\n\t"
               "callq *%[body]\n\t"
               "movq %%rbx, %%rsp"
               : "=a"(status), "+D"(call)
               : [top] "r"(top), [body] "r"(body)
               : "rbx", "rcx", "rdx", "rsi", "r8", "r9", "r10", "r11", "cc", "memory", "xmm0", "xmm1", "xmm2", "xmm3",
                 "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
  return status;
#elif defined(__aarch64__)
  register disc_call *argument asm("x0") = call;
  asm volatile("mov x19, sp\n\t"
               "mov sp, %[top]\n\t"
               "blr %[body]\n\t"
               "mov sp, x19"
               : "+r"(argument)
               : [top] "r"(top), [body] "r"(body)
               : "x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12", "x13", "x14", "x15", "x16",
                 "x17", "x19", "x30", "cc", "memory", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10",
                 "v11", "v12", "v13", "v14", "v15", "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v24",
                 "v25", "v26", "v27", "v28", "v29", "v30", "v31");
  return int32_t(reinterpret_cast<intptr_t>(argument));
#elif defined(__arm__)
  register disc_call *argument asm("r0") = call;
  asm volatile("mov r4, sp\n\t"
               "mov sp, %[top]\n\t"
               "blx %[body]\n\t"
               "mov sp, r4"
               : "+r"(argument)
               : [top] "r"(top), [body] "r"(body)
               : "r1", "r2", "r3", "r4", "r12", "lr", "cc", "memory", "d0", "d1", "d2", "d3", "d4", "d5", "d6", "d7",
                 "d16", "d17", "d18", "d19", "d20", "d21", "d22", "d23", "d24", "d25", "d26", "d27", "d28", "d29",
                 "d30", "d31");
  return int32_t(reinterpret_cast<intptr_t>(argument));
#else
#error "recursion needs a way to change stacks on this machine"
#endif
}

int32_t Stack::run(int32_t (*body)(disc_call *), disc_call *call) { return callOn(memory + kBytes - 64, body, call); }

} // namespace disc::rt
