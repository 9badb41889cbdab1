//===- AssignBuffers.cpp - where each tensor of the host flow is stored ----===//
//
//   func.func @main(%x: tensor<?x8xf32>, ...) -> (tensor<?x8xf32>, tensor<?x8xf32>) {
//     %a = disc_plan.call @f(%x) ...
//     %b = disc_plan.call @g(%a) ...                                            // may write over %a
//     %c = disc_plan.call @h(%b) ...
//     return %c, %c
// becomes
//   func.func @main(...) -> (...) attributes {disc_plan.temporaries = #disc_shape.dims<[S * 32]>} {
//     %a = disc_plan.call @f(%x) ... {disc_plan.buffers = [#disc_plan.buffer<temporary[0]>]}
//     %b = disc_plan.call @g(%a) ... {disc_plan.buffers = [#disc_plan.buffer<temporary[0]>]}
//     %c = disc_plan.call @h(%b) ... {disc_plan.buffers = [#disc_plan.buffer<output[0]>]}
//     %d = disc_plan.copy %c to <output[1]> dims <[S, 8]> : tensor<?x8xf32> -> tensor<?x8xf32>
//     return %c, %d
//
// What leaves a function or an iteration of a loop is computed where it must be; if that is impossible, it is copied:
//
// - outputs, also through branches: a side computes what it yields in the memory of the branch's result;
// - updates (`disc_tensor.updates`), in the memory of the argument, where nothing reads the old value any more;
// - stacked results of loops, in their rows; the stack grows in a slot if the number of iterations is unknown;
// - carried tensors: in one temporary if an iteration writes it after all reads, in a row if they are stacked too, else
//   in two temporaries in turns, or in two slots if the size changes.
//
// All other results are temporaries. A result is stored in the temporary of an operand if the kernel allows it
// (InPlace.h) and nothing reads the operand afterwards. Where a temporary is in the arena: PlanArena.cpp.
//
// Test: test/lit/Memory/assign-buffers.mlir
//
//===----------------------------------------------------------------------===//

#include "lib/Transforms/Memory/Passes.h"

#include "dialects/Plan/PlanDialect.h"
#include "dialects/Tensor/TensorDialect.h"
#include "lib/Transforms/Memory/ArenaPlanner.h"
#include "lib/Transforms/Memory/FlowSteps.h"
#include "lib/Transforms/Memory/InPlace.h"
#include "lib/Transforms/Memory/TensorBytes.h"
#include "lib/Transforms/Memory/Updates.h"
#include "lib/Transforms/Support/ViewLayout.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace mlir::disc {
#define GEN_PASS_DEF_ASSIGNBUFFERS
#include "lib/Transforms/Memory/Passes.h.inc"
} // namespace mlir::disc

using namespace mlir;
using namespace mlir::disc;

namespace {
class BufferAssignment {
public:
  BufferAssignment(func::FuncOp func, ShapeAnalysis &shapes)
      : func(func), body(func.getBody().front()), shapes(shapes), steps(func),
        inPlaceResults(func->getParentOfType<ModuleOp>(), shapes), b(func.getContext()) {}
  LogicalResult run();

private:
  LogicalResult assignUpdates();
  LogicalResult assignOutputs();
  LogicalResult assignGlobals();
  LogicalResult assignIterations(LoopOp loop);
  void assignLoopResults(LoopOp loop);
  void assignInvocation(InvokeOp invoke);
  void assignKernel(CallOp kernel);
  void copyYielded(BranchOp branch);
  void writeBuffers();
  void insertCopies();

  bool isOwned(Value base, Value operand) const;
  bool isComputedIn(Value base, Block *block) const;
  void computeIn(Value value, BufferKind kind, int64_t number);
  void pushDown(Value value);
  std::optional<unsigned> stackOf(LoopOp loop, unsigned carried) const;
  BufferAttr buffer(BufferKind kind, int64_t number = -1) { return BufferAttr::get(b.getContext(), kind, number); }
  unsigned addTemporary(Value value, const SymExpr &bytes, int64_t lastUse);
  SymExpr aligned(const SymExpr &bytes) { return ArenaPlanner::align(bytes, shapes); }

  func::FuncOp func;
  Block &body;
  ShapeAnalysis &shapes;
  FlowSteps steps; // as if there were no copies
  InPlaceKernels inPlaceResults;
  OpBuilder b;

  llvm::DenseMap<Value, BufferAttr> buffers;
  /// Values of a branch's sides, to the result in whose buffer they are computed.
  llvm::DenseMap<Value, Value> pushedDown;
  llvm::SmallDenseSet<Value> returned;
  llvm::SmallDenseSet<Value> inPlaceCarried; // results of loops that iterations write in place
  unsigned slots = 0;

  struct Temporary {
    SymExpr bytes;
    int64_t lastUse;
  };
  SmallVector<Temporary> temporaries;
  llvm::DenseMap<Value, unsigned> temporaryOf;

  struct Copy {
    OpOperand *operand;
    BufferAttr target;
    SmallVector<SymExpr> dims;
  };
  SmallVector<Copy> copies;                                   // made at the end: they would hide who computes a value
  SmallVector<Copy> updates;                                  // of arguments that are not computed in place
  SmallVector<std::pair<OpResult, BufferAttr>> copiedResults; // of invocations
};
} // namespace

unsigned BufferAssignment::addTemporary(Value value, const SymExpr &bytes, int64_t lastUse) {
  temporaries.push_back({bytes, lastUse});
  unsigned number = temporaries.size() - 1;
  buffers[value] = buffer(BufferKind::Temporary, number);
  temporaryOf[value] = number;
  return number;
}

/// Whether an operation of the block computes the value, and may do so in any buffer.
bool BufferAssignment::isComputedIn(Value base, Block *block) const {
  Operation *def = base.getDefiningOp();
  return def && def->getBlock() == block && isa<CallOp, InvokeOp, BranchOp>(def);
}

/// Decides where a value is computed; a branch's sides compute it there.
void BufferAssignment::computeIn(Value value, BufferKind kind, int64_t number) {
  buffers[value] = buffer(kind, number);
  pushDown(value);
}

void BufferAssignment::pushDown(Value value) {
  auto branch = value.getDefiningOp<BranchOp>();
  if (!branch)
    return;
  for (unsigned side : {0, 1}) {
    TensorYieldOp yield = branch.getYield(side);
    Value base = viewBase(yield.getValues()[cast<OpResult>(value).getResultNumber()]);
    if (!isComputedIn(base, yield->getBlock()) || buffers.contains(base))
      continue;
    buffers[base] = buffers.lookup(value);
    pushedDown[base] = value;
    pushDown(base);
  }
}

/// Which new values of arguments are computed in the memory of the old ones.
LogicalResult BufferAssignment::assignUpdates() {
  Operation *ret = body.getTerminator();
  llvm::SmallDenseSet<Value> elsewhere = returned;
  UpdatePlacement placement(body, [&](CallOp kernel) { return inPlaceResults(kernel); });
  for (OpOperand &operand : ret->getOpOperands()) {
    std::optional<BlockArgument> argument = updatedBy(func, operand.getOperandNumber());
    if (!argument)
      continue;
    if (*argument == nullptr || argument->getType() != operand.get().getType())
      return ret->emitError() << "result " << operand.getOperandNumber() << " updates no argument of its type";
    BufferAttr target = buffer(BufferKind::Argument, argument->getArgNumber());
    SmallVector<Value> chain;
    if (!placement.place(viewBase(operand.get()), *argument, chain) ||
        llvm::any_of(chain, [&](Value v) { return elsewhere.contains(v); })) {
      updates.push_back({&operand, target, shapes.dims(*argument)});
      continue;
    }
    for (Value value : chain)
      buffers[value] = target;
    elsewhere.insert(chain.begin(), chain.end());
  }
  return success();
}

/// Whether the memory of an output is there when its tensor is computed.
bool BufferAssignment::isOwned(Value base, Value operand) const {
  Operation *def = base.getDefiningOp();
  if (auto loop = dyn_cast_or_null<LoopOp>(def))
    // Where the last iteration left a carried tensor is known when the model runs.
    return !loop.getCondition() && cast<OpResult>(base).getResultNumber() >= loop.getNumCarried();
  if (!isComputedIn(base, &body))
    return false;
  unsigned epoch = steps.epochAfter(def);
  if (epoch == 0 || isa<CallOp>(def))
    return true;
  // Extents that a branch decides are known inside it, where there is something to write.
  if (isa<BranchOp>(def) && steps.epochOf(shapes.dims(base)) == epoch)
    return base == operand;
  return steps.epochOf(shapes.dims(operand)) != epoch;
}

LogicalResult BufferAssignment::assignOutputs() {
  struct Output {
    OpOperand *operand;
    unsigned number, epoch;
  };
  SmallVector<Output> outputs;
  for (OpOperand &operand : body.getTerminator()->getOpOperands())
    if (!updatedBy(func, operand.getOperandNumber()))
      outputs.push_back({&operand, unsigned(outputs.size()), steps.epochOf(shapes.dims(operand.get()))});
  // Of several outputs with one tensor, the one whose memory is there first gets it.
  llvm::sort(outputs, [](const Output &x, const Output &y) {
    return std::make_pair(x.epoch, x.number) < std::make_pair(y.epoch, y.number);
  });
  for (const Output &output : outputs) {
    Value operand = output.operand->get(), base = viewBase(operand);
    if (isOwned(base, operand) && !buffers.contains(base)) {
      computeIn(base, BufferKind::Output, output.number);
      continue;
    }
    // What was computed while loading, or is another output too.
    SmallVector<SymExpr> dims = shapes.dims(operand);
    std::optional<Layout> layout = viewLayout(operand, shapes);
    if (!layout || !layout->isContiguous(dims))
      return body.getTerminator()->emitError()
             << "result " << output.operand->getOperandNumber() << " does not own its buffer";
    copies.push_back({output.operand, buffer(BufferKind::Output, output.number), dims});
  }
  return success();
}

LogicalResult BufferAssignment::assignGlobals() {
  for (auto store : body.getOps<GlobalStoreOp>()) {
    Value base = viewBase(store.getValue());
    if (!base.getDefiningOp<CallOp>() || buffers.contains(base))
      return store.emitError("a global must be the result of a kernel of its own");
    buffers[base] = buffer(BufferKind::Global);
  }
  return success();
}

/// The result whose rows contain a carried tensor, if it is stacked as well.
std::optional<unsigned> BufferAssignment::stackOf(LoopOp loop, unsigned carried) const {
  OperandRange values = loop.getNext().getValues();
  // Rows move as long as the number of iterations is unknown.
  bool stays = loop.getCount() && !loop.getCondition();
  for (unsigned i = loop.getNumCarried(); stays && i < values.size(); ++i)
    if (values[i] == values[carried])
      return i;
  return std::nullopt;
}

/// Where an iteration writes what the next one reads, and its rows of the stacks.
LogicalResult BufferAssignment::assignIterations(LoopOp loop) {
  UpdatePlacement placement(loop.getBody().front(), [&](CallOp kernel) { return inPlaceResults(kernel); });
  Block *block = &loop.getBody().front();
  NextOp next = loop.getNext();
  OperandRange values = next.getValues();
  unsigned carried = loop.getNumCarried();
  // Rows come first: what is stored there is not stored in a carried tensor's buffer.
  for (unsigned i = carried; i < values.size(); ++i) {
    Value base = viewBase(values[i]), result = loop.getOutputs()[i];
    if (!isComputedIn(base, block) || buffers.contains(base))
      return next.emitError() << "value " << i << " is stacked, but no operation of the loop computes it in its row";
    if (!loop.getCount() || (loop.getCondition() && (returned.contains(result) || buffers.contains(result))))
      buffers[result] = buffer(BufferKind::Slot, slots++);
    computeIn(base, BufferKind::Row, i);
  }
  for (unsigned i = 0; i < carried; ++i) {
    Value base = viewBase(values[i]), result = loop.getOutputs()[i];
    if (std::optional<unsigned> stack = stackOf(loop, i)) {
      buffers[result] = buffer(BufferKind::Row, *stack);
      continue;
    }
    if (loop.isVarying(i)) {
      buffers[result] = buffer(BufferKind::AlternatingSlots, slots);
      slots += 2;
    } else if (SmallVector<Value> chain; values[i] == base && placement.place(base, block->getArgument(i), chain) &&
                                         llvm::none_of(chain, [&](Value v) { return buffers.contains(v); })) {
      for (Value value : chain)
        buffers[value] = buffer(BufferKind::Carried, i);
      inPlaceCarried.insert(result);
      continue;
    }
    if (isComputedIn(base, block) && !buffers.contains(base))
      computeIn(base, BufferKind::Carried, i);
    else // for instance a row, which may move when the next iteration appends one
      copies.push_back({&next.getValuesMutable()[i], buffer(BufferKind::Carried, i), shapes.dims(values[i])});
  }
  return success();
}

/// Memory for what a loop carries and stacks.
void BufferAssignment::assignLoopResults(LoopOp loop) {
  for (auto [i, result] : llvm::enumerate(loop.getOutputs())) {
    if (buffers.contains(result))
      continue;
    int64_t lastUse = steps.lastUse(result);
    if (i >= loop.getNumCarried()) {
      // Its last row may be what a carried tensor is after the loop.
      for (unsigned c = 0; c < loop.getNumCarried(); ++c)
        if (stackOf(loop, c) == i)
          lastUse = std::max(lastUse, steps.lastUse(loop.getOutputs()[c]));
      // As many rows as there may be.
      SymExpr rows = notNegative(shapes.expr(loop.getCount()), shapes);
      addTemporary(result, aligned(rows * tensorBytes(loop.getNext().getValues()[i], shapes)), lastUse);
    } else if (inPlaceCarried.contains(result)) {
      unsigned number = addTemporary(result, aligned(tensorBytes(result, shapes)), lastUse);
      // What comes in is computed in the same buffer, if nothing else needs it.
      OpOperand &init = loop.getInitsMutable()[i];
      auto kernel = init.get().getDefiningOp<CallOp>();
      if (kernel && kernel->getBlock() == loop->getBlock() && init.get().hasOneUse() && !buffers.contains(init.get())) {
        buffers[init.get()] = buffers.lookup(result);
        temporaryOf[init.get()] = number;
      } else {
        copies.push_back({&init, buffers.lookup(result), shapes.dims(init.get())});
      }
    } else {
      SymExpr bytes = aligned(tensorBytes(result, shapes));
      unsigned number = addTemporary(result, bytes, lastUse);
      addTemporary(result, bytes, lastUse);
      temporaryOf.erase(result);
      buffers[result] = buffer(BufferKind::Alternating, number);
    }
  }
}

/// A result whose extents the procedure computes comes in a slot, and is copied to where it must be.
void BufferAssignment::assignInvocation(InvokeOp invoke) {
  for (OpResult result : invoke->getResults()) {
    BufferAttr target = buffers.lookup(result);
    if (InvokeOp::isOpen(invoke.getCalleeOp(), result.getResultNumber())) {
      if (target)
        copiedResults.push_back({result, target});
      buffers[result] = buffer(BufferKind::Slot, slots++);
    } else if (!target) {
      addTemporary(result, aligned(tensorBytes(result, shapes)), steps.lastUse(result));
    }
  }
}

/// The results of a kernel in temporaries of their own, or in those of operands that nothing reads afterwards.
void BufferAssignment::assignKernel(CallOp kernel) {
  ArrayRef<SmallVector<unsigned>> candidates = inPlaceResults(kernel);
  llvm::SmallDenseSet<unsigned> claimed; // by an earlier result of this kernel
  for (Value result : kernel.getOutputs()) {
    unsigned r = cast<OpResult>(result).getResultNumber();
    if (buffers.contains(result))
      continue;
    SymExpr bytes = aligned(tensorBytes(result, shapes));
    std::optional<unsigned> taken;
    for (unsigned i : r < candidates.size() ? candidates[r] : SmallVector<unsigned>()) {
      Value operand = kernel.getInputs()[i];
      auto found = temporaryOf.find(operand);
      if (found == temporaryOf.end() || steps.lastUse(operand) != steps.step(kernel) ||
          temporaries[found->second].lastUse != steps.step(kernel) || claimed.contains(found->second))
        continue;
      if (InPlaceKernels::covers(kernel, operand, candidates[r]) &&
          shapes.equal(temporaries[found->second].bytes, bytes)) {
        taken = found->second;
        break;
      }
    }
    int64_t lastUse = steps.lastUse(result);
    if (taken) {
      buffers[result] = buffer(BufferKind::Temporary, *taken);
      temporaryOf[result] = *taken;
      temporaries[*taken].lastUse = lastUse;
    } else {
      taken = addTemporary(result, bytes, lastUse);
    }
    claimed.insert(*taken);
  }
}

/// A side that does not compute a result in its buffer copies it there.
void BufferAssignment::copyYielded(BranchOp branch) {
  for (Value result : branch.getOutputs()) {
    BufferAttr target = buffers.lookup(result);
    if (!target) {
      buffers[result] = buffer(BufferKind::Yielded);
      continue;
    }
    for (unsigned side : {0, 1}) {
      OpOperand &yielded = branch.getYield(side).getValuesMutable()[cast<OpResult>(result).getResultNumber()];
      if (pushedDown.lookup(viewBase(yielded.get())) != result)
        copies.push_back({&yielded, target, shapes.dims(yielded.get())});
    }
  }
}

void BufferAssignment::writeBuffers() {
  func.walk([&](Operation *op) {
    if (!isa<CallOp, LoopOp, BranchOp, InvokeOp>(op))
      return;
    SmallVector<Attribute> list;
    for (Value result : op->getResults())
      list.push_back(buffers.lookup(result));
    op->setAttr(PlanDialect::getBuffersAttrName(), b.getArrayAttr(list));
  });
  SmallVector<SymExpr> bytes;
  for (const Temporary &temporary : temporaries)
    bytes.push_back(temporary.bytes);
  func->setAttr(PlanDialect::getTemporariesAttrName(), DimsAttr::get(b.getContext(), bytes));
}

void BufferAssignment::insertCopies() {
  auto copyOf = [&](Location loc, Value value, BufferAttr target, ArrayRef<SymExpr> dims) {
    return CopyTensorOp::create(b, loc, value.getType(), value, target, DimsAttr::get(b.getContext(), dims));
  };
  // Updates come last: what an output is copied from may be the old value of an argument.
  for (const Copy &c : llvm::concat<const Copy>(copies, updates)) {
    Operation *user = c.operand->getOwner();
    b.setInsertionPoint(user);
    c.operand->set(copyOf(user->getLoc(), c.operand->get(), c.target, c.dims));
  }
  for (auto [result, target] : copiedResults) {
    b.setInsertionPointAfter(result.getOwner());
    auto copied = copyOf(result.getOwner()->getLoc(), result, target, shapes.dims(result));
    result.replaceAllUsesExcept(copied, copied);
  }
}

LogicalResult BufferAssignment::run() {
  for (auto [i, operand] : llvm::enumerate(body.getTerminator()->getOperands()))
    if (!updatedBy(func, i))
      returned.insert(viewBase(operand));
  if (failed(assignUpdates()) || failed(assignOutputs()) || failed(assignGlobals()))
    return failure();
  // What outer loops decide for the tensors of an iteration, inner ones keep.
  WalkResult iterations = func.walk<WalkOrder::PreOrder>(
      [&](LoopOp loop) { return failed(assignIterations(loop)) ? WalkResult::interrupt() : WalkResult::advance(); });
  if (iterations.wasInterrupted())
    return failure();
  func.walk<WalkOrder::PreOrder>([&](LoopOp loop) { assignLoopResults(loop); });
  func.walk<WalkOrder::PreOrder>([&](InvokeOp invoke) { assignInvocation(invoke); });
  func.walk<WalkOrder::PreOrder>([&](CallOp kernel) { assignKernel(kernel); });
  func.walk<WalkOrder::PreOrder>([&](BranchOp branch) { copyYielded(branch); });
  writeBuffers();
  insertCopies();
  return success();
}

namespace {
struct AssignBuffers : disc::impl::AssignBuffersBase<AssignBuffers> {
  void runOnOperation() override {
    auto &shapes = getAnalysis<ShapeAnalysis>();
    // No symbol, no guard and no size changes.
    markAnalysesPreserved<ShapeAnalysis>();
    for (auto func : getOperation().getOps<func::FuncOp>())
      if (failed(BufferAssignment(func, shapes).run()))
        return signalPassFailure();
  }
};
} // namespace
