//===- FlowLowering.h - the host flow as disc_rt operations ------*- C++ -*-===//
//
// One `lower` for each operation of the host flow. All decisions are in the IR already: nothing here asks how long a
// tensor lives, or which memory is free.
//
//===----------------------------------------------------------------------===//

#ifndef DISC_TRANSFORMS_MEMORY_FLOWLOWERING_H
#define DISC_TRANSFORMS_MEMORY_FLOWLOWERING_H

#include "dialects/Plan/PlanDialect.h"
#include "dialects/Rt/RtDialect.h"
#include "dialects/Tensor/TensorDialect.h"
#include "lib/Transforms/Memory/TensorBytes.h"
#include "lib/Transforms/Support/ShapeAnalysis.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/StringMap.h"

namespace mlir::disc {

/// Replaces one function by an entry or by procedures.
class FlowLowering {
public:
  /// With `sanitize` the runtime gets descriptions of the buffers of launches.
  FlowLowering(func::FuncOp func, ShapeAnalysis &shapes, bool sanitize);
  LogicalResult runEntry();
  /// The function becomes a procedure with these symbols.
  LogicalResult runProcedure(ArrayAttr symbols);
  /// The function becomes a plan of the entry `of`, which passes the values of these symbols.
  LogicalResult runPlan(StringRef of, ArrayRef<StringAttr> symbols);

  /// The symbols that have values when the entry selects a plan, after runEntry().
  ArrayRef<StringAttr> symbols() const { return entrySymbols; }

private:
  // LowerInterface.cpp
  InterfaceTensorAttr describe(StringRef fallback, unsigned index, Type type, DictionaryAttr attrs,
                               ArrayRef<SymExpr> dims, bool updated = false);
  LogicalResult describeInterface(SmallVector<Attribute> &inputs, SmallVector<Attribute> &outputs);
  LogicalResult bindInputs();
  void bindComputed(ArrayAttr symbols, ValueRange values, StringRef what);
  void guardRange(SymbolOp symbol, Value value, int64_t input, int64_t dim, StringRef what = "");
  void guard(GuardPredicate predicate, Value lhs, Value rhs, int64_t input, int64_t dim, const Twine &expected,
             const Twine &message);
  LogicalResult lower(GuardOp guard);
  LogicalResult lower(BindOp bind);

  // LowerControlFlow.cpp
  LogicalResult lower(LoopOp loop);
  LogicalResult lower(BranchOp branch);
  LogicalResult lower(InvokeOp invoke);

  // ConvertToRt.cpp
  LogicalResult lowerFunction();
  LogicalResult lower(Operation &op);
  LogicalResult lower(Block::iterator begin, Block::iterator end);
  /// Lowers the guards and the part of the arena with which a block begins; returns what comes next.
  FailureOr<Block::iterator> lowerBeginning(Block &block);
  LogicalResult lower(CallOp kernel);
  LogicalResult lower(CopyTensorOp copy);
  LogicalResult lower(AllocateOutputOp allocate);
  LogicalResult lower(ArenaPartOp part);
  LogicalResult lower(SelectPlanOp select);
  LogicalResult fetchTargets();
  LogicalResult fetchOperands();
  bool isFromOutside(Value tensor) const;
  /// Where the elements of a tensor are, or of what it is a view of.
  FailureOr<Value> pointerTo(Value tensor);
  /// Where the result of an operation must be stored.
  FailureOr<Value> bufferFor(Value result);
  Value slotNumber(const SymExpr &number);
  Value slot(const SymExpr &number, const SymExpr &bytes, bool keep);
  FailureOr<Value> loadScalar(Value tensor, Type type);
  Value dim(const SymExpr &expr) { return DimOp::create(b, loc, expr); }
  SymExpr bytesOf(Value tensor) { return tensorBytes(tensor, shapes); }

  // DescribeBuffers.cpp
  void describeBuffers(LaunchOp launch, CallOp kernel);
  std::string bufferName(Value base);

  func::FuncOp func;
  ShapeAnalysis &shapes;
  ModuleOp module;
  OpBuilder b;
  Location loc;
  const bool sanitize;
  Type pointer;
  Value call;
  llvm::DenseMap<Value, Value> pointers;         // of tensors
  llvm::StringMap<Value> fetched;                // parameters, and globals as `@name`
  llvm::DenseMap<int64_t, Value> temporaries;    // whose part of the arena is there
  llvm::DenseMap<int64_t, Value> outputs;        // that are allocated
  llvm::DenseMap<Value, Value> iterationTargets; // of results of loops: where this iteration writes
  llvm::SmallDenseSet<Operation *> layout;       // the operations that compute sizes and offsets in the arena
  IRMapping indices;                             // their results

  bool isProcedure = false;
  SmallVector<Value> resultMemory; // of a procedure
  Value firstSlot;                 // of an activation
  SmallVector<StringAttr> entrySymbols;
  SmallVector<Value> entryValues; // of these symbols
};

} // namespace mlir::disc

#endif // DISC_TRANSFORMS_MEMORY_FLOWLOWERING_H
