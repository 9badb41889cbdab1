//===- Errors.cpp - errors of compiler and runtime in Python --------------===//

#include "python/disc/_native/Errors.h"

using namespace disc::py;
using mlir::disc::CollectedDiagnostic;

/// Lives as long as the interpreter.
static PyObject *pipelineError = nullptr;

static const char *severityName(CollectedDiagnostic::Severity severity) {
  static const char *const names[] = {"note", "remark", "warning", "error"};
  return names[static_cast<int>(severity)];
}

/// (severity, message, file, line, column), then the same for its notes.
static void appendDiagnostic(nb::list &list, const CollectedDiagnostic &diagnostic) {
  list.append(nb::make_tuple(severityName(diagnostic.severity), diagnostic.message.c_str(), diagnostic.file.c_str(),
                             diagnostic.line, diagnostic.column));
  for (const CollectedDiagnostic &note : diagnostic.notes)
    appendDiagnostic(list, note);
}

void disc::py::raisePipelineError(const mlir::disc::PipelineDiagnostics &diagnostics) {
  nb::list list;
  for (const CollectedDiagnostic &diagnostic : diagnostics.list)
    appendDiagnostic(list, diagnostic);
  nb::object error = nb::handle(pipelineError)(diagnostics.str().c_str());
  error.attr("diagnostics") = list;
  error.attr("failed_pass") = diagnostics.failedPass.c_str();
  PyErr_SetObject(pipelineError, error.ptr());
  throw nb::python_error();
}

void disc::py::raise(PyObject *type, const std::string &message) {
  PyErr_SetString(type, message.c_str());
  throw nb::python_error();
}

void disc::py::raiseRuntimeError(const rt::Error &error) {
  switch (error.code) {
  case rt::Code::Type:
    raise(PyExc_TypeError, error.message);
  case rt::Code::Memory:
    raise(PyExc_MemoryError, error.message);
  case rt::Code::Index:
    raise(PyExc_IndexError, error.message);
  case rt::Code::Shape: {
    nb::object type = nb::module_::import_("disc.errors").attr("ShapeError");
    auto orNone = [](const std::string &text) -> nb::object {
      return text.empty() ? nb::none() : nb::object(nb::str(text.c_str()));
    };
    nb::object dim = error.dim < 0 ? nb::none() : nb::object(nb::int_(error.dim));
    nb::object instance = type(error.message.c_str(), nb::arg("input") = orNone(error.input), nb::arg("dim") = dim,
                               nb::arg("symbol") = orNone(error.symbol), nb::arg("expected") = orNone(error.expected),
                               nb::arg("got") = orNone(error.got));
    PyErr_SetObject(type.ptr(), instance.ptr());
    throw nb::python_error();
  }
  case rt::Code::Ok:
  case rt::Code::Invalid:
    break;
  }
  raise(PyExc_RuntimeError, error.message);
}

void disc::py::bindErrors(nb::module_ &m) {
  pipelineError = PyErr_NewExceptionWithDoc("disc._native.PipelineError",
                                            "A pipeline did not parse, or one of its passes failed.\n\n"
                                            "Attributes:\n"
                                            "    diagnostics: tuples (severity, message, file, line, column).\n"
                                            "    failed_pass: command-line name of the pass, or ''.",
                                            nullptr, nullptr);
  m.attr("PipelineError") = nb::handle(pipelineError);
}
