// RUN: disc-opt %s --pass-pipeline='builtin.module(disc-lower-math,gpu.module(convert-scf-to-cf,convert-vector-to-llvm),disc-nvvm-lower,gpu.module(reconcile-unrealized-casts,canonicalize,cse))' | FileCheck %s

// The block's size is exact, ids and symbols have ranges, and buffers that are only read say so.
// CHECK-LABEL: llvm.func @ids
// CHECK-SAME: %{{.*}}: !llvm.ptr<1> {llvm.readonly}, %[[R:.*]]: !llvm.ptr<1>, %{{.*}}: i64 {llvm.range = #llvm.constant_range<i64, 1, 65>})
// CHECK-SAME: nvvm.kernel
// CHECK-SAME: nvvm.reqntid = array<i32: 256, 1, 1>
// CHECK-NOT: maxntid
// CHECK-DAG: llvm.mlir.constant(256 : index) : i64
// CHECK-DAG: nvvm.read.ptx.sreg.tid.x range <i32, 0, 256>
// CHECK-DAG: nvvm.read.ptx.sreg.ctaid.x range <i32, 0, 256>
// CHECK-DAG: nvvm.read.ptx.sreg.nctaid.x
disc_shape.symbol @B min 1 max 64
disc_rt.device_kernel @ids threads 256 [reads, writes, number] {disc_plan.symbols = ["B"], disc_plan.tasks = #disc_shape.expr<B * 4>}
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

  // Words of 64 bits move as two.
  // CHECK-LABEL: llvm.func @shuffles
  // CHECK-COUNT-2: nvvm.shfl.sync down
  // CHECK: nvvm.shfl.sync bfly
  // CHECK: nvvm.barrier0
  gpu.func @shuffles(%r: !llvm.ptr<1>, %x: f64, %y: f32) kernel attributes {known_block_size = array<i32: 32, 1, 1>} {
    %c1 = arith.constant 1 : i32
    %c32 = arith.constant 32 : i32
    %0, %ok0 = gpu.shuffle down %x, %c1, %c32 : f64
    %1, %ok1 = gpu.shuffle xor %y, %c1, %c32 : f32
    gpu.barrier
    llvm.store %0, %r : f64, !llvm.ptr<1>
    llvm.store %1, %r : f32, !llvm.ptr<1>
    gpu.return
  }

  // Loops and branches; no function of a library.
  // CHECK-LABEL: llvm.func @flow
  // CHECK: llvm.cond_br
  // CHECK: llvm.intr.floor
  // CHECK-NOT: @__nv
  gpu.func @flow(%r: !llvm.ptr<1>, %n: i64, %x: vector<4xf32>) kernel attributes {known_block_size = array<i32: 32, 1, 1>} {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %end = arith.index_cast %n : i64 to index
    %0 = scf.for %i = %c0 to %end step %c1 iter_args(%a = %x) -> vector<4xf32> {
      %1 = math.floor %a : vector<4xf32>
      %2 = math.exp %1 : vector<4xf32>
      scf.yield %2 : vector<4xf32>
    }
    llvm.store %0, %r : vector<4xf32>, !llvm.ptr<1>
    gpu.return
  }
}
