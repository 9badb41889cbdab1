//===- MergeProducts.cpp - products of one left operand -------------------===//
//
//   %q = disc_plan.kernel contraction ins(%x, %wq, %bq) ... attributes {name = "linear", ...} {...}
//   %k = disc_plan.kernel contraction ins(%x, %wk, %bk) ... attributes {name = "linear", ...} {...}
// becomes
//   %q, %k = disc_plan.kernel contraction ins(%x, %wq, %bq, %wk, %bk) ... attributes {name = "linear_x2", ...} {
//     ... both bodies, each with its epilogue, over one argument for %x ...
//     disc_plan.yield %0, %1
//   }
//
// One launch instead of several, more tasks to share among threads, and rows that are in the cache already when the
// next weights meet them. Each product keeps its own weights, epilogue and result, so that nothing that reads the
// results changes, and neither do their layouts: queries, keys and values of attention, the gate and the value of a
// gated unit, projections of one memory.
//
// A library of a device does one product at a time, and may be faster than a merged kernel (`only-f32`). It is not used
// for few rows, whose products take as long as their weights take to be read, and a launch costs as much as some of
// them: those are merged whatever their type is.
//
// Merged are neighbours only: kernels with at most `reach` others between them. What a far kernel computes early would
// lie in memory, and leave the caches, until its turn.
//
// Test: test/lit/Fusion/merge-products.mlir
//
//===----------------------------------------------------------------------===//

#include "lib/Transforms/Fusion/Passes.h"

#include "dialects/Tensor/TensorDialect.h"
#include "lib/Transforms/Support/HostFlow.h"
#include "lib/Transforms/Support/KnownAtLoad.h"
#include "lib/Transforms/Support/ShapeAnalysis.h"
#include "lib/Transforms/Support/SymbolBindings.h"
#include "lib/Transforms/Support/ViewLayout.h"
#include "mlir/IR/IRMapping.h"

namespace mlir::disc {
#define GEN_PASS_DEF_MERGEPRODUCTS
#include "lib/Transforms/Fusion/Passes.h.inc"
} // namespace mlir::disc

using namespace mlir;
using namespace mlir::disc;

/// A kernel of projections is followed by what reads them; more than this apart are kernels of different layers.
static constexpr unsigned reach = 8;

static linalg::GenericOp productOf(KernelOp kernel) {
  for (auto generic : kernel.getBody().front().getOps<linalg::GenericOp>())
    if (linalg::isaContractionOpInterface(generic))
      return generic;
  return {};
}

static bool isF32(KernelOp kernel) {
  linalg::GenericOp product = productOf(kernel);
  return product &&
         llvm::all_of(product.getDpsInputs(), [](Value v) { return getElementTypeOrSelf(v.getType()).isF32(); });
}

/// Whether the product always has fewer rows than those that a library of a device computes (ScheduleBlocks.cpp).
static bool hasFewRows(KernelOp kernel, ShapeAnalysis &shapes) {
  constexpr int64_t kManyRows = 128;
  linalg::GenericOp product = productOf(kernel);
  if (!product)
    return false;
  SmallVector<AffineMap> maps = product.getIndexingMapsArray();
  SmallVector<utils::IteratorType> kinds = product.getIteratorTypesArray();
  SymExpr rows(1);
  for (auto [result, extent] : llvm::zip(maps[0].getResults(), shapes.dims(product.getDpsInputs()[0]))) {
    auto dim = dyn_cast<AffineDimExpr>(result);
    if (!dim)
      return false;
    if (kinds[dim.getPosition()] == utils::IteratorType::parallel && !maps[1].isFunctionOfDim(dim.getPosition()))
      rows *= extent;
  }
  return shapes.range(rows).max.value_or(kManyRows) < kManyRows;
}

/// The kernel's input that a body's value is; null if it is computed.
static Value inputBehind(KernelOp kernel, Value inside) {
  auto arg = dyn_cast<BlockArgument>(inside);
  return arg ? kernel.getInputs()[arg.getArgNumber()] : Value();
}

static bool fitTogether(KernelOp a, KernelOp b) {
  linalg::GenericOp x = productOf(a), y = productOf(b);
  if (!x || !y || x.getIteratorTypesArray() != y.getIteratorTypesArray() ||
      x.getIndexingMapsArray().front() != y.getIndexingMapsArray().front() ||
      getElementTypeOrSelf(x.getResult(0).getType()) != getElementTypeOrSelf(y.getResult(0).getType()))
    return false;
  Value left = inputBehind(a, x.getDpsInputs()[0]), other = inputBehind(b, y.getDpsInputs()[0]);
  if (!left || !other || !sameView(left, other))
    return false;
  // Only columns may differ: the left operand has to have each other dimension, which one that is repeated along some
  // does not.
  llvm::SmallDenseSet<unsigned> given;
  for (AffineExpr result : x.getIndexingMapsArray().front().getResults())
    result.walk([&](AffineExpr e) {
      if (auto dim = dyn_cast<AffineDimExpr>(e))
        given.insert(dim.getPosition());
    });
  for (auto [dim, kind] : llvm::enumerate(x.getIteratorTypesArray()))
    if (!given.contains(dim) &&
        (kind == utils::IteratorType::reduction || !x.getIndexingMapsArray()[1].isFunctionOfDim(dim)))
      return false;
  // Columns may differ, batch and depth may not: both products see the right operand's in one order.
  if (x.getIndexingMapsArray()[1] != y.getIndexingMapsArray()[1])
    return false;
  // Weights that are known at load are packed, and the products of a kernel read panels all or none.
  KnownAtLoad known;
  return known.contains(inputBehind(a, x.getDpsInputs()[1])) == known.contains(inputBehind(b, y.getDpsInputs()[1]));
}

/// Whether `from` reaches `to` through other operations of the block.
static bool reaches(Operation *from, Operation *to) {
  SmallVector<Operation *> worklist{from};
  llvm::SmallPtrSet<Operation *, 32> seen;
  while (!worklist.empty())
    for (Operation *user : worklist.pop_back_val()->getUsers()) {
      user = to->getBlock()->findAncestorOpInBlock(*user);
      if (user == to)
        return true;
      // The block is sorted: what comes later does not lead back.
      if (user->isBeforeInBlock(to) && seen.insert(user).second)
        worklist.push_back(user);
    }
  return false;
}

/// Whether something that gives a symbol its value stands between the two: it may wait for the one, and the other for
/// it.
static bool crossesBind(Operation *first, Operation *second) {
  for (Operation *op = first->getNextNode(); op && op != second; op = op->getNextNode())
    if (!symbolsAfter(op).empty())
      return true;
  return false;
}

/// "linear_x3", or the two names if they differ.
static std::string joinNames(StringRef a, StringRef b, unsigned &times) {
  StringRef base = times > 1 ? a.rsplit("_x").first : a;
  if (base == b)
    return (b + "_x" + Twine(++times)).str();
  return (a + "_" + b).str();
}

static KernelOp merge(KernelOp a, KernelOp b, unsigned &times) {
  OpBuilder builder(b);
  SmallVector<Value> inputs(a.getInputs());
  SmallVector<Type> types(a->getResultTypes());
  llvm::append_range(types, b->getResultTypes());
  SmallVector<unsigned> position; // of b's inputs among all
  for (Value input : b.getInputs()) {
    auto known = llvm::find_if(inputs, [&](Value v) { return sameView(v, input); });
    position.push_back(known - inputs.begin());
    if (known == inputs.end())
      inputs.push_back(input);
  }
  std::string name = joinNames(a.getName().value_or("product"), b.getName().value_or("product"), times);
  std::string reason =
      (a.getReason().value_or("") + "; with a product of the same input: " + b.getReason().value_or("")).str();
  auto merged = KernelOp::create(builder, builder.getFusedLoc({a.getLoc(), b.getLoc()}), types, inputs,
                                 ContractionKindAttr::get(builder.getContext()), builder.getStringAttr(name),
                                 builder.getStringAttr(reason));
  Block *body = &merged.getBody().emplaceBlock();
  for (Value input : inputs)
    body->addArgument(input.getType(), input.getLoc());
  builder.setInsertionPointToStart(body);
  SmallVector<Value> yielded;
  for (KernelOp kernel : {a, b}) {
    IRMapping map;
    for (auto [i, arg] : llvm::enumerate(kernel.getBody().getArguments()))
      map.map(arg, body->getArgument(kernel == a ? i : position[i]));
    for (Operation &op : kernel.getBody().front().without_terminator())
      builder.clone(op, map);
    for (Value v : kernel.getYield().getValues())
      yielded.push_back(map.lookup(v));
  }
  YieldOp::create(builder, merged.getLoc(), yielded);
  for (auto [i, result] : llvm::enumerate(a.getOutputs()))
    result.replaceAllUsesWith(merged.getOutputs()[i]);
  for (auto [i, result] : llvm::enumerate(b.getOutputs()))
    result.replaceAllUsesWith(merged.getOutputs()[a.getNumResults() + i]);
  a.erase();
  b.erase();
  return merged;
}

namespace {
struct MergeProducts : disc::impl::MergeProductsBase<MergeProducts> {
  using MergeProductsBase::MergeProductsBase;

  void runOnOperation() override {
    for (auto func : getOperation().getOps<func::FuncOp>())
      for (Block *block : hostBlocks(func))
        run(*block);
  }

  void run(Block &block) {
    SmallVector<KernelOp> kernels(block.getOps<KernelOp>());
    // Products that are merged have the same rows.
    ShapeAnalysis shapes(getOperation());
    auto mayMerge = llvm::map_to_vector(kernels, [&](KernelOp kernel) {
      return isa<ContractionKindAttr>(kernel.getKind()) && (!onlyF32 || isF32(kernel) || hasFewRows(kernel, shapes));
    });
    for (size_t i = 0; i < kernels.size(); ++i) {
      KernelOp first = kernels[i];
      if (!first || !mayMerge[i])
        continue;
      unsigned times = 1, between = 0;
      for (size_t j = i + 1; j < kernels.size() && between <= reach; ++j) {
        KernelOp second = kernels[j];
        if (!second)
          continue; // merged already
        if (!isa<ContractionKindAttr>(second.getKind()) || !fitTogether(first, second) || reaches(first, second) ||
            crossesBind(first, second)) {
          ++between;
          continue;
        }
        first = merge(first, second, times);
        kernels[j] = nullptr;
        // It stands where the second one stood; what reads the first's results may come before.
        sortByDataFlow(block);
      }
    }
  }
};
} // namespace
