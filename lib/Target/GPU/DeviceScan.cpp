//===- DeviceScan.cpp - what all elements up to each make, on devices -------===//
//
//   disc_plan.kernel_func loop @cumsum { %r = disc_tensor.running_sum %x dim 1 ; disc_plan.yield %r }
//
// Lines along the innermost dimension have a block each, which takes as many elements at a time as it has threads:
//
//   scf.for %i = 0 to N step 256 iter_args(%carry) {
//     sums up to each thread of its warp, by shuffles; totals of warps through memory of the block
//     store %carry + totals of earlier warps + the warp's sum
//   }
//
// Along an outer dimension neighbouring threads have neighbouring lines, and each adds up its own.
//
// The function "cumulative" is the same with products, extrema or sums of exponentials in place of sums.
//
// Lit test: test/lit/GPU/running-sum.mlir, functions.mlir.
//
//===----------------------------------------------------------------------===//

#include "dialects/Tensor/TensorDialect.h"
#include "lib/Runtime/Core/ModelInfo.h"
#include "lib/Target/GPU/DeviceFunctions.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace mlir::disc;

namespace {
class DeviceScan {
public:
  /// What some elements make: one value or more.
  using State = SmallVector<Value>;

  DeviceScan(DeviceKernel &k, Value result, unsigned dim)
      : k(k), b(k.b), m(k.m), points(k.points(1)), domain(k.shapes.dims(result)), dim(dim) {}
  virtual ~DeviceScan() = default;

  /// With a block for each line, or a thread.
  LogicalResult emit(bool shared);

protected:
  /// Of no elements.
  virtual State identity() = 0;
  virtual State load(ArrayRef<Idx> at) = 0;
  /// Of neighbouring elements, the earlier ones first.
  virtual State combine(const State &x, const State &y) = 0;
  virtual LogicalResult store(ArrayRef<Idx> at, const State &v) = 0;

  Value select(Value condition, Value x, Value y) { return arith::SelectOp::create(b, k.loc, condition, x, y); }
  State select(Value condition, const State &x, const State &y) {
    State out;
    for (auto [a, c] : llvm::zip(x, y))
      out.push_back(select(condition, a, c));
    return out;
  }
  Value eval(Value tensor, ArrayRef<Idx> at) {
    Value v = points.eval(tensor, at);
    ok &= bool(v);
    return v ? v : points.constant(cast<TypedAttr>(b.getZeroAttr(getElementTypeOrSelf(tensor.getType()))));
  }

  DeviceKernel &k;
  OpBuilder &b;
  IndexMath &m;
  PointEmitter points;

private:
  void alongBlock(ArrayRef<Idx> line, Value extent);
  void alongThread(ArrayRef<Idx> line, Value extent);

  SmallVector<SymExpr> domain;
  unsigned dim;
  bool ok = true;
};

class RunningSum : public DeviceScan {
public:
  RunningSum(DeviceKernel &k, RunningSumOp op)
      : DeviceScan(k, op.getResult(), op.getDim()), op(op), elem(getElementTypeOrSelf(op.getType())) {}

private:
  State identity() override { return {points.constant(cast<TypedAttr>(b.getZeroAttr(elem)))}; }
  State load(ArrayRef<Idx> at) override { return {eval(op.getSource(), at)}; }
  State combine(const State &x, const State &y) override {
    return {isa<FloatType>(elem) ? arith::AddFOp::create(b, k.loc, x[0], y[0]).getResult()
                                 : arith::AddIOp::create(b, k.loc, x[0], y[0]).getResult()};
  }
  LogicalResult store(ArrayRef<Idx> at, const State &v) override { return points.store(0, at, v[0]); }

  RunningSumOp op;
  Type elem;
};

/// As lib/Runtime/Functions/Cumulative.cpp has them.
enum class Cumulation : int64_t { Sum, Product, Maximum, Minimum, LogSumExp };

/// Half floats are folded as f32. Extrema go with the place of the last element that is it; NaN wins.
class Cumulative : public DeviceScan {
public:
  Cumulative(DeviceKernel &k, CallFunctionOp op, Cumulation what, bool isUnsigned)
      : DeviceScan(k, op.getOutputs()[0], cast<RankedTensorType>(op.getOutputs()[0].getType()).getRank() - 1), op(op),
        what(what), isUnsigned(isUnsigned), elem(getElementTypeOrSelf(op.getOutputs()[0].getType())),
        compute(elem.isF16() || elem.isBF16() ? b.getF32Type() : elem) {}

private:
  bool isExtremum() const { return what == Cumulation::Maximum || what == Cumulation::Minimum; }
  bool isFloat() const { return isa<FloatType>(compute); }

  State identity() override;
  State load(ArrayRef<Idx> at) override;
  State combine(const State &x, const State &y) override;
  LogicalResult store(ArrayRef<Idx> at, const State &v) override;
  Value fold(Value x, Value y);
  Value logAddExp(Value x, Value y);

  CallFunctionOp op;
  Cumulation what;
  bool isUnsigned;
  Type elem, compute;
};
} // namespace

LogicalResult DeviceScan::emit(bool shared) {
  SmallVector<Value> extents;
  SymExpr lines(1);
  for (auto [d, extent] : llvm::enumerate(domain))
    if (d != dim) {
      extents.push_back(points.expr(extent));
      lines *= extent;
    }
  Value line = shared ? k.block() : m.add(m.mul(k.block(), m.constant(k.threads())), k.thread());
  auto emitLine = [&] {
    PointEmitter::Scope scope(points);
    SmallVector<Value> at = m.delinearize(line, extents);
    SmallVector<Idx> point;
    for (unsigned d = 0, next = 0; d < domain.size(); ++d)
      point.push_back(d == dim ? points.uniform(int64_t(0)) : Idx(at[next++]));
    Value extent = points.expr(domain[dim]);
    shared ? alongBlock(point, extent) : alongThread(point, extent);
  };
  if (shared) {
    emitLine();
    return success(ok);
  }
  auto some = scf::IfOp::create(b, k.loc, m.less(line, points.expr(lines)), /*withElseRegion=*/false);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(some.thenBlock());
  emitLine();
  return success(ok);
}

void DeviceScan::alongThread(ArrayRef<Idx> line, Value extent) {
  emitFor(b, k.loc, m.constant(0), extent, m.constant(1), identity(), [&](Value i, ValueRange carried) {
    PointEmitter::Scope scope(points);
    SmallVector<Idx> at(line);
    at[dim] = Idx(i);
    State v = combine(State(carried), load(at));
    ok &= succeeded(store(at, v));
    return v;
  });
}

void DeviceScan::alongBlock(ArrayRef<Idx> line, Value extent) {
  int64_t threads = k.threads(), warps = threads / k.warp;
  Value thread = k.thread(), width = m.constant(k.warp), lane = m.rem(thread, width), warp = m.div(thread, width);
  State none = identity();
  SmallVector<Value> totals = llvm::map_to_vector(none, [&](Value v) { return k.shared(v.getType(), warps); });
  Value last = m.sub(extent, m.constant(1));
  emitFor(b, k.loc, m.constant(0), extent, m.constant(threads), none, [&](Value start, ValueRange carried) {
    PointEmitter::Scope scope(points);
    Value i = m.add(start, thread), inside = m.less(i, extent);
    SmallVector<Idx> at(line);
    at[dim] = Idx(m.min(i, last));
    State own = select(inside, load(at), none);
    for (int64_t s = 1; s < k.warp; s *= 2) {
      State before = llvm::map_to_vector(own, [&](Value v) { return k.shuffle(v, s, gpu::ShuffleMode::UP); });
      own = select(m.less(lane, m.constant(s)), own, combine(before, own));
    }
    auto ends = scf::IfOp::create(b, k.loc, m.equal(lane, m.constant(k.warp - 1)), /*withElseRegion=*/false);
    {
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToStart(ends.thenBlock());
      for (auto [memory, v] : llvm::zip(totals, own))
        k.storeShared(memory, v, warp);
    }
    k.barrier();
    State before(carried), all(carried);
    for (int64_t w = 0; w < warps; ++w) {
      State total;
      for (auto [memory, v] : llvm::zip(totals, none))
        total.push_back(k.loadShared(memory, v.getType(), m.constant(w)));
      all = combine(all, total);
      before = select(m.less(m.constant(w), warp), all, before);
    }
    k.barrier();
    auto branch = scf::IfOp::create(b, k.loc, inside, /*withElseRegion=*/false);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(branch.thenBlock());
    PointEmitter::Scope inner(points);
    at[dim] = Idx(i);
    ok &= succeeded(store(at, combine(before, own)));
    return all;
  });
}

DeviceScan::State Cumulative::identity() {
  auto number = [&](TypedAttr value) { return points.constant(value); };
  Value none;
  if (isFloat()) {
    auto kind = cast<FloatType>(compute);
    const llvm::fltSemantics &semantics = kind.getFloatSemantics();
    APFloat value = what == Cumulation::Sum       ? APFloat::getZero(semantics)
                    : what == Cumulation::Product ? APFloat::getOne(semantics)
                                                  : APFloat::getInf(semantics, what != Cumulation::Minimum);
    none = number(FloatAttr::get(kind, value));
  } else {
    unsigned width = compute.getIntOrFloatBitWidth();
    bool largest = what == Cumulation::Minimum;
    APInt value = what == Cumulation::Sum       ? APInt(width, 0)
                  : what == Cumulation::Product ? APInt(width, 1)
                  : isUnsigned ? (largest ? APInt::getMaxValue(width) : APInt::getMinValue(width))
                               : (largest ? APInt::getSignedMaxValue(width) : APInt::getSignedMinValue(width));
    none = number(IntegerAttr::get(compute, value));
  }
  if (!isExtremum())
    return {none};
  return {none, number(b.getI64IntegerAttr(0))};
}

DeviceScan::State Cumulative::load(ArrayRef<Idx> at) {
  Value v = eval(op.getInputs()[0], at);
  if (v.getType() != compute)
    v = arith::ExtFOp::create(b, k.loc, compute, v);
  if (!isExtremum())
    return {v};
  return {v, m.i64(at.back().base)};
}

Value Cumulative::logAddExp(Value x, Value y) {
  Value low = arith::MinimumFOp::create(b, k.loc, x, y), high = arith::MaximumFOp::create(b, k.loc, x, y);
  Value ratio = math::ExpOp::create(b, k.loc, arith::SubFOp::create(b, k.loc, low, high));
  Value sum = arith::AddFOp::create(b, k.loc, math::Log1pOp::create(b, k.loc, ratio), high);
  // Equal infinities have no difference.
  auto kind = cast<FloatType>(compute);
  Value infinity = points.constant(FloatAttr::get(kind, APFloat::getInf(kind.getFloatSemantics())));
  Value same = arith::CmpFOp::create(b, k.loc, arith::CmpFPredicate::OEQ, low, high);
  Value size = math::AbsFOp::create(b, k.loc, low);
  Value isInfinite = arith::CmpFOp::create(b, k.loc, arith::CmpFPredicate::OEQ, size, infinity);
  return select(arith::AndIOp::create(b, k.loc, same, isInfinite), x, sum);
}

Value Cumulative::fold(Value x, Value y) {
  bool isBool = compute.isInteger(1);
  if (what == Cumulation::LogSumExp)
    return logAddExp(x, y);
  if (what == Cumulation::Sum)
    return isFloat() ? arith::AddFOp::create(b, k.loc, x, y).getResult()
           : isBool  ? arith::OrIOp::create(b, k.loc, x, y).getResult()
                     : arith::AddIOp::create(b, k.loc, x, y).getResult();
  return isFloat() ? arith::MulFOp::create(b, k.loc, x, y).getResult()
                   : arith::MulIOp::create(b, k.loc, x, y).getResult();
}

DeviceScan::State Cumulative::combine(const State &x, const State &y) {
  if (!isExtremum())
    return {fold(x[0], y[0])};
  bool largest = what == Cumulation::Maximum;
  Value later;
  if (isFloat()) {
    Value beats =
        arith::CmpFOp::create(b, k.loc, largest ? arith::CmpFPredicate::OGE : arith::CmpFPredicate::OLE, y[0], x[0]);
    later =
        arith::OrIOp::create(b, k.loc, beats, arith::CmpFOp::create(b, k.loc, arith::CmpFPredicate::UNO, y[0], y[0]));
  } else {
    using P = arith::CmpIPredicate;
    P predicate = isUnsigned ? (largest ? P::uge : P::ule) : (largest ? P::sge : P::sle);
    later = arith::CmpIOp::create(b, k.loc, predicate, y[0], x[0]);
  }
  return select(later, y, x);
}

LogicalResult Cumulative::store(ArrayRef<Idx> at, const State &v) {
  Value value = v[0];
  if (value.getType() != elem)
    value = arith::TruncFOp::create(b, k.loc, elem, value);
  if (failed(points.store(0, at, value)))
    return failure();
  return isExtremum() ? points.store(1, at, v[1]) : success();
}

LogicalResult disc::emitDeviceRunningSum(DeviceKernel &k) {
  auto op = k.kernel.getYield().getValues().front().getDefiningOp<RunningSumOp>();
  if (!op)
    return k.kernel.emitError("a kernel with a running sum must yield it");
  return RunningSum(k, op).emit(k.schedule<DeviceSumScheduleAttr>().getLineThreads() > 1);
}

namespace {
class DeviceCumulative : public DeviceFunction {
public:
  DeviceCumulative(CallFunctionOp op, ShapeAnalysis &shapes, Cumulation what, bool isUnsigned)
      : DeviceFunction(op, shapes), what(what), isUnsigned(isUnsigned) {}

  SymExpr blocks() override { return SymExpr::product(ArrayRef(shapes.dims(op.getOutputs()[0])).drop_back()); }
  LogicalResult emit(DeviceKernel &k) override { return Cumulative(k, op, what, isUnsigned).emit(/*shared=*/true); }

private:
  Cumulation what;
  bool isUnsigned;
};
} // namespace

std::unique_ptr<DeviceFunction> disc::makeDeviceCumulative(CallFunctionOp op, ShapeAnalysis &shapes) {
  SymExpr dtype = shapes.expr(op.getConfig()[0]), what = shapes.expr(op.getConfig()[1]);
  if (!dtype.isConstant() || !what.isConstant() || what.constant() < 0 ||
      what.constant() > int64_t(Cumulation::LogSumExp))
    return nullptr;
  auto cumulation = Cumulation(what.constant());
  bool isExtremum = cumulation == Cumulation::Maximum || cumulation == Cumulation::Minimum;
  bool isFloat = isa<FloatType>(getElementTypeOrSelf(op.getOutputs()[0].getType()));
  if ((isExtremum && op.getOutputs().size() < 2) || (cumulation == Cumulation::LogSumExp && !isFloat))
    return nullptr;
  bool isUnsigned = dtype.constant() == DISC_U8 || dtype.constant() == DISC_BOOL;
  return std::make_unique<DeviceCumulative>(op, shapes, cumulation, isUnsigned);
}
