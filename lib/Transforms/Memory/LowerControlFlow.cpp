//===- LowerControlFlow.cpp - loops, branches and invocations -------------===//
//
//   %h = disc_tensor.loop @i below %T carries(%h0) ... {                // {buffers = [alternating[0]]}
//   ^bb0(%a: tensor<?x8xf32>):
//     %b = disc_plan.call @k(%a) ...                                    // {buffers = [carried[0]]}
//     disc_tensor.next %b
// becomes
//   %h:3, %trips = disc_rt.loop @i below %T carries(%h0, %t0, %t1) ... {
//   ^bb0(%a: !llvm.ptr, %to: !llvm.ptr, %then: !llvm.ptr):
//     disc_rt.launch %call @k(%a, %to)
//     disc_rt.next %to, %then, %to
//
// A carried tensor is where the iteration before left it; the first one reads it where it was before the loop. A
// `disc_tensor.branch` becomes a `disc_rt.branch`, a `disc_tensor.invoke` a `disc_rt.invoke`, over pointers and
// extents.
//
// Tests: test/lit/Memory/loop.mlir, branch.mlir, procedure.mlir
//
//===----------------------------------------------------------------------===//

#include "lib/Transforms/Memory/FlowLowering.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace mlir::disc;

/// A result whose extents the procedure computes comes in a slot, whose number is passed in the place of the pointer.
LogicalResult FlowLowering::lower(InvokeOp invoke) {
  SmallVector<Value> list;
  for (Value input : invoke.getInputs()) {
    FailureOr<Value> data = pointerTo(input);
    if (failed(data))
      return failure();
    list.push_back(*data);
  }
  SmallVector<std::pair<Value, Value>> open; // results and numbers of slots
  for (Value result : invoke.getOutputs()) {
    if (BufferAttr buffer = bufferOf(result); buffer && buffer.getKind() == BufferKind::Slot) {
      open.push_back({result, slotNumber(SymExpr(buffer.getNumber()))});
      list.push_back(open.back().second);
      continue;
    }
    FailureOr<Value> memory = bufferFor(result);
    if (failed(memory))
      return failure();
    list.push_back(pointers[result] = *memory);
  }
  for (Value size : invoke.getSizes())
    list.push_back(dim(shapes.expr(size)));
  SmallVector<Type> given(invoke.getSymbols().size(), b.getIndexType());
  auto rt = RtInvokeOp::create(b, invoke.getLoc(), given, call, invoke.getCallee(), list);
  bindComputed(invoke.getSymbols(), rt.getGiven(), "a recursive function");
  for (auto [result, number] : open)
    pointers[result] = SlotOp::create(b, loc, pointer, call, number, dim(bytesOf(result)), /*keep=*/true);
  return success();
}

/// A result is where the side that ran left it.
LogicalResult FlowLowering::lower(BranchOp branch) {
  Location at = branch.getLoc();
  FailureOr<Value> condition = loadScalar(branch.getCondition(), b.getI8Type());
  if (failed(condition))
    return branch.emitError("the condition has no buffer");
  SmallVector<Type> types(branch.getNumResults(), pointer);
  types.append(branch.getSymbols().size(), b.getIndexType());
  auto rt = RtBranchOp::create(b, at, types, *condition);
  for (unsigned side : {0, 1}) {
    b.setInsertionPointToStart(&rt->getRegion(side).emplaceBlock());
    TensorYieldOp yield = branch.getYield(side);
    if (failed(lower(yield->getBlock()->begin(), yield->getBlock()->end())))
      return failure();
    SmallVector<Value> values;
    for (Value yielded : yield.getValues()) {
      FailureOr<Value> data = pointerTo(yielded);
      if (failed(data))
        return failure();
      values.push_back(*data);
    }
    for (Value size : yield.getSizes())
      values.push_back(dim(shapes.expr(size)));
    GiveOp::create(b, at, values);
  }
  b.setInsertionPointAfter(rt);
  for (auto [result, memory] : llvm::zip(branch.getOutputs(), rt.getResults()))
    pointers[result] = memory;
  bindComputed(branch.getSymbols(), rt.getResults().drop_front(branch.getNumResults()), "a branch");
  return success();
}

/// A carried tensor is passed as a pointer, with the two buffers that iterations write in turns if it has them; one
/// that iterations write in place is not passed.
LogicalResult FlowLowering::lower(LoopOp loop) {
  Location at = loop.getLoc();
  Block &body = loop.getBody().front();
  unsigned carried = loop.getNumCarried();
  auto kindOf = [&](unsigned i) { return bufferOf(loop.getOutputs()[i]).getKind(); };
  SmallVector<Value> firsts;
  for (auto [i, init] : llvm::enumerate(loop.getInits())) {
    Value result = loop.getOutputs()[i];
    FailureOr<Value> data = pointerTo(init);
    if (failed(data))
      return failure();
    if (!bufferOf(result))
      return loop.emitError() << "carried tensor " << i << " has no buffer";
    if (kindOf(i) == BufferKind::Temporary) {
      FailureOr<Value> memory = bufferFor(result);
      if (failed(memory))
        return failure();
      pointers[result] = pointers[body.getArgument(i)] = iterationTargets[result] = *memory;
      continue;
    }
    firsts.push_back(*data);
    if (kindOf(i) != BufferKind::Alternating)
      continue;
    int64_t number = bufferOf(result).getNumber();
    for (int64_t turn : {number, number + 1}) {
      if (!temporaries.lookup(turn))
        return loop.emitError() << "'temporary' " << turn << " is used before it is allocated";
      firsts.push_back(temporaries.lookup(turn)); // what the first iteration writes, then the second
    }
  }
  unsigned numPointers = firsts.size();
  for (Value size : loop.getSizes())
    firsts.push_back(dim(shapes.expr(size)));
  Value count, condition;
  if (loop.getCount())
    count = dim(shapes.expr(loop.getCount()));
  if (loop.getCondition()) {
    FailureOr<Value> loaded = loadScalar(loop.getCondition(), b.getI8Type());
    if (failed(loaded))
      return loop.emitError("the condition has no buffer");
    condition = *loaded;
  }
  SmallVector<Type> types = llvm::map_to_vector(firsts, [](Value v) { return v.getType(); });
  auto rt =
      RtLoopOp::create(b, at, types, b.getIndexType(), loop.getIndex(), count, condition, firsts, loop.getReverse());
  Block *inside = &rt.getBody().emplaceBlock();
  for (Type type : types)
    inside->addArgument(type, at);
  b.setInsertionPointToStart(inside);
  bindComputed(loop.getSymbols(), inside->getArguments().drop_front(numPointers), "a step of a loop");
  FailureOr<Block::iterator> rest = lowerBeginning(body);
  if (failed(rest))
    return failure();

  NextOp next = loop.getNext();
  OperandRange values = next.getValues();
  for (unsigned i = carried; i < values.size(); ++i) {
    Value stack = loop.getOutputs()[i];
    if (kindOf(i) == BufferKind::Slot)
      continue;
    FailureOr<Value> memory = bufferFor(stack);
    if (failed(memory))
      return failure();
    pointers[stack] = *memory;
    Value row = dim(loop.getIndexExpr() * bytesOf(values[i]));
    iterationTargets[stack] = OffsetOp::create(b, at, pointer, *memory, row);
  }
  unsigned place = 0;
  for (unsigned i = 0; i < carried; ++i) {
    if (kindOf(i) == BufferKind::Temporary)
      continue;
    pointers[body.getArgument(i)] = inside->getArgument(place++);
    if (kindOf(i) == BufferKind::Alternating) {
      iterationTargets[loop.getOutputs()[i]] = inside->getArgument(place);
      place += 2;
    }
  }
  if (failed(lower(*rest, body.end())))
    return failure();
  SmallVector<Value> nexts;
  place = 0;
  for (unsigned i = 0; i < carried; ++i) {
    if (kindOf(i) == BufferKind::Temporary)
      continue;
    FailureOr<Value> data = pointerTo(values[i]);
    if (failed(data))
      return failure();
    nexts.push_back(*data);
    pointers[loop.getOutputs()[i]] = rt.getResult(place++);
    if (kindOf(i) == BufferKind::Alternating) {
      nexts.append({inside->getArgument(place + 1), inside->getArgument(place)});
      place += 2;
    }
  }
  for (Value size : next.getSizes())
    nexts.push_back(dim(shapes.expr(size)));
  Value again;
  if (loop.getCondition()) {
    FailureOr<Value> loaded = loadScalar(next.getCondition(), b.getI8Type());
    if (failed(loaded))
      return loop.emitError("the condition has no buffer");
    again = *loaded;
  }
  RtNextOp::create(b, at, nexts, again);
  b.setInsertionPointAfter(rt);
  for (unsigned i = carried; i < values.size(); ++i)
    if (Value stack = loop.getOutputs()[i]; kindOf(i) == BufferKind::Slot)
      pointers[stack] = slot(SymExpr(bufferOf(stack).getNumber()), SymExpr(0), /*keep=*/true);
  if (loop.getTrips())
    BindSymbolOp::create(b, at, *loop.getTrips(), rt.getTrips(), /*computed=*/true);
  bindComputed(loop.getLastSymbols(), rt.getResults().drop_front(numPointers), "a loop");
  return success();
}
