//===- Descriptor.cpp - attributes of C types whose accesses are noted ----===//
//
// A property in the place of a C type's attribute is seen: Dynamo traces its Python code, and looks up the attributes
// of torch.Tensor by the type of their descriptors. This makes a descriptor of the same type.
//
//===----------------------------------------------------------------------===//

#include "python/disc/_native/Bindings.h"

#include <string>

namespace {
/// Lives as long as the process: descriptors have no way to free it.
struct Noted {
  std::string name;
  std::string doc;
  PyObject *get;
  PyObject *original;
  PyGetSetDef definition;
};
} // namespace

static PyObject *get(PyObject *self, void *closure) {
  return PyObject_CallOneArg(static_cast<Noted *>(closure)->get, self);
}

static int set(PyObject *self, PyObject *value, void *closure) {
  PyObject *original = static_cast<Noted *>(closure)->original;
  return Py_TYPE(original)->tp_descr_set(original, self, value);
}

namespace nb = nanobind;

static nb::object notedAttribute(nb::handle original, nb::callable getter) {
  if (!PyObject_TypeCheck(original.ptr(), &PyGetSetDescr_Type))
    throw nb::type_error("expected an attribute of a C type");
  auto *noted = new Noted;
  noted->name = nb::cast<const char *>(original.attr("__name__"));
  nb::object doc = original.attr("__doc__");
  noted->doc = doc.is_none() ? "" : nb::cast<const char *>(doc);
  noted->get = getter.inc_ref().ptr();
  noted->original = original.inc_ref().ptr();
  noted->definition = {noted->name.c_str(), get, set, doc.is_none() ? nullptr : noted->doc.c_str(), noted};
  auto *type = reinterpret_cast<PyTypeObject *>(nb::object(original.attr("__objclass__")).ptr());
  return nb::steal(PyDescr_NewGetSet(type, &noted->definition));
}

void disc::py::bindDescriptor(nb::module_ &m) {
  m.def("noted_attribute", notedAttribute, nb::arg("original"), nb::arg("getter"),
        "An attribute like `original`, of the same C type, that `getter` reads.");
}
