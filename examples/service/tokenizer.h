//===- tokenizer.h - sentences to the ids of an uncased BERT ----*- C++ -*-===//

#ifndef SERVICE_TOKENIZER_H
#define SERVICE_TOKENIZER_H

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace service {

/// WordPiece over a `vocab.txt`. Gives the ids that the Python tokenizer gives (BertTokenizer of transformers); like
/// there, "[SEP]" and its kind in a text are the special tokens.
class Tokenizer {
public:
  /// Reads one piece a line; its id is the number of the line, from 0. Throws std::runtime_error if the file cannot be
  /// read or lacks a special token.
  explicit Tokenizer(const std::string &vocabulary);

  Tokenizer(const Tokenizer &) = delete;
  Tokenizer &operator=(const Tokenizer &) = delete;

  /// The ids of a sentence, [CLS] first and [SEP] last, at most `limit` (2 or more) of them: the rest of a longer one
  /// is left out. Throws std::invalid_argument if the text is no valid UTF-8.
  std::vector<int32_t> encode(std::string_view text, size_t limit) const;

private:
  class Encoding;

  /// Keys are parts of `text_`.
  using Pieces = std::unordered_map<std::string_view, int32_t>;

  int32_t special(const char *name) const;

  std::string text_;
  Pieces begin_;    ///< Pieces that words begin with.
  Pieces continue_; ///< Pieces that go on, without their "##".
  int32_t unknown_, first_, last_;
};

} // namespace service

#endif // SERVICE_TOKENIZER_H
