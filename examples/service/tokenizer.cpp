//===- tokenizer.cpp - sentences to the ids of an uncased BERT ------------===//

#include "tokenizer.h"
#include "unicode.h"

#include <fstream>
#include <sstream>
#include <stdexcept>
#include <utility>

namespace service {

/// A longer word is unknown as a whole.
static constexpr size_t kLongestWord = 100;

static constexpr std::string_view kSpecial[] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};

/// The ids of one sentence, as far as they are known.
class Tokenizer::Encoding {
public:
  Encoding(const Tokenizer &tokenizer, size_t limit) : tokenizer_(tokenizer), limit_(limit) {
    ids_.push_back(tokenizer.first_);
  }

  bool full() const { return ids_.size() + 1 >= limit_; }

  void add(int32_t id) {
    if (!full())
      ids_.push_back(id);
  }

  /// Text without special tokens. All of it is checked, also what is left out.
  void text(std::string_view text) {
    for (int32_t point : normalise(decode(text))) {
      if (full())
        return;
      if (point == ' ') {
        endWord();
      } else if (isPunctuation(point)) {
        endWord();
        append(point);
        endWord();
      } else {
        append(point);
      }
    }
    endWord();
  }

  std::vector<int32_t> finish() {
    ids_.push_back(tokenizer_.last_);
    return std::move(ids_);
  }

private:
  void append(int32_t point) {
    ends_.push_back(word_.size());
    // Of a word that is too long only this is of interest.
    if (ends_.size() <= kLongestWord)
      service::append(word_, point);
  }

  /// The longest piece that the rest of the word begins with, again and again. A word with a part that is no piece is
  /// unknown as a whole.
  void endWord() {
    if (ends_.empty())
      return;
    size_t known = ids_.size();
    if (ends_.size() > kLongestWord || !pieces()) {
      ids_.resize(known);
      add(tokenizer_.unknown_);
    }
    if (ids_.size() + 1 > limit_)
      ids_.resize(limit_ - 1);
    word_.clear();
    ends_.clear();
  }

  bool pieces() {
    std::string_view word = word_;
    size_t count = ends_.size(); // ends_[i] is where character i begins.
    ends_.push_back(word.size());
    for (size_t begin = 0; begin < count;) {
      const Pieces &pieces = begin == 0 ? tokenizer_.begin_ : tokenizer_.continue_;
      size_t end = count;
      auto found = pieces.end();
      for (; end > begin; --end) {
        found = pieces.find(word.substr(ends_[begin], ends_[end] - ends_[begin]));
        if (found != pieces.end())
          break;
      }
      if (end == begin)
        return false;
      ids_.push_back(found->second);
      begin = end;
    }
    return true;
  }

  const Tokenizer &tokenizer_;
  size_t limit_;
  std::vector<int32_t> ids_;
  std::string word_;
  std::vector<size_t> ends_;
};

Tokenizer::Tokenizer(const std::string &vocabulary) {
  std::ifstream file(vocabulary, std::ios::binary);
  std::ostringstream content;
  if (!(content << file.rdbuf()))
    throw std::runtime_error("cannot read the vocabulary '" + vocabulary + "'");
  text_ = content.str();

  std::string_view rest = text_;
  for (int32_t id = 0; !rest.empty(); ++id) {
    size_t end = rest.find('\n');
    std::string_view piece = rest.substr(0, end);
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    if (!piece.empty() && piece.back() == '\r')
      piece.remove_suffix(1);
    // No word begins with "##": "#" is punctuation.
    if (piece.size() > 2 && piece.substr(0, 2) == "##")
      continue_.emplace(piece.substr(2), id);
    else
      begin_.emplace(piece, id);
  }
  unknown_ = special("[UNK]");
  first_ = special("[CLS]");
  last_ = special("[SEP]");
}

int32_t Tokenizer::special(const char *name) const {
  auto found = begin_.find(name);
  if (found == begin_.end())
    throw std::runtime_error(std::string("the vocabulary has no ") + name);
  return found->second;
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, size_t limit) const {
  Encoding encoding(*this, limit);
  for (size_t at = 0; at < text.size();) {
    // Special tokens are looked for in the text as it came.
    size_t begin = at;
    auto found = begin_.end();
    for (; begin < text.size() && found == begin_.end(); ++begin) {
      begin = text.find('[', begin);
      if (begin == std::string_view::npos)
        break;
      for (std::string_view name : kSpecial)
        if (text.substr(begin, name.size()) == name)
          found = begin_.find(name);
    }
    if (found == begin_.end()) {
      encoding.text(text.substr(at));
      break;
    }
    --begin;
    encoding.text(text.substr(at, begin - at));
    encoding.add(found->second);
    at = begin + found->first.size();
  }
  return encoding.finish();
}

} // namespace service
