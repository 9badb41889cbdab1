// A call is a kernel of its own, with all results of the function; what it reads may be a view, and constants need a
// buffer.
// RUN: disc-opt %s -disc-fusion-fold-views -disc-fusion-form-kernels -disc-fusion-verify | FileCheck %s

disc_shape.symbol @S min 1

// CHECK-LABEL: func.func @main
// CHECK-SAME: %[[X:.*]]: tensor<?x8xf32>
// CHECK: %[[T:.*]] = disc_tensor.permute %[[X]]
// CHECK: %[[C:.*]] = disc_plan.kernel loop ins() -> tensor<4xi64>
// CHECK: %[[K:.*]]:2 = disc_plan.kernel call ins(%[[T]], %[[C]] : tensor<8x?xf32>, tensor<4xi64>) -> tensor<8x?xf32>, tensor<8x?xi64>
// CHECK-SAME: reason = "calls sort"
// CHECK: %[[R:.*]]:2 = disc_tensor.call "sort"
// CHECK: disc_plan.yield %[[R]]#0, %[[R]]#1
// CHECK: disc_plan.kernel loop ins(%[[K]]#0
func.func @main(%x: tensor<?x8xf32> {disc_shape.dims = #disc_shape.dims<[S, 8]>}) -> tensor<8x?xf32> {
  %s = disc_shape.dim <S>
  %c8 = arith.constant 8 : index
  %c0 = arith.constant 0 : index
  %ones = arith.constant dense<1> : tensor<4xi64>
  %t = disc_tensor.permute %x [1, 0] : tensor<?x8xf32> -> tensor<8x?xf32>
  %v, %i = disc_tensor.call "sort"(%t, %ones) sizes(%s, %s) tasks %c8 scratch %c0 ""
      : (tensor<8x?xf32>, tensor<4xi64>) -> (tensor<8x?xf32>, tensor<8x?xi64>)
  %e = tensor.empty(%s) : tensor<8x?xf32>
  %n = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>],
                       iterator_types = ["parallel", "parallel"]}
      ins(%v : tensor<8x?xf32>) outs(%e : tensor<8x?xf32>) {
  ^bb0(%a: f32, %o: f32):
    %m = arith.negf %a : f32
    linalg.yield %m : f32
  } -> tensor<8x?xf32>
  return %n : tensor<8x?xf32>
}
