//===- Status.h - success, or one structured error --------------*- C++ -*-===//

#ifndef DISC_RUNTIME_CORE_STATUS_H
#define DISC_RUNTIME_CORE_STATUS_H

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

namespace disc::rt {

/// Values are those of disc_status in disc.h.
enum class Code : int32_t {
  Ok = 0,
  Type = 1,       ///< Wrong dtype, device or kind of argument.
  Shape = 2,      ///< Wrong rank, or extents the model was not compiled for.
  Memory = 3,     ///< An allocation failed.
  Invalid = 4,    ///< The runtime or the compiled code was misused.
  Index = 5,      ///< An element of an input indexes beyond a dimension.
  File = 6,       ///< A file cannot be read, or is damaged.
  Version = 7,    ///< Made by a version that does not fit.
  Target = 8,     ///< Code for another kind of machine.
  Weights = 9,    ///< Weights that are not the model's.
  Device = 10,    ///< A device, or its driver, failed.
  Cancelled = 11, ///< The host program asked for the end of the run.
  Sanitizer = 12, ///< A sanitized model's code used memory in a wrong way.
};

/// What went wrong. The fields beside the message are empty where they do not apply.
struct Error {
  Code code = Code::Invalid;
  std::string message;
  std::string input;  ///< Name of the input at fault.
  int64_t dim = -1;   ///< Its dim.
  std::string symbol; ///< Symbolic extent of that dim.
  std::string expected;
  std::string got;
};

/// Success costs nothing: an error lives on the heap.
class [[nodiscard]] Status {
public:
  Status() = default;
  Status(Error error) : error_(new Error(std::move(error))) {}
  Status(Code code, std::string message) : error_(new Error) {
    error_->code = code;
    error_->message = std::move(message);
  }

  bool ok() const { return !error_; }
  Code code() const { return error_ ? error_->code : Code::Ok; }
  /// Only when !ok().
  const Error &error() const { return *error_; }

private:
  std::unique_ptr<Error> error_;
};

/// An index that lies outside of a dimension.
inline Status indexError(const char *what, int64_t index, int64_t extent) {
  return Status(Code::Index, std::string(what) + ": index " + std::to_string(index) +
                                 " is out of range for a dimension of extent " + std::to_string(extent));
}

} // namespace disc::rt

#endif // DISC_RUNTIME_CORE_STATUS_H
