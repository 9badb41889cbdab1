//===- request.cpp - the sentences of a request ---------------------------===//

#include "request.h"

#include <nlohmann/json.hpp>

#include <stdexcept>

namespace service {

namespace {
using nlohmann::json;

/// Gets the text's tokens one by one. The first thing that is wrong with the request is kept until the whole text is
/// known to be JSON.
class SentenceReader : public nlohmann::json_sax<json> {
public:
  explicit SentenceReader(size_t limit) : limit_(limit) {}

  Sentences take() {
    if (problem_.empty() && hasOne_ == hasMany_)
      problem_ = "expected either \"sentences\" or \"sentence\"";
    if (problem_.empty() && sentences_.count == 0)
      problem_ = "\"sentences\" is empty";
    if (!problem_.empty())
      throw std::invalid_argument(problem_);
    return std::move(sentences_);
  }

  bool null() override { return value("null"); }
  bool boolean(bool) override { return value("boolean"); }
  bool number_integer(json::number_integer_t) override { return value("number"); }
  bool number_unsigned(json::number_unsigned_t) override { return value("number"); }
  bool number_float(json::number_float_t, const std::string &) override { return value("number"); }
  bool binary(json::binary_t &) override { return value("binary"); }
  bool string(std::string &text) override { return value("string", &text); }

  bool key(std::string &name) override {
    if (depth_ != 1)
      return true;
    field_ = name == "sentence" ? Field::One : name == "sentences" ? Field::Many : Field::Other;
    hasOne_ |= field_ == Field::One;
    hasMany_ |= field_ == Field::Many;
    if (field_ != Field::Other)
      sentences_ = {}; // of a key that comes twice, the last counts
    return true;
  }

  bool start_object(size_t) override {
    if (depth_ > 0)
      value("object");
    ++depth_;
    return true;
  }
  bool start_array(size_t) override {
    if (depth_ == 1 && field_ == Field::Many)
      inMany_ = true;
    else
      value("array");
    ++depth_;
    return true;
  }
  bool end_object() override { return end(); }
  bool end_array() override { return end(); }

  bool parse_error(size_t, const std::string &, const json::exception &error) override {
    throw std::invalid_argument(error.what());
  }

private:
  enum class Field { Other, One, Many };

  bool end() {
    if (--depth_ == 1)
      inMany_ = false;
    return true;
  }

  bool wrong(std::string text) {
    if (problem_.empty())
      problem_ = std::move(text);
    return true;
  }

  bool value(const char *type, std::string *text = nullptr) {
    if (depth_ == 0)
      return wrong("expected an object with \"sentences\" or \"sentence\"");
    bool isOne = depth_ == 1 && field_ == Field::One;
    if (depth_ == 1 && field_ == Field::Many)
      return wrong(std::string("\"sentences\" is no array but ") + type);
    if (!isOne && !(depth_ == 2 && inMany_))
      return true;
    if (!text)
      return wrong((isOne ? "\"sentence\"" : "sentence " + std::to_string(sentences_.count)) + " is no string but " +
                   type);
    if (sentences_.count++ < limit_)
      sentences_.list.push_back(std::move(*text));
    return true;
  }

  const size_t limit_;
  Sentences sentences_;
  std::string problem_;
  size_t depth_ = 0;
  Field field_ = Field::Other;
  bool inMany_ = false, hasOne_ = false, hasMany_ = false;
};
} // namespace

Sentences parseSentences(const std::string &body, size_t limit) {
  SentenceReader reader(limit);
  json::sax_parse(body, &reader);
  return reader.take();
}

} // namespace service
