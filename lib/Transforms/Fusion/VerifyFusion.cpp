//===- VerifyFusion.cpp - the contract of the fusion stage ----------------===//
//
// Every operation that computes on tensors lies in exactly one disc_plan.kernel, with its kind and its reason.
// Between kernels only parameters, views and symbolic extents are left:
//
//   %w = disc_tensor.parameter "w" : tensor<384x384xf32>
//   %v = disc_tensor.reshape %x (%B, %S) : ...
//   %y = disc_plan.kernel loop ins(%v, %w : ...) -> ... attributes {reason = "..."} { ... }
//   return %y : ...
//
// Test: test/lit/Fusion/verify.mlir
//
//===----------------------------------------------------------------------===//

#include "lib/Transforms/Fusion/Passes.h"

#include "dialects/Tensor/TensorDialect.h"
#include "lib/Transforms/Support/HostFlow.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

namespace mlir::disc {
#define GEN_PASS_DEF_VERIFYFUSION
#include "lib/Transforms/Fusion/Passes.h.inc"
} // namespace mlir::disc

using namespace mlir;
using namespace mlir::disc;

namespace {
struct VerifyFusion : disc::impl::VerifyFusionBase<VerifyFusion> {
  void runOnOperation() override {
    bool ok = true;
    for (auto func : getOperation().getOps<func::FuncOp>())
      for (Block *block : hostBlocks(func))
        for (Operation &op : *block) {
          if (auto kernel = dyn_cast<KernelOp>(op)) {
            if (!kernel.getReasonAttr()) {
              kernel.emitError("kernel records no reason for what it holds");
              ok = false;
            }
            continue;
          }
          if (isView(&op) || isa<DimOp, GuardOp, BindOp, ParameterOp, GlobalLoadOp, GlobalStoreOp, LoopOp, NextOp,
                                 BranchOp, TensorYieldOp, InvokeOp, func::ReturnOp, arith::ConstantOp>(op))
            continue;
          op.emitError() << "'" << op.getName() << "' is left outside every kernel after the fusion stage";
          ok = false;
        }
    if (!ok)
      signalPassFailure();
  }
};
} // namespace
