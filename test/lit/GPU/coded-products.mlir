// Products of weights that are codes of 4 bits, on a matrix unit.
// RUN: disc-opt %s --pass-pipeline='builtin.module(disc-gpu-emit-kernels,canonicalize,cse)' | FileCheck %s

#x = affine_map<(s, n, k) -> (s, k)>
#w = affine_map<(s, n, k) -> (n, k)>
#y = affine_map<(s, n, k) -> (s, n)>
module attributes {disc_plan.target = #disc_plan.target<device = "cuda", warp = 32, matrix_unit = true>} {
disc_shape.symbol @S min 0 max 512

// Few rows read the codes. For more, a kernel before this one computes what they stand for, in no blocks otherwise.
// CHECK: disc_rt.device_kernel @coded_r16_c16_s8 threads 256
// CHECK: disc_rt.device_kernel @coded threads 128
// CHECK-SAME: disc_plan.before = @coded_decode
// CHECK-SAME: disc_plan.variants = [#disc_plan.kernel_variant<kernel = @coded_r16_c16_s8, when = <-S + 17>>]
// CHECK: disc_rt.device_kernel @coded_decode threads 256
// CHECK-SAME: disc_plan.tasks = #disc_shape.expr<min((S floordiv 17) * 10240, 1) * 2>

// A stage has the codes of two tiles of columns for each of eight warps, and a scale and a zero for each thread: 12 KiB,
// of which four fit.
// CHECK-DAG: llvm.mlir.global internal @coded_r16_c16_s8_shared0() {{.*}} : !llvm.array<12288 x i32>

// CHECK-LABEL: gpu.func @coded_r16_c16_s8(
// CHECK: nvvm.cp.async.shared.global %{{.*}}, %{{.*}}, 16, cache = cg
// CHECK: nvvm.cp.async.shared.global %{{.*}}, %{{.*}}, 4, cache = ca
// CHECK: nvvm.cp.async.shared.global %{{.*}}, %{{.*}}, 4, cache = ca
// CHECK: nvvm.cp.async.commit.group
// CHECK: scf.for
// CHECK: nvvm.cp.async.wait.group
// Two codes at once become the numbers 128 + code, less the middle of all codes.
// CHECK: arith.andi %{{.*}}, %c983055_i32 : i32
// CHECK: arith.ori %{{.*}}, %c1124090624_i32 : i32
// CHECK: arith.subf %{{.*}}, %{{.*}} : vector<2xbf16>
// Four runs of 32 values of k by two instructions, for each tile of columns, and for the sums of the rows.
// CHECK-COUNT-12: nvvm.mma.sync
// Groups are of two runs: then sums are scaled, less the zero times the sum of the row.
// CHECK: gpu.shuffle idx
// CHECK: arith.subf
// CHECK: arith.mulf
// CHECK-COUNT-12: nvvm.mma.sync
// CHECK-NOT: nvvm.mma.sync
// CHECK: gpu.barrier

// Lines of the numbers are copied like others.
// CHECK-LABEL: gpu.func @coded(
// CHECK: nvvm.cp.async.shared.global %{{.*}}, %{{.*}}, 16, cache = cg
// CHECK: nvvm.mma.sync

// A thread makes 32 numbers of four words, eight of each run.
// CHECK-LABEL: gpu.func @coded_decode(
// CHECK: llvm.load {{.*}} {alignment = 16 : i64} : !llvm.ptr<1> -> vector<4xi32>
// CHECK-COUNT-4: llvm.store {{.*}} {alignment = 16 : i64} : vector<4xi32>, !llvm.ptr<1>
// CHECK-NOT: llvm.store

disc_plan.kernel_func contraction @coded attributes {
    layouts = [#disc_plan.layout<<0>, <[256, 1]>>, #disc_plan.layout<<0>, <[256, 128, 1]>>, #disc_plan.layout<<0>, <[40, 1]>>,
               #disc_plan.layout<<0>, <[40, 1]>>, #disc_plan.layout<<0>, <[40, 1]>>, #disc_plan.layout<<0>, <[1]>>],
    arg_dims = [#disc_shape.dims<[S, 256]>, #disc_shape.dims<[5, 2, 128]>, #disc_shape.dims<[4, 40]>, #disc_shape.dims<[4, 40]>],
    schedule = #disc_plan.device_matrix<threads = 128, tile_rows = 64, tile_columns = 64, warp_rows = 32,
        warp_columns = 32, stages = 4, slices = 1>,
    variants = [#disc_plan.variant<#disc_plan.device_matrix<threads = 256, tile_rows = 16, tile_columns = 16,
        warp_rows = 16, warp_columns = 16, stages = 6, slices = 8>, when = <-S + 17>, tasks = <((S + 15) floordiv 16) * 3>>],
    symbols = ["S"], tasks = #disc_shape.expr<(S + 63) floordiv 64>} {
^bb0(%x: tensor<?x256xbf16>, %c: tensor<5x2x128xi32>, %s: tensor<4x40xf32>, %z: tensor<4x40xf32>):
  %u = disc_tensor.unpack_fragments %c scales %s : tensor<4x40xf32> zeros %z : tensor<4x40xf32> zero 0 bits 4
      batch [] n [0] k [1] : tensor<5x2x128xi32> -> tensor<40x256xbf16>
  %zero = arith.constant 0.0 : f32
  %rows = disc_shape.dim <S>
  %e = tensor.empty(%rows) : tensor<?x40xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x40xf32>) -> tensor<?x40xf32>
  %p = linalg.generic {indexing_maps = [#x, #w, #y], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %u : tensor<?x256xbf16>, tensor<40x256xbf16>) outs(%f : tensor<?x40xf32>) {
  ^bb0(%l: bf16, %r: bf16, %o: f32):
    %wide_l = arith.extf %l : bf16 to f32
    %wide_r = arith.extf %r : bf16 to f32
    %m = arith.mulf %wide_l, %wide_r : f32
    %a = arith.addf %o, %m : f32
    linalg.yield %a : f32
  } -> tensor<?x40xf32>
  %size = disc_shape.dim <min(S floordiv 17, 1) * 10240>
  %memory = tensor.empty(%size) : tensor<?xbf16>
  disc_plan.yield %p, %memory : tensor<?x40xf32>, tensor<?xbf16>
}
}
