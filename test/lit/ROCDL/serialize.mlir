// RUN: disc-opt %s --pass-pipeline='builtin.module(%rocdl-passes,disc-rocdl-serialize)' | FileCheck %s

// A code object for each architecture, with what its metadata says of the kernels.
// CHECK-NOT: gpu.module
// CHECK: gpu.binary @kernels
// CHECK-SAME: #gpu.object<#rocdl.target<O = 3, chip = "gfx90a", abi = "500">
// CHECK-SAME: "k", {{[^=]*}}metadata = {agprs = 0 : i64, sgpr_spills = 0 : i64, sgprs = {{[1-9][0-9]*}} : i64, shared = 512 : i64, stack = 0 : i64, vgpr_spills = 0 : i64, vgprs = {{[1-9][0-9]*}} : i64}
// CHECK-SAME: bin = "\7FELF
// CHECK-SAME: chip = "gfx942"
// CHECK-SAME: bin = "\7FELF
module attributes {disc_plan.target = #disc_plan.target<device = "rocm", arch = ["gfx90a", "gfx942"], warp = 64>} {
  gpu.module @kernels {
    llvm.mlir.global internal @k_shared() {addr_space = 3 : i32, alignment = 16 : i64} : !llvm.array<128 x f32>
    gpu.func @k(%r: !llvm.ptr<1>) kernel attributes {known_block_size = array<i32: 128, 1, 1>} {
      %t = gpu.thread_id x
      %i = arith.index_cast %t : index to i64
      %0 = arith.sitofp %i : i64 to f32
      %s = llvm.mlir.addressof @k_shared : !llvm.ptr<3>
      %p = llvm.getelementptr %s[%i] : (!llvm.ptr<3>, i64) -> !llvm.ptr<3>, f32
      llvm.store %0, %p : f32, !llvm.ptr<3>
      gpu.barrier
      %c127 = arith.constant 127 : i64
      %j = arith.subi %c127, %i : i64
      %q = llvm.getelementptr %s[%j] : (!llvm.ptr<3>, i64) -> !llvm.ptr<3>, f32
      %1 = llvm.load %q : !llvm.ptr<3> -> f32
      %o = llvm.getelementptr %r[%i] : (!llvm.ptr<1>, i64) -> !llvm.ptr<1>, f32
      llvm.store %1, %o : f32, !llvm.ptr<1>
      gpu.return
    }
  }
}
