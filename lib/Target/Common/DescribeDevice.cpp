//===- DescribeDevice.cpp - the device that a module is for ---------------===//
//
//   module attributes {disc_plan.target = {triple = "x86_64-pc-linux-gnu", ...}}
// becomes, with {device=cuda warp=32 arch=sm_80,sm_90},
//   module attributes {disc_plan.target = {arch = ["sm_80", "sm_90"], device = "cuda", triple = ..., warp = 32 : i64}}
//
// Lit test: test/lit/Common/describe-device.mlir.
//
//===----------------------------------------------------------------------===//

#include "lib/Target/Common/Passes.h"

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
    constexpr llvm::StringLiteral name = "disc_plan.target";
    Builder b(&getContext());
    NamedAttrList target(getOperation()->getAttrOfType<DictionaryAttr>(name));
    SmallVector<StringRef> chips(arch.begin(), arch.end());
    target.set("device", b.getStringAttr(device));
    target.set("warp", b.getI64IntegerAttr(warp));
    if (matrixUnit)
      target.set("matrix_unit", b.getBoolAttr(true));
    target.set("arch", b.getStrArrayAttr(chips));
    getOperation()->setAttr(name, target.getDictionary(&getContext()));
  }
};
} // namespace
