//===- KernelGroups.cpp - which computations share a kernel ---------------===//

#include "lib/Transforms/Fusion/KernelGroups.h"

#include "lib/Transforms/Support/ViewLayout.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace mlir::disc;
using llvm::SetVector;

namespace {
/// The loops of an operation, seen as coordinates of a group's domain.
struct Loops {
  SmallVector<SymExpr> extents; // without unit parallel loops
  SmallVector<bool> reduced;
  SmallVector<int> position; // loop dimension -> index into extents, -1 for a unit loop

  SmallVector<SymExpr> parallelExtents() const {
    SmallVector<SymExpr> out;
    for (auto [e, r] : llvm::zip(extents, reduced))
      if (!r)
        out.push_back(e);
    return out;
  }
};

enum class Role { Full, Part, Reduction, Free };
} // namespace

static Loops loopsOf(linalg::GenericOp op, ShapeAnalysis &shapes) {
  SmallVector<std::optional<SymExpr>> extents(op.getNumLoops());
  for (OpOperand &operand : op->getOpOperands()) {
    if (!isa<RankedTensorType>(operand.get().getType()))
      continue;
    AffineMap map = op.getMatchingIndexingMap(&operand);
    SmallVector<SymExpr> dims = shapes.dims(operand.get());
    for (auto [j, e] : llvm::enumerate(map.getResults()))
      if (auto d = dyn_cast<AffineDimExpr>(e))
        if (!extents[d.getPosition()] || dims[j].isConstant())
          extents[d.getPosition()] = dims[j];
  }
  Loops loops;
  for (auto [i, type] : llvm::enumerate(op.getIteratorTypesArray())) {
    bool reduced = type == utils::IteratorType::reduction;
    if (!reduced && extents[i]->isConstant(1)) {
      loops.position.push_back(-1);
      continue;
    }
    loops.position.push_back(loops.extents.size());
    loops.extents.push_back(*extents[i]);
    loops.reduced.push_back(reduced);
  }
  return loops;
}

bool mlir::disc::isContraction(linalg::GenericOp op, ShapeAnalysis &shapes) {
  if (!linalg::isaContractionOpInterface(op))
    return false;
  Loops loops = loopsOf(op, shapes);
  AffineMap left = op.getIndexingMapsArray()[0], right = op.getIndexingMapsArray()[1];
  return !loops.reduced.back() || llvm::any_of(llvm::seq(op.getNumLoops()), [&](unsigned d) {
    return loops.position[d] >= 0 && right.isFunctionOfDim(d) && !left.isFunctionOfDim(d);
  });
}

SmallVector<utils::IteratorType> mlir::disc::movingLoops(linalg::GenericOp op, ShapeAnalysis &shapes) {
  return llvm::map_to_vector(loopsOf(op, shapes).reduced, [](bool isReduced) {
    return isReduced ? utils::IteratorType::reduction : utils::IteratorType::parallel;
  });
}

bool mlir::disc::isCloned(Operation *op) {
  if (isa<DimOp, tensor::EmptyOp, linalg::FillOp>(op))
    return true;
  if (auto constant = dyn_cast<arith::ConstantOp>(op))
    return !isa<RankedTensorType>(constant.getType()) || isa<SplatElementsAttr>(constant.getValue());
  // Scalars derived from extents, such as 1 / S as a float.
  return isa_and_present<arith::ArithDialect, math::MathDialect>(op->getDialect()) &&
         llvm::none_of(op->getResultTypes(), llvm::IsaPred<RankedTensorType>);
}

/// Few enough operations, none of them slow, that computing a value again beats storing it.
static bool isCheap(linalg::GenericOp op) {
  int64_t count = 0;
  for (Operation &nested : op.getBody()->without_terminator()) {
    if (isa_and_present<math::MathDialect>(nested.getDialect()) ||
        isa<arith::DivFOp, arith::DivSIOp, arith::DivUIOp, arith::RemSIOp, arith::RemFOp, tensor::ExtractOp>(nested) ||
        nested.getNumRegions() != 0)
      return false;
    ++count;
  }
  return count <= 4;
}

static bool sameExtents(ArrayRef<SymExpr> a, ArrayRef<SymExpr> b, ShapeAnalysis &shapes) {
  return a.size() == b.size() &&
         llvm::all_of(llvm::zip(a, b), [&](auto pair) { return shapes.equal(std::get<0>(pair), std::get<1>(pair)); });
}

std::string KernelGroup::describe() const {
  std::string text;
  llvm::raw_string_ostream os(text);
  os << "domain [";
  llvm::interleaveComma(domain, os, [&](const SymExpr &e) { os << e.str(); });
  os << "]";
  bool any = false;
  for (auto [i, r] : llvm::enumerate(reduced))
    if (r) {
      os << (any ? ", " : ", reduces ") << domain[i].str();
      any = true;
    }
  return text;
}

KernelGroups::KernelGroups(Block &block, ShapeAnalysis &shapes, bool manyProducts, bool fuseConcats)
    : block(block), bindings(block), shapes(shapes), manyProducts(manyProducts), fuseConcats(fuseConcats) {
  auto module = block.getParentOp()->getParentOfType<ModuleOp>();
  onDevice = !TargetAttr::of(module).getDevice().empty();
  for (KernelKind kind : module.getContext()->getLoadedDialect<PlanDialect>()->getKinds())
    if (auto fused = dyn_cast<FusedKind>(kind))
      kinds.push_back(fused);
  for (Operation &op : block)
    seed(&op);
}

FusedKind KernelGroups::kindOf(Operation *op) {
  if (op->getNumResults() == 0 || !isKernelBodyOp(op))
    return {};
  for (FusedKind kind : llvm::reverse(kinds))
    if (kind.begins(op, shapes))
      return kind;
  return {};
}

void KernelGroups::seed(Operation *op) {
  FusedKind kind = kindOf(op);
  if (!kind)
    return;
  auto group = std::make_unique<KernelGroup>();
  group->kind = kind;
  group->ops.insert(op);
  if (auto generic = dyn_cast<linalg::GenericOp>(op)) {
    Loops loops = loopsOf(generic, shapes);
    group->domain = loops.extents;
    group->reduced = loops.reduced;
  } else if (isa<ConvolutionOp, ConcatOp>(op)) {
    for (const SymExpr &extent : shapes.dims(op->getResult(0)))
      if (!extent.isConstant(1))
        group->domain.push_back(extent);
    group->reduced.assign(group->domain.size(), false);
  } else {
    group->domain = shapes.dims(op->getResult(0));
    group->reduced.assign(group->domain.size(), false);
  }
  if (auto call = dyn_cast<CallFunctionOp>(op))
    group->reasons.push_back("calls " + call.getFunction().str());
  else
    group->reasons.push_back(group->describe());
  groups[op] = group.get();
  storage.push_back(std::move(group));
}

bool KernelGroups::makesCycle(const SetVector<Operation *> &ops) const {
  // Walk forward from the merged operations; a group is one node, so entering it reaches all of its users.
  SmallVector<Operation *> worklist;
  llvm::SmallPtrSet<Operation *, 32> seen;
  auto push = [&](Operation *op) {
    for (Operation *user : op->getUsers()) {
      Operation *top = block.findAncestorOpInBlock(*user);
      if (top && !ops.contains(top) && seen.insert(top).second)
        worklist.push_back(top);
    }
    for (Operation *later : bindings.after(op))
      if (!ops.contains(later) && seen.insert(later).second)
        worklist.push_back(later);
  };
  for (Operation *op : ops)
    push(op);
  while (!worklist.empty()) {
    Operation *op = worklist.pop_back_val();
    SmallVector<Operation *> members{op};
    if (KernelGroup *group = groupOf(op))
      members.assign(group->ops.begin(), group->ops.end());
    for (Operation *member : members) {
      seen.insert(member);
      if (llvm::any_of(bindings.after(member), [&](Operation *later) { return ops.contains(later); }))
        return true;
      for (Operation *user : member->getUsers())
        if (Operation *top = block.findAncestorOpInBlock(*user); top && ops.contains(top))
          return true;
      push(member);
    }
  }
  return false;
}

/// Coordinates of the domain at which each dimension of a value is addressed; -1 where it has one element.
static SmallVector<int> coordinates(AffineMap map, ArrayRef<int> loopToDomain) {
  SmallVector<int> out;
  for (AffineExpr e : map.getResults()) {
    auto d = dyn_cast<AffineDimExpr>(e);
    out.push_back(d ? loopToDomain[d.getPosition()] : isa<AffineConstantExpr>(e) ? -1 : -2);
  }
  return out;
}

/// Whether a convolution computes its input from a narrower one as it reads that: one of each channel by itself does,
/// which reads an element for few results.
bool KernelGroups::widensInput(ConvolutionOp op, Value operand) const {
  SmallVector<SymExpr> weight = shapes.dims(op.getWeight());
  bool isDepthwise = weight[1].isConstant(1) && weight.back().isConstant(1) && !weight.front().isConstant(1);
  return isDepthwise && !onDevice && operand == op.getInput() && narrowSource(operand.getDefiningOp());
}

bool KernelGroups::isConsistent(const KernelGroup &merged) const {
  const FusionTraits traits = merged.kind.getTraits();
  SmallVector<SymExpr> parallel;
  SmallVector<int> parallelAt, fullAt;
  for (auto [i, e] : llvm::enumerate(merged.domain)) {
    fullAt.push_back(i);
    if (!merged.reduced[i]) {
      parallel.push_back(e);
      parallelAt.push_back(i);
    }
  }
  bool reduces = parallel.size() != merged.domain.size();

  llvm::SmallDenseMap<Operation *, Role> roles;
  llvm::SmallDenseMap<Operation *, SmallVector<int>> toDomain;
  linalg::GenericOp firstReduction;
  ConvolutionOp convolution;
  llvm::SmallPtrSet<Operation *, 8> afterReduction; // depends on a reduction of the group
  SmallVector<Operation *> ordered(merged.ops.begin(), merged.ops.end());
  llvm::sort(ordered, [](Operation *a, Operation *b) { return a->isBeforeInBlock(b); });
  for (Operation *op : ordered) {
    if (auto own = dyn_cast<ConvolutionOp>(op)) {
      // It reads buffers, and there is one in a kernel: what follows it at the same points is its epilogue.
      if (convolution || llvm::any_of(op->getOperands(), [&](Value v) {
            return merged.ops.contains(v.getDefiningOp()) && !widensInput(own, v);
          }))
        return false;
      convolution = own;
      roles[op] = Role::Reduction;
      for (auto [d, extent] : llvm::enumerate(shapes.dims(own.getResult())))
        toDomain[op].push_back(
            extent.isConstant(1) ? -1 : fullAt[llvm::count_if(toDomain[op], [](int p) { return p >= 0; })]);
      continue;
    }
    if (auto concat = dyn_cast<ConcatOp>(op)) {
      // Its points are the domain's; parts that the group computes are so wherever one of theirs is asked for.
      SmallVector<SymExpr> extents;
      for (const SymExpr &extent : shapes.dims(concat.getResult())) {
        toDomain[op].push_back(extent.isConstant(1) ? -1 : int(extents.size()));
        if (!extent.isConstant(1))
          extents.push_back(extent);
      }
      if (!traits.isPointwise || !sameExtents(extents, merged.domain, shapes) ||
          llvm::any_of(op->getOperands(), [&](Value part) {
            Operation *producer = part.getDefiningOp();
            return producer && merged.ops.contains(producer) && roles.lookup(producer) != Role::Free;
          }))
        return false;
      roles[op] = Role::Full;
      continue;
    }
    auto generic = dyn_cast<linalg::GenericOp>(op);
    if (!generic)
      return false;
    Loops loops = loopsOf(generic, shapes);
    bool isReduction = generic.getNumReductionLoops() != 0;
    bool escapes = llvm::any_of(
        op->getUsers(), [&](Operation *user) { return !merged.ops.contains(block.findAncestorOpInBlock(*user)); });
    Role role;
    if (isReduction) {
      if (!sameExtents(loops.extents, merged.domain, shapes) || loops.reduced != merged.reduced)
        return false;
      // The emitters pair the loops of a kernel's reductions one by one, unit ones too (ReductionPlan).
      if (firstReduction && firstReduction.getIteratorTypesArray() != generic.getIteratorTypesArray())
        return false;
      firstReduction = generic;
      role = Role::Reduction;
    } else if (sameExtents(loops.extents, merged.domain, shapes) && !(reduces && traits.hasEpilogue)) {
      role = Role::Full;
    } else if (sameExtents(loops.extents, parallel, shapes)) {
      role = reduces ? Role::Part : Role::Full;
    } else if (!escapes && (isCheap(generic) || narrowSource(generic))) {
      role = Role::Free;
    } else {
      return false;
    }
    roles[op] = role;
    bool full = role == Role::Full || role == Role::Reduction;
    SmallVector<int> &at = toDomain[op];
    for (int p : loops.position)
      at.push_back(p < 0 || role == Role::Free ? -1 : full ? fullAt[p] : parallelAt[p]);

    if (reduces && escapes && role == Role::Full && !traits.storesFull)
      return false;
    // Rows and columns are stored in the order in which they are computed.
    if (escapes && traits.storesInOrder)
      for (OpResult result : op->getResults()) {
        SmallVector<int> stored = coordinates(generic.getIndexingMapMatchingResult(result), at);
        llvm::erase(stored, -1);
        if (!llvm::is_sorted(stored))
          return false;
      }
    if (traits.hasEpilogue && isReduction && !isContraction(generic, shapes))
      return false;

    // Values from inside the group must be read at the point where they were computed.
    for (OpOperand &operand : op->getOpOperands()) {
      Operation *producer = operand.get().getDefiningOp();
      if (!producer || !merged.ops.contains(producer))
        continue;
      Role from = roles.lookup(producer);
      if (afterReduction.contains(producer) || from == Role::Reduction) {
        if (role == Role::Free)
          return false;
        // A column's pass over its rows happens once: nothing at full points can wait for it.
        if (traits.isOnePass && role != Role::Part)
          return false;
        afterReduction.insert(op);
      }
      if (traits.hasEpilogue && isReduction)
        return false;
      if (role == Role::Free && from != Role::Free)
        return false;
      if (from == Role::Free)
        continue;
      AffineMap written = AffineMap::getMultiDimIdentityMap(toDomain[producer].size(), op->getContext());
      if (auto source = dyn_cast<linalg::GenericOp>(producer))
        written =
            source.getMatchingIndexingMap(source.getDpsInitOperand(cast<OpResult>(operand.get()).getResultNumber()));
      SmallVector<int> writes = coordinates(written, toDomain[producer]);
      SmallVector<int> reads = coordinates(generic.getMatchingIndexingMap(&operand), at);
      bool aligned = writes == reads && !llvm::is_contained(reads, -2);
      // Pure recomputation may read anywhere; that of something stored or reduced may not. Parts of a concatenation
      // that is read across are better stored along their lines first.
      bool recomputed = traits.isPointwise && !llvm::is_contained(reads, -2) && !isa<ConcatOp>(producer);
      if (!aligned && !recomputed)
        return false;
    }
    // Bodies that gather read values at points of their own choice: those must come from outside.
    bool gathersInside = false;
    op->walk([&](tensor::ExtractOp extract) {
      Operation *producer = extract.getTensor().getDefiningOp();
      gathersInside |= producer && merged.ops.contains(producer);
    });
    if (gathersInside)
      return false;
  }
  return true;
}

/// True if all products of both groups read one left operand, in one way.
static bool shareLeftOperand(const KernelGroup &a, const KernelGroup &b, ShapeAnalysis &shapes) {
  linalg::GenericOp first;
  for (const KernelGroup *group : {&a, &b})
    for (Operation *op : group->ops) {
      auto generic = cast<linalg::GenericOp>(op);
      if (!isContraction(generic, shapes))
        continue;
      if (!first)
        first = generic;
      if (!sameView(generic.getDpsInputs()[0], first.getDpsInputs()[0]) ||
          generic.getIndexingMapsArray().front() != first.getIndexingMapsArray().front() ||
          generic.getIteratorTypesArray() != first.getIteratorTypesArray())
        return false;
    }
  return true;
}

/// Whether the group is computed of parameters alone, to no more bytes than it reads: each call would compute it again
/// where the results can be kept. Codes of weights, which become larger, are read as they are.
bool KernelGroups::isForLoad(const KernelGroup &group) {
  auto bytes = [](auto values) {
    int64_t sum = 0;
    for (Value v : values)
      if (auto type = dyn_cast<RankedTensorType>(v.getType()); type && type.hasStaticShape())
        sum += type.getNumElements() * int64_t(llvm::divideCeil(type.getElementTypeBitWidth(), 8));
    return sum;
  };
  return llvm::all_of(group.ops, [&](Operation *op) {
    auto generic = dyn_cast<linalg::GenericOp>(op);
    return generic && known.contains(op) && bytes(op->getResults()) <= bytes(generic.getInputs());
  });
}

bool KernelGroups::tryMerge(KernelGroup &producer, KernelGroup &consumer) {
  bool isLoop = producer.kind.getTraits().isPointwise;
  const KernelGroup &anchor = isLoop ? consumer : producer;
  if (!anchor.kind.absorbs(cast<KernelKind>(isLoop ? producer.kind : consumer.kind)))
    return false;
  // Only groups made of linalg.generic grow, and loops of concatenations where those are read at points.
  bool loops = isLoop && consumer.kind.getTraits().isPointwise;
  for (KernelGroup *g : {&producer, &consumer})
    if (isa<RunningSumOp>(g->ops.front()) || (!(fuseConcats && loops) && llvm::any_of(g->ops, llvm::IsaPred<ConcatOp>)))
      return false;
  // Two products of one left operand, where the epilogue of one reads the other: both sums are there when it runs.
  bool products = producer.kind.getTraits().hasEpilogue && consumer.kind.getTraits().hasEpilogue;
  if (products && !(manyProducts && shareLeftOperand(producer, consumer, shapes)))
    return false;
  if (isForLoad(producer) && !llvm::all_of(consumer.ops, [&](Operation *op) { return known.contains(op); }))
    return false;

  KernelGroup merged;
  merged.kind = anchor.kind;
  merged.domain = anchor.domain;
  merged.reduced = anchor.reduced;
  merged.ops = producer.ops;
  merged.ops.insert(consumer.ops.begin(), consumer.ops.end());
  if (loops) {
    // The consumer's points; a producer with others is recomputed there, so must be cheap and used nowhere else.
    merged.domain = consumer.domain;
    merged.reduced = consumer.reduced;
  }
  if (!isConsistent(merged) || makesCycle(merged.ops))
    return false;
  // In a loop the escaping values are stored at the point they are computed.
  if (loops && !sameExtents(producer.domain, consumer.domain, shapes))
    for (Operation *op : producer.ops)
      for (Operation *user : op->getUsers())
        if (!merged.ops.contains(block.findAncestorOpInBlock(*user)))
          return false;

  merged.reasons = anchor.reasons;
  const KernelGroup &other = &anchor == &producer ? consumer : producer;
  merged.reasons.push_back((&other == &consumer ? "its consumer over [" : "its producer over [") +
                           other.describe().substr(StringRef("domain [").size()));
  producer.ops = merged.ops;
  producer.kind = merged.kind;
  producer.domain = merged.domain;
  producer.reduced = merged.reduced;
  producer.reasons = merged.reasons;
  for (Operation *op : consumer.ops)
    groups[op] = &producer;
  consumer.ops.clear();
  return true;
}

bool KernelGroups::fuseEdges(llvm::function_ref<bool(KernelGroup &, KernelGroup &)> wanted) {
  bool any = false;
  for (bool changed = true; changed;) {
    changed = false;
    for (Operation &op : block) {
      KernelGroup *consumer = groupOf(&op);
      if (!consumer)
        continue;
      for (Value operand : op.getOperands()) {
        Operation *def = operand.getDefiningOp();
        KernelGroup *producer = def ? groupOf(def) : nullptr;
        if (!producer || producer == consumer || !wanted(*producer, *consumer))
          continue;
        if (tryMerge(*producer, *consumer)) {
          changed = any = true;
          consumer = producer;
        }
      }
    }
  }
  return any;
}

/// A decoder's step appends a row to keys and values. Attention of one query reads all rows once, and can write the
/// longer tensors while it does.
void KernelGroups::joinRows(AttentionOp op) {
  SmallVector<SymExpr> dims = shapes.dims(op.getQuery());
  if (!shapes.equal(dims[dims.size() - 2], SymExpr(1)) || op.getIsCausal() ||
      TargetAttr::of(op).getVectorBits() < 128 ||
      getElementTypeOrSelf(op.getQuery().getType()).getIntOrFloatBitWidth() > 32)
    return;
  std::optional<JoinedRows> keys = joinedRows(op.getKey(), shapes), values = joinedRows(op.getValue(), shapes);
  if (!keys || !values || keys->concat.getInputs().size() != values->concat.getInputs().size())
    return;
  KernelGroup *group = groupOf(op);
  SetVector<Operation *> ops = group->ops;
  for (JoinedRows *rows : {&*keys, &*values}) {
    for (Value input : rows->concat.getInputs()) {
      auto layout = viewLayout(input, shapes);
      SmallVector<SymExpr> extents = shapes.dims(input);
      if (!layout || !layout->strides.back().isConstant(1) ||
          !rows->through(*layout, extents[extents.size() - 2], shapes))
        return;
    }
    // Another attention may have taken it along.
    KernelGroup *own = groupOf(rows->concat);
    if (!own || own->ops.size() != 1)
      return;
    ops.insert(rows->concat);
    for (Operation *view : rows->views) {
      if (!view->hasOneUse())
        return;
      ops.insert(view);
    }
  }
  for (auto [k, v] : llvm::zip(keys->concat.getInputs(), values->concat.getInputs())) {
    SmallVector<SymExpr> a = shapes.dims(k), c = shapes.dims(v);
    if (!shapes.equal(a[a.size() - 2], c[c.size() - 2]))
      return;
  }
  if (makesCycle(ops))
    return;
  for (JoinedRows *rows : {&*keys, &*values}) {
    if (KernelGroup *old = groupOf(rows->concat); old && old != group)
      old->ops.clear();
    groups[rows->concat] = group;
    for (Operation *view : rows->views)
      groups[view] = group;
  }
  group->ops = ops;
  group->reasons.push_back("appends to keys and values as it reads them");
}

void KernelGroups::fuse() {
  // Attention writes its result in the order its only user wants.
  for (Operation &op : block)
    if (auto permute = dyn_cast<PermuteOp>(op))
      if (isAbsorbed(permute)) {
        KernelGroup *group = groupOf(permute.getSource().getDefiningOp());
        group->ops.insert(permute);
        group->reasons.push_back("stores its result permuted");
        groups[permute] = group;
      }
  for (Operation &op : block)
    if (auto attention = dyn_cast<AttentionOp>(op))
      joinRows(attention);

  auto fuse = [&](auto isProducer, auto isConsumer) {
    fuseEdges([&](KernelGroup &producer, KernelGroup &consumer) {
      return isProducer(producer.kind) && isConsumer(consumer.kind);
    });
  };
  auto isLoop = [](FusedKind kind) { return kind.getTraits().isPointwise; };
  auto is = [](FusedKind kind) { return [kind](FusedKind other) { return kind == other; }; };
  // Epilogues first: they are free while the tile is in registers. Then rows, which turn several passes over memory
  // into one; what is left meets in loops; at the end loops that only feed a kernel join it.
  for (FusedKind kind : llvm::reverse(kinds)) {
    if (!kind.getTraits().hasEpilogue)
      continue;
    fuse(is(kind), isLoop);
    fuse(is(kind), is(kind));
  }
  for (FusedKind kind : kinds) {
    if (!kind.getTraits().isReduction)
      continue;
    fuse(is(kind), isLoop);
    fuse(is(kind), is(kind));
    fuse(isLoop, is(kind));
    fuse(is(kind), isLoop);
    fuse(is(kind), is(kind));
  }
  fuse(isLoop, isLoop);
  for (FusedKind kind : kinds)
    if (!isLoop(kind))
      fuse(isLoop, is(kind));
  for (Operation &op : llvm::make_early_inc_range(block))
    leaveToReaders(&op);
}
