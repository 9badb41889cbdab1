// RUN: disc-opt %s -disc-schedule-hoist-parameters -disc-schedule-pack-weights | FileCheck %s
// RUN: disc-opt %s -disc-schedule-hoist-parameters -disc-schedule-pack-weights=precision=bf16 | FileCheck %s --check-prefix=BF16
// RUN: not disc-opt %s -disc-schedule-hoist-parameters -disc-schedule-pack-weights=precision=f8 2>&1 | FileCheck %s --check-prefix=ERROR
// ERROR: precision is f32 or bf16, not 'f8'

// Weights are kept as bf16; the product widens them and sums in f32.
// BF16: disc_plan.global @packed0 : tensor<1x8x24xbf16>
// BF16: disc_tensor.pack %{{.*}} panel 24 : tensor<20x8xf32> -> tensor<1x8x24xbf16>
// BF16: disc_tensor.unpack %{{.*}} : tensor<1x8x24xbf16> -> tensor<20x8xbf16>
// BF16: ^bb0(%[[I:.*]]: f32, %[[J:.*]]: bf16, %[[O:.*]]: f32):
// BF16: %[[WIDE:.*]] = arith.extf %[[J]] : bf16 to f32
// BF16: arith.mulf %[[I]], %[[WIDE]] : f32

// One weight in two products with the same dimensions is packed once, in panels of the target's width.
// CHECK: disc_plan.global @packed0 : tensor<1x8x24xf32>
// CHECK-NOT: disc_plan.global @packed1
// CHECK: func.func @init()
// CHECK: %[[W:.*]] = disc_tensor.parameter "w" : tensor<20x8xf32>
// CHECK: %[[P:.*]] = disc_plan.kernel pack ins(%[[W]] : tensor<20x8xf32>) -> tensor<1x8x24xf32>
// CHECK: disc_tensor.pack %{{.*}} batch [] n [0] k [1] panel 24
// CHECK: disc_plan.global_store @packed0, %[[P]]
// CHECK: func.func @main
// CHECK: %[[L:.*]] = disc_plan.global_load @packed0
// CHECK: disc_plan.kernel contraction ins(%{{.*}}, %[[L]] : tensor<?x8xf32>, tensor<1x8x24xf32>)
// CHECK: %[[U:.*]] = disc_tensor.unpack %{{.*}} batch [] n [0] k [1] panel 24 : tensor<1x8x24xf32> -> tensor<20x8xf32>
// CHECK: linalg.generic {{.*}} ins(%{{.*}}, %[[U]] :
// CHECK: %[[L1:.*]] = disc_plan.global_load @packed0
// CHECK: disc_plan.kernel contraction ins(%{{.*}}, %[[L1]] :
#a = affine_map<(m, n, k) -> (m, k)>
#b = affine_map<(m, n, k) -> (n, k)>
#c = affine_map<(m, n, k) -> (m, n)>
module attributes {disc_plan.target = #disc_plan.target<vector_bits = 256>} {
disc_shape.symbol @S min 1
func.func @main(%x: tensor<?x8xf32> {disc_shape.dims = #disc_shape.dims<[S, 8]>},
                %z: tensor<?x8xf32> {disc_shape.dims = #disc_shape.dims<[S, 8]>})
    -> (tensor<?x20xf32>, tensor<?x20xf32>) {
  %w = disc_tensor.parameter "w" : tensor<20x8xf32>
  %y0 = disc_plan.kernel contraction ins(%x, %w : tensor<?x8xf32>, tensor<20x8xf32>) -> tensor<?x20xf32>
      attributes {reason = "r"} {
  ^bb0(%l: tensor<?x8xf32>, %r: tensor<20x8xf32>):
    %zero = arith.constant 0.0 : f32
    %s = disc_shape.dim <S>
    %e = tensor.empty(%s) : tensor<?x20xf32>
    %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x20xf32>) -> tensor<?x20xf32>
    %p = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%l, %r : tensor<?x8xf32>, tensor<20x8xf32>) outs(%f : tensor<?x20xf32>) {
    ^bb0(%i: f32, %j: f32, %o: f32):
      %0 = arith.mulf %i, %j : f32
      %1 = arith.addf %o, %0 : f32
      linalg.yield %1 : f32
    } -> tensor<?x20xf32>
    disc_plan.yield %p : tensor<?x20xf32>
  }
  %y1 = disc_plan.kernel contraction ins(%z, %w : tensor<?x8xf32>, tensor<20x8xf32>) -> tensor<?x20xf32>
      attributes {reason = "r"} {
  ^bb0(%l: tensor<?x8xf32>, %r: tensor<20x8xf32>):
    %zero = arith.constant 0.0 : f32
    %s = disc_shape.dim <S>
    %e = tensor.empty(%s) : tensor<?x20xf32>
    %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x20xf32>) -> tensor<?x20xf32>
    %p = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%l, %r : tensor<?x8xf32>, tensor<20x8xf32>) outs(%f : tensor<?x20xf32>) {
    ^bb0(%i: f32, %j: f32, %o: f32):
      %0 = arith.mulf %i, %j : f32
      %1 = arith.addf %o, %0 : f32
      linalg.yield %1 : f32
    } -> tensor<?x20xf32>
    disc_plan.yield %p : tensor<?x20xf32>
  }
  return %y0, %y1 : tensor<?x20xf32>, tensor<?x20xf32>
}
}
