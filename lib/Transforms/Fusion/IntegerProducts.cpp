//===- IntegerProducts.cpp - products of codes ----------------------------===//
//
//   %x = linalg.generic ins(%a : tensor<?x64xi8>, %s : tensor<?x1xf32>) ... a * s         // activations
//   %w = linalg.generic ins(%b : tensor<128x64xi8>, %t : tensor<128xf32>) ... b * t       // weights
//   %y = linalg.generic {...contraction...} ins(%x, %w) ... x * w, summed in f32
// becomes
//   %p = linalg.generic {...contraction...} ins(%a, %b) ... a * b, summed in i32
//   %y = linalg.generic ins(%p, %s, %t) ... p * s * t
//
// A product of two quantised tensors whose scales do not change along the depth is a product of their codes: exact sums
// of bytes instead of rounded ones of floats. Zero points cost two more sums:
//
//   sum (a - z)(b - y) = sum a b  -  z sum b  -  y sum a  +  depth z y
//
// The sums over weights are known at load. Everything stays below 2^31, which the depth's range must show; arithmetic
// modulo 2^32 then gives the exact sum. Zero points that are wider than codes are checked when the model runs.
//
// Each layer of a model quantises its own input: products of one tensor, such as queries, keys and values, each have
// codes of it. Those that are computed in the same way become one, so that products that read them can share a kernel.
//
// Test: test/lit/Fusion/integer-products.mlir
//
//===----------------------------------------------------------------------===//

#include "lib/Transforms/Fusion/Passes.h"

#include "dialects/Tensor/TensorDialect.h"
#include "lib/Transforms/Support/Dequantized.h"
#include "lib/Transforms/Support/HostFlow.h"
#include "lib/Transforms/Support/NamedDims.h"
#include "lib/Transforms/Support/ShapeAnalysis.h"
#include "lib/Transforms/Support/SourceLine.h"
#include "lib/Transforms/Support/ViewLayout.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"

namespace mlir::disc {
#define GEN_PASS_DEF_INTEGERPRODUCTS
#include "lib/Transforms/Fusion/Passes.h.inc"
} // namespace mlir::disc

using namespace mlir;
using namespace mlir::disc;

namespace {
/// Zero points that are wider than codes are checked to be at most this far from 0.
constexpr int64_t maxZero = 255;

/// An operand of a product, as codes.
struct Factor {
  Dequantized from;
  SmallVector<Operation *> views; // from what is dequantised to the operand, last first
  AffineMap map;                  // of the operand
  AffineMap codesMap;             // of the codes
  bool isKnown = false;           // the codes are, at load

  bool hasZero() const { return from.zero && !from.zero.isZero(); }
  /// What |code - zero| can be.
  int64_t bound() const {
    if (!hasZero())
      return from.codes.isUnsigned ? 255 : 128;
    return 255 + (isNarrow(from.zero) ? 255 : maxZero);
  }
  /// Integers of at most 8 bits.
  static bool isNarrow(const PointOperand &zero) {
    return zero.tensor && getElementTypeOrSelf(zero.tensor.getType()).getIntOrFloatBitWidth() <= 8;
  }
};

class Rewriter {
public:
  Rewriter(linalg::GenericOp op, ShapeAnalysis &shapes) : op(op), shapes(shapes), b(op) {}

  void run();

private:
  std::optional<Factor> factor(unsigned index);
  bool isParallel(const PointOperand &operand, const Factor &of);
  Value codes(const Factor &factor);
  Value sumOverDepth(const Factor &factor, Value codes, std::optional<double> times);
  AffineMap overResult(AffineMap map, const Factor &of);
  Value zeroOf(const Factor &factor);
  SymExpr loopSize(unsigned loop);
  Value generic(ValueRange inputs, ArrayRef<AffineMap> maps, ArrayRef<utils::IteratorType> iterators,
                ArrayRef<SymExpr> dims, Type element, bool sums,
                function_ref<Value(OpBuilder &, Location, ValueRange)> body);
  Location loc() { return op.getLoc(); }

  linalg::GenericOp op;
  ShapeAnalysis &shapes;
  OpBuilder b;
};
} // namespace

/// Whether `v` is a parameter, or a view of one.
static bool isParameter(Value v) { return isa_and_present<ParameterOp>(viewBase(v).getDefiningOp()); }

/// Makes `operand`, over the dimensions that views start from, one over those of the last; false if that cannot be.
static bool throughViews(PointOperand &operand, ArrayRef<Operation *> views) {
  if (!operand.tensor || views.empty())
    return true;
  SmallVector<AffineExpr> at;
  for (AffineExpr e : operand.map.getResults()) {
    auto dim = dyn_cast<AffineDimExpr>(e);
    if (!dim) {
      at.push_back(e);
      continue;
    }
    std::optional<SmallVector<unsigned>> dims = dimsThroughViews(views, dim.getPosition());
    if (!dims || dims->size() > 1)
      return false;
    at.push_back(dims->empty() ? getAffineConstantExpr(0, e.getContext())
                               : getAffineDimExpr(dims->front(), e.getContext()));
  }
  operand.map = AffineMap::get(cast<RankedTensorType>(views.front()->getResult(0).getType()).getRank(), 0, at,
                               operand.map.getContext());
  return true;
}

/// Whether the operand stays the same along the depth.
bool Rewriter::isParallel(const PointOperand &operand, const Factor &of) {
  if (!operand.tensor)
    return true;
  return llvm::all_of(operand.map.getResults(), [&](AffineExpr e) {
    if (isa<AffineConstantExpr>(e))
      return true;
    auto dim = dyn_cast<AffineDimExpr>(e);
    if (!dim)
      return false;
    auto loop = dyn_cast<AffineDimExpr>(of.map.getResult(dim.getPosition()));
    return loop && op.getIteratorTypesArray()[loop.getPosition()] == utils::IteratorType::parallel;
  });
}

std::optional<Factor> Rewriter::factor(unsigned index) {
  Factor out;
  OpOperand *operand = op.getDpsInputOperand(index);
  out.map = op.getMatchingIndexingMap(operand);
  Value base = operand->get();
  while (isa_and_present<PermuteOp, ReshapeOp>(base.getDefiningOp())) {
    out.views.push_back(base.getDefiningOp());
    base = base.getDefiningOp()->getOperand(0);
  }
  bool isFloat = isa<FloatType>(getElementTypeOrSelf(op.getResult(0).getType()));
  if (!isFloat && getElementTypeOrSelf(base.getType()).isInteger(8)) {
    // The product widens codes by itself.
    BlockArgument arg = op.getMatchingBlockArgument(operand);
    out.from.codes = {base, b.getMultiDimIdentityMap(cast<RankedTensorType>(base.getType()).getRank()), TypedAttr(),
                      llvm::any_of(arg.getUsers(), llvm::IsaPred<arith::ExtUIOp>)};
  } else if (std::optional<Dequantized> from = Dequantized::match(base)) {
    out.from = *from;
  } else {
    return std::nullopt;
  }
  if (!out.from.codes.map.isPermutation() || (!out.views.empty() && !out.from.codes.map.isIdentity()))
    return std::nullopt;
  out.codesMap = out.views.empty() ? out.from.codes.map.compose(out.map) : out.map;
  for (PointOperand *number : {&out.from.scale, &out.from.zero})
    if (!throughViews(*number, out.views) || !isParallel(*number, out))
      return std::nullopt;
  // Zero points that are numbers are small integers; other numbers are not zero points.
  const PointOperand &zero = out.from.zero;
  if (zero && (!zero.isWhole() || std::abs(zero.value().value_or(0)) > maxZero))
    return std::nullopt;
  out.isKnown = isParameter(out.from.codes.tensor);
  return out;
}

SymExpr Rewriter::loopSize(unsigned loop) {
  for (OpOperand *operand : op.getDpsInputOperands())
    for (auto [e, extent] : llvm::zip(op.getMatchingIndexingMap(operand).getResults(), shapes.dims(operand->get())))
      if (auto dim = dyn_cast<AffineDimExpr>(e); dim && dim.getPosition() == loop)
        return extent;
  return SymExpr::undefined();
}

Value Rewriter::generic(ValueRange inputs, ArrayRef<AffineMap> maps, ArrayRef<utils::IteratorType> iterators,
                        ArrayRef<SymExpr> dims, Type element, bool sums,
                        function_ref<Value(OpBuilder &, Location, ValueRange)> body) {
  SmallVector<int64_t> shape;
  SmallVector<Value> sizes;
  for (const SymExpr &dim : dims) {
    shape.push_back(dim.isConstant() ? dim.constant() : ShapedType::kDynamic);
    if (!dim.isConstant())
      sizes.push_back(DimOp::create(b, loc(), dim));
  }
  auto type = RankedTensorType::get(shape, element);
  Value out = tensor::EmptyOp::create(b, loc(), type, sizes);
  if (sums) {
    Value zero = arith::ConstantOp::create(b, loc(), b.getZeroAttr(element));
    out = linalg::FillOp::create(b, loc(), zero, out).getResult(0);
  }
  auto created = linalg::GenericOp::create(b, loc(), TypeRange{type}, inputs, ValueRange{out}, maps, iterators,
                                           [&](OpBuilder &inner, Location at, ValueRange args) {
                                             linalg::YieldOp::create(inner, at, body(inner, at, args));
                                           });
  setDims(created, dims);
  return created->getResult(0);
}

static Value widened(OpBuilder &b, Location loc, Value v, bool isUnsigned) {
  Type i32 = b.getI32Type();
  if (v.getType() == i32)
    return v;
  if (v.getType().getIntOrFloatBitWidth() > 32)
    return arith::TruncIOp::create(b, loc, i32, v);
  return isUnsigned ? arith::ExtUIOp::create(b, loc, i32, v).getResult()
                    : arith::ExtSIOp::create(b, loc, i32, v).getResult();
}

/// The codes with the operand's dimensions.
Value Rewriter::codes(const Factor &factor) {
  Value codes = factor.from.codes.tensor;
  for (Operation *view : llvm::reverse(factor.views)) {
    IRMapping map;
    map.map(view->getOperand(0), codes);
    Operation *own = b.clone(*view, map);
    auto type = cast<RankedTensorType>(view->getResult(0).getType());
    own->getResult(0).setType(type.clone(getElementTypeOrSelf(codes.getType())));
    codes = own->getResult(0);
  }
  return codes;
}

/// The sums of an operand's codes over the depth, with its other dimensions; perhaps times a number.
Value Rewriter::sumOverDepth(const Factor &factor, Value codes, std::optional<double> times) {
  SmallVector<utils::IteratorType> loops = op.getIteratorTypesArray();
  SmallVector<AffineExpr> in, out;
  SmallVector<utils::IteratorType> iterators;
  SmallVector<SymExpr> dims;
  for (auto [d, e] : llvm::enumerate(factor.codesMap.getResults())) {
    auto dim = cast<AffineDimExpr>(e);
    AffineExpr own = b.getAffineDimExpr(d);
    in.push_back(own);
    iterators.push_back(loops[dim.getPosition()]);
    if (iterators.back() == utils::IteratorType::parallel) {
      out.push_back(own);
      dims.push_back(shapes.dims(codes)[d]);
    }
  }
  unsigned rank = in.size();
  AffineMap maps[] = {AffineMap::get(rank, 0, in, b.getContext()), AffineMap::get(rank, 0, out, b.getContext())};
  bool isUnsigned = factor.from.codes.isUnsigned;
  return generic(codes, maps, iterators, dims, b.getI32Type(), /*sums=*/true,
                 [&](OpBuilder &inner, Location at, ValueRange args) -> Value {
                   Value code = widened(inner, at, args[0], isUnsigned);
                   if (times) {
                     auto number = inner.getI32IntegerAttr(static_cast<int32_t>(*times));
                     code = arith::MulIOp::create(inner, at, code, arith::ConstantOp::create(inner, at, number));
                   }
                   return arith::AddIOp::create(inner, at, args[1], code);
                 });
}

/// `map`, over the dimensions of the factor, over those of the result.
AffineMap Rewriter::overResult(AffineMap map, const Factor &of) {
  AffineMap result = op.getMatchingIndexingMap(op.getDpsInitOperand(0));
  SmallVector<AffineExpr> out;
  for (AffineExpr e : map.getResults()) {
    auto dim = dyn_cast<AffineDimExpr>(e);
    if (!dim) {
      out.push_back(e);
      continue;
    }
    AffineExpr loop = of.map.getResult(dim.getPosition());
    auto at = llvm::find(result.getResults(), loop);
    out.push_back(b.getAffineDimExpr(at - result.getResults().begin()));
  }
  return AffineMap::get(result.getNumResults(), 0, out, b.getContext());
}

/// The zero points as i32; those of wide integers are checked.
Value Rewriter::zeroOf(const Factor &factor) {
  const PointOperand &zero = factor.from.zero;
  if (!zero.tensor || Factor::isNarrow(zero))
    return zero.tensor;
  SmallVector<SymExpr> dims = shapes.dims(zero.tensor);
  AffineMap id = b.getMultiDimIdentityMap(dims.size());
  SmallVector<utils::IteratorType> iterators(dims.size(), utils::IteratorType::parallel);
  return generic(zero.tensor, {id, id}, iterators, dims, b.getI32Type(), /*sums=*/false,
                 [&](OpBuilder &inner, Location at, ValueRange args) -> Value {
                   Type i64 = inner.getI64Type();
                   auto number = [&](int64_t v) -> Value {
                     return arith::ConstantOp::create(inner, at, inner.getI64IntegerAttr(v));
                   };
                   Value wide = args[0];
                   if (wide.getType() != i64)
                     wide = zero.isUnsigned ? arith::ExtUIOp::create(inner, at, i64, wide).getResult()
                                            : arith::ExtSIOp::create(inner, at, i64, wide).getResult();
                   Value index = arith::AddIOp::create(inner, at, wide, number(maxZero));
                   Value known = CheckIndexOp::create(inner, at, i64, index, number(2 * maxZero + 1), /*wrap=*/false,
                                                      inner.getStringAttr("zero point + 255 at " + sourceLine(loc())));
                   known = arith::SubIOp::create(inner, at, known, number(maxZero));
                   return arith::TruncIOp::create(inner, at, inner.getI32Type(), known);
                 });
}

void Rewriter::run() {
  Type element = getElementTypeOrSelf(op.getResult(0).getType());
  bool isFloat = element.isF32();
  if (!isFloat && !element.isInteger(32))
    return;
  for (AffineMap map : op.getIndexingMapsArray())
    if (!map.isProjectedPermutation())
      return;
  std::optional<Factor> left = factor(0), right = factor(1);
  // Right operands that are not known at load are not packed in pairs, and such products are slower than those of
  // floats.
  if (!left || !right || (isFloat && !right->isKnown))
    return;
  // Already as it should be.
  if (!isFloat && left->views.empty() && right->views.empty() && !left->from.zero && !right->from.zero &&
      left->from.codes.tensor == op.getDpsInputs()[0] && right->from.codes.tensor == op.getDpsInputs()[1])
    return;
  SymExpr depth(1);
  SmallVector<utils::IteratorType> loops = op.getIteratorTypesArray();
  for (auto [d, kind] : llvm::enumerate(loops))
    if (kind == utils::IteratorType::reduction)
      depth *= loopSize(d);
  std::optional<int64_t> most = shapes.range(depth).max;
  // Integers wrap as they did; what floats sum must not.
  if (isFloat && (!most || *most > INT32_MAX / (left->bound() * right->bound())))
    return;

  Type i32 = b.getI32Type();
  Value a = codes(*left), c = codes(*right);
  AffineMap resultMap = op.getMatchingIndexingMap(op.getDpsInitOperand(0));
  SmallVector<SymExpr> dims = shapes.dims(op.getResult(0));
  bool unsignedLeft = left->from.codes.isUnsigned, unsignedRight = right->from.codes.isUnsigned;
  Value product = generic({a, c}, {left->codesMap, right->codesMap, resultMap}, loops, dims, i32, /*sums=*/true,
                          [&](OpBuilder &inner, Location at, ValueRange args) -> Value {
                            Value x = widened(inner, at, args[0], unsignedLeft),
                                  y = widened(inner, at, args[1], unsignedRight);
                            Value xy = arith::MulIOp::create(inner, at, x, y);
                            return arith::AddIOp::create(inner, at, args[2], xy);
                          });
  if (!isFloat && !left->hasZero() && !right->hasZero()) {
    op.getResult(0).replaceAllUsesWith(product);
    op.erase();
    return;
  }

  SmallVector<Value> inputs{product};
  SmallVector<AffineMap> maps{b.getMultiDimIdentityMap(dims.size())};
  auto add = [&](Value tensor, AffineMap map) {
    inputs.push_back(tensor);
    maps.push_back(map);
    return static_cast<int>(inputs.size()) - 1;
  };
  struct Numbers {
    int scale = -1, zero = -1, sum = -1; // places among the inputs
    bool isMultiplied = false;           // the sum, by the other's zero point
    const Factor *factor;
  };
  Numbers numbers[2];
  Value operands[2] = {a, c};
  for (int i : {0, 1}) {
    const Factor &own = i == 0 ? *left : *right, &other = i == 0 ? *right : *left;
    Numbers &n = numbers[i];
    n.factor = &own;
    if (own.from.scale.tensor)
      n.scale = add(own.from.scale.tensor, overResult(own.from.scale.map, own));
    if (own.hasZero() && own.from.zero.tensor)
      n.zero = add(zeroOf(own), overResult(own.from.zero.map, own));
    if (other.hasZero()) {
      SmallVector<AffineExpr> at;
      for (AffineExpr e : own.codesMap.getResults())
        if (loops[cast<AffineDimExpr>(e).getPosition()] == utils::IteratorType::parallel)
          at.push_back(b.getAffineDimExpr(llvm::find(resultMap.getResults(), e) - resultMap.getResults().begin()));
      // Sums over weights, on the right, are known at load: the other's zero point is part of them if it is a number.
      std::optional<double> times = i == 1 ? other.from.zero.value() : std::nullopt;
      n.isMultiplied = times.has_value();
      n.sum = add(sumOverDepth(own, operands[i], times), AffineMap::get(dims.size(), 0, at, b.getContext()));
    }
  }
  Value depthValue;
  if (left->hasZero() && right->hasZero())
    depthValue = DimOp::create(b, loc(), depth);
  maps.push_back(b.getMultiDimIdentityMap(dims.size()));
  SmallVector<utils::IteratorType> iterators(dims.size(), utils::IteratorType::parallel);
  Value result =
      generic(inputs, maps, iterators, dims, element, /*sums=*/false,
              [&](OpBuilder &inner, Location at, ValueRange args) -> Value {
                auto zero = [&](const Numbers &n) -> Value {
                  const PointOperand &own = n.factor->from.zero;
                  if (n.zero >= 0)
                    return widened(inner, at, args[n.zero], own.isUnsigned);
                  return arith::ConstantOp::create(inner, at, inner.getI32IntegerAttr(own.value().value_or(0)));
                };
                Value v = args[0];
                for (int i : {0, 1})
                  if (numbers[i].factor->hasZero()) {
                    Value sum = args[numbers[1 - i].sum];
                    if (!numbers[1 - i].isMultiplied)
                      sum = arith::MulIOp::create(inner, at, zero(numbers[i]), sum);
                    v = arith::SubIOp::create(inner, at, v, sum);
                  }
                if (depthValue) {
                  Value both = arith::MulIOp::create(inner, at, zero(numbers[0]), zero(numbers[1]));
                  Value count = arith::IndexCastOp::create(inner, at, inner.getI64Type(), depthValue);
                  count = arith::TruncIOp::create(inner, at, i32, count);
                  v = arith::AddIOp::create(inner, at, v, arith::MulIOp::create(inner, at, both, count));
                }
                if (!isFloat)
                  return v;
                v = arith::SIToFPOp::create(inner, at, element, v);
                for (const Numbers &n : numbers) {
                  const PointOperand &scale = n.factor->from.scale;
                  Value s;
                  if (n.scale >= 0) {
                    s = args[n.scale];
                    if (s.getType().getIntOrFloatBitWidth() < 32)
                      s = arith::ExtFOp::create(inner, at, element, s);
                    else if (s.getType() != element)
                      s = arith::TruncFOp::create(inner, at, element, s);
                  } else if (std::optional<double> number = scale.value()) {
                    s = arith::ConstantOp::create(inner, at, inner.getFloatAttr(element, *number));
                  }
                  if (s)
                    v = arith::MulFOp::create(inner, at, v, s);
                }
                return v;
              });
  op.getResult(0).replaceAllUsesWith(result);
  op.erase();
}

namespace {
/// Finds computations of one block that are the same, and makes them one.
class Sharing {
public:
  /// Uses of `later` become uses of `earlier`, and so do those of all that it is computed from, if both are computed in
  /// the same way from the same values.
  void share(Value earlier, Value later) {
    pairs.clear();
    if (!isSame(earlier, later, 0))
      return;
    for (auto [own, other] : pairs)
      if (own->isBeforeInBlock(other))
        other->replaceAllUsesWith(own);
  }

private:
  bool isSame(Value x, Value y, int depth) {
    constexpr int deepest = 24;
    if (x == y)
      return true;
    auto a = dyn_cast<OpResult>(x), b = dyn_cast<OpResult>(y);
    if (!a || !b || a.getResultNumber() != b.getResultNumber() || depth > deepest ||
        a.getOwner()->getBlock() != b.getOwner()->getBlock())
      return false;
    Operation *own = a.getOwner(), *other = b.getOwner();
    if (!isa<linalg::GenericOp, linalg::FillOp, tensor::EmptyOp, DimOp, arith::ConstantOp>(own) && !isView(own))
      return false;
    if (pairs.contains({own, other}))
      return true;
    llvm::DenseMap<Value, Value> inside;
    bool same = OperationEquivalence::isEquivalentTo(
        own, other,
        [&](Value p, Value q) {
          auto known = inside.find(p);
          return success(known != inside.end() ? known->second == q : isSame(p, q, depth + 1));
        },
        [&](Value p, Value q) { inside[p] = q; }, OperationEquivalence::IgnoreLocations);
    if (same)
      pairs.insert({own, other});
    return same;
  }

  llvm::SetVector<std::pair<Operation *, Operation *>> pairs;
};

struct IntegerProducts : disc::impl::IntegerProductsBase<IntegerProducts> {
  void runOnOperation() override {
    for (auto func : getOperation().getOps<func::FuncOp>()) {
      ShapeAnalysis shapes(getOperation());
      for (Block *block : hostBlocks(func)) {
        SmallVector<linalg::GenericOp> products;
        for (auto op : block->getOps<linalg::GenericOp>())
          if (linalg::isaContractionOpInterface(op))
            products.push_back(op);
        for (linalg::GenericOp op : products)
          Rewriter(op, shapes).run();
        shareCodes(*block);
      }
      eraseDead(func);
    }
  }

  static void shareCodes(Block &block) {
    SmallVector<linalg::GenericOp> products;
    for (auto op : block.getOps<linalg::GenericOp>())
      if (linalg::isaContractionOpInterface(op) && getElementTypeOrSelf(op.getDpsInputs()[0].getType()).isInteger(8))
        products.push_back(op);
    // Neighbours only: what a model has computed again far behind would have to be kept until then.
    constexpr size_t reach = 8;
    for (size_t i = 0; i < products.size(); ++i)
      for (size_t j = i + 1; j < std::min(products.size(), i + reach); ++j)
        Sharing().share(products[i].getDpsInputs()[0], products[j].getDpsInputs()[0]);
  }
};
} // namespace
