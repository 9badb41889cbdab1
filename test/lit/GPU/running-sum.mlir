// RUN: disc-opt %s --pass-pipeline='builtin.module(disc-gpu-emit-kernels,canonicalize,cse)' | FileCheck %s
// Warps of 64: four of them, six steps each.
// RUN: disc-opt %s --pass-pipeline='builtin.module(disc-describe-device{device=rocm warp=64},disc-gpu-emit-kernels,canonicalize,cse)' | FileCheck %s --check-prefix=WARP64

module attributes {disc_plan.target = #disc_plan.target<device = "cuda", warp = 32>} {
disc_shape.symbol @B min 0
disc_shape.symbol @S min 0

// Along memory: a block for a line, sums up to each lane in five steps, the eight warps' totals through the block's memory.
// CHECK: llvm.mlir.global internal @rows_shared0() {addr_space = 3 : i32, alignment = 16 : i64} : !llvm.array<8 x f32>
// CHECK-LABEL: gpu.func @rows
// CHECK-SAME: (%{{[a-z0-9]+}}: !llvm.ptr<1>{{.*}}, %{{[a-z0-9]+}}: !llvm.ptr<1>{{.*}}, %{{[a-z0-9]+}}: i64, %[[S:[a-z0-9]+]]: i64)
// CHECK-DAG: %[[THREADS:.*]] = arith.constant 256 : index
// CHECK: %[[N:.*]] = arith.index_cast %[[S]]
// CHECK: scf.for %[[START:.*]] = %{{.*}} to %[[N]] step %[[THREADS]] iter_args(%[[CARRY:.*]] = %{{.*}}) -> (f32) {
// CHECK: %[[I:.*]] = arith.addi %[[START]]
// CHECK: %[[INSIDE:.*]] = arith.cmpi slt, %[[I]], %[[N]]
// CHECK: arith.minsi %[[I]]
// CHECK: %[[V:.*]] = llvm.load
// CHECK: arith.select %[[INSIDE]], %[[V]]
// CHECK-COUNT-5: gpu.shuffle{{ *}}up
// CHECK-NOT: gpu.shuffle
// CHECK: scf.if
// CHECK: llvm.store {{.*}} : f32, !llvm.ptr<3>
// CHECK: gpu.barrier
// CHECK: llvm.load {{.*}} : !llvm.ptr<3> -> f32
// CHECK: arith.addf %[[CARRY]]
// CHECK-COUNT-7: llvm.load {{.*}} : !llvm.ptr<3> -> f32
// Nobody writes the next totals before all have read these.
// CHECK: gpu.barrier
// CHECK: scf.if %[[INSIDE]] {
// CHECK: llvm.store {{.*}} : f32, !llvm.ptr<1>
// WARP64: llvm.mlir.global internal @rows_shared0() {{.*}} : !llvm.array<4 x f32>
// WARP64-COUNT-6: gpu.shuffle{{ *}}up
// WARP64-NOT: gpu.shuffle
disc_plan.kernel_func loop @rows attributes {symbols = ["B", "S"], arg_dims = [#disc_shape.dims<[B, S]>],
    layouts = [#disc_plan.layout<<0>, <[S, 1]>>, #disc_plan.layout<<0>, <[S, 1]>>],
    schedule = #disc_plan.device_sum<threads = 256, line_threads = 256>} {
^bb0(%x: tensor<?x?xf32>):
  %r = disc_tensor.running_sum %x dim 1 : tensor<?x?xf32> -> tensor<?x?xf32>
  disc_plan.yield %r : tensor<?x?xf32>
}

// Across memory: neighbouring threads have neighbouring columns, and nothing to tell each other.
// CHECK-LABEL: gpu.func @columns
// CHECK-NOT: gpu.shuffle
// CHECK: %[[THERE:.*]] = arith.cmpi slt
// CHECK: scf.if %[[THERE]] {
// CHECK: scf.for {{.*}} iter_args(%[[SUM:.*]] = %{{.*}}) -> (i64)
// CHECK: %[[V:.*]] = llvm.load
// CHECK: %[[NEXT:.*]] = arith.addi %[[SUM]], %[[V]] : i64
// CHECK: llvm.store %[[NEXT]]
// CHECK: scf.yield %[[NEXT]]
// CHECK-NOT: gpu.barrier
// CHECK: gpu.return
disc_plan.kernel_func loop @columns attributes {symbols = ["B", "S"], arg_dims = [#disc_shape.dims<[B, S]>],
    layouts = [#disc_plan.layout<<0>, <[S, 1]>>, #disc_plan.layout<<0>, <[S, 1]>>],
    schedule = #disc_plan.device_sum<threads = 256, line_threads = 1>} {
^bb0(%x: tensor<?x?xi64>):
  %r = disc_tensor.running_sum %x dim 0 : tensor<?x?xi64> -> tensor<?x?xi64>
  disc_plan.yield %r : tensor<?x?xi64>
}
}
