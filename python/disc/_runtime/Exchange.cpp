//===- Exchange.cpp - Python tensors as DLPack, without copies ------------===//

#include "python/disc/_runtime/Exchange.h"

using namespace disc::py;

TensorType::TensorType(nb::type_object given) : type(std::move(given)) {
  nb::object capsule = nb::getattr(type, "__dlpack_c_exchange_api__", nb::none());
  if (PyCapsule_IsValid(capsule.ptr(), "dlpack_exchange_api"))
    api = static_cast<const ExchangeApi *>(PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api"));
  if (!api || api->header.version.major != 1 || !api->borrowFromPython || !api->currentStream)
    raise(PyExc_TypeError, std::string(name()) + " has no DLPack 1.x exchange API");
  if (nb::hasattr(type, "resolve_neg")) {
    isNegated = nb::steal(PyUnicode_InternFromString("is_neg"));
    resolve = nb::steal(PyUnicode_InternFromString("resolve_neg"));
  }
}

bool TensorType::resolveNegation(PyObject *object, DLTensor &out, nb::object &held) const {
  if (!isNegated)
    return true;
  nb::object negated = nb::steal(PyObject_CallMethodNoArgs(object, isNegated.ptr()));
  if (!negated)
    return false;
  if (negated.ptr() != Py_True)
    return true;
  held = nb::steal(PyObject_CallMethodNoArgs(object, resolve.ptr()));
  return held && api->borrowFromPython(held.ptr(), &out) == 0;
}

DLManagedTensorVersioned *TensorType::acquire(PyObject *object) const {
  DLManagedTensorVersioned *tensor = nullptr;
  if (api->managedFromPython(object, &tensor) != 0)
    return nullptr;
  return tensor;
}

PyObject *TensorType::wrap(DLManagedTensorVersioned *tensor) const {
  void *object = nullptr;
  if (api->managedToPython(tensor, &object) != 0)
    return nullptr;
  return static_cast<PyObject *>(object);
}
