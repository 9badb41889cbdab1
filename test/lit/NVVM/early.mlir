// RUN: disc-opt %s --pass-pipeline='builtin.module(%nvvm-passes,disc-nvvm-serialize{cubin=false arch=sm_80})' | FileCheck %s --check-prefix=OLD
// RUN: disc-opt %s --pass-pipeline='builtin.module(%nvvm-passes,disc-nvvm-serialize{cubin=false arch=sm_90})' | FileCheck %s --check-prefix=NEW

// Chips before sm_90 have no early start. An image says so where every kernel waits for those before it.
// OLD-NOT: properties
// OLD-NOT: griddepcontrol
// NEW: gpu.binary @waiting
// NEW-SAME: properties = {early = true}
// NEW-SAME: griddepcontrol.launch_dependents;
// NEW-SAME: griddepcontrol.wait;
// NEW: gpu.binary @mixed
// NEW-NOT: properties
// NEW-NOT: griddepcontrol
module attributes {disc_plan.target = #disc_plan.target<device = "cuda", warp = 32>} {
  gpu.module @waiting {
    gpu.func @k(%r: !llvm.ptr<1>) kernel attributes {known_block_size = array<i32: 256, 1, 1>} {
      nvvm.griddepcontrol launch_dependents
      nvvm.griddepcontrol wait
      %c0 = arith.constant 0.0 : f32
      llvm.store %c0, %r : f32, !llvm.ptr<1>
      gpu.return
    }
  }
  gpu.module @mixed {
    gpu.func @a(%r: !llvm.ptr<1>) kernel attributes {known_block_size = array<i32: 256, 1, 1>} {
      nvvm.griddepcontrol launch_dependents
      nvvm.griddepcontrol wait
      gpu.return
    }
    gpu.func @b(%r: !llvm.ptr<1>) kernel attributes {known_block_size = array<i32: 256, 1, 1>} {
      gpu.return
    }
  }
}
