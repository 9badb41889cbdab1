// Permutations between convolutions move out to the borders.
// RUN: disc-opt %s -disc-fusion-channels-last | FileCheck %s

#id = affine_map<(n, c, h, w) -> (n, c, h, w)>
#mean = affine_map<(n, c, h, w) -> (n, c)>
// CHECK-DAG: #[[$ID:.*]] = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
// CHECK-DAG: #[[$MEAN:.*]] = affine_map<(d0, d1, d2, d3) -> (d0, d3)>
module {
  disc_shape.symbol @B min 1
  disc_shape.symbol @H min 8

  // The activation and the concatenation have their channels last; only the net's input and a result are permuted.
  // CHECK-LABEL: func.func @main
  func.func @main(%x: tensor<?x8x?x?xf32> {disc_shape.dims = #disc_shape.dims<[B, 8, H, H]>}) -> (tensor<?x16x?x?xf32> {disc_shape.dims = #disc_shape.dims<[B, 16, H, H]>}, tensor<?x16xf32> {disc_shape.dims = #disc_shape.dims<[B, 16]>}) {
    %zero = arith.constant 0.0 : f32
    %w = disc_tensor.parameter "w" : tensor<1x8x3x3x8xf32>
    %b = disc_shape.dim <B>
    %h = disc_shape.dim <H>
    // CHECK: %[[X:.*]] = disc_tensor.permute %{{.*}} [0, 2, 3, 1]
    // CHECK: %[[C:.*]] = disc_tensor.convolution %[[X]]
    // CHECK: %[[R:.*]] = linalg.generic {indexing_maps = [#[[$ID]], #[[$ID]]]
    // CHECK-SAME: ins(%[[C]] : tensor<?x?x?x8xf32>)
    // CHECK: %[[J:.*]] = disc_tensor.concat %[[R]], %[[C]] dim 3
    // CHECK: %[[Y:.*]] = disc_tensor.permute %[[J]] [0, 3, 1, 2]
    // CHECK: linalg.generic {indexing_maps = [#[[$ID]], #[[$MEAN]]], iterator_types = ["parallel", "reduction", "reduction", "parallel"]}
    // CHECK-SAME: ins(%[[J]] : tensor<?x?x?x16xf32>)
    // CHECK: return %[[Y]]
    %0 = disc_tensor.permute %x [0, 2, 3, 1] {disc_shape.dims = [#disc_shape.dims<[B, H, H, 8]>]} : tensor<?x8x?x?xf32> -> tensor<?x?x?x8xf32>
    %1 = disc_tensor.convolution %0, %w strides [1, 1] low [1, 1] high [1, 1] dilations [1, 1] input_dilations [1, 1] {disc_shape.dims = [#disc_shape.dims<[B, H, H, 8]>]} : tensor<?x?x?x8xf32>, tensor<1x8x3x3x8xf32> -> tensor<?x?x?x8xf32>
    %2 = disc_tensor.permute %1 [0, 3, 1, 2] {disc_shape.dims = [#disc_shape.dims<[B, 8, H, H]>]} : tensor<?x?x?x8xf32> -> tensor<?x8x?x?xf32>
    %e = tensor.empty(%b, %h, %h) {disc_shape.dims = [#disc_shape.dims<[B, 8, H, H]>]} : tensor<?x8x?x?xf32>
    %3 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%2 : tensor<?x8x?x?xf32>) outs(%e : tensor<?x8x?x?xf32>) attrs = {disc_shape.dims = [#disc_shape.dims<[B, 8, H, H]>]} {
    ^bb0(%a: f32, %o: f32):
      %m = arith.maximumf %a, %zero : f32
      linalg.yield %m : f32
    } -> tensor<?x8x?x?xf32>
    %4 = disc_tensor.concat %3, %2 dim 1 {disc_shape.dims = [#disc_shape.dims<[B, 16, H, H]>]} : tensor<?x8x?x?xf32>, tensor<?x8x?x?xf32> -> tensor<?x16x?x?xf32>
    %f = tensor.empty(%b) {disc_shape.dims = [#disc_shape.dims<[B, 16]>]} : tensor<?x16xf32>
    %g = linalg.fill {disc_shape.dims = [#disc_shape.dims<[B, 16]>]} ins(%zero : f32) outs(%f : tensor<?x16xf32>) -> tensor<?x16xf32>
    %5 = linalg.generic {indexing_maps = [#id, #mean], iterator_types = ["parallel", "parallel", "reduction", "reduction"]} ins(%4 : tensor<?x16x?x?xf32>) outs(%g : tensor<?x16xf32>) attrs = {disc_shape.dims = [#disc_shape.dims<[B, 16]>]} {
    ^bb0(%a: f32, %o: f32):
      %s = arith.addf %o, %a : f32
      linalg.yield %s : f32
    } -> tensor<?x16xf32>
    return %4, %5 : tensor<?x16x?x?xf32>, tensor<?x16xf32>
  }

  // A slice of channels is one of the last dimension; without a convolution nothing changes.
  // CHECK-LABEL: func.func @without
  // CHECK: disc_tensor.permute %{{.*}} [0, 3, 1, 2]
  // CHECK: disc_tensor.slice %{{.*}} dim 1 step 1
  func.func @without(%x: tensor<2x8x8x4xf32>) -> tensor<2x2x8x8xf32> {
    %c0 = arith.constant 0 : index
    %c2 = arith.constant 2 : index
    %0 = disc_tensor.permute %x [0, 3, 1, 2] : tensor<2x8x8x4xf32> -> tensor<2x4x8x8xf32>
    %1 = disc_tensor.slice %0[%c0, %c2] dim 1 step 1 : tensor<2x4x8x8xf32> -> tensor<2x2x8x8xf32>
    return %1 : tensor<2x2x8x8xf32>
  }

  // CHECK-LABEL: func.func @slice
  // CHECK: %[[C:.*]] = disc_tensor.convolution
  // CHECK: %[[S:.*]] = disc_tensor.slice %[[C]][%{{.*}}, %{{.*}}] dim 3 step 1
  // CHECK: disc_tensor.permute %[[S]] [0, 3, 1, 2]
  func.func @slice(%x: tensor<2x8x8x4xf32>) -> tensor<2x2x8x8xf32> {
    %c0 = arith.constant 0 : index
    %c2 = arith.constant 2 : index
    %w = disc_tensor.parameter "v" : tensor<1x4x3x3x4xf32>
    %y = disc_tensor.convolution %x, %w strides [1, 1] low [1, 1] high [1, 1] dilations [1, 1] input_dilations [1, 1] : tensor<2x8x8x4xf32>, tensor<1x4x3x3x4xf32> -> tensor<2x8x8x4xf32>
    %0 = disc_tensor.permute %y [0, 3, 1, 2] : tensor<2x8x8x4xf32> -> tensor<2x4x8x8xf32>
    %1 = disc_tensor.slice %0[%c0, %c2] dim 1 step 1 : tensor<2x4x8x8xf32> -> tensor<2x2x8x8xf32>
    return %1 : tensor<2x2x8x8xf32>
  }

  // With three dims the orders are each other's inverse: one of two is no reason to permute the other.
  // CHECK-LABEL: func.func @tie
  // CHECK: disc_tensor.permute %{{.*}} [0, 2, 1]
  // CHECK-NEXT: disc_tensor.concat
  // CHECK-NEXT: return
  func.func @tie(%x: tensor<2x8x4xf32>, %w: tensor<1x4x3x4xf32>, %z: tensor<2x4x1xf32>) -> tensor<2x4x9xf32> {
    %c = disc_tensor.convolution %x, %w strides [1] low [1] high [1] dilations [1] input_dilations [1] : tensor<2x8x4xf32>, tensor<1x4x3x4xf32> -> tensor<2x8x4xf32>
    %0 = disc_tensor.permute %c [0, 2, 1] : tensor<2x8x4xf32> -> tensor<2x4x8xf32>
    %1 = disc_tensor.concat %0, %z dim 2 : tensor<2x4x8xf32>, tensor<2x4x1xf32> -> tensor<2x4x9xf32>
    return %1 : tensor<2x4x9xf32>
  }

  // The same for one of two sides of a branch: a permutation put on the other side would move to and fro without end.
  // CHECK-LABEL: func.func @sides
  // CHECK: disc_tensor.permute %{{.*}} [0, 2, 1]
  // CHECK: disc_tensor.branch
  // CHECK-NOT: disc_tensor.permute
  // CHECK: return
  func.func @sides(%x: tensor<2x8x4xf32>, %w: tensor<1x4x3x4xf32>, %z: tensor<2x4x8xf32>, %p: tensor<i1>) -> tensor<2x4x8xf32> {
    %c = disc_tensor.convolution %x, %w strides [1] low [1] high [1] dilations [1] input_dilations [1] : tensor<2x8x4xf32>, tensor<1x4x3x4xf32> -> tensor<2x8x4xf32>
    %0 = disc_tensor.permute %c [0, 2, 1] : tensor<2x8x4xf32> -> tensor<2x4x8xf32>
    %1 = disc_tensor.branch %p {disc_shape.dims = [#disc_shape.dims<[2, 4, 8]>]} : tensor<i1> -> (tensor<2x4x8xf32>) {
      disc_tensor.yield %0 : tensor<2x4x8xf32>
    } else {
      disc_tensor.yield %z : tensor<2x4x8xf32>
    }
    return %1 : tensor<2x4x8xf32>
  }

  // Groups of channels are split where they lie; sums over a group of one channel run over the columns.
  // CHECK-LABEL: func.func @groups
  // CHECK: %[[R:.*]] = disc_tensor.reshape %{{.*}} : tensor<2x?x6xf32> -> tensor<2x?x6x1xf32>
  // CHECK: linalg.generic {{.*}} iterator_types = ["reduction", "parallel", "reduction", "parallel"]} ins(%[[R]] :
  // CHECK: %[[T:.*]] = disc_tensor.reshape %{{.*}} : tensor<2x?x6xf32> -> tensor<2x?x2x3xf32>
  // CHECK: linalg.generic {{.*}} iterator_types = ["parallel", "parallel", "reduction", "reduction"]} ins(%[[T]] :
  func.func @groups(%x: tensor<2x?x4xf32> {disc_shape.dims = #disc_shape.dims<[2, H, 4]>}) -> (tensor<2x6xf32>, tensor<2x2xf32>) {
    %w = disc_tensor.parameter "g" : tensor<1x6x1x4xf32>
    %h = disc_shape.dim <H>
    %zero = arith.constant 0.0 : f32
    %c = disc_tensor.convolution %x, %w strides [1] low [0] high [0] dilations [1] input_dilations [1] {disc_shape.dims = [#disc_shape.dims<[2, H, 6]>]} : tensor<2x?x4xf32>, tensor<1x6x1x4xf32> -> tensor<2x?x6xf32>
    %0 = disc_tensor.permute %c [0, 2, 1] {disc_shape.dims = [#disc_shape.dims<[2, 6, H]>]} : tensor<2x?x6xf32> -> tensor<2x6x?xf32>
    %1 = disc_tensor.reshape %0(%h) {disc_shape.dims = [#disc_shape.dims<[2, 6, 1, H]>]} : tensor<2x6x?xf32> -> tensor<2x6x1x?xf32>
    %e1 = tensor.empty() : tensor<2x6xf32>
    %f1 = linalg.fill ins(%zero : f32) outs(%e1 : tensor<2x6xf32>) -> tensor<2x6xf32>
    %s1 = linalg.generic {indexing_maps = [#id, affine_map<(n, c, h, w) -> (n, c)>], iterator_types = ["parallel", "parallel", "reduction", "reduction"]} ins(%1 : tensor<2x6x1x?xf32>) outs(%f1 : tensor<2x6xf32>) {
    ^bb0(%i: f32, %o: f32):
      %a = arith.addf %o, %i : f32
      linalg.yield %a : f32
    } -> tensor<2x6xf32>
    %2 = disc_tensor.reshape %0(%h) {disc_shape.dims = [#disc_shape.dims<[2, 2, 3, H]>]} : tensor<2x6x?xf32> -> tensor<2x2x3x?xf32>
    %e2 = tensor.empty() : tensor<2x2xf32>
    %f2 = linalg.fill ins(%zero : f32) outs(%e2 : tensor<2x2xf32>) -> tensor<2x2xf32>
    %s2 = linalg.generic {indexing_maps = [#id, affine_map<(n, c, h, w) -> (n, c)>], iterator_types = ["parallel", "parallel", "reduction", "reduction"]} ins(%2 : tensor<2x2x3x?xf32>) outs(%f2 : tensor<2x2xf32>) {
    ^bb0(%i: f32, %o: f32):
      %a = arith.addf %o, %i : f32
      linalg.yield %a : f32
    } -> tensor<2x2xf32>
    return %s1, %s2 : tensor<2x6xf32>, tensor<2x2xf32>
  }
}
