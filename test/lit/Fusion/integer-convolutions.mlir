// RUN: disc-opt %s -disc-fusion-integer-convolutions -split-input-file | FileCheck %s

// Activations with one scale and zero point, weights with a scale for each filter: exact sums of bytes, of which those
// outside of the input are the zero point, then corrections and scales. Two groups of filters lie side by side.
// CHECK-LABEL: func.func @main
// CHECK-DAG: %[[W:.*]] = disc_tensor.parameter "w" : tensor<16x4x3x3xi8>
// CHECK-DAG: %[[T:.*]] = disc_tensor.parameter "t" : tensor<16xf32>
// CHECK: disc_tensor.reshape %[[W]]() {{.*}} -> tensor<2x8x4x3x3xi8>
// CHECK: %[[CODES:.*]] = disc_tensor.permute {{.*}} -> tensor<2x8x3x3x4xi8>
// CHECK: %[[P:.*]] = disc_tensor.convolution %arg0, %[[CODES]] {{.*}} outside 7 unsigned_input {{.*}} : tensor<?x?x?x8xi8>, tensor<2x8x3x3x4xi8> -> tensor<?x?x?x16xi32>
// CHECK: linalg.generic {{.*}} iterator_types = ["parallel", "parallel", "reduction", "reduction", "reduction"]} ins(%[[CODES]] :
// CHECK: arith.muli %{{.*}}, %c7
// CHECK: %[[SUMS:.*]] = disc_tensor.reshape %{{.*}}() {{.*}} tensor<2x8xi32> -> tensor<16xi32>
// CHECK: linalg.generic {{.*}} ins(%[[P]], %[[T]], %[[SUMS]] :
// CHECK: %[[V:.*]] = arith.subi %{{.*}}, %{{.*}} : i32
// CHECK: %[[F:.*]] = arith.sitofp %[[V]] : i32 to f32
// CHECK: arith.mulf %[[F]]
// CHECK: arith.mulf

// Without instructions for bytes, and with one channel in each group, floats stay floats.
// CHECK-LABEL: func.func @main
// CHECK-NOT: xi32
// CHECK: disc_tensor.convolution {{.*}} tensor<?x?x?x8xf32>
// CHECK-LABEL: func.func @main
// CHECK-NOT: xi32
// CHECK: disc_tensor.convolution {{.*}} tensor<?x?x?x2xf32>
#x = affine_map<(a, b, c, d) -> (a, b, c, d)>
#w = affine_map<(a, b, c, d, e) -> (a, b, c, d, e)>
module attributes {disc_plan.target = #disc_plan.target<i8_dot_mixed = true>} {
disc_shape.symbol @N min 1
disc_shape.symbol @H min 1
func.func @main(%x: tensor<?x?x?x8xi8> {disc_shape.dims = #disc_shape.dims<[N, H, H, 8]>}) -> tensor<?x?x?x16xf32> {
  %w = disc_tensor.parameter "w" : tensor<16x4x3x3xi8>
  %t = disc_tensor.parameter "t" : tensor<16xf32>
  %n = disc_shape.dim <N>
  %h = disc_shape.dim <H>
  %e0 = tensor.empty(%n, %h, %h) : tensor<?x?x?x8xf32>
  %xf = linalg.generic {indexing_maps = [#x, #x], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%x : tensor<?x?x?x8xi8>) outs(%e0 : tensor<?x?x?x8xf32>) {
  ^bb0(%i: i8, %o: f32):
    %zero = arith.constant 7.0 : f32
    %scale = arith.constant 0.25 : f32
    %0 = arith.uitofp %i : i8 to f32
    %1 = arith.subf %0, %zero : f32
    %2 = arith.mulf %1, %scale : f32
    linalg.yield %2 : f32
  } -> tensor<?x?x?x8xf32>
  %e1 = tensor.empty() : tensor<16x4x3x3xf32>
  %wf = linalg.generic {indexing_maps = [#x, affine_map<(a, b, c, d) -> (a)>, #x], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%w, %t : tensor<16x4x3x3xi8>, tensor<16xf32>) outs(%e1 : tensor<16x4x3x3xf32>) {
  ^bb0(%i: i8, %j: f32, %o: f32):
    %0 = arith.sitofp %i : i8 to f32
    %1 = arith.mulf %0, %j : f32
    linalg.yield %1 : f32
  } -> tensor<16x4x3x3xf32>
  %r = disc_tensor.reshape %wf() : tensor<16x4x3x3xf32> -> tensor<2x8x4x3x3xf32>
  %p = disc_tensor.permute %r [0, 1, 3, 4, 2] : tensor<2x8x4x3x3xf32> -> tensor<2x8x3x3x4xf32>
  %y = disc_tensor.convolution %xf, %p strides [1, 1] low [1, 1] high [1, 1] dilations [1, 1] input_dilations [1, 1]
      : tensor<?x?x?x8xf32>, tensor<2x8x3x3x4xf32> -> tensor<?x?x?x16xf32>
  return %y : tensor<?x?x?x16xf32>
}
}

// -----

#x = affine_map<(a, b, c, d) -> (a, b, c, d)>
#w = affine_map<(a, b, c, d, e) -> (a, b, c, d, e)>
module attributes {disc_plan.target = #disc_plan.target<i16_dot = true>} {
disc_shape.symbol @N min 1
disc_shape.symbol @H min 1
func.func @main(%x: tensor<?x?x?x8xi8> {disc_shape.dims = #disc_shape.dims<[N, H, H, 8]>}) -> tensor<?x?x?x16xf32> {
  %w = disc_tensor.parameter "w" : tensor<16x4x3x3xi8>
  %t = disc_tensor.parameter "t" : tensor<16xf32>
  %n = disc_shape.dim <N>
  %h = disc_shape.dim <H>
  %e0 = tensor.empty(%n, %h, %h) : tensor<?x?x?x8xf32>
  %xf = linalg.generic {indexing_maps = [#x, #x], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%x : tensor<?x?x?x8xi8>) outs(%e0 : tensor<?x?x?x8xf32>) {
  ^bb0(%i: i8, %o: f32):
    %zero = arith.constant 7.0 : f32
    %scale = arith.constant 0.25 : f32
    %0 = arith.uitofp %i : i8 to f32
    %1 = arith.subf %0, %zero : f32
    %2 = arith.mulf %1, %scale : f32
    linalg.yield %2 : f32
  } -> tensor<?x?x?x8xf32>
  %e1 = tensor.empty() : tensor<16x4x3x3xf32>
  %wf = linalg.generic {indexing_maps = [#x, affine_map<(a, b, c, d) -> (a)>, #x], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%w, %t : tensor<16x4x3x3xi8>, tensor<16xf32>) outs(%e1 : tensor<16x4x3x3xf32>) {
  ^bb0(%i: i8, %j: f32, %o: f32):
    %0 = arith.sitofp %i : i8 to f32
    %1 = arith.mulf %0, %j : f32
    linalg.yield %1 : f32
  } -> tensor<16x4x3x3xf32>
  %r = disc_tensor.reshape %wf() : tensor<16x4x3x3xf32> -> tensor<2x8x4x3x3xf32>
  %p = disc_tensor.permute %r [0, 1, 3, 4, 2] : tensor<2x8x4x3x3xf32> -> tensor<2x8x3x3x4xf32>
  %y = disc_tensor.convolution %xf, %p strides [1, 1] low [1, 1] high [1, 1] dilations [1, 1] input_dilations [1, 1]
      : tensor<?x?x?x8xf32>, tensor<2x8x3x3x4xf32> -> tensor<?x?x?x16xf32>
  return %y : tensor<?x?x?x16xf32>
}
}

// -----

#x = affine_map<(a, b, c, d) -> (a, b, c, d)>
#w = affine_map<(a, b, c, d, e) -> (a, b, c, d, e)>
module attributes {disc_plan.target = #disc_plan.target<i8_dot_mixed = true>} {
disc_shape.symbol @N min 1
disc_shape.symbol @H min 1
func.func @main(%x: tensor<?x?x?x2xi8> {disc_shape.dims = #disc_shape.dims<[N, H, H, 2]>}) -> tensor<?x?x?x16xf32> {
  %w = disc_tensor.parameter "w" : tensor<16x1x3x3xi8>
  %t = disc_tensor.parameter "t" : tensor<16xf32>
  %n = disc_shape.dim <N>
  %h = disc_shape.dim <H>
  %e0 = tensor.empty(%n, %h, %h) : tensor<?x?x?x2xf32>
  %xf = linalg.generic {indexing_maps = [#x, #x], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%x : tensor<?x?x?x2xi8>) outs(%e0 : tensor<?x?x?x2xf32>) {
  ^bb0(%i: i8, %o: f32):
    %zero = arith.constant 7.0 : f32
    %scale = arith.constant 0.25 : f32
    %0 = arith.uitofp %i : i8 to f32
    %1 = arith.subf %0, %zero : f32
    %2 = arith.mulf %1, %scale : f32
    linalg.yield %2 : f32
  } -> tensor<?x?x?x2xf32>
  %e1 = tensor.empty() : tensor<16x1x3x3xf32>
  %wf = linalg.generic {indexing_maps = [#x, affine_map<(a, b, c, d) -> (a)>, #x], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%w, %t : tensor<16x1x3x3xi8>, tensor<16xf32>) outs(%e1 : tensor<16x1x3x3xf32>) {
  ^bb0(%i: i8, %j: f32, %o: f32):
    %0 = arith.sitofp %i : i8 to f32
    %1 = arith.mulf %0, %j : f32
    linalg.yield %1 : f32
  } -> tensor<16x1x3x3xf32>
  %r = disc_tensor.reshape %wf() : tensor<16x1x3x3xf32> -> tensor<2x8x1x3x3xf32>
  %p = disc_tensor.permute %r [0, 1, 3, 4, 2] : tensor<2x8x1x3x3xf32> -> tensor<2x8x3x3x1xf32>
  %y = disc_tensor.convolution %xf, %p strides [1, 1] low [1, 1] high [1, 1] dilations [1, 1] input_dilations [1, 1]
      : tensor<?x?x?x2xf32>, tensor<2x8x3x3x1xf32> -> tensor<?x?x?x16xf32>
  return %y : tensor<?x?x?x16xf32>
}
}
