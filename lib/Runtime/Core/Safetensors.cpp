//===- Safetensors.cpp - reader of safetensors files ----------------------===//

#include "lib/Runtime/Core/Safetensors.h"
#include "lib/Runtime/Core/ModelInfo.h"
#include "lib/Runtime/Core/Tensor.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

namespace disc::rt {

std::string printable(const std::string &name) {
  constexpr size_t kLongest = 120;
  std::string text = name.substr(0, kLongest);
  // Not in the middle of a character.
  while (text.size() < name.size() && !text.empty() && (name[text.size()] & 0xc0) == 0x80)
    text.pop_back();
  for (char &c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
      c = '?';
  return text.size() < name.size() ? text + "..." : text;
}

static constexpr std::pair<const char *, int64_t> kTypes[] = {
    {"F32", DISC_F32},  {"F16", DISC_F16}, {"BF16", DISC_BF16}, {"F64", DISC_F64}, {"I64", DISC_I64},
    {"I32", DISC_I32},  {"I16", DISC_I16}, {"I8", DISC_I8},     {"U8", DISC_U8},   {"U16", DISC_U16},
    {"U32", DISC_U32},  {"U64", DISC_U64}, {"BOOL", DISC_BOOL}, {"C64", 0x540},    {"F8_E4M3", 0xa08},
    {"F8_E5M2", 0xc08}, {"F8_E8M0", 0xe08}};

/// The dtype of this name, or -1 if it is unknown.
static int64_t dtypeNamed(const std::string &name) {
  for (auto [text, dtype] : kTypes)
    if (name == text)
      return dtype;
  return -1;
}

const char *storedTypeName(int64_t wanted) {
  for (auto [text, dtype] : kTypes)
    if (wanted == dtype)
      return text;
  return "";
}

namespace {
/// Parses the header's JSON event by event, and stops at the first thing that the format does not allow.
class HeaderReader final : public nlohmann::json_sax<nlohmann::json> {
public:
  struct Tensor {
    StoredTensor tensor;
    uint64_t begin = 0, end = 0;
  };
  std::vector<Tensor> tensors;
  std::string problem; ///< Why the parse failed.

  bool start_object(size_t) override {
    switch (state) {
    case State::Start:
      state = State::Tensors;
      return true;
    case State::TensorStart:
      if (tensors.size() == Safetensors::kMaxTensors)
        return fail("it has more than " + std::to_string(Safetensors::kMaxTensors) + " tensors");
      state = State::Fields;
      tensors.emplace_back();
      tensors.back().tensor.name = name;
      seen = 0;
      return true;
    case State::MetadataStart:
      state = State::Metadata;
      return true;
    default:
      return unexpected("an object");
    }
  }

  bool end_object() override {
    switch (state) {
    case State::Tensors:
      state = State::End;
      return true;
    case State::Fields:
      if (seen != (kDtype | kShape | kOffsets))
        return failTensor("dtype, shape or data_offsets are missing");
      state = State::Tensors;
      return true;
    default: // the only other object
      state = State::Tensors;
      return true;
    }
  }

  bool key(string_t &text) override {
    switch (state) {
    case State::Tensors:
      name = text;
      if (text != "__metadata__") {
        state = State::TensorStart;
        return true;
      }
      state = State::MetadataStart;
      if (hasMetadata)
        return fail("__metadata__ appears twice");
      hasMetadata = true;
      return true;
    case State::Fields: {
      unsigned field = text == "dtype" ? kDtype : text == "shape" ? kShape : text == "data_offsets" ? kOffsets : 0;
      if (!field)
        return failTensor("unknown key '" + printable(text) + "'");
      if (seen & field)
        return failTensor(text + " appears twice");
      seen |= field;
      state = field == kDtype ? State::Dtype : field == kShape ? State::ShapeStart : State::OffsetsStart;
      return true;
    }
    default: // of the metadata, which may contain anything
      return true;
    }
  }

  bool string(string_t &text) override {
    if (state == State::Metadata)
      return true;
    if (state != State::Dtype)
      return unexpected("a string");
    tensors.back().tensor.dtype = dtypeNamed(text);
    if (tensors.back().tensor.dtype < 0)
      return failTensor("unknown dtype '" + printable(text) + "'");
    state = State::Fields;
    return true;
  }

  bool start_array(size_t) override {
    if (state != State::ShapeStart && state != State::OffsetsStart)
      return unexpected("an array");
    state = state == State::ShapeStart ? State::Shape : State::Offsets;
    numOffsets = 0;
    return true;
  }

  bool number_unsigned(number_unsigned_t value) override {
    Tensor &tensor = tensors.empty() ? none : tensors.back();
    if (state == State::Shape) {
      if (value > uint64_t(INT64_MAX))
        return failTensor("a size is too large");
      if (tensor.tensor.shape.size() == Safetensors::kMaxRank)
        return failTensor("it has more than " + std::to_string(Safetensors::kMaxRank) + " dims");
      tensor.tensor.shape.push_back(int64_t(value));
      return true;
    }
    if (state != State::Offsets)
      return unexpected("a number");
    if (numOffsets == 2)
      return failTensor("data_offsets are not two numbers");
    (numOffsets++ ? tensor.end : tensor.begin) = value;
    return true;
  }

  bool end_array() override {
    if (state == State::Offsets && numOffsets != 2)
      return failTensor("data_offsets are not two numbers");
    state = State::Fields;
    return true;
  }

  bool null() override { return unexpected("null"); }
  bool boolean(bool) override { return unexpected("a bool"); }
  bool number_integer(number_integer_t) override { return unexpected("a negative number"); }
  bool number_float(number_float_t, const string_t &) override { return unexpected("a fraction"); }
  bool binary(binary_t &) override { return unexpected("bytes"); }

  bool parse_error(size_t position, const std::string &, const nlohmann::detail::exception &) override {
    return fail("it is not JSON: error at byte " + std::to_string(position));
  }

private:
  enum class State {
    Start,
    Tensors,
    TensorStart,
    Fields,
    Dtype,
    ShapeStart,
    Shape,
    OffsetsStart,
    Offsets,
    MetadataStart,
    Metadata,
    End
  };
  static constexpr unsigned kDtype = 1, kShape = 2, kOffsets = 4;

  bool fail(std::string why) {
    if (problem.empty())
      problem = std::move(why);
    return false;
  }
  bool failTensor(const std::string &why) { return fail("tensor '" + printable(name) + "': " + why); }
  bool unexpected(const char *what) {
    std::string why = std::string("unexpected: ") + what;
    return state == State::Start || state == State::End ? fail(why) : failTensor(why);
  }

  State state = State::Start;
  std::string name;
  Tensor none;
  unsigned seen = 0, numOffsets = 0;
  bool hasMetadata = false;
};
} // namespace

/// Checks that every byte of the data belongs to one tensor, and that each tensor's size fits its shape.
static std::string checkPlaces(std::vector<HeaderReader::Tensor> &tensors, const unsigned char *data, size_t size) {
  std::sort(tensors.begin(), tensors.end(), [](const HeaderReader::Tensor &a, const HeaderReader::Tensor &b) {
    return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
  });
  uint64_t at = 0;
  for (HeaderReader::Tensor &entry : tensors) {
    StoredTensor &tensor = entry.tensor;
    std::string where = "tensor '" + printable(tensor.name) + "': data_offsets [" + std::to_string(entry.begin) + ", " +
                        std::to_string(entry.end) + "]";
    int64_t bytes;
    if (entry.begin > entry.end)
      return where + " end before they begin";
    if (entry.end > size)
      return where + " are beyond the end of the data (" + std::to_string(size) + " bytes)";
    if (!denseBytes(tensor.shape.data(), int64_t(tensor.shape.size()), elementBytes(tensor.dtype), bytes) ||
        uint64_t(bytes) != entry.end - entry.begin)
      return where + " do not fit shape " + shapeText(tensor.shape.data(), int64_t(tensor.shape.size())) + " of " +
             dtypeName(tensor.dtype);
    if (entry.begin < at)
      return where + " overlap another tensor";
    if (entry.begin > at)
      return where + " leave a gap before them";
    at = entry.end;
    tensor.data = data + entry.begin;
    tensor.bytes = size_t(bytes);
  }
  if (at != size)
    return "the data has " + std::to_string(size) + " bytes, the tensors " + std::to_string(at);
  return "";
}

Status Safetensors::read(const void *image, size_t bytes, const std::string &name, Safetensors &result) {
  auto failed = [&](const std::string &why) { return Status(Code::File, name + ": " + why); };
  auto *base = static_cast<const unsigned char *>(image);
  uint64_t length = 0;
  if (bytes < sizeof(length))
    return failed("not a safetensors file: " + std::to_string(bytes) + " bytes");
  std::memcpy(&length, base, sizeof(length));
  if (length > kMaxHeader)
    return failed("not a safetensors file: a header of " + std::to_string(length) + " bytes");
  if (length > bytes - sizeof(length))
    return failed("the header of " + std::to_string(length) + " bytes is longer than the file (" +
                  std::to_string(bytes) + " bytes)");
  const unsigned char *header = base + sizeof(length), *data = header + length;
  if (length == 0 || *header != '{')
    return failed("not a safetensors file: the header is not a JSON object");

  HeaderReader reader;
  if (!nlohmann::json::sax_parse(header, data, &reader))
    return failed("header: " + reader.problem);
  if (std::string problem = checkPlaces(reader.tensors, data, bytes - sizeof(length) - size_t(length));
      !problem.empty())
    return failed(problem);

  result.fileName = name;
  result.list.clear();
  result.list.reserve(reader.tensors.size());
  for (HeaderReader::Tensor &entry : reader.tensors)
    result.list.push_back(std::move(entry.tensor));
  std::sort(result.list.begin(), result.list.end(),
            [](const StoredTensor &a, const StoredTensor &b) { return a.name < b.name; });
  auto twice = std::adjacent_find(result.list.begin(), result.list.end(),
                                  [](const StoredTensor &a, const StoredTensor &b) { return a.name == b.name; });
  if (twice != result.list.end())
    return failed("tensor '" + printable(twice->name) + "' appears twice");
  return Status();
}

const StoredTensor *Safetensors::find(const std::string &name) const {
  auto found = std::lower_bound(list.begin(), list.end(), name,
                                [](const StoredTensor &tensor, const std::string &text) { return tensor.name < text; });
  return found != list.end() && found->name == name ? &*found : nullptr;
}

} // namespace disc::rt
