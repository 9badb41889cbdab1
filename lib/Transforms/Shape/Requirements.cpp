//===- Requirements.cpp - What operations demand of extents ---------------===//

#include "lib/Transforms/Shape/Requirements.h"
#include "dialects/Tensor/TensorDialect.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace mlir::disc;

namespace {
class Collector {
public:
  Collector(Operation *op, ShapeAnalysis &shapes) : shapes(shapes), at(op) {}

  void visit(Operation *op) {
    llvm::TypeSwitch<Operation *>(op)
        .Case<linalg::LinalgOp, ReshapeOp, BroadcastOp, SliceOp, AttentionOp, ConvolutionOp, ConcatOp, LoopOp, NextOp,
              TensorYieldOp, InvokeOp>([&](auto typed) { visitOp(typed); });
  }

  SmallVector<Requirement> found;

private:
  void require(Predicate predicate, const SymExpr &lhs, const SymExpr &rhs, StringRef message) {
    if (!shapes.provedAt(at, predicate, lhs, rhs))
      found.push_back({predicate, lhs, rhs, message});
  }

  void equal(const SymExpr &lhs, const SymExpr &rhs, StringRef message) { require(Predicate::Eq, lhs, rhs, message); }

  /// Operands that share a loop have the same extent there.
  void visitOp(linalg::LinalgOp op) {
    SmallVector<std::optional<SymExpr>> extents(op.getNumLoops());
    for (OpOperand &operand : op->getOpOperands()) {
      if (!isa<RankedTensorType>(operand.get().getType()))
        continue;
      SmallVector<SymExpr> dims = shapes.dims(operand.get());
      AffineMap map = op.getMatchingIndexingMap(&operand);
      for (auto [result, extent] : llvm::zip(map.getResults(), dims)) {
        auto loop = dyn_cast<AffineDimExpr>(result);
        if (!loop)
          continue;
        std::optional<SymExpr> &known = extents[loop.getPosition()];
        if (known)
          equal(*known, extent, "sizes of the operands differ");
        else
          known = extent;
      }
    }
  }

  void visitOp(ReshapeOp op) {
    equal(SymExpr::product(shapes.dims(op.getSource())), SymExpr::product(shapes.dims(op.getResult())),
          "reshape changes the number of elements");
  }

  void visitOp(BroadcastOp op) {
    SmallVector<SymExpr> source = shapes.dims(op.getSource());
    SmallVector<SymExpr> result = shapes.dims(op.getResult());
    auto type = cast<RankedTensorType>(op.getSource().getType());
    for (auto [index, dim] : llvm::enumerate(op.getDims()))
      if (type.getDimSize(index) != 1)
        equal(source[index], result[dim], "size to broadcast is neither 1 nor the size asked for");
  }

  void visitOp(SliceOp op) {
    SymExpr offset = shapes.expr(op.getOffset());
    SymExpr last = offset + (shapes.expr(op.getSize()) - SymExpr(1)) * SymExpr(int64_t(op.getStep()));
    StringRef message = "slice is out of bounds";
    require(Predicate::Le, 0, offset, message);
    require(Predicate::Le, 0, shapes.expr(op.getSize()), message);
    // An empty slice satisfies this wherever it may start.
    require(Predicate::Le, last + SymExpr(1), shapes.dims(op.getSource())[op.getDim()], message);
  }

  void visitOp(AttentionOp op) {
    SmallVector<SymExpr> query = shapes.dims(op.getQuery());
    SmallVector<SymExpr> key = shapes.dims(op.getKey());
    SmallVector<SymExpr> value = shapes.dims(op.getValue());
    size_t batch = query.size() - 2;
    for (size_t i = 0; i < batch; ++i) {
      equal(query[i], key[i], "batch sizes of query and key differ");
      equal(query[i], value[i], "batch sizes of query and value differ");
    }
    equal(query.back(), key.back(), "head sizes of query and key differ");
    equal(key[batch], value[batch], "lengths of key and value differ");
    if (!op.getMask())
      return;
    SmallVector<SymExpr> scores(query);
    scores.back() = key[batch];
    auto type = cast<RankedTensorType>(op.getMask().getType());
    for (auto [index, extent] : llvm::enumerate(shapes.dims(op.getMask())))
      if (type.getDimSize(index) != 1)
        equal(extent, scores[index], "mask does not fit the scores");
  }

  void visitOp(ConvolutionOp op) {
    SmallVector<SymExpr> input = shapes.dims(op.getInput()), weight = shapes.dims(op.getWeight());
    equal(input.back(), weight.front() * weight.back(), "channels of input and weight differ");
    for (int64_t d = 0; d < op.getSpatialRank(); ++d)
      require(Predicate::Le, op.getWindow(d, weight[d + 2]), op.getPadded(d, input[d + 1]),
              "the padded input is smaller than the kernel");
  }

  void visitOp(ConcatOp op) {
    SmallVector<SymExpr> first = shapes.dims(op.getInputs().front());
    for (Value input : op.getInputs().drop_front())
      for (auto [index, extent] : llvm::enumerate(shapes.dims(input)))
        if (int64_t(index) != int64_t(op.getDim()))
          equal(first[index], extent, "sizes of the tensors to join differ");
  }

  /// `tensor` has the extents that are said of `like`, with `sizes` for `symbols`.
  void fits(Value tensor, ArrayRef<SymExpr> like, ArrayAttr symbols, OperandRange sizes, StringRef message) {
    for (auto [expected, extent] : llvm::zip(like, shapes.dims(tensor)))
      equal(expected.substitute([&](StringRef name) -> std::optional<SymExpr> {
        for (auto [symbol, size] : llvm::zip(symbols.getAsRange<FlatSymbolRefAttr>(), sizes))
          if (symbol.getValue() == name)
            return shapes.expr(size);
        return std::nullopt;
      }),
            extent, message);
  }

  void visitOp(LoopOp op) {
    if (op.getCount() && !op.getCondition())
      require(Predicate::Le, 0, shapes.expr(op.getCount()), "number of steps is negative");
    for (auto [init, argument] : llvm::zip(op.getInits(), op.getBody().getArguments()))
      fits(init, shapes.dims(argument), op.getSymbols(), op.getSizes(), "a tensor carried into a loop");
  }

  void visitOp(NextOp op) {
    auto loop = cast<LoopOp>(op->getParentOp());
    for (auto [next, argument] : llvm::zip(op.getValues(), loop.getBody().getArguments()))
      fits(next, shapes.dims(argument), loop.getSymbols(), op.getSizes(),
           "a tensor carried from step to step changes its size");
  }

  void visitOp(TensorYieldOp op) {
    auto branch = cast<BranchOp>(op->getParentOp());
    for (auto [value, result] : llvm::zip(op.getValues(), branch.getOutputs()))
      fits(value, shapes.dims(result), branch.getSymbols(), op.getSizes(), "the sides of a branch differ in size");
  }

  void visitOp(InvokeOp op) {
    ArrayAttr symbols = op.getCalleeSymbols();
    for (auto [i, input] : llvm::enumerate(op.getInputs()))
      if (DimsAttr dims = op.getArgumentDims(i))
        fits(input, dims.getDims(), symbols, op.getSizes(), "an argument of a recursive function");
    for (auto [i, result] : llvm::enumerate(op.getOutputs()))
      for (auto [expected, extent] : llvm::zip(op.getResultDims(i, shapes), shapes.dims(result)))
        equal(expected, extent, "a result of a recursive function");
  }

  ShapeAnalysis &shapes;
  Operation *at;
};
} // namespace

SmallVector<Requirement> mlir::disc::unprovedRequirements(Operation *op, ShapeAnalysis &shapes) {
  Collector collector(op, shapes);
  collector.visit(op);
  return std::move(collector.found);
}
