// RUN: disc-opt %s --split-input-file --verify-diagnostics --pass-pipeline='builtin.module(%rocdl-passes,disc-rocdl-serialize)'

// expected-error @below {{unknown architecture 'gfx12345'; known architectures: gfx10-1-generic, }}
module attributes {disc_plan.target = #disc_plan.target<arch = ["gfx12345"]>} {
  gpu.module @unknown {
    gpu.func @k() kernel attributes {known_block_size = array<i32: 64, 1, 1>} { gpu.return }
  }
}

// -----

gpu.module @width {
  gpu.func @k(%x: f32, %r: !llvm.ptr<1>) kernel attributes {known_block_size = array<i32: 64, 1, 1>} {
    %c1 = arith.constant 1 : i32
    %c32 = arith.constant 32 : i32
    // expected-error @below {{needs the constant width 64 on this device}}
    %0, %ok = gpu.shuffle xor %x, %c1, %c32 : f32
    llvm.store %0, %r : f32, !llvm.ptr<1>
    gpu.return
  }
}

// -----

gpu.module @type {
  gpu.func @k(%x: f16, %r: !llvm.ptr<1>) kernel attributes {known_block_size = array<i32: 64, 1, 1>} {
    %c1 = arith.constant 1 : i32
    %c64 = arith.constant 64 : i32
    // expected-error @below {{moves values of 32 or 64 bits, not 'f16'}}
    %0, %ok = gpu.shuffle xor %x, %c1, %c64 : f16
    llvm.store %0, %r : f16, !llvm.ptr<1>
    gpu.return
  }
}
