// RUN: disc-opt %s --pass-pipeline='builtin.module(%nvvm-passes,disc-nvvm-serialize{cubin=false})' | FileCheck %s

// Without ptxas there is the PTX of the lowest architecture.
// CHECK-NOT: gpu.module
// CHECK: gpu.binary @kernels
// CHECK-SAME: #gpu.object<#nvvm.target<O = 3, chip = "sm_80">
// CHECK-SAME: #gpu.kernel_metadata<"k",
// CHECK-SAME: assembly = "
// CHECK-SAME: .target sm_80
// CHECK-SAME: .visible .entry k(
// CHECK-NOT: chip = "sm_90"
module attributes {disc_plan.target = #disc_plan.target<device = "cuda", arch = ["sm_90", "sm_80"], warp = 32>} {
  gpu.module @kernels {
    gpu.func @k(%r: !llvm.ptr<1>) kernel attributes {known_block_size = array<i32: 256, 1, 1>} {
      %c0 = arith.constant 0.0 : f32
      llvm.store %c0, %r : f32, !llvm.ptr<1>
      gpu.return
    }
  }
}
