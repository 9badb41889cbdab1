//===- number.h - numbers as text -------------------------------*- C++ -*-===//

#ifndef SERVICE_NUMBER_H
#define SERVICE_NUMBER_H

#include <charconv>
#include <string>

namespace service {

/// Appends the shortest text that reads back as the same value of the same type.
template <typename T> void appendNumber(std::string &text, T value) {
  char digits[32];
  text.append(digits, std::to_chars(digits, digits + sizeof(digits), value).ptr);
}

} // namespace service

#endif // SERVICE_NUMBER_H
