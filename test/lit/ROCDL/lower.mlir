// RUN: disc-opt %s --pass-pipeline='builtin.module(disc-lower-math,gpu.module(convert-scf-to-cf,convert-vector-to-llvm),disc-rocdl-lower,gpu.module(reconcile-unrealized-casts,canonicalize,cse))' | FileCheck %s

// The grid's size is the first hidden argument.
// CHECK-LABEL: llvm.func @ids
// CHECK-SAME: %{{.*}}: !llvm.ptr<1> {llvm.readonly}, %[[R:.*]]: !llvm.ptr<1>, %{{.*}}: i64)
// CHECK-SAME: rocdl.flat_work_group_size = "256,256", rocdl.kernel, rocdl.reqd_work_group_size = array<i32: 256, 1, 1>
// CHECK-DAG: llvm.mlir.constant(256 : index) : i64
// CHECK-DAG: rocdl.workitem.id.x range <i32, 0, 256>
// CHECK-DAG: rocdl.workgroup.id.x
// CHECK-DAG: %[[HIDDEN:.*]] = llvm.call_intrinsic "llvm.amdgcn.implicitarg.ptr"() : () -> !llvm.ptr<4>
// CHECK-DAG: llvm.load %[[HIDDEN]] invariant {alignment = 4 : i64} : !llvm.ptr<4> -> i32
disc_rt.device_kernel @ids threads 256 [reads, writes, number]
gpu.module @kernels {
  gpu.func @ids(%x: !llvm.ptr<1>, %r: !llvm.ptr<1>, %n: i64) kernel attributes {known_block_size = array<i32: 256, 1, 1>} {
    %t = gpu.thread_id x
    %b = gpu.block_id x
    %s = gpu.block_dim x
    %g = gpu.grid_dim x
    %0 = arith.muli %b, %s : index
    %1 = arith.addi %0, %t : index
    %2 = arith.addi %1, %g : index
    %3 = arith.index_cast %2 : index to i64
    %4 = llvm.getelementptr %x[%3] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, f32
    %5 = llvm.load %4 : !llvm.ptr<1> -> f32
    llvm.store %5, %r : f32, !llvm.ptr<1>
    gpu.return
  }

  // Constant distances need no address where DPP or a swizzle knows them.
  // CHECK-LABEL: llvm.func @shuffles
  // CHECK: rocdl.update.dpp {{.*}} with 177, 15, 15, true
  // CHECK: rocdl.update.dpp {{.*}} with 296, 15, 15, true
  // CHECK: rocdl.ds_swizzle
  // CHECK: rocdl.mbcnt.hi
  // CHECK: rocdl.ds_bpermute
  // CHECK-COUNT-2: rocdl.ds_bpermute
  // CHECK: rocdl.barrier
  gpu.func @shuffles(%r: !llvm.ptr<1>, %x: f64, %y: f32) kernel attributes {known_block_size = array<i32: 64, 1, 1>} {
    %c1 = arith.constant 1 : i32
    %c8 = arith.constant 8 : i32
    %c16 = arith.constant 16 : i32
    %c32 = arith.constant 32 : i32
    %c64 = arith.constant 64 : i32
    %0, %ok0 = gpu.shuffle xor %y, %c1, %c64 : f32
    %1, %ok1 = gpu.shuffle xor %0, %c8, %c64 : f32
    %2, %ok2 = gpu.shuffle xor %1, %c16, %c64 : f32
    %3, %ok3 = gpu.shuffle xor %2, %c32, %c64 : f32
    %4, %ok4 = gpu.shuffle down %x, %c1, %c64 : f64
    gpu.barrier
    llvm.store %3, %r : f32, !llvm.ptr<1>
    llvm.store %4, %r : f64, !llvm.ptr<1>
    gpu.return
  }
}
