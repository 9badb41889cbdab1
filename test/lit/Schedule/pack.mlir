// A task writes one panel.
// RUN: disc-opt %s -disc-schedule-kernels | FileCheck %s

// CHECK-LABEL: func.func @init
// CHECK: schedule = #disc_plan.pieces
// CHECK-SAME: tasks = #disc_shape.expr<6>
func.func @init(%w: tensor<3x40x48xf32>) -> tensor<3x2x48x32xf32> {
  %0 = disc_plan.kernel pack ins(%w : tensor<3x40x48xf32>) -> tensor<3x2x48x32xf32> attributes {name = "pack"} {
  ^bb0(%a: tensor<3x40x48xf32>):
    %p = disc_tensor.pack %a batch [0] n [1] k [2] panel 32 : tensor<3x40x48xf32> -> tensor<3x2x48x32xf32>
    disc_plan.yield %p : tensor<3x2x48x32xf32>
  }
  return %0 : tensor<3x2x48x32xf32>
}
