// RUN: disc-opt %s -disc-emulate-kernels=check=true -split-input-file -verify-diagnostics

gpu.module @kernels {
  gpu.func @k(%x: !llvm.ptr<1>, %r: !llvm.ptr<1>, %n: i64) kernel {
    // expected-error @+1 {{'llvm.intr.memcpy' op uses memory in a way that can't be checked}}
    "llvm.intr.memcpy"(%x, %r, %n) <{isVolatile = false}> : (!llvm.ptr<1>, !llvm.ptr<1>, i64) -> ()
    gpu.return
  }
}
disc_rt.device_kernel @k threads 32 [reads, writes, number]

// -----

gpu.module @kernels {
  // expected-error @+1 {{'gpu.func' op says that argument 0 has M * 4 bytes, but has no value of 'M'}}
  gpu.func @k(%x: !llvm.ptr<1> {disc_plan.bytes = #disc_shape.expr<M * 4>}, %n: i64) kernel {
    gpu.return
  }
}
disc_rt.device_kernel @k threads 32 [reads, number] {disc_plan.symbols = ["N"]}

// -----

gpu.module @kernels {
  gpu.func @k(%w: !llvm.ptr<1> {disc_plan.constant}, %x: !llvm.ptr<1>, %r: !llvm.ptr<1>) kernel {
    %0 = llvm.load %w : !llvm.ptr<1> -> f32
    // expected-error @+1 {{'llvm.load' op uses memory before the kernel has waited for those before it}}
    %1 = llvm.load %x : !llvm.ptr<1> -> f32
    nvvm.griddepcontrol wait
    %2 = llvm.fadd %0, %1 : f32
    llvm.store %2, %r : f32, !llvm.ptr<1>
    gpu.return
  }
}
disc_rt.device_kernel @k threads 32 [reads, reads, writes]
