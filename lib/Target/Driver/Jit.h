//===- Jit.h - Loads a compiled object into this process --------*- C++ -*-===//

#ifndef DISC_TARGET_DRIVER_JIT_H
#define DISC_TARGET_DRIVER_JIT_H

#include "lib/Target/Driver/Codegen.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"
#include <memory>
#include <string>
#include <vector>

namespace mlir::disc {

/// Who is told about the code. Python passes these as numbers.
enum class CodeSymbols {
  None,
  /// `perf`, through /tmp/perf-<pid>.map, and debuggers, through their interface for JIT compilers, if it has lines.
  Named,
  /// In addition `perf inject --jit`: a dump of the code, with its lines, in the folder $JITDUMPDIR/.debug/jit.
  Dumped,
};

struct JitOptions {
  CodeSymbols symbols = CodeSymbols::None;
  /// Symbols beside those of the runtime and the process, with their addresses: the tables of back ends. They live
  /// longer than the code.
  std::vector<std::pair<std::string, uint64_t>> addresses;
};

/// Owns the code's memory: everything looked up dies with it.
class Jit {
public:
  /// Links the objects. `disc_rt_*` resolve to the runtime linked into this
  /// binary, anything else (libm, memcpy) to the process's symbols.
  static llvm::Expected<std::unique_ptr<Jit>> create(ObjectCode objects, const JitOptions &options = {});
  ~Jit();

  /// The address of a public symbol, e.g. "disc_main", "disc_model_info".
  llvm::Expected<void *> lookup(llvm::StringRef symbol);

private:
  struct Impl;
  explicit Jit(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl;
};

} // namespace mlir::disc

#endif // DISC_TARGET_DRIVER_JIT_H
