// A convolution with its bias: the input with zeros around it goes to scratch once for all panels; tiles of a line are
// products over three runs of 48 values; the epilogue is evaluated on vectors of filters.
// RUN: disc-opt %s -disc-cpu-emit-kernels | FileCheck %s
// Depthwise: eight sums at a time, from registers to their results.
// RUN: disc-opt %s -disc-cpu-emit-kernels | FileCheck %s --check-prefix=DEPTHWISE
// Depthwise, of lines whose positions are neighbours in memory: four lines at a time share what they read.
// RUN: disc-opt %s -disc-cpu-emit-kernels | FileCheck %s --check-prefix=LINES
// One filter, and a result without its dimension: the first lane is stored.
// RUN: disc-opt %s -disc-cpu-emit-kernels | FileCheck %s --check-prefix=FILTER
// Everything lowers.
// RUN: disc-opt %s -disc-cpu-emit-kernels -canonicalize -cse -disc-lower-math -convert-vector-to-llvm -convert-scf-to-cf -convert-arith-to-llvm -convert-index-to-llvm -convert-math-to-llvm -convert-func-to-llvm -convert-cf-to-llvm -reconcile-unrealized-casts | FileCheck %s --check-prefix=LLVM

#id = affine_map<(n, h, w, c) -> (n, h, w, c)>
#c = affine_map<(n, h, w, c) -> (c)>
#first = affine_map<(n, h, w) -> (n, h, w, 0)>
#line = affine_map<(n, h, w) -> (n, h, w)>
module attributes {disc_plan.target = #disc_plan.target<vector_bits = 512>} {
  disc_shape.symbol @B min 1 max 8
  disc_shape.symbol @H min 8 max 256

  // CHECK-LABEL: func.func @plain(
  // CHECK-SAME: %{{.*}}: !llvm.ptr, %{{.*}}: i64, %{{.*}}: i64, %[[SCRATCH:.*]]: !llvm.ptr)
  // CHECK: scf.for %{{.*}} iter_args(%[[LAST:.*]] = %{{.*}}) -> (index)
  // CHECK: arith.cmpi ne, %{{.*}}, %[[LAST]]
  // CHECK: llvm.call @disc_product_f32_f32_f32_x32_runs_p_r7to14(
  // CHECK: %[[SUM:.*]] = llvm.load %{{.*}} : !llvm.ptr -> vector<16xf32>
  // CHECK: arith.addf %[[SUM]], %{{.*}} : vector<16xf32>
  // CHECK: llvm.store %{{.*}} : vector<16xf32>, !llvm.ptr
  disc_plan.kernel_func convolution @plain attributes {
      layouts = [#disc_plan.layout<<0>, <[H * H * 16, H * 16, 16, 1]>>, #disc_plan.layout<<0>, <[9216, 4608, 32, 1]>>,
                 #disc_plan.layout<<0>, <[1]>>, #disc_plan.layout<<0>, <[H * H * 64, H * 64, 64, 1]>>],
      arg_dims = [#disc_shape.dims<[B, H, H, 16]>, #disc_shape.dims<[1, 2, 144, 32]>, #disc_shape.dims<[64]>],
      schedule = #disc_plan.convolution<rows = 14, columns = 32, chunk_images = <1>, chunk_rows = <4>, chunk_tiles = <19>,
          input_scratch = <1792>, lines = apart>,
      symbols = ["B", "H"]} {
  ^bb0(%x: tensor<?x?x?x16xf32>, %p: tensor<1x2x144x32xf32>, %bias: tensor<64xf32>):
    %w = disc_tensor.unpack %p batch [0] n [1] k [2, 3, 4] panel 32 : tensor<1x2x144x32xf32> -> tensor<1x64x3x3x16xf32>
    %y = disc_tensor.convolution %x, %w strides [1, 1] low [1, 1] high [1, 1] dilations [1, 1] input_dilations [1, 1] {disc_shape.dims = [#disc_shape.dims<[B, H, H, 64]>]} : tensor<?x?x?x16xf32>, tensor<1x64x3x3x16xf32> -> tensor<?x?x?x64xf32>
    %b = disc_shape.dim <B>
    %h = disc_shape.dim <H>
    %e = tensor.empty(%b, %h, %h) : tensor<?x?x?x64xf32>
    %z = linalg.generic {indexing_maps = [#id, #c, #id], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%y, %bias : tensor<?x?x?x64xf32>, tensor<64xf32>) outs(%e : tensor<?x?x?x64xf32>) {
    ^bb0(%a: f32, %c: f32, %o: f32):
      %s = arith.addf %a, %c : f32
      linalg.yield %s : f32
    } -> tensor<?x?x?x64xf32>
    disc_plan.yield %z : tensor<?x?x?x64xf32>
  }

  // DEPTHWISE-LABEL: func.func @depthwise(
  // DEPTHWISE-COUNT-8: math.fma
  // DEPTHWISE: llvm.store %{{.*}} : vector<16xf32>, !llvm.ptr
  disc_plan.kernel_func convolution @depthwise attributes {
      layouts = [#disc_plan.layout<<0>, <[H * H * 32, H * 32, 32, 1]>>, #disc_plan.layout<<0>, <[144, 16, 1]>>,
                 #disc_plan.layout<<0>, <[H * H * 32, H * 32, 32, 1]>>],
      arg_dims = [#disc_shape.dims<[B, H, H, 32]>, #disc_shape.dims<[2, 9, 16]>],
      schedule = #disc_plan.convolution<rows = 14, columns = 16, chunk_images = <1>, chunk_rows = <4>, chunk_tiles = <19>,
          input_scratch = <896>, lines = apart>,
      symbols = ["B", "H"]} {
  ^bb0(%x: tensor<?x?x?x32xf32>, %p: tensor<2x9x16xf32>):
    %w = disc_tensor.unpack %p batch [] n [0, 1] k [2, 3, 4] panel 16 : tensor<2x9x16xf32> -> tensor<32x1x3x3x1xf32>
    %y = disc_tensor.convolution %x, %w strides [1, 1] low [1, 1] high [1, 1] dilations [1, 1] input_dilations [1, 1] {disc_shape.dims = [#disc_shape.dims<[B, H, H, 32]>]} : tensor<?x?x?x32xf32>, tensor<32x1x3x3x1xf32> -> tensor<?x?x?x32xf32>
    disc_plan.yield %y : tensor<?x?x?x32xf32>
  }

  // LINES-LABEL: func.func @along_lines(
  // The vectors at the ends of a line: a mask for each tap, one for what is stored.
  // LINES: scf.for %{{.*}} -> (vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>)
  // LINES: scf.if %{{.*}} -> (vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>)
  // LINES: %[[X:.*]] = llvm.intr.masked.load %{{.*}} : (!llvm.ptr, vector<16xi1>, vector<16xf32>) -> vector<16xf32>
  // LINES: %[[W:.*]] = vector.broadcast %{{.*}} : f32 to vector<16xf32>
  // LINES: math.fma %[[X]], %[[W]], %{{.*}} : vector<16xf32>
  // LINES: llvm.intr.masked.store
  // Two vectors within: no masks.
  // LINES: scf.if %{{.*}} -> (vector<16xf32>, {{.*}}vector<16xf32>)
  // LINES: llvm.load %{{.*}} : !llvm.ptr -> vector<16xf32>
  // LINES: llvm.load %{{.*}} : !llvm.ptr -> vector<16xf32>
  // LINES: llvm.load %{{.*}} : !llvm.ptr -> f32
  disc_plan.kernel_func convolution @along_lines attributes {
      layouts = [#disc_plan.layout<<0>, <[H * H * 32, H, 1, H * H]>>, #disc_plan.layout<<0>, <[144, 16, 1]>>,
                 #disc_plan.layout<<0>, <[H * H * 32, H, 1, H * H]>>],
      arg_dims = [#disc_shape.dims<[B, H, H, 32]>, #disc_shape.dims<[2, 9, 16]>],
      schedule = #disc_plan.convolution<rows = 14, columns = 16, chunk_images = <1>, chunk_rows = <4>, chunk_tiles = <19>,
          input_scratch = <896>, lines = apart>,
      symbols = ["B", "H"]} {
  ^bb0(%x: tensor<?x?x?x32xf32>, %p: tensor<2x9x16xf32>):
    %w = disc_tensor.unpack %p batch [] n [0, 1] k [2, 3, 4] panel 16 : tensor<2x9x16xf32> -> tensor<32x1x3x3x1xf32>
    %y = disc_tensor.convolution %x, %w strides [1, 1] low [1, 1] high [1, 1] dilations [1, 1] input_dilations [1, 1] {disc_shape.dims = [#disc_shape.dims<[B, H, H, 32]>]} : tensor<?x?x?x32xf32>, tensor<32x1x3x3x1xf32> -> tensor<?x?x?x32xf32>
    disc_plan.yield %y : tensor<?x?x?x32xf32>
  }

  // FILTER-LABEL: func.func @one_filter(
  // FILTER: %[[SUM:.*]] = math.absf %{{.*}} : vector<16xf32>
  // FILTER: %[[FIRST:.*]] = llvm.extractelement %[[SUM]][%{{.*}} : i64] : vector<16xf32>
  // FILTER: llvm.store %[[FIRST]], %{{.*}} : f32, !llvm.ptr
  disc_plan.kernel_func convolution @one_filter attributes {
      layouts = [#disc_plan.layout<<0>, <[H * H * 16, H * 16, 16, 1]>>, #disc_plan.layout<<0>, <[2304, 2304, 16, 1]>>,
                 #disc_plan.layout<<0>, <[H * H, H, 1]>>],
      arg_dims = [#disc_shape.dims<[B, H, H, 16]>, #disc_shape.dims<[1, 1, 144, 16]>],
      schedule = #disc_plan.convolution<rows = 14, columns = 16, chunk_images = <1>, chunk_rows = <4>, chunk_tiles = <19>,
          input_scratch = <1792>, lines = apart>,
      symbols = ["B", "H"]} {
  ^bb0(%x: tensor<?x?x?x16xf32>, %p: tensor<1x1x144x16xf32>):
    %w = disc_tensor.unpack %p batch [0] n [1] k [2, 3, 4] panel 16 : tensor<1x1x144x16xf32> -> tensor<1x1x3x3x16xf32>
    %y = disc_tensor.convolution %x, %w strides [1, 1] low [1, 1] high [1, 1] dilations [1, 1] input_dilations [1, 1] {disc_shape.dims = [#disc_shape.dims<[B, H, H, 1]>]} : tensor<?x?x?x16xf32>, tensor<1x1x3x3x16xf32> -> tensor<?x?x?x1xf32>
    %b = disc_shape.dim <B>
    %h = disc_shape.dim <H>
    %e = tensor.empty(%b, %h, %h) : tensor<?x?x?xf32>
    %z = linalg.generic {indexing_maps = [#first, #line], iterator_types = ["parallel", "parallel", "parallel"]} ins(%y : tensor<?x?x?x1xf32>) outs(%e : tensor<?x?x?xf32>) {
    ^bb0(%a: f32, %o: f32):
      %s = math.absf %a : f32
      linalg.yield %s : f32
    } -> tensor<?x?x?xf32>
    disc_plan.yield %z : tensor<?x?x?xf32>
  }
}
// LLVM: llvm.func @plain(
// LLVM: llvm.func @depthwise(
// LLVM: llvm.func @along_lines(
// LLVM: llvm.func @one_filter(
// LLVM-NOT: scf.
