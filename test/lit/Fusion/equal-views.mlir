// RUN: disc-opt %s -disc-fusion-form-kernels -disc-fusion-verify | FileCheck %s

// Two reshapes of one tensor are one input of the kernel: its products share their left operand.
// CHECK-LABEL: func.func @main
// CHECK-SAME: %[[X:[a-z0-9]+]]: tensor<1x1x8xf32>
// CHECK: %[[L:.*]] = disc_tensor.reshape %[[X]]
// CHECK: disc_plan.kernel contraction ins(%[[L]], %{{[a-z0-9]+}}, %{{[a-z0-9]+}} :
// CHECK: linalg.generic {{.*}} ins(%[[A:[a-z0-9]+]], %
// CHECK: linalg.generic {{.*}} ins(%[[A]], %
// CHECK: disc_plan.yield
#a = affine_map<(m, n, k) -> (m, k)>
#b = affine_map<(m, n, k) -> (n, k)>
#c = affine_map<(m, n, k) -> (m, n)>
#id = affine_map<(d0, d1) -> (d0, d1)>
func.func @main(%x: tensor<1x1x8xf32>, %v: tensor<4x8xf32>, %w: tensor<4x8xf32>) -> tensor<1x4xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<1x4xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<1x4xf32>) -> tensor<1x4xf32>
  %l = disc_tensor.reshape %x() : tensor<1x1x8xf32> -> tensor<1x8xf32>
  %p = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%l, %v : tensor<1x8xf32>, tensor<4x8xf32>) outs(%f : tensor<1x4xf32>) {
  ^bb0(%i: f32, %r: f32, %o: f32):
    %0 = arith.mulf %i, %r : f32
    %1 = arith.addf %o, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<1x4xf32>
  %k = disc_tensor.reshape %x() : tensor<1x1x8xf32> -> tensor<1x8xf32>
  %q = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%k, %w : tensor<1x8xf32>, tensor<4x8xf32>) outs(%f : tensor<1x4xf32>) {
  ^bb0(%i: f32, %r: f32, %o: f32):
    %0 = arith.mulf %i, %r : f32
    %1 = arith.addf %o, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<1x4xf32>
  %y = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%p, %q : tensor<1x4xf32>, tensor<1x4xf32>) outs(%e : tensor<1x4xf32>) {
  ^bb0(%i: f32, %r: f32, %o: f32):
    %0 = arith.mulf %i, %r : f32
    linalg.yield %0 : f32
  } -> tensor<1x4xf32>
  return %y : tensor<1x4xf32>
}
