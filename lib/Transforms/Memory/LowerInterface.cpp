//===- LowerInterface.cpp - inputs, outputs, symbols and guards -----------===//
//
//   func.func @main(%x: tensor<?x8xf32> {disc_shape.dims = #disc_shape.dims<[S, 8]>, ...}) -> tensor<?x8xf32> {
//     disc_shape.guard <S> le <T> "x is longer than y"
//     ...
//     disc_shape.bind @u0, %count "aten.nonzero at model.py:3"
// becomes
//   disc_rt.entry @main attributes {inputs = [...], outputs = [...]} {
//   ^bb0(%call: !llvm.ptr):
//     disc_rt.check_inputs %call
//     %S = disc_rt.extent %call[0, 0]
//     disc_rt.guard %call, %S ge %min ...                       // range of S; extents that must agree
//     disc_rt.bind_symbol @S, %S
//     disc_rt.guard %call, %S le %T ...
//     ...
//     %n = llvm.load %count
//     disc_rt.guard %call, %n le %max ...
//     disc_rt.bind_symbol @u0, %n computed
//
// Tests: test/lit/Memory/convert-to-rt.mlir, epochs.mlir
//
//===----------------------------------------------------------------------===//

#include "lib/Transforms/Memory/FlowLowering.h"

#include "lib/Transforms/Memory/Updates.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;
using namespace mlir::disc;

InterfaceTensorAttr FlowLowering::describe(StringRef fallback, unsigned index, Type type, DictionaryAttr attrs,
                                           ArrayRef<SymExpr> dims, bool updated) {
  StringAttr name = attrs ? attrs.getAs<StringAttr>(ShapeDialect::getNameAttrName()) : StringAttr();
  if (!name)
    name = b.getStringAttr(fallback + Twine(index));
  // The one fact about an element type that signless integers lose.
  bool isUnsigned = attrs && attrs.contains("disc_tensor.unsigned");
  auto repeats = attrs ? attrs.getAs<DenseI64ArrayAttr>(ShapeDialect::getRepeatsAttrName()) : DenseI64ArrayAttr();
  return InterfaceTensorAttr::get(b.getContext(), name, cast<RankedTensorType>(type),
                                  DimsAttr::get(b.getContext(), dims), isUnsigned, updated, repeats);
}

void FlowLowering::guard(GuardPredicate predicate, Value lhs, Value rhs, int64_t input, int64_t dim,
                         const Twine &expected, const Twine &message) {
  RtGuardOp::create(b, loc, call, predicate, lhs, rhs, input, dim, expected.str(), message.str());
}

void FlowLowering::guardRange(SymbolOp symbol, Value value, int64_t input, int64_t dimension, StringRef what) {
  std::string range;
  llvm::raw_string_ostream os(range);
  os << symbol.getMin() << " <= " << symbol.getSymName();
  if (std::optional<int64_t> max = symbol.getMax())
    os << " <= " << *max;
  std::string message =
      what.empty() ? "is out of range" : (what + ": " + symbol.getSymName() + " is out of range").str();
  // A range says what an input's extent may be; of what is computed the bound that it misses says enough.
  auto expected = [&](int64_t bound) { return what.empty() ? range : std::to_string(bound); };
  int64_t min = symbol.getMin(), divisor = symbol.getDivisor();
  // Without a stated minimum there is nothing to check: extents are not negative. What is computed may be.
  if (min > 0 || !what.empty())
    guard(GuardPredicate::Ge, value, dim(SymExpr(min)), input, dimension, expected(min), message);
  if (std::optional<int64_t> max = symbol.getMax())
    guard(GuardPredicate::Le, value, dim(SymExpr(*max)), input, dimension, expected(*max), message);
  if (divisor > 1)
    guard(GuardPredicate::Divisible, value, dim(SymExpr(divisor)), input, dimension, "a multiple of " + Twine(divisor),
          what.empty() ? "is not divisible" : message);
}

/// An expression as users write it: `x // 16`, where the IR has `x floordiv 16`.
static std::string readable(const SymExpr &expr) {
  std::string text = expr.str();
  for (auto [word, sign] : {std::pair(StringRef(" floordiv "), " // "), std::pair(StringRef(" mod "), " % ")})
    for (size_t at; (at = text.find(word.str())) != std::string::npos;)
      text.replace(at, word.size(), sign);
  return text;
}

LogicalResult FlowLowering::describeInterface(SmallVector<Attribute> &inputs, SmallVector<Attribute> &outputs) {
  auto ret = cast<func::ReturnOp>(func.getBody().front().getTerminator());
  llvm::SmallDenseSet<Value> updated;
  for (auto [i, operand] : llvm::enumerate(ret.getOperands())) {
    if (std::optional<BlockArgument> argument = updatedBy(func, i))
      updated.insert(*argument);
    else
      outputs.push_back(describe("output", i, operand.getType(), func.getResultAttrDict(i), shapes.dims(operand)));
  }
  for (BlockArgument arg : func.getArguments()) {
    unsigned i = arg.getArgNumber();
    if (!stateOf(arg))
      inputs.push_back(
          describe("input", i, arg.getType(), func.getArgAttrDict(i), shapes.dims(arg), updated.contains(arg)));
    else if (i + 1 != func.getNumArguments() && !stateOf(func.getArgument(i + 1)))
      return func.emitError() << "argument " << i << " is state and comes before an input";
  }
  return success();
}

LogicalResult FlowLowering::bindInputs() {
  if (func.getNumArguments() != 0)
    CheckInputsOp::create(b, loc, call);
  llvm::StringSet<> bound;
  struct Extent {
    Value value;
    int64_t input, dim;
    SymExpr expr;
  };
  SmallVector<Extent> pending;
  auto bind = [&](StringRef name, Value value, int64_t input, int64_t dimension) -> LogicalResult {
    auto symbol = module.lookupSymbol<SymbolOp>(name);
    if (!symbol)
      return func.emitError() << "symbol '" << name << "' of argument " << input << " is not declared";
    guardRange(symbol, value, input, dimension);
    BindSymbolOp::create(b, loc, name, value, /*computed=*/false);
    bound.insert(name);
    entrySymbols.push_back(b.getStringAttr(name));
    entryValues.push_back(value);
    return success();
  };
  for (BlockArgument arg : func.getArguments()) {
    if (stateOf(arg))
      continue;
    // As they are declared: a symbol that a guard makes equal to another has a value too, which the guard compares.
    SmallVector<SymExpr> dims = shapes.dims(arg);
    if (auto declared = func.getArgAttrOfType<DimsAttr>(arg.getArgNumber(), ShapeDialect::getDimsAttrName()))
      dims = declared.getDims();
    for (auto [d, expr] : llvm::enumerate(dims)) {
      int64_t input = arg.getArgNumber(), dimension = d;
      Value value = ExtentOp::create(b, loc, b.getIndexType(), call, input, dimension);
      std::optional<StringRef> name = expr.asSymbol();
      if (name && !bound.contains(*name)) {
        if (failed(bind(*name, value, input, dimension)))
          return failure();
      } else {
        pending.push_back({value, input, dimension, expr});
      }
    }
  }
  // What is left either follows from bound symbols, and is checked, or is linear in one more symbol: solve for it.
  for (bool progress = true; progress;) {
    progress = false;
    for (Extent &e : llvm::make_early_inc_range(pending)) {
      SmallVector<std::string> open;
      for (std::string &name : e.expr.symbols())
        if (!bound.contains(name))
          open.push_back(name);
      if (open.size() != 1)
        continue;
      SymExpr zero = e.expr.substitute([&](StringRef n) -> std::optional<SymExpr> {
        return n == open[0] ? std::optional<SymExpr>(SymExpr(0)) : std::nullopt;
      });
      std::optional<SymExpr> scale = SymExpr::exactDiv(e.expr - zero, SymExpr::symbol(open[0]));
      if (!scale || !scale->isConstant() || scale->constant() <= 0 || !zero.isConstant())
        continue;
      Value rest = arith::SubIOp::create(b, loc, e.value, dim(zero));
      Value divisor = dim(*scale);
      std::string form = "does not have the form " + readable(e.expr);
      if (zero.constant() != 0)
        form += " (" + zero.str() + " is subtracted)";
      guard(GuardPredicate::Divisible, rest, divisor, e.input, e.dim, "", form);
      Value solved = arith::DivSIOp::create(b, loc, rest, divisor);
      if (failed(bind(open[0], solved, e.input, e.dim)))
        return failure();
      progress = true;
    }
  }
  for (Extent &e : pending) {
    for (std::string &name : e.expr.symbols())
      if (!bound.contains(name))
        return func.emitError() << "symbol '" << name << "' in extent " << e.dim << " of argument " << e.input
                                << " cannot be computed from the inputs";
    guard(GuardPredicate::Eq, e.value, dim(e.expr), e.input, e.dim, e.expr.str(), "has the wrong extent");
  }
  return success();
}

/// A relation that the shape stage could not prove.
LogicalResult FlowLowering::lower(GuardOp fact) {
  GuardPredicate predicate = fact.getPredicate() == Predicate::Eq   ? GuardPredicate::Eq
                             : fact.getPredicate() == Predicate::Le ? GuardPredicate::Le
                                                                    : GuardPredicate::Divisible;
  SymExpr lhs = fact.getLhsAttr().getValue(), rhs = fact.getRhsAttr().getValue();
  StringRef relation = predicate == GuardPredicate::Eq   ? " == "
                       : predicate == GuardPredicate::Le ? " <= "
                                                         : " a multiple of ";
  std::string text = readable(lhs) + relation.str() + readable(rhs);
  RtGuardOp::create(b, fact.getLoc(), call, predicate, dim(lhs), dim(rhs), -1, -1, text, fact.getMessage());
  return success();
}

/// Reads the value of a symbol from the tensor that holds it.
LogicalResult FlowLowering::lower(BindOp bind) {
  auto symbol = module.lookupSymbol<SymbolOp>(bind.getSymbol());
  FailureOr<Value> loaded = loadScalar(bind.getValue(), b.getI64Type());
  if (!symbol || failed(loaded))
    return bind.emitError() << "symbol '" << bind.getSymbol() << "' cannot be bound to this value";
  Value value = arith::IndexCastOp::create(b, bind.getLoc(), b.getIndexType(), *loaded);
  guardRange(symbol, value, -1, -1, bind.getWhat().empty() ? "a computed extent" : bind.getWhat());
  BindSymbolOp::create(b, bind.getLoc(), bind.getSymbol(), value, /*computed=*/true);
  return success();
}

/// Symbols that computed extents give their values.
void FlowLowering::bindComputed(ArrayAttr symbols, ValueRange values, StringRef what) {
  for (auto [name, value] : llvm::zip(symbols.getAsRange<FlatSymbolRefAttr>(), values)) {
    auto symbol = module.lookupSymbol<SymbolOp>(name.getValue());
    guardRange(symbol, value, -1, -1, what);
    BindSymbolOp::create(b, loc, name.getValue(), value, /*computed=*/true);
  }
}
