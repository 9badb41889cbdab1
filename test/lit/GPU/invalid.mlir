// What kernels on devices cannot be.
// RUN: disc-opt %s -disc-gpu-emit-kernels -split-input-file -verify-diagnostics

// expected-error @+1 {{a kernel of a device needs a schedule for blocks of threads}}
disc_plan.kernel_func loop @threads attributes {symbols = [], arg_dims = [#disc_shape.dims<[4]>],
    layouts = [#disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>], schedule = #disc_plan.loop<chunk = 4096,
        unroll = 1>} {
^bb0(%x: tensor<4xf32>):
  disc_plan.yield %x : tensor<4xf32>
}

// -----

// expected-error @+1 {{a kernel of a device needs a schedule for blocks of threads}}
disc_plan.kernel_func contraction @no_schedule attributes {symbols = [], arg_dims = [#disc_shape.dims<[4, 8]>, #disc_shape.dims<[8, 4]>],
    layouts = [#disc_plan.layout<<0>, <[8, 1]>>, #disc_plan.layout<<0>, <[4, 1]>>, #disc_plan.layout<<0>, <[4, 1]>>]} {
^bb0(%x: tensor<4x8xf32>, %w: tensor<8x4xf32>):
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4x4xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<4x4xf32>) -> tensor<4x4xf32>
  %c = linalg.generic {indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>],
      iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %w : tensor<4x8xf32>, tensor<8x4xf32>) outs(%f : tensor<4x4xf32>) {
  ^bb0(%l: f32, %r: f32, %o: f32):
    %p = arith.mulf %l, %r : f32
    %a = arith.addf %o, %p : f32
    linalg.yield %a : f32
  } -> tensor<4x4xf32>
  disc_plan.yield %c : tensor<4x4xf32>
}

// -----

// expected-error @+1 {{pack kernels do not run on devices}}
disc_plan.kernel_func pack @pack attributes {symbols = [], arg_dims = [#disc_shape.dims<[16, 16]>],
    layouts = [#disc_plan.layout<<0>, <[16, 1]>>, #disc_plan.layout<<0>, <[256, 16, 1]>>],
        schedule = #disc_plan.device_pieces<threads = 256>} {
^bb0(%a: tensor<16x16xf32>):
  %r = disc_tensor.pack %a batch [] n [0] k [1] panel 16 : tensor<16x16xf32> -> tensor<1x16x16xf32>
  disc_plan.yield %r : tensor<1x16x16xf32>
}

// -----

// expected-error @+1 {{an attention kernel holds no attention}}
disc_plan.kernel_func attention @none attributes {symbols = [], arg_dims = [#disc_shape.dims<[4]>],
    layouts = [#disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>],
        schedule = #disc_plan.device_attention<threads = 128, queries = 16, keys = 32>} {
^bb0(%x: tensor<4xf32>):
  disc_plan.yield %x : tensor<4xf32>
}

// -----

disc_shape.symbol @E
disc_plan.kernel_func attention @unbounded attributes {symbols = ["E"],
    arg_dims = [#disc_shape.dims<[2, 8, 32]>, #disc_shape.dims<[2, 8, E]>],
    layouts = [#disc_plan.layout<<0>, <[256, 32, 1]>>, #disc_plan.layout<<0>, <[E * 8, E, 1]>>, #disc_plan.layout<<0>, <[E * 8, E, 1]>>],
    schedule = #disc_plan.device_attention<threads = 128, queries = 16, keys = 32>} {
^bb0(%q: tensor<2x8x32xf32>, %v: tensor<2x8x?xf32>):
  // expected-error @+1 {{attention on devices is for values of at most 512 elements}}
  %r = disc_tensor.attention %q, %q, %v scale 0.25 causal false : tensor<2x8x32xf32>, tensor<2x8x32xf32>, tensor<2x8x?xf32> -> tensor<2x8x?xf32>
  disc_plan.yield %r : tensor<2x8x?xf32>
}

// -----

// expected-error @+1 {{result 0 of an attention kernel does not follow from the attention}}
disc_plan.kernel_func attention @other attributes {symbols = [],
    arg_dims = [#disc_shape.dims<[2, 8, 32]>, #disc_shape.dims<[3]>],
    layouts = [#disc_plan.layout<<0>, <[256, 32, 1]>>, #disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>],
    schedule = #disc_plan.device_attention<threads = 128, queries = 16, keys = 32>} {
^bb0(%q: tensor<2x8x32xf32>, %z: tensor<3xf32>):
  %r = disc_tensor.attention %q, %q, %q scale 0.25 causal false : tensor<2x8x32xf32>, tensor<2x8x32xf32>, tensor<2x8x32xf32> -> tensor<2x8x32xf32>
  disc_plan.yield %z : tensor<3xf32>
}

// -----

#x = affine_map<(m, n, k) -> (m, k)>
#w = affine_map<(m, n, k) -> (n, k)>
#y = affine_map<(m, n, k) -> (m, n)>
disc_plan.kernel_func contraction @other_start attributes {
    layouts = [#disc_plan.layout<<0>, <[4, 1]>>, #disc_plan.layout<<0>, <[4, 1]>>, #disc_plan.layout<<0>, <[8, 1]>>],
    schedule = #disc_plan.device_product<threads = 256, tile_rows = 16, tile_columns = 64, tile_depth = 16,
        thread_rows = 1, thread_columns = 4>,
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
// expected-error @+1 {{a device's kernel has one product for each of its parts}}
disc_plan.kernel_func contraction @two attributes {
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
  %d = linalg.generic {indexing_maps = [#x, #w, #y], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %x : tensor<8x4xf32>, tensor<8x4xf32>) outs(%f : tensor<8x8xf32>) {
  ^bb0(%l: f32, %r: f32, %o: f32):
    %m = arith.mulf %l, %r : f32
    %a = arith.addf %o, %m : f32
    linalg.yield %a : f32
  } -> tensor<8x8xf32>
  %both = linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]}
      ins(%c, %d : tensor<8x8xf32>, tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) {
  ^bb0(%l: f32, %r: f32, %o: f32):
    %s = arith.addf %l, %r : f32
    linalg.yield %s : f32
  } -> tensor<8x8xf32>
  disc_plan.yield %both : tensor<8x8xf32>
}

// -----

disc_plan.kernel_func call @insert_dim attributes {symbols = [], tasks = #disc_shape.expr<1>,
    arg_dims = [#disc_shape.dims<[99]>, #disc_shape.dims<[8]>],
    layouts = [#disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>]} {
^bb0(%x: tensor<99xf32>, %v: tensor<8xf32>):
  %0 = arith.constant 0 : index
  %1 = arith.constant 1 : index
  // expected-error @+1 {{inserts along a dimension that there is not}}
  %r = disc_tensor.call "insert"(%x, %v) config(%1, %0, %1) tasks %1 scratch %0 "" in_place on_device
      : (tensor<99xf32>, tensor<8xf32>) -> tensor<99xf32>
  disc_plan.yield %r : tensor<99xf32>
}

// -----

disc_plan.kernel_func call @insert_nothing attributes {symbols = [], tasks = #disc_shape.expr<1>,
    arg_dims = [#disc_shape.dims<[99]>, #disc_shape.dims<[8]>],
    layouts = [#disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>]} {
^bb0(%x: tensor<99xf32>, %v: tensor<8xf32>):
  %0 = arith.constant 0 : index
  %1 = arith.constant 1 : index
  // expected-error @+1 {{'insert' takes other operands, or more of them}}
  %r = disc_tensor.call "insert"(%x) config(%0, %0, %1) tasks %1 scratch %0 "" in_place on_device
      : (tensor<99xf32>) -> tensor<99xf32>
  disc_plan.yield %r : tensor<99xf32>
}

// -----

// A negative number of loops.
disc_plan.kernel_func call @scatter attributes {symbols = [], arg_dims = [#disc_shape.dims<[4]>, #disc_shape.dims<[2]>],
    layouts = [#disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>]} {
^bb0(%x: tensor<4xf32>, %v: tensor<2xf32>):
  %none = arith.constant -1 : index
  %0 = arith.constant 0 : index
  %1 = arith.constant 1 : index
  %f32 = arith.constant 544 : index
  // expected-error @+1 {{no kernels of a device do this call of 'scatter'}}
  %r:2 = disc_tensor.call "scatter"(%x, %v) config(%f32, %1, %1, %0, %0, %1, %none, %1) tasks %1 scratch %0 ""
      in_place on_device ordered [0] : (tensor<4xf32>, tensor<2xf32>) -> (tensor<4xf32>, tensor<8xi64>)
  disc_plan.yield %r#0, %r#1 : tensor<4xf32>, tensor<8xi64>
}

// -----

disc_plan.kernel_func call @sort attributes {symbols = [], arg_dims = [#disc_shape.dims<[]>],
    layouts = [#disc_plan.layout<<0>, <[]>>, #disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>]} {
^bb0(%x: tensor<f32>):
  %1 = arith.constant 1 : index
  %f32 = arith.constant 544 : index
  // expected-error @+1 {{'sort' takes other operands, or more of them}}
  %r:3 = disc_tensor.call "sort"(%x) config(%f32, %1) tasks %1 scratch %1 "" on_device ordered [0]
      : (tensor<f32>) -> (tensor<4xf32>, tensor<4xi64>, tensor<8xi64>)
  disc_plan.yield %r#0, %r#1, %r#2 : tensor<4xf32>, tensor<4xi64>, tensor<8xi64>
}

// -----

// expected-error @+1 {{a kernel with a running sum must yield it}}
disc_plan.kernel_func loop @sum attributes {symbols = [], arg_dims = [#disc_shape.dims<[4]>],
    layouts = [#disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[1]>>],
        schedule = #disc_plan.device_sum<threads = 32, line_threads = 32>} {
^bb0(%x: tensor<4xf32>):
  %s = disc_tensor.running_sum %x dim 0 : tensor<4xf32> -> tensor<4xf32>
  disc_plan.yield %x : tensor<4xf32>
}
