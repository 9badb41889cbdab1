// Approximate instructions of NVIDIA's are exact ones here, but for denormals, which `ftz` makes zeros.
// RUN: disc-opt %s -disc-emulate-kernels | FileCheck %s

// CHECK: func.func private @k_emulated
// CHECK: %[[X:.*]] = llvm.load %{{.*}} : !llvm.ptr -> f32
// CHECK: %[[SIZE:.*]] = math.absf %[[X]] : f32
// CHECK: %[[TINY:.*]] = arith.cmpf olt, %[[SIZE]], %{{.*}} : f32
// CHECK: %[[ZERO:.*]] = math.copysign %{{.*}}, %[[X]] : f32
// CHECK: %[[GIVEN:.*]] = arith.select %[[TINY]], %[[ZERO]], %[[X]] : f32
// CHECK: %[[POWER:.*]] = llvm.call @disc_rt_emulate_power(%[[GIVEN]])
// CHECK: math.absf %[[POWER]] : f32
// CHECK: %[[P:.*]] = arith.select %{{.*}}, %{{.*}}, %[[POWER]] : f32
// CHECK: %[[ONE:.*]] = arith.constant 1.000000e+00 : f32
// CHECK: arith.divf %[[ONE]], %{{.*}} : f32
// CHECK: %[[R:.*]] = arith.select
// CHECK: arith.divf %[[P]], %[[R]] : f32
gpu.module @kernels {
  gpu.func @k(%x: !llvm.ptr<1>, %r: !llvm.ptr<1>) kernel attributes {known_block_size = array<i32: 32, 1, 1>} {
    %v = llvm.load %x : !llvm.ptr<1> -> f32
    %p = llvm.call_intrinsic "llvm.nvvm.ex2.approx.ftz"(%v) : (f32) -> f32
    %q = llvm.call_intrinsic "llvm.nvvm.rcp.approx.ftz.f"(%p) : (f32) -> f32
    %d = llvm.call_intrinsic "llvm.nvvm.div.full"(%p, %q) : (f32, f32) -> f32
    llvm.store %d, %r : f32, !llvm.ptr<1>
    gpu.return
  }
}
disc_rt.device_kernel @k threads 32 [reads, writes]
