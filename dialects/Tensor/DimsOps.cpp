//===- DimsOps.cpp - extents of disc_tensor results -----------------------===//
//
// DimsOpInterface for the operations of the dialect. Static extents come from the result types, so that they need
// not be right here.
//
//===----------------------------------------------------------------------===//

#include "dialects/Tensor/TensorDialect.h"

using namespace mlir;
using namespace mlir::disc;

/// `sizes` has one value per dynamic extent of `type`, in order.
static SmallVector<SymExpr> dynamicDims(RankedTensorType type, ValueRange sizes, DimsQuery &query) {
  SmallVector<SymExpr> dims;
  for (int64_t extent : type.getShape()) {
    if (!ShapedType::isDynamic(extent)) {
      dims.push_back(extent);
      continue;
    }
    dims.push_back(query.expr(sizes.front()));
    sizes = sizes.drop_front();
  }
  return dims;
}

SmallVector<SymExpr> PermuteOp::getResultDims(unsigned, DimsQuery &query) {
  SmallVector<SymExpr> source = query.dims(getSource()), dims;
  for (int64_t from : getPermutation())
    dims.push_back(source[from]);
  return dims;
}

SmallVector<SymExpr> ReshapeOp::getResultDims(unsigned, DimsQuery &query) {
  return dynamicDims(cast<RankedTensorType>(getType()), getSizes(), query);
}

SmallVector<SymExpr> BroadcastOp::getResultDims(unsigned, DimsQuery &query) {
  return dynamicDims(cast<RankedTensorType>(getType()), getSizes(), query);
}

SmallVector<SymExpr> SliceOp::getResultDims(unsigned, DimsQuery &query) {
  SmallVector<SymExpr> dims = query.dims(getSource());
  dims[getDim()] = query.expr(getSize());
  return dims;
}

SmallVector<SymExpr> AttentionOp::getResultDims(unsigned, DimsQuery &query) {
  SmallVector<SymExpr> dims = query.dims(getQuery());
  dims.back() = query.dims(getValue()).back();
  return dims;
}

SymExpr ConvolutionOp::getWindow(int64_t d, const SymExpr &kernel) {
  return (kernel - SymExpr(1)) * SymExpr(getDilations()[d]) + SymExpr(1);
}

SymExpr ConvolutionOp::getPadded(int64_t d, const SymExpr &input) {
  return (input - SymExpr(1)) * SymExpr(getInputDilations()[d]) + SymExpr(1 + getLow()[d] + getHigh()[d]);
}

SmallVector<SymExpr> ConvolutionOp::getResultDims(unsigned, DimsQuery &query) {
  SmallVector<SymExpr> dims = query.dims(getInput()), weight = query.dims(getWeight());
  for (int64_t d = 0; d < getSpatialRank(); ++d) {
    SymExpr steps = getPadded(d, dims[d + 1]) - getWindow(d, weight[d + 2]);
    dims[d + 1] = SymExpr::floorDiv(steps, SymExpr(getStrides()[d])) + SymExpr(1);
  }
  dims.back() = weight[0] * weight[1];
  return dims;
}

SmallVector<SymExpr> WinogradOp::getResultDims(unsigned, DimsQuery &query) {
  SmallVector<SymExpr> dims = query.dims(getInput());
  for (int64_t d = 0; d < 2; ++d)
    dims[d + 1] += SymExpr(getLow()[d] + getHigh()[d] - 2 * getDilations()[d]);
  dims.back() = query.dims(getWeight())[1];
  return dims;
}

SmallVector<SymExpr> ConcatOp::getResultDims(unsigned, DimsQuery &query) {
  SmallVector<SymExpr> dims = query.dims(getInputs().front());
  for (Value input : getInputs().drop_front())
    dims[getDim()] += query.dims(input)[getDim()];
  return dims;
}

SmallVector<SymExpr> RunningSumOp::getResultDims(unsigned, DimsQuery &query) { return query.dims(getSource()); }

SmallVector<SymExpr> CallFunctionOp::getResultDims(unsigned index, DimsQuery &query) {
  ValueRange sizes = getSizes();
  for (Type earlier : getOutputs().take_front(index).getTypes())
    sizes = sizes.drop_front(cast<RankedTensorType>(earlier).getNumDynamicDims());
  return dynamicDims(cast<RankedTensorType>(getOutputs()[index].getType()), sizes, query);
}

/// The product of some extents.
static SymExpr extentOf(ArrayRef<SymExpr> dims, ArrayRef<int64_t> which) {
  SymExpr product(1);
  for (int64_t d : which)
    product *= dims[d];
  return product;
}

SmallVector<SymExpr> PackOp::getResultDims(unsigned, DimsQuery &query) {
  SmallVector<SymExpr> source = query.dims(getSource()), dims;
  for (int64_t d : getBatchDims())
    dims.push_back(source[d]);
  SymExpr panel(static_cast<int64_t>(getPanel()));
  dims.push_back(SymExpr::ceilDiv(extentOf(source, getNDims()), panel));
  SymExpr depth = extentOf(source, getKDims());
  SymExpr side(getSide()), rows = SymExpr::floorDiv(depth, side);
  if (getTogether() > 1)
    rows = extentOf(source, getKDims().drop_back()) * SymExpr::ceilDiv(source[getKDims().back()], side);
  dims.push_back(rows + SymExpr(getExtraRows()));
  dims.push_back(panel * SymExpr(static_cast<int64_t>(getTogether())));
  return dims;
}

SmallVector<SymExpr> UnpackOp::getResultDims(unsigned, DimsQuery &query) {
  // Panels round the extent up, so only a static result type tells it.
  SmallVector<SymExpr> dims;
  for (int64_t extent : cast<RankedTensorType>(getType()).getShape())
    dims.push_back(ShapedType::isDynamic(extent) ? SymExpr::undefined() : SymExpr(extent));
  return dims;
}

SmallVector<SymExpr> UnpackFragmentsOp::getResultDims(unsigned, DimsQuery &) {
  ArrayRef<int64_t> shape = cast<RankedTensorType>(getType()).getShape();
  return SmallVector<SymExpr>(shape.begin(), shape.end());
}

SmallVector<SymExpr> LoopOp::getResultDims(unsigned index, DimsQuery &query) {
  if (index < getNumCarried())
    return query.dims(getInits()[index]);
  SmallVector<SymExpr> dims = query.dims(getNext().getValues()[index]);
  dims.insert(dims.begin(), getTrips() ? SymExpr::symbol(getTrips()->str()) : query.expr(getCount()));
  return dims;
}

std::optional<SmallVector<SymExpr>> LoopOp::getRegionArgDims(BlockArgument arg, DimsQuery &query) {
  if (std::optional<ArrayAttr> dims = getArgDims())
    return cast<DimsAttr>((*dims)[arg.getArgNumber()]).getDims();
  return query.dims(getInits()[arg.getArgNumber()]);
}

SmallVector<SymExpr> BranchOp::getResultDims(unsigned index, DimsQuery &query) {
  return query.dims(getYield(0).getValues()[index]);
}

SmallVector<SymExpr> InvokeOp::getResultDims(unsigned index, DimsQuery &query) {
  // The procedure's own extents, with the sizes of this invocation.
  DimsAttr dims = getCalleeResultDims(index);
  SmallVector<SymExpr> result;
  for (const SymExpr &expr : dims ? dims.getDims() : SmallVector<SymExpr>())
    result.push_back(expr.substitute([&](StringRef name) -> std::optional<SymExpr> {
      for (auto [symbol, size] : llvm::zip(getCalleeSymbols().getAsRange<FlatSymbolRefAttr>(), getSizes()))
        if (symbol.getValue() == name)
          return query.expr(size);
      return std::nullopt;
    }));
  for (auto [given, symbol] : llvm::zip(givenBy(getCalleeOp()), getSymbols().getAsRange<FlatSymbolRefAttr>()))
    if (given.first == index)
      result[given.second] = SymExpr::symbol(symbol.getValue().str());
  return result;
}

SmallVector<SymExpr> CompositeOp::getResultDims(unsigned index, DimsQuery &query) {
  return query.dims(getYield().getValues()[index]);
}
