//===- LibraryProduct.cpp - products that a device's library may do ---------===//
//
//   disc_plan.kernel_func contraction @k { %p = sum of %x * %w ; %y = gelu(%p + %bias) ; disc_plan.yield %y }
//
// has, beside @k, a kernel for the case that a library has done the product: it reads the sums where the result is to
// be.
//
//   gpu.func @k_epilogue(%x, %w, %bias, %y, symbols...) { %y[i] = gelu(%y[i] + %bias[i % n]) }
//   disc_rt.device_kernel @k ... {disc_plan.library = {operands = [0, 1, 3], extents = [batch, m, n, k, ...],
//                                                      epilogue = @k_epilogue, ...}}
//
// Lit test: test/lit/GPU/library-product.mlir.
//
//===----------------------------------------------------------------------===//

#include "lib/Target/GPU/LibraryProduct.h"

#include "dialects/Tensor/TensorDialect.h"
#include "lib/Runtime/Core/ModelInfo.h"
#include "lib/Target/Common/ElementTypes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

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
  // The stride of a dimension of one element is none.
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

/// The operand that is a row, if `value` is nothing but the product and that row added to each of its own.
static std::optional<unsigned> addedRow(KernelFuncOp kernel, Value value, Value product, ShapeAnalysis &shapes) {
  auto generic = value.getDefiningOp<linalg::GenericOp>();
  if (!generic || generic.getNumReductionLoops() || generic.getNumDpsInputs() != 2 || generic.getNumResults() != 1 ||
      !generic.getIndexingMapsArray().back().isIdentity())
    return std::nullopt;
  Block &body = *generic.getBody();
  auto sum = body.getTerminator()->getOperand(0).getDefiningOp<arith::AddFOp>();
  auto adds = [&](Value x, Value y) { return sum && sum.getLhs() == x && sum.getRhs() == y; };
  if (!adds(body.getArgument(0), body.getArgument(1)) && !adds(body.getArgument(1), body.getArgument(0)))
    return std::nullopt;
  for (unsigned i : {0, 1}) {
    OpOperand *one = generic.getDpsInputOperand(i), *other = generic.getDpsInputOperand(1 - i);
    if (one->get() != product || !generic.getMatchingIndexingMap(one).isIdentity())
      continue;
    auto row = StridedOperand::get(kernel, other->get(), generic.getMatchingIndexingMap(other), shapes);
    if (!row || !row->offset.isConstant(0) || !row->strides.back().isConstant(1) ||
        getElementTypeOrSelf(other->get().getType()) != getElementTypeOrSelf(product.getType()) ||
        !llvm::all_of(ArrayRef(row->strides).drop_back(), [](const SymExpr &s) { return s.isConstant(0); }))
      return std::nullopt;
    return row->argument;
  }
  return std::nullopt;
}

std::optional<LibraryProduct> disc::libraryProduct(KernelFuncOp kernel, ShapeAnalysis &shapes) {
  FailureOr<std::vector<ContractionPart>> parts = contractionParts(kernel, kernel.getBody().front(), shapes);
  if (failed(parts) || parts->size() != 1 || parts->front().products.size() != 1)
    return std::nullopt;
  const ContractionInfo &info = parts->front().first();
  ValueRange yields = kernel.getYield().getValues();
  LibraryProduct out;
  out.product = linalg::GenericOp(info.op).getResult(0);
  Type element = getElementTypeOrSelf(out.product.getType());
  if (yields.size() != 1 || !(element.isF32() || element.isF16() || element.isBF16()) || info.lhsElement != element ||
      info.rhsElement != element || getElementTypeOrSelf(yields[0].getType()) != element)
    return std::nullopt;
  ContractionInfo own = info;
  auto a = matrix(kernel, own, own.left(), own.lhsMap(), own.rows, own.depth, shapes);
  auto b = matrix(kernel, own, own.right(), own.rhsMap(), own.depth, own.columns, shapes);
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
  if (sized != placed || !keepsPositions(yields[0], out.product, shapes) ||
      !Layout::get(kernel.getLayout(result)).isContiguous(shapes.dims(yields[0])))
    return std::nullopt;

  Value whole = yields[0];
  while (auto reshape = whole.getDefiningOp<ReshapeOp>())
    whole = reshape.getSource();
  out.isWhole = whole == out.product;
  std::optional<unsigned> bias;
  if (!out.isWhole) {
    // A row of the matrix is a row of the tensor.
    auto last = dyn_cast<AffineDimExpr>(own.resultMap().getResults().back());
    if (own.columns.size() == 1 && last && last.getPosition() == own.columns.front())
      bias = addedRow(kernel, whole, out.product, shapes);
    out.isWhole = bias.has_value();
  }

  SymExpr m = own.size(own.rows), n = own.size(own.columns), k = own.size(own.depth);
  out.attrs.operands = {a->argument, b->argument, result};
  if (bias)
    out.attrs.operands.push_back(*bias);
  out.attrs.extents = {own.size(own.batch), m, n, k, a->apart, b->apart, m * n};
  out.attrs.dtype = element.isF32() ? DISC_F32 : element.isF16() ? DISC_F16 : DISC_BF16;
  out.attrs.aColumns = a->byColumns;
  out.attrs.bColumns = b->byColumns;
  return out;
}

LogicalResult disc::emitDeviceEpilogue(DeviceKernel &k, const LibraryProduct &product) {
  IndexMath &m = k.m;
  Value yielded = k.kernel.getYield().getValues()[0], tensor = product.product;
  SmallVector<SymExpr> domain = k.shapes.dims(tensor);
  SymExpr total = SymExpr::product(domain);
  int64_t width = std::gcd(k.schedule("vector"), std::max<int64_t>(domain.back().content(), 1));
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
    FailureOr<SmallVector<Idx>> to = followResult(points, yielded, tensor, at);
    Value v = succeeded(to) ? points.eval(yielded, *to) : Value();
    ok &= v && succeeded(points.store(0, *to, v));
    return SmallVector<Value>();
  });
  if (!ok)
    return k.kernel.emitError("what follows the product cannot be emitted");
  return success();
}
