// RUN: disc-opt %s -disc-emulate-kernels=check=true -split-input-file | FileCheck %s

disc_shape.symbol @N min 1 max 1000
gpu.module @kernels {
  llvm.mlir.global internal @flags() {addr_space = 3 : i32} : !llvm.array<3 x i8>
  llvm.mlir.global internal @parts() {addr_space = 3 : i32, alignment = 16 : i64} : !llvm.array<8 x f32>
  gpu.func @k(%x: !llvm.ptr<1> {disc_plan.bytes = #disc_shape.expr<N * 4>}, %r: !llvm.ptr<1>, %n: i64) kernel {
    %zero = arith.constant dense<0.0> : vector<4xf32>
    %mask = arith.constant dense<[true, true, false, true]> : vector<4xi1>
    %at = llvm.getelementptr %x[%n] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, f32
    %some = llvm.intr.masked.load %at, %mask, %zero {alignment = 4 : i32} : (!llvm.ptr<1>, vector<4xi1>, vector<4xf32>) -> vector<4xf32> loc("model.py":2:1)
    %one = vector.extract %some[0] : f32 from vector<4xf32>
    %parts = llvm.mlir.addressof @parts : !llvm.ptr<3>
    %flags = llvm.mlir.addressof @flags : !llvm.ptr<3>
    %flag = llvm.load %flags : !llvm.ptr<3> -> i8
    %part = llvm.getelementptr %parts[%n] : (!llvm.ptr<3>, i64) -> !llvm.ptr<3>, f32
    llvm.store %one, %part : f32, !llvm.ptr<3>
    %offsets = arith.constant dense<[0, 3, 6, 9]> : vector<4xi64>
    %places = llvm.getelementptr %r[%offsets] : (!llvm.ptr<1>, vector<4xi64>) -> vector<4x!llvm.ptr<1>>, f32
    llvm.intr.masked.scatter %some, %places, %mask {alignment = 4 : i32} : vector<4xf32>, vector<4xi1> into vector<4x!llvm.ptr<1>>
    %private = llvm.alloca %n x f32 : (i64) -> !llvm.ptr
    llvm.store %one, %private : f32, !llvm.ptr
    gpu.return
  }
}
disc_rt.device_kernel @k threads 32 [reads, writes, number] {disc_plan.symbols = ["N"], disc_plan.tasks = #disc_shape.expr<(N + 15) floordiv 16>}

// CHECK: func.func private @k_emulated(%[[THREAD:.*]]: !llvm.ptr, %{{.*}}: !llvm.ptr) {
// CHECK-NEXT:   %[[MOST:.*]] = llvm.mlir.constant(63 : i64)
// CHECK-NEXT:   llvm.call @disc_rt_emulate_check(%[[THREAD]], %[[MOST]])
// CHECK:   %[[N:.*]] = llvm.load %{{.*}} : !llvm.ptr -> i64
// CHECK:   %[[BYTES:.*]] = arith.muli
// CHECK:   %[[EXTENT:.*]] = arith.index_cast %[[BYTES]] : index to i64
// CHECK:   llvm.call @disc_rt_emulate_extent(%[[THREAD]], %{{.*}}, %[[EXTENT]])
// CHECK:   %[[AT:.*]] = llvm.getelementptr %{{.*}}[%[[N]]]
// CHECK:   %[[LOAD:.*]] = llvm.mlir.addressof @[[LOAD_SITE:k_site_.*]] : !llvm.ptr
// CHECK:   %[[BITS:.*]] = llvm.bitcast %{{.*}} : vector<4xi1> to i4
// CHECK:   %[[LANES:.*]] = llvm.zext %[[BITS]] : i4 to i64
// CHECK:   llvm.call @disc_rt_emulate_access(%[[THREAD]], %[[LOAD]], %[[AT]], %[[LANES]])
// CHECK:   llvm.intr.masked.load
// CHECK:   %[[FLAG:.*]] = llvm.mlir.addressof @[[FLAG_SITE:k_site_.*]] : !llvm.ptr
// CHECK:   %[[ALL:.*]] = llvm.mlir.constant(1 : i64)
// CHECK:   llvm.call @disc_rt_emulate_access(%[[THREAD]], %[[FLAG]], %{{.*}}, %[[ALL]])
// CHECK:   %[[PART:.*]] = llvm.mlir.addressof @[[PART_SITE:k_site_.*]] : !llvm.ptr
// CHECK:   llvm.call @disc_rt_emulate_access(%[[THREAD]], %[[PART]]
// CHECK:   llvm.store
// CHECK:   %[[PLACES:.*]] = llvm.getelementptr {{.*}} -> vector<4x!llvm.ptr>, f32
// CHECK-COUNT-4: llvm.call @disc_rt_emulate_access
// CHECK-NOT: llvm.call @disc_rt_emulate_access
// CHECK:   return
// CHECK: llvm.mlir.global private constant @[[LOAD_SITE]]
// CHECK-NEXT:   llvm.mlir.poison
// CHECK-NEXT:   llvm.mlir.addressof @{{.*}}
// CHECK-NEXT:   llvm.mlir.constant(5 : i64)
// CHECK-NEXT:   llvm.mlir.constant(4 : i64)
// CHECK-NEXT:   llvm.mlir.constant(4 : i64)
// CHECK-NEXT:   llvm.mlir.constant(0 : i64)
// The first array is read for the flag, then the second is written.
// CHECK: llvm.mlir.global private constant @[[FLAG_SITE]]
// CHECK-NEXT:   llvm.mlir.poison
// CHECK-NEXT:   llvm.mlir.addressof @{{.*}}
// CHECK-NEXT:   llvm.mlir.constant(5 : i64)
// CHECK-NEXT:   llvm.mlir.constant(1 : i64)
// CHECK-NEXT:   llvm.mlir.constant(1 : i64)
// CHECK-NEXT:   llvm.mlir.constant(-2 : i64)
// CHECK-NEXT:   llvm.mlir.constant(32 : i64)
// CHECK-NEXT:   llvm.mlir.constant(35 : i64)
// CHECK: llvm.mlir.global private constant @[[PART_SITE]]
// CHECK-NEXT:   llvm.mlir.poison
// CHECK-NEXT:   llvm.mlir.addressof @{{.*}}
// CHECK-NEXT:   llvm.mlir.constant(6 : i64)
// CHECK-NEXT:   llvm.mlir.constant(4 : i64)
// CHECK-NEXT:   llvm.mlir.constant(4 : i64)
// CHECK-NEXT:   llvm.mlir.constant(-2 : i64)
// CHECK-NEXT:   llvm.mlir.constant(0 : i64)
// CHECK-NEXT:   llvm.mlir.constant(32 : i64)

// -----

// Addresses that loops and branches carry are followed, too.
gpu.module @kernels {
  gpu.func @follow(%x: !llvm.ptr<1>, %r: !llvm.ptr<1>, %c: i1, %n: i64) kernel {
    %zero = arith.constant 0 : index
    %one = arith.constant 1 : index
    %end = arith.index_cast %n : i64 to index
    %last = scf.for %i = %zero to %end step %one iter_args(%p = %r) -> (!llvm.ptr<1>) {
      llvm.store %n, %p : i64, !llvm.ptr<1>
      %next = llvm.getelementptr %p[8] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i8
      scf.yield %next : !llvm.ptr<1>
    }
    %either = scf.if %c -> !llvm.ptr<1> {
      scf.yield %x : !llvm.ptr<1>
    } else {
      scf.yield %last : !llvm.ptr<1>
    }
    %old = llvm.atomicrmw add %either, %n monotonic : !llvm.ptr<1>, i64
    gpu.return
  }
}
disc_rt.device_kernel @follow threads 32 [reads, writes, number, number]

// CHECK: llvm.mlir.global private constant @follow_site_0
// CHECK-NEXT:   llvm.mlir.poison
// CHECK-NEXT:   llvm.mlir.addressof @{{.*}}
// CHECK-NEXT:   llvm.mlir.constant(6 : i64)
// CHECK-NEXT:   llvm.mlir.constant(8 : i64)
// CHECK-NEXT:   llvm.mlir.constant(8 : i64)
// CHECK-NEXT:   llvm.mlir.constant(1 : i64)
// CHECK: llvm.mlir.global private constant @follow_site_1
// CHECK-NEXT:   llvm.mlir.poison
// CHECK-NEXT:   llvm.mlir.addressof @{{.*}}
// CHECK-NEXT:   llvm.mlir.constant(7 : i64)
// CHECK-NEXT:   llvm.mlir.constant(8 : i64)
// CHECK-NEXT:   llvm.mlir.constant(8 : i64)
// CHECK-NEXT:   llvm.mlir.constant(-1 : i64)
