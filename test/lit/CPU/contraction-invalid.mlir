// What a contraction kernel cannot be.
// RUN: disc-opt %s -disc-cpu-emit-kernels -split-input-file -verify-diagnostics

#x = affine_map<(m, n, k) -> (m, k)>
#w = affine_map<(m, n, k) -> (n, k)>
#y = affine_map<(m, n, k) -> (m, n)>
disc_plan.kernel_func contraction @other_start attributes {
    layouts = [#disc_plan.layout<<0>, <[4, 1]>>, #disc_plan.layout<<0>, <[4, 1]>>, #disc_plan.layout<<0>, <[8, 1]>>],
    schedule = #disc_plan.product<rows = 8, columns = [16], k_block = 1073741824, row_tiles = <1>,
        lhs_scratch = <1024>, rhs_scratch = <4096>>,
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
    schedule = #disc_plan.product<rows = 8, columns = [16], k_block = 1073741824, row_tiles = <1>,
        lhs_scratch = <1024>, rhs_scratch = <4096>>,
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

// -----

#x = affine_map<(m, n, k) -> (m, k)>
#w = affine_map<(m, n, k) -> (n, k)>
#y = affine_map<(m, n, k) -> (m, n)>
// expected-error @+1 {{has 1 products, and 'columns' for 2}}
disc_plan.kernel_func contraction @two_columns attributes {
    layouts = [#disc_plan.layout<<0>, <[4, 1]>>, #disc_plan.layout<<0>, <[4, 1]>>, #disc_plan.layout<<0>, <[8, 1]>>],
    schedule = #disc_plan.product<rows = 8, columns = [16, 16], k_block = 1073741824, row_tiles = <1>,
        lhs_scratch = <1024>, rhs_scratch = <4096>>,
    arg_dims = [#disc_shape.dims<[8, 4]>, #disc_shape.dims<[8, 4]>], symbols = []} {
^bb0(%x: tensor<8x4xf32>, %w: tensor<8x4xf32>):
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<8x8xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<8x8xf32>) -> tensor<8x8xf32>
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
// expected-error @+1 {{a tile of 5 columns is not one of whole vectors of 8 elements}}
disc_plan.kernel_func contraction @odd_columns attributes {
    layouts = [#disc_plan.layout<<0>, <[4, 1]>>, #disc_plan.layout<<0>, <[4, 1]>>, #disc_plan.layout<<0>, <[8, 1]>>],
    schedule = #disc_plan.product<rows = 8, columns = [5], k_block = 1073741824, row_tiles = <1>,
        lhs_scratch = <1024>, rhs_scratch = <4096>>,
    arg_dims = [#disc_shape.dims<[8, 4]>, #disc_shape.dims<[8, 4]>], symbols = []} {
^bb0(%x: tensor<8x4xf32>, %w: tensor<8x4xf32>):
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<8x8xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<8x8xf32>) -> tensor<8x8xf32>
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
// expected-error @+1 {{a kernel of kind contraction needs a schedule}}
disc_plan.kernel_func contraction @unscheduled attributes {
    layouts = [#disc_plan.layout<<0>, <[4, 1]>>, #disc_plan.layout<<0>, <[4, 1]>>, #disc_plan.layout<<0>, <[8, 1]>>],
    arg_dims = [#disc_shape.dims<[8, 4]>, #disc_shape.dims<[8, 4]>], symbols = []} {
^bb0(%x: tensor<8x4xf32>, %w: tensor<8x4xf32>):
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<8x8xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<8x8xf32>) -> tensor<8x8xf32>
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
// expected-error @+1 {{has a schedule for blocks of threads, which CPUs do not run}}
disc_plan.kernel_func contraction @blocks attributes {
    layouts = [#disc_plan.layout<<0>, <[4, 1]>>, #disc_plan.layout<<0>, <[4, 1]>>, #disc_plan.layout<<0>, <[8, 1]>>],
    schedule = #disc_plan.device_product<threads = 256, tile_rows = 16, tile_columns = 64, tile_depth = 16,
        thread_rows = 1, thread_columns = 4>,
    arg_dims = [#disc_shape.dims<[8, 4]>, #disc_shape.dims<[8, 4]>], symbols = []} {
^bb0(%x: tensor<8x4xf32>, %w: tensor<8x4xf32>):
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<8x8xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<8x8xf32>) -> tensor<8x8xf32>
  %c = linalg.generic {indexing_maps = [#x, #w, #y], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %w : tensor<8x4xf32>, tensor<8x4xf32>) outs(%f : tensor<8x8xf32>) {
  ^bb0(%l: f32, %r: f32, %o: f32):
    %m = arith.mulf %l, %r : f32
    %a = arith.addf %o, %m : f32
    linalg.yield %a : f32
  } -> tensor<8x8xf32>
  disc_plan.yield %c : tensor<8x8xf32>
}

// -----

// expected-error @+1 {{'shared_dims' has 1, which is no dimension of the batch}}
disc_plan.kernel_func attention @shared attributes {
    layouts = [#disc_plan.layout<<0>, <[40, 40, 1]>>, #disc_plan.layout<<0>, <[160, 40, 1]>>,
               #disc_plan.layout<<0>, <[160, 40, 1]>>, #disc_plan.layout<<0>, <[40, 40, 1]>>],
    arg_dims = [#disc_shape.dims<[2, 1, 40]>, #disc_shape.dims<[2, 4, 40]>, #disc_shape.dims<[2, 4, 40]>],
    schedule = #disc_plan.attention<rows = 14, keys = 252, query_scratch = <0>, score_scratch = <8192>,
        out_scratch = <40960>, few = <queries = 8, shared_dims = [1], keys = 64, large = 262144, query_scratch = <0>, score_scratch = <2048>, result_scratch = <4096>, stat_scratch = <6144>>>,
    symbols = []} {
^bb0(%q: tensor<2x1x40xf32>, %k: tensor<2x4x40xf32>, %v: tensor<2x4x40xf32>):
  %r = disc_tensor.attention %q, %k, %v scale 0.25 causal false : tensor<2x1x40xf32>, tensor<2x4x40xf32>, tensor<2x4x40xf32> -> tensor<2x1x40xf32>
  disc_plan.yield %r : tensor<2x1x40xf32>
}

// -----

disc_plan.kernel_func pack @three attributes {schedule = #disc_plan.pieces, 
    layouts = [#disc_plan.layout<<0>, <[48, 1]>>, #disc_plan.layout<<0>, <[144, 3, 1]>>],
    arg_dims = [#disc_shape.dims<[6, 48]>], symbols = []} {
^bb0(%w: tensor<6x48xf32>):
  // expected-error @+1 {{the panel is not a whole number of vectors}}
  %p = disc_tensor.pack %w batch [] n [0] k [1] panel 3 : tensor<6x48xf32> -> tensor<2x48x3xf32>
  disc_plan.yield %p : tensor<2x48x3xf32>
}
