//===- KernelAccess.cpp - how a kernel walks its buffers ------------------===//
//
// The recursion mirrors PointEmitter's, on linear forms instead of code.
//
//===----------------------------------------------------------------------===//

#include "lib/Target/Common/KernelAccess.h"

#include "dialects/Tensor/TensorDialect.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Matchers.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace mlir::disc;

KernelAccess::KernelAccess(KernelFuncOp kernel, ShapeAnalysis &shapes, ArrayRef<SymExpr> domain)
    : kernel(kernel), shapes(shapes), domain(domain), barriers(domain.size()) {}

LinearCoord KernelAccess::zero() const {
  LinearCoord c;
  c.coefficients.resize(domain.size());
  c.opaque.resize(domain.size());
  return c;
}

SmallVector<LinearCoord> KernelAccess::identity() const {
  SmallVector<LinearCoord> coords(domain.size(), zero());
  for (auto [d, c] : llvm::enumerate(coords))
    c.coefficients[d] = SymExpr(1);
  return coords;
}

static LinearCoord add(const LinearCoord &a, const LinearCoord &b) {
  LinearCoord sum = a;
  for (auto [x, y] : llvm::zip(sum.coefficients, b.coefficients))
    x += y;
  sum.opaque |= b.opaque;
  sum.offset += b.offset;
  sum.exact &= b.exact;
  sum.byData |= b.byData;
  return sum;
}

static LinearCoord scale(const LinearCoord &a, const SymExpr &factor) {
  LinearCoord product = a;
  for (SymExpr &x : product.coefficients)
    x *= factor;
  product.offset *= factor;
  return product;
}

/// What is left of a coordinate after a division: it depends on the same dimensions, in no linear way.
static LinearCoord blur(const LinearCoord &a) {
  LinearCoord result = a;
  for (auto [d, x] : llvm::enumerate(result.coefficients)) {
    if (!x.isConstant(0))
      result.opaque.set(d);
    x = SymExpr(0);
  }
  result.exact = false;
  return result;
}

void KernelAccess::barrier(const LinearCoord &coord) { barriers |= blur(coord).opaque; }

LinearCoord KernelAccess::affine(AffineExpr e, ArrayRef<LinearCoord> iters) {
  if (auto dim = dyn_cast<AffineDimExpr>(e))
    return iters[dim.getPosition()];
  if (auto c = dyn_cast<AffineConstantExpr>(e)) {
    LinearCoord constant = zero();
    constant.offset = SymExpr(c.getValue());
    return constant;
  }
  auto binary = cast<AffineBinaryOpExpr>(e);
  LinearCoord lhs = affine(binary.getLHS(), iters);
  if (binary.getKind() == AffineExprKind::Add)
    return add(lhs, affine(binary.getRHS(), iters));
  if (binary.getKind() == AffineExprKind::Mul)
    return scale(lhs, SymExpr(cast<AffineConstantExpr>(binary.getRHS()).getValue()));
  return blur(lhs);
}

LinearCoord KernelAccess::groupPosition(const ReshapeGroup &group, ArrayRef<LinearCoord> from,
                                        ArrayRef<SymExpr> fromDims) const {
  LinearCoord position = zero();
  for (unsigned i = group.fromBegin; i < group.fromEnd; ++i)
    position = add(scale(position, fromDims[i]), from[i]);
  return position;
}

SmallVector<LinearCoord> KernelAccess::reshape(ArrayRef<LinearCoord> from, ArrayRef<SymExpr> fromDims,
                                               ArrayRef<SymExpr> toDims) {
  SmallVector<LinearCoord> to(toDims.size(), zero());
  for (const ReshapeGroup &group : reshapeGroups(shapes, fromDims, toDims)) {
    LinearCoord position = groupPosition(group, from, fromDims);
    for (unsigned i = group.toBegin; i < group.toEnd; ++i)
      to[i] = group.toEnd - group.toBegin == 1 ? position : blur(position);
  }
  return to;
}

void KernelAccess::access(unsigned buffer, ArrayRef<LinearCoord> at) {
  LayoutAttr layout = kernel.getLayout(buffer);
  LinearCoord address = zero();
  address.offset = layout.getOffset().getValue();
  for (auto [coord, stride] : llvm::zip(at, layout.getStrides().getDims()))
    address = add(address, scale(coord, stride));
  access(buffer, address);
}

void KernelAccess::access(unsigned buffer, const LinearCoord &address) {
  barriers |= address.opaque;
  LinearAccess access{buffer, address.coefficients, address.offset, address.exact && address.opaque.none(),
                      address.byData};
  if (!llvm::is_contained(accesses, access))
    accesses.push_back(std::move(access));
}

const LinearAccess *KernelAccess::onlyAccess(unsigned buffer) const {
  const LinearAccess *found = nullptr;
  for (const LinearAccess &access : accesses) {
    if (access.buffer != buffer)
      continue;
    if (found || !access.exact)
      return nullptr;
    found = &access;
  }
  return found;
}

SmallVector<SymExpr> KernelAccess::vectorMultiples(unsigned lanes, const SymExpr &extent,
                                                   ArrayRef<unsigned> others) const {
  SmallVector<SymExpr> multiples{extent};
  auto add = [&](const SymExpr &e) {
    if (!e.isConstant() && !llvm::is_contained(multiples, e))
      multiples.push_back(e);
  };
  for (const LinearAccess &access : accesses) {
    if (!access.exact || !access.strides[lanes].isConstant(1))
      continue;
    add(access.offset);
    for (unsigned d : others)
      if (d != lanes)
        add(access.strides[d]);
  }
  return multiples;
}

bool KernelAccess::isStatic(unsigned dim) const {
  return llvm::all_of(accesses, [&](const LinearAccess &access) { return access.strides[dim].isConstant(); });
}

bool KernelAccess::readsByData() const {
  return llvm::any_of(accesses, [](const LinearAccess &access) { return access.byData; });
}

void KernelAccess::write(unsigned result, ArrayRef<LinearCoord> at) { access(kernel.getNumInputs() + result, at); }

void KernelAccess::read(Value tensor, ArrayRef<LinearCoord> at) {
  if (stops.contains(tensor))
    return;
  bool isIdentity = at.size() == domain.size();
  for (auto [d, c] : llvm::enumerate(at)) {
    if (!isIdentity)
      break;
    for (auto [k, x] : llvm::enumerate(c.coefficients))
      isIdentity &= x.isConstant(k == d ? 1 : 0);
    isIdentity &= c.opaque.none() && c.exact && c.offset.isConstant(0);
  }
  if (isIdentity && !visited.insert(tensor).second)
    return;
  if (auto arg = dyn_cast<BlockArgument>(tensor))
    return access(arg.getArgNumber(), at);

  llvm::TypeSwitch<Operation *>(tensor.getDefiningOp())
      .Case([&](linalg::GenericOp op) {
        SmallVector<LinearCoord> iters(op.getNumLoops(), zero());
        unsigned number = cast<OpResult>(tensor).getResultNumber();
        AffineMap map = op.getIndexingMapsArray()[op.getNumDpsInputs() + number];
        for (auto [k, e] : llvm::enumerate(map.getResults()))
          if (auto dim = dyn_cast<AffineDimExpr>(e))
            iters[dim.getPosition()] = at[k];
        readInputs(op, iters);
      })
      .Case([&](PermuteOp view) {
        SmallVector<LinearCoord> source(at.size(), zero());
        for (auto [i, p] : llvm::enumerate(view.getPermutation()))
          source[p] = at[i];
        read(view.getSource(), source);
      })
      .Case([&](ReshapeOp view) {
        SmallVector<SymExpr> from = shapes.dims(tensor), to = shapes.dims(view.getSource());
        auto arg = dyn_cast<BlockArgument>(view.getSource());
        if (arg && !stops.contains(arg)) {
          auto groups = reshapeGroups(shapes, from, to);
          SmallVector<SymExpr> toStrides = kernel.getLayout(arg.getArgNumber()).getStrides().getDims();
          if (auto strides = reshapedStrides(shapes, groups, to, toStrides)) {
            LinearCoord address = zero();
            address.offset = kernel.getLayout(arg.getArgNumber()).getOffset().getValue();
            for (auto [group, stride] : llvm::zip(groups, *strides))
              address = add(address, scale(groupPosition(group, at, from), stride));
            return access(arg.getArgNumber(), address);
          }
        }
        read(view.getSource(), reshape(at, from, to));
      })
      .Case([&](BroadcastOp view) {
        auto sourceType = cast<RankedTensorType>(view.getSource().getType());
        SmallVector<LinearCoord> source;
        for (auto [j, d] : llvm::enumerate(view.getDims()))
          source.push_back(sourceType.getDimSize(j) == 1 ? zero() : at[d]);
        read(view.getSource(), source);
      })
      .Case([&](SliceOp view) {
        SmallVector<LinearCoord> source(at);
        LinearCoord &along = source[view.getDim()];
        along = scale(along, SymExpr(int64_t(view.getStep())));
        along.offset += shapes.expr(view.getOffset());
        read(view.getSource(), source);
      })
      .Case([&](ConcatOp op) {
        barrier(at[op.getDim()]);
        SmallVector<LinearCoord> part(at);
        part[op.getDim()].exact = false; // each part has its own offset
        for (Value input : op.getInputs())
          read(input, part);
      });
}

void KernelAccess::readInputs(linalg::GenericOp op, ArrayRef<LinearCoord> iters) {
  for (OpOperand &operand : op->getOpOperands()) {
    if (!isa<RankedTensorType>(operand.get().getType()) || op.getMatchingBlockArgument(&operand).use_empty())
      continue;
    if (op.isDpsInit(&operand) && op.getNumReductionLoops())
      continue;
    SmallVector<LinearCoord> at;
    for (AffineExpr e : op.getMatchingIndexingMap(&operand).getResults())
      at.push_back(affine(e, iters));
    read(operand.get(), at);
  }
  // Coordinates, and what sums and constant multiples make of them (PointEmitter::computedCoordinate).
  llvm::MapVector<Value, LinearCoord> coordinates;
  op.getBody()->walk([&](Operation *inner) {
    if (auto index = dyn_cast<linalg::IndexOp>(inner))
      coordinates.insert({index.getResult(), iters[index.getDim()]});
    else if (std::optional<LinearCoord> known = computed(*inner, coordinates))
      coordinates.insert({inner->getResult(0), *known});
    auto extract = dyn_cast<tensor::ExtractOp>(inner);
    if (!extract)
      return;
    SmallVector<LinearCoord> at;
    for (Value v : extract.getIndices()) {
      if (auto *it = coordinates.find(v); it != coordinates.end()) {
        at.push_back(it->second);
        continue;
      }
      // A coordinate computed from values is right wherever the values are.
      at.push_back(zero());
      at.back().exact = false;
      at.back().byData = true;
    }
    read(extract.getTensor(), at);
  });
  // What else reads a coordinate has to get the true one.
  for (auto &[v, coord] : coordinates)
    if (!llvm::all_of(v.getUsers(), [&](Operation *user) {
          return isa<tensor::ExtractOp>(user) ||
                 (user->getNumResults() == 1 && coordinates.contains(user->getResult(0)));
        }))
      barrier(coord);
}

/// A coordinate that an operation makes of others; nothing if it is not a linear form of them.
std::optional<LinearCoord> KernelAccess::computed(Operation &op,
                                                  const llvm::MapVector<Value, LinearCoord> &coordinates) const {
  if (!isa<arith::IndexCastOp, arith::AddIOp, arith::SubIOp, arith::MulIOp>(op) ||
      !(op.getResult(0).getType().isIndex() || op.getResult(0).getType().isInteger(64)) ||
      llvm::none_of(op.getOperands(), [&](Value v) { return coordinates.contains(v); }))
    return std::nullopt;
  SmallVector<LinearCoord> at;
  for (Value operand : op.getOperands()) {
    APInt number;
    if (auto *it = coordinates.find(operand); it != coordinates.end())
      at.push_back(it->second);
    else if (matchPattern(operand, m_ConstantInt(&number)))
      (at.push_back(zero()), at.back().offset = SymExpr(number.getSExtValue()));
    else
      return std::nullopt;
  }
  if (isa<arith::IndexCastOp>(op))
    return at[0];
  if (isa<arith::AddIOp>(op))
    return add(at[0], at[1]);
  if (isa<arith::SubIOp>(op))
    return add(at[0], scale(at[1], SymExpr(-1)));
  for (unsigned i : {0, 1})
    if (APInt factor; matchPattern(op.getOperand(i), m_ConstantInt(&factor)))
      return scale(at[1 - i], SymExpr(factor.getSExtValue()));
  return std::nullopt;
}

bool KernelAccess::mergeable(unsigned outer, unsigned inner) {
  if (barriers.test(outer) || barriers.test(inner))
    return false;
  return llvm::all_of(accesses, [&](const LinearAccess &access) {
    return shapes.equal(access.strides[outer], access.strides[inner] * domain[inner]);
  });
}

SmallVector<MergedDims> KernelAccess::mergedRuns(unsigned begin, unsigned end) {
  SmallVector<MergedDims> runs;
  for (unsigned d = begin; d < end; ++d) {
    if (domain[d].isConstant(1))
      continue;
    if (runs.empty() || !mergeable(runs.back().innermost, d)) {
      runs.push_back({d, domain[d]});
    } else {
      runs.back().innermost = d;
      runs.back().extent *= domain[d];
    }
  }
  return runs;
}
