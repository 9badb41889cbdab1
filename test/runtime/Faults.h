//===- Faults.h - system calls and allocations that fail on demand -*- C++ -*-===//
//
// Counts the calls of one kind, and makes the n-th one fail. `operator new` is replaced; the others are wrapped by the
// linker (--wrap, CMakeLists.txt), which works under every sanitizer.
//
//===----------------------------------------------------------------------===//

#ifndef DISC_TEST_RUNTIME_FAULTS_H
#define DISC_TEST_RUNTIME_FAULTS_H

namespace disc::test {

enum class Fault { New, Memory, Thread, Map, Read, Open, Stat, Stream, Library, Key, Malloc };

constexpr const char *kFaultNames[] = {
    "operator new", "posix_memalign", "pthread_create",     "mmap",  "pread", "open", "fstat",
    "fopen",        "dlopen",         "pthread_key_create", "malloc"};

/// While it lives, the n-th call of this kind that happens within faulty() fails, in whichever thread; with `onwards`,
/// all later ones too.
class FailAt {
public:
  FailAt(Fault fault, long n, bool onwards = false);
  ~FailAt();
  /// Whether there were that many calls.
  bool fired() const;
};

/// While it lives, the file is cut to `bytes` bytes just before the n-th pread().
class CutAt {
public:
  CutAt(const char *path, long bytes, long n);
  ~CutAt();
  bool fired() const;
};

/// While it lives, fopen() opens this file whatever it is asked for.
class OpenInstead {
public:
  explicit OpenInstead(const char *path);
  ~OpenInstead();
};

void expectFaults(bool expected);

/// What `body` returns, while which calls may fail: the test's own allocations may not.
template <typename Body> auto faulty(Body body) {
  expectFaults(true);
  auto result = body();
  expectFaults(false);
  return result;
}

} // namespace disc::test

#endif // DISC_TEST_RUNTIME_FAULTS_H
