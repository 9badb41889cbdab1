//===- Module.h - an MLIR module that Python holds --------------*- C++ -*-===//

#ifndef DISC_PYTHON_NATIVE_MODULE_H
#define DISC_PYTHON_NATIVE_MODULE_H

#include "lib/Target/Driver/CompilerThreads.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/OwningOpRef.h"
#include "python/disc/_native/Bindings.h"

#include <memory>

namespace disc::py {

/// Each module has a context of its own: nothing is shared between compilations, and
/// what one of them interned goes away with it.
struct Module {
  std::unique_ptr<mlir::disc::CompilerThreads> threads = std::make_unique<mlir::disc::CompilerThreads>();
  std::unique_ptr<mlir::MLIRContext> context;
  mlir::OwningOpRef<mlir::ModuleOp> op;
};

/// Adds how the compiler asks back ends about their regions.
void bindRegions(nb::class_<Module> &m);

/// Adds what viewers ask of a module: its kernels and guards.
void bindQueries(nb::class_<Module> &m);

} // namespace disc::py

#endif // DISC_PYTHON_NATIVE_MODULE_H
