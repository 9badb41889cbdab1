//===- TensorDialect.cpp - the disc_tensor dialect ------------------------===//
//
// Verifiers carry the labels (T1)... of Tensor.td; test/lit/Tensor/invalid.mlir has one case for each.
//
//===----------------------------------------------------------------------===//

#include "dialects/Tensor/TensorDialect.h"

#include "mlir/IR/Builders.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "llvm/ADT/SmallBitVector.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace mlir::disc;

#include "dialects/Tensor/TensorDialect.cpp.inc"

void TensorDialect::initialize() {
  addOperations<
#define GET_OP_LIST
#include "dialects/Tensor/TensorOps.cpp.inc"
      >();
}

/// (T34)
static LogicalResult verifyProcedure(Operation *op, Attribute attribute) {
  auto symbols = dyn_cast<ArrayAttr>(attribute);
  auto function = dyn_cast<FunctionOpInterface>(op);
  if (!symbols || !function || !llvm::all_of(symbols, llvm::IsaPred<FlatSymbolRefAttr>))
    return op->emitOpError("'disc_tensor.procedure' must be a list of symbols on a function (T34)");
  StringRef name = ShapeDialect::getDimsAttrName();
  auto verifyType = [&](Type type, DimsAttr dims) -> LogicalResult {
    auto tensor = dyn_cast<RankedTensorType>(type);
    if (tensor && (dims || tensor.hasStaticShape()))
      return success();
    return op->emitOpError() << "is a procedure, but the extents of a " << type << " are unknown (T34)";
  };
  for (auto [i, type] : llvm::enumerate(function.getArgumentTypes()))
    if (failed(verifyType(type, function.getArgAttrOfType<DimsAttr>(i, name))))
      return failure();
  for (auto [i, type] : llvm::enumerate(function.getResultTypes()))
    if (failed(verifyType(type, function.getResultAttrOfType<DimsAttr>(i, name))))
      return failure();
  return success();
}

/// (T35). The memory stage turns procedures into operations without result types, which keep the attribute.
static LogicalResult verifyGiven(Operation *op, Attribute attribute) {
  auto numbers = dyn_cast<DenseI64ArrayAttr>(attribute);
  auto isPlace = [&](int64_t result, int64_t dim) {
    auto function = dyn_cast<FunctionOpInterface>(op);
    if (!function)
      return result >= 0 && dim >= 0;
    if (result < 0 || result >= static_cast<int64_t>(function.getNumResults()))
      return false;
    auto type = dyn_cast<RankedTensorType>(function.getResultTypes()[result]);
    return type && dim >= 0 && dim < type.getRank() && type.isDynamicDim(dim);
  };
  bool ok = numbers && numbers.size() % 2 == 0;
  for (int64_t i = 0; ok && i < numbers.size(); i += 2)
    ok = isPlace(numbers[i], numbers[i + 1]);
  if (!ok)
    return op->emitOpError() << "'disc_tensor.given' must be pairs of a result and its dynamic dim, not " << attribute
                             << " (T35)";
  return success();
}

LogicalResult TensorDialect::verifyOperationAttribute(Operation *op, NamedAttribute attribute) {
  if (attribute.getName() == InvokeOp::getProcedureAttrName())
    return verifyProcedure(op, attribute.getValue());
  if (attribute.getName() == InvokeOp::getGivenAttrName())
    return verifyGiven(op, attribute.getValue());
  return success();
}

static RankedTensorType tensorType(Value v) { return cast<RankedTensorType>(v.getType()); }

static bool extentsMayAgree(int64_t a, int64_t b) {
  return ShapedType::isDynamic(a) || ShapedType::isDynamic(b) || a == b;
}

static LogicalResult verifySizes(Operation *op, OperandRange sizes, RankedTensorType type, StringRef label) {
  if (sizes.size() != static_cast<size_t>(type.getNumDynamicDims()))
    return op->emitOpError() << "has " << sizes.size() << " sizes for " << type.getNumDynamicDims()
                             << " dynamic extents of " << type << " " << label;
  return success();
}

LogicalResult PermuteOp::verify() {
  RankedTensorType source = tensorType(getSource()), result = tensorType(getResult());
  ArrayRef<int64_t> perm = getPermutation();
  llvm::SmallBitVector seen(source.getRank());
  for (int64_t p : perm)
    if (p < 0 || p >= source.getRank() || seen.test(p))
      return emitOpError("permutation must name each source dimension once (T1)");
    else
      seen.set(p);
  if (!seen.all())
    return emitOpError("permutation must name each source dimension once (T1)");
  if (result.getRank() != source.getRank() || result.getElementType() != source.getElementType())
    return emitOpError("result type does not match the permuted source (T2)");
  for (auto [i, p] : llvm::enumerate(perm))
    if (!extentsMayAgree(result.getDimSize(i), source.getDimSize(p)))
      return emitOpError("result type does not match the permuted source (T2)");
  return success();
}

OpFoldResult PermuteOp::fold(FoldAdaptor) {
  for (auto [i, p] : llvm::enumerate(getPermutation()))
    if (static_cast<int64_t>(i) != p)
      return {};
  return getSource().getType() == getType() ? OpFoldResult(getSource()) : OpFoldResult();
}

LogicalResult ReshapeOp::verify() {
  if (failed(verifySizes(*this, getSizes(), tensorType(getResult()), "(T3)")))
    return failure();
  if (tensorType(getSource()).getElementType() != tensorType(getResult()).getElementType())
    return emitOpError("element types of source and result differ (T4)");
  return success();
}

OpFoldResult ReshapeOp::fold(FoldAdaptor) {
  // Equal types with at most one dynamic extent have equal extents; with more the sizes may be permuted.
  RankedTensorType type = tensorType(getResult());
  if (getSource().getType() == type && type.getNumDynamicDims() <= 1)
    return getSource();
  return {};
}

LogicalResult BroadcastOp::verify() {
  RankedTensorType source = tensorType(getSource()), result = tensorType(getResult());
  ArrayRef<int64_t> dims = getDims();
  bool ok = static_cast<int64_t>(dims.size()) == source.getRank();
  for (size_t i = 0; ok && i < dims.size(); ++i)
    ok = dims[i] >= 0 && dims[i] < result.getRank() && (i == 0 || dims[i] > dims[i - 1]);
  if (!ok)
    return emitOpError("dims must map the source dimensions to increasing result dimensions (T5)");
  if (failed(verifySizes(*this, getSizes(), result, "(T6)")))
    return failure();
  for (auto [j, d] : llvm::enumerate(dims))
    if (source.getDimSize(j) != 1 && !extentsMayAgree(source.getDimSize(j), result.getDimSize(d)))
      return emitOpError() << "source extent " << source.getDimSize(j) << " is neither 1 nor the result's "
                           << result.getDimSize(d) << " (T7)";
  return success();
}

LogicalResult SliceOp::verify() {
  RankedTensorType source = tensorType(getSource()), result = tensorType(getResult());
  int64_t dim = getDim();
  if (dim < 0 || dim >= source.getRank() || static_cast<int64_t>(getStep()) < 1)
    return emitOpError("dim must be a dimension of the source and step positive (T8)");
  if (result.getRank() != source.getRank() || result.getElementType() != source.getElementType())
    return emitOpError("result type does not match the sliced source (T9)");
  for (int64_t i = 0; i < source.getRank(); ++i)
    if (i != dim && !extentsMayAgree(result.getDimSize(i), source.getDimSize(i)))
      return emitOpError("result type does not match the sliced source (T9)");
  return success();
}

LogicalResult AttentionOp::verify() {
  RankedTensorType q = tensorType(getQuery()), k = tensorType(getKey()), v = tensorType(getValue()),
                   r = tensorType(getResult());
  int64_t rank = q.getRank();
  if (rank < 2 || k.getRank() != rank || v.getRank() != rank || r.getRank() != rank ||
      k.getElementType() != q.getElementType() || v.getElementType() != q.getElementType() ||
      r.getElementType() != q.getElementType() || !extentsMayAgree(q.getDimSize(rank - 1), k.getDimSize(rank - 1)) ||
      !extentsMayAgree(k.getDimSize(rank - 2), v.getDimSize(rank - 2)))
    return emitOpError("query, key, value and result do not fit each other (T10)");
  if (getMask() && tensorType(getMask()).getRank() != rank)
    return emitOpError("mask must have the result's rank (T11)");
  return success();
}

LogicalResult ConvolutionOp::verify() {
  RankedTensorType x = tensorType(getInput()), w = tensorType(getWeight()), y = tensorType(getResult());
  int64_t spatial = getSpatialRank();
  if (spatial < 1 || spatial > 3 || x.getRank() != spatial + 2 || w.getRank() != spatial + 3 ||
      y.getRank() != spatial + 2)
    return emitOpError("input, weight and result do not have one to three spatial dimensions (T20)");
  for (ArrayRef<int64_t> attr : {getLow(), getHigh(), getDilations(), getInputDilations()})
    if (static_cast<int64_t>(attr.size()) != spatial)
      return emitOpError("input, weight and result do not have one to three spatial dimensions (T20)");
  for (ArrayRef<int64_t> attr : {getStrides(), getDilations(), getInputDilations()})
    if (llvm::any_of(attr, [](int64_t v) { return v < 1; }))
      return emitOpError("strides and dilations must be positive (T21)");
  auto product = [](int64_t a, int64_t b) {
    return ShapedType::isDynamic(a) || ShapedType::isDynamic(b) ? ShapedType::kDynamic : a * b;
  };
  int64_t groups = w.getDimSize(0);
  bool isFloat = isa<FloatType>(y.getElementType());
  if (isa<FloatType>(x.getElementType()) != isFloat || isa<FloatType>(w.getElementType()) != isFloat ||
      !extentsMayAgree(x.getDimSize(0), y.getDimSize(0)) ||
      !extentsMayAgree(x.getShape().back(), product(groups, w.getShape().back())) ||
      !extentsMayAgree(y.getShape().back(), product(groups, w.getDimSize(1))))
    return emitOpError("channels, groups or element types do not fit each other (T22)");
  auto code = static_cast<int64_t>(getOutside());
  bool bytes = x.getElementType().isInteger(8) && w.getElementType().isInteger(8);
  int64_t low = getUnsignedInput() ? 0 : -128;
  if ((!bytes && (getUnsignedInput() || getUnsignedWeight() || code != 0)) ||
      (bytes &&
       (code < low || code > low + 255 || llvm::any_of(getInputDilations(), [](int64_t d) { return d != 1; }))))
    return emitOpError("only undilated bytes may be unsigned or have a code outside, one of theirs (T41)");
  return success();
}

LogicalResult WinogradOp::verify() {
  RankedTensorType x = tensorType(getInput()), w = tensorType(getWeight()), y = tensorType(getResult());
  if (x.getRank() != 4 || y.getRank() != 4 || w.getRank() != 3 || getLow().size() != 2 || getHigh().size() != 2 ||
      getDilations().size() != 2 || llvm::any_of(getDilations(), [](int64_t d) { return d < 1; }) ||
      !extentsMayAgree(w.getDimSize(0), 16) || !extentsMayAgree(x.getDimSize(0), y.getDimSize(0)) ||
      !extentsMayAgree(x.getDimSize(3), w.getDimSize(2)) || !extentsMayAgree(y.getDimSize(3), w.getDimSize(1)))
    return emitOpError("input, weight and result do not fit each other (T23)");
  return success();
}

LogicalResult ConcatOp::verify() {
  RankedTensorType result = tensorType(getResult());
  bool ok =
      !getInputs().empty() && static_cast<int64_t>(getDim()) >= 0 && static_cast<int64_t>(getDim()) < result.getRank();
  for (Value input : getInputs())
    ok = ok && tensorType(input).getRank() == result.getRank() &&
         tensorType(input).getElementType() == result.getElementType();
  return ok ? success() : emitOpError("inputs do not fit the result, or dim is out of range (T12)");
}

LogicalResult RunningSumOp::verify() {
  RankedTensorType type = tensorType(getSource());
  bool ok = type == getResult().getType() && static_cast<int64_t>(getDim()) >= 0 &&
            static_cast<int64_t>(getDim()) < type.getRank();
  return ok ? success() : emitOpError("result differs from the source, or dim is out of range (T15)");
}

LogicalResult CallFunctionOp::verify() {
  int64_t dynamic = 0;
  for (Type type : getOutputs().getTypes())
    dynamic += cast<RankedTensorType>(type).getNumDynamicDims();
  if (dynamic != static_cast<int64_t>(getSizes().size()))
    return emitOpError() << "has " << getSizes().size() << " sizes for " << dynamic
                         << " dynamic extents of its results (T16)";
  if (getFunction().empty() || !llvm::all_of(getFunction(), [](char c) { return llvm::isAlnum(c) || c == '_'; }))
    return emitOpError() << "calls '" << getFunction() << "', which is not an identifier (T17)";
  if (getOutputs().empty())
    return emitOpError("has no result (T18)");
  if (getInPlace() && (getInputs().empty() || getInputs()[0].getType() != getOutputs()[0].getType()))
    return emitOpError("is in place, so its first operand must have the type of its first result (T19)");
  if (getOrdered()) {
    auto last = cast<RankedTensorType>(getOutputs().back().getType());
    if (!getOnDevice() || getOutputs().size() < 2 || last.getRank() != 1 || !last.getElementType().isInteger(64))
      return emitOpError(
          "is ordered, so it must be on a device, and its last of two or more results a vector of i64 (T33)");
  }
  return success();
}

/// Batch, n and k dimensions name each dimension of `type` once.
template <typename RightOp> static LogicalResult verifyRoles(RightOp op, RankedTensorType type, StringRef label) {
  llvm::SmallBitVector seen(type.getRank());
  int64_t named = 0;
  for (ArrayRef<int64_t> dims : {op.getBatchDims(), op.getNDims(), op.getKDims()})
    for (int64_t d : dims) {
      if (d < 0 || d >= type.getRank())
        return op.emitOpError() << "dims must name each dimension once " << label;
      seen.set(d);
      ++named;
    }
  if (named != type.getRank() || !seen.all())
    return op.emitOpError() << "dims must name each dimension once " << label;
  return success();
}

/// Checks the panel's width and the roles of the dimensions.
template <typename PanelOp> static LogicalResult verifyPanelDims(PanelOp op, RankedTensorType type, StringRef label) {
  constexpr int64_t kWidest = 1024;
  if (op.getPanel() < 1 || op.getPanel() > kWidest)
    return op.emitOpError() << "the panel must have from 1 to " << kWidest << " elements, not " << op.getPanel() << " "
                            << label;
  return verifyRoles(op, type, label);
}

/// `matrix` is the type of the matrix that the panels contain.
template <typename PanelOp>
static LogicalResult verifySides(PanelOp op, RankedTensorType panels, RankedTensorType matrix) {
  int64_t depth = 1;
  for (int64_t d : op.getKDims())
    depth = matrix.isDynamicDim(d) || depth == 0 ? 0 : depth % 8 * (matrix.getDimSize(d) % 8);
  if (op.getNibbles() && depth % 8 != 0)
    return op.emitOpError("with nibbles needs a multiple of 8 values of k (T38)");
  int64_t together = op.getTogether(), shift = op.getLeftShift();
  if (op.getNibbles() && (together != 1 || !panels.getElementType().isInteger(32)))
    return op.emitOpError("with nibbles needs panels of i32 without `together` (T38)");
  if ((together != 1 && together != 2 && together != 4) || (together == 4 && !panels.getElementType().isInteger(8)))
    return op.emitOpError() << "puts " << together << " values of k together, not 1, 2, or 4 bytes (T40)";
  if (shift != 0 && (std::abs(shift) != 128 || together != 4))
    return op.emitOpError() << "shifts by " << shift << ", not by 128 or -128, with 4 values of k together (T40)";
  return success();
}

LogicalResult PackOp::verify() {
  if (failed(verifyPanelDims(*this, tensorType(getSource()), "(T13)")))
    return failure();
  return verifySides(*this, tensorType(getResult()), tensorType(getSource()));
}

int64_t UnpackOp::getGroups() { return getScales() ? tensorType(getScales()).getShape().drop_back().back() : 0; }

LogicalResult UnpackOp::verify() {
  RankedTensorType panels = tensorType(getSource());
  RankedTensorType matrix = tensorType(getResult());
  if (failed(verifyPanelDims(*this, matrix, "(T14)")) || failed(verifySides(*this, panels, matrix)))
    return failure();
  if (getNibbles() && (!getScales() || !getUnsignedCodes()))
    return emitOpError("with nibbles needs scales and unsigned codes (T38)");
  if (!getScales())
    return getZeros()      ? emitOpError("has zeros without scales (T37)")
           : getAsHalves() ? emitOpError("with `as_halves` needs scales (T42)")
                           : success();
  auto fits = [&](Value v) {
    RankedTensorType type = tensorType(v);
    if (type.getRank() != panels.getRank() || type.getRank() < 3 || !type.hasStaticShape())
      return false;
    ArrayRef<int64_t> own = type.getShape(), all = panels.getShape();
    return own.drop_back(2) == all.drop_back(2) && own.back() == static_cast<int64_t>(getPanel()) &&
           own[own.size() - 2] > 0 && all[all.size() - 2] * getSide() % own[own.size() - 2] == 0 &&
           type.getElementType().isF32();
  };
  if (!panels.getElementType().isInteger(getNibbles() ? 32 : 8) ||
      !isa<FloatType>(tensorType(getResult()).getElementType()) || !fits(getScales()) ||
      (getZeros() && (!fits(getZeros()) || getZeros().getType() != getScales().getType())))
    return emitOpError("needs scales and zeros whose shapes and types fit its panels (T37)");
  if (getAsHalves() && panels.getShape().drop_back().back() * getSide() / getGroups() % 2 != 0)
    return emitOpError("with `as_halves` needs an even number of values of k for each scale (T42)");
  return success();
}

int64_t UnpackFragmentsOp::getGroups() { return tensorType(getScales()).getShape().drop_back().back(); }

int64_t UnpackFragmentsOp::extent(ArrayRef<int64_t> dims) {
  int64_t product = 1;
  for (int64_t d : dims)
    product *= tensorType(getResult()).getDimSize(d);
  return product;
}

LogicalResult UnpackFragmentsOp::verify() {
  RankedTensorType matrix = tensorType(getResult()), codes = tensorType(getSource());
  if (failed(verifyRoles(*this, matrix, "(T39)")))
    return failure();
  if (getBits() != 4 && getBits() != 8)
    return emitOpError("needs codes of 4 or 8 bits (T39)");
  if (!matrix.hasStaticShape() || !isa<FloatType>(matrix.getElementType()))
    return emitOpError("must result in floats with a static shape (T39)");
  SmallVector<int64_t> batch;
  for (int64_t d : getBatchDims())
    batch.push_back(matrix.getDimSize(d));
  int64_t tiles = llvm::divideCeil(extent(getNDims()), 8), depth = extent(getKDims());
  SmallVector<int64_t> shape(batch), scales(batch);
  shape.append({tiles, int64_t(llvm::divideCeil(depth, getBlock())), 128});
  auto scalesType = tensorType(getScales());
  scales.append({scalesType.getRank() > 1 ? getGroups() : 0, 8 * tiles});
  Type f32 = Float32Type::get(getContext());
  if (codes != RankedTensorType::get(shape, IntegerType::get(getContext(), 32)) ||
      scalesType != RankedTensorType::get(scales, f32) || (getZeros() && getZeros().getType() != scalesType))
    return emitOpError("needs codes, scales and zeros whose shapes and types fit the result (T39)");
  int64_t groups = getGroups();
  if (groups < 1 || (groups > 1 && depth % (32 * groups) != 0))
    return emitOpError("needs one group, or groups of a multiple of 32 values of k (T39)");
  return success();
}

NextOp LoopOp::getNext() { return cast<NextOp>(getBody().front().getTerminator()); }

bool LoopOp::isVarying(unsigned carried) {
  std::optional<ArrayAttr> dims = getArgDims();
  if (!dims)
    return false;
  return llvm::any_of(cast<DimsAttr>((*dims)[carried]).getDims(), [&](const SymExpr &expr) {
    return llvm::any_of(expr.symbols(), [&](StringRef name) {
      return llvm::any_of(getSymbols().getAsRange<FlatSymbolRefAttr>(),
                          [&](FlatSymbolRefAttr symbol) { return symbol.getValue() == name; });
    });
  });
}

static bool isCondition(Value v) {
  RankedTensorType type = tensorType(v);
  return type.getRank() == 0 && type.getElementType().isInteger(1);
}

LogicalResult LoopOp::verify() {
  auto badDims = [&](ArrayAttr dims) {
    return dims.size() != getNumCarried() || !llvm::all_of(dims, llvm::IsaPred<DimsAttr>);
  };
  if (getBody().front().getArgumentTypes() != getInits().getTypes() || getNumResults() < getNumCarried() ||
      getOutputs().take_front(getNumCarried()).getTypes() != getInits().getTypes() ||
      (getArgDims() && badDims(*getArgDims())))
    return emitOpError("region arguments and carried results do not have the types of the first values (T31)");
  NextOp next = getNext();
  OperandRange values = next.getValues();
  bool ok = values.size() == getNumResults();
  for (unsigned i = 0; ok && i < values.size(); ++i) {
    RankedTensorType value = tensorType(values[i]), result = tensorType(getOutputs()[i]);
    if (i < getNumCarried())
      ok = value == result;
    else
      ok = result.getRank() == value.getRank() + 1 && result.getShape().drop_front() == value.getShape() &&
           result.getElementType() == value.getElementType();
  }
  if (!ok)
    return emitOpError("the values of a step do not fit the results (T32)");
  if ((getCondition() && !isCondition(getCondition())) || (next.getCondition() && !isCondition(next.getCondition())))
    return emitOpError("a condition must be a tensor<i1> (T24)");
  size_t symbols = getSymbols().size();
  if (getLastSymbols().size() != symbols || getSizes().size() != symbols || next.getSizes().size() != symbols)
    return emitOpError("the numbers of symbols and sizes differ (T25)");
  if ((!getCount() && !getCondition()) || !getCondition() != !next.getCondition() ||
      (getReverse() && (!getCount() || getCondition())))
    return emitOpError("needs a count, or conditions before and in the body; a reverse loop needs only a count (T27)");
  return success();
}

using Effects = SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>>;

void LoopOp::getEffects(Effects &effects) {
  if (!getLastSymbols().empty() || getTrips())
    effects.emplace_back(MemoryEffects::Write::get());
}

void BranchOp::getEffects(Effects &effects) {
  if (!getSymbols().empty())
    effects.emplace_back(MemoryEffects::Write::get());
}

/// Whether all of these are declared (T30).
static LogicalResult verifyDeclared(Operation *op, SymbolTableCollection &tables, ArrayRef<Attribute> symbols) {
  auto module = op->getParentOfType<ModuleOp>();
  for (Attribute symbol : symbols)
    if (auto name = cast<FlatSymbolRefAttr>(symbol).getAttr();
        module && !isa_and_nonnull<SymbolOp>(tables.lookupSymbolIn(module, name)))
      return op->emitOpError() << "'" << name.getValue() << "' is not a declared symbol (T30)";
  return success();
}

LogicalResult LoopOp::verifySymbolUses(SymbolTableCollection &tables) {
  SmallVector<Attribute> symbols = {getIndexAttr()};
  llvm::append_range(symbols, getSymbols());
  llvm::append_range(symbols, getLastSymbols());
  if (getTripsAttr())
    symbols.push_back(getTripsAttr());
  return verifyDeclared(*this, tables, symbols);
}

TensorYieldOp BranchOp::getYield(unsigned side) {
  return cast<TensorYieldOp>(getOperation()->getRegion(side).front().getTerminator());
}

LogicalResult BranchOp::verify() {
  if (!isCondition(getCondition()))
    return emitOpError("the condition must be a tensor<i1> (T24)");
  for (unsigned side : {0, 1}) {
    if (getYield(side).getSizes().size() != getSymbols().size())
      return emitOpError("the numbers of symbols and sizes differ (T25)");
    if (getYield(side).getValues().getTypes() != getResultTypes())
      return emitOpError("the values of a region do not have the types of the results (T26)");
  }
  return success();
}

LogicalResult BranchOp::verifySymbolUses(SymbolTableCollection &tables) {
  return verifyDeclared(*this, tables, getSymbols().getValue());
}

TensorYieldOp CompositeOp::getYield() { return cast<TensorYieldOp>(getBody().front().getTerminator()); }

LogicalResult CompositeOp::verify() {
  auto yield = dyn_cast<TensorYieldOp>(getBody().front().getTerminator());
  bool ok = yield && yield.getSizes().empty() && yield.getValues().getTypes() == getResultTypes();
  return ok ? success() : emitOpError("the yielded values do not have the types of the results (T36)");
}

void CompositeOp::inlineBody() {
  TensorYieldOp yield = getYield();
  getOutputs().replaceAllUsesWith(yield.getValues());
  yield.erase();
  Block *block = getOperation()->getBlock();
  block->getOperations().splice(Block::iterator(getOperation()), getBody().front().getOperations());
  getOperation()->erase();
}

static FunctionOpInterface calleeOf(InvokeOp op) {
  auto module = op->getParentOfType<ModuleOp>();
  return module ? module.lookupSymbol<FunctionOpInterface>(op.getCallee()) : FunctionOpInterface();
}

Operation *InvokeOp::getCalleeOp() {
  auto module = (*this)->getParentOfType<ModuleOp>();
  return module ? module.lookupSymbol(getCallee()) : nullptr;
}

SmallVector<std::pair<int64_t, int64_t>> InvokeOp::givenBy(Operation *procedure) {
  SmallVector<std::pair<int64_t, int64_t>> places;
  auto numbers = procedure ? procedure->getAttrOfType<DenseI64ArrayAttr>(getGivenAttrName()) : DenseI64ArrayAttr();
  for (int64_t i = 0; numbers && i + 1 < numbers.size(); i += 2)
    places.push_back({numbers[i], numbers[i + 1]});
  return places;
}

bool InvokeOp::isOpen(Operation *procedure, unsigned result) {
  return llvm::any_of(givenBy(procedure), [&](auto place) { return place.first == result; });
}

ArrayAttr InvokeOp::getCalleeSymbols() {
  FunctionOpInterface callee = calleeOf(*this);
  return callee ? callee->getAttrOfType<ArrayAttr>(getProcedureAttrName()) : ArrayAttr();
}

DimsAttr InvokeOp::getArgumentDims(unsigned index) {
  return calleeOf(*this).getArgAttrOfType<DimsAttr>(index, ShapeDialect::getDimsAttrName());
}

DimsAttr InvokeOp::getCalleeResultDims(unsigned index) {
  return calleeOf(*this).getResultAttrOfType<DimsAttr>(index, ShapeDialect::getDimsAttrName());
}

LogicalResult InvokeOp::verifySymbolUses(SymbolTableCollection &tables) {
  auto module = (*this)->getParentOfType<ModuleOp>();
  auto callee = module ? dyn_cast_or_null<FunctionOpInterface>(tables.lookupSymbolIn(module, getCalleeAttr().getAttr()))
                       : FunctionOpInterface();
  auto symbols = callee ? callee->getAttrOfType<ArrayAttr>(getProcedureAttrName()) : ArrayAttr();
  if (!symbols || symbols.size() != getSizes().size() || givenBy(callee).size() != getSymbols().size() ||
      TypeRange(callee.getArgumentTypes()) != getInputs().getTypes() ||
      TypeRange(callee.getResultTypes()) != getResultTypes())
    return emitOpError("does not fit a procedure of this name (T28)");
  return verifyDeclared(*this, tables, getSymbols().getValue());
}

#define GET_OP_CLASSES
#include "dialects/Tensor/TensorOps.cpp.inc"
