//===- FuzzTokenizer.cpp - sentences from anywhere ------------------------===//
//
// The first byte is the limit, the rest the text. Ids must be of the vocabulary, and no more than the limit.
//
//===----------------------------------------------------------------------===//

#include "tokenizer.h"
#include "unicode.h"

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <unistd.h>

static const char *const kPieces[] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a",   "b",  "ab", "##a", "##b",
                                      "##ab",  "e",     "1",     "!",     "##",     "the", "ss", "中", "##中"};

static const service::Tokenizer &tokenizer() {
  static const service::Tokenizer &made = *[] {
    std::string path = "/tmp/disc-fuzz-vocabulary-" + std::to_string(getpid());
    std::ofstream file(path);
    for (const char *piece : kPieces)
      file << piece << "\n";
    file.close();
    auto *result = new service::Tokenizer(path);
    std::remove(path.c_str());
    return result;
  }();
  return made;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size == 0)
    return 0;
  size_t limit = 2 + data[0] % 40;
  std::string text(data + 1, data + size);
  try {
    std::vector<int32_t> ids = tokenizer().encode(text, limit);
    if (ids.size() < 2 || ids.size() > limit || ids.front() != 2 || ids.back() != 3)
      std::abort();
    for (int32_t id : ids)
      if (id < 0 || id >= int32_t(std::size(kPieces)))
        std::abort();
    // What is valid decodes to itself.
    std::string again;
    for (int32_t point : service::decode(text))
      service::append(again, point);
    if (again != text)
      std::abort();
  } catch (const std::invalid_argument &error) {
    if (!*error.what())
      std::abort();
  }
  return 0;
}
