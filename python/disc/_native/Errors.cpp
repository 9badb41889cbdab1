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

void disc::py::raiseRuntimeError(const rt::Error &error) {
  // What the compiler's own code does wrong is no error of the caller's arguments.
  if (error.code == rt::Code::Invalid)
    raise(PyExc_RuntimeError, error.message);
  raiseError({sizeof(disc_error), disc_status(error.code), error.message.c_str(), error.input.c_str(), error.dim,
              error.symbol.c_str(), error.expected.c_str(), error.got.c_str()});
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
