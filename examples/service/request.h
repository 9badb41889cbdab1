//===- request.h - the sentences of a request -------------------*- C++ -*-===//

#ifndef SERVICE_REQUEST_H
#define SERVICE_REQUEST_H

#include <cstddef>
#include <string>
#include <vector>

namespace service {

struct Sentences {
  std::vector<std::string> list; ///< At most the limit.
  size_t count = 0;              ///< All that the request has.
};

/// Reads {"sentences": [...]} or {"sentence": "..."}. The text is never held as a tree: beyond `limit` sentences are
/// counted, not stored, so that a request takes no more memory than its bytes, whatever they are. Throws
/// std::invalid_argument with a text for the client.
Sentences parseSentences(const std::string &body, size_t limit);

} // namespace service

#endif // SERVICE_REQUEST_H
