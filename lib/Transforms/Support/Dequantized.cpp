//===- Dequantized.cpp - tensors that stand for codes ---------------------===//

#include "lib/Transforms/Support/Dequantized.h"

#include "dialects/Plan/PlanDialect.h"
#include "dialects/Tensor/TensorDialect.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/IR/Matchers.h"
#include <cmath>

using namespace mlir;
using namespace mlir::disc;

std::optional<double> PointOperand::value() const {
  if (auto real = dyn_cast_if_present<FloatAttr>(number))
    return real.getValueAsDouble();
  if (auto whole = dyn_cast_if_present<IntegerAttr>(number))
    return isUnsigned ? double(whole.getValue().getZExtValue()) : double(whole.getValue().getSExtValue());
  return std::nullopt;
}

bool PointOperand::isWhole() const {
  if (tensor)
    return getElementTypeOrSelf(tensor.getType()).isInteger();
  return value() && *value() == std::nearbyint(*value());
}

Value disc::behindKernel(Value value) {
  for (;;) {
    if (auto arg = dyn_cast<BlockArgument>(value)) {
      auto kernel = dyn_cast<KernelOp>(arg.getOwner()->getParentOp());
      if (!kernel)
        return value;
      value = kernel.getInputs()[arg.getArgNumber()];
    } else if (auto kernel = value.getDefiningOp<KernelOp>()) {
      value = kernel.getYield().getValues()[cast<OpResult>(value).getResultNumber()];
    } else {
      return value;
    }
  }
}

namespace {
/// A scalar in the body of `op`, whose loops are at `at` of the dequantised tensor's dimensions.
struct Scalar {
  Value value;
  linalg::GenericOp op;
  AffineMap at;

  Scalar with(Value other) const { return {other, op, at}; }
};

/// The computation at points that gives `tensor`; null if it is something else.
linalg::GenericOp elementwise(Value tensor) {
  auto op = tensor.getDefiningOp<linalg::GenericOp>();
  bool ok = op && op->getNumResults() == 1 && op.getNumReductionLoops() == 0 &&
            op.getIndexingMapsArray().back().isPermutation();
  return ok ? op : linalg::GenericOp();
}

/// Where the loops of such a computation are for an element of its result.
AffineMap loopsAt(linalg::GenericOp op) { return inversePermutation(op.getIndexingMapsArray().back()); }

/// Where the scalar is computed that is read as the block argument `x`; nothing if that is no computation at points.
std::optional<Scalar> producer(Scalar x) {
  auto arg = dyn_cast<BlockArgument>(x.value);
  if (!arg || arg.getOwner() != x.op.getBody())
    return std::nullopt;
  OpOperand &operand = x.op->getOpOperand(arg.getArgNumber());
  linalg::GenericOp from = elementwise(behindKernel(operand.get()));
  if (!from || x.op.isDpsInit(&operand))
    return std::nullopt;
  AffineMap at = loopsAt(from).compose(x.op.getMatchingIndexingMap(&operand).compose(x.at));
  return Scalar{from.getBody()->getTerminator()->getOperand(0), from, at};
}

/// The scalar without conversions between float types.
Scalar converted(Scalar x) {
  while (Operation *def = x.value.getDefiningOp()) {
    if (!isa<arith::ExtFOp, arith::TruncFOp>(def))
      break;
    x.value = def->getOperand(0);
  }
  return x;
}

/// The same, followed into the computations that it is read from.
Scalar source(Scalar x) {
  for (;;) {
    x = converted(x);
    std::optional<Scalar> from = producer(x);
    if (!from)
      return x;
    x = *from;
  }
}

/// The scalar as a number, or as an element of a tensor: of one that the host flow has, if a kernel only converts or
/// moves what it reads.
PointOperand leaf(Scalar x, bool isUnsigned) {
  TypedAttr number;
  if (matchPattern(x.value, m_Constant(&number)))
    return {Value(), AffineMap(), number, isUnsigned};
  auto arg = dyn_cast<BlockArgument>(x.value);
  if (!arg || arg.getOwner() != x.op.getBody())
    return {};
  OpOperand &operand = x.op->getOpOperand(arg.getArgNumber());
  if (!isa<RankedTensorType>(operand.get().getType()) || x.op.isDpsInit(&operand))
    return {};
  Value tensor = operand.get();
  for (auto read = dyn_cast<BlockArgument>(tensor); read; read = dyn_cast<BlockArgument>(tensor)) {
    auto kernel = dyn_cast<KernelOp>(read.getOwner()->getParentOp());
    if (!kernel)
      break;
    tensor = kernel.getInputs()[read.getArgNumber()];
  }
  if (Operation *def = tensor.getDefiningOp(); def && isa<KernelOp>(def->getParentOp())) {
    std::optional<Scalar> from = producer(x);
    if (PointOperand outside = from ? leaf(converted(*from), isUnsigned) : PointOperand(); outside && !outside.isInside)
      return outside;
    return {tensor, x.op.getMatchingIndexingMap(&operand).compose(x.at), TypedAttr(), isUnsigned, /*isInside=*/true};
  }
  return {tensor, x.op.getMatchingIndexingMap(&operand).compose(x.at), TypedAttr(), isUnsigned};
}

/// An integer behind conversions to wider ones, read where it is first in memory.
PointOperand integer(Scalar x, bool isUnsigned) {
  if (Operation *def = x.value.getDefiningOp(); isa_and_present<arith::ExtSIOp, arith::ExtUIOp>(def))
    return integer(x.with(def->getOperand(0)), isa<arith::ExtUIOp>(def));
  if (std::optional<Scalar> from = producer(x))
    if (PointOperand found = integer(*from, isUnsigned))
      return found;
  return leaf(x, isUnsigned);
}

std::optional<int64_t> constant(Value v) {
  APInt value;
  if (v && matchPattern(v, m_ConstantInt(&value)))
    return value.getSExtValue();
  return std::nullopt;
}

/// check_index(x - low) + low: x, known to lie in a range.
Scalar behindCheck(Scalar x, Dequantized &out) {
  auto back = x.value.getDefiningOp<arith::AddIOp>();
  auto check = back ? back.getLhs().getDefiningOp<CheckIndexOp>() : x.value.getDefiningOp<CheckIndexOp>();
  if (!check || check.getWrap())
    return x;
  std::optional<int64_t> low = back ? constant(back.getRhs()) : 0, extent = constant(check.getExtent());
  Value inner = check.getIndex();
  if (back) {
    auto shift = inner.getDefiningOp<arith::AddIOp>();
    std::optional<int64_t> by = shift ? constant(shift.getRhs()) : std::nullopt;
    if (!low || !by || *by != -*low)
      return x;
    inner = shift.getLhs();
  }
  if (!extent)
    return x;
  out.check = check, out.low = *low, out.high = *low + *extent - 1;
  return x.with(inner);
}

bool isCode(const PointOperand &operand) {
  return operand.tensor && getElementTypeOrSelf(operand.tensor.getType()).isIntOrIndex() &&
         getElementTypeOrSelf(operand.tensor.getType()).getIntOrFloatBitWidth() <= 8 &&
         getElementTypeOrSelf(operand.tensor.getType()).getIntOrFloatBitWidth() > 1;
}

/// code, or code - zero, in integers.
bool shiftedInteger(Scalar x, bool isUnsigned, Dequantized &out) {
  if (auto sub = x.value.getDefiningOp<arith::SubIOp>()) {
    // A difference of bytes in bytes wraps.
    if (sub.getType().getIntOrFloatBitWidth() <= 8)
      return false;
    out.codes = integer(behindCheck(x.with(sub.getLhs()), out), isUnsigned);
    out.zero = integer(x.with(sub.getRhs()), isUnsigned);
    return isCode(out.codes) && bool(out.zero);
  }
  out.codes = integer(behindCheck(x, out), isUnsigned);
  if (isCode(out.codes))
    return true;
  // The difference may have a computation of its own.
  std::optional<Scalar> from = producer(x);
  return from && shiftedInteger(*from, isUnsigned, out);
}

/// A float that stands for an integer, or is one of a tensor.
PointOperand number(Scalar x) {
  x = converted(x);
  Operation *def = x.value.getDefiningOp();
  if (isa_and_present<arith::SIToFPOp, arith::UIToFPOp>(def))
    return integer(x.with(def->getOperand(0)), isa<arith::UIToFPOp>(def));
  return leaf(x, false);
}

/// code, or code - zero.
bool shifted(Scalar x, Dequantized &out) {
  x = source(x);
  Operation *def = x.value.getDefiningOp();
  if (auto sub = dyn_cast_if_present<arith::SubFOp>(def)) {
    Dequantized inner;
    if (!shifted(x.with(sub.getLhs()), inner) || inner.zero)
      return false;
    out = inner;
    out.zero = number(x.with(sub.getRhs()));
    return bool(out.zero);
  }
  if (!isa_and_present<arith::SIToFPOp, arith::UIToFPOp>(def))
    return false;
  return shiftedInteger(x.with(def->getOperand(0)), isa<arith::UIToFPOp>(def), out);
}

bool scaled(Scalar x, Dequantized &out) {
  x = source(x);
  if (auto mul = x.value.getDefiningOp<arith::MulFOp>())
    for (bool swap : {false, true}) {
      Dequantized factor;
      if (!shifted(x.with(swap ? mul.getRhs() : mul.getLhs()), factor))
        continue;
      out = factor;
      out.scale = leaf(converted(x.with(swap ? mul.getLhs() : mul.getRhs())), false);
      return bool(out.scale);
    }
  return shifted(x, out);
}
} // namespace

Value disc::behindConversion(Value value) {
  linalg::GenericOp op = elementwise(behindKernel(value));
  if (!op)
    return {};
  AffineMap at = loopsAt(op);
  auto arg = dyn_cast<BlockArgument>(converted({op.getBody()->getTerminator()->getOperand(0), op, at}).value);
  if (!arg || arg.getOwner() != op.getBody())
    return {};
  OpOperand &operand = op->getOpOperand(arg.getArgNumber());
  bool isWhole = !op.isDpsInit(&operand) && op.getMatchingIndexingMap(&operand) == op.getIndexingMapsArray().back();
  return isWhole ? behindKernel(operand.get()) : Value();
}

/// Whether the codes are all the elements, one each: dimensions of one element may be left out.
static bool isOneToOne(AffineMap map, RankedTensorType type) {
  if (!map.isProjectedPermutation())
    return false;
  for (int64_t d = 0; d < type.getRank(); ++d)
    if (!map.isFunctionOfDim(d) && type.getDimSize(d) != 1)
      return false;
  return true;
}

std::optional<Dequantized> Dequantized::match(Value value) {
  linalg::GenericOp op = elementwise(behindKernel(value));
  if (!op)
    return std::nullopt;
  AffineMap at = loopsAt(op);
  Dequantized out;
  Scalar point{op.getBody()->getTerminator()->getOperand(0), op, at};
  bool isFloat = isa<FloatType>(getElementTypeOrSelf(value.getType()));
  if (!(isFloat ? scaled(point, out) : shiftedInteger(point, false, out)) ||
      !isOneToOne(out.codes.map, cast<RankedTensorType>(value.getType())))
    return std::nullopt;
  return out;
}
