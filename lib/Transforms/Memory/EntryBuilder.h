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
#include "lib/Transforms/Memory/InPlace.h"
#include "lib/Transforms/Support/HostFlow.h"
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
  /// With `sanitize` the runtime is told what the buffers of launches are, and red zones lie between temporaries.
  EntryBuilder(func::FuncOp func, ShapeAnalysis &shapes, bool sanitize)
      : func(func), shapes(shapes), module(func->getParentOfType<ModuleOp>()), b(func), loc(func.getLoc()),
        sanitize(sanitize) {}
  LogicalResult run();
  /// Makes the function a plan of the entry `of`, which passes the values of these symbols.
  LogicalResult runPlan(StringRef of, ArrayRef<StringAttr> symbols);

  /// Plans of the entry for less memory, before run().
  SmallVector<func::FuncOp> plans;
  /// The symbols that have values when the entry chooses one of them, after run().
  ArrayRef<StringAttr> symbols() const { return entrySymbols; }

private:
  InterfaceTensorAttr describe(StringRef fallback, unsigned index, Type type, DictionaryAttr attrs,
                               ArrayRef<SymExpr> dims, bool updated = false);
  LogicalResult runEntry();
  LogicalResult runProcedure(ArrayAttr symbols);
  LogicalResult build(Block &flow);
  LogicalResult describeInterface(SmallVector<Attribute> &inputs, SmallVector<Attribute> &outputs);
  LogicalResult bindSymbols();
  void guardRange(SymbolOp symbol, Value value, int64_t input, int64_t dim, StringRef what = "");
  void guard(GuardPredicate predicate, Value lhs, Value rhs, int64_t input, int64_t dim, const Twine &expected,
             const Twine &message);
  void guardFact(GuardOp fact);
  LogicalResult lowerBind(BindOp bind);
  unsigned epochOf(ArrayRef<SymExpr> exprs, std::optional<int64_t> at = std::nullopt) const;
  LogicalResult assignResults(unsigned epoch);
  LogicalResult planUpdates();
  void planTemporaries();
  /// A part of the arena.
  struct Part {
    SmallVector<ArenaPlanner::Temporary> temporaries;
    llvm::DenseMap<unsigned, unsigned> place; // in it, of `temporaries` of all parts
    std::optional<ArenaPlanner::Plan> plan;
    ArenaOffsets offsets;
  };
  Part layOut(unsigned epoch);
  void assignTemporaries(unsigned epoch);
  void fit();
  /// The name of the procedure that returns the size of a plan's arena.
  static std::string sizeName(func::FuncOp plan) { return (plan.getName() + ".bytes").str(); }
  void numberSteps(Block &block);
  int64_t lastUse(Value v);
  LogicalResult fetchOperands();
  LogicalResult emit(Block &block);
  LogicalResult emit(LoopOp loop);
  LogicalResult emit(BranchOp branch);
  LogicalResult emit(InvokeOp invoke);
  LogicalResult beginEpoch(Operation *binding);
  LogicalResult beginBody(LoopOp loop, ValueRange sizes);
  LogicalResult bindComputed(ArrayAttr symbols, ValueRange values, StringRef what);
  void emitGuards(Block &block, unsigned first, unsigned last);
  FailureOr<Value> loadScalar(Value tensor, Type type);
  Value placed(Value value);
  Value outputMemory(Value shaped, unsigned number);
  Value slot(const SymExpr &number, const SymExpr &bytes, bool keep);
  void planPlaces();
  void pushDown(Value value);
  void planLoops();
  ArenaPlanAttr describePlan(const ArenaPlanner::Plan &plan, ArrayRef<ArenaPlanner::Temporary> temporaries,
                             int64_t inPlace);
  LogicalResult fetch(Value tensor);
  FailureOr<Value> buffer(Value tensor);
  void copy(Value target, Value source, const SymExpr &bytes);
  void describeBuffers(LaunchOp launch, CallOp kernel);
  std::string bufferName(Value base);
  static std::optional<unsigned> stackOf(LoopOp loop, unsigned carried);
  /// Whether what a step writes is a row of a stack.
  static bool isStacked(LoopOp loop, Value written);
  SymExpr stackBytes(LoopOp loop, unsigned result);

  /// What a tensor occupies. An extent is negative at most for sizes at which its branch is not taken: it counts as 0,
  /// as the arena is laid out for all branches.
  SymExpr bytesOf(Value tensor) {
    SymExpr bytes(elementBytes(tensor.getType()));
    for (const SymExpr &extent : shapes.dims(tensor))
      bytes = bytes * notNegative(extent);
    return bytes;
  }
  SymExpr notNegative(const SymExpr &expr) {
    return shapes.lessEqual(SymExpr(0), expr) ? expr : SymExpr::max(expr, SymExpr(0));
  }
  Value dim(const SymExpr &expr) { return DimOp::create(b, loc, expr); }

  func::FuncOp func;
  ShapeAnalysis &shapes;
  ModuleOp module;
  OpBuilder b;
  Location loc;
  const bool sanitize;
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
  llvm::DenseMap<Operation *, int64_t> step, lastStep;      // of the host flow; the last of a loop or branch is in it
  llvm::DenseMap<Value, int64_t> lastUses;                  // of temporaries, in steps
  llvm::DenseMap<Value, SmallVector<Value, 2>> alternating; // the two buffers of a carried result
  llvm::StringMap<Value> bySource;                          // parameters and globals already fetched
  InPlaceKernels inPlaceResults{module, shapes};

  /// What has memory of its own, not the arena's: results, and what loops carry or stack.
  llvm::SmallDenseSet<Value> leaving;
  /// Where that memory is found out only when the value is computed.
  struct Place {
    enum Kind { Output, Slot, Row } kind;
    unsigned number; // of the output, or of the first slot
    LoopOp loop;     // for slots, of which there are two in turns, and rows
    Value shaped;    // for outputs: what has their extents
  };
  llvm::DenseMap<Value, Place> places;
  llvm::DenseMap<Value, Value> pushed;                 // values of a branch's sides in the memory of its result
  llvm::DenseMap<Value, SmallVector<Value>> inCarried; // of carried results: values in one buffer, as of Update::chain
  unsigned slots = 0;

  bool isProcedure = false;
  SmallVector<Value> resultMemory; // of a procedure
  Value firstSlot;                 // of an activation

  /// From which epoch on a symbol has a value, and at which steps: several loops may have one name for their index.
  struct Known {
    int64_t first, last;
    unsigned epoch;
  };
  llvm::StringMap<SmallVector<Known, 1>> epochs; // of the symbols that the flow binds, from 1
  llvm::DenseMap<Operation *, unsigned> epochAfter, epochInside;
  llvm::DenseMap<Block *, unsigned> epochBefore;
  unsigned numEpochs = 0;
  SmallVector<ArenaPlanner::Temporary> temporaries;
  llvm::MapVector<Value, unsigned> storage; // of each temporary value; several may have one, one after the other
  llvm::MapVector<Value, unsigned> pairs;   // of carried results: the first of two temporaries
  SmallVector<int64_t> inPlace;             // per epoch
  std::optional<Part> firstPart;            // once it is laid out
  std::optional<ArenaPlanner::Plan> firstPlan;
  SmallVector<StringAttr> entrySymbols;
  SmallVector<Value> entryValues; // of these symbols
};

} // namespace mlir::disc

#endif // DISC_TRANSFORMS_MEMORY_ENTRYBUILDER_H
