//===- FuzzRequest.cpp - bodies of requests to the service ----------------===//
//
// Any bytes are either sentences or an error for the client.
//
//===----------------------------------------------------------------------===//

#include "request.h"

#include <cstdlib>
#include <stdexcept>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  constexpr size_t kLimit = 4;
  try {
    service::Sentences sentences = service::parseSentences(std::string(data, data + size), kLimit);
    if (sentences.count == 0 || sentences.list.size() != std::min(sentences.count, kLimit))
      std::abort();
  } catch (const std::invalid_argument &error) {
    if (!*error.what())
      std::abort();
  }
  return 0;
}
