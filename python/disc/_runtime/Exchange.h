//===- Exchange.h - Python tensors as DLPack, without copies ----*- C++ -*-===//
//
// A tensor type that has `__dlpack_c_exchange_api__` (torch.Tensor has) hands out C
// functions, which take some 50 ns where the capsule protocol takes microseconds.
//
//===----------------------------------------------------------------------===//

#ifndef DISC_PYTHON_RUNTIME_EXCHANGE_H
#define DISC_PYTHON_RUNTIME_EXCHANGE_H

#include "lib/Runtime/disc.h"
#include "python/disc/_runtime/Raise.h"

namespace disc::py {

/// The layout that DLPack 1.3 gives its exchange API.
struct ExchangeApi {
  struct {
    DLPackVersion version;
    void *previous;
  } header;
  void *allocate;
  int (*managedFromPython)(void *object, DLManagedTensorVersioned **out);
  int (*managedToPython)(DLManagedTensorVersioned *tensor, void **out);
  int (*borrowFromPython)(void *object, DLTensor *out);
  int (*currentStream)(int32_t deviceType, int32_t deviceId, void **out);
};

/// The exchange functions of one Python type of tensors.
class TensorType {
public:
  /// Raises TypeError if `type` has none that we understand.
  explicit TensorType(nb::type_object type);

  bool isInstance(PyObject *object) const {
    return PyObject_TypeCheck(object, reinterpret_cast<PyTypeObject *>(type.ptr()));
  }
  const char *name() const { return reinterpret_cast<PyTypeObject *>(type.ptr())->tp_name; }

  /// Lends the tensor while `object` and `held` live. False with a Python error set.
  bool borrow(PyObject *object, DLTensor &out, nb::object &held) const {
    if (api->borrowFromPython(object, &out) != 0)
      return false;
    return out.dtype.code != kDLFloat || resolveNegation(object, out, held);
  }
  /// A new reference to the tensor's memory; null with a Python error set.
  DLManagedTensorVersioned *acquire(PyObject *object) const;
  /// A new Python object that owns the tensor; null with a Python error set, and then
  /// the tensor is still the caller's.
  PyObject *wrap(DLManagedTensorVersioned *tensor) const;

  /// The stream that the framework puts work into at the moment; false with a Python error set.
  bool currentStream(DLDevice device, void *&stream) const {
    stream = nullptr;
    return device.device_type == kDLCPU || api->currentStream(device.device_type, device.device_id, &stream) == 0;
  }
  /// A new reference to a contiguous copy of `object`; empty with a Python error set.
  static nb::object contiguous(PyObject *object) {
    return nb::steal(PyObject_CallMethod(object, "contiguous", nullptr));
  }

private:
  /// Torch negates some views of complex tensors only when they are read, which DLPack
  /// cannot express: `held` is then the tensor that it stands for.
  bool resolveNegation(PyObject *object, DLTensor &out, nb::object &held) const;

  nb::type_object type;
  nb::object isNegated, resolve; ///< Names of methods; empty if there are none.
  const ExchangeApi *api = nullptr;
};

} // namespace disc::py

#endif // DISC_PYTHON_RUNTIME_EXCHANGE_H
