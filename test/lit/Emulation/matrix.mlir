// Instructions of a matrix unit, copies to memory of the block, powers of two.
// RUN: disc-opt %s -disc-emulate-kernels | FileCheck %s
// RUN: disc-opt %s --pass-pipeline='builtin.module(disc-emulate-kernels{check=true})' | FileCheck %s --check-prefix=CHECKED
// RUN: disc-opt %s --pass-pipeline='builtin.module(gpu.module(convert-scf-to-cf,convert-vector-to-llvm),disc-nvvm-lower)' | FileCheck %s --check-prefix=NVVM

// CHECK: func.func private @k_emulated(%[[THREAD:.*]]: !llvm.ptr, %{{.*}}: !llvm.ptr)
// CHECK: %[[FRAGMENT:.*]] = llvm.alloca %{{.*}} x !llvm.array<10 x i32>
// CHECK: llvm.call @disc_rt_emulate_copy(%[[THREAD]], %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}})
// CHECK: llvm.call @disc_rt_emulate_commit(%[[THREAD]])
// CHECK: llvm.call @disc_rt_emulate_wait(%[[THREAD]], %{{.*}})
// Rounded, and zero if it is not finite.
// CHECK: %[[ADDED:.*]] = arith.addi
// CHECK: %[[ROUNDED:.*]] = arith.andi %[[ADDED]]
// CHECK: arith.select %{{.*}}, %[[ROUNDED]], %{{.*}} : i32
// CHECK: llvm.call @disc_rt_emulate_multiply(%[[THREAD]], %{{.*}}, %[[FRAGMENT]])
// CHECK: llvm.insertvalue
// CHECK: llvm.call @disc_rt_emulate_power(
// CHECKED: llvm.call @disc_rt_emulate_access
// CHECKED: llvm.call @disc_rt_emulate_access
// CHECKED: llvm.call @disc_rt_emulate_copy
// NVVM: nvvm.cp.async.shared.global
// NVVM-NOT: nvvm.convert.float.to.tf32
// NVVM: %[[HALF:.*]] = llvm.mlir.constant(4096 : i32)
// NVVM: llvm.add %{{.*}}, %[[HALF]]
// NVVM: nvvm.mma.sync
gpu.module @kernels {
  llvm.mlir.global internal @shared() {addr_space = 3 : i32, alignment = 16 : i64} : !llvm.array<128 x i32>
  gpu.func @k(%x: !llvm.ptr<1>, %r: !llvm.ptr<1>, %size: i32) kernel attributes {known_block_size = array<i32: 32, 1, 1>} {
    %s = llvm.mlir.addressof @shared : !llvm.ptr<3>
    nvvm.cp.async.shared.global %s, %x, 16, cache = cg, %size : !llvm.ptr<3>, !llvm.ptr<1>, i32
    nvvm.cp.async.commit.group
    nvvm.cp.async.wait.group 0
    gpu.barrier
    %v = llvm.load %s : !llvm.ptr<3> -> f32
    %w = nvvm.convert.float.to.tf32 %v {rnd = #nvvm.fp_rnd_mode<rna>}
    %m = nvvm.mma.sync A[%w, %w, %w, %w] B[%w, %w] C[%v, %v, %v, %v] {layoutA = #nvvm.mma_layout<row>, layoutB = #nvvm.mma_layout<col>, multiplicandAPtxType = #nvvm.mma_type<tf32>, multiplicandBPtxType = #nvvm.mma_type<tf32>, shape = #nvvm.shape<m = 16, n = 8, k = 8>} : (i32, i32, f32) -> !llvm.struct<(f32, f32, f32, f32)>
    %0 = llvm.extractvalue %m[0] : !llvm.struct<(f32, f32, f32, f32)>
    %p = llvm.call_intrinsic "llvm.nvvm.ex2.approx"(%0) : (f32) -> f32
    llvm.store %p, %r : f32, !llvm.ptr<1>
    gpu.return
  }
}
disc_rt.device_kernel @k threads 32 [reads, writes, number]
