//===- PlanControlFlow.cpp - loops, branches and calls in the host flow ----===//
//
// A `disc_tensor.loop` becomes a `disc_rt.loop`, a `disc_tensor.branch` a `disc_rt.branch`, and a `disc_tensor.invoke`
// a `disc_rt.invoke`, over pointers and extents. The symbols that they give values begin epochs too, inside or after
// them.
//
// Tests: test/lit/Memory/loop.mlir, branch.mlir, procedure.mlir
//
//===----------------------------------------------------------------------===//

#include "lib/Transforms/Memory/EntryBuilder.h"

#include "dialects/Tensor/TensorDialect.h"
#include "lib/Transforms/Support/ViewLayout.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace mlir::disc;

/// A result whose extents the procedure finds out comes in a slot, and is copied to where it is to be.
LogicalResult EntryBuilder::emit(InvokeOp invoke) {
  SmallVector<Value> list;
  auto pass = [&](Value tensor) {
    FailureOr<Value> data = buffer(viewBase(tensor));
    if (succeeded(data))
      list.push_back(*data);
    return succeeded(data);
  };
  if (!llvm::all_of(invoke.getInputs(), pass))
    return failure();
  SmallVector<std::pair<Value, Value>> open; // results and numbers of slots
  for (auto [i, result] : llvm::enumerate(invoke.getOutputs())) {
    if (!InvokeOp::isOpen(invoke.getCalleeOp(), i)) {
      if (!pass(result))
        return failure();
      continue;
    }
    Value number = dim(SymExpr(int64_t(slots++)));
    if (isProcedure)
      number = arith::AddIOp::create(b, loc, firstSlot, number);
    open.push_back({result, number});
    list.push_back(number);
  }
  for (Value size : invoke.getSizes())
    list.push_back(dim(shapes.expr(size)));
  SmallVector<Type> given(invoke.getSymbols().size(), b.getIndexType());
  auto rt = RtInvokeOp::create(b, invoke.getLoc(), given, call, invoke.getCallee(), list);
  if (failed(bindComputed(invoke.getSymbols(), rt.getGiven(), "a recursive function")))
    return failure();
  for (auto [result, number] : open) {
    Value data = SlotOp::create(b, loc, pointer, call, number, dim(bytesOf(result)), /*keep=*/true);
    Value memory = buffers.lookup(result);
    if (!memory)
      memory = placed(result);
    if (memory)
      copy(memory, data, bytesOf(result));
    buffers[result] = memory ? memory : data;
  }
  return success();
}

/// A result lies where the side that ran left it: in memory that waits for it, or wherever the side has it.
LogicalResult EntryBuilder::emit(BranchOp branch) {
  Location at = branch.getLoc();
  FailureOr<Value> condition = loadScalar(branch.getCondition(), b.getI8Type());
  if (failed(condition))
    return branch.emitError("the condition has no buffer");
  SmallVector<Type> types(branch.getNumResults(), pointer);
  types.append(branch.getSymbols().size(), b.getIndexType());
  auto rt = RtBranchOp::create(b, at, types, *condition);
  for (unsigned side : {0, 1}) {
    Block *inside = &rt->getRegion(side).emplaceBlock();
    b.setInsertionPointToStart(inside);
    TensorYieldOp yield = branch.getYield(side);
    Block &block = *yield->getBlock();
    emitGuards(block, 0, epochBefore.lookup(&block));
    for (Value given : yield.getValues()) {
      Value base = viewBase(given);
      if (Value result = pushed.lookup(base); result && result.getDefiningOp() == branch)
        if (Value memory = buffers.lookup(result))
          buffers[base] = memory;
    }
    if (failed(emit(block)))
      return failure();
    SmallVector<Value> values;
    for (auto [given, result] : llvm::zip(yield.getValues(), branch.getOutputs())) {
      Value base = viewBase(given);
      FailureOr<Value> data = buffer(base);
      if (failed(data))
        return failure();
      if (leaving.contains(result) && pushed.lookup(base) != result) {
        Value memory = buffers.lookup(result);
        if (auto place = places.find(result); !memory && place != places.end()) {
          // Its own extents, on this side.
          Place here = place->second;
          here.shaped = given;
          places[given] = here;
          memory = placed(given);
          places.erase(given);
        }
        if (memory) {
          copy(memory, *data, bytesOf(given));
          data = memory;
        }
      }
      values.push_back(*data);
    }
    for (Value size : yield.getSizes())
      values.push_back(dim(shapes.expr(size)));
    GiveOp::create(b, at, values);
  }
  b.setInsertionPointAfter(rt);
  for (auto [result, memory] : llvm::zip(branch.getOutputs(), rt.getResults()))
    buffers[result] = memory;
  return bindComputed(branch.getSymbols(), rt.getResults().drop_front(branch.getNumResults()), "a branch");
}

/// A carried tensor is where the step before left it: in a row of a stack, in one buffer, in one of two in turns, so
/// that a step never writes what it reads, or in a slot. The first step reads it where it was before the loop.
LogicalResult EntryBuilder::emit(LoopOp loop) {
  Location at = loop.getLoc();
  Block &body = loop.getBody().front();
  SmallVector<Value> firsts;
  for (auto [init, result] : llvm::zip(loop.getInits(), loop.getOutputs())) {
    FailureOr<Value> data = buffer(viewBase(init));
    if (failed(data))
      return failure();
    if (!inCarried.contains(result)) {
      firsts.push_back(*data);
      llvm::append_range(firsts, alternating.lookup(result)); // what the first step writes, then the second
    } else if (Value memory = buffers.lookup(result); memory != *data) {
      copy(memory, *data, bytesOf(init));
    }
  }
  unsigned pointers = firsts.size();
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
  if (failed(bindComputed(loop.getSymbols(), inside->getArguments().drop_front(pointers), "a step of a loop")))
    return failure();
  emitGuards(body, 0, epochBefore.lookup(&body));
  assignTemporaries(epochInside.lookup(loop));

  OperandRange values = loop.getNext().getValues();
  for (unsigned i = loop.getNumCarried(); i < values.size(); ++i) {
    if (places.contains(viewBase(values[i])))
      continue;
    Value stack = buffers.lookup(loop.getOutputs()[i]);
    if (!stack)
      return loop.emitError("a stacked result has no buffer");
    Value row = dim(loop.getIndexExpr() * bytesOf(values[i]));
    buffers[viewBase(values[i])] = OffsetOp::create(b, at, pointer, stack, row);
  }
  unsigned place = 0;
  for (unsigned i = 0; i < loop.getNumCarried(); ++i) {
    Value result = loop.getOutputs()[i], argument = body.getArgument(i), written = viewBase(values[i]);
    if (auto chain = inCarried.find(result); chain != inCarried.end()) {
      buffers[argument] = buffers.lookup(result);
      for (Value v : chain->second)
        buffers[v] = buffers.lookup(result);
      continue;
    }
    buffers[argument] = inside->getArgument(place);
    if (!stackOf(loop, i) && !places.contains(written) && !isStacked(loop, written))
      buffers[written] = inside->getArgument(place + 1);
    place += alternating.contains(result) ? 3 : 1;
  }
  if (failed(emit(body)))
    return failure();
  SmallVector<Value> nexts;
  place = 0;
  for (unsigned i = 0; i < loop.getNumCarried(); ++i) {
    Value result = loop.getOutputs()[i];
    if (inCarried.contains(result))
      continue;
    Value written = viewBase(values[i]), next = buffers.lookup(written);
    if (alternating.contains(result) && isStacked(loop, written)) {
      // The row may move when the next step's is appended.
      Value row = next;
      next = inside->getArgument(place + 1);
      copy(next, row, bytesOf(values[i]));
    }
    nexts.push_back(next);
    if (alternating.contains(result))
      nexts.append({inside->getArgument(place + 2), inside->getArgument(place + 1)});
    buffers[result] = rt.getResult(place);
    place += alternating.contains(result) ? 3 : 1;
  }
  for (Value size : loop.getNext().getSizes())
    nexts.push_back(dim(shapes.expr(size)));
  Value again;
  if (loop.getCondition()) {
    FailureOr<Value> loaded = loadScalar(loop.getNext().getCondition(), b.getI8Type());
    if (failed(loaded))
      return loop.emitError("the condition has no buffer");
    again = *loaded;
  }
  RtNextOp::create(b, at, nexts, again);
  b.setInsertionPointAfter(rt);
  for (unsigned i = loop.getNumCarried(); i < values.size(); ++i)
    if (auto rows = places.find(viewBase(values[i])); rows != places.end()) {
      buffers[loop.getOutputs()[i]] = slot(SymExpr(rows->second.number), SymExpr(0), /*keep=*/true);
    }
  if (loop.getTrips())
    BindSymbolOp::create(b, at, *loop.getTrips(), rt.getTrips(), /*computed=*/true);
  return bindComputed(loop.getLastSymbols(), rt.getResults().drop_front(pointers), "a loop");
}
