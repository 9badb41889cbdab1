//===- ClaimFunctions.cpp - functions that a device does itself --------------===//
//
//   %r = disc_tensor.call "scatter" (%self, %values, %index) ... in_place
// becomes
//   %r, %order = disc_tensor.call "scatter" (%self, %values, %index) ... in_place on_device ordered [0]
//       : (...) -> (tensor<?x8xf32>, tensor<?xi64>)
//
// What is updated at places that data tells is put in the places' order first: updates of one place are then
// neighbours, and are done one after the other, in the order that they have in the program, whatever the number of
// threads. The added result is memory for that: 4 numbers for each of the loops' points. A loop along which no index
// moves, such as that over the elements of a row, takes no part in it. A target that is not there becomes a tensor of
// its fill.
//
// Test: test/lit/Library/claim-functions.mlir
//
//===----------------------------------------------------------------------===//

#include "lib/Transforms/Library/Passes.h"

#include "dialects/Tensor/TensorDialect.h"
#include "lib/Transforms/Support/ScatterInfo.h"
#include "lib/Transforms/Support/ShapeAnalysis.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

namespace mlir::disc {
#define GEN_PASS_DEF_CLAIMFUNCTIONS
#include "lib/Transforms/Library/Passes.h.inc"
} // namespace mlir::disc

using namespace mlir;
using namespace mlir::disc;

/// Whether all elements of `v` along dimension `d` are one.
static bool repeats(Value v, int64_t d) {
  auto broadcast = v.getDefiningOp<BroadcastOp>();
  if (!broadcast)
    return false;
  ArrayRef<int64_t> dims = broadcast.getDims();
  const auto *source = llvm::find(dims, d);
  return source == dims.end() ||
         cast<RankedTensorType>(broadcast.getSource().getType()).getDimSize(source - dims.begin()) == 1;
}

static Value filled(OpBuilder &b, Location loc, RankedTensorType type, ValueRange sizes, const ScatterInfo &info) {
  Type elem = type.getElementType();
  TypedAttr value;
  if (auto kind = dyn_cast<FloatType>(elem)) {
    APFloat number(llvm::bit_cast<double>(info.fill));
    bool lost;
    number.convert(kind.getFloatSemantics(), APFloat::rmNearestTiesToEven, &lost);
    value = FloatAttr::get(elem, number);
  } else {
    value = IntegerAttr::get(elem, APInt(64, uint64_t(info.fill)).trunc(elem.getIntOrFloatBitWidth()));
  }
  Value empty = tensor::EmptyOp::create(b, loc, type, sizes);
  Value constant = arith::ConstantOp::create(b, loc, value);
  return linalg::FillOp::create(b, loc, constant, empty).getResult(0);
}

/// The call with memory for the order of the points of the loops `ordered`, which have the extents `loops`.
static CallFunctionOp withOrder(OpBuilder &b, CallFunctionOp op, ValueRange inputs, ValueRange config,
                                DenseI64ArrayAttr isUnsigned, ArrayRef<SymExpr> loops, ArrayRef<int64_t> ordered) {
  SymExpr numbers(4);
  for (const SymExpr &extent : loops)
    numbers *= extent;
  SmallVector<Value> sizes(op.getSizes());
  if (!numbers.isConstant())
    sizes.push_back(DimOp::create(b, op.getLoc(), numbers));
  SmallVector<Type> types(op.getOutputs().getTypes());
  types.push_back(
      RankedTensorType::get({numbers.isConstant() ? numbers.constant() : ShapedType::kDynamic}, b.getI64Type()));
  return CallFunctionOp::create(b, op.getLoc(), types, op.getFunctionAttr(), inputs, sizes, config, op.getTasks(),
                                op.getScratch(), op.getWhatAttr(), isUnsigned, op.getInPlaceAttr(), b.getUnitAttr(),
                                b.getDenseI64ArrayAttr(ordered));
}

static void replace(CallFunctionOp op, CallFunctionOp by) {
  op.replaceAllUsesWith(by.getOutputs().take_front(op.getOutputs().size()));
  op.erase();
}

static void claimScatter(CallFunctionOp op, ShapeAnalysis &shapes) {
  std::optional<ScatterInfo> info = ScatterInfo::get(op, shapes);
  if (!info)
    return;
  OpBuilder b(op);
  SmallVector<SymExpr> loops = shapes.dims(op.getInputs()[info->hasSelf ? 1 : 0]), extents;
  SmallVector<int64_t> ordered;
  for (int64_t l = 0, e = loops.size(); l < e; ++l)
    if (info->loops[l] < 0 ||
        !llvm::all_of(op.getInputs().take_back(info->indices.size()), [&](Value index) { return repeats(index, l); })) {
      ordered.push_back(l);
      extents.push_back(loops[l]);
    }
  SmallVector<Value> inputs(op.getInputs()), config(op.getConfig());
  DenseI64ArrayAttr isUnsigned = op.getUnsignedOperandsAttr();
  if (!info->hasSelf) {
    auto type = cast<RankedTensorType>(op.getOutputs()[0].getType());
    inputs.insert(inputs.begin(), filled(b, op.getLoc(), type, op.getSizes(), *info));
    config[ScatterInfo::kHasSelf] = DimOp::create(b, op.getLoc(), SymExpr(1));
    if (isUnsigned) {
      SmallVector<int64_t> moved{0};
      for (int64_t i : isUnsigned.asArrayRef())
        moved.push_back(i + 1);
      isUnsigned = b.getDenseI64ArrayAttr(moved);
    }
  }
  CallFunctionOp claimed = withOrder(b, op, inputs, config, isUnsigned, extents, ordered);
  claimed.setInPlace(true);
  replace(op, claimed);
}

/// Each row is put in order apart, but all at once.
static void claimSort(CallFunctionOp op, ShapeAnalysis &shapes) {
  OpBuilder b(op);
  SmallVector<SymExpr> dims = shapes.dims(op.getInputs()[0]);
  replace(op, withOrder(b, op, op.getInputs(), op.getConfig(), op.getUnsignedOperandsAttr(), dims,
                        int64_t(dims.size()) - 1));
}

namespace {
struct ClaimFunctions : disc::impl::ClaimFunctionsBase<ClaimFunctions> {
  void runOnOperation() override {
    ShapeAnalysis shapes(getOperation());
    SmallVector<CallFunctionOp> calls;
    getOperation().walk([&](CallFunctionOp op) {
      if (!op.getOnDevice())
        calls.push_back(op);
    });
    for (CallFunctionOp op : calls) {
      StringRef name = op.getFunction();
      if (name == "scatter")
        claimScatter(op, shapes);
      else if (name == "sort")
        claimSort(op, shapes);
      else if (name == "cumulative" || name == "insert")
        op.setOnDevice(true);
    }
  }
};
} // namespace
