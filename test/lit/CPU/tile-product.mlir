// Products of bytes and of bf16 by registers of tiles (AMX): one function for all heights, which sets the tiles' shape
// only where it changes.
// RUN: disc-opt %s -disc-cpu-emit-kernels | FileCheck %s

#x = affine_map<(d0, d1, d2) -> (d0, d2)>
#w = affine_map<(d0, d1, d2) -> (d1, d2)>
#y = affine_map<(d0, d1, d2) -> (d0, d1)>

module attributes {disc_plan.target = #disc_plan.target<vector_bits = 512, i8_dot_mixed = true, i8_tiles = true, bf16_tiles = true>} {
  disc_shape.symbol @B {min = 1}

  // CHECK-LABEL: func.func @bytes
  // CHECK: %[[SHAPE:.*]] = llvm.alloca %{{.*}} x i64
  // CHECK: llvm.call @disc_product_i8_i8_i32_x32_fours_tiles_p({{.*}}, %[[SHAPE]], %{{.*}})
  // CHECK: llvm.call_intrinsic "llvm.x86.tilerelease"()
  // CHECK-NEXT: return
  disc_plan.kernel_func contraction @bytes attributes {
      layouts = [#disc_plan.layout<<0>, <[68, 1]>>, #disc_plan.layout<<0>, <[2176, 128, 1]>>, #disc_plan.layout<<0>, <[32, 1]>>],
      arg_dims = [#disc_shape.dims<[B, 68]>, #disc_shape.dims<[1, 17, 128]>],
      schedule = #disc_plan.product<rows = 32, columns = [32], k_block = 1073741824, row_tiles = <1>,
          lhs_scratch = <4096>, rhs_scratch = <8192>>,
      symbols = ["B"]} {
  ^bb0(%x: tensor<?x68xi8>, %p: tensor<1x17x128xi8>):
    %w = disc_tensor.unpack %p batch [] n [0] k [1] panel 32 together 4 : tensor<1x17x128xi8> -> tensor<32x68xi8>
    %zero = arith.constant 0 : i32
    %n = disc_shape.dim <B>
    %e = tensor.empty(%n) : tensor<?x32xi32>
    %f = linalg.fill ins(%zero : i32) outs(%e : tensor<?x32xi32>) -> tensor<?x32xi32>
    %c = linalg.generic {indexing_maps = [#x, #w, #y], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %w : tensor<?x68xi8>, tensor<32x68xi8>) outs(%f : tensor<?x32xi32>) {
    ^bb0(%l: i8, %r: i8, %o: i32):
      %lx = arith.extsi %l : i8 to i32
      %rx = arith.extsi %r : i8 to i32
      %m = arith.muli %lx, %rx : i32
      %a = arith.addi %o, %m : i32
      linalg.yield %a : i32
    } -> tensor<?x32xi32>
    disc_plan.yield %c : tensor<?x32xi32>
  }

  // CHECK-LABEL: func.func @halves
  // CHECK: llvm.call @disc_product_bf16_bf16_f32_x16_pairs_tiles_p(
  disc_plan.kernel_func contraction @halves attributes {
      layouts = [#disc_plan.layout<<0>, <[64, 1]>>, #disc_plan.layout<<0>, <[1024, 32, 1]>>, #disc_plan.layout<<0>, <[16, 1]>>],
      arg_dims = [#disc_shape.dims<[B, 64]>, #disc_shape.dims<[1, 32, 32]>],
      schedule = #disc_plan.product<rows = 32, columns = [16], k_block = 1073741824, row_tiles = <1>,
          lhs_scratch = <4096>, rhs_scratch = <8192>>,
      symbols = ["B"]} {
  ^bb0(%x: tensor<?x64xbf16>, %p: tensor<1x32x32xbf16>):
    %w = disc_tensor.unpack %p batch [] n [0] k [1] panel 16 together 2 : tensor<1x32x32xbf16> -> tensor<16x64xbf16>
    %zero = arith.constant 0.0 : f32
    %n = disc_shape.dim <B>
    %e = tensor.empty(%n) : tensor<?x16xf32>
    %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x16xf32>) -> tensor<?x16xf32>
    %c = linalg.generic {indexing_maps = [#x, #w, #y], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %w : tensor<?x64xbf16>, tensor<16x64xbf16>) outs(%f : tensor<?x16xf32>) {
    ^bb0(%l: bf16, %r: bf16, %o: f32):
      %lx = arith.extf %l : bf16 to f32
      %rx = arith.extf %r : bf16 to f32
      %m = arith.mulf %lx, %rx : f32
      %a = arith.addf %o, %m : f32
      linalg.yield %a : f32
    } -> tensor<?x16xf32>
    disc_plan.yield %c : tensor<?x16xf32>
  }

  // Codes of 4 bits with a scale for each 32 values of k: many rows make the panel pairs of bf16 and multiply tiles, few
  // make floats in registers.
  // CHECK-LABEL: func.func @codes
  // CHECK: llvm.call @disc_unpack_bf16_i32_f32_x16_runs_nibbles_scaled_ub_p_halves(
  // CHECK: llvm.call @disc_prepare_bf16_f32(
  // CHECK: llvm.call @disc_product_bf16_bf16_f32_x16_pairs_tiles_p(
  // CHECK: llvm.call @disc_product_bf16_i32_f32_x16_runs_nibbles_scaled_ub_p_r1to7(
  disc_plan.kernel_func contraction @codes attributes {
      layouts = [#disc_plan.layout<<0>, <[64, 1]>>, #disc_plan.layout<<0>, <[128, 16, 1]>>, #disc_plan.layout<<0>, <[32, 16, 1]>>, #disc_plan.layout<<0>, <[16, 1]>>],
      arg_dims = [#disc_shape.dims<[B, 64]>, #disc_shape.dims<[1, 8, 16]>, #disc_shape.dims<[1, 2, 16]>],
      schedule = #disc_plan.product<rows = 32, columns = [16], k_block = 1073741824, row_tiles = <1>,
          lhs_scratch = <4096>, rhs_scratch = <8192>>,
      symbols = ["B"]} {
  ^bb0(%x: tensor<?x64xbf16>, %p: tensor<1x8x16xi32>, %s: tensor<1x2x16xf32>):
    %w = disc_tensor.unpack %p scales %s : tensor<1x2x16xf32> batch [] n [0] k [1] panel 16 nibbles unsigned as_halves : tensor<1x8x16xi32> -> tensor<16x64xf32>
    %zero = arith.constant 0.0 : f32
    %n = disc_shape.dim <B>
    %e = tensor.empty(%n) : tensor<?x16xf32>
    %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x16xf32>) -> tensor<?x16xf32>
    %c = linalg.generic {indexing_maps = [#x, #w, #y], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %w : tensor<?x64xbf16>, tensor<16x64xf32>) outs(%f : tensor<?x16xf32>) {
    ^bb0(%l: bf16, %r: f32, %o: f32):
      %lx = arith.extf %l : bf16 to f32
      %m = arith.mulf %lx, %r : f32
      %a = arith.addf %o, %m : f32
      linalg.yield %a : f32
    } -> tensor<?x16xf32>
    disc_plan.yield %c : tensor<?x16xf32>
  }

  // A convolution of floats beside weights in bf16: the copy of the input is rounded, and has zeros for the channel that
  // makes their number even.
  // CHECK-LABEL: func.func @convolution(
  // CHECK: llvm.store %{{.*}} : vector<16xi16>, !llvm.ptr
  // CHECK: llvm.call_intrinsic "llvm.x86.avx512bf16.cvtneps2bf16.512"({{.*}}) : (vector<16xf32>) -> vector<16xbf16>
  // CHECK: llvm.call @disc_product_bf16_bf16_f32_x32_runs_pairs_tiles_p(
  disc_plan.kernel_func convolution @convolution attributes {
      layouts = [#disc_plan.layout<<0>, <[B * B * 31, B * 31, 31, 1]>>, #disc_plan.layout<<0>, <[18432, 9216, 64, 1]>>,
                 #disc_plan.layout<<0>, <[B * B * 64, B * 64, 64, 1]>>],
      arg_dims = [#disc_shape.dims<[1, B, B, 31]>, #disc_shape.dims<[1, 2, 144, 64]>],
      schedule = #disc_plan.convolution<rows = 32, columns = 32, chunk_images = <1>, chunk_rows = <4>, chunk_tiles = <8>,
          input_scratch = <4096>, lines = apart>,
      symbols = ["B"]} {
  ^bb0(%x: tensor<1x?x?x31xf32>, %p: tensor<1x2x144x64xbf16>):
    %w = disc_tensor.unpack %p batch [0] n [1] k [2, 3, 4] panel 32 together 2 {disc_shape.dims = [#disc_shape.dims<[1, 64, 3, 3, 31]>]} : tensor<1x2x144x64xbf16> -> tensor<1x64x3x3x31xbf16>
    %y = disc_tensor.convolution %x, %w strides [1, 1] low [1, 1] high [1, 1] dilations [1, 1] input_dilations [1, 1] {disc_shape.dims = [#disc_shape.dims<[1, B, B, 64]>]} : tensor<1x?x?x31xf32>, tensor<1x64x3x3x31xbf16> -> tensor<1x?x?x64xf32>
    disc_plan.yield %y : tensor<1x?x?x64xf32>
  }

  // Tiles that go on from line to line, of each of two images: the epilogue goes through the lines that a tile has.
  // CHECK-LABEL: func.func @joined(
  // CHECK: llvm.call @disc_product_bf16_bf16_f32_x32_runs_pairs_tiles_p(
  // CHECK: scf.for
  // CHECK: scf.for
  disc_plan.kernel_func convolution @joined attributes {
      layouts = [#disc_plan.layout<<0>, <[B * B * 31, B * 31, 31, 1]>>, #disc_plan.layout<<0>, <[18432, 9216, 64, 1]>>,
                 #disc_plan.layout<<0>, <[B * B * 64, B * 64, 64, 1]>>],
      arg_dims = [#disc_shape.dims<[B, B, B, 31]>, #disc_shape.dims<[1, 2, 144, 64]>],
      schedule = #disc_plan.convolution<rows = 32, columns = 32, chunk_images = <2>, chunk_rows = <4>, chunk_tiles = <8>,
          input_scratch = <4096>, lines = joined>,
      symbols = ["B"]} {
  ^bb0(%x: tensor<?x?x?x31xf32>, %p: tensor<1x2x144x64xbf16>):
    %w = disc_tensor.unpack %p batch [0] n [1] k [2, 3, 4] panel 32 together 2 {disc_shape.dims = [#disc_shape.dims<[1, 64, 3, 3, 31]>]} : tensor<1x2x144x64xbf16> -> tensor<1x64x3x3x31xbf16>
    %y = disc_tensor.convolution %x, %w strides [1, 1] low [1, 1] high [1, 1] dilations [1, 1] input_dilations [1, 1] {disc_shape.dims = [#disc_shape.dims<[B, B, B, 64]>]} : tensor<?x?x?x31xf32>, tensor<1x64x3x3x31xbf16> -> tensor<?x?x?x64xf32>
    disc_plan.yield %y : tensor<?x?x?x64xf32>
  }

  // With a copy of the input for each tap of a line, whose values lie in planes.
  // CHECK-LABEL: func.func @merged(
  // CHECK: llvm.call @disc_product_bf16_bf16_f32_x32_planes_pairs_tiles_p(
  disc_plan.kernel_func convolution @merged attributes {
      layouts = [#disc_plan.layout<<0>, <[B * B * 31, B * 31, 31, 1]>>, #disc_plan.layout<<0>, <[18432, 9216, 64, 1]>>,
                 #disc_plan.layout<<0>, <[B * B * 64, B * 64, 64, 1]>>],
      arg_dims = [#disc_shape.dims<[B, B, B, 31]>, #disc_shape.dims<[1, 2, 144, 64]>],
      schedule = #disc_plan.convolution<rows = 32, columns = 32, chunk_images = <2>, chunk_rows = <4>, chunk_tiles = <8>,
          input_scratch = <4096>, lines = merged>,
      symbols = ["B"]} {
  ^bb0(%x: tensor<?x?x?x31xf32>, %p: tensor<1x2x144x64xbf16>):
    %w = disc_tensor.unpack %p batch [0] n [1] k [2, 3, 4] panel 32 together 2 {disc_shape.dims = [#disc_shape.dims<[1, 64, 3, 3, 31]>]} : tensor<1x2x144x64xbf16> -> tensor<1x64x3x3x31xbf16>
    %y = disc_tensor.convolution %x, %w strides [1, 1] low [1, 1] high [1, 1] dilations [1, 1] input_dilations [1, 1] {disc_shape.dims = [#disc_shape.dims<[B, B, B, 64]>]} : tensor<?x?x?x31xf32>, tensor<1x64x3x3x31xbf16> -> tensor<?x?x?x64xf32>
    disc_plan.yield %y : tensor<?x?x?x64xf32>
  }
}

// 32 rows by 32 columns: four registers of sums.
// CHECK-LABEL: llvm.func internal @disc_product_i8_i8_i32_x32_fours_tiles_p(
// CHECK-SAME: %[[SHAPE:[a-z0-9]*]]: !llvm.ptr {llvm.noalias}, %[[ROWS:[a-z0-9]*]]: i64)
// CHECK: llvm.getelementptr %[[SHAPE]][24]
// CHECK: %[[WIDTHS:.*]] = arith.cmpi ne
// CHECK: %[[HEIGHTS:.*]] = arith.cmpi ne
// CHECK: %[[OTHER:.*]] = arith.ori %[[WIDTHS]], %[[HEIGHTS]] : i1
// CHECK: scf.if %[[OTHER]]
// CHECK: llvm.call_intrinsic "llvm.x86.ldtilecfg"(%[[SHAPE]])
// CHECK: scf.if
// CHECK-COUNT-4: "llvm.x86.tileloadd64"
// CHECK-COUNT-4: "llvm.x86.tilezero"
// CHECK: scf.for
// CHECK-COUNT-3: "llvm.x86.tileloadd64"
// CHECK-COUNT-2: "llvm.x86.tdpbssd"
// CHECK: "llvm.x86.tileloadd64"
// CHECK-COUNT-2: "llvm.x86.tdpbssd"
// CHECK-COUNT-4: "llvm.x86.tilestored64"
// Up to 16 rows: two.
// CHECK: "llvm.x86.tdpbssd"

// CHECK-LABEL: llvm.func internal @disc_product_bf16_bf16_f32_x16_pairs_tiles_p(
// CHECK: "llvm.x86.tdpbf16ps"
