//===- Main.cpp - runs every TEST, or those named on the command line -----===//

#include "Check.h"

#include <atomic>
#include <cstdio>
#include <cstring>

using namespace disc::test;

static Case *cases = nullptr;
static std::atomic<int> failures{0};

Case::Case(const char *name, void (*body)()) : name(name), body(body), next(cases) { cases = this; }

void disc::test::check(bool holds, const char *file, int line, const std::string &what) {
  if (holds)
    return;
  ++failures;
  std::fprintf(stderr, "%s:%d: check failed: %s\n", file, line, what.c_str());
}

int main(int argc, char **argv) {
  int ran = 0;
  for (Case *test = cases; test; test = test->next) {
    bool wanted = argc == 1;
    for (int i = 1; i < argc; ++i)
      wanted |= std::strcmp(argv[i], test->name) == 0;
    if (!wanted)
      continue;
    int before = failures;
    test->body();
    ++ran;
    std::printf("%s %s\n", failures == before ? "ok  " : "FAIL", test->name);
  }
  std::printf("%d tests, %d failed checks\n", ran, failures.load());
  return failures || !ran ? 1 : 0;
}
