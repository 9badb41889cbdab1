//===- Buffers.cpp - the attributes of buffers ----------------------------===//
//
// Labels: Buffers.td. Test: test/lit/Plan/buffers-invalid.mlir
//
//===----------------------------------------------------------------------===//

#include "dialects/Plan/PlanDialect.h"
#include "dialects/Tensor/TensorDialect.h"
#include "mlir/Interfaces/FunctionInterfaces.h"

using namespace mlir;
using namespace mlir::disc;

BufferAttr mlir::disc::bufferOf(Value tensor) {
  auto result = dyn_cast<OpResult>(tensor);
  if (!result)
    return {};
  if (auto copy = dyn_cast<CopyTensorOp>(result.getOwner()))
    return copy.getBuffer();
  auto buffers = result.getOwner()->getAttrOfType<ArrayAttr>(PlanDialect::getBuffersAttrName());
  return buffers ? cast<BufferAttr>(buffers[result.getResultNumber()]) : BufferAttr();
}

LogicalResult mlir::disc::verifyBuffer(Operation *op, BufferAttr buffer, unsigned result) {
  auto function = op->getParentOfType<FunctionOpInterface>();
  auto own = dyn_cast<LoopOp>(op), around = op->getParentOfType<LoopOp>();
  bool isCarried = own && result < own.getNumCarried(), isStack = own && !isCarried;
  bool isKernel = isa<CallOp, CopyTensorOp>(op);
  int64_t number = buffer.getNumber();
  auto hasTemporaries = [&](int64_t count) {
    auto bytes = function ? function->getAttrOfType<DimsAttr>(PlanDialect::getTemporariesAttrName()) : DimsAttr();
    return bytes && number >= 0 && number + count <= static_cast<int64_t>(bytes.size());
  };
  auto isStackOf = [&](LoopOp loop) {
    return loop && number >= loop.getNumCarried() && number < loop->getNumResults();
  };
  bool ok = false;
  switch (buffer.getKind()) {
  case BufferKind::Temporary:
    ok = hasTemporaries(1);
    break;
  case BufferKind::Output:
    ok = function && number >= 0 && number < static_cast<int64_t>(function.getNumResults());
    break;
  case BufferKind::Argument:
    ok = isKernel && function && number >= 0 && number < static_cast<int64_t>(function.getNumArguments());
    break;
  case BufferKind::Global:
    ok = isa<CallOp>(op) && number == -1;
    break;
  case BufferKind::Slot:
    ok = (isa<InvokeOp>(op) || isStack) && number >= 0;
    break;
  case BufferKind::Yielded:
    ok = isa<BranchOp>(op) && number == -1;
    break;
  case BufferKind::Row:
    ok = isStackOf(isCarried ? own : around);
    break;
  case BufferKind::Carried:
    ok = !isCarried && around && number >= 0 && number < around.getNumCarried();
    break;
  case BufferKind::Alternating:
    ok = isCarried && hasTemporaries(2);
    break;
  case BufferKind::AlternatingSlots:
    ok = isCarried && number >= 0;
    break;
  }
  if (ok)
    return success();
  return op->emitOpError() << "cannot have result " << result << " in '" << stringifyBufferKind(buffer.getKind())
                           << "' " << number << " (P20)";
}

LogicalResult mlir::disc::verifyBuffers(Operation *op, NamedAttribute attr) {
  StringRef name = attr.getName();
  auto fail = [&]() { return op->emitOpError() << "'" << name << "' does not fit the operation (P19)"; };
  if (name == PlanDialect::getTemporariesAttrName() &&
      (!isa<FunctionOpInterface>(op) || !isa<DimsAttr>(attr.getValue())))
    return fail();
  if (name == PlanDialect::getLastUsesAttrName() && (!isa<CallOp>(op) || !isa<DenseI64ArrayAttr>(attr.getValue())))
    return fail();
  if (name != PlanDialect::getBuffersAttrName())
    return success();
  auto buffers = dyn_cast<ArrayAttr>(attr.getValue());
  if (!isa<CallOp, LoopOp, BranchOp, InvokeOp>(op) || !buffers || buffers.size() != op->getNumResults() ||
      !llvm::all_of(buffers, llvm::IsaPred<BufferAttr>))
    return fail();
  for (auto [i, buffer] : llvm::enumerate(buffers.getAsRange<BufferAttr>()))
    if (failed(verifyBuffer(op, buffer, i)))
      return failure();
  return success();
}
