//===- Check.h - just enough of a test framework ----------------*- C++ -*-===//

#ifndef DISC_TEST_RUNTIME_CHECK_H
#define DISC_TEST_RUNTIME_CHECK_H

#include <string>

namespace disc::test {

/// Links itself into the list that main() runs.
struct Case {
  Case(const char *name, void (*body)());
  const char *name;
  void (*body)();
  Case *next;
};

void check(bool holds, const char *file, int line, const std::string &what);

inline void checkText(const std::string &actual, const std::string &expected, const char *file, int line) {
  check(actual == expected, file, line, "got \"" + actual + "\"");
}

} // namespace disc::test

#define TEST(name)                                                                                                     \
  static void test_##name();                                                                                           \
  static ::disc::test::Case case_##name(#name, test_##name);                                                           \
  static void test_##name()

#define CHECK(condition) ::disc::test::check(bool(condition), __FILE__, __LINE__, #condition)
#define CHECK_TEXT(actual, expected) ::disc::test::checkText(actual, expected, __FILE__, __LINE__)

#endif // DISC_TEST_RUNTIME_CHECK_H
