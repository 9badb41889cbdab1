//===- CodedWeight.cpp - quantised weights that are known at load ---------===//

#include "lib/Transforms/Schedule/CodedWeight.h"

#include "dialects/Tensor/TensorDialect.h"
#include "lib/Transforms/Support/ViewLayout.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;
using namespace mlir::disc;

int64_t disc::staticExtent(RankedTensorType type, ArrayRef<int64_t> dims) {
  int64_t product = 1;
  for (int64_t d : dims)
    product *= type.getDimSize(d);
  return product;
}

void disc::forwardGlobals(func::FuncOp init) {
  llvm::StringMap<Value> stored;
  for (Operation &op : llvm::make_early_inc_range(init.getBody().front())) {
    if (auto store = dyn_cast<GlobalStoreOp>(op)) {
      stored[store.getGlobal()] = store.getValue();
    } else if (auto load = dyn_cast<GlobalLoadOp>(op)) {
      auto known = stored.find(load.getGlobal());
      if (known != stored.end()) {
        load.getResult().replaceAllUsesWith(known->second);
        load.erase();
      }
    }
  }
}

void disc::eraseUnreadGlobals(ModuleOp module, func::FuncOp init) {
  llvm::StringSet<> read;
  module.walk([&](GlobalLoadOp load) { read.insert(load.getGlobal()); });
  for (auto store : llvm::make_early_inc_range(init.getBody().front().getOps<GlobalStoreOp>()))
    if (!read.contains(store.getGlobal()))
      store.erase();
  for (auto global : llvm::make_early_inc_range(module.getOps<GlobalOp>()))
    if (!read.contains(global.getSymName()))
      global.erase();
}

GlobalOp disc::keepInGlobal(func::FuncOp init, Value value, StringRef name, OpBuilder &b) {
  OpBuilder at(init);
  auto global =
      GlobalOp::create(at, value.getLoc(), b.getStringAttr(name), StringAttr(), TypeAttr::get(value.getType()));
  GlobalStoreOp::create(b, value.getLoc(), name, value);
  return global;
}

std::optional<RhsDims> RhsDims::get(linalg::GenericOp op) {
  auto dims = linalg::inferContractionDims(op);
  if (failed(dims))
    return std::nullopt;
  RhsDims out;
  AffineMap map = op.getMatchingIndexingMap(op.getDpsInputOperand(1));
  if (!map.isProjectedPermutation())
    return std::nullopt;
  for (auto [i, e] : llvm::enumerate(map.getResults())) {
    unsigned d = cast<AffineDimExpr>(e).getPosition();
    if (llvm::is_contained(dims->batch, d))
      out.batch.push_back(i);
    else if (llvm::is_contained(dims->n, d))
      out.n.push_back(i);
    else
      out.k.push_back(i);
  }
  // Panels keep n and k in loop order, which is how the kernel counts them.
  auto loopOf = [&](int64_t i) { return cast<AffineDimExpr>(map.getResult(i)).getPosition(); };
  for (SmallVector<int64_t> *list : {&out.batch, &out.n, &out.k})
    llvm::sort(*list, [&](int64_t a, int64_t b) { return loopOf(a) < loopOf(b); });
  return out;
}

static bool isNumber(Operation *op) {
  auto dim = dyn_cast<DimOp>(op);
  return dim ? dim.getExpr().getValue().isConstant() : op->hasTrait<OpTrait::ConstantLike>();
}

Value disc::valueInInit(func::FuncOp init, Value v, OpBuilder &b, IRMapping &map) {
  if (Value known = map.lookupOrNull(v))
    return known;
  Operation *def = v.getDefiningOp();
  if (!def)
    return {};
  if (auto load = dyn_cast<GlobalLoadOp>(def)) {
    for (auto store : init.getBody().front().getOps<GlobalStoreOp>())
      if (store.getGlobal() == load.getGlobal()) {
        map.map(v, store.getValue()); // for the clones of views of it
        return store.getValue();
      }
    return {};
  }
  if (!isa<ParameterOp>(def) && !isView(def))
    return {};
  for (Value operand : def->getOperands()) {
    Operation *size = operand.getDefiningOp();
    if (operand.getType().isIndex() && size && isNumber(size))
      map.map(operand, b.clone(*size)->getResult(0));
    else if (!isa<RankedTensorType>(operand.getType()) || !valueInInit(init, operand, b, map))
      return {};
  }
  return b.clone(*def, map)->getResult(0);
}

/// For each dimension of a chain of views and conversions, the dimensions of `base`, the value that the chain starts
/// from, that it consists of, outermost first; nothing where a view splits one of those.
static std::optional<SmallVector<SmallVector<int64_t>>> dimsBehind(Value value, Value &base) {
  SmallVector<SmallVector<int64_t>> dims;
  for (int64_t d = 0; d < cast<RankedTensorType>(value.getType()).getRank(); ++d)
    dims.push_back({d});
  for (base = value; Operation *view = base.getDefiningOp();) {
    if (!isa<PermuteOp, ReshapeOp>(view)) {
      Value wider = behindConversion(base);
      if (!wider || wider == base)
        break;
      base = wider;
      continue;
    }
    Value source = view->getOperand(0);
    auto from = cast<RankedTensorType>(source.getType()), to = cast<RankedTensorType>(base.getType());
    SmallVector<SmallVector<int64_t>> parts(to.getRank());
    if (auto permute = dyn_cast<PermuteOp>(view)) {
      for (auto [i, p] : llvm::enumerate(permute.getPermutation()))
        parts[i].push_back(p);
    } else {
      int64_t next = 0;
      for (int64_t d = 0; d < to.getRank(); ++d) {
        int64_t size = 1;
        while (size < to.getDimSize(d) && next < from.getRank()) {
          size *= from.getDimSize(next);
          parts[d].push_back(next++);
        }
        if (size != to.getDimSize(d))
          return std::nullopt;
      }
      for (; next < from.getRank(); ++next) {
        if (from.getDimSize(next) != 1 || parts.empty())
          return std::nullopt;
        parts.back().push_back(next);
      }
    }
    for (SmallVector<int64_t> &own : dims) {
      SmallVector<int64_t> behind;
      for (int64_t d : own)
        llvm::append_range(behind, parts[d]);
      own = behind;
    }
    base = source;
  }
  return dims;
}

/// Scales of shorter runs of k take as much memory as the floats would.
constexpr int64_t minGroup = 8;

std::optional<CodedWeight> CodedWeight::get(Value source, const RhsDims &read) {
  Value base;
  auto behind = dimsBehind(source, base);
  std::optional<Dequantized> codes = behind ? Dequantized::match(base) : std::nullopt;
  if (!codes)
    return std::nullopt;
  CodedWeight out;
  out.codes = *codes;
  for (auto [from, to] : {std::pair(&read.batch, &out.dims.batch), {&read.n, &out.dims.n}, {&read.k, &out.dims.k}})
    for (int64_t d : *from)
      llvm::append_range(*to, (*behind)[d]);
  auto type = cast<RankedTensorType>(base.getType());
  out.shape.assign(type.getShape().begin(), type.getShape().end());
  if (out.dims.n.empty() || out.dims.k.empty() ||
      int64_t(out.dims.batch.size() + out.dims.n.size() + out.dims.k.size()) != type.getRank())
    return std::nullopt;
  // Zero points are whole numbers, which codes differ from exactly.
  if (codes->zero && !codes->zero.isWhole())
    return std::nullopt;
  llvm::SmallDenseSet<int64_t> differ;
  for (const PointOperand *operand : {&codes->scale, &codes->zero}) {
    if (!operand->tensor)
      continue;
    if (!cast<RankedTensorType>(operand->tensor.getType()).hasStaticShape())
      return std::nullopt;
    for (AffineExpr e : operand->map.getResults()) {
      if (auto dim = dyn_cast<AffineDimExpr>(e))
        differ.insert(dim.getPosition());
      else if (!isa<AffineConstantExpr>(e))
        return std::nullopt;
    }
  }
  out.kept = out.dims.batch;
  llvm::append_range(out.kept, out.dims.n);
  size_t count = out.dims.k.size();
  while (count > 0 && !differ.contains(out.dims.k[count - 1]))
    --count;
  out.keptDepth.append(out.dims.k.begin(), out.dims.k.begin() + count);
  llvm::append_range(out.kept, out.keptDepth);
  out.depth = staticExtent(type, out.dims.k), out.groups = staticExtent(type, out.keptDepth);
  if (out.groups == 0 || (out.groups > 1 && out.depth / out.groups < minGroup))
    return std::nullopt;
  return out;
}

SmallVector<int64_t> CodedWeight::keptShape() const {
  return llvm::map_to_vector(kept, [&](int64_t d) { return shape[d]; });
}

RhsDims CodedWeight::ownDims() const {
  RhsDims own = dims;
  for (SmallVector<int64_t> *list : {&own.batch, &own.n, &own.k}) {
    SmallVector<int64_t> placed;
    for (int64_t d : *list)
      if (auto at = codes.codes.map.getResultPosition(getAffineDimExpr(d, codes.codes.map.getContext())))
        placed.push_back(*at);
    *list = placed;
  }
  return own;
}

Value disc::loopKernelAtLoad(OpBuilder &b, Location loc, StringRef name, StringRef reason, ValueRange inputs,
                             SmallVector<AffineMap> maps, RankedTensorType type,
                             function_ref<Value(OpBuilder &, Location, ValueRange)> point) {
  maps.push_back(b.getMultiDimIdentityMap(type.getRank()));
  auto kernel = KernelOp::create(b, loc, TypeRange{type}, inputs, LoopKindAttr::get(b.getContext()),
                                 b.getStringAttr(name), b.getStringAttr(reason));
  Block *body = &kernel.getBody().emplaceBlock();
  OpBuilder nested = OpBuilder::atBlockBegin(body);
  SmallVector<Value> arguments;
  for (Value input : inputs)
    arguments.push_back(body->addArgument(input.getType(), loc));
  Value empty = tensor::EmptyOp::create(nested, loc, type, ValueRange());
  SmallVector<utils::IteratorType> iterators(type.getRank(), utils::IteratorType::parallel);
  auto generic = linalg::GenericOp::create(nested, loc, TypeRange{type}, arguments, ValueRange{empty}, maps, iterators,
                                           [&](OpBuilder &inner, Location at, ValueRange args) {
                                             linalg::YieldOp::create(inner, at, point(inner, at, args));
                                           });
  YieldOp::create(nested, loc, generic.getResults());
  return kernel.getOutputs()[0];
}

Value disc::tensorAtLoad(const PointOperand &operand, OpBuilder &b) {
  if (!operand.isInside)
    return operand.tensor;
  auto from = operand.tensor.getDefiningOp()->getParentOfType<KernelOp>();
  auto kernel = cast<KernelOp>(b.clone(*from));
  Block &own = kernel.getBody().front();
  Operation *copy = nullptr;
  for (auto [old, now] : llvm::zip_equal(from.getBody().front(), own))
    if (&old == operand.tensor.getDefiningOp())
      copy = &now;
  Value inner = copy->getResult(cast<OpResult>(operand.tensor).getResultNumber());
  OpBuilder nested(own.getTerminator());
  auto only = KernelOp::create(b, from.getLoc(), TypeRange{inner.getType()}, from.getInputs(),
                               LoopKindAttr::get(b.getContext()), from.getNameAttr(), from.getReasonAttr());
  own.getTerminator()->erase();
  nested.setInsertionPointToEnd(&own);
  YieldOp::create(nested, from.getLoc(), inner);
  only.getBody().takeBody(kernel.getBody());
  kernel.erase();
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(only.getBody().front())))
    if (isOpTriviallyDead(&op))
      op.erase();
  return only.getOutputs()[0];
}

Value disc::checkedCodes(const Dequantized &codes, Value source, OpBuilder &b, Location loc) {
  auto type = cast<RankedTensorType>(source.getType());
  AffineMap id = b.getMultiDimIdentityMap(type.getRank());
  auto check = cast<CheckIndexOp>(codes.check);
  return loopKernelAtLoad(b, loc, "codes", "codes that are checked to have 4 bits", ValueRange{source}, {id}, type,
                          [&](OpBuilder &inner, Location at, ValueRange args) -> Value {
                            auto number = [&](int64_t v) -> Value {
                              return arith::ConstantOp::create(inner, at, inner.getI64IntegerAttr(v));
                            };
                            Type i64 = inner.getI64Type();
                            Value wide = codes.codes.isUnsigned
                                             ? arith::ExtUIOp::create(inner, at, i64, args[0]).getResult()
                                             : arith::ExtSIOp::create(inner, at, i64, args[0]).getResult();
                            Value index = arith::AddIOp::create(inner, at, wide, number(-codes.low));
                            Value known =
                                CheckIndexOp::create(inner, at, i64, index, number(codes.high - codes.low + 1),
                                                     /*wrap=*/false, check.getWhat());
                            return arith::TruncIOp::create(inner, at, args[0].getType(), known);
                          });
}

Value disc::spreadOut(const PointOperand &operand, ArrayRef<int64_t> kept, ArrayRef<int64_t> shape, double fallback,
                      double offset, OpBuilder &b, Location loc) {
  Type f32 = b.getF32Type();
  auto type = RankedTensorType::get(shape, f32);
  SmallVector<Value> inputs;
  SmallVector<AffineMap> maps;
  if (operand.tensor) {
    inputs.push_back(tensorAtLoad(operand, b));
    SmallVector<AffineExpr> at;
    for (AffineExpr e : operand.map.getResults()) {
      auto dim = dyn_cast<AffineDimExpr>(e);
      at.push_back(dim ? b.getAffineDimExpr(llvm::find(kept, int64_t(dim.getPosition())) - kept.begin()) : e);
    }
    maps.push_back(AffineMap::get(shape.size(), 0, at, b.getContext()));
  }
  return loopKernelAtLoad(b, loc, "scales", "scales or zeros of the columns of quantised weights", inputs, maps, type,
                          [&](OpBuilder &inner, Location at, ValueRange args) {
                            auto number = [&](double value) -> Value {
                              return arith::ConstantOp::create(inner, at, inner.getFloatAttr(f32, value));
                            };
                            Value v;
                            if (operand.tensor) {
                              v = args[0];
                              if (v.getType().isInteger())
                                v = operand.isUnsigned ? arith::UIToFPOp::create(inner, at, f32, v).getResult()
                                                       : arith::SIToFPOp::create(inner, at, f32, v).getResult();
                              else if (v.getType() != f32 && v.getType().getIntOrFloatBitWidth() > 32)
                                v = arith::TruncFOp::create(inner, at, f32, v);
                              else if (v.getType() != f32)
                                v = arith::ExtFOp::create(inner, at, f32, v);
                            } else {
                              v = number(operand.value().value_or(fallback));
                            }
                            return offset == 0 ? v : arith::AddFOp::create(inner, at, v, number(offset)).getResult();
                          });
}
