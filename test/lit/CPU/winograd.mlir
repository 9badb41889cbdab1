// Sums of the input in 16 planes of scratch memory, a product for each, and the results of a block with their epilogue.
// RUN: disc-opt %s -disc-cpu-emit-kernels | FileCheck %s
// Everything lowers.
// RUN: disc-opt %s -disc-cpu-emit-kernels -canonicalize -cse -disc-lower-math -convert-vector-to-llvm -convert-scf-to-cf -convert-arith-to-llvm -convert-index-to-llvm -convert-math-to-llvm -convert-func-to-llvm -convert-cf-to-llvm -reconcile-unrealized-casts | FileCheck %s --check-prefix=LLVM

#id = affine_map<(n, h, w, c) -> (n, h, w, c)>
module attributes {disc_plan.target = #disc_plan.target<vector_bits = 512>} {
  disc_shape.symbol @B min 1 max 8
  disc_shape.symbol @H min 8 max 256

  // LLVM: llvm.func @blocks(
  // CHECK-LABEL: func.func @blocks(
  // Blocks inside the image read all of their 16 pixels ...
  // CHECK: scf.if
  // CHECK-COUNT-16: llvm.load %{{.*}} : !llvm.ptr -> vector<16xf32>
  // CHECK: arith.subf %{{.*}} : vector<16xf32>
  // CHECK-COUNT-16: llvm.store %{{.*}} : vector<16xf32>, !llvm.ptr
  // ... others have zeros.
  // CHECK: } else {
  // CHECK-COUNT-16: arith.select %{{.*}} : vector<16xi1>, vector<16xf32>
  // CHECK: scf.for %{{.*}} = %{{.*}} to %c16
  // CHECK: llvm.call @disc_product_f32_f32_f32_x32_p_r1to14(
  // CHECK-COUNT-16: llvm.load %{{.*}} : !llvm.ptr -> vector<16xf32>
  // CHECK: arith.maximumf
  // CHECK: llvm.store %{{.*}} : vector<16xf32>, !llvm.ptr
  disc_plan.kernel_func convolution @blocks attributes {
      layouts = [#disc_plan.layout<<0>, <[H * H * 32, H * 32, 32, 1]>>, #disc_plan.layout<<0>, <[2048, 1024, 32, 1]>>,
                 #disc_plan.layout<<0>, <[H * H * 64, H * 64, 64, 1]>>],
      arg_dims = [#disc_shape.dims<[B, H, H, 32]>, #disc_shape.dims<[16, 2, 32, 32]>],
      schedule = #disc_plan.winograd<rows = 14, columns = 32, chunk_tiles = <4>, panel_groups = <1>, plane = <1808>,
          sums_scratch = 28672>,
      symbols = ["B", "H"]} {
  ^bb0(%x: tensor<?x?x?x32xf32>, %p: tensor<16x2x32x32xf32>):
    %w = disc_tensor.unpack %p batch [0] n [1] k [2] panel 32 : tensor<16x2x32x32xf32> -> tensor<16x64x32xf32>
    %y = disc_tensor.winograd %x, %w low [1, 1] high [1, 1] dilations [1, 1] {disc_shape.dims = [#disc_shape.dims<[B, H, H, 64]>]} : tensor<?x?x?x32xf32>, tensor<16x64x32xf32> -> tensor<?x?x?x64xf32>
    %b = disc_shape.dim <B>
    %h = disc_shape.dim <H>
    %e = tensor.empty(%b, %h, %h) : tensor<?x?x?x64xf32>
    %z = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%y : tensor<?x?x?x64xf32>) outs(%e : tensor<?x?x?x64xf32>) {
    ^bb0(%a: f32, %o: f32):
      %zero = arith.constant 0.0 : f32
      %s = arith.maximumf %a, %zero : f32
      linalg.yield %s : f32
    } -> tensor<?x?x?x64xf32>
    disc_plan.yield %z : tensor<?x?x?x64xf32>
  }
}
