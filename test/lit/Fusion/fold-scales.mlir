// A bias, a scale and a shift after a convolution: weights and a new bias are computed at load.
// RUN: disc-opt %s -disc-fusion-fold-scales | FileCheck %s

#id = affine_map<(n, h, c) -> (n, h, c)>
#c = affine_map<(n, h, c) -> (c)>
#u = affine_map<(n, h, c) -> (0, c)>
#x = affine_map<(n, c, k) -> (n, k)>
#w = affine_map<(n, c, k) -> (c, k)>
#y = affine_map<(n, c, k) -> (n, c)>
#pid = affine_map<(n, c) -> (n, c)>
#pc = affine_map<(n, c) -> (c)>
module {
  // CHECK-LABEL: func.func @convolution
  // CHECK-SAME: (%[[X:.*]]: tensor<2x9x8xf32>
  // CHECK-DAG: %[[W:.*]] = disc_tensor.parameter "w"
  // CHECK-DAG: %[[B:.*]] = disc_tensor.parameter "b"
  // CHECK-DAG: %[[S:.*]] = disc_tensor.parameter "s"
  // CHECK-DAG: %[[T:.*]] = disc_tensor.parameter "t"
  // b * s + t
  // CHECK: %[[SHIFT:.*]] = linalg.generic {{.*}} ins(%[[S]], %[[T]], %{{.*}} : tensor<1x4xf32>, tensor<4xf32>, tensor<4xf32>)
  // CHECK: %[[SCALED:.*]] = linalg.generic {{.*}} ins(%[[W]], %{{.*}} : tensor<1x4x3x8xf32>, tensor<1x4xf32>)
  // CHECK: arith.mulf
  // CHECK: %[[Y:.*]] = disc_tensor.convolution %[[X]], %[[SCALED]]
  // CHECK: linalg.generic
  // CHECK-SAME: ins(%[[Y]], %[[SHIFT]] : tensor<2x7x4xf32>, tensor<4xf32>)
  // CHECK-NEXT: ^bb0
  // CHECK-NEXT: arith.addf
  // CHECK-NEXT: linalg.yield
  func.func @convolution(%x: tensor<2x9x8xf32>) -> tensor<2x7x4xf32> {
    %w = disc_tensor.parameter "w" : tensor<1x4x3x8xf32>
    %b = disc_tensor.parameter "b" : tensor<4xf32>
    %s = disc_tensor.parameter "s" : tensor<1x4xf32>
    %t = disc_tensor.parameter "t" : tensor<4xf32>
    %y = disc_tensor.convolution %x, %w strides [1] low [0] high [0] dilations [1] input_dilations [1] : tensor<2x9x8xf32>, tensor<1x4x3x8xf32> -> tensor<2x7x4xf32>
    %e = tensor.empty() : tensor<2x7x4xf32>
    %1 = linalg.generic {indexing_maps = [#id, #c, #id], iterator_types = ["parallel", "parallel", "parallel"]} ins(%y, %b : tensor<2x7x4xf32>, tensor<4xf32>) outs(%e : tensor<2x7x4xf32>) {
    ^bb0(%a: f32, %c: f32, %o: f32):
      %0 = arith.addf %a, %c : f32
      linalg.yield %0 : f32
    } -> tensor<2x7x4xf32>
    %2 = linalg.generic {indexing_maps = [#id, #u, #c, #id], iterator_types = ["parallel", "parallel", "parallel"]} ins(%1, %s, %t : tensor<2x7x4xf32>, tensor<1x4xf32>, tensor<4xf32>) outs(%e : tensor<2x7x4xf32>) {
    ^bb0(%a: f32, %c: f32, %d: f32, %o: f32):
      %0 = arith.mulf %a, %c : f32
      %3 = arith.addf %0, %d : f32
      linalg.yield %3 : f32
    } -> tensor<2x7x4xf32>
    return %2 : tensor<2x7x4xf32>
  }

  // A scale alone leaves nothing behind a product.
  // CHECK-LABEL: func.func @product
  // CHECK: %[[P:.*]] = linalg.generic {{.*}} "reduction"]
  // CHECK: return %[[P]]
  func.func @product(%x: tensor<2x8xf32>) -> tensor<2x4xf32> {
    %zero = arith.constant 0.0 : f32
    %w = disc_tensor.parameter "pw" : tensor<4x8xf32>
    %s = disc_tensor.parameter "ps" : tensor<4xf32>
    %e = tensor.empty() : tensor<2x4xf32>
    %f = linalg.fill ins(%zero : f32) outs(%e : tensor<2x4xf32>) -> tensor<2x4xf32>
    %p = linalg.generic {indexing_maps = [#x, #w, #y], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %w : tensor<2x8xf32>, tensor<4x8xf32>) outs(%f : tensor<2x4xf32>) {
    ^bb0(%l: f32, %r: f32, %o: f32):
      %m = arith.mulf %l, %r : f32
      %a = arith.addf %o, %m : f32
      linalg.yield %a : f32
    } -> tensor<2x4xf32>
    %1 = linalg.generic {indexing_maps = [#pid, #pc, #pid], iterator_types = ["parallel", "parallel"]} ins(%p, %s : tensor<2x4xf32>, tensor<4xf32>) outs(%e : tensor<2x4xf32>) {
    ^bb0(%a: f32, %c: f32, %o: f32):
      %0 = arith.mulf %a, %c : f32
      linalg.yield %0 : f32
    } -> tensor<2x4xf32>
    return %1 : tensor<2x4xf32>
  }

  // What reads the sums as they are, and what is not affine, keeps them.
  // CHECK-LABEL: func.func @kept
  // CHECK: disc_tensor.convolution %{{.*}}, %{{.*}} strides
  // CHECK: arith.mulf
  // CHECK: return
  func.func @kept(%x: tensor<2x9x8xf32>) -> (tensor<2x7x4xf32>, tensor<2x7x4xf32>) {
    %w = disc_tensor.parameter "kw" : tensor<1x4x3x8xf32>
    %s = disc_tensor.parameter "ks" : tensor<4xf32>
    %y = disc_tensor.convolution %x, %w strides [1] low [0] high [0] dilations [1] input_dilations [1] : tensor<2x9x8xf32>, tensor<1x4x3x8xf32> -> tensor<2x7x4xf32>
    %e = tensor.empty() : tensor<2x7x4xf32>
    %1 = linalg.generic {indexing_maps = [#id, #c, #id], iterator_types = ["parallel", "parallel", "parallel"]} ins(%y, %s : tensor<2x7x4xf32>, tensor<4xf32>) outs(%e : tensor<2x7x4xf32>) {
    ^bb0(%a: f32, %c: f32, %o: f32):
      %0 = arith.mulf %a, %c : f32
      linalg.yield %0 : f32
    } -> tensor<2x7x4xf32>
    return %y, %1 : tensor<2x7x4xf32>, tensor<2x7x4xf32>
  }
}
