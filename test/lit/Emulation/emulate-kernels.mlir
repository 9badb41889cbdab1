// RUN: disc-opt %s -disc-emulate-kernels | FileCheck %s

// A row's sum: shared memory, a barrier, a shuffle.
gpu.module @kernels {
  llvm.mlir.global internal @flags() {addr_space = 3 : i32} : !llvm.array<3 x i8>
  llvm.mlir.global internal @parts() {addr_space = 3 : i32, alignment = 16 : i64} : !llvm.array<8 x f32>
  gpu.func @sum(%x: !llvm.ptr<1>, %r: !llvm.ptr<1>, %n: i64) kernel attributes {known_block_size = array<i32: 256, 1, 1>} {
    %zero = arith.constant 0.0 : f32
    %width = arith.constant 32 : i32
    %sixteen = arith.constant 16 : i32
    %t = gpu.thread_id x
    %u = gpu.thread_id y
    %b = gpu.block_id x
    %d = gpu.block_dim x
    %end = arith.index_cast %n : i64 to index
    %s = scf.for %i = %t to %end step %d iter_args(%sum = %zero) -> (f32) {
      %k = arith.index_cast %i : index to i64
      %at = llvm.getelementptr %x[%k] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, f32
      %v = llvm.load %at : !llvm.ptr<1> -> f32
      %next = arith.addf %sum, %v : f32
      scf.yield %next : f32
    }
    %other, %valid = gpu.shuffle xor %s, %sixteen, %width : f32 loc("model.py":3:4)
    %both = arith.addf %s, %other : f32
    %whole = arith.select %valid, %both, %s : f32
    %shared = llvm.mlir.addressof @parts : !llvm.ptr<3>
    %flags = llvm.mlir.addressof @flags : !llvm.ptr<3>
    llvm.store %whole, %shared : f32, !llvm.ptr<3>
    gpu.barrier loc("model.py":5:4)
    %first = arith.cmpi eq, %t, %u : index
    scf.if %first {
      %all = llvm.load %shared : !llvm.ptr<3> -> f32
      %row = arith.index_cast %b : index to i64
      %to = llvm.getelementptr %r[%row] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, f32
      llvm.store %all, %to : f32, !llvm.ptr<1>
    }
    gpu.return
  }
}
disc_rt.device_kernel @sum threads 256 [reads, writes, number]

// CHECK-NOT: gpu.
// CHECK-NOT: ptr<
// CHECK-DAG: llvm.mlir.global private constant @[[TEXT:.*]]("model.py:3\00")
// CHECK: llvm.func @disc_rt_emulate_shared(!llvm.ptr, i64) -> !llvm.ptr
// CHECK: func.func private @sum_emulated(%[[THREAD:.*]]: !llvm.ptr, %[[ARGS:.*]]: !llvm.ptr) {
// CHECK:   llvm.getelementptr %[[THREAD]][0, 2]
// CHECK:   llvm.getelementptr %[[THREAD]][0, 1]
// CHECK:   %[[T_AT:.*]] = llvm.getelementptr %[[THREAD]][0, 0]
// CHECK:   %[[T_BITS:.*]] = llvm.load %[[T_AT]] : !llvm.ptr -> i32
// CHECK:   arith.index_castui %[[T_BITS]] : i32 to index
// CHECK:   %[[SHARED:.*]] = llvm.call @disc_rt_emulate_shared(%[[THREAD]], %{{.*}})
// CHECK:   %[[X_AT:.*]] = llvm.getelementptr %[[ARGS]][0] : (!llvm.ptr) -> !llvm.ptr, !llvm.ptr
// CHECK:   %[[X_VALUE:.*]] = llvm.load %[[X_AT]] : !llvm.ptr -> !llvm.ptr
// CHECK:   %[[X:.*]] = llvm.load %[[X_VALUE]] : !llvm.ptr -> !llvm.ptr
// CHECK:   %[[N_AT:.*]] = llvm.getelementptr %[[ARGS]][2] : (!llvm.ptr) -> !llvm.ptr, !llvm.ptr
// CHECK:   %[[N_VALUE:.*]] = llvm.load %[[N_AT]] : !llvm.ptr -> !llvm.ptr
// CHECK:   llvm.load %[[N_VALUE]] : !llvm.ptr -> i64
// CHECK:   scf.for
// CHECK:   %[[BITS:.*]] = arith.extui %{{.*}} : i32 to i64
// CHECK:   %[[SITE:.*]] = llvm.mlir.addressof @sum_site_0
// CHECK:   llvm.call @disc_rt_emulate_shuffle(%[[THREAD]], %[[SITE]], %[[BITS]], %{{.*}}, %{{.*}})
// CHECK:   %[[RANGE_AT:.*]] = llvm.getelementptr %[[THREAD]][0, 4]
// CHECK:   %[[RANGE:.*]] = llvm.load %[[RANGE_AT]] : !llvm.ptr -> i32
// CHECK:   arith.trunci %[[RANGE]] : i32 to i1
// CHECK-DAG:   llvm.getelementptr %[[SHARED]][0] : (!llvm.ptr) -> !llvm.ptr, i8
// CHECK-DAG:   llvm.getelementptr %[[SHARED]][32] : (!llvm.ptr) -> !llvm.ptr, i8
// CHECK:   %[[BARRIER:.*]] = llvm.mlir.addressof @sum_site_1
// CHECK:   llvm.call @disc_rt_emulate_barrier(%[[THREAD]], %[[BARRIER]])
// CHECK:   return
// CHECK: disc_rt.device_kernel @sum threads 256 [reads, writes, number] host @sum_emulated
// CHECK: llvm.mlir.global private constant @sum_site_0() {{.*}} : !llvm.struct<(ptr, i64, i64, i64, i64, i64, i64)> {
// CHECK:   llvm.mlir.addressof @[[TEXT]]
