// RUN: disc-opt %s --split-input-file --verify-diagnostics --pass-pipeline='builtin.module(%nvvm-passes,disc-nvvm-serialize{cubin=false})'

// expected-error @below {{unknown architecture 'sm_12345'; known architectures: sm_100, }}
module attributes {disc_plan.target = #disc_plan.target<arch = ["sm_80", "sm_12345"]>} {
  gpu.module @unknown {
    gpu.func @k() kernel attributes {known_block_size = array<i32: 32, 1, 1>} { gpu.return }
  }
}

// -----

// expected-error @below {{no architecture for device code}}
module {
  gpu.module @none {
    gpu.func @k() kernel attributes {known_block_size = array<i32: 32, 1, 1>} { gpu.return }
  }
}

// -----

gpu.module @size {
  // expected-error @below {{needs a known block size}}
  gpu.func @k() kernel { gpu.return }
}

// -----

gpu.module @math {
  gpu.func @k(%x: f32, %r: !llvm.ptr<1>) kernel attributes {known_block_size = array<i32: 32, 1, 1>} {
    // expected-error @below {{'math.cbrt' op has neither an instruction on the device nor an expansion for 'f32'}}
    %0 = math.cbrt %x : f32
    llvm.store %0, %r : f32, !llvm.ptr<1>
    gpu.return
  }
}

// -----

gpu.module @calls {
  func.func private @f()
  gpu.func @k() kernel attributes {known_block_size = array<i32: 32, 1, 1>} {
    // expected-error @below {{kernels cannot call functions}}
    func.call @f() : () -> ()
    gpu.return
  }
}

// -----

disc_rt.device_kernel @k threads 32 [reads, writes]
gpu.module @arguments {
  // expected-error @below {{its disc_rt.device_kernel describes 2 arguments, but it has 1}}
  gpu.func @k(%x: f32) kernel attributes {known_block_size = array<i32: 32, 1, 1>} { gpu.return }
}
