//===- ShapeDialect.cpp - the disc_shape dialect --------------------------===//

#include "dialects/Shape/ShapeDialect.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace mlir::disc;

#include "dialects/Shape/ShapeDialect.cpp.inc"
#include "dialects/Shape/ShapeEnums.cpp.inc"
#include "dialects/Shape/ShapeInterfaces.cpp.inc"

#define GET_ATTRDEF_CLASSES
#include "dialects/Shape/ShapeAttrs.cpp.inc"

void ShapeDialect::initialize() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "dialects/Shape/ShapeAttrs.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "dialects/Shape/ShapeOps.cpp.inc"
      >();
}

Operation *ShapeDialect::materializeConstant(OpBuilder &builder, Attribute value, Type type, Location loc) {
  return arith::ConstantOp::materialize(builder, value, type, loc);
}

//===----------------------------------------------------------------------===//
// Attributes
//===----------------------------------------------------------------------===//

Attribute ExprAttr::parse(AsmParser &parser, Type) {
  if (parser.parseLess())
    return {};
  FailureOr<SymExpr> value = SymExpr::parse(parser);
  if (failed(value) || parser.parseGreater())
    return {};
  return get(parser.getContext(), *value);
}

void ExprAttr::print(AsmPrinter &printer) const { printer << "<" << getValue().str() << ">"; }

Attribute DimsAttr::parse(AsmParser &parser, Type) {
  SmallVector<SymExpr> values;
  auto parseValue = [&]() -> ParseResult {
    FailureOr<SymExpr> value = SymExpr::parse(parser);
    if (failed(value))
      return failure();
    values.push_back(*value);
    return success();
  };
  if (parser.parseLess() || parser.parseCommaSeparatedList(AsmParser::Delimiter::Square, parseValue) ||
      parser.parseGreater())
    return {};
  return get(parser.getContext(), values);
}

void DimsAttr::print(AsmPrinter &printer) const {
  printer << "<[";
  llvm::interleaveComma(getExprs(), printer, [&](ExprAttr expr) { printer << expr.getValue().str(); });
  printer << "]>";
}

DimsAttr DimsAttr::get(MLIRContext *context, ArrayRef<SymExpr> exprs) {
  SmallVector<ExprAttr> attributes;
  for (const SymExpr &expr : exprs)
    attributes.push_back(ExprAttr::get(context, expr));
  return get(context, attributes);
}

SmallVector<SymExpr> DimsAttr::getDims() const {
  return llvm::map_to_vector(getExprs(), [](ExprAttr expr) { return expr.getValue(); });
}

//===----------------------------------------------------------------------===//
// Verification of the attribute disc_shape.dims
//===----------------------------------------------------------------------===//

/// (A1), (A2); the symbols are checked where a symbol table is at hand.
static LogicalResult verifyDims(Operation *op, Attribute attribute, Type type) {
  auto dims = dyn_cast<DimsAttr>(attribute);
  auto tensor = dyn_cast<RankedTensorType>(type);
  if (!dims || !tensor || tensor.getRank() != int64_t(dims.size()))
    return op->emitOpError("(A1) expects disc_shape.dims to have one expression per "
                           "dimension of a ranked tensor, got ")
           << attribute << " on " << type;
  for (auto [size, expr] : llvm::zip(tensor.getShape(), dims.getDims()))
    if (!ShapedType::isDynamic(size) && !expr.isConstant(size))
      return op->emitOpError("(A2) expects the expression of a static "
                             "dimension to be ")
             << size << ", got " << expr.str();
  return success();
}

/// (A3) and (E1). Outside any module there is nothing to check against.
static LogicalResult verifyDeclared(Operation *op, StringRef label, ArrayRef<SymExpr> exprs,
                                    SymbolTableCollection *tables) {
  auto module = op->getParentOfType<ModuleOp>();
  if (!module)
    return success();
  for (const SymExpr &expr : exprs)
    for (const std::string &name : expr.symbols()) {
      auto symbol = StringAttr::get(op->getContext(), name);
      Operation *declaration =
          tables ? tables->lookupSymbolIn(module, symbol) : SymbolTable::lookupSymbolIn(module, symbol);
      if (!isa_and_nonnull<SymbolOp>(declaration))
        return op->emitOpError("(") << label << ") uses the undeclared symbol '" << name << "' in " << expr.str();
    }
  return success();
}

static LogicalResult verifyBoundary(Operation *op, NamedAttribute attribute, Type type) {
  if (attribute.getName() == ShapeDialect::getNameAttrName()) {
    if (!isa<StringAttr>(attribute.getValue()))
      return op->emitOpError("expects disc_shape.name to be a string");
    return success();
  }
  if (attribute.getName() == ShapeDialect::getRepeatsAttrName()) {
    auto dims = dyn_cast<DenseI64ArrayAttr>(attribute.getValue());
    auto tensor = dyn_cast<RankedTensorType>(type);
    if (!dims || !tensor || llvm::any_of(dims.asArrayRef(), [&](int64_t dim) {
          return dim < 0 || dim >= tensor.getRank() || !tensor.isDynamicDim(dim);
        }))
      return op->emitOpError("(A4) expects disc_shape.repeats to be an array of dynamic dims");
    return success();
  }
  if (attribute.getName() != ShapeDialect::getDimsAttrName())
    return op->emitOpError("has the unknown attribute ") << attribute.getName();
  if (failed(verifyDims(op, attribute.getValue(), type)))
    return failure();
  return verifyDeclared(op, "A3", cast<DimsAttr>(attribute.getValue()).getDims(),
                        /*tables=*/nullptr);
}

LogicalResult ShapeDialect::verifyRegionArgAttribute(Operation *op, unsigned regionIndex, unsigned argIndex,
                                                     NamedAttribute attribute) {
  // A declaration has no block; its type is in the signature.
  if (auto function = dyn_cast<FunctionOpInterface>(op))
    return verifyBoundary(op, attribute, function.getArgumentTypes()[argIndex]);
  return verifyBoundary(op, attribute, op->getRegion(regionIndex).getArgument(argIndex).getType());
}

LogicalResult ShapeDialect::verifyRegionResultAttribute(Operation *op, unsigned, unsigned resultIndex,
                                                        NamedAttribute attribute) {
  if (auto function = dyn_cast<FunctionOpInterface>(op))
    return verifyBoundary(op, attribute, function.getResultTypes()[resultIndex]);
  return success();
}

LogicalResult ShapeDialect::verifyOperationAttribute(Operation *op, NamedAttribute attribute) {
  if (attribute.getName() != getDimsAttrName())
    return op->emitOpError("has the unknown attribute ") << attribute.getName();
  SmallVector<Type> tensors;
  llvm::copy_if(op->getResultTypes(), std::back_inserter(tensors), llvm::IsaPred<RankedTensorType>);
  auto dims = dyn_cast<ArrayAttr>(attribute.getValue());
  if (!dims || dims.size() != tensors.size())
    return op->emitOpError("(A1) expects disc_shape.dims to be an array "
                           "with one entry per tensor result");
  for (auto [entry, type] : llvm::zip(dims, tensors))
    if (failed(verifyDims(op, entry, type)))
      return failure();
  return success();
}

//===----------------------------------------------------------------------===//
// Operations
//===----------------------------------------------------------------------===//

static ParseResult parsePredicate(OpAsmParser &parser, StringAttr &predicate) {
  StringRef word;
  SMLoc loc = parser.getCurrentLocation();
  if (parser.parseKeyword(&word))
    return failure();
  if (!symbolizePredicate(word))
    return parser.emitError(loc, "expected 'eq', 'le' or 'divisible'");
  predicate = parser.getBuilder().getStringAttr(word);
  return success();
}

static void printPredicate(OpAsmPrinter &printer, Operation *, StringAttr predicate) {
  printer << predicate.getValue();
}

LogicalResult SymbolOp::verify() {
  int64_t min = getMin(), divisor = getDivisor();
  std::optional<int64_t> max = getMax();
  // The sum of two such bounds is still a number of 64 bits.
  constexpr int64_t kLeast = -(int64_t(1) << 62);
  if (min < kLeast)
    return emitOpError("(S1) expects min >= ") << kLeast << ", got " << min;
  if (max && *max < min)
    return emitOpError("(S2) expects max >= min, got ") << *max << " < " << min;
  if (divisor < 1)
    return emitOpError("(S3) expects divisor >= 1, got ") << divisor;
  if (max && *max / divisor * divisor < min)
    return emitOpError("(S4) expects a multiple of ") << divisor << " between " << min << " and " << *max;
  if (std::optional<ArrayRef<int64_t>> likely = getLikely())
    for (int64_t value : *likely)
      if (value < min || (max && value > *max) || value % divisor != 0)
        return emitOpError("(S5) expects likely values between min and max "
                           "that are multiples of divisor, got ")
               << value;
  return success();
}

void DimOp::build(OpBuilder &builder, OperationState &state, const SymExpr &expr) {
  build(builder, state, builder.getIndexType(), ExprAttr::get(builder.getContext(), expr));
}

OpFoldResult DimOp::fold(FoldAdaptor) {
  if (getExpr().getValue().isConstant())
    return IntegerAttr::get(getType(), getExpr().getValue().constant());
  return {};
}

LogicalResult DimOp::verifySymbolUses(SymbolTableCollection &tables) {
  SymExpr expr = getExpr().getValue();
  return verifyDeclared(*this, "E1", expr, &tables);
}

/// The host flow is a function's entry block, and those of loops and branches in it, which tell extents of results.
static bool standsInFlow(Operation *op) {
  if (auto function = dyn_cast<FunctionOpInterface>(op->getParentOp()))
    return op->getBlock() == &function.getFunctionBody().front();
  return isa<DimsOpInterface>(op->getParentOp());
}

LogicalResult GuardOp::verify() {
  SymExpr divisor = getRhs().getValue();
  if (getPredicate() == Predicate::Divisible && !(divisor.isConstant() && divisor.constant() > 0))
    return emitOpError("(E2) expects a positive constant divisor, got ") << divisor.str();
  if (!standsInFlow(*this))
    return emitOpError("(E3) expects to stand in a block of the host flow");
  return success();
}

LogicalResult BindOp::verify() {
  auto type = cast<RankedTensorType>(getValue().getType());
  if (type.getRank() != 0 || !type.getElementType().isInteger(64))
    return emitOpError("(E4) expects an i64 tensor without dimensions, got ") << type;
  if (!standsInFlow(*this))
    return emitOpError("(E5) expects to stand in a block of the host flow");
  return success();
}

LogicalResult BindOp::verifySymbolUses(SymbolTableCollection &tables) {
  return verifyDeclared(*this, "E1", SymExpr::symbol(getSymbol().str()), &tables);
}

LogicalResult GuardOp::verifySymbolUses(SymbolTableCollection &tables) {
  SymExpr sides[] = {getLhs().getValue(), getRhs().getValue()};
  return verifyDeclared(*this, "E1", sides, &tables);
}

#define GET_OP_CLASSES
#include "dialects/Shape/ShapeOps.cpp.inc"
