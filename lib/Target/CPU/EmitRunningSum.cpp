//===- EmitRunningSum.cpp - sums of all elements up to each -----------------===//
//
//   disc_plan.kernel_func loop @cumsum { %r = disc_tensor.running_sum %x dim 1 ; disc_plan.yield %r }
//
// becomes, along the innermost dimension, a prefix sum of each vector in log2(V) steps, and one addition that waits for
// the vector before:
//
//   scf.for %row { scf.for %i step 16 iter_args(%carry) { %v += shift(%v, 1), shift(%v, 2), ... ; store %v + %carry } }
//
// Along an outer dimension the lanes run along the dimensions inside it, and each vector is added to the one before.
// Work is linear in the elements. The order of additions depends on nothing but the extents. What is carried from
// vector to vector is f64 for sums of f32, and f32 for those of shorter floats, as in PyTorch: else the error would
// grow with the number of elements.
//
// Lit test: test/lit/CPU/emit-running-sum.mlir.
//
//===----------------------------------------------------------------------===//

#include "dialects/Tensor/TensorDialect.h"
#include "lib/Target/CPU/EmitKernels.h"
#include "lib/Target/Common/KernelAccess.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace mlir::disc;

namespace {
class RunningSumEmitter {
public:
  explicit RunningSumEmitter(KernelEmission &e)
      : e(e), b(e.builder), loc(e.kernel.getLoc()), points(e.builder, e.kernel, e.args(), e.lanes(), e.shapes),
        op(e.kernel.getYield().getValues().front().getDefiningOp<RunningSumOp>()),
        elem(getElementTypeOrSelf(op.getType())), domain(e.shapes.dims(op.getResult())) {
    bool isShort = isa<FloatType>(elem) && elem.getIntOrFloatBitWidth() < 32;
    own = isShort ? b.getF32Type() : elem;
    wide = elem.isF32() ? b.getF64Type() : own;
  }

  LogicalResult run();

private:
  /// The sum of all blocks before: two floats that are added one after the other, or one null and the sum itself.
  struct Carry {
    Value low, high;
  };

  Value steps(Value to, int64_t step, function_ref<Value(Value i, Value before, Carry carry)> body);
  Carry split(Value carry);
  void alongMemory(ArrayRef<Idx> at);
  void alongOuter(ArrayRef<Idx> at, unsigned laneDim, Value first, Value left);
  Value prefix(Value v);
  Value sum(Value x, Value y) {
    return isa<FloatType>(own) ? arith::AddFOp::create(b, loc, x, y).getResult()
                               : arith::AddIOp::create(b, loc, x, y).getResult();
  }
  Value whole(Value v, Carry carry) {
    v = carry.low ? sum(v, carry.low) : v;
    return carry.high ? sum(v, carry.high) : v;
  }
  Value add(Value x, Value y) { return arith::AddIOp::create(b, loc, x, y); }
  Value sub(Value x, Value y) { return arith::SubIOp::create(b, loc, x, y); }
  Value zeros(Type type) { return points.constant(cast<TypedAttr>(b.getZeroAttr(points.vectorOf(type)))); }
  Value convert(Value v, Type type) {
    unsigned from = getElementTypeOrSelf(v).getIntOrFloatBitWidth(), to = type.getIntOrFloatBitWidth();
    if (from == to)
      return v;
    return from < to ? arith::ExtFOp::create(b, loc, points.vectorOf(type), v).getResult()
                     : arith::TruncFOp::create(b, loc, points.vectorOf(type), v).getResult();
  }
  Value load(ArrayRef<Idx> at, Value mask) {
    Value v = points.eval(op.getSource(), at, mask);
    ok &= bool(v);
    return v ? convert(points.splat(v), own) : zeros(own);
  }
  void store(ArrayRef<Idx> at, Value v, Value mask) { ok &= succeeded(points.store(0, at, convert(v, elem), mask)); }

  KernelEmission &e;
  OpBuilder &b;
  Location loc;
  PointEmitter points;
  RunningSumOp op;
  Type elem;
  Type own;  // of the sums in a vector
  Type wide; // of what is carried from block to block
  SmallVector<SymExpr> domain;
  bool ok = true;
};
} // namespace

/// The sum of each lane and those before it.
Value RunningSumEmitter::prefix(Value v) {
  int64_t lanes = e.lanes();
  for (int64_t s = 1; s < lanes; s *= 2) {
    SmallVector<int64_t> shift;
    for (int64_t l = 0; l < lanes; ++l)
      shift.push_back(l < s ? l : lanes + l - s);
    v = sum(v, vector::ShuffleOp::create(b, loc, zeros(own), v, shift));
  }
  return v;
}

RunningSumEmitter::Carry RunningSumEmitter::split(Value carry) {
  if (wide == own)
    return {Value(), carry};
  Value high = convert(carry, own);
  Value low = convert(arith::SubFOp::create(b, loc, carry, convert(high, wide)), own);
  // An infinite sum has no rest: the difference is not a number, or it is infinite.
  Value rest = arith::SubFOp::create(b, loc, low, low);
  Value isFinite = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OEQ, rest, zeros(own));
  return {arith::SelectOp::create(b, loc, isFinite, low, zeros(own)), high};
}

/// Runs `body` from 0 to `to`. It returns the sum of its block up to and with step `i`, from that before it. Returns
/// the sum of all.
Value RunningSumEmitter::steps(Value to, int64_t step, function_ref<Value(Value, Value, Carry)> body) {
  constexpr int64_t blockSteps = 32;
  Value zero = points.constantIndex(0), unit = points.constantIndex(step);
  auto within = [&](Value from, Value end, Value first, Carry carry) {
    return emitFor(b, loc, from, end, unit, {first}, [&](Value i, ValueRange before) {
      PointEmitter::Scope scope(points);
      return SmallVector<Value>{body(i, before[0], carry)};
    })[0];
  };
  if (wide == own)
    return within(zero, to, zeros(own), {});
  Value block = points.constantIndex(blockSteps * step);
  return emitFor(b, loc, zero, to, block, {zeros(wide)}, [&](Value i, ValueRange carried) {
    PointEmitter::Scope scope(points);
    Value end = arith::MinSIOp::create(b, loc, add(i, block), to);
    Value total = within(i, end, zeros(own), split(carried[0]));
    return SmallVector<Value>{sum(carried[0], convert(total, wide))};
  })[0];
}

void RunningSumEmitter::alongMemory(ArrayRef<Idx> row) {
  int64_t lanes = e.lanes();
  unsigned dim = op.getDim();
  Value extent = points.expr(domain[dim]);
  auto step = [&](Value i, Value before, Carry carry, Value mask) {
    SmallVector<Idx> at(row);
    at[dim] = Idx(i, true, 1, lanes);
    Value v = load(at, mask);
    if (mask)
      v = arith::SelectOp::create(b, loc, mask, v, zeros(own));
    v = prefix(v);
    store(at, whole(before ? sum(v, before) : v, carry), mask);
    // Not the last lane of what was stored: then each vector would wait for all of the one before.
    Value total =
        vector::BroadcastOp::create(b, loc, points.vectorOf(own), vector::ExtractOp::create(b, loc, v, lanes - 1));
    return before ? sum(before, total) : total;
  };
  Value vectors = sub(extent, arith::RemUIOp::create(b, loc, extent, points.constantIndex(lanes)));
  Value carry =
      steps(vectors, lanes, [&](Value i, Value before, Carry carry) { return step(i, before, carry, Value()); });
  Value left = sub(extent, vectors);
  Value some = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sgt, left, points.constantIndex(0));
  emitIf(b, loc, some, {}, [&] {
    PointEmitter::Scope scope(points);
    step(vectors, Value(), split(carry), points.tailMask(left));
    return SmallVector<Value>();
  });
}

/// One vector of columns, from `first`; `left` of them are there.
void RunningSumEmitter::alongOuter(ArrayRef<Idx> outer, unsigned laneDim, Value first, Value left) {
  unsigned dim = op.getDim();
  Value mask = points.tailMask(left);
  steps(points.expr(domain[dim]), 1, [&](Value i, Value before, Carry carry) {
    SmallVector<Idx> at(outer);
    at[dim] = Idx(i);
    at[laneDim] = Idx(first, true);
    Value v = sum(before, load(at, mask));
    store(at, whole(v, carry), mask);
    return v;
  });
}

LogicalResult RunningSumEmitter::run() {
  unsigned dim = op.getDim();
  KernelAccess access(e.kernel, e.shapes, domain);
  access.read(op.getSource(), access.identity());
  access.write(0, access.identity());
  SmallVector<MergedDims> outer = access.mergedRuns(0, dim), inner = access.mergedRuns(dim + 1, domain.size());
  SmallVector<SymExpr> extents;
  std::optional<MergedDims> lanes;
  if (!inner.empty())
    lanes = inner.pop_back_val();
  llvm::append_range(outer, inner);
  for (const MergedDims &run : outer)
    extents.push_back(run.extent);
  Value vector = points.constantIndex(e.lanes());
  if (lanes)
    extents.push_back(SymExpr::ceilDiv(lanes->extent, SymExpr(e.lanes())));

  // The schedule's tasks are chunks of elements; as many chunks of rows (or vectors of columns) make the same work.
  ExprAttr given = e.kernel.getTasksAttr();
  Value tasks = points.expr(given ? given.getValue() : SymExpr(1)), count = points.expr(SymExpr::product(extents));
  auto share = [&](Value task) {
    Value index = arith::IndexCastOp::create(b, loc, b.getIndexType(), task);
    return arith::DivUIOp::create(b, loc, arith::MulIOp::create(b, loc, index, count), tasks).getResult();
  };
  emitRowMajor(points, share(e.begin()), share(e.end()), extents, [&](Value, ValueRange at) {
    SmallVector<Idx> point(domain.size(), points.uniform(0));
    for (auto [run, i] : llvm::zip(outer, at))
      point[run.innermost] = Idx(i);
    if (!lanes)
      return alongMemory(point);
    Value first = arith::MulIOp::create(b, loc, at.back(), vector);
    Value left = arith::MinSIOp::create(b, loc, sub(points.expr(lanes->extent), first), vector);
    alongOuter(point, lanes->innermost, first, left);
  });
  return success(ok);
}

LogicalResult mlir::disc::emitRunningSum(KernelEmission &e) { return RunningSumEmitter(e).run(); }
