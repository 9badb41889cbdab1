//===- infer_json_reader.cpp - requests as JSON and bytes -----------------===//
//
// The text is read twice, token by token: first all but the elements, which are only counted, since their datatype may
// come behind them. Then there are tensors of the right size for them.
//
//===----------------------------------------------------------------------===//

#include "element.h"
#include "infer_json.h"

#include <nlohmann/json.hpp>

#include <charconv>
#include <cstring>

namespace service {

namespace {
using nlohmann::json;

constexpr size_t kMaxRank = 64;

/// An input as the request describes it.
struct Head {
  std::string name, datatype;
  Shape shape;
  bool hasShape = false, hasData = false;
  size_t count = 0; ///< Elements in "data".
  std::optional<uint64_t> binarySize;
  Tensor *tensor = nullptr; ///< For the second reading.
};

struct OutputHead {
  std::string name;
  std::optional<bool> binary;
};

/// Follows where in the request a value is. What derived classes make of it:
///   depth 1: fields of the request; 2: its parameters, or the inputs and outputs; 3: fields of those; 4: their
///   parameters, extents and elements; beyond: elements in nested arrays.
class Reader : public nlohmann::json_sax<json> {
public:
  bool null() override { return scalar("null"); }
  bool boolean(bool value) override { return inData() ? element(value), true : scalar("boolean", nullptr, &value); }
  bool number_integer(json::number_integer_t value) override {
    return inData() ? element(value), true : integer(value);
  }
  bool number_unsigned(json::number_unsigned_t value) override {
    if (inData())
      return element(value), true;
    if (value > uint64_t(std::numeric_limits<int64_t>::max()) && !isOther())
      refuse(where() + ": " + std::to_string(value) + " is too large");
    return isOther() ? true : integer(int64_t(value));
  }
  bool number_float(json::number_float_t, const std::string &text) override {
    return inData() ? element(text), true : scalar("number with a fraction");
  }
  bool string(std::string &text) override { return scalar("string", &text); }
  bool binary(json::binary_t &) override { return scalar("binary"); }

  bool key(std::string &name) override {
    if (depth_ == 1) {
      section_ = name == "id"           ? Section::Id
                 : name == "parameters" ? Section::Parameters
                 : name == "inputs"     ? Section::Inputs
                 : name == "outputs"    ? Section::Outputs
                                        : Section::Other;
      field_ = Field::None;
    } else if (depth_ == 3 && isTensor()) {
      field_ = name == "name"                                      ? Field::Name
               : name == "parameters"                              ? Field::Parameters
               : name == "datatype" && section_ == Section::Inputs ? Field::Datatype
               : name == "shape" && section_ == Section::Inputs    ? Field::Shape
               : name == "data" && section_ == Section::Inputs     ? Field::Data
                                                                   : Field::Other;
      startField();
    } else if (inParameters()) {
      parameter_ = name;
    }
    return true;
  }

  bool start_object(size_t) override {
    bool allowed = depth_ == 0 || isOther() || (depth_ == 1 && section_ == Section::Parameters) ||
                   (depth_ == 2 && isTensor()) || (depth_ == 3 && field_ == Field::Parameters);
    if (!allowed)
      wrong("object");
    if (depth_ == 2 && isTensor())
      startTensor();
    ++depth_;
    return true;
  }

  bool start_array(size_t) override {
    bool allowed = isOther() || (depth_ == 1 && isTensor()) || (depth_ == 3 && field_ == Field::Shape) || inDataArray();
    if (depth_ == 0 || !allowed)
      wrong("array");
    if (inDataArray())
      startElements();
    ++depth_;
    return true;
  }

  bool end_object() override {
    --depth_;
    if (depth_ == 2 && isTensor())
      field_ = Field::None;
    return true;
  }
  bool end_array() override {
    --depth_;
    if (inDataArray())
      endElements();
    return true;
  }

  bool parse_error(size_t, const std::string &, const json::exception &error) override {
    refuse(std::string(error.what()).substr(0, 300));
  }

protected:
  enum class Section { Other, Id, Parameters, Inputs, Outputs };
  enum class Field { None, Name, Datatype, Shape, Parameters, Data, Other };

  virtual void startTensor() {}
  virtual void startField() {}
  virtual void text(std::string &) {}
  virtual void extent(int64_t) {}
  virtual void parameter(const std::string &, const json &) {}
  virtual void startElements() {}
  virtual void endElements() {}
  virtual void element(bool) = 0;
  virtual void element(int64_t) = 0;
  virtual void element(uint64_t) = 0;
  virtual void element(const std::string &real) = 0;

  std::string where() const {
    static const char *const kSections[] = {"the request", "'id'", "'parameters'", "'inputs'", "'outputs'"};
    static const char *const kFields[] = {
        "", "'name' of ", "'datatype' of ", "'shape' of ", "'parameters' of ", "'data' of ", ""};
    return depth_ == 0 ? "the request" : std::string(kFields[size_t(field_)]) + kSections[size_t(section_)];
  }

  bool isTensor() const { return section_ == Section::Inputs || section_ == Section::Outputs; }
  bool isOther() const {
    return depth_ >= 1 && (section_ == Section::Other || (depth_ >= 3 && isTensor() && field_ == Field::Other));
  }
  bool inParameters() const {
    return (depth_ == 2 && section_ == Section::Parameters) || (depth_ == 4 && field_ == Field::Parameters);
  }
  /// Where an array of elements may begin, and where elements may be.
  bool inDataArray() const { return depth_ >= 3 && field_ == Field::Data; }
  bool inData() const { return depth_ >= 4 && field_ == Field::Data; }

  size_t depth_ = 0;
  Section section_ = Section::Other;
  Field field_ = Field::None;

private:
  [[noreturn]] void wrong(const char *found) const {
    const char *expected = "a value of another type";
    if (depth_ == 0 || (depth_ == 1 && section_ == Section::Parameters) || (depth_ == 2 && isTensor()) ||
        (depth_ == 3 && field_ == Field::Parameters))
      expected = "an object";
    else if ((depth_ == 1 && isTensor()) || (depth_ == 3 && (field_ == Field::Shape || field_ == Field::Data)))
      expected = "an array";
    else if ((depth_ == 1 && section_ == Section::Id) || field_ == Field::Name || field_ == Field::Datatype)
      expected = "a string";
    else if (field_ == Field::Shape)
      expected = "whole numbers";
    else if (field_ == Field::Data)
      expected = "numbers or booleans";
    refuse(where() + ": expected " + expected + ", found " + found);
  }

  bool scalar(const char *type, std::string *string = nullptr, const bool *boolean = nullptr) {
    if (isOther())
      return true;
    if (inParameters() && (string || boolean))
      parameter(parameter_, string ? json(*string) : json(*boolean));
    else if (string && ((depth_ == 1 && section_ == Section::Id) ||
                        (depth_ == 3 && (field_ == Field::Name || field_ == Field::Datatype))))
      text(*string);
    else if (inParameters())
      refuse(where() + ": '" + parameter_ + "': expected a string, whole number or boolean, found " + type);
    else
      wrong(type);
    return true;
  }

  bool integer(int64_t value) {
    if (inParameters())
      parameter(parameter_, json(value));
    else if (depth_ == 4 && field_ == Field::Shape)
      extent(value);
    else
      return scalar("number");
    return true;
  }

  std::string parameter_;
};

/// Everything but elements.
class HeadReader : public Reader {
public:
  HeadReader(const ServedModel &model, InferCall &call) : call_(call), signature_(model.signature()) {}

  std::vector<Head> inputs;
  std::vector<OutputHead> outputs;

protected:
  void startTensor() override {
    bool isInput = section_ == Section::Inputs;
    size_t most = (isInput ? signature_.inputs : signature_.outputs).size();
    // Some more may pass, since a wrong name says more about the mistake.
    if ((isInput ? inputs.size() : outputs.size()) >= most + 8)
      refuse(where() + ": the model has no more than " + std::to_string(most));
    isInput ? void(inputs.emplace_back()) : void(outputs.emplace_back());
  }

  void startField() override {
    if (section_ != Section::Inputs)
      return;
    Head &head = inputs.back();
    bool &has = field_ == Field::Shape ? head.hasShape : head.hasData;
    if (field_ != Field::Shape && field_ != Field::Data)
      return;
    if (has)
      refuse(where() + ": occurs twice in an input");
    has = true;
  }

  void text(std::string &value) override {
    std::string &to = section_ == Section::Id        ? call_.id
                      : section_ == Section::Outputs ? outputs.back().name
                      : field_ == Field::Name        ? inputs.back().name
                                                     : inputs.back().datatype;
    to = std::move(value);
  }

  void extent(int64_t value) override {
    Shape &shape = inputs.back().shape;
    if (shape.size() == kMaxRank)
      refuse(where() + ": more than " + std::to_string(kMaxRank) + " dims");
    shape.push_back(value);
  }

  void parameter(const std::string &name, const json &value) override {
    auto expect = [&](bool right, const char *type) {
      if (!right)
        refuse("parameter '" + name + "': expected " + type + ", found " + value.dump(-1, ' ', false, kReplace));
    };
    if (section_ == Section::Inputs && name == "binary_data_size") {
      expect(value.is_number_integer() && value.get<int64_t>() >= 0, "a number of bytes");
      inputs.back().binarySize = value.get<uint64_t>();
    } else if (section_ == Section::Outputs && name == "binary_data") {
      expect(value.is_boolean(), "a boolean");
      outputs.back().binary = value.get<bool>();
    } else if (section_ == Section::Parameters && name == "binary_data_output") {
      expect(value.is_boolean(), "a boolean");
      call_.binaryOutputs = value.get<bool>();
    } else if (section_ == Section::Parameters && name == "timeout") {
      expect(value.is_number_integer(), "microseconds");
      call_.setTimeout(value.get<int64_t>());
    } else {
      InferCall::refuseParameter(section_ == Section::Parameters ? "" : where() + ": ", name.substr(0, 100));
    }
  }

  void element(bool) override { ++inputs.back().count; }
  void element(int64_t) override { ++inputs.back().count; }
  void element(uint64_t) override { ++inputs.back().count; }
  void element(const std::string &) override { ++inputs.back().count; }

private:
  static constexpr auto kReplace = json::error_handler_t::replace;
  InferCall &call_;
  const Signature &signature_;
};

/// Elements alone, into tensors that have exactly so many.
class ElementReader : public Reader {
public:
  explicit ElementReader(std::vector<Head> &inputs) : inputs_(inputs) {}

protected:
  void startTensor() override {
    if (section_ == Section::Inputs)
      ++input_;
    next_ = 0;
  }

  /// Nested arrays must have the shape; elements may also be in one flat array.
  void startElements() override {
    if (depth_ == 3)
      counts_.clear(), nested_ = false;
    if (!counts_.empty()) {
      nested_ = true;
      ++counts_.back();
    }
    if (counts_.size() == std::max<size_t>(head().shape.size(), 1))
      misshapen();
    counts_.push_back(0);
  }

  void endElements() override {
    const size_t level = counts_.size() - 1, count = counts_.back();
    counts_.pop_back();
    if (nested_ && count != size_t(head().shape[level]))
      misshapen();
  }

  void element(bool value) override { store(storeBoolean(place(), next_, value)); }
  void element(int64_t value) override { store(storeNumber(place(), next_, value)); }
  void element(uint64_t value) override { store(storeNumber(place(), next_, value)); }
  void element(const std::string &real) override {
    const char *end = real.data() + real.size();
    // Decimals are rounded once, to the type itself.
    if (float narrow = 0; place().type == Datatype::FP32)
      store(std::from_chars(real.data(), end, narrow).ec == std::errc() && storeNumber(place(), next_, narrow));
    else if (double wide = 0; std::from_chars(real.data(), end, wide).ec == std::errc())
      store(storeNumber(place(), next_, wide));
    else
      store(false);
  }

private:
  Head &head() const { return inputs_[size_t(input_)]; }

  Tensor &place() {
    if (counts_.size() != (nested_ ? head().shape.size() : 1))
      misshapen();
    ++counts_.back();
    return *head().tensor;
  }

  void store(bool stored) {
    if (!stored)
      refuse(InferCall::inputText(head().name) + ": element " + std::to_string(next_) + " is not a value of " +
             datatypeName(head().tensor->type));
    ++next_;
  }

  [[noreturn]] void misshapen() const {
    refuse(InferCall::inputText(head().name) + ": its data is neither a flat array nor nested as shape " +
           shapeText(head().shape) + " says");
  }

  std::vector<Head> &inputs_;
  std::ptrdiff_t input_ = -1;
  size_t next_ = 0;
  bool nested_ = false;
  std::vector<size_t> counts_; ///< Of each open array, how many it has so far.
};
} // namespace

InferCall readInferRequest(const ServedModel &model, std::string_view body, std::optional<size_t> headerLength) {
  if (headerLength.value_or(0) > body.size())
    refuse("Inference-Header-Content-Length: " + std::to_string(*headerLength) + " is more than the body's " +
           std::to_string(body.size()) + " bytes");
  const std::string_view text = body.substr(0, headerLength.value_or(body.size()));
  std::string_view rest = body.substr(text.size());

  InferCall call(model);
  HeadReader heads(model, call);
  json::sax_parse(text, &heads);
  bool hasElements = false;
  for (Head &head : heads.inputs) {
    const std::string where = InferCall::inputText(head.name);
    if (!head.hasShape)
      refuse(where + ": 'shape' is missing");
    if (head.hasData == head.binarySize.has_value())
      refuse(where + ": expected either 'data' or the parameter 'binary_data_size'");
    size_t given = head.hasData ? head.count : size_t(*head.binarySize);
    if (!head.hasData && given > rest.size())
      refuse(where + ": binary_data_size is " + std::to_string(given) + ", and " + std::to_string(rest.size()) +
             " bytes are left behind the JSON");
    head.tensor = &call.addInput(head.name, head.datatype, head.shape, given, !head.hasData);
    hasElements |= head.hasData;
    if (head.hasData)
      continue;
    std::memcpy(head.tensor->data.get(), rest.data(), given);
    rest.remove_prefix(given);
  }
  if (!rest.empty())
    refuse(std::to_string(rest.size()) + " bytes behind the JSON belong to no input");
  if (hasElements) {
    ElementReader elements(heads.inputs);
    json::sax_parse(text, &elements);
  }
  for (const OutputHead &output : heads.outputs)
    call.addOutput(output.name).binary = output.binary;
  call.finish();
  return call;
}

} // namespace service
