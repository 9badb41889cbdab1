//===- LibraryProduct.cpp - products that a device's library may do ---------===//
//
//   disc_plan.kernel_func contraction @k { %p = sum of %x * %w ; %y = erf_gelu(%p + %bias) ; disc_plan.yield %y }
//
// has, beside @k, a kernel for the case that a library has done the product, and added the row, and rounded it to the
// operands' type: it reads that where the result is to be.
//
//   gpu.func @k_epilogue(%x, %w, %bias, %y, symbols...) { %y[i] = erf_gelu(%y[i]) }
//   disc_rt.device_kernel @k ... {disc_plan.library = {operands = [0, 1, 3, 2], extents = [batch, m, n, k, ...],
//                                                      epilogue = @k_epilogue, ...}}
//
// Lit test: test/lit/GPU/library-product.mlir.
//
//===----------------------------------------------------------------------===//

#include "lib/Target/GPU/LibraryProduct.h"

#include "dialects/Plan/Schedule.h"
#include "dialects/Tensor/TensorDialect.h"
#include "lib/Runtime/Core/ModelInfo.h"
#include "lib/Target/Common/ElementTypes.h"
#include "lib/Target/GPU/DeviceAttention.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace mlir::disc;

namespace {
/// A matrix of each batch, without gaps.
struct Matrix {
  unsigned argument;
  bool byColumns;
  SymExpr apart; // elements from one batch's to the next
};
} // namespace

/// `outer` and `inner` are the dimensions of a row-major matrix.
static std::optional<Matrix> matrix(KernelFuncOp kernel, const ContractionInfo &info, Value operand, AffineMap map,
                                    ArrayRef<unsigned> outer, ArrayRef<unsigned> inner, ShapeAnalysis &shapes) {
  auto strided = StridedOperand::get(kernel, operand, map, shapes);
  if (!strided || !strided->offset.isConstant(0))
    return std::nullopt;
  auto batch = strided->collapse(info.batch, info.sizes, shapes), row = strided->collapse(outer, info.sizes, shapes),
       column = strided->collapse(inner, info.sizes, shapes);
  if (!batch || !row || !column)
    return std::nullopt;
  // The stride of a dimension of one element has no effect.
  auto leads = [&](const SymExpr &stride, ArrayRef<unsigned> dims, const SymExpr &width) {
    return info.size(dims).isConstant(1) || shapes.equal(stride, width);
  };
  SymExpr one(1);
  if (leads(*column, inner, one) && leads(*row, outer, info.size(inner)))
    return Matrix{strided->argument, false, *batch};
  if (leads(*row, outer, one) && leads(*column, inner, info.size(outer)))
    return Matrix{strided->argument, true, *batch};
  return std::nullopt;
}

/// True if an element of `value` follows from the element of `origin` at the same row-major position.
static bool keepsPositions(Value value, Value origin, ShapeAnalysis &shapes) {
  if (value == origin)
    return true;
  Operation *def = value.getDefiningOp();
  if (auto reshape = dyn_cast_if_present<ReshapeOp>(def))
    return keepsPositions(reshape.getSource(), origin, shapes);
  auto generic = dyn_cast_if_present<linalg::GenericOp>(def);
  if (!generic || generic.getNumReductionLoops() ||
      !generic.getIndexingMapMatchingResult(cast<OpResult>(value)).isIdentity())
    return false;
  for (OpOperand *operand : generic.getDpsInputOperands())
    if (generic.getMatchingIndexingMap(operand).isIdentity() && keepsPositions(operand->get(), origin, shapes))
      return true;
  return false;
}

/// The inputs of a computation of each element of `value`; none if it is something else.
static SmallVector<Value> elementInputs(Value value) {
  auto generic = value.getDefiningOp<linalg::GenericOp>();
  if (!generic || generic.getNumReductionLoops() || generic.getNumResults() != 1 ||
      !generic.getIndexingMapsArray().back().isIdentity())
    return {};
  return SmallVector<Value>(generic.getDpsInputs());
}

static Value widened(Value v) {
  auto widen = v.getDefiningOp<arith::ExtFOp>();
  return widen ? widen.getIn() : v;
}

/// What the body of the computation of `value` yields, before it is rounded.
static Value yielded(Value value) {
  Value v = value.getDefiningOp<linalg::GenericOp>().getBody()->getTerminator()->getOperand(0);
  auto narrow = v.getDefiningOp<arith::TruncFOp>();
  return narrow ? narrow.getIn() : v;
}

/// True if `value` is the product, rounded.
static bool isRounded(Value value, Value product) {
  SmallVector<Value> inputs = elementInputs(value);
  auto generic = value.getDefiningOp<linalg::GenericOp>();
  return inputs.size() == 1 && inputs[0] == product &&
         generic.getMatchingIndexingMap(generic.getDpsInputOperand(0)).isIdentity() &&
         yielded(value) == generic.getBody()->getArgument(0);
}

/// The operand that is a row, if `value` is nothing but the product and that row added to each of its own.
static std::optional<unsigned> addedRow(KernelFuncOp kernel, Value value, Value product, ShapeAnalysis &shapes) {
  if (elementInputs(value).size() != 2)
    return std::nullopt;
  auto generic = value.getDefiningOp<linalg::GenericOp>();
  Block &body = *generic.getBody();
  auto sum = yielded(value).getDefiningOp<arith::AddFOp>();
  auto adds = [&](Value x, Value y) { return sum && widened(sum.getLhs()) == x && widened(sum.getRhs()) == y; };
  if (!adds(body.getArgument(0), body.getArgument(1)) && !adds(body.getArgument(1), body.getArgument(0)))
    return std::nullopt;
  for (unsigned i : {0, 1}) {
    OpOperand *one = generic.getDpsInputOperand(i), *other = generic.getDpsInputOperand(1 - i);
    if (one->get() != product || !generic.getMatchingIndexingMap(one).isIdentity())
      continue;
    auto row = StridedOperand::get(kernel, other->get(), generic.getMatchingIndexingMap(other), shapes);
    if (!row || !row->offset.isConstant(0) || !row->strides.back().isConstant(1) ||
        getElementTypeOrSelf(other->get().getType()) != getElementTypeOrSelf(value.getType()) ||
        !llvm::all_of(ArrayRef(row->strides).drop_back(), [](const SymExpr &s) { return s.isConstant(0); }))
      return std::nullopt;
    return row->argument;
  }
  return std::nullopt;
}

namespace {
/// Whether a tensor is GELU of `x`, element by element, by its approximation with tanh:
///   0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x ^ 3)))
/// in any order of factors and terms, in one computation or several. Half floats may be widened on the way.
class GeluTanh {
public:
  explicit GeluTanh(Value x) : x(x) {}
  bool is(Value tensor) {
    auto generic = elementwise(tensor);
    return generic && isGelu(generic.getBody()->getTerminator()->getOperand(cast<OpResult>(tensor).getResultNumber()));
  }

private:
  static linalg::GenericOp elementwise(Value tensor) {
    auto generic = tensor.getDefiningOp<linalg::GenericOp>();
    bool is = generic && !generic.getNumReductionLoops() &&
              generic.getIndexingMapMatchingResult(cast<OpResult>(tensor)).isIdentity();
    return is ? generic : linalg::GenericOp();
  }
  /// The operation that computes the element `v`; a tensor stands for its elements.
  Value resolve(Value v) {
    while (true) {
      if (auto widen = v.getDefiningOp<arith::ExtFOp>()) {
        v = widen.getIn();
      } else if (auto narrow = v.getDefiningOp<arith::TruncFOp>()) {
        v = narrow.getIn();
      } else if (auto arg = dyn_cast<BlockArgument>(v)) {
        auto generic = dyn_cast<linalg::GenericOp>(arg.getOwner()->getParentOp());
        if (!generic || arg.getArgNumber() >= generic.getNumDpsInputs())
          return v;
        OpOperand *operand = generic.getDpsInputOperand(arg.getArgNumber());
        if (!generic.getMatchingIndexingMap(operand).isIdentity())
          return v;
        v = operand->get();
        if (v == x)
          return v;
        auto from = elementwise(v);
        if (!from)
          return v;
        v = from.getBody()->getTerminator()->getOperand(cast<OpResult>(v).getResultNumber());
      } else {
        return v;
      }
    }
  }
  /// Multiplies out: what is not a constant, and the product of those that are.
  double factors(Value v, SmallVectorImpl<Value> &out) {
    v = resolve(v);
    if (auto product = v.getDefiningOp<arith::MulFOp>())
      return factors(product.getLhs(), out) * factors(product.getRhs(), out);
    FloatAttr number;
    if (matchPattern(v, m_Constant(&number)))
      return number.getValueAsDouble();
    out.push_back(v);
    return 1;
  }
  bool isX(Value v) { return resolve(v) == x; }
  /// A sum of two, each for one of the conditions.
  bool isSum(Value v, function_ref<bool(Value)> one, function_ref<bool(Value)> other) {
    auto sum = resolve(v).getDefiningOp<arith::AddFOp>();
    return sum && ((one(sum.getLhs()) && other(sum.getRhs())) || (one(sum.getRhs()) && other(sum.getLhs())));
  }
  /// Constants may have been rounded to a half float.
  static bool isNear(double v, double scale) { return std::abs(v / scale - 1) < 1e-3; }
  bool isCube(Value v) {
    SmallVector<Value> of;
    return isNear(factors(v, of), 0.044715) && of.size() == 3 && llvm::all_of(of, [&](Value f) { return isX(f); });
  }
  bool isTanh(Value v) {
    auto tanh = resolve(v).getDefiningOp<math::TanhOp>();
    SmallVector<Value> of;
    return tanh && isNear(factors(tanh.getOperand(), of), 0.7978845608) && of.size() == 1 &&
           isSum(of[0], [&](Value t) { return isX(t); }, [&](Value t) { return isCube(t); });
  }
  bool isGelu(Value v) {
    SmallVector<Value> of;
    if (!isNear(factors(v, of), 0.5) || of.size() != 2)
      return false;
    auto isOne = [&](Value t) {
      SmallVector<Value> none;
      return isNear(factors(t, none), 1) && none.empty();
    };
    auto isRest = [&](Value t) { return isSum(t, isOne, [&](Value u) { return isTanh(u); }); };
    return (isX(of[0]) && isRest(of[1])) || (isX(of[1]) && isRest(of[0]));
  }

  Value x;
};
} // namespace

/// Where a library is to compute the product; null if it never is.
static ExprAttr libraryCondition(ScheduleAttrInterface schedule) {
  if (auto tiles = dyn_cast_if_present<DeviceProductScheduleAttr>(schedule))
    return tiles.getLibrary();
  auto matrix = dyn_cast_if_present<DeviceMatrixScheduleAttr>(schedule);
  return matrix ? matrix.getLibrary() : ExprAttr();
}

std::optional<LibraryProduct> disc::libraryProduct(KernelFuncOp kernel, ShapeAnalysis &shapes) {
  FailureOr<std::vector<ContractionPart>> parts = contractionParts(kernel, kernel.getBody().front(), shapes);
  if (failed(parts) || parts->size() != 1 || parts->front().products.size() != 1)
    return std::nullopt;
  const ContractionInfo &info = parts->front().first();
  ValueRange yields = kernel.getYield().getValues();
  // What codes stand for is the last result.
  std::optional<unsigned> decoded = memoryResult(kernel);
  if (decoded && *decoded == yields.size() - 1)
    yields = yields.drop_back();
  LibraryProduct out;
  Value product = linalg::GenericOp(info.op).getResult(0);
  Type element = info.lhsElement; // the sums are of f32 in any case
  ExprAttr when = libraryCondition(kernel.getScheduleAttr());
  if (!when)
    return std::nullopt;
  if (yields.size() != 1 || !(element.isF32() || element.isF16() || element.isBF16()) || info.rhsElement != element ||
      !getElementTypeOrSelf(product.getType()).isF32() || getElementTypeOrSelf(yields[0].getType()) != element)
    return std::nullopt;
  ContractionInfo own = info;
  auto a = matrix(kernel, own, own.left(), own.lhsMap(), own.rows, own.depth, shapes);
  auto b = matrix(kernel, own, own.right(), own.rhsMap(), own.depth, own.columns, shapes);
  if (own.right().getDefiningOp<UnpackFragmentsOp>() && decoded)
    b = Matrix{kernel.getNumInputs() + *decoded, /*byColumns=*/true, own.size(own.columns) * own.size(own.depth)};
  if (!a || !b || own.depth.empty())
    return std::nullopt;
  SmallVector<unsigned> order(own.batch);
  llvm::append_range(order, own.rows);
  llvm::append_range(order, own.columns);
  SmallVector<unsigned> sized, placed;
  for (unsigned d : order)
    if (!own.sizes[d].isConstant(1))
      sized.push_back(d);
  for (AffineExpr e : own.resultMap().getResults())
    if (auto d = dyn_cast<AffineDimExpr>(e); d && !own.sizes[d.getPosition()].isConstant(1))
      placed.push_back(d.getPosition());
  unsigned result = kernel.getNumInputs();
  if (sized != placed || !Layout::get(kernel.getLayout(result)).isContiguous(shapes.dims(yields[0])))
    return std::nullopt;

  Value whole = yields[0];
  while (auto reshape = whole.getDefiningOp<ReshapeOp>())
    whole = reshape.getSource();
  if (element.isF32())
    out.origin = product;
  std::optional<unsigned> bias;
  if (product.hasOneUse() && product.getUsers().begin()->getNumResults() == 1) {
    Value next = product.getUsers().begin()->getResult(0);
    // A row of the matrix is a row of the tensor.
    auto last = dyn_cast<AffineDimExpr>(own.resultMap().getResults().back());
    if (own.columns.size() == 1 && last && last.getPosition() == own.columns.front())
      bias = addedRow(kernel, next, product, shapes);
    if (bias || isRounded(next, product))
      out.origin = next;
  }
  // How exact their tanh is the libraries do not say; it is good enough for what is rounded to 16 bits.
  if (bias && !element.isF32() && GeluTanh(out.origin).is(whole)) {
    out.origin = whole;
    out.geluTanh = true;
  }
  if (!out.origin || getElementTypeOrSelf(out.origin.getType()) != element ||
      !keepsPositions(yields[0], out.origin, shapes))
    return std::nullopt;
  out.isWhole = whole == out.origin;

  SymExpr m = own.size(own.rows), n = own.size(own.columns), k = own.size(own.depth);
  out.operands = {a->argument, b->argument, result};
  if (bias)
    out.operands.push_back(*bias);
  out.extents = {own.size(own.batch), m, n, k, a->apart, b->apart, m * n};
  out.when = when.getValue();
  out.dtype = element.isF32() ? DISC_F32 : element.isF16() ? DISC_F16 : DISC_BF16;
  out.aColumns = a->byColumns;
  out.bColumns = b->byColumns;
  return out;
}

LogicalResult disc::emitDeviceEpilogue(DeviceKernel &k, const LibraryProduct &product) {
  IndexMath &m = k.m;
  Value result = k.kernel.getYield().getValues()[0], tensor = product.origin;
  SmallVector<SymExpr> domain = k.shapes.dims(tensor);
  SymExpr total = SymExpr::product(domain);
  int64_t width =
      std::gcd(k.schedule<DeviceLoopScheduleAttr>().getVector(), std::max<int64_t>(domain.back().content(), 1));
  PointEmitter points = k.points(width);
  Value threads = m.constant(k.threads());
  Value first = m.add(m.mul(k.block(), threads), k.thread()), step = m.mul(k.blocks(), threads);
  Value units = points.expr(SymExpr::floorDiv(total, SymExpr(width)));
  bool ok = true;
  emitFor(k.b, k.loc, first, units, step, {}, [&](Value unit, ValueRange) {
    PointEmitter::Scope scope(points);
    Idx position(m.mul(unit, width), /*lanes=*/width > 1, 1, width);
    Value sum = points.load(points.resultPtr(0), position, getElementTypeOrSelf(tensor.getType()));
    points.bind(tensor, [sum](ArrayRef<Idx>, Value) { return sum; });
    SmallVector<Idx> at = points.reshapeIdx(position, total, domain);
    FailureOr<SmallVector<Idx>> to = followResult(points, result, tensor, at);
    Value v = succeeded(to) ? points.eval(result, *to) : Value();
    ok &= v && succeeded(points.store(0, *to, v));
    return SmallVector<Value>();
  });
  if (!ok)
    return k.kernel.emitError("what follows the product cannot be emitted");
  return success();
}
