//===- VerifyLibrary.cpp - the contract of the library stage --------------===//
//
// What no library claimed is ours to compile. So after this stage a function holds only operations that the fusion
// stage puts into kernels, views, parameters and symbolic extents:
//
//   %y = linalg.generic ...               // ours
//   %z = disc_tensor.attention ...        // ours
//   %c = disc_plan.extern_call ...        // a back end's
//   %p = tensor.pad ...                   // error: no library claimed it and no kernel computes it
//
// Without back ends nothing is claimed: every kernel is generated.
//
// Test: test/lit/Library/verify.mlir
//
//===----------------------------------------------------------------------===//

#include "lib/Transforms/Library/Passes.h"

#include "dialects/Plan/PlanDialect.h"
#include "dialects/Tensor/TensorDialect.h"
#include "lib/Transforms/Support/HostFlow.h"

namespace mlir::disc {
#define GEN_PASS_DEF_VERIFYLIBRARY
#include "lib/Transforms/Library/Passes.h.inc"
} // namespace mlir::disc

using namespace mlir;
using namespace mlir::disc;

namespace {
struct VerifyLibrary : disc::impl::VerifyLibraryBase<VerifyLibrary> {
  void runOnOperation() override {
    bool ok = true;
    for (auto func : getOperation().getOps<func::FuncOp>())
      for (Block *block : hostBlocks(func))
        for (Operation &op : *block) {
          if (isKernelBodyOp(&op) || isa<GuardOp, BindOp, ParameterOp, GlobalLoadOp, GlobalStoreOp, LoopOp, NextOp,
                                         BranchOp, TensorYieldOp, InvokeOp, ExternCallOp, func::ReturnOp>(op))
            continue;
          op.emitError() << "no library claimed '" << op.getName() << "' and no kernel computes it";
          ok = false;
        }
    if (!ok)
      signalPassFailure();
  }
};
} // namespace
