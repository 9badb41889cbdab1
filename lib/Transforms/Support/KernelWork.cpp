//===- KernelWork.cpp - What a kernel computes, reads and writes ----------===//

#include "lib/Transforms/Support/KernelWork.h"
#include "dialects/Tensor/TensorDialect.h"
#include "lib/Transforms/Support/SourceLine.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Interfaces/CastInterfaces.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace mlir::disc;

namespace {
/// A count that may be unknown; arithmetic that overflows makes it so.
class Count {
public:
  Count(std::optional<int64_t> value) : value(value) {}
  Count(int64_t value) : value(value) {}

  Count operator*(const Count &other) const {
    return apply(other, [](auto... x) { return __builtin_mul_overflow(x...); });
  }
  Count operator+(const Count &other) const {
    return apply(other, [](auto... x) { return __builtin_add_overflow(x...); });
  }
  Count &operator+=(const Count &other) { return *this = *this + other; }
  /// The smaller one; unknown if one is.
  Count capped(const Count &limit) const {
    return value && limit.value ? Count(std::min(*value, *limit.value)) : Count(std::nullopt);
  }
  std::optional<int64_t> get() const { return value; }

private:
  template <typename F> Count apply(const Count &other, F overflows) const {
    int64_t result;
    if (!value || !other.value || overflows(*value, *other.value, &result))
      return Count(std::nullopt);
    return result;
  }

  std::optional<int64_t> value;
};

class Meter {
public:
  Meter(KernelFuncOp kernel, ShapeAnalysis &shapes, function_ref<std::optional<int64_t>(StringRef)> symbol)
      : kernel(kernel), shapes(shapes), symbol(symbol) {}

  KernelWork measure() {
    Count operations(0), reads(0), writes(0);
    for (Operation &op : kernel.getBody().front().without_terminator())
      operations += work(op);
    for (BlockArgument argument : kernel.getBody().getArguments())
      reads += readBytes(argument);
    for (auto [i, result] : llvm::enumerate(kernel.getYield().getValues()))
      writes += elements(shapes.dims(result)) * bytes(result);
    return {operations.get(), reads.get(), writes.get()};
  }

private:
  Count value(const SymExpr &expr) const { return expr.evaluate(symbol); }

  Count elements(ArrayRef<SymExpr> dims) const {
    Count result(1);
    for (const SymExpr &dim : dims)
      result = result * value(dim);
    return result;
  }

  static int64_t bytes(Value tensor) {
    return llvm::divideCeil(getElementTypeOrSelf(tensor).getIntOrFloatBitWidth(), 8);
  }

  /// How often the body of `op` runs.
  Count iterations(linalg::LinalgOp op) {
    Count result(1);
    for (unsigned loop = 0; loop < op.getNumLoops(); ++loop) {
      std::optional<SymExpr> extent;
      for (OpOperand &operand : op->getOpOperands())
        for (auto [dim, expr] : llvm::enumerate(op.getMatchingIndexingMap(&operand).getResults()))
          if (auto position = dyn_cast<AffineDimExpr>(expr); position && position.getPosition() == loop && !extent)
            extent = shapes.dims(operand.get())[dim];
      result = result * (extent ? value(*extent) : Count(std::nullopt));
    }
    return result;
  }

  /// The operations of one run of a body.
  static int64_t scalarOperations(Block &body) {
    int64_t count = 0;
    body.walk([&](Operation *op) {
      bool computes = isa_and_nonnull<arith::ArithDialect, math::MathDialect>(op->getDialect());
      if (computes && op->getNumOperands() != 0 && !isa<CastOpInterface, arith::IndexCastOp>(op) &&
          !op->getResult(0).getType().isIndex() && !isIndexing(op))
        ++count;
    });
    return count;
  }

  /// Whether only positions to read at are computed from the result.
  static bool isIndexing(Operation *op) {
    return llvm::all_of(
               op->getUsers(),
               [](Operation *user) { return isa<tensor::ExtractOp, CheckIndexOp, arith::IndexCastOp>(user); }) &&
           !op->use_empty();
  }

  Count work(Operation &op) {
    return llvm::TypeSwitch<Operation *, Count>(&op)
        .Case([&](linalg::LinalgOp linalg) { return iterations(linalg) * scalarOperations(*linalg.getBlock()); })
        .Case([&](AttentionOp attention) {
          // Two products; scaling, maximum, difference, exponential and sum of each score.
          SmallVector<SymExpr> query = shapes.dims(attention.getQuery()), key = shapes.dims(attention.getKey());
          Count scores = elements(ArrayRef(query).drop_back()) * value(key[key.size() - 2]);
          return scores *
                 ((value(query.back()) + value(shapes.dims(attention.getValue()).back())) * Count(2) + Count(5));
        })
        .Case([&](ConvolutionOp convolution) {
          return elements(shapes.dims(convolution.getResult())) * taps(convolution.getWeight(), 2) * Count(2);
        })
        .Case([&](WinogradOp winograd) {
          return elements(shapes.dims(winograd.getResult())) * Count(9 * 2) *
                 value(shapes.dims(winograd.getWeight()).back());
        })
        .Case([&](RunningSumOp sum) { return elements(shapes.dims(sum.getResult())); })
        .Case([&](CallFunctionOp call) {
          // What a function does with an element is its own affair: at least one operation.
          Count count(0);
          for (Value input : call.getInputs())
            count += elements(shapes.dims(input));
          return count;
        })
        .Default([](Operation *) { return Count(0); });
  }

  /// The products that one result of a convolution sums up: the weight's extents from `first` on.
  Count taps(Value weight, unsigned first) {
    SmallVector<SymExpr> dims = shapes.dims(weight);
    return elements(ArrayRef(dims).drop_front(first));
  }

  Count readBytes(BlockArgument argument) {
    LayoutAttr layout = kernel.getLayout(argument.getArgNumber());
    Count distinct(1);
    for (auto [extent, stride] : llvm::zip(shapes.dims(argument), layout.getStrides().getDims()))
      if (!stride.isConstant(0))
        distinct = distinct * value(extent);
    std::optional<Count> reads = readsAtComputedPositions(argument);
    return (reads ? reads->capped(distinct) : distinct) * Count(bytes(argument));
  }

  /// The number of reads of an operand all of whose uses are `tensor.extract` in bodies; nothing for others.
  std::optional<Count> readsAtComputedPositions(BlockArgument argument) {
    Count reads(0);
    for (OpOperand &use : argument.getUses()) {
      auto extract = dyn_cast<tensor::ExtractOp>(use.getOwner());
      auto inside = extract ? extract->getParentOfType<linalg::LinalgOp>() : linalg::LinalgOp();
      if (!inside)
        return std::nullopt;
      reads += iterations(inside);
    }
    return reads;
  }

  KernelFuncOp kernel;
  ShapeAnalysis &shapes;
  function_ref<std::optional<int64_t>(StringRef)> symbol;
};
} // namespace

KernelWork mlir::disc::measureWork(KernelFuncOp kernel, ShapeAnalysis &shapes,
                                   function_ref<std::optional<int64_t>(StringRef)> symbol) {
  return Meter(kernel, shapes, symbol).measure();
}

SmallVector<std::string> mlir::disc::sourceLines(KernelFuncOp kernel) {
  SmallVector<std::string> lines;
  auto add = [&](Location loc) {
    FileLineColLoc place = sourcePlace(loc);
    if (!place)
      return;
    std::string line = place.getFilename().str() + ":" + std::to_string(place.getLine());
    if (!llvm::is_contained(lines, line))
      lines.push_back(std::move(line));
  };
  // Operations that share a size, a constant or memory share its location, which is that of the first of them.
  for (Operation &op : kernel.getBody().front())
    if (!isa<DimOp, tensor::EmptyOp, arith::ConstantOp>(op))
      add(op.getLoc());
  add(kernel.getLoc());
  return lines;
}
