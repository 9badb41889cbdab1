// RUN: disc-opt %s --pass-pipeline='builtin.module(disc-gpu-emit-kernels,canonicalize,cse)' | FileCheck %s

module attributes {disc_plan.target = #disc_plan.target<device = "cuda", warp = 32, matrix_unit = true>} {
disc_shape.symbol @B min 0 max 64
disc_shape.symbol @S min 0 max 512

// Two stages of 64 keys and values of 32 bf16: 64 bytes of a key, 80 of a value. The queries stay in registers.
// CHECK: llvm.mlir.global internal @causal_shared0() {addr_space = 3 : i32, alignment = 16 : i64} : !llvm.array<4608 x i32>
// CHECK-LABEL: gpu.func @causal(
// CHECK-SAME: known_block_size = array<i32: 128, 1, 1>
// CHECK-COUNT-2: llvm.load {{.*}} {alignment = 16 : i64} : !llvm.ptr<1> -> vector<4xi32>
// CHECK-COUNT-4: nvvm.cp.async.shared.global {{.*}} : !llvm.ptr<3>, !llvm.ptr<1>, i32
// CHECK: nvvm.cp.async.commit.group
// Two maxima, two sums, 16 results and the stage.
// CHECK: %[[STATE:.*]]:21 = scf.for
// CHECK: nvvm.cp.async.wait.group 0
// CHECK-NEXT: gpu.barrier
// CHECK-COUNT-4: nvvm.cp.async.shared.global
// Scores of 8 tiles of 8 keys.
// CHECK-COUNT-16: nvvm.mma.sync {{.*}} multiplicandAPtxType = #nvvm.mma_type<bf16>
// CHECK-NOT: nvvm.mma.sync
// Where each key is, only steps at the end or at the diagonal ask.
// CHECK: scf.if
// CHECK: arith.select {{.*}}, %{{.*}}, %{{.*}} : f32
// CHECK: gpu.shuffle{{ *}}xor
// CHECK: llvm.call_intrinsic "llvm.nvvm.ex2.approx"
// CHECK: arith.truncf {{.*}} : vector<2xf32> to vector<2xbf16>
// Four tiles of 16 keys times four of 8 columns; values are transposed as they are read.
// CHECK: nvvm.ldmatrix {{.*}}num = 4 : i32
// CHECK-COUNT-16: nvvm.mma.sync
// CHECK-NOT: nvvm.mma.sync
// CHECK: scf.yield
// Two neighbouring columns are stored together.
// CHECK: arith.divf
// CHECK: llvm.store {{.*}} {alignment = 4 : i64} : vector<2xi16>, !llvm.ptr<1>
disc_plan.kernel_func attention @causal attributes {
    layouts = [#disc_plan.layout<<0>, <[S * 96, S * 32, 32, 1]>>, #disc_plan.layout<<0>, <[S * 96, S * 32, 32, 1]>>,
               #disc_plan.layout<<0>, <[S * 96, S * 32, 32, 1]>>, #disc_plan.layout<<0>, <[S * 96, S * 32, 32, 1]>>],
    arg_dims = [#disc_shape.dims<[B, 3, S, 32]>, #disc_shape.dims<[B, 3, S, 32]>, #disc_shape.dims<[B, 3, S, 32]>],
    schedule = #disc_plan.device_attention<threads = 128, queries = 64, keys = 64, warp_rows = 16>,
    symbols = ["B", "S"]} {
^bb0(%q: tensor<?x3x?x32xbf16>, %k: tensor<?x3x?x32xbf16>, %v: tensor<?x3x?x32xbf16>):
  %r = disc_tensor.attention %q, %k, %v scale 0.25 causal true : tensor<?x3x?x32xbf16>, tensor<?x3x?x32xbf16>, tensor<?x3x?x32xbf16> -> tensor<?x3x?x32xbf16>
  disc_plan.yield %r : tensor<?x3x?x32xbf16>
}

// f32 is taken apart, exponentials too; values are read in pairs.
// CHECK-LABEL: gpu.func @single(
// CHECK: scf.for
// CHECK: nvvm.convert.float.to.tf32
// CHECK: multiplicandAPtxType = #nvvm.mma_type<tf32>
// CHECK: llvm.load {{.*}} {alignment = 8 : i64} : !llvm.ptr<3> -> vector<2xi32>
// CHECK: llvm.store {{.*}} {alignment = 16 : i64} : vector<4xf32>, !llvm.ptr<1>
disc_plan.kernel_func attention @single attributes {
    layouts = [#disc_plan.layout<<0>, <[S * 96, S * 32, 32, 1]>>, #disc_plan.layout<<0>, <[S * 96, S * 32, 32, 1]>>,
               #disc_plan.layout<<0>, <[S * 96, S * 32, 32, 1]>>, #disc_plan.layout<<0>, <[S * 96, S * 32, 32, 1]>>],
    arg_dims = [#disc_shape.dims<[B, 3, S, 32]>, #disc_shape.dims<[B, 3, S, 32]>, #disc_shape.dims<[B, 3, S, 32]>],
    schedule = #disc_plan.device_attention<threads = 128, queries = 64, keys = 32, warp_rows = 16>,
    symbols = ["B", "S"]} {
^bb0(%q: tensor<?x3x?x32xf32>, %k: tensor<?x3x?x32xf32>, %v: tensor<?x3x?x32xf32>):
  %r = disc_tensor.attention %q, %k, %v scale 0.25 causal false : tensor<?x3x?x32xf32>, tensor<?x3x?x32xf32>, tensor<?x3x?x32xf32> -> tensor<?x3x?x32xf32>
  disc_plan.yield %r : tensor<?x3x?x32xf32>
}
}
