//===- PointControlFlow.cpp - branches and loops in the bodies of generics -===//
//
//   %r = scf.while (%i = %x) : (i64) -> i64 { %c = cmpi ne %i, 0 ; scf.condition(%c) %i }
//        do { ^bb0(%i: i64): %n = shrui %i, 1 ; scf.yield %n }
//
// along lanes goes on until no lane does; lanes that have finished keep what they have:
//
//   scf.while (%i = %x) {
//     %c = cmpi ne %i, 0 : vector<8xi64>     (and the mask)
//     scf.condition(vector.reduction <or>, %c) %i, %c
//   } do { ^bb0(%i, %c): %n = shrui %i, 1 ; scf.yield select(%c, %n, %i) }
//
// A branch of `scf.if` runs if any lane takes it, and lanes select.
//
// Lit test: test/lit/CPU/point-control-flow.mlir.
//
//===----------------------------------------------------------------------===//

#include "lib/Target/Common/KernelLoops.h"
#include "lib/Target/Common/PointEmitter.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace mlir::disc;

/// Whether something may differ from lane to lane.
static bool variesAlongLanes(ArrayRef<Idx> iters) {
  return llvm::any_of(iters, [](const Idx &i) { return !i.isUniform(); });
}

Value PointEmitter::anyLane(Value condition) {
  if (!isa<VectorType>(condition.getType()))
    return condition;
  return vector::ReductionOp::create(builder, loc, vector::CombiningKind::OR, condition);
}

/// What values of a region are at the point; all of them vectors if anything varies along the lanes.
LogicalResult PointEmitter::regionValues(ValueRange values, IRMapping &map, bool alongLanes,
                                         SmallVectorImpl<Value> &results) {
  for (Value value : values) {
    Value v = map.lookupOrNull(value);
    if (!v && !(v = scalar(value)))
      return failure();
    results.push_back(alongLanes ? splat(v) : v);
  }
  return success();
}

LogicalResult PointEmitter::emitBranch(scf::IfOp op, Value condition, IRMapping &map, BodyPoint &point) {
  bool alongLanes = variesAlongLanes(point.iters), ok = true;
  SmallVector<Value> none;
  for (Type type : op.getResultTypes())
    none.push_back(constant(cast<TypedAttr>(builder.getZeroAttr(alongLanes ? Type(vectorOf(type)) : type))));
  // What the lanes of `taken` get.
  auto side = [&](Region &region, Value taken) -> SmallVector<Value> {
    bool lanewise = isa<VectorType>(taken.getType());
    if (lanewise && point.mask)
      taken = arith::AndIOp::create(builder, loc, taken, point.mask);
    return emitIf(builder, loc, anyLane(taken), none, [&] {
      Scope scope(*this);
      BodyPoint inner{point.iters, lanewise ? taken : point.mask, point.coordinates};
      SmallVector<Value> values;
      ok &= succeeded(emitOps(region.front(), map, inner)) &&
            succeeded(regionValues(region.front().getTerminator()->getOperands(), map, alongLanes, values));
      return ok ? values : none;
    });
  };
  if (op.getNumResults() == 0)
    return success(); // without results it does nothing
  SmallVector<Value> taken = side(op.getThenRegion(), condition);
  Value on = constant(builder.getBoolAttr(true));
  if (isa<VectorType>(condition.getType()))
    on = splat(on);
  SmallVector<Value> other = side(op.getElseRegion(), arith::XOrIOp::create(builder, loc, condition, on));
  for (auto [result, x, y] : llvm::zip(op.getResults(), taken, other))
    map.map(result, arith::SelectOp::create(builder, loc, condition, x, y).getResult());
  return success(ok);
}

LogicalResult PointEmitter::emitWhile(scf::WhileOp op, ArrayRef<Value> inits, IRMapping &map, BodyPoint &point) {
  bool alongLanes = variesAlongLanes(point.iters);
  SmallVector<Value> carried;
  for (Value v : inits)
    carried.push_back(alongLanes ? splat(v) : v);
  auto typesOf = [&](ValueRange values) {
    SmallVector<Type> types;
    for (Type type : values.getTypes())
      types.push_back(alongLanes ? Type(vectorOf(type)) : type);
    return types;
  };
  scf::ConditionOp condition = op.getConditionOp();
  // Of each turn: what the loop gives if it is the last one, the lanes that go on, and what it began with.
  SmallVector<Type> types = typesOf(condition.getArgs());
  unsigned numResults = types.size();
  types.push_back(alongLanes ? Type(vectorOf(builder.getI1Type())) : builder.getI1Type());
  llvm::append_range(types, ValueRange(carried).getTypes());

  auto block = [&](Region &region, ArrayRef<Type> arguments) {
    return builder.createBlock(&region, {}, arguments, SmallVector<Location>(arguments.size(), loc));
  };
  auto loop = scf::WhileOp::create(builder, loc, types, carried);
  OpBuilder::InsertionGuard guard(builder);
  {
    Scope scope(*this);
    Block *before = block(loop.getBefore(), SmallVector<Type>(ValueRange(carried).getTypes()));
    map.map(op.getBeforeArguments(), before->getArguments());
    BodyPoint inner{point.iters, point.mask, point.coordinates};
    SmallVector<Value> passed;
    if (failed(emitOps(op.getBefore().front(), map, inner)) ||
        failed(regionValues(condition.getArgs(), map, alongLanes, passed)) ||
        failed(regionValues(condition.getCondition(), map, alongLanes, passed)))
      return failure();
    Value &going = passed.back();
    if (alongLanes && point.mask) // lanes without an element may never finish
      going = arith::AndIOp::create(builder, loc, going, point.mask);
    Value any = anyLane(going);
    llvm::append_range(passed, before->getArguments());
    scf::ConditionOp::create(builder, loc, any, passed);
  }
  {
    Scope scope(*this);
    Block *after = block(loop.getAfter(), types);
    map.map(op.getAfterArguments(), after->getArguments().take_front(numResults));
    Value going = after->getArgument(numResults);
    BodyPoint inner{point.iters, alongLanes ? going : point.mask, point.coordinates};
    SmallVector<Value> next;
    if (failed(emitOps(op.getAfter().front(), map, inner)) ||
        failed(regionValues(op.getYieldOp().getOperands(), map, alongLanes, next)))
      return failure();
    for (auto [v, old] : llvm::zip(next, after->getArguments().drop_front(numResults + 1)))
      v = arith::SelectOp::create(builder, loc, going, v, old);
    scf::YieldOp::create(builder, loc, next);
  }
  map.map(op.getResults(), loop.getResults().take_front(numResults));
  return success();
}
