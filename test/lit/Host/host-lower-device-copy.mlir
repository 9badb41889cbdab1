// A model that only copies has its data on the device, too, though nothing runs there.
// RUN: disc-opt %s --disc-host-lower | FileCheck %s

// CHECK: llvm.call @disc_rt_device_copy
// CHECK-NOT: llvm.intr.memcpy
// CHECK: llvm.mlir.addressof @disc_device_code
module attributes {disc_plan.target = #disc_plan.target<device = "cuda", warp = 32>} {
disc_rt.entry @main attributes {
    inputs = [#disc_rt.tensor<name = "x", type = tensor<4xf32>, dims = <[4]>>],
    outputs = [#disc_rt.tensor<name = "y", type = tensor<4xf32>, dims = <[4]>>]} {
^bb0(%call: !llvm.ptr):
  disc_rt.check_inputs %call
  %x = disc_rt.input %call[0]
  %c4 = arith.constant 4 : index
  %y = disc_rt.output %call[0] (%c4)
  %bytes = arith.constant 16 : index
  disc_rt.copy %y, %x, %bytes
  disc_rt.return
}
}
