//===- Codegen.h - LLVM dialect to an object in memory ----------*- C++ -*-===//

#ifndef DISC_TARGET_DRIVER_CODEGEN_H
#define DISC_TARGET_DRIVER_CODEGEN_H

#include "mlir/IR/BuiltinOps.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/MemoryBuffer.h"
#include <memory>
#include <string>

namespace mlir::disc {

struct CodegenOptions {
  /// 0 to 3, as in clang. Kernels arrive vectorised and unrolled, so levels
  /// differ less than usual.
  int optLevel = 3;
  /// Compile threads; 0 means one per core. Kernels are independent of each
  /// other, so the module is cut into this many parts at most.
  int threads = 0;
  /// When not empty: files `<prefix>.ll` (before), `.opt.ll` and `.s` (after).
  std::string dumpPrefix;
};

/// Seconds spent, for the compile-time table.
struct CodegenTimes {
  double translate = 0, optimize = 0, emit = 0;
};

/// The native objects of one module, to be linked together.
using ObjectCode = std::vector<std::unique_ptr<llvm::MemoryBuffer>>;

/// Translates a module of the LLVM dialect only, optimises it and emits
/// position-independent native code for its `disc_plan.target`.
llvm::Expected<ObjectCode> compileToObject(ModuleOp module, const CodegenOptions &options = {},
                                           CodegenTimes *times = nullptr);

} // namespace mlir::disc

#endif // DISC_TARGET_DRIVER_CODEGEN_H
