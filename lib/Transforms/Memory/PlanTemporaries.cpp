//===- PlanTemporaries.cpp - lifetimes and memory of temporaries ----------===//
//
// Steps of the host flow are numbered through the bodies of loops. A temporary lives from the step that writes it to
// the last that reads it; what a loop reads or carries, to the loop's end. PlanArena.cpp shows the result.
//
// Test: test/lit/Memory/{plan-arena,scan}.mlir
//
//===----------------------------------------------------------------------===//

#include "lib/Transforms/Memory/EntryBuilder.h"
#include "lib/Transforms/Memory/InPlace.h"
#include "lib/Transforms/Memory/Updates.h"
#include "lib/Transforms/Support/ViewLayout.h"

using namespace mlir;
using namespace mlir::disc;

/// Steps are counted through the bodies of loops: what is live only inside one may share memory with what is there too.
void EntryBuilder::numberSteps(Block &block) {
  for (Operation &op : block) {
    int64_t number = step.size();
    step[&op] = number;
    if (auto scan = dyn_cast<ScanOp>(op))
      numberSteps(scan.getBody().front());
    lastStep[&op] = step.size() - 1;
  }
}

/// A loop that reads a value needs it in every step, and may give its first carried tensors back as the last.
int64_t EntryBuilder::lastUse(Value v) {
  Operation *def = v.getDefiningOp();
  int64_t last = lastStep[def];
  for (OpOperand &use : v.getUses()) {
    Operation *user = def->getBlock()->findAncestorOpInBlock(*use.getOwner());
    last = std::max(last, lastStep[user]);
    if (isView(use.getOwner()))
      last = std::max(last, lastUse(use.getOwner()->getResult(0)));
    if (auto scan = dyn_cast<ScanOp>(user); scan && use.getOwner() == user && user != def)
      for (OpOperand &init : scan.getInitsMutable())
        if (&init == &use)
          last = std::max(last, lastUse(scan.getOutputs()[&init - scan.getInitsMutable().begin()]));
  }
  return last;
}

/// The result whose rows hold a carried tensor, if it is stacked as well.
std::optional<unsigned> EntryBuilder::stackOf(ScanOp scan, unsigned carried) {
  OperandRange values = scan.getNext().getValues();
  for (unsigned i = scan.getNumCarried(); i < values.size(); ++i)
    if (values[i] == values[carried])
      return i;
  return std::nullopt;
}

ArrayRef<SmallVector<unsigned>> EntryBuilder::inPlaceResults(CallOp kernel) {
  auto callee = module.lookupSymbol<KernelFuncOp>(kernel.getCallee());
  auto [known, isNew] = reusable.try_emplace(callee);
  if (isNew && callee)
    known->second = inPlaceOperands(callee, shapes);
  return known->second;
}

/// Which temporaries there are, and how long each lives.
LogicalResult EntryBuilder::planTemporaries() {
  numberSteps(func.getBody().front());
  ArenaPlanner planner(shapes);
  // What leaves the function has memory of its own; what leaves a step is stored where the loop's results are.
  llvm::SmallDenseSet<Value> leaving;
  for (auto [i, operand] : llvm::enumerate(func.getBody().front().getTerminator()->getOperands()))
    if (!updatedBy(func, i))
      leaving.insert(viewBase(operand));
  for (const Update &update : updates)
    leaving.insert(update.chain.begin(), update.chain.end());
  for (auto store : func.getBody().front().getOps<GlobalStoreOp>())
    leaving.insert(viewBase(store.getValue()));
  func.walk([&](NextOp next) {
    for (Value v : next.getValues())
      leaving.insert(viewBase(v));
  });
  inPlace.assign(epochs.size() + 1, 0);
  LogicalResult ok = success();
  auto temporary = [&](Value v, const SymExpr &bytes, ArenaLayout::Lifetime life) {
    for (Operation *scan = v.getDefiningOp()->getParentOp(); isa<ScanOp>(scan); scan = scan->getParentOp())
      if (llvm::is_contained(bytes.symbols(), cast<ScanOp>(scan).getIndex()))
        ok = v.getDefiningOp()->emitError()
             << "the size of a temporary depends on the step of the loop: " << bytes.str();
    temporaries.push_back({bytes, life});
    return temporaries.size() - 1;
  };
  func.walk<WalkOrder::PreOrder>([&](ScanOp scan) {
    for (auto [i, result] : llvm::enumerate(scan.getOutputs())) {
      if (leaving.contains(result))
        continue;
      SymExpr bytes = planner.align(bytesOf(result));
      ArenaLayout::Lifetime life{step[scan], lastUse(result)};
      if (i >= scan.getNumCarried()) {
        // Its last row may be what a carried tensor is after the loop.
        for (unsigned c = 0; c < scan.getNumCarried(); ++c)
          if (stackOf(scan, c) == i)
            life.last = std::max(life.last, lastUse(scan.getOutputs()[c]));
        storage[result] = temporary(result, bytes, life);
      } else if (!stackOf(scan, i)) {
        pairs[result] = temporary(result, bytes, life);
        temporary(result, bytes, life);
      }
    }
  });
  SmallVector<CallOp> kernels;
  func.walk<WalkOrder::PreOrder>([&](CallOp kernel) { kernels.push_back(kernel); });
  for (CallOp kernel : kernels) {
    ArrayRef<SmallVector<unsigned>> candidates = inPlaceResults(kernel);
    llvm::SmallDenseSet<unsigned> claimed; // by an earlier result of this kernel
    for (Value result : kernel.getOutputs()) {
      unsigned r = cast<OpResult>(result).getResultNumber();
      if (leaving.contains(result))
        continue;
      SymExpr bytes = planner.align(bytesOf(result));
      std::optional<unsigned> taken;
      for (unsigned i : r < candidates.size() ? candidates[r] : SmallVector<unsigned>()) {
        Value operand = kernel.getInputs()[i];
        auto found = storage.find(operand);
        if (found == storage.end() || lastUse(operand) != step[kernel] ||
            temporaries[found->second].life.last != step[kernel] || claimed.contains(found->second))
          continue;
        // The same buffer may be an operand twice, seen through different views.
        bool safe = llvm::all_of(llvm::enumerate(kernel.getInputs()), [&](auto other) {
          return other.value() != operand || llvm::is_contained(candidates[r], other.index());
        });
        if (safe && shapes.equal(temporaries[found->second].bytes, bytes)) {
          taken = found->second;
          break;
        }
      }
      if (!taken)
        taken = temporary(result, bytes, {step[kernel], step[kernel]});
      else
        ++inPlace[epochOf(bytes)];
      storage[result] = *taken;
      claimed.insert(*taken);
      temporaries[*taken].life.last = lastUse(result);
    }
  }
  return ok;
}

/// The part of the arena for temporaries whose sizes are known from this epoch on.
void EntryBuilder::assignTemporaries(unsigned epoch) {
  SmallVector<ArenaPlanner::Temporary> part;
  llvm::DenseMap<unsigned, unsigned> place;
  for (auto [i, temporary] : llvm::enumerate(temporaries))
    if (epochOf(temporary.bytes) == epoch) {
      place[i] = part.size();
      part.push_back(temporary);
    }
  if (part.empty())
    return;
  ArenaPlanner::Plan plan = ArenaPlanner(shapes).plan(part);
  ArenaOffsets offsets = emitArenaOffsets(b, loc, plan, part, shapes);
  Value arena = ArenaOp::create(b, loc, pointer, call, offsets.bytes, epoch, describePlan(plan, part, inPlace[epoch]));
  SmallVector<Value> pointers;
  for (Value offset : offsets.offsets)
    pointers.push_back(OffsetOp::create(b, loc, pointer, arena, offset));
  for (auto [value, i] : storage)
    if (auto at = place.find(i); at != place.end())
      buffers[value] = pointers[at->second];
  for (auto [value, i] : pairs)
    if (auto at = place.find(i); at != place.end())
      alternating[value] = {pointers[at->second], pointers[at->second + 1]};
}

/// The plan as an attribute, for those who ask what a call needs (Arena.h of the bindings, tests).
DictionaryAttr EntryBuilder::describePlan(const ArenaPlanner::Plan &plan, ArrayRef<ArenaPlanner::Temporary> temporaries,
                                          int64_t inPlace) {
  SmallVector<SymExpr> bytes;
  SmallVector<int64_t> first, last;
  for (const ArenaPlanner::Temporary &t : temporaries) {
    bytes.push_back(t.bytes);
    first.push_back(t.life.first);
    last.push_back(t.life.last);
  }
  SmallVector<Attribute> orders;
  for (ArrayRef<unsigned> order : plan.orders)
    orders.push_back(b.getDenseI64ArrayAttr(SmallVector<int64_t>(order)));
  return b.getDictionaryAttr(
      {b.getNamedAttr("bytes", DimsAttr::get(b.getContext(), bytes)),
       b.getNamedAttr("first", b.getDenseI64ArrayAttr(first)), b.getNamedAttr("last", b.getDenseI64ArrayAttr(last)),
       b.getNamedAttr("in_place", b.getI64IntegerAttr(inPlace)), b.getNamedAttr("orders", b.getArrayAttr(orders))});
}
