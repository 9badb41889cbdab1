// RUN: disc-opt %s --split-input-file --verify-diagnostics --disc-host-lower

// expected-error @below {{has kernels for a device, but 'disc_plan.target' names none}}
module attributes {disc_plan.target = #disc_plan.target<triple = "x86_64-pc-linux-gnu">} {
disc_rt.device_kernel @k threads 256 [] {disc_plan.kind = "loop", disc_plan.symbols = []}
disc_rt.entry @main attributes {inputs = [], outputs = []} {
^bb0(%call: !llvm.ptr):
  disc_rt.return
}
}

// -----

module attributes {disc_plan.target = #disc_plan.target<device = "emulated">} {
// expected-error @below {{names no function: @k_emulated}}
disc_rt.device_kernel @k threads 256 [] host @k_emulated {disc_plan.kind = "loop", disc_plan.symbols = []}
disc_rt.entry @main attributes {inputs = [], outputs = []} {
^bb0(%call: !llvm.ptr):
  disc_rt.return
}
}

// -----

module attributes {disc_plan.target = #disc_plan.target<device = "cuda">} {
disc_rt.device_kernel @k threads 256 []
disc_rt.entry @main attributes {inputs = [], outputs = []} {
^bb0(%call: !llvm.ptr):
  // expected-error @below {{needs 'disc_plan.symbols' on k}}
  disc_rt.launch %call @k()
  disc_rt.return
}
}

// -----

module attributes {disc_plan.target = #disc_plan.target<device = "cuda">} {
disc_shape.symbol @S
disc_rt.device_kernel @k threads 256 [] {disc_plan.kind = "loop", disc_plan.symbols = [], disc_plan.tasks = #disc_shape.expr<S>}
disc_rt.entry @main attributes {inputs = [], outputs = []} {
^bb0(%call: !llvm.ptr):
  // expected-error @below {{needs the value of 'S', but symbol 'S' is not bound here}}
  disc_rt.launch %call @k()
  disc_rt.return
}
}

// -----

module attributes {disc_plan.target = #disc_plan.target<device = "cuda">, gpu.container_module} {
disc_rt.device_kernel @k threads 256 [] {disc_plan.kind = "loop", disc_plan.symbols = []}
disc_rt.entry @main attributes {inputs = [], outputs = []} {
^bb0(%call: !llvm.ptr):
  disc_rt.return
}
// expected-error @below {{has an image for an unknown kind of device: #spirv.target_env}}
gpu.binary @kernels [#gpu.object<#spirv.target_env<#spirv.vce<v1.0, [Shader], []>, #spirv.resource_limits<>>, bin = "spirv">]
}

// -----

module attributes {disc_plan.target = #disc_plan.target<device = "cuda">} {
disc_rt.device_kernel @k threads 256 [reads, writes] {disc_plan.kind = "call", disc_plan.symbols = [],
    disc_plan.update = #disc_plan.update<result = 1, bytes = <4>>}
disc_rt.entry @main attributes {inputs = [], outputs = []} {
^bb0(%call: !llvm.ptr):
  // expected-error @below {{has 0 buffers, of which k uses number 0}}
  disc_rt.launch %call @k()
  disc_rt.return
}
}

// -----

module attributes {disc_plan.target = #disc_plan.target<device = "cuda">} {
// expected-error @below {{'disc_plan.buffer_bytes' needs 'disc_plan.results' beside it}}
func.func @k(%args: !llvm.ptr, %begin: i64, %end: i64, %scratch: !llvm.ptr)
    attributes {disc_plan.symbols = [], disc_plan.kind = "call", disc_plan.tasks = #disc_shape.expr<1>,
                disc_plan.buffer_bytes = #disc_shape.dims<[4]>} {
  return
}
disc_rt.entry @main attributes {inputs = [], outputs = []} {
^bb0(%call: !llvm.ptr):
  disc_rt.launch %call @k(%call)
  disc_rt.return
}
}
