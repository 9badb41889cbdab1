// RUN: disc-opt %s -disc-schedule-hoist-parameters -split-input-file | FileCheck %s

// Work on parameters alone happens at load; what needs an input stays.
// CHECK: disc_plan.global @hoisted0_twice : tensor<8xf32>
// CHECK: func.func @init()
// CHECK: %[[W:.*]] = disc_tensor.parameter "w"
// CHECK: %[[K:.*]] = disc_plan.kernel loop ins(%[[W]]
// CHECK: disc_plan.global_store @hoisted0_twice, %[[K]]
// CHECK: func.func @main
// CHECK-SAME: %[[X:.*]]: tensor<?x8xf32>
// CHECK-NOT: disc_tensor.parameter
// CHECK: %[[G:.*]] = disc_plan.global_load @hoisted0_twice
// CHECK: disc_plan.kernel loop ins(%[[X]], %[[G]]
#id1 = affine_map<(d0) -> (d0)>
#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d1)>
disc_shape.symbol @S min 1
func.func @main(%x: tensor<?x8xf32> {disc_shape.dims = #disc_shape.dims<[S, 8]>}) -> tensor<?x8xf32> {
  %w = disc_tensor.parameter "w" : tensor<8xf32>
  %t = disc_plan.kernel loop ins(%w : tensor<8xf32>) -> tensor<8xf32> attributes {name = "twice", reason = "r"} {
  ^bb0(%a: tensor<8xf32>):
    %e = tensor.empty() : tensor<8xf32>
    %0 = linalg.generic {indexing_maps = [#id1, #id1], iterator_types = ["parallel"]}
        ins(%a : tensor<8xf32>) outs(%e : tensor<8xf32>) {
    ^bb0(%l: f32, %o: f32):
      %1 = arith.addf %l, %l : f32
      linalg.yield %1 : f32
    } -> tensor<8xf32>
    disc_plan.yield %0 : tensor<8xf32>
  }
  %y = disc_plan.kernel loop ins(%x, %t : tensor<?x8xf32>, tensor<8xf32>) -> tensor<?x8xf32> attributes {reason = "r"} {
  ^bb0(%a: tensor<?x8xf32>, %b: tensor<8xf32>):
    %s = disc_shape.dim <S>
    %e = tensor.empty(%s) : tensor<?x8xf32>
    %0 = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
        ins(%a, %b : tensor<?x8xf32>, tensor<8xf32>) outs(%e : tensor<?x8xf32>) {
    ^bb0(%l: f32, %r: f32, %o: f32):
      %1 = arith.addf %l, %r : f32
      linalg.yield %1 : f32
    } -> tensor<?x8xf32>
    disc_plan.yield %0 : tensor<?x8xf32>
  }
  return %y : tensor<?x8xf32>
}

// -----

// Nothing to hoist: @init is there all the same.
// CHECK: func.func @init() {
// CHECK-NEXT: return
// CHECK: func.func @main
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  return %x : tensor<4xf32>
}

// -----

// A result of the model is computed by each call, although it depends on parameters alone.
// CHECK: func.func @init() {
// CHECK-NEXT: return
// CHECK: func.func @main
// CHECK: %[[K:.*]] = disc_plan.kernel loop
// CHECK: return %[[K]]
#id1 = affine_map<(d0) -> (d0)>
func.func @main() -> tensor<8xf32> {
  %w = disc_tensor.parameter "w" : tensor<8xf32>
  %t = disc_plan.kernel loop ins(%w : tensor<8xf32>) -> tensor<8xf32> attributes {name = "twice", reason = "r"} {
  ^bb0(%a: tensor<8xf32>):
    %e = tensor.empty() : tensor<8xf32>
    %0 = linalg.generic {indexing_maps = [#id1, #id1], iterator_types = ["parallel"]}
        ins(%a : tensor<8xf32>) outs(%e : tensor<8xf32>) {
    ^bb0(%l: f32, %o: f32):
      %1 = arith.addf %l, %l : f32
      linalg.yield %1 : f32
    } -> tensor<8xf32>
    disc_plan.yield %0 : tensor<8xf32>
  }
  return %t : tensor<8xf32>
}
