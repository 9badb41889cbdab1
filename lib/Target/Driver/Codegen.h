//===- Codegen.h - LLVM dialect to native code in memory --------*- C++ -*-===//

#ifndef DISC_TARGET_DRIVER_CODEGEN_H
#define DISC_TARGET_DRIVER_CODEGEN_H

#include "lib/Target/Driver/HostTarget.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/MemoryBuffer.h"
#include <atomic>
#include <memory>
#include <string>

namespace llvm {
class Module;
}

namespace mlir::disc {

enum class CodeKind { Object, Assembly, LLVMIR };

struct CodegenOptions {
  CodeKind kind = CodeKind::Object;
  /// 0 to 3, as in clang. Kernels arrive vectorised and unrolled, so levels
  /// differ less than usual.
  int optLevel = 3;
  /// Compile threads; 0 means one per core. Kernels are independent of each
  /// other, so the module is cut into this many parts at most.
  int threads = 0;
  /// When not empty: files `<prefix>.ll` (before), `.opt.ll` and `.s` (after).
  std::string dumpPrefix;
  /// When not empty: every symbol that the module defines is hidden and begins with this instead of `disc_`, so that
  /// code of several models, and of several CPUs, can be linked together.
  std::string symbolPrefix;
  /// Code for this machine, whatever the module's target is, of `disc_init` and what it calls. It lays weights out as
  /// the module's schedules want them, for code that this machine need not be able to run.
  bool initOnly = false;
  /// When not empty: a folder of compiled objects by content, and how many bytes it may take.
  std::string cacheFolder;
  uint64_t cacheLimit = 0;
  /// Null, or set by another thread: the code is not wanted any more, which is an error as soon as it is noticed.
  const std::atomic<bool> *cancelled = nullptr;
};

/// Seconds spent, for the compile-time table.
struct CodegenTimes {
  double translate = 0, optimize = 0, emit = 0;
  /// Whether the objects come from the cache.
  bool cached = false;
};

/// The native objects of one module, to be linked together; of the other kinds, one text.
using ObjectCode = std::vector<std::unique_ptr<llvm::MemoryBuffer>>;

/// Translates a module of the LLVM dialect only, optimises it and emits
/// position-independent native code for its `disc_plan.target`.
llvm::Expected<ObjectCode> generateCode(ModuleOp module, const CodegenOptions &options = {},
                                        CodegenTimes *times = nullptr);

/// The same for a module of LLVM IR that needs no optimisation, for a machine of `target`'s kind.
llvm::Expected<std::unique_ptr<llvm::MemoryBuffer>> assemble(llvm::Module &module, const HostTarget &target);

} // namespace mlir::disc

#endif // DISC_TARGET_DRIVER_CODEGEN_H
