// RUN: disc-opt %s -disc-schedule-hoist-parameters -disc-schedule-pack-weights=precision=bf16 | FileCheck %s

// The target sums pairs of products of bf16: two values of k lie side by side, and the left operand is rounded before.
// CHECK: disc_plan.global @packed0 : tensor<1x4x64xbf16>
// CHECK: disc_tensor.pack %{{.*}} batch [] n [0] k [1] panel 32 together 2 : tensor<20x8xf32> -> tensor<1x4x64xbf16>
// CHECK: func.func @main(%[[X:.*]]: tensor<?x8xf32>
// CHECK: %[[R:.*]] = disc_plan.kernel loop ins(%[[X]] : tensor<?x8xf32>) -> tensor<?x8xbf16>
// CHECK: arith.truncf
// CHECK: disc_plan.kernel contraction ins(%{{.*}}, %[[R]] : tensor<1x4x64xbf16>, tensor<?x8xbf16>)
// CHECK: disc_tensor.unpack %{{.*}} panel 32 together 2 : tensor<1x4x64xbf16> -> tensor<20x8xbf16>
// CHECK: ^bb0(%{{.*}}: bf16, %{{.*}}: bf16, %{{.*}}: f32):
#a = affine_map<(m, n, k) -> (m, k)>
#b = affine_map<(m, n, k) -> (n, k)>
#c = affine_map<(m, n, k) -> (m, n)>
module attributes {disc_plan.target = #disc_plan.target<vector_bits = 512, bf16_dot = true>} {
disc_shape.symbol @S min 1
func.func @main(%x: tensor<?x8xf32> {disc_shape.dims = #disc_shape.dims<[S, 8]>}) -> tensor<?x20xf32> {
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
  return %y0 : tensor<?x20xf32>
}
}
