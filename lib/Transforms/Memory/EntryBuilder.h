//===- EntryBuilder.h - a function of the host flow as an entry --*- C++ -*-===//
//
// What PlanArena.cpp (symbols, results, launches) and PlanTemporaries.cpp (memory of everything else) share.
//
//===----------------------------------------------------------------------===//

#ifndef DISC_TRANSFORMS_MEMORY_ENTRYBUILDER_H
#define DISC_TRANSFORMS_MEMORY_ENTRYBUILDER_H

#include "dialects/Plan/PlanDialect.h"
#include "dialects/Rt/RtDialect.h"
#include "dialects/Tensor/TensorDialect.h"
#include "lib/Transforms/Memory/ArenaOffsets.h"
#include "lib/Transforms/Support/ShapeAnalysis.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/StringMap.h"

namespace mlir::disc {

/// Bytes of an element in memory; a boolean takes one.
inline int64_t elementBytes(Type type) {
  return llvm::divideCeil(cast<RankedTensorType>(type).getElementType().getIntOrFloatBitWidth(), 8);
}

/// Rewrites one function into an entry.
class EntryBuilder {
public:
  EntryBuilder(func::FuncOp func, ShapeAnalysis &shapes)
      : func(func), shapes(shapes), module(func->getParentOfType<ModuleOp>()), b(func), loc(func.getLoc()) {}
  LogicalResult run();

private:
  DictionaryAttr describe(StringRef fallback, unsigned index, Type type, DictionaryAttr attrs, ArrayRef<SymExpr> dims,
                          bool updated = false);
  LogicalResult describeInterface(SmallVector<Attribute> &inputs, SmallVector<Attribute> &outputs);
  LogicalResult bindSymbols();
  void guardRange(SymbolOp symbol, Value value, int64_t input, int64_t dim, StringRef what = "");
  void guard(GuardPredicate predicate, Value lhs, Value rhs, int64_t input, int64_t dim, const Twine &expected,
             const Twine &message);
  void guardFact(GuardOp fact);
  LogicalResult lowerBind(BindOp bind);
  unsigned epochOf(ArrayRef<SymExpr> exprs) const;
  LogicalResult assignResults(unsigned epoch);
  ArrayRef<SmallVector<unsigned>> inPlaceResults(CallOp kernel);
  LogicalResult planUpdates();
  LogicalResult planTemporaries();
  void assignTemporaries(unsigned epoch);
  void numberSteps(Block &block);
  int64_t lastUse(Value v);
  LogicalResult fetchOperands();
  LogicalResult emit(Block &block);
  LogicalResult emit(ScanOp scan);
  LogicalResult beginEpoch(BindOp bind);
  DictionaryAttr describePlan(const ArenaPlanner::Plan &plan, ArrayRef<ArenaPlanner::Temporary> temporaries,
                              int64_t inPlace);
  LogicalResult fetch(Value tensor);
  FailureOr<Value> buffer(Value tensor);
  static std::optional<unsigned> stackOf(ScanOp scan, unsigned carried);

  SymExpr bytesOf(Value tensor) {
    return SymExpr::product(shapes.dims(tensor)) * SymExpr(elementBytes(tensor.getType()));
  }
  Value dim(const SymExpr &expr) { return DimOp::create(b, loc, expr); }

  func::FuncOp func;
  ShapeAnalysis &shapes;
  ModuleOp module;
  OpBuilder b;
  Location loc;
  EntryOp entry;
  Type pointer = LLVM::LLVMPointerType::get(func.getContext());
  Value call;
  llvm::DenseMap<Value, Value> buffers;
  struct Copy {
    Value value, target;
    SymExpr bytes;
  };
  SmallVector<Copy> copies; // values that are outputs too
  struct Update {
    Value value;
    BlockArgument replaced;
    SmallVector<Value> chain; // the values that lie in the argument's memory; none if the last one is copied there
  };
  SmallVector<Update> updates;
  llvm::DenseMap<Operation *, int64_t> step, lastStep;      // of the host flow; a loop's last is that of its body
  llvm::DenseMap<Value, SmallVector<Value, 2>> alternating; // the two buffers of a carried result
  llvm::StringMap<Value> bySource;                          // parameters and globals already fetched
  llvm::DenseMap<KernelFuncOp, SmallVector<SmallVector<unsigned>>> reusable; // per kernel: inPlaceOperands

  llvm::StringMap<unsigned> epochs; // of the symbols that the flow binds, from 1
  SmallVector<ArenaPlanner::Temporary> temporaries;
  llvm::MapVector<Value, unsigned> storage; // of each temporary value; several may have one, one after the other
  llvm::MapVector<Value, unsigned> pairs;   // of carried results: the first of two temporaries
  SmallVector<int64_t> inPlace;             // per epoch
};

} // namespace mlir::disc

#endif // DISC_TRANSFORMS_MEMORY_ENTRYBUILDER_H
