// RUN: disc-opt %s -disc-emulate-kernels -split-input-file -verify-diagnostics

gpu.module @kernels {
  // expected-error @+1 {{'gpu.func' op has no disc_rt.device_kernel of its name}}
  gpu.func @k() kernel {
    gpu.return
  }
}

// -----

gpu.module @kernels {
  // expected-error @+1 {{'gpu.func' op has memory attributions, which can't be emulated: shared memory is an llvm.mlir.global}}
  gpu.func @k() workgroup(%s: memref<32xf32, #gpu.address_space<workgroup>>) kernel {
    gpu.return
  }
}
disc_rt.device_kernel @k threads 32 []

// -----

gpu.module @kernels {
  llvm.mlir.global internal constant @table(dense<1.0> : tensor<4xf32>) : !llvm.array<4 x f32>
  gpu.func @k() kernel {
    // expected-error @+1 {{'llvm.mlir.addressof' op is not of shared memory, the only one that kernels have for themselves}}
    %s = llvm.mlir.addressof @table : !llvm.ptr
    gpu.return
  }
}
disc_rt.device_kernel @k threads 32 []

// -----

gpu.module @kernels {
  gpu.func @k(%v: vector<4xf32>) kernel {
    %one = arith.constant 1 : i32
    %width = arith.constant 32 : i32
    // expected-error @+1 {{'gpu.shuffle' op shuffles a value of type 'vector<4xf32>'; numbers of at most 64 bits can be}}
    %w, %valid = gpu.shuffle xor %v, %one, %width : vector<4xf32>
    gpu.return
  }
}
disc_rt.device_kernel @k threads 32 [number]

// -----

gpu.module @kernels {
  gpu.func @k() kernel {
    // expected-error @+1 {{'gpu.lane_id' op can't be emulated}}
    %lane = gpu.lane_id
    gpu.return
  }
}
disc_rt.device_kernel @k threads 32 []

// -----

gpu.module @kernels {
  gpu.func @k(%x: f32, %r: !llvm.ptr<1>) kernel {
    // expected-error @+1 {{llvm.nvvm.lg2.approx can't be emulated}}
    %v = llvm.call_intrinsic "llvm.nvvm.lg2.approx"(%x) : (f32) -> f32
    llvm.store %v, %r : f32, !llvm.ptr<1>
    gpu.return
  }
}
disc_rt.device_kernel @k threads 32 [number, writes]

// -----

gpu.module @kernels {
  gpu.func @k(%x: f32, %r: !llvm.ptr<1>) kernel {
    // expected-error @+1 {{llvm.nvvm.div.full can't be emulated}}
    %v = llvm.call_intrinsic "llvm.nvvm.div.full"(%x) : (f32) -> f32
    llvm.store %v, %r : f32, !llvm.ptr<1>
    gpu.return
  }
}
disc_rt.device_kernel @k threads 32 [number, writes]
