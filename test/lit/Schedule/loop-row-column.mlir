// Tasks, scratch memory and costs of kernels without products.
// RUN: disc-opt %s -disc-schedule-kernels | FileCheck %s

module attributes {disc_plan.target = #disc_plan.target<vector_bits = 512>} {
disc_shape.symbol @B min 1
disc_shape.symbol @S min 1 max 512

// Chunks of 4096 elements, wherever rows end.
// CHECK-LABEL: func.func @loop
// CHECK: disc_plan.kernel loop
// CHECK-SAME: #disc_plan.loop<chunk = 4096, unroll = 4>
// CHECK-SAME: scratch = #disc_shape.expr<0>
// CHECK-SAME: tasks = #disc_shape.expr<(B * S + 4095) floordiv 4096>
func.func @loop(%x: tensor<?x?xf32> {disc_shape.dims = #disc_shape.dims<[B, S]>})
    -> (tensor<?x?xf32> {disc_shape.dims = #disc_shape.dims<[B, S]>}) {
  %0 = disc_plan.kernel loop ins(%x : tensor<?x?xf32>) -> tensor<?x?xf32> {
  ^bb0(%a: tensor<?x?xf32>):
    %b = disc_shape.dim <B>
    %s = disc_shape.dim <S>
    %e = tensor.empty(%b, %s) : tensor<?x?xf32>
    %r = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>],
                         iterator_types = ["parallel", "parallel"]}
        ins(%a : tensor<?x?xf32>) outs(%e : tensor<?x?xf32>) {
    ^bb0(%v: f32, %o: f32):
      %w = arith.addf %v, %v : f32
      linalg.yield %w : f32
    } -> tensor<?x?xf32>
    disc_plan.yield %r : tensor<?x?xf32>
  }
  return %0 : tensor<?x?xf32>
}

// A task per row. The exponentials are kept for the second pass: a row of floats, in whole cache lines.
// CHECK-LABEL: func.func @row
// CHECK: disc_plan.kernel row
// CHECK-SAME: #disc_plan.row<accumulators = 2
// CHECK-SAME: scratch = #disc_shape.expr<((max(S, min(S, 16) * 16) + 15) floordiv 16) * 64>
// CHECK-SAME: tasks = #disc_shape.expr<B>
func.func @row(%x: tensor<?x?xf32> {disc_shape.dims = #disc_shape.dims<[B, S]>})
    -> (tensor<?x?xf32> {disc_shape.dims = #disc_shape.dims<[B, S]>}) {
  %0 = disc_plan.kernel row ins(%x : tensor<?x?xf32>) -> tensor<?x?xf32> {
  ^bb0(%a: tensor<?x?xf32>):
    %b = disc_shape.dim <B>
    %s = disc_shape.dim <S>
    %zero = arith.constant 0.0 : f32
    %er = tensor.empty(%b) : tensor<?xf32>
    %e = tensor.empty(%b, %s) : tensor<?x?xf32>
    %zeros = linalg.fill ins(%zero : f32) outs(%er : tensor<?xf32>) -> tensor<?xf32>
    %p = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>],
                         iterator_types = ["parallel", "parallel"]}
        ins(%a : tensor<?x?xf32>) outs(%e : tensor<?x?xf32>) {
    ^bb0(%v: f32, %o: f32):
      %w = math.exp %v : f32
      linalg.yield %w : f32
    } -> tensor<?x?xf32>
    %t = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>],
                         iterator_types = ["parallel", "reduction"]}
        ins(%p : tensor<?x?xf32>) outs(%zeros : tensor<?xf32>) {
    ^bb0(%v: f32, %o: f32):
      %w = arith.addf %v, %o : f32
      linalg.yield %w : f32
    } -> tensor<?xf32>
    %r = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>,
                                          affine_map<(i, j) -> (i, j)>],
                         iterator_types = ["parallel", "parallel"]}
        ins(%p, %t : tensor<?x?xf32>, tensor<?xf32>) outs(%e : tensor<?x?xf32>) {
    ^bb0(%v: f32, %u: f32, %o: f32):
      %w = arith.divf %v, %u : f32
      linalg.yield %w : f32
    } -> tensor<?x?xf32>
    disc_plan.yield %r : tensor<?x?xf32>
  }
  return %0 : tensor<?x?xf32>
}

// Blocks of four vectors of columns.
// CHECK-LABEL: func.func @column
// CHECK: disc_plan.kernel column
// CHECK-SAME: #disc_plan.column<blocks = 4>
// CHECK-SAME: tasks = #disc_shape.expr<B * 6>
func.func @column(%x: tensor<?x?x384xf32> {disc_shape.dims = #disc_shape.dims<[B, S, 384]>})
    -> (tensor<?x384xf32> {disc_shape.dims = #disc_shape.dims<[B, 384]>}) {
  %0 = disc_plan.kernel column ins(%x : tensor<?x?x384xf32>) -> tensor<?x384xf32> {
  ^bb0(%a: tensor<?x?x384xf32>):
    %b = disc_shape.dim <B>
    %zero = arith.constant 0.0 : f32
    %e = tensor.empty(%b) : tensor<?x384xf32>
    %zeros = linalg.fill ins(%zero : f32) outs(%e : tensor<?x384xf32>) -> tensor<?x384xf32>
    %t = linalg.generic {indexing_maps = [affine_map<(i, j, k) -> (i, j, k)>, affine_map<(i, j, k) -> (i, k)>],
                         iterator_types = ["parallel", "reduction", "parallel"]}
        ins(%a : tensor<?x?x384xf32>) outs(%zeros : tensor<?x384xf32>) {
    ^bb0(%v: f32, %o: f32):
      %w = arith.addf %v, %o : f32
      linalg.yield %w : f32
    } -> tensor<?x384xf32>
    disc_plan.yield %t : tensor<?x384xf32>
  }
  return %0 : tensor<?x384xf32>
}
}
