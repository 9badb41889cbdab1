//===- RecognizeAttention.cpp - attention that is spelled out -------------===//
//
//   %s = linalg.generic {...contraction...} ins(%q, %k)          scores
//   %x = linalg.generic {... s * 0.125 + mask ...}               any of: a factor, masks added, masks filled in
//   %m = maximum of %x, %e = exp(%x - %m), %n = sum of %e        softmax over the keys
//   %p = linalg.generic {... e / n ...}
//   %y = linalg.generic {...contraction...} ins(%p, %v)
// becomes
//   %y = disc_tensor.attention %q, %k, %v mask %mask scale 0.125 causal false {nan_rows}
//
// where heads that an operand lacks (or has one of) are broadcast views, and several masks become one. Nothing between
// the products may be used elsewhere. A row that sees no key gives NaN, as the softmax does.
//
// Test: test/lit/Fusion/recognize-attention.mlir
//
//===----------------------------------------------------------------------===//

#include "lib/Transforms/Fusion/Passes.h"

#include "dialects/Tensor/TensorDialect.h"
#include "lib/Transforms/Support/HostFlow.h"
#include "lib/Transforms/Support/ShapeAnalysis.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Matchers.h"
#include <set>

namespace mlir::disc {
#define GEN_PASS_DEF_RECOGNIZEATTENTION
#include "lib/Transforms/Fusion/Passes.h.inc"
} // namespace mlir::disc

using namespace mlir;
using namespace mlir::disc;

namespace {

/// What is added to the scores: `tensor`, or `ifTrue` and `ifFalse` by a boolean one, addressed by `map` over the
/// dimensions of the scores.
struct MaskTerm {
  Value tensor;
  AffineMap map;
  bool isCondition = false;
  double ifTrue = 0, ifFalse = 0;
};

/// A generic whose body is one operation on its inputs and constants.
struct Elementwise {
  linalg::GenericOp generic;
  Operation *op = nullptr;

  /// The generic's input that an operand of the operation is; nothing if that is something else.
  OpOperand *input(unsigned operand) {
    auto arg = dyn_cast<BlockArgument>(op->getOperand(operand));
    return arg && arg.getOwner() == generic.getBody() && arg.getArgNumber() < generic.getNumDpsInputs()
               ? generic.getDpsInputOperand(arg.getArgNumber())
               : nullptr;
  }
  /// The number that an operand is everywhere.
  std::optional<double> constant(unsigned operand) {
    Value v = op->getOperand(operand);
    if (OpOperand *in = input(operand)) {
      auto fill = in->get().getDefiningOp<linalg::FillOp>();
      if (!fill)
        return std::nullopt;
      v = fill.getInputs()[0];
    }
    APFloat value(0.0);
    if (!matchPattern(v, m_ConstantFloat(&value)))
      return std::nullopt;
    return value.convertToDouble();
  }
  bool isIdentity(OpOperand *in) { return in && generic.getMatchingIndexingMap(in).isIdentity(); }
};

std::optional<Elementwise> elementwise(Value v) {
  auto generic = v.getDefiningOp<linalg::GenericOp>();
  if (!generic || generic->getNumResults() != 1 || generic.getNumReductionLoops() != 0 ||
      !generic.getIndexingMapsArray().back().isIdentity())
    return std::nullopt;
  Elementwise out{generic};
  for (Operation &op : generic.getBody()->without_terminator()) {
    if (isa<arith::ConstantOp>(op))
      continue;
    if (out.op)
      return std::nullopt;
    out.op = &op;
  }
  if (!out.op || out.op->getNumResults() != 1 ||
      generic.getBody()->getTerminator()->getOperand(0) != out.op->getResult(0))
    return std::nullopt;
  return out;
}

/// The value before conversions between floats.
Value beforeCasts(Value v) {
  while (auto e = elementwise(v)) {
    if (!isa<arith::ExtFOp, arith::TruncFOp>(e->op) || !e->isIdentity(e->input(0)) || !v.hasOneUse())
      break;
    v = e->input(0)->get();
  }
  return v;
}

/// What `v` reduces over its source's last dimension by `Combine`; nothing if it does not.
template <typename Combine> Value reducedBy(Value v) {
  auto generic = v.getDefiningOp<linalg::GenericOp>();
  if (!generic || generic.getNumDpsInputs() != 1 || generic->getNumResults() != 1 ||
      generic.getNumReductionLoops() != 1)
    return {};
  unsigned rank = generic.getNumLoops();
  SmallVector<AffineMap> maps = generic.getIndexingMapsArray();
  Operation &op = generic.getBody()->front();
  bool sole = llvm::hasNItems(generic.getBody()->without_terminator(), 1);
  if (!maps[0].isIdentity() ||
      maps[1] != AffineMap::getMultiDimIdentityMap(rank, v.getContext()).getMajorSubMap(rank - 1) || !sole ||
      !isa<Combine>(op))
    return {};
  return generic.getDpsInputs()[0];
}

class Recognizer {
public:
  Recognizer(linalg::GenericOp product, ShapeAnalysis &shapes)
      : product(product), shapes(shapes), b(product), loc(product.getLoc()) {}

  /// Replaces the product by an attention if it is one.
  bool run();

private:
  Value softmaxOf(Value weights);
  bool matchScores(Value scores);
  bool matchTerm(Elementwise &e, Value &scores, double &factor);
  std::optional<SmallVector<unsigned>> operandDims(linalg::GenericOp contraction, OpOperand *operand);
  Value overDims(Value v, ArrayRef<unsigned> have, ArrayRef<unsigned> want, ArrayRef<SymExpr> extents);
  Value maskOf();
  Value withUnits(Value v, ArrayRef<unsigned> have);
  SmallVector<Value> sizes(ArrayRef<SymExpr> extents);
  RankedTensorType typeOf(ArrayRef<SymExpr> extents, Type element);

  linalg::GenericOp product;
  ShapeAnalysis &shapes;
  OpBuilder b;
  Location loc;
  linalg::GenericOp scoreProduct;
  SmallVector<SymExpr> scoreDims;
  double scale = 1;
  SmallVector<MaskTerm> terms;
};

/// The scores that `weights` is the softmax of, over the last dimension.
Value Recognizer::softmaxOf(Value weights) {
  auto quotient = elementwise(beforeCasts(weights));
  if (!quotient || !isa<arith::DivFOp>(quotient->op) || !quotient->generic->hasOneUse())
    return {};
  OpOperand *top = quotient->input(0), *bottom = quotient->input(1);
  if (!top || !bottom || !quotient->isIdentity(top) || reducedBy<arith::AddFOp>(bottom->get()) != top->get())
    return {};
  // exp(x - maximum): two operations in one body.
  auto exponential = top->get().getDefiningOp<linalg::GenericOp>();
  if (!exponential || exponential.getNumDpsInputs() != 2 || exponential.getNumReductionLoops() != 0 ||
      !exponential.getIndexingMapsArray()[0].isIdentity() || !exponential.getIndexingMapsArray()[2].isIdentity() ||
      !top->get().hasNUses(2) || !bottom->get().hasOneUse())
    return {};
  auto exp = exponential.getBody()->getTerminator()->getOperand(0).getDefiningOp<math::ExpOp>();
  auto difference = exp ? exp.getOperand().getDefiningOp<arith::SubFOp>() : arith::SubFOp();
  ValueRange args = exponential.getBody()->getArguments();
  if (!difference || difference.getLhs() != args[0] || difference.getRhs() != args[1])
    return {};
  Value scores = exponential.getDpsInputs()[0], maximum = exponential.getDpsInputs()[1];
  if (reducedBy<arith::MaximumFOp>(maximum) != scores || !scores.hasNUses(2) || !maximum.hasOneUse())
    return {};
  return scores;
}

/// Takes one factor or one mask off the scores.
bool Recognizer::matchTerm(Elementwise &e, Value &scores, double &factor) {
  if (isa<arith::ExtFOp, arith::TruncFOp>(e.op) && e.isIdentity(e.input(0))) {
    scores = e.input(0)->get();
    return true;
  }
  if (isa<arith::MulFOp, arith::DivFOp>(e.op)) {
    bool divides = isa<arith::DivFOp>(e.op);
    unsigned side = !divides && e.constant(0) ? 1 : 0;
    std::optional<double> by = e.constant(1 - side);
    if (!by || !e.isIdentity(e.input(side)))
      return false;
    factor *= divides ? 1 / *by : *by;
    scores = e.input(side)->get();
    return true;
  }
  // Masks come after the factor.
  if (factor != 1)
    return false;
  auto leadsToProduct = [&](OpOperand *in) {
    return e.isIdentity(in) && in->get().hasOneUse() && in->get().getDefiningOp<linalg::GenericOp>();
  };
  if (isa<arith::AddFOp>(e.op)) {
    OpOperand *x = e.input(0), *y = e.input(1);
    if (!x || !y)
      return false;
    // Both may have the scores' dimensions: the mask is the one that no contraction leads to.
    auto reaches = [](Value v) {
      while (auto generic = v.getDefiningOp<linalg::GenericOp>()) {
        if (linalg::isaContractionOpInterface(generic))
          return true;
        if (generic.getNumDpsInputs() == 0)
          return false;
        v = generic.getDpsInputs()[0];
      }
      return false;
    };
    if (!leadsToProduct(x) || !reaches(x->get()))
      std::swap(x, y);
    if (!leadsToProduct(x))
      return false;
    terms.push_back({y->get(), e.generic.getMatchingIndexingMap(y)});
    scores = x->get();
    return true;
  }
  if (isa<arith::SelectOp>(e.op)) {
    OpOperand *condition = e.input(0);
    for (unsigned kept : {1, 2}) {
      std::optional<double> other = e.constant(3 - kept);
      if (!condition || !other || !leadsToProduct(e.input(kept)))
        continue;
      // Adding a number that absorbs every score is as good as putting it in its place.
      if (*other > -1e30)
        return false;
      MaskTerm term{condition->get(), e.generic.getMatchingIndexingMap(condition), true};
      (kept == 1 ? term.ifFalse : term.ifTrue) = *other;
      terms.push_back(term);
      scores = e.input(kept)->get();
      return true;
    }
  }
  return false;
}

bool Recognizer::matchScores(Value scores) {
  double factor = 1;
  Value softmaxInput = scores; // used by the maximum and the exponential
  while (true) {
    auto generic = scores.getDefiningOp<linalg::GenericOp>();
    if (!generic || (generic.getResult(0) != softmaxInput && !scores.hasOneUse()))
      return false;
    if (linalg::isaContractionOpInterface(generic)) {
      scoreProduct = generic;
      scale = factor;
      scoreDims = shapes.dims(scores);
      return generic.getNumDpsInputs() == 2 &&
             generic.getIndexingMapsArray().back() ==
                 AffineMap::getMultiDimIdentityMap(generic.getNumLoops(), b.getContext())
                     .getMajorSubMap(generic.getNumLoops() - 1);
    }
    auto e = elementwise(scores);
    if (!e || !matchTerm(*e, scores, factor))
      return false;
  }
}

/// The loop of each dimension of an operand; nothing if that is not what its map says.
std::optional<SmallVector<unsigned>> Recognizer::operandDims(linalg::GenericOp contraction, OpOperand *operand) {
  SmallVector<unsigned> out;
  for (AffineExpr e : contraction.getMatchingIndexingMap(operand).getResults()) {
    auto d = dyn_cast<AffineDimExpr>(e);
    if (!d || llvm::is_contained(out, d.getPosition()))
      return std::nullopt;
    out.push_back(d.getPosition());
  }
  return out;
}

SmallVector<Value> Recognizer::sizes(ArrayRef<SymExpr> extents) {
  SmallVector<Value> out;
  for (const SymExpr &e : extents)
    if (!e.isConstant())
      out.push_back(DimOp::create(b, loc, e));
  return out;
}

RankedTensorType Recognizer::typeOf(ArrayRef<SymExpr> extents, Type element) {
  SmallVector<int64_t> shape;
  for (const SymExpr &e : extents)
    shape.push_back(e.isConstant() ? e.constant() : ShapedType::kDynamic);
  return RankedTensorType::get(shape, element);
}

/// `v`, whose dimensions are `have`, with the dimensions `want`: permuted, and broadcast over those it lacks.
Value Recognizer::overDims(Value v, ArrayRef<unsigned> have, ArrayRef<unsigned> want, ArrayRef<SymExpr> extents) {
  Type element = getElementTypeOrSelf(v.getType());
  SmallVector<int64_t> permutation, present;
  SmallVector<SymExpr> permuted, dims = shapes.dims(v);
  for (auto [i, d] : llvm::enumerate(want))
    if (auto it = llvm::find(have, d); it != have.end()) {
      permutation.push_back(it - have.begin());
      permuted.push_back(dims[permutation.back()]);
      present.push_back(i);
    }
  if (!llvm::is_sorted(permutation)) {
    // Keys are mostly transposed for their product: the two cancel.
    if (auto before = v.getDefiningOp<PermuteOp>()) {
      for (int64_t &p : permutation)
        p = before.getPermutation()[p];
      v = before.getSource();
    }
    if (!llvm::is_sorted(permutation))
      v = PermuteOp::create(b, loc, typeOf(permuted, element), v, b.getDenseI64ArrayAttr(permutation));
  }
  if (present.size() == want.size())
    return v;
  return BroadcastOp::create(b, loc, typeOf(extents, element), v, sizes(extents), b.getDenseI64ArrayAttr(present));
}

/// `v`, whose dimensions are some of the scores', in order, with units for the others.
Value Recognizer::withUnits(Value v, ArrayRef<unsigned> have) {
  SmallVector<SymExpr> extents(scoreDims.size(), SymExpr(1)), dims = shapes.dims(v);
  for (auto [j, d] : llvm::enumerate(have))
    extents[d] = dims[j];
  RankedTensorType type = typeOf(extents, getElementTypeOrSelf(v.getType()));
  return v.getType() == type ? v : ReshapeOp::create(b, loc, type, v, sizes(extents)).getResult();
}

/// One mask of all terms.
Value Recognizer::maskOf() {
  Type element = getElementTypeOrSelf(product.getResult(0).getType());
  // The scores' dimensions that any term depends on.
  std::set<unsigned> used;
  for (MaskTerm &term : terms) {
    SmallVector<SymExpr> dims = shapes.dims(term.tensor);
    for (auto [j, e] : llvm::enumerate(term.map.getResults()))
      if (auto d = dyn_cast<AffineDimExpr>(e); d && !dims[j].isConstant(1))
        used.insert(d.getPosition());
  }
  SmallVector<unsigned> loops(used.begin(), used.end());
  // A single tensor, its dimensions in order, stands for itself.
  MaskTerm &first = terms.front();
  bool hides = first.isCondition && first.ifTrue == 0 && std::isinf(first.ifFalse);
  Type type = getElementTypeOrSelf(first.tensor.getType());
  if (terms.size() == 1 && (hides || (!first.isCondition && isa<FloatType>(type)))) {
    SmallVector<unsigned> dims;
    for (AffineExpr e : first.map.getResults())
      if (auto d = dyn_cast<AffineDimExpr>(e))
        dims.push_back(d.getPosition());
    if (dims.size() == first.map.getNumResults() && llvm::is_sorted(dims))
      return withUnits(first.tensor, dims);
  }

  SmallVector<SymExpr> extents;
  DenseMap<unsigned, unsigned> loopOf;
  for (auto [i, d] : llvm::enumerate(loops)) {
    loopOf[d] = i;
    extents.push_back(scoreDims[d]);
  }
  SmallVector<AffineMap> maps;
  SmallVector<Value> inputs;
  for (MaskTerm &term : terms) {
    SmallVector<AffineExpr> results;
    for (AffineExpr e : term.map.getResults()) {
      auto d = dyn_cast<AffineDimExpr>(e);
      results.push_back(d && loopOf.count(d.getPosition()) ? b.getAffineDimExpr(loopOf[d.getPosition()])
                                                           : b.getAffineConstantExpr(0));
    }
    maps.push_back(AffineMap::get(loops.size(), 0, results, b.getContext()));
    inputs.push_back(term.tensor);
  }
  maps.push_back(b.getMultiDimIdentityMap(loops.size()));
  RankedTensorType result = typeOf(extents, element);
  Value empty = tensor::EmptyOp::create(b, loc, result, sizes(extents));
  SmallVector<utils::IteratorType> parallel(loops.size(), utils::IteratorType::parallel);
  auto generic = linalg::GenericOp::create(
      b, loc, TypeRange{result}, inputs, ValueRange{empty}, maps, parallel,
      [&](OpBuilder &nested, Location at, ValueRange args) {
        Value sum;
        for (auto [term, arg] : llvm::zip(terms, args)) {
          Value x = arg;
          auto number = [&](double v) -> Value {
            return arith::ConstantOp::create(nested, at, nested.getFloatAttr(element, v));
          };
          if (term.isCondition)
            x = arith::SelectOp::create(nested, at, x, number(term.ifTrue), number(term.ifFalse));
          else if (x.getType().getIntOrFloatBitWidth() < element.getIntOrFloatBitWidth())
            x = arith::ExtFOp::create(nested, at, element, x);
          else if (x.getType() != element)
            x = arith::TruncFOp::create(nested, at, element, x);
          sum = sum ? arith::AddFOp::create(nested, at, sum, x).getResult() : x;
        }
        linalg::YieldOp::create(nested, at, sum);
      });
  return withUnits(generic.getResult(0), loops);
}

bool Recognizer::run() {
  if (product.getNumDpsInputs() != 2)
    return false;
  unsigned loops = product.getNumLoops();
  SmallVector<AffineMap> maps = product.getIndexingMapsArray();
  if (maps.back() != b.getMultiDimIdentityMap(loops).getMajorSubMap(loops - 1) &&
      product.getIteratorTypesArray().back() == utils::IteratorType::reduction)
    return false;
  for (unsigned side : {0, 1}) {
    OpOperand *weights = product.getDpsInputOperand(side), *values = product.getDpsInputOperand(1 - side);
    Value scores = softmaxOf(weights->get());
    if (!scores || !matchScores(scores))
      continue;
    // Loops: batch..., queries, columns of the values, keys; the scores lack the columns.
    unsigned rank = scoreDims.size(), l = rank - 2, columns = rank - 1, keys = rank;
    auto weightDims = operandDims(product, weights), valueDims = operandDims(product, values);
    if (rank < 2 || loops != rank + 1 || !weightDims || !valueDims ||
        product.getIteratorTypesArray()[keys] != utils::IteratorType::reduction)
      return false;
    SmallVector<unsigned> expected = llvm::to_vector(llvm::seq<unsigned>(0, rank - 1));
    expected.push_back(keys);
    if (*weightDims != expected || llvm::is_contained(*valueDims, l) || !llvm::is_contained(*valueDims, columns))
      return false;

    // Of the scores' product: batch..., queries, keys, depth.
    unsigned depth = rank;
    OpOperand *query = scoreProduct.getDpsInputOperand(0), *key = scoreProduct.getDpsInputOperand(1);
    auto queryDims = operandDims(scoreProduct, query), keyDims = operandDims(scoreProduct, key);
    if (!queryDims || !keyDims || scoreProduct.getNumLoops() != rank + 1)
      return false;
    if (llvm::is_contained(*keyDims, l)) {
      std::swap(query, key);
      std::swap(queryDims, keyDims);
    }
    if (!llvm::is_contained(*queryDims, l) || llvm::is_contained(*queryDims, rank - 1) ||
        llvm::is_contained(*keyDims, l) || !llvm::is_contained(*keyDims, rank - 1))
      return false;
    Type element = getElementTypeOrSelf(product.getResult(0).getType());
    if (!isa<FloatType>(element) || getElementTypeOrSelf(query->get().getType()) != element ||
        getElementTypeOrSelf(key->get().getType()) != element ||
        getElementTypeOrSelf(values->get().getType()) != element)
      return false;

    SmallVector<SymExpr> batch(ArrayRef<SymExpr>(scoreDims).drop_back(2));
    auto with = [&](const SymExpr &x, const SymExpr &y) {
      SmallVector<SymExpr> out = batch;
      out.append({x, y});
      return out;
    };
    auto order = [&](unsigned x, unsigned y) {
      SmallVector<unsigned> out = llvm::to_vector(llvm::seq<unsigned>(0, rank - 2));
      out.append({x, y});
      return out;
    };
    SymExpr size = shapes.dims(query->get())[llvm::find(*queryDims, depth) - queryDims->begin()];
    Value q = overDims(query->get(), *queryDims, order(l, depth), with(scoreDims[l], size));
    Value k = overDims(key->get(), *keyDims, order(rank - 1, depth), with(scoreDims.back(), size));
    Value v = overDims(values->get(), *valueDims, order(keys, columns),
                       with(scoreDims.back(), shapes.dims(product.getResult(0)).back()));
    Value mask = terms.empty() ? Value() : maskOf();
    auto attention = AttentionOp::create(b, b.getFusedLoc({loc, scoreProduct.getLoc()}), product.getResult(0).getType(),
                                         q, k, v, mask, b.getF64FloatAttr(scale), b.getBoolAttr(false),
                                         /*nan_rows=*/b.getUnitAttr());
    product.getResult(0).replaceAllUsesWith(attention.getResult());
    return true;
  }
  return false;
}

struct RecognizeAttention : disc::impl::RecognizeAttentionBase<RecognizeAttention> {
  void runOnOperation() override {
    ShapeAnalysis shapes(getOperation());
    for (auto func : getOperation().getOps<func::FuncOp>()) {
      SmallVector<linalg::GenericOp> products;
      for (Block *block : hostBlocks(func))
        for (auto generic : block->getOps<linalg::GenericOp>())
          if (linalg::isaContractionOpInterface(generic))
            products.push_back(generic);
      bool any = false;
      for (linalg::GenericOp product : products)
        any |= Recognizer(product, shapes).run();
      if (any)
        eraseDead(func);
    }
  }
};
} // namespace
