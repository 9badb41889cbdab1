// RUN: disc-opt %s -disc-fusion-integer-products -split-input-file | FileCheck %s

// Activations with a scale and a zero point for each row, weights with a scale for each column: exact sums of bytes, then
// corrections and scales. The sums over the weights depend on parameters alone.
// CHECK-LABEL: func.func @main
// CHECK: %[[W:.*]] = disc_tensor.parameter "w" : tensor<128x64xi8>
// CHECK: %[[P:.*]] = linalg.generic {{.*}} ins(%arg0, %[[W]] : tensor<?x64xi8>, tensor<128x64xi8>) outs(%{{.*}} : tensor<?x128xi32>)
// CHECK: arith.extsi %{{.*}} : i8 to i32
// CHECK: arith.extsi %{{.*}} : i8 to i32
// CHECK: arith.muli
// CHECK: arith.addi
// CHECK: %[[S:.*]] = linalg.generic {{.*}} iterator_types = ["parallel", "reduction"]} ins(%[[W]] : tensor<128x64xi8>)
// CHECK: linalg.generic {{.*}} ins(%[[P]], %arg1, %arg2, %{{.*}}, %[[S]] :
// CHECK: %[[Z:.*]] = arith.muli
// CHECK: %[[V:.*]] = arith.subi %{{.*}}, %[[Z]] : i32
// CHECK: %[[F:.*]] = arith.sitofp %[[V]] : i32 to f32
// CHECK: arith.mulf %[[F]]
// CHECK: arith.mulf
#x = affine_map<(m, k) -> (m, k)>
#r = affine_map<(m, k) -> (m, 0)>
#a = affine_map<(m, n, k) -> (m, k)>
#b = affine_map<(m, n, k) -> (n, k)>
#c = affine_map<(m, n, k) -> (m, n)>
disc_shape.symbol @S min 1
func.func @main(%x: tensor<?x64xi8> {disc_shape.dims = #disc_shape.dims<[S, 64]>},
                %s: tensor<?x1xf32> {disc_shape.dims = #disc_shape.dims<[S, 1]>},
                %z: tensor<?x1xi8> {disc_shape.dims = #disc_shape.dims<[S, 1]>}) -> tensor<?x128xf32> {
  %w = disc_tensor.parameter "w" : tensor<128x64xi8>
  %t = disc_tensor.parameter "t" : tensor<128x1xf32>
  %n = disc_shape.dim <S>
  %zero = arith.constant 0.0 : f32
  %e0 = tensor.empty(%n) : tensor<?x64xf32>
  %xf = linalg.generic {indexing_maps = [#x, #r, #r, #x], iterator_types = ["parallel", "parallel"]}
      ins(%x, %s, %z : tensor<?x64xi8>, tensor<?x1xf32>, tensor<?x1xi8>) outs(%e0 : tensor<?x64xf32>) {
  ^bb0(%i: i8, %j: f32, %l: i8, %o: f32):
    %0 = arith.sitofp %i : i8 to f32
    %1 = arith.sitofp %l : i8 to f32
    %2 = arith.subf %0, %1 : f32
    %3 = arith.mulf %2, %j : f32
    linalg.yield %3 : f32
  } -> tensor<?x64xf32>
  %e1 = tensor.empty() : tensor<128x64xf32>
  %wf = linalg.generic {indexing_maps = [#x, #r, #x], iterator_types = ["parallel", "parallel"]}
      ins(%w, %t : tensor<128x64xi8>, tensor<128x1xf32>) outs(%e1 : tensor<128x64xf32>) {
  ^bb0(%i: i8, %j: f32, %o: f32):
    %0 = arith.sitofp %i : i8 to f32
    %1 = arith.mulf %0, %j : f32
    linalg.yield %1 : f32
  } -> tensor<128x64xf32>
  %e2 = tensor.empty(%n) : tensor<?x128xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e2 : tensor<?x128xf32>) -> tensor<?x128xf32>
  %y = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%xf, %wf : tensor<?x64xf32>, tensor<128x64xf32>) outs(%f : tensor<?x128xf32>) {
  ^bb0(%i: f32, %j: f32, %o: f32):
    %0 = arith.mulf %i, %j : f32
    %1 = arith.addf %o, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<?x128xf32>
  return %y : tensor<?x128xf32>
}

// -----

// A scale for each value of k stays inside the sum, and so do floats.
// CHECK-LABEL: func.func @main
// CHECK-NOT: i32
#x = affine_map<(m, k) -> (m, k)>
#r = affine_map<(m, k) -> (0, k)>
#a = affine_map<(m, n, k) -> (m, k)>
#b = affine_map<(m, n, k) -> (n, k)>
#c = affine_map<(m, n, k) -> (m, n)>
func.func @main(%x: tensor<4x64xi8>) -> tensor<4x128xf32> {
  %w = disc_tensor.parameter "w" : tensor<128x64xi8>
  %t = disc_tensor.parameter "t" : tensor<1x64xf32>
  %zero = arith.constant 0.0 : f32
  %e0 = tensor.empty() : tensor<4x64xf32>
  %xf = linalg.generic {indexing_maps = [#x, #x], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<4x64xi8>) outs(%e0 : tensor<4x64xf32>) {
  ^bb0(%i: i8, %o: f32):
    %0 = arith.sitofp %i : i8 to f32
    linalg.yield %0 : f32
  } -> tensor<4x64xf32>
  %e1 = tensor.empty() : tensor<128x64xf32>
  %wf = linalg.generic {indexing_maps = [#x, #r, #x], iterator_types = ["parallel", "parallel"]}
      ins(%w, %t : tensor<128x64xi8>, tensor<1x64xf32>) outs(%e1 : tensor<128x64xf32>) {
  ^bb0(%i: i8, %j: f32, %o: f32):
    %0 = arith.sitofp %i : i8 to f32
    %1 = arith.mulf %0, %j : f32
    linalg.yield %1 : f32
  } -> tensor<128x64xf32>
  %e2 = tensor.empty() : tensor<4x128xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e2 : tensor<4x128xf32>) -> tensor<4x128xf32>
  %y = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%xf, %wf : tensor<4x64xf32>, tensor<128x64xf32>) outs(%f : tensor<4x128xf32>) {
  ^bb0(%i: f32, %j: f32, %o: f32):
    %0 = arith.mulf %i, %j : f32
    %1 = arith.addf %o, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<4x128xf32>
  return %y : tensor<4x128xf32>
}
