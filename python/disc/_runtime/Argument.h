//===- Argument.h - arrays of Python's as tensors ---------------*- C++ -*-===//

#ifndef DISC_PYTHON_RUNTIME_ARGUMENT_H
#define DISC_PYTHON_RUNTIME_ARGUMENT_H

#include "python/disc/_runtime/Exchange.h"

#include <memory>

namespace disc::py {

/// Which argument an error is about: "input 'ids'".
struct Place {
  const char *kind;
  const char *name;
  std::string str() const { return std::string(kind) + " '" + name + "'"; }
};

/// An array that a caller passed: lent, without a copy, as long as this lives.
class Argument {
public:
  Argument() = default;
  Argument(const Argument &) = delete;
  Argument &operator=(const Argument &) = delete;
  ~Argument();

  /// Takes anything with Python's buffer protocol (NumPy), DLPack's exchange functions (torch), or `__dlpack__`. Raises
  /// TypeError for all else, and ValueError if it must be written to and cannot.
  void borrow(PyObject *object, const Place &place, bool writable);

  DLTensor tensor{};
  /// How the object was taken, if by exchange functions.
  const TensorType *type = nullptr;

private:
  bool borrowBuffer(PyObject *object, const Place &place, bool writable);
  void borrowCapsule(PyObject *object, const Place &place, bool writable);
  /// Space for `count` numbers that lives as long as this.
  int64_t *numbers(size_t count);
  /// The extents in memory of our own: the runtime may write to those of an output.
  void ownShape(const Place &place);

  Py_buffer buffer{};
  nb::object held;
  int64_t few[16];
  std::unique_ptr<int64_t[]> many;
};

/// The object's exchange functions; null if its type has none.
const TensorType *exchangeOf(PyObject *object);

} // namespace disc::py

#endif // DISC_PYTHON_RUNTIME_ARGUMENT_H
