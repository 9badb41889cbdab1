// One row fetches its weights ahead to the second-level cache, if the target says that they come faster so.
// RUN: disc-opt %s -split-input-file -disc-cpu-emit-kernels | FileCheck %s

// CHECK-LABEL: llvm.func internal @disc_product_f32_f32_f32_x16_p2_r1(
// CHECK: llvm.getelementptr %{{.*}}[16384]
// CHECK: "llvm.intr.prefetch"(%{{.*}}) <{cache = 1 : i32, hint = 2 : i32, rw = 0 : i32}>
#x = affine_map<(m, n, k) -> (m, k)>
#w = affine_map<(m, n, k) -> (n, k)>
#y = affine_map<(m, n, k) -> (m, n)>
module attributes {disc_plan.target = #disc_plan.target<vector_bits = 256, fetch_to_l2 = true>} {
  disc_plan.kernel_func contraction @one attributes {
      layouts = [#disc_plan.layout<<0>, <[4, 1]>>, #disc_plan.layout<<0>, <[64, 16, 1]>>, #disc_plan.layout<<0>, <[16, 1]>>],
      arg_dims = [#disc_shape.dims<[1, 4]>, #disc_shape.dims<[1, 4, 16]>],
      schedule = #disc_plan.product<rows = 6, columns = [16], k_block = 1073741824, row_tiles = <1>,
          lhs_scratch = <1024>, rhs_scratch = <4096>>,
      symbols = []} {
  ^bb0(%x: tensor<1x4xf32>, %p: tensor<1x4x16xf32>):
    %w = disc_tensor.unpack %p batch [] n [0] k [1] panel 16 : tensor<1x4x16xf32> -> tensor<16x4xf32>
    %zero = arith.constant 0.0 : f32
    %e = tensor.empty() : tensor<1x16xf32>
    %f = linalg.fill ins(%zero : f32) outs(%e : tensor<1x16xf32>) -> tensor<1x16xf32>
    %c = linalg.generic {indexing_maps = [#x, #w, #y], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %w : tensor<1x4xf32>, tensor<16x4xf32>) outs(%f : tensor<1x16xf32>) {
    ^bb0(%l: f32, %r: f32, %o: f32):
      %m = arith.mulf %l, %r : f32
      %a = arith.addf %o, %m : f32
      linalg.yield %a : f32
    } -> tensor<1x16xf32>
    disc_plan.yield %c : tensor<1x16xf32>
  }
}

// -----

// CHECK-LABEL: llvm.func internal @disc_product_f32_f32_f32_x16_p_r1(
// CHECK-NOT: prefetch
#x = affine_map<(m, n, k) -> (m, k)>
#w = affine_map<(m, n, k) -> (n, k)>
#y = affine_map<(m, n, k) -> (m, n)>
module attributes {disc_plan.target = #disc_plan.target<vector_bits = 256>} {
  disc_plan.kernel_func contraction @one attributes {
      layouts = [#disc_plan.layout<<0>, <[4, 1]>>, #disc_plan.layout<<0>, <[64, 16, 1]>>, #disc_plan.layout<<0>, <[16, 1]>>],
      arg_dims = [#disc_shape.dims<[1, 4]>, #disc_shape.dims<[1, 4, 16]>],
      schedule = #disc_plan.product<rows = 6, columns = [16], k_block = 1073741824, row_tiles = <1>,
          lhs_scratch = <1024>, rhs_scratch = <4096>>,
      symbols = []} {
  ^bb0(%x: tensor<1x4xf32>, %p: tensor<1x4x16xf32>):
    %w = disc_tensor.unpack %p batch [] n [0] k [1] panel 16 : tensor<1x4x16xf32> -> tensor<16x4xf32>
    %zero = arith.constant 0.0 : f32
    %e = tensor.empty() : tensor<1x16xf32>
    %f = linalg.fill ins(%zero : f32) outs(%e : tensor<1x16xf32>) -> tensor<1x16xf32>
    %c = linalg.generic {indexing_maps = [#x, #w, #y], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %w : tensor<1x4xf32>, tensor<16x4xf32>) outs(%f : tensor<1x16xf32>) {
    ^bb0(%l: f32, %r: f32, %o: f32):
      %m = arith.mulf %l, %r : f32
      %a = arith.addf %o, %m : f32
      linalg.yield %a : f32
    } -> tensor<1x16xf32>
    disc_plan.yield %c : tensor<1x16xf32>
  }
}
