//===- Widening.cpp - readers widen what is stored narrow ------------------===//
//
//   kernel A:  %q = quantise(...) : i8;  %w = (%q - z) * s : f32         stores both
//   kernel B:  %y = %p + %w
// becomes
//   kernel A:  %q = quantise(...) : i8                                   stores the codes
//   kernel B:  %w' = (%q - z) * s;  %y = %p + %w'
//
// A kernel that stores a value's wider form, which others read, stores a multiple of its bytes for them to read again.
// Where all of them can compute it from the narrow form with a few operations, only that is stored. It is done when
// groups are complete, so it changes neither which kernels there are nor what they share.
//
// Test: test/lit/Fusion/widening.mlir
//
//===----------------------------------------------------------------------===//

#include "lib/Transforms/Fusion/KernelGroups.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"

using namespace mlir;
using namespace mlir::disc;

/// At most this many operations for each element, beside constants and what is computed of them alone.
static constexpr int mostWork = 4;

Value mlir::disc::narrowSource(Operation *candidate) {
  auto op = dyn_cast_or_null<linalg::GenericOp>(candidate);
  if (!op || op.getNumDpsInputs() != 1 || op->getNumResults() != 1 || op.getNumReductionLoops() != 0 ||
      !op.getIndexingMapsArray().front().isPermutation() || !llvm::all_equal(op.getIndexingMapsArray()))
    return {};
  Value source = op.getDpsInputs()[0];
  Type narrow = getElementTypeOrSelf(source.getType()), wide = getElementTypeOrSelf(op->getResult(0).getType());
  if (!isa<RankedTensorType>(source.getType()) || !narrow.isIntOrFloat() || !wide.isIntOrFloat() ||
      llvm::divideCeil(narrow.getIntOrFloatBitWidth(), 8) >= llvm::divideCeil(wide.getIntOrFloatBitWidth(), 8))
    return {};
  int work = 0;
  llvm::SmallPtrSet<Operation *, 8> constants;
  for (Operation &nested : op.getBody()->without_terminator()) {
    if (!isa_and_present<arith::ArithDialect>(nested.getDialect()) || !isMemoryEffectFree(&nested) ||
        isa<arith::DivFOp, arith::DivSIOp, arith::DivUIOp, arith::RemSIOp, arith::RemUIOp, arith::RemFOp>(nested))
      return {};
    if (llvm::all_of(nested.getOperands(), [&](Value v) { return constants.contains(v.getDefiningOp()); }))
      constants.insert(&nested);
    else if (++work > mostWork)
      return {};
  }
  return source;
}

/// The reads of a value in the body of a computation, at points of its own choice.
static SmallVector<tensor::ExtractOp> readsInside(Operation *op, Value value) {
  SmallVector<tensor::ExtractOp> reads;
  op->walk([&](tensor::ExtractOp extract) {
    if (extract.getTensor() == value)
      reads.push_back(extract);
  });
  return reads;
}

bool KernelGroups::leaveToReaders(Operation *op) {
  auto widening = dyn_cast<linalg::GenericOp>(op);
  KernelGroup *own = groupOf(op);
  Value narrow = widening && own && !known.contains(op) ? narrowSource(widening) : Value();
  if (!narrow)
    return false;
  Value wide = op->getResult(0);
  // The computations of other groups that read it, each once.
  llvm::SetVector<Operation *> readers;
  for (Operation *user : wide.getUsers()) {
    Operation *top = block.findAncestorOpInBlock(*user);
    KernelGroup *group = top ? groupOf(top) : nullptr;
    if (!group || !isa<linalg::GenericOp, ConvolutionOp>(top))
      return false;
    if (group != own)
      readers.insert(top);
  }
  if (readers.empty())
    return false;

  // On trial: each reading group has the widening as a member of its own, reads in bodies have another beside them.
  llvm::MapVector<KernelGroup *, Operation *> copies;
  SmallVector<std::pair<tensor::ExtractOp, tensor::ExtractOp>> inside;
  bool fits = true;
  for (Operation *reader : readers) {
    for (tensor::ExtractOp read : readsInside(reader, wide)) {
      OpBuilder b(read);
      inside.emplace_back(read, tensor::ExtractOp::create(b, read.getLoc(), narrow, read.getIndices()));
    }
    if (!llvm::is_contained(reader->getOperands(), wide))
      continue;
    KernelGroup *group = groupOf(reader);
    // Products read their operands in panels, many times.
    if (isa<linalg::GenericOp>(reader) && isContraction(cast<linalg::GenericOp>(reader), shapes)) {
      fits = false;
      break;
    }
    Operation *&copy = copies[group];
    if (!copy) {
      OpBuilder b(op->getContext());
      b.setInsertionPointAfter(op);
      copy = b.clone(*op);
      group->ops.insert(copy);
      groups[copy] = group;
    }
    reader->replaceUsesOfWith(wide, copy->getResult(0));
  }
  for (auto &[group, copy] : copies)
    fits = fits && isConsistent(*group);
  // The narrow value may leave its own group for the first time.
  fits = fits && isConsistent(*own);
  if (!fits) {
    for (auto &[group, copy] : copies) {
      copy->getResult(0).replaceAllUsesWith(wide);
      group->ops.remove(copy);
      groups.erase(copy);
      copy->erase();
    }
    for (auto [read, other] : inside)
      other->erase();
    return false;
  }

  for (auto [read, other] : inside) {
    OpBuilder b(read);
    IRMapping map;
    map.map(widening.getBody()->getArgument(0), other.getResult());
    for (Operation &nested : widening.getBody()->without_terminator())
      b.clone(nested, map);
    read.replaceAllUsesWith(map.lookupOrDefault(widening.getBody()->getTerminator()->getOperand(0)));
    read->erase();
  }
  if (op->use_empty()) {
    own->ops.remove(op);
    groups.erase(op);
    op->erase();
  }
  return true;
}
