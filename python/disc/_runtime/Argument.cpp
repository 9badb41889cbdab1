//===- Argument.cpp - Python arrays as tensors ----------------------------===//

#include "python/disc/_runtime/Argument.h"

#include <algorithm>
#include <unordered_map>

using namespace disc::py;

/// DLPack's struct before it had versions; the tensor comes first.
struct OldManagedTensor {
  DLTensor tensor;
};

constexpr uint64_t kReadOnly = 1; // DLPACK_FLAG_BITMASK_READ_ONLY

const TensorType *disc::py::exchangeOf(PyObject *object) {
  // Never freed, because types may be looked up until the interpreter has ended. Guarded by the GIL.
  static auto &known = *new std::unordered_map<PyTypeObject *, std::unique_ptr<TensorType>>;
  PyTypeObject *type = Py_TYPE(object);
  auto it = known.find(type);
  if (it != known.end())
    return it->second.get();
  nb::handle handle(reinterpret_cast<PyObject *>(type));
  if (!nb::hasattr(handle, "__dlpack_c_exchange_api__"))
    return nullptr;
  auto created = std::make_unique<TensorType>(nb::borrow<nb::type_object>(handle));
  return known.emplace(type, std::move(created)).first->second.get();
}

Argument::~Argument() {
  if (buffer.obj)
    PyBuffer_Release(&buffer);
}

int64_t *Argument::numbers(size_t count) {
  if (count <= sizeof(few) / sizeof(*few))
    return few;
  many.reset(new int64_t[count]);
  return many.get();
}

void Argument::ownShape(const Place &place) {
  if (tensor.ndim < 0 || (tensor.ndim > 0 && !tensor.shape))
    raise(PyExc_TypeError, place.str() + " has no shape");
  int64_t *shape = numbers(size_t(tensor.ndim));
  std::copy_n(tensor.shape, tensor.ndim, shape);
  tensor.shape = shape;
}

/// The element type of a buffer's format (one letter of the struct module); false if there is none.
static bool parseFormat(const char *format, Py_ssize_t itemsize, DLDataType &out) {
  if (!format)
    format = "B";
  // Native, or little-endian: all supported machines are little-endian.
  if (*format == '@' || *format == '=' || *format == '<')
    ++format;
  if (!format[0] || format[1])
    return false;
  switch (*format) {
  case '?':
    out.code = kDLBool;
    break;
  case 'b':
  case 'h':
  case 'i':
  case 'l':
  case 'q':
  case 'n':
    out.code = kDLInt;
    break;
  case 'B':
  case 'H':
  case 'I':
  case 'L':
  case 'Q':
  case 'N':
    out.code = kDLUInt;
    break;
  case 'e':
  case 'f':
  case 'd':
    out.code = kDLFloat;
    break;
  default:
    return false;
  }
  out.bits = uint8_t(itemsize * 8);
  out.lanes = 1;
  return true;
}

/// "float32" of an array, or its type's name.
static std::string describe(PyObject *object) {
  nb::object dtype = nb::getattr(nb::handle(object), "dtype", nb::none());
  return dtype.is_none() ? Py_TYPE(object)->tp_name : nb::str(dtype).c_str();
}

bool Argument::borrowBuffer(PyObject *object, const Place &place, bool writable) {
  int flags = PyBUF_STRIDES | PyBUF_FORMAT | (writable ? PyBUF_WRITABLE : 0);
  bool isBfloat = false;
  if (PyObject_GetBuffer(object, &buffer, flags) != 0) {
    nb::python_error cause;
    nb::object dtype = nb::getattr(nb::handle(object), "dtype", nb::none());
    if (writable && nb::hasattr(object, "flags") && !dtype.is_none() &&
        !nb::cast<bool>(nb::getattr(nb::handle(object).attr("flags"), "writeable", nb::bool_(true))))
      raise(PyExc_ValueError, place.str() + " is read-only");
    // Buffer formats have no letter for bfloat16, so NumPy exports no buffer.
    isBfloat = !dtype.is_none() && nb::str(dtype).c_str() == std::string("bfloat16");
    if (!isBfloat)
      raise(PyExc_TypeError, place.str() + ": arrays of " + describe(object) + " are not supported");
    held = nb::handle(object).attr("view")("uint16");
    if (PyObject_GetBuffer(held.ptr(), &buffer, flags) != 0)
      throw nb::python_error();
  }
  if (!parseFormat(buffer.format, buffer.itemsize, tensor.dtype))
    raise(PyExc_TypeError, place.str() + ": arrays of " + describe(object) + " are not supported");
  if (isBfloat)
    tensor.dtype.code = kDLBfloat;
  int64_t *sizes = numbers(2 * size_t(buffer.ndim));
  for (int i = 0; i < buffer.ndim; ++i) {
    sizes[i] = buffer.shape[i];
    sizes[buffer.ndim + i] = buffer.strides[i] / buffer.itemsize;
    if (buffer.strides[i] % buffer.itemsize != 0)
      raise(PyExc_TypeError, place.str() + ": the stride of dim " + std::to_string(i) +
                                 " is not a multiple of the element's size; copy the array");
  }
  tensor.data = buffer.buf;
  tensor.device = {kDLCPU, 0};
  tensor.ndim = buffer.ndim;
  tensor.shape = sizes;
  tensor.strides = sizes + buffer.ndim;
  return true;
}

void Argument::borrowCapsule(PyObject *object, const Place &place, bool writable) {
  nb::object method = nb::getattr(nb::handle(object), "__dlpack__", nb::none());
  if (method.is_none())
    raise(PyExc_TypeError, place.str() + ": expected an array, got " + Py_TYPE(object)->tp_name);
  try {
    held = method(nb::arg("max_version") = nb::make_tuple(1, 0));
  } catch (nb::python_error &error) {
    // Older implementations do not accept `max_version`.
    if (!error.matches(PyExc_TypeError))
      throw;
    held = method();
  }
  if (PyCapsule_IsValid(held.ptr(), "dltensor_versioned")) {
    auto *managed = static_cast<DLManagedTensorVersioned *>(PyCapsule_GetPointer(held.ptr(), "dltensor_versioned"));
    if (managed->version.major != 1)
      raise(PyExc_TypeError, place.str() + ": its DLPack has version " + std::to_string(managed->version.major));
    if (writable && (managed->flags & kReadOnly))
      raise(PyExc_ValueError, place.str() + " is read-only");
    tensor = managed->dl_tensor;
  } else if (PyCapsule_IsValid(held.ptr(), "dltensor")) {
    tensor = static_cast<OldManagedTensor *>(PyCapsule_GetPointer(held.ptr(), "dltensor"))->tensor;
  } else {
    raise(PyExc_TypeError, place.str() + ": __dlpack__ returned no tensor");
  }
  if (writable)
    ownShape(place);
}

void Argument::borrow(PyObject *object, const Place &place, bool writable) {
  if (PyObject_CheckBuffer(object)) {
    borrowBuffer(object, place, writable);
    return;
  }
  type = exchangeOf(object);
  if (!type)
    return borrowCapsule(object, place, writable);
  if (!type->borrow(object, tensor, held)) {
    // A device that DLPack cannot express (meta), or a layout (sparse).
    raise(PyExc_TypeError, place.str() + ": expected a dense tensor on cpu (" + takeErrorText() + ")");
  }
  if (writable) {
    if (held)
      raise(PyExc_ValueError, place.str() + " is a negated view, which cannot be written to");
    ownShape(place);
  }
}
