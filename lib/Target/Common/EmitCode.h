//===- EmitCode.h - LLVM modules to code --------------------------*- C++ -*-===//

#ifndef DISC_TARGET_COMMON_EMITCODE_H
#define DISC_TARGET_COMMON_EMITCODE_H

#include "llvm/ADT/SmallVector.h"
#include "llvm/Support/CodeGen.h"
#include "llvm/Support/Error.h"
#include <atomic>

namespace llvm {
class Module;
class TargetMachine;
} // namespace llvm

namespace mlir::disc {

llvm::CodeGenOptLevel codegenLevel(int optLevel);

/// LLVM's pipeline of that level for modules. Kernels arrive vectorised and register-tiled: searching them for more
/// vector parallelism costs compile time and finds nothing. `cancelled` is null or set by another thread: what has not
/// begun is skipped then.
void optimizeModule(llvm::Module &module, llvm::TargetMachine &machine, int optLevel,
                    const std::atomic<bool> *cancelled = nullptr);

/// Code generation; it changes the module.
llvm::Error emitCode(llvm::Module &module, llvm::TargetMachine &machine, llvm::CodeGenFileType type,
                     llvm::SmallVectorImpl<char> &out);

} // namespace mlir::disc

#endif // DISC_TARGET_COMMON_EMITCODE_H
