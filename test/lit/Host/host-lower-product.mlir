// A product goes to the device's library first, where the kernel says so; what it cannot do, and all others, to the kernel.
// Of several kernels the first runs whose condition holds.
// RUN: disc-opt %s --disc-host-lower | FileCheck %s

module attributes {disc_plan.target = #disc_plan.target<device = "cuda", warp = 32>, gpu.container_module} {
disc_shape.symbol @B min 1 max 64

disc_rt.device_kernel @other threads 256 [reads, writes] {disc_plan.kind = "loop", disc_plan.symbols = [], disc_plan.tasks = #disc_shape.expr<1>}
disc_rt.device_kernel @linear threads 256 [reads, reads, writes, number] {disc_plan.kind = "contraction", disc_plan.symbols = ["B"], disc_plan.tasks = #disc_shape.expr<B>,
    disc_plan.library = #disc_plan.library_product<operands = [0, 1, 2], extents = <[1, B, 1536, 384, 0, 0, B * 1536]>, dtype = 544, when = <B - 7>, a_columns = false, b_columns = true, epilogue = @linear_epilogue>}
disc_rt.device_kernel @linear_epilogue threads 256 [reads, reads, writes, number] {disc_plan.kind = "contraction", disc_plan.symbols = ["B"], disc_plan.tasks = #disc_shape.expr<B + 1>}
disc_rt.device_kernel @some threads 256 [reads, reads, writes, number] {disc_plan.kind = "contraction", disc_plan.symbols = ["B"], disc_plan.tasks = #disc_shape.expr<B>,
    disc_plan.variants = [#disc_plan.kernel_variant<kernel = @some_many, when = <B - 32>>, #disc_plan.kernel_variant<kernel = @some_few, when = <5 - B>>]}
disc_rt.device_kernel @some_many threads 256 [reads, reads, writes, number] {disc_plan.kind = "contraction", disc_plan.symbols = ["B"], disc_plan.tasks = #disc_shape.expr<B + 2>}
disc_rt.device_kernel @some_few threads 256 [reads, reads, writes, number] {disc_plan.kind = "contraction", disc_plan.symbols = ["B"], disc_plan.tasks = #disc_shape.expr<B + 3>}

// Kernel 1, f32, the right side by columns, no epilogue, no TF32.
// CHECK: llvm.mlir.global private constant @disc_product_linear(dense<[1, 544, 0, 1, 0, 0]> : tensor<6xi64>)
// CHECK-LABEL: func.func @disc_main
// CHECK: %[[LEAST:.*]] = arith.constant 0 : i64
// CHECK: %[[LARGE:.*]] = arith.cmpi sgt, %{{.*}}, %[[LEAST]]
// CHECK: cf.cond_br %[[LARGE]], ^[[LIBRARY:.*]], ^[[KERNEL:.*]]
// CHECK: ^[[LIBRARY]]:
// CHECK: %[[STATUS:.*]] = llvm.call @disc_rt_device_matmul(%arg0, %{{.*}}, %{{.*}}, %{{.*}})
// CHECK: %[[NONE:.*]] = arith.constant -1 : i32
// CHECK: %[[DONE:.*]] = arith.cmpi ne, %[[STATUS]], %[[NONE]]
// CHECK: cf.cond_br %[[DONE]], ^[[REST:.*]], ^[[KERNEL]]
// CHECK: ^[[REST]]:
// CHECK: cf.cond_br %{{.*}}, ^{{.*}}, ^{{.*}}(%[[STATUS]] : i32)
// CHECK: %[[TWO:.*]] = arith.constant 2 : i64
// CHECK: llvm.call @disc_rt_device_launch(%arg0, %[[TWO]],
// CHECK: cf.br ^[[AFTER:.*]]
// CHECK: ^[[KERNEL]]:
// CHECK: %[[ONE:.*]] = arith.constant 1 : i64
// CHECK: llvm.call @disc_rt_device_launch(%arg0, %[[ONE]],
// CHECK: cf.br ^[[AFTER]]
// CHECK: ^[[AFTER]]:
// The number of the kernel and that of its blocks are chosen from the last condition to the first.
// CHECK: arith.constant 3 : i64
// CHECK: arith.constant 5 : i64
// CHECK: %[[FEW:.*]] = arith.cmpi sgt
// CHECK: %[[OWN:.*]] = arith.select %[[FEW]]
// CHECK: arith.constant 4 : i64
// CHECK: %[[MANY:.*]] = arith.cmpi sgt
// CHECK: %[[NUMBER:.*]] = arith.select %[[MANY]], %{{.*}}, %[[OWN]] : i64
// CHECK: llvm.call @disc_rt_device_launch(%arg0, %[[NUMBER]],
disc_rt.entry @main attributes {
    inputs = [#disc_rt.tensor<name = "x", type = tensor<?x384xf32>, dims = <[B, 384]>>],
    outputs = [#disc_rt.tensor<name = "y", type = tensor<?x1536xf32>, dims = <[B, 1536]>>]} {
^bb0(%call: !llvm.ptr):
  disc_rt.check_inputs %call
  %b = disc_rt.extent %call[0, 0]
  disc_rt.bind_symbol @B, %b
  %n = disc_shape.dim <1536>
  %x = disc_rt.input %call[0]
  %w = disc_rt.parameter %call "w" as tensor<1536x384xf32>
  %y = disc_rt.output %call[0] (%b, %n)
  disc_rt.launch %call @linear(%x, %w, %y)
  disc_rt.launch %call @some(%x, %w, %y)
  disc_rt.return
}
}
