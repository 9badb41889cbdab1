//===- EmitModelInfo.h - The model's table for the runtime ------*- C++ -*-===//

#ifndef DISC_TARGET_HOST_EMITMODELINFO_H
#define DISC_TARGET_HOST_EMITMODELINFO_H

#include "dialects/Rt/RtDialect.h"
#include "lib/Target/Common/ElementTypes.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/MapVector.h"
#include <optional>
#include <string>
#include <vector>

namespace mlir::disc {

class ShapeAnalysis;

/// What lowering the entry functions finds out, in the order of the numbers it
/// used. `emitModelInfo` adds the inputs, outputs and symbols of the IR.
struct ModelInfo {
  struct Guard {
    GuardPredicate predicate;
    int64_t input, dim;
    std::string expected, message;
  };
  /// Where a symbol's value comes from.
  struct Source {
    int64_t input = -1, dim = -1;
  };

  struct Kernel {
    Operation *op; // a function, or a disc_rt.device_kernel
    StringRef kind;
  };

  std::vector<Guard> guards;
  std::vector<Kernel> kernels;
  llvm::MapVector<StringAttr, RankedTensorType> parameters;
  llvm::DenseSet<StringAttr> kept;              // the parameters that `main` reads
  llvm::DenseSet<StringAttr> updated;           // those that it writes to
  llvm::MapVector<StringAttr, int64_t> globals; // name -> number
  llvm::MapVector<StringAttr, Source> symbols;
  llvm::DenseSet<StringAttr> computed; // the symbols whose values depend on data
  llvm::DenseSet<StringAttr> indices;  // of loops: symbols that no call has a value of
  int64_t memoryBudget = 0;            // bytes; 0: none
};

/// The address of a function that is still `func.func`, as the pointer that func-to-llvm makes of it.
Value functionAddress(OpBuilder &b, Location loc, func::FuncOp function);

/// The device that has the data of a module's calls; null for the CPU.
StringAttr deviceOf(ModuleOp module);

/// Emits the constant `disc_model_info`, laid out as lib/Runtime/Core/ModelInfo.h
/// says.
LogicalResult emitModelInfo(ModuleOp module, EntryOp main, const ModelInfo &info, const ShapeAnalysis &shapes);

} // namespace mlir::disc

#endif // DISC_TARGET_HOST_EMITMODELINFO_H
