// Every operation and attribute of disc_plan prints and parses.
// RUN: disc-opt %s | disc-opt | FileCheck %s
// RUN: disc-opt %s -mlir-print-op-generic | disc-opt | FileCheck %s

disc_shape.symbol @B {min = 1 : i64, max = 64 : i64}

// CHECK: disc_plan.global @packed : tensor<4xf32>
disc_plan.global @packed : tensor<4xf32>

// CHECK-LABEL: func @init
func.func @init() {
  %w = disc_tensor.parameter "w" : tensor<4xf32>
  // CHECK: disc_plan.global_store @packed, %{{.*}} : tensor<4xf32>
  disc_plan.global_store @packed, %w : tensor<4xf32>
  return
}

// CHECK-LABEL: func @main
func.func @main(%x: tensor<?x4xf32> {disc_shape.dims = #disc_shape.dims<[B, 4]>}) -> tensor<?x4xf32> {
  // CHECK: disc_plan.global_load @packed : tensor<4xf32>
  %w = disc_plan.global_load @packed : tensor<4xf32>
  // CHECK: disc_plan.kernel row ins(%{{.*}}, %{{.*}} : tensor<?x4xf32>, tensor<4xf32>) -> tensor<?x4xf32>
  // CHECK-SAME: cost = #disc_shape.expr<B * 3>
  // CHECK-SAME: name = "example"
  // CHECK-SAME: reason = "for the test"
  // CHECK-NEXT: ^bb0(%{{.*}}: tensor<?x4xf32>, %{{.*}}: tensor<4xf32>):
  // CHECK-NEXT: disc_plan.yield %{{.*}} : tensor<?x4xf32>
  %y = disc_plan.kernel row ins(%x, %w : tensor<?x4xf32>, tensor<4xf32>) -> tensor<?x4xf32> attributes {
      name = "example", reason = "for the test", cost = #disc_shape.expr<3 * B>} {
  ^bb0(%a: tensor<?x4xf32>, %b: tensor<4xf32>):
    disc_plan.yield %a : tensor<?x4xf32>
  }
  return %y : tensor<?x4xf32>
}

// CHECK: disc_plan.kernel_func loop @k0_copy
// CHECK-SAME: #disc_plan.layout<<B * 4>, <[4, 1]>>
disc_plan.kernel_func loop @k0_copy attributes {symbols = ["B"], arg_dims = [#disc_shape.dims<[B, 4]>],
    layouts = [#disc_plan.layout<#disc_shape.expr<0>, #disc_shape.dims<[4, 1]>>,
               #disc_plan.layout<#disc_shape.expr<B * 4>, #disc_shape.dims<[4, 1]>>]} {
^bb0(%a: tensor<?x4xf32>):
  disc_plan.yield %a : tensor<?x4xf32>
}
