//===- Twice.cpp - a kind of kernel from outside of the tree --------------===//
//
// disc-opt with one more kind: `twice` takes each element-wise x + x of a tensor in row-major order, before loops do.
// All that the stages need to know of it is here: which operations begin such a kernel, its schedule, which operand its
// result may overwrite, and its code for CPUs.
//
// Test: test/lit/Plan/kind-from-outside.mlir
//
//===----------------------------------------------------------------------===//

#include "dialects/Plan/Layout.h"
#include "dialects/Plan/PlanDialect.h"
#include "lib/Target/CPU/EmitKernels.h"
#include "lib/Target/Driver/Opt.h"
#include "lib/Transforms/Fusion/Kinds.h"
#include "lib/Transforms/Memory/InPlace.h"
#include "lib/Transforms/Schedule/Kinds.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/DialectImplementation.h"
#include "mlir/IR/DialectRegistry.h"

using namespace mlir;
using namespace mlir::disc;

namespace {
constexpr int64_t kChunk = 64; // elements in a task

/// The schedule has no numbers: a task is always a chunk.
class TwiceScheduleAttr
    : public Attribute::AttrBase<TwiceScheduleAttr, Attribute, AttributeStorage, ScheduleAttrInterface::Trait> {
public:
  using Base::Base;
  static constexpr StringLiteral name = "example.chunks";
  bool serves(KernelKind kind) const { return kind.getWord() == "twice"; }
};

class TwiceKindAttr
    : public Attribute::AttrBase<TwiceKindAttr, Attribute, AttributeStorage, KernelKind::Trait, FusedKind::Trait,
                                 ScheduledKind::Trait, InPlaceKind::Trait, HostKind::Trait> {
public:
  using Base::Base;
  static constexpr StringLiteral name = "example.twice";

  StringRef getWord() const { return "twice"; }

  bool begins(Operation *op, ShapeAnalysis &shapes) const {
    auto generic = dyn_cast<linalg::GenericOp>(op);
    if (!generic || generic.getNumReductionLoops() || generic.getInputs().size() != 1 ||
        !llvm::all_of(generic.getIndexingMapsArray(), [](AffineMap map) { return map.isIdentity(); }))
      return false;
    auto yield = cast<linalg::YieldOp>(generic.getBody()->getTerminator());
    auto add = yield.getValues()[0].getDefiningOp<arith::AddFOp>();
    return add && add.getLhs() == generic.getBody()->getArgument(0) && add.getRhs() == add.getLhs();
  }

  LogicalResult schedule(KernelOp kernel, ShapeAnalysis &shapes, const TargetInfo &target) const {
    MLIRContext *context = getContext();
    SymExpr count = SymExpr::product(shapes.dims(kernel.getResult(0)));
    kernel.setScheduleAttr(TwiceScheduleAttr::get(context));
    kernel.setTasksAttr(ExprAttr::get(context, SymExpr::ceilDiv(count, SymExpr(kChunk))));
    kernel.setScratchAttr(ExprAttr::get(context, SymExpr(0)));
    kernel.setCostAttr(ExprAttr::get(context, SymExpr(kChunk)));
    return success();
  }

  SmallVector<SmallVector<unsigned>> inPlaceOperands(KernelFuncOp kernel, ShapeAnalysis &shapes) const {
    return {{0}}; // each element is read before it is written
  }

  LogicalResult emit(KernelEmission &e) const {
    OpBuilder &b = e.builder;
    Location loc = e.kernel.getLoc();
    Value argument = e.kernel.getBody().getArgument(0);
    if (!Layout::get(e.kernel.getLayout(0)).isContiguous(e.shapes.dims(argument)))
      return e.kernel.emitError("the operand of 'twice' must be dense");
    Type element = getElementTypeOrSelf(argument.getType()), i64 = b.getI64Type();
    PointEmitter points(b, e.kernel, e.args(), /*lanes=*/1, e.shapes);
    Value count = points.expr(SymExpr::product(e.shapes.dims(argument))), in = points.operandPtr(0),
          out = points.resultPtr(0);
    auto constant = [&](int64_t v) { return arith::ConstantIntOp::create(b, loc, v, 64).getResult(); };
    count = arith::IndexCastOp::create(b, loc, i64, count);
    Value first = arith::MulIOp::create(b, loc, e.begin(), constant(kChunk));
    Value end = arith::MinSIOp::create(b, loc, arith::MulIOp::create(b, loc, e.end(), constant(kChunk)), count);
    auto loop = scf::ForOp::create(b, loc, first, end, constant(1));
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    auto at = [&](Value base) {
      return LLVM::GEPOp::create(b, loc, base.getType(), element, base, ArrayRef<LLVM::GEPArg>{loop.getInductionVar()});
    };
    Value x = LLVM::LoadOp::create(b, loc, element, at(in));
    LLVM::StoreOp::create(b, loc, arith::AddFOp::create(b, loc, x, x), at(out));
    return success();
  }
};

class ExampleDialect : public Dialect {
public:
  static constexpr StringLiteral getDialectNamespace() { return "example"; }
  explicit ExampleDialect(MLIRContext *context) : Dialect("example", context, TypeID::get<ExampleDialect>()) {
    addAttributes<TwiceKindAttr, TwiceScheduleAttr>();
  }
  void printAttribute(Attribute attr, DialectAsmPrinter &printer) const override {
    printer << (isa<TwiceKindAttr>(attr) ? "twice" : "chunks");
  }
  Attribute parseAttribute(DialectAsmParser &parser, Type) const override {
    StringRef word;
    SMLoc loc = parser.getCurrentLocation();
    if (failed(parser.parseKeyword(&word)))
      return {};
    if (word == "twice")
      return TwiceKindAttr::get(getContext());
    if (word == "chunks")
      return TwiceScheduleAttr::get(getContext());
    parser.emitError(loc) << "no attribute '" << word << "'";
    return {};
  }
};
} // namespace

MLIR_DECLARE_EXPLICIT_TYPE_ID(ExampleDialect)
MLIR_DEFINE_EXPLICIT_TYPE_ID(ExampleDialect)

int main(int argc, char **argv) {
  return runOpt(argc, argv, [](DialectRegistry &registry) {
    registry.insert<ExampleDialect>();
    registry.addExtension(+[](MLIRContext *context, PlanDialect *plan) {
      context->loadDialect<ExampleDialect>();
      plan->addKind(TwiceKindAttr::get(context));
    });
  });
}
