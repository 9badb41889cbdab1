// RUN: disc-opt %s -split-input-file -verify-diagnostics

func.func @p1(%x: tensor<4xf32>) {
  // expected-error @+1 {{region arguments do not have the types of the inputs (P1)}}
  %0 = disc_plan.kernel loop ins(%x : tensor<4xf32>) -> tensor<5xf32> {
  ^bb0(%a: tensor<5xf32>):
    disc_plan.yield %a : tensor<5xf32>
  }
  return
}

// -----

func.func @p2(%x: tensor<4xf32>) {
  // expected-error @+1 {{yielded values do not have the types of the results (P2)}}
  %0 = disc_plan.kernel loop ins(%x : tensor<4xf32>) -> tensor<5xf32> {
  ^bb0(%a: tensor<4xf32>):
    disc_plan.yield %a : tensor<4xf32>
  }
  return
}

// -----

func.func @p3(%x: tensor<4xf32>) {
  // expected-error @+1 {{cannot hold 'disc_tensor.parameter' (P3)}}
  %0 = disc_plan.kernel loop ins(%x : tensor<4xf32>) -> tensor<4xf32> {
  ^bb0(%a: tensor<4xf32>):
    %w = disc_tensor.parameter "w" : tensor<4xf32>
    disc_plan.yield %w : tensor<4xf32>
  }
  return
}

// -----

// expected-error @+1 {{needs a layout with a stride per dimension for each argument and result (P4)}}
disc_plan.kernel_func loop @p4 attributes {symbols = [], arg_dims = [#disc_shape.dims<[4]>],
    layouts = [#disc_plan.layout<#disc_shape.expr<0>, #disc_shape.dims<[1]>>]} {
^bb0(%a: tensor<4xf32>):
  disc_plan.yield %a : tensor<4xf32>
}

// -----

// expected-error @+1 {{cannot hold 'disc_tensor.parameter' (P5)}}
disc_plan.kernel_func loop @p5 attributes {symbols = [], arg_dims = [],
    layouts = [#disc_plan.layout<#disc_shape.expr<0>, #disc_shape.dims<[1]>>]} {
  %w = disc_tensor.parameter "w" : tensor<4xf32>
  disc_plan.yield %w : tensor<4xf32>
}

// -----

// expected-error @+1 {{needs the extents of each argument (P6)}}
disc_plan.kernel_func loop @p6 attributes {symbols = [], arg_dims = [],
    layouts = [#disc_plan.layout<#disc_shape.expr<0>, #disc_shape.dims<[1]>>,
               #disc_plan.layout<#disc_shape.expr<0>, #disc_shape.dims<[1]>>]} {
^bb0(%a: tensor<4xf32>):
  disc_plan.yield %a : tensor<4xf32>
}

// -----

func.func @p7(%x: tensor<4xf32>) {
  // expected-error @+1 {{does not fit a disc_plan.kernel_func of that name (P7)}}
  %0 = "disc_plan.call"(%x) {callee = @missing, result_dims = [#disc_shape.dims<[4]>]} : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

// expected-error @+3 {{schedule: 'chunk' must be from 1 to 1099511627776, not 0 (P8)}}
disc_plan.kernel_func loop @p8_1 attributes {symbols = [], arg_dims = [#disc_shape.dims<[4]>],
    layouts = [#disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>],
    schedule = #disc_plan.loop<chunk = 0, unroll = 1>} {
^bb0(%a: tensor<4xf32>):
  disc_plan.yield %a : tensor<4xf32>
}

// -----

// expected-error @+3 {{schedule: 'unroll' must be from 1 to 64, not -1 (P8)}}
disc_plan.kernel_func loop @p8_2 attributes {symbols = [], arg_dims = [#disc_shape.dims<[4]>],
    layouts = [#disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>],
    schedule = #disc_plan.loop<chunk = 4096, unroll = -1>} {
^bb0(%a: tensor<4xf32>):
  disc_plan.yield %a : tensor<4xf32>
}

// -----

// expected-error @+3 {{expected '>'}}
disc_plan.kernel_func loop @p8_4 attributes {symbols = [], arg_dims = [#disc_shape.dims<[4]>],
    layouts = [#disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>],
    schedule = #disc_plan.loop<chunk = 4096, unroll = 1, blocks = 1>} {
^bb0(%a: tensor<4xf32>):
  disc_plan.yield %a : tensor<4xf32>
}

// -----

// expected-error @+3 {{schedule: 'accumulators' must be from 1 to 64, not 0 (P8)}}
disc_plan.kernel_func row @p8_5 attributes {symbols = [], arg_dims = [#disc_shape.dims<[4]>],
    layouts = [#disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>],
    schedule = #disc_plan.row<accumulators = 0>} {
^bb0(%a: tensor<4xf32>):
  disc_plan.yield %a : tensor<4xf32>
}

// -----

// expected-error @+3 {{schedule: 'blocks' must be from 1 to 64, not 65 (P8)}}
disc_plan.kernel_func column @p8_6 attributes {symbols = [], arg_dims = [#disc_shape.dims<[4]>],
    layouts = [#disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>],
    schedule = #disc_plan.column<blocks = 65>} {
^bb0(%a: tensor<4xf32>):
  disc_plan.yield %a : tensor<4xf32>
}

// -----

// expected-error @+3 {{struct is missing required parameter: row_tiles}}
disc_plan.kernel_func contraction @p8_7 attributes {symbols = [], arg_dims = [#disc_shape.dims<[4]>],
    layouts = [#disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>],
    schedule = #disc_plan.product<rows = 6, columns = [16], k_block = 1073741824, lhs_scratch = <0>, rhs_scratch = <0>>} {
^bb0(%a: tensor<4xf32>):
  disc_plan.yield %a : tensor<4xf32>
}

// -----

// expected-error @+3 {{schedule: 'row_tiles' must be from 1 to 1099511627776, not 0 (P8)}}
disc_plan.kernel_func contraction @p8_8 attributes {symbols = [], arg_dims = [#disc_shape.dims<[4]>],
    layouts = [#disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>],
    schedule = #disc_plan.product<rows = 6, columns = [16], k_block = 1073741824, row_tiles = <0>, lhs_scratch = <0>, rhs_scratch = <0>>} {
^bb0(%a: tensor<4xf32>):
  disc_plan.yield %a : tensor<4xf32>
}

// -----

// expected-error @+3 {{schedule: 'columns' must be from 1 to 1024, not 0 (P8)}}
disc_plan.kernel_func contraction @p8_11 attributes {symbols = [], arg_dims = [#disc_shape.dims<[4]>],
    layouts = [#disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>],
    schedule = #disc_plan.product<rows = 6, columns = [0], k_block = 1073741824, row_tiles = <1>, lhs_scratch = <0>, rhs_scratch = <0>>} {
^bb0(%a: tensor<4xf32>):
  disc_plan.yield %a : tensor<4xf32>
}

// -----

// expected-error @+3 {{schedule: 'threads' is not a multiple of 'group' (P8)}}
disc_plan.kernel_func row @p8_15 attributes {symbols = [], arg_dims = [#disc_shape.dims<[4]>],
    layouts = [#disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>],
    schedule = #disc_plan.device_row<threads = 256, group = 48, vector = 1>} {
^bb0(%a: tensor<4xf32>):
  disc_plan.yield %a : tensor<4xf32>
}

// -----

// expected-error @+3 {{schedule: 'group' is neither a power of two nor a multiple of 32 (P8)}}
disc_plan.kernel_func row @p8_16 attributes {symbols = [], arg_dims = [#disc_shape.dims<[4]>],
    layouts = [#disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>],
    schedule = #disc_plan.device_row<threads = 96, group = 48, vector = 1>} {
^bb0(%a: tensor<4xf32>):
  disc_plan.yield %a : tensor<4xf32>
}

// -----

// expected-error @+3 {{schedule: 'group' or 'points' is missing (P8)}}
disc_plan.kernel_func row @p8_group attributes {symbols = [], arg_dims = [#disc_shape.dims<[4]>],
    layouts = [#disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>],
    schedule = #disc_plan.device_row<threads = 96, vector = 1>} {
^bb0(%a: tensor<4xf32>):
  disc_plan.yield %a : tensor<4xf32>
}

// -----

// expected-error @+3 {{schedule: 'threads' is not a multiple of 'columns' (P8)}}
disc_plan.kernel_func column @p8_17 attributes {symbols = [], arg_dims = [#disc_shape.dims<[4]>],
    layouts = [#disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>],
    schedule = #disc_plan.device_column<threads = 256, columns = 48>} {
^bb0(%a: tensor<4xf32>):
  disc_plan.yield %a : tensor<4xf32>
}

// -----

// expected-error @+3 {{schedule: 'tile_rows' is not a multiple of 'thread_rows' (P8)}}
disc_plan.kernel_func contraction @p8_18 attributes {symbols = [], arg_dims = [#disc_shape.dims<[4]>],
    layouts = [#disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>],
    schedule = #disc_plan.device_product<threads = 256, tile_rows = 64, tile_columns = 64, tile_depth = 16, thread_rows = 3, thread_columns = 4>} {
^bb0(%a: tensor<4xf32>):
  disc_plan.yield %a : tensor<4xf32>
}

// -----

// expected-error @+3 {{schedule: 'tile_columns' is not a multiple of 'thread_columns' (P8)}}
disc_plan.kernel_func contraction @p8_19 attributes {symbols = [], arg_dims = [#disc_shape.dims<[4]>],
    layouts = [#disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>],
    schedule = #disc_plan.device_product<threads = 256, tile_rows = 64, tile_columns = 64, tile_depth = 16, thread_rows = 4, thread_columns = 3>} {
^bb0(%a: tensor<4xf32>):
  disc_plan.yield %a : tensor<4xf32>
}

// -----

// expected-error @+3 {{schedule: the tile takes 256 'threads' (P8)}}
disc_plan.kernel_func contraction @p8_20 attributes {symbols = [], arg_dims = [#disc_shape.dims<[4]>],
    layouts = [#disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>],
    schedule = #disc_plan.device_product<threads = 128, tile_rows = 64, tile_columns = 64, tile_depth = 16, thread_rows = 4, thread_columns = 4>} {
^bb0(%a: tensor<4xf32>):
  disc_plan.yield %a : tensor<4xf32>
}

// -----

// expected-error @+3 {{schedule: 'threads' is not a multiple of 32 (P8)}}
disc_plan.kernel_func attention @p8_21 attributes {symbols = [], arg_dims = [#disc_shape.dims<[4]>],
    layouts = [#disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>],
    schedule = #disc_plan.device_attention<threads = 48, queries = 16, keys = 32>} {
^bb0(%a: tensor<4xf32>):
  disc_plan.yield %a : tensor<4xf32>
}

// -----

// expected-error @+3 {{schedule: 'queries' is not a multiple of 'threads' / 32 (P8)}}
disc_plan.kernel_func attention @p8_22 attributes {symbols = [], arg_dims = [#disc_shape.dims<[4]>],
    layouts = [#disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>],
    schedule = #disc_plan.device_attention<threads = 128, queries = 15, keys = 32>} {
^bb0(%a: tensor<4xf32>):
  disc_plan.yield %a : tensor<4xf32>
}

// -----

// expected-error @+3 {{schedule: the tile takes 128 'threads' (P8)}}
disc_plan.kernel_func contraction @p8_matrix0 attributes {symbols = [], arg_dims = [#disc_shape.dims<[4]>],
    layouts = [#disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>],
    schedule = #disc_plan.device_matrix<threads = 256, tile_rows = 64, tile_columns = 64, warp_rows = 32, warp_columns = 32, stages = 4, slices = 1>} {
^bb0(%a: tensor<4xf32>):
  disc_plan.yield %a : tensor<4xf32>
}

// -----

// expected-error @+3 {{schedule: 'tile_rows' is not a multiple of 'warp_rows' (P8)}}
disc_plan.kernel_func contraction @p8_matrix1 attributes {symbols = [], arg_dims = [#disc_shape.dims<[4]>],
    layouts = [#disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>],
    schedule = #disc_plan.device_matrix<threads = 256, tile_rows = 64, tile_columns = 64, warp_rows = 48, warp_columns = 32, stages = 4, slices = 1>} {
^bb0(%a: tensor<4xf32>):
  disc_plan.yield %a : tensor<4xf32>
}

// -----

// expected-error @+3 {{schedule: 'tile_columns' is not a multiple of 'warp_columns' (P8)}}
disc_plan.kernel_func contraction @p8_matrix2 attributes {symbols = [], arg_dims = [#disc_shape.dims<[4]>],
    layouts = [#disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>],
    schedule = #disc_plan.device_matrix<threads = 256, tile_rows = 64, tile_columns = 64, warp_rows = 32, warp_columns = 24, stages = 4, slices = 1>} {
^bb0(%a: tensor<4xf32>):
  disc_plan.yield %a : tensor<4xf32>
}

// -----

// expected-error @+3 {{schedule: warps that share a tile do not divide it (P8)}}
disc_plan.kernel_func contraction @p8_matrix3 attributes {symbols = [], arg_dims = [#disc_shape.dims<[4]>],
    layouts = [#disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>],
    schedule = #disc_plan.device_matrix<threads = 512, tile_rows = 64, tile_columns = 64, warp_rows = 32, warp_columns = 32, stages = 4, slices = 4>} {
^bb0(%a: tensor<4xf32>):
  disc_plan.yield %a : tensor<4xf32>
}

// -----

// expected-error @+3 {{schedule: the warps' columns take more than 49152 bytes (P8)}}
disc_plan.kernel_func contraction @p8_matrix3 attributes {symbols = [], arg_dims = [#disc_shape.dims<[4]>],
    layouts = [#disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>],
    schedule = #disc_plan.device_matrix<threads = 256, tile_rows = 16, tile_columns = 32, warp_rows = 16, warp_columns = 32, stages = 4, slices = 8>} {
^bb0(%a: tensor<4xf32>):
  disc_plan.yield %a : tensor<4xf32>
}

// -----

// expected-error @+1 {{with a condition (P8)}}
disc_plan.kernel_func contraction @p8_matrix4 attributes {symbols = [], arg_dims = [#disc_shape.dims<[4]>],
    layouts = [#disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>],
    schedule = #disc_plan.device_matrix<threads = 128, tile_rows = 64, tile_columns = 64, warp_rows = 32, warp_columns = 32, stages = 4, slices = 1>,
    variants = [#disc_plan.variant<#disc_plan.device_matrix<threads = 128, tile_rows = 64, tile_columns = 64, warp_rows = 32, warp_columns = 32, stages = 4, slices = 1>>]} {
^bb0(%a: tensor<4xf32>):
  disc_plan.yield %a : tensor<4xf32>
}

// -----

// expected-error @+3 {{schedule: a warp has 16 'queries' (P8)}}
disc_plan.kernel_func attention @p8_matrix_attention attributes {symbols = [], arg_dims = [#disc_shape.dims<[4]>],
    layouts = [#disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>],
    schedule = #disc_plan.device_attention<threads = 64, queries = 64, keys = 32, warp_rows = 16>} {
^bb0(%a: tensor<4xf32>):
  disc_plan.yield %a : tensor<4xf32>
}

// -----

// expected-error @+3 {{schedule: 'columns' is not a multiple of 'vector' (P8)}}
disc_plan.kernel_func column @p8_column_vectors attributes {symbols = [], arg_dims = [#disc_shape.dims<[4]>],
    layouts = [#disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>],
    schedule = #disc_plan.device_column<threads = 256, columns = 30, vector = 4>} {
^bb0(%a: tensor<4xf32>):
  disc_plan.yield %a : tensor<4xf32>
}

// -----

// expected-error @+3 {{schedule: 'threads' is not a multiple of 'columns' / 'vector' (P8)}}
disc_plan.kernel_func column @p8_column_threads attributes {symbols = [], arg_dims = [#disc_shape.dims<[4]>],
    layouts = [#disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>],
    schedule = #disc_plan.device_column<threads = 256, columns = 48, vector = 4>} {
^bb0(%a: tensor<4xf32>):
  disc_plan.yield %a : tensor<4xf32>
}

// -----

// expected-error @+1 {{schedule: 'parts' needs a result that is memory for them (P8)}}
disc_plan.kernel_func attention @p8_parts attributes {symbols = [], arg_dims = [#disc_shape.dims<[4]>],
    layouts = [#disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>],
    schedule = #disc_plan.device_attention<threads = 128, queries = 64, keys = 32, warp_rows = 16, parts = <2>>} {
^bb0(%a: tensor<4xf32>):
  disc_plan.yield %a : tensor<4xf32>
}

// -----

// expected-error @+1 {{schedule: 'shared' is more than the 1 dimensions of heads (P8)}}
disc_plan.kernel_func attention @p8_shared attributes {symbols = [], arg_dims = [#disc_shape.dims<[2, 4, 8]>],
    layouts = [#disc_plan.layout<<0>, <[32, 8, 1]>>, #disc_plan.layout<<0>, <[32, 8, 1]>>],
    schedule = #disc_plan.device_attention<threads = 128, queries = 16, keys = 32, shared = 2>} {
^bb0(%a: tensor<2x4x8xf32>):
  %r = disc_tensor.attention %a, %a, %a scale 0.25 causal false : tensor<2x4x8xf32>, tensor<2x4x8xf32>, tensor<2x4x8xf32> -> tensor<2x4x8xf32>
  disc_plan.yield %r : tensor<2x4x8xf32>
}

// -----

// expected-error @+1 {{'disc_plan.next' must be a kernel (P11)}}
module attributes {disc_plan.next = "k"} {}

// -----

// expected-error @+1 {{'disc_plan.variants' must be a list of variants (P11)}}
disc_rt.device_kernel @p11_variants threads 256 [reads, writes] {disc_plan.variants = [{kernel = @p11_other}]}

// -----

// expected-error @+1 {{#disc_plan.row<accumulators = 2> is not for kernels of kind 'loop' (P8)}}
disc_plan.kernel_func loop @p8_kind attributes {symbols = [], arg_dims = [#disc_shape.dims<[4]>],
    layouts = [#disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>],
    schedule = #disc_plan.row<accumulators = 2>} {
^bb0(%a: tensor<4xf32>):
  disc_plan.yield %a : tensor<4xf32>
}

// -----

// expected-error @+1 {{schedule: for convolutions by Winograd's sums (P8)}}
disc_plan.kernel_func convolution @p8_winograd attributes {symbols = [], arg_dims = [#disc_shape.dims<[4]>],
    layouts = [#disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>],
    schedule = #disc_plan.winograd<rows = 6, columns = 16, chunk_tiles = <1>, panel_groups = <1>, plane = <1>, sums_scratch = 0>} {
^bb0(%a: tensor<4xf32>):
  disc_plan.yield %a : tensor<4xf32>
}

// -----

// expected-error @+1 {{schedule: for kernels with a running sum (P8)}}
disc_plan.kernel_func loop @p8_sum attributes {symbols = [], arg_dims = [#disc_shape.dims<[4]>],
    layouts = [#disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>],
    schedule = #disc_plan.device_sum<threads = 256, line_threads = 1>} {
^bb0(%a: tensor<4xf32>):
  disc_plan.yield %a : tensor<4xf32>
}

// -----

// expected-error @+1 {{schedule: only kernels of devices have variants (P8)}}
disc_plan.kernel_func loop @p8_host_variants attributes {symbols = [], arg_dims = [#disc_shape.dims<[4]>],
    layouts = [#disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>],
    schedule = #disc_plan.loop<chunk = 1, unroll = 1>,
    variants = [#disc_plan.variant<#disc_plan.loop<chunk = 2, unroll = 1>>]} {
^bb0(%a: tensor<4xf32>):
  disc_plan.yield %a : tensor<4xf32>
}

// -----

// expected-error @+1 {{without a condition (P8)}}
disc_plan.kernel_func row @p8_condition attributes {symbols = [], arg_dims = [#disc_shape.dims<[4]>],
    layouts = [#disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>],
    schedule = #disc_plan.device_row<threads = 256, group = 32, vector = 1>,
    variants = [#disc_plan.variant<#disc_plan.device_row<threads = 256, group = 32, vector = 4>, when = <1>, tasks = <1>>]} {
^bb0(%a: tensor<4xf32>):
  disc_plan.yield %a : tensor<4xf32>
}

// -----

// expected-error @+3 {{schedule: 'columns' must have a number for each part (P8)}}
disc_plan.kernel_func contraction @p8_no_columns attributes {symbols = [], arg_dims = [#disc_shape.dims<[4]>],
    layouts = [#disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>],
    schedule = #disc_plan.product<rows = 6, columns = [], k_block = 1, row_tiles = <1>, lhs_scratch = <0>, rhs_scratch = <0>>} {
^bb0(%a: tensor<4xf32>):
  disc_plan.yield %a : tensor<4xf32>
}

// -----

// expected-error @+3 {{schedule: 'row_tiles' must be an expression (P8)}}
disc_plan.kernel_func contraction @p8_undefined attributes {symbols = [], arg_dims = [#disc_shape.dims<[4]>],
    layouts = [#disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>],
    schedule = #disc_plan.product<rows = 6, columns = [16], k_block = 1, row_tiles = <1 floordiv 0>, lhs_scratch = <0>, rhs_scratch = <0>>} {
^bb0(%a: tensor<4xf32>):
  disc_plan.yield %a : tensor<4xf32>
}

// -----

// expected-error-re @+1 {{'tasks' must be an expression, not {{.*}} (P9)}}
disc_plan.kernel_func loop @p9 attributes {symbols = [], arg_dims = [#disc_shape.dims<[4]>],
    layouts = [#disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>], tasks = #disc_shape.expr<1 floordiv 0>} {
^bb0(%a: tensor<4xf32>):
  disc_plan.yield %a : tensor<4xf32>
}

// -----

// expected-error @+1 {{'disc_plan.target' must be a target (P10)}}
module attributes {disc_plan.target = "avx"} {}

// -----

// expected-error @+1 {{target: 'vector_bits' must be a power of two from 64 to 4096, not 96 (P10)}}
module attributes {disc_plan.target = #disc_plan.target<vector_bits = 96>} {}

// -----

// expected-error @+1 {{target: 'cores' must be an integer from 1 to 1048576, not 0 (P10)}}
module attributes {disc_plan.target = #disc_plan.target<cores = 0>} {}

// -----

// expected-error @+1 {{'disc_plan.update' must be an update (P11)}}
disc_rt.device_kernel @p11 threads 256 [reads, writes] {disc_plan.update = #disc_plan.order<merge = @p11, last = @p11, rows = <1>, length = <1>>}

// -----

disc_rt.device_kernel @p11_extents threads 256 [reads, reads, writes] {
    // expected-error @+1 {{a product has three or four 'operands' and seven 'extents' (P11)}}
    disc_plan.library = #disc_plan.library_product<operands = [0, 1, 2], extents = <[1, 2]>, dtype = 544, when = <1>,
        a_columns = false, b_columns = true>}

// -----

// expected-error @+1 {{'disc_plan.symbols' must be a list of strings (P11)}}
disc_rt.device_kernel @p11_symbols threads 256 [reads, writes] {disc_plan.symbols = [1]}

// -----

// expected-error @+1 {{needs a layout with a stride per dimension for each argument and result (P4)}}
disc_plan.kernel_func loop @p4_undefined attributes {symbols = [], arg_dims = [#disc_shape.dims<[4]>],
    layouts = [#disc_plan.layout<<1 floordiv 0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>]} {
^bb0(%a: tensor<4xf32>):
  disc_plan.yield %a : tensor<4xf32>
}

// -----

// expected-error @+1 {{needs the extents of each argument (P6)}}
disc_plan.kernel_func loop @p6_rank attributes {symbols = [], arg_dims = [#disc_shape.dims<[4, 4]>],
    layouts = [#disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>]} {
^bb0(%a: tensor<4xf32>):
  disc_plan.yield %a : tensor<4xf32>
}

// -----

disc_plan.kernel_func loop @k attributes {symbols = [], arg_dims = [#disc_shape.dims<[4]>],
    layouts = [#disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>]} {
^bb0(%a: tensor<4xf32>):
  disc_plan.yield %a : tensor<4xf32>
}
func.func @p7_dims(%x: tensor<4xf32>) {
  // expected-error @+1 {{does not fit a disc_plan.kernel_func of that name (P7)}}
  %0 = disc_plan.call @k(%x) result_dims [4] : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

// expected-error @+1 {{must have a result (P12)}}
disc_plan.kernel_func loop @p12 attributes {symbols = [], arg_dims = [#disc_shape.dims<[4]>],
    layouts = [#disc_plan.layout<<0>, <[1]>>]} {
^bb0(%a: tensor<4xf32>):
  disc_plan.yield
}

// -----

// expected-error @+1 {{'disc_plan.results' must be a 64-bit integer (P11)}}
func.func private @p11_results() attributes {disc_plan.results = "1"}

// -----

// expected-error @+1 {{'disc_plan.buffer_bytes' must be a list of expressions (P11)}}
func.func private @p11_bytes() attributes {disc_plan.buffer_bytes = [4]}

// -----

func.func @p13(%x: tensor<4xf32>) {
  // expected-error @+1 {{the yielded values do not have the types of the results (P13)}}
  %0 = disc_plan.region "a" 0 : (tensor<8xf32>) {
    disc_plan.yield %x : tensor<4xf32>
  }
  return
}

// -----

func.func @p14(%x: tensor<4xf32>) {
  // expected-error @+1 {{contains 'disc_tensor.permute', which is not a composite of its back end (P14)}}
  %0 = disc_plan.region "a" 0 : (tensor<4xf32>) {
    %p = disc_tensor.permute %x [0] : tensor<4xf32> -> tensor<4xf32>
    disc_plan.yield %p : tensor<4xf32>
  }
  return
}

// -----

// expected-error @+1 {{needs a type for each constant (P15)}}
disc_plan.extern @p15 backend "a" table "t" constants ["w"] : [] {description = "{}"}

// -----

func.func @p16(%x: tensor<4xf32>) {
  // expected-error @+1 {{'nothing' is not a disc_plan.extern (P16)}}
  %0 = disc_plan.extern_call @nothing(%x) "a" : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

disc_plan.extern @e backend "a" table "t" constants [] : [] {description = "{}"}
func.func @p17(%x: tensor<4xf32>) {
  // expected-error @+1 {{needs a result, and a size for each dynamic extent of its results (P17)}}
  %0 = disc_plan.extern_call @e(%x) "a" : (tensor<4xf32>) -> tensor<?xf32>
  return
}

// -----

// expected-error @+1 {{'disc_plan.owner' has the wrong type or number (P18)}}
func.func private @p18() attributes {disc_plan.owner = "a"}

// -----

// expected-error @+1 {{'disc_plan.group' has the wrong type or number (P18)}}
func.func private @p18_group() attributes {disc_plan.group = 9223372036854775807}

// -----

// expected-error @+1 {{'disc_plan.claims' has the wrong type or number (P18)}}
func.func private @p18_match() attributes {disc_plan.claims = [#disc_plan.claim<"a", "exp", -1>]}
