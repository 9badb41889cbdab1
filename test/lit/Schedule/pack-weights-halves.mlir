// RUN: disc-opt %s -disc-schedule-hoist-parameters -disc-schedule-pack-weights=precision=bf16 | FileCheck %s

// The target multiplies tiles of bf16: products of many rows may round the codes' floats, and the left operand is
// rounded before. The codes stay what they are.
// CHECK-DAG: disc_plan.global @packed0 : tensor<1x8x32xi32>
// CHECK-DAG: disc_plan.global @packed1 : tensor<1x2x32xf32>
// CHECK-LABEL: func.func @main(
// CHECK: %[[R:.*]] = disc_plan.kernel loop ins(%{{.*}} : tensor<?x64xf32>) -> tensor<?x64xbf16>
// CHECK: arith.truncf
// CHECK: disc_plan.kernel contraction ins(%{{.*}}, %{{.*}}, %[[R]] : tensor<1x8x32xi32>, tensor<1x2x32xf32>, tensor<?x64xbf16>)
// CHECK: disc_tensor.unpack %{{.*}} scales %{{.*}} : tensor<1x2x32xf32>
// CHECK-SAME: panel 32 nibbles unsigned as_halves : tensor<1x8x32xi32> -> tensor<20x64xf32>
// CHECK: ^bb0(%{{.*}}: bf16, %{{.*}}: f32, %{{.*}}: f32):
#w = affine_map<(n, g, k) -> (n, g, k)>
#s = affine_map<(n, g, k) -> (n, g)>
#a = affine_map<(m, n, k) -> (m, k)>
#b = affine_map<(m, n, k) -> (n, k)>
#c = affine_map<(m, n, k) -> (m, n)>
module attributes {disc_plan.target = #disc_plan.target<vector_bits = 512, bf16_tiles = true>} {
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
