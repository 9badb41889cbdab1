//===- DescribeBuffers.cpp - the buffers of a sanitized model's launches ---===//
//
//   %y = disc_plan.call @k1(%x, %t) : ...          // in a model with an input `x`; nothing else reads %t
// becomes
//   disc_rt.launch %call @k1(%x, %t, %y) checked #disc_shape.dims<[S * 32, S * 4, S * 4]>
//       as ["r input 'x'", "rl temporary 'k0'", "w output 'y'"]
//
// which is what the runtime needs to know to check the kernel's accesses (disc_rt_checked_launch in Abi.h).
//
// Test: test/lit/Memory/sanitize.mlir
//
//===----------------------------------------------------------------------===//

#include "lib/Transforms/Memory/FlowLowering.h"

#include "dialects/Tensor/TensorDialect.h"
#include "lib/Transforms/Memory/Updates.h"
#include "lib/Transforms/Support/ViewLayout.h"

using namespace mlir;
using namespace mlir::disc;

/// What a report calls a buffer.
std::string FlowLowering::bufferName(Value base) {
  auto quoted = [](StringRef what, StringRef name) { return (what + " '" + name + "'").str(); };
  if (auto argument = dyn_cast<BlockArgument>(base)) {
    if (argument.getOwner() != &func.getBody().front())
      return "a tensor that a loop carries";
    if (StringAttr state = stateOf(argument))
      return quoted("state", state);
    if (isProcedure)
      return "argument " + std::to_string(argument.getArgNumber()) + " of a recursive function";
    auto name = func.getArgAttrOfType<StringAttr>(argument.getArgNumber(), ShapeDialect::getNameAttrName());
    return quoted("input", name ? name.getValue() : "input" + std::to_string(argument.getArgNumber()));
  }
  Operation *def = base.getDefiningOp();
  unsigned number = cast<OpResult>(base).getResultNumber();
  if (auto parameter = dyn_cast<ParameterOp>(def))
    return quoted("parameter", parameter.getName());
  if (auto load = dyn_cast<GlobalLoadOp>(def))
    return quoted("packed weights", load.getGlobal());
  if (BufferAttr buffer = bufferOf(base); !isProcedure && buffer && buffer.getKind() == BufferKind::Output) {
    int64_t output = 0;
    for (unsigned i = 0; i < func.getNumResults(); ++i) {
      if (updatedBy(func, i) || output++ != buffer.getNumber())
        continue;
      auto name = func.getResultAttrOfType<StringAttr>(i, ShapeDialect::getNameAttrName());
      return quoted("output", name ? name.getValue().str() : "output" + std::to_string(i));
    }
  }
  std::string part = def->getNumResults() > 1 ? "result " + std::to_string(number) + " of " : "temporary ";
  if (auto kernel = dyn_cast<CallOp>(def))
    return part + "'" + kernel.getCallee().str() + "'";
  return isa<LoopOp>(def) ? "the result of a loop" : isa<BranchOp>(def) ? "the result of a branch" : "a temporary";
}

void FlowLowering::describeBuffers(LaunchOp launch, CallOp kernel) {
  SmallVector<SymExpr> bytes;
  SmallVector<Attribute> texts;
  auto last = kernel->getAttrOfType<DenseI64ArrayAttr>(PlanDialect::getLastUsesAttrName());
  auto describe = [&](Value tensor, bool written) {
    Value base = viewBase(tensor);
    std::string flags = written ? "w" : "r";
    if (BufferAttr buffer = bufferOf(base); buffer && buffer.getKind() == BufferKind::Temporary) {
      // Memory that loops carry or stack is larger than one tensor, and has no red zones of its own.
      if (isa<CallOp>(base.getDefiningOp()))
        flags += "s";
      if (last && llvm::is_contained(last.asArrayRef(), buffer.getNumber()))
        flags += "l";
    }
    bytes.push_back(bytesOf(base));
    texts.push_back(b.getStringAttr(flags + " " + bufferName(base)));
  };
  for (Value input : kernel.getInputs())
    describe(input, false);
  for (Value output : kernel.getOutputs())
    describe(output, true);
  launch.setBytesAttr(DimsAttr::get(b.getContext(), bytes));
  launch.setTextsAttr(b.getArrayAttr(texts));
}
