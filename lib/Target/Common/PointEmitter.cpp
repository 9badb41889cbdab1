//===- PointEmitter.cpp - code for a tensor's value at a point ------------===//
//
//   %t = linalg.generic {(d0, d1) -> (d0, d1), (d0, d1) -> (d1)} ins(%x, %bias) { addf; yield }
//   disc_tensor.permute %t [1, 0]
//
// evaluated at (i, j + lanes) of the permuted view becomes, with `x` laid out [S, 1]:
//
//   %a = gather x + (j + lanes) * S + i      (the lanes run along a strided dimension)
//   %b = load bias + i                       (uniform: a scalar)
//   %r = arith.addf %a, splat(%b) : vector<16xf32>
//
// Lit test: test/lit/CPU/points.mlir.
//
//===----------------------------------------------------------------------===//

#include "lib/Target/Common/PointEmitter.h"

#include "dialects/Tensor/TensorDialect.h"
#include "lib/Target/Common/KernelLoops.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/Matchers.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace mlir::disc;

PointEmitter::PointEmitter(OpBuilder &builder, KernelFuncOp kernel, KernelArguments arguments, int64_t lanes,
                           ShapeAnalysis &shapes)
    : builder(builder), kernelFunc(kernel), arguments(std::move(arguments)), vectorLanes(lanes), shapeAnalysis(shapes),
      loc(kernel.getLoc()) {
  // Function-wide values go before this one, in the order they are first needed, so that they dominate everything.
  entryAnchor = arith::ConstantIndexOp::create(builder, loc, 0);
}

void PointEmitter::bind(Value tensor, Computation computation) { bindings[tensor] = std::move(computation); }
void PointEmitter::unbind(Value tensor) { bindings.erase(tensor); }

void PointEmitter::newPoint() {
  points.clear();
  pointLog.clear();
}

PointEmitter::Scope::Scope(PointEmitter &emitter)
    : emitter(emitter), pointDepth(emitter.pointLog.size()), indexDepth(emitter.indexLog.size()) {}

PointEmitter::Scope::~Scope() {
  while (emitter.pointLog.size() > pointDepth) {
    emitter.points.erase(emitter.pointLog.back());
    emitter.pointLog.pop_back();
  }
  while (emitter.indexLog.size() > indexDepth) {
    emitter.indices.erase(emitter.indexLog.back());
    emitter.indexLog.pop_back();
  }
}

PointEmitter::PointKey PointEmitter::keyOf(Value tensor, ArrayRef<Idx> idx, Value mask) {
  PointKey key{{tensor.getAsOpaquePointer(), mask.getAsOpaquePointer(), nullptr, nullptr, nullptr, 0}};
  for (const Idx &i : idx)
    key.push_back({i.base.getAsOpaquePointer(), i.each.getAsOpaquePointer(), i.pattern.getAsOpaquePointer(),
                   i.rows.getAsOpaquePointer(), i.stride.getAsOpaquePointer(), i.lanes ? i.step : 0});
  return key;
}

bool PointEmitter::isKnown(Value tensor, ArrayRef<Idx> idx) const { return points.count(keyOf(tensor, idx, {})); }

Value PointEmitter::eval(Value tensor, ArrayRef<Idx> idx, Value mask) {
  PointKey key = keyOf(tensor, idx, mask);
  if (auto it = points.find(key); it != points.end())
    return it->second;
  Value result;
  if (idx.empty() && isUniform(tensor))
    return evalUniform(tensor);
  if (auto it = bindings.find(tensor); it != bindings.end()) {
    Computation computation = it->second; // a computation may bind others, which moves the map's entries
    result = computation(idx, mask);
  } else {
    result = recompute(tensor, idx, mask);
  }
  if (!result)
    return {};
  points[key] = result;
  pointLog.push_back(std::move(key));
  return result;
}

/// Whether a tensor follows from arguments alone, and from elements that these have at all sizes.
bool PointEmitter::isUniform(Value tensor) {
  if (bindings.count(tensor))
    return false;
  if (auto it = uniformTensors.find(tensor); it != uniformTensors.end())
    return it->second;
  auto type = dyn_cast<RankedTensorType>(tensor.getType());
  auto known = [&]() -> bool {
    if (!type || !type.hasStaticShape() || type.getNumElements() == 0)
      return false;
    Operation *op = tensor.getDefiningOp();
    if (!op)
      return true;
    if (auto slice = dyn_cast<SliceOp>(op))
      return matchPattern(slice.getOffset(), m_Constant()) && isUniform(slice.getSource());
    if (isa<ReshapeOp, PermuteOp, BroadcastOp>(op))
      return isUniform(op->getOperand(0));
    auto generic = dyn_cast<linalg::GenericOp>(op);
    if (!generic || generic.getNumLoops() ||
        !llvm::all_of(generic.getRegionOutputArgs(), [](Value v) { return v.use_empty(); }))
      return false;
    return llvm::all_of(generic.getDpsInputs(), [&](Value v) { return isUniform(v); }) &&
           llvm::all_of(generic.getBody()->without_terminator(), [&](Operation &inner) {
             if (auto extract = dyn_cast<tensor::ExtractOp>(inner))
               return extract.getIndices().empty() && isUniform(extract.getTensor());
             return inner.getNumRegions() == 0 && isPure(&inner);
           });
  };
  return uniformTensors[tensor] = known();
}

Value PointEmitter::evalUniform(Value tensor) {
  if (auto it = uniforms.find(tensor); it != uniforms.end())
    return it->second;
  Value result;
  // What is memoised may be inside of loops.
  std::map<PointKey, Value> otherPoints;
  std::vector<PointKey> otherLog;
  std::map<IndexKey, Value> otherIndices;
  std::vector<IndexKey> otherIndexLog;
  auto exchange = [&] {
    std::swap(points, otherPoints);
    std::swap(pointLog, otherLog);
    std::swap(indices, otherIndices);
    std::swap(indexLog, otherIndexLog);
  };
  Value condition = guard;
  exchange();
  guard = {};
  atEntry([&] { result = recompute(tensor, {}); });
  guard = condition;
  exchange();
  if (result) {
    uniforms[tensor] = result;
    wide.insert(result.getAsOpaquePointer());
  }
  return result;
}

/// A clone at the function's entry if the operands are the same for the whole function; null if they are not.
Operation *PointEmitter::cloneUniform(Operation &op, ArrayRef<Value> operands) {
  if (op.getNumResults() == 0 || operands.empty() || !isPure(&op) ||
      !llvm::all_of(operands, [&](Value v) { return wide.contains(v.getAsOpaquePointer()); }))
    return nullptr;
  auto &[known, clone] = uniformOps[&op];
  if (!clone || ArrayRef<Value>(known) != operands) {
    Operation *made = nullptr;
    atEntry([&] { made = cloneOn(&op, operands); });
    known.assign(operands.begin(), operands.end());
    clone = made;
    for (Value result : made->getResults())
      wide.insert(result.getAsOpaquePointer());
  }
  return clone;
}

Value PointEmitter::recompute(Value tensor, ArrayRef<Idx> idx, Value mask) {
  Type elem = getElementTypeOrSelf(tensor.getType());
  if (auto arg = dyn_cast<BlockArgument>(tensor)) {
    unsigned i = arg.getArgNumber();
    return load(operandPtr(i), address(kernelFunc.getLayout(i), idx), elem, mask);
  }
  Operation *op = tensor.getDefiningOp();
  return TypeSwitch<Operation *, Value>(op)
      .Case([&](linalg::GenericOp generic) { return evalGeneric(cast<OpResult>(tensor), generic, idx, mask); })
      .Case([&](linalg::FillOp fill) { return scalar(fill.getInputs().front()); })
      .Case([&](PermuteOp view) {
        SmallVector<Idx> source(idx.size());
        for (auto [i, p] : llvm::enumerate(view.getPermutation()))
          source[p] = idx[i];
        return eval(view.getSource(), source, mask);
      })
      .Case([&](ReshapeOp view) { return evalReshape(view, idx, mask); })
      .Case([&](BroadcastOp view) {
        auto sourceType = cast<RankedTensorType>(view.getSource().getType());
        SmallVector<Idx> source;
        for (auto [j, d] : llvm::enumerate(view.getDims()))
          source.push_back(sourceType.getDimSize(j) == 1 ? uniform(0) : idx[d]);
        return eval(view.getSource(), source, mask);
      })
      .Case([&](SliceOp view) {
        SmallVector<Idx> source(idx);
        Idx &along = source[view.getDim()];
        along = addIdx(uniform(scalar(view.getOffset())), mulIdx(along, SymExpr(int64_t(view.getStep()))));
        return eval(view.getSource(), source, mask);
      })
      .Case([&](ConcatOp concat) { return evalConcat(concat, idx, mask); })
      .Case([&](arith::ConstantOp constantOp) -> Value {
        auto splatAttr = dyn_cast<SplatElementsAttr>(constantOp.getValue());
        if (splatAttr)
          return constant(cast<TypedAttr>(splatAttr.getSplatValue<Attribute>()));
        op->emitError("cannot evaluate a tensor constant that is not one repeated value");
        return {};
      })
      .Case([&](tensor::EmptyOp) -> Value {
        op->emitError("reads a tensor that nothing has written");
        return {};
      })
      .Default([&](Operation *) -> Value {
        op->emitError("cannot be evaluated at a point");
        return {};
      });
}

Value PointEmitter::scalar(Value v) {
  if (TypedAttr attr; matchPattern(v, m_Constant(&attr)))
    return constant(attr);
  if (auto dim = v.getDefiningOp<DimOp>())
    return expr(shapeAnalysis.expr(v));
  if (Operation *op = v.getDefiningOp(); op && v.getType().isIndex())
    return expr(shapeAnalysis.expr(v));
  emitError(v.getLoc(), "scalar is not known in a kernel");
  return {};
}

Value PointEmitter::evalGeneric(OpResult result, linalg::GenericOp op, ArrayRef<Idx> idx, Value mask) {
  if (op.getNumParallelLoops() != op.getNumLoops()) {
    op.emitError("a reduction cannot be evaluated at a point");
    return {};
  }
  SmallVector<Idx> iters(op.getNumLoops());
  unsigned number = result.getResultNumber();
  AffineMap map = op.getIndexingMapsArray()[op.getNumDpsInputs() + number];
  for (auto [k, e] : llvm::enumerate(map.getResults())) {
    if (auto dim = dyn_cast<AffineDimExpr>(e))
      iters[dim.getPosition()] = idx[k];
    else if (!isa<AffineConstantExpr>(e)) {
      op.emitError("result map is not a projected permutation");
      return {};
    }
  }
  for (Idx &iter : iters)
    if (!iter.base && !iter.each)
      iter = uniform(0); // the dimension has extent 1
  SmallVector<Value> outs(op.getNumDpsInits());
  for (auto [i, init] : llvm::enumerate(op.getDpsInits())) {
    if (op.getRegionOutputArgs()[i].use_empty())
      continue;
    SmallVector<Idx> at;
    for (AffineExpr e : op.getMatchingIndexingMap(op.getDpsInitOperand(i)).getResults())
      at.push_back(affine(e, iters));
    if (!(outs[i] = eval(init, at, mask)))
      return {};
  }
  IRMapping values;
  if (failed(emitBody(op, iters, mask, outs, values)))
    return {};
  return values.lookup(cast<linalg::YieldOp>(op.getBody()->getTerminator()).getOperand(number));
}

LogicalResult PointEmitter::emitBody(linalg::GenericOp op, ArrayRef<Idx> iters, Value mask, ArrayRef<Value> outs,
                                     IRMapping &map) {
  for (OpOperand *input : op.getDpsInputOperands()) {
    BlockArgument arg = op.getMatchingBlockArgument(input);
    if (arg.use_empty())
      continue;
    Value v;
    if (!isa<RankedTensorType>(input->get().getType())) {
      v = scalar(input->get());
    } else {
      SmallVector<Idx> at;
      for (AffineExpr e : op.getMatchingIndexingMap(input).getResults())
        at.push_back(affine(e, iters));
      v = eval(input->get(), at, mask);
    }
    if (!v)
      return failure();
    map.map(arg, v);
  }
  for (auto [arg, v] : llvm::zip(op.getRegionOutputArgs(), outs))
    if (v)
      map.map(arg, v);

  BodyPoint point{iters, mask, DenseMap<Value, Idx>()};
  if (failed(emitOps(*op.getBody(), map, point)))
    return failure();
  for (Value v : op.getBody()->getTerminator()->getOperands())
    if (!map.contains(v)) {
      Value known = scalar(v);
      if (!known)
        return failure();
      map.map(v, known);
    }
  return success();
}

/// The operations of a generic's body, or of a region in it, up to the terminator.
LogicalResult PointEmitter::emitOps(Block &block, IRMapping &map, BodyPoint &point) {
  for (Operation &inner : block.without_terminator()) {
    if (auto index = dyn_cast<linalg::IndexOp>(inner)) {
      const Idx &iter = point.iters[index.getDim()];
      point.coordinates[index] = iter;
      if (!llvm::all_of(index->getUsers(), llvm::IsaPred<tensor::ExtractOp>))
        map.map(index.getResult(), materialize(iter));
      continue;
    }
    if (auto extract = dyn_cast<tensor::ExtractOp>(inner)) {
      Value v = evalExtract(extract, map, point.coordinates, point.mask);
      if (!v)
        return failure();
      map.map(extract.getResult(), v);
      continue;
    }
    if (auto constantOp = dyn_cast<arith::ConstantOp>(inner)) {
      Value known = constant(constantOp.getValue());
      wide.insert(known.getAsOpaquePointer());
      map.map(constantOp.getResult(), known);
      continue;
    }
    SmallVector<Value> operands;
    for (Value operand : inner.getOperands()) {
      Value v = map.lookupOrNull(operand);
      if (!v && !(v = scalar(operand)))
        return failure();
      operands.push_back(v);
    }
    if (auto check = dyn_cast<CheckIndexOp>(inner)) {
      map.map(check.getResult(), checkIndex(check, operands[0], operands[1], point.mask));
      continue;
    }
    if (auto branch = dyn_cast<scf::IfOp>(inner)) {
      if (failed(emitBranch(branch, operands.front(), map, point)))
        return failure();
      continue;
    }
    if (auto loop = dyn_cast<scf::WhileOp>(inner)) {
      if (failed(emitWhile(loop, operands, map, point)))
        return failure();
      continue;
    }
    // Integer divisions are not pure, for they may trap; the import guards their divisors, so that lanes that are
    // masked off (and read as zeros) do not.
    if (inner.getNumRegions() || !isMemoryEffectFree(&inner))
      return inner.emitError("cannot be evaluated along lanes");
    if (Operation *clone = cloneUniform(inner, operands)) {
      map.map(inner.getResults(), clone->getResults());
      continue;
    }
    if (std::optional<Idx> known = computedCoordinate(inner, point.coordinates, operands))
      point.coordinates[inner.getResult(0)] = *known;
    map.map(inner.getResults(), cloneOn(&inner, operands)->getResults());
  }
  return success();
}

/// A coordinate that sums and constant multiples make of others, as a reversed dimension or a sliding window does, runs
/// along the lanes in a known way, too. `operands` are the values of `op`'s.
std::optional<Idx> PointEmitter::computedCoordinate(Operation &op, const DenseMap<Value, Idx> &coordinates,
                                                    ArrayRef<Value> operands) {
  if (!isa<arith::IndexCastOp, arith::AddIOp, arith::SubIOp, arith::MulIOp>(op) ||
      llvm::none_of(op.getOperands(), [&](Value v) { return coordinates.contains(v); }))
    return std::nullopt;
  auto isWide = [](Type type) { return type.isIndex() || type.isInteger(64); };
  SmallVector<Idx> at;
  for (auto [operand, value] : llvm::zip(op.getOperands(), operands)) {
    if (auto it = coordinates.find(operand); it != coordinates.end())
      at.push_back(it->second);
    else if (isWide(value.getType())) // the same for all lanes
      at.push_back(Idx(value.getType().isIndex()
                           ? value
                           : arith::IndexCastOp::create(builder, loc, builder.getIndexType(), value).getResult()));
    else
      return std::nullopt;
  }
  if (isa<arith::IndexCastOp>(op))
    return isWide(op.getResult(0).getType()) ? std::optional(at[0]) : std::nullopt;
  if (isa<arith::AddIOp>(op))
    return addIdx(at[0], at[1]);
  if (isa<arith::SubIOp>(op))
    return addIdx(at[0], mulIdx(at[1], SymExpr(-1)));
  for (unsigned i : {0, 1})
    if (APInt factor; matchPattern(op.getOperand(i), m_ConstantInt(&factor)))
      return mulIdx(at[1 - i], SymExpr(factor.getSExtValue()));
  return std::nullopt;
}

/// Whatever the index that data says, there is no element to read if the dimension has none.
Value PointEmitter::evalExtract(tensor::ExtractOp op, IRMapping &map, const DenseMap<Value, Idx> &coordinates,
                                Value mask) {
  SmallVector<Idx> idx;
  SymExpr elements(1);
  for (auto [index, extent] : llvm::zip(op.getIndices(), shapeAnalysis.dims(op.getTensor()))) {
    if (auto it = coordinates.find(index); it != coordinates.end()) {
      idx.push_back(it->second);
      continue;
    }
    Value v = map.lookupOrNull(index);
    if (!v && !(v = scalar(index)))
      return {};
    idx.push_back(isa<VectorType>(v.getType()) ? Idx::arbitrary(v) : Idx(v));
    if (!shapeAnalysis.lessEqual(SymExpr(1), extent))
      elements *= extent;
  }
  if (elements.isConstant(1))
    return eval(op.getTensor(), idx, mask);
  bool anyLanes = llvm::any_of(idx, [](const Idx &i) { return !i.isUniform(); });
  Type elem = op.getType(), type = anyLanes ? Type(vectorOf(elem)) : elem;
  Value none = constant(cast<TypedAttr>(builder.getZeroAttr(type)));
  Value any = arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::ne, expr(elements), constantIndex(0));
  bool ok = true;
  SmallVector<Value> read = emitIf(builder, loc, any, none, [&] {
    Scope scope(*this);
    Value v = eval(op.getTensor(), idx, mask);
    ok = bool(v);
    return SmallVector<Value>{!ok ? none : anyLanes ? splat(v) : v};
  });
  return ok ? read.front() : Value();
}

Idx PointEmitter::affine(AffineExpr e, ArrayRef<Idx> iters) {
  if (auto dim = dyn_cast<AffineDimExpr>(e))
    return iters[dim.getPosition()];
  if (auto c = dyn_cast<AffineConstantExpr>(e))
    return uniform(c.getValue());
  auto binary = cast<AffineBinaryOpExpr>(e);
  Idx lhs = affine(binary.getLHS(), iters);
  auto rhs = dyn_cast<AffineConstantExpr>(binary.getRHS());
  switch (binary.getKind()) {
  case AffineExprKind::Add:
    return addIdx(lhs, affine(binary.getRHS(), iters));
  case AffineExprKind::Mul:
    return mulIdx(lhs, SymExpr(rhs.getValue()));
  case AffineExprKind::FloorDiv:
    return divModIdx(lhs, SymExpr(rhs.getValue())).first;
  case AffineExprKind::Mod:
    return divModIdx(lhs, SymExpr(rhs.getValue())).second;
  default:
    return divModIdx(addIdx(lhs, uniform(rhs.getValue() - 1)), SymExpr(rhs.getValue())).first;
  }
}

/// The part of `concat` that covers a point is chosen by branches: the other parts' coordinates would be out of range.
/// Where the lanes of a part are known while compiling, it is read under their mask.
Value PointEmitter::evalConcat(ConcatOp op, ArrayRef<Idx> idx, Value mask) {
  unsigned dim = op.getDim();
  Type elem = getElementTypeOrSelf(op.getType());
  bool anyLanes = llvm::any_of(idx, [](const Idx &i) { return !i.isUniform(); });
  Type type = anyLanes ? Type(vectorOf(elem)) : elem;
  // Where parts end at multiples of a vector, all lanes lie in the same one.
  bool isWhole = !idx[dim].each && idx[dim].lanes && idx[dim].step == 1 && idx[dim].multiple % lanes() == 0;
  SymExpr offset(0);
  for (Value input : op.getInputs().drop_back()) {
    offset += shapeAnalysis.dims(input)[dim];
    isWhole &= divisor(offset) % lanes() == 0;
  }
  Value coordinate = isWhole ? idx[dim].base : materialize(idx[dim]);
  Value result = arith::ConstantOp::create(builder, loc, cast<TypedAttr>(builder.getZeroAttr(type)));
  offset = SymExpr(0);
  for (Value input : op.getInputs()) {
    SymExpr end = offset + shapeAnalysis.dims(input)[dim];
    auto compare = [&](arith::CmpIPredicate predicate, const SymExpr &bound) -> Value {
      Value limit = expr(bound);
      if (isa<VectorType>(coordinate.getType()))
        limit = splat(limit);
      return builder.createOrFold<arith::CmpIOp>(loc, predicate, coordinate, limit);
    };
    Value inside = builder.createOrFold<arith::AndIOp>(loc, compare(arith::CmpIPredicate::sge, offset),
                                                       compare(arith::CmpIPredicate::slt, end));
    SmallVector<Idx> at(idx);
    Idx before = uniform(expr(SymExpr(0) - offset));
    before.multiple = std::max<int64_t>(divisor(offset), 1);
    at[dim] = offset.isConstant(0) ? at[dim] : addIdx(at[dim], before);
    offset = end;
    Value partMask = mask;
    if (isa<VectorType>(inside.getType()))
      partMask = mask ? builder.createOrFold<arith::AndIOp>(loc, inside, mask) : inside;
    auto readPart = [&](Value otherwise) -> Value {
      Value v = eval(input, at, partMask);
      if (v && anyLanes)
        v = splat(v);
      if (v && isa<VectorType>(inside.getType()))
        v = arith::SelectOp::create(builder, loc, inside, v, otherwise);
      return v;
    };
    Value here = isa<VectorType>(inside.getType()) ? partMask : inside;
    if (matchPattern(here, m_Zero()))
      continue;
    if (matchPattern(here, m_Constant())) {
      if (!(result = readPart(result)))
        return {};
      continue;
    }
    Value any = here;
    if (isa<VectorType>(here.getType()))
      any = vector::ReductionOp::create(builder, loc, vector::CombiningKind::OR, here);
    bool ok = true;
    result = emitIf(builder, loc, any, result, [&] {
               Scope scope(*this);
               Value v = readPart(result);
               ok = bool(v);
               return SmallVector<Value>{ok ? v : result};
             }).front();
    if (!ok)
      return {};
  }
  return result;
}
