//===- PlanTemporaries.cpp - lifetimes and memory of temporaries ----------===//
//
// Steps of the host flow are numbered through the bodies of loops and branches. A temporary lives from the step that
// writes it to the last that reads it; what a loop reads or carries, to the loop's end. What a step leaves to the next
// lies outside of the step's own memory: in one buffer where a step writes it after all have read it, else in two in
// turns, or in slots that grow where its size changes. PlanArena.cpp shows the result.
//
// Test: test/lit/Memory/{plan-arena,loop,branch}.mlir
//
//===----------------------------------------------------------------------===//

#include "lib/Transforms/Memory/EntryBuilder.h"

#include "lib/Runtime/Core/Abi.h"
#include "lib/Transforms/Memory/InPlace.h"
#include "lib/Transforms/Memory/Updates.h"
#include "lib/Transforms/Support/ViewLayout.h"

using namespace mlir;
using namespace mlir::disc;

/// Steps are counted through the bodies of loops and branches: what is live only inside one may share memory with what
/// is there too. Epochs are counted in the same order.
void EntryBuilder::numberSteps(Block &block) {
  epochBefore[&block] = numEpochs;
  auto begin = [&](llvm::DenseMap<Operation *, unsigned> &known, Operation *op, ArrayRef<StringRef> symbols) {
    if (symbols.empty())
      return;
    known[op] = ++numEpochs;
    for (StringRef name : symbols)
      epochs[name].push_back({step.lookup(op), std::numeric_limits<int64_t>::max(), numEpochs});
  };
  for (Operation &op : block) {
    int64_t number = step.size();
    step[&op] = number;
    if (auto loop = dyn_cast<LoopOp>(op))
      begin(epochInside, loop, symbolsInside(loop));
    if (isa<LoopOp, BranchOp>(op))
      for (Region &region : op.getRegions())
        numberSteps(region.front());
    if (auto loop = dyn_cast<LoopOp>(op))
      for (StringRef name : symbolsInside(loop))
        epochs[name].back().last = step.size() - 1;
    begin(epochAfter, &op, symbolsAfter(&op));
    lastStep[&op] = step.size() - 1;
  }
}

/// A loop that reads a value needs it in every step, and may give its first carried tensors back as the last; a branch
/// may give back what it is given. Many paths lead through a chain of branches that give back a value.
int64_t EntryBuilder::lastUse(Value v) {
  if (auto known = lastUses.find(v); known != lastUses.end())
    return known->second;
  Operation *def = v.getDefiningOp();
  int64_t last = lastStep[def];
  for (OpOperand &use : v.getUses()) {
    Operation *user = use.getOwner();
    int64_t at = lastStep[user];
    for (Operation *around = user->getParentOp(); around && around != def->getParentOp();
         around = around->getParentOp())
      if (isa<LoopOp>(around))
        at = lastStep[around];
    last = std::max(last, at);
    if (isView(user))
      last = std::max(last, lastUse(user->getResult(0)));
    if (auto yield = dyn_cast<TensorYieldOp>(user))
      last = std::max(last, lastUse(user->getParentOp()->getResult(use.getOperandNumber())));
    if (auto loop = dyn_cast<LoopOp>(user); loop && user != def)
      for (OpOperand &init : loop.getInitsMutable())
        if (&init == &use)
          last = std::max(last, lastUse(loop.getOutputs()[&init - loop.getInitsMutable().begin()]));
  }
  lastUses[v] = last;
  return last;
}

/// The result whose rows hold a carried tensor, if it is stacked as well.
std::optional<unsigned> EntryBuilder::stackOf(LoopOp loop, unsigned carried) {
  OperandRange values = loop.getNext().getValues();
  // Rows move as long as the number of steps is unknown.
  bool stays = loop.getCount() && !loop.getCondition();
  for (unsigned i = loop.getNumCarried(); stays && i < values.size(); ++i)
    if (values[i] == values[carried])
      return i;
  return std::nullopt;
}

bool EntryBuilder::isStacked(LoopOp loop, Value written) {
  return llvm::any_of(loop.getNext().getValues().drop_front(loop.getNumCarried()),
                      [&](Value row) { return viewBase(row) == written; });
}

/// Memory for as many rows as there may be.
SymExpr EntryBuilder::stackBytes(LoopOp loop, unsigned result) {
  return notNegative(shapes.expr(loop.getCount())) * bytesOf(loop.getNext().getValues()[result]);
}

/// What a branch gives is computed where its result is to be, if a side computes it.
void EntryBuilder::pushDown(Value value) {
  auto branch = value.getDefiningOp<BranchOp>();
  if (!branch)
    return;
  unsigned number = cast<OpResult>(value).getResultNumber();
  for (unsigned side : {0, 1}) {
    TensorYieldOp yield = branch.getYield(side);
    Value given = yield.getValues()[number], base = viewBase(given);
    Operation *def = base.getDefiningOp();
    if (!def || def->getBlock() != yield->getBlock() || !isa<CallOp, InvokeOp, BranchOp>(def) ||
        !leaving.insert(base).second)
      continue;
    pushed[base] = value;
    if (auto place = places.find(value); place != places.end()) {
      Place same = place->second;
      if (same.kind == Place::Output)
        same.shaped = given;
      places[base] = same;
    }
    pushDown(base);
  }
}

/// What leaves the function has memory of its own; what leaves a step is stored where the loop's results are.
void EntryBuilder::planPlaces() {
  int64_t number = 0;
  for (auto [i, operand] : llvm::enumerate(func.getBody().front().getTerminator()->getOperands())) {
    if (updatedBy(func, i))
      continue;
    int64_t output = number++;
    Value base = viewBase(operand);
    // Extents that a branch decides are known inside it, where there is something to write.
    unsigned after = isa_and_nonnull<BranchOp>(base.getDefiningOp()) ? epochAfter.lookup(base.getDefiningOp()) : 0;
    bool late = after && epochOf(shapes.dims(base)) == after;
    if ((late && base != operand) || !leaving.insert(base).second)
      continue;
    if (late)
      places[base] = {Place::Output, static_cast<unsigned>(output), {}, base};
    pushDown(base);
  }
  for (const Update &update : updates)
    leaving.insert(update.chain.begin(), update.chain.end());
  for (auto store : func.getBody().front().getOps<GlobalStoreOp>())
    leaving.insert(viewBase(store.getValue()));
  func.walk<WalkOrder::PreOrder>([&](LoopOp loop) {
    UpdatePlacement placement(loop.getBody().front(), [&](CallOp kernel) { return inPlaceResults(kernel); });
    OperandRange values = loop.getNext().getValues();
    unsigned carried = loop.getNumCarried();
    // Rows have their places first: what lies there is not to lie in a carried tensor's buffer.
    for (unsigned i = carried; i < values.size(); ++i) {
      Value base = viewBase(values[i]);
      if (!loop.getCount() || (loop.getCondition() && leaving.contains(loop.getOutputs()[i])))
        places[base] = {Place::Row, slots++, loop, {}};
      leaving.insert(base);
      pushDown(base);
    }
    for (unsigned i = 0; i < carried; ++i) {
      Value base = viewBase(values[i]);
      if (stackOf(loop, i))
        continue;
      if (loop.isVarying(i)) {
        places[base] = {Place::Slot, slots, loop, {}};
        slots += 2;
      } else if (SmallVector<Value> chain; values[i] == base &&
                                           placement.place(base, loop.getBody().getArgument(i), chain) &&
                                           llvm::none_of(chain, [&](Value v) { return leaving.contains(v); })) {
        leaving.insert(chain.begin(), chain.end());
        inCarried[loop.getOutputs()[i]] = std::move(chain);
        continue;
      }
      leaving.insert(base);
      pushDown(base);
    }
  });
}

/// Memory for what loops carry and stack.
void EntryBuilder::planLoops() {
  ArenaPlanner planner(shapes);
  auto temporary = [&](const SymExpr &bytes, ArenaLayout::Lifetime life) {
    temporaries.push_back({planner.align(bytes), life});
    return temporaries.size() - 1;
  };
  func.walk<WalkOrder::PreOrder>([&](LoopOp loop) {
    for (auto [i, result] : llvm::enumerate(loop.getOutputs())) {
      ArenaLayout::Lifetime life{step[loop], lastUse(result)};
      if (i >= loop.getNumCarried()) {
        if (leaving.contains(result) || places.contains(viewBase(loop.getNext().getValues()[i])))
          continue;
        // Its last row may be what a carried tensor is after the loop.
        for (unsigned c = 0; c < loop.getNumCarried(); ++c)
          if (stackOf(loop, c) == i)
            life.last = std::max(life.last, lastUse(loop.getOutputs()[c]));
        storage[result] = temporary(stackBytes(loop, i), life);
      } else if (inCarried.contains(result)) {
        // What comes in is computed in the same buffer, if nothing else needs it.
        Value init = loop.getInits()[i];
        auto kernel = init.getDefiningOp<CallOp>();
        bool here = kernel && kernel->getBlock() == loop->getBlock() && init.hasOneUse() && leaving.insert(init).second;
        if (here)
          life.first = step[kernel];
        unsigned memory = temporary(bytesOf(result), life);
        storage[result] = memory;
        if (here)
          storage[init] = memory;
      } else if (!stackOf(loop, i) && !loop.isVarying(i)) {
        pairs[result] = temporary(bytesOf(result), life);
        temporary(bytesOf(result), life);
      }
    }
  });
}

/// Which temporaries there are, and how long each lives.
void EntryBuilder::planTemporaries() {
  ArenaPlanner planner(shapes);
  planPlaces();
  planLoops();
  inPlace.assign(numEpochs + 1, 0);
  auto temporary = [&](const SymExpr &bytes, ArenaLayout::Lifetime life) {
    temporaries.push_back({bytes, life});
    return temporaries.size() - 1;
  };
  SmallVector<CallOp> kernels;
  func.walk<WalkOrder::PreOrder>([&](CallOp kernel) { kernels.push_back(kernel); });
  func.walk<WalkOrder::PreOrder>([&](InvokeOp invoke) {
    for (auto [i, result] : llvm::enumerate(invoke.getOutputs()))
      if (!leaving.contains(result) && !InvokeOp::isOpen(invoke.getCalleeOp(), i))
        storage[result] = temporary(planner.align(bytesOf(result)), {step[invoke], lastUse(result)});
  });
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
        if (InPlaceKernels::covers(kernel, operand, candidates[r]) &&
            shapes.equal(temporaries[found->second].bytes, bytes)) {
          taken = found->second;
          break;
        }
      }
      if (!taken)
        taken = temporary(bytes, {step[kernel], step[kernel]});
      else
        ++inPlace[epochOf(bytes, step[kernel])];
      storage[result] = *taken;
      claimed.insert(*taken);
      temporaries[*taken].life.last = lastUse(result);
    }
  }
}

/// The part of the arena for temporaries whose sizes are known from this epoch on, with their offsets.
EntryBuilder::Part EntryBuilder::layOut(unsigned epoch) {
  Part part;
  // A red zone follows each temporary, and one comes before the first.
  SymExpr zone(sanitize ? DISC_RT_RED_ZONE : 0);
  for (auto [i, temporary] : llvm::enumerate(temporaries))
    if (epochOf(temporary.bytes, temporary.life.first) == epoch) {
      part.place[i] = part.temporaries.size();
      part.temporaries.push_back({temporary.bytes + zone, temporary.life});
    }
  if (part.temporaries.empty())
    return part;
  // A plan's size is computed in a procedure of its own, from the same orders.
  part.plan = epoch == 0 && firstPlan ? *firstPlan : ArenaPlanner(shapes).plan(part.temporaries);
  if (epoch == 0)
    firstPlan = part.plan;
  part.offsets = emitArenaOffsets(b, loc, *part.plan, part.temporaries, shapes);
  if (sanitize) {
    Value first = dim(zone);
    part.offsets.bytes = arith::AddIOp::create(b, loc, part.offsets.bytes, first);
    for (Value &offset : part.offsets.offsets)
      offset = arith::AddIOp::create(b, loc, offset, first);
  }
  return part;
}

/// Memory for the temporaries whose sizes are known from this epoch on.
void EntryBuilder::assignTemporaries(unsigned epoch) {
  Part part = epoch == 0 && firstPart ? std::move(*firstPart) : layOut(epoch);
  if (part.temporaries.empty())
    return;
  Value arena = ArenaOp::create(b, loc, pointer, call, part.offsets.bytes, epoch,
                                describePlan(*part.plan, part.temporaries, inPlace[epoch]), isProcedure);
  SmallVector<Value> pointers;
  for (Value offset : part.offsets.offsets)
    pointers.push_back(OffsetOp::create(b, loc, pointer, arena, offset));
  for (auto [value, i] : storage)
    if (auto at = part.place.find(i); at != part.place.end())
      buffers[value] = pointers[at->second];
  for (auto [value, i] : pairs)
    if (auto at = part.place.find(i); at != part.place.end())
      alternating[value] = {pointers[at->second], pointers[at->second + 1]};
}

/// Emits the choice of a plan, before anything is allocated.
void EntryBuilder::fit() {
  firstPart = layOut(0);
  Value bytes = firstPart->temporaries.empty() ? dim(SymExpr(0)) : firstPart->offsets.bytes;
  llvm::SetVector<Attribute> scratch;
  func.walk([&](CallOp kernel) {
    auto callee = module.lookupSymbol<KernelFuncOp>(kernel.getCallee());
    if (auto needed = callee ? callee.getScratchAttr() : ExprAttr();
        needed && !needed.getValue().isConstant(0) && epochOf(needed.getValue(), step.lookup(kernel)) == 0)
      scratch.insert(needed);
  });
  SmallVector<Attribute> outputs, others, sizes;
  for (auto [i, operand] : llvm::enumerate(func.getBody().front().getTerminator()->getOperands()))
    if (!updatedBy(func, i))
      outputs.push_back(epochOf(shapes.dims(operand)) == 0 ? Attribute(ExprAttr::get(b.getContext(), bytesOf(operand)))
                                                           : b.getUnitAttr());
  for (func::FuncOp plan : plans) {
    others.push_back(FlatSymbolRefAttr::get(plan));
    sizes.push_back(FlatSymbolRefAttr::get(b.getContext(), sizeName(plan)));
  }
  FitOp::create(b, loc, call, bytes, entryValues, b.getArrayAttr(others), b.getArrayAttr(sizes),
                b.getArrayAttr(scratch.getArrayRef()), b.getArrayAttr(outputs), func->getAttr(kFlowCost));
}

/// The plan as an attribute, for those who ask what a call needs (Arena.h of the bindings, tests).
ArenaPlanAttr EntryBuilder::describePlan(const ArenaPlanner::Plan &plan, ArrayRef<ArenaPlanner::Temporary> temporaries,
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
  return ArenaPlanAttr::get(b.getContext(), DimsAttr::get(b.getContext(), bytes), b.getDenseI64ArrayAttr(first),
                            b.getDenseI64ArrayAttr(last), inPlace, b.getArrayAttr(orders));
}
