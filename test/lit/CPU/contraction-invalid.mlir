// What a contraction kernel cannot be.
// RUN: disc-opt %s -disc-cpu-emit-kernels -split-input-file -verify-diagnostics

#x = affine_map<(m, n, k) -> (m, k)>
#w = affine_map<(m, n, k) -> (n, k)>
#y = affine_map<(m, n, k) -> (m, n)>
disc_plan.kernel_func contraction @other_start attributes {
    layouts = [#disc_plan.layout<<0>, <[4, 1]>>, #disc_plan.layout<<0>, <[4, 1]>>, #disc_plan.layout<<0>, <[8, 1]>>],
    schedule = {rows = 8 : i64, columns = [16], row_tiles = #disc_shape.expr<1>,
                lhs_scratch = #disc_shape.expr<1024>, rhs_scratch = #disc_shape.expr<4096>},
    arg_dims = [#disc_shape.dims<[8, 4]>, #disc_shape.dims<[8, 4]>], symbols = []} {
^bb0(%x: tensor<8x4xf32>, %w: tensor<8x4xf32>):
  %one = arith.constant 1.0 : f32
  %e = tensor.empty() : tensor<8x8xf32>
  %f = linalg.fill ins(%one : f32) outs(%e : tensor<8x8xf32>) -> tensor<8x8xf32>
  // expected-error @+1 {{a contraction must start from zeros}}
  %c = linalg.generic {indexing_maps = [#x, #w, #y], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %w : tensor<8x4xf32>, tensor<8x4xf32>) outs(%f : tensor<8x8xf32>) {
  ^bb0(%l: f32, %r: f32, %o: f32):
    %m = arith.mulf %l, %r : f32
    %a = arith.addf %o, %m : f32
    linalg.yield %a : f32
  } -> tensor<8x8xf32>
  disc_plan.yield %c : tensor<8x8xf32>
}

// -----

#x = affine_map<(m, n, k) -> (m, k)>
#w = affine_map<(m, n, k) -> (n, k)>
#y = affine_map<(m, n, k) -> (m, n)>
disc_plan.kernel_func contraction @largest attributes {
    layouts = [#disc_plan.layout<<0>, <[4, 1]>>, #disc_plan.layout<<0>, <[4, 1]>>, #disc_plan.layout<<0>, <[8, 1]>>],
    schedule = {rows = 8 : i64, columns = [16], row_tiles = #disc_shape.expr<1>,
                lhs_scratch = #disc_shape.expr<1024>, rhs_scratch = #disc_shape.expr<4096>},
    arg_dims = [#disc_shape.dims<[8, 4]>, #disc_shape.dims<[8, 4]>], symbols = []} {
^bb0(%x: tensor<8x4xf32>, %w: tensor<8x4xf32>):
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<8x8xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<8x8xf32>) -> tensor<8x8xf32>
  // expected-error @+1 {{not a sum of products of two tensors}}
  %c = linalg.generic {indexing_maps = [#x, #w, #y], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %w : tensor<8x4xf32>, tensor<8x4xf32>) outs(%f : tensor<8x8xf32>) {
  ^bb0(%l: f32, %r: f32, %o: f32):
    %m = arith.mulf %l, %r : f32
    %a = arith.maximumf %o, %m : f32
    linalg.yield %a : f32
  } -> tensor<8x8xf32>
  disc_plan.yield %c : tensor<8x8xf32>
}
