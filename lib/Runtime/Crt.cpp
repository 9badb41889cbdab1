//===- Crt.cpp - what a compiler driver links in beside the C library -----===//
//
// A shared library that is linked without a compiler's start files (the ahead-of-time compiler's own link) lacks two
// things that GCC's crtbeginS.o and glibc's libc_nonshared.a would give it. They are an archive of their own: where
// those files take part, this one must not.
//
//===----------------------------------------------------------------------===//

#define HIDDEN __attribute__((visibility("hidden")))

extern "C" {
void __cxa_finalize(void *library);
int __register_atfork(void (*prepare)(), void (*parent)(), void (*child)(), void *library);

/// Stands for this library where handlers are registered that must go when it is unloaded.
HIDDEN extern void *__dso_handle;
void *__dso_handle = &__dso_handle;

HIDDEN int pthread_atfork(void (*prepare)(), void (*parent)(), void (*child)()) {
  return __register_atfork(prepare, parent, child, __dso_handle);
}
}

/// Runs destructors of static objects when the library is unloaded or the program ends.
__attribute__((destructor)) static void finalize() { __cxa_finalize(__dso_handle); }
