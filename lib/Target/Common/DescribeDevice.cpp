//===- DescribeDevice.cpp - the device that a module is for ---------------===//
//
//   module attributes {disc_plan.target = #disc_plan.target<triple = "x86_64-pc-linux-gnu", ...>}
// becomes, with {device=cuda warp=32 arch=sm_80,sm_90},
//   module attributes {disc_plan.target = #disc_plan.target<triple = ..., device = "cuda", arch = ["sm_80", "sm_90"]>}
//
// Lit test: test/lit/Common/describe-device.mlir.
//
//===----------------------------------------------------------------------===//

#include "lib/Target/Common/Passes.h"

#include "dialects/Plan/PlanDialect.h"
#include "mlir/IR/Builders.h"

namespace mlir::disc {
#define GEN_PASS_DEF_DESCRIBEDEVICE
#include "lib/Target/Common/Passes.h.inc"
} // namespace mlir::disc

using namespace mlir;
using namespace mlir::disc;

namespace {
struct DescribeDevice : disc::impl::DescribeDeviceBase<DescribeDevice> {
  using Base::Base;

  void runOnOperation() override {
    SmallVector<StringRef> chips(arch.begin(), arch.end());
    ArrayAttr archs = Builder(&getContext()).getStrArrayAttr(chips);
    TargetAttr target = TargetAttr::of(getOperation()).withDevice(device, archs, warp, matrixUnit);
    getOperation()->setAttr(TargetAttr::attrName, target);
  }
};
} // namespace
