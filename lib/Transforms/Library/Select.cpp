//===- Select.cpp - regions to calls, or to the host's lowering -------------===//
//
//   %y = disc_plan.region "a" 0 {table = "a_table", description = "{...}", constants = ["w"], when = [<B - 32>]} ... {
//     %a = disc_tensor.composite "aten.linear" 4 (%x, %w) ... { ... }
//     disc_plan.yield %a : tensor<?x8xf32>
//   }
// becomes
//   disc_plan.extern @region0 backend "a" table "a_table" constants ["w"] : [tensor<8x8xf32>] {description = "{...}"}
//   %go = linalg.generic ... { B - 32 >= 0 } -> tensor<i1>
//   %y = disc_tensor.branch %go ... {
//     %c = disc_plan.extern_call @region0(%x) sizes(%B) numbers(%B) "a: aten.linear at model.py:3" ...
//     disc_tensor.yield %c : tensor<?x8xf32>
//   } else {
//     %d = linalg.generic ...                                       // the composite's body
//     disc_tensor.yield %d : tensor<?x8xf32>
//   }
//
// Without `when` only the call is left. A region with a veto, one without code, and composites that no back end took
// become the host's lowering.
//
// Test: test/lit/Library/select.mlir
//
//===----------------------------------------------------------------------===//

#include "lib/Transforms/Library/Passes.h"

#include "dialects/Plan/PlanDialect.h"
#include "lib/Transforms/Support/ShapeAnalysis.h"
#include "lib/Transforms/Support/SourceLine.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/ADT/SetVector.h"

#include <set>

namespace mlir::disc {
#define GEN_PASS_DEF_SELECT
#include "lib/Transforms/Library/Passes.h.inc"
} // namespace mlir::disc

using namespace mlir;
using namespace mlir::disc;

/// "onednn: aten.linear, aten.gelu at model.py:3".
static std::string describe(RegionOp region) {
  llvm::SetVector<std::string, std::vector<std::string>, std::set<std::string>> lines;
  std::string names;
  for (auto op : region.getBody().getOps<CompositeOp>()) {
    names += (names.empty() ? "" : ", ") + op.getName().str();
    if (std::string line = sourceLine(op.getLoc()); !line.empty())
      lines.insert(line);
  }
  std::string text = region.getBackend().str() + ": " + names;
  for (const std::string &line : lines)
    text += (line == lines.front() ? " at " : ", ") + line;
  return text;
}

static Value exprValue(OpBuilder &b, Location loc, const SymExpr &expr) {
  if (expr.isConstant())
    return arith::ConstantIndexOp::create(b, loc, expr.constant());
  return DimOp::create(b, loc, expr);
}

/// Whether all of these are at least 0, as a tensor.
static Value condition(OpBuilder &b, Location loc, ArrayAttr when) {
  auto type = RankedTensorType::get({}, b.getI1Type());
  SmallVector<Value> values =
      llvm::map_to_vector(when, [&](Attribute expr) { return exprValue(b, loc, cast<ExprAttr>(expr).getValue()); });
  Value empty = tensor::EmptyOp::create(b, loc, type, ValueRange());
  auto generic =
      linalg::GenericOp::create(b, loc, type, ValueRange(), empty, b.getMultiDimIdentityMap(0),
                                ArrayRef<utils::IteratorType>(), [&](OpBuilder &b, Location loc, ValueRange) {
                                  Value zero = arith::ConstantIndexOp::create(b, loc, 0), all;
                                  for (Value value : values) {
                                    Value one = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sge, value, zero);
                                    all = all ? arith::AndIOp::create(b, loc, all, one).getResult() : one;
                                  }
                                  linalg::YieldOp::create(b, loc, all);
                                });
  return generic.getResult(0);
}

static ValueRange makeCall(OpBuilder &b, RegionOp region, ExternOp callee, ShapeAnalysis &shapes) {
  Location loc = region.getLoc();
  SmallVector<StringRef> constants;
  for (auto name : callee.getConstants().getAsRange<StringAttr>())
    constants.push_back(name.getValue());
  SmallVector<Value> inputs, sizes, numbers;
  for (Value operand : region.getOperandTensors()) {
    auto parameter = operand.getDefiningOp<ParameterOp>();
    if (!parameter || !llvm::is_contained(constants, parameter.getName()))
      inputs.push_back(operand);
  }
  for (Value result : region.getOutputs())
    for (auto [extent, expr] : llvm::zip(cast<RankedTensorType>(result.getType()).getShape(), shapes.dims(result)))
      if (ShapedType::isDynamic(extent))
        sizes.push_back(exprValue(b, loc, expr));
  if (ArrayAttr exprs = region.getNumbersAttr())
    for (auto expr : exprs.getAsRange<ExprAttr>())
      numbers.push_back(exprValue(b, loc, expr.getValue()));
  auto call = ExternCallOp::create(b, loc, region.getResultTypes(), callee.getSymName(), inputs, sizes, numbers,
                                   describe(region), DenseI64ArrayAttr());
  if (Attribute dims = region->getAttr(ShapeDialect::getDimsAttrName()))
    call->setAttr(ShapeDialect::getDimsAttrName(), dims);
  return call.getOutputs();
}

namespace {
struct Select : disc::impl::SelectBase<Select> {
  void runOnOperation() override {
    ShapeAnalysis shapes(getOperation());
    SmallVector<RegionOp> regions;
    getOperation().walk([&](RegionOp region) { regions.push_back(region); });
    for (RegionOp region : regions)
      if (region.getVeto() || !region.getTable())
        region.inlineBody();
      else if (failed(select(region, shapes)))
        return signalPassFailure();
    SmallVector<CompositeOp> composites;
    getOperation().walk([&](CompositeOp op) { composites.push_back(op); });
    for (CompositeOp op : composites)
      op.inlineBody();
  }

  LogicalResult select(RegionOp region, ShapeAnalysis &shapes) {
    FailureOr<ExternOp> callee = makeExtern(region);
    if (failed(callee))
      return failure();
    OpBuilder b(region);
    ArrayAttr when = region.getWhenAttr();
    if (!when || when.empty()) {
      region.getOutputs().replaceAllUsesWith(makeCall(b, region, *callee, shapes));
      region.erase();
      return success();
    }
    Location loc = region.getLoc();
    Value go = condition(b, loc, when);
    auto branch = BranchOp::create(b, loc, region.getResultTypes(), go, b.getArrayAttr({}));
    if (Attribute dims = region->getAttr(ShapeDialect::getDimsAttrName()))
      branch->setAttr(ShapeDialect::getDimsAttrName(), dims);
    b.createBlock(&branch.getThenRegion());
    TensorYieldOp::create(b, loc, makeCall(b, region, *callee, shapes), ValueRange());
    Block *host = b.createBlock(&branch.getElseRegion());
    region.getOutputs().replaceAllUsesWith(branch.getOutputs());
    YieldOp yield = region.getYield();
    b.setInsertionPointToEnd(host);
    auto end = TensorYieldOp::create(b, loc, yield.getValues(), ValueRange());
    yield.erase();
    host->getOperations().splice(Block::iterator(end), region.getBody().front().getOperations());
    region.erase();
    return success();
  }

  FailureOr<ExternOp> makeExtern(RegionOp region) {
    Builder types(&getContext());
    SmallVector<Attribute> names, constantTypes;
    ArrayAttr constants = region.getConstantsAttr();
    for (Attribute name : constants ? constants : types.getArrayAttr({})) {
      auto isOperand = [&](Value operand) {
        auto parameter = operand.getDefiningOp<ParameterOp>();
        return parameter && parameter.getNameAttr() == name;
      };
      SmallVector<Value> operands = region.getOperandTensors();
      auto *found = llvm::find_if(operands, isOperand);
      if (found == operands.end())
        return region.emitOpError() << "asks for the constant " << name << ", which is not a parameter that it uses";
      names.push_back(name);
      constantTypes.push_back(TypeAttr::get(found->getType()));
    }
    OpBuilder b = OpBuilder::atBlockBegin(getOperation().getBody());
    return ExternOp::create(b, region.getLoc(), b.getStringAttr("region" + Twine(region.getId())), StringAttr(),
                            region.getBackendAttr(), region.getTableAttr(),
                            region.getDescriptionAttr() ? region.getDescriptionAttr() : b.getStringAttr("{}"),
                            b.getArrayAttr(names), b.getArrayAttr(constantTypes));
  }
};
} // namespace
