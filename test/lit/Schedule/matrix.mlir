// Products and attention for a device with a matrix unit.
// RUN: disc-opt %s --pass-pipeline='builtin.module(disc-describe-device{device=cuda warp=32 matrix-unit=true},disc-schedule-blocks)' | FileCheck %s

#x = affine_map<(m, n, k) -> (m, k)>
#w = affine_map<(m, n, k) -> (n, k)>
#y = affine_map<(m, n, k) -> (m, n)>
module {
disc_shape.symbol @B min 1
disc_shape.symbol @S min 0 max 512
disc_shape.symbol @M min 1 max 16
disc_shape.symbol @N min 1024

// Few rows have kernels of their own, which stream the columns through six stages: narrow tiles, or wide ones where
// those make many blocks. Beside them are four sizes of tiles, chosen by how many blocks they make; f32 of whole lines
// needs no library.
// CHECK-LABEL: func.func @products
// CHECK: disc_plan.kernel contraction
// CHECK-SAME: schedule = #disc_plan.device_matrix<threads = 128, tile_rows = 64, tile_columns = 64, warp_rows = 32, warp_columns = 32, stages = 4, slices = 1>
// CHECK-SAME: tasks = #disc_shape.expr<((B + 63) floordiv 64) * 2>
// CHECK-SAME: variants = [#disc_plan.variant<#disc_plan.device_matrix<threads = 256, tile_rows = 16, tile_columns = 16, warp_rows = 16, warp_columns = 16, stages = 6, slices = 8>, when = <-B + 17>, tasks = <((B + 15) floordiv 16) * 7>>
// CHECK-SAME: threads = 512, tile_rows = 16, tile_columns = 32, warp_rows = 16, warp_columns = 32, stages = 2, slices = 16>, when = <-((B + 31) floordiv 32) * 4 + 96>, tasks = <((B + 15) floordiv 16) * 4>>
// CHECK-SAME: slices = 8>, when = <-((B + 63) floordiv 64) * 2 + 224>
// CHECK-SAME: warp_rows = 32, warp_columns = 64, stages = 4, slices = 1>, when = <((B + 63) floordiv 64) * 2 - 799>
// What never holds is not there, and what always does is the kernel itself.
// CHECK: disc_plan.kernel contraction
// CHECK-SAME: schedule = #disc_plan.device_matrix<threads = 256, tile_rows = 16, tile_columns = 16, warp_rows = 16, warp_columns = 16, stages = 6, slices = 8>
// CHECK: disc_plan.kernel contraction
// CHECK: disc_plan.kernel contraction
// CHECK-SAME: variants = [#disc_plan.variant<#disc_plan.device_matrix<{{.*}}, warp_rows = 32, warp_columns = 64, stages = 4, slices = 1>, when = <((N + 63) floordiv 64) * 16 - 799>, tasks = <((N + 63) floordiv 64) * 16>>]
func.func @products(%x: tensor<?x40xf32> {disc_shape.dims = #disc_shape.dims<[B, 40]>},
                    %m: tensor<?x40xf32> {disc_shape.dims = #disc_shape.dims<[M, 40]>},
                    %n: tensor<?x40xf32> {disc_shape.dims = #disc_shape.dims<[N, 40]>},
                    %w: tensor<100x40xf32>, %v: tensor<10x40xf32>, %u: tensor<1024x40xf32>)
    -> (tensor<?x100xf32> {disc_shape.dims = #disc_shape.dims<[B, 100]>},
        tensor<?x100xf32> {disc_shape.dims = #disc_shape.dims<[M, 100]>},
        tensor<?x10xf32> {disc_shape.dims = #disc_shape.dims<[B, 10]>},
        tensor<?x1024xf32> {disc_shape.dims = #disc_shape.dims<[N, 1024]>}) {
  %0 = disc_plan.kernel contraction ins(%x, %w : tensor<?x40xf32>, tensor<100x40xf32>) -> tensor<?x100xf32> {
  ^bb0(%a: tensor<?x40xf32>, %b: tensor<100x40xf32>):
    %zero = arith.constant 0.0 : f32
    %d = disc_shape.dim <B>
    %e = tensor.empty(%d) : tensor<?x100xf32>
    %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x100xf32>) -> tensor<?x100xf32>
    %c = linalg.generic {indexing_maps = [#x, #w, #y], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%a, %b : tensor<?x40xf32>, tensor<100x40xf32>) outs(%f : tensor<?x100xf32>) {
    ^bb0(%l: f32, %r: f32, %o: f32):
      %p = arith.mulf %l, %r : f32
      %s = arith.addf %o, %p : f32
      linalg.yield %s : f32
    } -> tensor<?x100xf32>
    disc_plan.yield %c : tensor<?x100xf32>
  }
  %1 = disc_plan.kernel contraction ins(%m, %w : tensor<?x40xf32>, tensor<100x40xf32>) -> tensor<?x100xf32> {
  ^bb0(%a: tensor<?x40xf32>, %b: tensor<100x40xf32>):
    %zero = arith.constant 0.0 : f32
    %d = disc_shape.dim <M>
    %e = tensor.empty(%d) : tensor<?x100xf32>
    %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x100xf32>) -> tensor<?x100xf32>
    %c = linalg.generic {indexing_maps = [#x, #w, #y], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%a, %b : tensor<?x40xf32>, tensor<100x40xf32>) outs(%f : tensor<?x100xf32>) {
    ^bb0(%l: f32, %r: f32, %o: f32):
      %p = arith.mulf %l, %r : f32
      %s = arith.addf %o, %p : f32
      linalg.yield %s : f32
    } -> tensor<?x100xf32>
    disc_plan.yield %c : tensor<?x100xf32>
  }
  %2 = disc_plan.kernel contraction ins(%x, %v : tensor<?x40xf32>, tensor<10x40xf32>) -> tensor<?x10xf32> {
  ^bb0(%a: tensor<?x40xf32>, %b: tensor<10x40xf32>):
    %zero = arith.constant 0.0 : f32
    %d = disc_shape.dim <B>
    %e = tensor.empty(%d) : tensor<?x10xf32>
    %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x10xf32>) -> tensor<?x10xf32>
    %c = linalg.generic {indexing_maps = [#x, #w, #y], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%a, %b : tensor<?x40xf32>, tensor<10x40xf32>) outs(%f : tensor<?x10xf32>) {
    ^bb0(%l: f32, %r: f32, %o: f32):
      %p = arith.mulf %l, %r : f32
      %s = arith.addf %o, %p : f32
      linalg.yield %s : f32
    } -> tensor<?x10xf32>
    disc_plan.yield %c : tensor<?x10xf32>
  }
  %3 = disc_plan.kernel contraction ins(%n, %u : tensor<?x40xf32>, tensor<1024x40xf32>) -> tensor<?x1024xf32> {
  ^bb0(%a: tensor<?x40xf32>, %b: tensor<1024x40xf32>):
    %zero = arith.constant 0.0 : f32
    %d = disc_shape.dim <N>
    %e = tensor.empty(%d) : tensor<?x1024xf32>
    %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x1024xf32>) -> tensor<?x1024xf32>
    %c = linalg.generic {indexing_maps = [#x, #w, #y], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%a, %b : tensor<?x40xf32>, tensor<1024x40xf32>) outs(%f : tensor<?x1024xf32>) {
    ^bb0(%l: f32, %r: f32, %o: f32):
      %p = arith.mulf %l, %r : f32
      %s = arith.addf %o, %p : f32
      linalg.yield %s : f32
    } -> tensor<?x1024xf32>
    disc_plan.yield %c : tensor<?x1024xf32>
  }
  return %0, %1, %2, %3 : tensor<?x100xf32>, tensor<?x100xf32>, tensor<?x10xf32>, tensor<?x1024xf32>
}

// Filters are read line by line, pixels are not: large convolutions are a library's, if it has them.
// CHECK-LABEL: func.func @convolution
// CHECK: disc_plan.kernel convolution
// CHECK-SAME: library = <
func.func @convolution(%x: tensor<?x?x?x32xf32> {disc_shape.dims = #disc_shape.dims<[B, N, N, 32]>},
                       %w: tensor<2x80x3x3x16xf32>)
    -> (tensor<?x?x?x160xf32> {disc_shape.dims = #disc_shape.dims<[B, N, N, 160]>}) {
  %0 = disc_plan.kernel convolution ins(%x, %w : tensor<?x?x?x32xf32>, tensor<2x80x3x3x16xf32>) -> tensor<?x?x?x160xf32> {
  ^bb0(%a: tensor<?x?x?x32xf32>, %b: tensor<2x80x3x3x16xf32>):
    %y = disc_tensor.convolution %a, %b strides [1, 1] low [1, 1] high [1, 1] dilations [1, 1] input_dilations [1, 1] : tensor<?x?x?x32xf32>, tensor<2x80x3x3x16xf32> -> tensor<?x?x?x160xf32>
    disc_plan.yield %y : tensor<?x?x?x160xf32>
  }
  return %0 : tensor<?x?x?x160xf32>
}

// 64 queries of a head for each block, 16 for each warp.
// CHECK-LABEL: func.func @attention
// CHECK: disc_plan.kernel attention
// CHECK-SAME: tensor<?x12x?x32xf32>, tensor<?xf32>
// CHECK-SAME: schedule = #disc_plan.device_attention<threads = 128, queries = 64, keys = 32, warp_rows = 16>
// CHECK-SAME: tasks = #disc_shape.expr<B * ((S + 63) floordiv 64) * 12>
// CHECK-SAME: variants = [#disc_plan.variant<#disc_plan.device_attention<threads = 128, queries = 64, keys = 32, warp_rows = 16,
// CHECK-SAME: parts = <min(S floordiv 64, 264 floordiv max(B * ((S + 63) floordiv 64) * 12, 1))>>,
// CHECK-SAME: when = <min(S, S floordiv 64 + 254, 264 floordiv max(B * ((S + 63) floordiv 64) * 12, 1) + 254) - 255>,
// CHECK-SAME: tasks = <B * ((S + 63) floordiv 64) * min(S floordiv 64, 264 floordiv max(B * ((S + 63) floordiv 64) * 12, 1)) * 12>
func.func @attention(%q: tensor<?x12x?x32xf32> {disc_shape.dims = #disc_shape.dims<[B, 12, S, 32]>})
    -> (tensor<?x12x?x32xf32> {disc_shape.dims = #disc_shape.dims<[B, 12, S, 32]>}) {
  %0 = disc_plan.kernel attention ins(%q : tensor<?x12x?x32xf32>) -> tensor<?x12x?x32xf32> {
  ^bb0(%a: tensor<?x12x?x32xf32>):
    %r = disc_tensor.attention %a, %a, %a scale 0.25 causal false : tensor<?x12x?x32xf32>, tensor<?x12x?x32xf32>, tensor<?x12x?x32xf32> -> tensor<?x12x?x32xf32>
    disc_plan.yield %r : tensor<?x12x?x32xf32>
  }
  return %0 : tensor<?x12x?x32xf32>
}
}
