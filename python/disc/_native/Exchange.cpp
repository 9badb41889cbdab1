//===- Exchange.cpp - Python tensors as DLPack, without copies ------------===//

#include "python/disc/_native/Exchange.h"
#include "python/disc/_native/Errors.h"

using namespace disc::py;

TensorType::TensorType(nb::type_object given) : type(std::move(given)) {
  nb::object capsule =
      nb::getattr(type, "__dlpack_c_exchange_api__", nb::none());
  if (PyCapsule_IsValid(capsule.ptr(), "dlpack_exchange_api"))
    api = static_cast<const ExchangeApi *>(
        PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api"));
  if (!api || api->header.version.major != 1 || !api->borrowFromPython)
    raise(PyExc_TypeError,
          std::string(name()) + " has no DLPack 1.x exchange API");
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
