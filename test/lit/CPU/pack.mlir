// Weights lie along k: squares of them are transposed in registers. Columns past the last are zeros.
// RUN: disc-opt %s -disc-cpu-emit-kernels | FileCheck %s

module attributes {disc_plan.target = #disc_plan.target<vector_bits = 512>} {
  // CHECK-LABEL: func.func @whole(
  // CHECK: scf.for
  // CHECK: scf.if
  // CHECK-COUNT-16: llvm.load %{{.*}} -> vector<16xf32>
  // CHECK: vector.shuffle %{{.*}} [0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23]
  // CHECK: else
  // CHECK: arith.constant dense<0.000000e+00> : vector<16xf32>
  // CHECK: masked
  disc_plan.kernel_func pack @whole attributes {
      layouts = [#disc_plan.layout<<0>, <[48, 1]>>, #disc_plan.layout<<0>, <[1536, 32, 1]>>],
      arg_dims = [#disc_shape.dims<[40, 48]>], schedule = #disc_plan.pieces, symbols = []} {
  ^bb0(%w: tensor<40x48xf32>):
    %p = disc_tensor.pack %w batch [] n [0] k [1] panel 32 : tensor<40x48xf32> -> tensor<2x48x32xf32>
    disc_plan.yield %p : tensor<2x48x32xf32>
  }

  // Half precision is widened on the way.
  // CHECK-LABEL: func.func @widened(
  // CHECK: arith.extf %{{.*}} : vector<16xbf16> to vector<16xf32>
  disc_plan.kernel_func pack @widened attributes {
      layouts = [#disc_plan.layout<<0>, <[64, 1]>>, #disc_plan.layout<<0>, <[1536, 32, 1]>>],
      arg_dims = [#disc_shape.dims<[48, 64]>], schedule = #disc_plan.pieces, symbols = []} {
  ^bb0(%w: tensor<48x64xbf16>):
    %p = disc_tensor.pack %w batch [] n [1] k [0] panel 32 : tensor<48x64xbf16> -> tensor<2x48x32xf32>
    disc_plan.yield %p : tensor<2x48x32xf32>
  }
}
