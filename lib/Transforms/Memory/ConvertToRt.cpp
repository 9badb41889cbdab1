//===- ConvertToRt.cpp - the host flow as disc_rt operations ---------------===//
//
//   func.func @main(%x: tensor<?x8xf32> {disc_shape.dims = #disc_shape.dims<[S, 8]>, ...}) -> tensor<?x8xf32> {
//     %bytes = disc_shape.dim <S * 32>
//     %0 = disc_shape.dim <0>
//     disc_plan.select_plan %bytes scratch [...] outputs [...]
//     disc_plan.allocate_output 0 dims <[S, 8]>
//     disc_plan.arena_part 0 bytes %bytes temporaries [0] at(%0) plan ...
//     %t = disc_plan.call @k0(%x) ... {disc_plan.buffers = [#disc_plan.buffer<temporary[0]>]}
//     %y = disc_plan.call @k1(%t) ... {disc_plan.buffers = [#disc_plan.buffer<output[0]>]}
//     return %y
// becomes
//   disc_rt.entry @main attributes {inputs = [...], outputs = [...]} {
//   ^bb0(%call: !llvm.ptr):
//     ...                                                       // LowerInterface.cpp
//     disc_rt.fit %call, %bytes scratch [...] outputs [...]
//     %y = disc_rt.output %call[0] (%S, %c8)
//     %arena = disc_rt.arena %call, %bytes
//     %t = disc_rt.offset %arena, %0
//     %x = disc_rt.input %call[0]
//     disc_rt.launch %call @k0(%x, %t)
//     disc_rt.launch %call @k1(%t, %y)
//     disc_rt.return
//
// Each operation is converted by itself: its operands have pointers already, and `disc_plan.buffers` says what its
// results get. Inputs, parameters and globals are fetched before the first launch: a failure then leaves nothing half
// done. Loops, branches and invocations: LowerControlFlow.cpp.
//
// A function with `disc_tensor.procedure` becomes a procedure. A function with `disc_plan.plan_of` is a plan of the
// entry with less memory (PlanBudget.cpp): it becomes a procedure, with a second one that returns the size of its
// arena.
//
// Tests: test/lit/Memory/convert-to-rt.mlir, procedure.mlir, plan-budget.mlir, updates.mlir
//
//===----------------------------------------------------------------------===//

#include "lib/Transforms/Memory/Passes.h"

#include "lib/Transforms/Memory/FlowLowering.h"
#include "lib/Transforms/Memory/Updates.h"
#include "lib/Transforms/Support/ViewLayout.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "llvm/ADT/TypeSwitch.h"

namespace mlir::disc {
#define GEN_PASS_DEF_CONVERTTORT
#include "lib/Transforms/Memory/Passes.h.inc"
} // namespace mlir::disc

using namespace mlir;
using namespace mlir::disc;

/// Adds the operations that compute an index.
static void addIndexOps(Value index, llvm::SmallDenseSet<Operation *> &ops) {
  Operation *def = index.getDefiningOp();
  if (!def || !ops.insert(def).second)
    return;
  for (Value operand : def->getOperands())
    addIndexOps(operand, ops);
}

FlowLowering::FlowLowering(func::FuncOp func, ShapeAnalysis &shapes, bool sanitize)
    : func(func), shapes(shapes), module(func->getParentOfType<ModuleOp>()), b(func), loc(func.getLoc()),
      sanitize(sanitize), pointer(LLVM::LLVMPointerType::get(func.getContext())) {
  func.walk([&](Operation *op) {
    if (isa<ArenaPartOp, SelectPlanOp>(op))
      for (Value index : op->getOperands())
        addIndexOps(index, layout);
  });
}

bool FlowLowering::isFromOutside(Value tensor) const {
  if (auto argument = dyn_cast<BlockArgument>(tensor))
    return isa<func::FuncOp>(argument.getOwner()->getParentOp());
  return isa<ParameterOp, GlobalLoadOp>(tensor.getDefiningOp());
}

FailureOr<Value> FlowLowering::pointerTo(Value tensor) {
  Value base = viewBase(tensor);
  if (Value known = pointers.lookup(base))
    return known;
  Value &slot = pointers[base];
  if (auto argument = dyn_cast<BlockArgument>(base); argument && isFromOutside(base)) {
    StringAttr state = stateOf(argument);
    if (!state)
      return slot = InputOp::create(b, loc, pointer, call, argument.getArgNumber());
    return slot =
               RtParameterOp::create(b, loc, pointer, call, state, TypeAttr::get(argument.getType()), b.getUnitAttr());
  }
  Operation *def = base.getDefiningOp();
  if (auto parameter = dyn_cast<ParameterOp>(def)) {
    Value &known = fetched[parameter.getName()];
    if (!known)
      known = RtParameterOp::create(b, loc, pointer, call, parameter.getNameAttr(), TypeAttr::get(base.getType()),
                                    UnitAttr());
    return slot = known;
  }
  if (auto load = dyn_cast<GlobalLoadOp>(def)) {
    Value &known = fetched["@" + load.getGlobal().str()];
    if (!known)
      known = RtGlobalOp::create(b, loc, pointer, call, load.getGlobal(), bytesOf(base).constant());
    return slot = known;
  }
  pointers.erase(base);
  return def->emitError() << "'" << def->getName() << "' has no buffer";
}

Value FlowLowering::slotNumber(const SymExpr &number) {
  Value which = dim(number);
  return isProcedure ? arith::AddIOp::create(b, loc, firstSlot, which).getResult() : which;
}

Value FlowLowering::slot(const SymExpr &number, const SymExpr &bytes, bool keep) {
  Value which = slotNumber(number);
  return SlotOp::create(b, loc, pointer, call, which, dim(bytes), keep);
}

FailureOr<Value> FlowLowering::bufferFor(Value result) {
  Operation *def = result.getDefiningOp();
  BufferAttr buffer = bufferOf(result);
  if (!buffer)
    return def->emitError() << "'" << def->getName() << "' has no buffer";
  int64_t number = buffer.getNumber();
  Value memory;
  switch (buffer.getKind()) {
  case BufferKind::Temporary:
    memory = temporaries.lookup(number);
    break;
  case BufferKind::Output:
    memory = outputs.lookup(number);
    break;
  case BufferKind::Argument:
    return pointerTo(func.getArgument(number));
  case BufferKind::Global:
    memory = pointers.lookup(result);
    break;
  case BufferKind::Row:
  case BufferKind::Carried: {
    auto loop = def->getParentOfType<LoopOp>();
    Value target = loop.getOutputs()[number];
    if (Value known = iterationTargets.lookup(target))
      return known;
    SymExpr index = loop.getIndexExpr(), bytes = bytesOf(result);
    BufferAttr whole = bufferOf(target);
    if (whole.getKind() == BufferKind::AlternatingSlots)
      return slot(SymExpr(whole.getNumber()) + SymExpr::mod(index, SymExpr(2)), bytes, /*keep=*/false);
    if (whole.getKind() == BufferKind::Slot) {
      Value stack = slot(SymExpr(whole.getNumber()), (index + SymExpr(1)) * bytes, /*keep=*/true);
      return OffsetOp::create(b, loc, pointer, stack, dim(index * bytes)).getResult();
    }
    break;
  }
  case BufferKind::Slot:
  case BufferKind::Yielded:
  case BufferKind::Alternating:
  case BufferKind::AlternatingSlots:
    break;
  }
  if (!memory)
    return def->emitError() << "'" << stringifyBufferKind(buffer.getKind()) << "' " << number
                            << " is used before it is allocated";
  return memory;
}

/// An element of a tensor without dimensions, as the host reads it.
FailureOr<Value> FlowLowering::loadScalar(Value tensor, Type type) {
  std::optional<Layout> layout = viewLayout(tensor, shapes);
  FailureOr<Value> data = pointerTo(tensor);
  if (!layout || failed(data))
    return failure();
  Value address =
      OffsetOp::create(b, loc, pointer, *data, dim(layout->offset * SymExpr(elementBytes(tensor.getType()))));
  return LLVM::LoadOp::create(b, loc, type, address).getResult();
}

LogicalResult FlowLowering::lower(CallOp kernel) {
  SmallVector<Value> list;
  for (Value input : kernel.getInputs()) {
    FailureOr<Value> data = pointerTo(input);
    if (failed(data))
      return failure();
    list.push_back(*data);
  }
  for (Value output : kernel.getOutputs()) {
    FailureOr<Value> memory = bufferFor(output);
    if (failed(memory))
      return failure();
    list.push_back(pointers[output] = *memory);
  }
  auto launch = LaunchOp::create(b, kernel.getLoc(), call, kernel.getCallee(), list, /*bytes=*/Attribute(),
                                 /*texts=*/ArrayAttr());
  if (sanitize)
    describeBuffers(launch, kernel);
  return success();
}

LogicalResult FlowLowering::lower(CopyTensorOp copy) {
  FailureOr<Value> source = pointerTo(copy.getInput());
  if (failed(source))
    return failure();
  FailureOr<Value> target = bufferFor(copy.getOutput());
  if (failed(target))
    return failure();
  pointers[copy.getOutput()] = *target;
  CopyOp::create(b, loc, *target, *source, dim(bytesOf(copy.getOutput())), sanitize ? call : Value());
  return success();
}

LogicalResult FlowLowering::lower(AllocateOutputOp allocate) {
  int64_t number = allocate.getOutput();
  SmallVector<SymExpr> dims = allocate.getDims().getDims();
  Value &memory = outputs[number];
  if (!isProcedure) {
    SmallVector<Value> extents;
    for (const SymExpr &extent : dims)
      extents.push_back(dim(extent));
    memory = OutputOp::create(b, loc, pointer, call, extents, number);
  } else if (memory = resultMemory[number]; memory.getType() != pointer) {
    SymExpr bytes(elementBytes(func.getResultTypes()[number]));
    for (const SymExpr &extent : dims)
      bytes = bytes * notNegative(extent, shapes);
    memory = SlotOp::create(b, loc, pointer, call, memory, dim(bytes), /*keep=*/false);
  }
  return success();
}

LogicalResult FlowLowering::lower(ArenaPartOp part) {
  Value arena = ArenaOp::create(b, loc, pointer, call, indices.lookup(part.getBytes()), part.getPart(),
                                cast<ArenaPlanAttr>(part.getPlan()), isProcedure);
  for (auto [number, offset] : llvm::zip(part.getTemporaries(), part.getOffsets()))
    temporaries[number] = OffsetOp::create(b, loc, pointer, arena, indices.lookup(offset));
  return success();
}

/// The name of the procedure that returns the size of a plan's arena.
static std::string sizeName(StringRef plan) { return (plan + ".bytes").str(); }

LogicalResult FlowLowering::lower(SelectPlanOp select) {
  SmallVector<Attribute> sizes;
  for (auto plan : select.getPlans().getAsRange<FlatSymbolRefAttr>())
    sizes.push_back(FlatSymbolRefAttr::get(b.getContext(), sizeName(plan.getValue())));
  FitOp::create(b, loc, call, indices.lookup(select.getBytes()), entryValues, select.getPlans(), b.getArrayAttr(sizes),
                select.getScratch(), select.getOutputs(), select.getCostAttr());
  return success();
}

LogicalResult FlowLowering::lower(Operation &op) {
  if (layout.contains(&op)) {
    b.clone(op, indices);
    return success();
  }
  return TypeSwitch<Operation *, LogicalResult>(&op)
      .Case<GuardOp, BindOp, CallOp, CopyTensorOp, LoopOp, BranchOp, InvokeOp, AllocateOutputOp, ArenaPartOp,
            SelectPlanOp>([&](auto typed) { return lower(typed); })
      // Tensors from outside are fetched, views and extents are computed where they are used.
      .Case<ParameterOp, GlobalLoadOp, GlobalStoreOp, DimOp>([](Operation *) { return success(); })
      .Default([](Operation *other) -> LogicalResult {
        if (isView(other) || other->hasTrait<OpTrait::IsTerminator>() ||
            llvm::none_of(other->getResultTypes(), llvm::IsaPred<TensorType>))
          return success();
        return other->emitError() << "'" << other->getName() << "' has no buffer";
      });
}

LogicalResult FlowLowering::lower(Block::iterator begin, Block::iterator end) {
  for (Operation &op : llvm::make_range(begin, end))
    if (failed(lower(op)))
      return failure();
  return success();
}

FailureOr<Block::iterator> FlowLowering::lowerBeginning(Block &block) {
  auto end =
      llvm::find_if(block, [&](Operation &op) { return !layout.contains(&op) && !isa<GuardOp, ArenaPartOp>(op); });
  if (failed(lower(block.begin(), end)))
    return failure();
  return end;
}

/// What copies read at the end, and write.
LogicalResult FlowLowering::fetchTargets() {
  Block &flow = func.getBody().front();
  for (auto store : flow.getOps<GlobalStoreOp>()) {
    int64_t bytes = bytesOf(store.getValue()).constant();
    Value memory = RtGlobalOp::create(b, loc, pointer, call, store.getGlobal(), bytes);
    pointers[viewBase(store.getValue())] = fetched["@" + store.getGlobal().str()] = memory;
  }
  OperandRange results = flow.getTerminator()->getOperands();
  auto fetchSource = [&](Value result) {
    auto copy = result.getDefiningOp<CopyTensorOp>();
    Value source = copy ? viewBase(copy.getInput()) : Value();
    return success(!source || !isFromOutside(source) || succeeded(pointerTo(source)));
  };
  for (auto [i, result] : llvm::enumerate(results))
    if (auto argument = updatedBy(func, i); argument && (failed(pointerTo(*argument)) || failed(fetchSource(result))))
      return failure();
  for (auto [i, result] : llvm::enumerate(results))
    if (!updatedBy(func, i) && failed(fetchSource(result)))
      return failure();
  return success();
}

LogicalResult FlowLowering::fetchOperands() {
  WalkResult result = func.walk<WalkOrder::PreOrder>([&](Operation *op) {
    if (!isa<CallOp, InvokeOp, BindOp, LoopOp, BranchOp, NextOp, TensorYieldOp>(op))
      return WalkResult::advance();
    for (Value operand : op->getOperands()) {
      if (!isa<RankedTensorType>(operand.getType()))
        continue;
      Value base = viewBase(operand);
      if (auto copy = base.getDefiningOp<CopyTensorOp>())
        base = viewBase(copy.getInput());
      if (isFromOutside(base) && failed(pointerTo(base)))
        return WalkResult::interrupt();
    }
    return WalkResult::advance();
  });
  return failure(result.wasInterrupted());
}

/// From the guards on.
LogicalResult FlowLowering::lowerFunction() {
  Block &flow = func.getBody().front();
  Block::iterator next = flow.begin(), end = flow.end();
  auto lowerTo = [&](Block::iterator until) { return lower(std::exchange(next, until), until); };
  // A plan is selected before anything is allocated.
  if (auto selects = flow.getOps<SelectPlanOp>();
      !selects.empty() && failed(lowerTo(++Block::iterator(*selects.begin()))))
    return failure();
  auto isAllocation = [](Operation &op) { return isa<GuardOp, AllocateOutputOp>(op); };
  if (failed(lowerTo(std::find_if_not(next, end, isAllocation))) || failed(fetchTargets()))
    return failure();
  auto isArena = [&](Operation &op) { return layout.contains(&op) || isa<ArenaPartOp>(op); };
  if (failed(lowerTo(std::find_if_not(next, end, isArena))) || failed(fetchOperands()))
    return failure();
  return lowerTo(end);
}

LogicalResult FlowLowering::runEntry() {
  SmallVector<Attribute> inputs, outputDescriptions;
  if (failed(describeInterface(inputs, outputDescriptions)))
    return failure();
  auto entry = EntryOp::create(b, loc, (func.getName() + "$entry").str(), StringAttr(), b.getArrayAttr(inputs),
                               b.getArrayAttr(outputDescriptions));
  Block *block = &entry.getBody().emplaceBlock();
  call = block->addArgument(pointer, loc);
  b.setInsertionPointToStart(block);
  if (sanitize)
    SanitizeOp::create(b, loc, call);
  if (failed(bindInputs()) || failed(lowerFunction()))
    return failure();
  ReturnOp::create(b, loc, ValueRange());
  std::string name = func.getName().str();
  func.erase();
  entry.setSymName(name);
  return success();
}

/// The slots that the buffers of a function use.
static int64_t countSlots(func::FuncOp func) {
  int64_t count = 0;
  func.walk([&](Operation *op) {
    for (Value result : op->getResults())
      if (BufferAttr buffer = bufferOf(result); buffer && buffer.getKind() == BufferKind::Slot)
        count = std::max(count, buffer.getNumber() + 1);
      else if (buffer && buffer.getKind() == BufferKind::AlternatingSlots)
        count = std::max(count, buffer.getNumber() + 2);
  });
  return count;
}

/// Arguments, memory for results and the values of symbols come in; memory for temporaries is the activation's.
LogicalResult FlowLowering::runProcedure(ArrayAttr symbols) {
  isProcedure = true;
  auto procedure = ProcedureOp::create(b, loc, b.getStringAttr(func.getName() + "$procedure"),
                                       b.getStringAttr("private"), FlatSymbolRefAttr(), Attribute());
  Block *block = &procedure.getBody().emplaceBlock();
  call = block->addArgument(pointer, loc);
  for (BlockArgument argument : func.getArguments())
    pointers[argument] = block->addArgument(pointer, loc);
  for (unsigned i = 0; i < func.getNumResults(); ++i)
    resultMemory.push_back(block->addArgument(InvokeOp::isOpen(func, i) ? b.getIndexType() : pointer, loc));
  SmallVector<Value> values;
  for (unsigned i = 0; i < symbols.size(); ++i)
    values.push_back(block->addArgument(b.getIndexType(), loc));
  b.setInsertionPointToStart(block);
  auto enter = EnterOp::create(b, loc, b.getIndexType(), b.getIndexType(), call, countSlots(func));
  firstSlot = enter.getSlot();
  bindComputed(symbols, values, func.getName());
  if (failed(lowerFunction()))
    return failure();
  LeaveOp::create(b, loc, call, firstSlot, enter.getMark());
  SmallVector<Value> given;
  for (auto [result, index] : InvokeOp::givenBy(func))
    given.push_back(dim(func.getResultAttrOfType<DimsAttr>(result, ShapeDialect::getDimsAttrName()).getDims()[index]));
  ReturnOp::create(b, loc, given);
  if (Attribute places = func->getAttr(InvokeOp::getGivenAttrName()))
    procedure->setAttr(InvokeOp::getGivenAttrName(), places);
  std::string name = func.getName().str();
  func.erase();
  procedure.setSymName(name);
  return success();
}

/// Emits two procedures: one runs the plan, the other returns the size of its arena. The entry has checked the shapes.
LogicalResult FlowLowering::runPlan(StringRef of, ArrayRef<StringAttr> symbols) {
  auto begin = [&](const Twine &name) {
    auto procedure = ProcedureOp::create(b, loc, b.getStringAttr(name), b.getStringAttr("private"),
                                         FlatSymbolRefAttr::get(b.getContext(), of), func->getAttr(kExtraCost));
    Block *block = &procedure.getBody().emplaceBlock();
    call = block->addArgument(pointer, loc);
    for (unsigned i = 0; i < symbols.size(); ++i)
      block->addArgument(b.getIndexType(), loc);
    b.setInsertionPointToStart(block);
    for (auto [name, value] : llvm::zip(symbols, block->getArguments().drop_front()))
      BindSymbolOp::create(b, loc, name.getValue(), value, /*computed=*/false);
    return procedure;
  };
  ProcedureOp procedure = begin(func.getName() + "$procedure");
  if (failed(lowerFunction()))
    return failure();
  ReturnOp::create(b, loc, ValueRange());

  b.setInsertionPoint(func);
  begin(sizeName(func.getName()))->removeAttr("extra_cost");
  Value bytes;
  for (auto part : func.getBody().front().getOps<ArenaPartOp>())
    if (part.getPart() == 0)
      bytes = part.getBytes();
  IRMapping copies;
  llvm::SmallDenseSet<Operation *> ops;
  if (bytes)
    addIndexOps(bytes, ops);
  for (Operation &op : func.getBody().front())
    if (ops.contains(&op))
      b.clone(op, copies);
  ReturnOp::create(b, loc, bytes ? copies.lookup(bytes) : dim(SymExpr(0)));
  std::string name = func.getName().str();
  func.erase();
  procedure.setSymName(name);
  return success();
}

namespace {
struct ConvertToRt : disc::impl::ConvertToRtBase<ConvertToRt> {
  using Base::Base;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    auto &shapes = getAnalysis<ShapeAnalysis>();
    SmallVector<func::FuncOp> functions;
    llvm::DenseMap<StringAttr, SmallVector<func::FuncOp>> plans;
    for (auto func : module.getOps<func::FuncOp>())
      if (auto of = func->getAttrOfType<FlatSymbolRefAttr>(kPlanOf))
        plans[of.getAttr()].push_back(func);
      else
        functions.push_back(func);
    for (func::FuncOp func : functions)
      if (failed(convert(func, plans.lookup(func.getSymNameAttr()), shapes)))
        return signalPassFailure();
  }

  LogicalResult convert(func::FuncOp func, ArrayRef<func::FuncOp> plans, ShapeAnalysis &shapes) {
    FlowLowering lowering(func, shapes, sanitize);
    if (auto symbols = func->getAttrOfType<ArrayAttr>(InvokeOp::getProcedureAttrName()))
      return lowering.runProcedure(symbols);
    std::string name = func.getName().str();
    if (failed(lowering.runEntry()))
      return failure();
    for (func::FuncOp plan : plans)
      if (failed(FlowLowering(plan, shapes, sanitize).runPlan(name, lowering.symbols())))
        return failure();
    return success();
  }
};
} // namespace
