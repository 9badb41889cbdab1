//===- VerifyShape.cpp - disc-shape-verify --------------------------------===//
//
// The contract of the shape stage, labelled as in Passes.td. Changes nothing.
//
// Test: test/lit/Shape/verify.mlir
//
//===----------------------------------------------------------------------===//

#include "dialects/Tensor/TensorDialect.h"
#include "lib/Transforms/Shape/Passes.h"
#include "lib/Transforms/Shape/Requirements.h"
#include "lib/Transforms/Support/HostFlow.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "llvm/ADT/StringSet.h"
#include <map>

namespace mlir::disc {
#define GEN_PASS_DEF_VERIFYSHAPE
#include "lib/Transforms/Shape/Passes.h.inc"
} // namespace mlir::disc

using namespace mlir;
using namespace mlir::disc;

namespace {
class Verifier {
public:
  explicit Verifier(ShapeAnalysis &shapes) : shapes(shapes) {}

  void verify(FunctionOpInterface function) {
    verifyArguments(function);
    function->walk([&](Operation *op) { verify(op); });
    extents.clear();
    bound.clear();
  }

  bool failed = false;

private:
  InFlightDiagnostic report(Operation *op, StringRef label) {
    failed = true;
    return emitError(op->getLoc()) << "(" << label << ") ";
  }

  void verify(Operation *op) {
    if (auto dim = dyn_cast<tensor::DimOp>(op)) {
      if (ShapeAnalysis::isExpressible(shapes.expr(dim)))
        report(op, "V1") << "tensor.dim is left of an extent that is known";
    } else if (isa<RequireOp>(op)) {
      report(op, "V2") << "a requirement is neither proved nor guarded";
    } else if (auto dim = dyn_cast<DimOp>(op)) {
      verifyUnique(dim);
    } else {
      verifySymbols(op);
      verifyDims(op);
      verifySizes(op);
      for (const Requirement &needed : unprovedRequirements(op, shapes))
        report(op, "V7") << needed.message << ": " << needed.lhs.str() << " and " << needed.rhs.str();
    }
  }

  void verifySymbols(Operation *op) {
    SmallVector<StringRef> names = symbolsAfter(op);
    if (auto loop = dyn_cast<LoopOp>(op))
      for (auto symbol : loop.getSymbols().getAsRange<FlatSymbolRefAttr>())
        names.push_back(symbol.getValue());
    for (StringRef name : names)
      if (!bound.insert(name).second)
        report(op, "V8") << "symbol '" << name << "' has a value already";
  }

  void verifyArguments(FunctionOpInterface function) {
    for (auto [index, type] : llvm::enumerate(function.getArgumentTypes())) {
      auto tensor = dyn_cast<RankedTensorType>(type);
      if (auto dims = function.getArgAttrOfType<DimsAttr>(index, ShapeDialect::getDimsAttrName()))
        for (const SymExpr &expr : dims.getDims())
          for (const std::string &name : expr.symbols())
            bound.insert(name);
      if (tensor && !tensor.hasStaticShape() && !function.getArgAttr(index, ShapeDialect::getDimsAttrName()))
        report(function, "V6") << "argument " << index << " has dynamic extents without names";
    }
  }

  void verifyDims(Operation *op) {
    bool isDynamic = llvm::any_of(op->getResultTypes(), [](Type type) {
      auto tensor = dyn_cast<RankedTensorType>(type);
      return tensor && !tensor.hasStaticShape();
    });
    if (isDynamic && !op->hasAttr(ShapeDialect::getDimsAttrName()))
      report(op, "V3") << "'" << op->getName() << "' has a result whose extents depend on data";
  }

  void verifySizes(Operation *op) {
    if (!isView(op) && !isa<tensor::EmptyOp, CallFunctionOp, LoopOp, NextOp, TensorYieldOp, InvokeOp>(op))
      return;
    for (Value operand : op->getOperands())
      if (operand.getType().isIndex() && !operand.getDefiningOp<DimOp>() && !matchPattern(operand, m_Constant()))
        report(op, "V4") << "a size is neither disc_shape.dim nor a constant";
  }

  void verifyUnique(DimOp dim) {
    if (!extents.emplace(dim.getExpr().getValue(), dim).second)
      report(dim, "V5") << "a second disc_shape.dim of " << dim.getExpr().getValue().str();
  }

  ShapeAnalysis &shapes;
  std::map<SymExpr, DimOp> extents;
  llvm::StringSet<> bound;
};

struct VerifyShape final : disc::impl::VerifyShapeBase<VerifyShape> {
  void runOnOperation() override {
    ShapeAnalysis shapes(getOperation());
    Verifier verifier(shapes);
    for (auto function : getOperation().getOps<FunctionOpInterface>())
      if (!function.isExternal())
        verifier.verify(function);
    if (verifier.failed)
      signalPassFailure();
    markAllAnalysesPreserved();
  }
};
} // namespace
