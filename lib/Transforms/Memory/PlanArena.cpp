//===- PlanArena.cpp - lifetimes and offsets of temporaries ----------------===//
//
//   func.func @main(%x: ...) -> ... attributes {disc_plan.temporaries = #disc_shape.dims<[S * 32, S * 32]>} {
//     %a = disc_plan.call @f(%x) ... {disc_plan.buffers = [#disc_plan.buffer<temporary[0]>]}
//     %b = disc_plan.call @g(%a) ... {disc_plan.buffers = [#disc_plan.buffer<temporary[1]>]}
//     %c = disc_plan.call @h(%b) ... {disc_plan.buffers = [#disc_plan.buffer<output[0]>]}
//     return %c
// becomes
//   func.func @main(%x: ...) -> ... attributes {...} {
//     %bytes = disc_shape.dim <S * 64>
//     %0 = disc_shape.dim <0>
//     %1 = disc_shape.dim <S * 32>
//     disc_plan.select_plan %bytes scratch [...] outputs [...]
//     disc_plan.allocate_output 0 dims <[S, 8]>
//     disc_plan.arena_part 0 bytes %bytes temporaries [0, 1] at(%0, %1)
//         plan #disc_rt.arena_plan<bytes = [S * 32, S * 32], first = [0, 1], last = [1, 2], ...>
//     ... as before
//
// A temporary lives from the step (FlowSteps.h) that writes it to the last that reads what is stored in it; what a loop
// reads or carries, to the end of the loop. Where no two live ones overlap, they are placed by ArenaPlanner.h.
//
// Where a symbol gets its value, an epoch begins: guards on the symbol are moved there, and whatever has sizes that are
// known only now gets memory: outputs, and a part of the arena for temporaries. An output whose extents the sides of a
// branch decide is allocated in the sides.
//
//     disc_shape.bind @u0, %count
//     disc_shape.guard <u0> le <S>
//     disc_plan.allocate_output 1 dims <[u0]>
//     disc_plan.arena_part 1 bytes %bytes1 temporaries [2] at(%2) plan ...
//
// In a plan for less memory (`disc_plan.plan_of`), the guards at the beginning are dropped: the entry has checked them.
//
// Tests: test/lit/Memory/plan-arena.mlir, epochs.mlir
//
//===----------------------------------------------------------------------===//

#include "lib/Transforms/Memory/Passes.h"

#include "dialects/Plan/PlanDialect.h"
#include "dialects/Tensor/TensorDialect.h"
#include "lib/Runtime/Core/Abi.h"
#include "lib/Transforms/Memory/ArenaOffsets.h"
#include "lib/Transforms/Memory/FlowSteps.h"
#include "lib/Transforms/Memory/TensorBytes.h"
#include "lib/Transforms/Memory/Updates.h"
#include "lib/Transforms/Support/ViewLayout.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/SetVector.h"

namespace mlir::disc {
#define GEN_PASS_DEF_PLANARENA
#include "lib/Transforms/Memory/Passes.h.inc"
} // namespace mlir::disc

using namespace mlir;
using namespace mlir::disc;

namespace {
class FunctionArena {
public:
  FunctionArena(func::FuncOp func, ShapeAnalysis &shapes, bool sanitize)
      : func(func), shapes(shapes), steps(func), sanitize(sanitize), b(func), loc(func.getLoc()) {}
  LogicalResult run(ArrayRef<func::FuncOp> plans);

private:
  /// A part of the arena before it is there.
  struct Part {
    SmallVector<int64_t> numbers; // of the temporaries in it
    SmallVector<ArenaPlanner::Temporary> temporaries;
    SmallVector<ArenaLayout::Order> orders;
    ArenaOffsets offsets;
  };
  LogicalResult findLifetimes();
  Part layOut(unsigned epoch);
  void allocateTemporaries(const Part &part, unsigned epoch);
  void allocateOutputs(unsigned epoch);
  void allocateInSides(BranchOp branch, OpResult result, int64_t output);
  void selectPlan(const Part &part, ArrayRef<func::FuncOp> plans);
  unsigned epochOf(GuardOp guard) const {
    return steps.epochOf({guard.getLhs().getValue(), guard.getRhs().getValue()}, steps.step(guard));
  }
  void moveGuards(Block &block, unsigned first, unsigned last);
  void markLastUses();

  func::FuncOp func;
  ShapeAnalysis &shapes;
  FlowSteps steps;
  const bool sanitize;
  OpBuilder b;
  Location loc;
  SmallVector<ArenaPlanner::Temporary> temporaries; // by number
  SmallVector<int64_t> inPlace;                     // per epoch
};
} // namespace

/// The lifetime of each temporary, from all tensors that are stored in it.
LogicalResult FunctionArena::findLifetimes() {
  auto bytes = func->getAttrOfType<DimsAttr>(PlanDialect::getTemporariesAttrName());
  if (!bytes)
    return func.emitError("has no buffers; disc-memory-assign-buffers comes before disc-memory-plan-arena");
  for (const SymExpr &size : bytes.getDims())
    temporaries.push_back({size, {std::numeric_limits<int64_t>::max(), -1}});
  inPlace.assign(steps.numEpochs() + 1, 0);
  func.walk([&](Operation *op) {
    for (OpResult result : op->getResults()) {
      BufferAttr buffer = bufferOf(result);
      // A carried tensor that is in a row of a stack is stored where the stack is.
      if (auto loop = dyn_cast<LoopOp>(op);
          loop && buffer && buffer.getKind() == BufferKind::Row && result.getResultNumber() < loop.getNumCarried())
        buffer = bufferOf(loop.getOutputs()[buffer.getNumber()]);
      unsigned count = !buffer                                       ? 0
                       : buffer.getKind() == BufferKind::Temporary   ? 1
                       : buffer.getKind() == BufferKind::Alternating ? 2
                                                                     : 0;
      for (unsigned i = 0; i < count; ++i) {
        ArenaLayout::Lifetime &life = temporaries[buffer.getNumber() + i].life;
        life.first = std::min(life.first, steps.step(op));
        life.last = std::max(life.last, steps.lastUse(result));
      }
      if (count == 1 && isa<CallOp>(op) &&
          llvm::any_of(op->getOperands(), [&](Value operand) { return bufferOf(operand) == buffer; }))
        ++inPlace[steps.epochOf(temporaries[buffer.getNumber()].bytes, steps.step(op))];
    }
  });
  return success();
}

/// Emits the sizes and offsets of the temporaries whose sizes are known from this epoch on.
FunctionArena::Part FunctionArena::layOut(unsigned epoch) {
  Part part;
  // A red zone follows each temporary, and one comes before the first.
  SymExpr zone(sanitize ? DISC_RT_RED_ZONE : 0);
  for (auto [i, temporary] : llvm::enumerate(temporaries))
    if (steps.epochOf(temporary.bytes, temporary.life.first) == epoch) {
      part.numbers.push_back(i);
      part.temporaries.push_back({temporary.bytes + zone, temporary.life});
    }
  if (part.temporaries.empty())
    return part;
  ArenaPlanner::Plan plan = ArenaPlanner(shapes).plan(part.temporaries);
  part.orders = plan.orders;
  part.offsets = emitArenaOffsets(b, loc, plan, part.temporaries, shapes);
  if (sanitize) {
    Value first = DimOp::create(b, loc, zone);
    part.offsets.bytes = arith::AddIOp::create(b, loc, part.offsets.bytes, first);
    for (Value &offset : part.offsets.offsets)
      offset = arith::AddIOp::create(b, loc, offset, first);
  }
  return part;
}

void FunctionArena::allocateTemporaries(const Part &part, unsigned epoch) {
  if (part.temporaries.empty())
    return;
  SmallVector<SymExpr> bytes;
  SmallVector<int64_t> first, last;
  for (const ArenaPlanner::Temporary &t : part.temporaries) {
    bytes.push_back(t.bytes);
    first.push_back(t.life.first);
    last.push_back(t.life.last);
  }
  SmallVector<Attribute> orders;
  for (ArrayRef<unsigned> order : part.orders)
    orders.push_back(b.getDenseI64ArrayAttr(SmallVector<int64_t>(order)));
  auto plan = ArenaPlanAttr::get(b.getContext(), DimsAttr::get(b.getContext(), bytes), b.getDenseI64ArrayAttr(first),
                                 b.getDenseI64ArrayAttr(last), inPlace[epoch], b.getArrayAttr(orders));
  ArenaPartOp::create(b, loc, epoch, part.offsets.bytes, part.offsets.offsets, part.numbers, plan);
}

/// Outputs whose extents are known from this epoch on.
void FunctionArena::allocateOutputs(unsigned epoch) {
  int64_t number = 0;
  for (OpOperand &operand : func.getBody().front().getTerminator()->getOpOperands()) {
    if (updatedBy(func, operand.getOperandNumber()))
      continue;
    int64_t output = number++;
    SmallVector<SymExpr> dims = shapes.dims(operand.get());
    if (steps.epochOf(dims) != epoch)
      continue;
    auto branch = operand.get().getDefiningOp<BranchOp>();
    if (branch && epoch != 0 && steps.epochAfter(branch) == epoch)
      allocateInSides(branch, cast<OpResult>(operand.get()), output);
    else
      AllocateOutputOp::create(b, loc, output, DimsAttr::get(b.getContext(), dims));
  }
}

void FunctionArena::allocateInSides(BranchOp branch, OpResult result, int64_t output) {
  OpBuilder::InsertionGuard guard(b);
  for (unsigned side : {0, 1}) {
    Value yielded = branch.getYield(side).getValues()[result.getResultNumber()], base = viewBase(yielded);
    if (auto inner = base.getDefiningOp<BranchOp>(); inner && inner->getBlock() == branch.getYield(side)->getBlock()) {
      allocateInSides(inner, cast<OpResult>(base), output);
      continue;
    }
    b.setInsertionPoint(base.getDefiningOp());
    AllocateOutputOp::create(b, loc, output, DimsAttr::get(b.getContext(), shapes.dims(yielded)));
  }
}

void FunctionArena::selectPlan(const Part &part, ArrayRef<func::FuncOp> plans) {
  Value bytes = part.offsets.bytes ? part.offsets.bytes : DimOp::create(b, loc, SymExpr(0)).getResult();
  auto module = func->getParentOfType<ModuleOp>();
  llvm::SetVector<Attribute> scratch;
  func.walk([&](CallOp kernel) {
    auto callee = module.lookupSymbol<KernelFuncOp>(kernel.getCallee());
    if (auto needed = callee ? callee.getScratchAttr() : ExprAttr();
        needed && !needed.getValue().isConstant(0) && steps.epochOf(needed.getValue(), steps.step(kernel)) == 0)
      scratch.insert(needed);
  });
  SmallVector<Attribute> outputs, names;
  for (auto [i, operand] : llvm::enumerate(func.getBody().front().getTerminator()->getOperands()))
    if (!updatedBy(func, i))
      outputs.push_back(steps.epochOf(shapes.dims(operand)) == 0
                            ? Attribute(ExprAttr::get(b.getContext(), tensorBytes(operand, shapes)))
                            : b.getUnitAttr());
  for (func::FuncOp plan : plans)
    names.push_back(FlatSymbolRefAttr::get(plan));
  SelectPlanOp::create(b, loc, bytes, b.getArrayAttr(names), b.getArrayAttr(scratch.getArrayRef()),
                       b.getArrayAttr(outputs), func->getAttrOfType<ExprAttr>(kFlowCost));
}

/// Moves the guards of a block on symbols that have values between these epochs to the insertion point.
void FunctionArena::moveGuards(Block &block, unsigned first, unsigned last) {
  for (GuardOp guard : llvm::make_early_inc_range(block.getOps<GuardOp>())) {
    unsigned epoch = epochOf(guard);
    if (epoch < first || epoch > last)
      continue;
    if (b.getInsertionPoint() != Block::iterator(guard))
      guard->moveBefore(&block, b.getInsertionPoint());
    else
      b.setInsertionPointAfter(guard);
  }
}

/// Names the temporaries that nothing reads after a call.
void FunctionArena::markLastUses() {
  func.walk([&](CallOp call) {
    llvm::SmallSetVector<int64_t, 4> last;
    auto add = [&](Value tensor) {
      BufferAttr buffer = bufferOf(viewBase(tensor));
      if (buffer && buffer.getKind() == BufferKind::Temporary &&
          temporaries[buffer.getNumber()].life.last == steps.step(call))
        last.insert(buffer.getNumber());
    };
    llvm::for_each(call.getInputs(), add);
    llvm::for_each(call.getOutputs(), add);
    if (!last.empty())
      call->setAttr(PlanDialect::getLastUsesAttrName(), b.getDenseI64ArrayAttr(last.getArrayRef()));
  });
}

LogicalResult FunctionArena::run(ArrayRef<func::FuncOp> plans) {
  if (failed(findLifetimes()))
    return failure();
  if (sanitize)
    markLastUses();
  SmallVector<Operation *> binding;
  SmallVector<Block *> sides;
  func.walk<WalkOrder::PreOrder>([&](Operation *op) {
    if (steps.epochAfter(op))
      binding.push_back(op);
    if (isa<LoopOp, BranchOp>(op))
      for (Region &region : op->getRegions())
        sides.push_back(&region.front());
  });
  Block &flow = func.getBody().front();
  auto begin = [&](unsigned epoch) {
    if (b.getInsertionBlock() == &flow)
      allocateOutputs(epoch);
    allocateTemporaries(layOut(epoch), epoch);
  };

  if (func->hasAttr(kPlanOf)) {
    for (GuardOp guard : llvm::make_early_inc_range(flow.getOps<GuardOp>()))
      if (epochOf(guard) == 0)
        guard.erase();
    b.setInsertionPointToStart(&flow);
  } else {
    b.setInsertionPointToStart(&flow);
    moveGuards(flow, 0, 0);
  }
  if (func.getName() == "main") {
    // Before anything is allocated.
    Part part = layOut(0);
    selectPlan(part, plans);
    allocateOutputs(0);
    allocateTemporaries(part, 0);
  } else {
    begin(0);
  }
  for (Block *block : sides) {
    b.setInsertionPointToStart(block);
    moveGuards(*block, 0, steps.epochBefore(block));
    if (auto loop = dyn_cast<LoopOp>(block->getParentOp()))
      begin(steps.epochInside(loop));
  }
  for (Operation *op : binding) {
    unsigned epoch = steps.epochAfter(op);
    b.setInsertionPointAfter(op);
    moveGuards(*op->getBlock(), epoch, epoch);
    begin(epoch);
  }
  return success();
}

namespace {
struct PlanArena : disc::impl::PlanArenaBase<PlanArena> {
  using Base::Base;

  void runOnOperation() override {
    auto &shapes = getAnalysis<ShapeAnalysis>();
    // Guards move, but what they say was a fact from the start.
    markAnalysesPreserved<ShapeAnalysis>();
    llvm::DenseMap<StringAttr, SmallVector<func::FuncOp>> plans;
    for (auto func : getOperation().getOps<func::FuncOp>())
      if (auto of = func->getAttrOfType<FlatSymbolRefAttr>(kPlanOf))
        plans[of.getAttr()].push_back(func);
    for (auto func : getOperation().getOps<func::FuncOp>())
      if (failed(FunctionArena(func, shapes, sanitize).run(plans.lookup(func.getSymNameAttr()))))
        return signalPassFailure();
  }
};
} // namespace
