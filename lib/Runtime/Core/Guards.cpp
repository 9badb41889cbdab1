//===- Guards.cpp - what is checked at the entry, and how it reads --------===//
//
// The comparisons of guards are inline in compiled code; only a violation comes here. It
// names the input, the dim, the symbol, what was expected and what came.
//
//===----------------------------------------------------------------------===//

#include "lib/Runtime/Core/Call.h"
#include "lib/Runtime/Core/Tensor.h"

#include <cstdio>
#include <cstring>

using namespace disc::rt;

std::string disc::rt::inputText(const disc_model_info_t &info, int64_t index) {
  const char *name = info.inputs[index].name;
  return *name ? "input '" + std::string(name) + "'" : "input " + std::to_string(index);
}

static Error inputError(Code code, const disc_model_info_t &info, int64_t index) {
  Error error;
  error.code = code;
  error.input = info.inputs[index].name;
  if (error.input.empty())
    error.input = std::to_string(index);
  return error;
}

/// "input 'x', dim 1 (S): expected 128, got 100"
static Status finish(Error error, const std::string &where, const std::string &why = "") {
  error.message = where + ": expected " + error.expected + ", got " + error.got;
  if (!why.empty())
    error.message += " (" + why + ")";
  return error;
}

static std::string expectedShape(const disc_tensor_info &tensor) {
  std::string text = "[";
  for (int64_t i = 0; i < tensor.rank; ++i)
    text += (i ? ", " : "") + std::string(tensor.dims[i].text);
  return text + "]";
}

/// Misuse that no model is needed to see.
static Status malformed(const disc_model_info_t &info, int64_t index, const char *why) {
  Error error = inputError(Code::Invalid, info, index);
  error.message = inputText(info, index) + ": " + why;
  return error;
}

static Status wrongExtent(const disc_model_info_t &info, int64_t index, const DLTensor &tensor, int64_t dim,
                          std::string expected) {
  Error error = inputError(Code::Shape, info, index);
  error.dim = dim;
  error.expected = std::move(expected);
  error.got = std::to_string(tensor.shape[dim]);
  return finish(std::move(error), inputText(info, index) + ", dim " + std::to_string(dim),
                "the shape is " + shapeText(tensor.shape, tensor.ndim));
}

/// Everything about one input that needs no symbol.
static Status checkInput(const disc_model_info_t &info, int64_t index, const DLTensor *given, bool readsData,
                         DLDevice where) {
  if (!given)
    return malformed(info, index, "the tensor is null");
  const DLTensor &tensor = *given;
  const disc_tensor_info &expected = info.inputs[index];
  if (tensor.ndim < 0 || (!tensor.shape && tensor.ndim > 0))
    return malformed(info, index, "the tensor has no shape");
  if (dtypeOf(tensor) != expected.dtype) {
    Error error = inputError(Code::Type, info, index);
    error.expected = dtypeName(expected.dtype);
    error.got = dtypeName(tensor);
    return finish(std::move(error), inputText(info, index) + ", dtype");
  }
  if (!sameDevice(tensor.device, where)) {
    Error error = inputError(Code::Type, info, index);
    error.expected = deviceName(where);
    error.got = deviceName(tensor.device);
    return finish(std::move(error), inputText(info, index) + ", device");
  }
  if (tensor.ndim != expected.rank) {
    Error error = inputError(Code::Shape, info, index);
    error.expected = std::to_string(expected.rank) + " dims " + expectedShape(expected);
    error.got = std::to_string(tensor.ndim) + " dims";
    if (tensor.ndim <= kMaxRank)
      error.got += " " + shapeText(tensor.shape, tensor.ndim);
    return finish(std::move(error), inputText(info, index) + ", rank");
  }
  for (int64_t dim = 0; dim < expected.rank; ++dim) {
    int64_t extent = expected.dims[dim].extent;
    if (extent >= 0 && extent != tensor.shape[dim])
      return wrongExtent(info, index, tensor, dim, std::to_string(extent));
    if (tensor.shape[dim] < 0)
      return wrongExtent(info, index, tensor, dim, "an extent of at least 0");
  }
  int64_t bytes;
  if (!denseBytes(tensor.shape, tensor.ndim, elementBytes(expected.dtype), bytes)) {
    Error error = inputError(Code::Memory, info, index);
    error.expected = expectedShape(expected);
    error.got = shapeText(tensor.shape, tensor.ndim);
    return finish(std::move(error), inputText(info, index) + ": the size overflows a 64-bit integer");
  }
  ByteRange range;
  if (readsData && !byteRange(tensor, range)) {
    Error error = inputError(Code::Shape, info, index);
    error.message = inputText(info, index) + ": its extents and strides go beyond the address space (the shape is " +
                    shapeText(tensor.shape, tensor.ndim) + ")";
    return error;
  }
  if (readsData && bytes > 0 && !tensor.data)
    return malformed(info, index, "its data is null");
  if (readsData && where.device_type != kDLCPU && !inPlace(tensor)) {
    Error error = inputError(Code::Invalid, info, index);
    error.message = inputText(info, index) + ": on " + deviceName(where) +
                    " it must be contiguous and aligned; strided tensors are not copied there";
    return error;
  }
  if (readsData && expected.updated && !suitsKernels(dataOf(tensor), where))
    return malformed(info, index, "it is updated in place, so on a device it must begin at a multiple of 16 bytes");
  if (readsData && expected.updated && repeatsElements(tensor))
    return malformed(info, index, "it is updated in place, but a stride of 0 puts several elements at one place");
  return Status();
}

/// Results would depend on which of the two tensors is read first.
static Status checkUpdated(const disc_model_info_t &info, const DLTensor *const *inputs) {
  for (int64_t i = 0; i < info.num_inputs; ++i)
    for (int64_t j = 0; info.inputs[i].updated && j < info.num_inputs; ++j)
      if (j != i && mayOverlap(*inputs[i], *inputs[j]))
        return malformed(info, i, ("it is updated in place, but overlaps " + inputText(info, j)).c_str());
  return Status();
}

Status disc::rt::checkInputs(const disc_model_info_t &info, const DLTensor *const *inputs, bool readsData,
                             DLDevice where) {
  for (int64_t i = 0; i < info.num_inputs; ++i)
    if (Status status = checkInput(info, i, inputs[i], readsData, where); !status.ok())
      return status;
  return readsData ? checkUpdated(info, inputs) : Status();
}

/// "2 * B = 4": an expression and its value, or the value alone.
static std::string valueText(const char *text, int64_t value) {
  std::string number = std::to_string(value);
  return !*text || number == text ? number : text + (" = " + number);
}

/// Whether a guard's text is a whole relation, "1 <= B <= 64", not one side of it.
static bool isRelation(const char *text) {
  for (const char *word : {" <= ", " == ", " a multiple of "})
    if (std::strstr(text, word))
      return true;
  return false;
}

/// What the sides of a relation were, "3 and 4"; of "count == 1" and "1 <= count" the value of the side that is no
/// number.
static std::string sides(const std::string &relation, int64_t lhs, int64_t rhs) {
  std::string left = std::to_string(lhs), right = std::to_string(rhs);
  auto starts = [&](const std::string &text) { return relation.compare(0, text.size(), text) == 0; };
  auto ends = [&](const std::string &text) {
    return relation.size() >= text.size() && relation.compare(relation.size() - text.size(), text.size(), text) == 0;
  };
  for (const char *sign : {" == ", " <= ", " != ", " < "}) {
    if (starts(left + sign))
      return right;
    if (ends(sign + right))
      return left;
  }
  return left + " and " + right;
}

static std::string expectation(const disc_guard_info &guard, int64_t rhs) {
  if (isRelation(guard.rhs))
    return guard.rhs;
  std::string bound = valueText(guard.rhs, rhs);
  switch (guard.predicate) {
  case DISC_LE:
    return "at most " + bound;
  case DISC_GE:
    return "at least " + bound;
  case DISC_DIVISIBLE:
    return "a multiple of " + bound;
  default:
    return bound;
  }
}

/// "input 'input_ids', dim 1": where a symbol's value comes from, or "".
static std::string symbolSource(const disc_model_info_t &info, const char *name) {
  for (int64_t i = 0; i < info.num_symbols; ++i) {
    const disc_symbol_info &symbol = info.symbols[i];
    if (symbol.input >= 0 && std::strcmp(symbol.name, name) == 0)
      return inputText(info, symbol.input) + ", dim " + std::to_string(symbol.dim);
  }
  return "";
}

Status disc::rt::guardError(const disc_model_info_t &info, int64_t number, int64_t lhs, int64_t rhs) {
  if (number < 0 || number >= info.num_guards)
    return Status(Code::Invalid, "guard " + std::to_string(number) + " failed, which the model does not list");
  const disc_guard_info &guard = info.guards[number];
  bool known = guard.input >= 0 && guard.input < info.num_inputs;
  Error error;
  if (known)
    error = inputError(Code::Shape, info, guard.input);
  error.code = Code::Shape;
  error.dim = guard.dim;
  error.symbol = guard.symbol;
  error.expected = expectation(guard, rhs);
  error.got = std::to_string(lhs);
  std::string where, why;
  if (known) {
    where = inputText(info, guard.input);
    std::string dim = guard.dim < 0 ? "" : ", dim " + std::to_string(guard.dim);
    std::string source = symbolSource(info, guard.rhs);
    if (!source.empty() && source != where + dim)
      why = std::string(guard.rhs) + " comes from " + source;
    where += dim;
    if (*guard.symbol)
      where += " (" + std::string(guard.symbol) + ")";
    if (*guard.message)
      where += " " + std::string(guard.message);
  } else {
    // Of two extents that disagree, neither is to blame: both are told.
    if (isRelation(guard.rhs))
      error.got = sides(guard.rhs, lhs, rhs);
    where = *guard.message ? guard.message : *guard.lhs ? guard.lhs : "the inputs' shapes";
  }
  return finish(std::move(error), where, why);
}

/// "1.2e+21", or the number itself where it is short.
static std::string roughly(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.6g", value);
  return text;
}

Status disc::rt::sizeError(int64_t sizes, int64_t numbers, int64_t symbols, const int64_t *pairs) {
  auto text = [&](int64_t i) { return std::string(reinterpret_cast<const char *>(uintptr_t(pairs[2 * i]))); };
  auto value = [&](int64_t i) {
    double number;
    std::memcpy(&number, &pairs[2 * i + 1], sizeof(number));
    return number;
  };
  // The largest size is to blame, unless all sizes fit and a number does not.
  constexpr double kMostBytes = double(int64_t(1) << 59), kMost = 9223372036854774784.0; // below 2^63
  int64_t worst = 0;
  for (int64_t i = 1; i < sizes; ++i)
    if (value(i) > value(worst))
      worst = i;
  for (int64_t i = sizes; i < sizes + numbers; ++i)
    if (!(value(i) <= kMost && value(i) >= -kMost) && (sizes == 0 || value(worst) <= kMostBytes)) {
      worst = i;
      break;
    }
  Error error;
  error.code = Code::Memory;
  error.got = roughly(value(worst));
  error.expected = worst < sizes ? "at most 2^59" : "a 64-bit integer";
  std::string given;
  for (int64_t i = sizes + numbers; i < sizes + numbers + symbols; ++i) {
    given += (given.empty() ? " with " : ", ") + text(i) + " = " + std::to_string(pairs[2 * i + 1]);
    error.symbol = error.symbol.empty() ? text(i) : error.symbol;
  }
  error.message = text(worst) + ": the size overflows; expected " + error.expected + ", got about " + error.got + given;
  if (worst < sizes && value(worst) <= kMostBytes)
    error.message += " for it alone, and more with others";
  return error;
}
