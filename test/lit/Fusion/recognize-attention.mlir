// Products around a softmax become attention; what does not fit stays.
// RUN: disc-opt %s -disc-fusion-recognize-attention | FileCheck %s

#id = affine_map<(b, h, i, j) -> (b, h, i, j)>
#row = affine_map<(b, h, i, j) -> (b, h, i)>
#keymask = affine_map<(b, h, i, j) -> (b, j)>
#q = affine_map<(b, h, i, j, e) -> (b, h, i, e)>
#kt = affine_map<(b, h, i, j, e) -> (b, e, j)>
#s = affine_map<(b, h, i, j, e) -> (b, h, i, j)>
#p = affine_map<(b, h, i, c, j) -> (b, h, i, j)>
#v = affine_map<(b, h, i, c, j) -> (b, j, c)>
#o = affine_map<(b, h, i, c, j) -> (b, h, i, c)>
module {
  disc_shape.symbol @B min 1 max 64
  disc_shape.symbol @L min 1 max 512
  disc_shape.symbol @S min 1 max 512

  // Keys and values that all heads share are broadcast views; a mask of booleans that fills in becomes a term.
  // CHECK-LABEL: func.func @one_head_of_keys
  // CHECK: %[[K:.*]] = disc_tensor.permute %{{.*}} [0, 2, 1]
  // CHECK: %[[KEYS:.*]] = disc_tensor.broadcast %[[K]]({{.*}}) [0, 2, 3]
  // CHECK: %[[VALUES:.*]] = disc_tensor.broadcast %{{.*}}({{.*}}) [0, 2, 3]
  // CHECK: %[[TERM:.*]] = linalg.generic
  // CHECK: arith.select
  // CHECK: %[[MASK:.*]] = disc_tensor.reshape %[[TERM]]
  // CHECK: %[[Y:.*]] = disc_tensor.attention %{{.*}}, %[[KEYS]], %[[VALUES]] mask %[[MASK]] : tensor<?x1x1x?xf32> scale 1.250000e-01 causal false {nan_rows}
  // CHECK-NOT: linalg.generic
  // CHECK: return %[[Y]]
  func.func @one_head_of_keys(%q: tensor<?x6x?x16xf32> {disc_shape.dims = #disc_shape.dims<[B, 6, L, 16]>}, %k: tensor<?x16x?xf32> {disc_shape.dims = #disc_shape.dims<[B, 16, S]>}, %v: tensor<?x?x8xf32> {disc_shape.dims = #disc_shape.dims<[B, S, 8]>}, %m: tensor<?x?xi1> {disc_shape.dims = #disc_shape.dims<[B, S]>}) -> tensor<?x6x?x8xf32> {
    %b = disc_shape.dim <B>
    %l = disc_shape.dim <L>
    %s = disc_shape.dim <S>
    %zero = arith.constant 0.0 : f32
    %least = arith.constant 0xFF800000 : f32
    %e0 = tensor.empty(%b, %l, %s) : tensor<?x6x?x?xf32>
    %e1 = tensor.empty(%b, %l) : tensor<?x6x?xf32>
    %e2 = tensor.empty(%b, %l) : tensor<?x6x?x8xf32>
    %f0 = linalg.fill ins(%zero : f32) outs(%e0 : tensor<?x6x?x?xf32>) -> tensor<?x6x?x?xf32>
    %f1 = linalg.fill ins(%least : f32) outs(%e1 : tensor<?x6x?xf32>) -> tensor<?x6x?xf32>
    %f2 = linalg.fill ins(%zero : f32) outs(%e1 : tensor<?x6x?xf32>) -> tensor<?x6x?xf32>
    %f3 = linalg.fill ins(%zero : f32) outs(%e2 : tensor<?x6x?x8xf32>) -> tensor<?x6x?x8xf32>
    %0 = linalg.generic {indexing_maps = [#q, #kt, #s], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction"]} ins(%q, %k : tensor<?x6x?x16xf32>, tensor<?x16x?xf32>) outs(%f0 : tensor<?x6x?x?xf32>) {
    ^bb0(%x: f32, %y: f32, %out: f32):
      %t = arith.mulf %x, %y : f32
      %u = arith.addf %out, %t : f32
      linalg.yield %u : f32
    } -> tensor<?x6x?x?xf32>
    %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%0 : tensor<?x6x?x?xf32>) outs(%e0 : tensor<?x6x?x?xf32>) {
    ^bb0(%x: f32, %out: f32):
      %c = arith.constant 8.0 : f32
      %t = arith.divf %x, %c : f32
      linalg.yield %t : f32
    } -> tensor<?x6x?x?xf32>
    %2 = linalg.generic {indexing_maps = [#keymask, #id, #id], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%m, %1 : tensor<?x?xi1>, tensor<?x6x?x?xf32>) outs(%e0 : tensor<?x6x?x?xf32>) {
    ^bb0(%w: i1, %x: f32, %out: f32):
      %c = arith.constant -3.40282347E+38 : f32
      %t = arith.select %w, %c, %x : f32
      linalg.yield %t : f32
    } -> tensor<?x6x?x?xf32>
    %3 = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%2 : tensor<?x6x?x?xf32>) outs(%f1 : tensor<?x6x?xf32>) {
    ^bb0(%x: f32, %out: f32):
      %t = arith.maximumf %out, %x : f32
      linalg.yield %t : f32
    } -> tensor<?x6x?xf32>
    %4 = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%2, %3 : tensor<?x6x?x?xf32>, tensor<?x6x?xf32>) outs(%e0 : tensor<?x6x?x?xf32>) {
    ^bb0(%x: f32, %y: f32, %out: f32):
      %t = arith.subf %x, %y : f32
      %u = math.exp %t : f32
      linalg.yield %u : f32
    } -> tensor<?x6x?x?xf32>
    %5 = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%4 : tensor<?x6x?x?xf32>) outs(%f2 : tensor<?x6x?xf32>) {
    ^bb0(%x: f32, %out: f32):
      %t = arith.addf %out, %x : f32
      linalg.yield %t : f32
    } -> tensor<?x6x?xf32>
    %6 = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%4, %5 : tensor<?x6x?x?xf32>, tensor<?x6x?xf32>) outs(%e0 : tensor<?x6x?x?xf32>) {
    ^bb0(%x: f32, %y: f32, %out: f32):
      %t = arith.divf %x, %y : f32
      linalg.yield %t : f32
    } -> tensor<?x6x?x?xf32>
    %7 = linalg.generic {indexing_maps = [#p, #v, #o], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction"]} ins(%6, %v : tensor<?x6x?x?xf32>, tensor<?x?x8xf32>) outs(%f3 : tensor<?x6x?x8xf32>) {
    ^bb0(%x: f32, %y: f32, %out: f32):
      %t = arith.mulf %x, %y : f32
      %u = arith.addf %out, %t : f32
      linalg.yield %u : f32
    } -> tensor<?x6x?x8xf32>
    return %7 : tensor<?x6x?x8xf32>
  }

  // The weights are wanted too: two products and a softmax.
  // CHECK-LABEL: func.func @weights_returned
  // CHECK-NOT: disc_tensor.attention
  // CHECK: return
  func.func @weights_returned(%q: tensor<4x8xf32>, %k: tensor<8x5xf32>, %v: tensor<5x3xf32>) -> (tensor<4x3xf32>, tensor<4x5xf32>) {
    %zero = arith.constant 0.0 : f32
    %least = arith.constant 0xFF800000 : f32
    %e0 = tensor.empty() : tensor<4x5xf32>
    %e1 = tensor.empty() : tensor<4xf32>
    %e2 = tensor.empty() : tensor<4x3xf32>
    %f0 = linalg.fill ins(%zero : f32) outs(%e0 : tensor<4x5xf32>) -> tensor<4x5xf32>
    %f1 = linalg.fill ins(%least : f32) outs(%e1 : tensor<4xf32>) -> tensor<4xf32>
    %f2 = linalg.fill ins(%zero : f32) outs(%e1 : tensor<4xf32>) -> tensor<4xf32>
    %f3 = linalg.fill ins(%zero : f32) outs(%e2 : tensor<4x3xf32>) -> tensor<4x3xf32>
    %0 = linalg.matmul ins(%q, %k : tensor<4x8xf32>, tensor<8x5xf32>) outs(%f0 : tensor<4x5xf32>) -> tensor<4x5xf32>
    %1 = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>], iterator_types = ["parallel", "reduction"]} ins(%0 : tensor<4x5xf32>) outs(%f1 : tensor<4xf32>) {
    ^bb0(%x: f32, %out: f32):
      %t = arith.maximumf %out, %x : f32
      linalg.yield %t : f32
    } -> tensor<4xf32>
    %2 = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]} ins(%0, %1 : tensor<4x5xf32>, tensor<4xf32>) outs(%e0 : tensor<4x5xf32>) {
    ^bb0(%x: f32, %y: f32, %out: f32):
      %t = arith.subf %x, %y : f32
      %u = math.exp %t : f32
      linalg.yield %u : f32
    } -> tensor<4x5xf32>
    %3 = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>], iterator_types = ["parallel", "reduction"]} ins(%2 : tensor<4x5xf32>) outs(%f2 : tensor<4xf32>) {
    ^bb0(%x: f32, %out: f32):
      %t = arith.addf %out, %x : f32
      linalg.yield %t : f32
    } -> tensor<4xf32>
    %4 = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]} ins(%2, %3 : tensor<4x5xf32>, tensor<4xf32>) outs(%e0 : tensor<4x5xf32>) {
    ^bb0(%x: f32, %y: f32, %out: f32):
      %t = arith.divf %x, %y : f32
      linalg.yield %t : f32
    } -> tensor<4x5xf32>
    %5 = linalg.generic {indexing_maps = [affine_map<(i, c, j) -> (i, j)>, affine_map<(i, c, j) -> (j, c)>, affine_map<(i, c, j) -> (i, c)>], iterator_types = ["parallel", "parallel", "reduction"]} ins(%4, %v : tensor<4x5xf32>, tensor<5x3xf32>) outs(%f3 : tensor<4x3xf32>) {
    ^bb0(%x: f32, %y: f32, %out: f32):
      %t = arith.mulf %x, %y : f32
      %u = arith.addf %out, %t : f32
      linalg.yield %u : f32
    } -> tensor<4x3xf32>
    return %5, %4 : tensor<4x3xf32>, tensor<4x5xf32>
  }
}
