//===- Bindings.h - the parts of disc._native -------------------*- C++ -*-===//

#ifndef DISC_PYTHON_NATIVE_BINDINGS_H
#define DISC_PYTHON_NATIVE_BINDINGS_H

#include <nanobind/nanobind.h>

namespace disc::py {

namespace nb = nanobind;

void bindErrors(nb::module_ &m);
void bindModule(nb::module_ &m);
void bindExecutable(nb::module_ &m);
void bindArtifact(nb::module_ &m);
void bindDescriptor(nb::module_ &m);

} // namespace disc::py

#endif // DISC_PYTHON_NATIVE_BINDINGS_H
