// The host flow of kernels on a device: grids in the call's stream, copies within the device, and what is read from it.
// RUN: disc-opt %s --disc-host-lower | FileCheck %s
// RUN: disc-opt %s --disc-host-lower | FileCheck %s --check-prefix=TABLE

module attributes {disc_plan.target = #disc_plan.target<device = "cuda", warp = 32>, gpu.container_module} {
disc_shape.symbol @B min 1 max 64
disc_shape.symbol @u0 min 0 max 64

disc_rt.device_kernel @tiny threads 256 [reads, number, writes] {disc_plan.kind = "loop", disc_plan.symbols = [], disc_plan.tasks = #disc_shape.expr<1>}
disc_rt.device_kernel @rows threads 256 [reads, writes, number] {disc_plan.kind = "row", disc_plan.symbols = ["B"], disc_plan.tasks = #disc_shape.expr<(B + 7) floordiv 8>}
disc_rt.device_kernel @checked threads 128 [reads, writes, writes, number, number] {disc_plan.kind = "loop", disc_plan.symbols = [], disc_plan.tasks = #disc_shape.expr<B>,
    disc_plan.texts = ["aten.embedding at model.py:3", "aten.index at model.py:4"]}
disc_rt.device_kernel @add threads 256 [reads, writes, number, number, number, number] {disc_plan.kind = "call", disc_plan.symbols = ["B"], disc_plan.tasks = #disc_shape.expr<0>,
    disc_plan.order = #disc_plan.order<merge = @add_merge, last = @add_last, rows = <1>, length = <B>>,
    disc_plan.update = #disc_plan.update<result = 1, bytes = <B * 4>>}
disc_rt.device_kernel @add_merge threads 256 [reads, writes, number, number, number, number] {disc_plan.kind = "call", disc_plan.symbols = ["B"], disc_plan.tasks = #disc_shape.expr<0>}
disc_rt.device_kernel @add_last threads 256 [reads, writes, number, number, number, number] {disc_plan.kind = "call", disc_plan.symbols = ["B"], disc_plan.tasks = #disc_shape.expr<B>}
disc_rt.device_kernel @sum threads 256 [reads, writes, number, writes, number] {disc_plan.kind = "row", disc_plan.symbols = ["B"], disc_plan.tasks = #disc_shape.expr<1>,
    disc_plan.split = #disc_plan.split<part = @sum_part, whole = @sum_whole, most = <(B + 15) floordiv 16>, values = <1>>}
disc_rt.device_kernel @sum_part threads 256 [reads, writes, number, writes, number] {disc_plan.kind = "row", disc_plan.symbols = ["B"], disc_plan.tasks = #disc_shape.expr<1>}
disc_rt.device_kernel @product threads 256 [reads, writes, number] {disc_plan.kind = "contraction", disc_plan.symbols = ["B"], disc_plan.tasks = #disc_shape.expr<1>,
    disc_plan.before = @product_decode}
disc_rt.device_kernel @product_decode threads 256 [reads, writes, number] {disc_plan.kind = "contraction", disc_plan.symbols = ["B"], disc_plan.tasks = #disc_shape.expr<min(B floordiv 65, 1) * 2>}
disc_rt.device_kernel @sum_whole threads 256 [reads, writes, number, writes, number] {disc_plan.kind = "row", disc_plan.symbols = ["B"], disc_plan.tasks = #disc_shape.expr<1>}
func.func @sort(%args: !llvm.ptr, %begin: i64, %end: i64, %scratch: !llvm.ptr)
    attributes {disc_plan.symbols = ["B"], disc_plan.kind = "call", disc_plan.tasks = #disc_shape.expr<B>,
                disc_plan.cost = #disc_shape.expr<100>, disc_plan.scratch = #disc_shape.expr<B * 8>, disc_plan.reports_to_call,
                disc_plan.buffer_bytes = #disc_shape.dims<[B * 4, B * 8]>, disc_plan.results = 1 : i64} {
  return
}

// CHECK-LABEL: func.func @disc_main(%arg0: !llvm.ptr) -> i32
// CHECK: %[[SLOTS:.*]] = llvm.alloca {{.*}} x !llvm.array<6 x i64>
// CHECK: %[[B:.*]] = arith.index_cast
// CHECK: %[[X:.*]] = llvm.call @disc_rt_input
// CHECK: %[[ARENA:.*]] = llvm.call @disc_rt_arena

// A kernel that is always small is launched like any other: there is no function to call.
// CHECK: %[[ONE:.*]] = arith.constant 1 : index
// CHECK: %[[BLOCKS:.*]] = arith.index_cast %[[ONE]]
// CHECK: llvm.store %[[X]], %[[SLOTS]]
// CHECK: %[[NUMBER:.*]] = arith.constant 0 : i64
// CHECK: %[[COUNT:.*]] = arith.constant 2 : i64
// CHECK: %[[STATUS:.*]] = llvm.call @disc_rt_device_launch(%arg0, %[[NUMBER]], %[[SLOTS]], %[[COUNT]], %[[BLOCKS]]) : (!llvm.ptr, i64, !llvm.ptr, i64, i64) -> i32
// CHECK: cf.cond_br %{{.*}}, ^{{.*}}, ^{{.*}}(%[[STATUS]] : i32)

// Blocks are a function of the symbols' values, which follow the buffers.
// CHECK: arith.constant 7 : index
// CHECK: %[[VALUE:.*]] = arith.index_cast %[[B]]
// CHECK: llvm.store %[[VALUE]]
// CHECK: llvm.call @disc_rt_device_launch

// What checks report to, and where their texts are.
// CHECK: %[[ERRORS:.*]] = llvm.call @disc_rt_device_errors(%arg0)
// CHECK: llvm.icmp "ne" %[[ERRORS]]
// CHECK: llvm.store %[[ERRORS]]
// CHECK: %[[TEXT0:.*]] = llvm.mlir.addressof
// CHECK: llvm.store %[[TEXT0]]
// CHECK: %[[TEXT1:.*]] = llvm.mlir.addressof
// CHECK: llvm.store %[[TEXT1]]
// CHECK: llvm.call @disc_rt_device_launch

// Two buffers, a symbol and the call; behind them how many bytes the buffers have.
// CHECK: %[[SORT:.*]] = constant @sort
// CHECK: %[[SORT_AT:.*]] = builtin.unrealized_conversion_cast %[[SORT]]
// CHECK: llvm.call @disc_rt_device_call_host(%arg0, %[[SORT_AT]], %[[SLOTS]], {{.*}}) : (!llvm.ptr, !llvm.ptr, !llvm.ptr, i64, i64, i64, i64, i64, i64) -> i32

// What is changed in place is copied first, unless it is there; the runtime launches the kernels that put updates in
// order, and says in the slots behind two buffers and a symbol what each has to do.
// CHECK: llvm.call @disc_rt_device_copy(%arg0, %[[ARENA]], %[[X]], %{{.*}})
// CHECK: %[[FIRST:.*]] = arith.constant 3 : i64
// CHECK: %[[MERGE:.*]] = arith.constant 4 : i64
// CHECK: %[[LAST:.*]] = arith.constant 5 : i64
// CHECK: %[[ALL:.*]] = arith.constant 6 : i64
// CHECK: %[[OWN:.*]] = arith.constant 3 : i64
// CHECK: llvm.call @disc_rt_device_order(%arg0, %[[FIRST]], %[[MERGE]], %[[LAST]], %[[SLOTS]], %[[ALL]], %[[OWN]], %{{.*}}, %{{.*}}, %{{.*}})

// Whether a reduction has parts the runtime decides; two slots behind the symbol are its own.
// CHECK: %[[PART:.*]] = arith.constant 7 : i64
// CHECK: %[[SUM:.*]] = arith.constant 6 : i64
// CHECK: %[[WHOLE:.*]] = arith.constant 10 : i64
// CHECK: %[[FIVE:.*]] = arith.constant 5 : i64
// CHECK: llvm.call @disc_rt_device_reduce(%arg0, %[[SUM]], %[[PART]], %[[WHOLE]], %[[SLOTS]], %[[FIVE]], %{{.*}})

// What a kernel reads another one may compute first, in no blocks for small extents.
// CHECK: %[[DECODE:.*]] = arith.constant 9 : i64
// CHECK: llvm.call @disc_rt_device_launch(%arg0, %[[DECODE]], %[[SLOTS]], %{{.*}}, %{{.*}})
// CHECK: %[[PRODUCT:.*]] = arith.constant 8 : i64
// CHECK: llvm.call @disc_rt_device_launch(%arg0, %[[PRODUCT]], %[[SLOTS]], %{{.*}}, %{{.*}})

// CHECK: llvm.call @disc_rt_device_copy(%arg0, %{{.*}}, %{{.*}}, %{{.*}}) : (!llvm.ptr, !llvm.ptr, !llvm.ptr, i64) -> i32
// CHECK-NOT: llvm.intr.memcpy

// A computed extent lies on the device.
// CHECK: %[[EIGHT:.*]] = arith.constant 8 : i64
// CHECK: llvm.call @disc_rt_device_read(%arg0, %[[SLOTS]], %[[ARENA]], %[[EIGHT]])
// CHECK: %[[READ:.*]] = llvm.load %[[SLOTS]]
// CHECK: arith.index_cast %[[READ]]

// CHECK-NOT: @disc_rt_parallel_for
// CHECK-NOT: disc_rt.device_kernel
// CHECK-NOT: gpu.binary
disc_rt.entry @main attributes {
    inputs = [#disc_rt.tensor<name = "x", type = tensor<?xf32>, dims = <[B]>>],
    outputs = [#disc_rt.tensor<name = "y", type = tensor<?xf32>, dims = <[B]>>]} {
^bb0(%call: !llvm.ptr):
  disc_rt.check_inputs %call
  %B = disc_rt.extent %call[0, 0]
  disc_rt.bind_symbol @B, %B
  %x = disc_rt.input %call[0]
  %bytes = disc_shape.dim <B * 8>
  %arena = disc_rt.arena %call, %bytes
  %y = disc_rt.output %call[0] (%B)
  disc_rt.launch %call @tiny(%x, %arena)
  disc_rt.launch %call @rows(%x, %arena)
  disc_rt.launch %call @checked(%x, %y)
  disc_rt.launch %call @sort(%x, %arena)
  disc_rt.launch %call @add(%x, %arena)
  disc_rt.launch %call @sum(%x, %arena)
  disc_rt.launch %call @product(%x, %arena)
  disc_rt.copy %y, %x, %bytes
  %v = llvm.load %arena : !llvm.ptr -> i64
  %u = arith.index_cast %v : i64 to index
  disc_rt.bind_symbol @u0, %u computed
  disc_rt.return
}

// A cubin, PTX for other chips (as text that ends in 0), and an hsaco.
gpu.binary @kernels [#gpu.object<#nvvm.target<chip = "sm_90">, bin = "cubin">,
                     #gpu.object<#nvvm.target<chip = "sm_80">, assembly = "ptx">,
                     #gpu.object<#rocdl.target<chip = "gfx942">, bin = "hsaco!">]
}

// TABLE-DAG: llvm.mlir.global private constant @{{.*}}("cuda\00")
// TABLE-DAG: llvm.mlir.global private constant @{{.*}}("sm_90\00")
// TABLE-DAG: llvm.mlir.global private constant @{{.*}}("compute_80\00")
// TABLE-DAG: llvm.mlir.global private constant @{{.*}}("gfx942\00")
// TABLE-DAG: llvm.mlir.global private constant @{{.*}}("cubin") {{.*}}alignment = 64
// TABLE-DAG: llvm.mlir.global private constant @{{.*}}("ptx\00") {{.*}}alignment = 64
// TABLE-DAG: llvm.mlir.global private constant @{{.*}}("hsaco!") {{.*}}alignment = 64
// TABLE-DAG: llvm.mlir.global private constant @{{.*}}("011ss\00")
// TABLE-DAG: @disc_device_images() {{.*}}!llvm.array<3 x struct<(ptr, ptr, i64, i64)>>
// TABLE-DAG: @disc_device_kernels() {{.*}}!llvm.array<11 x struct<(ptr, i64, i64, ptr, ptr)>>
// TABLE-DAG: @disc_device_code() {{.*}}!llvm.array<1 x struct<(ptr, i64, ptr, i64, ptr)>>
