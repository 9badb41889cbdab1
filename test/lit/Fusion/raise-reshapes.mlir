// RUN: disc-opt %s -disc-fusion-raise-reshapes -split-input-file | FileCheck %s

// A product over merged rows, and what reads it split again, are one product over both dimensions of rows.
// CHECK-LABEL: func.func @main
// CHECK: %[[P:.*]] = linalg.generic {{.*}} iterator_types = ["parallel", "parallel", "parallel", "reduction"]
// CHECK-SAME: ins(%arg0, %{{.*}} : tensor<?x?x64xf32>, tensor<64x32xf32>) outs(%{{.*}} : tensor<?x?x32xf32>)
// CHECK: return %[[P]]
#a = affine_map<(m, n, k) -> (m, k)>
#b = affine_map<(m, n, k) -> (k, n)>
#c = affine_map<(m, n, k) -> (m, n)>
disc_shape.symbol @B min 1
disc_shape.symbol @L min 1
func.func @main(%x: tensor<?x?x64xf32> {disc_shape.dims = #disc_shape.dims<[B, L, 64]>}) -> tensor<?x?x32xf32> {
  %w = disc_tensor.parameter "w" : tensor<64x32xf32>
  %zero = arith.constant 0.0 : f32
  %rows = disc_shape.dim <B*L>
  %m = disc_tensor.reshape %x(%rows) : tensor<?x?x64xf32> -> tensor<?x64xf32>
  %e = tensor.empty(%rows) : tensor<?x32xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x32xf32>) -> tensor<?x32xf32>
  %p = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%m, %w : tensor<?x64xf32>, tensor<64x32xf32>) outs(%f : tensor<?x32xf32>) {
  ^bb0(%i: f32, %j: f32, %o: f32):
    %0 = arith.mulf %i, %j : f32
    %1 = arith.addf %o, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<?x32xf32>
  %b = disc_shape.dim <B>
  %l = disc_shape.dim <L>
  %y = disc_tensor.reshape %p(%b, %l) : tensor<?x32xf32> -> tensor<?x?x32xf32>
  return %y : tensor<?x?x32xf32>
}

// -----

// Nothing merged the dimensions before: the reshape stays.
// CHECK-LABEL: func.func @main
// CHECK: linalg.generic {{.*}} ins(%arg0 : tensor<12xf32>)
// CHECK: disc_tensor.reshape
#id = affine_map<(d0) -> (d0)>
func.func @main(%x: tensor<12xf32>) -> tensor<3x4xf32> {
  %e = tensor.empty() : tensor<12xf32>
  %p = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
      ins(%x : tensor<12xf32>) outs(%e : tensor<12xf32>) {
  ^bb0(%i: f32, %o: f32):
    %0 = arith.negf %i : f32
    linalg.yield %0 : f32
  } -> tensor<12xf32>
  %y = disc_tensor.reshape %p() : tensor<12xf32> -> tensor<3x4xf32>
  return %y : tensor<3x4xf32>
}
