//===- unicode.cpp - text as BERT's tokenizer sees it ---------------------===//

#include "unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <iterator>
#include <stdexcept>

namespace service {

namespace {

struct Range {
  int32_t first, last;
};

/// The Python tokenizer knows the categories of Unicode 8. Controls, marks and punctuation that came later are ordinary
/// characters to it. These ranges hold all of them, and beside them only what is ordinary anyhow.
constexpr Range kLaterThanUnicode8[] = {
    {0x61d, 0x61d},     {0x7fd, 0x7fd},     {0x890, 0x8e2},     {0x9fd, 0x9fe},     {0xa76, 0xa76},
    {0xafa, 0xaff},     {0xb55, 0xb55},     {0xc04, 0xc3c},     {0xc77, 0xc77},     {0xc84, 0xc84},
    {0xd00, 0xd00},     {0xd3b, 0xd3c},     {0xd81, 0xd81},     {0xeba, 0xeba},     {0xece, 0xece},
    {0x180f, 0x1886},   {0x1abf, 0x1ace},   {0x1b7d, 0x1b7e},   {0x1df6, 0x1dfb},   {0x2e43, 0x2e5d},
    {0xa82c, 0xa82c},   {0xa8c5, 0xa8c5},   {0xa8ff, 0xa8ff},   {0xa9bd, 0xa9bd},   {0x10d24, 0x10f89},
    {0x11070, 0x11074}, {0x110c2, 0x110cd}, {0x111cf, 0x111cf}, {0x1123e, 0x11241}, {0x1133b, 0x1133b},
    {0x11438, 0x1145e}, {0x11660, 0x1166c}, {0x116b9, 0x116b9}, {0x1182f, 0x11fff}, {0x12ff1, 0x13455},
    {0x16e97, 0x16f4f}, {0x16fe2, 0x16fe4}, {0x1cf00, 0x1cf46}, {0x1e000, 0x1e4ef}, {0x1e944, 0x1e95f},
};

/// Those that BERT puts blanks around. The gap before 2b920 is the Python tokenizer's.
constexpr Range kChinese[] = {
    {0x3400, 0x4dbf},   {0x4e00, 0x9fff},   {0xf900, 0xfaff},   {0x20000, 0x2a6df},
    {0x2a700, 0x2b81f}, {0x2b920, 0x2ceaf}, {0x2f800, 0x2fa1f},
};

/// Ranges are in order.
template <size_t N> bool contains(const Range (&ranges)[N], int32_t point) {
  const Range *range = std::lower_bound(std::begin(ranges), std::end(ranges), point,
                                        [](const Range &candidate, int32_t value) { return candidate.last < value; });
  return range != std::end(ranges) && point >= range->first;
}

utf8proc_category_t categoryOf(int32_t point) {
  switch (point) {
  case 0x166d: // What these three were in Unicode 8.
  case 0x111c9:
    return UTF8PROC_CATEGORY_PO;
  case 0x1734:
    return UTF8PROC_CATEGORY_MN;
  default:
    return contains(kLaterThanUnicode8, point) ? UTF8PROC_CATEGORY_LO : utf8proc_category(point);
  }
}

bool isBlank(int32_t point) {
  switch (point) {
  case '\t':
  case '\n':
  case '\r':
    return true;
  default:
    utf8proc_category_t category = categoryOf(point);
    return category == UTF8PROC_CATEGORY_ZS || category == UTF8PROC_CATEGORY_ZL || category == UTF8PROC_CATEGORY_ZP;
  }
}

bool isDropped(int32_t point) {
  if (point == 0 || point == 0xfffd)
    return true;
  switch (categoryOf(point)) {
  case UTF8PROC_CATEGORY_CC:
  case UTF8PROC_CATEGORY_CF:
  case UTF8PROC_CATEGORY_CO:
  case UTF8PROC_CATEGORY_CS:
    return true;
  default:
    return false;
  }
}

/// The canonical decomposition, less non-spacing marks, in lower case.
void appendBare(std::vector<int32_t> &out, int32_t point) {
  utf8proc_int32_t parts[32]; // Unicode's longest decomposition has four.
  int boundary = 0;
  utf8proc_ssize_t count = utf8proc_decompose_char(point, parts, 32, UTF8PROC_DECOMPOSE, &boundary);
  for (utf8proc_ssize_t i = 0; i < count; ++i)
    if (categoryOf(parts[i]) != UTF8PROC_CATEGORY_MN)
      out.push_back(utf8proc_tolower(parts[i]));
}

/// Puts marks that are left after one character into their canonical order.
void orderMarks(std::vector<int32_t> &text) {
  auto classOf = [](int32_t point) { return utf8proc_get_property(point)->combining_class; };
  for (size_t begin = 0, end; begin < text.size(); begin = end + 1) {
    for (end = begin; end < text.size() && classOf(text[end]) != 0;)
      ++end;
    if (end - begin > 1)
      std::stable_sort(text.begin() + std::ptrdiff_t(begin), text.begin() + std::ptrdiff_t(end),
                       [&](int32_t a, int32_t b) { return classOf(a) < classOf(b); });
  }
}

} // namespace

std::vector<int32_t> decode(std::string_view text) {
  std::vector<int32_t> points;
  points.reserve(text.size());
  const auto *bytes = reinterpret_cast<const utf8proc_uint8_t *>(text.data());
  for (size_t at = 0; at < text.size();) {
    utf8proc_int32_t point;
    utf8proc_ssize_t length = utf8proc_iterate(bytes + at, utf8proc_ssize_t(text.size() - at), &point);
    if (length <= 0)
      throw std::invalid_argument("the text is not valid UTF-8: byte " + std::to_string(at));
    points.push_back(point);
    at += size_t(length);
  }
  return points;
}

void append(std::string &text, int32_t point) {
  utf8proc_uint8_t bytes[4];
  utf8proc_ssize_t length = utf8proc_encode_char(point, bytes);
  text.append(reinterpret_cast<const char *>(bytes), size_t(length));
}

std::vector<int32_t> normalise(const std::vector<int32_t> &text) {
  std::vector<int32_t> out;
  out.reserve(text.size() + 16);
  for (int32_t point : text) {
    if (isBlank(point)) {
      out.push_back(' ');
    } else if (isDropped(point)) {
      continue;
    } else if (point < 0x80) {
      out.push_back(point >= 'A' && point <= 'Z' ? point - 'A' + 'a' : point);
    } else if (contains(kChinese, point)) {
      out.push_back(' ');
      appendBare(out, point);
      out.push_back(' ');
    } else {
      appendBare(out, point);
    }
  }
  orderMarks(out);
  return out;
}

bool isPunctuation(int32_t point) {
  if (point < 0x80) // Of ASCII all that is neither letter nor digit, also what Unicode calls a symbol.
    return (point >= '!' && point <= '/') || (point >= ':' && point <= '@') || (point >= '[' && point <= '`') ||
           (point >= '{' && point <= '~');
  utf8proc_category_t category = categoryOf(point);
  return category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO;
}

} // namespace service
