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

// expected-error @+1 {{schedule: 'chunk' must be from 1 to 1099511627776, not 0 (P8)}}
disc_plan.kernel_func loop @p8_1 attributes {symbols = [], arg_dims = [#disc_shape.dims<[4]>],
    layouts = [#disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>], schedule = {chunk = 0 : i64}} {
^bb0(%a: tensor<4xf32>):
  disc_plan.yield %a : tensor<4xf32>
}

// -----

// expected-error @+1 {{schedule: 'unroll' must be from 1 to 64, not -1 (P8)}}
disc_plan.kernel_func loop @p8_2 attributes {symbols = [], arg_dims = [#disc_shape.dims<[4]>],
    layouts = [#disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>], schedule = {unroll = -1 : i64}} {
^bb0(%a: tensor<4xf32>):
  disc_plan.yield %a : tensor<4xf32>
}

// -----

// expected-error @+1 {{schedule: 'chunk' must be a 64-bit integer, not 1.000000e+00 : f32 (P8)}}
disc_plan.kernel_func loop @p8_3 attributes {symbols = [], arg_dims = [#disc_shape.dims<[4]>],
    layouts = [#disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>], schedule = {chunk = 1.0 : f32}} {
^bb0(%a: tensor<4xf32>):
  disc_plan.yield %a : tensor<4xf32>
}

// -----

// expected-error @+1 {{schedule: no kernel of this kind has a 'blocks' (P8)}}
disc_plan.kernel_func loop @p8_4 attributes {symbols = [], arg_dims = [#disc_shape.dims<[4]>],
    layouts = [#disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>], schedule = {blocks = 1 : i64}} {
^bb0(%a: tensor<4xf32>):
  disc_plan.yield %a : tensor<4xf32>
}

// -----

// expected-error @+1 {{schedule: 'accumulators' must be from 1 to 64, not 0 (P8)}}
disc_plan.kernel_func row @p8_5 attributes {symbols = [], arg_dims = [#disc_shape.dims<[4]>],
    layouts = [#disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>], schedule = {accumulators = 0 : i64}} {
^bb0(%a: tensor<4xf32>):
  disc_plan.yield %a : tensor<4xf32>
}

// -----

// expected-error @+1 {{schedule: 'blocks' must be from 1 to 64, not 65 (P8)}}
disc_plan.kernel_func column @p8_6 attributes {symbols = [], arg_dims = [#disc_shape.dims<[4]>],
    layouts = [#disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>], schedule = {blocks = 65 : i64}} {
^bb0(%a: tensor<4xf32>):
  disc_plan.yield %a : tensor<4xf32>
}

// -----

// expected-error @+1 {{schedule: 'row_tiles' is missing (P8)}}
disc_plan.kernel_func contraction @p8_7 attributes {symbols = [], arg_dims = [#disc_shape.dims<[4]>],
    layouts = [#disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>], schedule = {rows = 6 : i64, columns = [16 : i64], lhs_scratch = #disc_shape.expr<0>, rhs_scratch = #disc_shape.expr<0>}} {
^bb0(%a: tensor<4xf32>):
  disc_plan.yield %a : tensor<4xf32>
}

// -----

// expected-error @+1 {{schedule: 'row_tiles' must be from 1 to 1099511627776, not 0 (P8)}}
disc_plan.kernel_func contraction @p8_8 attributes {symbols = [], arg_dims = [#disc_shape.dims<[4]>],
    layouts = [#disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>], schedule = {rows = 6 : i64, columns = [16 : i64], row_tiles = #disc_shape.expr<0>, lhs_scratch = #disc_shape.expr<0>, rhs_scratch = #disc_shape.expr<0>}} {
^bb0(%a: tensor<4xf32>):
  disc_plan.yield %a : tensor<4xf32>
}

// -----

// expected-error @+1 {{schedule: 'lhs_scratch' must be an expression, not 0 : i64 (P8)}}
disc_plan.kernel_func contraction @p8_9 attributes {symbols = [], arg_dims = [#disc_shape.dims<[4]>],
    layouts = [#disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>], schedule = {rows = 6 : i64, columns = [16 : i64], row_tiles = #disc_shape.expr<1>, lhs_scratch = 0 : i64, rhs_scratch = #disc_shape.expr<0>}} {
^bb0(%a: tensor<4xf32>):
  disc_plan.yield %a : tensor<4xf32>
}

// -----

// expected-error @+1 {{schedule: 'columns' must be a list of 64-bit integers, not 16 : i64 (P8)}}
disc_plan.kernel_func contraction @p8_10 attributes {symbols = [], arg_dims = [#disc_shape.dims<[4]>],
    layouts = [#disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>], schedule = {rows = 6 : i64, columns = 16 : i64, row_tiles = #disc_shape.expr<1>, lhs_scratch = #disc_shape.expr<0>, rhs_scratch = #disc_shape.expr<0>}} {
^bb0(%a: tensor<4xf32>):
  disc_plan.yield %a : tensor<4xf32>
}

// -----

// expected-error @+1 {{schedule: 'columns' must be from 1 to 1024, not 0 (P8)}}
disc_plan.kernel_func contraction @p8_11 attributes {symbols = [], arg_dims = [#disc_shape.dims<[4]>],
    layouts = [#disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>], schedule = {rows = 6 : i64, columns = [0 : i64], row_tiles = #disc_shape.expr<1>, lhs_scratch = #disc_shape.expr<0>, rhs_scratch = #disc_shape.expr<0>}} {
^bb0(%a: tensor<4xf32>):
  disc_plan.yield %a : tensor<4xf32>
}

// -----

// expected-error @+1 {{schedule: 'shared_dims' is missing (P8)}}
disc_plan.kernel_func attention @p8_12 attributes {symbols = [], arg_dims = [#disc_shape.dims<[4]>],
    layouts = [#disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>], schedule = {rows = 6 : i64, keys = 64 : i64, query_scratch = #disc_shape.expr<0>, score_scratch = #disc_shape.expr<0>, out_scratch = #disc_shape.expr<0>, few_queries = 2 : i64}} {
^bb0(%a: tensor<4xf32>):
  disc_plan.yield %a : tensor<4xf32>
}

// -----

// expected-error @+1 {{schedule: 'shared_dims' must be an array of 64-bit integers, not [0] (P8)}}
disc_plan.kernel_func attention @p8_13 attributes {symbols = [], arg_dims = [#disc_shape.dims<[4]>],
    layouts = [#disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>], schedule = {rows = 6 : i64, keys = 64 : i64, query_scratch = #disc_shape.expr<0>, score_scratch = #disc_shape.expr<0>, out_scratch = #disc_shape.expr<0>, few_queries = 2 : i64, shared_dims = [0]}} {
^bb0(%a: tensor<4xf32>):
  disc_plan.yield %a : tensor<4xf32>
}

// -----

// expected-error @+1 {{schedule: 'merges_lines' must be true or false, not 1 : i64 (P8)}}
disc_plan.kernel_func convolution @p8_14 attributes {symbols = [], arg_dims = [#disc_shape.dims<[4]>],
    layouts = [#disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>], schedule = {rows = 6 : i64, columns = 16 : i64, chunk_rows = #disc_shape.expr<1>, chunk_tiles = #disc_shape.expr<1>, input_scratch = #disc_shape.expr<0>, merges_lines = 1 : i64}} {
^bb0(%a: tensor<4xf32>):
  disc_plan.yield %a : tensor<4xf32>
}

// -----

// expected-error @+1 {{schedule: 'threads' is not a multiple of 'group' (P8)}}
disc_plan.kernel_func row @p8_15 attributes {symbols = [], arg_dims = [#disc_shape.dims<[4]>],
    layouts = [#disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>], schedule = {threads = 256 : i64, group = 48 : i64, vector = 1 : i64}} {
^bb0(%a: tensor<4xf32>):
  disc_plan.yield %a : tensor<4xf32>
}

// -----

// expected-error @+1 {{schedule: 'group' is neither a power of two nor a multiple of 32 (P8)}}
disc_plan.kernel_func row @p8_16 attributes {symbols = [], arg_dims = [#disc_shape.dims<[4]>],
    layouts = [#disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>], schedule = {threads = 96 : i64, group = 48 : i64, vector = 1 : i64}} {
^bb0(%a: tensor<4xf32>):
  disc_plan.yield %a : tensor<4xf32>
}

// -----

// expected-error @+1 {{schedule: 'group' or 'points' is missing (P8)}}
disc_plan.kernel_func row @p8_group attributes {symbols = [], arg_dims = [#disc_shape.dims<[4]>],
    layouts = [#disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>], schedule = {threads = 96 : i64, vector = 1 : i64}} {
^bb0(%a: tensor<4xf32>):
  disc_plan.yield %a : tensor<4xf32>
}

// -----

// expected-error @+1 {{schedule: 'variants' must be a list of schedules, not 1 : i64 (P8)}}
disc_plan.kernel_func row @p8_variants attributes {symbols = [], arg_dims = [#disc_shape.dims<[4]>],
    layouts = [#disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>],
    schedule = {threads = 96 : i64, group = 32 : i64, vector = 1 : i64, variants = 1 : i64}} {
^bb0(%a: tensor<4xf32>):
  disc_plan.yield %a : tensor<4xf32>
}

// -----

// expected-error @+1 {{schedule: 'variants' must be schedules of a device without variants of their own (P8)}}
disc_plan.kernel_func row @p8_variant attributes {symbols = [], arg_dims = [#disc_shape.dims<[4]>],
    layouts = [#disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>],
    schedule = {threads = 96 : i64, group = 32 : i64, vector = 1 : i64, variants = [{}]}} {
^bb0(%a: tensor<4xf32>):
  disc_plan.yield %a : tensor<4xf32>
}

// -----

// expected-error @+1 {{schedule: 'variants' must be a list of schedules, not [1] (P8)}}
disc_plan.kernel_func row @p8_variants_of_numbers attributes {symbols = [], arg_dims = [#disc_shape.dims<[4]>],
    layouts = [#disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>],
    schedule = {threads = 96 : i64, group = 32 : i64, vector = 1 : i64, variants = [1 : i64]}} {
^bb0(%a: tensor<4xf32>):
  disc_plan.yield %a : tensor<4xf32>
}

// -----

// expected-error @+1 {{schedule: 'threads' is not a multiple of 'columns' (P8)}}
disc_plan.kernel_func column @p8_17 attributes {symbols = [], arg_dims = [#disc_shape.dims<[4]>],
    layouts = [#disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>], schedule = {threads = 256 : i64, columns = 48 : i64}} {
^bb0(%a: tensor<4xf32>):
  disc_plan.yield %a : tensor<4xf32>
}

// -----

// expected-error @+1 {{schedule: 'tile_rows' is not a multiple of 'thread_rows' (P8)}}
disc_plan.kernel_func contraction @p8_18 attributes {symbols = [], arg_dims = [#disc_shape.dims<[4]>],
    layouts = [#disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>], schedule = {threads = 256 : i64, tile_rows = 64 : i64, tile_columns = 64 : i64, tile_depth = 16 : i64, thread_rows = 3 : i64, thread_columns = 4 : i64}} {
^bb0(%a: tensor<4xf32>):
  disc_plan.yield %a : tensor<4xf32>
}

// -----

// expected-error @+1 {{schedule: 'tile_columns' is not a multiple of 'thread_columns' (P8)}}
disc_plan.kernel_func contraction @p8_19 attributes {symbols = [], arg_dims = [#disc_shape.dims<[4]>],
    layouts = [#disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>], schedule = {threads = 256 : i64, tile_rows = 64 : i64, tile_columns = 64 : i64, tile_depth = 16 : i64, thread_rows = 4 : i64, thread_columns = 3 : i64}} {
^bb0(%a: tensor<4xf32>):
  disc_plan.yield %a : tensor<4xf32>
}

// -----

// expected-error @+1 {{schedule: the tile takes 256 'threads' (P8)}}
disc_plan.kernel_func contraction @p8_20 attributes {symbols = [], arg_dims = [#disc_shape.dims<[4]>],
    layouts = [#disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>], schedule = {threads = 128 : i64, tile_rows = 64 : i64, tile_columns = 64 : i64, tile_depth = 16 : i64, thread_rows = 4 : i64, thread_columns = 4 : i64}} {
^bb0(%a: tensor<4xf32>):
  disc_plan.yield %a : tensor<4xf32>
}

// -----

// expected-error @+1 {{schedule: 'threads' is not a multiple of 32 (P8)}}
disc_plan.kernel_func attention @p8_21 attributes {symbols = [], arg_dims = [#disc_shape.dims<[4]>],
    layouts = [#disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>], schedule = {threads = 48 : i64, queries = 16 : i64, keys = 32 : i64}} {
^bb0(%a: tensor<4xf32>):
  disc_plan.yield %a : tensor<4xf32>
}

// -----

// expected-error @+1 {{schedule: 'queries' is not a multiple of 'threads' / 32 (P8)}}
disc_plan.kernel_func attention @p8_22 attributes {symbols = [], arg_dims = [#disc_shape.dims<[4]>],
    layouts = [#disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>], schedule = {threads = 128 : i64, queries = 15 : i64, keys = 32 : i64}} {
^bb0(%a: tensor<4xf32>):
  disc_plan.yield %a : tensor<4xf32>
}

// -----

// expected-error @+1 {{schedule: the tile takes 128 'threads' (P8)}}
disc_plan.kernel_func contraction @p8_matrix0 attributes {symbols = [], arg_dims = [#disc_shape.dims<[4]>],
    layouts = [#disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>], schedule = {threads = 256 : i64, tile_rows = 64 : i64, tile_columns = 64 : i64, warp_rows = 32 : i64, warp_columns = 32 : i64, stages = 4 : i64, slices = 1 : i64}} {
^bb0(%a: tensor<4xf32>):
  disc_plan.yield %a : tensor<4xf32>
}

// -----

// expected-error @+1 {{schedule: 'tile_rows' is not a multiple of 'warp_rows' (P8)}}
disc_plan.kernel_func contraction @p8_matrix1 attributes {symbols = [], arg_dims = [#disc_shape.dims<[4]>],
    layouts = [#disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>], schedule = {threads = 256 : i64, tile_rows = 64 : i64, tile_columns = 64 : i64, warp_rows = 48 : i64, warp_columns = 32 : i64, stages = 4 : i64, slices = 1 : i64}} {
^bb0(%a: tensor<4xf32>):
  disc_plan.yield %a : tensor<4xf32>
}

// -----

// expected-error @+1 {{schedule: 'tile_columns' is not a multiple of 'warp_columns' (P8)}}
disc_plan.kernel_func contraction @p8_matrix2 attributes {symbols = [], arg_dims = [#disc_shape.dims<[4]>],
    layouts = [#disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>], schedule = {threads = 256 : i64, tile_rows = 64 : i64, tile_columns = 64 : i64, warp_rows = 32 : i64, warp_columns = 24 : i64, stages = 4 : i64, slices = 1 : i64}} {
^bb0(%a: tensor<4xf32>):
  disc_plan.yield %a : tensor<4xf32>
}

// -----

// expected-error @+1 {{schedule: warps that share a tile do not divide it (P8)}}
disc_plan.kernel_func contraction @p8_matrix3 attributes {symbols = [], arg_dims = [#disc_shape.dims<[4]>],
    layouts = [#disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>], schedule = {threads = 512 : i64, tile_rows = 64 : i64, tile_columns = 64 : i64, warp_rows = 32 : i64, warp_columns = 32 : i64, stages = 4 : i64, slices = 4 : i64}} {
^bb0(%a: tensor<4xf32>):
  disc_plan.yield %a : tensor<4xf32>
}

// -----

// expected-error @+1 {{schedule: the warps' columns take more than 49152 bytes (P8)}}
disc_plan.kernel_func contraction @p8_matrix3 attributes {symbols = [], arg_dims = [#disc_shape.dims<[4]>],
    layouts = [#disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>], schedule = {threads = 256 : i64, tile_rows = 16 : i64, tile_columns = 32 : i64, warp_rows = 16 : i64, warp_columns = 32 : i64, stages = 4 : i64, slices = 8 : i64}} {
^bb0(%a: tensor<4xf32>):
  disc_plan.yield %a : tensor<4xf32>
}

// -----

// expected-error @+1 {{schedule: 'when' is missing (P8)}}
disc_plan.kernel_func contraction @p8_matrix4 attributes {symbols = [], arg_dims = [#disc_shape.dims<[4]>],
    layouts = [#disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>], schedule = {threads = 128 : i64, tile_rows = 64 : i64, tile_columns = 64 : i64, warp_rows = 32 : i64, warp_columns = 32 : i64, stages = 4 : i64, slices = 1 : i64, variants = [{threads = 128 : i64, tile_rows = 64 : i64, tile_columns = 64 : i64, warp_rows = 32 : i64, warp_columns = 32 : i64, stages = 4 : i64, slices = 1 : i64, tasks = #disc_shape.expr<4>}]}} {
^bb0(%a: tensor<4xf32>):
  disc_plan.yield %a : tensor<4xf32>
}

// -----

// expected-error @+1 {{schedule: 'variants' must be a list of schedules, not 1 : i64 (P8)}}
disc_plan.kernel_func contraction @p8_matrix5 attributes {symbols = [], arg_dims = [#disc_shape.dims<[4]>],
    layouts = [#disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>], schedule = {threads = 128 : i64, tile_rows = 64 : i64, tile_columns = 64 : i64, warp_rows = 32 : i64, warp_columns = 32 : i64, stages = 4 : i64, slices = 1 : i64, variants = 1 : i64}} {
^bb0(%a: tensor<4xf32>):
  disc_plan.yield %a : tensor<4xf32>
}

// -----

// expected-error @+1 {{schedule: a warp has 16 'queries' (P8)}}
disc_plan.kernel_func attention @p8_matrix_attention attributes {symbols = [], arg_dims = [#disc_shape.dims<[4]>],
    layouts = [#disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>], schedule = {threads = 64 : i64, queries = 64 : i64, keys = 32 : i64, warp_rows = 16 : i64}} {
^bb0(%a: tensor<4xf32>):
  disc_plan.yield %a : tensor<4xf32>
}

// -----

// expected-error @+1 {{schedule: 'columns' is not a multiple of 'vector' (P8)}}
disc_plan.kernel_func column @p8_column_vectors attributes {symbols = [], arg_dims = [#disc_shape.dims<[4]>],
    layouts = [#disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>], schedule = {threads = 256 : i64, columns = 30 : i64, vector = 4 : i64}} {
^bb0(%a: tensor<4xf32>):
  disc_plan.yield %a : tensor<4xf32>
}

// -----

// expected-error @+1 {{schedule: 'threads' is not a multiple of 'columns' / 'vector' (P8)}}
disc_plan.kernel_func column @p8_column_threads attributes {symbols = [], arg_dims = [#disc_shape.dims<[4]>],
    layouts = [#disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>], schedule = {threads = 256 : i64, columns = 48 : i64, vector = 4 : i64}} {
^bb0(%a: tensor<4xf32>):
  disc_plan.yield %a : tensor<4xf32>
}

// -----

// expected-error @+1 {{schedule: 'parts' needs a result that is memory for them (P8)}}
disc_plan.kernel_func attention @p8_parts attributes {symbols = [], arg_dims = [#disc_shape.dims<[4]>],
    layouts = [#disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>], schedule = {threads = 128 : i64, queries = 64 : i64, keys = 32 : i64, warp_rows = 16 : i64, parts = #disc_shape.expr<2>}} {
^bb0(%a: tensor<4xf32>):
  disc_plan.yield %a : tensor<4xf32>
}

// -----

// expected-error @+1 {{schedule: 'parts' must be an expression, not 2 : i64 (P8)}}
disc_plan.kernel_func attention @p8_number_of_parts attributes {symbols = [], arg_dims = [#disc_shape.dims<[4]>],
    layouts = [#disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>], schedule = {threads = 128 : i64, queries = 64 : i64, keys = 32 : i64, warp_rows = 16 : i64, parts = 2 : i64}} {
^bb0(%a: tensor<4xf32>):
  disc_plan.yield %a : tensor<4xf32>
}

// -----

// expected-error @+1 {{schedule: 'tasks' is missing (P8)}}
disc_plan.kernel_func attention @p8_attention_variant attributes {symbols = [], arg_dims = [#disc_shape.dims<[4]>],
    layouts = [#disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>], schedule = {threads = 128 : i64, queries = 16 : i64, keys = 32 : i64, variants = [{threads = 128 : i64, queries = 16 : i64, keys = 32 : i64, when = #disc_shape.expr<1>}]}} {
^bb0(%a: tensor<4xf32>):
  disc_plan.yield %a : tensor<4xf32>
}

// -----

// expected-error @+1 {{schedule: 'shared' is more than the 1 dimensions of heads (P8)}}
disc_plan.kernel_func attention @p8_shared attributes {symbols = [], arg_dims = [#disc_shape.dims<[2, 4, 8]>],
    layouts = [#disc_plan.layout<<0>, <[32, 8, 1]>>, #disc_plan.layout<<0>, <[32, 8, 1]>>], schedule = {threads = 128 : i64, queries = 16 : i64, keys = 32 : i64, shared = 2 : i64}} {
^bb0(%a: tensor<2x4x8xf32>):
  %r = disc_tensor.attention %a, %a, %a scale 0.25 causal false : tensor<2x4x8xf32>, tensor<2x4x8xf32>, tensor<2x4x8xf32> -> tensor<2x4x8xf32>
  disc_plan.yield %r : tensor<2x4x8xf32>
}

// -----

// expected-error @+1 {{'disc_plan.next' must be a kernel (P11)}}
module attributes {disc_plan.next = "k"} {}

// -----

// expected-error @+1 {{'disc_plan.variants' must be a list of 'kernel' and 'when' (P11)}}
disc_rt.device_kernel @p11_variants threads 256 writes "01" {disc_plan.variants = [{kernel = @p11_other}]}

// -----

// expected-error @+1 {{'tasks' must be an expression, not 1 : i64 (P9)}}
disc_plan.kernel_func loop @p9 attributes {symbols = [], arg_dims = [#disc_shape.dims<[4]>],
    layouts = [#disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>], tasks = 1 : i64} {
^bb0(%a: tensor<4xf32>):
  disc_plan.yield %a : tensor<4xf32>
}

// -----

// expected-error @+1 {{'disc_plan.target' must be a dictionary (P10)}}
module attributes {disc_plan.target = "avx"} {}

// -----

// expected-error @+1 {{'disc_plan.target': 'vector_bits' must be a power of two from 64 to 4096, not 96 : i64 (P10)}}
module attributes {disc_plan.target = {vector_bits = 96 : i64}} {}

// -----

// expected-error @+1 {{'disc_plan.target': 'cores' must be an integer from 1 to 1048576, not 0 : i64 (P10)}}
module attributes {disc_plan.target = {cores = 0 : i64}} {}

// -----

// expected-error @+1 {{'disc_plan.update' has no 'bytes', or one of another type (P11)}}
disc_rt.device_kernel @p11 threads 256 writes "01" {disc_plan.update = {result = 1 : i64}}

// -----

// expected-error @+1 {{'disc_plan.library' has no 'extents', or one of another type (P11)}}
disc_rt.device_kernel @p11_extents threads 256 writes "001" {
    disc_plan.library = {operands = array<i64: 0, 1, 2>, extents = #disc_shape.dims<[1, 2]>, dtype = 544 : i64,
                         a_columns = false, b_columns = true}}

// -----

// expected-error @+1 {{'disc_plan.symbols' must be a list of strings (P11)}}
disc_rt.device_kernel @p11_symbols threads 256 writes "01" {disc_plan.symbols = [1]}

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
