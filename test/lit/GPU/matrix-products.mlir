// Products on a matrix unit: tiles in memory of the block, and tiles whose sum several warps share.
// RUN: disc-opt %s --pass-pipeline='builtin.module(disc-gpu-emit-kernels,canonicalize,cse)' | FileCheck %s

#x = affine_map<(s, n, k) -> (s, k)>
#w = affine_map<(s, n, k) -> (n, k)>
#y = affine_map<(s, n, k) -> (s, n)>
module attributes {disc_plan.target = #disc_plan.target<device = "cuda", warp = 32, matrix_unit = true>} {
disc_shape.symbol @S min 0 max 512

// A variant of the schedule is a kernel of its own.
// CHECK: disc_rt.device_kernel @staged_r16_c32_s8 threads 256
// CHECK-SAME: disc_plan.tasks = #disc_shape.expr<((S + 15) floordiv 16) * 4>
// CHECK: disc_rt.device_kernel @staged threads 128
// CHECK-SAME: disc_plan.variants = [#disc_plan.kernel_variant<kernel = @staged_r16_c32_s8, when = <-S + 64>>]

// CHECK-DAG: llvm.mlir.global internal @staged_shared0() {addr_space = 3 : i32, alignment = 16 : i64} : !llvm.array<8192 x i32>
// CHECK-DAG: llvm.mlir.global internal @staged_r16_c32_s8_shared0() {{.*}} : !llvm.array<5120 x i32>

// Eight warps share a tile of 16 x 32: each adds up every eighth line, and memory of the block has all of their sums.
// CHECK-LABEL: gpu.func @staged_r16_c32_s8(
// CHECK: scf.for
// CHECK: llvm.load {{.*}} {alignment = 16 : i64} : !llvm.ptr<1> -> vector<4xi32>
// CHECK-NOT: nvvm.cp.async
// CHECK-COUNT-24: nvvm.mma.sync
// CHECK: gpu.barrier
// CHECK-COUNT-7: arith.addf {{.*}} : vector<4xf32>

// Four stages of 64 lines of both operands, 64 bytes each. Three are copied before the loop, which copies the
// one that is three steps ahead.
// CHECK-LABEL: gpu.func @staged(
// CHECK-SAME: known_block_size = array<i32: 128, 1, 1>
// CHECK: nvvm.cp.async.shared.global %{{.*}}, %{{.*}}, 16, cache = cg : !llvm.ptr<3>, !llvm.ptr<1>
// CHECK: nvvm.cp.async.commit.group
// CHECK: %[[SUMS:.*]]:33 = scf.for
// CHECK: nvvm.cp.async.wait.group 2
// CHECK-NEXT: gpu.barrier
// CHECK: scf.if
// CHECK-COUNT-4: nvvm.cp.async.shared.global
// CHECK: nvvm.cp.async.commit.group
// Words of f32 are taken apart. The smaller parts are multiplied first.
// CHECK: %[[CHUNK:.*]] = llvm.load {{.*}} {alignment = 16 : i64} : !llvm.ptr<3> -> vector<4xi32>
// CHECK: %[[WORD:.*]] = vector.extract %[[CHUNK]][0]
// CHECK: %[[HIGH:.*]] = arith.andi %[[WORD]], %{{.*}} : i32
// CHECK: %[[REST:.*]] = arith.subf
// CHECK: nvvm.convert.float.to.tf32 %[[REST]] {rnd = #nvvm.fp_rnd_mode<rna>}
// Two tiles of 16 rows by four of 8 columns, with three instructions for each half of a chunk.
// CHECK-COUNT-48: nvvm.mma.sync {{.*}} {layoutA = #nvvm.mma_layout<row>, layoutB = #nvvm.mma_layout<col>, multiplicandAPtxType = #nvvm.mma_type<tf32>, multiplicandBPtxType = #nvvm.mma_type<tf32>, shape = #nvvm.shape<m = 16, n = 8, k = 8>}
// CHECK-NOT: nvvm.mma.sync
// CHECK: arith.addf
// CHECK: nvvm.cp.async.wait.group 0
// CHECK-NEXT: gpu.barrier
// The warps' sums go through memory of the block, the results are vectors. Where a sum is NaN it is computed again.
// CHECK: llvm.store {{.*}} {alignment = 8 : i64} : vector<2xf32>, !llvm.ptr<3>
// CHECK: gpu.barrier
// CHECK: %[[SUM:.*]] = llvm.load {{.*}} {alignment = 16 : i64} : !llvm.ptr<3> -> vector<4xf32>
// CHECK: arith.cmpf uno, %[[SUM]], %[[SUM]]
// CHECK: scf.for
// CHECK: math.fma
// CHECK: llvm.store {{.*}} {alignment = 16 : i64} : vector<4xf32>, !llvm.ptr<1>

disc_plan.kernel_func contraction @staged attributes {
    layouts = [#disc_plan.layout<<0>, <[48, 1]>>, #disc_plan.layout<<0>, <[48, 1]>>, #disc_plan.layout<<0>, <[128, 1]>>],
    arg_dims = [#disc_shape.dims<[S, 48]>, #disc_shape.dims<[128, 48]>],
    schedule = #disc_plan.device_matrix<threads = 128, tile_rows = 64, tile_columns = 64, warp_rows = 32,
        warp_columns = 32, stages = 4, slices = 1>,
    variants = [#disc_plan.variant<#disc_plan.device_matrix<threads = 256, tile_rows = 16, tile_columns = 32,
        warp_rows = 16, warp_columns = 32, stages = 2, slices = 8>, when = <-S + 64>, tasks = <((S + 15) floordiv 16) * 4>>],
    symbols = ["S"]} {
^bb0(%x: tensor<?x48xf32>, %w: tensor<128x48xf32>):
  %zero = arith.constant 0.0 : f32
  %s = disc_shape.dim <S>
  %e = tensor.empty(%s) : tensor<?x128xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x128xf32>) -> tensor<?x128xf32>
  %c = linalg.generic {indexing_maps = [#x, #w, #y], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %w : tensor<?x48xf32>, tensor<128x48xf32>) outs(%f : tensor<?x128xf32>) {
  ^bb0(%l: f32, %r: f32, %o: f32):
    %p = arith.mulf %l, %r : f32
    %a = arith.addf %o, %p : f32
    linalg.yield %a : f32
  } -> tensor<?x128xf32>
  disc_plan.yield %c : tensor<?x128xf32>
}

// Half floats are multiplied as they are; what is beyond the end of a line of 32 is zero. Nothing is computed again.
// CHECK-LABEL: gpu.func @half(
// CHECK: %[[SIZE:.*]] = arith.select
// CHECK: nvvm.cp.async.shared.global %{{.*}}, %{{.*}}, 16, cache = cg, %[[SIZE]] : !llvm.ptr<3>, !llvm.ptr<1>, i32
// CHECK-COUNT-16: nvvm.mma.sync {{.*}} multiplicandAPtxType = #nvvm.mma_type<bf16>, {{.*}} shape = #nvvm.shape<m = 16, n = 8, k = 16>}
// CHECK-NOT: nvvm.mma.sync
// CHECK-NOT: uno
disc_plan.kernel_func contraction @half attributes {
    layouts = [#disc_plan.layout<<0>, <[40, 1]>>, #disc_plan.layout<<0>, <[40, 1]>>, #disc_plan.layout<<0>, <[128, 1]>>],
    arg_dims = [#disc_shape.dims<[S, 40]>, #disc_shape.dims<[128, 40]>],
    schedule = #disc_plan.device_matrix<threads = 128, tile_rows = 64, tile_columns = 64, warp_rows = 32,
        warp_columns = 32, stages = 2, slices = 1>,
    symbols = ["S"]} {
^bb0(%x: tensor<?x40xbf16>, %w: tensor<128x40xbf16>):
  %zero = arith.constant 0.0 : f32
  %s = disc_shape.dim <S>
  %e = tensor.empty(%s) : tensor<?x128xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x128xf32>) -> tensor<?x128xf32>
  %c = linalg.generic {indexing_maps = [#x, #w, #y], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %w : tensor<?x40xbf16>, tensor<128x40xbf16>) outs(%f : tensor<?x128xf32>) {
  ^bb0(%l: bf16, %r: bf16, %o: f32):
    %lw = arith.extf %l : bf16 to f32
    %rw = arith.extf %r : bf16 to f32
    %p = arith.mulf %lw, %rw : f32
    %a = arith.addf %o, %p : f32
    linalg.yield %a : f32
  } -> tensor<?x128xf32>
  disc_plan.yield %c : tensor<?x128xf32>
}

// Lines of 148 bytes are no multiples of 16: they are evaluated element by element, and stored by the thread.
// CHECK-LABEL: gpu.func @odd(
// CHECK-NOT: nvvm.cp.async
// CHECK: llvm.load {{.*}} : !llvm.ptr<1> -> f32
// CHECK: llvm.store {{.*}} {alignment = 16 : i64} : vector<4xi32>, !llvm.ptr<3>
// CHECK: scf.for
// CHECK: gpu.barrier
// CHECK: nvvm.mma.sync
disc_plan.kernel_func contraction @odd attributes {
    layouts = [#disc_plan.layout<<0>, <[37, 1]>>, #disc_plan.layout<<0>, <[37, 1]>>, #disc_plan.layout<<0>, <[128, 1]>>],
    arg_dims = [#disc_shape.dims<[S, 37]>, #disc_shape.dims<[128, 37]>],
    schedule = #disc_plan.device_matrix<threads = 128, tile_rows = 64, tile_columns = 64, warp_rows = 32,
        warp_columns = 32, stages = 2, slices = 1>,
    symbols = ["S"]} {
^bb0(%x: tensor<?x37xf32>, %w: tensor<128x37xf32>):
  %zero = arith.constant 0.0 : f32
  %s = disc_shape.dim <S>
  %e = tensor.empty(%s) : tensor<?x128xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x128xf32>) -> tensor<?x128xf32>
  %c = linalg.generic {indexing_maps = [#x, #w, #y], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %w : tensor<?x37xf32>, tensor<128x37xf32>) outs(%f : tensor<?x128xf32>) {
  ^bb0(%l: f32, %r: f32, %o: f32):
    %p = arith.mulf %l, %r : f32
    %a = arith.addf %o, %p : f32
    linalg.yield %a : f32
  } -> tensor<?x128xf32>
  disc_plan.yield %c : tensor<?x128xf32>
}

// Few rows: each of four warps streams pairs of lines of columns through a queue in memory of the block, six steps long.
// The thread copies five steps before the loop, and in it the sixth, just before it waits for the oldest one. Chunks of
// rows come from memory, for both steps of a pair. 1016 numbers are no multiple of 64: what is beyond the end is zero.
// CHECK-LABEL: gpu.func @streamed(
// CHECK-COUNT-20: nvvm.cp.async.shared.global
// CHECK: scf.for
// CHECK-COUNT-4: nvvm.cp.async.shared.global %{{.*}}, %{{.*}}, 16, cache = cg, %{{.*}} : !llvm.ptr<3>, !llvm.ptr<1>, i32
// CHECK-NEXT: nvvm.cp.async.commit.group
// CHECK-COUNT-4: llvm.load {{.*}} {alignment = 16 : i64} : !llvm.ptr<1> -> vector<4xi32>
// CHECK: nvvm.cp.async.wait.group 5
// CHECK: arith.select {{.*}} : vector<4xi32>
// CHECK-COUNT-4: llvm.load {{.*}} {alignment = 16 : i64} : !llvm.ptr<3> -> vector<4xi32>
// CHECK-COUNT-8: nvvm.mma.sync
// CHECK-COUNT-4: nvvm.cp.async.shared.global
// CHECK: nvvm.cp.async.wait.group 5
// CHECK-COUNT-8: nvvm.mma.sync
// CHECK-NOT: nvvm.mma.sync
// CHECK: nvvm.cp.async.wait.group 0
// CHECK-NEXT: gpu.barrier
// CHECK: gpu.barrier
// CHECK-COUNT-3: arith.addf {{.*}} : vector<4xf32>
disc_plan.kernel_func contraction @streamed attributes {
    layouts = [#disc_plan.layout<<0>, <[1016, 1]>>, #disc_plan.layout<<0>, <[1016, 1]>>, #disc_plan.layout<<0>, <[128, 1]>>],
    arg_dims = [#disc_shape.dims<[S, 1016]>, #disc_shape.dims<[128, 1016]>],
    schedule = #disc_plan.device_matrix<threads = 128, tile_rows = 16, tile_columns = 32, warp_rows = 16,
        warp_columns = 32, stages = 6, slices = 4>,
    symbols = ["S"]} {
^bb0(%x: tensor<?x1016xbf16>, %w: tensor<128x1016xbf16>):
  %zero = arith.constant 0.0 : f32
  %s = disc_shape.dim <S>
  %e = tensor.empty(%s) : tensor<?x128xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x128xf32>) -> tensor<?x128xf32>
  %c = linalg.generic {indexing_maps = [#x, #w, #y], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %w : tensor<?x1016xbf16>, tensor<128x1016xbf16>) outs(%f : tensor<?x128xf32>) {
  ^bb0(%l: bf16, %r: bf16, %o: f32):
    %lw = arith.extf %l : bf16 to f32
    %rw = arith.extf %r : bf16 to f32
    %p = arith.mulf %lw, %rw : f32
    %a = arith.addf %o, %p : f32
    linalg.yield %a : f32
  } -> tensor<?x128xf32>
  disc_plan.yield %c : tensor<?x128xf32>
}
}
