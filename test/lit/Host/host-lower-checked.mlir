// RUN: disc-opt %s -disc-host-lower | FileCheck %s

// A launch of a sanitized model passes the sizes of its buffers and what they are; the slot before the arguments is the
// runtime's.
// CHECK-LABEL: func.func @disc_main(
// CHECK-SAME:    %[[CALL:.*]]: !llvm.ptr)
// CHECK:         %[[SLOTS:.*]] = llvm.alloca %{{.*}} x !llvm.array<6 x i64>
// CHECK:         llvm.call @disc_rt_sanitize(%[[CALL]])
// CHECK:         %[[ARGS:.*]] = llvm.getelementptr %[[SLOTS]][1] : (!llvm.ptr) -> !llvm.ptr, i64
// CHECK:         llvm.store %[[X:.*]], %[[ARGS]]
// CHECK:         %[[BUFFERS:.*]] = llvm.mlir.addressof @[[TEXT:.*]] : !llvm.ptr
// CHECK:         %[[BYTES:.*]] = llvm.getelementptr %[[ARGS]][3] : (!llvm.ptr) -> !llvm.ptr, i64
// CHECK:         %[[S:.*]] = llvm.call @disc_rt_checked_launch(%[[CALL]], %{{.*}}, %[[ARGS]], %[[BUFFERS]], %{{.*}}, %[[BYTES]],
// CHECK:         cf.cond_br
// CHECK:         llvm.call @disc_rt_checked_copy(%[[CALL]],
// CHECK-NOT:     llvm.intr.memcpy
disc_shape.symbol @n min 1 max 64
func.func @k(%args: !llvm.ptr, %begin: i64, %end: i64, %scratch: !llvm.ptr)
    attributes {disc_plan.symbols = ["n"], disc_plan.kind = "loop", disc_plan.tasks = #disc_shape.expr<n>} {
  return
}
disc_rt.entry @main attributes {
    inputs = [#disc_rt.tensor<name = "x", type = tensor<?xf32>, dims = <[n]>>],
    outputs = [#disc_rt.tensor<name = "y", type = tensor<?xf32>, dims = <[n]>>,
               #disc_rt.tensor<name = "z", type = tensor<?xf32>, dims = <[n]>>]} {
^bb0(%call: !llvm.ptr):
  disc_rt.sanitize %call
  disc_rt.check_inputs %call
  %n = disc_rt.extent %call[0, 0]
  disc_rt.bind_symbol @n, %n
  %x = disc_rt.input %call[0]
  %y = disc_rt.output %call[0] (%n)
  %z = disc_rt.output %call[1] (%n)
  disc_rt.launch %call @k(%x, %y) checked #disc_shape.dims<[n * 4, n * 4]> as ["r input 'x'", "w output 'y'"]
  %bytes = disc_shape.dim <n * 4>
  disc_rt.copy %z, %x, %bytes checked %call
  disc_rt.return
}
