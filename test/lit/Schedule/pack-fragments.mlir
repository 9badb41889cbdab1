// RUN: disc-opt %s -disc-schedule-hoist-parameters -disc-schedule-pack-fragments -disc-schedule-blocks -split-input-file | FileCheck %s

// Weights of 4 bits with a scale for each 32 of a row, for a matrix unit: words of eight codes in the order in which its
// threads read them, and scales with those of neighbouring columns side by side. Floats of them are nowhere at load, nor
// do the bytes stay. Codes from -8 on have the zero 8 as unsigned ones.
// CHECK-NOT: disc_plan.global @hoisted
// CHECK-DAG: disc_plan.global @fragments0 : tensor<3x1x128xi32>
// CHECK-DAG: disc_plan.global @fragments1 : tensor<2x24xf32>
// CHECK-LABEL: func.func @init()
// CHECK-NOT: tensor<20x2x32xf32>
// CHECK: disc_tensor.check_index %{{.*}} below %{{.*}} "the op at the line"
// CHECK: disc_plan.kernel loop ins(%{{.*}} : tensor<20x2x32xi8>) -> tensor<3x1x128xi32>
// CHECK-COUNT-8: tensor.extract
// CHECK: disc_plan.global_store @fragments0
// CHECK: disc_plan.kernel loop ins(%{{.*}} : tensor<20x2xf32>) -> tensor<2x24xf32>
// CHECK: disc_plan.global_store @fragments1
// CHECK-LABEL: func.func @main
// CHECK: %[[C:.*]] = disc_plan.global_load @fragments0
// CHECK: %[[S:.*]] = disc_plan.global_load @fragments1
// Up to 16 rows, and up to 64, read the codes. For more the kernel has memory for what they stand for: 20 x 64 numbers.
// CHECK: disc_plan.kernel contraction ins(%{{.*}}, %[[C]], %[[S]] :
// CHECK-SAME: -> tensor<?x20xf32>, tensor<?xf32>
// CHECK-SAME: threads = 256, tile_rows = 16, tile_columns = 16, {{.*}}, stages = 6, slices = 8>, when = <-S + 17>, tasks = <((S + 15) floordiv 16) * 2>
// CHECK-SAME: threads = 256, tile_rows = 32, tile_columns = 16, {{.*}}, stages = 6, slices = 8>, when = <-S + 65>, tasks = <((S + 31) floordiv 32) * 2>
// CHECK: disc_tensor.unpack_fragments %{{.*}} scales %{{.*}} : tensor<2x24xf32> zero 8 bits 4 batch [] n [0] k [1]
// CHECK-SAME: : tensor<3x1x128xi32> -> tensor<20x64xf32>
// CHECK: disc_shape.dim <min(S floordiv 65, 1) * 1280>
#w = affine_map<(n, g, k) -> (n, g, k)>
#s = affine_map<(n, g, k) -> (n, g)>
#a = affine_map<(m, n, k) -> (m, k)>
#b = affine_map<(m, n, k) -> (n, k)>
#c = affine_map<(m, n, k) -> (m, n)>
module attributes {disc_plan.target = #disc_plan.target<device = "cuda", warp = 32, matrix_unit = true>} {
disc_shape.symbol @S min 1
func.func @main(%x: tensor<?x64xf32> {disc_shape.dims = #disc_shape.dims<[S, 64]>}) -> tensor<?x20xf32> {
  %w = disc_tensor.parameter "w" : tensor<20x2x32xi8>
  %t = disc_tensor.parameter "t" : tensor<20x2xf32>
  %v = disc_plan.kernel loop ins(%w, %t : tensor<20x2x32xi8>, tensor<20x2xf32>) -> tensor<20x2x32xf32>
      attributes {reason = "r"} {
  ^bb0(%p: tensor<20x2x32xi8>, %q: tensor<20x2xf32>):
    %e = tensor.empty() : tensor<20x2x32xf32>
    %g = linalg.generic {indexing_maps = [#w, #s, #w], iterator_types = ["parallel", "parallel", "parallel"]}
        ins(%p, %q : tensor<20x2x32xi8>, tensor<20x2xf32>) outs(%e : tensor<20x2x32xf32>) {
    ^bb0(%i: i8, %j: f32, %o: f32):
      %low = arith.constant 8 : i64
      %back = arith.constant -8 : i64
      %extent = arith.constant 16 : i64
      %0 = arith.extsi %i : i8 to i64
      %1 = arith.addi %0, %low : i64
      %2 = disc_tensor.check_index %1 below %extent "the op at the line"
      %3 = arith.addi %2, %back : i64
      %4 = arith.sitofp %3 : i64 to f32
      %5 = arith.mulf %4, %j : f32
      linalg.yield %5 : f32
    } -> tensor<20x2x32xf32>
    disc_plan.yield %g : tensor<20x2x32xf32>
  }
  %r = disc_tensor.reshape %v() : tensor<20x2x32xf32> -> tensor<20x64xf32>
  %y = disc_plan.kernel contraction ins(%x, %r : tensor<?x64xf32>, tensor<20x64xf32>) -> tensor<?x20xf32>
      attributes {reason = "r"} {
  ^bb0(%l: tensor<?x64xf32>, %k: tensor<20x64xf32>):
    %zero = arith.constant 0.0 : f32
    %n = disc_shape.dim <S>
    %e = tensor.empty(%n) : tensor<?x20xf32>
    %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x20xf32>) -> tensor<?x20xf32>
    %p = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%l, %k : tensor<?x64xf32>, tensor<20x64xf32>) outs(%f : tensor<?x20xf32>) {
    ^bb0(%i: f32, %j: f32, %o: f32):
      %0 = arith.mulf %i, %j : f32
      %1 = arith.addf %o, %0 : f32
      linalg.yield %1 : f32
    } -> tensor<?x20xf32>
    disc_plan.yield %p : tensor<?x20xf32>
  }
  return %y : tensor<?x20xf32>
}
}

