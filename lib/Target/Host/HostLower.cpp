//===- HostLower.cpp - Entry functions as straight code --------------------===//
//
// Turns `disc_rt.entry @main` into a C function. Symbols are SSA values, every
// check is an inline comparison with its failure out of line, and a launch
// fills the kernel's slots in one array that all launches share:
//
//   disc_rt.entry @main attributes {...} {
//   ^bb0(%call: !llvm.ptr):
//     %B = disc_rt.extent %call[0, 0]
//     disc_rt.bind_symbol @B, %B
//     disc_rt.guard %call, %B le %c64 input 0 dim 0 expected "64", "range"
//     %x = disc_rt.input %call[0]
//     disc_rt.launch %call @k(%x, %y)
//     disc_rt.return
//   }
//
// becomes
//
//   func.func @disc_main(%call: !llvm.ptr) -> i32 {
//     %slots = llvm.alloca ...
//     %B = llvm.call @disc_rt_extent(%call, 0, 0)
//     cf.cond_br (%B <= 64), ^ok, ^fail      // ^fail: disc_rt_guard_failed
//   ^ok:
//     %x = llvm.call @disc_rt_input(%call, 0)
//     cf.cond_br (%x != null), ...
//     llvm.store %x, %slots[0] ...
//     %s = llvm.call @disc_rt_parallel_for(%call, @k, %slots, tasks, cost, scratch)
//     cf.cond_br (%s == 0), ...
//     return 0
//   ^exit(%status): return %status
//   }
//
// and `disc_shapes`, the checks alone and then the extents of the outputs.
//
// Test: test/lit/Host/host-lower.mlir
//
//===----------------------------------------------------------------------===//

#include "lib/Target/Host/Passes.h"

#include "dialects/Plan/PlanDialect.h"
#include "lib/Runtime/Core/Abi.h"
#include "lib/Target/Host/EntryLowering.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlowOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "llvm/ADT/TypeSwitch.h"

namespace mlir::disc {
#define GEN_PASS_DEF_HOSTLOWER
#include "lib/Target/Host/Passes.h.inc"
} // namespace mlir::disc

using namespace mlir;
using namespace mlir::disc;

Value EntryLowering::constant64(Location loc, int64_t value) {
  return arith::ConstantOp::create(b, loc, b.getI64IntegerAttr(value));
}

Value EntryLowering::toI64(Location loc, Value index) { return arith::IndexCastOp::create(b, loc, i64, index); }

Value EntryLowering::isNonzero(Location loc, Value byte) {
  Value zero = arith::ConstantOp::create(b, loc, b.getI8IntegerAttr(0));
  return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne, byte, zero);
}

Value EntryLowering::slots(Location loc, size_t size) {
  OpBuilder::InsertionGuard guard(b);
  if (!slotArray) {
    b.setInsertionPointToStart(&call.getParentRegion()->front());
    Value one = LLVM::ConstantOp::create(b, loc, i64, b.getI64IntegerAttr(1));
    slotArray = LLVM::AllocaOp::create(b, loc, ptr, i64, one, /*alignment=*/64);
  }
  // Grown in place, as later launches ask for more.
  slotCount = std::max<int64_t>(slotCount, size);
  slotArray.setElemType(LLVM::LLVMArrayType::get(i64, slotCount));
  return slotArray;
}

void EntryLowering::store(Location loc, Value value, Value array, size_t slot) {
  Value address = array;
  if (slot != 0)
    address = LLVM::GEPOp::create(b, loc, ptr, i64, array, ArrayRef<LLVM::GEPArg>{static_cast<int32_t>(slot)},
                                  LLVM::GEPNoWrapFlags::inbounds);
  LLVM::StoreOp::create(b, loc, value, address);
}

void EntryLowering::continueIf(Location loc, Value ok, Value status) {
  Block *next = b.createBlock(exit);
  b.setInsertionPointToEnd(next->getPrevNode());
  cf::CondBranchOp::create(b, loc, ok, next, ValueRange(), exit, ValueRange(status));
  b.setInsertionPointToStart(next);
}

void EntryLowering::checkStatus(Location loc, Value status) {
  Value zero = arith::ConstantOp::create(b, loc, b.getI32IntegerAttr(0));
  Value ok = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, status, zero);
  continueIf(loc, ok, status);
}

/// The runtime has recorded why a pointer is null; any nonzero status will do.
Value EntryLowering::checkPointer(Location loc, Value pointer) {
  Value null = LLVM::ZeroOp::create(b, loc, ptr);
  Value ok = LLVM::ICmpOp::create(b, loc, LLVM::ICmpPredicate::ne, pointer, null);
  Value failed = arith::ConstantOp::create(b, loc, b.getI32IntegerAttr(1));
  continueIf(loc, ok, failed);
  return pointer;
}

Value EntryLowering::emitExpr(Operation *op, const SymExpr &expr) {
  Value value = exprs.emit(expr, op->getLoc());
  if (!value)
    op->emitOpError() << "needs the value of '" << expr.str() << "', but symbol '" << exprs.missingSymbol()
                      << "' is not bound here";
  return value;
}

SymExpr EntryLowering::exprAttr(Operation *op, StringRef name, int64_t fallback) {
  if (auto attr = op->getAttrOfType<ExprAttr>(name))
    return attr.getValue();
  return SymExpr(fallback);
}

void EntryLowering::lowerExtent(ExtentOp op) {
  Location loc = op.getLoc();
  Value extent =
      runtime.call(b, loc, "disc_rt_extent", i64, {call, constant64(loc, op.getInput()), constant64(loc, op.getDim())});
  values.map(op.getResult(), arith::IndexCastOp::create(b, loc, b.getIndexType(), extent).getResult());
}

LogicalResult EntryLowering::lowerBind(BindSymbolOp op) {
  StringAttr name = op.getSymbolAttr().getAttr();
  if (!symbols.try_emplace(name, mapped(op.getValue())).second)
    return op.emitOpError() << "binds symbol '" << name.getValue() << "' again";
  if (op.getComputed())
    info.computed.insert(name);
  if (auto extent = op.getValue().getDefiningOp<ExtentOp>())
    info.symbols.insert({name, {static_cast<int64_t>(extent.getInput()), static_cast<int64_t>(extent.getDim())}});
  return success();
}

void EntryLowering::lowerGuard(RtGuardOp op) {
  Location loc = op.getLoc();
  Value lhs = mapped(op.getLhs()), rhs = mapped(op.getRhs());
  auto compare = [&](arith::CmpIPredicate predicate, Value a, Value c) {
    return arith::CmpIOp::create(b, loc, predicate, a, c).getResult();
  };
  Value ok;
  switch (op.getPredicate()) {
  case GuardPredicate::Eq:
    ok = compare(arith::CmpIPredicate::eq, lhs, rhs);
    break;
  case GuardPredicate::Le:
    ok = compare(arith::CmpIPredicate::sle, lhs, rhs);
    break;
  case GuardPredicate::Ge:
    ok = compare(arith::CmpIPredicate::sge, lhs, rhs);
    break;
  case GuardPredicate::Divisible: {
    Value zero = arith::ConstantIndexOp::create(b, loc, 0), one = arith::ConstantIndexOp::create(b, loc, 1);
    // The machine traps at a division by 0. Of 0 only 0 is a multiple.
    Value byZero = compare(arith::CmpIPredicate::eq, rhs, zero);
    Value rest = arith::RemSIOp::create(b, loc, lhs, arith::SelectOp::create(b, loc, byZero, one, rhs));
    rest = arith::SelectOp::create(b, loc, byZero, lhs, rest);
    ok = compare(arith::CmpIPredicate::eq, rest, zero);
    break;
  }
  }

  // The failure block stands after all others, out of the way of the fast path.
  int64_t number = info.guards.size();
  info.guards.push_back({op.getPredicate(), static_cast<int64_t>(op.getInput()), static_cast<int64_t>(op.getDim()),
                         op.getExpected().str(), op.getMessage().str()});
  Block *here = b.getInsertionBlock();
  Block *next = b.createBlock(exit);
  Block *cold = b.createBlock(exit->getParent());
  Value status = runtime.call(b, loc, "disc_rt_guard_failed", i32,
                              {call, constant64(loc, number), toI64(loc, lhs), toI64(loc, rhs)});
  cf::BranchOp::create(b, loc, exit, status);
  b.setInsertionPointToEnd(here);
  cf::CondBranchOp::create(b, loc, ok, next, cold);
  b.setInsertionPointToStart(next);
}

void EntryLowering::lowerParameter(RtParameterOp op) {
  Location loc = op.getLoc();
  auto type = cast<RankedTensorType>(op.getType());
  auto inserted = info.parameters.insert({op.getNameAttr(), type});
  int64_t number = std::distance(info.parameters.begin(), inserted.first);
  if (SymbolTable::getSymbolName(entry) != "init")
    info.kept.insert(op.getNameAttr());
  if (op.getUpdated())
    info.updated.insert(op.getNameAttr());
  Value &pointer = pointers[{0, number}];
  if (!pointer)
    pointer = checkPointer(loc, runtime.call(b, loc, "disc_rt_parameter", ptr, {call, constant64(loc, number)}));
  values.map(op.getResult(), pointer);
}

LogicalResult EntryLowering::lowerGlobal(RtGlobalOp op) {
  Location loc = op.getLoc();
  auto found = info.globals.find(op.getGlobalAttr().getAttr());
  if (found == info.globals.end())
    return op.emitOpError() << "names no disc_plan.global: " << op.getGlobal();
  Value &pointer = pointers[{1, found->second}];
  if (!pointer)
    pointer = checkPointer(loc, runtime.call(b, loc, "disc_rt_global", ptr,
                                             {call, constant64(loc, found->second), constant64(loc, op.getBytes())}));
  values.map(op.getResult(), pointer);
  return success();
}

void EntryLowering::lowerOutput(OutputOp op) {
  Location loc = op.getLoc();
  size_t rank = op.getExtents().size();
  Value dims = slots(loc, std::max<size_t>(rank, 1));
  for (auto [i, extent] : llvm::enumerate(op.getExtents()))
    store(loc, toI64(loc, mapped(extent)), dims, i);
  Value pointer =
      runtime.call(b, loc, "disc_rt_output", ptr, {call, constant64(loc, op.getOutput()), constant64(loc, rank), dims});
  values.map(op.getResult(), checkPointer(loc, pointer));
}

LogicalResult EntryLowering::lowerInside(Block &block) {
  ExprEmitter::Scope scope(exprs);
  auto fetched = pointers;
  for (Operation &op : block.without_terminator())
    if (failed(lowerOp(op)))
      return failure();
  pointers = std::move(fetched);
  for (auto bind : block.getOps<BindSymbolOp>()) {
    symbols.erase(bind.getSymbol());
    info.indices.insert(bind.getSymbolAttr().getAttr());
  }
  return success();
}

/// Counts down how many steps are left until the runtime asks the host program whether the run should end.
void EntryLowering::poll(Location loc) {
  Value steps = LLVM::LoadOp::create(b, loc, i64, call);
  Value left = arith::SubIOp::create(b, loc, steps, constant64(loc, 1));
  LLVM::StoreOp::create(b, loc, left, call);
  Value due = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, left, constant64(loc, 0));
  Block *before = b.getInsertionBlock(), *ask = b.createBlock(exit);
  checkStatus(loc, runtime.call(b, loc, "disc_rt_poll", i32, call));
  Block *asked = b.getInsertionBlock(), *next = b.createBlock(exit);
  b.setInsertionPointToEnd(asked);
  cf::BranchOp::create(b, loc, next);
  b.setInsertionPointToEnd(before);
  cf::CondBranchOp::create(b, loc, due, ask, ValueRange(), next, ValueRange());
  b.setInsertionPointToStart(next);
}

/// Whether an entry or a procedure may run several times in one call, with memory of its own each time.
static bool isRecursive(Operation *entry) {
  auto procedure = dyn_cast<ProcedureOp>(entry);
  return procedure && !procedure.getPlanOf();
}

/// Blocks head(step, condition, values) -> body... -> head, and the one after. The index counts steps, or runs down
/// with `reverse`.
LogicalResult EntryLowering::lowerLoop(RtLoopOp op) {
  Location loc = op.getLoc();
  Value count = op.getCount() ? mapped(op.getCount()) : Value();
  SmallVector<Value> first = {arith::ConstantIndexOp::create(b, loc, 0)};
  if (op.getCondition())
    first.push_back(mapped(op.getCondition()));
  unsigned leading = first.size();
  for (Value init : op.getInits())
    first.push_back(mapped(init));
  SmallVector<Type> types;
  for (Value v : first)
    types.push_back(v.getType());
  Block *before = b.getInsertionBlock();
  Block *head = b.createBlock(exit, types, SmallVector<Location>(types.size(), loc));
  Block *body = b.createBlock(exit);
  b.setInsertionPointToEnd(before);
  cf::BranchOp::create(b, loc, head, first);

  b.setInsertionPointToStart(body);
  Block &inside = op.getBody().front();
  auto next = cast<RtNextOp>(inside.getTerminator());
  Value step = head->getArgument(0), one = arith::ConstantIndexOp::create(b, loc, 1);
  Value index = step;
  if (op.getReverse())
    index = arith::SubIOp::create(b, loc, arith::SubIOp::create(b, loc, count, one), step);
  for (auto [argument, value] : llvm::zip(inside.getArguments(), head->getArguments().drop_front(leading)))
    values.map(argument, value);
  StringAttr name = op.getSymbolAttr().getAttr();
  if (!symbols.try_emplace(name, index).second)
    return op.emitOpError() << "binds symbol '" << name.getValue() << "' again";
  info.indices.insert(name);
  // What a step of a procedure's loop takes it gives back.
  Value mark = isRecursive(entry) ? runtime.call(b, loc, "disc_rt_mark", i64, call) : Value();
  if (failed(lowerInside(inside)))
    return failure();
  if (mark)
    callVoid(loc, "disc_rt_pop", {call, mark});
  symbols.erase(name);
  SmallVector<Value> again = {arith::AddIOp::create(b, loc, step, one)};
  if (next.getCondition())
    again.push_back(mapped(next.getCondition()));
  for (Value v : next.getValues())
    again.push_back(mapped(v));
  poll(loc);
  cf::BranchOp::create(b, loc, head, again);

  Block *after = b.createBlock(exit);
  b.setInsertionPointToEnd(head);
  Value more;
  if (count)
    more = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, step, count);
  if (op.getCondition()) {
    Value holds = isNonzero(loc, head->getArgument(1));
    more = more ? arith::AndIOp::create(b, loc, more, holds).getResult() : holds;
  }
  cf::CondBranchOp::create(b, loc, more, body, ValueRange(), after, ValueRange());
  for (auto [result, value] : llvm::zip(op.getResults(), head->getArguments().drop_front(leading)))
    values.map(result, value);
  values.map(op.getTrips(), step);
  b.setInsertionPointToStart(after);
  return success();
}

/// Blocks for the two sides, and the one where they meet, whose arguments are the results.
LogicalResult EntryLowering::lowerBranch(RtBranchOp op) {
  Location loc = op.getLoc();
  Value holds = isNonzero(loc, mapped(op.getCondition()));
  Block *before = b.getInsertionBlock(), *sides[2], *ends[2];
  SmallVector<Value> given[2];
  for (unsigned side : {0, 1}) {
    Block &inside = op->getRegion(side).front();
    sides[side] = b.createBlock(exit);
    b.setInsertionPointToStart(sides[side]);
    if (failed(lowerInside(inside)))
      return failure();
    for (Value v : cast<GiveOp>(inside.getTerminator()).getValues())
      given[side].push_back(mapped(v));
    ends[side] = b.getInsertionBlock();
  }
  SmallVector<Type> types = llvm::map_to_vector(given[0], [](Value v) { return v.getType(); });
  Block *after = b.createBlock(exit, types, SmallVector<Location>(types.size(), loc));
  for (unsigned side : {0, 1}) {
    b.setInsertionPointToEnd(ends[side]);
    cf::BranchOp::create(b, loc, after, given[side]);
  }
  b.setInsertionPointToEnd(before);
  cf::CondBranchOp::create(b, loc, holds, sides[0], ValueRange(), sides[1], ValueRange());
  for (auto [result, value] : llvm::zip(op.getResults(), after->getArguments()))
    values.map(result, value);
  b.setInsertionPointToStart(after);
  return success();
}

/// The name of a procedure's function.
static std::string procedureName(StringRef name) { return ("disc_procedure_" + name).str(); }

void EntryLowering::callVoid(Location loc, StringRef name, ValueRange args) { runtime.call(b, loc, name, {}, args); }

void EntryLowering::lowerEnter(EnterOp op) {
  Location loc = op.getLoc();
  Value mark = slots(loc, 1);
  Value first = runtime.call(b, loc, "disc_rt_enter", i64, {call, constant64(loc, op.getSlots()), mark});
  Value ok = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sge, first, constant64(loc, 0));
  continueIf(loc, ok, arith::ConstantOp::create(b, loc, b.getI32IntegerAttr(1)));
  Value told = LLVM::LoadOp::create(b, loc, i64, mark);
  values.map(op.getSlot(), arith::IndexCastOp::create(b, loc, b.getIndexType(), first).getResult());
  values.map(op.getMark(), arith::IndexCastOp::create(b, loc, b.getIndexType(), told).getResult());
}

/// Emits cold blocks: a call without a budget only tests one field.
///
///     if (!call->budgeted) goto next
///     room = disc_rt_budget(call, scratch, outputs)
///     if (bytes <= room) { disc_rt_begin_plan(call, 0, bytes); goto next }
///     size of plan 1; if (size <= room) { disc_rt_begin_plan(call, 1, size); run plan 1; return }
///     ...
///     return disc_rt_over_budget(call, the least of all)
///   next:
LogicalResult EntryLowering::lowerFit(FitOp op) {
  Location loc = op.getLoc();
  Block *before = b.getInsertionBlock(), *next = b.createBlock(exit);
  auto coldBlock = [&] {
    Block *block = b.createBlock(exit->getParent());
    b.setInsertionPointToEnd(block);
    return block;
  };
  auto leaveUnless = [&](Value status, Block *ok) {
    Value zero = arith::ConstantOp::create(b, loc, b.getI32IntegerAttr(0));
    Value fine = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, status, zero);
    cf::CondBranchOp::create(b, loc, fine, ok, ValueRange(), exit, ValueRange(status));
  };
  b.setInsertionPointToEnd(before);
  Value field = LLVM::GEPOp::create(b, loc, ptr, b.getI8Type(), call, ArrayRef<LLVM::GEPArg>{DISC_RT_BUDGETED_OFFSET});
  Value flag = LLVM::LoadOp::create(b, loc, i64, field);
  Value budgeted = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne, flag, constant64(loc, 0));
  Value bytes = toI64(loc, mapped(op.getBytes()));
  Block *check = coldBlock();
  b.setInsertionPointToEnd(before);
  cf::CondBranchOp::create(b, loc, budgeted, check, next);

  b.setInsertionPointToEnd(check);
  ExprEmitter::Scope scope(exprs);
  Value outputs = slots(loc, std::max<size_t>(op.getOutputs().size(), 1)), scratch = constant64(loc, 0);
  for (auto [i, output] : llvm::enumerate(op.getOutputs())) {
    auto known = dyn_cast<ExprAttr>(output);
    Value size = known ? emitExpr(op, known.getValue()) : Value();
    if (known && !size)
      return failure();
    store(loc, known ? toI64(loc, size) : constant64(loc, -1), outputs, i);
  }
  for (Attribute needed : op.getScratch()) {
    Value size = emitExpr(op, cast<ExprAttr>(needed).getValue());
    if (!size)
      return failure();
    scratch = arith::MaxSIOp::create(b, loc, scratch, toI64(loc, size));
  }
  Value room = runtime.call(b, loc, "disc_rt_budget", i64, {call, scratch, outputs});
  auto beginIf = [&](Value size, unsigned number, Block *then) {
    Value fits = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sle, size, room);
    Block *here = b.getInsertionBlock(), *take = coldBlock();
    leaveUnless(runtime.call(b, loc, "disc_rt_begin_plan", i32, {call, constant64(loc, number), size}), then);
    Block *other = coldBlock();
    b.setInsertionPointToEnd(here);
    cf::CondBranchOp::create(b, loc, fits, take, other);
    b.setInsertionPointToEnd(other);
  };
  beginIf(bytes, 0, next);
  Value least = bytes;
  SmallVector<Value> operands = {call};
  for (Value v : op.getValues())
    operands.push_back(mapped(v));
  for (auto [i, plan, size] :
       llvm::enumerate(op.getPlans().getAsRange<FlatSymbolRefAttr>(), op.getSizes().getAsRange<FlatSymbolRefAttr>())) {
    Value given = slots(loc, 1);
    SmallVector<Value> with = operands;
    with.push_back(given);
    func::CallOp::create(b, loc, procedureName(size.getValue()), i32, with);
    Value taken = LLVM::LoadOp::create(b, loc, i64, given);
    Block *here = b.getInsertionBlock(), *run = coldBlock();
    Value status = func::CallOp::create(b, loc, procedureName(plan.getValue()), i32, operands).getResult(0);
    cf::BranchOp::create(b, loc, exit, status);
    b.setInsertionPointToEnd(here);
    beginIf(taken, i + 1, run);
    least = arith::MinSIOp::create(b, loc, least, taken);
  }
  cf::BranchOp::create(b, loc, exit, runtime.call(b, loc, "disc_rt_over_budget", i32, {call, least}));
  b.setInsertionPointToStart(next);
  return success();
}

LogicalResult EntryLowering::lowerOp(Operation &op) {
  Location loc = op.getLoc();
  return llvm::TypeSwitch<Operation *, LogicalResult>(&op)
      .Case([&](CheckInputsOp) {
        checkStatus(loc, runtime.call(b, loc, "disc_rt_check_inputs", i32, call));
        return success();
      })
      .Case([&](SanitizeOp) { return callVoid(loc, "disc_rt_sanitize", call), success(); })
      .Case([&](ExtentOp extent) { return lowerExtent(extent), success(); })
      .Case([&](BindSymbolOp bind) { return lowerBind(bind); })
      .Case([&](RtGuardOp guard) { return lowerGuard(guard), success(); })
      .Case([&](CheckSizesOp sizes) { return lowerCheckSizes(sizes); })
      .Case([&](InputOp input) {
        Value pointer = runtime.call(b, loc, "disc_rt_input", ptr, {call, constant64(loc, input.getInput())});
        values.map(input.getResult(), checkPointer(loc, pointer));
        return success();
      })
      .Case([&](RtParameterOp parameter) { return lowerParameter(parameter), success(); })
      .Case([&](RtGlobalOp global) { return lowerGlobal(global); })
      .Case([&](ArenaOp arena) {
        Value bytes = toI64(loc, mapped(arena.getBytes()));
        Value pointer = arena.getActivation() ? runtime.call(b, loc, "disc_rt_push", ptr, {call, bytes})
                                              : runtime.call(b, loc, "disc_rt_arena", ptr,
                                                             {call, constant64(loc, arena.getPart()), bytes});
        values.map(arena.getResult(), checkPointer(loc, pointer));
        return success();
      })
      .Case([&](FitOp fit) { return lowerFit(fit); })
      .Case([&](EnterOp enter) { return lowerEnter(enter), success(); })
      .Case([&](LeaveOp leave) {
        callVoid(loc, "disc_rt_leave",
                 {call, toI64(loc, mapped(leave.getSlot())), toI64(loc, mapped(leave.getMark()))});
        return success();
      })
      .Case([&](RtInvokeOp invoke) {
        SmallVector<Value> operands = {call};
        for (Value v : invoke.getPassed())
          operands.push_back(mapped(v));
        Value given = invoke.getGiven().empty() ? Value() : slots(loc, invoke.getGiven().size());
        if (given)
          operands.push_back(given);
        checkStatus(loc, func::CallOp::create(b, loc, procedureName(invoke.getCallee()), i32, operands).getResult(0));
        for (auto [i, extent] : llvm::enumerate(invoke.getGiven())) {
          Value at = LLVM::GEPOp::create(b, loc, ptr, i64, given, ArrayRef<LLVM::GEPArg>{int32_t(i)});
          Value value = LLVM::LoadOp::create(b, loc, i64, at);
          values.map(extent, arith::IndexCastOp::create(b, loc, b.getIndexType(), value).getResult());
        }
        return success();
      })
      .Case([&](OffsetOp offset) {
        Value bytes = toI64(loc, mapped(offset.getBytes()));
        Value pointer = LLVM::GEPOp::create(b, loc, ptr, b.getI8Type(), mapped(offset.getBase()),
                                            ArrayRef<LLVM::GEPArg>{bytes}, LLVM::GEPNoWrapFlags::inbounds);
        values.map(offset.getResult(), pointer);
        return success();
      })
      .Case([&](OutputOp output) { return lowerOutput(output), success(); })
      .Case([&](CopyOp copy) {
        if (onDevice) {
          Value bytes = toI64(loc, mapped(copy.getBytes()));
          checkStatus(loc, runtime.call(b, loc, "disc_rt_device_copy", i32,
                                        {call, mapped(copy.getTarget()), mapped(copy.getSource()), bytes}));
          return success();
        }
        if (copy.getChecked()) {
          callVoid(loc, "disc_rt_checked_copy",
                   {call, mapped(copy.getTarget()), mapped(copy.getSource()), toI64(loc, mapped(copy.getBytes()))});
          return success();
        }
        LLVM::MemcpyOp::create(b, loc, mapped(copy.getTarget()), mapped(copy.getSource()),
                               toI64(loc, mapped(copy.getBytes())),
                               /*isVolatile=*/false);
        return success();
      })
      .Case([&](LaunchOp launch) { return lowerLaunch(launch); })
      .Case([&](RtLoopOp loop) { return lowerLoop(loop); })
      .Case([&](RtBranchOp branch) { return lowerBranch(branch); })
      .Case([&](SlotOp slot) {
        Value keep = arith::ConstantOp::create(b, loc, b.getI32IntegerAttr(slot.getKeep()));
        Value pointer =
            runtime.call(b, loc, "disc_rt_slot", ptr,
                         {call, toI64(loc, mapped(slot.getNumber())), toI64(loc, mapped(slot.getBytes())), keep});
        values.map(slot.getResult(), checkPointer(loc, pointer));
        return success();
      })
      .Case([&](disc::ReturnOp ret) {
        for (auto [i, extent] : llvm::enumerate(ret.getGiven()))
          store(loc, toI64(loc, mapped(extent)), given, i);
        Value zero = arith::ConstantOp::create(b, loc, b.getI32IntegerAttr(0));
        func::ReturnOp::create(b, loc, zero);
        return success();
      })
      .Case([&](DimOp dim) -> LogicalResult {
        Value value = emitExpr(dim, dim.getExpr().getValue());
        if (!value)
          return failure();
        values.map(dim.getResult(), value);
        return success();
      })
      .Case([&](LLVM::LoadOp load) {
        if (onDevice)
          values.map(load.getResult(), readDevice(load));
        else
          b.clone(*load, values);
        return success();
      })
      .Default([&](Operation *other) -> LogicalResult {
        if (!isa<arith::ArithDialect, LLVM::LLVMDialect>(other->getDialect()))
          return other->emitOpError("can't stand in an entry function");
        b.clone(*other, values);
        return success();
      });
}

func::FuncOp EntryLowering::begin(const Twine &name) {
  Location loc = entry->getLoc();
  b.setInsertionPoint(entry);
  Block &flow = entry->getRegion(0).front();
  SmallVector<Type> types(flow.getArgumentTypes());
  bool gives = !cast<disc::ReturnOp>(flow.getTerminator()).getGiven().empty();
  if (gives)
    types.push_back(ptr);
  auto function = func::FuncOp::create(b, loc, name.str(), b.getFunctionType(types, {i32}));
  Block *body = function.addEntryBlock();
  call = body->getArgument(0);
  for (auto [argument, value] : llvm::zip(flow.getArguments(), body->getArguments()))
    values.map(argument, value);
  given = gives ? body->getArguments().back() : Value();
  exit = b.createBlock(&function.getBody(), function.getBody().end(), {i32}, {loc});
  func::ReturnOp::create(b, loc, exit->getArgument(0));
  b.setInsertionPointToEnd(body);
  return function;
}

void EntryLowering::end() {
  if (exit->hasNoPredecessors())
    exit->erase();
}

LogicalResult EntryLowering::lower() {
  bool isProcedure = isa<ProcedureOp>(entry);
  StringRef own = SymbolTable::getSymbolName(entry).getValue();
  // What recurses does so on a stack of the call's own.
  bool moves =
      own == "main" && llvm::any_of(module.getOps<ProcedureOp>(), [](ProcedureOp p) { return isRecursive(p); });
  std::string name = isProcedure ? procedureName(own) : ("disc_" + own + (moves ? "_on_stack" : "")).str();
  func::FuncOp function = begin(name);
  if (isProcedure)
    function.setPrivate();
  // Plans are large, run rarely and spend their time in kernels: do not optimise their host code.
  if (isProcedure && !isRecursive(entry))
    function->setAttr("passthrough", b.getStrArrayAttr({"optnone", "noinline"}));
  for (Operation &op : entry->getRegion(0).front())
    if (failed(lowerOp(op)))
      return failure();
  end();
  if (isRecursive(entry))
    for (auto bind : entry->getRegion(0).front().getOps<BindSymbolOp>())
      info.indices.insert(bind.getSymbolAttr().getAttr());
  if (!moves)
    return success();
  function.setPrivate();
  Location loc = entry->getLoc();
  b.setInsertionPoint(entry);
  auto outer = func::FuncOp::create(b, loc, ("disc_" + own).str(), b.getFunctionType({ptr}, {i32}));
  b.setInsertionPointToStart(outer.addEntryBlock());
  Value body = functionAddress(b, loc, function);
  func::ReturnOp::create(b, loc, runtime.call(b, loc, "disc_rt_on_stack", i32, {outer.getArgument(0), body}));
  return success();
}

LogicalResult EntryLowering::lowerShapes() {
  begin("disc_shapes");
  // Data comes after the checks of shapes; what depends on it, symbols and checks on them, is left out.
  auto isKnown = [&](const SymExpr &expr) {
    return llvm::all_of(expr.symbols(), [&](StringRef name) { return symbols.contains(name); });
  };
  for (Operation &op : entry->getRegion(0).front()) {
    if (!isa<CheckInputsOp, ExtentOp, BindSymbolOp, RtGuardOp, CheckSizesOp, DimOp>(op) &&
        !isa<arith::ArithDialect>(op.getDialect()))
      continue;
    auto dim = dyn_cast<DimOp>(op);
    auto sizes = dyn_cast<CheckSizesOp>(op);
    if ((dim && !isKnown(dim.getExpr().getValue())) ||
        (sizes && !llvm::all_of(llvm::concat<const Attribute>(sizes.getTerms(), sizes.getNumbers()),
                                [&](Attribute expr) { return isKnown(cast<ExprAttr>(expr).getValue()); })) ||
        llvm::any_of(op.getOperands(), [&](Value v) { return !values.contains(v); }))
      continue;
    if (failed(lowerOp(op)))
      return failure();
  }

  Location loc = entry->getLoc();
  for (auto [number, output] : llvm::enumerate(cast<EntryOp>(entry).getOutputs())) {
    SmallVector<SymExpr> extents = cast<InterfaceTensorAttr>(output).getDims().getDims();
    Value dims = slots(loc, std::max<size_t>(extents.size(), 1));
    for (auto [i, extent] : llvm::enumerate(extents)) {
      if (!isKnown(extent))
        continue; // the table says that it depends on data
      Value value = emitExpr(entry, extent);
      if (!value)
        return failure();
      store(loc, toI64(loc, value), dims, i);
    }
    checkStatus(loc, runtime.call(b, loc, "disc_rt_output_shape", i32,
                                  {call, constant64(loc, number), constant64(loc, extents.size()), dims}));
  }
  func::ReturnOp::create(b, loc, arith::ConstantOp::create(b, loc, b.getI32IntegerAttr(0)).getResult());
  end();
  return success();
}

namespace {
struct HostLower : mlir::disc::impl::HostLowerBase<HostLower> {
  using Base::Base;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    ModelInfo info;
    info.memoryBudget = memoryBudget;
    for (auto global : module.getOps<disc::GlobalOp>())
      info.globals.insert({global.getSymNameAttr(), static_cast<int64_t>(info.globals.size())});

    // Back ends get their constants when the model is loaded, and may keep references to them.
    for (auto region : module.getOps<ExternOp>())
      for (auto [name, type] : llvm::zip(region.getConstants(), region.getConstantTypes())) {
        info.parameters.insert({cast<StringAttr>(name), cast<RankedTensorType>(cast<TypeAttr>(type).getValue())});
        info.kept.insert(cast<StringAttr>(name));
      }

    ShapeAnalysis shapes(module);
    RuntimeFunctions runtime(module);
    EntryOp main;
    for (auto procedure : module.getOps<ProcedureOp>())
      if (failed(EntryLowering(module, procedure, shapes, runtime, info, serialNs).lower()))
        return signalPassFailure();
    SmallVector<EntryOp> entries(module.getOps<EntryOp>());
    for (EntryOp entry : entries) {
      if (entry.getSymName() == "main") {
        main = entry;
        // Both functions make the same checks, so their failures have the same numbers: each begins to count here.
        ModelInfo same = info;
        if (failed(EntryLowering(module, entry, shapes, runtime, same, serialNs).lowerShapes()))
          return signalPassFailure();
      }
      if (failed(EntryLowering(module, entry, shapes, runtime, info, serialNs).lower()))
        return signalPassFailure();
    }
    if (!main) {
      module.emitError("has no disc_rt.entry @main");
      return signalPassFailure();
    }
    if (!module.lookupSymbol("disc_init"))
      addEmptyInit(module);
    for (Operation &op : *module.getBody())
      if (auto kind = op.getAttrOfType<StringAttr>(kKernelKindAttr); kind && isa<func::FuncOp, DeviceKernelOp>(op))
        info.kernels.push_back({&op, kind.getValue()});
    if (failed(emitModelInfo(module, main, info, shapes)))
      return signalPassFailure();
    eraseDescriptions(module, entries);
  }

  /// The runtime calls both entries; a model without parameter work has no @init.
  static void addEmptyInit(ModuleOp module) {
    OpBuilder b = OpBuilder::atBlockEnd(module.getBody());
    Type ptr = LLVM::LLVMPointerType::get(module.getContext());
    Location loc = module.getLoc();
    auto init = func::FuncOp::create(b, loc, "disc_init", b.getFunctionType({ptr}, {b.getI32Type()}));
    b.setInsertionPointToStart(init.addEntryBlock());
    Value zero = arith::ConstantOp::create(b, loc, b.getI32IntegerAttr(0));
    func::ReturnOp::create(b, loc, zero);
  }

  /// What the code now embodies, or the table now says.
  void eraseDescriptions(ModuleOp module, ArrayRef<EntryOp> entries) {
    for (EntryOp entry : entries)
      entry.erase();
    for (auto procedure : llvm::make_early_inc_range(module.getOps<ProcedureOp>()))
      procedure.erase();
    for (Operation &op : llvm::make_early_inc_range(*module.getBody())) {
      if (isa<disc::GlobalOp, SymbolOp, disc::GuardOp, DeviceKernelOp, gpu::BinaryOp, ExternOp>(op)) {
        op.erase();
        continue;
      }
      for (StringRef name : {kKernelSymbolsAttr, kKernelTasksAttr, kKernelScratchAttr, kKernelCostAttr,
                             kKernelBuffersAttr, kKernelResultsAttr})
        op.removeAttr(name);
    }
  }
};
} // namespace
