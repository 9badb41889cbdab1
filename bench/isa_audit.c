// Makes a machine look like one without AVX-512 (or AVX) to every program that asks: loaded by LD_AUDIT, it replaces
// the `xgetbv` instructions of each library before its constructors run, and answers in their place.
//
// Engines choose their code by CPUID and by XGETBV, which says what registers the operating system saves; all that we
// have looked at believe neither without the other. Settings of their own (ONEDNN_MAX_CPU_ISA, ATEN_CPU_CAPABILITY)
// hold only a part of them: OpenVINO multiplies matrices with AVX-512 regardless.
//
// BENCH_ISA says what stays visible: avx2 or sse. BENCH_ISA_LIST is a file with a line for each instruction, its
// address in the file's own numbering and the file: isa.py writes it, and sets all this up.
#define _GNU_SOURCE
#include <link.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

// ud2 and a nop: three bytes, as xgetbv.
static const unsigned char kXgetbv[3] = {0x0f, 0x01, 0xd0}, kTrap[3] = {0x0f, 0x0b, 0x90};
static uint64_t kept; // the states that are not hidden

// The C library's own name for it: the other one is ours below.
extern int __sigaction(int signal, const struct sigaction *action, struct sigaction *old);

// Preloaded as well, this keeps others (LLVM, Python's faulthandler) from taking the signal away.
int sigaction(int signal, const struct sigaction *action, struct sigaction *old) {
  return __sigaction(signal, signal == SIGILL ? NULL : action, old);
}

static void answer(int signal, siginfo_t *info, void *context) {
  (void)info;
  greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
  const unsigned char *at = (const unsigned char *)registers[REG_RIP];
  if (memcmp(at, kTrap, sizeof kTrap) != 0) { // somebody else's
    struct sigaction standard = {.sa_handler = SIG_DFL};
    __sigaction(signal, &standard, NULL);
    return;
  }
  uint32_t low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  registers[REG_RAX] = low & kept;
  registers[REG_RDX] = 0;
  registers[REG_RIP] += sizeof kXgetbv;
}

static void patch(unsigned char *at) {
  if (memcmp(at, kXgetbv, sizeof kXgetbv) != 0)
    abort(); // the list is of another build of this file
  uintptr_t page = (uintptr_t)at & ~(uintptr_t)4095;
  size_t length = (uintptr_t)at + sizeof kTrap - page;
  if (mprotect((void *)page, length, PROT_READ | PROT_WRITE | PROT_EXEC))
    abort();
  memcpy(at, kTrap, sizeof kTrap);
  if (mprotect((void *)page, length, PROT_READ | PROT_EXEC))
    abort();
}

unsigned int la_version(unsigned int version) {
  const char *level = getenv("BENCH_ISA");
  if (!level || (strcmp(level, "avx2") && strcmp(level, "sse")))
    return 0;                          // nothing to hide: not loaded
  kept = strcmp(level, "sse") ? 7 : 3; // x87, SSE, and AVX
  struct sigaction action = {.sa_sigaction = answer, .sa_flags = SA_SIGINFO | SA_NODEFER};
  if (__sigaction(SIGILL, &action, NULL))
    abort();
  return version;
}

unsigned int la_objopen(struct link_map *map, Lmid_t space, uintptr_t *cookie) {
  (void)space;
  (void)cookie;
  char path[4096], line[4096 + 32];
  if (!realpath(map->l_name[0] ? map->l_name : "/proc/self/exe", path))
    return 0; // the kernel's own
  FILE *list = fopen(getenv("BENCH_ISA_LIST"), "r");
  if (!list)
    abort();
  while (fgets(line, sizeof line, list)) {
    char *file;
    unsigned long address = strtoul(line, &file, 16);
    line[strcspn(line, "\n")] = 0;
    if (strcmp(file + 1, path) == 0)
      patch((unsigned char *)map->l_addr + address);
  }
  fclose(list);
  return 0;
}
