// The functions that products call: all sums in registers, one element of the left operand broadcast at a time.
// RUN: disc-opt %s -disc-cpu-emit-kernels | FileCheck %s

#x = affine_map<(m, n, k) -> (m, k)>
#w = affine_map<(m, n, k) -> (n, k)>
#y = affine_map<(m, n, k) -> (m, n)>
module attributes {disc_plan.target = #disc_plan.target<vector_bits = 256>} {
  // A static number of rows needs no choice between heights: 6 rows are one tile.
  // CHECK-LABEL: func.func @six
  // CHECK: llvm.call @disc_product_f32_f32_f32_x16_p_r6(
  disc_plan.kernel_func contraction @six attributes {
      layouts = [#disc_plan.layout<<0>, <[4, 1]>>, #disc_plan.layout<<0>, <[64, 16, 1]>>, #disc_plan.layout<<0>, <[16, 1]>>],
      arg_dims = [#disc_shape.dims<[6, 4]>, #disc_shape.dims<[1, 4, 16]>],
      schedule = #disc_plan.product<rows = 6, columns = [16], k_block = 1073741824, row_tiles = <1>,
          lhs_scratch = <1024>, rhs_scratch = <4096>>,
      symbols = []} {
  ^bb0(%x: tensor<6x4xf32>, %p: tensor<1x4x16xf32>):
    %w = disc_tensor.unpack %p batch [] n [0] k [1] panel 16 : tensor<1x4x16xf32> -> tensor<16x4xf32>
    %zero = arith.constant 0.0 : f32
    %e = tensor.empty() : tensor<6x16xf32>
    %f = linalg.fill ins(%zero : f32) outs(%e : tensor<6x16xf32>) -> tensor<6x16xf32>
    %c = linalg.generic {indexing_maps = [#x, #w, #y], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %w : tensor<6x4xf32>, tensor<16x4xf32>) outs(%f : tensor<6x16xf32>) {
    ^bb0(%l: f32, %r: f32, %o: f32):
      %m = arith.mulf %l, %r : f32
      %a = arith.addf %o, %m : f32
      linalg.yield %a : f32
    } -> tensor<6x16xf32>
    disc_plan.yield %c : tensor<6x16xf32>
  }

  // A single row of int8: four values of k at a time have sums of their own, added at the end.
  // CHECK-LABEL: func.func @one
  // CHECK: llvm.call @disc_product_i8_i8_i32_x16_r1(
  disc_plan.kernel_func contraction @one attributes {
      layouts = [#disc_plan.layout<<0>, <[4, 1]>>, #disc_plan.layout<<0>, <[4, 1]>>, #disc_plan.layout<<0>, <[16, 1]>>],
      arg_dims = [#disc_shape.dims<[1, 4]>, #disc_shape.dims<[16, 4]>],
      schedule = #disc_plan.product<rows = 6, columns = [16], k_block = 1073741824, row_tiles = <1>,
          lhs_scratch = <1024>, rhs_scratch = <4096>>,
      symbols = []} {
  ^bb0(%x: tensor<1x4xi8>, %w: tensor<16x4xi8>):
    %zero = arith.constant 0 : i32
    %e = tensor.empty() : tensor<1x16xi32>
    %f = linalg.fill ins(%zero : i32) outs(%e : tensor<1x16xi32>) -> tensor<1x16xi32>
    %c = linalg.generic {indexing_maps = [#x, #w, #y], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %w : tensor<1x4xi8>, tensor<16x4xi8>) outs(%f : tensor<1x16xi32>) {
    ^bb0(%l: i8, %r: i8, %o: i32):
      %lx = arith.extsi %l : i8 to i32
      %rx = arith.extsi %r : i8 to i32
      %m = arith.muli %lx, %rx : i32
      %a = arith.addi %o, %m : i32
      linalg.yield %a : i32
    } -> tensor<1x16xi32>
    disc_plan.yield %c : tensor<1x16xi32>
  }

  // Bytes in fours, of which the last is cut: the left ones are copied with their signs changed.
  // CHECK-LABEL: func.func @fours
  // CHECK: arith.xori %{{.*}} : vector<8xi8>
  // CHECK: llvm.call @disc_product_i8_i8_i32_x16_fours_shifted_ua_p_r2(
  disc_plan.kernel_func contraction @fours attributes {
      layouts = [#disc_plan.layout<<0>, <[17, 1]>>, #disc_plan.layout<<0>, <[384, 64, 1]>>, #disc_plan.layout<<0>, <[16, 1]>>],
      arg_dims = [#disc_shape.dims<[2, 17]>, #disc_shape.dims<[1, 6, 64]>],
      schedule = #disc_plan.product<rows = 6, columns = [16], k_block = 1073741824, row_tiles = <1>,
          lhs_scratch = <1024>, rhs_scratch = <4096>>,
      symbols = []} {
  ^bb0(%x: tensor<2x17xi8>, %p: tensor<1x6x64xi8>):
    %w = disc_tensor.unpack %p batch [] n [0] k [1] panel 16 together 4 left_shift 128 : tensor<1x6x64xi8> -> tensor<16x17xi8>
    %zero = arith.constant 0 : i32
    %e = tensor.empty() : tensor<2x16xi32>
    %f = linalg.fill ins(%zero : i32) outs(%e : tensor<2x16xi32>) -> tensor<2x16xi32>
    %c = linalg.generic {indexing_maps = [#x, #w, #y], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %w : tensor<2x17xi8>, tensor<16x17xi8>) outs(%f : tensor<2x16xi32>) {
    ^bb0(%l: i8, %r: i8, %o: i32):
      %lx = arith.extsi %l : i8 to i32
      %rx = arith.extsi %r : i8 to i32
      %m = arith.muli %lx, %rx : i32
      %a = arith.addi %o, %m : i32
      linalg.yield %a : i32
    } -> tensor<2x16xi32>
    disc_plan.yield %c : tensor<2x16xi32>
  }

  // Codes of 4 bits: the rows' factors are computed once, and two rows read words of eight codes.
  // CHECK-LABEL: func.func @nibbles
  // CHECK: llvm.call @disc_prepare_f32_f32(
  // CHECK: llvm.call @disc_product_f32_i32_f32_x16_runs_nibbles_scaled_ub_p_r2(
  disc_plan.kernel_func contraction @nibbles attributes {
      layouts = [#disc_plan.layout<<0>, <[16, 1]>>, #disc_plan.layout<<0>, <[32, 16, 1]>>, #disc_plan.layout<<0>, <[16, 16, 1]>>, #disc_plan.layout<<0>, <[16, 1]>>],
      arg_dims = [#disc_shape.dims<[2, 16]>, #disc_shape.dims<[1, 2, 16]>, #disc_shape.dims<[1, 1, 16]>],
      schedule = #disc_plan.product<rows = 6, columns = [16], k_block = 1073741824, row_tiles = <1>,
          lhs_scratch = <1024>, rhs_scratch = <4096>>,
      symbols = []} {
  ^bb0(%x: tensor<2x16xf32>, %p: tensor<1x2x16xi32>, %s: tensor<1x1x16xf32>):
    %w = disc_tensor.unpack %p scales %s : tensor<1x1x16xf32> batch [] n [0] k [1] panel 16 nibbles unsigned : tensor<1x2x16xi32> -> tensor<16x16xf32>
    %zero = arith.constant 0.0 : f32
    %e = tensor.empty() : tensor<2x16xf32>
    %f = linalg.fill ins(%zero : f32) outs(%e : tensor<2x16xf32>) -> tensor<2x16xf32>
    %c = linalg.generic {indexing_maps = [#x, #w, #y], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %w : tensor<2x16xf32>, tensor<16x16xf32>) outs(%f : tensor<2x16xf32>) {
    ^bb0(%l: f32, %r: f32, %o: f32):
      %m = arith.mulf %l, %r : f32
      %a = arith.addf %o, %m : f32
      linalg.yield %a : f32
    } -> tensor<2x16xf32>
    disc_plan.yield %c : tensor<2x16xf32>
  }
}

// CHECK-LABEL: llvm.func internal @disc_product_f32_f32_f32_x16_p_r6(
// CHECK-SAME: %[[END:[a-z0-9]*]]: !llvm.ptr {llvm.noalias})
// CHECK-SAME: attributes {dso_local, no_inline}
// Nothing at or behind the end of the panels is fetched: neither of what the next task needs ...
// CHECK: llvm.ptrtoint %[[END]]
// CHECK: arith.minui
// CHECK: %[[SUMS:.*]]:12 = scf.for
// ... nor of what this one reads later.
// CHECK: llvm.ptrtoint %[[END]]
// CHECK: arith.minui
// CHECK-COUNT-2: "llvm.intr.prefetch"
// CHECK: llvm.load %{{.*}} -> vector<8xf32>
// CHECK: vector.broadcast %{{.*}} : f32 to vector<8xf32>
// CHECK-COUNT-12: math.fma
// CHECK: scf.yield
// CHECK: scf.if
// CHECK-COUNT-12: llvm.store

// CHECK-LABEL: llvm.func internal @disc_product_i8_i8_i32_x16_r1(
// CHECK: scf.for
// CHECK: arith.extsi %{{.*}} : vector<8xi8> to vector<8xi32>
// CHECK-COUNT-8: arith.muli
// CHECK: scf.yield
// CHECK: scf.for

// Sums start from the panel's first row.
// CHECK-LABEL: llvm.func internal @disc_product_i8_i8_i32_x16_fours_shifted_ua_p_r2(
// CHECK-SAME: %[[STARTS:[a-z0-9]*]]: !llvm.ptr {llvm.noalias})
// CHECK: llvm.call_intrinsic "llvm.x86.avx512.vpdpbusd.256"({{.*}}) : (vector<8xi32>, vector<32xi8>, vector<32xi8>)
// CHECK: llvm.load %[[STARTS]] {{.*}} vector<8xi32>

// CHECK-LABEL: llvm.func internal @disc_prepare_f32_f32(
// CHECK: vector.shuffle %{{.*}}, %{{.*}} [1, 2, 3, 4, 5, 6, 7, 7]
// CHECK: vector.reduction <add>

// No code is shifted down but the last; the zero point, 8, multiplies sums of the row.
// CHECK-LABEL: llvm.func internal @disc_product_f32_i32_f32_x16_runs_nibbles_scaled_ub_p_r2(
// CHECK: arith.andi %[[WORD:[^,]*]], %{{.*}} : vector<8xi32>
// CHECK-NOT: arith.shrui
// CHECK: arith.sitofp
// CHECK: arith.shrui %[[WORD]]
