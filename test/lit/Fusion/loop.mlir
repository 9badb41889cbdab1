// RUN: disc-opt %s -disc-fusion-fold-views -disc-fusion-form-kernels -disc-fusion-merge-products -disc-fusion-verify | FileCheck %s
// Where kernels have one product each, the second one's epilogue reads what the first has stored.
// RUN: disc-opt %s -disc-fusion-fold-views -disc-fusion-form-kernels=many-products=false -disc-fusion-verify | FileCheck %s --check-prefix=ONE
// ONE: disc_tensor.loop
// ONE: %[[P:.*]] = disc_plan.kernel contraction ins(
// ONE-COUNT-1: arith.mulf
// ONE: disc_plan.yield
// ONE: %[[Q:.*]] = disc_plan.kernel contraction ins({{.*}}%[[P]]
// ONE: disc_tensor.next %[[Q]], %[[Q]]

// Two gates that meet point by point are one kernel of the body. The state is carried and stacked: it has one buffer
// and no copy; the first value is a fill, which needs one; what was carried last is copied to be a result.
// CHECK-LABEL: func.func @main
// CHECK: %[[H0:.*]] = disc_plan.kernel loop ins() -> tensor<2x8xf32>
// CHECK: %[[SCAN:.*]]:2 = disc_tensor.loop @i below %{{.*}} carries(%[[H0]])
// CHECK: ^bb0(%[[A:.*]]: tensor<2x8xf32>):
// CHECK: %[[X:.*]] = disc_tensor.slice
// CHECK-NOT: disc_plan.kernel
// CHECK: %[[B:.*]] = disc_plan.kernel contraction ins(%[[A]],
// CHECK-NOT: disc_plan.kernel
// CHECK: disc_tensor.next %[[B]], %[[B]]
// CHECK: %[[LAST:.*]] = disc_plan.kernel loop ins(%[[SCAN]]#0
// CHECK: return %[[SCAN]]#1, %[[LAST]]
#l = affine_map<(m, n, k) -> (m, k)>
#r = affine_map<(m, n, k) -> (n, k)>
#o = affine_map<(m, n, k) -> (m, n)>
#id = affine_map<(m, n) -> (m, n)>
#x = affine_map<(m, n) -> (0, m, n)>
disc_shape.symbol @i
disc_shape.symbol @T min 1 max 64
func.func @main(%xs: tensor<?x2x8xf32> {disc_shape.dims = #disc_shape.dims<[T, 2, 8]>}) -> (tensor<?x2x8xf32>, tensor<2x8xf32>) {
  %c1 = arith.constant 1 : index
  %t = disc_shape.dim <T>
  %i = disc_shape.dim <i>
  %w = disc_tensor.parameter "w" : tensor<8x8xf32>
  %v = disc_tensor.parameter "v" : tensor<8x8xf32>
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<2x8xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<2x8xf32>) -> tensor<2x8xf32>
  %last, %ys = disc_tensor.loop @i below %t carries(%z) {disc_shape.dims = [#disc_shape.dims<[2, 8]>, #disc_shape.dims<[T, 2, 8]>]}
      : (tensor<2x8xf32>) -> (tensor<2x8xf32>, tensor<?x2x8xf32>) {
  ^bb0(%h: tensor<2x8xf32>):
    %s = disc_tensor.slice %xs[%i, %c1] dim 0 step 1 : tensor<?x2x8xf32> -> tensor<1x2x8xf32>
    %x = disc_tensor.reshape %s() : tensor<1x2x8xf32> -> tensor<2x8xf32>
    %p = linalg.generic {indexing_maps = [#l, #r, #o], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%h, %w : tensor<2x8xf32>, tensor<8x8xf32>) outs(%z : tensor<2x8xf32>) {
    ^bb0(%a: f32, %b: f32, %c: f32):
      %0 = arith.mulf %a, %b : f32
      %1 = arith.addf %c, %0 : f32
      linalg.yield %1 : f32
    } -> tensor<2x8xf32>
    %q = linalg.generic {indexing_maps = [#l, #r, #o], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%h, %v : tensor<2x8xf32>, tensor<8x8xf32>) outs(%z : tensor<2x8xf32>) {
    ^bb0(%a: f32, %b: f32, %c: f32):
      %0 = arith.mulf %a, %b : f32
      %1 = arith.addf %c, %0 : f32
      linalg.yield %1 : f32
    } -> tensor<2x8xf32>
    %n = linalg.generic {indexing_maps = [#id, #id, #id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%p, %q, %x : tensor<2x8xf32>, tensor<2x8xf32>, tensor<2x8xf32>) outs(%e : tensor<2x8xf32>) {
    ^bb0(%a: f32, %b: f32, %c: f32, %d: f32):
      %0 = arith.mulf %a, %b : f32
      %1 = arith.addf %0, %c : f32
      linalg.yield %1 : f32
    } -> tensor<2x8xf32>
    disc_tensor.next %n, %n : tensor<2x8xf32>, tensor<2x8xf32>
  }
  return %ys, %last : tensor<?x2x8xf32>, tensor<2x8xf32>
}
