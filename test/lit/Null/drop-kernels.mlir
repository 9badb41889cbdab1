// RUN: disc-opt %s --disc-drop-kernels | FileCheck %s
// CHECK-NOT: gpu.
// CHECK: disc_rt.device_kernel @k
// CHECK-NOT: gpu.
gpu.module @kernels {
  gpu.func @k(%x: !llvm.ptr<1>) kernel attributes {known_block_size = array<i32: 32, 1, 1>} { gpu.return }
}
disc_rt.device_kernel @k threads 32 [writes]
