//===- unicode.h - text as BERT's tokenizer sees it -------------*- C++ -*-===//
//
// What the normaliser of an uncased BERT does, and how it tells words from punctuation.
//
//===----------------------------------------------------------------------===//

#ifndef SERVICE_UNICODE_H
#define SERVICE_UNICODE_H

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace service {

/// Code points of UTF-8 text. Throws std::invalid_argument, naming the byte, if it is no valid UTF-8 (overlong forms
/// and surrogates are not).
std::vector<int32_t> decode(std::string_view text);

/// Appends one code point as UTF-8.
void append(std::string &text, int32_t point);

/// Without control characters; every white space a blank; Chinese characters between blanks; decomposed, without
/// accents, in lower case.
std::vector<int32_t> normalise(const std::vector<int32_t> &text);

/// Punctuation is a word of its own.
bool isPunctuation(int32_t point);

} // namespace service

#endif // SERVICE_UNICODE_H
