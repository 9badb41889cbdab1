//===- DeviceOrder.cpp - kernels that put things in order -------------------===//
//
// Within a tile each thread counts the keys before its own. In a merge it finds, by bisection, how many of the other
// run's keys come before its own. (Merging by ranks: Satish, Harris, Garland, "Designing efficient sorting algorithms
// for manycore GPUs", IPDPS 2009.)
//
//   %rank = scf.for %s = 0 to 256 iter_args(%n = 0) { %n + (keys[%s] < %key or keys[%s] == %key and %s < thread) }
//   order[to + tile + %rank] = %key ; order[to + count + tile + %rank] = %i
//
// Lit test: test/lit/GPU/scatter.mlir.
//
//===----------------------------------------------------------------------===//

#include "lib/Target/GPU/DeviceOrder.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace mlir::disc;

DeviceOrder::DeviceOrder(DeviceKernel &k, const SymExpr &rows, const SymExpr &length)
    : k(k), b(k.b), m(k.m), points(k.points(1)), length(points.expr(length)), count(points.expr(rows * length)),
      memory(points.resultPtr(k.kernel.getNumResults() - 1)) {}

Value DeviceOrder::extra(unsigned i) {
  unsigned first = k.kernel.getNumInputs() + k.kernel.getNumResults() + k.kernel.getSymbols().size();
  return m.index(k.function.getArgument(first + i));
}

void DeviceOrder::put(Value place, Value key, Value thing) {
  Value at = m.add(to(), place);
  points.store(memory, Idx(at), key);
  points.store(memory, Idx(m.add(at, count)), m.i64(thing));
}

void DeviceOrder::tiles(function_ref<Value(Value row, Value i)> key) {
  Type i64 = b.getI64Type();
  Value keys = k.shared(i64, kThreads), thread = k.thread();
  Value tiles = m.ceilDiv(length, m.constant(kThreads)), row = m.div(k.block(), tiles);
  Value first = m.mul(m.rem(k.block(), tiles), kThreads), i = m.add(first, thread);
  Value none = points.constant(b.getI64IntegerAttr(kNone)), isThere = m.less(i, length);
  Value own = emitIf(b, k.loc, isThere, none, [&] {
    PointEmitter::Scope scope(points);
    return SmallVector<Value>{key(row, i)};
  })[0];
  k.storeShared(keys, own, thread);
  k.barrier();
  Value rank = emitFor(b, k.loc, m.constant(0), m.constant(kThreads), m.constant(1), {m.constant(0)},
                       [&](Value s, ValueRange carried) {
                         Value other = k.loadShared(keys, i64, s);
                         Value less = arith::CmpIOp::create(b, k.loc, arith::CmpIPredicate::slt, other, own);
                         Value same = arith::CmpIOp::create(b, k.loc, arith::CmpIPredicate::eq, other, own);
                         Value tied = arith::AndIOp::create(b, k.loc, same, m.less(s, thread));
                         Value before = arith::OrIOp::create(b, k.loc, less, tied);
                         before = arith::IndexCastUIOp::create(b, k.loc, b.getIndexType(), before);
                         return SmallVector<Value>{m.add(carried[0], before)};
                       })[0];
  emitIf(b, k.loc, isThere, {}, [&] {
    put(m.add(m.mul(row, length), m.add(first, rank)), own, i);
    return SmallVector<Value>();
  });
}

void DeviceOrder::merges() {
  Value i = m.add(m.mul(k.block(), kThreads), k.thread());
  emitIf(b, k.loc, m.less(i, count), {}, [&] {
    Value row = m.mul(m.div(i, length), length), limit = m.add(row, length), pair = m.mul(run(), 2);
    Value start = m.add(row, m.mul(m.div(m.sub(i, row), pair), pair));
    Value middle = m.min(m.add(start, run()), limit), end = m.min(m.add(start, pair), limit);
    Value isFirst = m.less(i, middle), own = key(i);
    auto select = [&](Value x, Value y) -> Value { return arith::SelectOp::create(b, k.loc, isFirst, x, y); };
    // How far the other run's keys come before this one; equal ones do if theirs is the first run.
    Value low = select(middle, start), high = select(end, middle);
    auto search = scf::WhileOp::create(
        b, k.loc, TypeRange{b.getIndexType(), b.getIndexType()}, ValueRange{low, high},
        [&](OpBuilder &, Location, ValueRange at) { scf::ConditionOp::create(b, k.loc, m.less(at[0], at[1]), at); },
        [&](OpBuilder &, Location, ValueRange at) {
          PointEmitter::Scope scope(points);
          Value half = m.div(m.add(at[0], at[1]), m.constant(2)), other = key(half);
          Value less = arith::CmpIOp::create(b, k.loc, arith::CmpIPredicate::slt, other, own);
          Value notMore = arith::CmpIOp::create(b, k.loc, arith::CmpIPredicate::sle, other, own);
          Value before = select(less, notMore);
          Value next = arith::SelectOp::create(b, k.loc, before, m.add(half, m.constant(1)), at[0]);
          Value last = arith::SelectOp::create(b, k.loc, before, at[1], half);
          scf::YieldOp::create(b, k.loc, ValueRange{next, last});
        });
    // Of the first run: start + (i - start) + (found - middle); of the second: start + (i - middle) + (found - start).
    put(m.sub(m.add(i, search.getResult(0)), middle), own, thing(i));
    return SmallVector<Value>();
  });
}

LogicalResult disc::emitMerges(DeviceKernel &k, const SymExpr &rows, const SymExpr &length) {
  DeviceOrder(k, rows, length).merges();
  return success();
}
